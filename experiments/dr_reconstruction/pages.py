"""Tables of the pages about paper 000, from the committed rows.

python -m experiments.dr_reconstruction.pages claims best
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path

from drjax.core import validate
from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments import claims
from experiments.dr_reconstruction import paper, report
from experiments.dr_reconstruction.cells import identity
from experiments.dr_reconstruction.claims import CLAIMS, LENSES, judged_claims
from experiments.dr_reconstruction.results import Results
from experiments.dr_reconstruction.verdicts import NOT_TESTED
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS, Claim

FILE = Path(__file__).parent / "results" / RESULTS

AGAIN = FILE.parent / "again" / RESULTS
"""Some cells of one repeat, computed by a later commit."""

PIXELS = 28 * 28
"""Features of a record of MNIST."""

made = Tables()
block = made.block


@functools.cache
def committed() -> Results:
    """The committed run."""
    return Results.read(FILE)


@made
def claims_table(lens: str) -> str:
    """Every claim as put to one attack; those of which nothing was run for it are counted below.

    Args:
        lens: "best" for the strongest attack, "network" for the paper's.
    """
    validate.one_of(LENSES, lens=lens)
    ending = f", {LENSES[lens]}"
    own = [claim for claim in judged_claims(records.read_records(FILE)) if claim.claim.endswith(ending)]
    begun = [_row(claim, claim.claim.removesuffix(ending)) for claim in own if claim.ours]
    asked = [claim for claim in CLAIMS if lens in claim.lenses]
    lost = f"Not run, because nothing that they are about has a row: {len(asked) - len(begun)} of {len(asked)} claims."
    return f"{claims.table(begun)}\n\n{lost}" if len(asked) > len(begun) else claims.table(begun)


def _row(claim: Claim, text: str) -> Claim:
    section = claim.paper.replace("section", "direction only, section")
    if claim.verdict != NOT_TESTED:
        return replace(claim, claim=text, paper=section)
    # What is said of it is what was not run.
    return replace(claim, claim=text, paper=section, ours="", verdict=claims.NOT_RUN, note=claim.ours)


@made
def tsne() -> str:
    """Attacks on t-SNE maps of MNIST with 199 known records, of the repeat that inversion was run on."""
    titles = {
        "mean": "mean record",
        "nearest": "nearest of {n_pool} records (known and shadow)",
        "invariant": "kernel on invariant features",
        "residual-network": "the same with a network",
        "affinities": "kernel on stationary affinities",
        "inversion": "inversion, no shadows",
    }
    rows = []
    for attack, title in titles.items():
        found = committed().records("mnist", "tsne", 199, attack)[0]
        scores = found["scores"]
        mse = scores["mse"]
        rows.append((
            title.format(n_pool=found["n_pool"]),
            str(scores["n_targets"]),
            f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})",
            number(scores["mse_median"]["estimate"]),
            "" if found["is_baseline"] else percent(scores["identification"]["estimate"]),
            "" if found["is_baseline"] else number(scores["seconds_per_target"]),
        ))  # fmt: skip
    return markdown_table(("attack", "targets", "MSE", "median", "identified", "s a target"), rows)


@made
def table_4() -> str:
    """Table 4 of the paper beside ours."""
    return report.table_4(committed())


@made
def computed_again() -> str:
    """Errors of cells that a later commit computed again, beside those of the committed run."""
    earlier = {identity(line): line for line in records.read_records(FILE) if line["kind"] == "attack"}
    rows = []
    for line in records.read_records(AGAIN):
        if line["kind"] != "attack":
            continue
        errors = [
            found["scores"][measure]["estimate"]
            for measure in ("mse", "mse_median")
            for found in (earlier[identity(line)], line)
        ]
        # Adding 0 makes a zero of a negative one.
        changes = (now / then - 1 for then, now in zip(errors[::2], errors[1::2], strict=True))
        mean, median = (f"{round(change, 3) + 0:.1%}" for change in changes)
        method = paper.METHOD_NAMES[line["method"]]
        rows.append((method, line["label"], number(errors[0]), number(errors[1]), mean, median))
    rows.sort(key=lambda row: [*paper.METHOD_NAMES.values()].index(row[0]))
    heads = ("99 known, repeat 0", "attack", "committed", "again", "mean changed by", "median changed by")
    return markdown_table(heads, rows)


@made
def noise_of_mnist() -> str:
    """Errors left of PCA of MNIST with 99 known by the noise on the records, and shares of targets rebuilt."""
    titles = {
        "closed-form": "closed form",
        "invariant": "invariant kernel, trained on clean releases",
        "adaptive-invariant": "invariant kernel, trained on noisy releases",
        "ridge": "ridge, trained on clean releases",
        "adaptive-ridge": "ridge, trained on noisy releases",
        "nearest": "*nearest neighbour*",
        "mean": "*mean record*",
    }
    sigmas = committed().sigmas("mnist")
    rows = []
    for name, title in titles.items():
        cells = []
        for sigma in sigmas:
            mse, success = (
                committed().estimate("mnist", "pca", 99, name, sigma=sigma, measure=measure)
                for measure in ("mse", "success")
            )
            assert mse is not None
            assert success is not None
            cells.append(number(mse.mean) + ("" if name in ("nearest", "mean") else f", {success.mean:.0%}"))
        rows.append((title, *cells))
    return markdown_table(("attack", *(f"{sigma:g}/255" for sigma in sigmas)), rows)


@made
def equation_12() -> str:
    """Equation 12 of PCA of MNIST with 99 known under noise of 16/255 beside squared errors, in the same unit."""
    titles = {
        "ridge": "ridge, trained on clean releases (the paper's protocol)",
        "adaptive-ridge": "ridge, trained on releases like those it is given",
        "closed-form": "closed form",
        "mean": "*mean record*",
    }
    rows = []
    for name, title in titles.items():
        clean, noisy, moved = (
            committed().estimate("mnist", "pca", 99, attack, sigma=sigma, measure=measure)
            for attack, sigma, measure in (
                (name.removeprefix("adaptive-"), 0, "mse"),
                (name, 16, "mse"),
                (name, 16, "eq12"),
            )
        )
        assert clean is not None
        assert noisy is not None
        # An attack that is another one under every noise has no equation 12.
        rows.append((
            title,
            "" if moved is None else f"{moved.mean:.1f}",
            f"{PIXELS * clean.mean:.1f}",
            f"{PIXELS * noisy.mean:.1f}",
        ))  # fmt: skip
    return markdown_table(("attack", "equation 12", "squared error against the record, clean", "noisy"), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

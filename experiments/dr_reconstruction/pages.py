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
from experiments.dr_reconstruction import report
from experiments.dr_reconstruction.claims import CLAIMS, LENSES, judged_claims
from experiments.dr_reconstruction.results import Results
from experiments.dr_reconstruction.verdicts import NOT_TESTED
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS, Claim

FILE = Path(__file__).parent / "results" / RESULTS

made = Tables()
block = made.block


@functools.cache
def _results() -> Results:
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
        found = _results().records("mnist", "tsne", 199, attack)[0]
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
    return report.table_4(_results())


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

"""Tables of the pages, from the committed results of `experiments.best_attacks.run`.

python -m experiments.best_attacks.report readme      # the table of the README
python -m experiments.best_attacks.report attacks     # every attack, of 199 and of 999 known records
python -m experiments.best_attacks.report command     # `drjax attack embedding` beside an attack that is told all
python -m experiments.best_attacks.report NAME        # pieces of the second table: distances, mds, forces
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments.best_attacks.run import COMMAND, OURS, ROWS
from experiments.cells import Line
from experiments.dr_reconstruction.paper import TABLE_4
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

FOLDERS = ("pca_mds", "isomap_umap_srp", "tsne")
"""Results of 199 known records, each with other rows."""

MORE_KNOWN = ("pca_999", "mds_999")
"""Results of 999 known records."""

BY_COMMAND = ("command_pca", "command_isomap_mds", "command_tsne", "command_opentsne", "command_umap_srp")

BASELINES = ("mean", "nearest")


made = Tables()
block = made.block


def lines_of(folders: Iterable[str]) -> list[Line]:
    """The committed attacks of some folders."""
    return [line for folder in folders for line in records.read_records(HERE / folder / RESULTS)[1:]]


def line_of(lines: Iterable[Line], row: str, maker: str, attack: str) -> Line:
    """The attack on one kind of release by one maker.

    Raises:
        LookupError: it is not there, or more than once.
    """
    own = [line for line in lines if (line["row"], line["maker"], line["attack"]) == (row, maker, attack)]
    if len(own) != 1:
        raise LookupError(f"results must hold {attack} on {row} by {maker} once, got {len(own)} lines")
    return own[0]


@made
def readme() -> str:
    """The mean error of the best attack on each kind of release, by drjax and by the library, beside the paper's."""
    shown = (
        ("PCA", "PCA", "closed-form"),
        ("MDS, scikit-learn's defaults", "MDS", "stationarity"),
        ("MDS, converged", "MDS, converged", "stationarity"),
        ("Isomap", "Isomap", "geodesics"),
        ("t-SNE", "t-SNE", "affinities"),
        ("t-SNE, {} targets", "t-SNE", "inversion"),
        ("UMAP", "UMAP", "invariant"),
        ("SRP, seed unknown", "SRP, seed unknown", "srp-closed-form"),
    )
    lines, rows = lines_of(FOLDERS), []
    for title, row, attack in shown:
        ours, theirs = (line_of(lines, row, maker, attack) for maker in (OURS, "library"))
        # The paper's embeddings have the libraries' defaults.
        printed = "" if ROWS[row].options else f"{TABLE_4['network'][ROWS[row].method][0]:.3f}"
        named = percent(ours["scores"]["identification"]["estimate"])
        rows.append(
            (title.format(ours["scores"]["n_targets"]), f"`{attack}`", _error(ours), _error(theirs), named, printed)
        )
    return markdown_table(("release", "attack", "drjax's kernels", "the library itself", "identified", "paper"), rows)


@made
def attacks() -> str:
    """Every attack and, once for each number of known records, the two baselines."""
    heads = (
        "release", "made by", "attack", "targets", "MSE, mean (95% interval)", "MSE, median", "closer", "identified",
        "s per target",
    )  # fmt: skip
    rows = []
    for folders, known in ((FOLDERS, ""), (MORE_KNOWN, ", 999 known")):
        lines = lines_of(folders)
        most = max(line["scores"]["n_targets"] for line in lines)
        for name in BASELINES:
            first = next(line for line in lines if line["attack"] == name and line["scores"]["n_targets"] == most)
            rows.append((f"any{known}", "", f"*{name}*", *_scores(first)))
        rows += [
            (f"{line['row']}{known}", line["maker"], f"`{line['attack']}`", *_scores(line))
            for line in lines
            if line["attack"] not in BASELINES
        ]
    return markdown_table(heads, rows)


@made
def command() -> str:
    """`drjax attack embedding`, which is told nothing of the map, beside the attack that is told the method."""
    titles = {
        "PCA": "scikit-learn, PCA",
        "MDS": "scikit-learn, MDS",
        "Isomap": "scikit-learn, Isomap",
        "t-SNE": "scikit-learn, t-SNE",
        "t-SNE by openTSNE": "openTSNE",
        "UMAP": "umap-learn",
        "SRP, seed unknown": "scikit-learn, random projection",
    }
    lines, rows = lines_of(BY_COMMAND), []
    for row, title in titles.items():
        told, found = (line_of(lines, row, "library", attack) for attack in (ROWS[row].attacks[-1], COMMAND))
        took = Counter(found["facts"]["attack"]).most_common()
        chosen = ", ".join(f"`{name}`{f' {count}' if len(took) > 1 else ''}" for name, count in took)
        n, seconds = found["scores"]["n_targets"], found["scores"]["seconds_per_target"]
        rows.append((title, _error(told), _error(found), str(n), chosen, f"{seconds:.0f}"))
    heads = (
        "map by", "attack that is told the method", f"`{COMMAND}`", "maps", "it took", "s a map",
    )  # fmt: skip
    return markdown_table(heads, rows)


@made
def distances() -> str:
    """What maps of distances leave, beside the baselines."""
    shown = (
        ("mean record", "Isomap", "mean"),
        ("most similar record at hand", "Isomap", "nearest"),
        ("Isomap, `geodesics`", "Isomap", "geodesics"),
        ("MDS, scikit-learn's defaults", "MDS", "stationarity"),
        ("MDS, converged", "MDS, converged", "stationarity"),
    )
    lines, rows = lines_of(FOLDERS), []
    for title, row, attack in shown:
        scores = line_of(lines, row, OURS, attack)["scores"]
        named = "" if attack in BASELINES else percent(scores["identification"]["estimate"])
        rows.append((title, number(scores["mse"]["estimate"]), named))
    return markdown_table(("MNIST, 199 known records", "error", "picked out of 1,001"), rows)


@made
def mds() -> str:
    """The attack on MDS as it runs."""
    titles = {"MDS": "scikit-learn's defaults", "MDS, converged": "converged (`eps=1e-12`)"}
    lines, rows = lines_of(FOLDERS), []
    for row, title in titles.items():
        for maker in (OURS, "library"):
            scores = _scores(line_of(lines, row, maker, "stationarity"))
            rows.append((title, maker if maker == OURS else "scikit-learn", *scores))
    heads = ("maps", "made by", "targets", "MSE", "median", "closer", "identified", "s a target")
    return markdown_table(heads, rows)


@made
def forces() -> str:
    """Inversion of maps by Barnes-Hut and of exact ones."""
    titles = {
        "library": "affinities cut, repulsion by groups, on scikit-learn's maps: **what runs**",
        OURS: "our exact maps from the same start (PCA)",
    }
    lines, rows = lines_of(FOLDERS), []
    for maker, title in titles.items():
        line = line_of(lines, "t-SNE", maker, "inversion")
        median, named = (line["scores"][name]["estimate"] for name in ("mse_median", "identification"))
        rows.append((title, str(line["scores"]["n_targets"]), _error(line), number(median), percent(named)))
    return markdown_table(("forces", "targets", "MSE", "median", "identified"), rows)


def _error(line: Line) -> str:
    mse = line["scores"]["mse"]
    return f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})"


def _scores(line: Line) -> tuple[str, ...]:
    scores = line["scores"]
    return (
        f"{scores['n_targets']:,}",
        _error(line),
        number(scores["mse_median"]["estimate"]),
        percent(scores["success"]["estimate"]),
        percent(scores["identification"]["estimate"]),
        number(scores["seconds_per_target"]),
    )


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

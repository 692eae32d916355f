"""Tables of the pages, from the committed results of `experiments.intervals.run`.

python -m experiments.intervals.report cells        # every cell
python -m experiments.intervals.report attacks      # all data sets together
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


def share_words(share: float | None) -> str:
    """A share as a percentage; nothing where none was counted."""
    return "" if share is None else percent(share)


def to_markdown(found: Iterable[Line]) -> str:
    """The cells as a Markdown table, one row each, and those of each kind of map together."""
    lines = list(found)
    rows = [_row(line["map"], line["data"], [line]) for line in lines]
    together = dict.fromkeys(line["map"] for line in lines)
    rows += [_row(kind, "all", [line for line in lines if line["map"] == kind]) for kind in together]
    rows.append(_row("all", "all", lines))
    heads = ("map", "data", "factor", "coverage", "width", "before", "width before", "elsewhere")
    return markdown_table(heads, rows)


def _row(kind: str, data: str, lines: Sequence[Line]) -> tuple[str, ...]:
    def pooled(name: str, count: str = "n_counted") -> float | None:
        weights = [line[count] for line in lines]
        if not sum(weights):
            return None
        return float(np.average([line[name] or 0.0 for line in lines], weights=weights))

    factor = number(lines[0]["factors"][0]) if len(lines) == 1 else ""
    widths = [pooled("width"), pooled("width_alone")]
    shown = ["" if one is None else number(one) for one in widths]
    coverages = [share_words(pooled("coverage")), share_words(pooled("coverage_alone"))]
    elsewhere = share_words(pooled("elsewhere", "n_elsewhere"))
    return kind, data, factor, coverages[0], shown[0], coverages[1], shown[1], elsewhere


@made
def cells() -> str:
    """Every cell, and those of each kind of map together."""
    return to_markdown(records.read_records(HERE / RESULTS)[1:])


@made
def attacks() -> str:
    """The attack on each kind of map, all data sets together."""
    titles = {
        "PCA, 3 decimals": "closed form: PCA, 3 decimals",
        "StandardScaler, PCA, 3 decimals": "closed form behind steps: StandardScaler, PCA, 3 decimals",
        "random projection": "matrix recovery: sparse random projection",
        "UMAP": "kernel: UMAP",
        "UMAP, by a network": "residual network: UMAP",
        "Isomap": "geodesics: Isomap",
        "MDS": "stationarity: MDS",
        "t-SNE, by affinities": "affinities: t-SNE",
        "t-SNE": "inversion: t-SNE",
        "t-SNE by openTSNE": "inversion: t-SNE by openTSNE",
    }
    lines, rows = records.read_records(HERE / RESULTS)[1:], []
    kinds = dict.fromkeys(line["map"] for line in lines)
    if kinds.keys() != titles.keys():
        raise LookupError(f"results must hold the maps {', '.join(titles)}, got {', '.join(kinds)}")
    for kind, title in (*titles.items(), ("all", "all")):
        own = [line for line in lines if kind in ("all", line["map"])]
        _, _, _, inside, width, before, width_before, elsewhere = _row(kind, "all", own)
        rows.append((title, inside, width, f"{before}, {width_before}", elsewhere))
    return markdown_table(("attack and map", "inside", "width", "without step 3", "elsewhere"), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

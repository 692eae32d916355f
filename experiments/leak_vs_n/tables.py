"""Tables of docs/leak.md and of README.md, from the committed results.

python -m experiments.leak_vs_n.tables NAME      # a name of `block`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from drjax.reports import records
from drjax.reports.ladder import percent
from experiments.cells import Line
from experiments.leak_vs_n import report
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

SCALES = ("maps", "distances", "landmarks", "wide")
"""Scales whose cells are shown beside those of the scale "cpu"."""

made = Tables()
block = made.block


@cache
def lines_of(scale: str = "") -> tuple[Line, ...]:
    """The committed cells of a scale; of the scale "cpu" if none is named."""
    return tuple(records.read_records(HERE / scale / RESULTS)[1:])


def plain_lines() -> list[Line]:
    """The committed cells of all scales but that of decimals."""
    return [line for scale in ("", *SCALES) for line in lines_of(scale)]


def series_of(way: str, data: str, published: str) -> list[Line]:
    """The cells of one way, of all scales but that of decimals, in the order of n.

    Raises:
        LookupError: there is none.
    """
    found = report.series(plain_lines()).get((way, data, published))
    if found is None:
        raise LookupError(f"results must hold {way} of {data} in {published}, got none")
    return found


@made
def decimals() -> str:
    """PCA by its rounding: every cell."""
    return report.cells_table(lines_of("decimals"))


@made
def decimals_exponents() -> str:
    """PCA by its rounding: exponents."""
    return report.law_table(lines_of("decimals"))


@made
def cpu() -> str:
    """Every cell of the scale "cpu"."""
    return report.cells_table(lines_of())


@made
def maps() -> str:
    """Every cell of the scale of this name."""
    return report.cells_table(lines_of("maps"))


@made
def distances() -> str:
    """Every cell of the scale of this name."""
    return report.cells_table(lines_of("distances"))


@made
def landmarks() -> str:
    """Every cell of the scale of this name."""
    return report.cells_table(lines_of("landmarks"))


@made
def wide() -> str:
    """Every cell of the scale of this name."""
    return report.cells_table(lines_of("wide"))


@made
def exponents() -> str:
    """Exponents of all scales but that of decimals."""
    return report.law_table(plain_lines())


@made
def law() -> str:
    """Exponents of PCA, measured and by the law."""
    rows = []
    for data, title in (("generated", "generated"), ("mnist", "MNIST")):
        for published in ("float32", "3 decimals"):
            found = _grown(series_of("PCA", data, published))
            if found.predicted is None:
                raise LookupError(f"results must hold what the law predicts of {data} in {published}, got none")
            ratios = " to ".join(f"{ratio:.2g}" for ratio in (min(found.ratios), max(found.ratios)))
            predicted = report.two(found.predicted.estimate)
            rows.append(
                (published, title, report.span(found.used), report.exponent_words(found.error), predicted, ratios)
            )
    heads = ("published", "data", "records", "exponent of n", "by the law", "measured / law")
    return markdown_table(heads, rows)


@made
def shrinks() -> str:
    """Exponents of the ways on MNIST beside those of the nearest record, and what is left."""
    ways = {
        "random projection": ("random projection", "3 decimals"),
        "landmark MDS, no landmark": ("landmark MDS", "3 decimals"),
        "landmark MDS, a landmark, 3 decimals": ("landmark MDS, a landmark", "3 decimals"),
        "landmark Isomap, by places": ("landmark Isomap", "3 decimals"),
        "t-SNE, 3 decimals": ("t-SNE", "3 decimals"),
        "UMAP": ("UMAP", "3 decimals"),
        "Isomap": ("Isomap", "float32"),
        "MDS": ("MDS", "float32"),
        "MDS, at rest": ("MDS, at rest", "float32"),
    }
    rows = []
    for title, (way, published) in ways.items():
        found = _grown(series_of(way, "mnist", published))
        left = [_left(line) for line in (found.used[0], found.used[-1])]
        shown = " to ".join(dict.fromkeys(left))
        rows.append(
            (
                title,
                report.span(found.used),
                report.exponent_words(found.error),
                report.two(found.nearest.estimate),
                shown,
            )
        )
    return markdown_table(("method", "records", "exponent", "nearest record", "error left"), rows)


def _grown(own: Sequence[Line]) -> report.Grown:
    found = report.grown(own)
    if found is None:
        raise LookupError(f"results must hold two numbers of records of {own[0]['way']}, got {len(own)}")
    return found


def _left(line: Line) -> str:
    share = float(np.median(report.shares(line)))
    return percent(share) if share < 0.01 else f"{share:.0%}"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

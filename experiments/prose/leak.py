"""Figures of docs/leak.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.leak_vs_n import report, tables
from experiments.leak_vs_n.releases import GENERATED
from experiments.markdown import Figures
from experiments.pages import leak_cells
from experiments.pages.report import line_of

figures = Figures()


@figures
def all_rebuilt() -> Sequence[float]:
    """How many records of the largest releases of PCA in float32 were attacked and rebuilt, the fewer of both data
    sets."""
    largest = [tables.series_of("PCA", data, "float32")[-1] for data in ("mnist", GENERATED)]
    return (min(line["n_rebuilt"] for line in largest),)


@figures
def left_in_float64() -> Sequence[float]:
    """The largest share of the mean's error that PCA in float64 left of 1,000 records or more."""
    lines = [line for data in ("mnist", GENERATED) for line in tables.series_of("PCA", data, "float64")]
    return (max(_left(line) for line in lines if line["n"] >= 1000),)


@figures
def without_bounds() -> Sequence[float]:
    """Measured error over the law's of the attack that does not know the range of pixels: 3 decimals, float32."""
    return [line_of("leak-unbounded", published)["ratio_median"] for published in ("3 decimals", "float32")]


@figures
def told_by_forces() -> Sequence[float]:
    """Of the fewer and of the more records of a t-SNE map: what places leave, the noise of a force, directions above
    it, what forces are expected to leave, and that with less noise."""
    both = [line_of("leak-forces", str(n)) for n in leak_cells.RECORDS]
    return [line[name] for name in ("places", "noise", "directions", "forces", "less") for line in both]


@figures
def other_images() -> Sequence[float]:
    """Share left of 10,000 records of CIFAR-10 by PCA: in float32 and in 3 decimals."""
    return [_left(tables.series_of("PCA", "cifar10", published)[-1]) for published in ("float32", "3 decimals")]


@figures
def given_in_float32() -> Sequence[float]:
    """How many times the error that the attack leaves which takes the type's bound: the least and the largest."""
    ratios = []
    for data in ("mnist", GENERATED):
        measured = {line["n"]: _left(line) for line in tables.series_of("PCA", data, "float32")}
        ratios += [_left(line) / measured[line["n"]] for line in tables.series_of("PCA, typed", data, "float32")]
    return min(ratios), max(ratios)


@figures
def small_map() -> Sequence[float]:
    """Share left of 100 records by t-SNE in float32."""
    return (_left(tables.series_of("t-SNE", "mnist", "float32")[0]),)


def _left(line: tables.Line) -> float:
    return float(np.median(report.shares(line)))

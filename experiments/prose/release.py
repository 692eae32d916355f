"""Figures in the sentences of docs/release."""

from __future__ import annotations

import numpy as np

from experiments.markdown import Figures
from experiments.pages.report import line_of

figures = Figures()


def _chosen(cell: str, measure: str) -> tuple[float, float]:
    """Mean over fits where a category is the largest number, and where it is the largest with offsets."""
    found = line_of("synthesis-categories", cell)["by_choice"]
    return float(np.mean(found["largest"][measure])), float(np.mean(found["offsets"][measure]))


@figures
def categories() -> list[float]:
    """Total variation of columns and of pairs without offsets and with them, and accuracy with and without, p = 50."""
    cell = "pca-gauss-50"
    pairs = [value for measure in ("one_way", "two_way") for value in _chosen(cell, measure)]
    return [*pairs, *reversed(_chosen(cell, "standardised"))]


@figures
def categories_ron_gauss() -> list[float]:
    """Accuracy with offsets and without them, random directions, p = 80."""
    return [*reversed(_chosen("ron-gauss-80", "standardised"))]

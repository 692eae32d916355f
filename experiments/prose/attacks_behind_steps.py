"""Figures in the sentences of docs/attacks on releases behind steps."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.markdown import Figures
from experiments.pages.report import line_of
from experiments.pipelines.report import committed

figures = Figures()


def _cell(name: str, data: str, field: str) -> float:
    (found,) = (line for line in committed() if (line["map"], line["data"]) == (name, data))
    return float(found[field])


@figures
def standard_isomap() -> Sequence[float]:
    """Median errors of Isomap behind a scaler on breast cancer and Census, and shares of targets with an answer on
    these, on digits and on Adult."""
    medians = [_cell("StandardScaler, Isomap", data, "error_median") for data in ("breast cancer", "census")]
    answered = [
        _cell("StandardScaler, Isomap", data, "answered") for data in ("breast cancer", "census", "digits", "adult")
    ]
    return *medians, *answered


@figures
def standard_tsne() -> Sequence[float]:
    """Median errors of t-SNE behind a scaler on breast cancer and Census."""
    return [_cell("StandardScaler, t-SNE", data, "error_median") for data in ("breast cancer", "census")]


@figures
def largest_error_of_ok() -> Sequence[float]:
    """Error over the mean record's of the worst answer of the closed form that says OK, by kind of solver."""
    return [line_of("closed-form", kind)["worst"] for kind in ("exact", "batches")]

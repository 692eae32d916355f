"""Figures of experiments/pca_closed_form, from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.markdown import Figures
from experiments.pca_closed_form.report import committed

figures = Figures()


@figures
def bounds() -> Sequence[float]:
    """How many times less error prior and bounds leave at 199 known records in float64."""
    found = {
        line["attack"]: line["scores"]["mse"]["estimate"]
        for line in committed()
        if (line["n_known"], line["release"]) == (199, "float64")
    }
    return (found["closed form"] / found["with Gaussian prior and bounds"],)

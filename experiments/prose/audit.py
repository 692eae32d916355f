"""Figures in the sentences of docs/audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.datasets import load_wine

from experiments.markdown import Figures

figures = Figures()


@figures
def unknown_wine() -> Sequence[float]:
    """Alcohol and malic acid of the wine that the worked example leaves out."""
    found: Any = load_wine(as_frame=True)
    target = found.data.sample(178, random_state=3).iloc[0]
    return float(target["alcohol"]), float(target["malic_acid"])

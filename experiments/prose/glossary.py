"""Figures in the sentences of docs/glossary.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.markdown import Figures

figures = Figures()


@figures
def factors() -> Sequence[float]:
    """Factors by which epsilon 1 and epsilon 4 change a probability, at most."""
    return math.exp(1), math.exp(4)

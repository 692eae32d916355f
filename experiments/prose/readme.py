"""Figures in the sentences of README.md, from the committed rows of experiments/best_attacks."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.markdown import Figures
from experiments.prose.explain import mse_of

figures = Figures()


@figures
def guesses() -> Sequence[float]:
    """Errors of the mean record and of the nearest record on MNIST."""
    return mse_of("t-SNE", "mean"), mse_of("t-SNE", "nearest")

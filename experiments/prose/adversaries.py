"""Figures in the sentences of docs/adversaries, from the committed rows of experiments/pages."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.markdown import Figures
from experiments.pages.report import attacks_of

figures = Figures()


@figures
def guesses() -> Sequence[float]:
    """Errors of the mean record and of the nearest record on digits."""
    found = attacks_of("weaker", "informed")
    return found["mean"]["mse"]["estimate"], found["nearest"]["mse"]["estimate"]


@figures
def without_release() -> Sequence[float]:
    """Error of half of the features of digits, predicted from the others without a release."""
    return (attacks_of("weaker", "features")["mean"]["mse"]["estimate"],)

"""Figures in the sentences of docs/attacks/inversion.md and inversion_measured.md, from committed rows."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.best_attacks import report as best
from experiments.markdown import Figures
from experiments.pages.report import line_of

figures = Figures()


@figures
def at_rest() -> Sequence[float]:
    """The least and largest norm of the gradient of exact maps, with the target and with the mean record."""
    found = line_of("tsne-forces", "exact")["by_forces"]["all"]
    return [end(found[what]) for what in ("truth", "mean") for end in (min, max)]


@figures
def seconds_of_a_target() -> Sequence[float]:
    """Seconds a target of inversion on scikit-learn's default maps."""
    line = best.line_of(best.lines_of(best.FOLDERS), "t-SNE", "library", "inversion")
    return (line["scores"]["seconds_per_target"],)

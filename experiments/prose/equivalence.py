"""Figures in the sentences of experiments/equivalence, from its committed rows."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.equivalence.report import committed
from experiments.markdown import Figures

figures = Figures()


@figures
def iterations(n: str) -> Sequence[float]:
    """Iterations of drjax's t-SNE of n records, in the mean."""
    (line,) = (line for line in committed()[1:] if (line["method"], str(line["n"])) == ("tsne", n))
    return (line["tests"]["n_iter"]["ours"],)

"""Figures in the sentences of docs/faq.md, from the committed rows of experiments/best_attacks."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.markdown import Figures
from experiments.prose.explain import identified_of

figures = Figures()


@figures
def identified() -> Sequence[float]:
    """Shares of targets that attacks on t-SNE and UMAP maps of MNIST identify."""
    return identified_of("t-SNE", "affinities"), identified_of("UMAP", "invariant")

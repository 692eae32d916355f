"""scikit-learn's t-SNE, for maps that have its errors: the Barnes-Hut algorithm leaves out far affinities."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

MOST_COMPONENTS = 3
"""Components up to which the Barnes-Hut algorithm goes; beyond them it is exact."""


def fit(method: Any, x: np.ndarray, seed: int) -> np.ndarray:
    """The map (n, k) of records (n, d) as scikit-learn makes it with the hyperparameters of a `drjax.dr.TSNE`.

    Some seconds at n = 1,000.
    """
    from sklearn.manifold import TSNE  # takes half a second to import

    made = TSNE(
        n_components=method.n_components,
        perplexity=method.perplexity,
        early_exaggeration=method.early_exaggeration,
        learning_rate=method.learning_rate,
        max_iter=max(method.max_iter, 250),
        n_iter_without_progress=method.n_iter_without_progress,
        min_grad_norm=method.min_grad_norm,
        metric=method.metric,
        init=method.init,
        method="barnes_hut" if method.n_components <= MOST_COMPONENTS else "exact",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(made.fit_transform(x))

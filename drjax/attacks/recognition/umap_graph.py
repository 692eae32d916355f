"""The graph that UMAP embeds, from ordered distances; compiled."""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit
from drjax.dr.umap.graph import MAX_STEPS, MIN_SCALE, TOLERANCE


@njit
def weights(ordered, order, n_neighbors):
    """Symmetric weights (n, n) of the union, from distances to the others, nearest first, (n, n-1), and whose they are.

    Source: umap-learn 0.5 `smooth_knn_dist`, `compute_membership_strengths`.
    """
    n = ordered.shape[0]
    directed = np.zeros((n, n))
    kept, wanted = n_neighbors - 1, np.log2(n_neighbors)
    overall = 0.0
    for i in range(n):
        for j in range(kept):
            overall += ordered[i, j] / (n * n_neighbors)
    for i in range(n):
        nearest, mean = 0.0, 0.0
        for j in range(kept):
            mean += ordered[i, j] / n_neighbors
            if nearest == 0.0:
                nearest = ordered[i, j]
        # A start in the data's own unit: the search doubles and halves.
        low, high, scale = 0.0, np.inf, mean if mean > 0 else 1.0
        for _ in range(MAX_STEPS):
            total = 0.0
            for j in range(kept):
                total += np.exp(-max(ordered[i, j] - nearest, 0.0) / scale)
            if abs(total - wanted) < TOLERANCE:
                break
            if total > wanted:
                high = scale
                scale = (low + high) / 2
            else:
                low = scale
                scale = 2 * scale if high == np.inf else (low + high) / 2
        scale = max(scale, MIN_SCALE * (mean if nearest > 0 else overall))
        for j in range(kept):
            beyond = ordered[i, j] - nearest
            directed[i, order[i, j]] = np.exp(-beyond / scale) if beyond > 0 else 1.0
    return directed + directed.T - directed * directed.T

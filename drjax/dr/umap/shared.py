"""What UMAP prepares, and says of a run."""

from __future__ import annotations

from typing import NamedTuple

from drjax.core.types import Array


class UMAPShared(NamedTuple):
    """What all shadows share: the known records' lists of nearest ones among themselves, each its own included.

    Attributes:
        known: (n-1, d).
        indices: (n-1, k), int32, nearest first.
        distances: (n-1, k).
        exact_distances, weights: (n-1, 2 k), uint32 words of float64: distances, and directed weights.
        key: PRNG key of the draws, if all shadows share their randomness, else None.
    """

    known: Array
    indices: Array
    distances: Array
    exact_distances: Array
    weights: Array
    key: Array | None


class UMAPInfo(NamedTuple):
    """Diagnostics of one run.

    Attributes:
        eigengap: (k,), of the start's eigenvectors, each to the nearest other eigenvalue (all are in [-1, 1]);
            0 if the start is not spectral or the graph not connected.
        sign_margin: (k,), largest positive minus largest negative entry of each column of the spectral start.
        n_graph_components: (), int32.
        n_updates: (), int32, attractive updates; 0 of `backend="umap-learn"`, which does not count them.
    """

    eigengap: Array
    sign_margin: Array
    n_graph_components: Array
    n_updates: Array

"""What t-SNE prepares."""

from __future__ import annotations

from typing import NamedTuple

from drjax.core.types import Array, PyTree


class TSNEShared(NamedTuple):
    """What all shadows share.

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), squared distances of the known records, computed in float64.
        start: (n, k) drawn once if all shadows share their randomness, else None.
        pca: Shared part of the PCA that gives the start, else None.
    """

    known: Array
    between: Array
    start: Array | None
    pca: PyTree


class TSNEPool(NamedTuple):
    """Records that data sets are drawn from.

    Attributes:
        x: (N, d).
        squared: (N, N), squared distances computed in float64; None above `POOL_BYTES`, and where no CPU computes.
    """

    x: Array
    squared: Array | None


class NearShared(NamedTuple):
    """What all shadows of many records share.

    Attributes:
        known: (n-1, d).
        indices: (n-1, k), int32, the known records' nearest among themselves.
        distances: (n-1, 2 k), uint32 words of float64, their distances.
        start: (n, 2) drawn once if all shadows share their randomness, else None.
        pca: Shared part of the PCA that gives the start, else None.
    """

    known: Array
    indices: Array
    distances: Array
    start: Array | None
    pca: PyTree

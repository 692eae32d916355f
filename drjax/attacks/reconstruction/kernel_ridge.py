"""Pieces of kernel ridge regression that attacks share."""

from __future__ import annotations

import numpy as np

PENALTIES = tuple(float(10.0**e) for e in np.arange(-6, 1.5, 0.5))
"""Grid of the penalty; the kernel is 1 at distance 0."""


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(p, q) squared distances of a (p, f) to b (q, f); by products, whose cancellation a kernel does not see."""
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(squared, 0, out=squared)


def leave_one_out(kernel: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The penalty of the least mean squared leave-one-out error of y (m, d), and that error.

    Exact, from one eigendecomposition of the kernel (m, m).

    Source: Golub, Heath & Wahba (1979).
    """
    size = y.size
    if y.shape[1] > y.shape[0]:
        # Errors are lengths of rows, which a rotation of the columns keeps: as many columns as rows are enough.
        y = np.asarray(np.linalg.qr(y.T, mode="r")).T
    values, vectors = np.linalg.eigh(kernel)
    projected = vectors.T @ y
    squares = vectors**2
    best = (np.inf, 1.0)
    for penalty in PENALTIES:
        inverse = 1 / (np.maximum(values, 0) + penalty)
        # Of (K + penalty)^-1: its product with y over its diagonal is what leaving a row out leaves.
        residual = vectors @ (inverse[:, None] * projected) / (squares @ inverse)[:, None]
        best = min(best, (float((residual**2).sum()) / size, penalty))
    return best[1], best[0]

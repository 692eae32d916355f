"""t-SNE of many whole data sets on a CPU: each from its records to its map on one core, several side by side.

Where data sets share all points but one, `tsne.cpu` searches for less. Here nothing need be shared, or the records are
drawn from a common pool and their squared distances are looked up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg

from drjax.core import host, linalg
from drjax.core.compiled import njit
from drjax.dr import metrics
from drjax.dr.distances import squared as squared_distances
from drjax.dr.tsne.affinity_cpu import joint_probabilities_alone
from drjax.dr.tsne.cpu import BLOCK, FAR, Descent, descend

START_STD = 1e-4
"""scikit-learn's: spread of the start."""

STRIP = 64
"""Rows whose distances to all later ones are computed at once."""


def tsne_fits(
    x: np.ndarray,
    squared: np.ndarray | None,
    rows: np.ndarray | None,
    starts: np.ndarray | None,
    k: int,
    perplexity: float,
    descent: Descent,
    metric: str = metrics.EUCLIDEAN,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """t-SNE of b data sets of n records.

    Args:
        x: (b, n, d), or with `rows` the pool (N, d) that the records are drawn from.
        squared: (N, N) squared distances of the pool, or None to compute each data set's own.
        rows: (b, n) records of the pool, or None.
        starts: (b, n, k) first configurations, or None for the first principal components.
        k: Output dimension.
        perplexity: Perplexity of every point's neighbours; below n.
        descent: How to descend.
        metric: Metric of distances that are computed here.

    Returns:
        coords (b, n, k), divergence (b,) and norm of the last gradient that was looked at (b,), in the dtype of x;
        iterations (b,) int32; stopped before the cap (b,) bool; without variance (b,) bool. A data set that is not
        finite gets nan and no iteration.
    """
    dtype = x.dtype
    b, n = x.shape[:2] if rows is None else rows.shape
    coords, numbers = np.full((b, n, k), math.nan, dtype), np.full((2, b), math.nan, dtype)
    n_iter, flags = np.zeros(b, np.int32), np.zeros((2, b), np.bool_)

    def work(part: slice) -> None:
        p, y = np.zeros((n, n + BLOCK), dtype), np.empty((k, n + BLOCK), dtype)
        between = np.empty((n, n), dtype)
        for i in range(part.start, part.stop):
            records = x[i] if rows is None else x[rows[i]]
            if not np.isfinite(records).all() or (starts is not None and not np.isfinite(starts[i]).all()):
                continue
            if squared is None or rows is None:
                _distances(records, between, metric)
            else:
                _look_up(squared, rows[i], between)
            if starts is None:
                start, flags[1, i] = principal_start(records, k)
            else:
                start = starts[i]
            y[:] = FAR
            y[:, :n] = start.T
            numbers[0, i], numbers[1, i], n_iter[i], flags[0, i] = _fit(between, math.log(perplexity), descent, p, y)
            coords[i] = y[:, :n].T

    # Every core works on a data set of its own, and rounding must not depend on how many threads a product has.
    with linalg.blas().limit(limits=1, user_api="blas"):
        host.spread(work, b)
    return coords, numbers[0], numbers[1], n_iter, flags[0], flags[1]


def principal_start(x: np.ndarray, k: int) -> tuple[np.ndarray, bool]:
    """The first k principal components of x (n, d), scaled as t-SNE starts (n, k), and whether there is no variance.

    From the smaller of the two Gram matrices, for which only k eigenvectors are sought: a tenth of the time of a
    singular value decomposition. The leading ones lose nothing by it that counts at a spread of 1e-4.
    """
    centred = (x - x.mean(axis=0, dtype=np.float64)).astype(x.dtype)
    is_wide = centred.shape[1] > centred.shape[0]
    gram = (centred @ centred.T if is_wide else centred.T @ centred).astype(np.float64)
    m = len(gram)
    found: Any = scipy.linalg.eigh(gram, subset_by_index=[m - k, m - 1], check_finite=False)
    values, vectors = found
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    if is_wide:
        loadings, scores = centred.T @ vectors, vectors * np.sqrt(values)
    else:
        loadings, scores = vectors, centred @ vectors
    # scikit-learn's rule: the largest |loading| is positive.
    scores = scores * np.where(loadings.max(axis=0) >= -loadings.min(axis=0), 1.0, -1.0)
    spread = scores[:, 0].std()
    # One value with little spread is what centring left of equal records.
    is_flat = spread <= math.sqrt(np.finfo(x.dtype).eps) * np.abs(scores[:, 0]).max()
    return START_STD * scores / (1.0 if is_flat else spread), bool(is_flat)


def _distances(x: np.ndarray, out: np.ndarray, metric: str) -> None:
    """Squared distances of x (n, d) to themselves, by differences in float64, short of an overflow."""
    farthest = np.finfo(out.dtype).max / 8
    wide = metrics.prepared(metric, x)
    if metric != metrics.EUCLIDEAN:
        out[:] = np.minimum(metrics.among(metric, wide) ** 2, farthest)
        return
    for low in range(0, len(x), STRIP):
        strip = np.minimum(squared_distances(wide[low : low + STRIP], wide[low:]), farthest)
        out[low : low + STRIP, low:] = strip
        out[low:, low : low + STRIP] = strip.T


@njit
def _look_up(squared, rows, out):
    """The squared distances (n, n) of the rows of a pool."""
    for i in range(rows.shape[0]):
        line = squared[rows[i]]
        for j in range(rows.shape[0]):
            out[i, j] = line[rows[j]]


@njit
def _fit(squared, target, descent, p, y):
    joint_probabilities_alone(squared, target, p)
    return descend(p, descent, y)

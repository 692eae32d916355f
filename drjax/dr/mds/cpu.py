"""SMACOF on a CPU: one compiled loop per data set, every pair of points visited once per iteration.

XLA on a CPU materialises each step of an iteration; here distance, ratio and the Guttman transform are one pass over
the upper triangle, and a data set that has stopped costs nothing. Sums that decide about stopping are in float64.
"""

from __future__ import annotations

import math

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit


def smacof_batch(
    between: np.ndarray, rows: np.ndarray, starts: np.ndarray, max_iter: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Metric SMACOF for b data sets that share all dissimilarities but those of their first point.

    Args:
        between: (n-1, n-1), dissimilarities of the shared points.
        rows: (b, n-1), dissimilarities of each data set's first point to them.
        starts: (b, n_init, n, k), first configurations; the one that ends with the least stress is kept.
        max_iter: Largest number of iterations.
        eps: Stops when the stress falls by less than this share of the sum of squared distances.

    Returns:
        coords (b, n, k) and raw stress (b,) in the dtype of `starts`, iterations (b,) int32, stopped by eps (b,) bool.
        A data set whose dissimilarities are not finite gets nan and no iteration.
    """
    dtype = starts.dtype
    b, _, n, k = starts.shape
    between = np.ascontiguousarray(between, dtype)
    rows = np.ascontiguousarray(rows, dtype)
    # One array per coordinate, so that the inner loop over points is contiguous.
    starts = np.ascontiguousarray(np.moveaxis(starts, -1, -2))
    coords = np.empty((b, k, n), dtype)
    stress = np.empty(b, np.float64)
    n_iter = np.empty(b, np.int32)
    stopped = np.empty(b, np.bool_)
    largest = float(between.max(initial=0.0))
    squares = float(np.sum(between.astype(np.float64) ** 2) / 2)

    def work(part: slice) -> None:
        outputs = (coords[part], stress[part], n_iter[part], stopped[part])
        _run(between, rows[part], starts[part], max_iter, eps, largest, squares, *outputs)

    host.spread(work, b)
    with np.errstate(over="ignore"):  # squares of distances that are in range need not be
        return np.ascontiguousarray(np.moveaxis(coords, -2, -1)), stress.astype(dtype), n_iter, stopped


@njit(fastmath=True)
def _transform_plane(between, row, x, total):
    """total_i = sum_j dissimilarity_ij (x_i - x_j) / distance_ij for two coordinates; coinciding points add nothing.

    Two points at a time against all later ones: half the traffic with what the later ones have gathered.
    """
    n = x.shape[1]
    a, b = x[0], x[1]
    sum_a, sum_b = total[0], total[1]
    total[:] = 0
    tiny = np.finfo(x.dtype).tiny
    for i in range(0, n - 1, 2):
        first = row if i == 0 else between[i - 1, i:]
        second = between[i, i + 1 :]
        a1, b1, a2, b2 = a[i], b[i], a[i + 1], b[i + 1]
        da, db = a1 - a2, b1 - b2
        ratio = first[0] / np.sqrt(da * da + db * db + tiny)
        add_a1, add_b1 = da * ratio, db * ratio
        add_a2, add_b2 = -add_a1, -add_b1
        first = first[1:]
        rest_a, rest_b = a[i + 2 :], b[i + 2 :]
        to_a, to_b = sum_a[i + 2 :], sum_b[i + 2 :]
        for j in range(n - 2 - i):
            da1, db1 = a1 - rest_a[j], b1 - rest_b[j]
            ratio = first[j] / np.sqrt(da1 * da1 + db1 * db1 + tiny)
            da1, db1 = da1 * ratio, db1 * ratio
            da2, db2 = a2 - rest_a[j], b2 - rest_b[j]
            ratio = second[j] / np.sqrt(da2 * da2 + db2 * db2 + tiny)
            da2, db2 = da2 * ratio, db2 * ratio
            add_a1 += da1
            add_b1 += db1
            add_a2 += da2
            add_b2 += db2
            to_a[j] -= da1 + da2
            to_b[j] -= db1 + db2
        sum_a[i] += add_a1
        sum_b[i] += add_b1
        sum_a[i + 1] += add_a2
        sum_b[i + 1] += add_b2


@njit(fastmath=True)
def _transform(between, row, x, total):
    """`_transform_plane` for any number of coordinates."""
    k, n = x.shape
    tiny = np.finfo(x.dtype).tiny
    total[:] = 0
    ratio = np.empty(n, x.dtype)
    for i in range(n):
        delta = row if i == 0 else between[i - 1, i:]
        m = n - 1 - i
        for j in range(m):
            ratio[j] = tiny
        for c in range(k):
            rest = x[c, i + 1 :]
            for j in range(m):
                step = x[c, i] - rest[j]
                ratio[j] += step * step
        for j in range(m):
            ratio[j] = delta[j] / np.sqrt(ratio[j])
        for c in range(k):
            rest, to = x[c, i + 1 :], total[c, i + 1 :]
            added = x.dtype.type(0)
            for j in range(m):
                step = (x[c, i] - rest[j]) * ratio[j]
                added += step
                to[j] -= step
            total[c, i] += added


@njit
def _one(between, row, start, max_iter, eps, scale, squares, best):
    k, n = start.shape
    x = np.empty_like(best)
    total = np.empty_like(best)
    for c in range(k):
        mean = 0.0
        for i in range(n):
            mean += start[c, i]
        for i in range(n):
            x[c, i] = start[c, i] - mean / n
    inverse = 1.0 / scale if scale > 0 else 0.0
    # Squared dissimilarities in units of scale^2.
    delta2 = squares * inverse * inverse
    for i in range(n - 1):
        delta2 += (row[i] * inverse) ** 2
    old = math.inf
    iteration = 0
    stop = False
    stress = delta2
    while True:
        if k == 2:
            _transform_plane(between, row, x, total)
        else:
            _transform(between, row, x, total)
        # Sums over pairs in O(n): of dissimilarity times distance n tr(X^T X+), of squared distances n |X|^2.
        cross, square = 0.0, 0.0
        for c in range(k):
            for i in range(n):
                new = total[c, i] * inverse
                cross += x[c, i] * new
                square += float(x[c, i]) * x[c, i]
                total[c, i] = new / n
        stress = max(delta2 - 2.0 * cross + n * square, 0.0)
        if iteration >= 2 and (old - stress) < eps * (n * square):
            stop = True
            break
        if iteration == max_iter:
            break
        if iteration >= 1:
            old = stress
        for c in range(k):
            for i in range(n):
                x[c, i] = total[c, i]
        iteration += 1
    for c in range(k):
        for i in range(n):
            best[c, i] = x[c, i] * scale
    return stress * scale * scale, iteration, stop


@njit
def _run(between, rows, starts, max_iter, eps, largest, squares, coords, stress, n_iter, stopped):
    b, n_init, _, n = starts.shape
    for lane in range(b):
        scale = largest
        for i in range(n - 1):
            # Written so that a nan fails it.
            scale = scale if rows[lane, i] <= scale else float(rows[lane, i])
        if not scale < math.inf:
            coords[lane] = math.nan
            stress[lane] = math.nan
            n_iter[lane] = 0
            stopped[lane] = False
            continue
        trial = np.empty_like(coords[lane])
        stress[lane] = math.inf
        for attempt in range(n_init):
            found, count, stop = _one(between, rows[lane], starts[lane, attempt], max_iter, eps, scale, squares, trial)
            if found < stress[lane] or attempt == 0:
                stress[lane], n_iter[lane], stopped[lane] = found, count, stop
                coords[lane] = trial

"""All distances between the points of a map in one pass: near neighbours, counts within radii, and a histogram."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.core.compiled import njit


class PairDistances(NamedTuple):
    """Distances between the points of a map of n points.

    Attributes:
        near: (n, k) float64 distances of the k nearest others, ascending.
        order: (n, k) int64 points at these distances.
        counts: (n, r) int64 points within each radius, the point itself among them.
        histogram: (b,) int64 pairs of points by distance; the last bin takes all beyond.
    """

    near: np.ndarray
    order: np.ndarray
    counts: np.ndarray
    histogram: np.ndarray


def pair_distances(x: np.ndarray, k: int, radii: tuple[float, ...], width: float, n_bins: int) -> PairDistances:
    """Distances between the points of x (n, 2); O(n^2), and lets go of the interpreter's lock.

    Args:
        x: Finite.
        k: Neighbours, 1 <= k < n.
        radii: Ascending.
        width: Width of a bin.
        n_bins: Bins.
    """
    # In order of the first coordinate near neighbours are near in the list.
    sort = np.argsort(x[:, 0], kind="stable")
    placed = np.ascontiguousarray(x[sort].T, np.float64)
    near, order, counts, histogram = _pass(placed, k, np.array(radii) ** 2, 1 / width**2, n_bins)
    found = np.empty_like(near), np.empty_like(order), np.empty_like(counts)
    for whole, part in zip(found, (near, sort[order], counts), strict=True):
        whole[sort] = part
    return PairDistances(*found, histogram)


@njit
def _pass(placed, k, squared_radii, scale, n_bins):
    n, n_radii = placed.shape[1], len(squared_radii)
    u, v = placed[0], placed[1]
    near, order = np.empty((n, k)), np.empty((n, k), np.int64)
    counts, histogram = np.empty((n, n_radii), np.int64), np.zeros(n_bins, np.int64)
    cells = np.zeros((2, (n_bins - 1) ** 2 + 1), np.int64)
    squared, bins = np.empty(n), np.empty(n, np.int32)
    best, which = np.empty(k + 1), np.empty(k + 1, np.int64)
    # Squares of whole numbers are whole: cells of the squared distance are parts of bins, and need no root.
    last = np.float64((n_bins - 1) ** 2)
    for i in range(n):
        a, b = u[i], v[i]
        for j in range(n):
            squared[j] = (u[j] - a) * (u[j] - a) + (v[j] - b) * (v[j] - b)
        reach = np.inf
        for r in range(n_radii):
            limit, count = squared_radii[r], 0
            for j in range(n):
                count += squared[j] <= limit
            counts[i, r] = count
            if count > k and reach == np.inf:
                reach = limit
        for j in range(n):
            cell = squared[j] * scale
            # Not `min`, whose rule for nan keeps the loop from being vectorised.
            bins[j] = np.int32(cell if cell < last else last)
        # Two tables, because a cell right after itself would wait for its last count.
        for j in range(i + 1, n):
            cells[j & 1, bins[j]] += 1
        held = 0
        for step in (1, -1):
            j = i + step
            while 0 <= j < n and (u[j] - a) * (u[j] - a) <= reach:
                d = squared[j]
                if d <= reach:
                    at = held
                    while at > 0 and best[at - 1] > d:
                        best[at], which[at] = best[at - 1], which[at - 1]
                        at -= 1
                    best[at], which[at] = d, j
                    held = min(held + 1, k)
                    if held == k:
                        reach = min(reach, best[k - 1])
                j += step
        for m in range(k):
            near[i, m], order[i, m] = np.sqrt(best[m]), which[m]
    for c in range(cells.shape[1]):
        histogram[int(np.sqrt(c))] += cells[0, c] + cells[1, c]
    return near, order, counts, histogram


@njit
def neighbourhoods(x, order, reach):
    """(n, 4) of the neighbours order (n, k) of every point of x (n, 2), in units of reach (n,).

    Distance of the point from their mean, their variances' sum, its share that the two principal variances differ by,
    and the distance of the point from the centroid 0, in the units of x.
    """
    n, k = order.shape
    found = np.empty((n, 4))
    for i in range(n):
        u = v = uu = vv = uv = 0.0
        for m in range(k):
            a, b = (x[order[i, m], 0] - x[i, 0]) / reach[i], (x[order[i, m], 1] - x[i, 1]) / reach[i]
            u, v, uu, vv, uv = u + a, v + b, uu + a * a, vv + b * b, uv + a * b
        u, v = u / k, v / k
        uu, vv, uv = uu / k - u * u, vv / k - v * v, uv / k - u * v
        found[i, 0] = np.sqrt(x[i, 0] ** 2 + x[i, 1] ** 2)
        found[i, 1] = np.sqrt(u * u + v * v)
        found[i, 2] = uu + vv
        found[i, 3] = np.sqrt((uu - vv) ** 2 + 4 * uv * uv)
    return found

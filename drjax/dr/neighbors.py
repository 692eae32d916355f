"""Nearest neighbours of every record among the others: exact, in blocks, on the host.

Many records are screened first: squared distances by one matrix product in float32, whose rounding is bounded, leave a
few candidates each, and only those are measured by differences in float64. So lists are those of all distances, bit by
bit, at a tenth of the time and in memory for a block.
"""

from __future__ import annotations

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr import metrics

SCREENED = 2048
"""Records from which on they are screened."""

BLOCK_ENTRIES = 2**24
"""Products that are made at a time, 64 MiB."""

STRETCH = 64
"""Rows that are passed over together."""


def nearest(metric: str, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other rows of each row, those at equal distance by index, lowest first.

    O(n^2 d) operations, of which a matrix product does nearly all unless the metric is "manhattan".

    Args:
        metric: Metric of the records.
        rows: (n, d), finite, as `metrics.prepared` makes them.
        k: Number of neighbours, at most n - 1.

    Returns:
        Indices (n, k), int64, nearest first, and distances (n, k), float64, those of `metrics.apart`.
    """
    n = len(rows)
    indices, distances = np.empty((n, k), np.int64), np.empty((n, k))
    if n < SCREENED or metric == "manhattan":
        _all_pairs(metric, rows, indices, distances)
    else:
        _screened(metric, rows, indices, distances)
    return indices, distances


def with_self(indices: np.ndarray, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists of others (n, k) with each row itself at distance 0, the place of its index among its copies; (n, k)."""
    n, k = indices.shape
    own = np.arange(n)[:, None]
    before = ((distances == 0) & (indices < own)).sum(axis=1)
    place = np.arange(k) - before[:, None]
    old = np.clip(np.arange(k) - (place > 0), 0, k - 1)
    listed, apart = np.take_along_axis(indices, old, axis=1), np.take_along_axis(distances, old, axis=1)
    return np.where(place == 0, own, listed), np.where(place == 0, 0.0, apart)


def _all_pairs(metric: str, rows: np.ndarray, indices: np.ndarray, distances: np.ndarray) -> None:
    k = indices.shape[1]

    def fill(part: slice) -> None:
        between = metrics.apart(metric, rows[part], rows)
        np.fill_diagonal(between[:, part.start :], np.inf)
        order = np.argsort(between, axis=1, kind="stable")[:, :k]
        indices[part] = order
        distances[part] = np.take_along_axis(between, order, axis=1)

    host.spread(fill, len(rows), size=metrics.STRIP)


def _screened(metric: str, rows: np.ndarray, indices: np.ndarray, distances: np.ndarray) -> None:
    (n, d), k = rows.shape, indices.shape[1]
    # Distances do not see a shift, and products of centred rows lose least, by the median also where one row lies far
    # away. A power of two makes no rounding.
    centred = rows - np.median(rows, axis=0)
    _, exponent = np.frexp(np.abs(centred).max())
    points = np.ldexp(centred, -exponent).astype(np.float32)
    squares = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    # Rounding of the entries, of the d terms of a product, and of what passes over stretches, as a share of the sum of
    # the two squared lengths.
    slack = (d + 16) * float(np.finfo(np.float32).eps)
    rounded = squares.astype(np.float32)
    largest = np.maximum.reduceat(squares, np.arange(0, n, STRETCH))
    size = max(1, BLOCK_ENTRIES // n)
    for low in range(0, n, size):
        products = points[low : low + size] @ points.T

        def fill(part: slice, low: int = low, products: np.ndarray = products) -> None:
            heap, found = np.empty(k), np.empty(n, np.int64)
            for place in range(part.start, part.stop):
                i = low + place
                count = _candidates(products[place], squares, rounded, largest, i, slack, heap, found)
                candidates = found[:count]
                apart = metrics.apart(metric, rows[i : i + 1], rows[candidates])[0]
                order = np.argsort(apart, kind="stable")[:k]
                indices[i], distances[i] = candidates[order], apart[order]

        host.spread(fill, len(products))


@njit
def _candidates(products, squares, rounded, largest, own, slack, heap, found):
    """Writes to found those that may be among the nearest of row `own`, by index; their number.

    The k-th smallest upper bound of a squared distance is no less than the k-th smallest squared distance, and whoever
    has a lower bound above it is farther away. Rows are passed over `STRETCH` at a time, by the least of their own
    parts of the squared distances, in float32.
    """
    n, k = len(squares), len(heap)
    heap[:] = np.inf
    least = np.empty(len(largest), np.float32)
    _least_of_stretches(products, rounded, least)
    for stretch in range(len(largest)):
        if squares[own] + least[stretch] >= heap[0]:
            continue
        for j in range(stretch * STRETCH, min(n, (stretch + 1) * STRETCH)):
            total = squares[own] + squares[j]
            upper = total - 2.0 * products[j] + slack * total
            if upper < heap[0] and j != own:
                _replace_top(heap, k, upper)
    count = 0
    for stretch in range(len(largest)):
        total = squares[own] + largest[stretch]
        if squares[own] + least[stretch] - slack * total > heap[0]:
            continue
        for j in range(stretch * STRETCH, min(n, (stretch + 1) * STRETCH)):
            total = squares[own] + squares[j]
            if total - 2.0 * products[j] - slack * total <= heap[0] and j != own:
                found[count] = j
                count += 1
    return count


@njit(fastmath=True)
def _least_of_stretches(products, rounded, out):
    """The least |row|^2 - 2 product of every `STRETCH` rows."""
    n = len(products)
    two = np.float32(2)
    for stretch in range(len(out)):
        low = np.float32(np.inf)
        for j in range(stretch * STRETCH, min(n, (stretch + 1) * STRETCH)):
            low = min(low, rounded[j] - two * products[j])
        out[stretch] = low


@njit(inline="always")
def _replace_top(heap, k, value):
    """Puts a value in place of the largest of a heap."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        if child + 1 < k and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@njit
def with_first(row, indices, distances, k):
    """Lists of [target; known], k long, without the record itself, from those of the known ones, k or k - 1 long.

    The target has index 0 and distances row (m,) to the known: it comes before those at its distance.
    """
    m = len(distances)
    listed, apart = np.empty((m + 1, k), np.int64), np.empty((m + 1, k))
    order = np.argsort(row, kind="mergesort")[:k]
    for c in range(k):
        listed[0, c], apart[0, c] = order[c] + 1, row[order[c]]
    for i in range(m):
        enter_first(row[i], indices[i], distances[i], listed[i + 1], apart[i + 1])
    return listed, apart


@njit(inline="always")
def enter_first(distance, indices, distances, listed, apart):
    """Writes one list with a row of index 0 at a distance in it, which comes before those at its distance; its place.

    The old list is as long as the new one or one shorter, and its indices count without row 0. The place is
    `len(distances)` where the row is farther than all of them.
    """
    place = len(distances)
    while place > 0 and distance <= distances[place - 1]:
        place -= 1
    for c in range(len(listed)):
        if c == place:
            listed[c], apart[c] = 0, distance
        else:
            old = c - (c > place)
            listed[c], apart[c] = indices[old] + 1, distances[old]
    return place

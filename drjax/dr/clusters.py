"""Records in clusters, and lower bounds of distances by which most pairs of records need not be looked at.

Between the centres of two clusters, records lie along a line; how far apart two of them are along it is no more than
their distance, and follows from their distances to the two centres. So a cluster all of whose records are farther than
the neighbours already found is passed over. It is much in few dimensions, as records vary, and little in many.

The search is for points: the records, shifted, scaled and in float32. Of many features that vary mostly in a few
directions, points are the coordinates along these and the length of the rest, which are no farther apart than the
records. Every bound allows for rounding.

Source: Connor, Cardillo, Vadicamo & Rabitti (2017), Hilbert exclusion: the line through two pivots of a Hilbert space.

Example:
    >>> import numpy as np
    >>> from drjax.dr import clusters
    >>> rows = np.random.default_rng(0).random((60, 3))
    >>> found = clusters.clustered(rows, 4)
    >>> len(found.start) - 1, len(clusters.pieces(found))
    (4, 4)
    >>> len(clusters.for_search(rows, 5).start) - 1
    9
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.linalg import blas

N_DIRECTIONS = 64
"""Directions that points are projected on where there are at least four times as many features."""

LEAST_HELD = 0.7
"""Least share of the variance along them, or all features are kept."""

SAMPLE = 2048
"""Records by which directions are chosen."""

ROWS = 512
"""Points that are searched for together, and others that they meet at a time: their products stay in the cache."""

TRIED = 4
"""Pieces of the work by which it is seen whether clusters spare any."""

SPARED = 0.03
"""Least share of the pairs that they must spare."""

EPS = float(np.finfo(np.float32).eps)


class Clusters(NamedTuple):
    """n points ordered by c clusters, those of cluster b at start[b] .. start[b + 1], of float32 with bounded rounding.

    Attributes:
        order: (n,), int64, the record that each point is of.
        start: (c + 1,), int64.
        points: (n, r), float32.
        squares: (n,), their squared lengths.
        reduced: (n,), float32, the least that the squared lengths can be.
        whole: (n, d), float32, the records; `points` itself where these were not projected.
        whole_squares: (n,), their squared lengths.
        centres: (c, r), float32.
        centre_squares: (c,), their squared lengths.
        apart: (c, c), distances of the centres, or more.
        margins: (c, c), at [a, b] the least by which the squared distance to centre b of a point of cluster a exceeds
            that to its own, or less.
        slack, whole_slack: Largest rounding of a squared distance of points, of whole records, as a share of the sum of
            the two squared lengths.
        least: What underflow may take from it beside.
    """

    order: Any
    start: Any
    points: Any
    squares: Any
    reduced: Any
    whole: Any
    whole_squares: Any
    centres: Any
    centre_squares: Any
    apart: Any
    margins: Any
    slack: float
    whole_slack: float
    least: float


def clustered(rows: np.ndarray, count: int | None = None) -> Clusters:
    """Clusters of rows (n, d), float64, 1.25 root n or `count`; O(n d + n^1.5 min(d, 256)), holds 24 n d bytes."""
    n, d = rows.shape
    # Distances do not see a shift, and products of centred rows lose least, by the median also where one row lies far
    # away. A power of two makes no rounding.
    centred = rows - np.median(rows, axis=0)
    _, exponent = np.frexp(np.abs(centred).max())
    whole = np.ldexp(centred, -exponent).astype(np.float32)
    whole_squares = np.einsum("ij,ij->i", whole, whole, dtype=np.float64)
    points = _projected(whole, whole_squares)
    # Rounding of the entries, twice, of the terms of a product, and of what passes over a tile.
    slack, whole_slack = (points.shape[1] + 24) * EPS, (d + 24) * EPS
    with blas().limit(limits=1, user_api="blas"):
        centres = _centres(points, int(1.25 * n**0.5) if count is None else count)
        label = _nearest_centre(points, centres)
        order = np.argsort(label, kind="stable")
        start = np.zeros(len(centres) + 1, np.int64)
        start[1:] = np.cumsum(np.bincount(label, minlength=len(centres)))
        is_projected = points is not whole
        points = points[order]
        squares = np.einsum("ij,ij->i", points, points, dtype=np.float64)
        wide = np.asarray(centres, np.float64)
        centre_squares = np.einsum("ij,ij->i", wide, wide)
        total = centre_squares[:, None] + centre_squares
        least = 8.0 * d * float(np.finfo(np.float32).tiny)
        apart = np.sqrt(np.maximum(total - 2 * wide @ wide.T, 0) + EPS * total + least)
        margins = np.empty_like(apart)
        found = Clusters(
            order=order,
            start=start,
            points=points,
            squares=squares,
            reduced=(squares * (1 - slack - 8 * EPS)).astype(np.float32),
            whole=whole[order] if is_projected else points,
            whole_squares=whole_squares[order],
            centres=centres,
            centre_squares=centre_squares,
            apart=apart,
            margins=margins,
            slack=slack,
            whole_slack=whole_slack,
            least=least,
        )
        host.spread(lambda part: _fill_margins(found, part.start, part.stop), len(centres))
    return found


def pieces(of: Clusters) -> list[tuple[int, int, int]]:
    """Clusters and their points, from and to, as `candidates` takes them."""
    return [
        (cluster, low, min(low + ROWS, of.start[cluster + 1]))
        for cluster in range(len(of.centres))
        for low in range(of.start[cluster], of.start[cluster + 1], ROWS)
    ]


def for_search(rows: np.ndarray, k: int) -> Clusters:
    """Clusters of rows (n, d) for a search of k neighbours; a single one where more would spare next to nothing."""
    of = clustered(rows)
    parts = pieces(of)
    tried = parts[:: -(-len(parts) // TRIED)]
    with blas().limit(limits=1, user_api="blas"):
        n_met = sum(candidates(of, *part, k)[2] for part in tried)
    n_pairs = len(rows) * sum(high - low for _, low, high in tried)
    return clustered(rows, 1) if n_met > (1 - SPARED) * n_pairs else of


def _projected(whole: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Coordinates along leading directions and length of the rest, (n, r + 1); `whole` where these hold little."""
    n, d = whole.shape
    if d < 4 * N_DIRECTIONS:
        return whole
    rng = np.random.default_rng(0)
    some = whole[np.sort(rng.choice(n, min(n, SAMPLE), replace=False))]
    some = some - some.mean(axis=0)
    # A randomised range, one step of the power iteration; any orthonormal directions give bounds.
    start = some @ rng.normal(size=(d, N_DIRECTIONS)).astype(np.float32)
    directions, _ = np.linalg.qr((some.T @ (some @ (some.T @ start))).astype(np.float64))
    if not np.square(some @ directions).sum() >= LEAST_HELD * np.square(some, dtype=np.float64).sum():
        return whole
    out = np.empty((n, N_DIRECTIONS + 1), np.float32)

    def fill(part: slice) -> None:
        along = whole[part] @ directions
        out[part, :-1] = along
        out[part, -1] = np.sqrt(np.maximum(squares[part] - np.square(along).sum(axis=1), 0))

    host.spread(fill, n, size=SAMPLE)
    return out


def _centres(points: np.ndarray, count: int) -> np.ndarray:
    """Centres (count, r) of k-means by three rounds of Lloyd's algorithm on 16 points for each."""
    rng = np.random.default_rng(0)
    some = points[rng.permutation(len(points))[: 16 * count]]
    centres = some[:count].copy()
    for _ in range(3):
        label = _nearest_centre(some, centres)
        order, sizes = np.argsort(label, kind="stable"), np.bincount(label, minlength=count)
        filled = np.flatnonzero(sizes)
        sums = np.add.reduceat(some[order], (np.cumsum(sizes) - sizes)[filled], axis=0, dtype=np.float64)
        centres[filled] = sums / sizes[filled, None]
    return centres


def _nearest_centre(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    label = np.empty(len(points), np.int64)
    halves = np.einsum("ij,ij->i", centres, centres) / 2

    def fill(part: slice) -> None:
        label[part] = (points[part] @ centres.T - halves).argmax(axis=1)

    host.spread(fill, len(points), size=SAMPLE)
    return label


@njit
def _fill_margins(of, low, high):
    """Overwrites rows low..high of the margins."""
    of.margins[low:high] = np.inf
    for a in range(low, high):
        for first in range(of.start[a], of.start[a + 1], ROWS):
            end = min(first + ROWS, of.start[a + 1])
            products = np.dot(of.points[first:end], of.centres.T)
            for i in range(end - first):
                square, own = of.squares[first + i], of.centre_squares[a] - 2.0 * products[i, a]
                for b in range(len(of.centres)):
                    beyond = of.centre_squares[b] - 2.0 * products[i, b] - own
                    total = 2 * square + of.centre_squares[a] + of.centre_squares[b]
                    beyond -= of.slack * total + of.least
                    of.margins[a, b] = min(of.margins[a, b], beyond)


@njit
def candidates(of, cluster, low, high, k):
    """Those that may be among the k nearest records of the points low..high of one cluster.

    The k-th smallest upper bound of a squared distance is no less than the k-th smallest squared distance, and whoever
    has a lower bound above it is farther away.

    Returns:
        Records (high - low, most), int64, without the own, ascending; how many they are (high - low,); and of how many
        pairs there were products.
    """
    m, n_met = high - low, 0
    own, bounds = of.points[low:high], _bounds(of, cluster, low, high)
    # The k smallest upper bounds of each point, the largest first.
    heap = np.full((m, k), np.inf)
    found, lows, count = np.empty((m, 2 * k + 64), np.int64), np.empty((m, 2 * k + 64)), np.zeros(m, np.int64)
    asking, rows = np.empty(m, np.int64), np.empty_like(own)
    for b in np.argsort(of.apart[cluster]):
        n_asking = 0
        for i in range(m):
            if bounds[b, i] <= heap[i, 0]:
                asking[n_asking], rows[n_asking] = i, own[i]
                n_asking += 1
        if n_asking == 0:
            continue
        n_met += n_asking * (of.start[b + 1] - of.start[b])
        for first in range(of.start[b], of.start[b + 1], ROWS):
            end = min(first + ROWS, of.start[b + 1])
            products = np.dot(rows[:n_asking], of.points[first:end].T)
            for c in range(n_asking):
                i = asking[c]
                found, lows = _take(of, low + i, first, products[c], heap[i], i, found, lows, count)
    for i in range(m):
        count[i] = _closer(found[i], lows[i], count[i], heap[i, 0])
        for c in range(count[i]):
            found[i, c] = of.order[found[i, c]]
        found[i, : count[i]].sort()
    return found, count, n_met


@njit
def _bounds(of, cluster, low, high):
    """Least squared distances (c, high - low) of points low..high of one cluster to every cluster, 0 to its own."""
    m, c = high - low, len(of.centres)
    products = np.dot(of.centres, of.points[low:high].T)
    out = np.empty((c, m), np.float32)
    for b in range(c):
        sums = of.centre_squares[b] + of.centre_squares[cluster]
        between = of.centre_squares[b] - of.centre_squares[cluster] + of.margins[b, cluster] - of.least
        share = (1 - 1e-5) / (2 * of.apart[cluster, b])
        for i in range(m):
            beyond = between - 2.0 * (products[b, i] - products[cluster, i])
            beyond -= of.slack * (2 * of.squares[low + i] + sums)
            bound = max(beyond, 0.0) * share
            out[b, i] = bound * bound
    out[cluster] = 0
    return out


@njit
def _take(of, own, first, products, heap, i, found, lows, count):
    """Adds points from `first` on to the candidates of point `own`, in row i; the lists, which may be others."""
    if not may_be_closer(of, of.squares[own], products, first, heap[0]):
        return found, lows
    for j in range(first, first + len(products)):
        lower, upper = interval(of, own, j, products[j - first], heap[0])
        if lower > heap[0] or j == own:
            continue
        if upper < heap[0]:
            _replace_top(heap, upper)
        if count[i] == found.shape[1]:
            count[i] = _closer(found[i], lows[i], count[i], heap[0])
            if 4 * count[i] > 3 * found.shape[1]:
                found, lows = np.hstack((found, np.empty_like(found))), np.hstack((lows, np.empty_like(lows)))
        found[i, count[i]], lows[i, count[i]] = j, lower
        count[i] += 1
    return found, lows


@njit
def _closer(found, lows, count, limit):
    """Keeps those whose lower bound is no larger than the limit; their number."""
    kept = 0
    for c in range(count):
        if lows[c] <= limit:
            found[kept], lows[kept] = found[c], lows[c]
            kept += 1
    return kept


@njit
def may_be_closer(of, square, products, first, limit):
    """Whether a point of this squared length may be within a squared distance of points from `first` on."""
    return _least(products, of.reduced, first) <= limit - square * (1 - of.slack - 8 * EPS) + of.least


@njit
def interval(of, own, other, product, limit):
    """Bounds of the squared distance of two records by the product of their points; of points where above the limit."""
    total = of.squares[own] + of.squares[other]
    between, error = total - 2.0 * product, of.slack * total + of.least
    if between - error <= limit and of.points.shape[1] != of.whole.shape[1]:
        total = of.whole_squares[own] + of.whole_squares[other]
        between, error = total - 2.0 * _product(of.whole[own], of.whole[other]), of.whole_slack * total + of.least
    return between - error, between + error


@njit(fastmath=True)
def _least(products, reduced, first):
    """The least |row|^2 - 2 product of a tile's row."""
    low, two = np.float32(np.inf), np.float32(2)
    for j in range(len(products)):
        low = min(low, reduced[first + j] - two * products[j])
    return low


@njit(fastmath=True)
def _product(a, b):
    total = np.float32(0)
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@njit(inline="always")
def _replace_top(heap, value):
    """Puts a value in place of the largest of a heap."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value

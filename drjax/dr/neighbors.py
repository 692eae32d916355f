"""Nearest neighbours of every record among the others: exact, on the host.

Many records are screened first (`drjax.dr.clusters`): most pairs are in clusters too far apart, products in float32
leave a few candidates of the others, and only those are measured by differences in float64. So lists are those of all
distances, bit by bit.
"""

from __future__ import annotations

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.linalg import blas
from drjax.dr import clusters, metrics

SCREENED = 2048
"""Records from which on they are screened."""


def nearest(metric: str, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other rows of each row, those at equal distance by index, lowest first.

    At most O(n^2 d) operations, in matrix products unless the metric is "manhattan", and far fewer where records vary
    in few dimensions: of 100,000 in ten clusters of eight dimensions each, 4% of the pairs are looked at.

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
    k = indices.shape[1]
    # A record without a direction is at distance 1 from every other, which the difference of unit vectors does not say.
    has_direction = rows.any(axis=1) if metric in metrics.OF_DIRECTIONS else np.ones(len(rows), bool)
    searched, apart_from_all = np.flatnonzero(has_direction), np.flatnonzero(~has_direction)
    for i in apart_from_all:
        indices[i] = np.delete(np.arange(k + 1), i) if i <= k else np.arange(k)
        distances[i] = 1
    if not len(searched):
        return
    of = clusters.for_search(rows if len(searched) == len(rows) else rows[searched], k)
    parts = clusters.pieces(of)

    def fill(some: slice) -> None:
        for cluster, low, high in parts[some]:
            found, count, _ = clusters.candidates(of, cluster, low, high, k)
            for place in range(low, high):
                i = searched[of.order[place]]
                candidates = searched[found[place - low, : count[place - low]]]
                if len(apart_from_all):
                    candidates = np.sort(np.concatenate([candidates, apart_from_all[:k]]))
                apart = metrics.apart(metric, rows[i : i + 1], rows[candidates])[0]
                order = np.argsort(apart, kind="stable")[:k]
                indices[i], distances[i] = candidates[order], apart[order]

    with blas().limit(limits=1, user_api="blas"):
        host.spread(fill, len(parts), size=2)


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

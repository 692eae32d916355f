"""Closest pairs of points of every two components of a graph, on a CPU, in float64; exact."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.linalg import blas
from drjax.dr import clusters, metrics, neighbors

STRIP = 512
"""Points whose distances to all others are held at a time."""


class Labels(NamedTuple):
    """Components of the points of clusters, in their order.

    Attributes:
        of_points: (n,), int64.
        start: (c + 1,), int64, the components in cluster a are those at start[a] .. start[a + 1].
        listed: (e,), int64.
    """

    of_points: Any
    start: Any
    listed: Any


def closest_pairs(metric: str, rows: np.ndarray, label: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The closest pair of every two components; ties go to the first point in the later one, then in the earlier.

    Of many records most pairs are in clusters too far apart (`drjax.dr.clusters`); else O(s n d) for s points outside
    the largest component.

    Args:
        metric: Metric of the records.
        rows: (n, d), as `metrics.prepared` makes them.
        label: (n,), int64, component of each, numbered from 0.
        count: Number of components.

    Returns:
        Ends (p, 2), the one in the later component first, and distances (p,), of all p pairs of components, in the
        order of `np.tril_indices`.
    """
    is_direct = len(rows) < neighbors.SCREENED or metric == "manhattan"
    # Those without a direction are at distance 1 from all, which unit vectors do not say.
    if is_direct or (metric in metrics.OF_DIRECTIONS and not rows.any(axis=1).all()):
        return _by_all_distances(metric, rows, label, count)
    return _by_clusters(metric, rows, label, count)


def _by_all_distances(metric: str, rows: np.ndarray, label: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    # Of the points of two components one or the other lies outside the largest.
    outside = np.flatnonzero(label != np.bincount(label).argmax())
    closest, ends = np.full((count, count), np.inf), np.zeros((count, count, 2), np.int64)
    for low in range(0, len(outside), STRIP):
        own = outside[low : low + STRIP]
        between = np.empty((len(own), len(rows)))

        def fill(part: slice, own: np.ndarray = own, between: np.ndarray = between) -> None:
            between[part] = metrics.apart(metric, rows[own[part]], rows)

        host.spread(fill, len(own))
        _take_closer(between, own, label, closest, ends)
    later, earlier = np.tril_indices(count, -1)
    return ends[later, earlier], closest[later, earlier]


@njit
def _take_closer(between, own, label, closest, ends):
    """Updates the closest pairs of components i > j at [i, j], the end in i first, by distances (s, n) of own."""
    for p in range(len(own)):
        for q in range(between.shape[1]):
            a, b = own[p], q
            if label[a] < label[b]:
                a, b = b, a
            i, j = label[a], label[b]
            if i == j or between[p, q] > closest[i, j]:
                continue
            is_first = a < ends[i, j, 0] or (a == ends[i, j, 0] and b < ends[i, j, 1])
            if between[p, q] < closest[i, j] or is_first:
                closest[i, j] = between[p, q]
                ends[i, j, 0], ends[i, j, 1] = a, b


def _by_clusters(metric: str, rows: np.ndarray, label: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    of = clusters.clustered(rows)
    size = np.diff(of.start)
    listed = np.unique(np.repeat(np.arange(len(size)), size) * count + label[of.order])
    start = np.searchsorted(listed, np.arange(len(size) + 1) * count)
    labels = Labels(label[of.order], start, listed % count)
    first, second = np.triu_indices(len(size))
    # Clusters that lie next to each other come first: what they hold spares most of the others.
    order = np.argsort(of.apart[first, second], kind="stable")
    with blas().limit(limits=1, user_api="blas"):
        places = _candidates(of, labels, first[order], second[order], count)
    pairs = np.unique(of.order[places], axis=0)
    later = label[pairs[:, 0]] > label[pairs[:, 1]]
    pairs = np.unique(np.where(later[:, None], pairs, pairs[:, ::-1]), axis=0)
    lengths = np.empty(len(pairs))
    bounds = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1, append=-1))
    for low, high in itertools.pairwise(bounds):
        own = pairs[low, 0]
        lengths[low:high] = metrics.apart(metric, rows[own : own + 1], rows[pairs[low:high, 1]])[0]
    i, j = label[pairs].T
    order = np.lexsort((pairs[:, 1], pairs[:, 0], lengths, j, i))
    _, at = np.unique((i * count + j)[order], return_index=True)
    kept = order[at]
    return pairs[kept], lengths[kept]


@njit
def _candidates(of, labels, first, second, count):
    """Pairs of points, some twice, that hold the closest of every two components; by clusters first[i], second[i]."""
    # The smallest upper bound of the squared distances of every two components.
    limits = np.full((count, count), np.inf)
    found, lows, n_found = np.empty((4096, 2), np.int64), np.empty(4096), 0
    for c in range(len(first)):
        a, b = first[c], second[c]
        limit = _limit(limits, labels, a, b)
        # `apart` is of rounding alone at [a, a].
        gap = 0.0 if a == b else max(of.margins[a, b] + of.margins[b, a], 0.0) / (2 * of.apart[a, b]) * (1 - 1e-5)
        if gap * gap > limit:
            continue
        here, there = _facing(of, a, b, limit)
        for low in range(0, len(here), clusters.ROWS):
            own = of.points[here[low : low + clusters.ROWS]]
            for left in range(0, len(there), clusters.ROWS):
                others = there[left : left + clusters.ROWS]
                products = np.dot(own, of.points[others].T)
                for i in range(len(own)):
                    if n_found + len(others) > len(lows):
                        n_found = _closer(found, lows, n_found, labels.of_points, limits)
                        while n_found + len(others) > len(lows) // 2:
                            found, lows = np.vstack((found, np.empty_like(found))), np.append(lows, np.empty_like(lows))
                    most = _limit_of(limits, labels, labels.of_points[here[low + i]], b)
                    n_found = _take(of, labels, here[low + i], others, products[i], most, limits, found, lows, n_found)
    n_found = _closer(found, lows, n_found, labels.of_points, limits)
    return found[:n_found]


@njit
def _facing(of, a, b, limit):
    """Points of two clusters without those that, along the line between the centres, are beyond the limit of all."""
    here, there = np.arange(of.start[a], of.start[a + 1]), np.arange(of.start[b], of.start[b + 1])
    line = of.centres[b] - of.centres[a]
    norm = np.sqrt(np.dot(line, line))
    if not (0 < norm < np.inf and limit < np.inf):
        return here, there
    line /= norm
    longest = np.sqrt(of.squares[here].max()) + np.sqrt(of.squares[there].max())
    most = np.sqrt(limit) * (1 + 1e-5) + (len(line) + 24) * clusters.EPS * longest + np.sqrt(of.least)
    before = np.dot(of.points[of.start[a] : of.start[a + 1]], line)
    after = np.dot(of.points[of.start[b] : of.start[b + 1]], line)
    return here[after.min() - before <= most], there[after - before.max() <= most]


@njit
def _limit(limits, labels, a, b):
    """The largest limit of two components of which cluster a has points of one, and b of the other; -1 for none."""
    largest = -1.0
    for p in range(labels.start[a], labels.start[a + 1]):
        largest = max(largest, _limit_of(limits, labels, labels.listed[p], b))
    return largest


@njit
def _limit_of(limits, labels, i, b):
    largest = -1.0
    for q in range(labels.start[b], labels.start[b + 1]):
        j = labels.listed[q]
        if i != j:
            largest = max(largest, limits[max(i, j), min(i, j)])
    return largest


@njit
def _take(of, labels, own, others, products, most, limits, found, lows, n_found):
    """Adds pairs of point `own` with others, none of them beyond `most`; there is room. How many there are."""
    i, square = labels.of_points[own], of.squares[own]
    for c in range(len(others)):
        place = others[c]
        total = square + of.squares[place]
        if total - 2.0 * products[c] - of.slack * total - of.least > most:
            continue
        j = labels.of_points[place]
        if i == j:
            continue
        at = max(i, j), min(i, j)
        lower, upper = clusters.interval(of, own, place, products[c], limits[at])
        if lower <= limits[at]:
            limits[at] = min(limits[at], upper)
            found[n_found, 0], found[n_found, 1], lows[n_found] = own, place, lower
            n_found += 1
    return n_found


@njit
def _closer(found, lows, count, label, limits):
    """Keeps pairs whose lower bound is no larger than the limit of their components; their number."""
    kept = 0
    for c in range(count):
        i, j = label[found[c, 0]], label[found[c, 1]]
        if lows[c] <= limits[max(i, j), min(i, j)]:
            found[kept], lows[kept] = found[c], lows[c]
            kept += 1
    return kept

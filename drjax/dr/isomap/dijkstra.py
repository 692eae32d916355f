"""Neighbourhood graphs as lists of edges, and their shortest paths from given points; on a CPU, in float64.

Memory is for the edges alone, not for all pairs: records may be many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.isomap import bridges


class Edges(NamedTuple):
    """An undirected graph; those of point i are at start[i] .. start[i + 1], each edge listed from both ends.

    Attributes:
        start: (n + 1,), int64.
        nodes: (e,), int64, other ends.
        weights: (e,), lengths.
    """

    start: Any
    nodes: Any
    weights: Any


def joined(metric: str, rows: np.ndarray, neighbors: np.ndarray, distances: np.ndarray) -> tuple[Edges, int]:
    """The graph of neighbour lists, its components joined by the closest pair of points of every two.

    Ties go to the first pair, as in `path_insertion.join`. O(n k) beside `bridges.closest_pairs`.

    Args:
        metric: Metric of the records.
        rows: (n, d), as `metrics.prepared` makes them.
        neighbors: (n, k), int64.
        distances: (n, k), those of the neighbours.

    Returns:
        The edges, and the number of components before they were joined.
    """
    edges = Edges(*listed(neighbors, distances))
    count, label = components(edges.start, edges.nodes)
    if count > 1:
        edges = Edges(*_with_edges(*edges, *bridges.closest_pairs(metric, rows, label, int(count))))
    return edges, int(count)


def paths(edges: Edges, sources: np.ndarray, out: np.ndarray) -> None:
    """Overwrites out (s, n) with the lengths of the shortest paths from sources (s,), inf where there is none.

    Spread over the cores; O(s n (k + log n)).
    """

    def fill(part: slice) -> None:
        from_each(*edges, sources[part], out[part])

    host.spread(fill, len(sources))


@njit
def listed(neighbors, distances):
    """The undirected graph of neighbour lists (n, k) with their distances (n, k): fields of `Edges`."""
    n, kept = neighbors.shape
    degree, start = np.zeros(n, np.int64), np.zeros(n + 1, np.int64)
    nodes, weights = np.empty(0, np.int64), np.empty(0)
    for fill in range(2):
        if fill:
            for i in range(n):
                start[i + 1] = start[i] + degree[i]
                degree[i] = 0
            nodes, weights = np.empty(start[n], np.int64), np.empty(start[n])
        for i in range(n):
            for c in range(kept):
                j = neighbors[i, c]
                if i > j and lists(neighbors, j, i):
                    continue  # the edge was listed at j
                if fill:
                    for u, v in ((i, j), (j, i)):
                        nodes[start[u] + degree[u]] = v
                        weights[start[u] + degree[u]] = distances[i, c]
                        degree[u] += 1
                else:
                    degree[i] += 1
                    degree[j] += 1
    return start, nodes, weights


@njit
def lists(neighbors, i, j):
    """Whether j is among the neighbours of i."""
    found = False
    for c in range(neighbors.shape[1]):
        found = found or neighbors[i, c] == j
    return found


@njit
def components(start, nodes):
    """Number of connected components, and each point's (n,), numbered by their lowest point."""
    n = len(start) - 1
    label, queue = np.full(n, -1), np.empty(n, np.int64)
    count = 0
    for root in range(n):
        if label[root] >= 0:
            continue
        label[root], queue[0] = count, root
        low, high = 0, 1
        while low < high:
            i = queue[low]
            low += 1
            for e in range(start[i], start[i + 1]):
                if label[nodes[e]] < 0:
                    label[nodes[e]] = count
                    queue[high] = nodes[e]
                    high += 1
        count += 1
    return count, label


@njit
def _with_edges(start, nodes, weights, ends, lengths):
    """The graph with further edges, each given once."""
    n = len(start) - 1
    degree = start[1:] - start[:-1]
    for e in range(len(ends)):
        degree[ends[e, 0]] += 1
        degree[ends[e, 1]] += 1
    new_start = np.zeros(n + 1, np.int64)
    new_start[1:] = np.cumsum(degree)
    free = new_start[:-1].copy()
    new_nodes, new_weights = np.empty(new_start[n], np.int64), np.empty(new_start[n])
    for i in range(n):
        for e in range(start[i], start[i + 1]):
            new_nodes[free[i]], new_weights[free[i]] = nodes[e], weights[e]
            free[i] += 1
    for e in range(len(ends)):
        for u, v in ((ends[e, 0], ends[e, 1]), (ends[e, 1], ends[e, 0])):
            new_nodes[free[u]], new_weights[free[u]] = v, lengths[e]
            free[u] += 1
    return new_start, new_nodes, new_weights


@njit
def from_each(start, nodes, weights, sources, out):
    """Dijkstra's algorithm from each source, with a heap of four children a node; overwrites out (s, n).

    A length is a sum from the source on, in the order of the path: the same bits as scipy's.
    """
    n = len(start) - 1
    heap, keys, place = np.empty(n, np.int32), np.empty(n), np.empty(n, np.int32)
    for s in range(len(sources)):
        lengths = out[s]
        lengths[:] = np.inf
        place[:] = -1
        source = sources[s]
        lengths[source] = 0.0
        heap[0], keys[0], place[source] = source, 0.0, 0
        size = 1
        while size > 0:
            u, own = heap[0], keys[0]
            size -= 1
            if size > 0:
                _sink(heap, keys, place, size, heap[size], keys[size])
            for e in range(start[u], start[u + 1]):
                v, length = nodes[e], own + weights[e]
                if length < lengths[v]:
                    lengths[v] = length
                    if place[v] < 0:
                        place[v] = size
                        size += 1
                    _rise(heap, keys, place, place[v], v, length)


@njit(inline="always")
def _sink(heap, keys, place, size, node, key):
    """Puts a node at the top of a heap whose top is free."""
    at = 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        least = child
        for other in range(child + 1, min(child + 4, size)):
            if keys[other] < keys[least]:
                least = other
        if keys[least] >= key:
            break
        heap[at], keys[at] = heap[least], keys[least]
        place[heap[at]] = at
        at = least
    heap[at], keys[at], place[node] = node, key, at


@njit(inline="always")
def _rise(heap, keys, place, at, node, key):
    """Puts a node at a free place of a heap, or above it."""
    while at > 0:
        parent = (at - 1) // 4
        if keys[parent] <= key:
            break
        heap[at], keys[at] = heap[parent], keys[parent]
        place[heap[at]] = at
        at = parent
    heap[at], keys[at], place[node] = node, key, at

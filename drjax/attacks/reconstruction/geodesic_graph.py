"""The neighbourhood graph of the known records, as a search for the place of one more needs it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from drjax.dr import metrics
from drjax.dr.isomap import path_insertion, shortest_paths

DETOUR = 1e-9
"""Share by which rounding can make one shortest path seem longer than another."""

MAX_TIES = 3
"""Points with neighbours at equal distance for which either is tried."""


class Known(NamedTuple):
    """The graph of the known points, and what the loss of each one's last neighbour does to its shortest paths.

    Attributes:
        between, neighbors: Fields of `shortest_paths.Graph`.
        paths: (m, m), the shortest ones.
        start, nodes, weights: The edges, as of `path_insertion.adjacency`.
        reach: (m,), distance to the last of each point's neighbours; inf if a list has room for another one.
        effect_start: (m + 1,); the pairs that point i's loss lengthens are at effect_start[i] .. effect_start[i + 1] of
        effect_pairs: (e, 2), and the squares of their paths grow by
        effects: (e,).
    """

    between: Any
    neighbors: Any
    paths: Any
    start: Any
    nodes: Any
    weights: Any
    reach: Any
    effect_start: Any
    effect_pairs: Any
    effects: Any


def known_graphs(known: np.ndarray, n_neighbors: int, metric: str = metrics.EUCLIDEAN) -> Iterator[Known]:
    """The graph of known points (m, d), and others that a release may have if neighbours are at equal distance.

    Where a point's last neighbour is no nearer than the next one, either may be in its list: up to `MAX_TIES` points
    are tried both ways, in all combinations, lists by lowest index first.
    """
    graph = shortest_paths.graph(known, n_neighbors, metric)
    yield known_graph(graph, n_neighbors)
    between = graph.between.copy()
    np.fill_diagonal(between, np.inf)
    if n_neighbors >= len(between):
        return
    order = np.argsort(between, axis=1, kind="stable")[:, n_neighbors - 1 : n_neighbors + 1]
    last, following = np.take_along_axis(between, order, axis=1).T
    tied = np.flatnonzero(last == following)[:MAX_TIES]
    for choice in itertools.product((False, True), repeat=len(tied)):
        swapped = tied[np.array(choice, bool)]
        if len(swapped):
            nearer = graph.between.copy()
            # In the order of its list alone: the path lengths it changes by a rounding error.
            nearer[swapped, order[swapped, 1]] *= 1 - 1e-15
            other = shortest_paths.graph_of_distances(nearer, n_neighbors)
            yield known_graph(other._replace(between=graph.between), n_neighbors)


def known_graph(graph: shortest_paths.Graph, n_neighbors: int) -> Known:
    """Known graph with the effect of the loss of each last neighbour; costs a repair of the paths for each point.

    Components are joined by their closest pairs of points, as they are in a release unless the target comes between.
    """
    m = len(graph.paths)
    neighbors = np.ascontiguousarray(graph.neighbors, np.int64)
    paths, edges = _joined(graph, path_insertion.adjacency(neighbors, graph.between))
    is_full = neighbors.shape[1] == n_neighbors
    reach = graph.between[np.arange(m), neighbors[:, -1]] if is_full else np.full(m, np.inf)
    pairs, effects, without = [np.empty((0, 2), np.int64)], [np.empty(0)], np.empty((m, m))
    ends = np.zeros(m + 1, np.int64)
    for i in range(m):
        ends[i + 1] = ends[i]
        # An edge that its other end lists as well stays.
        if is_full and i not in neighbors[neighbors[i, -1]]:
            path_insertion.displace(graph.between, neighbors, paths, *edges, np.arange(m) == i, without)
            changed = _changed(paths, without, i, neighbors[i, -1], reach[i])
            new = without[*changed.T]
            pairs.append(changed)
            effects.append(np.where(np.isfinite(new), new, 0) ** 2 - paths[*changed.T] ** 2)
            ends[i + 1] += len(changed)
    return Known(
        between=graph.between,
        neighbors=neighbors,
        paths=paths,
        start=edges[0],
        nodes=edges[1],
        weights=edges[2],
        reach=np.ascontiguousarray(reach),
        effect_start=ends,
        effect_pairs=np.concatenate(pairs),
        effects=np.concatenate(effects),
    )


def _changed(paths: np.ndarray, without: np.ndarray, i: int, j: int, length: float) -> np.ndarray:
    """Pairs (e, 2) in ascending order whose shortest path is longer without the edge from i to j of this length."""
    # One end of such a path reaches j by i.
    rows = np.flatnonzero(paths[:, i] + length <= paths[:, j] * (1 + DETOUR))
    found = np.argwhere(without[rows] != paths[rows])
    pairs = np.sort(np.column_stack([rows[found[:, 0]], found[:, 1]]), axis=1)
    return np.unique(pairs, axis=0)


def _joined(graph: shortest_paths.Graph, edges: tuple[Any, Any, Any]) -> tuple[np.ndarray, tuple[Any, Any, Any]]:
    """Paths and `path_insertion.adjacency` with an edge between the closest points of every two components."""
    label = np.isfinite(graph.paths).argmax(axis=1)
    heads, tails = [], []
    for first, second in itertools.combinations(np.unique(label), 2):
        a, b = np.flatnonzero(label == first), np.flatnonzero(label == second)
        i, j = np.unravel_index(graph.between[np.ix_(a, b)].argmin(), (len(a), len(b)))
        heads.append(a[i])
        tails.append(b[j])
    if not heads:
        return graph.paths, edges
    start, nodes, weights = edges
    head = np.concatenate([np.repeat(np.arange(len(label)), np.diff(start)), heads, tails]).astype(np.int64)
    tail = np.concatenate([nodes, tails, heads]).astype(np.int64)
    weight = np.concatenate([weights, graph.between[heads, tails], graph.between[tails, heads]])
    order = np.argsort(head, kind="stable")
    paths = graph.paths.copy()
    path_insertion.join(np.ascontiguousarray(graph.between[1:, 1:]), graph.between[0, 1:].copy(), paths)
    return paths, (np.searchsorted(head[order], np.arange(len(label) + 1)), tail[order], weight[order])


def links(rows: np.ndarray, known: Known, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of links (inf: none), from distances of points to the known ones (s, m), and who is displaced."""
    enters = rows <= known.reach
    last = min(n_neighbors, rows.shape[1]) - 1
    is_linked = enters | (rows <= np.partition(rows, last, axis=1)[:, last, None])
    return np.where(is_linked, rows, np.inf), enters & np.isfinite(known.reach)

"""Neighbourhood graphs and their shortest paths.

`geodesics` is the whole of it in JAX; the rest runs on the host, in float64. Neighbours at equal distance are taken by
index, lowest first.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from drjax.core.types import Array
from drjax.dr import metrics

BLOCK = 16
"""Points through which paths are led in one pass over the matrix of lengths."""


class Graph(NamedTuple):
    """The k-nearest-neighbour graph of m points; pairs joined if either is among the other's neighbours.

    Attributes:
        between: (m, m), distances of all pairs; the weight of an edge is that of its ends.
        neighbors: (m, min(k, m-1)), int64, each point's neighbours, nearest first.
        paths: (m, m), lengths of the shortest paths, inf between components (which are not joined here).
    """

    between: np.ndarray
    neighbors: np.ndarray
    paths: np.ndarray


def graph(x: np.ndarray, n_neighbors: int, metric: str = metrics.EUCLIDEAN) -> Graph:
    """The graph of the rows of x (m, d), its components left apart; O(m^2 (d + log m))."""
    return graph_of_distances(metrics.among(metric, metrics.prepared(metric, x)), n_neighbors)


def graph_of_distances(between: np.ndarray, n_neighbors: int) -> Graph:
    """`graph` from symmetric dissimilarities (m, m), which need not obey the triangle inequality."""
    m = len(between)
    kept = min(n_neighbors, m - 1)
    others = between.astype(np.float64)
    np.fill_diagonal(others, np.inf)
    neighbors = np.argsort(others, axis=1, kind="stable")[:, :kept]
    start = np.arange(m + 1) * kept
    weights = np.take_along_axis(between, neighbors, axis=1).ravel()
    # Built from its parts, so that edges of length 0 between equal points stay edges.
    directed = scipy.sparse.csr_array((weights, neighbors.ravel(), start), shape=(m, m))
    paths = scipy.sparse.csgraph.dijkstra(directed, directed=False)
    return Graph(np.ascontiguousarray(between, np.float64), neighbors, np.minimum(paths, paths.T))


def geodesics(x: Array, n_neighbors: int, metric: str = metrics.EUCLIDEAN) -> tuple[Array, Array]:
    """Lengths of the shortest paths of x (n, d), (n, n), and the number of components that were joined for it, ()."""
    n = x.shape[0]
    between = all_distances(metrics.prepared_in_xla(metric, x), metric)
    is_self = jnp.eye(n, dtype=bool)
    # Of equal entries top_k takes the one of lowest index first.
    _, nearest = jax.lax.top_k(jnp.where(is_self, -jnp.inf, -between), n_neighbors)
    is_edge = jnp.zeros((n, n), bool).at[jnp.arange(n)[:, None], nearest].set(True)
    is_edge = is_edge | is_edge.T
    label = labels(is_edge)
    is_edge = is_edge | bridge_edges(jax.lax.stop_gradient(between), label)
    paths = all_pairs(jnp.where(is_self, 0, jnp.where(is_edge, between, jnp.inf)))
    return paths, jnp.sum(label == jnp.arange(n), dtype=jnp.int32)


def all_distances(rows: Array, metric: str) -> Array:
    """Distances of all pairs of rows (n, d) as `metrics.prepared_in_xla` makes them, (n, n)."""

    def apart(row: Array) -> Array:
        return metrics.apart_in_xla(metric, rows, row[None])[:, 0]

    # Reverse mode computes the differences, n times as much as all that is kept, again.
    return jax.lax.map(jax.checkpoint(apart), rows)


@jax.custom_jvp
def all_pairs(weights: Array) -> Array:
    """Lengths of the shortest paths for symmetric weights (n, n), 0 on the diagonal, inf without an edge.

    O(n^3), of which memory sees n / `BLOCK` passes over the matrix.

    Source: Floyd (1962), in the blocks of Venkataraman, Sahni & Mukhopadhyaya (2003).
    """
    n = weights.shape[0]
    if n <= BLOCK:
        return _closed(weights)
    surplus = -n % BLOCK
    # Points that fill up the last block have no edges.
    paths = jnp.pad(weights, (0, surplus), constant_values=jnp.inf)

    def through(block: Array, paths: Array) -> Array:
        first = block * BLOCK
        rows = jax.lax.dynamic_slice_in_dim(paths, first, BLOCK)
        inner = _closed(jax.lax.dynamic_slice_in_dim(rows, first, BLOCK, axis=1))
        # The matrix stays symmetric: columns are these rows.
        rows = functools.reduce(jnp.minimum, (inner[:, p, None] + rows[p] for p in range(BLOCK)), rows)
        return functools.reduce(jnp.minimum, (rows[p][:, None] + rows[p] for p in range(BLOCK)), paths)

    return jax.lax.fori_loop(0, (n + surplus) // BLOCK, through, paths)[:n, :n]


def _closed(weights: Array) -> Array:
    """`all_pairs` of few points, one after the other."""
    return functools.reduce(
        lambda paths, p: jnp.minimum(paths, paths[p][:, None] + paths[p]), range(weights.shape[0]), weights
    )


@all_pairs.defjvp
def _all_pairs_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """A length changes by the changes of the edges on its path, for as long as that is the shortest.

    Through the loop itself reverse mode would keep n^3 numbers; this keeps n^2 log n.
    """
    (weights,), (changes,) = primals, tangents
    n = weights.shape[0]

    def through(pivot: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        paths, before = state
        detour = paths[pivot][:, None] + paths[pivot]
        # Only what is strictly shorter replaces a path, so that edges of length 0 make no circle.
        is_shorter = detour < paths
        return jnp.where(is_shorter, detour, paths), jnp.where(is_shorter, before[pivot], before)

    # before[i, j] is the point that comes before j on the path from i.
    start = jnp.broadcast_to(jnp.arange(n)[:, None], (n, n))
    _, before = jax.lax.fori_loop(0, n, through, (jax.lax.stop_gradient(weights), start))
    # total[i, j] sums the changes from j back to before[i, j]; each round doubles the number of edges between them.
    total = jnp.take_along_axis(changes, before, axis=0)
    for _ in range((n - 1).bit_length()):
        total = total + jnp.take_along_axis(total, before, axis=1)
        before = jnp.take_along_axis(before, before, axis=1)
    return all_pairs(weights), total


def labels(is_edge: Array) -> Array:
    """The lowest index in the component of each point, (n,)."""
    n = is_edge.shape[0]

    def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = state
        lowest = jnp.minimum(label, jnp.min(jnp.where(is_edge, label, n), axis=1))
        lowest = lowest[lowest]  # labels are points of the component, whose own labels are as good or better
        return lowest, jnp.any(lowest != label)

    label, _ = jax.lax.while_loop(lambda state: state[1], spread, (jnp.arange(n), jnp.bool_(True)))
    return label


def bridge_edges(between: Array, label: Array) -> Array:
    """The closest pair of points of every two components, as edges (n, n); ties as in `join`."""
    n = label.shape[0]
    index = jnp.arange(n)
    lowest = functools.partial(jax.ops.segment_min, segment_ids=label, num_segments=n)
    # [a, J] and then [I, J]: the distance from a point a, or from component I, to component J.
    to_part = lowest(between.T).T
    part_to_part = lowest(to_part)
    partner = lowest(jnp.where(between.T == to_part[:, label].T, index[:, None], n)).T
    first = lowest(jnp.where(to_part == part_to_part[label], index[:, None], n))
    is_chosen = (first[label] == index[:, None]) & (label[:, None] > index) & (label == index)
    edges = jnp.zeros((n, n), bool).at[index[:, None], partner].max(is_chosen, mode="drop")
    return edges | edges.T

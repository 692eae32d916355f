"""Neighbourhood graphs and their shortest paths, and what one more point does to them, exactly.

`geodesics` is the whole of it in JAX; the rest runs on the host, in float64. Neighbours at equal distance are taken by
index, lowest first; an inserted point has index 0.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numba
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from drjax.core.types import Array


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


@numba.njit(error_model="numpy", fastmath={"reassoc", "contract"}, cache=True, nogil=True)
def distances(a, b):
    """Euclidean distances of the rows of a (p, d) to those of b (q, d), both float64; (p, q).

    Differences are squared, not inner products subtracted: equal rows are at 0, and a pair gets the same bits whichever
    of the two comes first and whoever calls, which the rule for ties rests on.
    """
    out = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = 0.0
            for c in range(a.shape[1]):
                step = a[i, c] - b[j, c]
                total += step * step
            out[i, j] = np.sqrt(total)
    return out


def graph(x: np.ndarray, n_neighbors: int) -> Graph:
    """The graph of the rows of x (m, d), its components left apart; O(m^2 (d + log m))."""
    x = np.ascontiguousarray(x, np.float64)
    return graph_of_distances(distances(x, x), n_neighbors)


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


@numba.njit(error_model="numpy", cache=True, nogil=True)
def adjacency(neighbors, between):
    """The undirected graph of neighbour lists, point by point: edges of i are start[i] .. start[i + 1].

    Returns:
        start (m + 1,), nodes (e,), weights (e,); each edge is listed from both ends.
    """
    m, kept = neighbors.shape
    degree = np.zeros(m + 1, np.int64)
    for fill in range(2):
        if fill:
            start = np.zeros(m + 1, np.int64)
            for i in range(m):
                start[i + 1] = start[i] + degree[i]
                degree[i] = 0
            nodes, weights = np.empty(start[m], np.int64), np.empty(start[m])
        for i in range(m):
            for c in range(kept):
                j = neighbors[i, c]
                if i > j and _lists(neighbors, j, i, kept):
                    continue  # the edge was listed at j
                if fill:
                    for u, v in ((i, j), (j, i)):
                        nodes[start[u] + degree[u]] = v
                        weights[start[u] + degree[u]] = between[u, v]
                        degree[u] += 1
                else:
                    degree[i] += 1
                    degree[j] += 1
    return start, nodes, weights


@numba.njit(error_model="numpy", cache=True, nogil=True)
def insert(between, neighbors, paths, start, nodes, weights, row, n_neighbors, out):
    """Shortest paths of the graph with one more point, its components joined; O(n^2) but for rare large repairs.

    Args:
        between, neighbors, paths: The `Graph` of the m = n - 1 points.
        start, nodes, weights: Its `adjacency`.
        row: (m,), distances of the new point to them.
        n_neighbors: k, at most m.
        out: (n, n), is overwritten with the lengths of the shortest paths; the new point is row 0.

    Returns:
        The number of components before they were joined, and whether each point is adjacent to the new one (m,).
    """
    m, kept = neighbors.shape
    out[0, :] = np.inf
    out[:, 0] = np.inf
    out[0, 0] = 0.0
    for i in range(m):
        out[i + 1, 1:] = paths[i]
    is_full = kept == n_neighbors
    enters = np.empty(m, np.bool_)
    for i in range(m):
        enters[i] = not is_full or row[i] <= between[i, neighbors[i, kept - 1]]
    if is_full:
        _delete(between, neighbors, paths, start, nodes, weights, enters, out)

    linked = enters.copy()
    _add_nearest(row, n_neighbors, linked)
    reach = np.full(m, np.inf)
    for i in range(m):
        if linked[i]:
            for j in range(m):
                reach[j] = min(reach[j], row[i] + out[i + 1, j + 1])
    for i in range(m):
        own = reach[i]
        out[0, i + 1] = own
        out[i + 1, 0] = own
        if own < np.inf:
            for j in range(m):
                out[i + 1, j + 1] = min(out[i + 1, j + 1], own + reach[j])
    return join(between, row, out), linked


@numba.njit(error_model="numpy", cache=True, nogil=True)
def join(between, row, out):
    """Joins every pair of components of `out` (n, n) by its closest pair of points, as scikit-learn does.

    Of pairs at equal distance the first counts, by the point in the component that comes later, then by the other.
    Components are ordered by their lowest index.

    Returns:
        The number of components that were found.
    """
    n = out.shape[0]
    label = np.full(n, -1)
    count = 0
    for v in range(n):
        if label[v] < 0:
            for u in range(n):
                if out[v, u] < np.inf:
                    label[u] = count
            count += 1
    if count == 1:
        return count
    closest = np.full((count, count), np.inf)
    ends = np.zeros((count, count, 2), np.int64)
    for a in range(n):
        for b in range(n):
            i, j = label[a], label[b]
            if i <= j:
                continue
            apart = row[a - 1] if b == 0 else (row[b - 1] if a == 0 else between[a - 1, b - 1])
            if apart < closest[i, j]:
                closest[i, j] = apart
                ends[i, j, 0], ends[i, j, 1] = a, b
    is_portal = np.zeros(n, np.bool_)
    for i in range(count):
        for j in range(i):
            a, b = ends[i, j]
            out[a, b] = out[b, a] = closest[i, j]
            is_portal[a] = is_portal[b] = True
    # Inside a component all paths are shortest already, so new ones bend at the ends of new edges alone.
    for p in range(n):
        if is_portal[p]:
            for i in range(n):
                own = out[i, p]
                if own < np.inf:
                    for j in range(n):
                        out[i, j] = min(out[i, j], own + out[p, j])
    return count


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _lists(neighbors, i, j, kept):
    found = False
    for c in range(kept):
        found = found or neighbors[i, c] == j
    return found


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _add_nearest(row, n_neighbors, linked):
    """Marks the n_neighbors nearest by (distance, index)."""
    nearest = np.full(n_neighbors, -1)
    found = 0
    for i in range(len(row)):
        if found == n_neighbors:
            if not row[i] < row[nearest[found - 1]]:
                continue
        else:
            found += 1
        c = found - 1
        while c > 0 and row[i] < row[nearest[c - 1]]:
            nearest[c] = nearest[c - 1]
            c -= 1
        nearest[c] = i
    for c in range(found):
        linked[nearest[c]] = True


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _delete(between, neighbors, paths, start, nodes, weights, enters, out):
    """Takes the edges that the new point pushes out of full lists from the shortest paths in out[1:, 1:].

    A path of i may have used a removed edge (a, b) only if it is tight, path(i, a) + weight = path(i, b), and then to j
    only if path(i, b) + path(b, j) = path(i, j). Such pairs are computed anew from the others, the rest stand.
    """
    m, kept = neighbors.shape
    last = kept - 1
    removed = np.empty((m, 2), np.int64)
    n_removed = 0
    for i in range(m):
        if not enters[i]:
            continue
        j = neighbors[i, last]
        is_mutual = _lists(neighbors, j, i, kept)
        if is_mutual and (not enters[j] or neighbors[j, last] != i or j < i):
            continue  # j keeps the edge, or has it removed already
        removed[n_removed, 0], removed[n_removed, 1] = i, j
        n_removed += 1
    if n_removed == 0:
        return
    weights = weights.copy()
    for e in range(n_removed):
        for side in range(2):
            u, v = removed[e, side], removed[e, 1 - side]
            for c in range(start[u], start[u + 1]):
                if nodes[c] == v:
                    weights[c] = np.inf
    # Sums of the same lengths in another order differ by at most this; a pair too many costs only time.
    slack = 1 + 8 * m * np.finfo(np.float64).eps
    pending = np.empty(m, np.int64)
    is_pending = np.zeros(m, np.bool_)
    for s in range(m):
        count = 0
        for e in range(n_removed):
            for side in range(2):
                a, b = removed[e, side], removed[e, 1 - side]
                via = paths[s, b]
                if not (via < np.inf and paths[s, a] + between[a, b] <= via * slack):
                    continue
                # Pairs with an earlier point are repaired from there.
                for v in range(s + 1, m):
                    if via + paths[b, v] <= paths[s, v] * slack and paths[s, v] < np.inf and not is_pending[v]:
                        is_pending[v] = True
                        pending[count] = v
                        count += 1
        if count == 0:
            continue
        for c in range(count):
            out[s + 1, pending[c] + 1] = np.inf
            is_pending[pending[c]] = False
        # From infinity down, values are lengths of real paths; the fixed point is the shortest, with edges of 0 too.
        is_changed = True
        while is_changed:
            is_changed = False
            for c in range(count):
                v = pending[c]
                best = out[s + 1, v + 1]
                for edge in range(start[v], start[v + 1]):
                    best = min(best, out[s + 1, nodes[edge] + 1] + weights[edge])
                if best < out[s + 1, v + 1]:
                    out[s + 1, v + 1] = best
                    is_changed = True
        for c in range(count):
            out[pending[c] + 1, s + 1] = out[s + 1, pending[c] + 1]


def geodesics(x: Array, n_neighbors: int) -> tuple[Array, Array]:
    """Lengths of the shortest paths of x (n, d), (n, n), and the number of components that were joined for it, ()."""
    n = x.shape[0]
    between = jax.lax.map(lambda row: _norms(x - row), x)
    is_self = jnp.eye(n, dtype=bool)
    # Of equal entries top_k takes the one of lowest index first.
    _, nearest = jax.lax.top_k(jnp.where(is_self, -jnp.inf, -between), n_neighbors)
    is_edge = jnp.zeros((n, n), bool).at[jnp.arange(n)[:, None], nearest].set(True)
    is_edge = is_edge | is_edge.T
    label = _labels(is_edge)
    is_edge = is_edge | _bridges(jax.lax.stop_gradient(between), label)
    paths = jnp.where(is_self, 0, jnp.where(is_edge, between, jnp.inf))

    def through(pivot: Array, paths: Array) -> Array:
        return jnp.minimum(paths, paths[pivot][:, None] + paths[pivot])

    return jax.lax.fori_loop(0, n, through, paths), jnp.sum(label == jnp.arange(n), dtype=jnp.int32)


def _norms(steps: Array) -> Array:
    """Row norms; the derivative at zero is zero."""
    squares = jnp.sum(steps**2, axis=-1)
    is_zero = squares == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, squares)))


def _labels(is_edge: Array) -> Array:
    """The lowest index in the component of each point, (n,)."""
    n = is_edge.shape[0]

    def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = state
        lowest = jnp.minimum(label, jnp.min(jnp.where(is_edge, label, n), axis=1))
        lowest = lowest[lowest]  # labels are points of the component, whose own labels are as good or better
        return lowest, jnp.any(lowest != label)

    label, _ = jax.lax.while_loop(lambda state: state[1], spread, (jnp.arange(n), jnp.bool_(True)))
    return label


def _bridges(between: Array, label: Array) -> Array:
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

"""What one more point, of index 0, does to a neighbourhood graph and its shortest paths, exactly; on a CPU."""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit
from drjax.dr.isomap import dijkstra


@njit
def adjacency(neighbors, between):
    """`dijkstra.listed` from the distances of all pairs (m, m)."""
    m, kept = neighbors.shape
    distances = np.empty((m, kept))
    for i in range(m):
        for c in range(kept):
            distances[i, c] = between[i, neighbors[i, c]]
    return dijkstra.listed(neighbors, distances)


@njit
def insert(between, neighbors, paths, start, nodes, weights, row, n_neighbors, out):
    """Shortest paths of the graph with one more point, its components joined; O(n^2) but for rare large repairs.

    Args:
        between, neighbors, paths: The `shortest_paths.Graph` of the m = n - 1 points.
        start, nodes, weights: Fields of its `adjacency`.
        row: (m,), distances of the new point to them.
        n_neighbors: k, at most m.
        out: (n, n), is overwritten with the lengths of the shortest paths; the new point is row 0.

    Returns:
        The number of components before they were joined, and whether each point is adjacent to the new one (m,).
    """
    m = paths.shape[0]
    own, reach, linked = paths.copy(), np.empty(m), np.empty(m, np.bool_)
    pairs = np.empty((0, 2), np.int32)
    change(between, neighbors, paths, start, nodes, weights, row, n_neighbors, own, reach, linked, pairs)
    out[0, 0] = 0.0
    out[0, 1:] = reach
    for i in range(m):
        out[i + 1, 0] = reach[i]
        out[i + 1, 1:] = own[i]
    return join(between, row, out), linked


@njit
def change(between, neighbors, paths, start, nodes, weights, row, n_neighbors, own, reach, linked, pairs):
    """What one more point does to the shortest paths, before components are joined; arguments as in `insert`, and

    Args:
        own: (m, m), equal to `paths`; becomes the shortest paths of the m points by way of the new one too.
        reach: (m,), is overwritten with the lengths of the new point's paths, inf where it is not connected.
        linked: (m,), is overwritten: whether each point is adjacent to the new one.
        pairs: (most, 2), is filled with pairs i < j, once each, that hold all in which `own` now differs from `paths`.

    Returns:
        The number of these pairs; more than `most` if they found no room.
    """
    m, kept = neighbors.shape
    is_full = kept == n_neighbors
    for i in range(m):
        linked[i] = not is_full or row[i] <= between[i, neighbors[i, kept - 1]]
    n_pairs = _delete(between, neighbors, paths, start, nodes, weights, linked, own, pairs) if is_full else 0
    _add_nearest(row, n_neighbors, linked)
    reach[:] = np.inf
    for i in range(m):
        if linked[i]:
            for j in range(m):
                reach[j] = min(reach[j], row[i] + own[i, j])
    # A path from i that the new point shortens leaves it by a point adjacent to it: that end of it is shortened too.
    is_shortened = np.zeros(m, np.bool_)
    for w in range(m):
        if linked[w]:
            for i in range(m):
                is_shortened[i] |= reach[i] + row[w] < own[w, i]
    shortened = np.flatnonzero(is_shortened)
    for a in range(len(shortened)):
        i = shortened[a]
        for j in shortened[a + 1 :]:
            length = reach[i] + reach[j]
            if length < own[i, j]:
                if own[i, j] == paths[i, j]:  # else it is among the pairs already
                    n_pairs = _record(pairs, n_pairs, i, j)
                own[i, j] = own[j, i] = length
    return n_pairs


@njit
def displace(between, neighbors, paths, start, nodes, weights, enters, out):
    """Shortest paths once every point that `enters` (m,) marks has given up its last neighbour; overwrites out (m, m).

    An edge that its other end lists as well stays, as in `insert`. Components are not joined; other arguments as there.
    """
    out[:] = paths
    _delete(between, neighbors, paths, start, nodes, weights, enters, out, np.empty((0, 2), np.int32))


@njit
def _record(pairs, n_pairs, i, j):
    if n_pairs < len(pairs):
        pairs[n_pairs, 0], pairs[n_pairs, 1] = i, j
    return n_pairs + 1


@njit
def join(between, row, out):
    """Joins every pair of components of `out` (n, n) by its closest pair of points, as scikit-learn does.

    Ties go to the first pair, by the point in the component that comes later, then by the other.
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


@njit
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


@njit
def _delete(between, neighbors, paths, start, nodes, weights, enters, own, pairs):
    """Takes the edges that the new point pushes out of full lists from the shortest paths in `own`; see `change`.

    A path from i to j may have used a removed edge (a, b) only if path(i, a) + weight = path(i, b), path(j, b) + weight
    = path(j, a) and path(i, b) + path(b, j) = path(i, j). Such pairs are computed anew from the others, the rest stand.
    """
    m, kept = neighbors.shape
    last = kept - 1
    removed = np.empty((m, 2), np.int64)
    n_removed = 0
    for i in range(m):
        if not enters[i]:
            continue
        j = neighbors[i, last]
        is_mutual = dijkstra.lists(neighbors, j, i)
        if is_mutual and (not enters[j] or neighbors[j, last] != i or j < i):
            continue  # j keeps the edge, or has it removed already
        removed[n_removed, 0], removed[n_removed, 1] = i, j
        n_removed += 1
    n_pairs = 0
    if n_removed == 0:
        return n_pairs
    weights = weights.copy()
    for e in range(n_removed):
        for side in range(2):
            u, v = removed[e, side], removed[e, 1 - side]
            for c in range(start[u], start[u + 1]):
                if nodes[c] == v:
                    weights[c] = np.inf
    ends, members = _across(between, paths, removed[:n_removed])
    cursor = ends[:-1].copy()
    slack = 1 + _slack(m)
    pending = np.empty(m, np.int64)
    is_pending = np.zeros(m, np.bool_)
    for s in range(m):
        count = 0
        for side in range(2 * n_removed):
            if cursor[side] == ends[side + 1] or members[cursor[side]] != s:
                continue
            cursor[side] += 1
            b = removed[side // 2, 1 - side % 2]
            other = side ^ 1
            # What the cursor there has passed are pairs with an earlier point, which are repaired from there.
            for at in range(cursor[other], ends[other + 1]):
                v = members[at]
                if v > s and paths[s, b] + paths[b, v] <= paths[s, v] * slack and not is_pending[v]:
                    is_pending[v] = True
                    pending[count] = v
                    count += 1
        if count == 0:
            continue
        for c in range(count):
            own[s, pending[c]] = np.inf
            is_pending[pending[c]] = False
        # From infinity down, values are lengths of real paths; the fixed point is the shortest, with edges of 0 too.
        is_changed = True
        while is_changed:
            is_changed = False
            for c in range(count):
                v = pending[c]
                best = own[s, v]
                for edge in range(start[v], start[v + 1]):
                    best = min(best, own[s, nodes[edge]] + weights[edge])
                if best < own[s, v]:
                    own[s, v] = best
                    is_changed = True
        for c in range(count):
            v = pending[c]
            own[v, s] = own[s, v]
            if own[s, v] != paths[s, v]:
                n_pairs = _record(pairs, n_pairs, s, v)
    return n_pairs


@njit
def _across(between, paths, edges):
    """Points whose path to the other end of an edge may go by it: of `edges` (e, 2), for either end; ascending.

    Returns:
        ends (2 e + 1,) and members: those on the side of edges[i, j] are at ends[2 i + j] .. ends[2 i + j + 1].
    """
    m = paths.shape[0]
    ends = np.zeros(2 * len(edges) + 1, np.int64)
    members = np.empty(0, np.int32)
    slack = 1 + _slack(m)
    for fill in range(2):
        if fill:
            members = np.empty(ends[-1], np.int32)
        count = 0
        for e in range(len(edges)):
            for side in range(2):
                a, b = edges[e, side], edges[e, 1 - side]
                weight = between[a, b]
                for v in range(m):
                    if paths[a, v] + weight <= paths[b, v] * slack and paths[b, v] < np.inf:
                        if fill:
                            members[count] = v
                        count += 1
                ends[2 * e + side + 1] = count
    return ends, members


@njit
def _slack(m):
    """Sums of the same lengths in another order differ by at most this share; a pair too many costs only time."""
    return 8 * m * np.finfo(np.float64).eps

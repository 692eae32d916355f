"""Compiled graph of records that all move with one of them: its edges, its shortest paths, and how these change.

`drjax.dr.isomap` has the graph of records that stay, and updates of its paths. Here every length changes with every
candidate, and edges keep their numbers, because the derivative is taken in their lengths.
"""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit

FAR = 1e300
"""Length of a path that there is not."""


@njit
def edges_of(between, n_neighbors):
    """Pairs (e, 2), i < j, of the neighbourhood graph of distances (n, n): joined if either lists the other.

    Of equal neighbours the lowest index is taken. Every two components are joined by their closest pair.
    """
    n = len(between)
    is_edge = np.zeros((n, n), np.bool_)
    for i in range(n):
        nearest, which = np.full(n_neighbors, np.inf), np.full(n_neighbors, -1)
        for j in range(n):
            length = between[i, j]
            if j == i or not length < nearest[-1]:
                continue
            place = n_neighbors - 1
            while place > 0 and nearest[place - 1] > length:
                nearest[place], which[place] = nearest[place - 1], which[place - 1]
                place -= 1
            nearest[place], which[place] = length, j
        for j in which:
            is_edge[i, j] = is_edge[j, i] = True
    label = _components(is_edge)
    count = label.max() + 1
    for a in range(count):
        for b in range(a + 1, count):
            first, second, least = -1, -1, np.inf
            for i in range(n):
                for j in range(n):
                    if label[i] == a and label[j] == b and between[i, j] < least:
                        first, second, least = i, j, between[i, j]
            is_edge[first, second] = is_edge[second, first] = True
    n_edges = 0
    for i in range(n):
        for j in range(i + 1, n):
            n_edges += is_edge[i, j]
    edges, place = np.empty((n_edges, 2), np.int64), 0
    for i in range(n):
        for j in range(i + 1, n):
            if is_edge[i, j]:
                edges[place, 0], edges[place, 1] = i, j
                place += 1
    return edges


@njit
def _components(is_edge):
    n, count = len(is_edge), 0
    label, stack = np.full(n, -1), np.empty(n, np.int64)
    for first in range(n):
        if label[first] >= 0:
            continue
        label[first], stack[0], top = count, first, 1
        while top:
            top -= 1
            i = stack[top]
            for j in range(n):
                if is_edge[i, j] and label[j] < 0:
                    label[j], stack[top] = count, j
                    top += 1
        count += 1
    return label


# Without nan in it the inner loop is one of vector instructions.
@njit(fastmath={"nnan", "nsz"})
def paths_of(edges, lengths, n):
    """Lengths of the shortest paths (n, n) of edges (e, 2) with lengths (e,), by Floyd (1962); n^3 steps."""
    paths = np.full((n, n), FAR)
    for i in range(n):
        paths[i, i] = 0.0
    for e in range(len(edges)):
        i, j = edges[e]
        paths[i, j] = paths[j, i] = lengths[e]
    pivot = np.empty(n)
    for m in range(n):
        pivot[:] = paths[m]
        for i in range(n):
            first = paths[i, m]
            if first < FAR:
                row = paths[i]
                for j in range(n):
                    length = first + pivot[j]
                    row[j] = length if length < row[j] else row[j]
    return paths


@njit
def product_derivative(edges, lengths, paths, vectors):
    """Derivative of A v, A = -paths^2 / 2 and v (n, q), in the lengths of the edges, (n, q, e).

    A path's length changes by the changes of the edges on it. From each point on its tree of shortest paths the
    weights of what lies behind an edge are added up, from the leaves on.
    """
    n, q = vectors.shape
    start, nodes, which = _listed(edges, n)
    out = np.zeros((n, q, len(edges)))
    weights, before, by = np.empty((n, q)), np.empty(n, np.int64), np.empty(n, np.int64)
    n_behind, leaves = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        _tree(paths[i], i, lengths, start, nodes, which, before, by)
        n_behind[:] = 0
        for j in range(n):
            for a in range(q):
                weights[j, a] = -paths[i, j] * vectors[j, a]
            if before[j] >= 0:
                n_behind[before[j]] += 1
        top = 0
        for j in range(n):
            if n_behind[j] == 0:
                leaves[top] = j
                top += 1
        while top:
            top -= 1
            j = leaves[top]
            towards = before[j]
            if towards < 0:
                continue
            for a in range(q):
                out[i, a, by[j]] += weights[j, a]
                weights[towards, a] += weights[j, a]
            n_behind[towards] -= 1
            if n_behind[towards] == 0:
                leaves[top] = towards
                top += 1
    return out


@njit
def _tree(paths, root, lengths, start, nodes, which, before, by):
    """Overwrites the point before each on its shortest path from the root, -1 of that, and the edge from there."""
    n_left, n = 0, len(paths)
    for j in range(n):
        before[j], by[j], least = -1, -1, np.inf
        for place in range(start[j], start[j + 1]):
            # Through a point no nearer the way could lead in a circle.
            own = paths[nodes[place]]
            if own + lengths[which[place]] < least and own < paths[j]:
                before[j], by[j], least = nodes[place], which[place], own + lengths[which[place]]
        n_left += before[j] < 0 and j != root
    while n_left:
        # These are equal to a point that the way leads through.
        n_last = n_left
        for j in range(n):
            if before[j] >= 0 or j == root:
                continue
            for place in range(start[j], start[j + 1]):
                other = nodes[place]
                if before[j] < 0 and lengths[which[place]] == 0 and (before[other] >= 0 or other == root):
                    before[j], by[j] = other, which[place]
                    n_left -= 1
        if n_left == n_last:
            return


@njit
def _listed(edges, n):
    """Edges of point i: start[i] .. start[i + 1] of their other ends and of their places among the edges."""
    start = np.zeros(n + 1, np.int64)
    for e in range(len(edges)):
        for end in edges[e]:
            start[end + 1] += 1
    start = np.cumsum(start)
    filled = start[:-1].copy()
    nodes, which = np.empty(2 * len(edges), np.int64), np.empty(2 * len(edges), np.int64)
    for e in range(len(edges)):
        for side in range(2):
            end = edges[e, side]
            nodes[filled[end]], which[filled[end]] = edges[e, 1 - side], e
            filled[end] += 1
    return start, nodes, which

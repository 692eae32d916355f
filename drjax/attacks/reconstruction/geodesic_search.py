"""Compiled search for the place of one point in a neighbourhood graph, from the leading eigenvectors it leads to.

A state is which known points the target is adjacent to, at what lengths, and which of them gave up their last neighbour
for it. It fixes all geodesic distances D, and with A = -D^2 / 2 the published eigenpairs say H A v = lambda v, where v
and lambda are known: a residual without an eigenproblem, smooth in the lengths, to which every wrong choice adds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numba
import numpy as np

from drjax.dr import path_insertion, shortest_paths

N_CONSIDERED = 200
"""Known points, nearest to the target by the current state, whose links are changed in a step."""

N_TRIED = 12
"""Changes per step whose lengths are fitted, the most promising of all."""

MAX_STEPS = 40
"""States, per start, whose changes are tried."""

PATIENCE = 4
"""States in a row whose changes improve little before a start is given up."""

MAX_FIT_STEPS = 12
"""Steps of the fit of lengths per change."""

FIT_PATIENCE = 2
"""Such steps that may make it worse."""

MAX_TIES = 3
"""Points with neighbours at equal distance for which either is tried."""

SHARES = (0.97, 0.9, 0.8, 0.65)
"""Lengths tried for a new link, as shares of the shortest path to its end so far."""


class Known(NamedTuple):
    """The graph of the known points, and what the loss of each one's last neighbour does to its shortest paths.

    Attributes:
        between, neighbors: Of `shortest_paths.Graph`.
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


class Release(NamedTuple):
    """Eigenpairs as published: unit vectors (q, n), the target's entry first, and values (q,)."""

    vectors: Any
    values: Any


def known_graphs(known: np.ndarray, n_neighbors: int) -> Iterator[Known]:
    """The graph of known points (m, d), and others that a release may have if neighbours are at equal distance.

    Where a point's last neighbour is no nearer than the next one, either may be in its list: up to `MAX_TIES` points
    are tried both ways, in all combinations, lists by lowest index first.
    """
    graph = shortest_paths.graph(known, n_neighbors)
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
    """With what the loss of each last neighbour does; a repair of the paths for each point.

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
        if is_full:
            path_insertion.displace(graph.between, neighbors, paths, *edges, np.arange(m) == i, without)
            changed = np.argwhere(np.triu(without != paths))
            new = without[*changed.T]
            pairs.append(changed)
            effects.append(np.where(np.isfinite(new), new, 0) ** 2 - paths[*changed.T] ** 2)
        ends[i + 1] = ends[i] + len(pairs[-1])
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
    """From distances of points to the known ones (s, m): lengths of their links, inf where none; who is displaced."""
    enters = rows <= known.reach
    last = min(n_neighbors, rows.shape[1]) - 1
    is_linked = enters | (rows <= np.partition(rows, last, axis=1)[:, last, None])
    return np.where(is_linked, rows, np.inf), enters & np.isfinite(known.reach)


@numba.njit(error_model="numpy", cache=True, nogil=True)
def search(known, release, lengths, displaced, n_neighbors, enough, n_starts, found):
    """Searches from several starts until one state explains the release.

    Args:
        known, release: See there.
        lengths, displaced: (s, m) starts, see `links`; the n_starts of the least residual are searched from, once the
            lengths are fitted, which overwrites them.
        n_neighbors: Of the graph.
        enough: Residual at which a state explains the release.
        n_starts: At most as many.
        found: (m,), is overwritten with the lengths of the links of the best state, inf where there is none.

    Returns:
        Its residual, and the residual if links and displacements are what the rule of neighbours makes of its lengths.
    """
    costs = np.empty(len(lengths))
    m, q = len(found), len(release.values)
    paths, product = np.empty((m, m)), np.empty((q, m + 1))
    for s in range(len(lengths)):
        _displace(known, release, displaced[s], paths, product)
        costs[s] = _fit(paths, product, release, lengths[s], enough**2)
    best, best_checked = np.inf, np.inf
    found[:] = np.inf
    for s in np.argsort(costs)[:n_starts]:
        if not costs[s] < np.inf:
            break
        own = lengths[s].copy()
        cost = _explore(known, release, own, displaced[s].copy(), enough**2)
        if cost < best:
            best = cost
            best_checked = _check(known, release, own, n_neighbors)
            found[:] = own
        if best <= enough**2 and best_checked <= enough**2:
            break
    return np.sqrt(best), np.sqrt(best_checked)


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _explore(known, release, lengths, displaced, enough):
    """Best-first search by single changes; overwrites the state by the best one and returns its squared residual.

    It goes on from the best state that it has not gone on from, which leads out of a local minimum, until `PATIENCE`
    steps have improved little.
    """
    m, q = len(lengths), len(release.values)
    most = 1 + MAX_STEPS * (N_TRIED + 1)
    costs, is_done = np.full(most, np.inf), np.zeros(most, np.bool_)
    all_lengths, all_displaced = np.empty((most, m)), np.empty((most, m), np.bool_)
    paths, product = np.empty((m, m)), np.empty((q, m + 1))
    paths_2, product_2 = np.empty((m, m)), np.empty((q, m + 1))
    _displace(known, release, displaced, paths, product)
    costs[0] = best = _fit(paths, product, release, lengths, enough)
    all_lengths[0], all_displaced[0] = lengths, displaced
    count, waited = 1, 0
    for _ in range(MAX_STEPS):
        at = np.argmin(np.where(is_done[:count], np.inf, costs[:count]))
        if best <= enough or waited > PATIENCE or is_done[at] or not costs[at] < np.inf:
            break
        is_done[at] = True
        _displace(known, release, all_displaced[at], paths, product)
        changes = _screen(known, release, paths, product, all_lengths[at], all_displaced[at])
        waited += 1
        for c in range(min(N_TRIED, len(changes.scores)) + 1):
            tried, tried_displaced = all_lengths[count], all_displaced[count]
            tried[:], tried_displaced[:] = all_lengths[at], all_displaced[at]
            if c < N_TRIED and c < len(changes.scores):
                i = changes.point[c]
                tried[i], tried_displaced[i] = changes.length[c], changes.displaced[c]
            else:
                # An edge that both its ends list goes only if both do without it: no single change shows that.
                tried_displaced[:] = tried <= known.reach
            if np.all(tried_displaced == all_displaced[at]):
                cost = _fit(paths, product, release, tried, enough)
            else:
                _displace(known, release, tried_displaced, paths_2, product_2)
                cost = _fit(paths_2, product_2, release, tried, enough)
            # States of equal residual differ in what no path uses.
            if not cost < np.inf or np.any(np.abs(costs[:count] - cost) <= 1e-9 * cost):
                continue
            costs[count] = cost
            count += 1
            if cost < 0.95 * best:
                waited = 0
            best = min(best, cost)
    at = np.argmin(costs[:count])
    lengths[:], displaced[:] = all_lengths[at], all_displaced[at]
    _displace(known, release, displaced, paths, product)
    best = _fit(paths, product, release, lengths, 0.0)
    _drop_detours(paths, lengths)
    return best


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _displace(known, release, displaced, paths, product):
    """Overwrites paths (m, m) between known points without the target, and the product (q, n) of A with the vectors.

    Pairs that nothing connects count 0 in it: only the target can join them.
    """
    path_insertion.displace(
        known.between, known.neighbors, known.paths, known.start, known.nodes, known.weights, displaced, paths
    )
    m, vectors = len(paths), release.vectors
    for a in range(len(vectors)):
        product[a, 0] = 0.0
        for i in range(m):
            total = 0.0
            for j in range(m):
                path = paths[i, j]
                total += (path * path if path < np.inf else 0.0) * vectors[a, j + 1]
            product[a, i + 1] = -0.5 * total


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _geodesics(paths, lengths):
    """Of the target to all known points, (m,), and by which link, an index among the finite lengths, (m,)."""
    m = len(lengths)
    reach, by = np.full(m, np.inf), np.zeros(m, np.int64)
    count = 0
    for link in range(m):
        if lengths[link] < np.inf:
            for j in range(m):
                path = lengths[link] + paths[link, j]
                if path < reach[j]:
                    reach[j], by[j] = path, count
            count += 1
    return reach, by


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _residual(paths, product, release, lengths):
    """Squared norm of H A v - lambda v, the residual (q, n), the target's geodesics, and what `_shortcuts` returns."""
    vectors, values = release
    m = len(lengths)
    reach, by = _geodesics(paths, lengths)
    pairs, squares = _shortcuts(paths, lengths, reach)
    residual = product.copy()
    cost = 0.0
    for a in range(len(values)):
        for j in range(m):
            half = 0.5 * reach[j] * reach[j]
            residual[a, 0] -= half * vectors[a, j + 1]
            residual[a, j + 1] -= half * vectors[a, 0]
        for c in range(len(pairs)):
            i, j = pairs[c]
            residual[a, i + 1] += 0.5 * squares[c] * vectors[a, j + 1]
            residual[a, j + 1] += 0.5 * squares[c] * vectors[a, i + 1]
        residual[a] -= residual[a].mean() + values[a] * vectors[a]
        cost += np.dot(residual[a], residual[a])
    return (cost if cost < np.inf else np.inf), residual, reach, by, pairs


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _shortcuts(paths, lengths, reach):
    """Pairs (c, 2) of known points whose shortest path leads by the target, and by what its square falls, (c,)."""
    m = len(lengths)
    is_shortened = np.zeros(m, np.bool_)
    # A path that the target shortens leaves it by a point adjacent to it: that end of it is shortened too.
    for link in range(m):
        if lengths[link] < np.inf:
            for i in range(m):
                is_shortened[i] |= reach[i] + lengths[link] < paths[link, i]
    ends = np.flatnonzero(is_shortened)
    pairs, squares = np.empty((len(ends) * (len(ends) - 1) // 2, 2), np.int64), np.empty(len(ends) * len(ends) // 2)
    count = 0
    for a in range(len(ends)):
        i = ends[a]
        for j in ends[a + 1 :]:
            length = reach[i] + reach[j]
            if length < paths[i, j]:
                pairs[count, 0], pairs[count, 1] = i, j
                squares[count] = (paths[i, j] ** 2 if paths[i, j] < np.inf else 0.0) - length * length
                count += 1
    return pairs[:count], squares[:count]


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _jacobian(release, reach, by, pairs, n_links):
    """Derivative of the residual, flattened, in the lengths of the links, (n_links, q n)."""
    vectors = release.vectors
    q, n = vectors.shape
    jacobian = np.zeros((n_links, q * n))
    for a in range(q):
        first = a * n
        for i in range(n - 1):
            jacobian[by[i], first + i + 1] -= reach[i] * vectors[a, 0]
            jacobian[by[i], first] -= reach[i] * vectors[a, i + 1]
        for c in range(len(pairs)):
            i, j = pairs[c]
            length = reach[i] + reach[j]
            for link in (by[i], by[j]):
                jacobian[link, first + i + 1] -= length * vectors[a, j + 1]
                jacobian[link, first + j + 1] -= length * vectors[a, i + 1]
        for link in range(n_links):
            jacobian[link, first : first + n] -= jacobian[link, first : first + n].mean()
    return jacobian


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _fit(paths, product, release, lengths, enough):
    """Lengths of the links of least squared residual, which it returns, near those given, which it overwrites.

    Which path is shortest changes along the way, and a descent gets caught where it does: from there a few full steps
    of Gauss and Newton are taken whatever they do to the residual.

    Source: Marquardt (1963), but for these steps.
    """
    at = np.flatnonzero(lengths < np.inf)
    own = lengths.copy()
    cost, residual, reach, by, pairs = _residual(paths, product, release, own)
    best, damping, waited = cost, 1e-4, 0
    for _ in range(MAX_FIT_STEPS):
        if best <= enough or not cost < np.inf:
            break
        jacobian = _jacobian(release, reach, by, pairs, len(at))
        normal, slope = jacobian @ jacobian.T, jacobian @ residual.ravel()
        before = cost
        for _ in range(3):
            found = _residual(paths, product, release, _moved(own, at, normal, slope, damping))
            if found[0] < 0.999 * before:
                break
            damping = max(100 * damping, 1e-2)
        if found[0] < 0.999 * before:
            own = _moved(own, at, normal, slope, damping)
            damping = max(0.1 * damping, 1e-8)
        else:
            waited += 1
            if waited > FIT_PATIENCE:
                break
            damping = 1e-8
            own = _moved(own, at, normal, slope, damping)
            found = _residual(paths, product, release, own)
        cost, residual, reach, by, pairs = found
        if cost < best:
            best = cost
            lengths[:] = own
    return best


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _moved(lengths, at, normal, slope, damping):
    """Lengths after a damped step that changes none by more than a third."""
    damped, out = normal.copy(), lengths.copy()
    for c in range(len(at)):
        # A link that no path uses, or too weakly to tell, stays.
        damped[c, c] += damping * normal[c, c] + 1e-14 * np.trace(normal) + np.finfo(np.float64).tiny
    step = np.linalg.solve(damped, slope)
    for c in range(len(at)):
        old = lengths[at[c]]
        out[at[c]] = old - min(max(step[c], -old / 3), old / 3)
    return out


class Changes(NamedTuple):
    """Single changes of a state, the most promising first, (c,) each.

    Attributes:
        scores: Squared residual after a linear fit of the other lengths.
        point: Index of the known point.
        length: Of its link from then on, inf for none.
        displaced: Whether it gives up its last neighbour.
    """

    scores: Any
    point: Any
    length: Any
    displaced: Any


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _screen(known, release, paths, product, lengths, displaced):
    """Every single change of the state that may matter, as `Changes`."""
    _, residual, reach, by, pairs = _residual(paths, product, release, lengths)
    n_links = np.sum(lengths < np.inf)
    basis, _ = np.linalg.qr(np.ascontiguousarray(_jacobian(release, reach, by, pairs, n_links).T))
    basis = np.ascontiguousarray(basis.T)
    considered = np.argsort(reach)[:N_CONSIDERED]
    most = len(considered) * (1 + 2 * len(SHARES))
    scores, at = np.full(most, np.inf), np.empty(most, np.int64)
    length, flag = np.empty(most), np.empty(most, np.bool_)
    count = 0
    for i in considered:
        has_effect = known.effect_start[i + 1] > known.effect_start[i]
        change = _effect(known, release, i, -1.0 if displaced[i] else 1.0)
        if has_effect:
            scores[count] = _left_over(residual.ravel() + change, basis)
            at[count], length[count], flag[count] = i, lengths[i], not displaced[i]
            count += 1
        if lengths[i] < np.inf:
            if n_links > 1:
                tried = lengths.copy()
                tried[i] = np.inf
                moved = _residual(paths, product, release, tried)[1].ravel()
                scores[count] = _left_over(moved + change if displaced[i] else moved, basis)
                at[count], length[count], flag[count] = i, np.inf, False
                count += 1
            continue
        for share in SHARES:
            tried = lengths.copy()
            tried[i] = share * reach[i]
            moved = _residual(paths, product, release, tried)[1].ravel()
            scores[count] = _left_over(moved, basis)
            at[count], length[count], flag[count] = i, tried[i], displaced[i]
            count += 1
            # A little too long is what the fit can still mend.
            if has_effect and not displaced[i] and tried[i] <= 1.1 * known.reach[i]:
                scores[count] = _left_over(moved + change, basis)
                at[count], length[count], flag[count] = i, tried[i], True
                count += 1
    order = np.argsort(scores[:count])
    return Changes(scores[order], at[order], length[order], flag[order])


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _effect(known, release, i, sign):
    """What point i's loss of its last neighbour adds to the residual, flattened, (q n,), if no other one is lost."""
    vectors = release.vectors
    q, n = vectors.shape
    out = np.zeros((q, n))
    for a in range(q):
        for e in range(known.effect_start[i], known.effect_start[i + 1]):
            u, v = known.effect_pairs[e]
            half = 0.5 * sign * known.effects[e]
            out[a, u + 1] -= half * vectors[a, v + 1]
            out[a, v + 1] -= half * vectors[a, u + 1]
        out[a] -= out[a].mean()
    return out.ravel()


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _left_over(residual, basis):
    """Squared norm outside the span of orthonormal rows."""
    inside = basis @ residual
    score = np.dot(residual, residual) - np.dot(inside, inside)
    return score if score < np.inf else np.inf


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _drop_detours(paths, lengths):
    """Takes out links that are no shorter than a path by another one: distances of records admit none."""
    slack = 1 - 1e-9
    for i in np.argsort(-np.where(lengths < np.inf, lengths, -1.0)):
        if lengths[i] < np.inf:
            own = lengths[i]
            lengths[i] = np.inf
            if own < _geodesics(paths, lengths)[0][i] * slack:
                lengths[i] = own


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _check(known, release, lengths, n_neighbors):
    """Squared residual if links and displacements follow the rule of neighbours; drops links that do not."""
    paths, linked = insert(known, lengths, n_neighbors)
    for i in range(len(lengths)):
        if not linked[i]:
            lengths[i] = np.inf
    vectors, values = release
    product = np.zeros(vectors.shape)
    cost = 0.0
    for a in range(len(values)):
        for i in range(len(paths)):
            total = 0.0
            for j in range(len(paths)):
                total += paths[i, j] * paths[i, j] * vectors[a, j]
            product[a, i] = -0.5 * total
        product[a] -= product[a].mean() + values[a] * vectors[a]
        cost += np.dot(product[a], product[a])
    return cost if cost < np.inf else np.inf


@numba.njit(error_model="numpy", cache=True, nogil=True)
def insert(known, row, n_neighbors):
    """Geodesics (n, n) of a point at distances row (m,) and the known ones, and its links (m,)."""
    n = len(row) + 1
    out = np.empty((n, n))
    _, linked = path_insertion.insert(
        known.between, known.neighbors, known.paths, known.start, known.nodes, known.weights, row, n_neighbors, out
    )
    return out, linked

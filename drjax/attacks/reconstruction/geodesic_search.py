"""Compiled search for the place of one point in a neighbourhood graph, from the leading eigenvectors it leads to.

A state is which known points the target is adjacent to, at what lengths, and which of them gave up their last neighbour
for it. It fixes all geodesic distances D, and with A = -D^2 / 2 the published eigenpairs say H A v = lambda v, where v
and lambda are known: a residual without an eigenproblem, smooth in the lengths, to which every wrong choice adds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.attacks.reconstruction.geodesic_fit import derivative_of, fit_lengths, geodesics_of, residual_of
from drjax.core.compiled import njit
from drjax.dr.isomap import path_insertion

N_CONSIDERED = 200
"""Known points, nearest to the target by the current state, whose links are changed in a step."""

N_TRIED = 12
"""Changes per step whose lengths are fitted, the most promising of all."""

MAX_STEPS = 40
"""States, per start, whose changes are tried."""

PATIENCE = 4
"""States in a row whose changes improve little before a start is given up."""

SHARES = (0.97, 0.9, 0.8, 0.65)
"""Lengths tried for a new link, as shares of the shortest path to its end so far."""


@njit
def search(known, release, lengths, displaced, n_neighbors, enough, n_starts, found):
    """Searches from several starts until one state explains the release.

    Args:
        known, release: Instances of `Known` and `Release`.
        lengths, displaced: (s, m) starts, see `links`; the n_starts of the least residual are searched from, once the
            lengths are fitted, which overwrites them.
        n_neighbors: Neighbours of the graph.
        enough: Residual at which a state explains the release.
        n_starts: Number of starts searched from, at most.
        found: (m,), is overwritten with the lengths of the links of the best state, inf where there is none.

    Returns:
        Residual of the best state, and the residual if links and displacements are what the rule of neighbours makes of
        its lengths.
    """
    costs = np.empty(len(lengths))
    m, q = len(found), len(release.values)
    paths, product = np.empty((m, m)), np.empty((q, m + 1))
    for s in range(len(lengths)):
        _displace(known, release, displaced[s], paths, product)
        costs[s] = fit_lengths(paths, product, release, lengths[s], enough**2)
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


@njit
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
    costs[0] = best = fit_lengths(paths, product, release, lengths, enough)
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
                cost = fit_lengths(paths, product, release, tried, enough)
            else:
                _displace(known, release, tried_displaced, paths_2, product_2)
                cost = fit_lengths(paths_2, product_2, release, tried, enough)
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
    best = fit_lengths(paths, product, release, lengths, 0.0)
    _drop_detours(paths, lengths)
    return best


@njit
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


class Changes(NamedTuple):
    """Single changes of a state, the most promising first, (c,) each.

    Attributes:
        scores: Squared residual after a linear fit of the other lengths.
        point: Index of the known point.
        length: Length of its link after the change, inf for none.
        displaced: Whether it gives up its last neighbour.
    """

    scores: Any
    point: Any
    length: Any
    displaced: Any


@njit
def _screen(known, release, paths, product, lengths, displaced):
    """Every single change of the state that may matter, as `Changes`."""
    _, residual, reach, by, pairs = residual_of(paths, product, release, lengths)
    n_links = np.sum(lengths < np.inf)
    basis, _ = np.linalg.qr(np.ascontiguousarray(derivative_of(release, reach, by, pairs, n_links).T))
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
                moved = residual_of(paths, product, release, tried)[1].ravel()
                scores[count] = _left_over(moved + change if displaced[i] else moved, basis)
                at[count], length[count], flag[count] = i, np.inf, False
                count += 1
            continue
        for share in SHARES:
            tried = lengths.copy()
            tried[i] = share * reach[i]
            moved = residual_of(paths, product, release, tried)[1].ravel()
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


@njit
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


@njit
def _left_over(residual, basis):
    """Squared norm outside the span of orthonormal rows."""
    inside = basis @ residual
    score = np.dot(residual, residual) - np.dot(inside, inside)
    return score if score < np.inf else np.inf


@njit
def _drop_detours(paths, lengths):
    """Takes out links that are no shorter than a path by another one: distances of records admit none."""
    slack = 1 - 1e-9
    for i in np.argsort(-np.where(lengths < np.inf, lengths, -1.0)):
        if lengths[i] < np.inf:
            own = lengths[i]
            lengths[i] = np.inf
            if own < geodesics_of(paths, lengths)[0][i] * slack:
                lengths[i] = own


@njit
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


@njit
def insert(known, row, n_neighbors):
    """Geodesics (n, n) of a point at distances row (m,) and the known ones, and its links (m,)."""
    n = len(row) + 1
    out = np.empty((n, n))
    _, linked = path_insertion.insert(
        known.between, known.neighbors, known.paths, known.start, known.nodes, known.weights, row, n_neighbors, out
    )
    return out, linked

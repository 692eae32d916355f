"""Compiled fit of the lengths of a target's links to published eigenpairs, the links themselves given.

Geodesic distances D of a state and A = -D^2 / 2 make a residual H A v - lambda v of the published pairs that needs no
eigenproblem and is smooth in the lengths but where another path becomes the shortest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core.compiled import njit

MAX_FIT_STEPS = 12
"""Steps of the fit of lengths per change."""

FIT_PATIENCE = 2
"""Number of steps that may make the fit worse before it stops."""


class Release(NamedTuple):
    """Eigenpairs as published: unit vectors (q, n), the target's entry first, and values (q,)."""

    vectors: Any
    values: Any


@njit
def geodesics_of(paths, lengths):
    """Geodesics of the target to all known points, (m,), and their links' indices among the finite lengths, (m,)."""
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


@njit
def residual_of(paths, product, release, lengths):
    """Squared norm of H A v - lambda v, the residual (q, n), the target's geodesics, and what `shortcuts` returns."""
    vectors, values = release
    m = len(lengths)
    reach, by = geodesics_of(paths, lengths)
    pairs, squares = shortcuts(paths, lengths, reach)
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


@njit
def shortcuts(paths, lengths, reach):
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


@njit
def derivative_of(release, reach, by, pairs, n_links):
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


@njit
def fit_lengths(paths, product, release, lengths, enough):
    """Lengths of the links of least squared residual, which it returns, near those given, which it overwrites.

    Which path is shortest changes along the way, and a descent gets caught where it does: from there a few full steps
    of Gauss and Newton are taken whatever they do to the residual.

    Source: Marquardt (1963), but for these steps.
    """
    at = np.flatnonzero(lengths < np.inf)
    own = lengths.copy()
    cost, residual, reach, by, pairs = residual_of(paths, product, release, own)
    best, damping, waited = cost, 1e-4, 0
    for _ in range(MAX_FIT_STEPS):
        if best <= enough or not cost < np.inf:
            break
        jacobian = derivative_of(release, reach, by, pairs, len(at))
        normal, slope = jacobian @ jacobian.T, jacobian @ residual.ravel()
        before = cost
        for _ in range(3):
            found = residual_of(paths, product, release, _moved(own, at, normal, slope, damping))
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
            found = residual_of(paths, product, release, own)
        cost, residual, reach, by, pairs = found
        if cost < best:
            best = cost
            lengths[:] = own
    return best


@njit
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

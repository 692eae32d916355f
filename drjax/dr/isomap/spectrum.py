"""Leading eigenpairs of Gram matrices that differ little from one that they share; Davidson's method, in float64.

The shared matrix meets the vectors of all lanes in one product; what a lane adds to it is a border and some pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core.compiled import njit

MAX_STEPS = 16
"""Most times that the subspace is enlarged; a lane that needs more has its matrix decomposed."""

FEWEST_STEPS = 3
"""A start that lacks a leading eigenvector may have small residuals at others; a step or two brings it in."""

SHIFT = 0.02
"""Least divisor of the preconditioner, as a share of the largest eigenvalue."""


class Lanes(NamedTuple):
    """g symmetric matrices of squared distances, each share * base + border + pairs, and a hint at their eigenvectors.

    Attributes:
        base: (n, n), symmetric.
        share: (g,).
        border: (g, n), added to row and column 0; border[:, 0] is 0.
        offsets: (g + 1,), int64, the pairs of lane i are offsets[i] .. offsets[i + 1].
        pairs: (most, 2), int32, once each; i != j, counted from point 1.
        steps: (most,), what is added at (i, j) and (j, i).
        linked: (g, n-1), bool, points at which eigenvectors have nearly the value that they have at point 0.
    """

    base: Any
    share: Any
    border: Any
    offsets: Any
    pairs: Any
    steps: Any
    linked: Any


@njit
def leading(lanes, known_vectors, known_values, k, tolerance):
    """Algebraically largest eigenpairs of -1/2 H S H, H the centring, for each of the matrices S.

    Args:
        lanes: `Lanes`.
        known_vectors: (q, n-1), leading eigenvectors of a matrix like those without point 0, orthonormal, of mean 0.
        known_values: (q,), their eigenvalues, as shares of the largest.
        k: Number of eigenvectors.
        tolerance: Largest residual, as a share of the largest eigenvalue.

    Returns:
        vectors (g, k, n) and values (g, min(k + 1, n)), decreasing; steps (g,), 0 where the matrix was decomposed,
        because it is small or the steps did not suffice.

    Source: Davidson (1975); the block form, Liu (1978).
    """
    g, n = lanes.border.shape
    vectors, values = np.empty((g, k, n)), np.empty((g, min(k + 1, n)))
    n_steps = np.zeros(g, np.int64)
    n_start, width = k + 2, k + 1
    most = n_start + MAX_STEPS * width
    is_open = np.ones(g, np.bool_)
    if n > most and known_vectors.shape[0] > k:
        _iterate(lanes, known_vectors, known_values, k, tolerance, most, vectors, values, n_steps, is_open)
    for lane in range(g):
        if is_open[lane]:
            vectors[lane], values[lane] = _decomposed(_dense(lanes, lane), k)
    return vectors, values, n_steps


@njit
def _iterate(lanes, known_vectors, known_values, k, tolerance, most, vectors, values, n_steps, is_open):
    """Overwrites the last four arguments where the steps suffice."""
    g, n = lanes.border.shape
    n_start, width = k + 2, k + 1
    basis, images = np.empty((g, most, n)), np.empty((g, most, n))
    inner = np.empty((g, most, most))
    low, high = np.zeros(g, np.int64), np.zeros(g, np.int64)
    # Rows of all lanes: new vectors, then their images; residuals, then the vectors made of them.
    rows, image_rows = np.empty((g * n_start, n)), np.empty((g * n_start, n))
    owner, value, largest = np.empty(g * width, np.int64), np.empty(g * width), np.empty(g)
    known = np.zeros((len(known_vectors), n))
    known[:, 1:] = known_vectors
    for lane in range(g):
        _fill_start(basis[lane, :n_start], known_vectors, lanes.linked[lane])
        high[lane] = orthonormalize(basis[lane], 0, n_start)
    # The value after the last serves the gap alone, and its error is the square of its residual.
    limits = np.full(width, tolerance)
    limits[k] = np.sqrt(tolerance)
    for step in range(1, MAX_STEPS + 2):
        count = 0
        for lane in range(g):
            for c in range(low[lane], high[lane]):
                rows[count] = basis[lane, c]
                count += 1
        if count == 0:
            return
        np.dot(rows[:count], lanes.base, image_rows[:count])
        count, wanted = 0, 0
        for lane in range(g):
            first, end = low[lane], high[lane]
            if first == end:
                continue
            for c in range(first, end):
                _add_own(lanes, lane, basis[lane, c], image_rows[count], images[lane, c])
                count += 1
            ritz, own, residuals = rayleigh_ritz(basis[lane], images[lane], inner[lane], first, end, width)
            largest[lane] = ritz[0]
            is_small = np.sqrt((residuals**2).sum(axis=1)) <= limits * ritz[0]
            is_open[lane] = not is_small.all()
            if not is_open[lane]:
                vectors[lane], values[lane], n_steps[lane] = own[:k], ritz, step
            low[lane] = end
            if is_open[lane] or step < FEWEST_STEPS:
                for c in range(width):
                    if not is_small[c] or step < FEWEST_STEPS:
                        rows[wanted], owner[wanted], value[wanted] = residuals[c], lane, ritz[c]
                        wanted += 1
        if step > MAX_STEPS:
            return
        _precondition(rows[:wanted], owner, value, largest, known, known_values)
        for c in range(wanted):
            lane = owner[c]
            basis[lane, high[lane]] = rows[c]
            high[lane] += 1
        for lane in range(g):
            high[lane] = orthonormalize(basis[lane], low[lane], high[lane])


@njit
def _fill_start(start, known_vectors, linked):
    """The point 0 alone, then known vectors with the mean of the linked points at point 0; all of mean 0."""
    # An outlying target has an eigenvector of its own; the others at the target are near those of its neighbours.
    start[0] = 0.0
    start[0, 0] = 1.0
    n_linked = linked.sum()
    for c in range(1, len(start)):
        start[c, 1:] = known_vectors[c - 1]
        at_target = 0.0
        for i in range(len(linked)):
            if linked[i]:
                at_target += start[c, i + 1]
        start[c, 0] = at_target / n_linked
    for c in range(len(start)):
        start[c] -= start[c].mean()


@njit
def _add_own(lanes, lane, vector, of_base, image):
    """image = -1/2 H S vector of one lane, from base @ vector."""
    n = len(vector)
    share, border = lanes.share[lane], lanes.border[lane]
    at_target = 0.0
    for i in range(n):
        image[i] = share * of_base[i] + border[i] * vector[0]
        at_target += border[i] * vector[i]
    image[0] += at_target
    for c in range(lanes.offsets[lane], lanes.offsets[lane + 1]):
        i, j, step = lanes.pairs[c, 0], lanes.pairs[c, 1], lanes.steps[c]
        image[i + 1] += step * vector[j + 1]
        image[j + 1] += step * vector[i + 1]
    mean = image.mean()
    for i in range(n):
        image[i] = -0.5 * (image[i] - mean)


@njit
def rayleigh_ritz(basis, images, inner, low, high, width):
    """Largest eigenvalues in the span of the basis, decreasing, vectors and residuals; extends `inner` to `high`."""
    block = np.dot(images[low:high], basis[:high].T)
    for c in range(low, high):
        for e in range(high):
            inner[c, e] = inner[e, c] = block[c - low, e]
    values, weights = np.linalg.eigh(np.ascontiguousarray(inner[:high, :high]))
    top = np.ascontiguousarray(weights[:, ::-1].T[:width])
    values = values[::-1][:width].copy()
    vectors, residuals = np.dot(top, basis[:high]), np.dot(top, images[:high])
    for c in range(width):
        residuals[c] -= values[c] * vectors[c]
    return values, vectors, residuals


@njit
def _precondition(rows, owner, value, largest, known, known_values):
    """Overwrites residuals by (known matrix - value)^-1 of them, as if its other eigenvalues were 0."""
    weights = np.dot(rows, known.T)
    for c in range(len(rows)):
        top = largest[owner[c]]
        rest = 1.0 / _divisor(-value[c], top)
        rows[c] *= rest
        for e in range(len(known_values)):
            weights[c, e] *= 1.0 / _divisor(known_values[e] * top - value[c], top) - rest
    rows += np.dot(weights, known)
    for c in range(len(rows)):
        rows[c] -= rows[c].mean()  # the known vectors may have been rounded to float32


@njit
def _divisor(difference, top):
    least = SHIFT * top
    if top <= 0:
        return 1.0
    return max(difference, least) if difference > 0 else min(difference, -least)


@njit
def orthonormalize(basis, low, high):
    """Makes rows low..high of the basis orthonormal to it and each other; drops those that depend; the new end."""
    end = low
    for c in range(low, high):
        own = basis[c].copy()
        norm = np.sqrt(np.dot(own, own))
        is_independent = norm > 0
        for _ in range(4):  # what cancellation leaves of the basis in a short remainder is gone after another pass
            if not is_independent:
                break
            own /= norm
            if end > 0:
                own -= np.dot(np.dot(basis[:end], own), basis[:end])
            norm = np.sqrt(np.dot(own, own))
            is_independent = norm > 1e-13
            if norm > 0.5:
                break
        if is_independent:
            basis[end] = own / norm
            end += 1
    return end


@njit
def _dense(lanes, lane):
    squares = lanes.share[lane] * lanes.base
    squares[0] += lanes.border[lane]
    squares[:, 0] += lanes.border[lane]
    for c in range(lanes.offsets[lane], lanes.offsets[lane + 1]):
        i, j = lanes.pairs[c]
        squares[i + 1, j + 1] += lanes.steps[c]
        squares[j + 1, i + 1] += lanes.steps[c]
    return squares


@njit
def _decomposed(squares, k):
    n = squares.shape[0]
    rows = np.empty(n)
    for i in range(n):
        rows[i] = squares[i].mean()
    mean = rows.mean()
    gram = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            gram[i, j] = -0.5 * (squares[i, j] - rows[i] - rows[j] + mean)
    values, vectors = np.linalg.eigh(gram)
    return np.ascontiguousarray(vectors[:, ::-1].T[:k]), values[::-1][: min(k + 1, n)].copy()

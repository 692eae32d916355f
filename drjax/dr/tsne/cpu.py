"""t-SNE on a CPU: one compiled loop per data set, affinities included; data sets side by side on the cores.

XLA on a CPU materialises every step of an iteration; here distances, both forces and the normaliser are one pass over
all pairs, with one division each. A data set that has stopped costs nothing. Sums that decide about stopping are in
float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.tsne.affinity_cpu import joint_probabilities, search_known

BLOCK = 16
FAR = 1e18
"""Arrays go on for a block after the last point, so that loops take whole vectors: with affinity 0, and so far away
that no force is felt and its square is still a float32."""

FEW = 200
"""Below this number of points float32 forces are faster with every pair visited twice."""


class Descent(NamedTuple):
    """What a descent needs to know: see `drjax.dr.TSNE`; `exploration` is its iterations under exaggeration."""

    exaggeration: float
    learning_rate: float
    max_iter: int
    exploration: int
    patience: int
    min_grad_norm: float


def tsne_batch(
    between: np.ndarray, rows: np.ndarray, starts: np.ndarray, perplexity: float, descent: Descent
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """t-SNE of b data sets that share all points but their first.

    Args:
        between: (n-1, n-1), squared distances of the shared points.
        rows: (b, n-1), squared distances of each data set's first point to them.
        starts: (b, n, k), first configurations.
        perplexity: Perplexity of every point's neighbours; below n.
        descent: How to descend.

    Returns:
        coords (b, n, k), divergence (b,) and norm of the last gradient that was looked at (b,), in the dtype of
        `starts`; iterations (b,) int32; stopped before the cap (b,) bool. A data set that is not finite gets nan and
        no iteration.
    """
    dtype = starts.dtype
    b, n, k = starts.shape
    between = np.ascontiguousarray(between, dtype)
    rows = np.ascontiguousarray(rows, dtype)
    starts = np.ascontiguousarray(np.swapaxes(starts, 1, 2))
    target = math.log(perplexity)
    search = search_known(between, target)
    coords = np.empty((b, k, n), dtype)
    divergence, grad_norm = np.empty(b), np.empty(b)
    n_iter, stopped = np.empty(b, np.int32), np.empty(b, np.bool_)

    def work(part: slice) -> None:
        outputs = (coords[part], divergence[part], grad_norm[part], n_iter[part], stopped[part])
        _run(between, rows[part], starts[part], target, search, descent, *outputs)

    host.spread(work, b)
    coords = np.ascontiguousarray(np.swapaxes(coords, 1, 2))
    return coords, divergence.astype(dtype), grad_norm.astype(dtype), n_iter, stopped


@njit(fastmath=True)
def _forces_plane(p, y, attraction, repulsion):
    """Sums over j of p w (y_i - y_j) and of w^2 (y_i - y_j), w = 1 / (1 + |y_i - y_j|^2); returns the sum of all w.

    Two coordinates. Every pair is visited twice, which is less work for a few points than to store half of it.
    """
    n = p.shape[0]
    a, b = y[0], y[1]
    one, zero = y.dtype.type(1), y.dtype.type(0)
    total = 0.0
    for i in range(n):
        own_a, own_b, row = a[i], b[i], p[i]
        pull_a, pull_b, push_a, push_b, weights = zero, zero, zero, zero, zero
        for j in range(n):
            da, db = own_a - a[j], own_b - b[j]
            w = one / (one + da * da + db * db)
            pw, ww = row[j] * w, w * w
            pull_a += pw * da
            pull_b += pw * db
            push_a += ww * da
            push_b += ww * db
            weights += w
        attraction[0, i], attraction[1, i] = pull_a, pull_b
        repulsion[0, i], repulsion[1, i] = push_a, push_b
        total += weights - one
    return total


@njit(fastmath=True)
def _forces(p, y, attraction, repulsion):
    """`_forces_plane` for k coordinates: w = (1 + |y_i - y_j|^2 / f)^(-(f + 1) / 2), f = max(k - 1, 1)."""
    k, n = y.shape[0], p.shape[0]
    freedom = max(k - 1, 1)
    one = y.dtype.type(1)
    inverse, power = y.dtype.type(1.0 / freedom), y.dtype.type(-(freedom + 1) / 2.0)
    w, pw = np.empty(n, y.dtype), np.empty(n, y.dtype)
    total = 0.0
    for i in range(n):
        w[:] = 0
        for c in range(k):
            for j in range(n):
                step = y[c, i] - y[c, j]
                w[j] += step * step
        for j in range(n):
            u = one + w[j] * inverse
            w[j] = one / u if freedom == 1 else u**power
            pw[j] = p[i, j] * w[j]
            total += w[j]
        total -= one
        for c in range(k):
            pull, push = y.dtype.type(0), y.dtype.type(0)
            for j in range(n):
                step = y[c, i] - y[c, j]
                pull += pw[j] * step
                push += w[j] * w[j] * step
            attraction[c, i], repulsion[c, i] = pull, push
    return total


@njit(fastmath=True, inline="always")
def _log(u):
    """Logarithm of a normal u > 0 to rounding, in steps that the compiler can take for several numbers at once."""
    bits = np.float64(u).view(np.int64)
    exponent = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    mantissa = np.int64(bits - (exponent << np.int64(52))).view(np.float64)  # within sqrt(2) of 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    q = s * s
    tail = 1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * (1 / 19))))
    series = q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * tail))))
    return exponent * math.log(2.0) + 2.0 * (s + s * series)


@njit(fastmath=True)
def _log_affinities(p):
    """The sum over pairs of p log p in float64."""
    total = 0.0
    for i in range(p.shape[0]):
        row, part = p[i], 0.0
        for j in range(i):
            part += row[j] * _log(float(row[j]))
        total += part
    return 2.0 * total


@njit(fastmath=True)
def _log_weights_plane(p, y):
    """The sum over pairs of -p log w in float64, two coordinates."""
    n = p.shape[0]
    a, b = y[0], y[1]
    total = 0.0
    for i in range(n):
        own_a, own_b, row, part = float(a[i]), float(b[i]), p[i], 0.0
        for j in range(i):
            da, db = own_a - a[j], own_b - b[j]
            part += row[j] * _log(1.0 + (da * da + db * db))
        total += part
    return 2.0 * total


@njit(fastmath=True)
def _log_weights(p, y):
    """`_log_weights_plane` for any number of coordinates."""
    k, n = y.shape[0], p.shape[0]
    freedom = max(k - 1, 1)
    square = np.empty(n)
    total = 0.0
    for i in range(n):
        square[:i] = 0.0
        for c in range(k):
            own = float(y[c, i])
            for j in range(i):
                step = own - y[c, j]
                square[j] += step * step
        part = 0.0
        for j in range(i):
            part += p[i, j] * _log(1.0 + square[j] / freedom)
        total += part
    return (freedom + 1) * total


@intrinsic
def _ask_for_wide_vectors(_):
    """Lets LLVM use vectors of 512 bits where the processor has them; by itself it stays at 256, up to 15% slower."""

    def generate(context, builder, signature, args):
        del signature, args
        # llvmlite only lets through the attributes that it knows, and this one it does not.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@njit(fastmath=True)
def _forces_half(p, y, attraction, repulsion):
    """`_forces_plane` with every pair visited once: two points at a time against all later ones.

    Reads and writes up to `BLOCK` entries beyond the last point.
    """
    _ask_for_wide_vectors()  # pyrefly: ignore[missing-argument] (numba gives it)
    n = p.shape[0]
    a, b = y[0], y[1]
    one = y.dtype.type(1)
    attraction[:] = 0
    repulsion[:] = 0
    total = 0.0
    for i in range(0, n - 1, 2):
        a1, b1, a2, b2 = a[i], b[i], a[i + 1], b[i + 1]
        da, db = a1 - a2, b1 - b2
        w = one / (one + da * da + db * db)
        pw, ww = p[i, i + 1] * w, w * w
        pull_a1, pull_b1, push_a1, push_b1, weights = pw * da, pw * db, ww * da, ww * db, w
        pull_a2, pull_b2, push_a2, push_b2 = -pull_a1, -pull_b1, -push_a1, -push_b1
        first, second = p[i, i + 2 :], p[i + 1, i + 2 :]
        rest_a, rest_b = a[i + 2 :], b[i + 2 :]
        to_pull_a, to_pull_b = attraction[0, i + 2 :], attraction[1, i + 2 :]
        to_push_a, to_push_b = repulsion[0, i + 2 :], repulsion[1, i + 2 :]
        for j in range((n - 2 - i + BLOCK - 1) // BLOCK * BLOCK):
            da, db = a1 - rest_a[j], b1 - rest_b[j]
            w = one / (one + da * da + db * db)
            pw, ww = first[j] * w, w * w
            pull_a1 += pw * da
            pull_b1 += pw * db
            push_a1 += ww * da
            push_b1 += ww * db
            weights += w
            pull_a, pull_b, push_a, push_b = pw * da, pw * db, ww * da, ww * db
            da, db = a2 - rest_a[j], b2 - rest_b[j]
            w = one / (one + da * da + db * db)
            pw, ww = second[j] * w, w * w
            pull_a2 += pw * da
            pull_b2 += pw * db
            push_a2 += ww * da
            push_b2 += ww * db
            weights += w
            to_pull_a[j] -= pull_a + pw * da
            to_pull_b[j] -= pull_b + pw * db
            to_push_a[j] -= push_a + ww * da
            to_push_b[j] -= push_b + ww * db
        attraction[0, i] += pull_a1
        attraction[1, i] += pull_b1
        repulsion[0, i] += push_a1
        repulsion[1, i] += push_b1
        attraction[0, i + 1] += pull_a2
        attraction[1, i + 1] += pull_b2
        repulsion[0, i + 1] += push_a2
        repulsion[1, i + 1] += push_b2
        total += weights
    return 2.0 * total


@njit
def _all_forces(p, y, attraction, repulsion):
    if y.shape[0] == 2:
        if p.shape[0] < FEW and y.itemsize == 4:
            return _forces_plane(p, y, attraction, repulsion)
        return _forces_half(p, y, attraction, repulsion)
    return _forces(p, y, attraction, repulsion)


@njit
def _all_log_weights(p, y):
    if y.shape[0] == 2:
        return _log_weights_plane(p, y)
    return _log_weights(p, y)


@njit(fastmath=True)
def advance(n, attraction, repulsion, pull, push, momentum, learning_rate, y, update, gains):
    """One step of n points in place; returns the squared norm of the gradient times the gains.

    The gradient is pull * attraction - push * repulsion; all arrays are (k, n or more).
    """
    kind = y.dtype.type
    more, less, least = kind(0.2), kind(0.8), kind(0.01)
    squares = 0.0
    for c in range(y.shape[0]):
        for i in range(n):
            slope = pull * attraction[c, i] - push * repulsion[c, i]
            gain = gains[c, i]
            gain = gain + more if update[c, i] * slope < 0 else max(gain * less, least)
            slope *= gain
            step = momentum * update[c, i] - learning_rate * slope
            gains[c, i] = gain
            update[c, i] = step
            y[c, i] += step
            squares += float(slope) * slope
    return squares


@njit
def descend(p, descent, y):
    """Moves y (k, n + BLOCK) to the end of a descent; the divergence, last norm, iterations and whether it stopped."""
    k, n = y.shape[0], p.shape[0]
    kind = y.dtype.type
    freedom = max(k - 1, 1)
    attraction, repulsion = np.empty_like(y), np.empty_like(y)
    update, gains = np.zeros_like(y), np.ones_like(y)
    learning_rate = kind(descent.learning_rate)
    factor = 2.0 * (freedom + 1.0) / freedom
    # The part of the divergence that does not depend on the coordinates.
    constant = _log_affinities(p)
    scale, momentum = kind(factor * descent.exaggeration), kind(0.5)
    best, best_at, norm, error = math.inf, 0, math.inf, math.inf
    exploring, stop = True, False
    if descent.exploration == 0:
        exploring, scale, momentum = False, kind(factor), kind(0.8)
    iteration = 0
    while iteration < descent.max_iter:
        normaliser = _all_forces(p, y, attraction, repulsion)
        push = kind(factor / normaliser)
        looking = (iteration + 1) % 50 == 0
        if looking and not exploring:
            error = constant + _all_log_weights(p, y) + math.log(normaliser)
        squares = advance(n, attraction, repulsion, scale, push, momentum, learning_rate, y, update, gains)
        iteration += 1
        if looking:
            norm = math.sqrt(squares)
            stop = norm <= descent.min_grad_norm
            if not exploring:
                if error < best:
                    best, best_at = error, iteration
                elif iteration - best_at > descent.patience:
                    stop = True
        if exploring and (stop or iteration == descent.exploration):
            # The second phase starts at rest: scikit-learn calls its descent anew.
            exploring, stop, scale, momentum = False, False, kind(factor), kind(0.8)
            best, best_at = math.inf, iteration
            update[:] = 0
            gains[:] = 1
        elif stop:
            break
    normaliser = _all_forces(p, y, attraction, repulsion)
    return constant + _all_log_weights(p, y) + math.log(normaliser), norm, iteration, stop


@njit
def _run(between, rows, starts, target, search, descent, coords, divergence, grad_norm, n_iter, stopped):
    n = starts.shape[2]
    p = np.zeros((n, n + BLOCK), between.dtype)
    y = np.full((starts.shape[1], n + BLOCK), between.dtype.type(FAR))
    for lane in range(rows.shape[0]):
        finite = True
        for i in range(n - 1):
            finite = finite and math.isfinite(rows[lane, i])
        for c in range(starts.shape[1]):
            for i in range(n):
                finite = finite and math.isfinite(starts[lane, c, i])
        if not finite:
            coords[lane] = math.nan
            divergence[lane], grad_norm[lane], n_iter[lane], stopped[lane] = math.nan, math.nan, 0, False
            continue
        joint_probabilities(between, rows[lane], target, search, p)
        y[:, :n] = starts[lane]
        result = descend(p, descent, y)
        coords[lane] = y[:, :n]
        divergence[lane], grad_norm[lane], n_iter[lane], stopped[lane] = result

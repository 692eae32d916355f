"""Largest eigenvalues of a diagonal matrix plus a rank-one term, for many rank-one terms at once.

The eigenvalues of diag(poles) + q q^T are the roots of the secular equation

    f(lam) = 1 + sum_j q_j^2 / (poles_j - lam) = 0,

one in each interval between neighbouring poles and one above the largest. Each root is found as a distance from
its nearer pole, so that eigenvectors, which divide by poles_j - lam, keep their relative accuracy; an iteration
interpolates f by two poles (the 'middle way') inside a bracket that only shrinks.

Only the few poles within a factor `TAIL_RATIO` of the wanted roots (the head) enter an iteration one by one. The rest
(the tail) enters through the moments of its coefficients, a geometric series that reaches rounding in a few terms:

    sum_tail q_j^2 / (lam - poles_j) = 1 / lam sum_m moment_m (ref / lam)^m,
    moment_m = sum_tail q_j^2 (poles_j / ref)^m.

Source: R.-C. Li (1993), "Solving secular equations stably and efficiently"; the structure of LAPACK's dlaed4. The
moments are drjax's own.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.linalg import HIGHEST
from drjax.core.types import Array

TAIL_RATIO = 8
"""How many times smaller than every wanted root a pole of the tail is."""

MAX_ITER = 60
"""Iterations are bracketed and fall back to bisection, so this is never met; typical is 4 (float32) to 7 (float64)."""


class Poles(NamedTuple):
    """The fixed diagonal, prepared on the host in float64; R poles, of which the first K bracket the wanted roots.

    Attributes:
        values: (R,), decreasing.
        gaps: (K, P), poles_j - poles_i for i < K and the P poles of the head: differences survive a cast to float32,
            their terms would not.
        powers: (R - P, M), (poles_j / ref)^m of the tail, ref being its largest pole.
    """

    values: Array
    gaps: Array
    powers: Array


class Roots(NamedTuple):
    """The K largest roots of each lane.

    Attributes:
        values: (b, K), decreasing.
        head: (b, K, P), poles_j - root_i of the head to high relative accuracy, never 0.
        slope: (b, K), sum over all poles of q_j^2 / (poles_j - root_i)^2.
        moments: (b, M), of the tail.
        n_iter: () int32, iterations of the slowest lane.
        converged: (b,), bool.
    """

    values: Array
    head: Array
    slope: Array
    moments: Array
    n_iter: Array
    converged: Array


def make_poles(values: np.ndarray, n_roots: int, dtype: np.dtype) -> Poles:
    """Sorts out equal poles among those that bracket a wanted root, and splits head from tail.

    Coinciding poles leave no interval for the root between them. Moving one by a few units of rounding of the
    largest is a backward error no larger than that of storing the matrix.

    Args:
        values: (R,) decreasing poles in float64, R >= 2, largest of order 1.
        n_roots: K, 1 <= K <= R.
        dtype: What the roots are computed in.
    """
    values = np.array(values, np.float64)
    eps = float(np.finfo(dtype).eps)
    separation = 4 * eps * max(1.0, float(values[0]))
    for i in range(n_roots - 1, 0, -1):
        values[i - 1] = max(values[i - 1], values[i] + separation)
    # Root i is at least pole i, so every root is TAIL_RATIO times larger than what is left out of the head.
    n_head = max(2, n_roots, int(np.sum(values * TAIL_RATIO > values[n_roots - 1])))
    head, tail = values[:n_head], values[n_head:]
    # The slope has the slower series: its first neglected term is (M + 1) TAIL_RATIO^-M of the first.
    n_terms = next(m for m in range(1, 64) if (m + 1) * TAIL_RATIO**-m < eps) if len(tail) else 0
    ratio = tail / max(float(tail[0]), float(np.finfo(np.float64).tiny)) if len(tail) else tail
    powers = ratio[:, None] ** np.arange(n_terms)
    gaps = head[None, :] - values[:n_roots, None]
    return Poles(values.astype(dtype), gaps.astype(dtype), powers.astype(dtype))


def largest_roots(poles: Poles, squared: Array) -> Roots:
    """The K largest roots for each row of squared coefficients.

    Differentiable once with respect to `squared` (implicit function theorem: the last Newton step carries the
    derivative). O(M R) per lane and O(K (P + M)) per lane and iteration.

    Args:
        poles: Poles from `make_poles`.
        squared: (b, R), q_j^2 > 0. A coefficient that is zero up to rounding must be replaced by a tiny one, which
            deflates its pole to within rounding.
    """
    n_roots, n_head = poles.gaps.shape
    moments = jnp.matmul(squared[:, n_head:], poles.powers, precision=HIGHEST)
    equation = _Equation(squared[:, :n_head], moments, _reference(poles))
    fixed = jax.lax.stop_gradient(equation)
    total = jnp.sum(jax.lax.stop_gradient(squared), axis=-1)
    origin = _choose_origin(poles, fixed)
    at_left = origin == jnp.arange(n_roots)
    low, high = _bracket(poles, squared[:, 0], total, at_left)
    shifted, base = poles.gaps[origin], poles.values[origin]  # the head seen from each root's origin: (b, K, P)
    mu, n_iter, converged = _iterate(fixed, shifted, base, jax.lax.stop_gradient(low), jax.lax.stop_gradient(high))

    # One Newton step on the converged root: a no-op for the value, but it makes mu a function of `squared`.
    f, slope = equation.value_and_slope(shifted - mu[..., None], base + mu)
    step = f / jax.lax.stop_gradient(slope)
    mu = mu - (step - jax.lax.stop_gradient(step))
    head = shifted - mu[..., None]
    _, slope = equation.value_and_slope(head, base + mu)
    return Roots(base + mu, head, slope, moments, n_iter, jnp.all(converged, axis=-1))


def distances(poles: Poles, roots: Roots, n_roots: int) -> Array:
    """poles_j - root_i of the n_roots largest roots and all R poles, (b, n_roots, R)."""
    tail = poles.values[poles.gaps.shape[1] :] - roots.values[:, :n_roots, None]
    return jnp.concatenate([roots.head[:, :n_roots], tail], axis=-1)


class _Equation(NamedTuple):
    """The secular equation of each lane: squared (b, P) of the head; moments (b, M) and ref () of the tail."""

    squared: Array
    moments: Array
    ref: Array

    def value_and_slope(self, head: Array, root: Array) -> tuple[Array, Array]:
        """f and its slope at (b, K) roots whose distances to the head are (b, K, P)."""
        inverse = 1 / head
        value, slope = (jnp.einsum("bp,bkp->bk", self.squared, t, precision=HIGHEST) for t in (inverse, inverse**2))
        tail, tail_slope = self.tail(root)
        return 1 + value - tail, slope + tail_slope

    def tail(self, root: Array) -> tuple[Array, Array]:
        """Sums over the tail of q_j^2 / (root - poles_j) and of the same over the square, (b, K) each."""
        value = slope = jnp.zeros_like(root)
        if self.moments.shape[-1] == 0:  # no tail, and a root may then be 0
            return value, slope
        x = self.ref / root
        for m in reversed(range(self.moments.shape[-1])):
            moment = self.moments[:, m, None]
            value, slope = value * x + moment, slope * x + (m + 1) * moment
        return value / root, slope / root**2


def _reference(poles: Poles) -> Array:
    n_head = poles.gaps.shape[1]
    return poles.values[n_head] if n_head < poles.values.shape[0] else jnp.zeros((), poles.values.dtype)


def _choose_origin(poles: Poles, equation: _Equation) -> Array:
    """(b, K): index of the pole nearer to root i: i below it, or i - 1 above it; 0 for the largest root."""
    n_roots = poles.gaps.shape[0]
    index = jnp.arange(n_roots)
    b = equation.squared.shape[0]
    if n_roots == 1:
        return jnp.zeros((b, 1), index.dtype)
    half = jnp.diagonal(poles.gaps, offset=-1) / 2  # (pole_{i-1} - pole_i) / 2 for i = 1..K-1
    middle = jnp.broadcast_to(poles.gaps[1:] - half[:, None], (b, n_roots - 1, poles.gaps.shape[1]))
    f, _ = equation.value_and_slope(middle, jnp.broadcast_to(poles.values[1:n_roots] + half, (b, n_roots - 1)))
    left = jnp.concatenate([jnp.ones_like(f[:, :1], bool), f >= 0], axis=1)
    return jnp.where(left, index, index - 1)


def _bracket(poles: Poles, first: Array, total: Array, at_left: Array) -> tuple[Array, Array]:
    """Interval of each root as seen from its origin, (b, K) each; never contains the origin itself."""
    half = jnp.concatenate([jnp.zeros(1, total.dtype), jnp.diagonal(poles.gaps, offset=-1) / 2])
    low = jnp.where(at_left, 0.0, -half)
    high = jnp.where(at_left, half, 0.0)
    # The largest root lies at least its own term, at most all terms above the largest pole.
    low = low.at[:, 0].set(first)
    high = high.at[:, 0].set(total)
    return low, high


def _iterate(equation: _Equation, shifted: Array, base: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Roots as distances from their origins: (mu (b, K), n_iter (), converged (b, K))."""
    b, n_roots, _ = shifted.shape
    eps = jnp.finfo(shifted.dtype).eps
    index = jnp.arange(n_roots)
    # The two poles that the interpolation keeps: around the root, or the two largest for the largest root.
    near = jnp.maximum(index, 1)
    left = jnp.take_along_axis(shifted, jnp.broadcast_to(near[None, :, None], (b, n_roots, 1)), axis=-1)[..., 0]
    right = jnp.take_along_axis(shifted, jnp.broadcast_to(near[None, :, None] - 1, (b, n_roots, 1)), axis=-1)[..., 0]
    first = max(n_roots, 2)
    above = jnp.arange(first) < near[:, None]  # (K, first): which of the first poles are to the right of a root

    def sums(mu: Array) -> tuple[Array, Array, Array, Array]:
        head = shifted - mu[..., None]
        f, slope = equation.value_and_slope(head, base + mu)
        # The few poles on the right are summed on their own; the rest is a difference, because one more pass over
        # the head costs more than the digits lost, which only guide a step that f itself checks.
        right_terms = jnp.where(above, equation.squared[:, None, :first] / head[..., :first], 0)
        right_sum = jnp.sum(right_terms, axis=-1)
        right_slope = jnp.sum(right_terms / head[..., :first], axis=-1)
        return f, jnp.abs(f - 1 - right_sum) + jnp.abs(right_sum), jnp.maximum(slope - right_slope, 0), right_slope

    def body(state):
        mu, low, high, done, i = state
        f, magnitude, left_slope, right_slope = sums(mu)
        low = jnp.where(f < 0, mu, low)
        high = jnp.where(f < 0, high, mu)
        step = _two_pole_step(f, left_slope, right_slope, left - mu, right - mu, index == 0)
        new = mu + step
        # A tie with the bracket's end would divide by zero at a pole: keep strictly inside, else bisect.
        new = jnp.where((new > low) & (new < high), new, (low + high) / 2)
        finished = (jnp.abs(f) <= 4 * eps * (1 + magnitude)) | (jnp.abs(new - mu) <= eps * jnp.abs(mu))
        keep = done | (jnp.abs(f) <= 4 * eps * (1 + magnitude)) | (new == 0)
        return jnp.where(keep, mu, new), low, high, done | finished, i + 1

    def unfinished(state):
        return ~jnp.all(state[3]) & (state[4] < MAX_ITER)

    start = (low + high) / 2
    done = jnp.zeros(start.shape, bool)
    mu, _, _, done, n_iter = jax.lax.while_loop(unfinished, body, (start, low, high, done, jnp.int32(0)))
    return mu, n_iter, done


def _two_pole_step(f, left_slope, right_slope, left, right, is_largest):
    """Step to the root of c + s / (left - x) + t / (right - x) that matches f and its two one-sided slopes."""
    c = f - left * left_slope - right * right_slope
    a = (left + right) * f - left * right * (left_slope + right_slope)
    b = left * right * f
    root = jnp.sqrt(jnp.maximum(a * a - 4 * b * c, 0))
    inner = jnp.where(a <= 0, (a - root) / (2 * c), 2 * b / (a + root))
    outer = jnp.where(a >= 0, (a + root) / (2 * c), 2 * b / (a - root))
    return jnp.where(is_largest, outer, inner)

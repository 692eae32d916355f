"""Largest eigenvalues of a diagonal matrix plus a rank-one term, for many rank-one terms at once.

The eigenvalues of diag(poles) + q q^T are the roots of the secular equation

    f(lam) = 1 + sum_j q_j^2 / (poles_j - lam) = 0,

one in each interval between neighbouring poles and one above the largest. Each root is found as a distance from
its nearer pole, so that eigenvectors, which divide by poles_j - lam, keep their relative accuracy; an iteration
interpolates f by two poles (the 'middle way') inside a bracket that only shrinks.

Source: R.-C. Li (1993), "Solving secular equations stably and efficiently"; the structure of LAPACK's dlaed4.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.types import Array

MAX_ITER = 60
"""Iterations are bracketed and fall back to bisection, so this is never met; typical is 4 (float32) to 7 (float64)."""


class Poles(NamedTuple):
    """The fixed diagonal, prepared on the host in float64; R poles, of which the first K bracket the wanted roots.

    Attributes:
        values: (R,), decreasing.
        gaps: (K, R), poles_j - poles_i for i < K: differences survive a cast to float32, their terms would not.
    """

    values: Array
    gaps: Array


class Roots(NamedTuple):
    """The K largest roots of each lane.

    Attributes:
        values: (b, K), decreasing.
        distances: (b, K, R), poles_j - root_i to high relative accuracy, never 0.
        n_iter: () int32, iterations of the slowest lane.
        converged: (b,), bool.
    """

    values: Array
    distances: Array
    n_iter: Array
    converged: Array


def make_poles(values: np.ndarray, n_roots: int, dtype: np.dtype) -> Poles:
    """Sorts out equal poles among those that bracket a wanted root.

    Coinciding poles leave no interval for the root between them. Moving one by a few units of rounding of the
    largest is a backward error no larger than that of storing the matrix.

    Args:
        values: (R,) decreasing poles in float64, R >= 2, largest of order 1.
        n_roots: K, 1 <= K <= R.
        dtype: What the roots are computed in.
    """
    values = np.array(values, np.float64)
    separation = 4 * float(np.finfo(dtype).eps) * max(1.0, float(values[0]))
    for i in range(n_roots - 1, 0, -1):
        values[i - 1] = max(values[i - 1], values[i] + separation)
    gaps = values[None, :] - values[:n_roots, None]
    return Poles(values.astype(dtype), gaps.astype(dtype))


def largest_roots(poles: Poles, squared: Array) -> Roots:
    """The K largest roots for each row of squared coefficients.

    Differentiable once with respect to `squared` (implicit function theorem: the last Newton step carries the
    derivative). O(K R) per lane and iteration.

    Args:
        poles: From `make_poles`.
        squared: (b, R), q_j^2 > 0. A coefficient that is zero up to rounding must be replaced by a tiny one, which
            deflates its pole to within rounding.
    """
    n_roots = poles.gaps.shape[0]
    fixed = jax.lax.stop_gradient(squared)
    origin = _choose_origin(poles, fixed)
    shifted = poles.gaps[origin]  # (b, K, R): poles seen from each root's origin
    at_left = origin == jnp.arange(n_roots)
    low, high = _bracket(poles, fixed, at_left)
    mu, n_iter, converged = _iterate(shifted, fixed, low, high)

    # One Newton step on the converged root: a no-op for the value, but it makes mu a function of `squared`.
    distances = shifted - mu[..., None]
    f, slope = _value_and_slope(squared[:, None, :], distances)
    step = f / jax.lax.stop_gradient(slope)
    mu = mu - (step - jax.lax.stop_gradient(step))
    return Roots(poles.values[origin] + mu, shifted - mu[..., None], n_iter, jnp.all(converged, axis=-1))


def _value_and_slope(squared: Array, distances: Array) -> tuple[Array, Array]:
    terms = squared / distances
    return 1 + jnp.sum(terms, axis=-1), jnp.sum(terms / distances, axis=-1)


def _choose_origin(poles: Poles, squared: Array) -> Array:
    """(b, K): index of the pole nearer to root i: i below it, or i - 1 above it; 0 for the largest root."""
    n_roots = poles.gaps.shape[0]
    index = jnp.arange(n_roots)
    if n_roots == 1:
        return jnp.zeros((squared.shape[0], 1), index.dtype)
    half = jnp.diagonal(poles.gaps, offset=-1) / 2  # (pole_{i-1} - pole_i) / 2 for i = 1..K-1
    middle = poles.gaps[1:] - half[:, None]
    f, _ = _value_and_slope(squared[:, None, :], middle)
    left = jnp.concatenate([jnp.ones_like(f[:, :1], bool), f >= 0], axis=1)
    return jnp.where(left, index, index - 1)


def _bracket(poles: Poles, squared: Array, at_left: Array) -> tuple[Array, Array]:
    """Interval of each root as seen from its origin, (b, K) each; never contains the origin itself."""
    total = jnp.sum(squared, axis=-1, keepdims=True)
    half = jnp.concatenate([jnp.zeros(1, squared.dtype), jnp.diagonal(poles.gaps, offset=-1) / 2])
    low = jnp.where(at_left, 0.0, -half)
    high = jnp.where(at_left, half, 0.0)
    # The largest root lies at least its own term, at most all terms above the largest pole.
    low = low.at[:, 0].set(squared[:, 0])
    high = high.at[:, :1].set(total)
    return low, high


def _iterate(shifted: Array, squared: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Roots as distances from their origins: (mu (b, K), n_iter (), converged (b, K))."""
    b, n_roots, _ = shifted.shape
    eps = jnp.finfo(shifted.dtype).eps
    index = jnp.arange(n_roots)
    # The two poles that the interpolation keeps: around the root, or the two largest for the largest root.
    near = jnp.maximum(index, 1)
    left = jnp.take_along_axis(shifted, jnp.broadcast_to(near[None, :, None], (b, n_roots, 1)), axis=-1)[..., 0]
    right = jnp.take_along_axis(shifted, jnp.broadcast_to(near[None, :, None] - 1, (b, n_roots, 1)), axis=-1)[..., 0]
    head = max(n_roots, 2)
    above = jnp.arange(head) < near[:, None]  # (K, head): which of the first poles are to the right of a root

    def sums(mu: Array) -> tuple[Array, Array, Array, Array]:
        distances = shifted - mu[..., None]
        f, slope = _value_and_slope(squared[:, None, :], distances)
        # The few poles on the right are summed on their own; the rest is a difference, because one more pass over
        # all poles costs more than the digits lost, which only guide a step that f itself checks.
        right_terms = jnp.where(above, squared[:, None, :head] / distances[..., :head], 0)
        right_sum = jnp.sum(right_terms, axis=-1)
        right_slope = jnp.sum(right_terms / distances[..., :head], axis=-1)
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

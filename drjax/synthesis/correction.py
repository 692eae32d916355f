"""What a model of Gaussians loses of the columns' deviations, and how it is put back, from released numbers alone.

Four things shrink deviations: components are cut to a ball, variance outside the p directions is left out, repaired
covariances lose or gain some, and samples are cut to the box. A `Correction` undoes all four. Its inputs are noisy sums
that the guarantee covers already, so it costs no privacy. Derivations: docs/synthesis/deviations.md.

Example:
    >>> import jax.numpy as jnp
    >>> from drjax.synthesis import correction
    >>> [round(float(correction.uncut_trace(cut, 4.0, 10.0)), 1) for cut in (0.1, 0.9)]  # much was cut of the second
    [0.1, 2.0]
    >>> round(float(correction.positive_mean(-1.0, 1.0)), 2), round(float(correction.positive_mean(9.0, 1.0)), 2)
    (0.53, 9.0)
    >>> [round(float(moment), 2) for moment in correction.cut_moments(0.0, 1.0)]
    [0.0, 0.52]
    >>> ends = jnp.ones(1), jnp.zeros((1, 1)), jnp.full((1, 1), 0.5)
    >>> slope, offset = correction.line_to_box(*ends)
    >>> slope.shape, bool(slope[0] >= 1), offset.shape
    ((1,), True, (1, 1))
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaincc, ndtr

from drjax.core.linalg import HIGHEST
from drjax.synthesis.gaussian_model import Mixture

MOST_STRETCH = 4.0
"""Largest factor that components are stretched by."""

MOST_SLOPE = 64.0
"""Largest factor that a column is stretched by so that it has its deviation after it is cut to the box."""

STEPS = 30
"""Bisections."""


class Correction(NamedTuple):
    """How features are made of components so that columns have the deviations that the released sums say.

    Attributes:
        gain: (m,) factor of what the components contribute to each column.
        residual: (m,) standard deviation of independent noise added to each column, in the box scaled to [-1, 1].
        slope: (m,) and
        offset: (K, m) of the line slope u + offset, by class, that is cut to the box: what is cut then has the mean and
            the deviation that u has.
    """

    gain: Any
    residual: Any
    slope: Any
    offset: Any


class Squares(NamedTuple):
    """Released sums over records of the squared columns of (v - centre) / radius, cut to norm 1.

    Attributes:
        sums: (m,) with noise.
        deviation: Standard deviation of the noise of an entry.
        n: Records, or a noisy count.
    """

    sums: Any
    deviation: Any
    n: Any


def uncut_trace(cut: Any, dof: Any, most: Any) -> Any:
    """t >= cut for which E min(1, t G) = cut, G a gamma variable with mean 1 and `dof` degrees of freedom.

    The mean squared norm of records before they were cut to norm 1, from that after, where squared norms are those of a
    Gaussian with so many equal eigenvalues.

    Args:
        cut: () in [0, 1].
        dof: () > 0.
        most: () largest answer.
    """
    a = dof / 2
    low, high = jnp.log(jnp.maximum(cut, 1e-6)), jnp.log(jnp.maximum(most, jnp.maximum(cut, 1e-6)))

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        t = jnp.exp((low + high) / 2)
        is_low = t * gammainc(a + 1, a / t) + gammaincc(a, a / t) < cut
        return jnp.where(is_low, (low + high) / 2, low), jnp.where(is_low, high, (low + high) / 2)

    low, high = jax.lax.fori_loop(0, STEPS, halve, (low, high))
    return jnp.exp((low + high) / 2)


def positive_mean(value: Any, deviation: Any) -> Any:
    """Posterior mean of a number >= 0 with a flat prior that was seen with Gaussian noise; about `value` if large."""
    z = jnp.maximum(value / deviation, -8)
    density = jnp.exp(-jnp.minimum(z**2, 200) / 2) / math.sqrt(2 * math.pi)
    return deviation * (z + density / ndtr(z))


@functools.partial(jax.jit, static_argnames="is_sphere")
def correction_of(
    mixture: Mixture,
    components: Any,
    frame: Any,
    *,
    spread: Any,
    squares: Squares | None,
    is_sphere: bool,
) -> Correction:
    """The correction of a mixture in p dimensions.

    Args:
        mixture: Mixture in units of the radius; a label may follow the p components.
        components: (p, m).
        frame: `drjax.synthesis.frame.Frame`.
        spread: () mean squared distance of records from the centre in units of the radius squared, not cut; None if
            unknown.
        squares: Diagonal of the projection's query; None if there was none.
        is_sphere: Whether records have norm 1 about the centre, so that nothing is cut.
    """
    p, m = components.shape
    means = mixture.means[:, :p]
    covariances = mixture.covariances[:, :p, :p]
    weights = mixture.weights[:, None]
    unit = (frame.scale * frame.radius) ** 2
    second = jnp.tensordot(mixture.weights, covariances, 1, precision=HIGHEST)
    second = second + jnp.matmul(means.T, weights * means, precision=HIGHEST)
    trace = jnp.maximum(jnp.trace(second), 1e-9)
    if is_sphere:
        stretch = jnp.ones_like(trace)
        most: Any = jnp.ones_like(trace)
    else:
        dof = jnp.clip(trace**2 / jnp.maximum(jnp.sum(second**2), 1e-18), 1, p)
        most = jnp.asarray(MOST_STRETCH**2 if spread is None else spread, trace.dtype)
        stretch = uncut_trace(jnp.minimum(trace, 1 - 1e-6), dof, most) / trace
        stretch = jnp.clip(stretch, 1, MOST_STRETCH**2)
    modelled = stretch * jnp.sum(components * jnp.matmul(second, components, precision=HIGHEST), axis=0)
    if squares is not None:
        total = jnp.sum(squares.sums) / squares.n
        uncut = 1.0 if spread is None else jnp.clip(spread / jnp.maximum(total, 1e-6), 1, MOST_STRETCH**2)
        target = positive_mean(squares.sums / squares.n, squares.deviation / squares.n) * uncut
        gain = jnp.sqrt(stretch) * jnp.sqrt(jnp.minimum(1, target / jnp.maximum(modelled, 1e-12)))
        residual = jnp.maximum(target - modelled, 0)
    else:
        gain = jnp.sqrt(stretch) * jnp.ones(m, components.dtype)
        left = jnp.zeros_like(trace) if spread is None and not is_sphere else jnp.maximum(most - stretch * trace, 0)
        outside = jnp.maximum(1 - jnp.sum(components**2, axis=0), 0)
        residual = left * outside / max(m - p, 1)
    residual = jnp.sqrt(residual * unit)
    reach = frame.scale * frame.radius * gain
    centers = frame.scale * frame.center + reach * jnp.matmul(means, components, precision=HIGHEST)
    within = jnp.einsum("pj,kpq,qj->kj", components, covariances, components, precision=HIGHEST)
    variances = reach**2 * within + residual**2
    slope, offset = line_to_box(mixture.weights, centers, variances)
    return Correction(gain, residual, slope, offset)


def cut_moments(mean: Any, deviation: Any) -> tuple[Any, Any]:
    """First two moments of a normal variable cut to [-1, 1]."""
    low, high = (-1 - mean) / deviation, (1 - mean) / deviation

    def density(z: Any) -> Any:
        return jnp.exp(-jnp.minimum(z**2, 200) / 2) / math.sqrt(2 * math.pi)

    below, above = ndtr(low), ndtr(-high)
    inside = jnp.maximum(1 - below - above, 0)
    drop = density(low) - density(high)
    first = mean * inside + deviation * drop - below + above
    edges = jnp.clip(low, -20, 20) * density(low) - jnp.clip(high, -20, 20) * density(high)
    square = (mean**2 + deviation**2) * inside + 2 * mean * deviation * drop + deviation**2 * edges
    return first, square + below + above


def line_to_box(weights: Any, means: Any, variances: Any) -> tuple[Any, Any]:
    """Slope and offsets of a line whose values, cut to [-1, 1], have the means and the total variance of u.

    Two bisections, one within the other. Means are brought into the box first. A slope is at least 1 and at most
    `MOST_SLOPE`: no cut column varies more than between the two ends.

    Args:
        weights: (K,) sum 1.
        means: (K, m) of u given the class.
        variances: (K, m).

    Returns:
        (m,), and (K, m): slope u + offset is what is to be cut.
    """
    kept = jnp.clip(means, -1 + 1e-4, 1 - 1e-4)
    overall = jnp.sum(weights[:, None] * kept, axis=0)
    target = jnp.sum(weights[:, None] * (variances + (kept - overall) ** 2), axis=0)
    deviations = jnp.sqrt(jnp.maximum(variances, 1e-12))

    def middles(slope: Any) -> Any:
        spread = slope * deviations
        # Beyond nine deviations hardly anything is left within the box.
        ends = -1 - 9 * spread, 1 + 9 * spread

        def halve(_: Any, ends: Any) -> Any:
            low, high = ends
            middle = (low + high) / 2
            is_low = cut_moments(middle, spread)[0] < kept
            return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

        low, high = jax.lax.fori_loop(0, STEPS, halve, ends)
        return (low + high) / 2

    def variance(slope: Any) -> Any:
        first, square = cut_moments(middles(slope), slope * deviations)
        return jnp.sum(weights[:, None] * square, axis=0) - jnp.sum(weights[:, None] * first, axis=0) ** 2

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = (low + high) / 2
        is_low = variance(jnp.exp(middle)) < target
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    zero = jnp.zeros_like(target)
    low, high = jax.lax.fori_loop(0, STEPS, halve, (zero, zero + math.log(MOST_SLOPE)))
    slope = jnp.exp((low + high) / 2)
    return slope, middles(slope) - slope * means

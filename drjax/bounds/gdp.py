"""Privacy of repeated Gaussian noise on a sum of bounded terms: Gaussian differential privacy, mu-GDP, on the host.

Source: Dong, Roth & Su, "Gaussian differential privacy" (2022): theorem 2.7, and corollaries 2.13 and 3.3 for delta
and for composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Real
from typing import Any

import jax
import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtri_exp

from drjax.bounds import rounding
from drjax.core import validate

SENSITIVITY = {"add_or_remove": 1, "zero_out": 1, "replace_one": 2}
"""How far the sum of clipped gradients moves between neighbours, in units of clip_norm.

"add_or_remove": one data set has a record more, while both sums are divided by the same public number; where the number
of records itself is published, it is not the relation to claim. "zero_out": a record's gradient is 0 in one of them.
In both the sum moves by one gradient. "replace_one": a record is another one, and the gradients may be opposite.
"""

MARGIN = 1e-11
"""Relative: what is found as a root is moved to the safe side by this much, some hundred times the root's error."""

FAR = 37.5
"""Standard deviations beyond which a normal tail is below 1e-307: 1 less it is 1."""

ASYMPTOTIC = 10.0
"""Standard deviations from which on the series of Mills' ratio has all digits after as many terms as `N_TERMS`."""

N_TERMS = 22

_NODES, _WEIGHTS = ((np.polynomial.legendre.leggauss(16)[0] + 1) / 2, np.polynomial.legendre.leggauss(16)[1] / 2)
"""Gauss and Legendre's rule on [0, 1]."""


def mu_of(noise_multiplier: float, steps: int, neighbouring: str) -> float:
    """The mu of the GDP guarantee: sensitivity in units of clip_norm, times sqrt(steps) / noise_multiplier.

    Exact for full batches, where a gradient of norm clip_norm may point the same way in every step.

    Args:
        noise_multiplier: Noise multiplier, > 0.
        steps: Steps that one record takes part in at most, >= 1: all of them for full and for Poisson batches; the
            epochs for batches that use every record once an epoch (not under "add_or_remove", where one record more
            may move the others to other batches).
        neighbouring: A name in `SENSITIVITY`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.gdp import mu_of
        >>> [mu_of(20.0, 100, neighbouring) for neighbouring in ("zero_out", "replace_one")]
        [0.5, 1.0]
    """
    noise = single_positive(noise_multiplier=noise_multiplier)
    n = rounding.as_float(steps=steps)
    validate.one_of(SENSITIVITY, neighbouring=neighbouring)
    size = SENSITIVITY[neighbouring]
    found = size * math.sqrt(n) / noise
    square = Fraction(size**2 * int(steps)) / Fraction(noise) ** 2
    return rounding.root_at_least(found, square, noise_multiplier=noise_multiplier, steps=steps)


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta at which mu-GDP is (epsilon, delta)-DP, rounded up in about the twelfth digit.

    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu), by `log_delta`; 0 where it is less than the
    smallest float64.

    Args:
        mu: Mu, > 0.
        epsilon: Epsilon, >= 0, finite.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.gdp import delta_of
        >>> round(delta_of(mu=1.0, epsilon=1.0), 3)
        0.127
    """
    distance = single_positive(mu=mu)
    if not (isinstance(epsilon, Real) and not isinstance(epsilon, bool) and 0 <= epsilon <= rounding.LARGEST):
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
    return math.exp(_log_delta_above(distance, float(epsilon)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-GDP is (epsilon, delta)-DP, rounded up in about the eleventh digit.

    Args:
        mu: Mu, > 0.
        delta: Delta, in (0, 1).

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.gdp import epsilon_of
        >>> round(epsilon_of(mu=1.0, delta=1e-5), 2)
        4.38
    """
    distance = single_positive(mu=mu)
    _check_delta(delta)
    found = epsilon_at(distance, float(delta))
    if found == math.inf:
        raise ValueError(f"mu must give an epsilon of at most {rounding.LARGEST:g}, got {mu!r} at delta {delta!r}")
    return found


def epsilon_at(mu: float, delta: float) -> float:
    """Epsilon as of `epsilon_of`, for arguments that have been checked; inf where it is beyond the largest float64."""
    goal = math.log(delta)
    if _log_delta_above(mu, 0.0) <= goal:
        return 0.0
    # Where the first term alone equals delta the difference is less. In units of mu, so that none is out of range.
    high = max(mu / 2 - float(ndtri_exp(goal)), 1e-16)
    if mu * high > rounding.LARGEST / 4:
        return math.inf
    while _log_delta_above(mu, mu * high) > goal:
        high *= 2
    found = mu * _root(lambda size: _excess(mu, mu * size, goal), 0.0, high) * (1 + MARGIN)
    step = max(1e-15 * found, math.nextafter(0.0, 1.0))
    while math.exp(_log_delta_above(mu, found)) > delta:
        found, step = found + step, 8 * step
    return found


def noise_multiplier_for(epsilon: float, delta: float, steps: int, neighbouring: str) -> float:
    """The smallest noise multiplier whose training is (epsilon, delta)-DP, rounded up in the eleventh digit.

    Args:
        epsilon: Epsilon, > 0; tried from 0.01 to 1e4.
        delta: Delta, in (0, 1).
        steps: Number of steps, as in `mu_of`.
        neighbouring: A name in `SENSITIVITY`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.gdp import noise_multiplier_for
        >>> round(noise_multiplier_for(epsilon=2.0, delta=1e-5, steps=100, neighbouring="zero_out"), 1)
        19.9
    """
    budget = single_positive(epsilon=epsilon)
    _check_delta(delta)
    unit, goal = mu_of(1.0, steps, neighbouring), math.log(delta)
    # At this mu the first term alone equals delta; z + root is its value, by a formula that cancels nothing.
    z = float(ndtri_exp(goal))
    root = math.hypot(z, math.sqrt(2) * math.sqrt(budget))
    low = 2 * (budget / (root - z)) if z < 0 else z + root
    low = max(low, 4 * float(np.finfo(np.float64).tiny))
    if _excess(low / 2, budget, goal) > 0:
        raise ValueError(f"delta must allow a noise multiplier of at most {1 / low:g}, got {delta!r} at {epsilon!r}")
    high = 2 * low
    while _log_delta_above(high, budget) <= goal:
        high *= 2
    log_mu = _root(lambda log_mu: _excess(math.exp(log_mu), budget, goal), math.log(low / 2), math.log(high))
    found, step = unit / math.exp(log_mu) * (1 + MARGIN), MARGIN
    while found < math.inf and math.exp(_log_delta_above(mu_of(found, steps, neighbouring), budget)) > delta:
        found, step = found * (1 + step), 2 * step
    if not 0 < found < math.inf:
        raise ValueError(f"epsilon must give a noise multiplier of at most {rounding.LARGEST:g}, got {epsilon!r}")
    return found


def check_positive(**values: Any) -> None:
    """Each value, or each entry of an array, a finite number > 0.

    Raises:
        ValueError: otherwise, naming the argument and its value.
    """
    for name, value in values.items():
        is_number = isinstance(value, (Real, np.ndarray, jax.Array)) and not isinstance(value, bool)
        entries = np.asarray(value if is_number else math.nan)
        if entries.dtype.kind not in "fiu" or not ((entries > 0) & (entries < math.inf)).all():
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def single_positive(**values: Any) -> float:
    """One finite number > 0, as float64.

    Raises:
        ValueError: otherwise, naming the argument and its value.
    """
    check_positive(**values)
    ((name, value),) = values.items()
    if np.ndim(value):
        raise ValueError(f"{name} must be a single number, got {value!r}")
    return float(value)


def log_power(log_alpha: np.ndarray, mu: Any) -> np.ndarray:
    """log Phi(Phi^-1(alpha) + mu) of log alpha <= 0, before slack; mu >= 0 broadcasts."""
    with np.errstate(invalid="ignore", over="ignore"):
        z = ndtri_exp(log_alpha)
        # Where they cancel, the digits that z has lost are those that are left; more than SciPy is off by.
        lost = np.where(np.abs(z) < 50, 1e-15, 1e-11) * np.abs(np.where(np.isfinite(z), z, 0.0))
        return log_ndtr(np.where(np.isfinite(z) | np.isinf(mu), z + lost + mu, z))


def log_delta(mu: float, epsilon: float) -> float:
    """Natural logarithm of `delta_of` to some 1e-13, for arguments that have been checked; finite.

    With z = epsilon / mu - mu / 2 and Mills' ratio R(u) = (1 - Phi(u)) / phi(u), delta is phi(z) (R(z) - R(z + mu)).
    Where the difference would cancel, it is the integral of -R'(u) = 1 - u R(u) from z to z + mu.
    """
    z = _centre(mu, epsilon)
    if z < -FAR:
        # Both tails that are missing to 1 are below 1e-307.
        return 0.0
    if z > 1e153:
        return -rounding.LARGEST
    right = epsilon / mu + mu / 2
    ratio = float(erfcx(right / math.sqrt(2)) / erfcx(z / math.sqrt(2)))
    if ratio <= 0.5:
        return float(log_ndtr(-z)) + math.log1p(-ratio)
    nodes = z + mu * _NODES
    scale = max(z, 1.0)
    mean = float(np.sum(_WEIGHTS * _mills_slope(nodes, scale)))
    return -z * z / 2 - math.log(2 * math.pi) / 2 + math.log(mu) - 2 * math.log(scale) + math.log(mean)


def _log_delta_above(mu: float, epsilon: float) -> float:
    return min(0.0, float(rounding.raised(log_delta(mu, epsilon))))


def _excess(mu: float, epsilon: float, goal: float) -> float:
    """How far log delta is above a goal; limited from below, for the search of a root."""
    return max(_log_delta_above(mu, epsilon) - goal, -1e3)


def _centre(mu: float, epsilon: float) -> float:
    """epsilon / mu - mu / 2, rounded once: as float64 numbers the two may be equal in all digits."""
    a, b = epsilon.as_integer_ratio()
    c, d = mu.as_integer_ratio()
    top = 2 * a * d * d - c * c * b
    try:
        return top / (2 * b * c * d)
    except OverflowError:
        return math.inf if top > 0 else -math.inf


def _mills_slope(u: np.ndarray, scale: float) -> np.ndarray:
    """scale^2 (1 - u R(u)), R being Mills' ratio, for u > -1 in an increasing order."""
    near = np.minimum(u, ASYMPTOTIC)
    direct = scale**2 * (1 - near * math.sqrt(math.pi / 2) * erfcx(near / math.sqrt(2)))
    # 1 / u^2 - 3 / u^4 + 15 / u^6 - ...
    far = np.maximum(u, ASYMPTOTIC)
    series, square = np.ones_like(far), (1 / far) ** 2
    for k in range(N_TERMS, -1, -1):
        series = 1 - (2 * k + 3) * square * series
    return np.where(u < ASYMPTOTIC, direct, (scale / far) ** 2 * series)


def _check_delta(delta: float) -> None:
    if not (isinstance(delta, Real) and 0 < delta < 1):
        raise ValueError(f"delta must be in (0, 1), got {delta!r}")


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    found: Any = brentq(function, low, high, xtol=1e-15 * max(abs(low), abs(high)), rtol=np.float64(1e-13))
    return float(found)

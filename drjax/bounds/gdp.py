"""Privacy of repeated Gaussian noise on a sum of bounded terms: Gaussian differential privacy, mu-GDP, on the host.

Source: Dong, Roth & Su, "Gaussian differential privacy" (2022): theorem 2.7, and corollaries 2.13 and 3.3 for delta
and for composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import jax
import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from drjax.core import validate

SENSITIVITY = {"add_or_remove": 1, "zero_out": 1, "replace_one": 2}
"""How far the sum of clipped gradients moves between neighbours, in units of clip_norm.

"add_or_remove": one data set has a record more, while both sums are divided by the same public number; where the number
of records itself is published, it is not the relation to claim. "zero_out": a record's gradient is 0 in one of them.
In both the sum moves by one gradient. "replace_one": a record is another one, and the gradients may be opposite.
"""

MARGIN = 1e-11
"""Relative: what is found as a root is moved to the safe side by this much, some hundred times the root's error."""


def mu_of(noise_multiplier: float, steps: int, neighbouring: str) -> float:
    """The mu of the GDP guarantee: sensitivity in units of clip_norm, times sqrt(steps) / noise_multiplier.

    Exact for full batches, where a gradient of norm clip_norm may point the same way in every step.

    Args:
        noise_multiplier: > 0.
        steps: Steps that one record takes part in at most, >= 1: all of them for full and for Poisson batches; the
            epochs for batches that use every record once an epoch (not under "add_or_remove", where one record more
            may move the others to other batches).
        neighbouring: A name in `SENSITIVITY`.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(noise_multiplier=noise_multiplier)
    if np.ndim(noise_multiplier):
        raise ValueError(f"noise_multiplier must be a single number, got {noise_multiplier!r}")
    validate.integer(steps=steps)
    validate.one_of(SENSITIVITY, neighbouring=neighbouring)
    return SENSITIVITY[neighbouring] * math.sqrt(steps) / float(noise_multiplier)


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta at which mu-GDP is (epsilon, delta)-DP.

    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu), in logarithms: good to ten digits for mu from
    1e-3 to 1e3 and epsilon up to 1e4, and 0 where it is less than the smallest float64.

    Args:
        mu: > 0.
        epsilon: >= 0, finite.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(mu=mu)
    if not (isinstance(epsilon, Real) and 0 <= epsilon < math.inf):
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
    return math.exp(log_delta(float(mu), float(epsilon)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-GDP is (epsilon, delta)-DP, rounded up in about the eleventh digit.

    Args:
        mu: > 0.
        delta: In (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(mu=mu)
    _check_delta(delta)
    goal = math.log(delta)
    if log_delta(mu, 0.0) <= goal:
        return 0.0
    # Where the first term alone equals delta the difference is less, unless rounding hides it.
    above = mu * (mu / 2 - float(ndtri(delta)))
    while log_delta(mu, above) > goal:
        above *= 2
    return _root(lambda epsilon: log_delta(mu, epsilon) - goal, 0.0, above) + MARGIN * above


def noise_multiplier_for(epsilon: float, delta: float, steps: int, neighbouring: str) -> float:
    """The smallest noise multiplier whose training is (epsilon, delta)-DP, rounded up in the eleventh digit.

    Args:
        epsilon: > 0; tried from 0.01 to 1e4.
        delta: In (0, 1).
        steps: As in `mu_of`.
        neighbouring: A name in `SENSITIVITY`.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(epsilon=epsilon)
    _check_delta(delta)
    unit, goal = mu_of(1.0, steps, neighbouring), math.log(delta)
    # At this mu the first term alone equals delta; z + root is its value, by a formula that cancels nothing.
    z = float(ndtri(delta))
    root = math.sqrt(z * z + 2 * epsilon)
    low = 2 * epsilon / (root - z) if z < 0 else z + root
    high = 2 * low
    while log_delta(high, epsilon) <= goal:
        high *= 2
    return unit / _root(lambda mu: log_delta(mu, epsilon) - goal, low / 2, high) * (1 + MARGIN)


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


def _check_delta(delta: float) -> None:
    if not (isinstance(delta, Real) and 0 < delta < 1):
        raise ValueError(f"delta must be in (0, 1), got {delta!r}")


def log_delta(mu: float, epsilon: float) -> float:
    """Natural logarithm of `delta_of`, for arguments that have been checked; -inf where it cannot be told from 0."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # Rounding may put the second above the first where delta is far below the smallest number.
    return first + math.log(-math.expm1(min(second - first, -1e-300)))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    found: Any = brentq(function, low, high, xtol=1e-15 * high, rtol=np.float64(1e-13))
    return float(found)

"""How much privacy a target success rate needs: the bounds of `drjax.bounds.rero` solved for their parameter.

What is returned holds: parameters are rounded to the private side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from drjax.bounds import gdp, tradeoff
from drjax.bounds.curve import TradeOff, number, numbers
from drjax.bounds.gdp import SENSITIVITY, mu_of, single_positive
from drjax.bounds.rounding import log_ratio, raised
from drjax.core import validate
from drjax.core.types import Array

MARGIN = 1e-9
"""Relative: parameters are moved to the private side by this much, far more than their rounding."""

TOLERANCE = 1e-4
"""Relative, of noise multipliers that are searched for on a curve without closed form; the larger end is returned."""

MOST_STEPS = 10_000_000


def largest_mu(kappa: Array | float, gamma: Array | float) -> np.ndarray:
    """The largest mu at which mu-GDP keeps success to gamma: Phi^-1(gamma) - Phi^-1(kappa).

    Args:
        kappa: Baseline success, in [0, 1].
        gamma: Success that is allowed, in [0, 1]; broadcasts against kappa.

    Returns:
        Mu, >= 0, inf where gamma is 1 or kappa is 0; 0 where gamma = kappa.

    Raises:
        ValueError: a number outside [0, 1], or gamma < kappa, which nothing can bring about.

    Example:
        >>> from drjax.bounds import rero
        >>> float(rero.largest_mu(kappa=0.001, gamma=0.1).round(2))
        1.81
    """
    base, goal = _pair(kappa, gamma)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = ndtri_exp(np.log(base)), ndtri_exp(np.log(goal))
        found = high - low - 1e-15 * (np.abs(low) + np.abs(high))
        # Where they cancel: the density between them is at most that of the one nearer to 0.
        nearest = np.where(low * high < 0, 0.0, np.minimum(np.abs(low), np.abs(high)))
        found = np.maximum(found, np.exp(np.log(goal - base) + math.log(2 * math.pi) / 2 + nearest**2 / 2))
    return _safe(found, base, goal)


def largest_epsilon(kappa: Array | float, gamma: Array | float) -> np.ndarray:
    """The largest epsilon at which pure privacy keeps success to gamma, by the tight curve.

    max(log(gamma / kappa), log((1 - kappa) / (1 - gamma))): the first is corollary 3, the second is more where gamma is
    near 1.

    Args and errors as of `largest_mu`.

    Example:
        >>> from drjax.bounds import rero
        >>> float(rero.largest_epsilon(kappa=0.001, gamma=0.1).round(2))
        4.61
    """
    base, goal = _pair(kappa, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.maximum(log_ratio(goal, base), np.log1p((goal - base) / (1 - goal)))
    return _safe(found, base, goal)


def largest_rho(kappa: Array | float, gamma: Array | float) -> np.ndarray:
    """The largest rho at which rho-zCDP keeps success to gamma, by `tradeoff.ZCDP`.

    The larger of (sqrt(log 1/kappa) - sqrt(log 1/gamma))^2, from corollary 4, and of its mirror image,
    (sqrt(log 1/(1-gamma)) - sqrt(log 1/(1-kappa)))^2.

    Args and errors as of `largest_mu`.

    Example:
        >>> from drjax.bounds import rero
        >>> float(rero.largest_rho(kappa=0.001, gamma=0.1).round(2))
        1.23
    """
    base, goal = _pair(kappa, gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = log_ratio(goal, base) / (np.sqrt(-np.log(base)) + np.sqrt(-np.log(goal)))
        gap = np.log1p((goal - base) / (1 - goal))
        flat = gap / (np.sqrt(-np.log1p(-goal)) + np.sqrt(-np.log1p(-base)))
    return _safe(np.maximum(steep, flat) ** 2, base, goal)


def smallest_noise_multiplier(kappa: float, gamma: float, steps: int, *, neighbouring: str, rate: float = 1.0) -> float:
    """The smallest noise multiplier of DP-GD or DP-SGD that keeps success to gamma.

    Args:
        kappa: Baseline success, in (0, 1).
        gamma: Success that is allowed, in (kappa, 1).
        steps: Number of steps, >= 1.
        neighbouring: A name in `tradeoff.RELATIONS`; "zero_out" is what reconstruction robustness needs.
        rate: Probability that a record is in a batch, in (0, 1].

    Returns:
        Noise multiplier, in closed form at a rate of 1; else to `TOLERANCE`, by bisection over some 20 sampled curves.

    Raises:
        ValueError: an argument out of its range.
        ImportError: rate < 1 and dp-accounting is not installed.

    Example:
        >>> from drjax.bounds import rero
        >>> round(rero.smallest_noise_multiplier(kappa=0.001, gamma=0.1, steps=100, neighbouring="zero_out"), 2)
        5.53
    """
    base, goal = _inside(kappa, gamma)
    share = _rate(rate)
    whole = mu_of(1.0, steps, neighbouring) / float(largest_mu(base, goal)) * (1 + MARGIN)
    if whole == math.inf:
        raise ValueError(f"gamma must be further above kappa = {kappa!r} for a finite noise multiplier, got {gamma!r}")
    if share == 1:
        return whole

    def holds(noise: float) -> bool:
        curve = tradeoff.subsampled_gaussian(noise, share, steps, neighbouring=neighbouring)
        return float(curve.power(base)) <= goal

    return least_noise(holds, whole)


def least_noise(holds: Callable[[float], bool], enough: float) -> float:
    """The least noise multiplier at which a condition holds, to `TOLERANCE` and from above.

    Args:
        holds: The condition, which stays true where noise grows.
        enough: Noise at which it is known to hold: that of full batches, because sampling only helps.
    """
    high, low = enough, enough / 2
    while holds(low):
        high, low = low, low / 2
        if low < 1e-3 * enough:
            return high
    while high - low > TOLERANCE * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def most_steps(kappa: float, gamma: float, noise_multiplier: float, *, neighbouring: str, rate: float = 1.0) -> int:
    """The most steps of DP-GD or DP-SGD that keep success to gamma; 0 if one is too many.

    Args:
        kappa: Baseline success, in (0, 1).
        gamma: Success that is allowed, in (kappa, 1).
        noise_multiplier: Noise multiplier, > 0.
        neighbouring: A name in `tradeoff.RELATIONS`.
        rate: Probability that a record is in a batch, in (0, 1].

    Returns:
        Number of steps, at most `MOST_STEPS`.

    Raises:
        ValueError: an argument out of its range.
        ImportError: rate < 1 and dp-accounting is not installed.

    Example:
        >>> from drjax.bounds import rero
        >>> rero.most_steps(kappa=0.001, gamma=0.1, noise_multiplier=10.0, neighbouring="zero_out")
        327
    """
    base, goal = _inside(kappa, gamma)
    noise = single_positive(noise_multiplier=number(noise_multiplier=noise_multiplier))
    validate.one_of(SENSITIVITY, neighbouring=neighbouring)
    share = _rate(rate)
    root = min(float(largest_mu(base, goal)) / SENSITIVITY[neighbouring] * noise, float(MOST_STEPS))
    whole = min(int(root**2), MOST_STEPS)
    if share == 1:
        return whole

    def curve_of(steps: int) -> TradeOff:
        return tradeoff.subsampled_gaussian(noise, share, steps, neighbouring=neighbouring)

    return last(lambda steps: steps == 0 or float(curve_of(steps).power(base)) <= goal, whole, MOST_STEPS)


def last(holds: Callable[[int], bool], low: int, limit: int) -> int:
    """The last integer from low on, at which it holds, that a condition holds at which stays false once false."""
    high = max(1, 2 * low)
    while holds(high):
        low, high = high, 2 * high
        if low >= limit:
            return limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def success_of_mu(kappa: Array | float, mu: Array | float) -> np.ndarray:
    """Phi(Phi^-1(kappa) + mu), upward: `rero.from_tradeoff` of Gaussian curves, vectorised over mu too.

    Args:
        kappa: Baseline success, in [0, 1].
        mu: Mu, >= 0; broadcasts against kappa.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds import rero
        >>> rero.success_of_mu(0.001, [0.0, 1.0, 4.0]).round(3)
        array([0.001, 0.018, 0.819])
    """
    base, distance = numbers(kappa=kappa), numbers(mu=mu)
    validate.probability(kappa=base)
    if not (distance >= 0).all():
        raise ValueError(f"mu must be >= 0, got {distance[~(distance >= 0)].flat[0]}")
    with np.errstate(divide="ignore"):
        found = raised(gdp.log_power(np.log(base), distance))
    return np.clip(np.exp(np.where(np.isnan(found), 0.0, np.minimum(found, 0))), base, 1.0)


def _pair(kappa: Any, gamma: Any) -> tuple[np.ndarray, np.ndarray]:
    base, goal = numbers(kappa=kappa), numbers(gamma=gamma)
    validate.probability(kappa=base, gamma=goal)
    base, goal = np.broadcast_arrays(base, goal)
    bad = goal < base
    if bad.any():
        raise ValueError(f"gamma must be >= kappa = {base[bad].flat[0]:g}, got {goal[bad].flat[0]:g}")
    return base, goal


def _inside(kappa: Any, gamma: Any) -> tuple[float, float]:
    base, goal = float(number(kappa=kappa)), float(number(gamma=gamma))
    if not 0 < base < 1:
        raise ValueError(f"kappa must be in (0, 1), got {kappa}")
    if not base < goal < 1:
        raise ValueError(f"gamma must be in (kappa, 1) = ({base:g}, 1), got {gamma}")
    return base, goal


def _rate(rate: Any) -> float:
    share = float(number(rate=rate))
    if not 0 < share <= 1:
        raise ValueError(f"rate must be in (0, 1], got {rate}")
    return share


def _safe(found: np.ndarray, base: np.ndarray, goal: np.ndarray) -> np.ndarray:
    found = np.where((goal == 1) | (base == 0), np.inf, found)
    return np.where(goal == base, np.where(goal == 1, np.inf, 0.0), np.maximum(found * (1 - MARGIN), 0.0))

"""Reconstruction robustness: how often any adversary can rebuild a target to within eta, given a mechanism's privacy.

The adversary knows all records but one, and a prior pi of the missing one. kappa is the success of the best guess that
does not look at the release, sup_g P[|Z - g| <= eta]; see `drjax.bounds.prior`. A reconstruction R of it is at the same
time a test between M(known + nothing) and M(known + z) that raises a false alarm with probability at most kappa, on
average over z; its power at z is the success there. Trade-off curves are concave, so that success is at most
power(kappa): `from_tradeoff`, which no general bound can beat (Hayes et al. 2023; Kaissis et al. 2023). It takes curves
of the run without the target against that with it: the relations "zero_out" and "add_or_remove", and, looser,
"replace_one".

All bounds are float64, rounded upward, in [kappa, 1]; they take kappa of any shape.

Source: Balle, Cherubin & Hayes (2022), section VII, for theorem 2 to proposition 7.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from drjax.bounds import prior
from drjax.bounds.calibration import (
    largest_epsilon,
    largest_mu,
    largest_rho,
    most_steps,
    smallest_noise_multiplier,
    success_of_mu,
)
from drjax.bounds.chain import log_power_of_chain
from drjax.bounds.closed_forms import log_power_of_zcdp, renyi_share
from drjax.bounds.curve import TradeOff, number, numbers
from drjax.bounds.gdp import single_positive
from drjax.bounds.monte_carlo import Estimate, Pair, SampledGaussianPair, monte_carlo
from drjax.bounds.mse import (
    information_of,
    mse_from_entropy,
    mse_from_prior,
    mse_without_prior,
)
from drjax.bounds.rounding import as_float, at_least, log1p_less, log_at_least, log_ratio, raised
from drjax.core import validate
from drjax.core.types import Array

__all__ = [
    "Bound",
    "Estimate",
    "Pair",
    "SampledGaussianPair",
    "from_pure_dp",
    "from_rdp",
    "from_tradeoff",
    "from_zcdp",
    "gaussian_prior",
    "information_of",
    "largest_epsilon",
    "largest_mu",
    "largest_rho",
    "monte_carlo",
    "most_steps",
    "mse_from_entropy",
    "mse_from_prior",
    "mse_without_prior",
    "smallest_noise_multiplier",
    "success_of_mu",
    "to_dp",
    "uniform_prior",
]


def from_tradeoff(kappa: Array | float, curve: TradeOff, *, n_targets: int = 1) -> np.ndarray:
    """The tight bound: the power of the best test at level kappa.

    Several unknown targets are a chain of as many neighbours, along which the curve is applied again and again (Dong,
    Roth & Su 2022, theorem 2.14); kappa is then the baseline of the joint event, see `prior.kappa_all` and
    `prior.kappa_any`.

    Args:
        kappa: Baseline success, of any shape, in [0, 1].
        curve: Trade-off curve of the mechanism.
        n_targets: Unknown records that one release is of, >= 1.

    Returns:
        Largest probability of success, of kappa's shape.

    Raises:
        ValueError: kappa outside [0, 1], n_targets < 1, or not a curve.

    Example:
        >>> from drjax.bounds import rero, tradeoff
        >>> rero.from_tradeoff([0.001, 0.1], tradeoff.Gaussian(1.0)).round(3)  # with guessing at 0.1% and at 10%
        array([0.018, 0.389])
    """
    if not isinstance(curve, TradeOff):
        raise ValueError(f"curve must be a trade-off curve, got {curve!r}")
    as_float(n_targets=n_targets)
    base = check_kappa(kappa)
    found = curve.power(base) if n_targets == 1 else np.exp(log_power_of_chain(curve, _log(base), n_targets))
    return np.clip(found, base, 1.0)


def from_rdp(kappa: Array | float, alpha: Array | float, epsilon: Array | float) -> np.ndarray:
    """Theorem 2: (kappa exp(epsilon))^((alpha - 1) / alpha), the least over all orders given.

    Args:
        kappa: Baseline success, any shape, in [0, 1].
        alpha: Renyi order, one or several (n,), > 1; inf is pure privacy.
        epsilon: Renyi divergence, >= 0: with one order anything that broadcasts against kappa; with several (n,) or
            (..., n).

    Returns:
        Bound of kappa's shape, or of the shape that the two broadcast to.

    Raises:
        ValueError: alpha <= 1, epsilon < 0 or nan, or shapes that do not fit.

    Example:
        >>> from drjax.bounds import rero
        >>> float(rero.from_rdp(0.001, alpha=[2, 4, 8], epsilon=[1.0, 2.0, 4.0]).round(3))  # the least over the orders
        0.025
    """
    orders, epsilons, base = numbers(alpha=alpha), numbers(epsilon=epsilon), check_kappa(kappa)
    if not (orders > 1).all():
        raise ValueError(f"alpha must be > 1, got {orders[~(orders > 1)].flat[0]}")
    if not (epsilons >= 0).all():
        raise ValueError(f"epsilon must be >= 0, got {epsilons[~(epsilons >= 0)].flat[0]}")
    if orders.ndim > 1 or not orders.size or (orders.ndim and epsilons.shape[-1:] != orders.shape):
        raise ValueError(f"alpha must be one order or as many as epsilon, got shapes {orders.shape}, {epsilons.shape}")
    with np.errstate(invalid="ignore"):
        return _rounded(_log_rdp(_log(base), orders, epsilons), base)


def _log_rdp(log_kappa: np.ndarray, orders: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    if not orders.ndim:
        return renyi_share(float(orders)) * (log_kappa + epsilons)
    best = None
    for i, order in enumerate(orders):
        bound = renyi_share(float(order)) * (log_kappa + epsilons[..., i])
        best = bound if best is None else np.minimum(best, bound)
    assert best is not None
    return best


def from_pure_dp(kappa: Array | float, epsilon: Array | float) -> np.ndarray:
    """Corollary 3: kappa exp(epsilon), for pure epsilon-differential privacy.

    `from_tradeoff` with `tradeoff.EpsilonDelta(epsilon)` is never more, and less where kappa is large.

    Args:
        kappa: Baseline success, in [0, 1].
        epsilon: Epsilon, >= 0; broadcasts against kappa.

    Raises:
        ValueError: kappa outside [0, 1], epsilon < 0 or nan.

    Example:
        >>> from drjax.bounds import rero
        >>> rero.from_pure_dp(0.001, epsilon=[1.0, 5.0]).round(3)
        array([0.003, 0.148])
    """
    return from_rdp(kappa, math.inf, epsilon)


def from_zcdp(kappa: Array | float, rho: Array | float) -> np.ndarray:
    """Corollary 4: exp(-(sqrt(log(1 / kappa)) - sqrt(rho))^2) where rho < log(1 / kappa), else 1.

    Args:
        kappa: Baseline success, in [0, 1].
        rho: Rho, >= 0; broadcasts against kappa.

    Raises:
        ValueError: kappa outside [0, 1], rho < 0 or nan.

    Example:
        >>> from drjax.bounds import rero
        >>> rero.from_zcdp(0.001, rho=[0.5, 10.0]).round(3)  # 1: nothing is guaranteed
        array([0.025, 1.   ])
    """
    base, budget = check_kappa(kappa), numbers(rho=rho)
    if not (budget >= 0).all():
        raise ValueError(f"rho must be >= 0, got {budget[~(budget >= 0)].flat[0]}")
    return _rounded(log_power_of_zcdp(_log(base), budget), base)


class Bound(NamedTuple):
    """A bound with the condition that it needs.

    Attributes:
        gamma: Largest probability of success, of the shape that the arguments broadcast to; 1 where nothing is
            certified.
        reason: Why it is 1 somewhere, and where first; or "".
    """

    gamma: np.ndarray
    reason: str


def uniform_prior(
    eta: Array | float,
    d: int,
    *,
    epsilon: Array | float | None = None,
    rho: Array | float | None = None,
    radius: float = 1.0,
) -> Bound:
    """Proposition 6: a target uniform in a ball, of which kappa is (eta / radius)^d.

    Args:
        eta: Euclidean distance that counts as success, >= 0.
        d: Dimension, >= 1.
        epsilon: Epsilon of pure privacy, or
        rho: of zCDP: one of the two; broadcasts against eta.
        radius: Radius of the ball, > 0.

    Raises:
        ValueError: an argument out of its range, both or none of epsilon and rho.

    Example:
        >>> from drjax.bounds import rero
        >>> float(rero.uniform_prior(eta=0.5, d=10, epsilon=2.0).gamma.round(4))
        0.0072
    """
    log_kappa = prior.log_kappa_uniform_ball(eta, d, radius=radius)
    rule = f"eta must be < the radius {radius:g} for anything to be hidden"
    return _of_prior(log_kappa, epsilon, rho, numbers(eta=eta), log_kappa < 0, rule)


def gaussian_prior(
    eta: Array | float,
    d: int,
    sigma: float,
    *,
    epsilon: Array | float | None = None,
    rho: Array | float | None = None,
    is_chernoff: bool = False,
) -> Bound:
    """Proposition 7: a target from N(mean, sigma^2 I), of which kappa is P[chi^2_d <= (eta / sigma)^2].

    Args:
        eta: Euclidean distance that counts as success, >= 0.
        d: Dimension, >= 1.
        sigma: Standard deviation of a feature, > 0.
        epsilon: Epsilon of pure privacy, or
        rho: of zCDP: one of the two; broadcasts against eta.
        is_chernoff: The proposition's own closed form, (b exp(1 - b))^(d / 2) for kappa with b = eta^2 / (d sigma^2),
            which needs b < 1; looser than the exact kappa.

    Raises:
        ValueError: an argument out of its range, both or none of epsilon and rho.

    Example:
        >>> from drjax.bounds import rero
        >>> rero.gaussian_prior(eta=1.5, d=10, sigma=1.0, epsilon=[1.0, 4.0]).gamma.round(3)
        array([0.016, 0.325])
    """
    distance, n, scale = prior.check_eta(eta), as_float(d=d), single_positive(sigma=sigma)
    rule = f"eta must be < sigma sqrt(d) = {scale * math.sqrt(n):g} for the closed form"
    if not is_chernoff:
        log_kappa = prior.log_kappa_gaussian(eta, d, sigma)
        return _of_prior(log_kappa, epsilon, rho, distance, np.ones_like(distance, bool), rule)
    # Upward, as the bound rises with b.
    with np.errstate(over="ignore"):
        log_square = 2 * log_ratio(distance, scale)
        b = np.exp(log_square - math.log(n)) * (1 + 1e-15 * (2 + math.log(n) + np.abs(np.maximum(log_square, -1500))))
        # Near 0 by its logarithm, which goes on where b itself is too small.
        log_kappa = n / 2 * np.where(b < 0.25, log_square - math.log(n) + 1 - b, log1p_less(np.minimum(b, 1.0) - 1))
    return _of_prior(log_kappa, epsilon, rho, distance, b < 1, rule)


def _of_prior(log_kappa: np.ndarray, epsilon: Any, rho: Any, eta: np.ndarray, is_valid: np.ndarray, rule: str) -> Bound:
    """Corollary 3 or 4 where eta is valid and the budget less than log(1 / kappa)."""
    if (epsilon is None) == (rho is None):
        raise ValueError(f"epsilon or rho must be given, and not both, got {epsilon} and {rho}")
    name, given = ("epsilon", epsilon) if rho is None else ("rho", rho)
    budget = numbers(**{name: given})
    bad = ~((budget >= 0) & (budget < math.inf))
    if bad.any():
        raise ValueError(f"{name} must be a finite number >= 0, got {budget[bad].flat[0]}")
    room, budget, eta, is_valid = np.broadcast_arrays(-log_kappa, budget, eta, is_valid)
    with np.errstate(invalid="ignore"):
        log_gamma = budget - room if rho is None else log_power_of_zcdp(-room, budget)
    fits = budget < room
    gamma = np.where(is_valid & fits, _rounded(log_gamma, np.exp(-room)), 1.0)
    if not is_valid.all():
        return Bound(gamma, f"{rule}, got {eta[~is_valid].flat[0]:g}")
    if not fits.all():
        return Bound(gamma, f"{name} must be < log(1 / kappa) = {room[~fits].flat[0]:g}, got {budget[~fits].flat[0]:g}")
    return Bound(gamma, "")


class DPGuarantee(NamedTuple):
    """(epsilon, delta)-differential privacy."""

    epsilon: float
    delta: float


def to_dp(gamma: float, p: float) -> DPGuarantee:
    """Theorem 5, the converse: robustness against all priors on two records implies differential privacy.

    Where no adversary is right with more than probability gamma, for whichever two records further than eta apart of
    which the first has probability 1 - p and the second p, the mechanism is (log((1 - p) / p), 1 - (1 - gamma) / p)-DP
    between such records, under "replace_one".

    Args:
        gamma: Largest probability of a right answer, in [1 - p, 1]: guessing has 1 - p already.
        p: Prior probability of the second record, in (0, 1/2].

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds import rero
        >>> found = rero.to_dp(gamma=0.95, p=0.1)
        >>> round(found.epsilon, 2), round(found.delta, 2)
        (2.2, 0.5)
    """
    share, success = float(number(p=p)), float(number(gamma=gamma))
    if not 0 < share <= 0.5:
        raise ValueError(f"p must be in (0, 0.5], got {p}")
    if not 1 - share <= success <= 1:
        raise ValueError(f"gamma must be in [1 - p, 1] = [{1 - share:g}, 1], got {gamma}")
    odds, delta = (1 - Fraction(share)) / Fraction(share), 1 - (1 - Fraction(success)) / Fraction(share)
    return DPGuarantee(log_at_least(odds), at_least(max(delta, Fraction(0)), gamma=gamma, p=p))


def check_kappa(kappa: Any) -> np.ndarray:
    """Baselines as float64.

    Raises:
        ValueError: not real numbers, nan, or outside [0, 1].
    """
    base = numbers(kappa=kappa)
    validate.probability(kappa=base)
    return base


def _log(base: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(base)


def _rounded(log_gamma: np.ndarray, base: np.ndarray) -> np.ndarray:
    """A logarithm to what it is of, upward, in [kappa, 1]; what is not a number certifies nothing."""
    found = np.where(np.isnan(log_gamma), 0.0, np.minimum(raised(log_gamma), 0))
    # What is too small for float64 is not 0.
    return np.clip(np.where(found > -np.inf, np.maximum(np.exp(found), np.nextafter(0, 1)), 0.0), base, 1.0)

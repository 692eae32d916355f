"""Lower bounds on the mean squared error of any reconstruction: by the prior's entropy, by its kappa, and without one.

All are total squared errors E|x - x_hat|^2; over the dimension d they are the MSE of `drjax.attacks.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaln

from drjax.bounds.closed_forms import ZCDP, EpsilonDelta, Gaussian, Laplace, check_finite
from drjax.bounds.curve import TradeOff, number, numbers
from drjax.bounds.gdp import single_positive
from drjax.bounds.rounding import LARGEST, SLACK, as_float, log1p_less
from drjax.core import validate
from drjax.core.types import Array

NOISES = ("gaussian", "laplace")


def entropy_gaussian(d: int, sigma: float) -> float:
    """Differential entropy in nats of N(mean, sigma^2 I): d / 2 log(2 pi e sigma^2)."""
    n, scale = as_float(d=d), single_positive(sigma=sigma)
    return _finite(n / 2 * (math.log(2 * math.pi * math.e) + 2 * math.log(scale)), d=d, sigma=sigma)


def entropy_uniform_ball(d: int, radius: float) -> float:
    """Differential entropy in nats of the uniform distribution in a ball: the logarithm of its volume."""
    n, size = as_float(d=d), single_positive(radius=radius)
    found = n / 2 * math.log(math.pi) - float(gammaln(n / 2 + 1)) + n * math.log(size)
    return _finite(found, d=d, radius=radius)


def information_of(curve: TradeOff) -> float:
    """Largest mutual information, in nats, of a target and the release.

    It is at most the mean divergence of the run with the target from that without: mu^2 / 2 for mu-GDP, rho for zCDP,
    epsilon tanh(epsilon / 2) for pure privacy, and mu - 1 + exp(-mu) for one number with Laplace noise. Rounded up.

    Raises:
        ValueError: another curve; (epsilon, delta) with delta > 0 bounds no divergence; one of more than 1.8e308.

    Example:
        >>> from drjax.bounds import rero, tradeoff
        >>> [round(rero.information_of(curve), 2) for curve in (tradeoff.Gaussian(1.0), tradeoff.EpsilonDelta(1.0))]
        [0.5, 0.46]
    """
    match curve:
        case Gaussian():
            size, found = curve.mu, curve.mu * curve.mu / 2
        case ZCDP():
            size, found = curve.rho, curve.rho
        case EpsilonDelta(delta=0.0):
            size, found = curve.epsilon, curve.epsilon * math.tanh(curve.epsilon / 2)
        case Laplace():
            x = math.expm1(-curve.mu)
            # The sum cancels where mu is small: with this x it is x - log(1 + x).
            size, found = curve.mu, curve.mu + x if curve.mu > 1 else -float(log1p_less(x))
        case _:
            raise ValueError(f"curve must be Gaussian, ZCDP, Laplace or pure EpsilonDelta, got {curve!r}")
    # What is too small for float64 is not 0.
    return _finite(max(found * (1 + SLACK), math.nextafter(0.0, 1.0)), curve=curve) if size else 0.0


def mse_from_entropy(entropy: float, d: int, information: float) -> float:
    """d / (2 pi e) exp(2 (entropy - information) / d): Shannon's lower bound on the rate of a distortion.

    Exact for Gaussian priors: d sigma^2 exp(-2 information / d).

    Args:
        entropy: Differential entropy of the target in nats, finite; `entropy_gaussian`, `entropy_uniform_ball`.
        d: Dimension, >= 1.
        information: Mutual information of target and release in nats, >= 0; see `information_of`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> import math
        >>> from drjax.bounds import rero
        >>> entropy = 0.5 * math.log(2 * math.pi * math.e)  # of N(0, 1)
        >>> round(rero.mse_from_entropy(entropy, d=1, information=0.5), 3)  # of the 1 that guessing the mean leaves
        0.368
    """
    n, value = as_float(d=d), float(number(entropy=entropy))
    if not math.isfinite(value):
        raise ValueError(f"entropy must be finite, got {entropy}")
    exponent = (value - check_finite(information=information)) / n * 2
    if exponent > 700:
        raise ValueError(f"entropy must be at most {350 * n:g} above information for a finite error, got {entropy}")
    found = n / (2 * math.pi * math.e) * math.exp(exponent - SLACK * max(1.0, abs(exponent)))
    return _finite(found, entropy=entropy, d=d)


def mse_from_prior(kappa_of: Callable[[np.ndarray], Any], curve: TradeOff, largest: float, n: int = 4096) -> float:
    """A lower bound by reconstruction robustness at every radius: the integral of 1 - power(kappa(eta)) over eta^2.

    Args:
        kappa_of: Function from distances (m,) to kappa (m,), not decreasing, such as
            `lambda eta: prior.kappa_gaussian(eta, d, s)`.
        curve: Trade-off curve of the mechanism.
        largest: Distance up to which it is integrated, > 0; no more than the longest that occurs.
        n: Cells, >= 1; the sum is below the integral for any number.

    Raises:
        ValueError: an argument out of its range, or a kappa that falls.

    Example:
        >>> from drjax.bounds import prior, rero, tradeoff
        >>> curve = tradeoff.Gaussian(0.5)
        >>> round(rero.mse_from_prior(lambda eta: prior.kappa_gaussian(eta, 10, 1.0), curve, largest=10.0), 1)  # of 10
        8.0
    """
    size = single_positive(largest=largest)
    validate.integer(n=n)
    if size > math.sqrt(LARGEST):
        raise ValueError(f"largest must be at most {math.sqrt(LARGEST):g}, whose square is finite, got {largest!r}")
    eta = size * np.linspace(0, 1, n + 1)
    kappa = numbers(kappa=kappa_of(eta))
    validate.probability(kappa=kappa)
    if kappa.shape != eta.shape or (np.diff(kappa) < -1e-12).any():
        raise ValueError(f"kappa_of must give as many numbers as distances, not decreasing, got shape {kappa.shape}")
    gamma = curve.power(kappa)
    # Success grows with the distance: on each cell that at its right end is the largest.
    return float(np.sum((1 - gamma[1:]) * np.diff(eta**2))) * (1 - SLACK)


def mse_without_prior(scale: float, *, noise: str, jacobian: Array | None = None, d: int | None = None) -> float:
    """No adversary does better everywhere without a prior: scale^2 trace((J^T J)^-1), the Cramer-Rao bound.

    A release is J x plus independent noise on each entry. Estimators without bias have at least this error at every x,
    and all others at some x (van Trees' inequality with ever wider priors). With Gaussian noise least squares attain
    it; one number with Laplace noise by itself leaves 2 scale^2.

    Args:
        scale: Standard deviation of Gaussian noise, or scale b of Laplace noise exp(-|t| / b) / 2b, > 0.
        noise: "gaussian" or "laplace".
        jacobian: (p, d), of a linear release; or
        d: the dimension, if x itself is released.

    Returns:
        Bound on the mean squared error, inf where J has directions that it does not show, as far as float64 can tell.

    Raises:
        ValueError: an argument out of its range, or both or none of jacobian and d.

    Example:
        >>> from drjax.bounds import rero
        >>> round(rero.mse_without_prior(0.5, noise="gaussian", d=4), 3)
        1.0
        >>> rero.mse_without_prior(0.5, noise="gaussian", jacobian=[[1.0, 0.0]])  # the second entry is not shown
        inf
    """
    size = single_positive(scale=scale)
    validate.one_of(NOISES, noise=noise)
    if (jacobian is None) == (d is None):
        raise ValueError(f"jacobian or d must be given, and not both, got {jacobian!r} and {d!r}")
    if jacobian is None:
        return _finite(size * (size * as_float(d=d)), scale=scale, d=d) * (1 - SLACK)
    j = validate.matrix(jacobian, "jacobian").astype(np.float64)
    values = np.linalg.svd(j, compute_uv=False)
    if j.shape[0] < j.shape[1] or values[-1] <= values[0] * max(j.shape) * np.finfo(np.float64).eps:
        return math.inf
    # Each singular value is off by some roundings of the largest one.
    values = values + values[0] * max(j.shape) * np.finfo(np.float64).eps
    with np.errstate(over="ignore"):
        return _finite(float(np.sum((size / values) ** 2)), scale=scale, jacobian=j.shape) * (1 - SLACK)


def _finite(value: float, **given: Any) -> float:
    if not math.isfinite(value):
        text = ", ".join(f"{name} {it!r}" for name, it in given.items())
        raise ValueError(f"{' and '.join(given)} must give a result of at most {LARGEST:g}, got {text}")
    return value

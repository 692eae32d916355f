"""Baseline success kappa: how often the best guess is within eta of the target before anything is released.

kappa(eta) = sup_g P[error(Z, g) <= eta] (Balle, Cherubin & Hayes 2022, definition 2). It is about the prior alone: what
the adversary knows of the target beside the other records. Everything here is rounded upward; a kappa too small for
float64 is returned as the smallest positive number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import gammainc, gammaln

from drjax.bounds.audit_statistics import binomial_high, binomial_low
from drjax.bounds.curve import number, numbers
from drjax.bounds.gdp import single_positive
from drjax.bounds.rounding import SLACK, as_float, at_least, log1p_less, log_ratio, raised
from drjax.core import validate
from drjax.core.types import Array

SAFE_A = 5e3
"""Shape up to which SciPy's incomplete gamma function is good to its last digits; at 5e5 it is 3e-8 too small."""

MOST_TERMS = 20_000
"""Terms of a series whose rest is bounded; enough for all digits to a shape of some 1e7."""

Error = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function from records (n, d) and guesses (m, d) to their errors (n, m)."""


def kappa_uniform_ball(eta: Array | float, d: int, *, radius: float = 1.0) -> np.ndarray:
    """min(1, eta / radius)^d: a target uniform in a Euclidean ball; the best guess is its centre.

    Args:
        eta: Euclidean distance, of any shape, >= 0; sqrt(d) times the root of a mean squared error.
        d: Dimension, >= 1.
        radius: Radius of the ball, > 0.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.prior import kappa_uniform_ball
        >>> kappa_uniform_ball([0.5, 1.0], d=10).round(4)
        array([0.001, 1.   ])
    """
    return _upward(log_kappa_uniform_ball(eta, d, radius=radius), numbers(eta=eta))


def log_kappa_uniform_ball(eta: Array | float, d: int, *, radius: float = 1.0) -> np.ndarray:
    """Natural logarithm of `kappa_uniform_ball`, where that is too small.

    Example:
        >>> from drjax.bounds.prior import log_kappa_uniform_ball
        >>> float(log_kappa_uniform_ball(0.5, d=10_000).round())  # kappa itself is less than the smallest float64
        -6931.0
    """
    distance, n, size = check_eta(eta), as_float(d=d), single_positive(radius=radius)
    with np.errstate(over="ignore"):
        return np.minimum(n * log_ratio(distance, size), 0.0)


def kappa_gaussian(eta: Array | float, d: int, sigma: float) -> np.ndarray:
    """P[chi^2_d <= (eta / sigma)^2]: a target from N(mean, sigma^2 I); the best guess is the mean.

    Args:
        eta: Euclidean distance, of any shape, >= 0.
        d: Dimension, >= 1.
        sigma: Standard deviation of a feature, > 0.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.prior import kappa_gaussian
        >>> kappa_gaussian([1.5, 3.0], d=10, sigma=1.0).round(3)
        array([0.006, 0.468])
    """
    return _upward(log_kappa_gaussian(eta, d, sigma), numbers(eta=eta))


def log_kappa_gaussian(eta: Array | float, d: int, sigma: float) -> np.ndarray:
    """Natural logarithm of `kappa_gaussian`, where that is too small.

    Example:
        >>> from drjax.bounds.prior import log_kappa_gaussian
        >>> float(log_kappa_gaussian(1.0, d=10_000, sigma=1.0).round(-2))
        -41100.0
    """
    distance, a, scale = check_eta(eta), as_float(d=d) / 2, single_positive(sigma=sigma)
    log_x = 2 * log_ratio(distance, scale) - math.log(2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        # Upward, as the probability rises with x.
        x = np.asarray(np.exp(log_x) * (1 + 2e-15 * np.maximum(1, np.abs(np.where(np.isfinite(log_x), log_x, 0.0)))))
        found = np.array(np.log(gammainc(a, x)))
        is_hard = np.asarray((x < a) & ((found < -600) | (a > SAFE_A)) & (distance > 0))
        found[is_hard] = _log_gamma_series(a, x[is_hard], log_x[is_hard])
    return np.minimum(found, 0.0)


def _log_gamma_series(a: float, x: np.ndarray, log_x: np.ndarray) -> np.ndarray:
    """log P(a, x) for x < a, where SciPy's function underflows or stops too early; upward.

    x^a e^-x / Gamma(a + 1) times 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...: what is left of the sum is below a
    geometric series of the ratio of the last two terms.
    """
    # a log x - x - log Gamma(a + 1), by Stirling's formula where each of them is large.
    if a > 20:
        correction = 1 / (12 * a) - 1 / (360 * a**3) + 1 / (1260 * a**5) - 1 / (1680 * a**7)
        near = a * log1p_less(np.maximum(x / a, 0.25) - 1)
        far = a * (log_x - math.log(a) + 1) - x
        front = np.where(x / a < 0.25, far, near) - math.log(2 * math.pi * a) / 2 - correction
    else:
        front = a * log_x - x - gammaln(a + 1)
    total, term = np.ones_like(x), np.ones_like(x)
    for k in range(1, MOST_TERMS):
        term = term * (x / (a + k))
        total = total + term
        if k % 16 == 0 and np.all(term < 1e-17 * total):
            break
    else:
        k = MOST_TERMS - 1
    return front + np.log(total + term * x / (a + k + 1 - x))


def kappa_discrete(k: int) -> float:
    """1 / k: a target that is one of k candidates, all alike, to be named exactly.

    Raises:
        ValueError: k < 1.

    Example:
        >>> from drjax.bounds.prior import kappa_discrete
        >>> kappa_discrete(4)
        0.25
    """
    as_float(k=k)
    return at_least(Fraction(1, int(k)), k=k)


def kappa_exact_match(probabilities: Array) -> float:
    """The largest probability: a target from a finite set, to be named exactly.

    Args:
        probabilities: (k,) in [0, 1], of sum 1 to 1e-9.

    Raises:
        ValueError: otherwise.

    Example:
        >>> from drjax.bounds.prior import kappa_exact_match
        >>> kappa_exact_match([0.7, 0.2, 0.1])  # naming the commonest is right that often
        0.7
    """
    p = numbers(probabilities=probabilities)
    if p.ndim != 1 or not p.size:
        raise ValueError(f"probabilities must be a non-empty vector, got shape {p.shape}")
    validate.probability(probabilities=p)
    if not abs(p.sum() - 1) <= 1e-9:
        raise ValueError(f"probabilities must have the sum 1, got {p.sum()}")
    return float(p.max())


def kappa_all(kappa: Array | float, n_targets: int) -> np.ndarray:
    """kappa^n: all of n independent targets, for `rero.from_tradeoff` with as many.

    Example:
        >>> from drjax.bounds.prior import kappa_all, kappa_any
        >>> float(kappa_all(0.1, 2).round(2)), float(kappa_any(0.1, 2).round(2))
        (0.01, 0.19)
    """
    n, base = as_float(n_targets=n_targets), numbers(kappa=kappa)
    validate.probability(kappa=base)
    with np.errstate(divide="ignore", over="ignore"):
        return _upward(n * np.log(base), base)


def kappa_any(kappa: Array | float, n_targets: int) -> np.ndarray:
    """1 - (1 - kappa)^n: at least one of n independent targets, for `rero.from_tradeoff` with as many.

    Example:
        >>> from drjax.bounds.prior import kappa_any
        >>> kappa_any([0.01, 0.1], n_targets=10).round(3)
        array([0.096, 0.651])
    """
    n, base = as_float(n_targets=n_targets), numbers(kappa=kappa)
    validate.probability(kappa=base)
    with np.errstate(divide="ignore", over="ignore"):
        found = np.minimum(-np.expm1(n * np.log1p(-base)) * (1 + SLACK), 1.0)
    return np.where(base > 0, np.maximum(found, np.nextafter(0, 1)), 0.0)


class EmpiricalKappa(NamedTuple):
    """What samples say of a prior.

    Attributes:
        kappa: Success of the best guess that was found, on samples that it was not chosen on.
        lower: Lower end of its confidence interval; no larger than the true kappa, with that confidence.
        upper: Upper end, of this one guess.
        upper_of_all: No smaller than the true kappa of any guess at all, with that confidence; 1 where the error is not
            known to be a metric. What a bound has to be computed from.
        guess: (d,) the best guess.
        confidence: Confidence of each end of an interval by itself.
    """

    kappa: float
    lower: float
    upper: float
    upper_of_all: float
    guess: np.ndarray
    confidence: float


def euclidean(records: np.ndarray, guesses: np.ndarray) -> np.ndarray:
    """Euclidean distances (n, m) of records (n, d) to guesses (m, d).

    Example:
        >>> import numpy as np
        >>> from drjax.bounds.prior import euclidean
        >>> euclidean(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]]))
        array([[0.],
               [5.]])
    """
    return cdist(records, guesses)


def kappa_empirical(
    samples: Array,
    eta: float,
    error: Error = euclidean,
    *,
    guesses: Array | None = None,
    is_metric: bool | None = None,
    confidence: float = 0.95,
    max_guesses: int = 2000,
) -> EmpiricalKappa:
    """kappa of a prior that only samples are known of.

    Half of the samples choose the guess, among the mean, themselves and `guesses`; the others say how good it is.
    Guesses that nobody thought of are bounded by disjoint pairs of samples. Two records within eta of one guess are
    within 2 eta of each other, so that kappa^2 <= P[error(Z, Z') <= 2 eta] for any metric. For Euclidean distances the
    mean of their square is also at most 2 eta^2, so that kappa^2 is at most the largest share of pairs, the nearest
    ones, of such a mean.

    Args:
        samples: (n, d) independent draws, in no order, n >= 4.
        eta: Largest error that counts as success, >= 0, in units of the error.
        error: Euclidean distance if not given; see `Error`.
        guesses: (m, d) further ones.
        is_metric: Whether the error is symmetric and obeys the triangle inequality; by default for `euclidean` alone.
        confidence: Confidence of each end of the intervals, in (0, 1).
        max_guesses: Samples that are tried as guesses, >= 1.

    Returns:
        `EmpiricalKappa`. Costs n / 2 * min(n / 2, max_guesses) errors.

    Raises:
        ValueError: an argument out of its range, or errors that are nan.

    Example:
        >>> import drjax
        >>> from drjax.bounds.prior import kappa_empirical
        >>> found = kappa_empirical(drjax.load("digits").x[:200], eta=1.5)
        >>> found.lower <= found.kappa <= found.upper_of_all
        True
    """
    x = validate.matrix(samples, "samples", min_rows=4).astype(np.float64)
    radius = float(check_eta(number(eta=eta)))
    validate.integer(max_guesses=max_guesses)
    if not 0 < float(number(confidence=confidence)) < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    half, tail = len(x) // 2, 1 - confidence
    chosen, held_out = x[:half], x[half:]
    tried = [chosen.mean(axis=0)[None], chosen[:max_guesses]]
    if guesses is not None:
        tried.append(validate.matrix(guesses, "guesses", columns=x.shape[1]).astype(np.float64))
    candidates = np.concatenate(tried)
    within = _errors(error, chosen, candidates) <= radius
    counts = within.sum(axis=0)
    # A record says nothing for a guess that is itself.
    own = np.arange(min(half, max_guesses))
    counts[1 + own] -= within[own, 1 + own]
    guess = candidates[int(np.argmax(counts))]
    hits = int(np.sum(_errors(error, held_out, guess[None]) <= radius))
    everyone = 1.0
    if is_metric or (is_metric is None and error is euclidean):
        pairs = zip(x[0 : 2 * half : 2], x[1 : 2 * half : 2], strict=True)
        apart = np.array([float(_errors(error, a[None], b[None])[0, 0]) for a, b in pairs])
        # What is computed of equal distances may differ.
        reach = 2 * radius * (1 + 1e-9)
        if error is euclidean:
            # The better of two statements that may each fail: half of what may go wrong to each.
            collisions = float(binomial_high(np.sum(apart <= reach), half, tail / 2))
            met = min(collisions, _near_share(apart**2, radius**2, 1 - tail / 2))
        else:
            met = float(binomial_high(np.sum(apart <= reach), half, tail))
        everyone = math.sqrt(met)
    return EmpiricalKappa(
        hits / len(held_out),
        float(binomial_low(hits, len(held_out), tail)),
        float(binomial_high(hits, len(held_out), tail)),
        max(everyone, hits / len(held_out)),
        guess,
        confidence,
    )


def _near_share(squares: np.ndarray, radius: float, confidence: float) -> float:
    """Upper bound on the largest share s of pairs, the nearest ones, whose mean squared distance is at most 2 radius.

    The quantile function of the squares is at least that of the samples, shifted to the right by the one-sided bound
    of Dvoretzky, Kiefer, Wolfowitz & Massart, and 0 before.
    """
    n = len(squares)
    shift = math.sqrt(-math.log(1 - confidence) / (2 * n))
    # The mean over the lowest shift + i / n, after each sample; it rises.
    mass = shift + np.arange(1, n + 1) / n
    mean = np.cumsum(np.sort(squares)) / n / mass
    within = int(np.searchsorted(mean, 2 * radius * (1 + 1e-9), side="right"))
    return min(1.0, shift + (within + 1) / n)


def _errors(error: Error, records: np.ndarray, guesses: np.ndarray) -> np.ndarray:
    found = np.asarray(error(records, guesses), np.float64)
    if found.shape != (len(records), len(guesses)) or np.isnan(found).any():
        raise ValueError(f"error must give ({len(records)}, {len(guesses)}) numbers, got shape {found.shape}, or nan")
    return found


def check_eta(eta: Any) -> np.ndarray:
    """Distances as float64.

    Raises:
        ValueError: not real numbers, nan, or < 0.

    Example:
        >>> from drjax.bounds.prior import check_eta
        >>> check_eta([0, 1]).dtype
        dtype('float64')
    """
    distance = numbers(eta=eta)
    bad = ~(distance >= 0)
    if bad.any():
        raise ValueError(f"eta must be >= 0, got {distance[bad].flat[0]}")
    return distance


def _upward(log_kappa: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """exp, upward, and the smallest number in the place of 0 unless success is impossible."""
    found = np.minimum(np.exp(np.minimum(raised(log_kappa), 0)), 1.0)
    return np.where(possible > 0, np.maximum(found, np.nextafter(0, 1)), 0.0)

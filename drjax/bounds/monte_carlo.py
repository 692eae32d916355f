"""Trade-off curves by simulation, for mechanisms whose likelihood ratio is known and whose curve is not.

The idea is that of Hayes, Mahloujifar & Balle (2023), here with draws on both sides. What is certified comes from
Neyman & Pearson's lemma: a threshold that the run without the target surely passes with probability at least kappa has
a power, with the target, of at least that of the best test at level kappa, and that power is a share to be counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.stats import binom

from drjax.bounds.audit_statistics import binomial_high
from drjax.bounds.curve import number, numbers
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.types import Array


class Pair(Protocol):
    """The two distributions of a mechanism's output."""

    def draw(self, rng: np.random.Generator, n: int, *, has_target: bool) -> np.ndarray:
        """n independent outputs, with a leading axis n, with or without the target."""
        ...

    def log_ratio(self, outputs: np.ndarray) -> np.ndarray:
        """(n,) logarithms of the density with the target over that without."""
        ...


@dataclass(frozen=True, kw_only=True)
class SampledGaussianPair:
    """The worst pair of DP-SGD with Poisson batches: every step shows N(b, noise_multiplier^2), b drawn with that rate.

    Attributes:
        noise_multiplier: Noise multiplier, > 0.
        rate: Sampling rate, in [0, 1].
        steps: Number of steps, >= 1.

    Example:
        >>> import numpy as np
        >>> from drjax.bounds import rero
        >>> pair = rero.SampledGaussianPair(noise_multiplier=1.0, rate=0.1, steps=10)
        >>> round(float(rero.monte_carlo(0.1, pair, rng=np.random.default_rng(0), n=2000).gamma), 1)  # guessing has 0.1
        0.2
    """

    noise_multiplier: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        """Checks every field."""
        check_positive(noise_multiplier=self.noise_multiplier)
        validate.probability(rate=number(rate=self.rate))
        validate.integer(steps=self.steps)

    def draw(self, rng: np.random.Generator, n: int, *, has_target: bool) -> np.ndarray:
        """(n, steps) noisy sums."""
        noise = self.noise_multiplier * rng.standard_normal((n, self.steps))
        return noise + (rng.random((n, self.steps)) < self.rate) if has_target else noise

    def log_ratio(self, outputs: np.ndarray) -> np.ndarray:
        """Sum over steps of log(1 - rate + rate exp((2 x - 1) / (2 noise_multiplier^2)))."""
        exponent = (2 * outputs - 1) / (2 * self.noise_multiplier**2)
        with np.errstate(divide="ignore"):
            present, absent = np.log(self.rate) + exponent, np.log1p(-self.rate)
        return np.logaddexp(present, absent).sum(axis=1)


class Estimate(NamedTuple):
    """Success by simulation, of the shape of kappa.

    Attributes:
        gamma: Point estimates.
        upper: Upper bounds, each of which holds with the confidence; 1 where nothing is certified.
        confidence: Confidence of each interval by itself.
        n: Draws of each side.
        reason: Why a bound is 1, or "".
    """

    gamma: np.ndarray
    upper: np.ndarray
    confidence: float
    n: int
    reason: str


def monte_carlo(
    kappa: Array | float,
    pair: Pair,
    *,
    rng: np.random.Generator,
    n: int = 100_000,
    confidence: float = 0.99,
    batch_size: int = 10_000,
) -> Estimate:
    """Largest success of any reconstruction, estimated and certified.

    Args:
        kappa: Baseline success, of any shape, in [0, 1].
        pair: The mechanism's outputs and their likelihood ratio.
        rng: Random generator of the draws.
        n: Draws of each side, >= 1; a certificate near kappa needs several times 1 / kappa.
        confidence: Confidence of the interval, in (0, 1), half of what is missing to 1 on each side.
        batch_size: Outputs held at a time, >= 1.

    Raises:
        ValueError: an argument out of its range, or ratios that are nan or of another shape than (draws,).

    Example:
        >>> import numpy as np
        >>> from drjax.bounds import rero
        >>> pair = rero.SampledGaussianPair(noise_multiplier=1.0, rate=0.1, steps=10)
        >>> found = rero.monte_carlo(0.1, pair, rng=np.random.default_rng(0), n=2000)
        >>> bool(0.1 < found.gamma < found.upper < 0.6)
        True
    """
    base = numbers(kappa=kappa)
    validate.probability(kappa=base)
    validate.integer(n=n, batch_size=batch_size)
    if not 0 < float(number(confidence=confidence)) < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    without = np.sort(_ratios(pair, rng, n, batch_size, has_target=False))[::-1]
    with_target = np.sort(_ratios(pair, rng, n, batch_size, has_target=True))
    error = (1 - confidence) / 2
    levels = base.ravel()
    gamma, upper, reason = np.ones_like(levels), np.ones_like(levels), ""
    for i, level in enumerate(levels):
        if level == 1:
            continue
        gamma[i] = max(level, _passing(with_target, without[min(n - 1, math.ceil(n * level))]) / n)
        # At least this many of n draws reach a region of probability below kappa with probability <= error.
        rank = int(binom.isf(error, n, level)) + 1
        while rank <= n and binom.sf(rank - 1, n, level) > error:
            rank += 1
        if rank > n:
            reason = f"kappa {level:g} is too near 1 for {n} draws"
            continue
        hits = _passing(with_target, without[rank - 1])
        upper[i] = max(level, float(binomial_high(hits, n, error)))
    return Estimate(gamma.reshape(base.shape), upper.reshape(base.shape), confidence, n, reason)


def _passing(ascending: np.ndarray, threshold: float) -> int:
    return len(ascending) - int(np.searchsorted(ascending, threshold, side="left"))


def _ratios(pair: Pair, rng: np.random.Generator, n: int, batch_size: int, *, has_target: bool) -> np.ndarray:
    parts = []
    for begin in range(0, n, batch_size):
        size = min(batch_size, n - begin)
        found = np.asarray(pair.log_ratio(pair.draw(rng, size, has_target=has_target)), np.float64)
        if found.shape != (size,) or np.isnan(found).any():
            raise ValueError(f"log_ratio must give ({size},) numbers, got shape {found.shape}, or nan")
        parts.append(found)
    return np.concatenate(parts)

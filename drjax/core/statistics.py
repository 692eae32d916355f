"""Confidence intervals and tests: the one home of every interval in the project. Host, float64.

Two-sided at 95% unless a level is given. A one-sided test at level L reads one end of the two-sided interval at
2 L - 1. `drjax.bounds` rounds the Clopper-Pearson ends outward; the interval of an AUC is with the AUC, in
`drjax.attacks.roc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri, stdtrit

from drjax.core import validate


class Interval(NamedTuple):
    """An estimate with its two-sided confidence bounds; nan where nothing could be estimated."""

    estimate: float
    low: float
    high: float


UNKNOWN = Interval(math.nan, math.nan, math.nan)

AT_ONCE = 2**20
"""Numbers that are drawn again in one step."""


class Moments(NamedTuple):
    """Means and sums of squared deviations of arrays of one shape; those of parts add up, whoever made them.

    Source: Chan, Golub & LeVeque (1983).

    Attributes:
        count: Number of arrays.
        mean: Mean of each entry, in the shape of the arrays.
        squares: Sum of the squared deviations of each entry from its mean, in the same shape.

    Example:
        >>> import numpy as np
        >>> from drjax.core.statistics import Moments
        >>> x = np.arange(10.0)
        >>> whole = Moments.of(x[:3]).merged(Moments.of(x[3:]))
        >>> whole.count, float(whole.mean), round(float(whole.squares), 9)
        (10, 4.5, 82.5)
    """

    count: int
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: Any) -> Moments:
        """Moments of the rows of values (m, ...), m >= 1."""
        rows = np.asarray(values, np.float64)
        mean = rows.mean(axis=0)
        return cls(len(rows), mean, ((rows - mean) ** 2).sum(axis=0))

    def merged(self, other: Moments) -> Moments:
        """Moments of the arrays of both."""
        count = self.count + other.count
        step = other.mean - self.mean
        share = other.count / count
        return Moments(count, self.mean + share * step, self.squares + other.squares + self.count * share * step**2)


def spread_rows(n: int, most: int) -> np.ndarray:
    """Numbers (m,) of at most so many of n rows, evenly over the whole file: all of them, or the first and the last."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def standard_error(values: Any) -> Any:
    """Standard error of the mean over the rows of values (n, ...) with n >= 2; a float for n numbers."""
    table = np.asarray(values, np.float64)
    return table.std(axis=0, ddof=1) / math.sqrt(len(table))


def half_width(values: Any, *, level: float = 0.95) -> Any:
    """Half of Student's interval of the mean over the rows of values (n, ...) with n >= 2; a float for n numbers.

    Source: Student, "The probable error of a mean" (1908).
    """
    return stdtrit(len(values) - 1, (1 + level) / 2) * standard_error(values)


def mean_interval(
    values: Any, *, level: float = 0.95, lowest: float = -math.inf, highest: float = math.inf
) -> Interval:
    """Mean of n numbers with Student's interval, cut to the range that the numbers have by definition.

    One number has no interval: both ends are nan. `UNKNOWN` where a number is not finite, or without any. Give paired
    differences for the interval of a paired comparison.

    Args:
        values: (n,).
        level: Confidence level, in (0, 1).
        lowest: Least value possible.
        highest: Greatest value possible.
    """
    numbers = np.asarray(values, np.float64)
    if not len(numbers) or not np.isfinite(numbers).all():
        return UNKNOWN
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(half_width(numbers, level=level))
    return Interval(mean, max(lowest, mean - half), min(highest, mean + half))


def normal_quantile(level: float = 0.95) -> float:
    """Standard deviations that a normal variable stays within with probability `level`: 1.96 for 0.95."""
    return float(ndtri((1 + level) / 2))


def share_interval(count: int, total: int, *, level: float = 0.95) -> Interval:
    """The share count / total in [0, 1] with its exact Clopper-Pearson interval; nan if total is 0.

    Raises:
        ValueError: count outside [0, total] or level outside (0, 1).
    """
    validate.integer(minimum=0, count=count, total=total)
    validate.at_most(total, "total", count=count)
    validate.open_unit(level=level)
    if total == 0:
        return UNKNOWN
    tail = (1 - level) / 2
    low, high = clopper_pearson_low(count, total, tail), clopper_pearson_high(count, total, tail)
    return Interval(count / total, float(low), float(high))


def clopper_pearson_low(count: Any, total: int, tail: float) -> np.ndarray:
    """Lower end for a share, too high with probability at most `tail` before rounding; counts of any shape.

    Source: Clopper & Pearson, "The use of confidence or fiducial limits" (1934).
    """
    k = np.asarray(count, np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), total - k + 1, tail), 0.0)


def clopper_pearson_high(count: Any, total: int, tail: float) -> np.ndarray:
    """Upper end for a share, too low with probability at most `tail` before rounding; counts of any shape."""
    k = np.asarray(count, np.float64)
    return np.where(k < total, betainccinv(k + 1, np.maximum(total - k, 1), tail), 1.0)


def paired_share_interval(gained: int, lost: int, total: int, *, level: float = 0.95) -> Interval:
    """Difference of two shares of the same `total` cases, by the cases in which only one of the two holds.

    The interval is that of gained / (gained + lost), so that its sign is exact: it leaves out 0 where McNemar's test
    rejects. Where no case differs, its ends are those that not one of `total` cases leaves possible.

    Args:
        gained: Cases in which only the first holds.
        lost: Cases in which only the second holds.
        total: Number of all cases, >= 1.
        level: Confidence level, in (0, 1).

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions" (1947).
    """
    n = gained + lost
    if n == 0:
        width = share_interval(0, total, level=level).high
        return Interval(0.0, -width, width)
    share = share_interval(gained, n, level=level)
    return Interval(*((2 * value - 1) * n / total for value in share))


def resampled(
    rng: np.random.Generator, sample: np.ndarray, statistic: Callable[[np.ndarray], Any], n_resamples: int
) -> np.ndarray:
    """(n_resamples, ...) values of a statistic of as many rows as the sample (n, ...) has, drawn with replacement.

    Args:
        rng: Draws the rows.
        sample: (n, ...).
        statistic: Values (b, ...) of samples (b, n, ...).
        n_resamples: Samples drawn, >= 1.
    """
    n, step = len(sample), max(1, AT_ONCE // sample.size)
    counts = [min(step, n_resamples - done) for done in range(0, n_resamples, step)]
    return np.concatenate([statistic(sample[rng.integers(n, size=(count, n))]) for count in counts])


def percentile_interval(estimate: float, draws: np.ndarray, *, level: float = 0.95, method: Any = "linear") -> Interval:
    """Percentile bootstrap: an estimate with the quantiles of its resampled values (b,), from `resampled`.

    Args:
        estimate: Value of the statistic on the sample itself.
        draws: (b,); with infinite values, `method` must not interpolate.
        level: Confidence level, in (0, 1).
        method: Rule of `numpy.quantile` for levels between two draws.

    Source: Efron, "Bootstrap methods: another look at the jackknife" (1979).
    """
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], method=method)
    return Interval(float(estimate), float(low), float(high))


def prediction_interval(values: np.ndarray, *, level: float = 0.9) -> Interval:
    """Mean, and the ends of a range that a further draw is in with probability `level`, whatever the law.

    It lies below the i-th of n draws with probability i / (n + 1). Quantiles of the draws themselves, which take
    (i - 1) / (n - 1) for it, hold 89% of further ones at 200 draws and 86% at 50. Fewer than 2 / (1 - level) - 1 draws
    do not reach so far: then the ends are the least and the greatest of them.
    """
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="weibull")
    return Interval(float(values.mean()), float(low), float(high))


def conformal_radius(residuals: np.ndarray, level: float) -> float:
    """The ceil((r + 1) level)-th smallest of r ascending residuals; infinite if there are fewer.

    A further residual, exchangeable with these, is at most that with probability `level` or more.

    Raises:
        ValueError: level not in (0, 1).

    Source: Vovk, Gammerman & Shafer (2005); Lei et al. (2018), theorem 2.2.
    """
    validate.open_unit(level=level)
    # Rounding must not raise the rank: 0.9 * 10 is 9, in floating point too, but 0.7 * 10 is not quite 7.
    rank = math.ceil(round((len(residuals) + 1) * level, 9))
    return float(residuals[rank - 1]) if rank <= len(residuals) else math.inf

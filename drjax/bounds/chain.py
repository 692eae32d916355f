"""Chains of neighbours: a trade-off curve that is applied again and again, as for several unknown records."""

from __future__ import annotations

import numpy as np

from drjax.bounds.curve import TradeOff
from drjax.bounds.rounding import log_1mexp, raised

EXCESS = 1e-5
"""Relative error that a chain may add, upward, while the power grows e-fold; 0 where the curve consists of lines."""


STRETCH = 0.1
"""Logarithm of the ratio of odds that is taken at once at most."""


def log_power_of_chain(curve: TradeOff, log_alpha: np.ndarray, n: int) -> np.ndarray:
    """Logarithm of the power at levels exp(log_alpha) of a chain of n neighbours, upward: power(power(...)).

    Stretches of a chain in which the odds change by less than `STRETCH` are taken at once with one part of the curve
    (`TradeOff._log_run`), as long as that is hardly more than the curve itself has at the end of the stretch, where it
    is the most too large.

    Args:
        curve: Trade-off curve of neighbours.
        log_alpha: Logarithms of levels, any shape, <= 0.
        n: Neighbours, >= 1.
    """
    x = np.array(log_alpha, np.float64)
    left, size = np.full(x.shape, float(n)), np.full(x.shape, float(n))
    if curve.HAS_EXACT_RUNS:
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            return np.maximum(_raised(curve._log_run(x, size)), x)
    while np.any(open_ := (left > 0) & (x < 0)):
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            size = np.maximum(np.minimum(size, left), 1)
            before = np.where(size > 1, _raised(curve._log_run(x, np.maximum(size - 1, 1))), x)
            run = _raised(curve._log_run(x, size))
            after = np.minimum(run, curve.log_power(before))
            is_short = after - x + log_1mexp(x) - log_1mexp(np.maximum(after, x)) < STRETCH
            is_near = (run - after) * size <= EXCESS * (after - x) + 1e-11
            fits = (size == 1) | (after == -np.inf) | (is_short & is_near)
        x = np.where(open_ & fits, np.maximum(after, x), x)
        left = np.where(open_ & fits, left - size, left)
        size = np.where(fits, 2 * size, np.floor(size / 2))
    return x


def _raised(log_power: np.ndarray) -> np.ndarray:
    """Upward, at most 0; what cannot be computed is no certificate."""
    return np.minimum(raised(np.where(np.isnan(log_power), 0.0, log_power)), 0.0)


def least_line(log_alpha: np.ndarray, log_slopes: np.ndarray, log_intercepts: np.ndarray) -> np.ndarray:
    """Logarithm of the least of some lines, slope alpha + intercept, of which the last axis runs."""
    return np.min(np.logaddexp(log_slopes + log_alpha[..., None], log_intercepts), axis=-1)


def run_of_lines(
    log_alpha: np.ndarray, n: np.ndarray, log_slopes: np.ndarray, log_intercepts: np.ndarray
) -> np.ndarray:
    """Logarithm of what the line that is the least at a level makes of it when it is applied n times.

    slope^n alpha + intercept (slope^n - 1) / (slope - 1).
    """
    values = np.logaddexp(log_slopes + log_alpha[..., None], log_intercepts)
    which = np.argmin(values, axis=-1)[..., None]
    slope, intercept = (
        np.take_along_axis(np.broadcast_to(lines, values.shape), which, axis=-1)[..., 0]
        for lines in (log_slopes, log_intercepts)
    )
    size = np.where(slope == 0, 1.0, np.abs(slope))
    total = log_1mexp(-n * size) - log_1mexp(-size) + np.maximum(slope, 0) * (n - 1)
    total = np.where(slope == 0, np.log(n), total)
    return np.logaddexp(n * slope + log_alpha, intercept + raised(np.where(n == 1, 0.0, total)))

"""What an attack achieves beyond the mean record, a guess that ignores the release, on the same targets."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from drjax.core.kernel_regression import squared_distances
from drjax.core.statistics import (
    UNKNOWN,
    Interval,
    paired_share_interval,
    percentile_interval,
    resampled,
    share_interval,
)
from drjax.core.types import Array

AT_ONCE = 4 * 2**20
"""Distances held at once, 32 MiB."""

CLOSE = 0.01
"""Share of the mean record's error below which a target counts as found, however near the nearest record is to it."""


class Gain(NamedTuple):
    """What an attack achieves beyond the mean record, a guess that ignores the release, on the same targets.

    Attributes:
        error: Share of the mean record's error that the attack takes away, 1 - mean(error) / mean(error of the mean
            record): 1 is exact, below 0 is worse than the mean record; bootstrap interval over the pairs.
        rebuilt: Share in [0, 1] of targets whose reconstruction is nearer to them than every known or public record
            (see `similar_error`) and leaves less than half of the mean record's error; Clopper-Pearson interval. The
            first condition alone proves nothing: of independent features the mean record meets it too.
        identification: Share identified less the share that the mean record identifies, in [-1, 1]; an interval by
            the targets that only one of the two identifies, exact in its sign (McNemar's test).
        by_chance: Share in [0, 1] of targets that a reconstruction made of another target rebuilds, on average: what an
            attack would reach that does not know whose the release is. Large where many records are nearly the same.
    """

    error: Interval
    rebuilt: Interval
    identification: Interval
    by_chance: float = 0.0


def gain(
    key: Array,
    reconstructions: np.ndarray,
    targets: np.ndarray,
    *,
    mean_error: np.ndarray,
    nearest_error: np.ndarray,
    identified: np.ndarray,
    mean_identified: np.ndarray,
    level: float = 0.95,
    n_bootstrap: int = 1000,
) -> Gain:
    """Compares an attack with the mean record, target by target; all arrays are of the m usable targets alone.

    Nothing is known, which is nan, where the targets are all equal or the mean record is exact: an answer that ignores
    the release could then be as good as any.

    Args:
        key: Seeds the bootstrap.
        reconstructions: (m, d), finite.
        targets: (m, d).
        mean_error: (m,) mean squared error of the mean record.
        nearest_error: (m,) of the nearest known or public record.
        identified: (m,) bool, targets that the attack identifies.
        mean_identified: (m,) bool, targets that the mean record identifies.
        level: Confidence level, in (0, 1).
        n_bootstrap: Resamples of the targets.
    """
    m = len(targets)
    if m == 0 or not mean_error.any() or (m > 1 and not np.ptp(targets, axis=0).any()):
        return Gain(UNKNOWN, UNKNOWN, UNKNOWN)
    error = np.mean((reconstructions - targets) ** 2, axis=1)
    rebuilt = is_rebuilt(error, mean_error, nearest_error)
    return Gain(
        _error_taken(key, error, mean_error, level, n_bootstrap),
        share_interval(int(rebuilt.sum()), m, level=level),
        paired_share_interval(
            int((identified & ~mean_identified).sum()), int((mean_identified & ~identified).sum()), m, level=level
        ),
        _rebuilt_by_chance(reconstructions, targets, mean_error, nearest_error),
    )


def _rebuilt_by_chance(
    reconstructions: np.ndarray, targets: np.ndarray, mean_error: np.ndarray, nearest_error: np.ndarray
) -> float:
    """Share of targets that the reconstruction of another one rebuilds, over all such pairs; 2 m^2 d FLOP."""
    m, d = targets.shape
    if m < 2:
        return 0.0
    limit = np.minimum(mean_error / 2, similar_error(mean_error, nearest_error))
    center, count = targets.mean(axis=0), 0
    guesses, step = reconstructions - center, max(1, AT_ONCE // m)
    for start in range(0, m, step):
        is_hit = (
            squared_distances(targets[start : start + step] - center, guesses) / d < limit[start : start + step, None]
        )
        is_hit[np.arange(len(is_hit)), np.arange(start, start + len(is_hit))] = False
        count += int(is_hit.sum())
    return count / (m * (m - 1))


def is_rebuilt(error: np.ndarray, mean_error: np.ndarray, nearest_error: np.ndarray) -> np.ndarray:
    """(m,) bool: with less than half of the mean record's error, and closer than a similar record; nan never is."""
    return (error < similar_error(mean_error, nearest_error)) & (error < mean_error / 2)


def similar_error(mean_error: np.ndarray, nearest_error: np.ndarray) -> np.ndarray:
    """(m,) error that stands for a similar record: the nearest one's, but `CLOSE` of the mean record's at least.

    A twin among the known records has no error, and one that is nearly a twin next to none, so that no reconstruction
    would be closer. It tells nobody that the target is its twin, though: the release does, if its answer is exact.
    """
    return np.maximum(nearest_error, CLOSE * mean_error)


def _error_taken(key: Array, error: np.ndarray, mean_error: np.ndarray, level: float, n_bootstrap: int) -> Interval:
    def share(pairs: np.ndarray) -> np.ndarray:
        left, total = pairs[..., 0].sum(axis=1), pairs[..., 1].sum(axis=1)
        # Where no record has an error to take away there is no evidence of a gain.
        return np.where(total > 0, 1 - left / np.where(total > 0, total, 1), -math.inf)

    rng = generator(jax.random.fold_in(key, 1))
    draws = resampled(rng, np.stack([error, mean_error], axis=1), share, n_bootstrap)
    estimate = 1 - float(error.sum() / mean_error.sum())
    return percentile_interval(estimate, draws, level=level, method="inverted_cdf")


def generator(key: Array) -> np.random.Generator:
    """A generator of NumPy with 128 bits of the key for a seed."""
    return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))

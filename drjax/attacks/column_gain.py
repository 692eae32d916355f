"""What an attack takes back of single columns: a map may show one column of everybody and nothing of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

LEAST_VARIED = 5.0
"""Targets, at least, that the error of a guess of a column must be spread over, for the column to count."""

CLOSE_COLUMN = 0.9
"""Share of a guess's squared error of one column, taken away, above which that column is given away."""


class ColumnGain(NamedTuple):
    """What an attack takes back of single columns of the records, however little of the whole that is.

    A guess is compared with the attack column by column: the mean record or the mean of the targets themselves, of each
    column the one that errs less. Each comparison holds with 95% confidence for all columns together.

    Attributes:
        n_columns: Columns in which at least `LEAST_VARIED` targets differ from the guess, in effect.
        n_learned: Columns of these in which the attack errs less than the guess.
        n_close: Columns of these in which it takes away more than `CLOSE_COLUMN` of the guess's squared error.
        closest: Name of the column of which it takes away the largest share; of those in `n_close`, if there are any.
        taken: That share.
    """

    n_columns: int
    n_learned: int
    n_close: int
    closest: str
    taken: float


def column_gain(
    reconstructions: np.ndarray,
    targets: np.ndarray,
    mean_record: np.ndarray,
    columns: Sequence[str] | None = None,
    *,
    level: float = 0.95,
) -> ColumnGain:
    """Compares an attack with a guess, column by column; see `ColumnGain`.

    The share of the squared error that is left is a ratio of two sums over targets. Its interval is that of a ratio
    estimate, with Student's quantile at a level divided by the number of columns (Bonferroni).

    Args:
        reconstructions: (m, d), finite.
        targets: (m, d).
        mean_record: (m, d), what is guessed without the release.
        columns: d names, equal for features of one column; "feature 0" and so on if None.
        level: Confidence level for all columns together, in (0, 1).

    Raises:
        ValueError: another number of names than features.

    Source: Cochran, "Sampling Techniques" (1977), section 6.4, on the variance of a ratio estimate.
    """
    m, d = targets.shape
    names = [f"feature {j}" for j in range(d)] if columns is None else list(columns)
    if len(names) != d:
        raise ValueError(f"columns must have {d} names, one for each feature, got {len(names)}")
    distinct = list(dict.fromkeys(names))
    places = {name: at for at, name in enumerate(distinct)}
    place = np.array([places[name] for name in names])
    if m < 2:
        return ColumnGain(0, 0, 0, distinct[0], math.nan)
    own, blind, flat = (
        _by_column((guess - targets) ** 2, place) for guess in (reconstructions, mean_record, targets.mean(axis=0))
    )
    guess = np.where(blind.sum(axis=0) < flat.sum(axis=0), blind, flat)
    total = guess.sum(axis=0)
    varies = total**2 >= LEAST_VARIED * np.maximum(np.sum(guess**2, axis=0), np.finfo(float).tiny)
    varies &= _by_column(np.ptp(targets, axis=0, keepdims=True), place)[0] > 0
    if not varies.any():
        return ColumnGain(0, 0, 0, distinct[0], math.nan)
    own, guess, total = own[:, varies], guess[:, varies], total[varies]
    left = own.sum(axis=0) / total
    spread = np.sqrt(np.sum((own - left * guess) ** 2, axis=0) * m / (m - 1)) / total
    high = left + float(stdtrit(m - 1, 1 - (1 - level) / (2 * varies.sum()))) * spread
    is_close = 1 - high > CLOSE_COLUMN
    best = int(np.argmin(np.where(is_close.any() & ~is_close, np.inf, left)))
    return ColumnGain(
        n_columns=int(varies.sum()),
        n_learned=int((high < 1).sum()),
        n_close=int(is_close.sum()),
        closest=distinct[int(np.flatnonzero(varies)[best])],
        taken=float(1 - left[best]),
    )


def _by_column(squared: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Sums (m, c) of squared errors (m, d) over the features of each column."""
    if len(place) == place[-1] + 1:
        return squared  # a feature each
    found = np.zeros((len(squared), place.max() + 1))
    np.add.at(found.T, place, squared.T)
    return found

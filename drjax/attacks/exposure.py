"""How exposed each record is: one number per record, where `metrics` has one per attack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks import gain, metrics
from drjax.core import validate
from drjax.core.kernel_regression import squared_distances
from drjax.core.types import Array, is_usable

EXACT = 1e-12
"""Error of the mean of the others, as a share of the largest value, below which it is rounding: the mean is exact."""

SINGLE_LEVEL = 0.01
"""Probability of `Exposure.chance` below which a record is rebuilt beyond what chance explains."""

TAIL = 20
"""Nearest reconstructions of other records, at most, that say how near chance comes to a record."""

LEAST_TAIL = 3
"""Least number of these; a fifth of the other records is taken where that is between the two."""

SAME = 1e-6
"""Relative difference up to which values, and squared distances, count as equal."""


class Exposure(NamedTuple):
    """What one attack did to each of m records; every field is (m,).

    Attributes:
        row: The record's row in the data.
        error: Mean squared error of its reconstruction; nan where the attack failed.
        nearest_error: Error of the most similar other record.
        mean_error: Error of the mean of all other records, which needs no release; 0 where it is exact up to rounding.
        ratio: Error over the lower of mean_error and what stands for a similar record (see `gain.similar_error`):
            below 1 the release gave away more than looking up a similar record and more than guessing the mean would;
            nan where the attack failed or the mean of the others is exact, so that nothing was left to give away.
        is_rebuilt: Whether the record is rebuilt, as in `gain.is_rebuilt`.
        is_identified: The record is nearer to its reconstruction than any other record, but for its twins.
        rank: Place, 1 for the most exposed: by least ratio, then by least error; those without either come last.
        chance: Probability, at most, that an attack that learns nothing brings its reconstruction as near to any one of
            the m records as this one is to its own; 1 where the record is not rebuilt. See `chances`.
    """

    row: np.ndarray
    error: np.ndarray
    nearest_error: np.ndarray
    mean_error: np.ndarray
    ratio: np.ndarray
    is_rebuilt: np.ndarray
    is_identified: np.ndarray
    rank: np.ndarray
    chance: np.ndarray


def measure(
    reconstructions: Array, records: Array, rows: Array, status: Array, *, similar: Array | None = None
) -> Exposure:
    """The exposure of some records of a data set, each among all others; 4 m n d FLOP at most.

    Half of that finds the most similar others. No more is done for reconstructions nearer to their record than half as
    far as the most similar other is: nothing else can be nearer to them.

    Args:
        reconstructions: (m, d); rows may hold nan.
        records: (n, d), all records, n >= 2.
        rows: (m,), which of them were reconstructed.
        status: (m,) uint32 flags of the reconstructions.
        similar: (m,) rows as of `nearest_others`, where they are known.

    Raises:
        ValueError: shapes that do not match, or records that are not finite.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks import exposure
        >>> x = np.asarray(drjax.load("digits").x[:60], np.float64)
        >>> found = x[:3] + np.array([[0.0], [0.01], [1.0]])  # one rebuilt, one nearly, one missed
        >>> exposed = exposure.measure(found, x, np.arange(3), np.zeros(3, np.uint32))
        >>> exposed.is_rebuilt, exposed.rank
        (array([ True,  True, False]), array([1, 2, 3]))
    """
    records = validate.matrix(records, "records", min_rows=2)
    rows = np.asarray(rows)
    truth = records[rows].astype(np.float64)
    error = metrics.mean_squared_errors(reconstructions, truth)
    if np.shape(status) != rows.shape:
        raise ValueError(f"status must have shape {rows.shape}, one entry per record, got {np.shape(status)}")
    error = np.where(is_usable(status), error, np.nan)
    similar = nearest_others(records, rows) if similar is None else np.asarray(similar)
    nearest_error = metrics.mean_squared_errors(records[similar], truth)
    mean_error = metrics.mean_squared_errors(means_of_others(records, rows), truth)
    largest = max(float(records.max()), -float(records.min()))
    mean_error = np.where(mean_error <= (EXACT * largest) ** 2, 0.0, mean_error)
    best_guess = np.minimum(mean_error, gain.similar_error(mean_error, nearest_error))
    ratio = np.divide(error, best_guess, out=np.full(len(rows), np.nan), where=best_guess > 0)
    usable = np.isfinite(error)
    # By the triangle inequality, with room for rounding.
    is_identified = usable & (error < 0.249 * nearest_error)
    unclear = usable & ~is_identified
    if unclear.any():
        own = error[unclear] * records.shape[1]
        found, least = metrics.nearest(np.asarray(reconstructions)[unclear], records)
        # The nearest one may be the record itself, or as near as a twin is.
        is_identified[unclear] = (found == rows[unclear]) | (own <= least)
    order = np.lexsort((error, np.where(np.isnan(ratio), np.inf, ratio)))
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(1, len(rows) + 1)
    rebuilt = gain.is_rebuilt(error, mean_error, nearest_error)
    chance = np.ones(len(rows))
    chance[rebuilt] = chances(np.asarray(reconstructions)[usable], truth, error, mean_error, usable, rebuilt)
    return Exposure(rows, error, nearest_error, mean_error, ratio, rebuilt, is_identified, rank, chance)


def chances(
    reconstructions: np.ndarray,
    truth: np.ndarray,
    error: np.ndarray,
    mean_error: np.ndarray,
    usable: np.ndarray,
    chosen: np.ndarray,
) -> np.ndarray:
    """Probabilities that an attack that learns nothing would come as near to any one of m records; 2 m^2 d FLOP.

    Of such an attack the reconstruction of a record is no nearer to it than those of the other records are, which are
    known: it is the nearest of all with probability 1 / m. How much nearer it then is follows from how the next ones
    are spaced. Where the share of reconstructions within r grows as a power of r, the logarithms of the distances, in
    order, have spacings that are exponential after multiplication by their place (Renyi 1953), so that the first over
    the mean of the next k - 1 has the law F(2, 2k - 2). The power is at most the number of features. All is multiplied
    by m (Bonferroni), so that among m records that nothing is learned of, one falls below p with probability p or less.

    Records that are as good as the record itself (within `gain.CLOSE` of its mean error) are left out: what is made
    of a twin may be near to it without being chance.

    Args:
        reconstructions: (u, d) of the records that have one.
        truth: (m, d) the records.
        error: (m,) mean squared error of each.
        mean_error: (m,) of the mean of the others.
        usable: (m,) bool, which records have a reconstruction.
        chosen: (m,) bool, the records to return the probability of.

    Returns:
        One probability in [0, 1] for each chosen record, 1 where too few others are left to say anything.

    Source: Renyi, "On the theory of order statistics" (1953); Hill, "A simple general approach to inference about the
        tail of a distribution" (1975).
    """
    m, d = truth.shape
    rows, places = np.flatnonzero(chosen), np.flatnonzero(usable)
    found, centre = np.ones(len(rows)), truth.mean(axis=0)
    others, guesses = truth[usable] - centre, reconstructions - centre
    is_first = np.zeros(len(places), bool)
    if len(places):
        grid = np.round(others / (SAME * max(np.abs(others).max(), np.finfo(float).tiny)))
        is_first[np.unique(grid, axis=0, return_index=True)[1]] = True
    step = max(1, metrics.CHUNK_ENTRIES // max(1, len(places)))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        own = truth[some] - centre
        is_rival = squared_distances(own, others) > gain.CLOSE * d * mean_error[some, None]
        is_rival &= is_first & (places != some[:, None])
        squared = np.where(is_rival, squared_distances(own, guesses), np.inf)
        for at, i in enumerate(some):
            n = int(is_rival[at].sum())
            k = min(TAIL, max(LEAST_TAIL, n // 5))
            if n >= k:
                nearest = np.argpartition(squared[at], k - 1)[:k]
                exact = np.sort(np.sum((reconstructions[nearest] - truth[i]) ** 2, axis=1))
                found[start + at] = min(1.0, m / (n + 1) * _alone(error[i] * d, exact, d))
    return found


def _alone(own: float, nearest: np.ndarray, d: int) -> float:
    """Probability that chance brings one more reconstruction as near, if it is the nearest; 1 where it is not.

    Args:
        own: Squared distance of the reconstruction of the record itself.
        nearest: (k,) the least squared distances of those of others, ascending.
        d: Number of features.
    """
    k = len(nearest)
    if own >= nearest[0] or (np.diff(nearest) <= SAME * nearest[1:]).any():
        return 1.0  # reconstructions that are equally far off lie on a grid, and may hit a record by chance
    if own == 0:
        return 0.0
    logs = np.log(nearest) / 2
    power = min(d, (k - 1) / np.sum(np.arange(2, k + 1) * np.diff(logs)))
    first = power * (logs[0] - np.log(own) / 2)
    return float((1 + first / (k - 1)) ** -(k - 1))


def means_of_others(records: Array, rows: Array) -> np.ndarray:
    """(m, d) means of all records but the one of each of `rows`."""
    records = np.asarray(records)
    total = records.sum(axis=0, dtype=np.float64)
    return (total - np.asarray(records[np.asarray(rows)], np.float64)) / (len(records) - 1)


def nearest_others(records: Array, rows: Array) -> np.ndarray:
    """(m,) rows of the other records that are most similar to those of `rows`; 2 m n d FLOP."""
    records, rows = np.asarray(records), np.asarray(rows)
    return metrics.nearest(records[rows], records, excluded=rows[:, None])[0]

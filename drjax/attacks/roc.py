"""How well scores tell members from non-members: ROC curve, AUC, true positives at few false ones, accuracy.

Throughout, a larger score speaks for membership, and a record is called a member if its score is at least a threshold.
Scores may be infinite (certain), never nan. Everything runs on the host in float64.

An average over all thresholds hides what matters to a person: whether somebody can be named with few false alarms.
So the share of members found at a false-positive rate of 1% or 0.1% stands beside the AUC.

Source: Carlini et al., "Membership inference attacks from first principles" (2022), section IV, for that argument;
DeLong, DeLong & Clarke-Pearson (1988) for the variance of the AUC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import expit, logit
from scipy.stats import rankdata

from drjax.bounds.curve import TradeOff
from drjax.core import validate
from drjax.core.statistics import UNKNOWN, Interval, normal_quantile, share_interval
from drjax.core.types import Array

FALSE_POSITIVE_RATES = (0.01, 0.001)
"""Where the true-positive rate is reported."""

LEVELS = np.unique(np.concatenate([[0.0], np.geomspace(1e-12, 1, 4001), np.linspace(0, 1, 20001)]))
"""Where a trade-off curve is summed up: half of them where it may be steep."""

SLACK = 1e-9
"""Added to rate * n before rounding down: 0.29 * 100 is 28.999999999999996 in floating point."""


class RocCurve(NamedTuple):
    """One point for every threshold that matters, from (0, 0) to (1, 1).

    Attributes:
        fpr: (t,) share of non-members called members, in [0, 1], not decreasing.
        tpr: (t,) share of members called members, in [0, 1], not decreasing.
        thresholds: (t,) a record is called a member if its score is at least this; decreasing. The first is infinity
            and stands for calling nobody a member, even if a score is infinite.
    """

    fpr: np.ndarray
    tpr: np.ndarray
    thresholds: np.ndarray


class BalancedAccuracy(NamedTuple):
    """Mean of the share of members found and the share of non-members let go; guessing scores 1/2.

    Attributes:
        held_out: Balanced accuracy with a threshold chosen on one random half of the records and measured on the other:
            what an adversary who has to choose it in advance reaches. Its interval holds for any number of records.
        optimistic: Balanced accuracy with the best threshold for the very records it is measured on; never below 1/2,
            even for noise.
        threshold: The one that `held_out` used.
    """

    held_out: Interval
    optimistic: float
    threshold: float


@dataclass(frozen=True)
class RocScores:
    """What is reported of one attack.

    Attributes:
        auc: Area under the ROC curve; see `auc`.
        tpr: True-positive rate by false-positive rate; see `tpr_at_fpr`.
        balanced_accuracy: Balanced accuracy; see `balanced_accuracy`.
        n_members: Records that were in the data.
        n_non_members: Records that were not.
    """

    auc: Interval
    tpr: dict[float, Interval]
    balanced_accuracy: BalancedAccuracy
    n_members: int
    n_non_members: int


def evaluate(
    key: Array,
    scores: Array,
    is_member: Array,
    *,
    rates: tuple[float, ...] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
) -> RocScores:
    """All figures of one attack, each with its interval.

    Args:
        key: Splits the records into halves for the accuracy; equal keys give equal figures.
        scores: (m,), larger for members.
        is_member: (m,) bool or 0 and 1, with at least 2 of each.
        rates: False-positive rates, in (0, 1].
        level: Confidence level, in (0, 1).

    Raises:
        ValueError: shapes that do not match, a nan among the scores, fewer than 2 members or non-members, or a number
            out of range.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks import roc
        >>> is_member = np.arange(200) < 100
        >>> scores = np.random.default_rng(0).normal(size=200) + 2 * is_member
        >>> found = roc.evaluate(jax.random.key(0), scores, is_member)
        >>> found.n_members, found.auc.low > 0.8
        (100, True)
    """
    members, others = _split(scores, is_member)
    return RocScores(
        auc=auc(scores, is_member, level=level),
        tpr={rate: tpr_at_fpr(scores, is_member, fpr=rate, level=level) for rate in rates},
        balanced_accuracy=balanced_accuracy(key, scores, is_member, level=level),
        n_members=len(members),
        n_non_members=len(others),
    )


def roc_curve(scores: Array, is_member: Array) -> RocCurve:
    """The curve with one point for each different score; O(m log m).

    Args:
        scores: (m,), larger for members.
        is_member: (m,) bool or 0 and 1, with at least one of each.

    Raises:
        ValueError: as `evaluate`.

    Example:
        >>> from drjax.attacks import roc
        >>> curve = roc.roc_curve([3.0, 2.0, 1.0, 0.0], [True, False, True, False])
        >>> curve.fpr, curve.tpr
        (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    members, others = _split(scores, is_member)
    values = np.unique(np.concatenate([members, others]))[::-1]
    fpr, tpr = (np.append(0.0, _share_at_least(np.sort(group), values)) for group in (others, members))
    thresholds = np.append(np.inf, values)
    return RocCurve(fpr, tpr, thresholds)


def auc(scores: Array, is_member: Array, *, level: float = 0.95) -> Interval:
    """Probability that a member scores higher than a non-member, ties counting half, with DeLong's interval.

    The interval is DeLong's on the scale of log-odds, which keeps it inside (0, 1) and close to its level near 1, where
    the plain one is too short. Where his variance is 0 (perfect separation, or nothing but ties) it would have no
    width: there it is Clopper-Pearson's for as many independent pairs as there are members or non-members, whichever is
    fewer. It covers the choice of the records, not that of a data set or of the best k. O(m log m).

    Args:
        scores: (m,), larger for members.
        is_member: (m,) bool or 0 and 1, with at least 2 of each.
        level: Confidence level, in (0, 1).

    Raises:
        ValueError: as `evaluate`.

    Source: DeLong, DeLong & Clarke-Pearson (1988), by the mid-ranks of Sun & Xu (2014).

    Example:
        >>> from drjax.attacks import roc
        >>> roc.auc([3.0, 2.0, 1.0, 0.0], [True, False, True, False]).estimate  # of 4 pairs 3 are in order
        0.75
    """
    members, others = _split(scores, is_member, minimum=2)
    n, m = len(members), len(others)
    validate.open_unit(level=level)
    ranks = rankdata(np.concatenate([members, others]))
    # Share of the other group below each record, ties counting half.
    above = (ranks[:n] - rankdata(members)) / m
    below = 1 - (ranks[n:] - rankdata(others)) / n
    estimate = float(above.mean())
    variance = above.var(ddof=1) / n + below.var(ddof=1) / m
    # Equal shares differ by rounding of their means.
    if variance < np.finfo(np.float64).eps ** 2 * (n + m) or not 0 < estimate < 1:
        pairs = min(n, m)
        low = share_interval(math.floor(estimate * pairs), pairs, level=level).low
        high = share_interval(math.ceil(estimate * pairs), pairs, level=level).high
        return Interval(estimate, low, high)
    half = normal_quantile(level) * math.sqrt(variance) / (estimate * (1 - estimate))
    return Interval(estimate, float(expit(logit(estimate) - half)), float(expit(logit(estimate) + half)))


def auc_ceiling(curve: TradeOff, *, steps: int = 1) -> float:
    """The largest expected AUC of any test under a trade-off curve, in [1/2, 1], from above by less than 1e-4.

    A true-positive rate is at most the power at the false-positive rate; for mu-GDP the area is Phi(mu / sqrt 2). An
    attack on one release may be lucky and lie above.

    Args:
        curve: Trade-off curve of the guarantee.
        steps: Neighbours between the two that are told apart, >= 1: 2 for one record in another's place where the curve
            is that of a record left out.

    Raises:
        ValueError: not a curve, or steps < 1.

    Example:
        >>> from drjax.attacks import roc
        >>> from drjax.bounds import tradeoff
        >>> [round(roc.auc_ceiling(tradeoff.Gaussian(mu)), 2) for mu in (0.1, 1.0, 4.0)]
        [0.53, 0.76, 1.0]
    """
    if not isinstance(curve, TradeOff):
        raise ValueError(f"curve must be a trade-off curve, got {curve!r}")
    validate.integer(steps=steps)
    power = LEVELS
    for _ in range(steps):
        power = curve.power(power)
    # Curves do not fall, so the value at the right end of each interval is the largest on it.
    return float(min(1.0, max(0.5, np.sum(power[1:] * np.diff(LEVELS)))))


def auc_columns(scores: Array, is_member: Array) -> np.ndarray:
    """AUC of each column of scores (m, K), (K,): one for every number of components, without intervals.

    The largest of many columns is chosen by its luck too: with 1,000 members the best of some hundred useless columns
    scores about 0.53. Choose k on other records, or say that it is the best in hindsight. O(K m log m).

    Args:
        scores: (m, K), larger for members; no nan.
        is_member: (m,) bool or 0 and 1, with at least one of each.

    Raises:
        ValueError: as `evaluate`.

    Example:
        >>> from drjax.attacks import roc
        >>> roc.auc_columns([[3.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 3.0]], [True, True, False, False])
        array([1., 0.])
    """
    table = np.asarray(scores)
    if table.dtype.kind not in "fiub" or table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"scores must be a non-empty numeric (m, K) array, got {table.dtype} of shape {table.shape}")
    flags = _flags(is_member, len(table), 1)
    if np.isnan(table).any():
        raise ValueError("scores must not be nan")
    n, m = int(flags.sum()), int((~flags).sum())
    columns = np.ascontiguousarray(table.T)
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    member = flags[order]
    total = np.where(member, np.arange(1, n + m + 1), 0).sum(axis=1).astype(np.float64)
    # Ranks by position are mid-ranks but for ties, which are rare enough to be done one column at a time.
    for j in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)):
        total[j] = rankdata(columns[j])[flags].sum()
    return (total - n * (n + 1) / 2) / (n * m)


def tpr_at_fpr(scores: Array, is_member: Array, *, fpr: float, level: float = 0.95) -> Interval:
    """Share of members found where at most the share fpr of the non-members here is called members.

    The threshold is the lowest that keeps to the rate: where scores tie there it keeps below it, and nothing is
    interpolated. The interval is Clopper-Pearson's over the members with the threshold taken as given; that the same
    threshold may have another rate on other non-members is not in it (`share_interval` of the allowed number tells).
    A rate that allows less than one of the non-members cannot be measured: `UNKNOWN`. O(m log m).

    Args:
        scores: (m,), larger for members.
        is_member: (m,) bool or 0 and 1, with at least one of each.
        fpr: False-positive rate, in (0, 1].
        level: Confidence level, in (0, 1).

    Raises:
        ValueError: as `evaluate`.

    Example:
        >>> import numpy as np
        >>> from drjax.attacks import roc
        >>> scores = np.concatenate([np.linspace(0, 3, 100), np.linspace(0, 1, 100)])
        >>> round(roc.tpr_at_fpr(scores, np.arange(200) < 100, fpr=0.01).estimate, 2)
        0.67
    """
    members, others = _split(scores, is_member)
    if not 0 < fpr <= 1:
        raise ValueError(f"fpr must be in (0, 1], got {fpr}")
    validate.open_unit(level=level)
    allowed = math.floor(fpr * len(others) + SLACK)
    if allowed < 1:
        return UNKNOWN
    if allowed == len(others):
        return share_interval(len(members), len(members), level=level)
    # Everything above this non-member may be called a member; its own ties would be one too many.
    limit = np.sort(others)[-allowed - 1]
    return share_interval(int(np.sum(members > limit)), len(members), level=level)


def balanced_accuracy(key: Array, scores: Array, is_member: Array, *, level: float = 0.95) -> BalancedAccuracy:
    """Balanced accuracy at a threshold chosen on other records, and at the best one in hindsight.

    The interval is the mean of two Clopper-Pearson intervals, of members and of non-members, each at the level that
    makes both hold together; it is wider than need be, never shorter. O(m log m).

    Args:
        key: Splits members and non-members into halves.
        scores: (m,), larger for members.
        is_member: (m,) bool or 0 and 1, with at least 2 of each.
        level: Confidence level, in (0, 1).

    Raises:
        ValueError: as `evaluate`.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks import roc
        >>> scores = np.concatenate([np.linspace(0, 3, 100), np.linspace(0, 1, 100)])
        >>> found = roc.balanced_accuracy(jax.random.key(0), scores, np.arange(200) < 100)
        >>> found.optimistic >= found.held_out.estimate > 0.7
        True
    """
    validate.prng_key(key)
    groups = _split(scores, is_member, minimum=2)
    validate.open_unit(level=level)
    _, optimistic = _best_threshold(*groups)
    halves = []
    for group, part in zip(groups, jax.random.split(key), strict=True):
        order = np.asarray(jax.random.permutation(part, len(group)))
        halves.append((group[order[: len(group) // 2]], group[order[len(group) // 2 :]]))
    (members, test_members), (others, test_others) = halves
    threshold, _ = _best_threshold(members, others)
    each = (1 + level) / 2
    found = share_interval(int(np.sum(test_members >= threshold)), len(test_members), level=each)
    let_go = share_interval(int(np.sum(test_others < threshold)), len(test_others), level=each)
    held_out = Interval(*((a + b) / 2 for a, b in zip(found, let_go, strict=True)))
    return BalancedAccuracy(held_out, optimistic, threshold)


def _best_threshold(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The threshold of the largest balanced accuracy, halfway between two scores, and that accuracy."""
    values = np.unique(np.concatenate([members, others]))[::-1]
    accuracy = (1 + _share_at_least(np.sort(members), values) - _share_at_least(np.sort(others), values)) / 2
    best = int(np.argmax(accuracy))
    if accuracy[best] <= 0.5:
        return math.inf, 0.5  # calling nobody a member
    above, below = float(values[best]), float(values[best + 1])
    middle = above / 2 + below / 2  # nan between -inf and inf
    # The middle of two neighbours in floating point may be the lower one.
    return middle if below < middle < above else above, float(accuracy[best])


def _share_at_least(ordered: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return 1 - np.searchsorted(ordered, thresholds, side="left") / len(ordered)


def _split(scores: Array, is_member: Array, minimum: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the members and of the others."""
    values = np.asarray(scores)
    if values.dtype.kind not in "fiub" or values.ndim != 1:
        raise ValueError(f"scores must be a numeric (m,) array, got {values.dtype} of shape {values.shape}")
    flags = _flags(is_member, len(values), minimum)
    if np.isnan(values).any():
        raise ValueError(f"scores must not be nan, got {int(np.isnan(values).sum())} nan")
    values = values.astype(np.float64)
    return values[flags], values[~flags]


def _flags(is_member: Array, m: int, minimum: int) -> np.ndarray:
    flags = np.asarray(is_member)
    if flags.shape != (m,):
        raise ValueError(f"is_member must have shape ({m},), one entry per score, got {flags.shape}")
    if flags.dtype.kind not in "fiub" or not np.isin(flags, (0, 1)).all():
        raise ValueError("is_member must be bool or 0 and 1")
    flags = flags.astype(bool)
    for name, count in (("members", int(flags.sum())), ("non-members", int((~flags).sum()))):
        if count < minimum:
            raise ValueError(f"is_member must have at least {minimum} {name}, got {count}")
    return flags

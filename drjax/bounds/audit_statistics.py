"""Lower bounds on a mechanism's privacy parameters from counts of what an attack got right, in float64 on the host.

The null hypothesis is the run without the target, the alternative the run with it, as in `drjax.bounds.curve`. A test
says "with" where a score reaches a threshold. Clopper and Pearson's intervals bound its two error rates; a guarantee
under which rates that good are impossible is refuted. Where the mechanism has the guarantee, that happens with
probability at most 1 - confidence, whatever the attack: a poor attack makes the bounds low, never wrong.

Two conditions are the caller's to keep: runs are independent, and the test was fixed before the runs that are counted
(`choose_threshold` on some runs, `outcome_at` on others).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from drjax.bounds import gdp
from drjax.bounds.curve import TradeOff, number
from drjax.bounds.rounding import SLACK, as_float
from drjax.core import validate
from drjax.core.statistics import clopper_pearson_high, clopper_pearson_low
from drjax.core.types import Array

EVERY_COUNT = 64
"""Up to this count, and up to as many short of all, `choose_threshold` tries every threshold."""

COUNT_RATIO = 1.01
"""Beyond `EVERY_COUNT` it tries one threshold for counts that differ by less than this factor."""

CAUTION = 250
"""Thresholds are compared by bounds that are wrong this many times less often than those that are reported.

The best of thousands is otherwise one that was lucky: at mu 1 and 100,000 runs the bound on mu, 0.979 on average and
0.968 at worst in ten audits, was 0.960 and 0.906 without; at 250 it is best for Gaussian and Laplace noise, and flat.
"""


@dataclass(frozen=True)
class Outcome:
    """How often a test said "with", in runs without the target and in runs with it.

    Attributes:
        false_positives: Number of runs without the target that the test said "with" of, in [0, n_null].
        n_null: Runs without, >= 1.
        true_positives: Number of runs with the target that the test said "with" of, in [0, n_alternative].
        n_alternative: Runs with, >= 1.

    Raises:
        ValueError: a count that is not an integer or out of its range.

    Example:
        >>> from drjax.bounds.auditing import Outcome, mu_lower_bound
        >>> round(mu_lower_bound(Outcome(false_positives=10, n_null=1000, true_positives=400, n_alternative=1000)), 2)
        1.76
    """

    false_positives: int
    n_null: int
    true_positives: int
    n_alternative: int

    def __post_init__(self) -> None:
        """Checks the counts."""
        as_float(n_null=self.n_null)
        as_float(n_alternative=self.n_alternative)
        validate.integer(minimum=0, false_positives=self.false_positives, true_positives=self.true_positives)
        validate.at_most(self.n_null, "n_null", false_positives=self.false_positives)
        validate.at_most(self.n_alternative, "n_alternative", true_positives=self.true_positives)


class Rates(NamedTuple):
    """An upper bound on the probability of a false alarm and a lower one on that of a detection.

    `tnr_low` is 1 - fpr_high and `fnr_high` is 1 - tpr_low, computed apart so that no digits are lost.
    """

    fpr_high: Any
    tnr_low: Any
    tpr_low: Any
    fnr_high: Any


def rates_of(outcome: Outcome, *, confidence: float = 0.95) -> Rates:
    """Clopper and Pearson's bounds on both rates, each wrong with probability at most (1 - confidence) / 2.

    Args:
        outcome: Counts of one test.
        confidence: Confidence, in (0, 1).

    Raises:
        ValueError: not an outcome, or confidence out of its range.
    """
    if not isinstance(outcome, Outcome):
        raise ValueError(f"outcome must be an Outcome, got {outcome!r}")
    check_open_unit(confidence=confidence)
    found = _rates(outcome.false_positives, outcome.n_null, outcome.true_positives, outcome.n_alternative, confidence)
    return Rates(*map(float, found))


def epsilon_lower_bound(outcome: Outcome, *, delta: float, confidence: float = 0.95) -> float:
    """An epsilon that the mechanism does not go below, at this delta, with the probability `confidence`.

    Under (epsilon, delta)-privacy no event is more than exp(epsilon) times as likely with the target as without, plus
    delta, nor the other way round. The event that the test says "with" is used for the first and its complement for
    the second. Both need the same two bounds, a high one on the false alarms and a low one on the detections, so the
    better of the two costs no further confidence. A test that is wrong more often than right shows nothing: negate
    its scores.

    Args:
        outcome: Counts of one test, fixed before the runs that are counted.
        delta: Delta, in [0, 1).
        confidence: Confidence, in (0, 1).

    Returns:
        Lower bound on epsilon, >= 0, finite.

    Raises:
        ValueError: an argument out of its range.

    Source: Jagielski, Ullman & Oprea (2020), Auditing differentially private machine learning; Nasr et al. (2021).

    Example:
        >>> from drjax.bounds.auditing import Outcome, epsilon_lower_bound
        >>> seen = Outcome(false_positives=10, n_null=1000, true_positives=400, n_alternative=1000)
        >>> round(epsilon_lower_bound(seen, delta=1e-5), 1)
        3.0
    """
    check_share(delta=delta)
    return lowered(float(epsilon_of_rates(rates_of(outcome, confidence=confidence), delta)))


def mu_lower_bound(outcome: Outcome, *, confidence: float = 0.95) -> float:
    """A mu below which the mechanism is not mu-GDP, with the probability `confidence`.

    Phi^-1(tpr_low) - Phi^-1(fpr_high), at least 0. That is true of every mechanism. One whose curve is that of a
    Gaussian has this mu at every level, which is why its whole curve can be had from one threshold.

    Raises:
        ValueError: not an outcome, or confidence outside (0, 1).

    Source: Nasr et al. (2023), Tight auditing of differentially private machine learning.
    """
    return lowered(float(_mu(rates_of(outcome, confidence=confidence))))


def epsilon_from_mu(mu: float, *, delta: float) -> float:
    """The epsilon of mu-GDP at this delta, by `drjax.bounds.gdp.epsilon_of`; 0 at mu 0.

    A lower bound on mu becomes a lower bound on epsilon only where the mechanism's curve is Gaussian: the Gaussian
    mechanism, and DP-GD with full batches. Randomised response of epsilon 1 is not mu-GDP below 1.23, whose epsilon at
    delta 1e-5 would be 5.6.

    Args:
        mu: Mu, >= 0, finite.
        delta: Delta, in (0, 1).

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.auditing import epsilon_from_mu
        >>> round(epsilon_from_mu(1.0, delta=1e-5), 2)
        4.38
    """
    if not 0 <= number(mu=mu) < math.inf:
        raise ValueError(f"mu must be a finite number >= 0, got {mu}")
    check_open_unit(delta=delta)
    return gdp.epsilon_of(float(mu), float(delta)) if mu > 0 else 0.0


def refutes(outcome: Outcome, curve: TradeOff, *, confidence: float = 0.95) -> bool:
    """Whether the test is better than the curve allows; true of a correct curve with probability <= 1 - confidence.

    Args:
        outcome: Counts of one test, fixed before the runs that are counted.
        curve: The claim. Its null hypothesis is the run without the target.
        confidence: Confidence, in (0, 1).

    Raises:
        ValueError: an argument out of its range, or not a curve.
    """
    check_claim(curve)
    rates = rates_of(outcome, confidence=confidence)
    return bool(rates.tpr_low > curve.power(rates.fpr_high))


def outcome_at(threshold: float, null_scores: Array, alternative_scores: Array) -> Outcome:
    """Counts of the test that says "with" where a score is >= threshold.

    Args:
        threshold: Threshold > -inf (-inf would say nothing); inf detects scores of inf alone.
        null_scores: (n,) of runs without the target, none of which the threshold was chosen on; inf is a score.
        alternative_scores: (k,) of runs with it.

    Raises:
        ValueError: a threshold of nan or -inf; scores that are not a vector of numbers, or nan among them.
    """
    if not number(threshold=threshold) > -math.inf:
        raise ValueError(f"threshold must be a number > -inf, got {threshold}")
    null, alternative = check_scores(null_scores=null_scores), check_scores(alternative_scores=alternative_scores)
    return Outcome(int(np.sum(null >= threshold)), null.size, int(np.sum(alternative >= threshold)), alternative.size)


def choose_threshold(
    null_scores: Array,
    alternative_scores: Array,
    *,
    claim: TradeOff | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
) -> float:
    """The threshold whose certified bound on these scores is largest.

    What is maximised is the bound on mu; with `delta`, the one on epsilon at that delta; with `claim`, how far the
    test is above the claimed curve, in units of mu; all with bounds on the rates of more confidence (`CAUTION`). These
    scores have been used up: take the bound from others, by `outcome_at`.

    Args:
        null_scores: (n,) of runs without the target; inf is a score.
        alternative_scores: (k,) of runs with it.
        claim: A curve, or None.
        delta: Delta, in [0, 1), or None.
        confidence: Confidence of the bound that is to be certified, in (0, 1).

    Returns:
        Threshold, > -inf, in the middle between neighbouring scores. Costs O((n + k) log(n + k)).

    Raises:
        ValueError: an argument out of its range, nan among the scores, or both a claim and a delta.
    """
    if claim is not None and delta is not None:
        raise ValueError(f"claim and delta must not both be given, got {claim!r} and {delta!r}")
    check_open_unit(confidence=confidence)
    if claim is not None:
        check_claim(claim)
    if delta is not None:
        check_share(delta=delta)
    null, alternative = check_scores(null_scores=null_scores), check_scores(alternative_scores=alternative_scores)
    return sweep(null, alternative).best(claim=claim, delta=delta, confidence=confidence)


class Sweep(NamedTuple):
    """Thresholds to choose from, with the counts of each; made by `sweep`.

    Thresholds are increasing and > -inf; the counts are as in `Outcome`, one for each.
    """

    thresholds: np.ndarray
    false_positives: np.ndarray
    n_null: int
    true_positives: np.ndarray
    n_alternative: int

    def best(self, *, claim: TradeOff | None = None, delta: float | None = None, confidence: float) -> float:
        """Threshold as chosen by `choose_threshold`, for arguments that have been checked."""
        rates = _rates(*self[1:], 1 - (1 - confidence) / CAUTION)
        if claim is not None:
            # In units of mu both ends of the curve count. For a Gaussian claim this is the bound on mu, less its mu.
            gain = _mu(rates._replace(fpr_high=claim.power(rates.fpr_high)))
        else:
            gain = _mu(rates) if delta is None else epsilon_of_rates(rates, delta)
        return float(self.thresholds[int(np.argmax(gain))])


def sweep(null: np.ndarray, alternative: np.ndarray) -> Sweep:
    """Thresholds that differ in what they detect: all the extreme ones, and a fine grid of the rest.

    Args:
        null: (n,) float64 without nan.
        alternative: (k,) as well.
    """
    values = np.unique(np.concatenate([null, alternative]))
    false = null.size - np.searchsorted(np.sort(null), values)
    true = alternative.size - np.searchsorted(np.sort(alternative), values)
    steps = np.zeros(values.size, bool)
    for count in (false, null.size - false, true, alternative.size - true):
        cell = _cell(count)
        changes = cell[1:] != cell[:-1]
        steps[1:] |= changes
        steps[:-1] |= changes
    steps[0] = True
    below = np.concatenate([[-np.inf], values[:-1]])
    with np.errstate(invalid="ignore", over="ignore"):
        middle = below + (values - below) / 2
    # Next to an infinite score there is no middle: just above the score below, or at the lowest of all.
    usable = np.isfinite(middle) & (middle > below)
    middle = np.where(usable, middle, np.where(np.isfinite(below), np.nextafter(below, np.inf), values))
    # A score of -inf is never detected: it stands for "without" for certain, or for a run that gave nothing.
    steps &= middle > -np.inf
    if not steps.any():
        return Sweep(np.array([np.inf]), np.zeros(1, int), null.size, np.zeros(1, int), alternative.size)
    return Sweep(middle[steps], false[steps], null.size, true[steps], alternative.size)


def _rates(false_positives: Any, n_null: int, true_positives: Any, n_alternative: int, confidence: float) -> Rates:
    tail = (1 - confidence) / 2
    return Rates(
        binomial_high(false_positives, n_null, tail),
        binomial_low(n_null - false_positives, n_null, tail),
        binomial_low(true_positives, n_alternative, tail),
        binomial_high(n_alternative - true_positives, n_alternative, tail),
    )


def binomial_low(count: Any, total: int, tail: float) -> np.ndarray:
    """Clopper and Pearson's lower end, too high with probability at most `tail`; counts of any shape."""
    return clopper_pearson_low(count, total, tail) * (1 - SLACK)


def binomial_high(count: Any, total: int, tail: float) -> np.ndarray:
    """Clopper and Pearson's upper end, too low with probability at most `tail`; counts of any shape."""
    return np.minimum(clopper_pearson_high(count, total, tail) * (1 + SLACK), 1)


def lowered(value: float) -> float:
    """A computed difference of logarithms or of normal quantiles, rounded down; at least 0."""
    return max(0.0, value - SLACK * max(1.0, abs(value))) if value > 0 else 0.0


def epsilon_of_rates(rates: Rates, delta: float) -> Any:
    """The larger of both directions; negative or -inf where nothing is shown."""
    with np.errstate(divide="ignore"):
        detected = np.log(np.maximum(rates.tpr_low - delta, 0)) - np.log(rates.fpr_high)
        spared = np.log(np.maximum(rates.tnr_low - delta, 0)) - np.log(rates.fnr_high)
    return np.maximum(detected, spared)


def _mu(rates: Rates) -> Any:
    """Phi^-1 of the detections less that of the false alarms; -inf where nothing is shown."""
    return -ndtri(rates.fnr_high) - ndtri(rates.fpr_high)


def _cell(count: np.ndarray) -> np.ndarray:
    logarithm = np.log(np.maximum(count, 1)) / math.log(COUNT_RATIO)
    return np.where(count <= EVERY_COUNT, count, EVERY_COUNT + 1 + np.floor(logarithm))


def check_scores(**values: Any) -> np.ndarray:
    """A non-empty vector of numbers as float64; raises ValueError for anything else, nan among it."""
    ((name, value),) = values.items()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.ndim != 1 or not array.size:
        raise ValueError(
            f"{name} must be a non-empty vector of numbers, got shape {array.shape} of dtype {array.dtype}"
        )
    array = array.astype(np.float64)
    bad = np.isnan(array)
    if bad.any():
        raise ValueError(f"{name} must not be nan, got {int(bad.sum())}, the first at {int(np.argmax(bad))}")
    return array


def check_open_unit(**values: Any) -> None:
    """Each value a number in (0, 1); raises ValueError otherwise."""
    for name, value in values.items():
        if not 0 < number(**{name: value}) < 1:
            raise ValueError(f"{name} must be in (0, 1), got {value}")


def check_share(**values: Any) -> None:
    """Each value a number in [0, 1); raises ValueError otherwise."""
    for name, value in values.items():
        if not 0 <= number(**{name: value}) < 1:
            raise ValueError(f"{name} must be in [0, 1), got {value}")


def check_claim(curve: Any) -> None:
    """A trade-off curve; raises ValueError for anything else."""
    if not isinstance(curve, TradeOff):
        raise ValueError(f"claim must be a trade-off curve of drjax.bounds.tradeoff, got {curve!r}")

"""Audits of a training algorithm from one run: many canaries, each put in or left out by a fair coin of its own.

The auditor looks at the result and guesses of some canaries whether they were in. How many are guessed is fixed
beforehand; which ones and what may depend on the result and on everything about the canaries but their coins. Guesses
that an algorithm with the guarantee would let through as seldom as 1 - confidence refute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincc, expit, ndtr, ndtri
from scipy.stats import binom

from drjax.bounds.audit_statistics import check_open_unit, check_share
from drjax.bounds.curve import number
from drjax.bounds.rounding import SLACK, as_float
from drjax.core import validate

PRECISION = 1e-9
"""Relative: a bound that is found by bisection is the lower end of an interval of this width."""

ROUNDING = 1e-9
"""Relative: what sums of many terms have to exceed a limit by to count as above it."""


def one_run_p_value(n_canaries: int, n_guesses: int, n_correct: int, *, epsilon: float, delta: float) -> float:
    """A bound on the probability of `n_correct` right guesses or more under (epsilon, delta)-privacy.

    Given the result and the coins of earlier canaries, a guess under pure privacy is right with a probability of at
    most q = exp(epsilon) / (1 + exp(epsilon)), so the right ones are stochastically no more than B of a binomial
    distribution of n_guesses trials with q. Delta allows F more, with an expectation of at most 2 n_canaries delta and
    otherwise as bad as can be, so that with v = n_correct

        P[B + F >= v] <= P[B >= v] + sum_i P[F = i] P[v > B >= v - i]
                      <= P[B >= v] + E[F] max_i P[v > B >= v - i] / i.

    Args:
        n_canaries: Canaries with a coin, guessed or not, >= 1.
        n_guesses: Guesses, in [0, n_canaries]; fixed before the run.
        n_correct: How many of them are right, in [0, n_guesses].
        epsilon: Epsilon of adding or removing one canary, >= 0, finite.
        delta: Delta, in [0, 1).

    Returns:
        Bound, in [0, 1]. Costs O(n_guesses) at worst.

    Raises:
        ValueError: an argument out of its range.

    Source: Steinke, Nasr & Jagielski (2023), Privacy auditing with one (1) training run, main theorem and appendix.

    Example:
        >>> from drjax.bounds.auditing import one_run_p_value
        >>> one_run_p_value(1000, 100, 95, epsilon=1.0, delta=1e-5) < 0.01  # an epsilon of 1 is refuted
        True
    """
    _check_counts(n_canaries, n_guesses, n_correct)
    if not 0 <= number(epsilon=epsilon) < math.inf:
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon}")
    check_share(delta=delta)
    return _p_value(n_canaries, n_guesses, n_correct, float(epsilon), float(delta))


def one_run_epsilon(
    n_canaries: int, n_guesses: int, n_correct: int, *, delta: float, confidence: float = 0.95
) -> float:
    """The largest epsilon at which the guesses refute (epsilon, delta)-privacy; 0 where they refute none.

    Thresholds tried on the coins themselves have to be paid for: fix the number of guesses beforehand, or divide
    1 - confidence by how many were tried.

    Args:
        n_canaries: Number of canaries, as in `one_run_p_value`.
        n_guesses: Number of guesses, in [0, n_canaries].
        n_correct: Number of right guesses, in [0, n_guesses].
        delta: Delta, in [0, 1). The bound is of use where n_canaries * delta is well below 1.
        confidence: Confidence, in (0, 1).

    Raises:
        ValueError: an argument out of its range.

    Source: as `one_run_p_value`.

    Example:
        >>> from drjax.bounds.auditing import one_run_epsilon
        >>> round(one_run_epsilon(1000, 100, 95, delta=1e-5), 1)  # 95 of the 100 surest guesses are right
        2.2
    """
    _check_counts(n_canaries, n_guesses, n_correct)
    check_share(delta=delta)
    check_open_unit(confidence=confidence)
    return _largest(lambda epsilon: _p_value(n_canaries, n_guesses, n_correct, epsilon, float(delta)) <= 1 - confidence)


def one_run_mu(n_canaries: int, n_guesses: int, n_correct: int, *, confidence: float = 0.95) -> float:
    """The largest mu at which the guesses refute mu-GDP; 0 where they refute none.

    `epsilon_from_mu` of it is an epsilon of algorithms with a Gaussian curve alone. Guess few, the surest: of 10,000
    canaries with independent noise and a mu of 1 the surest 300 gave 0.74 on average over 40 runs, which is an epsilon
    of 3.1 at delta 1e-5, where `one_run_epsilon` gave 2.4 of the true 4.4. Guesses of all 10,000 gave 0.34.

    With p_i the probability of i right guesses among c, and B(x) = Phi(Phi^-1(x) + mu): that canary j is guessed right
    and the right ones are i or more is, with its coin turned over, that j is guessed wrong and they are i - 1 or more.
    On average over all m canaries mu-GDP says

        sum_{k >= i} k p_k / m <= B(sum_{k >= i - 1} (c - k) p_k / m).

    Let v right guesses or more have a probability of at least 1 - confidence. From k = v downward each inequality asks
    for a least mass of the next p_k; the least total comes of all the mass above v - 1 at v itself. Where that total
    exceeds 1, the assumption is false, and v right guesses are less likely than that.

    Args:
        n_canaries: Number of canaries, as in `one_run_p_value`.
        n_guesses: Number of guesses, in [0, n_canaries]; fixed before the run.
        n_correct: Number of right guesses, in [0, n_guesses].
        confidence: Confidence, in (0, 1).

    Raises:
        ValueError: an argument out of its range.

    Source: Mahloujifar, Melis & Chaudhuri (2024), Auditing f-differential privacy in one run.

    Example:
        >>> from drjax.bounds.auditing import one_run_mu
        >>> round(one_run_mu(1000, 100, 95), 1)
        0.8
    """
    _check_counts(n_canaries, n_guesses, n_correct)
    check_open_unit(confidence=confidence)
    return _largest(lambda mu: _refutes_mu(n_canaries, n_guesses, n_correct, mu, 1 - confidence))


def _p_value(n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float) -> float:
    if n_correct == 0:
        return 1.0
    wrong = float(expit(-epsilon))
    # At least n_correct right is at most so many wrong, and `wrong` has all the digits that 1 - wrong has lost.
    tail = float(betaincc(n_guesses - n_correct + 1, n_correct, wrong))
    allowance = 2 * n_canaries * delta
    if allowance:
        tail += allowance * _largest_mean(n_guesses, n_correct, wrong)
    return min(1.0, tail * (1 + SLACK))


def _largest_mean(n_guesses: int, n_correct: int, wrong: float) -> float:
    """The largest over i of P[n_correct > B >= n_correct - i] / i: a mean of the i probabilities below n_correct."""
    length = min(64, n_correct)
    while True:
        n_terms = np.arange(1, length + 1)
        means = np.cumsum(binom.pmf(n_guesses - n_correct + n_terms, n_guesses, wrong)) / n_terms
        # Downward the probabilities rise to their mode and then fall, and so do their means: once these fall, stop.
        if length == n_correct or means[-1] < means.max():
            return float(means.max())
        length = min(2 * length, n_correct)


def _refutes_mu(n_canaries: int, n_guesses: int, n_correct: int, mu: float, significance: float) -> bool:
    limit = n_guesses / n_canaries * (1 + ROUNDING)
    right = significance * n_correct / n_canaries
    wrong = significance * (n_guesses - n_correct) / n_canaries
    for k in range(n_correct - 1, -1, -1):
        needed = float(ndtr(ndtri(right) - mu))
        if needed <= wrong:
            # Nor will any later inequality ask for more: `right` stays as it is.
            return False
        right += k / (n_guesses - k) * (needed - wrong)
        wrong = needed
        if right + wrong > limit:
            return True
    return False


def _largest(is_refuted: Callable[[float], bool]) -> float:
    """The end of the interval from 0 on which something is refuted, from below."""
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def _check_counts(n_canaries: int, n_guesses: int, n_correct: int) -> None:
    as_float(n_canaries=n_canaries)
    validate.integer(minimum=0, n_guesses=n_guesses, n_correct=n_correct)
    validate.at_most(n_canaries, "n_canaries", n_guesses=n_guesses)
    validate.at_most(n_guesses, "n_guesses", n_correct=n_correct)

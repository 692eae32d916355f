import math

import numpy as np
import pytest
from jax_privacy import auditing as reference
from scipy.special import ndtr
from scipy.stats import binom

from drjax.bounds import auditing

CASES = [
    (10, 10, 10),
    (100, 20, 19),
    (1000, 1000, 700),
    (1000, 100, 90),
    (1000, 100, 100),
    (1000, 300, 160),
    (5000, 2000, 1990),
]


def jax_privacy_auditor(n_canaries, n_guesses, n_correct):
    """Scores of canaries in and out of which those above 0.5 are the guesses "in"; theirs are one-sided."""
    n_in = max(n_canaries // 2, n_correct)
    n_out = n_canaries - n_in
    wrong = n_guesses - n_correct
    assert wrong <= n_out
    with_target = np.r_[np.ones(n_correct), np.zeros(n_in - n_correct)]
    without = np.r_[np.ones(wrong), np.zeros(n_out - wrong)]
    return reference.CanaryScoreAuditor(with_target, without if n_out else np.zeros(0))


@pytest.mark.parametrize(("m", "r", "v"), CASES[1:])
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_epsilon_is_that_of_jax_privacy(m, r, v, delta, confidence):
    expected = jax_privacy_auditor(m, r, v).epsilon_one_run(
        1 - confidence, delta, threshold_strategy=reference.Explicit(0.5)
    )
    found = auditing.one_run_epsilon(m, r, v, delta=delta, confidence=confidence)
    assert found == pytest.approx(expected, abs=2e-6)  # its root is to 1e-6


@pytest.mark.parametrize(("m", "r", "v"), CASES[1:])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_epsilon_of_mu_is_that_of_jax_privacy(m, r, v, confidence):
    expected = jax_privacy_auditor(m, r, v).epsilon_one_run_fdp(
        1 - confidence, 1e-5, threshold_strategy=reference.Explicit(0.5)
    )
    mu = auditing.one_run_mu(m, r, v, confidence=confidence)
    # Its root is to 1e-6, after a search for the noise of each epsilon.
    assert auditing.epsilon_from_mu(mu, delta=1e-5) == pytest.approx(expected, abs=1e-5)


def defined_p_value(m, r, v, epsilon, delta):
    """The bound as it is written in the paper, term by term."""
    q = 1 / (1 + math.exp(-epsilon))
    mass = binom.pmf(np.arange(r + 1), r, q)
    worst = max((mass[v - i : v].sum() / i for i in range(1, v + 1)), default=0.0)
    return min(1.0, mass[v:].sum() + 2 * m * delta * worst)


@pytest.mark.parametrize(("m", "r", "v"), [*CASES, (50, 30, 0), (50, 0, 0), (2000, 2000, 1000)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 9.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
def test_p_value_is_the_defined_one(m, r, v, epsilon, delta):
    found = auditing.one_run_p_value(m, r, v, epsilon=epsilon, delta=delta)
    # Sums of up to 2,001 terms on the other side.
    assert found == pytest.approx(defined_p_value(m, r, v, epsilon, delta), rel=1e-9, abs=1e-12)


def test_p_value_of_many_guesses_keeps_its_digits():
    # One wrong guess in a million at an epsilon where that is what to expect: P[Poisson(1) <= 1] = 2 / e.
    found = auditing.one_run_p_value(10**6, 10**6, 10**6 - 1, epsilon=math.log(10**6), delta=0.0)
    assert found == pytest.approx(2 / math.e, rel=1e-5)


@pytest.mark.parametrize(("m", "r", "v"), CASES)
def test_epsilon_is_where_the_p_value_meets_the_confidence(m, r, v):
    found = auditing.one_run_epsilon(m, r, v, delta=1e-6)
    if found == 0:
        assert auditing.one_run_p_value(m, r, v, epsilon=0.0, delta=1e-6) > 0.05
    else:
        assert auditing.one_run_p_value(m, r, v, epsilon=found, delta=1e-6) <= 0.05
        assert auditing.one_run_p_value(m, r, v, epsilon=found * (1 + 1e-6), delta=1e-6) > 0.05


def first_refuting(bound, truth, r):
    """The least number of right guesses whose bound is above the truth; bounds grow with them."""
    low, high = -1, r + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) > truth else (middle, high)
    return high


@pytest.mark.parametrize("m", [20, 1000])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_randomised_response_is_overstated_as_often_as_allowed(m, epsilon, confidence):
    v = first_refuting(lambda v: auditing.one_run_epsilon(m, m, v, delta=0.0, confidence=confidence), epsilon, m)
    right = 1 / (1 + math.exp(-epsilon))
    found = binom.sf(v - 1, m, right)
    # Tight for this mechanism: one right guess less would be too many.
    assert found <= 1 - confidence < binom.sf(v - 2, m, right) + 1e-9


@pytest.mark.parametrize("delta", [1e-4, 1e-2])
def test_a_mechanism_that_shows_some_coins_is_overstated_no_more_often_than_allowed(delta):
    m, epsilon = 300, 1.0
    v = first_refuting(lambda v: auditing.one_run_epsilon(m, m, v, delta=delta), epsilon, m)
    right = delta + (1 - delta) / (1 + math.exp(-epsilon))
    assert binom.sf(v - 1, m, right) <= 0.05


@pytest.mark.parametrize("m", [20, 1000])
@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_mu_is_overstated_no_more_often_than_allowed_where_all_are_guessed(m, mu, confidence):
    v = first_refuting(lambda v: auditing.one_run_mu(m, m, v, confidence=confidence), mu, m)
    assert binom.sf(v - 1, m, ndtr(mu / 2)) <= 1 - confidence


@pytest.mark.parametrize("mu", [0.5, 2.0])
@pytest.mark.parametrize("r", [20, 200])
def test_mu_is_overstated_no_more_often_than_allowed_where_the_surest_are_guessed(mu, r):
    rng, m, n_audits = np.random.default_rng(0), 400, 300
    coins = rng.integers(2, size=(n_audits, m)) * 2 - 1
    scores = coins * mu / 2 + rng.normal(size=(n_audits, m))
    surest = np.argsort(-np.abs(scores), axis=1)[:, :r]
    right = np.take_along_axis(np.sign(scores) == coins, surest, axis=1).sum(axis=1)
    v = first_refuting(lambda v: auditing.one_run_mu(m, r, v), mu, r)
    # A rate of 5% exceeds this once in a thousand such tests.
    assert (right >= v).sum() <= binom.isf(1e-3, n_audits, 0.05)


@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_the_surest_guesses_show_most_of_mu_and_catch_half_the_noise(noise):
    rng, mu, m, r = np.random.default_rng(0), 1.0, 10_000, 300
    coins = rng.integers(2, size=m) * 2 - 1
    scores = coins * mu / 2 + noise * rng.normal(size=m)
    is_right = np.sign(scores) == coins
    right = int(is_right[np.argsort(-np.abs(scores))[:r]].sum())
    found = auditing.one_run_mu(m, r, right)
    assert (0.6 < found <= mu) if noise == 1 else found > mu
    # Guesses of all canaries show less, and so does epsilon by itself.
    assert auditing.one_run_mu(m, m, int(is_right.sum())) < found
    epsilon = auditing.one_run_epsilon(m, r, right, delta=1e-5)
    assert 0 < 1.1 * epsilon < auditing.epsilon_from_mu(found, delta=1e-5)


@pytest.mark.parametrize("bound", [lambda v: auditing.one_run_epsilon(200, 80, v, delta=1e-6), None])
def test_bounds_grow_with_the_right_guesses_from_nothing_to_something_finite(bound):
    bound = bound or (lambda v: auditing.one_run_mu(200, 80, v))
    found = [bound(v) for v in range(0, 81, 4)]
    assert found[:11] == [0.0] * 11
    assert np.all(np.diff(found) >= 0)
    assert 1 < found[-1] < math.inf


def test_no_guesses_show_nothing():
    assert auditing.one_run_epsilon(5, 0, 0, delta=0.0) == 0
    assert auditing.one_run_mu(5, 0, 0) == 0


FUNCTIONS = {
    "p_value": lambda *counts: auditing.one_run_p_value(*counts, epsilon=1.0, delta=0.0),
    "epsilon": lambda *counts: auditing.one_run_epsilon(*counts, delta=0.0),
    "mu": lambda *counts: auditing.one_run_mu(*counts),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 0, 0), "n_canaries must be an integer >= 1, got 0"),
        ((5, 6, 0), "n_guesses must be <= n_canaries = 5, got 6"),
        ((5, 3, 4), "n_correct must be <= n_guesses = 3, got 4"),
        ((5, 3, -1), "n_correct must be an integer >= 0, got -1"),
        ((5, 3.0, 1), "n_guesses must be an integer"),
        ((5, 3, True), "n_correct must be an integer"),
    ],
)
def test_impossible_counts_are_refused(name, counts, message):
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](*counts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: auditing.one_run_p_value(5, 3, 2, epsilon=-1.0, delta=0.0), "epsilon must be a finite number >= 0"),
        (
            lambda: auditing.one_run_p_value(5, 3, 2, epsilon=math.inf, delta=0.0),
            "epsilon must be a finite number >= 0",
        ),
        (
            lambda: auditing.one_run_p_value(5, 3, 2, epsilon=math.nan, delta=0.0),
            "epsilon must be a finite number >= 0",
        ),
        (lambda: auditing.one_run_p_value(5, 3, 2, epsilon=1.0, delta=1.0), r"delta must be in \[0, 1\), got 1.0"),
        (lambda: auditing.one_run_epsilon(5, 3, 2, delta=-0.1), r"delta must be in \[0, 1\), got -0.1"),
        (lambda: auditing.one_run_epsilon(5, 3, 2, delta=0.0, confidence=1.0), r"confidence must be in \(0, 1\)"),
        (lambda: auditing.one_run_mu(5, 3, 2, confidence=math.nan), r"confidence must be in \(0, 1\), got nan"),
    ],
)
def test_parameters_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

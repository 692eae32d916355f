import math

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

from drjax.bounds import prior


def test_uniform_ball_is_the_share_of_the_volume():
    eta = np.array([0.0, 0.2, 0.9, 1.0, 3.0])
    found = prior.kappa_uniform_ball(eta, 7, radius=1.5)
    np.testing.assert_allclose(found, np.minimum(eta / 1.5, 1) ** 7, rtol=1e-9)
    rng = np.random.default_rng(0)
    # A ball's points by rejection from its cube; four standard deviations of their share.
    x = rng.uniform(-1, 1, (400_000, 3))
    x = x[np.linalg.norm(x, axis=1) <= 1]
    share = np.mean(np.linalg.norm(x, axis=1) <= 0.6)
    assert share == pytest.approx(float(prior.kappa_uniform_ball(0.6, 3)), abs=4 * math.sqrt(0.216 * 0.784 / len(x)))


@pytest.mark.parametrize("d", [1, 10, 784])
def test_gaussian_agrees_with_arbitrary_precision(d):
    sigma = 0.7
    for quantile in (1e-3, 0.3, 0.9, 1.1):
        eta = quantile * sigma * math.sqrt(d)
        with mpmath.workdps(60):
            exact = mpmath.log(
                mpmath.gammainc(mpmath.mpf(d) / 2, 0, mpmath.mpf(eta / sigma) ** 2 / 2, regularized=True)
            )
        assert float(prior.log_kappa_gaussian(eta, d, sigma)) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(
        prior.kappa_gaussian([0.5, 1.0], 3, 0.7), chi2.cdf((np.array([0.5, 1.0]) / 0.7) ** 2, 3), rtol=1e-9
    )


def test_what_is_too_small_for_float64_is_not_zero():
    assert float(prior.kappa_gaussian(0.1, 784, 1.0)) == np.nextafter(0, 1)
    assert float(prior.kappa_uniform_ball(1e-3, 784)) == np.nextafter(0, 1)
    assert float(prior.kappa_uniform_ball(0.0, 784)) == 0
    assert float(prior.log_kappa_uniform_ball(1e-3, 784)) == pytest.approx(784 * math.log(1e-3))


def test_discrete_priors():
    assert prior.kappa_discrete(8) == 0.125
    assert prior.kappa_exact_match([0.2, 0.5, 0.3]) == 0.5


def test_an_empirical_prior_of_two_clusters():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0]])
    # 70% within 1 of the first centre for sure, and no guess is near both.
    x = centres[(rng.random(4000) > 0.7).astype(int)] + rng.uniform(-0.6, 0.6, (4000, 2))
    found = prior.kappa_empirical(x, 1.0)
    assert found.lower < 0.7 < found.upper_of_all
    assert found.kappa == pytest.approx(0.7, abs=0.03)
    assert found.lower <= found.kappa <= found.upper <= 1
    # P[two draws share a cluster] = 0.58; its root is what collisions can certify.
    assert found.upper_of_all == pytest.approx(math.sqrt(0.58), abs=0.03)
    assert np.linalg.norm(found.guess) < 1


def test_intervals_hold_as_often_as_they_say():
    rng, low, high = np.random.default_rng(1), 0, 0
    for _ in range(300):
        x = rng.uniform(0, 1, (60, 1))
        # The best guess of a uniform number to within 0.2 is right with probability 0.4.
        found = prior.kappa_empirical(x, 0.2, confidence=0.9)
        low += found.lower > 0.4
        high += found.upper_of_all < 0.4
    # At most a tenth may fail; 0.17 is four standard deviations more.
    assert low / 300 <= 0.17
    assert high / 300 <= 0.17


def test_any_error_can_be_given_and_without_a_metric_nothing_is_certified_of_all_guesses():
    def worst_coordinate(records, guesses):
        return np.abs(records[:, None] - guesses).max(axis=2)

    x = np.random.default_rng(0).uniform(0, 1, (400, 2))
    found = prior.kappa_empirical(x, 0.5, worst_coordinate, guesses=np.array([[0.5, 0.5]]))
    assert found.upper_of_all == 1
    np.testing.assert_array_equal(found.guess, [0.5, 0.5])
    assert prior.kappa_empirical(x, 0.1, worst_coordinate, is_metric=True).upper_of_all < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: prior.kappa_uniform_ball(-1.0, 2), "eta must be >= 0, got -1.0"),
        (lambda: prior.kappa_uniform_ball(math.nan, 2), "eta must be >= 0, got nan"),
        (lambda: prior.kappa_uniform_ball(1.0, 2, radius=0), "radius must be a finite number > 0"),
        (lambda: prior.kappa_gaussian(1.0, 2.5, 1.0), "d must be an integer >= 1"),
        (lambda: prior.kappa_gaussian(1.0, 2, math.nan), "sigma must be"),
        (lambda: prior.kappa_discrete(0), "k must be an integer >= 1"),
        (lambda: prior.kappa_exact_match([0.2, 0.2]), "probabilities must have the sum 1"),
        (lambda: prior.kappa_exact_match([]), "probabilities must be"),
        (lambda: prior.kappa_all(1.5, 2), "kappa must be in"),
        (lambda: prior.kappa_any(0.5, 0), "n_targets must be"),
        (lambda: prior.kappa_empirical(np.ones((3, 2)), 0.1), "samples must have at least 4 rows"),
        (lambda: prior.kappa_empirical(np.ones((9, 2)), 0.1, confidence=1.0), "confidence must be in"),
        (lambda: prior.kappa_empirical(np.ones((9, 2)), 0.1, guesses=np.ones((1, 3))), "guesses must have 2 columns"),
        (lambda: prior.kappa_empirical(np.ones((9, 2)), 0.1, lambda x, g: x @ g.T * np.nan), "error must give"),
    ],
)
def test_bad_input_names_the_argument_the_rule_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.covariance import LedoitWolf

from drjax.attacks.reconstruction.priors import GaussianPrior, Prior

D, Q, M = 8, 3, 5


@pytest.fixture
def rng():
    return np.random.default_rng(2)


@pytest.fixture
def prior(rng):
    root = rng.normal(size=(D, D))
    return GaussianPrior(rng.normal(size=D), root @ root.T + np.eye(D))


def conditional_mean(prior, operator, values, noise):
    """The textbook formula from the joint covariance, one lane; noise (q,)."""
    gram = operator @ prior.covariance @ operator.T + np.diag(noise)
    return prior.mean + prior.covariance @ operator.T @ np.linalg.inv(gram) @ (values - operator @ prior.mean)


def box_programme(prior, operator, values, noise, low, high):
    """Mode of the truncated posterior from its precision matrix, by L-BFGS-B, one lane."""
    precision = np.linalg.inv(prior.covariance) + operator.T @ (operator / noise[:, None])
    centre = conditional_mean(prior, operator, values, noise)
    solved = minimize(
        lambda z: ((z - centre) @ precision @ (z - centre) / 2, precision @ (z - centre)),
        np.clip(centre, low, high),
        jac=True,
        bounds=[(low, high)] * len(centre),
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    return solved.x


def test_fit_is_the_mean_the_variances_and_the_shrunken_correlations_of_scikit_learn(rng):
    x = rng.normal(size=(20, D)) @ rng.normal(size=(D, D))
    scale = x.std(axis=0)
    assert (np.ptp(x, axis=0) < 6 * scale).all()
    prior = GaussianPrior.fit(x)
    correlation = LedoitWolf().fit((x - x.mean(axis=0)) / scale)
    np.testing.assert_allclose(prior.mean, x.mean(axis=0))
    np.testing.assert_allclose(prior.covariance, correlation.covariance_ * np.outer(scale, scale), rtol=1e-10)
    assert isinstance(prior, Prior)


def test_shrinkage_takes_the_correlations_away_and_no_variance(rng):
    x = rng.normal(size=(30, D)) @ rng.normal(size=(D, D))
    sample = np.cov(x, rowvar=False, bias=True)
    np.testing.assert_allclose(GaussianPrior.fit(x, shrinkage=0).covariance, sample, atol=1e-12)
    full = GaussianPrior.fit(x, shrinkage=1).covariance
    np.testing.assert_allclose(full, np.diag(np.diagonal(sample)), atol=1e-12)


def test_units_of_the_features_are_of_no_matter(rng):
    x, units = rng.normal(size=(30, D)) @ rng.normal(size=(D, D)), 10.0 ** np.arange(-4, D - 4)
    operator, truth = rng.normal(size=(Q, D)), rng.normal(size=(M, D))
    values = truth @ operator.T
    plain = GaussianPrior.fit(x).condition(operator, values, 0.1, lower=-1, upper=1)
    other = GaussianPrior.fit(x * units).condition(operator / units, values, 0.1, lower=-units, upper=units)
    np.testing.assert_allclose(other / units, plain, atol=1e-9)


def test_a_feature_that_never_varied_has_little_variance_and_no_correlation(rng):
    x = rng.normal(size=(30, D)) @ rng.normal(size=(D, D))
    x[:, 3] = 5
    prior = GaussianPrior.fit(x, shrinkage=0.1)
    deviations = np.delete(x.std(axis=0), 3)
    assert prior.covariance[3, 3] == pytest.approx(0.1 * np.median(deviations) ** 2)
    np.testing.assert_array_equal(np.delete(prior.covariance[3], 3), 0)


def test_lanes_do_not_share_their_noise(prior, rng):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    noise = 0.1 * 1.5 ** np.arange(M)[:, None] * np.ones(Q)
    together = prior.condition(operator, values, noise, lower=-0.5, upper=0.5)
    for lane in range(M):
        alone = prior.condition(operator, values[[lane]], noise[[lane]], lower=-0.5, upper=0.5)
        np.testing.assert_allclose(together[lane], alone[0], atol=1e-12)


@pytest.mark.parametrize("noise", [0.3, np.array([0.1, 2.0, 0.01])], ids=["scalar", "per measurement"])
def test_conditioning_equals_the_textbook_formula(prior, rng, noise):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    expected = [conditional_mean(prior, operator, v, np.broadcast_to(noise, Q)) for v in values]
    np.testing.assert_allclose(prior.condition(operator, values, noise), expected, atol=1e-9)


def test_each_lane_is_conditioned_with_its_own_noise(prior, rng):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    # Levels a hundredfold apart: no two lanes may share a factorisation.
    noise = np.full((M, Q), 1e-6) * 100.0 ** rng.permutation(M)[:, None]
    expected = [conditional_mean(prior, operator, v, s) for v, s in zip(values, noise, strict=True)]
    np.testing.assert_allclose(prior.condition(operator, values, noise), expected, atol=1e-9)


def test_a_noiseless_measurement_holds_to_the_last_digits(prior, rng):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    np.testing.assert_allclose(prior.condition(operator, values) @ operator.T, values, atol=1e-10)


def test_a_noiseless_measurement_holds_where_the_prior_is_singular(rng):
    # Fewer public records than features and no shrinkage: most directions have no variance at all.
    prior = GaussianPrior.fit(rng.normal(size=(3, D)), shrinkage=0)
    operator, values = rng.normal(size=(Q + 1, D)), rng.normal(size=(M, Q + 1))
    np.testing.assert_allclose(prior.condition(operator, values) @ operator.T, values, atol=1e-10)


def test_as_many_measurements_as_features_leave_nothing_to_the_prior(prior, rng):
    truth, operator = rng.normal(size=(M, D)), rng.normal(size=(D, D))
    np.testing.assert_allclose(prior.condition(operator, truth @ operator.T), truth, atol=1e-9)


def test_an_isotropic_prior_gives_the_smallest_correction_of_its_mean(rng):
    mean, operator, values = rng.normal(size=D), rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    expected = mean + (values - operator @ mean) @ np.linalg.pinv(operator).T
    np.testing.assert_allclose(GaussianPrior.isotropic(mean).condition(operator, values), expected, atol=1e-10)


def test_worthless_measurements_leave_the_mean(prior, rng):
    found = prior.condition(rng.normal(size=(Q, D)), rng.normal(size=(M, Q)), 1e14)
    np.testing.assert_allclose(found, np.broadcast_to(prior.mean, (M, D)), atol=1e-9)


def test_a_measurement_made_twice_counts_as_one_of_half_the_noise(prior, rng):
    operator, values = rng.normal(size=(1, D)), rng.normal(size=(M, 1))
    twice = prior.condition(operator.repeat(2, axis=0), values.repeat(2, axis=1), 0.4)
    np.testing.assert_allclose(twice, prior.condition(operator, values, 0.2), atol=1e-9)


def test_an_operator_that_measures_nothing_leaves_the_mean(prior):
    found = prior.condition(np.zeros((Q, D)), np.zeros((M, Q)))
    np.testing.assert_allclose(found, np.broadcast_to(prior.mean, (M, D)))


def test_bounds_give_the_solution_of_the_quadratic_programme(prior, rng):
    operator, values, noise = rng.normal(size=(Q, D)), rng.normal(size=(M, Q)), np.array([0.5, 1.0, 0.2])
    found = prior.condition(operator, values, noise, lower=-0.3, upper=0.4)
    expected = np.stack([box_programme(prior, operator, v, noise, -0.3, 0.4) for v in values])
    clipped = np.clip(prior.condition(operator, values, noise), -0.3, 0.4)
    assert np.abs(clipped - expected).max() > 0.05  # mere clipping would not pass
    # A lane stops once a step is below 1e-6; what linear convergence leaves is some hundred steps.
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert found.min() >= -0.3
    assert found.max() <= 0.4


def test_bounds_that_do_not_bind_change_nothing(prior, rng):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    np.testing.assert_allclose(
        prior.condition(operator, values, lower=-100, upper=100), prior.condition(operator, values), atol=1e-12
    )


def test_one_sided_bounds_hold(prior, rng):
    found = prior.condition(rng.normal(size=(Q, D)), rng.normal(size=(M, Q)), 0.1, lower=0)
    assert found.min() == 0
    assert found.max() > 0.1


def test_equal_bounds_fix_a_feature_and_condition_the_others_on_it(prior, rng):
    operator, values = rng.normal(size=(Q, D)), rng.normal(size=(M, Q))
    lower, upper = np.full((M, D), -np.inf), np.full((M, D), np.inf)
    lower[:, 2] = upper[:, 2] = fixed = rng.normal(size=M)
    found = prior.condition(operator, values, 0.5, lower=lower, upper=upper)
    np.testing.assert_array_equal(found[:, 2], fixed)
    measured_too = np.vstack([operator, np.eye(D)[2]])
    for lane in range(M):
        expected = conditional_mean(
            prior, measured_too, np.append(values[lane], fixed[lane]), np.array([0.5, 0.5, 0.5, 1e-12])
        )
        np.testing.assert_allclose(found[lane], expected, atol=2e-4)  # the stopping rule, as above


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"operator": np.ones((Q, D + 1))}, f"operator must have {D} columns"),
        ({"values": np.ones((M, Q + 1))}, f"values must have {Q} columns"),
        ({"values": np.full((M, Q), np.nan)}, "values must be finite"),
        ({"noise_variance": -1.0}, "noise_variance must be >= 0"),
        ({"noise_variance": np.nan}, "noise_variance must be >= 0"),
        ({"lower": 1.0, "upper": 0.0}, "lower must be <= upper"),
        ({"lower": np.nan}, "lower must be <= upper"),
    ],
)
def test_bad_arguments_are_refused_by_name(prior, change, match):
    arguments = {"operator": np.eye(Q, D), "values": np.ones((M, Q)), **change}
    with pytest.raises(ValueError, match=match):
        prior.condition(**arguments)


@pytest.mark.parametrize(
    ("public", "shrinkage", "match"),
    [
        (np.ones((1, D)), None, "public must have at least 2 rows"),
        (np.full((3, D), np.nan), None, "public must be finite"),
        (np.ones((3, D)), 1.5, "shrinkage must be in"),
    ],
)
def test_fit_refuses_bad_public_data(public, shrinkage, match):
    with pytest.raises(ValueError, match=match):
        GaussianPrior.fit(public, shrinkage=shrinkage)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_prior_of_few_records_is_truncated_in_their_directions_alone(noise):
    rng = np.random.default_rng(0)
    public, targets, operator = rng.random((12, 60)) ** 3, rng.random((4, 60)), rng.normal(size=(5, 60))
    few = GaussianPrior.fit(public)
    dense = GaussianPrior(few.mean, few.covariance)
    assert few.factor is not None
    correlation = few.factor.T @ few.factor + few.floor * np.eye(60)
    np.testing.assert_allclose(correlation * np.outer(few.scale, few.scale), few.covariance, atol=1e-15)
    assert few.standard()._span(operator) is not None
    assert dense._span(operator) is None
    assert few.standard()._span(rng.normal(size=(18, 60))) is None  # not few enough
    for prior in (few, few.raised(1e-3)):
        found = prior.condition(operator, targets @ operator.T, noise, lower=0, upper=1)
        whole = GaussianPrior(prior.mean, prior.covariance, scale=prior.scale)
        expected = whole.condition(operator, targets @ operator.T, noise, lower=0, upper=1)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    raised = few.raised(0.5)
    assert np.trace(raised.covariance) == pytest.approx(1.5 * np.trace(few.covariance))


@pytest.mark.parametrize("bounded", [False, True])
def test_more_measurements_than_features_count_as_all_of_them_do(bounded):
    rng = np.random.default_rng(0)
    prior = GaussianPrior.fit(rng.uniform(size=(60, 5)))
    operator, truth = rng.normal(size=(40, 5)), rng.uniform(size=(3, 5))
    values = truth @ operator.T + 0.1 * rng.normal(size=(3, 40))
    bounds = {"lower": 0.0, "upper": 1.0} if bounded else {}
    found = prior.condition(operator, values, 0.01, **bounds)
    # Noise that differs by a hair is taken measurement by measurement.
    apart = prior.condition(operator, values, np.where(np.arange(40) == 0, 0.01 + 1e-12, 0.01), **bounds)
    np.testing.assert_allclose(found, apart, atol=1e-7)

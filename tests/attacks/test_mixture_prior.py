"""A mixture of Gaussians as a prior: against scikit-learn's mixture, one Gaussian, and the kinds that made the data."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits

from drjax.attacks.reconstruction import stationarity
from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.attacks.reconstruction.mixture_prior import MixturePrior, _log_density
from drjax.attacks.reconstruction.priors import GaussianPrior, Prior
from drjax.attacks.shadow import shadow_embeddings
from drjax.dr import MDS, PCA

DIGITS = np.random.default_rng(0).permutation(load_digits(return_X_y=True)[0] / 16)
KNOWN, PUBLIC, TARGETS = DIGITS[:30], DIGITS[100:1300], DIGITS[1300:1400]


@pytest.fixture(scope="module")
def learned():
    return MixturePrior.fit(PUBLIC)


def two_kinds(n, seed=0):
    """Records along two lines that cross."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.3
    along = rng.normal(size=(n, 1))
    x = np.where(kind[:, None], [[5.0, 0, 0, 0]] + along * [1, 2, 0, 0], [[-5.0, 0, 0, 0]] + along * [1, 0, -2, 1])
    return x + 0.1 * rng.normal(size=(n, 4)), kind


def test_it_finds_the_kinds_that_made_the_records():
    x, kind = two_kinds(1000)
    found = MixturePrior.fit(x, components=(2,))
    assert isinstance(found, Prior)
    assert len(found.weights) == 2
    np.testing.assert_allclose(np.sort(found.weights), np.sort([kind.mean(), 1 - kind.mean()]), atol=1e-12)
    np.testing.assert_allclose(found.mean, x.mean(axis=0))
    own = x[kind]
    part = min(found.components, key=lambda c: float(np.linalg.norm(c.mean - own.mean(axis=0))))
    np.testing.assert_allclose(part.mean, own.mean(axis=0), atol=1e-12)
    shared = found.pooling * GaussianPrior.fit(x).covariance
    np.testing.assert_allclose(part.covariance, (1 - found.pooling) * np.cov(own.T, bias=True) + shared, atol=1e-12)


@pytest.mark.parametrize("noise", [0.3, np.array([0.05, 2.0])])
def test_conditioning_is_bayes_rule(noise):
    x, _ = two_kinds(400)
    prior = MixturePrior.fit(x, components=(2,))
    rng = np.random.default_rng(1)
    operator, values = rng.normal(size=(2, 4)), rng.normal(size=(5, 2))
    weighted, total = np.zeros((5, 4)), np.zeros(5)
    for weight, part in zip(prior.weights, prior.components, strict=True):
        gram = operator @ part.covariance @ operator.T + np.diag(np.broadcast_to(noise, 2))
        evidence = weight * multivariate_normal.pdf(values, mean=operator @ part.mean, cov=gram)
        weighted = weighted + evidence[:, None] * part.condition(operator, values, noise)
        total = total + evidence
    # Components of less than a thousandth of the likeliest are left out.
    expected = weighted / total[:, None]
    np.testing.assert_allclose(prior.condition(operator, values, noise), expected, atol=0.03)
    free = prior.condition(operator, values, noise, lower=-1e6, upper=1e6)
    np.testing.assert_allclose(free, prior.condition(operator, values, noise), atol=1e-9)
    assert prior.condition(operator, values, noise, lower=-1, upper=1).max() <= 1


def test_records_of_one_kind_are_left_to_one_gaussian():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6)) @ rng.normal(size=(6, 6))
    prior, single = MixturePrior.fit(x), GaussianPrior.fit(x)
    assert len(prior.components) == 1
    operator, values = rng.normal(size=(2, 6)), rng.normal(size=(4, 2))
    np.testing.assert_allclose(prior.condition(operator, values), single.condition(operator, values), atol=1e-12)
    assert len(MixturePrior.fit(x[:3]).components) == 1


def test_few_records_of_many_features_are_handled_in_their_directions():
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(2, 200))
    x = kinds[np.arange(60) % 2] + 0.3 * rng.normal(size=(60, 4)) @ rng.normal(size=(4, 200))
    few = MixturePrior.fit(x, components=(2,))
    assert len(few.components) == 2
    for part in few.components:
        assert part.factor is not None
        correlation = part.factor.T @ part.factor + part.floor * np.eye(200)
        np.testing.assert_allclose(correlation * np.outer(part.scale, part.scale), part.covariance, atol=1e-12)
        dense = GaussianPrior(part.mean, part.covariance, scale=part.scale)
        apart = _log_density(part, x) - _log_density(dense, x)
        np.testing.assert_allclose(apart, 0, atol=1e-5)


def test_the_closed_form_of_pca_does_better_with_it_on_digits(learned):
    with jax.enable_x64(True):
        coords = shadow_embeddings(jax.random.key(0), PCA(), KNOWN, TARGETS).coords
    error = [
        np.mean((reconstruct_pca(KNOWN, coords, prior=prior, bounds=(0, 1)).x - TARGETS) ** 2)
        for prior in (learned, GaussianPrior.fit(PUBLIC))
    ]
    assert error[0] < 0.85 * error[1], error


@pytest.fixture(scope="module")
def made():
    """Maps by MDS at rest, of public records and of targets."""
    with jax.enable_x64(True):
        both = shadow_embeddings(
            jax.random.key(0), MDS(max_iter=3000, eps=1e-10), KNOWN, np.concatenate([PUBLIC[:10], TARGETS[:20]])
        ).coords
    return both[:10], both[10:]


@pytest.mark.parametrize("bounds", [None, (0, 1)])
def test_so_does_stationarity_of_mds(learned, made, bounds):
    scale = stationarity.calibrate(KNOWN, made[0], PUBLIC[:10])
    error = [
        np.mean(
            (stationarity.reconstruct_mds(KNOWN, made[1], prior=prior, scale=scale, bounds=bounds).x - TARGETS[:20])
            ** 2
        )
        for prior in (learned, GaussianPrior.fit(PUBLIC))
    ]
    assert error[0] < 0.85 * error[1], error


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"noise_variance": -1.0}, "noise_variance must be >= 0"),
        ({"lower": 1.0, "upper": 0.0}, "lower must be <= upper"),
        ({"operator": np.ones((2, 3))}, "operator must have 64 columns"),
    ],
)
def test_bad_measurements_are_refused_as_by_one_gaussian(learned, change, match):
    arguments = {"operator": np.ones((2, 64)), "values": np.ones((4, 2)), **change}
    for prior in (learned, GaussianPrior.fit(PUBLIC)):
        with pytest.raises(ValueError, match=match):
            prior.condition(**arguments)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"public": np.zeros((1, 3))}, "public must have at least 2 rows"),
        ({"public": np.full((20, 3), np.nan)}, "public must be finite"),
        ({"components": (1,)}, "components must be an integer >= 2, got 1"),
        ({"pooling": (0.0,)}, "pooling must be > 0"),
        ({"pooling": (1.5,)}, "pooling must be <= "),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, match):
    with pytest.raises(ValueError, match=match):
        MixturePrior.fit(**{"public": np.random.default_rng(0).random((20, 3)), **change})

"""Repairs of noisy covariances, mixtures from moments, and samples, against NumPy and SciPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from drjax.synthesis import gaussian_model
from drjax.synthesis.gaussian_model import Mixture, mixture_of, repaired_factor

Q = 5


def noisy_covariance(seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(Q, 2))
    e = rng.normal(size=(Q, Q))
    return a @ a.T + noise * (e + e.T) / math.sqrt(2)


def product(factor):
    return np.asarray(factor @ np.swapaxes(factor, -1, -2))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def test_clipping_is_the_nearest_positive_semidefinite_matrix():
    noisy = noisy_covariance()
    values, vectors = np.linalg.eigh(noisy)
    assert values.min() < 0
    expected = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(product(repaired_factor(noisy, 0.0, "clip")), expected, atol=1e-12)


def test_keeping_the_trace_is_the_nearest_with_that_trace():
    noisy = noisy_covariance()
    values = np.linalg.eigvalsh(noisy)
    found = np.linalg.eigvalsh(product(repaired_factor(noisy, 0.0, "trace")))
    assert found.sum() == pytest.approx(values.sum())
    best = scipy.optimize.minimize(
        lambda v: ((v - values) ** 2).sum(),
        np.full(Q, values.sum() / Q),
        bounds=[(0, None)] * Q,
        constraints={"type": "eq", "fun": lambda v: v.sum() - values.sum()},
        tol=1e-12,
    )
    np.testing.assert_allclose(found, np.sort(best.x), atol=1e-5)
    # A trace below 0 leaves nothing.
    assert np.abs(product(repaired_factor(-np.eye(Q), 0.0, "trace"))).max() < 1e-12


def test_shrinking_takes_strong_directions_back_to_their_size_and_noise_to_nothing():
    q, rng = 200, np.random.default_rng(0)
    u, _ = np.linalg.qr(rng.normal(size=(q, 2)))
    deviation = 0.01
    strong = np.array([1.0, 0.6])
    noise = rng.normal(size=(q, q)) * deviation
    noisy = u @ np.diag(strong) @ u.T + np.triu(noise) + np.triu(noise, 1).T
    found = np.linalg.eigvalsh(product(repaired_factor(noisy, deviation, "shrink")))[::-1]
    values = np.linalg.eigvalsh(noisy)[::-1]
    edge = 2 * deviation * math.sqrt(q)
    np.testing.assert_allclose(found[:2], np.sqrt(values[:2] ** 2 - edge**2), atol=1e-9)
    # A deviation of it all above the bulk's edge is rare and small.
    assert found[2:].sum() < 0.05 * values[2:][values[2:] > 0].sum()
    error = {}
    for repair in gaussian_model.REPAIRS:
        matrix = product(repaired_factor(noisy, deviation, repair))
        error[repair] = np.linalg.norm(matrix - u @ np.diag(strong) @ u.T)
    assert error["shrink"] < 0.75 * error["trace"] < 0.5 * error["clip"]


def moments_of(x, y, n_classes, t):
    w = np.column_stack([np.full(len(x), t), x])
    return np.stack([w[y == k].T @ w[y == k] for k in range(n_classes)])


@pytest.mark.parametrize("n", [None, 90])
def test_moments_without_noise_give_the_classes_own_means_and_covariances(n):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [20, 30, 40])
    x = rng.normal(size=(90, Q)) @ rng.normal(size=(Q, Q)) / 10 + 0.1 * y[:, None]
    found = mixture_of(jnp.asarray(moments_of(x, y, 3, 0.5)), 0.5, 1e-9, n=n, pooling=0.0)
    np.testing.assert_allclose(found.weights, [2 / 9, 3 / 9, 4 / 9])
    common = 0
    for k in range(3):
        np.testing.assert_allclose(found.means[k], x[y == k].mean(axis=0), atol=1e-9)
        own = np.cov(x[y == k].T, bias=True)
        np.testing.assert_allclose(found.covariances[k], own, atol=1e-9)
        common = common + own * (y == k).mean()
    pooled = mixture_of(jnp.asarray(moments_of(x, y, 3, 0.5)), 0.5, 1e-9, n=n, pooling=1.0)
    for k in range(3):
        np.testing.assert_allclose(pooled.covariances[k], common, atol=1e-9)
    # Without noise nothing calls for pooling, and with noise above all differences everything does.
    adaptive = mixture_of(jnp.asarray(moments_of(x, y, 3, 0.5)), 0.5, 1e-9, n=n, pooling=None)
    np.testing.assert_allclose(adaptive.covariances, found.covariances, atol=1e-9)
    noisy = mixture_of(jnp.asarray(moments_of(x, y, 3, 2.0)), 2.0, 30.0, n=n, pooling=None)
    np.testing.assert_allclose(noisy.covariances[0], noisy.covariances[1], atol=1e-9)


def test_counts_are_never_negative_add_up_to_what_is_public_and_divide_nothing_by_zero():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, Q))
    raw = moments_of(x, np.repeat([0, 1], 20), 3, 1.0)
    raw[1, 0, 0], raw[2, 0, 0] = 45.0, -30.0
    found = mixture_of(jnp.asarray(raw), 1.0, 5.0, n=40)
    assert float(found.weights.sum()) == pytest.approx(1)
    np.testing.assert_allclose(found.weights, [7.5 / 40, 32.5 / 40, 0], atol=1e-12)
    assert np.isfinite(found.means).all()
    nothing = mixture_of(jnp.asarray(-np.ones((2, Q, Q))), 1.0, 5.0)
    np.testing.assert_allclose(nothing.weights, [0.5, 0.5])
    assert np.isfinite(nothing.factors).all()


def test_samples_have_the_law_of_their_mixture():
    rng = np.random.default_rng(0)
    weights, means = np.array([0.2, 0.8]), rng.normal(size=(2, 3))
    factors = rng.normal(size=(2, 3, 3))
    mixture = Mixture(jnp.asarray(weights), jnp.asarray(means), jnp.asarray(factors))
    drawn, classes = jax.jit(lambda key: gaussian_model.sample(key, mixture, 40_000))(jax.random.key(0))
    drawn, classes = np.asarray(drawn), np.asarray(classes)
    assert classes.dtype == np.int32
    assert abs((classes == 0).mean() - 0.2) < 0.01
    for k in range(2):
        own = drawn[classes == k]
        direction = np.array([0.5, -1.0, 2.0])
        law = scipy.stats.norm(means[k] @ direction, np.linalg.norm(factors[k].T @ direction))
        assert scipy.stats.kstest(own @ direction, law.cdf).pvalue > 1e-4
        assert scipy.stats.kstest(own @ direction * 1.1, law.cdf).pvalue < 1e-4
        error = np.abs(np.cov(own.T) - factors[k] @ factors[k].T).max()
        assert error < 0.1 * np.abs(factors[k] @ factors[k].T).max()


def test_keys_of_the_operating_system_differ():
    draws = {float(jax.random.normal(gaussian_model.os_key())) for _ in range(5)}
    assert len(draws) == 5


def test_an_unknown_repair_is_named():
    with pytest.raises(ValueError, match="repair must be one of"):
        repaired_factor(np.eye(2), 0.0, "other")

import os

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_embeddings
from drjax.core.types import Status
from drjax.dr import PCA, SparseRandomProjection


@pytest.fixture(scope="module")
def x():
    data = load_digits().data / 16
    return data[np.random.default_rng(0).permutation(len(data))]


def releases(x, n_known, n_targets, dtype=np.float64):
    with jax.enable_x64(dtype == np.float64):
        known, targets = x[:n_known].astype(dtype), x[1000 : 1000 + n_targets].astype(dtype)
        return shadow_embeddings(jax.random.key(0), PCA(), known, targets).coords


def mse(found, x):
    return ((found.x - x[1000 : 1000 + len(found.x)]) ** 2).mean(axis=1)


def test_is_exact_once_the_known_records_span_the_space(x):
    found = reconstruct_pca(x[:199], releases(x, 199, 100))
    assert np.median(mse(found, x)) < 1e-20
    assert (found.status == 0).all()


def test_works_on_scikit_learn_whatever_the_row_and_the_signs(x):
    known, target = x[:150], x[1000]
    data = np.insert(known, 20, target, axis=0)
    coords = SklearnPCA(2, svd_solver="full").fit_transform(data) * [1, -1]
    found = reconstruct_pca(known, coords, target_index=20)
    assert ((found.x - target) ** 2).mean() < 1e-16
    assert found.x.shape == (64,)
    assert found.candidates.shape == (1, 64)


def test_prior_and_bounds_each_reduce_the_error_where_the_known_records_do_not_span(x):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(x, 30, 100)
    alone = mse(reconstruct_pca(x[:30], coords), x).mean()
    with_prior = mse(reconstruct_pca(x[:30], coords, prior=prior), x).mean()
    with_bounds = mse(reconstruct_pca(x[:30], coords, prior=prior, bounds=(0, 1)), x).mean()
    assert with_bounds < 0.9 * with_prior
    assert with_prior < 0.7 * alone


def test_residual_norm_is_the_length_outside_the_span(x):
    found = reconstruct_pca(x[:30], releases(x, 30, 20))
    known = x[:30]
    _, _, basis = np.linalg.svd(known - known.mean(0), full_matrices=False)
    offset = x[1000:1020] - known.mean(0)
    outside = offset - offset @ basis[:29].T @ basis[:29]
    np.testing.assert_allclose(found.residual_norm, np.linalg.norm(outside, axis=1), rtol=1e-6)


@pytest.mark.parametrize(("decimals", "limit"), [(6, 1e-4), (4, 5e-3), (2, 0.05)])
def test_rounded_coordinates_cost_accuracy_but_never_more_than_knowing_nothing(x, decimals, limit):
    # The prior mean scores 0.074 here: whatever the noise, the attack must not do worse.
    prior = GaussianPrior.fit(x[300:1000])
    found = reconstruct_pca(x[:199], np.round(releases(x, 199, 60), decimals), prior=prior, bounds=(0, 1))
    assert mse(found, x).mean() < limit


def test_float32_release_is_nearly_as_good(x):
    prior = GaussianPrior.fit(x[300:1000])
    found = reconstruct_pca(x[:199], releases(x, 199, 60, np.float32), prior=prior, bounds=(0, 1))
    assert np.median(mse(found, x)) < 1e-5


def test_known_features_are_kept_and_help_with_the_others(x):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(x, 20, 60)
    features = np.full((60, 64), np.nan)
    features[:, ::2] = x[1000:1060, ::2]
    plain = reconstruct_pca(x[:20], coords, prior=prior)
    helped = reconstruct_pca(x[:20], coords, prior=prior, known_features=features)
    np.testing.assert_allclose(helped.x[:, ::2], features[:, ::2])
    truth = x[1000:1060, 1::2]
    assert ((helped.x[:, 1::2] - truth) ** 2).mean() < 0.8 * ((plain.x[:, 1::2] - truth) ** 2).mean()


def test_a_release_that_says_nothing_of_the_target_is_degenerate(x):
    coords = releases(x, 50, 1)[0].copy()
    coords[0] = 0
    found = reconstruct_pca(x[:50], coords)
    assert int(found.status) == Status.DEGENERATE


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.zeros((5, 2))}, "coords must have shape"),
        ({"coords": np.full((11, 2), np.nan)}, "coords must be finite"),
        ({"target_index": 11}, "target_index"),
        ({"bounds": (1, 0)}, "bounds"),
        ({"known_features": np.zeros(3)}, "known_features"),
        ({"noise": -1.0}, "noise"),
        ({"known": np.full((10, 4), np.inf)}, "known must be finite"),
    ],
)
def test_bad_input_names_the_argument(change, match):
    arguments = {"known": np.eye(10, 4), "coords": np.ones((11, 2)), **change}
    with pytest.raises(ValueError, match=match):
        reconstruct_pca(**arguments)


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the MNIST files: set DRJAX_DATA")
@pytest.mark.parametrize(("n_known", "limit"), [(99, 0.0064), (199, 0.0026)])
def test_mnist_error_stays_within_the_published_figures(n_known, limit):
    from drjax.data import load

    data = load("mnist").x.astype(np.float64)
    data = data[np.random.default_rng(1).permutation(len(data))[:5000]]
    known, targets, public = data[:n_known], data[500:560], data[1000:]
    with jax.enable_x64(True):
        coords = shadow_embeddings(jax.random.key(0), PCA(), known, targets).coords
    found = reconstruct_pca(known, coords, prior=GaussianPrior.fit(public), bounds=(0, 1))
    assert ((found.x - targets) ** 2).mean() <= limit


def test_conditioning_equals_the_textbook_formula():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    prior = GaussianPrior(rng.normal(size=6), root @ root.T)
    operator, values, noise = rng.normal(size=(3, 6)), rng.normal(size=(4, 3)), np.array([0.1, 0.2, 0.3])
    gain = prior.covariance @ operator.T @ np.linalg.inv(operator @ prior.covariance @ operator.T + np.diag(noise))
    expected = prior.mean + (values - operator @ prior.mean) @ gain.T
    np.testing.assert_allclose(prior.condition(operator, values, noise), expected, atol=1e-9)
    exact = prior.condition(operator, values)
    np.testing.assert_allclose(exact @ operator.T, values, atol=1e-10)


def test_truncated_mode_solves_the_quadratic_programme():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    prior = GaussianPrior(rng.normal(size=5), root @ root.T + np.eye(5))
    operator, values, noise = rng.normal(size=(2, 5)), rng.normal(size=(1, 2)), 0.5
    precision = np.linalg.inv(prior.covariance) + operator.T @ operator / noise
    centre = prior.condition(operator, values, noise)[0]
    solved = minimize(lambda z: (z - centre) @ precision @ (z - centre), np.full(5, 0.5), bounds=[(0, 1)] * 5)
    found = prior.condition(operator, values, noise, lower=0, upper=1)[0]
    np.testing.assert_allclose(found, solved.x, atol=1e-3)  # both iterate; L-BFGS-B stops at 1e-5 of the objective


def test_shadow_i_does_not_depend_on_how_many_there_are_or_on_chunks(x):
    known, targets = x[:20].astype(np.float32), x[100:130].astype(np.float32)
    for method in (PCA(), SparseRandomProjection()):
        whole = shadow_embeddings(jax.random.key(1), method, known, targets).coords
        part = shadow_embeddings(jax.random.key(1), method, known, targets[:7], batch_size=3).coords
        mesh = jax.make_mesh((2,), ("lanes",), devices=jax.devices()[:2])
        sharded = shadow_embeddings(jax.random.key(1), method, known, targets, mesh=mesh, batch_size=8).coords
        np.testing.assert_allclose(part, whole[:7], atol=1e-5)  # batched products reorder float32 sums
        np.testing.assert_allclose(sharded, whole, atol=1e-5)


def test_resumed_chunks_are_bit_identical(x):
    known, targets = x[:20].astype(np.float32), x[100:130].astype(np.float32)
    whole = shadow_embeddings(jax.random.key(1), SparseRandomProjection(), known, targets, batch_size=8).coords
    for offset, chunk in iter_shadow_embeddings(
        jax.random.key(1), SparseRandomProjection(), known, targets, batch_size=8, start=16
    ):
        np.testing.assert_array_equal(chunk.coords, whole[offset : offset + 8])


def test_shared_randomness_shares_the_known_rows_and_fresh_does_not(x):
    known, targets = x[:20], x[100:105]
    shared = shadow_embeddings(jax.random.key(1), SparseRandomProjection(), known, targets, randomness="shared").coords
    fresh = shadow_embeddings(jax.random.key(1), SparseRandomProjection(), known, targets).coords
    np.testing.assert_array_equal(shared[0, 1:], shared[4, 1:])
    assert np.abs(fresh[0, 1:] - fresh[4, 1:]).max() > 0.1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"targets": np.full((2, 3), np.nan)}, "targets must be finite"),
        ({"targets": np.zeros((2, 4))}, "targets must have 3 columns"),
        ({"randomness": "some"}, "randomness"),
        ({"key": np.zeros(2, np.uint32)}, "key"),
    ],
)
def test_shadow_embeddings_rejects_bad_input(change, match):
    arguments = {"key": jax.random.key(0), "method": PCA(), "known": np.eye(5, 3), "targets": np.ones((2, 3)), **change}
    with pytest.raises(ValueError, match=match):
        shadow_embeddings(**arguments)

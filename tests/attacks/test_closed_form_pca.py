import functools
import os
import tracemalloc

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.dr import PCA
from tests.attacks.threats import of_shapes


@pytest.fixture(scope="module")
def x():
    data = load_digits().data / 16
    return data[np.random.default_rng(0).permutation(len(data))]


@pytest.fixture(scope="module")
def releases(x):
    """Releases of the first `n_targets` of 100 targets beside `n_known` records: one program for all tests."""

    @functools.cache
    def all_of_them(n_known, dtype):
        with jax.enable_x64(dtype == np.float64):
            known, targets = x[:n_known].astype(dtype), x[1000:1100].astype(dtype)
            return shadow_embeddings(jax.random.key(0), PCA(), known, targets).coords

    return lambda n_known, n_targets, dtype=np.float64: all_of_them(n_known, dtype)[:n_targets]


def mse(found, x):
    return ((found.x - x[1000 : 1000 + len(found.x)]) ** 2).mean(axis=1)


def test_is_exact_once_the_known_records_span_the_space(x, releases):
    found = reconstruct_pca(x[:199], releases(199, 100))
    assert np.median(mse(found, x)) < 1e-20
    assert (found.status == 0).all()


@pytest.mark.parametrize("bounds", [None, (0, 1)])
def test_a_prior_does_not_spoil_what_the_known_records_span(x, bounds, releases):
    # Public records vary in features that no known record does; nearly no target does.
    known, public = x[:199], x[200:1000]
    prior = GaussianPrior.fit(public)
    assert (np.ptp(known, axis=0) == 0).any()
    exact = reconstruct_pca(known, releases(199, 100), prior=prior, bounds=bounds)
    # The length outside comes from 1 - |u|^2, whose rounding leaves 1e-8 of a unit vector.
    assert np.median(mse(exact, x)) < 1e-12
    alone = mse(reconstruct_pca(known, releases(199, 100)), x)
    assert mse(exact, x).mean() <= alone.mean()


@pytest.mark.parametrize("solver", ["full", "auto"])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("row", [0, 20, 150])
def test_works_on_scikit_learn_whatever_the_row_and_the_signs(x, solver, signs, row):
    known, target = x[:150], x[1000]
    data = np.insert(known, row, target, axis=0)
    coords = SklearnPCA(2, svd_solver=solver, random_state=0).fit_transform(data) * signs
    found = reconstruct_pca(known, coords, target_index=row)
    assert ((found.x - target) ** 2).mean() < 1e-16
    assert found.x.shape == (64,)
    assert found.candidates.shape == (1, 64)


def test_one_component_and_equal_known_records_suffice(x):
    # Some pixels are constant in digits; 90 distinct records span all the others.
    known = np.repeat(x[:90], 2, axis=0)
    coords = SklearnPCA(1, svd_solver="full").fit_transform(np.vstack([x[1000], known]))
    found = reconstruct_pca(known, coords, noise=0.0)
    assert found.status == Status.OK
    assert ((found.x - x[1000]) ** 2).mean() < 1e-16


def test_a_batch_and_single_releases_agree(x, releases):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(30, 4)
    # The noise is estimated from all releases of a call: given, it is the same for both.
    batch = reconstruct_pca(x[:30], coords, prior=prior, noise=1e-9)
    for i in range(4):
        one = reconstruct_pca(x[:30], coords[i], prior=prior, noise=1e-9)
        np.testing.assert_allclose(one.x, batch.x[i], atol=1e-6)  # disagreement, too, is pooled over the call
        np.testing.assert_allclose(one.residual_norm, batch.residual_norm[i], rtol=1e-9)
        assert np.shape(one.status) == np.shape(one.residual_norm) == ()


def test_prior_and_bounds_each_reduce_the_error_where_the_known_records_do_not_span(x, releases):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(30, 100)
    alone = mse(reconstruct_pca(x[:30], coords), x).mean()
    with_prior = mse(reconstruct_pca(x[:30], coords, prior=prior), x).mean()
    with_bounds = mse(reconstruct_pca(x[:30], coords, prior=prior, bounds=(0, 1)), x).mean()
    assert with_bounds < 0.9 * with_prior
    assert with_prior < 0.7 * alone


def test_residual_norm_is_the_length_outside_the_span(x, releases):
    found = reconstruct_pca(x[:30], releases(30, 20))
    known = x[:30]
    _, _, basis = np.linalg.svd(known - known.mean(0), full_matrices=False)
    offset = x[1000:1020] - known.mean(0)
    outside = offset - offset @ basis[:29].T @ basis[:29]
    np.testing.assert_allclose(found.residual_norm, np.linalg.norm(outside, axis=1), rtol=1e-6)


@pytest.mark.parametrize(("decimals", "limit"), [(6, 1e-4), (4, 5e-3), (2, 0.05)])
def test_rounded_coordinates_cost_accuracy_but_never_more_than_knowing_nothing(x, decimals, limit, releases):
    # The prior mean scores 0.074 here: whatever the noise, the attack must not do worse.
    prior = GaussianPrior.fit(x[300:1000])
    found = reconstruct_pca(x[:199], np.round(releases(199, 60), decimals), prior=prior, bounds=(0, 1))
    assert mse(found, x).mean() < limit


def test_coarser_rounding_is_never_better(x, releases):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(199, 60)
    fine, middle, coarse = (
        mse(reconstruct_pca(x[:199], np.round(coords, decimals), prior=prior), x).mean() for decimals in (6, 4, 2)
    )
    assert fine < middle < coarse
    assert coarse < ((x[1000:1060] - prior.mean) ** 2).mean()


def test_float32_release_is_nearly_as_good(x, releases):
    prior = GaussianPrior.fit(x[300:1000])
    found = reconstruct_pca(x[:199], releases(199, 60, np.float32), prior=prior, bounds=(0, 1))
    assert np.median(mse(found, x)) < 1e-5


def test_known_features_are_kept_and_help_with_the_others(x, releases):
    prior = GaussianPrior.fit(x[300:1000])
    coords = releases(30, 60)
    features = np.full((60, 64), np.nan)
    features[:, ::2] = x[1000:1060, ::2]
    plain = reconstruct_pca(x[:30], coords, prior=prior)
    helped = reconstruct_pca(x[:30], coords, prior=prior, known_features=features)
    np.testing.assert_allclose(helped.x[:, ::2], features[:, ::2])
    truth = x[1000:1060, 1::2]
    assert ((helped.x[:, 1::2] - truth) ** 2).mean() < 0.8 * ((plain.x[:, 1::2] - truth) ** 2).mean()


def test_a_release_that_says_nothing_of_the_target_is_degenerate(x, releases):
    coords = releases(30, 1)[0].copy()
    coords[0] = 0
    prior = GaussianPrior.fit(x[300:1000])
    found = reconstruct_pca(x[:30], coords, prior=prior)
    assert int(found.status) == Status.DEGENERATE
    assert np.isnan(found.residual_norm)
    np.testing.assert_array_equal(found.x, prior.mean)
    batch = releases(199, 3).copy()
    batch[1] = 0
    found = reconstruct_pca(x[:199], batch)
    assert found.status.tolist() == [Status.OK, Status.DEGENERATE, Status.OK]
    assert mse(found, x)[[0, 2]].max() < 1e-16


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.zeros((5, 2))}, "coords must have shape"),
        ({"coords": np.full((11, 2), np.nan)}, "coords must be finite"),
        ({"coords": np.full((11, 2), "a")}, "coords must be numeric"),
        ({"target_index": 11}, "target_index must be <= n - 1 = 10"),
        ({"target_index": -1}, "target_index must be an integer >= 0"),
        ({"known_features": np.full(4, np.inf)}, "known_features must be finite or nan"),
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


@functools.cache
def mnist():
    """Records of MNIST, and the prior of those that are neither known nor targets."""
    from drjax.data import load

    data = load("mnist").x
    data = data[np.random.default_rng(1).permutation(len(data))[:5000]].astype(np.float64)
    return data[:530].copy(), GaussianPrior.fit(data[1000:])


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the MNIST files: set DRJAX_DATA")
@pytest.mark.parametrize(("n_known", "limit"), [(99, 0.0064), (199, 0.0026)])
def test_mnist_error_stays_within_the_published_figures(n_known, limit):
    data, prior = mnist()
    known, targets = data[:n_known], data[500:530]
    with jax.enable_x64(True):
        coords = shadow_embeddings(jax.random.key(0), PCA(), known, targets).coords
    found = reconstruct_pca(known, coords, prior=prior, bounds=(0, 1))
    assert ((found.x - targets) ** 2).mean() <= limit


@pytest.mark.parametrize(("n", "d", "m"), [(400, 300, 5), (300, 600, 200), (1000, 100, 50)])
def test_the_memory_said_beforehand_is_about_what_it_takes(n, d, m):
    rng = np.random.default_rng(0)
    known, coords = rng.normal(size=(n, d)), rng.normal(size=(m, n + 1, 2))
    threat = of_shapes("pca", known=known, coords=coords, public=None, truth=None)
    attack = ATTACKS["embedding"]["closed-form-known"]
    attack.run(jax.random.key(0), threat)
    tracemalloc.start()
    try:
        attack.run(jax.random.key(0), threat)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 < peak / attack.cost(threat).bytes < 2

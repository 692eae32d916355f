"""Truncated SVD against scikit-learn's, alone and behind a scaler."""

import jax
import numpy as np
import pytest
from sklearn import decomposition, preprocessing
from sklearn.pipeline import make_pipeline

import drjax
from drjax import dr
from drjax.dr import METHODS
from tests.dr.jitted import KEY, fit, insert


def data(n, d):
    rng = np.random.default_rng(4)
    return rng.normal(size=(n, d)) * 0.6 ** np.arange(d) + rng.normal(size=d)


@pytest.mark.parametrize(("n", "d"), [(40, 9), (9, 40), (5, 4)])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_scores_and_insertion_are_scikit_learns_with_their_signs(n, d, is_scaled):
    x = data(n, d)
    peer = decomposition.TruncatedSVD(3, algorithm="arpack", random_state=0)
    method = METHODS["svd"](n_components=3)
    if is_scaled:
        peer = make_pipeline(preprocessing.StandardScaler(), peer)
        method = dr.Pipeline(before=(dr.Standardise(),), method=method)
    expected = peer.fit_transform(x)
    with jax.enable_x64(True):
        fitted = fit(method, x).coords
        inserted = insert(method, method.prepare(x[1:]), x[0]).coords
    # Two solvers of one matrix in float64, whose gaps are a tenth of its norm.
    np.testing.assert_allclose(fitted, expected, atol=1e-11)
    np.testing.assert_allclose(inserted, expected, atol=1e-11)


def test_of_centred_records_it_is_pca():
    x = data(30, 6)
    x -= x.mean(axis=0)
    with jax.enable_x64(True):
        own, pca = (fit(method, x).coords for method in (drjax.TruncatedSVD(), drjax.PCA()))
    np.testing.assert_allclose(own, pca, atol=1e-12)


def test_objective_is_what_scikit_learns_components_leave():
    x = data(30, 6)
    peer = decomposition.TruncatedSVD(2, algorithm="arpack", random_state=0)
    left = ((x - peer.inverse_transform(peer.fit_transform(x))) ** 2).sum()
    with jax.enable_x64(True):
        np.testing.assert_allclose(drjax.TruncatedSVD().fit_transform(KEY, x).objective, left, rtol=1e-10)

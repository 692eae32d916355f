"""Descriptors of maps: what they do not see, that they are taken in place of maps, and two clusters found by EM."""

from typing import Any

import jax
import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from drjax.attacks.property import invariants, models
from drjax.attacks.property.two_clusters import FLOOR, N_ITER, two_clusters


def maps(count, n=60, seed=0):
    rng = np.random.default_rng(seed)
    shares = rng.uniform(size=count)
    has = np.arange(n) < np.round(shares * n)[:, None]
    found = rng.normal(size=(count, n, 2))
    found[has] = found[has] * [0.4, 1.5] + [5, 0]
    return found, shares


def test_descriptors_say_the_same_turned_mirrored_scaled_shifted_and_shuffled():
    given, _ = maps(6)
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    moved = 30 * given[:, ::-1] @ turn + [100, -7]
    expected = invariants.descriptors(given)
    np.testing.assert_allclose(invariants.descriptors(moved), expected, atol=1e-6)  # EM repeats rounding 25 times


def test_few_points_and_points_in_one_place_have_finite_descriptors():
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(3, 2)), rng.normal(size=(7, 2)), np.zeros((12, 2)), np.repeat(np.eye(2), 20, axis=0)]
    found = invariants.descriptors(given)
    assert np.isfinite(found).all()
    assert len(found) == 4


def test_descriptors_are_taken_in_place_of_maps():
    given, shares = maps(80)
    found = invariants.descriptors(given)
    assert invariants.descriptors(found) is found
    of_maps, of_descriptors = (
        models.fit(jax.random.key(0), inputs, shares, kind="descriptors") for inputs in (given, found)
    )
    np.testing.assert_array_equal(of_maps.residuals, of_descriptors.residuals)
    expected = of_maps.predict(given[:5]).proportion
    # A product of matrices of other sizes rounds otherwise.
    np.testing.assert_allclose(of_descriptors.predict(found[:5]).proportion, expected, atol=1e-9)


def test_what_is_no_table_of_finite_descriptors_is_refused():
    found = invariants.descriptors(maps(3)[0])
    for wrong in (found[0], found[:, :-1], found[:0], np.full_like(found, np.nan)):
        with pytest.raises(ValueError, match="descriptors must be"):
            invariants.descriptors(wrong)


def test_a_dense_and_a_sparse_cluster_are_told_apart_as_by_scikit_learn():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(150, 2)) * [0.1, 0.2] - [1, 0], rng.normal(size=(50, 2)) * 0.4 + [2, 0]])
    x -= x.mean(axis=0)
    peer: Any = GaussianMixture(
        2, reg_covar=FLOOR, tol=0, max_iter=N_ITER, means_init=[[-1, 0], [1, 0]], random_state=0
    )
    with pytest.warns(match="did not converge"):
        peer.fit(x)
    dense = np.linalg.det(peer.covariances_).argmin()
    order = [dense, 1 - dense]
    values = np.linalg.eigvalsh(peer.covariances_[order])
    expected = [
        *peer.weights_[order],
        *np.log(np.linalg.det(peer.covariances_[order])) / 2,
        *np.log(values[:, 1] / values[:, 0]),
        np.linalg.norm(peer.means_[0] - peer.means_[1]),
        peer.score(x),
        peer.predict_proba(x).max(axis=1).mean(),
    ]
    np.testing.assert_allclose(two_clusters(x), expected, rtol=1e-3, atol=1e-3)  # other starts, and a step apart

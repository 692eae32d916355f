"""Landmark MDS solved for a record: k equations of one that is no landmark, all of one that is."""

import jax
import numpy as np
import pytest
from sklearn.decomposition import PCA

from drjax.attacks.attack import EveryRecord
from drjax.attacks.reconstruction.landmark_equations import reconstruct_by_landmarks, reconstruct_by_landmarks_each
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.registry import ATTACKS
from drjax.core.types import Status
from drjax.dr import LandmarkMDS, landmarks
from tests.attacks.threats import of_shapes

Q, D = 30, 12


def drawn(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2000, D))[:n] * np.linspace(3, 0.3, D) + 1


def projected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates as scikit-learn's PCA of the landmarks gives them, shifted and turned, and the landmarks' rows."""
    at = landmarks.positions(len(x), Q)
    places = PCA(2, svd_solver="full").fit(x[at]).transform(x)
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    return (places - places.mean(axis=0)) @ turn, at


def test_coordinates_by_landmark_mds_are_the_projection_that_the_attack_takes_them_for():
    x = drawn(80)
    with jax.enable_x64(True):
        coords = np.asarray(LandmarkMDS(n_landmarks=Q).fit_transform(jax.random.key(0), x).coords)
    at = landmarks.positions(80, Q)
    found = reconstruct_by_landmarks_each(x, coords, n_landmarks=Q, rows=at[:5])
    np.testing.assert_allclose(found.x, x[at[:5]], atol=1e-8)


def test_of_a_record_that_is_no_landmark_its_own_coordinates_are_told_and_no_more():
    x = drawn(80)
    coords, _ = projected(x)
    axes = np.linalg.lstsq(x - x.mean(axis=0), coords, rcond=None)[0]
    prior = GaussianPrior.fit(x[1:])
    found = reconstruct_by_landmarks(x[1:], coords[None], n_landmarks=Q, prior=prior)
    seen = coords[:1] + x.mean(axis=0) @ axes
    np.testing.assert_allclose(found.x @ axes, seen, atol=1e-8)
    np.testing.assert_allclose(found.x, prior.condition(axes.T, seen, 0.0), atol=1e-8)
    assert np.mean((found.x[0] - x[0]) ** 2) > 0.1
    again = reconstruct_by_landmarks_each(x, coords, n_landmarks=Q, rows=[0])
    np.testing.assert_allclose(again.x, found.x, atol=1e-8)
    np.testing.assert_allclose(again.expected_mse, found.expected_mse, rtol=1e-6)


@pytest.mark.parametrize("n", [25, 80])
def test_a_landmark_is_told_whether_others_are_many_or_few(n):
    x = drawn(n)
    coords, at = projected(x)
    found = reconstruct_by_landmarks_each(x, coords, n_landmarks=Q, rows=at[3:7])
    np.testing.assert_allclose(found.x, x[at[3:7]], atol=1e-6)
    assert (found.status == Status.OK).all()


def test_more_records_tell_a_landmark_better_and_the_error_is_predicted():
    errors = []
    for n in (200, 2000):
        x = drawn(n)
        coords, at = projected(x)
        found = reconstruct_by_landmarks_each(x, np.round(coords, 3), n_landmarks=Q, rows=at)
        error = np.mean((found.x - x[at]) ** 2, axis=1)
        assert 0.3 < np.median(error / found.expected_mse) < 2
        errors.append(np.median(error))
    assert 5 < errors[0] / errors[1] < 20


def test_rounding_that_hides_coordinates_leaves_what_is_expected():
    x = drawn(200)
    coords, at = projected(x)
    found = reconstruct_by_landmarks_each(x, np.round(coords / 50) * 50, n_landmarks=Q, rows=at[:4], precision=25.0)
    assert (found.status == Status.PARTIAL).all()
    np.testing.assert_allclose(found.expected_mse, x.var(axis=0).mean(), rtol=0.3)


def test_a_release_that_is_not_finite_is_told_apart():
    x = drawn(40)
    coords = np.stack([projected(x)[0]] * 2)
    coords[1, 3, 0] = np.nan
    found = reconstruct_by_landmarks(x[1:], coords, n_landmarks=Q, prior=GaussianPrior.fit(x[1:]))
    assert found.status[1] == Status.NON_FINITE
    assert np.isnan(found.x[1]).all()
    assert np.isfinite(found.x[0]).all()


def test_the_attack_is_of_landmark_mds_of_euclidean_distances():
    attack = ATTACKS["embedding"]["landmark-equations"]
    assert attack.fits(of_shapes("landmark_mds")) is None
    assert attack.fits(of_shapes("pca")) == "is of landmark MDS of Euclidean distances"
    assert attack.suits(LandmarkMDS(metric="cosine"), seed_known=False) is not None
    x = drawn(80)
    coords, at = projected(x)
    every = EveryRecord(
        method=LandmarkMDS(n_landmarks=Q), x=x, coords=coords, rows=np.array([0, at[0]]), stand_ins=lambda _: None
    )
    found = attack.run_each(jax.random.key(0), every)
    error = np.mean((found.x - x[every.rows]) ** 2, axis=1)
    assert error[1] < 1e-12 < 0.1 < error[0]


def test_coordinates_of_another_number_of_records_are_refused():
    x = drawn(40)
    with pytest.raises(ValueError, match="coords must have 40 rows"):
        reconstruct_by_landmarks_each(x, x[:39, :2], n_landmarks=Q)
    with pytest.raises(ValueError, match=r"coords must have shape \(m, 40, k\)"):
        reconstruct_by_landmarks(x[1:], x[None, :39, :2], n_landmarks=Q, prior=GaussianPrior.fit(x))

"""Baselines against scikit-learn and constructed answers."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from drjax.attacks.reconstruction import baselines
from drjax.core.types import Status


def releases(m, n, k=2, d=5, seed=0, noise=0.1):
    """Coordinates of very different scales and targets that depend on them linearly, up to noise."""
    rng = np.random.default_rng(seed)
    coords = rng.normal(size=(m, n, k)) * np.geomspace(1e-3, 1e3, n)[:, None] + 3
    weights = rng.normal(size=(n * k, d))
    standardised = StandardScaler().fit_transform(coords.reshape(m, -1))
    return coords, standardised @ weights + noise * rng.normal(size=(m, d)) + 1


def test_the_mean_image_is_the_public_mean_for_every_target():
    public = np.random.default_rng(0).uniform(size=(9, 4)).astype(np.float32)
    result = baselines.mean_image(public, 3)
    np.testing.assert_allclose(result.x, np.tile(public.mean(axis=0, dtype=np.float64), (3, 1)), rtol=1e-15)
    assert result.candidates.shape == (3, 1, 4)
    assert result.y is None
    assert (result.status == 0).all()


def test_the_oracle_agrees_with_scikit_learns_nearest_neighbors():
    rng = np.random.default_rng(1)
    targets, pool = rng.uniform(size=(12, 6)), rng.uniform(size=(50, 6))
    index = NearestNeighbors(n_neighbors=1).fit(pool).kneighbors(targets, return_distance=False)[:, 0]
    np.testing.assert_array_equal(baselines.nearest_neighbor(targets, pool).x, pool[index])


@pytest.mark.parametrize(("m", "n"), [(60, 8), (30, 40)])
def test_ridge_chooses_and_predicts_as_scikit_learns_leave_one_out(m, n):
    coords, targets = releases(m, n, noise=2.0)
    fresh, _ = releases(7, n, seed=5)
    grid = (0.1, 1.0, 10.0, 100.0)
    model = baselines.fit_ridge(coords, targets, penalties=grid)
    scaler = StandardScaler()
    peer = RidgeCV(alphas=grid, store_cv_results=True).fit(scaler.fit_transform(coords.reshape(m, -1)), targets)
    assert model.penalty == peer.alpha_
    # Both are float64 with condition numbers below 1e4; agreement to 1e-9 leaves room for the Gram matrix's square.
    np.testing.assert_allclose(list(model.loo_mse.values()), peer.cv_results_.mean(axis=(0, 1)), rtol=1e-9)
    np.testing.assert_allclose(
        model.reconstruct(fresh).x, peer.predict(scaler.transform(fresh.reshape(7, -1))), rtol=1e-8, atol=1e-8
    )


def test_a_map_that_is_turned_over_does_not_decide_the_penalty_alone():
    rng = np.random.default_rng(0)
    base, moves = rng.normal(size=(10, 2)), rng.normal(size=(6, 20))

    def shadows(m):
        targets = rng.normal(size=(m, 6))
        return base + (0.01 * targets @ moves + 0.003 * rng.normal(size=(m, 20))).reshape(m, 10, 2), targets

    (coords, targets), (fresh, truth) = shadows(80), shadows(200)
    coords[0, :, 1] *= -1
    with_it, without = (baselines.fit_ridge(coords[at:], targets[at:]) for at in (0, 1))
    ours, best = (((model.reconstruct(fresh).x - truth) ** 2).mean() for model in (with_it, without))
    assert ours < 1.5 * best < 0.2


def test_the_leave_one_out_error_is_that_of_leaving_each_row_out():
    coords, targets = releases(15, 4)
    features = StandardScaler().fit_transform(coords.reshape(15, -1))
    errors = []
    for i in range(15):
        rest = np.arange(15) != i
        errors.append(Ridge(alpha=3.0).fit(features[rest], targets[rest]).predict(features[i : i + 1]) - targets[i])
    model = baselines.fit_ridge(coords, targets, penalties=(3.0,))
    np.testing.assert_allclose(model.loo_mse[3.0], np.mean(np.square(errors)), rtol=1e-10)  # float64 solves


def test_ridge_does_not_depend_on_the_scale_or_origin_of_the_release():
    coords, targets = releases(40, 6)
    fresh, _ = releases(5, 6, seed=5)
    straight = baselines.fit_ridge(coords, targets).reconstruct(fresh).x
    moved = baselines.fit_ridge(1e4 * coords - 7, targets).reconstruct(1e4 * fresh - 7).x
    np.testing.assert_allclose(moved, straight, rtol=1e-6)  # the shift by 7 costs digits of the 1e-3 coordinates


def test_rows_that_only_jitter_by_rounding_carry_no_weight():
    coords, targets = releases(40, 6)
    coords = coords.astype(np.float32)
    coords[:, 2] = 5 * (1 + np.float32(6e-8) * np.random.default_rng(3).integers(-1, 2, size=(40, 2)))
    model = baselines.fit_ridge(coords, targets)
    np.testing.assert_array_equal(model.weights.reshape(6, 2, -1)[2], 0.0)
    assert np.isfinite(model.reconstruct(coords).x).all()


def test_releases_that_never_vary_predict_the_mean_target():
    targets = releases(20, 3)[1]
    model = baselines.fit_ridge(np.ones((20, 3, 2)), targets)
    np.testing.assert_allclose(model.reconstruct(np.zeros((2, 3, 2))).x, np.tile(targets.mean(axis=0), (2, 1)))


def test_a_release_that_is_not_finite_is_flagged_and_spoils_no_other():
    coords, targets = releases(30, 4)
    model = baselines.fit_ridge(coords, targets)
    broken = coords.copy()
    broken[1, 2, 0] = np.nan
    result = model.reconstruct(broken)
    assert result.status[1] == Status.NON_FINITE
    assert np.isnan(result.x[1]).all()
    rest = np.arange(30) != 1
    np.testing.assert_allclose(result.x[rest], model.reconstruct(coords).x[rest], rtol=1e-12)  # GEMM of another shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coords": np.zeros((5, 4))}, "coords must have shape"),
        ({"coords": np.zeros((1, 2, 2)), "targets": np.zeros((1, 3))}, "coords must have at least 2 rows"),
        ({"coords": np.full((5, 2, 2), np.nan)}, "coords must be finite"),
        ({"targets": np.zeros((4, 3))}, "targets must have one row per release"),
        ({"penalties": ()}, "penalties must hold"),
        ({"penalties": (1.0, 0.0)}, "penalties must be > 0"),
    ],
)
def test_bad_training_input_is_named(change, message):
    arguments = {"coords": np.zeros((5, 2, 2)), "targets": np.zeros((5, 3)), **change}
    with pytest.raises(ValueError, match=message):
        baselines.fit_ridge(**arguments)


def test_a_release_of_another_shape_is_refused():
    coords, targets = releases(10, 3)
    with pytest.raises(ValueError, match=r"coords must have shape \(m, 3, 2\)"):
        baselines.fit_ridge(coords, targets).reconstruct(coords[:, :2])

"""Landmark MDS and landmark Isomap against scikit-learn's classical scaling, PCA and Isomap, and SciPy's paths."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.decomposition import PCA
from sklearn.manifold import ClassicalMDS

from drjax.core.types import Status
from drjax.dr import LandmarkIsomap, LandmarkMDS, landmarks
from tests.dr.jitted import KEY, fit, insert, insert_batch
from tests.dr.test_isomap import digits, error, nearest_by_index, scikit_learn, scipy_paths


def up_to_signs(found, expected):
    signs = np.sign(np.sum(np.asarray(found) * expected, axis=0))
    return error(np.asarray(found) * signs, expected)


def test_landmarks_are_distinct_known_rows_and_more_of_them_hold_the_fewer():
    few, more = landmarks.positions(1000, 10), landmarks.positions(1000, 100)
    assert set(few) < set(more)
    assert len(set(more)) == 100
    assert more.min() > 0
    np.testing.assert_array_equal(landmarks.positions(8, 100), np.arange(1, 8))
    # As spread as random ones: a quarter of 10,000 rows holds 250 of 1,000, with a standard deviation of 13.
    quarters = np.bincount(landmarks.positions(10_000, 1000) // 2500, minlength=4)
    assert np.abs(quarters - 250).max() < 60


@pytest.mark.parametrize("x64", [True, False])
def test_records_of_k_dimensions_are_recovered_from_few_landmarks(x64):
    with jax.enable_x64(x64):
        rng = np.random.default_rng(0)
        x = (rng.normal(size=(60, 3)) * (3, 2, 1) @ rng.normal(size=(3, 9))).astype(float if x64 else np.float32)
        method = LandmarkMDS(n_components=3, n_landmarks=5)
        # Rounding of the largest eigenvalue over the third: the least variance of five landmarks is one in 300.
        tolerance = 1e-12 if x64 else 2e-4
        for out in (fit(method, x), insert(method, method.prepare(x[1:]), x[0])):
            assert int(out.status) == Status.OK
            assert up_to_signs(out.coords, PCA(3).fit_transform(x)) < tolerance
            np.testing.assert_allclose(cdist(out.coords, out.coords), cdist(x, x), atol=20 * tolerance)


def test_records_are_projected_on_the_principal_axes_of_the_landmarks():
    x = digits()[:200]
    with jax.enable_x64(True):
        found = fit(LandmarkMDS(n_components=2, n_landmarks=30), x)
    chosen = x[landmarks.positions(200, 30)]
    reference = PCA(2).fit(chosen)
    assert up_to_signs(found.coords, PCA(2).fit_transform(reference.transform(x))) < 1e-10
    np.testing.assert_allclose(found.info.eigenvalues, 29 * reference.explained_variance_, rtol=1e-10)


def test_all_other_records_as_landmarks_give_classical_scaling_of_them():
    x = digits()[:60]
    with jax.enable_x64(True):
        for metric in ("euclidean", "manhattan"):
            coords = np.asarray(fit(LandmarkMDS(n_landmarks=59, metric=metric), x).coords)
            expected = ClassicalMDS(n_components=2, metric=metric).fit_transform(x[1:])
            np.testing.assert_allclose(pdist(coords[1:]), pdist(expected), atol=1e-10)


def test_the_target_moves_known_coordinates_as_a_whole_alone():
    x = digits()[:80]
    method = LandmarkMDS(n_landmarks=20, metric="cosine")
    with jax.enable_x64(True):
        shared = method.prepare(x[2:])
        out = insert_batch(method, jax.random.split(KEY, 2), shared, jnp.stack([x[0], x[1] + 3]))
        for i, target in enumerate((x[0], x[1] + 3)):
            fitted = fit(method, np.vstack([target, x[2:]]))
            assert error(out.coords[i], np.asarray(fitted.coords)) < 1e-11
    first, second = np.asarray(out.coords)
    np.testing.assert_allclose(pdist(first[1:]), pdist(second[1:]), atol=1e-12)
    assert np.abs(first[1:] - second[1:]).max() > 1e-3


@pytest.mark.parametrize("kind", ["connected", "clusters"])
def test_distances_of_landmarks_are_classical_scaling_of_scipys_paths(kind):
    x = digits()[:90] if kind == "connected" else np.pad(clusters(90), ((0, 0), (0, 61)))
    n = len(x)
    paths, n_parts = scipy_paths(cdist(x, x), nearest_by_index(cdist(x, x), 5))
    with jax.enable_x64(True):
        out = fit(LandmarkIsomap(n_landmarks=25), x)
    chosen = landmarks.positions(n, 25)
    expected = ClassicalMDS(n_components=2, metric="precomputed").fit_transform(paths[np.ix_(chosen, chosen)])
    np.testing.assert_allclose(pdist(np.asarray(out.coords)[chosen]), pdist(expected), rtol=1e-9)
    assert int(out.info.n_graph_components) == n_parts
    assert bool(int(out.status) & Status.DISCONNECTED) == (kind == "clusters")


def clusters(n):
    rng = np.random.default_rng(3)
    return rng.normal(size=(n, 3)) + 40 * rng.integers(0, 3, size=(n, 1)) * np.array([1, 0.3, -0.5])


def test_landmark_isomap_is_near_scikit_learns_isomap():
    x = digits()[:200]
    expected = scikit_learn(x).embedding_
    with jax.enable_x64(True):
        # The target alone is missing; then two records of three. The largest error of a coordinate, over the largest.
        for n_landmarks, limit in ((199, 0.02), (60, 0.3)):
            found = fit(LandmarkIsomap(n_landmarks=n_landmarks), x).coords
            assert up_to_signs(found, expected) < limit


def test_an_insertion_equals_the_fit_where_the_target_shortens_paths_or_joins_components():
    method = LandmarkIsomap(n_landmarks=12, n_neighbors=3)
    with jax.enable_x64(True):
        for known in (digits()[:90], clusters(90), clusters(90)[:, :1].round()):
            known = np.pad(known, ((0, 0), (0, 64 - known.shape[1])))  # one program for all
            middle = (known[0] + known[50]) / 2
            targets = np.stack([known[3] + 0.01, middle, known[5], known[0] + 300])
            out = insert_batch(method, jax.random.split(KEY, 4), method.prepare(known), jnp.asarray(targets))
            for i in range(4):
                fitted = fit(method, np.vstack([targets[i], known]))
                assert error(out.coords[i], np.asarray(fitted.coords)) < 1e-9
                assert int(out.status[i]) == int(fitted.status)
                assert int(out.info.n_graph_components[i]) == int(fitted.info.n_graph_components)


def test_fewer_landmarks_than_coordinates_are_refused():
    bad: Any = 2.5
    for kind in (LandmarkMDS, LandmarkIsomap):
        with pytest.raises(ValueError, match="n_components must be <= n_landmarks = 2 = 2, got 3"):
            kind(n_components=3, n_landmarks=2)
        with pytest.raises(ValueError, match=r"n_landmarks must be an integer >= 1, got 2\.5"):
            kind(n_landmarks=bad)
        with pytest.raises(ValueError, match="number of records n must be an integer >= 2, got 1"):
            jax.eval_shape(kind().fit_transform, KEY, np.ones((1, 3), np.float32))

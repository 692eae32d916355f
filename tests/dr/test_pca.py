import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.core.types import Status
from drjax.dr import PCA

DOUBTFUL = Status.SIGN_TIE | Status.SMALL_GAP


@functools.cache
def shuffled_digits():
    x = load_digits().data / 16
    return x[np.random.default_rng(0).permutation(len(x))]


def digits(dtype=np.float64):
    return shuffled_digits().astype(dtype)


def error(found, expected):
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


def sklearn_full(x, k=2):
    return SklearnPCA(k, svd_solver="full").fit_transform(np.asarray(x, np.float64))


@pytest.mark.parametrize(
    ("n", "x64", "tolerance"), [(3, True, 1e-10), (66, True, 1e-10), (10, False, 1e-5), (200, False, 1e-5)]
)
def test_insert_and_fit_transform_equal_scikit_learn_with_signs(n, x64, tolerance):
    # The issue's own limits: rounding of the dtype times the conditioning of the leading components.
    with jax.enable_x64(x64):
        x = digits(np.float64 if x64 else np.float32)
        known, targets = x[: n - 1], x[1000:1008]
        fit_transform = jax.jit(PCA().fit_transform)
        shared = PCA().prepare(known)
        batch = jax.jit(PCA().insert_batch)(jax.random.split(jax.random.key(0), 8), shared, jnp.asarray(targets))
        clean = [i for i in range(8) if not int(batch.status[i]) & DOUBTFUL]
        assert len(clean) >= 6
        for i in clean:
            data = np.vstack([targets[i], known])
            expected = sklearn_full(data)
            assert error(batch.coords[i], expected) < tolerance
            assert error(fit_transform(jax.random.key(0), jnp.asarray(data)).coords, expected) < tolerance


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the MNIST files: set DRJAX_DATA")
@pytest.mark.parametrize("n", [10, 200, 1000])
def test_insert_equals_scikit_learn_on_mnist(n):
    from drjax.data import load

    x = load("mnist").x[:3000].astype(np.float64)

    @functools.cache
    def expected(i):
        return sklearn_full(np.vstack([x[2000 + i], x[: n - 1]]))

    for x64, tolerance in ((True, 1e-10), (False, 1e-5)):
        with jax.enable_x64(x64):
            cast = x.astype(np.float64 if x64 else np.float32)
            known, targets = cast[: n - 1], cast[2000:2003]
            keys = jax.random.split(jax.random.key(0), 3)
            found = jax.jit(PCA().insert_batch)(keys, PCA().prepare(known), jnp.asarray(targets))
            clean = [i for i in range(3) if not int(found.status[i]) & DOUBTFUL]
            assert clean
            for i in clean:
                assert error(found.coords[i], expected(i)) < tolerance


@pytest.mark.parametrize(("n", "d", "k"), [(9, 6, 6), (9, 6, 1), (6, 9, 5), (2, 5, 1), (2, 1, 1)])
def test_any_number_of_components_up_to_the_directions_of_variance_matches(n, d, k):
    with jax.enable_x64(True):
        x = np.random.default_rng(1).normal(size=(n, d))
        pca = PCA(n_components=k)
        found = jax.jit(pca.insert)(jax.random.key(0), pca.prepare(x[1:]), jnp.asarray(x[0]))
        assert int(found.status) == Status.OK
        assert error(found.coords, sklearn_full(x, k)) < 1e-10
        expected = SklearnPCA(k, svd_solver="full").fit(x).singular_values_ ** 2
        np.testing.assert_allclose(found.info.eigenvalues, expected, rtol=1e-10)


def test_a_component_without_variance_has_zero_scores_and_is_flagged():
    with jax.enable_x64(True):
        # n records span n - 1 directions: the n-th component is arbitrary.
        x = np.random.default_rng(1).normal(size=(4, 9))
        pca = PCA(n_components=4)
        found = jax.jit(pca.insert)(jax.random.key(0), pca.prepare(x[1:]), jnp.asarray(x[0]))
        assert int(found.status) & Status.DEGENERATE
        assert error(found.coords[:, :3], sklearn_full(x, 3)) < 1e-10
        # A zero eigenvalue is known to rounding of the largest, its scores to the root of that.
        assert np.abs(found.coords[:, 3]).max() < 1e-6


def test_duplicate_known_records_and_constant_columns_match():
    with jax.enable_x64(True):
        x = np.random.default_rng(2).normal(size=(12, 5))
        x[3:9] = x[2]
        x[:, 4] = 7.0
        found = jax.jit(PCA().insert)(jax.random.key(0), PCA().prepare(x[1:]), jnp.asarray(x[0]))
        assert error(found.coords, sklearn_full(x)) < 1e-10


def test_identical_known_records_leave_one_component_and_are_flagged():
    known = np.ones((5, 4))
    found = jax.jit(PCA().insert)(jax.random.key(0), PCA().prepare(known), jnp.array([3.0, 1, 1, 1]))
    assert int(found.status) & Status.DEGENERATE
    # One direction of variance: the target lies 2 from the others, so 5/3 and -1/3 from the mean.
    np.testing.assert_allclose(np.sort(np.abs(found.coords[:, 0])), [1 / 3] * 5 + [5 / 3], atol=1e-5)


@pytest.mark.parametrize("embed", ["fit_transform", "insert"])
def test_records_that_are_all_equal_are_flagged(embed):
    x = jnp.full((5, 4), 2.0)
    pca, key = PCA(n_components=1), jax.random.key(0)
    if embed == "fit_transform":
        found = jax.jit(pca.fit_transform)(key, x)
    else:
        found = jax.jit(pca.insert)(key, pca.prepare(x[1:]), x[0])
    assert int(found.status) & Status.DEGENERATE
    np.testing.assert_allclose(found.coords, 0, atol=1e-6)


def test_nan_target_marks_its_own_lane_only():
    x = digits(np.float32)
    targets = x[100:104].copy()
    targets[2, 5] = np.nan
    keys = jax.random.split(jax.random.key(0), 4)
    found = jax.jit(PCA().insert_batch)(keys, PCA().prepare(x[:50]), jnp.asarray(targets))
    is_bad = (np.asarray(found.status) & np.uint32(Status.NON_FINITE)) != 0
    assert is_bad.tolist() == [False, False, True, False]
    assert np.isfinite(np.asarray(found.coords)[[0, 1, 3]]).all()


def test_sign_tie_and_small_gap_are_flagged():
    pca, key = PCA(n_components=1), jax.random.key(0)
    # Loadings (1, -1) / sqrt 2; and two directions of equal variance.
    tie = jnp.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0], [0.1, 0.1]])
    square = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    clear = jnp.array([[3.0, 1.0], [-3.0, -1.0], [0.0, 0.5], [0.0, -0.5]])
    fit, insert = jax.jit(pca.fit_transform), jax.jit(pca.insert)
    for x, flag in ((tie, Status.SIGN_TIE), (square, Status.SMALL_GAP), (clear, None)):
        for found in (fit(key, x), insert(key, pca.prepare(x[1:]), x[0])):
            assert int(found.status) & flag if flag else int(found.status) == Status.OK


def test_gradient_with_respect_to_the_target_equals_finite_differences():
    with jax.enable_x64(True):
        x = np.random.default_rng(3).normal(size=(12, 5))
        shared = PCA().prepare(x[1:])
        weights = jnp.asarray(np.random.default_rng(4).normal(size=(12, 2)))

        @jax.jit
        def f(target):
            return jnp.sum(weights * PCA().insert(jax.random.key(0), shared, target).coords)

        gradient = jax.jit(jax.grad(f))(jnp.asarray(x[0]))
        step = 1e-6
        numeric = [(f(x[0] + step * e) - f(x[0] - step * e)) / (2 * step) for e in np.eye(5)]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)  # central differences: step^2 and eps/step


def test_objective_at_its_own_coordinates_is_the_reported_one():
    with jax.enable_x64(True):
        x = jnp.asarray(digits()[:60])
        pca = PCA(n_components=3)
        found = jax.jit(pca.fit_transform)(jax.random.key(0), x)
        np.testing.assert_allclose(jax.jit(pca.objective)(found.coords, x), found.objective, rtol=1e-9)
        inserted = jax.jit(pca.insert)(jax.random.key(0), pca.prepare(x[1:]), x[0])
        np.testing.assert_allclose(inserted.objective, found.objective, rtol=1e-9)
        explained = SklearnPCA(3, svd_solver="full").fit(np.asarray(x)).singular_values_ ** 2
        np.testing.assert_allclose(found.objective, np.sum((x - x.mean(axis=0)) ** 2) - explained.sum(), rtol=1e-9)


@pytest.mark.parametrize("n_components", [0, -1, 1.5, True])
def test_rejects_a_bad_number_of_components(n_components):
    with pytest.raises(ValueError, match="n_components"):
        PCA(n_components=n_components)


def test_more_components_than_the_data_has_is_an_error():
    with pytest.raises(ValueError, match=r"min\(n, d\)"):
        PCA(n_components=4).prepare(np.eye(2, 5))


def test_signs_are_exact_where_opposite_loadings_nearly_tie():
    # The first component is close to (1, -1) / sqrt(2) on two features: what wins is decided by small directions.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 40)) / (1 + np.arange(40)) ** 1.5 @ np.linalg.qr(rng.normal(size=(40, 40)))[0]
    x[:, :2] += 8 * rng.normal(size=(60, 1)) * np.array([1, -1])
    known, targets = x[:30], x[30:]
    with jax.enable_x64(True):
        shared = PCA().prepare(known)
        assert shared.poles.gaps.shape[1] < len(shared.basis)  # or the sum over the head would be the whole sum
        keys = jax.random.split(jax.random.key(0), len(targets))
        inserted = jax.jit(PCA().insert_batch)(keys, shared, targets)
        fit_transform = jax.jit(PCA().fit_transform)
        for i, target in enumerate(targets):
            fitted = fit_transform(keys[i], np.vstack([target, known]))
            np.testing.assert_allclose(inserted.coords[i], fitted.coords, atol=1e-10)
            assert (inserted.info.sign_margin[i] <= fitted.info.sign_margin + 1e-12).all()
        assert (np.asarray(inserted.info.sign_margin) > 0).all()


def test_one_uncertain_lane_changes_nothing_for_the_others():
    rng = np.random.default_rng(1)
    known = rng.normal(size=(50, 40)) / (1 + np.arange(40)) ** 1.5
    targets = rng.normal(size=(6, 40)) / (1 + np.arange(40)) ** 1.5
    shared = PCA().prepare(known)
    keys = jax.random.split(jax.random.key(0), 7)
    insert = jax.jit(PCA().insert_batch)
    # Along the first two components at once, so that the eigenvalues nearly meet and no sign is certain.
    tie = known.mean(axis=0) + 1e3 * rng.normal(size=40)
    alone, together = insert(keys[:6], shared, targets), insert(keys, shared, np.vstack([targets, tie]))
    np.testing.assert_allclose(together.info.sign_margin[:6], alone.info.sign_margin, atol=1e-6)
    np.testing.assert_allclose(together.coords[:6], alone.coords, atol=1e-4)

"""Utility: every figure against its definition in NumPy, SciPy or scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from drjax.core.types import Status
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca import AnalyticGauss

N, D = 60, 6


def records(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)) * np.array([3, 2, 1.5, 1, 0.5, 0.1])


def orthonormal(rng, *shape):
    return np.swapaxes(np.linalg.qr(np.swapaxes(rng.normal(size=shape), -1, -2))[0], -1, -2)


def test_energy_ratio_is_paper_001s_q(dtype):
    x = records().astype(dtype)
    a = x.T @ x / N
    v = orthonormal(np.random.default_rng(1), 4, 2, D).astype(dtype)
    top = np.linalg.eigh(a)[1][:, -2:]
    expected = [np.trace(one @ a @ one.T) / np.trace(top.T @ a @ top) for one in v]
    found = pca_utility.energy_ratio(v, pca_utility.second_moment(x))
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    assert found.dtype == dtype
    assert float(pca_utility.energy_ratio(top.T, a)) == pytest.approx(1, rel=tolerance)
    assert (np.asarray(found) < 0.99).all()


def test_energy_ratio_counts_as_many_components_as_are_said_to_be_there():
    a = np.diag([4.0, 2.0, 1.0, 0.0])
    padded = np.eye(4) * (np.arange(4) < 2)[:, None]
    both = pca_utility.energy_ratio(np.stack([padded, np.eye(4)[::-1]]), a, n_components=np.array([2, 1]))
    np.testing.assert_allclose(both, [1, 7 / 4], rtol=1e-6)


def test_second_moment_is_about_the_given_centre():
    x, center = records(), np.arange(D, dtype=float)
    np.testing.assert_allclose(
        pca_utility.second_moment(x, center=center), (x - center).T @ (x - center) / N, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-3, 0.7, 1.2, np.pi / 2])
def test_the_largest_angle_is_right_at_either_end(angle):
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        basis = orthonormal(rng, D, D)
        turned = np.stack([basis[0], np.cos(angle) * basis[1] + np.sin(angle) * basis[2]])
        mixed = orthonormal(rng, 2, 2) @ turned
        found = float(pca_utility.largest_angle(mixed, basis[:2]))
        assert found == pytest.approx(angle, abs=1e-14, rel=1e-8)
        several = pca_utility.largest_angle(np.stack([mixed, basis[:2]]), basis[:2])
        np.testing.assert_allclose(several, [angle, 0], atol=1e-8)


def test_the_largest_angle_is_scipys():
    rng = np.random.default_rng(4)
    v, w = orthonormal(rng, 5, 3, D), orthonormal(rng, 3, D)
    expected = [scipy.linalg.subspace_angles(one.T, w.T)[0] for one in v]
    np.testing.assert_allclose(pca_utility.largest_angle(v, w), expected, rtol=1e-4)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("as_jax", [False, True])
def test_k_is_the_least_that_holds_the_energy(share, as_jax):
    values = np.sort(np.random.default_rng(5).gamma(0.5, size=(7, 9)), axis=1)[:, ::-1] - 0.02
    expected = []
    for row in values:
        positive = np.maximum(row, 0)
        held = 0.0
        for k, value in enumerate(positive, start=1):
            held += value
            if held >= share * positive.sum() * (1 - 1e-6):
                expected.append(k)
                break
    found = pca_utility.k_for_energy(jnp.asarray(values) if as_jax else values.copy(), share)
    assert np.asarray(found).tolist() == expected
    assert np.asarray(found).dtype == np.int32


def test_k_is_at_least_one_and_at_most_d():
    assert int(pca_utility.k_for_energy(np.zeros(4), 0.9)) == 1
    assert int(pca_utility.k_for_energy(-np.ones(4), 0.9)) == 1
    assert int(pca_utility.k_for_energy(np.ones(4), 1.0)) == 4


def test_trials_are_single_fits_with_keys_folded_in_whatever_the_batch():
    mechanism = AnalyticGauss.from_mu(0.5, neighbouring="zero_out", n_components=2, row_norm=5.0)
    x, key = records().astype(np.float32), jax.random.key(3)
    found = pca_utility.trials(key, mechanism, x, 7, batch_size=3)
    assert found.components.shape == (7, 2, D)
    assert (found.status == Status.OK).all()
    for i in (0, 6):
        one = mechanism.fit(jax.random.fold_in(key, i), x)
        np.testing.assert_allclose(found.components[i], one.components, atol=1e-4)  # float32 eigenvectors
        np.testing.assert_allclose(found.eigenvalues[i], one.eigenvalues, rtol=1e-5)
    assert not np.allclose(found.eigenvalues[0], found.eigenvalues[1])


def test_downstream_accuracy_is_scikit_learns_on_the_same_projections():
    digits = load_digits()
    x, y = digits.data[:300] / 16, digits.target[:300]
    x_test, y_test = digits.data[300:500] / 16, digits.target[300:500]
    rng = np.random.default_rng(6)
    best = np.linalg.svd(x - x.mean(0), full_matrices=False)[2][:10]
    several = np.stack([best, orthonormal(rng, 10, 64)])
    found = pca_utility.downstream_accuracy(several, (x, y), (x_test, y_test))
    scale = np.sqrt(np.mean(x**2))
    for v, accuracy in zip(several, found, strict=True):
        model = LogisticRegression(max_iter=200).fit(x @ v.T / scale, y)
        assert accuracy == pytest.approx(model.score(x_test @ v.T / scale, y_test), abs=0.011)  # float32 projections
    assert found[0] > found[1] + 0.05
    alone = pca_utility.downstream_accuracy(best, (x, y), (x_test, y_test))
    assert alone == pytest.approx(found[0], abs=0.0051)  # one product or two round otherwise: one record of 200


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pca_utility.k_for_energy(np.ones(3), 0.0), "share must be"),
        (lambda: pca_utility.k_for_energy(np.ones(3), 1.5), "share must be"),
        (lambda: pca_utility.second_moment(np.ones(3)), "x must be"),
        (lambda: pca_utility.trials(jax.random.key(0), None, np.ones((2, 2)), 0), "n_trials must be"),
        (lambda: pca_utility.trials(None, None, np.ones((2, 2)), 1), "key must be"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

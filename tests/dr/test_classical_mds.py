"""Classical MDS against scikit-learn's, which decomposes the n x n matrix of distances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import ClassicalMDS as Reference

from drjax.core.types import Status
from drjax.dr import PCA, ClassicalMDS

DIGITS = load_digits().data / 16
KEY = jax.random.key(0)


@pytest.mark.parametrize(("n", "k"), [(6, 5), (50, 1), (50, 5), (200, 2)])
def test_coordinates_signs_and_eigenvalues_equal_scikit_learn(n, k):
    x = DIGITS[:n]
    reference = Reference(n_components=k)
    expected = reference.fit_transform(x)
    with jax.enable_x64(True):
        method = ClassicalMDS(n_components=k)
        fitted = jax.jit(method.fit_transform)(KEY, x)
        inserted = jax.jit(method.insert)(KEY, method.prepare(x[1:]), jnp.asarray(x[0]))
    for out in (fitted, inserted):
        # scikit-learn's eigenvalues are those of squared distances: 1e-16 of the largest, over a gap of some percent.
        np.testing.assert_allclose(out.coords, expected, atol=1e-10)
        np.testing.assert_allclose(out.info.eigenvalues, reference.eigenvalues_, rtol=1e-10)
        assert int(out.status) == Status.OK


def test_a_tie_of_coordinates_is_flagged_and_one_of_loadings_is_not():
    # Symmetric records: the largest coordinates of the first component are +1 and -1.
    symmetric = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 0.4, 0], [0, -0.1, 0.2], [0, -0.3, -0.2]])
    # Loadings +-1 / sqrt(2), coordinates of one clear maximum.
    skewed = np.array([[3.0, -3, 0], [-1, 1, 0], [-1, 1, 0.1], [-1, 1, -0.1]])
    with jax.enable_x64(True):
        first = jax.jit(ClassicalMDS(n_components=1).fit_transform)(KEY, symmetric)
        second = jax.jit(ClassicalMDS(n_components=1).fit_transform)(KEY, skewed)
        loadings = jax.jit(PCA(n_components=1).fit_transform)(KEY, skewed)
    assert int(first.status) & Status.SIGN_TIE
    assert int(loadings.status) & Status.SIGN_TIE
    assert int(second.status) & Status.SIGN_TIE == 0


def test_the_margin_of_a_sign_is_of_coordinates_of_unit_length():
    x = np.random.default_rng(0).normal(size=(30, 5))
    with jax.enable_x64(True):
        out = jax.jit(ClassicalMDS(n_components=2).fit_transform)(KEY, x)
    unit = np.asarray(out.coords) / np.linalg.norm(out.coords, axis=0)
    np.testing.assert_allclose(out.info.sign_margin, unit.max(axis=0) + unit.min(axis=0), rtol=1e-10)


def test_distances_are_those_of_the_records_when_k_is_their_rank():
    x = np.random.default_rng(0).normal(size=(20, 3))
    with jax.enable_x64(True):
        y = jax.jit(ClassicalMDS(n_components=3).fit_transform)(KEY, x).coords
    np.testing.assert_allclose(
        np.linalg.norm(y[:, None] - y[None], axis=-1), np.linalg.norm(x[:, None] - x[None], axis=-1), atol=1e-12
    )

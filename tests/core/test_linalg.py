import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.extmath import svd_flip

from drjax.core import linalg


@pytest.mark.parametrize(
    ("given", "without_x64", "with_x64"),
    [
        ("float16", "float32", "float32"),
        ("bfloat16", "float32", "float32"),
        ("float32", "float32", "float32"),
        ("float64", "float32", "float64"),
        ("int32", "float32", "float64"),
        ("uint8", "float32", "float64"),
        ("bool", "float32", "float64"),
    ],
)
def test_compute_dtype_is_float64_only_with_x64_on(given, without_x64, with_x64):
    x = np.zeros(1, jnp.dtype(given))
    with jax.enable_x64(False):
        assert linalg.compute_dtype(x) == without_x64
    with jax.enable_x64(True):
        assert linalg.compute_dtype(x) == with_x64


@pytest.mark.parametrize("asarray", [np.asarray, jnp.asarray])
def test_a_row_with_an_entry_that_is_not_finite_is_zeros_and_the_others_stay(asarray):
    rows = np.array([[1.0, 2.0, 3.0], [4.0, np.nan, 6.0], [np.inf, 8.0, 9.0]], np.float32)
    assert linalg.finite_rows(asarray(rows)).tolist() == [[1, 2, 3], [0, 0, 0], [0, 0, 0]]


def test_sign_is_that_of_scikit_learns_svd_flip(dtype):
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(200, 9)).astype(dtype)
    _, expected = svd_flip(np.ones((1, 200), dtype), loadings, u_based_decision=False)
    sign, _ = linalg.sign_and_margin(loadings)
    np.testing.assert_array_equal(np.asarray(sign)[:, None] * loadings, expected)
    assert sign.dtype == dtype


def test_margin_is_what_the_largest_loading_wins_by():
    sign, margin = linalg.sign_and_margin(np.array([[0.5, -0.75, 0.1], [0.5, 0.25, 0.0]], np.float32))
    assert sign.tolist() == [-1.0, 1.0]
    assert margin.tolist() == [0.25, 0.5]


def test_a_tie_has_no_margin_and_a_zero_row_keeps_its_sign():
    sign, margin = linalg.sign_and_margin(np.array([[-0.5, 0.5], [0.0, 0.0]], np.float32))
    assert margin.tolist() == [0.0, 0.0]
    assert sign.tolist() == [1.0, 1.0]


def test_sign_and_margin_accept_leading_axes():
    sign, margin = jax.vmap(linalg.sign_and_margin)(jnp.ones((4, 2, 3)))
    assert sign.shape == margin.shape == (4, 2)


@pytest.mark.parametrize(("rows", "d"), [(5, 40), (40, 5), (12, 12)])
def test_scatter_basis_spans_the_rows_and_diagonalises_their_scatter(rows, d):
    x = np.random.default_rng(1).normal(size=(rows, d)) + 3
    mean, basis, singular, scores = linalg.scatter_basis(x)
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)
    np.testing.assert_allclose(scores @ basis + mean, x, atol=1e-12)
    expected = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[: len(singular)]
    np.testing.assert_allclose(singular, expected, atol=1e-12 * expected[0])
    np.testing.assert_allclose(scores.T @ scores, np.diag(singular**2), atol=1e-12 * expected[0] ** 2)


def test_scatter_basis_of_records_as_they_are_is_about_0():
    x = np.random.default_rng(1).normal(size=(12, 5)) + 3
    x[:, 1] = 0
    mean, basis, singular, scores = linalg.scatter_basis(x, is_centred=False)
    assert not mean.any()
    np.testing.assert_allclose(singular, np.linalg.svd(x, compute_uv=False)[:4], rtol=1e-10)
    np.testing.assert_allclose(scores @ basis, x, atol=1e-12)


def test_scatter_basis_leaves_out_directions_without_variance():
    x = np.random.default_rng(2).normal(size=(20, 6))
    x[:, 2], x[:, 4] = 7.0, x[:, 0] + x[:, 1]
    _, basis, singular, _ = linalg.scatter_basis(x)
    assert basis.shape == (4, 6)
    assert np.all(np.diff(singular) <= 0)


def test_scatter_basis_of_equal_rows_keeps_one_direction_of_length_zero():
    _, basis, singular, scores = linalg.scatter_basis(np.full((4, 3), 2.0))
    assert basis.shape == (1, 3)
    assert singular.tolist() == [0.0]
    assert not scores.any()


def test_eigenvectors_are_found_where_divide_and_conquer_gives_up(monkeypatch):
    at = np.repeat(np.random.default_rng(0).normal(size=(8, 2)), 5, axis=0)
    kernel = np.exp(-((at[:, None] - at[None]) ** 2).sum(axis=-1))
    expected = np.linalg.eigvalsh(kernel)

    def gives_up(_):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", gives_up)
    values, vectors = linalg.eigh(kernel)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    np.testing.assert_allclose(vectors * values @ vectors.T, kernel, atol=1e-12)

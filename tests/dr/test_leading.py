import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.dr.pca.leading import leading_scores

DIGITS = load_digits().data / 16


@functools.partial(jax.jit, static_argnums=1)
def scores_of(x, k):
    return leading_scores(x, k)


@pytest.mark.parametrize(("columns", "k"), [(64, 3), (5, 2)])
def test_scores_equal_scikit_learn(columns, k):
    # Variances of the 11th and the second component differ by a factor of 4: only rounding is left after 40 steps.
    sets = np.stack([DIGITS[at : at + 60, 10 : 10 + columns] for at in (0, 100, 200)])
    found = jax.jit(jax.vmap(lambda x: leading_scores(x, k)))(jnp.asarray(sets, jnp.float32))
    for x, scores in zip(sets, found, strict=True):
        expected = SklearnPCA(k, svd_solver="full").fit_transform(x)
        np.testing.assert_allclose(scores, expected, atol=2e-4 * np.abs(expected).max())


def test_a_flat_spectrum_gives_directions_of_nearly_the_largest_variance():
    x = np.random.default_rng(0).standard_normal((200, 100))
    scores = np.asarray(scores_of(jnp.asarray(x, jnp.float32), 2))
    largest = SklearnPCA(2, svd_solver="full").fit(x).explained_variance_.sum()
    assert scores.var(axis=0, ddof=1).sum() > 0.97 * largest
    assert abs(np.corrcoef(scores.T)[0, 1]) < 1e-3


def test_more_features_than_records_are_no_obstacle():
    x = np.random.default_rng(1).standard_normal((4, 30)) * np.array([5, 3, 1, 1])[:, None]
    scores = scores_of(jnp.asarray(x, jnp.float32), 2)
    expected = SklearnPCA(2, svd_solver="full").fit_transform(x)
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_features_without_variance_do_not_matter():
    x = DIGITS[:50, 10:20]
    assert (x.std(axis=0) == 0).any()
    expected = SklearnPCA(3, svd_solver="full").fit_transform(x)
    np.testing.assert_allclose(scores_of(jnp.asarray(x, jnp.float32), 3), expected, atol=1e-4)


def test_equal_records_give_zeros_and_nan_stays_nan():
    assert not np.any(scores_of(jnp.full((5, 4), 0.5), 2))
    assert np.isnan(scores_of(jnp.full((5, 4), jnp.nan), 2)).all()

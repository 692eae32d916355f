"""Directions that may be published: private, public and random."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from drjax.dr import PCA
from drjax.synthesis import projection
from drjax.synthesis.budget import Budget, plan
from drjax.synthesis.frame import Frame


def records(n=400, m=6, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, m)) * np.linspace(0.3, 0.02, m)).astype(np.float32)


def spending(epsilon, delta=1e-5):
    return plan(epsilon, delta, Budget(), steps=("projection",), neighbouring="replace_one")


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_with_much_budget_private_components_are_those_of_pca(delta):
    x = records()
    frame = Frame(jnp.asarray(x.mean(axis=0)), jnp.asarray(2.0), jnp.asarray(1.0))
    found = projection.private_components(
        jax.random.key(0), jnp.asarray(x), jnp.ones(len(x)), frame, spending(1e6, delta), 3
    )
    squares = (jnp.clip(x - x.mean(axis=0), -2, 2) ** 2).sum(axis=0) / 4
    np.testing.assert_allclose(found.squares, squares, rtol=2e-2)  # noise of deviation below 0.1
    found = found.components
    reference = PCA(n_components=3).fit_transform(jax.random.key(0), x).coords
    np.testing.assert_allclose((x - x.mean(axis=0)) @ found.T, reference, atol=2e-3)  # float32 eigenvectors
    poor = projection.private_components(
        jax.random.key(0), jnp.asarray(x), jnp.ones(len(x)), frame, spending(0.01, delta), 3
    ).components
    assert np.abs(poor @ found.T - np.eye(3)).max() > 0.1
    np.testing.assert_allclose(poor @ poor.T, np.eye(3), atol=1e-5)


def test_records_of_weight_zero_and_lengths_beyond_the_radius_do_not_count():
    x = records()
    weight = np.arange(len(x)) % 2
    far = x.copy()
    far[weight == 0] *= 1e6
    frame = Frame(jnp.zeros(6), jnp.asarray(2.0), jnp.asarray(1.0))
    arguments = (jnp.asarray(weight, jnp.float32), frame, spending(1e6), 2)
    one, other = (projection.private_components(jax.random.key(0), jnp.asarray(r), *arguments) for r in (x, far))
    np.testing.assert_allclose(one.components, other.components, atol=1e-6)


def test_random_directions_are_orthonormal_and_uniform():
    keys = jax.random.split(jax.random.key(0), 4000)
    m, p = 5, 2
    drawn = np.asarray(jax.vmap(lambda key: projection.random_components(key, p, m, jnp.float32))(keys), float)
    np.testing.assert_allclose(drawn @ np.swapaxes(drawn, 1, 2), np.broadcast_to(np.eye(p), (4000, p, p)), atol=1e-5)
    # An entry of a uniform unit vector: its square is Beta(1/2, (m - 1) / 2), its sign fair.
    law = scipy.stats.beta(0.5, (m - 1) / 2)
    for row, column in ((0, 0), (1, 3)):
        assert scipy.stats.kstest(drawn[:, row, column] ** 2, law.cdf).pvalue > 1e-4
        assert abs((drawn[:, row, column] > 0).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(4000)


def test_rows_are_projected_one_by_one_whatever_stands_beside_them():
    rng = np.random.default_rng(0)
    rows, components = rng.normal(size=(301, 37)), rng.normal(size=(5, 37))
    found = projection.project_each(rows, components)
    np.testing.assert_allclose(found, rows @ components.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(projection.project_each(rows[7:100:3], components), found[7:100:3])


def test_public_directions_must_be_orthonormal():
    w = np.eye(4)[:2]
    np.testing.assert_array_equal(projection.public_components(w, 2, 4), w)
    for components, n_components, message in (
        (2 * w, 2, "orthonormal"),
        (w, 3, "n_components = 3 rows"),
        (w, 2, None),
        (w[:, :3], 2, "4 columns"),
    ):
        if message:
            with pytest.raises(ValueError, match=message):
                projection.public_components(components, n_components, 4)
    with pytest.raises(ValueError, match="n_components must be <= m"):
        projection.random_components(jax.random.key(0), 5, 4, jnp.float32)

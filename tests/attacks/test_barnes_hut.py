"""Repulsion by groups of points: against scikit-learn's own tree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.manifold import _barnes_hut_tsne

from drjax.attacks.reconstruction import barnes_hut
from drjax.attacks.reconstruction.equations import forces


def of_scikit_learn(coords, angle):
    """Its gradient without attraction."""
    n, k = coords.shape
    found = np.zeros((n, k), np.float32)
    nobody = np.zeros(1, np.float32), np.zeros(1, np.int64), np.zeros(n + 1, np.int64)
    _barnes_hut_tsne.gradient(
        nobody[0], coords, *nobody[1:], found, angle, k, 0, dof=max(k - 1, 1), compute_error=0, num_threads=1
    )
    return -found


def a_map(n, k, scale, seed=0):
    """Two clusters of unequal size."""
    coords = np.random.default_rng(seed).normal(size=(n, k))
    coords[n // 3 :] += 4
    return (scale * coords).astype(np.float32)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("angle", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_it_is_that_of_scikit_learn(k, angle, scale):
    coords = a_map(150, k, scale)
    found = barnes_hut.repulsion(coords, angle)
    peer = of_scikit_learn(coords, angle)
    # float32 means of cells and sums over 150 points, of terms that cancel in part.
    np.testing.assert_allclose(found, peer, atol=2e-5 * np.abs(found).max())


def test_points_in_one_place_do_not_repel_each_other():
    coords = a_map(40, 2, 5.0)
    coords[7] = coords[3]
    coords[20:23] = coords[19]
    found = barnes_hut.repulsion(coords)
    np.testing.assert_allclose(found, of_scikit_learn(coords, 0.5), atol=2e-5 * np.abs(found).max())
    np.testing.assert_array_equal(barnes_hut.repulsion(np.zeros((5, 2))), 0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_at_an_angle_of_zero_it_is_exact(k):
    coords = a_map(60, k, 3.0)
    with jax.enable_x64(True):
        exact = np.asarray(forces(jnp.asarray(coords, jnp.float64))[1])
    np.testing.assert_allclose(barnes_hut.repulsion(coords, 0), exact, atol=1e-12)
    excess = barnes_hut.excess(coords)
    np.testing.assert_allclose(excess, barnes_hut.repulsion(coords) - exact, atol=1e-12)
    assert np.abs(excess).max() > 1e-4 * np.abs(exact).max()


def test_points_closer_than_coordinates_can_tell_end_the_tree():
    coords = np.array([[0.0, 0.0], [1e-5, 0.0], [1e300, 1e300]])
    with np.errstate(over="ignore"):
        assert np.isfinite(barnes_hut.repulsion(coords)).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((np.zeros((1, 2)),), "coords must have at least 2 rows"),
        ((np.full((3, 2), np.inf),), "coords must be finite"),
        ((np.zeros((3, 2)), -0.1), "angle must be >= 0"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, match):
    with pytest.raises(ValueError, match=match):
        barnes_hut.repulsion(*arguments)

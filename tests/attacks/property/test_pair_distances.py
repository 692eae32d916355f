"""Neighbours, counts and histograms of all distances, against SciPy's."""

import numpy as np
import pytest
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist, pdist

from drjax.attacks.property.pair_distances import neighbourhoods, pair_distances

RADII = (0.1, 0.3, 1.0)


@pytest.mark.parametrize("n", [4, 33, 400])
def test_all_that_is_found_is_what_scipy_finds(n):
    x = np.random.default_rng(n).normal(size=(n, 2)) * [1, 2]
    k = min(32, n - 1)
    found = pair_distances(x, k, RADII, 0.25, 8)
    distances, order = KDTree(x).query(x, k=k + 1)
    np.testing.assert_allclose(found.near, distances[:, 1:], rtol=1e-12)  # rounding of squares
    np.testing.assert_array_equal(found.order, order[:, 1:])
    within = cdist(x, x)[..., None] <= RADII
    np.testing.assert_array_equal(found.counts, within.sum(axis=1))
    expected = np.histogram(np.minimum(pdist(x), 1.9), np.linspace(0, 2, 9))[0]
    np.testing.assert_array_equal(found.histogram, expected)


def test_points_that_coincide_are_neighbours_at_no_distance():
    x = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 3, axis=0)
    found = pair_distances(x, 2, RADII, 1.0, 3)
    assert (found.near == 0).all()
    for i, others in enumerate(found.order):
        assert sorted([i, *others]) == list(range(i // 3 * 3, i // 3 * 3 + 3))


def test_shapes_of_neighbourhoods_are_those_of_their_covariances():
    rng = np.random.default_rng(0)
    x, order, reach = rng.normal(size=(20, 2)), rng.integers(20, size=(20, 5)), rng.uniform(0.5, 2, size=20)
    found = neighbourhoods(x, order, reach)
    for i in range(20):
        around = (x[order[i]] - x[i]) / reach[i]
        low, high = np.linalg.eigvalsh(np.cov(around.T, bias=True))
        expected = [np.linalg.norm(x[i]), np.linalg.norm(around.mean(axis=0)), low + high, high - low]
        np.testing.assert_allclose(found[i], expected, atol=1e-10)  # roots of differences

"""Screened lists of neighbours are those of all distances, ties and copies included."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from drjax.dr import clusters, metrics, neighbors


def records(n: int, d: int) -> np.ndarray:
    """Records of many scales, with copies, a far one, and some on a grid, whose distances tie."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) * rng.uniform(0.1, 5, n)[:, None] + 100
    x[20:40] = x[5]
    x[n - 1] = x[5]
    x[7] *= 1e6
    x[50:150] = rng.integers(0, 2, (100, d)) * 3.0
    return x


@pytest.mark.parametrize("metric", [m for m in metrics.METRICS if m != "manhattan"])
def test_screening_loses_nobody(metric, monkeypatch):
    rows = metrics.prepared(metric, records(700, 12))
    among_all = neighbors.nearest(metric, rows, 30)
    monkeypatch.setattr(neighbors, "SCREENED", 2)
    screened = neighbors.nearest(metric, rows, 30)
    np.testing.assert_array_equal(screened[0], among_all[0])
    np.testing.assert_array_equal(screened[1], among_all[1])


@pytest.mark.parametrize("n_without", [4, 60])
def test_records_without_a_direction_are_at_distance_1_from_all(n_without, monkeypatch):
    x = records(300, 5) - 100
    x[3 :: 300 // n_without] = 0
    rows = metrics.prepared("cosine", x)
    among_all = neighbors.nearest("cosine", rows, 20)
    monkeypatch.setattr(neighbors, "SCREENED", 2)
    screened = neighbors.nearest("cosine", rows, 20)
    np.testing.assert_array_equal(screened[0], among_all[0])
    np.testing.assert_array_equal(screened[1], among_all[1])


@pytest.mark.parametrize("scale", [1e-200, 1, 1e30])
def test_records_far_below_the_scale_of_one_are_told_apart(scale, monkeypatch):
    x = np.random.default_rng(3).normal(size=(300, 5))
    x[17] *= 1e25
    among_all = neighbors.nearest("euclidean", x * scale, 6)
    monkeypatch.setattr(neighbors, "SCREENED", 2)
    screened = neighbors.nearest("euclidean", x * scale, 6)
    np.testing.assert_array_equal(screened[0], among_all[0])
    np.testing.assert_array_equal(screened[1], among_all[1])


@pytest.mark.parametrize("inner", [2, 300], ids=["projected", "all directions"])
def test_points_are_no_farther_apart_than_their_records(inner):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, inner)) @ rng.normal(size=(inner, 300)) + 0.1 * rng.normal(size=(500, 300))
    x[100:110] = x[0]
    of = clusters.clustered(x)
    assert of.points.shape[1] == (clusters.N_DIRECTIONS + 1 if inner == 2 else 300)
    found, count, n_met = clusters.candidates(of, 0, 0, of.start[1], 5)
    assert (n_met < 500 * of.start[1] / 2) == (inner == 2)  # clusters spare pairs where records vary in two dimensions
    between = metrics.among("euclidean", x)
    np.fill_diagonal(between, np.inf)
    for place in range(of.start[1]):
        nearest = np.argsort(between[of.order[place]], kind="stable")[:5]
        assert set(nearest) <= set(found[place, : count[place]])
        assert count[place] < 40


def test_what_float32_cannot_tell_apart_is_measured(monkeypatch):
    rows = np.random.default_rng(1).normal(size=(400, 8)) * 1e-6
    rows[::2] += 10
    among_all = neighbors.nearest("euclidean", rows, 10)
    monkeypatch.setattr(neighbors, "SCREENED", 2)
    np.testing.assert_array_equal(neighbors.nearest("euclidean", rows, 10)[0], among_all[0])


def test_neighbours_are_those_of_scikit_learn():
    x = np.random.default_rng(2).normal(size=(3000, 10))
    distances, indices = NearestNeighbors(n_neighbors=8).fit(x).kneighbors()
    found = neighbors.nearest("euclidean", x, 8)
    np.testing.assert_array_equal(found[0], indices)
    np.testing.assert_allclose(found[1], distances, rtol=1e-12)


def test_a_record_stands_among_its_copies_by_index():
    x = records(400, 5)
    between = metrics.among("euclidean", x)
    wanted = np.argsort(between, axis=1, kind="stable")[:, :12]
    indices, distances = neighbors.with_self(*neighbors.nearest("euclidean", x, 12))
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(distances, np.take_along_axis(between, wanted, axis=1))
    assert 399 not in indices[399]  # 21 copies come before the last

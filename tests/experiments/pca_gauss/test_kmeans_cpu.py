"""Compiled k-means and silhouette against scikit-learn, and against the pure program that they stand in for."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import silhouette_score

from drjax.core.types import Status
from experiments.pca_gauss.clustering import kmeans, kmeans_cpu
from experiments.pca_gauss.clustering.kmeans import Clustering, cluster, cluster_all
from experiments.pca_gauss.clustering.kmeans_cpu import Settings

KEY = jax.random.key(0)


def blobs(n: int, d: int, k: int = 5, seed: int = 0, spread: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 3 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d)) + 10


def lloyd_of_scikit_learn(x: np.ndarray, start: np.ndarray) -> KMeans:
    return KMeans(len(start), init=start, n_init=1).fit(x)


# Numbers of features and centres that fill the loops' groups of four and three, and that do not; records likewise.
@pytest.mark.parametrize(("n", "d", "k"), [(300, 1, 2), (256, 4, 3), (700, 7, 5), (1000, 17, 9), (40, 70, 11)])
def test_lloyd_from_the_same_start_ends_where_scikit_learn_does(n, d, k):
    x = blobs(n, d)
    start, _ = kmeans_plusplus(x, k, random_state=1)
    theirs = lloyd_of_scikit_learn(x, start)
    ours = kmeans_cpu.lloyd(x, start)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    # Float64 sums in another order.
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-12)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-10)
    assert ours.is_done
    # scikit-learn counts the last step, which moves nothing, where labels are what stops it.
    assert theirs.n_iter_ - 1 <= ours.n_iter <= theirs.n_iter_


@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_every_iteration_equals_that_of_the_pure_program_with_empty_clusters_too(max_iter):
    x = blobs(300, 3)
    # Two centres far from all records, which take over the two worst served; a third one apart from the rest.
    start = np.concatenate([x[:3], x[:2] + 1000.0, x.max(axis=0, keepdims=True)])
    with jax.enable_x64(True):
        pure = kmeans.lloyd(x, start, max_iter=max_iter)
    ours = kmeans_cpu.lloyd(x, start, max_iter=max_iter)
    np.testing.assert_array_equal(ours.labels, pure.labels)
    np.testing.assert_allclose(ours.centers, pure.centers, rtol=1e-12)  # float64 sums in another order
    assert ours.n_iter == pure.n_iter
    assert ours.is_done == (pure.status == Status.OK)


def test_a_cluster_that_loses_its_only_record_stays_where_it_was():
    x = np.array([[0.0], [0.0], [0.0], [100.0]])
    start = np.array([[0.0], [90.0], [1000.0], [2000.0]])
    # Record 100 is worst served, so the first empty centre takes it from the centre at 90; the other one takes a 0.
    with jax.enable_x64(True):
        pure = kmeans.lloyd(x, start, max_iter=1)
    ours = kmeans_cpu.lloyd(x, start, max_iter=1)
    assert ours.centers.ravel().tolist() == pytest.approx([0.0, 90.0, 100.0, 0.0])
    np.testing.assert_allclose(ours.centers, pure.centers, atol=1e-12)  # rounding of the mean, which both take off
    np.testing.assert_array_equal(ours.labels, pure.labels)


@pytest.mark.parametrize(("n", "sample_size"), [(600, 150), (200, 2000)])
def test_data_sets_on_the_host_get_what_the_pure_program_gives_them(n, sample_size):
    xs = np.stack([blobs(n, 6, seed=seed) for seed in range(3)])
    with jax.enable_x64(True):
        found = cluster_all(KEY, xs, 4, sample_size=sample_size, n_init=2)
        for i, x in enumerate(xs):
            one = cluster(jax.random.fold_in(KEY, i), x, 4, sample_size=sample_size, n_init=2)
            # The same records are drawn in float64, so the same clusters come out.
            np.testing.assert_allclose(found.inertia[i], one.inertia, rtol=1e-12)
            # Distances by products lose half of the digits where records nearly coincide.
            np.testing.assert_allclose(found.silhouette[i], one.silhouette, atol=1e-9)
            assert found.status[i] == one.status


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inertia_and_silhouette_are_those_of_scikit_learn_for_the_same_labels(dtype):
    n, k = 520, 4
    x = blobs(n, 9, seed=3).astype(dtype)
    rng = np.random.default_rng(0)
    firsts, thresholds = rng.integers(n, size=(1, 1)).astype(np.int32), rng.random((1, 1, k - 1, 3)).astype(dtype)
    words = np.arange(n, dtype=np.uint32)[None]
    score, inertia, n_found, is_done = kmeans_cpu.cluster_sets(
        x[None], firsts, thresholds, words, Settings(k, n, 300, 1e-4)
    )
    room = kmeans_cpu.scratch(n, 9, k, 3, x.dtype)
    center = kmeans_cpu.pack(x, room.blocks, room.squares)
    kmeans_cpu.plus_plus(x, center, firsts[0, 0], thresholds[0, 0], room)
    theirs = lloyd_of_scikit_learn(x, room.centers + center)
    assert theirs.labels_ is not None
    # Single precision of sums of 520 squares; float64 in another order.
    tolerance = 1e-5 if dtype == np.float32 else 1e-9
    assert inertia[0] == pytest.approx(theirs.inertia_, rel=tolerance)
    assert score[0] == pytest.approx(silhouette_score(x, theirs.labels_), abs=tolerance)
    assert (n_found[0], is_done[0]) == (k, True)
    # The sample is of the smallest words: here the first 100 records.
    sampled = kmeans_cpu.cluster_sets(x[None], firsts, thresholds, words, Settings(k, 100, 300, 1e-4))[0]
    assert sampled[0] == pytest.approx(silhouette_score(x[:100], theirs.labels_[:100]), abs=tolerance)


def test_starts_are_drawn_by_their_squared_distance_to_those_before():
    # Three records at 0, one at 1, one at 2: from 0 the others have weights 1 and 4, so shares 0 to 0.2 and 0.2 to 1.
    x = np.array([[0.0], [1.0], [0.0], [2.0], [0.0]])
    for threshold, drawn in ((0.0, 1.0), (0.19, 1.0), (0.21, 2.0), (0.99, 2.0)):
        room = kmeans_cpu.scratch(5, 1, 2, 1, x.dtype)
        center = kmeans_cpu.pack(x, room.blocks, room.squares)
        kmeans_cpu.plus_plus(x, center, np.int32(2), np.array([[threshold]]), room)
        assert (room.centers + center).ravel().tolist() == pytest.approx([0.0, drawn])


def test_data_sets_without_an_answer_get_the_same_flags_as_in_the_pure_program():
    xs = np.zeros((3, 300, 3), np.float32)
    xs[1, 5, 2] = np.nan
    xs[2] = blobs(300, 3)
    found = cluster_all(KEY, xs, 3, sample_size=50, n_init=1, max_iter=1)
    pure = [cluster(jax.random.fold_in(KEY, i), x, 3, sample_size=50, n_init=1, max_iter=1) for i, x in enumerate(xs)]
    np.testing.assert_array_equal(found.status, [one.status for one in pure])
    assert found.status[1] == Status.DEGENERATE | Status.NON_FINITE
    assert found.status[2] == Status.NOT_CONVERGED
    assert found.silhouette[0] == pure[0].silhouette == 0
    assert np.isnan(found.silhouette[1])
    assert np.isnan(found.inertia[1])


def test_the_pure_program_is_what_runs_elsewhere(monkeypatch):
    xs = np.stack([blobs(90, 3, seed=seed) for seed in range(2)]).astype(np.float32)
    here = cluster_all(KEY, xs, 3, sample_size=50, n_init=2)
    called = []
    monkeypatch.setattr(kmeans_cpu, "cluster_sets", lambda *a, **_: called.append(a))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    elsewhere = cluster_all(KEY, xs, 3, sample_size=50, n_init=2)
    assert not called
    assert isinstance(elsewhere, Clustering)
    np.testing.assert_allclose(here.inertia, elsewhere.inertia, rtol=1e-5)  # single precision
    np.testing.assert_allclose(here.silhouette, elsewhere.silhouette, atol=1e-5)

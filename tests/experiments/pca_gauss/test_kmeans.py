"""K-means and silhouettes against scikit-learn; batches; data without an answer."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.metrics import silhouette_score

from drjax.core.types import Status
from experiments.pca_gauss.clustering.kmeans import cluster, cluster_all, kmeans, lloyd, silhouette

KEY = jax.random.key(0)


def blobs(seed: int = 0, n: int = 300, d: int = 5, k: int = 4, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * 3
    labels = rng.integers(k, size=n)
    return centers[labels] + spread * rng.normal(size=(n, d)) + 10, labels


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_lloyd_from_the_same_start_ends_where_scikit_learn_does(spread):
    x, _ = blobs(spread=spread)
    start, _ = kmeans_plusplus(x, 6, random_state=1)
    theirs = KMeans(6, init=start, n_init=1, algorithm="lloyd").fit(x)
    with jax.enable_x64(True):
        ours = jax.jit(lloyd)(x, start)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    # Float64 sums in another order.
    np.testing.assert_allclose(ours.inertia, theirs.inertia_, rtol=1e-12)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-10)
    assert int(ours.n_iter) == theirs.n_iter_ or int(ours.n_iter) == theirs.n_iter_ - 1


def test_an_empty_cluster_moves_to_the_record_that_is_worst_served_as_in_scikit_learn():
    x, _ = blobs(n=60)
    start = np.concatenate([x[:2], x[:1] + 1000.0])
    theirs = KMeans(3, init=start, n_init=1).fit(x)
    with jax.enable_x64(True):
        ours = lloyd(x, start)
    assert len(np.unique(ours.labels)) == 3
    np.testing.assert_allclose(ours.inertia, theirs.inertia_, rtol=1e-12)  # as above


def test_the_best_of_several_starts_is_about_as_good_as_that_of_scikit_learn():
    x, _ = blobs(1, n=400, k=6, spread=1.5)
    theirs = KMeans(6, n_init=20, random_state=0).fit(x).inertia_
    ours = float(jax.jit(functools.partial(kmeans, n_clusters=6, n_init=20))(KEY, x).inertia)
    # Both find the same optimum or one next to it; a single bad start is tens of per cent worse.
    assert abs(ours / theirs - 1) < 0.01


@pytest.mark.parametrize("k", [2, 5])
def test_silhouette_equals_that_of_scikit_learn(k):
    x, _ = blobs()
    labels = np.random.default_rng(1).integers(k, size=len(x))
    labels[:1] = k  # a record by itself counts 0
    with jax.enable_x64(True):
        ours = float(silhouette(x, jnp.asarray(labels), k + 2))
    # Distances by matrix product lose some digits against direct differences.
    assert ours == pytest.approx(silhouette_score(x, labels), abs=1e-9)
    # Single precision: 1e-3 is the error of the distance between records that nearly coincide.
    assert float(silhouette(x, jnp.asarray(labels), k + 2)) == pytest.approx(ours, abs=1e-4)


def test_cluster_scores_a_sample_of_fixed_size_close_to_all_records():
    x, _ = blobs(n=1500, spread=1.5)
    everything = cluster(KEY, x, 4, sample_size=1500)
    sampled = cluster(KEY, x, 4, sample_size=400)
    assert sampled.inertia == everything.inertia
    # The coefficients' deviation is below 0.3, so the mean of 400 is off by 0.015 or so.
    assert float(sampled.silhouette) == pytest.approx(float(everything.silhouette), abs=0.06)
    assert sampled.silhouette != everything.silhouette


def test_a_batch_of_data_sets_gives_what_each_gives_by_itself():
    xs = np.stack([blobs(seed, n=90, d=3)[0] for seed in range(5)]).astype(np.float32)
    found = cluster_all(KEY, xs, 3, sample_size=50, n_init=2, batch_size=2)
    for i, x in enumerate(xs):
        one = cluster(jax.random.fold_in(KEY, i), x, 3, sample_size=50, n_init=2)
        # Batched matrix products add up in another order.
        np.testing.assert_allclose(found.silhouette[i], one.silhouette, atol=1e-5)
        np.testing.assert_allclose(found.inertia[i], one.inertia, rtol=1e-5)


def test_clustering_of_degenerate_data_is_defined():
    same = cluster(KEY, np.ones((20, 3)), 3)
    assert float(same.silhouette) == 0.0
    assert int(same.status) & Status.DEGENERATE or float(same.inertia) == 0.0
    broken = cluster(KEY, np.full((20, 3), np.nan), 3)
    assert np.isnan(broken.silhouette)
    assert int(broken.status) & Status.NON_FINITE
    assert float(silhouette(np.zeros((4, 2)), jnp.zeros(4, jnp.int32), 2)) == 0.0


@pytest.mark.parametrize("n_clusters", [1, 21, 2.0])
def test_cluster_refuses_a_number_of_clusters_that_there_cannot_be(n_clusters):
    with pytest.raises(ValueError, match="n_clusters must be"):
        cluster(KEY, np.ones((20, 3)), n_clusters)

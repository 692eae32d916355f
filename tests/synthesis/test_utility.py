"""Utility of synthetic data: clustering against scikit-learn, estimators, and distances between distributions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from drjax.core.types import Status
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.utility import Score, krr_rmse, svm_accuracy, train_on_synthetic
from drjax.synthesis.utility_clustering import cluster, cluster_all, kmeans, lloyd, silhouette
from drjax.synthesis.utility_distances import correlation_distance, marginal_distances

KEY = jax.random.key(0)


def blobs(seed: int = 0, n: int = 300, d: int = 5, k: int = 4, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * 3
    labels = rng.integers(k, size=n)
    return centers[labels] + spread * rng.normal(size=(n, d)) + 10, labels


def two_classes(seed: int = 0, n: int = 200, d: int = 3) -> Synthetic:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return Synthetic(rng.normal(size=(n, d)) + 1.5 * y[:, None], y.astype(np.int32))


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


def test_any_estimator_is_trained_on_synthetic_records_and_scored_on_real_ones():
    made, test = two_classes(0), two_classes(1)
    forest = RandomForestClassifier(10, random_state=0)
    found = train_on_synthetic(forest, made, test)
    assert found.value == forest.fit(made.x, made.y).score(test.x, test.y)
    assert found.status == Status.OK
    line = train_on_synthetic(
        LinearRegression(), Synthetic(made.x, made.x @ [1.0, 2, 3] + 1), Synthetic(test.x, test.x @ [1.0, 2, 3])
    )
    assert line.value == pytest.approx(1.0)  # off by the intercept alone, to rounding


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_svm_accuracy_is_that_of_the_machine_on_standardised_records(kernel):
    made, test = two_classes(0), two_classes(1)
    found = svm_accuracy(KEY, made, test, kernel=kernel)
    scaler = StandardScaler().fit(made.x)
    theirs = SVC(C=1.0, kernel=kernel).fit(scaler.transform(made.x), made.y).score(scaler.transform(test.x), test.y)
    # The linear solver penalises its intercept, so its plane is a little different.
    assert found.value == pytest.approx(theirs, abs=0.03 if kernel == "linear" else 0)
    assert found == svm_accuracy(KEY, made, test, kernel=kernel)


def test_krr_rmse_is_that_of_kernel_ridge_regression_on_centred_targets():
    rng = np.random.default_rng(0)
    x, test = rng.normal(size=(120, 3)), rng.normal(size=(80, 3))
    y, test_y = np.sin(x[:, 0]) + 5, np.sin(test[:, 0]) + 5
    scaler = StandardScaler().fit(x)
    theirs = KernelRidge(alpha=0.1, kernel="rbf").fit(scaler.transform(x), y - y.mean())
    expected = np.sqrt(np.mean((theirs.predict(scaler.transform(test)) + y.mean() - test_y) ** 2))
    found = krr_rmse(KEY, Synthetic(x, y), Synthetic(test, test_y), alpha=0.1)
    assert found.value == pytest.approx(expected)
    assert found.n_trained == 120
    assert krr_rmse(KEY, Synthetic(x, y), Synthetic(test, test_y), sample_size=30).n_trained == 30


def test_hopeless_synthetic_data_get_a_score_all_the_same():
    test = two_classes(1)
    share = float(np.mean(test.y == 1))
    x = np.random.default_rng(0).normal(size=(30, 3))
    one_class = svm_accuracy(KEY, Synthetic(x, np.ones(30, np.int32)), test)
    assert one_class == Score(share, Status.DEGENERATE, 30, 0)
    nothing = svm_accuracy(KEY, Synthetic(np.full((30, 3), np.nan), np.ones(30)), test)
    assert nothing.value == 0.0
    assert nothing.status == Status.DEGENERATE | Status.NON_FINITE
    holes = np.where(np.arange(30)[:, None] < 10, np.inf, x)
    some = svm_accuracy(KEY, Synthetic(holes, np.arange(30) % 2), test)
    assert (some.n_trained, some.n_dropped) == (20, 10)
    assert some.status & Status.NON_FINITE
    constant = svm_accuracy(KEY, Synthetic(np.ones((30, 3)), np.arange(30) % 2), test, kernel="rbf")
    assert 0 <= constant.value <= 1
    huge = krr_rmse(KEY, Synthetic(x * 1e200, x[:, 0]), Synthetic(test.x, test.x[:, 0]))
    assert np.isfinite(huge.value)
    assert huge.n_dropped > 0
    none = krr_rmse(KEY, Synthetic(np.full((30, 3), np.nan), np.ones(30)), Synthetic(test.x, test.x[:, 0]))
    assert none.value == pytest.approx(np.sqrt(np.mean(test.x[:, 0] ** 2)))


def test_utility_refuses_what_it_cannot_score():
    made, test = two_classes(0), two_classes(1)
    with pytest.raises(ValueError, match="estimator must be"):
        train_on_synthetic(StandardScaler(), made, test)
    with pytest.raises(ValueError, match=r"synthetic\.x must have the 3 columns"):
        train_on_synthetic(DummyClassifier(), Synthetic(made.x[:, :2], made.y), test)
    with pytest.raises(ValueError, match=r"synthetic\.y must have an entry"):
        train_on_synthetic(DummyClassifier(), Synthetic(made.x, None), test)
    with pytest.raises(ValueError, match=r"test\.y must have an entry"):
        train_on_synthetic(DummyClassifier(), made, Synthetic(test.x, None))
    with pytest.raises(ValueError, match="kernel must be one of"):
        svm_accuracy(KEY, made, test, kernel="poly")


def test_marginals_of_a_data_set_are_at_no_distance_from_themselves_and_the_worst_at_one():
    x = np.random.default_rng(0).uniform(size=(50, 3))
    box = Box.of(0.0, 1.0, d=3)
    same = marginal_distances(KEY, x, x, box)
    assert not same.one_way.any()
    assert not same.two_way.any()
    assert not same.wasserstein.any()
    low, high = np.zeros((10, 3)), np.ones((20, 3))
    far = marginal_distances(KEY, low, high, box)
    assert (far.one_way == 1).all()
    assert (far.two_way == 1).all()
    assert (far.wasserstein == 1).all()
    missing = marginal_distances(KEY, low, np.full((5, 3), np.nan), box)
    assert (missing.one_way == 1).all()
    assert (missing.wasserstein == 1).all()


def test_marginal_distances_count_by_hand_on_two_bins():
    real = np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.9]])
    made = np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.1], [0.9, 0.9]])
    found = marginal_distances(KEY, real, made, Box.of(0.0, 1.0, d=2), n_bins=2)
    np.testing.assert_array_equal(found.one_way, [0, 0])
    np.testing.assert_array_equal(found.two_way, [0.5])  # mass 1/4 at each of four cells against 1/2 at two
    assert marginal_distances(KEY, np.ones((9, 60)), np.ones((9, 60)), Box.of(0, 2, d=60), max_pairs=7).pairs.shape == (
        7,
        2,
    )


def test_correlation_distance_is_that_of_pearson_matrices_and_constants_correlate_with_nothing():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 4)), rng.normal(size=(70, 4)) + 100
    above = np.triu_indices(4, 1)
    expected = np.abs(np.corrcoef(x.T)[above] - np.corrcoef(z.T)[above]).mean()
    assert correlation_distance(x, z) == pytest.approx(expected)
    assert correlation_distance(x, np.full((5, 4), 0.1)) == pytest.approx(np.abs(np.corrcoef(x.T)[above]).mean())
    assert correlation_distance(x, np.full((5, 4), np.nan)) == pytest.approx(np.abs(np.corrcoef(x.T)[above]).mean())
    assert correlation_distance(x[:, :1], z[:, :1]) == 0.0

"""Utility of synthetic data: estimators, and distances between distributions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from drjax.core.types import Status
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.utility import Score, krr_rmse, svm_accuracy, train_on_synthetic
from drjax.synthesis.utility_distances import correlation_distance, marginal_distances

KEY = jax.random.key(0)


def two_classes(seed: int = 0, n: int = 200, d: int = 3) -> Synthetic:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return Synthetic(rng.normal(size=(n, d)) + 1.5 * y[:, None], y.astype(np.int32))


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

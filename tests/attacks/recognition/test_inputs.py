"""Inputs that a method may have been given, and which of them are the same."""

import jax
import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

from drjax.attacks.recognition.inputs import CHAINS, METRICS, distances, distinct, given, inputs, on_host, with_stand_in
from drjax.dr import FirstPCA, MinMax, UnitRows

X = np.random.default_rng(0).uniform(0, 1, (40, 6)) * [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("step", {type(step): step for before, _ in CHAINS for step in before}.values())
def test_steps_on_the_host_are_the_steps_of_pipelines(step):
    x = np.column_stack([X, np.full(len(X), 0.1)])  # one feature is constant
    with jax.enable_x64(True):
        want = np.asarray(step.apply(x))
    if isinstance(step, FirstPCA):  # up to signs, and its last direction is rounding
        np.testing.assert_allclose(distances(on_host(step, x), "euclidean"), distances(want, "euclidean"), atol=1e-9)
    else:
        np.testing.assert_allclose(on_host(step, x), want, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_of_scikit_learn(metric):
    np.testing.assert_allclose(distances(X, metric), pairwise_distances(X, metric=metric), atol=1e-12)


def test_a_record_without_a_direction_is_at_distance_one():
    x = X.copy()
    x[3] = 0
    assert (np.delete(distances(x, "cosine")[3], 3) == 1).all()


def names(one) -> set:
    return {(tuple(step.name for step in before), metric) for before, metric in ((one.before, one.metric), *one.same)}


def test_records_in_the_unit_interval_are_one_input_with_those_scaled_to_it():
    x = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    found = distinct(inputs(x), is_scale_free=False)
    assert sum({((), "euclidean"), (("min-max",), "euclidean")} <= names(one) for one in found) == 1


def test_a_factor_makes_another_input_where_the_map_has_the_unit_of_the_records():
    x = 3 * (X - X.min(axis=0)) / np.ptp(X, axis=0)
    pair = {((), "euclidean"), (("min-max",), "euclidean")}
    assert any(pair <= names(one) for one in distinct(inputs(x), is_scale_free=True))
    assert not any(pair <= names(one) for one in distinct(inputs(x), is_scale_free=False))


def test_components_beyond_the_features_are_no_input_of_their_own():
    tried = {(tuple(step.name for step in one.before), one.metric) for one in inputs(X)}
    assert (("first-pca",), "cosine") not in tried
    assert (("standard", "first-pca"), "euclidean") not in tried
    assert given(X, (FirstPCA(n_components=50),), "euclidean") is None


def test_neighbours_come_in_order_and_without_the_record_itself():
    one = given(X, (MinMax(), UnitRows()), "euclidean")
    assert one.order.shape == (40, 39)
    assert not (one.order == np.arange(40)[:, None]).any()
    assert (np.diff(one.ordered, axis=1) >= 0).all()
    np.testing.assert_allclose(one.ordered, np.sort(one.between, axis=1)[:, 1:], atol=1e-15)


def test_the_known_records_nearest_in_the_map_stand_in_for_the_target():
    coords = np.arange(40.0)[:, None] ** 2
    np.testing.assert_allclose(with_stand_in(X[1:], coords)[0], X[1:4].mean(axis=0))

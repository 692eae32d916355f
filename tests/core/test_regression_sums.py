"""Ridge regression from sums, against scikit-learn's on all rows, and against regressions without a row."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

from drjax.core.kernel_regression import Landmarks, Radial
from drjax.core.regression_sums import RegressionSums

PENALTIES = (1e-3, 0.1, 10.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = 5 + rng.normal(size=(60, 7)) * np.linspace(0.1, 3, 7)
    return x, x @ rng.normal(size=(7, 3)) + rng.normal(size=(60, 3)) - 4


@pytest.mark.parametrize("cuts", [[], [1], [20, 21, 59]], ids=str)
def test_sums_of_parts_are_those_of_the_whole(rows, cuts):
    x, y = rows
    parts = zip(np.split(x, cuts), np.split(y, cuts), strict=True)
    found = functools.reduce(RegressionSums.merged, (RegressionSums.of(*part) for part in parts))
    whole = RegressionSums.of(x, y)
    assert found.count == 60
    for name in whole._fields[1:]:
        assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12, atol=1e-11)
    assert_allclose(whole.scatter, 60 * np.cov(x.T, bias=True), rtol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_weights_are_those_of_scikit_learn(rows, penalty):
    x, y = rows
    theirs = Ridge(alpha=penalty).fit(x, y)
    found = RegressionSums.of(x, y).solve([penalty])
    assert_allclose(found.weights, theirs.coef_.T, rtol=1e-8)
    assert_allclose(found.predict(x), theirs.predict(x), rtol=1e-10)


def test_the_penalty_is_that_of_the_least_generalised_cross_validation(rows):
    x, y = rows
    found = RegressionSums.of(x, y).solve(PENALTIES)
    centred = x - x.mean(axis=0)
    for penalty, loss in found.losses.items():
        smoother = centred @ np.linalg.solve(centred.T @ centred + penalty * np.eye(7), centred.T) + 1 / 60
        left = y - smoother @ y
        assert_allclose(loss, np.mean(left**2) / (1 - np.trace(smoother) / 60) ** 2, rtol=1e-9)
    assert found.loss == min(found.losses.values()) == found.losses[found.penalty]


def test_errors_left_out_are_those_of_regressions_without_the_row(rows):
    x, y = rows
    found = RegressionSums.of(x, y).solve([0.3])
    for row in (0, 17):
        other = Ridge(alpha=0.3).fit(np.delete(x, row, 0), np.delete(y, row, 0))
        assert_allclose(found.left_out(x[row : row + 1], y[row : row + 1]), y[row] - other.predict(x[row][None]), 1e-8)


def test_an_input_that_does_not_vary_has_no_part(rows):
    x, y = rows
    x = np.column_stack([x, np.full(60, 3.0) + 1e-9 * np.arange(60)])
    sums = RegressionSums.of(x, y)
    scale = sums.deviations(1e-7)
    assert np.isinf(scale).tolist() == [False] * 7 + [True]
    found = sums.solve([1.0], scale=scale)
    assert (found.weights[-1] == 0).all()
    theirs = Ridge(alpha=1.0).fit(x[:, :-1] / scale[:-1], y)
    assert_allclose(found.predict(x), theirs.predict(x[:, :-1] / scale[:-1]), rtol=1e-10)


def test_more_inputs_than_rows_leave_no_penalty_without_a_loss():
    rng = np.random.default_rng(1)
    found = RegressionSums.of(rng.normal(size=(5, 9)), rng.normal(size=(5, 2))).solve([1e-12, 1.0])
    assert np.isfinite(found.weights).all()
    assert found.penalty in (1e-12, 1.0)


@pytest.mark.parametrize("n", [60, 300])
def test_no_penalty_is_chosen_because_nothing_but_rounding_is_left(n):
    # As many inputs as rows, so that a fit without a penalty passes through all of them: its residuals and what they
    # are divided by both vanish, and their ratio does not.
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 5))
    y = np.sin(rows @ np.full((5, 3), 0.9)) + 0.01 * rng.normal(size=(n, 3))
    landmarks = Landmarks.of(Radial(3.0), rows)
    sums = RegressionSums.of(landmarks(rows), y)
    found = sums.solve([10.0**e for e in range(-12, 2)])
    limit = found.losses[1e-5]
    assert_allclose(found.losses[1e-4], limit, rtol=0.02)
    assert min(loss for penalty, loss in found.losses.items() if penalty < 1e-5) > 0.95 * limit
    assert 0.9 * limit < found.loss <= limit


def test_an_error_left_out_is_none_of_rounding_where_the_row_is_all_but_fitted_exactly():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 39))
    y = rng.normal(size=(40, 2))
    found = RegressionSums.of(x, y).solve([1e-4])
    other = Ridge(alpha=1e-4).fit(x[1:], y[1:])
    assert_allclose(found.left_out(x[:1], y[:1])[0], y[0] - other.predict(x[:1])[0], rtol=1e-4)

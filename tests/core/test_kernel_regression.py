"""Kernel ridge regression and its leave-one-out errors, against refits by scikit-learn."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

from drjax.core import kernel_regression
from drjax.core.kernel_regression import (
    PENALTIES,
    Choice,
    Radial,
    Spectrum,
    fit_with_errors,
    gaussian,
    leave_one_out_weights,
    matern,
    median_or_one,
    squared_distances,
    tune,
)

GRID = (1e-3, 1e-1, 1.0)


def records(m=14, f=3, d=2, seed=0):
    """Inputs (m, f), and targets (m, d) that follow from them up to noise, around 5."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(m, f))
    return inputs, 5 + np.sin(inputs @ np.random.default_rng(9).normal(size=(f, d))) + 0.1 * rng.normal(size=(m, d))


def left_out(kernel, y, penalty):
    """Errors of scikit-learn's refits without each row."""
    errors = []
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        model = KernelRidge(alpha=penalty, kernel="precomputed").fit(kernel[np.ix_(rest, rest)], y[rest])
        errors.append(y[i] - model.predict(kernel[i : i + 1, rest])[0])
    return np.array(errors)


@pytest.mark.parametrize("d", [1, 40])  # less and more than rows
def test_leave_one_out_errors_are_those_of_refits(d):
    inputs, y = records(d=d)
    y -= y.mean(axis=0)
    kernel = rbf_kernel(inputs, gamma=0.3)
    losses = Spectrum.of_kernel(kernel).leave_one_out(y, GRID)
    assert list(losses) == list(GRID)
    for penalty, loss in losses.items():
        np.testing.assert_allclose(loss, np.mean(left_out(kernel, y, penalty) ** 2), rtol=1e-9)  # rounding of solves


@pytest.mark.parametrize(("m", "f"), [(15, 4), (8, 30)])  # either Gram matrix
def test_with_the_mean_left_out_too_they_are_those_of_linear_regressions_with_an_intercept(m, f):
    inputs, y = records(m, f)
    inputs -= inputs.mean(axis=0)
    losses = Spectrum.of_features(inputs).leave_one_out(y - y.mean(axis=0), GRID, leaves_mean=True)
    for penalty, loss in losses.items():
        errors = []
        for i in range(m):
            rest = np.arange(m) != i
            errors.append(Ridge(alpha=penalty).fit(inputs[rest], y[rest]).predict(inputs[[i]])[0] - y[i])
        np.testing.assert_allclose(loss, np.mean(np.square(errors)), rtol=1e-8)  # rounding of solves


@pytest.mark.parametrize("profile", [gaussian, matern])
def test_width_and_penalty_are_the_best_of_a_search_by_refits_and_predictions_are_scikit_learns(profile):
    inputs, y = records()
    centred, widths = y - y.mean(axis=0), (0.1, 1.0, 10.0)
    median = np.median(((inputs[:, None] - inputs) ** 2).sum(axis=-1))

    def peer(a, b, unit):
        return rbf_kernel(a, b, gamma=1 / unit) if profile is gaussian else Matern(np.sqrt(unit), nu=1.5)(a, b)

    tried = {
        (width * median, penalty): np.mean(left_out(peer(inputs, inputs, width * median), centred, penalty) ** 2)
        for width in widths
        for penalty in GRID
    }
    unit, penalty = min(tried, key=lambda pair: tried[pair])
    choice = tune(squared_distances(inputs), centred, widths=widths, profile=profile, penalties=GRID)
    found = kernel_regression.fit(inputs, y, choice)
    assert choice.penalty == penalty
    assert found.unit == pytest.approx(unit)
    assert choice.loo_mse == pytest.approx(tried[unit, penalty], rel=1e-8)  # rounding of solves
    fresh, _ = records(seed=1)
    model = KernelRidge(alpha=penalty, kernel="precomputed").fit(peer(inputs, inputs, unit), centred)
    expected = model.predict(peer(fresh, inputs, unit)) + y.mean(axis=0)
    np.testing.assert_allclose(found.predict(fresh), expected, rtol=1e-9)
    # One column may be given without its axis.
    one = kernel_regression.fit(inputs, y[:, 0], choice)
    np.testing.assert_allclose(one.predict(fresh), expected[:, 0], rtol=1e-9)
    assert tune(squared_distances(inputs), centred[:, 0], widths=widths).penalty in PENALTIES


def test_the_errors_beside_a_fit_and_the_weights_without_each_row_are_those_of_refits():
    inputs, y = records()
    choice = Choice(0.0, 0.01, Radial(3.0))
    kernel = rbf_kernel(inputs, gamma=1 / 3)
    expected = left_out(kernel, y - y.mean(axis=0), 0.01)
    model, errors = fit_with_errors(inputs, y, choice)
    np.testing.assert_allclose(errors, expected, rtol=1e-8)  # rounding of solves
    np.testing.assert_allclose(model.predict(inputs), kernel_regression.fit(inputs, y, choice).predict(inputs))
    # What to expect of a prediction is the mean square for the inputs most like it.
    fresh, _ = records(seed=1)
    nearest = np.argsort(-rbf_kernel(fresh, inputs, gamma=1 / 3), axis=1)[:, : kernel_regression.ALIKE]
    squares = np.stack([np.mean(expected[rows] ** 2, axis=0) for rows in nearest])
    np.testing.assert_allclose(model.expected_squares(fresh), squares, rtol=1e-7)
    with pytest.raises(ValueError, match="leave-one-out errors"):
        kernel_regression.fit(inputs, y, choice).expected_squares(fresh)
    rows = np.array([11, 3, 8])
    weights = leave_one_out_weights(kernel.copy(), 0.01, rows)
    assert not weights[np.arange(3), rows].any()
    centred = y - y.mean(axis=0)
    np.testing.assert_allclose(centred[rows] - weights @ centred, expected[rows], rtol=1e-8)


def test_what_training_leaves_open_is_the_variance_of_scikit_learns_gaussian_process():
    inputs, y = records()
    model, _ = fit_with_errors(inputs, y, Choice(0.0, 0.01, Radial(3.0)), keeps_inverse=True)

    def deviation(rows, fresh):
        peer = GaussianProcessRegressor(RBF(np.sqrt(1.5)), alpha=0.01, optimizer=None).fit(inputs[rows], y[rows])
        return peer.predict(fresh, return_std=True)[1][:, 0]

    fresh = np.vstack([records(seed=1)[0], np.full(3, 1e3)])  # the last is like none
    # Theirs is of the value; the penalty is the noise of every target.
    expected = deviation(np.arange(14), fresh) ** 2 + 0.01
    np.testing.assert_allclose(model.variances(fresh), expected, rtol=1e-7)
    np.testing.assert_allclose(model.variances(fresh)[-1], 1.01)
    without = [deviation(np.arange(14) != i, inputs[[i]])[0] ** 2 + 0.01 for i in range(14)]
    np.testing.assert_allclose(model.variances(), without, rtol=1e-7)
    with pytest.raises(ValueError, match="its inverse, got one without"):
        fit_with_errors(inputs, y, model.choice)[0].variances(fresh)


def test_points_are_at_no_distance_from_themselves_and_the_unit_of_equal_points_is_one():
    inputs = 1e3 + records()[0]
    squared = squared_distances(inputs)
    assert not np.diagonal(squared).any()
    assert (squared >= 0).all()
    fresh = 1e3 + records(seed=1)[0]
    expected = ((fresh[:, None] - inputs) ** 2).sum(axis=-1)
    np.testing.assert_allclose(squared_distances(fresh, inputs), expected, atol=1e-8)  # products of 3e6, 16 digits
    assert median_or_one(squared_distances(np.zeros((5, 2)))) == 1
    assert median_or_one(squared) == np.median(squared)

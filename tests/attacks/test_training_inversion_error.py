"""What an inversion of training says of its own error: measured misfit, true error, and which answers are refused."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.reconstruction.training_inversion import Settings, labels, linear, reconstruct_model
from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.core.types import Status
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier

N_KNOWN, M, D = 80, 3, 64
SHORT = Training(epochs=30)
QUICK = Settings(n_restarts=0, max_refreshes=3)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    return x[:N_KNOWN], y[:N_KNOWN], x[-M:], y[-M:]


@pytest.fixture(scope="module")
def released(digits):
    """Of `SHORT`, in float64."""
    return train(SHORT, digits)


def start_of(training, seed=1):
    return jax.tree.map(np.asarray, training.model.init(jax.random.key(seed), D))


def train(training, digits, **kwargs):
    start = start_of(training)  # in float64 it would be another
    with jax.enable_x64(True):
        return train_many(training, *digits, init=start, **kwargs)


def attacked(training, params, digits, **kwargs):
    """The reconstruction and the true mean squared errors."""
    known_x, known_y, targets_x, _ = digits
    kwargs = {"init": start_of(training), "settings": QUICK, "n_labels": 2} | kwargs
    found = reconstruct_model(training, params, known_x, known_y, **kwargs)
    return found, np.mean((found.x - targets_x) ** 2, axis=1)


def expected(found):
    assert found.expected_mse is not None
    return found.expected_mse


def spread(digits):
    """The mean record's error on the targets."""
    return np.mean((digits[0].mean(axis=0) - digits[2]) ** 2)


def to_float16(params):
    return jax.tree.map(lambda leaf: leaf.astype(np.float16), params)


RELU = dataclasses.replace(SHORT, model=Classifier(activation="relu"))
ADAM = dataclasses.replace(SHORT, optimizer="adam", learning_rate=0.01)


@pytest.mark.parametrize(
    ("training", "guess"),
    [(RELU, RELU), (ADAM, ADAM), (SHORT, SHORT), (SHORT, dataclasses.replace(SHORT, learning_rate=0.101))],
    ids=["relu", "adam", "float16", "rate off by 1%"],
)
def test_what_has_been_rebuilt_is_said_to_be_and_how_well(digits, released, training, guess):
    params = released if training == SHORT else train(training, digits)
    if guess == SHORT:
        params = to_float16(params)
    found, errors = attacked(guess, params, digits)
    np.testing.assert_array_equal(found.y, digits[3])
    assert (found.status == Status.OK).all()
    assert errors.max() < 0.1 * spread(digits)
    # A study of 20 kinds of trainings and misfits had 0.1 to 20: a factor of 4 in the root mean square.
    ratio = errors / expected(found)
    assert 0.05 < np.exp(np.mean(np.log(ratio))) < 20


def test_where_the_search_sticks_the_step_that_does_not_lead_on_counts_as_further_off(digits):
    # On a ReLU network trained at this rate the last step neither lowers the misfit nor is small.
    training = dataclasses.replace(RELU, learning_rate=0.2)
    found, errors = attacked(training, train(training, digits), digits)
    assert errors.max() > 0.05 * spread(digits)
    assert (errors / expected(found)).max() < 3


def test_a_wrong_start_is_refused(digits, released):
    start, settings = start_of(SHORT, seed=2), dataclasses.replace(QUICK, max_evaluations=10, max_refreshes=1)
    found, errors = attacked(SHORT, released, digits, init=start, settings=settings)
    assert errors.min() > 0.5 * spread(digits)
    assert (found.status == Status.NOT_CONVERGED).all()
    assert expected(found).min() > 0.5 * spread(digits)


def test_a_wrong_label_is_refused_because_another_explains_the_release(digits, released):
    wrong = (digits[3] + 1) % 10
    found, errors = attacked(SHORT, released, digits, target_y=wrong)
    np.testing.assert_array_equal(found.y, wrong)
    assert errors.min() > 0.5 * spread(digits)
    assert (found.status == Status.NOT_CONVERGED).all()
    # The other label's record is the target, so that the distance to it is the error.
    np.testing.assert_allclose(expected(found), errors, rtol=0.3)


def test_a_record_gives_the_same_alone_as_among_others(digits, released):
    known_x, known_y, targets_x, targets_y = digits
    among, _ = attacked(SHORT, released, digits)
    one = jax.tree.map(lambda leaf: leaf[2:3], released)
    alone, _ = attacked(SHORT, one, (known_x, known_y, targets_x[2:3], targets_y[2:3]))
    # float64 GEMMs of other shapes round differently: 1e-16, times the condition of some hundred and 40 steps.
    np.testing.assert_allclose(alone.x[0], among.x[2], atol=1e-9)
    np.testing.assert_allclose(expected(alone)[0], expected(among)[2], rtol=1e-3)


@pytest.fixture
def measured(digits):
    """A Jacobian of 30 directions and one outer product beyond, made up; and written out, (d, P)."""
    rng = np.random.default_rng(3)
    known_x, known_y, *_ = digits
    problem = Problem(SHORT, known_x.astype(np.float32), known_y, init=start_of(SHORT), batches=None)
    belief = linear.Belief.fit(known_x, known_y, 30)
    v, a = belief.directions, rng.normal(size=problem.rows)
    along = rng.normal(size=(30, problem.n_first + 110)).astype(np.float32).astype(np.float64)
    rest = np.zeros((D, along.shape[1]))
    rest[:, : problem.n_first] = np.einsum("w,de->dwe", a, np.eye(D)).reshape(D, -1)
    contracted = np.einsum("w,kwd->kd", a, problem.first(along))
    made = linear.Linear(along.astype(np.float32), a, along @ along.T, contracted)
    return problem, belief, made, v.T @ along + (np.eye(D) - v.T @ v) @ rest


def test_variance_is_that_of_the_linear_model(measured):
    _, belief, made, jacobian = measured
    v = belief.directions
    prior = v.T @ np.diag(1 / belief.variance) @ v + (np.eye(D) - v.T @ v) / belief.rest
    for noise in (1e-3, 1.0, 30.0):
        truth = np.trace(np.linalg.inv(jacobian @ jacobian.T / noise**2 + prior))
        np.testing.assert_allclose(linear.posterior_variance(belief, made, noise), truth, rtol=1e-6)


def test_what_no_change_of_x_explains_is_what_least_squares_leave(measured):
    problem, belief, made, jacobian = measured
    residual = np.random.default_rng(4).normal(size=jacobian.shape[1]) + 5 * jacobian[7]
    left = residual - jacobian.T @ np.linalg.lstsq(jacobian.T, residual, rcond=None)[0]
    truth = np.linalg.norm(left) / np.sqrt(len(left) - D)
    np.testing.assert_allclose(linear.unexplained(problem, belief, made, residual), truth, rtol=1e-6)


def test_a_place_beyond_the_shadows_takes_the_farthest():
    own = labels.Shadows(0, np.arange(3.0)[:, None], np.array([[0.0], [5.0], [2.0]]))
    assert [float(labels.nearest(own, np.zeros(1), place)[0]) for place in range(5)] == [0, 2, 1, 1, 1]

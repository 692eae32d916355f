"""Inversion of a training run: targets that come back, from our own training and from scikit-learn's."""

import dataclasses
import warnings

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from drjax.attacks.reconstruction.training_inversion import Settings, linear, reconstruct_model
from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.core.types import Status
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier

pytestmark = pytest.mark.optimised

N_KNOWN, N_TARGETS, D = 100, 6, 64
SHORT = Training(epochs=20)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return (x[order] / 16).astype(np.float64), y[order]


def split_up(digits, m=N_TARGETS, n_known=N_KNOWN):
    x, y = digits
    return x[:n_known], y[:n_known], x[-m:], y[-m:]


def start_of(training, seed=1, d=D):
    return jax.tree.map(np.asarray, training.model.init(jax.random.key(seed), d))


def released(training, known_x, known_y, targets_x, targets_y, dtype=np.float32, **kwargs):
    with jax.enable_x64(dtype == np.float64):
        return train_many(training, known_x.astype(dtype), known_y, targets_x.astype(dtype), targets_y, **kwargs)


def errors(found, targets):
    return np.mean((found.x - targets) ** 2, axis=1)


# float32 training leaves rounding of 1e-7 in parameters of which a target moves 0.05: an MSE of 1e-10 at best. In
# float64 the solver's own tolerance of 1e-5 is what is left, again 1e-10.
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_targets_and_labels_come_back(digits, dtype):
    known_x, known_y, targets_x, targets_y = split_up(digits)
    init = start_of(SHORT)
    params = released(SHORT, known_x, known_y, targets_x, targets_y, dtype, init=init)
    found = reconstruct_model(SHORT, params, known_x, known_y, init=init)
    assert np.median(errors(found, targets_x)) < 1e-7
    assert errors(found, targets_x).max() < 1e-4
    np.testing.assert_array_equal(found.y, targets_y)
    assert (found.status == Status.OK).all()
    assert (found.residual_norm < 1e-2).all()


def test_a_convolutional_network_gives_its_target_up(digits):
    """No layer of it ends with the target's outer product: all 64 directions are measured."""
    training = Training(
        model=Classifier(image_shape=(8, 8, 1), channels=(4,), hidden=(8,)), epochs=20, learning_rate=0.02
    )
    known_x, known_y, targets_x, targets_y = split_up(digits, m=2)
    init = start_of(training)
    params = released(training, known_x, known_y, targets_x, targets_y, init=init)
    found = reconstruct_model(training, params, known_x, known_y, init=init, target_y=targets_y)
    assert errors(found, targets_x).max() < 1e-7
    assert (found.status == Status.OK).all()


@pytest.mark.parametrize(
    "training",
    [
        dataclasses.replace(SHORT, optimizer="adam", learning_rate=0.01),
        dataclasses.replace(SHORT, nesterov=True, l2=1e-3),
        dataclasses.replace(SHORT, model=Classifier(hidden=())),
        dataclasses.replace(SHORT, model=Classifier(hidden=(12, 8), activation="tanh")),
        dataclasses.replace(SHORT, model=Classifier(hidden=(100,), activation="softplus")),
    ],
    ids=["adam", "nesterov-l2", "logistic", "two-layers", "sketched"],
)
def test_other_trainings(digits, training):
    # Adam's steps hardly shrink with the gradient: among 100 the second target comes back to 6e-5 only.
    n_known = 200 if training.optimizer == "adam" else N_KNOWN
    known_x, known_y, targets_x, targets_y = split_up(digits, m=2, n_known=n_known)
    init = start_of(training)
    params = released(training, known_x, known_y, targets_x, targets_y, np.float64, init=init)
    found = reconstruct_model(training, params, known_x, known_y, init=init, target_y=targets_y)
    assert np.median(errors(found, targets_x)) < 1e-5


def test_mini_batches_in_a_known_order(digits):
    training = dataclasses.replace(SHORT, epochs=8, batch_size=64)
    known_x, known_y, targets_x, targets_y = split_up(digits, 4)
    init, batches = start_of(training), training.batches(jax.random.key(5), N_KNOWN + 1)
    params = released(training, known_x, known_y, targets_x, targets_y, np.float64, init=init, batches=batches)
    found = reconstruct_model(training, params, known_x, known_y, init=init, batches=batches, target_y=targets_y)
    assert np.median(errors(found, targets_x)) < 1e-6
    other = training.batches(jax.random.key(6), N_KNOWN + 1)
    settings = Settings(max_evaluations=10)
    astray = reconstruct_model(
        training, params, known_x, known_y, init=init, batches=other, target_y=targets_y, settings=settings
    )
    assert (astray.status == Status.NOT_CONVERGED).all()


class _FromOurStart(MLPClassifier):
    """scikit-learn's network, its arithmetic and its step order, from a start that the adversary knows."""

    def __init__(self, start=None, **settings):
        super().__init__(**settings)
        self.start = start

    def _initialize(self, y, layer_units, dtype):
        super()._initialize(y, layer_units, dtype)
        self.coefs_ = [layer["w"].T.astype(dtype).copy() for layer in self.start]
        self.intercepts_ = [layer["b"].astype(dtype).copy() for layer in self.start]


@pytest.mark.parametrize(("activation", "ours"), [("tanh", "tanh"), ("logistic", "sigmoid")])
def test_networks_that_scikit_learn_trained(digits, activation, ours):
    known_x, known_y, targets_x, targets_y = split_up(digits, 3)
    training = Training(model=Classifier(activation=ours), epochs=60, learning_rate=0.2, l2=0.0)
    init = start_of(training)
    models = []
    for x, y in zip(targets_x, targets_y, strict=True):
        model = _FromOurStart(
            start=init,
            hidden_layer_sizes=(10,),
            activation=activation,
            solver="sgd",
            batch_size=N_KNOWN + 1,
            learning_rate_init=0.2,
            momentum=0.9,
            nesterovs_momentum=False,
            alpha=0.0,
            max_iter=60,
            n_iter_no_change=1000,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(np.concatenate([x[None], known_x]), np.append(y, known_y))
        models.append(tuple({"w": w.T, "b": b} for w, b in zip(model.coefs_, model.intercepts_, strict=True)))
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    found = reconstruct_model(training, params, known_x, known_y, init=init)
    assert errors(found, targets_x).max() < 1e-5
    np.testing.assert_array_equal(found.y, targets_y)


def test_another_fixed_set_is_reported_and_not_claimed(digits):
    known_x, known_y, targets_x, targets_y = split_up(digits, 2)
    init = start_of(SHORT)
    params = released(SHORT, known_x, known_y, targets_x, targets_y, init=init)
    others_x, others_y = digits[0][N_KNOWN : 2 * N_KNOWN], digits[1][N_KNOWN : 2 * N_KNOWN]
    found = reconstruct_model(SHORT, params, others_x, others_y, init=init, settings=Settings(max_evaluations=10))
    assert (found.status == Status.NOT_CONVERGED).all()
    assert (found.residual_norm > 0.1).all()


def test_a_model_without_a_target_shows_none(digits):
    known_x, known_y, targets_x, _ = split_up(digits, 1)
    init = start_of(SHORT)
    problem = Problem(SHORT, known_x.astype(np.float32), known_y, init=init, batches=None)
    theta = problem.run(targets_x, np.zeros(1, int), with_target=False)[0]
    first, b1, w2, b2 = np.split(theta.astype(np.float32), np.cumsum([640, 10, 100]))
    params = ({"w": first.reshape(1, 10, D), "b": b1[None]}, {"w": w2.reshape(1, 10, 10), "b": b2[None]})
    found = reconstruct_model(SHORT, params, known_x, known_y, init=init)
    assert found.status[0] == Status.DEGENERATE
    assert np.isnan(found.x).all()


def test_step_is_newtons_where_the_run_is_linear(digits):
    """Against the normal equations, written out with the whole Jacobian."""
    rng = np.random.default_rng(3)
    known_x, known_y, *_ = split_up(digits)
    problem = Problem(SHORT, known_x.astype(np.float32), known_y, init=start_of(SHORT), batches=None)
    belief = linear.Belief.fit(known_x, known_y, 30)
    v, a = belief.directions, rng.normal(size=problem.rows)
    p = problem.n_first + 110
    along = rng.normal(size=(30, p))
    rest = np.zeros((D, p))
    rest[:, : problem.n_first] = np.einsum("w,de->dwe", a, np.eye(D)).reshape(D, -1)
    jacobian = v.T @ along + (np.eye(D) - v.T @ v) @ rest
    along32 = along.astype(np.float32)
    measured = linear.Linear(along32, a, along @ along.T, np.einsum("w,kwd->kd", a, problem.first(along)))
    # Secants of another linear map: on their span it is that map which counts.
    dx = rng.normal(size=(4, D))
    other = jacobian + 0.1 * rng.normal(size=jacobian.shape)
    secants = [linear.secant(problem, belief, measured, move, move @ other) for move in dx]
    combined = jacobian + dx.T @ np.linalg.pinv(dx.T) @ (other - jacobian)
    truth = v.T @ rng.normal(size=30) * 0.1 + dx.T @ rng.normal(size=4)
    step = linear.step(problem, belief, measured, secants, truth @ combined, np.zeros(D), 1e-9)
    # float32 products of the Jacobian: 1e-7 times a condition of some hundred.
    np.testing.assert_allclose(step, truth, atol=1e-3 * np.abs(truth).max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": ()}, "must have 2 layers"),
        ({"target_y": np.array([10])}, "target_y must be integers from 0 to 9, got 10"),
        ({"target_y": np.array([1, 2])}, "target_y must be 1 classes"),
        ({"bounds": (1.0, 0.0)}, "bounds must be"),
        ({"n_labels": 0}, "n_labels must be"),
        ({"public": (np.zeros((3, 5)), np.zeros(3, int))}, "must have 64 columns"),
    ],
)
def test_bad_input(digits, change, message):
    known_x, known_y, *_ = split_up(digits)
    init = start_of(SHORT)
    params = jax.tree.map(lambda leaf: leaf[None], init)
    arguments = {"init": init} | change
    with pytest.raises(ValueError, match=message):
        reconstruct_model(SHORT, params, known_x, known_y, **arguments)


def test_bad_parameters(digits):
    known_x, known_y, *_ = split_up(digits)
    init = start_of(SHORT)
    params = jax.tree.map(lambda leaf: leaf[None], init)
    with pytest.raises(ValueError, match="leading axis"):
        reconstruct_model(SHORT, init, known_x, known_y, init=init)
    other = jax.tree.map(lambda leaf: leaf[None], start_of(Training(model=Classifier(hidden=(11,)))))
    with pytest.raises(ValueError, match="w of layer 0 must have shape"):
        reconstruct_model(SHORT, other, known_x, known_y, init=init)
    params[0]["w"] = np.full_like(params[0]["w"], np.nan)
    with pytest.raises(ValueError, match="finite"):
        reconstruct_model(SHORT, params, known_x, known_y, init=init)


@pytest.mark.parametrize("change", [{"max_evaluations": 0}, {"tolerance": 0.0}, {"memory": 0}, {"n_directions": 0}])
def test_bad_settings(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        Settings(**change)

"""Networks trained until their gradient vanishes, from starts that nobody knows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax.flatten_util import ravel_pytree
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from drjax.attacks.reconstruction.closed_form import reconstruct_network
from drjax.core.types import Status
from drjax.nets.classifiers import Classifier

N, D, M, L2 = 80, 16, 2, 3e-3
MODEL = Classifier(hidden=(6,), activation="tanh")


@pytest.fixture(scope="module")
def digits():
    """Digits in 4 x 4 pixels: Newton steps factorise the matrix of all parameters."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:N]
    return x[order].reshape(N, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(N, D) / 16, y[order]


def trained(model, x, y, seed, stop):
    """Parameters at which the norm of the gradient of the mean loss is below `stop`, and that norm."""
    with jax.enable_x64(True):
        start, unravel = ravel_pytree(jax.tree.map(jnp.float64, model.init(jax.random.key(seed), x.shape[1])))

        def loss(theta):
            p = unravel(theta)
            logits = jax.nn.log_softmax(model.logits(p, jnp.asarray(x)))
            penalty = sum(jnp.sum(layer["w"] ** 2) for layer in p)
            return -jnp.mean(logits[jnp.arange(len(y)), y]) + L2 / 2 * penalty

        value, slope, curvature = jax.jit(loss), jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
        options = {"gtol": max(stop, 1e-6), "maxiter": 20_000, "norm": 2}
        theta = scipy.optimize.minimize(value, np.asarray(start), jac=slope, method="BFGS", options=options).x
        for _ in range(20):
            if np.linalg.norm(slope(theta)) <= stop:
                break
            theta = theta - np.linalg.lstsq(np.asarray(curvature(theta)), np.asarray(slope(theta)))[0]
        return jax.tree.map(np.asarray, unravel(jnp.asarray(theta))), float(np.linalg.norm(slope(theta)))


def attacked(digits, stop):
    x, y = digits
    models = []
    for i in range(M):
        params, left = trained(MODEL, np.roll(x, -i, axis=0), np.roll(y, -i), i, stop)
        assert left <= stop
        models.append(params)
    found = [
        reconstruct_network(
            MODEL, jax.tree.map(lambda leaf: leaf[None], p), np.roll(x, -i, axis=0)[1:], np.roll(y, -i)[1:], l2=L2
        )
        for i, p in enumerate(models)
    ]
    return found, np.array([np.mean((f.x[0] - x[i]) ** 2) for i, f in enumerate(found)])


def test_records_and_labels_at_rest(digits):
    found, errors = attacked(digits, 1e-12)
    expected = np.array([f.expected_mse[0] for f in found])
    assert np.all(errors < 100 * expected)
    assert np.all(expected < 1e-12)
    # A gradient of 1e-12 times 80 records over the target's own, some 0.1: an MSE near 1e-18.
    assert errors.max() < 1e-14
    assert [int(f.y[0]) for f in found] == list(digits[1][:M])
    assert all(f.status[0] == Status.OK for f in found)


def test_error_is_that_of_the_gradient_left(digits):
    """The first-order formula of the module, with all gradients taken here."""
    x, y = digits
    params, left = trained(MODEL, x, y, 0, 1e-6)
    found = reconstruct_network(MODEL, jax.tree.map(lambda leaf: leaf[None], params), x[1:], y[1:], l2=L2)
    with jax.enable_x64(True):

        def first_layer(records, classes, penalty):
            def loss(p):
                logits = jax.nn.log_softmax(MODEL.logits(p, jnp.asarray(records)))
                total = -jnp.sum(logits[jnp.arange(len(classes)), classes])
                return total + penalty / 2 * sum(jnp.sum(layer["w"] ** 2) for layer in p)

            gradient = jax.grad(loss)(params)[0]
            return np.asarray(gradient["w"]), np.asarray(gradient["b"])

        weight, bias = first_layer(x, y, N * L2)
        _, delta = first_layer(x[:1], y[:1], 0.0)
    predicted = -delta @ (weight - np.outer(bias, x[0])) / (delta @ delta)
    error = found.x[0] - x[0]
    assert left > 1e-9
    assert found.status[0] == Status.OK
    assert 0.01 < np.mean(error**2) / found.expected_mse[0] < 100
    # What is left out is of second order in the gradient left over delta.
    np.testing.assert_allclose(error, predicted, atol=0.05 * np.abs(predicted).max())


def test_logistic_regression_of_scikit_learn(digits):
    x, y = digits
    fitted = LogisticRegression(C=1 / (N * L2), tol=1e-12, max_iter=10_000, solver="newton-cg").fit(x, y)
    params = ({"w": fitted.coef_[None], "b": fitted.intercept_[None]},)
    found = reconstruct_network(Classifier(hidden=()), params, x[1:], y[1:], l2=L2)
    np.testing.assert_allclose(found.x[0], x[0], atol=1e-5)
    assert found.y[0] == y[0]


def test_not_at_rest_is_not_claimed(digits):
    x, y = digits
    start = jax.tree.map(lambda leaf: np.asarray(leaf)[None], MODEL.init(jax.random.key(0), D))
    found = reconstruct_network(MODEL, start, x[1:], y[1:], l2=L2)
    assert found.status[0] == Status.NOT_CONVERGED
    assert found.residual_norm[0] > 0.1
    np.testing.assert_allclose(found.x[0], x[1:].mean(axis=0))
    assert found.expected_mse[0] == pytest.approx(x[1:].var(axis=0).mean())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"l2": -1.0}, "l2 must be"),
        ({"known_y": np.full(N - 1, 10)}, "known_y must be"),
        ({"model": Classifier(image_shape=(8, 8, 1), channels=(2,))}, "model must be dense"),
        ({"model": Classifier(hidden=(7,))}, "must have shape"),
        ({"params": ()}, "one leading axis"),
    ],
)
def test_bad_input(digits, change, message):
    x, y = digits
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[None], MODEL.init(jax.random.key(0), D))
    arguments = {"model": MODEL, "params": params, "known_x": x[1:], "known_y": y[1:]} | change
    with pytest.raises(ValueError, match=message):
        reconstruct_network(**arguments)

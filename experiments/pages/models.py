"""Records from models that were stopped at several tolerances: the tables of docs/models."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from drjax.attacks.reconstruction.closed_form import (
    gradient_sensitivity,
    of_estimator,
    reconstruct_erm,
    reconstruct_glm,
)
from drjax.core.types import Status, count_status

N, N_TARGETS = 300, 20

TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8)

STOPS = (1e-1, 1e-2, 1e-3, 1e-4, 0.0)
"""Norms of the gradient at which BFGS is stopped; 0 for five steps of Newton's method behind the last."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """300 digits (300, 64) from 0 to 1 and their labels."""
    found: Any = load_digits(return_X_y=True)
    return found[0][:N] / 16, found[1][:N]


def glm(tol: float, is_toy: bool) -> dict[str, Any]:
    """scikit-learn's logistic regression of two classes at one tolerance, each target in turn unknown."""
    x, y = digits()
    y, found = (y > 4).astype(int), []
    for i in range(2 if is_toy else N_TARGETS):
        a, b = np.roll(x, -i, axis=0), np.roll(y, -i)
        model = LogisticRegression(tol=tol, max_iter=100_000).fit(a, b)
        found.append(reconstruct_glm(known_x=a[1:], known_y=b[1:], **of_estimator(model)._asdict()))
    error = np.array([((f.x - x[i]) ** 2).mean() for i, f in enumerate(found)])
    expected, status = (np.array([getattr(f, name) for f in found]) for name in ("expected_mse", "status"))
    ok = status == Status.OK
    return {
        "mse_median": float(np.median(error)),
        "expected_median": float(np.median(expected)),
        "ratio_largest": float((error / expected)[ok].max()) if ok.any() else None,
        "status_counts": count_status(status),
    }


def loss(params: Any, x: Any, y: Any) -> jax.Array:
    """Cross-entropy of a network of one hidden layer of tanh."""
    hidden = jnp.tanh(params["inner"] @ x + params["shift"])
    return -jax.nn.log_softmax(params["outer"] @ hidden + params["offset"])[y]


@functools.cache
def trained(step: int) -> tuple[Any, float]:
    """The network at one of `STOPS`, trained on from the one before; and the norm of its gradient."""
    x, y = digits()
    rng = np.random.default_rng(0)
    start = {"inner": rng.normal(size=(8, 64)) / 8, "shift": np.zeros(8)}
    start |= {"outer": rng.normal(size=(10, 8)) / 3, "offset": np.zeros(10)}
    theta, unravel = ravel_pytree(start if step == 0 else trained(step - 1)[0])

    def total(t: jax.Array) -> jax.Array:
        return jax.vmap(loss, (None, 0, 0))(unravel(t), x, y).sum() + 0.1 * t @ t / 2

    value, gradient, hessian = jax.jit(total), jax.jit(jax.grad(total)), jax.jit(jax.hessian(total))
    if STOPS[step]:
        options = {"gtol": STOPS[step], "norm": 2, "maxiter": 20_000}
        theta = scipy.optimize.minimize(value, theta, jac=gradient, method="BFGS", options=options).x
    for _ in range(0 if STOPS[step] else 5):
        theta = theta - np.linalg.solve(hessian(theta), gradient(theta))
    return unravel(jnp.asarray(theta)), float(np.linalg.norm(gradient(theta)))


def erm(step: int, is_toy: bool) -> dict[str, Any]:
    """Records of a network at one of `STOPS` from its equations, each target in turn unknown."""
    with jax.enable_x64(True):
        (x, y), (params, left) = digits(), trained(step)
        found = []
        for i in range(2 if is_toy else N_TARGETS):
            a, b = np.roll(x, -i, axis=0), np.roll(y, -i)
            found.append(reconstruct_erm(loss, params, a[1:], b[1:], reduction="sum", l2=0.1, target_y=b[0]))
        error = [((f.candidates[0] - x[i]) ** 2).mean() for i, f in enumerate(found)]
        bound = [(left / gradient_sensitivity(loss, params, x[i], y[i])) ** 2 / 64 for i in range(len(found))]
    return {
        "gradient_left": left,
        "mse_median": float(np.median(error)),
        "mse_largest": float(max(error)),
        "bound_median": float(np.median(bound)),
        "residual_median": float(np.median([f.residual_norm for f in found])),
    }


TABLES = {
    "glm-tolerances": {f"{tol:g}": functools.partial(glm, tol) for tol in TOLERANCES},
    "erm": {f"{stop:g}": functools.partial(erm, step) for step, stop in enumerate(STOPS)},
}
"""What computes the facts of a cell, by table and cell."""

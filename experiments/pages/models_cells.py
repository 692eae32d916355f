"""Released networks and regressions, and what their attacks say of themselves: more tables of docs/models."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from bench import glm_grid
from drjax.attacks.model_membership import play
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.core.types import Status, count_status
from drjax.data import load
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier

GAMES = (300, 1000)
"""Records of each network of the membership game."""

ROUNDINGS = ("float32", "float16")

N_KNOWN, N_RELU = 80, 10

SHORT = Training(epochs=30)

MINI = dataclasses.replace(SHORT, batch_size=27)

RELU_RATES = (0.05, 0.1, 0.2, 0.4)


class Case(NamedTuple):
    """Digits of a network of 80 known records.

    Attributes:
        known: Records (80, 64) and labels.
        targets: Records (m, 64) and labels.
    """

    known: tuple[np.ndarray, np.ndarray]
    targets: tuple[np.ndarray, np.ndarray]


def case(m: int) -> Case:
    """80 known digits and m targets, of a permutation by NumPy's generator 0."""
    found: Any = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(1797)
    x, y = found[0][order] / 16, found[1][order]
    return Case((x[:N_KNOWN], y[:N_KNOWN]), (x[-m:], y[-m:]))


def start_of(training: Training, seed: int = 1) -> Any:
    """Parameters at the start of a training of digits."""
    return jax.tree.map(np.asarray, training.model.init(jax.random.key(seed), 64))


def inverted(made: Training, m: int, guess: Training | None = None, **mistakes: Any) -> dict[str, Any]:
    """Errors, expected errors, status and misfits of targets that networks of one training are inverted for.

    Args:
        made: Training of the released networks.
        m: Number of targets.
        guess: Training that the adversary takes it for; the same if not given.
        mistakes: Arguments of `reconstruct_model` that are not what training had; `known_y`, `batches_seed` and
            `init_seed` among them.
    """
    given, init = case(m), start_of(made)
    batches = made.batches(jax.random.key(1), N_KNOWN + 1)
    with jax.enable_x64(True):
        params = train_many(made, *given.known, *given.targets, init=init, batches=batches)
    found = reconstruct_model(
        guess or made,
        params,
        given.known[0],
        mistakes.get("known_y", given.known[1]),
        init=start_of(made, mistakes.get("init_seed", 1)),
        batches=made.batches(jax.random.key(mistakes.get("batches_seed", 1)), N_KNOWN + 1),
        target_y=mistakes.get("target_y"),
    )
    assert found.expected_mse is not None
    mean = given.known[0].mean(axis=0)
    return {
        "errors": np.mean((found.x - given.targets[0]) ** 2, axis=1).tolist(),
        "expected": np.asarray(found.expected_mse).tolist(),
        "is_ok": (np.asarray(found.status) == Status.OK).tolist(),
        "residual_norms": np.asarray(found.residual_norm).tolist(),
        "status_counts": count_status(found.status),
        "mean_error": float(np.mean((mean - given.targets[0]) ** 2)),
    }


def mistaken(kind: str, is_toy: bool) -> dict[str, Any]:
    """What an adversary finds who is right, or wrong about one thing."""
    m, given = 1 if is_toy else 3, case(1 if is_toy else 3)
    wrong = given.known[1].copy()
    wrong[0] = (wrong[0] + 1) % 10
    changes: Mapping[str, Mapping[str, Any]] = {
        "right": {},
        "order": {"batches_seed": 2},
        "label": {"known_y": wrong},
        "start": {"init_seed": 2, "target_y": given.targets[1]},
    }
    return inverted(MINI if kind == "order" else SHORT, m, **changes[kind])


def relu(rate: float, is_toy: bool) -> dict[str, Any]:
    """Inversions of networks with ReLU, on which the search can stick."""
    model = Classifier(activation="relu")
    return inverted(dataclasses.replace(SHORT, model=model, learning_rate=rate), 2 if is_toy else N_RELU)


def rounded(dtype: str, is_toy: bool) -> dict[str, Any]:
    """The example of docs/models/file.md with weights that are saved in a dtype."""
    found: Any = load_digits(return_X_y=True)
    x, y = found[0][:300] / 16, found[1][:300]
    epochs = 20 if is_toy else 100

    def fitted(x: np.ndarray, y: np.ndarray, **change: Any) -> Any:
        options: dict[str, Any] = {"hidden_layer_sizes": (10,), "activation": "tanh", "solver": "sgd", "alpha": 0}
        options |= {"learning_rate_init": 0.2, "momentum": 0.9, "nesterovs_momentum": False, "max_iter": epochs}
        options |= {"n_iter_no_change": 1000, "random_state": 0, "batch_size": len(x)} | change
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MLPClassifier(**options).fit(x, y)
        return tuple({"w": w.T, "b": b} for w, b in zip(model.coefs_, model.intercepts_, strict=True))

    training = Training(model=Classifier(hidden=(10,), activation="tanh"), epochs=epochs, learning_rate=0.2)
    params: Any = jax.tree.map(lambda leaf: leaf[None].astype(dtype), fitted(x, y))
    init = fitted(x[1:], y[1:], learning_rate_init=1e-30, max_iter=1)
    back = reconstruct_model(training, params, x[1:], y[1:], init=init)
    error = np.mean((back.x - x[0]) ** 2)
    return {"mse": float(error), "status_counts": count_status(back.status)}


def game(n: int, is_toy: bool) -> dict[str, Any]:
    """Membership games of networks of n digits, each from a start that the adversary does not know."""
    data = load("digits")
    assert data.y is not None
    order = np.random.default_rng(0).permutation(len(data.x))
    x, y = data.x[order], data.y[order]
    pairs = np.random.default_rng(1).integers(n, len(x), (4 if is_toy else 300, 2))
    training = Training(epochs=30)
    found = play(jax.random.key(0), training, x[: n - 1], y[: n - 1], x[pairs], y[pairs], start="unknown")
    return {"n_games": len(pairs), "accuracy": found.accuracy._asdict(), "auc": float(found.auc)}


def glm_solver(solver: str, is_toy: bool) -> dict[str, Any]:
    """Outcomes of `bench.glm_grid` with one solver and one target: counts by tolerance, and actual over expected."""
    tolerances = glm_grid.TOLERANCES[:1] if is_toy or solver == "cholesky" else glm_grid.TOLERANCES
    counts, ratios = {}, []
    for tol in tolerances:
        grid = itertools.product(glm_grid.DATA, glm_grid.FEATURES, (1, 2))
        found = [one for name, features, n in grid for one in glm_grid.outcomes((name, features, solver, tol, n), [0])]
        counts[f"{tol:g}"] = _counted(found)
        ratios += [o.error / o.expected for o in found if o.status == Status.OK and o.cell[-1] == 1 and o.expected > 0]
    return {"by_tolerance": counts, "ratios": ratios}


def _counted(found: list[glm_grid.Outcome]) -> dict[str, int]:
    one, two = ([o for o in found if o.cell[-1] == n] for n in (1, 2))
    right = [o.status for o in one if o.is_right]
    ok, uncertified = (right.count(status) for status in (Status.OK, Status.UNCERTIFIED))
    return {
        "attacks": len(one),
        "right": len(right),
        "ok": ok,
        "uncertified": uncertified,
        "refused": len(right) - ok - uncertified,
        "wrong_one": sum(o.status == Status.OK and o.is_wrong for o in one),
        "wrong_two": sum(o.status == Status.OK and o.is_wrong for o in two),
    }


MISTAKES = ("right", "rate-1%", "rate-5%", "order", "label", "start")

TABLES = {
    "mistakes": {kind: functools.partial(mistaken, kind) for kind in MISTAKES},
    "relu": {f"{rate:g}": functools.partial(relu, rate) for rate in RELU_RATES},
    "rounding": {dtype: functools.partial(rounded, dtype) for dtype in ROUNDINGS},
    "membership-game": {str(n): functools.partial(game, n) for n in GAMES},
    "glm-grid": {solver: functools.partial(glm_solver, solver) for solver in glm_grid.SOLVERS},
}
"""What computes the facts of a cell, by table and cell."""

"""Trials of a cell: a method fitted with a hundred keys at once, and what is made of the synthetic records."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np

from drjax.core import batching
from drjax.core.statistics import half_width
from drjax.core.types import count_status
from drjax.synthesis import utility
from drjax.synthesis.contract import Synthetic
from experiments.pca_gauss import methods
from experiments.pca_gauss.clustering import kmeans
from experiments.pca_gauss.config import Config, Part
from experiments.pca_gauss.data import Task

CHUNK_BYTES = 2**30
"""Of a batch of fits; what they share, the data's own part, is computed once for each batch."""

METRICS = {"unsupervised": "silhouette", "classification": "accuracy", "regression": "rmse"}


def draw(
    key: Any, method: Any, task: Task, epsilon: float, delta: float, n: int, trials: int
) -> tuple[Synthetic, Any, Any]:
    """Synthetic records of every trial.

    Returns:
        Records (trials, n, q) with labels (trials, n); the test records (trials, m, q) in the coordinates of each
        release, or None for clustering; and the guarantee.
    """
    x_test = None if task.kind == "unsupervised" else task.x_test
    context = (method, task.x, task.y, x_test)
    with quiet():
        one = jax.eval_shape(lambda key: method.fit(key, task.x, task.y, epsilon, delta), key)
        if hasattr(one, "x"):
            # What was released is that many records: repeated ones would be clustered with themselves.
            n = min(n, one.x.shape[0])
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(np.arange(trials))
        fn = _drawer(epsilon, delta, n)
        size = batching.choose_batch_size(fn, context, keys, budget=CHUNK_BYTES)
        x, y, test = batching.map_lanes(fn, context, keys, batch_size=size)
    return Synthetic(x, y), test, one.guarantee


@functools.lru_cache(maxsize=8)
def _drawer(epsilon: float, delta: float, n: int) -> Any:
    """What one batch does; the fan-out compiles once for each function."""

    def run(context: Any, keys: Any) -> Any:
        method, x, y, x_test = context

        def one(key: Any) -> Any:
            fit_key, draw_key = jax.random.split(key)
            synthesizer = method.fit(fit_key, x, y, epsilon, delta)
            made = synthesizer.sample(draw_key, n)
            return made.x, made.y, None if x_test is None else synthesizer.transform(x_test)

        return jax.vmap(one)(keys)

    return run


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without the warnings that a method has no guarantee: every row of the results says so instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def silhouettes(key: Any, config: Config, xs: np.ndarray, k: int) -> tuple[list[float], dict[str, int]]:
    """Of k-means on every data set (trials, n, q); 0 where there is none, so that no trial drops out."""
    found = kmeans.cluster_all(key, xs, k, sample_size=config.silhouette_sample, n_init=config.n_init)
    return np.nan_to_num(np.asarray(found.silhouette, np.float64), nan=0.0).tolist(), count_status(found.status)


def scores(
    key: Any, config: Config, part: Part, task: Task, made: Synthetic, test: np.ndarray | None
) -> tuple[list[float], dict[str, int]]:
    """Of a support vector machine, or of kernel ridge regression, trained on each of the data sets.

    Args:
        key: Of samples.
        config: Sizes.
        part: The kernel.
        task: Whose test targets are predicted.
        made: (trials, n, q), (trials, n).
        test: (trials, m, q), or None for the test records as they are.
    """
    found = []
    for i, (x, y) in enumerate(zip(made.x, made.y, strict=True)):
        truth = Synthetic(task.x_test if test is None else test[i], task.y_test)
        own = jax.random.fold_in(key, i)
        if task.kind == "classification":
            found.append(utility.svm_accuracy(own, Synthetic(x, y), truth, kernel=part.kernel))
        else:
            synthetic = Synthetic(x, np.asarray(y, np.float64))
            found.append(utility.krr_rmse(own, synthetic, truth, sample_size=config.n_regressed))
    return [score.value for score in found], count_status(np.array([int(score.status) for score in found], np.uint32))


def judged(
    key: Any, config: Config, part: Part, task: Task, made: Synthetic, test: np.ndarray | None, k: int
) -> tuple[list[float], dict[str, int]]:
    """What a data set is good for, for every trial, and how many trials carry which `Status` flag."""
    if task.kind == "unsupervised":
        return silhouettes(key, config, np.asarray(made.x), k)
    return scores(key, config, part, task, made, test)


def method_cell(
    key: Any, config: Config, part: Part, task: Task, entry: methods.Entry, epsilon: float, p: int, trials: int, k: int
) -> dict[str, Any]:
    """One cell of a method: values over trials, and what is guaranteed of the release."""
    begun = time.perf_counter()
    delta = 0.0 if entry.is_pure else 1 / len(task.x)
    with quiet():
        method = entry.make(task, p, config)
    draw_key, judge_key = jax.random.split(key)
    made, test, guarantee = draw(draw_key, method, task, epsilon, delta, part.n_synthetic, trials)
    values, status = judged(judge_key, config, part, task, made, test, k)
    proven = guarantee.epsilon(delta)
    broken = bool(entry.broken)
    return {
        **summary(values),
        "status": status,
        "seconds": time.perf_counter() - begun,
        "delta": delta,
        "n_synthetic": int(np.shape(made.x)[1]),
        "relation": guarantee.curve.neighbouring,
        "epsilon_proven": float("inf") if broken else proven,
        "holds": not broken and proven <= epsilon * (1 + 1e-6),
        "proven": f"nothing: {entry.broken}" if broken else guarantee.proven,
    }


def control_cell(
    key: Any, config: Config, part: Part, task: Task, name: str, p: int, trials: int, k: int
) -> dict[str, Any]:
    """One cell of what has no privacy, or knows nothing; see `CONTROLS`."""
    begun = time.perf_counter()
    values, status = CONTROLS[name](key, config, part, task, p, trials, k)
    knows = {"real": "the private records themselves", "public": "public records alone"}
    return {
        **summary(values),
        "status": status,
        "seconds": time.perf_counter() - begun,
        "delta": 0.0,
        "relation": None,
        "epsilon_proven": float("inf") if name == "real" else 0.0,
        "holds": name != "real",
        "proven": knows.get(name, "nothing of the private records"),
    }


def _real(
    key: Any, config: Config, part: Part, task: Task, p: int, trials: int, k: int
) -> tuple[list[float], dict[str, int]]:
    """As many real records as there are synthetic ones, drawn anew for each trial."""
    del p
    row_key, judge_key = jax.random.split(key)
    rng = np.random.default_rng(np.asarray(jax.random.bits(row_key, (4,), np.uint32)))
    n = min(part.n_synthetic, len(task.x))
    rows = [rng.choice(len(task.x), n, replace=False) for _ in range(trials)]
    if task.kind == "unsupervised":
        return silhouettes(judge_key, config, np.stack([scaled(task, task.x[own]) for own in rows]), k)
    assert task.y is not None
    made = Synthetic([task.x[own] for own in rows], [task.y[own] for own in rows])
    return scores(judge_key, config, part, task, made, None)


def _public(
    key: Any, config: Config, part: Part, task: Task, p: int, trials: int, k: int
) -> tuple[list[float], dict[str, int]]:
    """Section IX-B: all public records; there is one such set, so what varies is the starts of k-means."""
    del p
    if task.kind == "unsupervised":
        same = np.broadcast_to(scaled(task, task.x_public), (trials, *task.x_public.shape))
        return silhouettes(key, config, same, k)
    return scores(key, config, part, task, Synthetic([task.x_public], [task.y_public]), None)


def _uniform(
    key: Any, config: Config, part: Part, task: Task, p: int, trials: int, k: int
) -> tuple[list[float], dict[str, int]]:
    """Random guess: records uniform between the public bounds; or uniform predictions."""
    del p
    draw_key, judge_key = jax.random.split(key)
    rng = np.random.default_rng(np.asarray(jax.random.bits(draw_key, (4,), np.uint32)))
    if task.kind == "unsupervised":
        xs = rng.uniform(-1, 1, (trials, part.n_synthetic, task.x.shape[1])).astype(np.float32)
        return silhouettes(judge_key, config, xs, k)
    assert task.y_test is not None
    if task.kind == "classification":
        guesses = rng.integers(methods.n_classes_of(task), size=(trials, len(task.y_test)))
        return np.mean(guesses == task.y_test, axis=1).tolist(), {"OK": trials}
    guesses = rng.uniform(*task.y_bounds, size=(trials, len(task.y_test)))
    return np.sqrt(np.mean((guesses - task.y_test) ** 2, axis=1)).tolist(), {"OK": trials}


def _constant(
    key: Any, config: Config, part: Part, task: Task, p: int, trials: int, k: int
) -> tuple[list[float], dict[str, int]]:
    """The most frequent class of the public records, or the mean of their targets."""
    del key, config, part, p, trials, k
    assert task.y_public is not None
    assert task.y_test is not None
    if task.kind == "classification":
        return [float(np.mean(task.y_test == np.bincount(task.y_public).argmax()))], {"OK": 1}
    error = task.y_test - np.mean(task.y_public, dtype=np.float64)
    return [float(np.sqrt(np.mean(error**2)))], {"OK": 1}


def _normal(
    key: Any, config: Config, part: Part, task: Task, p: int, trials: int, k: int
) -> tuple[list[float], dict[str, int]]:
    """Independent normal variables in p dimensions: what a silhouette is worth without any data."""
    del task
    draw_key, judge_key = jax.random.split(key)
    xs = np.asarray(jax.random.normal(draw_key, (trials, part.n_synthetic, p)))
    return silhouettes(judge_key, config, xs, k)


CONTROLS: dict[str, Callable[..., tuple[list[float], dict[str, int]]]] = {
    "real": _real,
    "public": _public,
    "uniform": _uniform,
    "constant": _constant,
    "normal": _normal,
}
"""By name, with the arguments of `control_cell`."""

CONTROL_LABELS = {
    "real": "Real data",
    "public": "Public records alone",
    "uniform": "Random guess",
    "constant": "Most frequent class, or mean, of the public records",
    "normal": "No data: normal variables in p dimensions",
}


def scaled(task: Task, x: np.ndarray) -> np.ndarray:
    """Records with every feature brought to [-1, 1] by its bounds, as all methods take them."""
    return np.asarray(methods.box_of(task).encode(x))


def summary(values: list[float]) -> dict[str, Any]:
    """Mean and half of the 95% interval of the mean, by Student's t; None for a single value."""
    found = np.asarray(values, np.float64)
    n = len(found)
    half = float(half_width(found)) if n > 1 else None
    return {"mean": float(found.mean()), "half": half, "trials": n, "values": [float(f"{v:.5g}") for v in found]}

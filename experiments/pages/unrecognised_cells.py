"""What regression on places leaves of maps that drjax has no method of, and how its intervals hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from sklearn import datasets
from sklearn.decomposition import NMF, FactorAnalysis, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.manifold import LocallyLinearEmbedding, SpectralEmbedding
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import minmax_scale, scale

from drjax.attacks import unrecognised
from drjax.attacks.case import Case, case_of, of_row
from drjax.attacks.recognition import Belief, recognise
from drjax.core.types import Status

N, N_TARGETS = 200, 40

NONE = Belief(None, "none of these", "", None, np.inf, (), (), ())

Map = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _bottleneck(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Activations of the middle layer of an autoencoder."""
    z = scale(x)
    network = MLPRegressor(
        hidden_layer_sizes=(20, 3, 20), activation="tanh", max_iter=3000, tol=1e-5, random_state=0
    ).fit(z, z)
    first, second = (np.asarray(network.coefs_[i]) for i in range(2))
    return np.tanh(np.tanh(z @ first + network.intercepts_[0]) @ second + network.intercepts_[1])


MAPS: dict[str, Map] = {
    "factor-analysis": lambda x, _: FactorAnalysis(5).fit_transform(scale(x)),
    "discriminant": lambda x, y: LinearDiscriminantAnalysis().fit_transform(x, y),
    "nmf": lambda x, _: NMF(5, max_iter=2000).fit_transform(minmax_scale(x)),
    "kernel-pca": lambda x, _: np.asarray(KernelPCA(5, kernel="rbf").fit_transform(scale(x))),
    "spectral": lambda x, _: SpectralEmbedding(2, random_state=0).fit_transform(scale(x)),
    "lle": lambda x, _: LocallyLinearEmbedding(n_neighbors=10, random_state=0).fit_transform(scale(x)),
    "autoencoder": _bottleneck,
}
"""Maps of scikit-learn, of records and their classes; the last one is the middle layer of a network of 20, 3 and 20."""

DATA = ("wine", "breast_cancer", "digits")


def cell(data: str, kind: str, is_toy: bool) -> dict[str, Any]:
    """Errors, errors expected and features held by intervals, of targets one by one, each feature by its variance."""
    found: Any = getattr(datasets, f"load_{data}")()
    order = np.random.default_rng(0).permutation(len(found.data))[:N]
    x, y = found.data[order].astype(np.float64), found.target[order]
    coords = MAPS[kind](x, y)
    rows = np.linspace(0, len(x) - 1, 2 if is_toy else N_TARGETS).astype(np.int64)
    varies = x.std(axis=0) > 0
    variance = x.var(axis=0)[varies]
    error, mean, expected, held, refused = [], [], [], [], 0
    for row in rows:
        case = _case(x, coords, int(row))
        answer = unrecognised.answered(jax.random.key(0), NONE, case, int(row), shuffled=False)
        low, high = answer.found.interval.T
        held.append(((low <= x[row]) & (x[row] <= high))[varies].mean())
        error.append(np.mean((answer.found.x - x[row])[varies] ** 2 / variance))
        expected.append(np.mean(answer.found.feature_mse[varies] / variance))
        mean.append(np.mean((case.known.mean(axis=0) - x[row])[varies] ** 2 / variance))
        refused += int(bool(answer.status & Status.MISFIT))
    belief = recognise(jax.random.key(0), x[1:], coords)
    return {
        "n": len(x),
        "k": coords.shape[1],
        "n_targets": len(rows),
        "error": float(np.mean(error)),
        "mean": float(np.mean(mean)),
        "expected": float(np.mean(expected)),
        "held": float(np.mean(held)),
        "n_refused": refused,
        "believed": belief.title,
    }


def _case(x: np.ndarray, coords: np.ndarray, row: int) -> Case:
    given = case_of(np.delete(x, row, axis=0), coords, (row,), None, None, None, None, ())
    return of_row(given, (row,), 0, progress=False)


TABLES = {"unrecognised": {f"{data}-{kind}": functools.partial(cell, data, kind) for data in DATA for kind in MAPS}}
"""What computes the facts of a cell, by table and cell."""

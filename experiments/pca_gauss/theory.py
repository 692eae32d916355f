"""Theorems 2 to 5 and proposition 4 in numbers, and the ratio of sensitivity gain to information loss.

Noise is drawn, not only computed: a signal-to-noise ratio is the squared value over the variance of the draws.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from drjax.defenses.mechanisms import Laplace
from drjax.synthesis import sensitivity
from experiments.pca_gauss.config import RELATION
from experiments.pca_gauss.data import Task
from experiments.pca_gauss.trials import scaled

SCALES = (0.01, 1.0, 100.0)
"""Of the features, in theorem 2."""

VALUE = 0.5
"""Of an entry of the query, in units of the bound."""

N_DRAWS = 200_000
"""A relative standard error of 0.5% of a Laplace variable's variance."""

DATA_SETS = {"GFE": (27_936, 301), "Realdisp": (216_752, 117), "Twitter": (573_820, 77)}
"""n and m of the paper's table I."""


def measured_snr(key: Any, value: float, bound: float, epsilon: float) -> float:
    """Squared value over the variance of draws from the Laplace mechanism of that sensitivity."""
    mechanism = Laplace.from_epsilon(epsilon, neighbouring=RELATION, sensitivity=bound)
    draws = np.asarray(mechanism.sample(key, np.zeros(N_DRAWS, np.float32)), np.float64)
    return value**2 / float(draws.var())


def theorem_2(key: Any, m: int, epsilon: float) -> list[dict[str, float]]:
    """Scaling the features leaves the signal-to-noise ratio as it is."""
    return [_snr(jax.random.fold_in(key, i), a * VALUE, sensitivity.paper_identity(m, a=a), epsilon, scale=a)
            for i, a in enumerate(SCALES)]  # fmt: skip


def theorem_3(key: Any, m: int, epsilon: float) -> list[dict[str, float]]:
    """p of m components raise it by (m / p)^2."""
    whole = _computed(VALUE, sensitivity.paper_identity(m), epsilon)
    return [
        {
            **_snr(jax.random.fold_in(key, p), VALUE, sensitivity.paper_identity(m, p), epsilon, p=p),
            "gain": _computed(VALUE, sensitivity.paper_identity(m, p), epsilon) / whole,
            "claimed": (m / p) ** 2,
        }
        for p in _dimensions(m)
    ]


def theorems_4_and_5(n: int) -> list[dict[str, Any]]:
    """n times the two sensitivities with a = 1: as stated, and as they are about three centres; all are attained.

    Theorem 4 at p = 1: the leading eigenvalue of one component is its second moment. At p = 2 see
    `tests/synthesis/test_sensitivity.py`, which searches.
    """
    true = {"theorem 4": [(1, sensitivity.paper_unsupervised(1, 1), 1.0)]}
    true["theorem 5"] = [(p, sensitivity.paper_supervised(p, 1), (p + 1.0) ** 2) for p in (1, 2, 5, 10)]
    return [
        {
            "name": name,
            "p": p,
            "claimed": claimed,
            "public": about_public,
            "centred": about_public * sensitivity.about_sample_mean(n, is_bounded_centred=True),
            "scaled": about_public * sensitivity.about_sample_mean(n, is_bounded_centred=False),
        }
        for name, rows in true.items()
        for p, claimed, about_public in rows
    ]


def proposition_4(m: int) -> list[dict[str, float]]:
    """The number of records below which components of the same records lower the paper's sensitivity, by search."""
    found = []
    for p in _dimensions(m):
        n = np.arange(1, int(sensitivity.proposition_4_bound(m, 1)) + 2)
        own = (p + 1) / n + 4 * p
        gains = own < (m**2 + 4 * m + 1) / n
        for i in (0, len(n) - 1):
            assert np.isclose(own[i], sensitivity.paper_data_dependent(p, int(n[i])))
        largest = int(n[gains].max()) if gains.any() else 0
        found.append({"p": p, "n_below": largest, "claimed": sensitivity.proposition_4_bound(m, p)})
    return found


def gains_by_data_set() -> dict[str, float]:
    """Proposition 4's bound at p = 1, the most generous, over the records of each of the paper's data sets."""
    return {name: sensitivity.proposition_4_bound(m, 1) / n for name, (n, m) in DATA_SETS.items()}


def singular_values(task: Task) -> np.ndarray:
    """Of the centred private records, (m,), falling; as in section IX-A, and not private."""
    z = scaled(task, task.x).astype(np.float64)
    z = z - z.mean(axis=0)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(z.T @ z)[::-1], 0))


def sir_curves(values: np.ndarray) -> dict[str, np.ndarray]:
    """Section IX-A's ratio for the sensitivities of three queries, p = 1, ..., m."""
    p = np.arange(1, len(values) + 1)
    return {
        "covariance, p²": sensitivity.sir(values, np.array([sensitivity.paper_covariance(int(k), 1) for k in p])),
        "algorithm 1 as printed, p": sensitivity.sir(
            values, np.array([sensitivity.paper_unsupervised(int(k), 1) for k in p])
        ),
        "algorithm 1 as proven, 1 (2 for p > 1)": sensitivity.sir(
            values, np.array([sensitivity.spectrum_l1(int(k), neighbouring=RELATION) for k in p])
        ),
    }


def _snr(key: Any, value: float, bound: float, epsilon: float, **labels: float) -> dict[str, float]:
    return {
        **labels,
        "sensitivity": bound,
        "snr": _computed(value, bound, epsilon),
        "measured": measured_snr(key, value, bound, epsilon),
    }


def _computed(value: float, bound: float, epsilon: float) -> float:
    return float(sensitivity.laplace_snr(np.asarray(value), bound, epsilon))


def _dimensions(m: int) -> list[int]:
    return [p for p in (1, 2, 5, 10, 30, 100, 300) if p < m] + [m]

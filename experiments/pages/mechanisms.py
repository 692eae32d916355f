"""What private PCA keeps of digits at the same guarantee, and the deviations of its noise: tables of docs/dp_pca."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.datasets import load_digits

from drjax.defenses import pca_utility
from drjax.defenses.dp_pca import (
    AnalyticGauss,
    AnalyzeGauss,
    LaplaceScalar,
    LaplaceVector,
    LapPCA,
    NoisyPowerMethod,
    Wishart,
)
from experiments.pca_membership import private_mean

EPSILONS, DELTA = (0.5, 1.0, 4.0), 1e-5

RELATIONS = ("zero_out", "replace_one")

DEVIATIONS = (0.1, 0.5, 1.0, 4.0)

FURTHER = 400
"""Releases that an announced range is held against."""

Build = Callable[[float, Mapping[str, Any]], Any]

MECHANISMS: Mapping[str, Build] = {
    "classical": lambda e, f: AnalyzeGauss.classical(e, DELTA, **f),
    "tight": lambda e, f: AnalyzeGauss.analytic(e, DELTA, **f),
    "analytic": lambda e, f: AnalyticGauss.analytic(e, DELTA, **f),
    "release": lambda e, f: AnalyticGauss.for_release(e, DELTA, **f),
    "power": lambda e, f: NoisyPowerMethod.analytic(e, DELTA, n_iter=2, **f),
    "wishart": lambda e, f: Wishart.analytic(e, DELTA, excess=200, **f),
    "vector": lambda e, f: LaplaceVector(epsilon=e, **f),
    "scalar": lambda e, f: LaplaceScalar(epsilon=e, **f),
    "advanced": lambda e, f: LaplaceScalar.advanced(e, DELTA, 64, **f),
    "lap-pca": lambda e, f: LapPCA(epsilon=e, **f),
}
"""What makes a mechanism of epsilon and its fields."""

BOXED = ("vector", "scalar", "advanced", "lap-pca")
"""Mechanisms that bound features; the others bound norms."""

BOTH = ("classical", "tight", "analytic")
"""Mechanisms that are compared under both relations."""


class Case(NamedTuple):
    """1,000 private digits, and what 400 public ones say.

    Attributes:
        x: Private records (1000, 64).
        fields: Fields `center` and `n_components` of every mechanism.
        ball: Field `row_norm` of mechanisms that bound norms.
        box: Fields `lower` and `upper` of those that bound features.
        moment: Second moment of the private records.
        parts: Private records and 397 others about the centre, with labels, to train a classifier and to test it.
        public: Public records.
    """

    x: np.ndarray
    fields: Mapping[str, Any]
    ball: Mapping[str, Any]
    box: Mapping[str, Any]
    moment: np.ndarray
    parts: tuple[tuple[np.ndarray, np.ndarray], ...]
    public: np.ndarray


@functools.cache
def case() -> Case:
    """The case of all cells."""
    found: Any = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(1797)
    x, y = (found[0][order] / 16).astype(np.float32), found[1][order]
    public, train, test = x[:400], slice(400, 1400), slice(1400, None)
    center = public.mean(0)
    away = public - center
    moment = pca_utility.second_moment(public, center=center)
    k = int(pca_utility.k_for_energy(np.linalg.eigvalsh(moment)[::-1], 0.9))
    return Case(
        x=x[train],
        fields={"n_components": k, "center": center},
        ball={"row_norm": float(np.quantile(np.linalg.norm(away, axis=1), 0.9))},
        box={"lower": np.minimum(away.min(0), -1 / 16), "upper": np.maximum(away.max(0), 1 / 16)},
        moment=np.asarray(pca_utility.second_moment(x[train], center=center)),
        parts=tuple((x[part] - center, y[part]) for part in (train, test)),
        public=public,
    )


def kept(name: str, relation: str, is_toy: bool) -> dict[str, Any]:
    """What components of a mechanism are worth, by epsilon: captured energy, accuracy, and the largest angle off."""
    given, n_trials, found = case(), 4 if is_toy else 100, {}
    for epsilon in EPSILONS:
        bound = given.box if name in BOXED else given.ball
        fields = {"neighbouring": relation, **given.fields, **bound}
        mechanism = MECHANISMS[name](epsilon, fields)
        fits = pca_utility.trials(jax.random.key(0), mechanism, given.x, n_trials)
        found[f"{epsilon:g}"] = _worth(np.asarray(fits.components))
    return {"by_epsilon": found}


def without(is_toy: bool) -> dict[str, Any]:
    """What components without noise, random directions and the components of the public records are worth."""
    given = case()
    k = given.fields["n_components"]
    rng = np.random.default_rng(0)
    turned = [np.linalg.qr(rng.normal(size=(64, k)))[0].T for _ in range(4 if is_toy else 100)]
    public = np.asarray(pca_utility.second_moment(given.public, center=given.fields["center"]))
    sets = {"exact": [_leading(given.moment, k)], "random": turned, "public": [_leading(public, k)]}
    return {"by_kind": {name: _worth(np.stack(components).astype(np.float32)) for name, components in sets.items()}}


def deviation(epsilon: float, _: bool) -> dict[str, Any]:
    """Deviations of Gaussian noise for one epsilon, in units of the squared norm bound."""
    fields = {"neighbouring": "zero_out", "row_norm": 1.0, "n_components": 2, "center": np.zeros(2)}
    made = {
        "classical": AnalyzeGauss.classical(epsilon, DELTA, **fields),
        "tight": AnalyzeGauss.analytic(epsilon, DELTA, **fields),
        "release": AnalyticGauss.for_release(epsilon, DELTA, **fields),
    }
    return {"deviations": {name: float(mechanism.noise_multiplier) for name, mechanism in made.items()}}


def ranges(n: int, is_toy: bool) -> dict[str, Any]:
    """What a release keeps of the first n records of Adult (of digits as a toy) with nothing public but ranges."""
    x, lower, upper = private_mean.digits() if is_toy else private_mean.adult()
    return {"kept": private_mean.row(x[:n], lower, upper, 4 if is_toy else FURTHER)}


def _worth(components: np.ndarray) -> dict[str, float]:
    q = np.asarray(pca_utility.energy_ratio(components, case().moment))
    accuracy = np.asarray(pca_utility.downstream_accuracy(components[:10], *case().parts))
    true = _leading(case().moment, case().fields["n_components"])
    angle = np.degrees(pca_utility.largest_angle(components, true.astype(np.float32)))
    error = q.std() / np.sqrt(len(q))
    return {
        "q": float(q.mean()),
        "q_error": float(error),
        "angle": float(angle.mean()),
        "accuracy": float(accuracy.mean()),
    }


def _leading(moment: np.ndarray, k: int) -> np.ndarray:
    return np.linalg.eigh(moment)[1][:, ::-1].T[:k]


TABLES = {
    "dp-digits": {
        **{f"zero_out-{name}": functools.partial(kept, name, "zero_out") for name in MECHANISMS},
        **{f"replace_one-{name}": functools.partial(kept, name, "replace_one") for name in BOTH},
        "without": without,
    },
    "deviations": {f"{epsilon:g}": functools.partial(deviation, epsilon) for epsilon in DEVIATIONS},
    "ranges": {str(n): functools.partial(ranges, n) for n in private_mean.SIZES},
}
"""What computes the facts of a cell, by table and cell."""

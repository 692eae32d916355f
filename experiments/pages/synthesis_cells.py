"""What the defaults of PCA-Gauss are worth, on digits and Adult, and what choosing categories by offsets does.

The tables of docs/synthesis/choices.md and docs/synthesis/deviations.md, and the figures of docs/release/synthetic.md:
private components, `replace_one`, accuracy on other records of classifiers that were trained on synthetic ones. The
defaults were chosen on these records, so the figures are no estimates for others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drjax.data import load
from drjax.data.schema import Schema
from drjax.releases.ignorance import spread_ratios
from drjax.releases.writing import synthetic_features
from drjax.synthesis import utility
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.ron_gauss import RONGauss
from drjax.synthesis.utility_distances import marginal_distances
from experiments.pca_gauss import practice
from experiments.pca_gauss.config import RELATION

EPSILONS, DELTA = (1.0, 4.0), 1e-5

N_FITS, ADULT_FITS, TOY_FITS = 5, 3, 2

PLAIN: dict[str, Any] = {"clip_factor": 0.8, "correct": False}
"""Records cut at eight tenths of their size, and nothing put back: what the other choices are compared with."""

VARIANTS: Mapping[str, dict[str, Any]] = {
    "default": {"clip_factor": None, "correct": True},
    "plain": {},
    "clip-factor-1": {"clip_factor": 1.0},
    "clip-factor-0.6": {"clip_factor": 0.6},
    "repair-clip": {"repair": "clip"},
    "repair-shrink": {"repair": "shrink"},
    "pooling-none": {"pooling": None},
    "pooling-0": {"pooling": 0.0},
}
"""Rows on digits, and what they change beside `PLAIN`."""

SPREADS: Mapping[str, dict[str, Any]] = {"plain": PLAIN, "default": {}}

SPREAD_EPSILONS = (0.1, 1.0, 10.0)

WIDE = 100
"""Components of the row that has more of them, at the largest epsilon."""


class Table(NamedTuple):
    """Adult, the last records of which are for tests.

    Attributes:
        unit: Features (n, m) in [0, 1].
        x: The same in the units of their columns.
        y: Classes (n,).
        n: Number of records that are not for tests.
        schema: Columns.
        box: Ranges of x.
    """

    unit: np.ndarray
    x: np.ndarray
    y: np.ndarray
    n: int
    schema: Schema
    box: Box

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def test(self) -> Synthetic:
        """Records for tests, in [-1, 1]."""
        return Synthetic(np.asarray(self.box.encode(self.x[self.n :])), self.y[self.n :])

    def some(self, n: int) -> np.ndarray:
        """Which records a smaller table has; all where there are fewer."""
        return np.random.default_rng(0).permutation(self.n)[:n]


@functools.cache
def _table(is_toy: bool) -> Table:
    """Adult; digits as a toy."""
    data = load("digits" if is_toy else "adult")
    if is_toy:
        data = dataclasses.replace(data, feature_names=tuple(f"p{i}" for i in range(data.x.shape[1])))
    assert data.y is not None
    schema = practice.schema_of(data)
    x = data.x * data.scale + data.offset
    return Table(data.x, x, data.y.astype(np.int32), 1400 if is_toy else 32_561, schema, Box.of(*schema.bounds))


def _logistic(made: Synthetic, test: Synthetic, *, is_standardised: bool = False) -> float:
    """Accuracy on test records of a logistic regression on synthetic ones."""
    steps = (StandardScaler(),) if is_standardised else ()
    return utility.train_on_synthetic(make_pipeline(*steps, LogisticRegression(max_iter=300)), made, test).value


def digits(fields: dict[str, Any], is_toy: bool) -> dict[str, Any]:
    """1,400 digits, p = 15, 3,000 synthetic records: accuracy of each fit at two epsilons."""
    data = load("digits")
    assert data.y is not None
    order = np.random.default_rng(0).permutation(len(data.x))
    x, y = data.x[order], data.y[order].astype(np.int32)
    test = Synthetic(x[1400:], y[1400:])
    found: dict[str, dict[str, list[float]]] = {"features": {}, "standardised": {}}
    method = PCAGauss(
        neighbouring=RELATION, box=Box.of(0.0, 1.0, x.shape[1]), n_components=15, n_classes=10, **(PLAIN | fields)
    )
    for epsilon in EPSILONS:
        keys = jax.random.split(jax.random.key(1), TOY_FITS if is_toy else N_FITS)
        fits = [method.fit(key, x[:1400], y[:1400], epsilon, DELTA) for key in keys]
        made = [fit.sample(jax.random.fold_in(key, 1), 3000) for fit, key in zip(fits, keys, strict=True)]
        for kind, by_epsilon in found.items():
            by_epsilon[f"{epsilon:g}"] = [_logistic(one, test, is_standardised=kind == "standardised") for one in made]
    return {"accuracy": found}


def adult(pooling: float, decode: bool, is_toy: bool) -> dict[str, Any]:
    """20,000 records of Adult at epsilon 1, p = 15: accuracy of each fit, from features or from components."""
    table = _table(is_toy)
    x, y, own = table.unit, table.y, table.some(20_000)
    fields: dict[str, Any] = PLAIN | {"pooling": pooling, "decode": decode}
    method = PCAGauss(
        neighbouring=RELATION,
        box=Box.of(0.0, 1.0, x.shape[1]),
        n_components=15,
        n_classes=table.n_classes,
        **fields,
    )
    found: dict[str, list[float]] = {"features": [], "standardised": [], "svm": []}
    for key in jax.random.split(jax.random.key(2), TOY_FITS if is_toy else ADULT_FITS):
        fit = method.fit(key, x[own], y[own], 1.0, DELTA)
        made = fit.sample(jax.random.fold_in(key, 1), 500 if is_toy else 10_000)
        test = Synthetic(np.asarray(fit.transform(x[table.n :])), y[table.n :])
        found["features"].append(_logistic(made, test))
        found["standardised"].append(_logistic(made, test, is_standardised=True))
        found["svm"].append(utility.svm_accuracy(key, made, test).value)
    return {"accuracy": found}


def categories(kind: Any, p: int, is_toy: bool) -> dict[str, Any]:
    """26,000 records of Adult at epsilon 1: the largest one-hot number, and the largest with offsets."""
    table = _table(is_toy)
    own, unit = table.some(26_000), Box.of(-1.0, 1.0, table.x.shape[1])
    fields: dict[str, Any] = PLAIN if kind is PCAGauss else {"correct": False}
    method = kind(neighbouring=RELATION, box=table.box, n_components=p, n_classes=table.n_classes, **fields)
    found: dict[str, dict[str, list[float]]] = {
        name: {"standardised": [], "one_way": [], "two_way": []} for name in ("largest", "offsets")
    }
    for key in jax.random.split(jax.random.key(3), TOY_FITS if is_toy else ADULT_FITS):
        fit = method.fit(key, table.x[own], table.y[own], 1.0, 1e-6)
        largest = fit.sample(key, len(own))
        for name, (features, classes) in {
            "largest": (np.asarray(largest.x), np.asarray(largest.y)),
            "offsets": synthetic_features(key, fit, table.schema, len(own)),
        }.items():
            made = Synthetic(np.asarray(table.box.encode(_written(table.schema, features))), classes)
            off = marginal_distances(key, table.test.x, np.asarray(made.x), unit)
            found[name]["standardised"].append(_logistic(made, table.test, is_standardised=True))
            found[name]["one_way"].append(float(off.one_way.mean()))
            found[name]["two_way"].append(float(off.two_way.mean()))
    return {"by_choice": found}


def deviations(epsilon: float, p: int, fields: Mapping[str, Any], is_toy: bool) -> dict[str, Any]:
    """Numbers of Adult in a written table: deviations of each fit, synthetic over real, and what the table is worth."""
    table = _table(is_toy)
    schema, box, x, y = table.schema, table.box, table.x[: table.n], table.y[: table.n]
    unit, names = Box.of(-1.0, 1.0, x.shape[1]), [c.name for c in schema.features if c.kind != "category"]
    method = PCAGauss(neighbouring=RELATION, box=box, n_components=p, n_classes=table.n_classes, **fields)
    found: dict[str, list[float]] = {name: [] for name in (*names, "one_way", "svm")}
    for key in jax.random.split(jax.random.key(4), TOY_FITS if is_toy else ADULT_FITS):
        features, classes = synthetic_features(key, method.fit(key, x, y, epsilon, 1e-6), schema, len(x))
        written = _written(schema, features)
        made = Synthetic(np.asarray(box.encode(written)), classes)
        off = marginal_distances(key, np.asarray(box.encode(x)), np.asarray(made.x), unit, max_pairs=1)
        for name, ratio in spread_ratios(schema, Synthetic(x, None), Synthetic(written, None)).items():
            if name in names:
                found[name].append(ratio)
        found["one_way"].append(float(off.one_way.mean()))
        found["svm"].append(utility.svm_accuracy(key, made, table.test, sample_size=5000).value)
    return {"by_column": found}


def _written(schema: Schema, features: np.ndarray) -> np.ndarray:
    """Features as whoever reads the table finds them."""
    table = schema.decode(features)
    return schema.encode({column: table[column] for column in table.column_names})[0]


TABLES: Mapping[str, Mapping[str, Callable[[bool], Mapping[str, Any]]]] = {
    "synthesis-digits": {name: functools.partial(digits, fields) for name, fields in VARIANTS.items()},
    "synthesis-adult": {
        f"pooling-{pooling:g}-{'features' if decode else 'components'}": functools.partial(adult, pooling, decode)
        for pooling in (1.0, 0.0)
        for decode in (True, False)
    },
    "synthesis-categories": {
        "pca-gauss-50": functools.partial(categories, PCAGauss, 50),
        "ron-gauss-80": functools.partial(categories, RONGauss, 80),
    },
    "synthesis-deviations": {
        **{
            f"{epsilon:g}-{name}": functools.partial(deviations, epsilon, 50, fields)
            for epsilon in SPREAD_EPSILONS
            for name, fields in SPREADS.items()
        },
        f"{SPREAD_EPSILONS[-1]:g}-wide": functools.partial(deviations, SPREAD_EPSILONS[-1], WIDE, {}),
    },
}
"""What computes the facts of a cell, by table and cell."""

"""What the defaults of PCA-Gauss are worth, on digits and Adult, and what choosing categories by offsets does.

    OPENBLAS_NUM_THREADS=1 python -m experiments.pca_gauss.choices                       # five minutes
    python -m experiments.pca_gauss.choices --tables deviations

The tables of docs/synthesis/choices.md and docs/synthesis/deviations.md, and the figures of docs/release/synthetic.md:
private components, `replace_one`, accuracy on other records of classifiers that were trained on synthetic ones, mean of
some fits with its standard error. The defaults were chosen on these records, so the figures are no estimates for
others.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import tyro
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drjax.core import validate
from drjax.core.statistics import standard_error
from drjax.data import load
from drjax.releases.ignorance import spread_ratios
from drjax.releases.writing import synthetic_features
from drjax.synthesis import utility
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.utility_distances import marginal_distances
from experiments.pca_gauss import practice
from experiments.pca_gauss.config import RELATION

DELTA = 1e-5

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"clip_factor": None, "correct": True},
    "clip_factor 0.8, correct False": {},
    "clip_factor 1": {"clip_factor": 1.0},
    "clip_factor 0.6": {"clip_factor": 0.6},
    "repair clip": {"repair": "clip"},
    "repair shrink": {"repair": "shrink"},
    "pooling None": {"pooling": None},
    "pooling 0": {"pooling": 0.0},
}
"""Rows on digits, and what they change beside `PLAIN`."""

PLAIN: dict[str, Any] = {"clip_factor": 0.8, "correct": False}
"""Records cut at eight tenths of their size, and nothing put back: what the other choices were compared with."""


def logistic(made: Synthetic, test: Synthetic, *, is_standardised: bool = False) -> float:
    """Accuracy on test records of a logistic regression on synthetic ones."""
    steps = (StandardScaler(),) if is_standardised else ()
    return utility.train_on_synthetic(make_pipeline(*steps, LogisticRegression(max_iter=300)), made, test).value


def shown(values: list[float]) -> str:
    """Mean and standard error."""
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"


def row(cells: list[str]) -> None:
    """Prints one of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def head(cells: list[str]) -> None:
    """Prints the first two of a table."""
    row(cells)
    print(f"|{' --- |' * len(cells)}")


def digits(n_fits: int) -> None:
    """1,400 digits, p = 15, 3,000 synthetic records: variants at two epsilons."""
    data = load("digits")
    assert data.y is not None
    order = np.random.default_rng(0).permutation(len(data.x))
    x, y = data.x[order], data.y[order].astype(np.int32)
    test, epsilons = Synthetic(x[1400:], y[1400:]), (1.0, 4.0)
    kinds = {"": False, ", standardised": True}
    heads = [f"epsilon {epsilon:g}{kind}" for kind in kinds for epsilon in epsilons]
    head(["digits, 1,400 records, 10 classes", *heads])
    for name, fields in VARIANTS.items():
        method = PCAGauss(
            neighbouring=RELATION, box=Box.of(0.0, 1.0, x.shape[1]), n_components=15, n_classes=10, **(PLAIN | fields)
        )
        made = {}
        for epsilon in epsilons:
            keys = jax.random.split(jax.random.key(1), n_fits)
            fits = [method.fit(key, x[:1400], y[:1400], epsilon, DELTA) for key in keys]
            made[epsilon] = [fit.sample(jax.random.fold_in(key, 1), 3000) for fit, key in zip(fits, keys, strict=True)]
        row(
            [name]
            + [
                shown([logistic(one, test, is_standardised=flag) for one in made[epsilon]])
                for flag in kinds.values()
                for epsilon in epsilons
            ]
        )


def adult(n_fits: int) -> None:
    """20,000 records of Adult at epsilon 1, p = 15: one covariance or one for each class, features or components."""
    data = load("adult")
    assert data.y is not None
    x, y = data.x, data.y.astype(np.int32)
    order = np.random.default_rng(0).permutation(32_561)[:20_000]
    head(["Adult, 20,000 records, epsilon 1", "logistic regression", "standardised", "SVM, standardised"])
    for pooling in (1.0, 0.0):
        for decode in (True, False):
            fields: dict[str, Any] = PLAIN | {"pooling": pooling, "decode": decode}
            method = PCAGauss(
                neighbouring=RELATION, box=Box.of(0.0, 1.0, x.shape[1]), n_components=15, n_classes=2, **fields
            )
            regression, standardised, machine = [], [], []
            for key in jax.random.split(jax.random.key(2), n_fits):
                fit = method.fit(key, x[order], y[order], 1.0, DELTA)
                made = fit.sample(jax.random.fold_in(key, 1), 10_000)
                test = Synthetic(np.asarray(fit.transform(x[32_561:])), y[32_561:])
                regression.append(logistic(made, test))
                standardised.append(logistic(made, test, is_standardised=True))
                machine.append(utility.svm_accuracy(key, made, test).value)
            name = f"pooling {pooling:g}, {'features' if decode else 'components'}"
            row([name, shown(regression), shown(standardised), shown(machine)])


def categories(n_fits: int) -> None:
    """A table of 26,000 records of Adult at epsilon 1: the largest one-hot number, and the largest with offsets."""
    data = load("adult")
    assert data.y is not None
    schema = practice.schema_of(data)
    box, unit = Box.of(*schema.bounds), Box.of(-1.0, 1.0, data.x.shape[1])
    x, y = data.x * data.scale + data.offset, data.y.astype(np.int32)
    order = np.random.default_rng(0).permutation(32_561)[:26_000]
    test = Synthetic(np.asarray(box.encode(x[32_561:])), y[32_561:])
    head(["p", "category", "logistic regression, standardised", "columns, total variation", "pairs"])
    for p in (10, 50, 100):
        method = PCAGauss(neighbouring=RELATION, box=box, n_components=p, n_classes=2, **PLAIN)
        found: dict[str, list[list[float]]] = {"largest": [], "by offsets": []}
        for key in jax.random.split(jax.random.key(3), n_fits):
            fit = method.fit(key, x[order], y[order], 1.0, 1e-6)
            largest = fit.sample(key, 26_000)
            for name, (features, classes) in {
                "largest": (np.asarray(largest.x), np.asarray(largest.y)),
                "by offsets": synthetic_features(key, fit, schema, 26_000),
            }.items():
                table = schema.decode(features)
                written, _ = schema.encode({column: table[column] for column in table.column_names})
                made = Synthetic(np.asarray(box.encode(written)), classes)
                off = marginal_distances(key, test.x, np.asarray(made.x), unit)
                accuracy = logistic(made, test, is_standardised=True)
                found[name].append([accuracy, float(off.one_way.mean()), float(off.two_way.mean())])
        for name, rows in found.items():
            row([str(p), name, *(shown(list(column)) for column in zip(*rows, strict=True))])


def deviations(n_fits: int) -> None:
    """Adult's numbers in a written table: deviations, synthetic over real, with and without correction."""
    data = load("adult")
    assert data.y is not None
    schema = practice.schema_of(data)
    box, unit = Box.of(*schema.bounds), Box.of(-1.0, 1.0, data.x.shape[1])
    x, y = data.x * data.scale + data.offset, data.y.astype(np.int32)
    real, test = Synthetic(x[:32_561], None), Synthetic(np.asarray(box.encode(x[32_561:])), y[32_561:])
    names = [column.name for column in schema.features if column.kind != "category"]
    head(["epsilon", "", *names, "columns, total variation", "SVM"])
    for epsilon in (0.1, 1.0, 10.0, 1000.0):
        for name, fields in {"`clip_factor=0.8, correct=False`": PLAIN, "**default**": {}}.items():
            method = PCAGauss(neighbouring=RELATION, box=box, n_components=50, n_classes=2, **fields)
            rows = []
            for key in jax.random.split(jax.random.key(4), n_fits):
                fit = method.fit(key, real.x, y[:32_561], epsilon, 1e-6)
                features, classes = synthetic_features(key, fit, schema, len(real.x))
                table = schema.decode(features)
                written, _ = schema.encode({column: table[column] for column in table.column_names})
                ratios = spread_ratios(schema, real, Synthetic(written, None))
                made = Synthetic(np.asarray(box.encode(written)), classes)
                off = marginal_distances(key, np.asarray(box.encode(real.x)), np.asarray(made.x), unit, max_pairs=1)
                accuracy = utility.svm_accuracy(key, made, test, sample_size=5000).value
                rows.append([*(ratios[one] for one in names), float(off.one_way.mean()), accuracy])
            cells = zip(np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1), strict=True)
            row([f"{epsilon:g}", name, *(f"{middle:.3f} ({spread:.3f})" for middle, spread in cells)])


TABLES = {"digits": digits, "adult": adult, "categories": categories, "deviations": deviations}


def main(*, fits: int = 5, adult_fits: int = 3, tables: tuple[str, ...] = tuple(TABLES)) -> None:
    """Prints tables.

    Args:
        fits: On digits.
        adult_fits: On Adult; `fits` for its deviations.
        tables: Names in `TABLES`.
    """
    validate.one_of(TABLES, **{f"tables[{i}]": name for i, name in enumerate(tables)})
    for name in tables:
        TABLES[name](fits if name in ("digits", "deviations") else adult_fits)
        print()


if __name__ == "__main__":
    tyro.cli(main)

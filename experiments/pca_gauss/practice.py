"""Adult against what practitioners use: MST and AIM, on the written table, by what a classifier and marginals say.

A table is written before it is judged, as `drjax release synthetic` writes it: one category a column, as often as the
model says, numbers cut to their bounds and rounded. MST and AIM see one column for each attribute, with a code for each
category and equal bins of numbers; PCA-Gauss and RON-Gauss see the one-hot features.
"""

from __future__ import annotations

import functools
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drjax.data import Dataset, load
from drjax.data.schema import Column, Schema
from drjax.releases.writing import synthetic_features
from drjax.synthesis import utility
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.ron_gauss import RONGauss
from drjax.synthesis.utility_distances import marginal_distances
from experiments.pca_gauss import trials
from experiments.pca_gauss.baselines.packages import MbiAIM, MbiMST
from experiments.pca_gauss.config import RELATION, Config
from experiments.pca_gauss.data import Task, task

MEASURES = ("logistic", "svm", "one_way", "two_way", "fit_seconds")
"""Of a cell: accuracies on test records, mean total variation of one-way and two-way marginals, seconds."""

LABELS = {
    "real": "Real data",
    "majority": "Most frequent class",
    "mst": "MST",
    "aim": "AIM, all pairs",
    "aim-target": "AIM, pairs with the class",
    "pca-gauss": "PCA-Gauss",
    "ron-gauss": "RON-Gauss",
}

PACKAGES = ("mst", "aim", "aim-target")
"""Those that need the package mbi."""

RELEASES = (*PACKAGES, "pca-gauss", "ron-gauss")
"""Those that have an epsilon."""


class Table(NamedTuple):
    """Adult as a table.

    Attributes:
        schema: Of the features.
        split: Records in units of the features of the schema; `x`, `y`, `x_test`, `y_test`.
        n_bins: Of columns that are numbers.
    """

    schema: Schema
    split: Task
    n_bins: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codes of each column."""
        return tuple(c.width if c.kind == "category" else self.n_bins for c in self.schema.features)

    def written(self, x: Any) -> np.ndarray:
        """Features (n, m) as whoever reads the table finds them: one category a column, numbers cut and rounded."""
        table = self.schema.decode(np.asarray(x))
        return self.schema.encode({name: table[name] for name in table.column_names})[0]

    def codes(self, x: np.ndarray) -> np.ndarray:
        """Written features (n, m) as codes (n, columns)."""
        found, at = [], 0
        for column in self.schema.features:
            part = x[:, at : at + column.width]
            if column.kind == "category":
                found.append(np.argmax(part, axis=1))
            else:
                unit = (part[:, 0] - column.lower) / (column.upper - column.lower)
                found.append(np.clip(np.floor(unit * self.n_bins), 0, self.n_bins - 1).astype(int))
            at += column.width
        return np.stack(found, axis=1)

    def features(self, codes: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Features (n, m) of codes (n, columns), with the place within a bin (n, columns) in [0, 1)."""
        found = []
        for j, column in enumerate(self.schema.features):
            if column.kind == "category":
                found.append(codes[:, j, None] == np.arange(column.width))
            else:
                unit = (codes[:, j] + place[:, j]) / self.n_bins
                found.append((column.lower + (column.upper - column.lower) * unit)[:, None])
        return np.concatenate(found, axis=1).astype(np.float64)


def schema_of(dataset: Dataset) -> Schema:
    """The columns that a loaded table came from: integers with their ranges, and categories."""
    assert dataset.feature_names is not None
    ends = zip(dataset.feature_names, dataset.offset, dataset.offset + dataset.scale, strict=True)
    numbers: dict[str, tuple[float, float]] = {}
    categories: dict[str, list[str]] = {}
    order: dict[str, None] = {}
    for name, low, high in ends:
        head, is_category, value = name.partition("=")
        order[head] = None
        if is_category:
            categories.setdefault(head, []).append(value)
        else:
            numbers[head] = (float(low), float(high))
    columns = [
        Column(name=name, kind="category", categories=tuple(categories[name]))
        if name in categories
        else Column(name=name, kind="integer", lower=numbers[name][0], upper=numbers[name][1])
        for name in order
    ]
    return Schema(tuple(columns))


def load_table(config: Config, data_dir: str | None) -> Table:
    """The private and test records of the configured table."""
    name = config.practice.data
    assert name is not None
    dataset = load(name, data_dir=data_dir)
    found = task(name, n_private=config.practice.n_private, data_dir=data_dir, seed=config.seed)
    schema = schema_of(dataset)

    def units(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64) * dataset.scale + dataset.offset

    lower, upper = schema.bounds
    split = Task(
        name=found.name, kind=found.kind, x=units(found.x), y=found.y, x_test=units(found.x_test),
        y_test=found.y_test, x_public=units(found.x_public), y_public=found.y_public, lower=lower, upper=upper,
    )  # fmt: skip
    return Table(schema, split, config.practice.n_bins)


def cells(config: Config) -> Iterator[tuple[str, int | None]]:
    """Methods and their numbers of components."""
    for name in ("real", "majority", *PACKAGES):
        yield name, None
    for name in ("pca-gauss", "ron-gauss"):
        for p in config.practice.dimensions:
            yield name, p


def cell(key: Any, config: Config, table: Table, name: str, p: int | None) -> dict[str, Any]:
    """One method: `MEASURES` over trials.

    Raises:
        ImportError: MST and AIM without their package.
    """
    begun = time.perf_counter()
    practice, split = config.practice, table.split
    assert split.y is not None
    assert split.y_test is not None
    n_trials = {"real": 2, "majority": 1, **dict.fromkeys(PACKAGES, practice.package_trials)}
    judge = _Judge(table)
    rows, guarantee = [], None
    for trial in range(n_trials.get(name, practice.trials)):
        own = jax.random.fold_in(key, trial)
        fit_key, draw_key, judge_key = jax.random.split(own, 3)
        if name == "majority":
            share = float(np.mean(split.y_test == np.bincount(split.y).argmax()))
            rows.append({"logistic": share, "svm": share})
            continue
        if name == "real":
            # What the marginals of other records of the same kind are off by.
            off = judge.marginals(judge_key, split.x_test, split.y_test)
            rows.append({**judge.accuracies(judge_key, split.x, split.y), **off})
            continue
        fit_begun = time.perf_counter()
        made, guarantee = _MAKERS[name](fit_key, draw_key, config, table, p)
        seconds = time.perf_counter() - fit_begun
        x = table.written(made.x)
        found = {**judge.accuracies(judge_key, x, made.y), **judge.marginals(judge_key, x, made.y)}
        rows.append({**found, "fit_seconds": seconds})
    delta = practice.delta
    return {
        "measures": {m: trials.summary([row[m] for row in rows]) for m in MEASURES if m in rows[0]},
        "trials": len(rows),
        "seconds": time.perf_counter() - begun,
        "delta": delta if guarantee else 0.0,
        "relation": guarantee.curve.neighbouring if guarantee else None,
        "epsilon_proven": guarantee.epsilon(delta) if guarantee else float("inf"),
        "holds": guarantee is not None and guarantee.epsilon(delta) <= config.epsilon * (1 + 1e-6),
        "proven": guarantee.proven if guarantee else "the private records themselves",
        "package": f"mbi {importlib.metadata.version('mbi')}" if name in PACKAGES else None,
    }


class _Judge:
    """Judges written features and labels on the test records."""

    def __init__(self, table: Table) -> None:
        self.table, self.box = table, Box.of(table.split.lower, table.split.upper)
        assert table.split.y is not None
        self.top = max(*table.sizes, 2)
        self.real = self._cells(table.split.x, table.split.y)

    def _cells(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.concatenate([self.table.codes(x), np.asarray(y)[:, None]], axis=1) + 0.5

    def accuracies(self, key: Any, x: np.ndarray, y: Any) -> dict[str, float]:
        """On the test records, of classifiers that were trained on these."""
        split = self.table.split
        made, test = (
            Synthetic(np.asarray(self.box.encode(rows), np.float64), labels)
            for rows, labels in ((x, y), (split.x_test, split.y_test))
        )
        logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        return {
            "logistic": utility.train_on_synthetic(logistic, made, test).value,
            "svm": utility.svm_accuracy(key, made, test).value,
        }

    def marginals(self, key: Any, x: np.ndarray, y: Any) -> dict[str, float]:
        """How far these are from the private records."""
        box = Box.of(0.0, float(self.top), self.real.shape[1])
        found = marginal_distances(key, self.real, self._cells(x, y), box, n_bins=self.top)
        return {"one_way": float(found.one_way.mean()), "two_way": float(found.two_way.mean())}


def _package(
    kind: Any, fit_key: Any, draw_key: Any, config: Config, table: Table, p: None, *, with_class: bool = False
) -> tuple[Synthetic, Any]:
    del p
    split, sizes = table.split, table.sizes
    fields: dict[str, Any] = {"n_rounds": config.practice.n_rounds} if kind is MbiAIM else {}
    if with_class:
        # Pairs with the class come first.
        fields["max_pairs"] = len(sizes)
    # Code c is the middle of bin c.
    box = Box.of(np.zeros(len(sizes)), np.array(sizes))
    method = kind(neighbouring=RELATION, box=box, n_classes=2, n_bins=sizes, **fields)
    fitted = method.fit(fit_key, table.codes(split.x) + 0.5, split.y, config.epsilon, config.practice.delta)
    made = fitted.sample(draw_key, len(split.x))
    codes = np.minimum(np.floor(made.x).astype(int), np.array(sizes) - 1)
    return Synthetic(table.features(codes, np.clip(made.x - codes, 0, 1)), made.y), fitted.guarantee


def _gauss(kind: Any, fit_key: Any, draw_key: Any, config: Config, table: Table, p: int) -> tuple[Synthetic, Any]:
    split = table.split
    # As the committed results were computed.
    fields: dict[str, Any] = {"correct": False} | ({"clip_factor": 0.8} if kind is PCAGauss else {})
    method = kind(neighbouring=RELATION, box=Box.of(split.lower, split.upper), n_components=p, n_classes=2, **fields)
    fitted = method.fit(fit_key, split.x, split.y, config.epsilon, config.practice.delta)
    return Synthetic(*synthetic_features(draw_key, fitted, table.schema, len(split.x))), fitted.guarantee


_MAKERS: dict[str, Callable[..., tuple[Synthetic, Any]]] = {
    "mst": functools.partial(_package, MbiMST),
    "aim": functools.partial(_package, MbiAIM),
    "aim-target": functools.partial(_package, MbiAIM, with_class=True),
    "pca-gauss": functools.partial(_gauss, PCAGauss),
    "ron-gauss": functools.partial(_gauss, RONGauss),
}

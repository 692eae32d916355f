"""What a table is worth to whoever knows nothing but the public bounds, and how far columns are as spread as real ones.

The baseline beside every figure of a rehearsal: numbers uniform between their bounds, categories uniform, all columns
independent; and for a class the most frequent one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from drjax.core.statistics import Interval, mean_interval
from drjax.core.types import Array
from drjax.data.schema import Column, Schema
from drjax.synthesis.contract import Synthetic

LEVEL = 0.95
"""Confidence at which synthetic records must be better than knowing nothing, one-sided, paired over trials."""


@dataclass(frozen=True)
class Comparison:
    """A figure of synthetic records beside those of real records and of knowing nothing.

    Attributes:
        name: The measure in words.
        synthetic: Mean over trials with its 95% interval.
        real: Mean of real records in their place.
        nothing: Mean of knowing nothing.
        is_better: Whether synthetic records are better than knowing nothing: the lower end of the one-sided 95%
            interval of the mean difference of the same trials is above 0.
    """

    name: str
    synthetic: Interval
    real: float
    nothing: float
    is_better: bool


@dataclass(frozen=True)
class Spread:
    """How spread a column of synthetic records is.

    Attributes:
        name: The column.
        ratio: Standard deviation of the synthetic values over that of real ones, mean over trials with its 95%
            interval; of categories the root of the ratio of the summed variances of their one-hot columns. nan where
            the real column is constant.
    """

    name: str
    ratio: Interval


def uniform_table(key: Array, schema: Schema, n: int) -> Synthetic:
    """n records drawn from the public bounds alone, encoded: every column uniform and independent of all others."""
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))

    def drawn(column: Column) -> np.ndarray:
        if column.kind == "category":
            return (rng.integers(column.width, size=n)[:, None] == np.arange(column.width)).astype(np.float64)
        # Halves first: the width of the bounds may be beyond the largest float.
        share = rng.uniform(size=(n, 1))
        return column.lower * (1 - share) + column.upper * share

    x = np.concatenate([drawn(column) for column in schema.features], axis=1)
    target, y = schema.target_column, None
    if target is not None:
        found = drawn(target)
        y = np.argmax(found, axis=1) if target.kind == "category" else found[:, 0]
    # As whoever reads the table finds them: rounded.
    table = schema.decode(x, y)
    return Synthetic(*schema.encode({name: table[name] for name in table.column_names}))


def is_better(synthetic: np.ndarray, nothing: np.ndarray) -> bool:
    """Whether values (t,) of t >= 2 trials, of which more is better, are above those of knowing nothing in the mean."""
    apart = np.asarray(synthetic, np.float64) - np.asarray(nothing, np.float64)
    # One-sided: the lower end of the two-sided interval that leaves out as much at either end.
    return mean_interval(apart, level=2 * LEVEL - 1).low > 0


def spread_ratios(schema: Schema, real: Synthetic, made: Synthetic) -> dict[str, float]:
    """Ratio of the standard deviations of every column, by name, see `Spread`; nan where the real one is constant."""
    found, at = {}, 0
    for column in schema.features:
        place = slice(at, at + column.width)
        at += column.width
        found[column.name] = _ratio(column, real.x[:, place], made.x[:, place])
    target = schema.target_column
    if target is not None:
        assert real.y is not None
        assert made.y is not None
        if target.kind == "category":
            codes = np.arange(target.width)
            found[target.name] = _ratio(target, real.y[:, None] == codes, made.y[:, None] == codes)
        else:
            found[target.name] = _ratio(target, real.y[:, None], made.y[:, None])
    return {column.name: found[column.name] for column in schema.columns}


def spreads(rows: list[Mapping[str, float]]) -> tuple[Spread, ...]:
    """What several trials say of every column; those in which the real column was constant do not count."""
    found = []
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        found.append(Spread(name, mean_interval(values[np.isfinite(values)], lowest=0.0)))
    return tuple(found)


def _ratio(column: Column, real: np.ndarray, made: np.ndarray) -> float:
    # In units of the bounds, so that squares of huge numbers stay finite.
    if column.kind != "category":
        unit = max(abs(column.lower), abs(column.upper))
        real, made = (np.clip(part, column.lower, column.upper) / unit for part in (real, made))
    before, after = (float(np.var(part.astype(np.float64), axis=0).sum()) for part in (real, made))
    # A constant column differs from its mean by rounding alone.
    return math.sqrt(after / before) if before > 1e-24 else math.nan

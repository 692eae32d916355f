"""Writes a table from a fitted model of Gaussians: numbers rounded, and categories chosen as often as the model says.

The largest of a category's one-hot numbers would choose frequent categories too often and rare ones never: their means
differ by more than they vary. So every category gets an offset, and the largest sum is chosen: the offsets are those at
each category is chosen as often as its mean says, within each class of the target. That is a transport problem
between the model's draws and the categories (semi-discrete optimal transport), whose dual is concave; choices stay as
correlated with the other columns as the Gaussians make them. All of it is post-processing of what the guarantee covers.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pyarrow as pa

from drjax.core.types import Array
from drjax.data.schema import Column, Schema
from drjax.synthesis.gaussian_model import os_key

DRAWS = 4000
"""Draws for each class that offsets are fitted to: a share is then right to about 1%."""

STEPS = 150


def synthetic_table(key: Array | None, synthesizer: Any, schema: Schema, n: int) -> pa.Table:
    """n synthetic records as a table of the schema.

    Args:
        key: PRNG key of the draws; None for one from the operating system.
        synthesizer: A `drjax.synthesis.frame.ProjectedSynthesizer` of the schema's encoded features.
        schema: Schema of the table.
        n: Records.
    """
    return schema.decode(*synthetic_features(os_key() if key is None else key, synthesizer, schema, n))


def synthetic_features(key: Array, synthesizer: Any, schema: Schema, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Features (n, m) of the table, encoded, and the target (n,) or None; arguments as of `synthetic_table`."""
    fit_key, draw_key = jax.random.split(key)
    offsets = category_offsets(fit_key, synthesizer, schema)
    drawn, y = synthesizer.draw(draw_key, n)
    shares = _shares(synthesizer, drawn, draw_key)
    values = np.asarray(synthesizer.box.decode(synthesizer.to_box(2 * shares - 1, y)), np.float64)
    labels = None if y is None else np.asarray(y)
    classes = labels if synthesizer.task == "classification" else np.zeros(n, int)
    for place, fitted in offsets:
        # One-hot, by the largest sum.
        chosen = np.argmax(shares[:, place] + fitted[classes], axis=1)
        values[:, place] = chosen[:, None] == np.arange(fitted.shape[1])
    return values, labels


def category_offsets(key: Array, synthesizer: Any, schema: Schema) -> list[tuple[slice, np.ndarray]]:
    """Places among the features, for every column of categories, and offsets (classes, categories)."""
    places = [(place, column) for place, column in _places(schema) if column.kind == "category" and column.width > 1]
    n_classes = len(np.asarray(synthesizer.mixture.weights))
    drawn, y = synthesizer.draw(key, DRAWS * n_classes)
    shares = _shares(synthesizer, drawn, key)
    classes = np.asarray(y) if synthesizer.task == "classification" else np.zeros(len(shares), int)
    offsets = [np.zeros((n_classes, column.width)) for _, column in places]
    for k in range(n_classes):
        rows = classes == k
        if rows.any():
            for (place, _), fitted in zip(places, offsets, strict=True):
                fitted[k] = fit_offsets(shares[rows, place])
    return [(place, fitted) for (place, _), fitted in zip(places, offsets, strict=True)]


def fit_offsets(values: np.ndarray) -> np.ndarray:
    """Offsets (c,) at which the largest of values + offsets is each of c categories as often as its mean says.

    Ascent on the concave dual, mean shares less the expected largest sum, whose gradient is the difference of both
    frequencies; a category whose mean is not above 0 is never chosen. O(STEPS m c).

    Args:
        values: (m, c) draws.
    """
    target = np.maximum(values.mean(axis=0), 0)
    if not target.sum() > 0:
        return np.zeros(values.shape[1])
    target = target / target.sum()
    offsets = np.where(target > 0, 0.0, -np.inf)
    spread = max(float(values.std()), 1e-6)
    best, least = offsets, np.inf
    for step in range(STEPS):
        chosen = np.bincount(np.argmax(values + offsets, axis=1), minlength=len(target)) / len(values)
        error = float(np.abs(chosen - target).sum())
        if error < least:
            best, least = offsets, error
        # Logarithms would blow up at a share of 0; roots weigh rare categories as their noise does.
        move = (target - chosen) / np.sqrt(np.maximum(target, 1 / len(values)))
        offsets = offsets + 2 * spread / (1 + step / 15) * move
    return best


def _shares(synthesizer: Any, drawn: Array, key: Array) -> np.ndarray:
    """Features (n, m) as shares of the way between their bounds, which may lie outside [0, 1]; finite."""
    return np.nan_to_num((np.asarray(synthesizer.unit_features(drawn, jax.random.fold_in(key, 1)), np.float64) + 1) / 2)


def _places(schema: Schema) -> list[tuple[slice, Column]]:
    at, found = 0, []
    for column in schema.features:
        found.append((slice(at, at + column.width), column))
        at += column.width
    return found

"""What the figures of `plots` show, in words and with their figures, for readers who cannot see them.

Each function takes what the one of the same name in `plots` draws, and raises what it raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from drjax.attacks.metrics import mean_squared_errors
from drjax.core.types import Array
from drjax.reports import plots
from drjax.reports.ladder import LadderRow, bounds, number, percent, strongest

MOST_NAMED = 5
"""Features that a text names for each attack."""


def image_grid(
    targets: Array, reconstructions: Mapping[str, Array], *, errors: Mapping[str, Array] | None = None
) -> str:
    """How many pictures are shown, and the median error of each attack on them."""
    truth, recons = plots.flat_pairs(targets, reconstructions)
    printed = {label: mean_squared_errors(recon, truth) for label, recon in recons.items()} | dict(errors or {})
    said = [f"“{label}” {number(_median(values))}" for label, values in printed.items()]
    n = len(truth)
    shown = "a record" if n == 1 else f"{n:,} records"
    return f"Pictures of {shown}, with what each attack rebuilt below. Median mean squared error: {'; '.join(said)}."


def feature_errors(
    targets: Array,
    reconstructions: Mapping[str, Array],
    mean_record: Array,
    *,
    feature_names: Sequence[str] | None = None,
    scale: Array | None = None,
) -> str:
    """Median error of each attack in the most exposed features, beside that of guessing the mean record."""
    truth, recons = plots.flat_pairs(targets, reconstructions)
    guess = np.abs(truth - np.reshape(np.asarray(mean_record, np.float64), (1, -1)))
    errors = {label: np.abs(recon - truth) for label, recon in recons.items()}
    errors = {label: error[np.isfinite(error).all(axis=1)] for label, error in errors.items()}
    d = truth.shape[1]
    names = [f"feature {j}" for j in range(d)] if feature_names is None else list(feature_names)
    units = np.ones(d) if scale is None else np.ravel(np.asarray(scale, np.float64))
    said = []
    for label, error in errors.items():
        parts = []
        for j in plots.most_exposed(guess, list(errors.values()))[:MOST_NAMED]:
            own, base = (number(_median(values[:, j]) * float(units[j])) for values in (error, guess))
            parts.append(f"{names[j]} {own} ({base})")
        said.append(f"“{label}”: {', '.join(parts)}")
    return (
        f"Error of each attack in the {min(MOST_NAMED, d)} most exposed of {d:,} features: median absolute error, in "
        f"brackets that of guessing the mean record. {'. '.join(said)}."
    )


def ladder(rows: Sequence[LadderRow]) -> str:
    """Mean squared error of every attack and baseline, with its interval."""
    best = strongest(rows)
    said = []
    for row in sorted(rows, key=lambda row: row.is_baseline):
        note = ", the strongest attack" if row is best else ", a baseline" if row.is_baseline else ""
        said.append(f"“{row.label}”{note}: {number(row.scores.mse.estimate)} ({bounds(row.scores.mse, number)})")
    return f"Mean squared error with 95% intervals. {'; '.join(said)}."


def error_distribution(errors: Mapping[str, Array], nearest_neighbor: Array) -> str:
    """Median error of each attack and of the nearest neighbour, and for how many records the attack is closer."""
    nearest = np.asarray(nearest_neighbor, np.float64).ravel()
    said = []
    for label, values in errors.items():
        array = np.asarray(values, np.float64).ravel()
        known = np.isfinite(array) & np.isfinite(nearest) if array.shape == nearest.shape else np.zeros(0, bool)
        closer = f", closer for {percent(float(np.mean(array[known] < nearest[known])))}" if known.any() else ""
        said.append(f"“{label}” {number(_median(array))}{closer}")
    return (
        "Share of the records whose error is at most a value, one curve for each attack. Median mean squared error of "
        f"the nearest neighbour {number(_median(nearest))}; of the attacks: {'; '.join(said)}."
    )


def _median(values: Array) -> float:
    array = np.asarray(values, np.float64)
    array = array[~np.isnan(array)]
    return float(np.median(array)) if array.size else float("nan")

"""Records from their directions: the cosine and the correlation show nothing else of them.

An attack on such a release finds the direction, with directions of public records as its prior. What is left open, the
record's size and for the correlation its mean, goes with the direction in most data: a kernel regression on public
records says how. The most probable record on a ray under a Gaussian prior is no answer: the density along the ray
leaves out how many records lie around it, and is greatest too near the origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from drjax.attacks.attack import EmbeddingThreat
from drjax.core import kernel_regression, validate
from drjax.core.kernel_regression import KernelRegression, squared_distances, tune
from drjax.core.types import Array, Reconstruction
from drjax.dr import metrics

WIDTHS = (0.3, 1.0, 3.0, 10.0)
"""Grid of the kernel's width, in units of the median squared distance between two directions."""

MOST_RECORDS = 1000
"""Public records that the regression is fitted on, at most."""


def check(metric: str, known: np.ndarray) -> None:
    """Refuses records that are no directions where the metric shows nothing but these.

    Raises:
        ValueError: known (n-1, d) is not what `metrics.prepared` makes of it.
    """
    if metric not in metrics.OF_DIRECTIONS:
        return
    apart = np.abs(metrics.prepared(metric, known) - known).max()
    if not apart < 1e-6:
        raise ValueError(
            f"known must be directions, as metrics.prepared makes them, for metric {metric!r}, which does not show "
            f"sizes; got a feature {apart:g} off"
        )


def bounds_of(metric: str, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    """Bounds of a direction's entries for records within bounds: [0, 1] where they are not negative, else none."""
    return (0.0, 1.0) if metric == "cosine" and bounds is not None and bounds[0] >= 0 else None


@dataclass(frozen=True)
class Sizes:
    """What records of a direction are like; see `fit`.

    Attributes:
        metric: "cosine" or "correlation".
        regression: Regression from a direction (d,) to the logarithm of the size, and the mean of the features over a
            unit of all records.
        unit: That unit.
        spread: (1,) or (2,), mean squares of what leave-one-out errs by over what the other directions leave open: of
            the size in units of the one found, of the mean in units of `unit`.
    """

    metric: str
    regression: KernelRegression
    unit: float
    spread: np.ndarray

    def records(self, directions: np.ndarray) -> np.ndarray:
        """Records (m, d) that have given directions (m, d); what is not quite one is taken for the nearest."""
        directions = metrics.prepared(self.metric, directions)
        return _records(directions, self.regression.predict(directions), self.unit)

    def feature_mse(self, directions: np.ndarray) -> np.ndarray:
        """(m, d) squared errors to expect of `records`: more for large sizes, and far from known directions."""
        directions = metrics.prepared(self.metric, directions)
        size = np.exp(self.regression.predict(directions)[:, :1])
        errors = self.spread[0] * (size * directions) ** 2
        if len(self.spread) > 1:
            errors = errors + self.spread[1] * self.unit**2
        return errors * self.regression.variances(directions)[:, None]

    def applied(self, found: Reconstruction, bounds: tuple[float, float] | None) -> Reconstruction:
        """The records of reconstructed directions, within bounds; errors to expect grow by what the size adds."""
        x = np.full(found.x.shape, np.nan)
        usable = np.isfinite(found.x).all(axis=1)
        x[usable] = self.records(found.x[usable])
        candidates = np.full(found.candidates.shape, np.nan)
        for lane, own in enumerate(found.candidates):
            finite = np.isfinite(own).all(axis=1)
            candidates[lane, finite] = self.records(own[finite])
        if bounds is not None:
            x, candidates = np.clip(x, *bounds), np.clip(candidates, *bounds)
        size = np.linalg.norm(x, axis=1) / np.maximum(np.linalg.norm(found.x, axis=1), np.finfo(np.float64).tiny)
        added = np.full(found.x.shape, np.nan)
        added[usable] = self.feature_mse(found.x[usable])
        left = np.sqrt((size * found.residual_norm) ** 2 + added.sum(axis=1))
        own = found.feature_mse
        errors = None if own is None else (size**2)[:, None] * own + added
        return found._replace(x=x, candidates=candidates, residual_norm=left, feature_mse=errors)


def fit(metric: str, public: Array) -> Sizes:
    """Learns sizes from public records (m, d); nothing is drawn. O(m^3) for m up to `MOST_RECORDS`.

    Raises:
        ValueError: public is not a finite matrix in which two records have a direction, or the metric shows sizes.
    """
    validate.one_of(metrics.OF_DIRECTIONS, metric=metric)
    public = validate.matrix(public, "public", min_rows=2).astype(np.float64)
    directions = metrics.prepared(metric, public)
    has_one = directions.any(axis=1)
    if has_one.sum() < 2:
        raise ValueError(f"public must have two records with a direction, got {has_one.sum()}")
    public, directions = public[has_one][:MOST_RECORDS], directions[has_one][:MOST_RECORDS]
    unit = float(np.abs(public).mean())
    parts = [np.log((public * directions).sum(axis=1))]
    if metric == "correlation":
        parts.append(public.mean(axis=1) / unit)
    y = np.column_stack(parts)
    choice = tune(squared_distances(directions), y - y.mean(axis=0), widths=WIDTHS)
    regression, errors = kernel_regression.fit_with_errors(directions, y, choice, keeps_inverse=True)
    errors[:, 0] = np.expm1(errors[:, 0])
    spread = (errors**2 / regression.variances()[:, None]).mean(axis=0)
    return Sizes(metric, regression, unit, spread)


class Seen(NamedTuple):
    """What a metric shows of the records of a threat: these, or their directions.

    Attributes:
        known, expected, bounds: As in the threat, or of directions.
        sizes: Sizes of records by their directions; None where the metric shows records.
        limits: Bounds of records.
    """

    known: np.ndarray
    expected: np.ndarray
    bounds: tuple[float, float] | None
    sizes: Sizes | None
    limits: tuple[float, float] | None

    def record(self, found: Reconstruction) -> Reconstruction:
        """What was found, as records."""
        return found if self.sizes is None else self.sizes.applied(found, self.limits)


def seen(metric: str, threat: EmbeddingThreat) -> Seen:
    """What the metric shows of the known records of a threat, and of those that the target is expected to be like."""
    if metric not in metrics.OF_DIRECTIONS:
        return Seen(threat.known, threat.expected_of, threat.bounds, None, threat.bounds)
    sizes = fit(metric, threat.expected_of)
    known, expected = (metrics.prepared(metric, rows) for rows in (threat.known, threat.expected_of))
    return Seen(known, expected, bounds_of(metric, threat.bounds), sizes, threat.bounds)


def _records(directions: np.ndarray, predicted: np.ndarray, unit: float) -> np.ndarray:
    records: Any = directions * np.exp(predicted[:, :1])
    return records + unit * predicted[:, 1:] if predicted.shape[1] > 1 else records

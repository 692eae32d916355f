"""What a method may have been given: records behind steps, and distances between them by some metric."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from drjax.dr import CentredRows, FirstPCA, Log, MinMax, Robust, Standardise, UnitRows
from drjax.dr.pipeline.steps import Step

METRICS: dict[str, Any] = {
    "euclidean": "euclidean",
    "cosine": "cosine",
    "manhattan": "cityblock",
    "correlation": "correlation",
}
"""Metrics by drjax's name, and SciPy's name of each."""

N_NEAREST = 3
"""Known records nearest to the target in the map, whose mean stands in for it."""

SAME = 1e-6
"""Largest difference of distances, as a share of their mean, up to which two inputs are one."""

ALL, SOME, ONE = tuple(METRICS), ("euclidean", "cosine"), ("euclidean",)

Chain = tuple[tuple[Step, ...], tuple[str, ...]]
"""Steps before a method, and the metrics that are tried behind them."""

CHAINS: tuple[Chain, ...] = (
    ((), ALL),
    ((Standardise(),), ALL),
    ((MinMax(),), ALL),
    ((Robust(),), ALL),
    ((UnitRows(),), ONE),
    ((CentredRows(), UnitRows()), ONE),
    ((Log(),), SOME),
    ((Log(), Standardise()), ONE),
    ((FirstPCA(n_components=50),), SOME),
    ((FirstPCA(n_components=30),), SOME),
    ((FirstPCA(n_components=10),), ONE),
    ((Standardise(), FirstPCA(n_components=50)), SOME),
    ((Standardise(), FirstPCA(n_components=30)), SOME),
    ((Standardise(), FirstPCA(n_components=10)), ONE),
    ((MinMax(), FirstPCA(n_components=50)), ONE),
    ((FirstPCA(n_components=50, whiten=True),), ONE),
    ((FirstPCA(n_components=30, whiten=True),), ONE),
)
"""Those that are tried on every map, the plainest first; see `first_components` for other numbers of components."""


@dataclass(frozen=True)
class Input:
    """One hypothesis of what a method was given.

    Attributes:
        before: Steps on the records.
        metric: Metric of the method, of `METRICS`.
        between: (n, n), distances; the target's stand-in is row 0.
        same: Other pairs of steps and metric that give the same distances; see `distinct`.
    """

    before: tuple[Step, ...]
    metric: str
    between: np.ndarray
    same: tuple[tuple[tuple[Step, ...], str], ...] = ()

    @functools.cached_property
    def order(self) -> np.ndarray:
        """(n, n - 1) int64, the others of each record, nearest first."""
        others = self.between.copy()
        np.fill_diagonal(others, -np.inf)  # itself first, before its copies
        return np.argsort(others, axis=1, kind="stable")[:, 1:]

    @functools.cached_property
    def ordered(self) -> np.ndarray:
        """(n, n - 1), distances to the others, nearest first."""
        return np.take_along_axis(self.between, self.order, axis=1)

    @property
    def title(self) -> str:
        """What it is, as it stands in a sentence."""
        return title_of(self.before, self.metric)


def title_of(before: Sequence[Step], metric: str) -> str:
    """Steps and metric as they stand in a sentence: "standardised records, cosine distances"."""
    if not before:
        records = "records as they are"
    else:
        records = " of ".join(
            f"{step.n_components} {'whitened ' if step.whiten else ''}{step.title}"
            if isinstance(step, FirstPCA)
            else step.title
            for step in reversed(before)
        )
    return records if metric == "euclidean" else f"{records}, {metric} distances"


def with_stand_in(known: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Records (n, d), the target's row 0 being the mean of the known ones (n-1, d) nearest to it in the map (n, k)."""
    gaps = np.linalg.norm(coords[1:] - coords[0], axis=1)
    return np.concatenate([known[np.argsort(gaps, kind="stable")[:N_NEAREST]].mean(axis=0)[None], known])


def distances(records: np.ndarray, metric: str) -> np.ndarray:
    """Distances (n, n) of records (n, d) by a metric of `METRICS`; float64.

    A record without a direction (of zeros, or for correlation of equal features) is at cosine distance 1 of all others.
    """
    x = np.asarray(records, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = squareform(pdist(x, METRICS[metric]))
    found = np.where(np.isfinite(found), np.maximum(found, 0), 1)
    np.fill_diagonal(found, 0)
    return found


def inputs(records: np.ndarray, chains: Sequence[Chain] = CHAINS) -> tuple[Input, ...]:
    """What records (n, d), the target's stand-in first, may have become: all of the chains that gives numbers."""
    behind = ((before, metrics, prepare(records, before)) for before, metrics in chains)
    return tuple(
        Input(before, metric, distances(prepared, metric))
        for before, metrics, prepared in behind
        if prepared is not None
        for metric in metrics
    )


def distinct(given: Sequence[Input], *, is_scale_free: bool) -> tuple[Input, ...]:
    """Inputs of the same distances as one, the first of them; those without any distance are left out.

    Args:
        given: Inputs of the same records.
        is_scale_free: Whether distances that are another's times a constant are the same.
    """
    found: list[Input] = []
    prints: list[np.ndarray] = []
    for one in given:
        mean = one.between.mean()
        if not mean > 0:
            continue
        unit = mean if is_scale_free else 1.0
        own = one.between[1:] / unit
        at = next((i for i, other in enumerate(prints) if np.abs(own - other).max() <= SAME * mean / unit), None)
        if at is None:
            found.append(one)
            prints.append(own)
        else:
            found[at] = dataclasses.replace(found[at], same=(*found[at].same, (one.before, one.metric)))
    return tuple(found)


def given(records: np.ndarray, before: tuple[Step, ...], metric: str) -> Input | None:
    """The input of records (n, d) behind steps, by a metric; None where a step does nothing, or gives no numbers."""
    prepared = prepare(records, before)
    return None if prepared is None else Input(before, metric, distances(prepared, metric))


def prepare(records: np.ndarray, before: tuple[Step, ...]) -> np.ndarray | None:
    """Records (n, d) behind steps, in float64; None where a step does nothing for them, or gives no numbers."""
    x, n, d = records, *records.shape
    width = d
    for step in before:
        if isinstance(step, Log) and not (x > -1).all():
            return None
        if isinstance(step, FirstPCA) and step.n_components >= min(width, n - 1) and not step.whiten:
            return None
        width = step.width(width, n)
        x = on_host(step, x)
    return x if np.isfinite(x).all() else None


def on_host(step: Step, x: np.ndarray) -> np.ndarray:
    """`step.apply` of records x (n, d) by NumPy, scores up to signs: nothing is compiled for each shape.

    Raises:
        ValueError: a step that is none of those in `CHAINS`.
    """
    centre, scale = np.zeros(1), np.ones(1)
    match step:
        case FirstPCA():
            return _scores(x, step)
        case Log():
            return np.log1p(x)
        case CentredRows():
            return x - x.mean(axis=1, keepdims=True)
        case UnitRows():
            norm = np.linalg.norm(x, axis=1, keepdims=True)
            return x / np.where(norm > 0, norm, 1)
        case Standardise():
            centre, scale = x.mean(axis=0), x.std(axis=0)
        case MinMax():
            centre, scale = x.min(axis=0), np.ptp(x, axis=0)
        case Robust():
            low, centre, high = np.percentile(x, (25, 50, 75), axis=0)
            scale = high - low
        case _:
            raise ValueError(f"step must be one that is tried, got {step!r}")
    eps = np.finfo(np.float64).eps
    return (x - centre) / np.where(scale > 10 * eps * np.maximum(np.abs(centre), 1), scale, 1)


def _scores(x: np.ndarray, step: FirstPCA) -> np.ndarray:
    """Scores on the first principal components; see `FirstPCA`."""
    left, values, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    k = step.width(x.shape[1], len(x))
    left, values = left[:, :k], values[:k]
    if not step.whiten:
        return left * values
    return left * np.where(values > len(x) * np.finfo(np.float64).eps * values[0], np.sqrt(len(x) - 1), 0)

"""How good the releases under attack are as embeddings, measured and in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier

from drjax.core.statistics import UNKNOWN, Interval, mean_interval
from drjax.core.types import Array, DRMethod, is_usable
from drjax.dr import quality
from drjax.dr.factored import Coords, is_finite
from drjax.reports.sections import Table

N_NEIGHBORS = 5
"""Neighbours per record, as in scikit-learn's `trustworthiness`; fewer for a release of ten records or less."""

PAIRS = 2**28
"""Pairs of records that are looked at: as many releases as that allows, at least `FEWEST` and at most `MOST`."""

FEWEST, MOST = 10, 100

MOST_RECORDS, DRAWN = 5000, 2500
"""Records of a release of which all pairs are looked at, at most; of more so many are: the target and others drawn at
random."""

TITLE = "How good the release is as an embedding"
"""Heading of the section."""

READING = (
    "These figures say what the release is good for, not what it gives away: one of little use may give away much. If "
    "noise or rounding is added as a defence, they say what that costs."
)
"""How a data owner reads the section."""


@dataclass(frozen=True, kw_only=True)
class ReleaseScores:
    """Quality of releases that share all records but one, averaged over them, with 95% intervals.

    Attributes:
        n_records: n of each release.
        n_seen: Records of each that are looked at, drawn at random where they are not all.
        n_releases: Releases measured: usable ones alone.
        n_neighbors: Size of a neighbourhood.
        trustworthiness, continuity, knn_preservation: Measures as in `dr.quality`, in [0, 1].
        stress_1: Stress-1 as in `dr.quality`; without a unit, at the scale of the release that makes it least.
        chance: What `knn_preservation` would be if neighbours were drawn at random.
        objective: What the method minimises, at the release as it was computed; nan where it minimises nothing.
    """

    n_records: int
    n_seen: int
    n_releases: int
    n_neighbors: int
    trustworthiness: Interval
    continuity: Interval
    knn_preservation: Interval
    stress_1: Interval
    chance: float
    objective: Interval


def neighborhood(n: int) -> int:
    """Neighbours that measures of n records look at; 0 where there are too few records to measure anything."""
    return min(N_NEIGHBORS, (n - 1) // 2)


def n_seen(n: int) -> int:
    """Records of n that are looked at."""
    return n if n <= MOST_RECORDS else min(DRAWN, MOST_RECORDS)


def measure(
    method: DRMethod, known: Array, targets: Array, coords: Coords, objective: Array, status: Array
) -> ReleaseScores | None:
    """Measures releases; None if they have less than three records or none is usable.

    Args:
        method: The released method; whether its coordinates have a unit counts.
        known: (n-1, d).
        targets: (m, d).
        coords: (m, n, k), as released, possibly factored; row 0 of coords[i] is that of targets[i].
        objective: (m,).
        status: (m,), flags of the lanes.
    """
    n_records, known = len(known) + 1, np.asarray(known)
    n = n_seen(n_records)
    is_used = is_usable(np.asarray(status)) & is_finite(coords)
    most = int(np.clip(PAIRS / n**2, FEWEST, MOST)) if n == n_records else FEWEST
    used = np.flatnonzero(is_used)[:most]
    n_neighbors = neighborhood(n)
    if n_neighbors < 1 or not len(used):
        return None
    coords, targets = coords[used], np.asarray(targets)[used]
    if n < n_records:
        # The same in every release, whatever the records are.
        rows = np.sort(np.random.default_rng(0).permutation(n_records - 1)[: n - 1])
        known, coords = known[rows], coords[:, np.append(0, 1 + rows)]
    coords = np.asarray(coords)
    if method.unit is None:
        coords = _at_best_scale(known, targets, coords)
    found = quality.evaluate_batch(known, targets, coords, n_neighbors=n_neighbors)
    return ReleaseScores(
        n_records=n_records,
        n_seen=n,
        n_releases=len(used),
        n_neighbors=n_neighbors,
        trustworthiness=mean_interval(found.trustworthiness, lowest=0.0, highest=1.0),
        continuity=mean_interval(found.continuity, lowest=0.0, highest=1.0),
        knn_preservation=mean_interval(found.knn_preservation, lowest=0.0, highest=1.0),
        stress_1=mean_interval(found.stress_1, lowest=0.0),
        chance=n_neighbors / (n - 1),
        objective=mean_interval(np.asarray(objective)[used], lowest=0.0),
    )


def knn_accuracy(known_labels: Array, target_labels: Array, coords: Array, status: Array) -> Interval:
    """Share of labels that a record's `N_NEIGHBORS` nearest in the release get right, leaving it out itself.

    Mean over at most `FEWEST` usable releases with Student's interval; unknown if there is none or under three records.

    Args:
        known_labels: (n-1,) classes of the known records.
        target_labels: (m,) classes of the targets.
        coords: (m, n, k), as released; row 0 of coords[i] is that of target i.
        status: (m,), flags of the lanes.
    """
    is_used = is_usable(np.asarray(status)) & np.isfinite(coords).all(axis=(1, 2))
    used = np.flatnonzero(is_used)[:FEWEST]
    n_neighbors = neighborhood(len(known_labels) + 1)
    if n_neighbors < 1 or not len(used):
        return UNKNOWN
    shares = []
    for i in used:
        labels = np.concatenate([[target_labels[i]], known_labels])
        classifier = KNeighborsClassifier(n_neighbors=n_neighbors).fit(coords[i], labels)
        # Without data it predicts each record that it was fitted on from the others.
        shares.append(np.mean(classifier.predict(None) == labels))
    return mean_interval(np.asarray(shares), lowest=0.0, highest=1.0)


def estimates(scores: ReleaseScores) -> dict[str, float]:
    """The figures by name, without their intervals."""
    return {name: value.estimate for name, value in vars(scores).items() if isinstance(value, Interval)}


def lead(scores: ReleaseScores) -> str:
    """The main figure in a sentence."""
    among = "the data" if scores.n_seen == scores.n_records else f"{scores.n_seen:,} records drawn from the data"
    return (
        f"On average the release keeps {scores.knn_preservation.estimate:.0%} of the {scores.n_neighbors} nearest "
        f"neighbours that a record has in {among}; chance would keep {scores.chance:.1%}."
    )


def in_words(method: DRMethod, scores: ReleaseScores) -> Table:
    """The section of the report."""
    k, n = scores.n_neighbors, scores.n_records
    scale = ", at the scale of the coordinates that makes it least" if method.unit is None else ""
    rows = [
        (
            "Share of nearest neighbours kept",
            _share(scores.knn_preservation),
            f"Of the {k} records most similar to a record, how many are among the {k} nearest to it in the release. "
            f"100% keeps all; neighbours drawn at random would make {scores.chance:.1%}.",
        ),
        (
            "Trustworthiness",
            _number(scores.trustworthiness),
            "Whether records that lie together in the release are alike. 1: all of them; a record from far away among "
            "the neighbours lowers it, the more the farther away.",
        ),
        (
            "Continuity",
            _number(scores.continuity),
            "Whether records that are alike lie together in the release. 1: all of them; similar records torn apart "
            "lower it.",
        ),
        (
            "Stress-1",
            _number(scores.stress_1),
            f"How far distances between points of the release are off{scale}: 0 if all distances between records are "
            "kept; 0.2 is usually called poor.",
        ),
    ]
    if method.minimises is not None and math.isfinite(scores.objective.estimate):
        text = f"What the method itself makes as small as it can: {method.minimises}. Only comparable between "
        rows.append(("The method's own objective", _number(scores.objective), f"{text}releases of the same data."))
    plural = "" if scores.n_releases == 1 else "s"
    seen = "" if scores.n_seen == n else f"{scores.n_seen:,} of them looked at, drawn at random, "
    return Table(
        title=TITLE,
        paragraphs=(lead(scores), READING),
        caption=f"Means over {scores.n_releases:,} release{plural} of {n:,} records, {seen}each with another target, "
        f"and {k} neighbours per record. Small figures are 95% confidence intervals over the targets.",
        headers=("Measure", "Value", "How to read it"),
        rows=tuple(rows),
        text_columns=(2,),
    )


def _at_best_scale(known: np.ndarray, targets: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Each of coords times the factor that makes stress-1 least: sum of delta^2 over sum of delta d, over pairs."""
    between = cdist(known, known)
    scaled = np.empty_like(coords)
    for i, (target, points) in enumerate(zip(targets, coords.astype(np.float64), strict=True)):
        row = cdist(target[None], known)[0]
        embedded = cdist(points, points)
        squares = np.sum(between**2) + 2 * np.sum(row**2)
        products = np.sum(between * embedded[1:, 1:]) + 2 * np.sum(row * embedded[0, 1:])
        scaled[i] = points * (squares / products if products > 0 else 1.0)
    return scaled


def _number(interval: Interval) -> tuple[str, ...]:
    return _written(interval, lambda value: f"{value:.4g}" if value >= 10 else f"{value:.3f}")


def _share(interval: Interval) -> tuple[str, ...]:
    return _written(interval, lambda value: f"{value:.1%}")


def _written(interval: Interval, form: Callable[[float], str]) -> tuple[str, ...]:
    if not math.isfinite(interval.estimate):
        return ("not defined",)
    if not math.isfinite(interval.low):
        return (form(interval.estimate),)
    return form(interval.estimate), f"{form(interval.low)} to {form(interval.high)}"

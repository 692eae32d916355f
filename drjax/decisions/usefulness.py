"""What a map is good for, in figures that compare with those of the map that was audited."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax
import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier

from drjax.core.types import Array
from drjax.decisions.audited import Audited, Made
from drjax.dr import quality

MOST_RECORDS, SHARE = 1500, 0.75
"""Records that are looked at, drawn at random: all pairs of them are; and their share of the data at most, which leaves
as many where some are left out."""

MOST_NEIGHBORS = 15
"""Neighbours of a record, as many as a reader takes in; fewer of few records."""

CHANCE_TRUSTWORTHINESS = 0.5
"""Trustworthiness of places that are drawn at random."""

LEAST_CLUSTER = 0.02
"""Share of the records that a visible cluster has at least."""

MOST_CLUSTERED = 10_000
"""Records among which visible clusters are found, those that are looked at first: the time grows with all pairs."""


@dataclass(frozen=True, kw_only=True)
class Usefulness:
    """What a map shows of its records; nan where it cannot be told.

    Attributes:
        trustworthiness: Trustworthiness of neighbourhoods, as in `dr.quality`.
        neighbors: Share of the nearest neighbours kept.
        clusters: Silhouette of the clusters that are seen in the audited map.
        classes: Share of labels that the nearest records of the map get right; nan without labels.
        share: Mean over the figures of what is left of the audited map's, each above chance; in [0, 1]. For places
            that a map assigns to records that it does not show, of the first two figures and above maps that know
            nothing; 0 where one of these is as good.
    """

    trustworthiness: float
    neighbors: float
    clusters: float
    classes: float
    share: float = 1.0

    @classmethod
    def of(cls, figures: Array) -> Usefulness:
        """The usefulness whose fields are these, in their order."""
        return cls(**{field.name: float(figures[i]) for i, field in enumerate(dataclasses.fields(cls))})


class Yardstick:
    """Measures maps of one data set against the audited one."""

    def __init__(self, audited: Audited, key: Array) -> None:
        """Draws the records that are looked at, finds the visible clusters and measures the audited map.

        Args:
            audited: Audited release.
            key: PRNG key of the choice of records.
        """
        n = audited.n
        # Always as many, since each number of records is a program of its own.
        self._order, self._n_seen = np.asarray(jax.random.permutation(key, n)), min(MOST_RECORDS, int(SHARE * n))
        self._labels = audited.data.y
        self._clusters = _clusters(audited.every.coords, self._order[:MOST_CLUSTERED])
        self._own: Usefulness | None = None
        whole = Made(np.arange(n), audited.every.x, audited.every.coords, audited.every.method)
        self.own = self._own = self.measure(whole)

    def measure(self, made: Made) -> Usefulness:
        """The usefulness of a map."""
        at = np.flatnonzero(np.isin(made.kept, self._order[np.isin(self._order, made.kept)][: self._n_seen]))
        rows, x, coords = made.kept[at], made.x[at], made.coords[at]
        n_neighbors = min(MOST_NEIGHBORS, (len(at) - 1) // 2)
        if n_neighbors < 1:
            return Usefulness(trustworthiness=np.nan, neighbors=np.nan, clusters=np.nan, classes=np.nan, share=np.nan)
        measured = self._figures(rows, x, coords, n_neighbors)
        if self._own is None:
            return measured
        if made.blind is not None:
            blind = [self._figures(rows, x, coords[at], n_neighbors) for coords in made.blind]
            drawn = {name: [getattr(one, name) for one in blind] for name in ("trustworthiness", "neighbors")}
            is_better = all(getattr(measured, name) > max(values) for name, values in drawn.items())
            # Where all records share few places, clusters look far apart, whatever is known of the records.
            chance = Usefulness(**{n: float(np.mean(v)) for n, v in drawn.items()}, clusters=np.nan, classes=np.nan)
            return dataclasses.replace(measured, share=_share(measured, self._own, chance) if is_better else 0.0)
        chance = Usefulness(
            trustworthiness=CHANCE_TRUSTWORTHINESS,
            neighbors=n_neighbors / (len(at) - 1),
            clusters=0.0,
            classes=np.nan if self._labels is None else _majority(self._labels[rows]),
        )
        return dataclasses.replace(measured, share=_share(measured, self._own, chance))

    def _figures(self, rows: np.ndarray, x: np.ndarray, coords: np.ndarray, n_neighbors: int) -> Usefulness:
        away = (coords - coords.mean(axis=0)).astype(np.float32)
        found = quality.evaluate(x.astype(np.float32), away, n_neighbors=n_neighbors)
        return Usefulness(
            trustworthiness=float(found.trustworthiness),
            neighbors=float(found.knn_preservation),
            clusters=_silhouette(coords, None if self._clusters is None else self._clusters[rows]),
            classes=_classes(coords, None if self._labels is None else self._labels[rows], n_neighbors),
        )


def _share(found: Usefulness, own: Usefulness, chance: Usefulness) -> float:
    kept = []
    for name in ("trustworthiness", "neighbors", "clusters", "classes"):
        value, whole, least = getattr(found, name), getattr(own, name), getattr(chance, name)
        # A figure that the audited map has no better than chance tells nothing of what is left of it.
        if np.isfinite([value, whole, least]).all() and whole > least:
            kept.append(np.clip((value - least) / (whole - least), 0, 1))
    return float(np.mean(kept)) if kept else np.nan


def _clusters(coords: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """(n,) the visible cluster of some rows' places among these, -1 for none; None where less than two are seen."""
    least = max(5, round(LEAST_CLUSTER * len(rows)))
    if len(rows) < 2 * least:
        return None
    own = np.sort(rows)
    found = np.full(len(coords), -1)
    found[own] = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(coords[own])
    return found if found.max() >= 1 else None


def _silhouette(coords: np.ndarray, clusters: np.ndarray | None) -> float:
    if clusters is None:
        return np.nan
    seen = clusters >= 0
    if len(np.unique(clusters[seen])) < 2:
        return np.nan
    return float(silhouette_score(coords[seen], clusters[seen]))


def _classes(coords: np.ndarray, labels: np.ndarray | None, n_neighbors: int) -> float:
    if labels is None or len(np.unique(labels)) < 2:
        return np.nan
    # Without data it predicts each record that it was fitted on from the others.
    predicted = KNeighborsClassifier(n_neighbors=n_neighbors).fit(coords, labels).predict(None)
    return float(np.mean(predicted == labels))


def _majority(labels: np.ndarray) -> float:
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))

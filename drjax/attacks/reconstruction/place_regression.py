"""Records of a map of which nobody knows how it was made: regression of the known records on their places.

Of several regressions, linear ones and ones by distances, the one counts that predicts known records best from others.
Known records that had no part in a regression say how far it errs, near the target's place more than elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core.kernel_regression import (
    ALIKE,
    PENALTIES,
    Choice,
    KernelRegression,
    Spectrum,
    fit,
    gaussian,
    least,
    matern,
    squared_distances,
    tune,
)
from drjax.core.statistics import spread_rows
from drjax.core.types import Array, Reconstruction, Status
from drjax.dr import Unnamed

WIDTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Grid of a kernel's squared width, in units of the median squared distance between two places."""

LINEAR_PENALTIES = tuple(float(10.0**e) for e in np.arange(-10, 0.5, 0.5))
"""Grid of the penalty of a linear regression, in units of the number of records."""

MOST_SEARCHED, MOST_RECORDS = 300, 4000
"""Records that kernels are compared on, and records of a regression; of more, some from the whole map."""

N_FOLDS = 10
"""Sets of known records that are predicted from those outside."""

LEAST_RECORDS = 30
"""Known records, at the least: with fewer nothing is said of errors."""

CLEAR = 3.0
"""Standard errors by which known records are predicted better than by the mean, for a map that tells of them."""


class Predicted(NamedTuple):
    """What the known records' places say of a target.

    Attributes:
        x: (m, d), the targets.
        known: (p, d) known records, each predicted by others.
        gain: By how many standard errors known records are predicted better than by the mean of the others.
        places: (p, k) of the known records, in units of each coordinate's spread.
        of: (m, k), places of the targets in these units.
        squares: (p, d), squared errors of `known`.
    """

    x: np.ndarray
    known: np.ndarray
    gain: float
    places: np.ndarray
    of: np.ndarray
    squares: np.ndarray

    @property
    def feature_mse(self) -> np.ndarray:
        """(m, d), squared errors to expect of the targets: means over the known records whose places are nearest."""
        return self._near(self.of)

    @property
    def known_mse(self) -> np.ndarray:
        """(p, d), squared errors to expect of the known records, each without its own."""
        return self._near(None)

    def _near(self, of: np.ndarray | None) -> np.ndarray:
        count = min(ALIKE, len(self.places) - 1)
        rows = NearestNeighbors(n_neighbors=count).fit(self.places).kneighbors(of, return_distance=False)
        return np.array([self.squares[one].mean(axis=0) for one in rows])


def linear(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(p, q) inner products of inputs (p, f) and (q, f), and 1: a constant is an input too."""
    return a @ b.T + 1


def regression(places: np.ndarray, x: np.ndarray, *, has_unit: bool) -> KernelRegression:
    """Regression of records on their places, of the kind and with the penalty of the least leave-one-out error.

    O(s^3) for the search on s = `MOST_SEARCHED` records, and O(p^3 / 3 + p^2 d).

    Args:
        places: (p, k) float64, in units of each coordinate's spread, about 0.
        x: (p, d) float64.
        has_unit: Whether features have a unit in common; if not, each counts in what it varies by.
    """
    searched = spread_rows(len(x), MOST_SEARCHED)
    y = x[searched] / _unit(x, has_unit=has_unit)
    y -= y.mean(axis=0)
    squared = squared_distances(places[searched])
    choices = [tune(squared, y, widths=WIDTHS, profile=profile) for profile in (gaussian, matern)]
    features = np.column_stack([places[searched], np.ones(len(searched))])
    losses = Spectrum.of_features(features).leave_one_out(y, [len(searched) * one for one in LINEAR_PENALTIES])
    loss, penalty = least(losses)
    used = spread_rows(len(x), MOST_RECORDS)
    choices.append(Choice(loss, penalty * len(used) / len(searched), linear))
    return fit(places[used], x[used], min(choices, key=lambda one: one.loo_mse))


def predict(places: np.ndarray, known: np.ndarray, of: np.ndarray, *, has_unit: bool) -> Predicted:
    """Predicts records from their places and the known ones from each other's; eleven times `regression`.

    Args:
        places: (p, k) of the known records, p >= 2 `N_FOLDS`.
        known: (p, d).
        of: (m, k), places of the targets.
        has_unit: See `regression`.
    """
    known = known.astype(np.float64)
    centre, spread = places.mean(axis=0), places.std(axis=0)
    spread = np.where(spread > 0, spread, np.inf)
    places, of = (places - centre) / spread, (of - centre) / spread
    p = len(known)
    fold = np.random.default_rng(0).permutation(p) % N_FOLDS
    found, mean = np.empty(known.shape), np.empty(known.shape)
    for number in range(N_FOLDS):
        own, others = fold == number, fold != number
        found[own] = regression(places[others], known[others], has_unit=has_unit).predict(places[own])
        mean[own] = known[others].mean(axis=0)
    squares, unit = (found - known) ** 2, _unit(known, has_unit=has_unit)
    better = (((mean - known) / unit) ** 2 - squares / unit**2).mean(axis=1)
    gain = float(better.mean() / max(better.std() / np.sqrt(p), np.finfo(np.float64).tiny))
    x = regression(places, known, has_unit=has_unit).predict(of)
    return Predicted(x, found, gain, places, of, squares)


def inputs_of(threat: EmbeddingThreat, release: np.ndarray) -> np.ndarray:
    """(p + 1, k), or more with features of the target that the adversary has: what is known of each record."""
    coords = np.asarray(release, np.float64)
    if threat.features is None:
        return coords
    which = threat.features.which
    features = np.concatenate([threat.features.values[:1], threat.known[:, which]]).astype(np.float64)
    return np.concatenate([coords, features], axis=1)


class ByPlace(NamedTuple):
    """A target's reconstruction, (1, d), and those of the known records, (p, d), each by others."""

    found: Reconstruction
    known: Reconstruction


def reconstruct_by_place(threat: EmbeddingThreat, release: np.ndarray) -> ByPlace:
    """Reconstructs the target of one release (p + 1, k), and the known records to see how far that is right.

    The status is MISFIT, and the answer the record to be expected, where known records are not predicted better by
    `CLEAR` standard errors than by the mean of others; NON_FINITE, and no known record's, where the release is not.

    Args:
        threat: Known records (p, d), p >= `LEAST_RECORDS`, bounds, and features of the target.
        release: (p + 1, k), the target in row 0.
    """
    known = threat.known.astype(np.float64)
    nothing = np.full((1, known.shape[1]), np.nan)
    if not np.isfinite(release).all():
        lost = _reconstruction(nothing, nothing, Status.NON_FINITE)
        return ByPlace(lost, _reconstruction(nothing[:0], nothing[:0], Status.OK))
    inputs = inputs_of(threat, release)
    own = predict(inputs[1:], known, inputs[:1], has_unit=threat.bounds is not None)
    x, errors = own.x.copy(), own.feature_mse.copy()
    if threat.features is not None:
        x[:, threat.features.which], errors[:, threat.features.which] = threat.features.values[:1], 0
    is_told = own.gain > CLEAR
    found = threat.clipped(_reconstruction(x, errors, Status.OK if is_told else Status.MISFIT))
    return ByPlace(
        threat.guessed(found, np.array([not is_told])),
        threat.clipped(_reconstruction(own.known, own.known_mse, Status.OK)),
    )


def _reconstruction(x: np.ndarray, errors: np.ndarray, status: Status) -> Reconstruction:
    flags = np.full(len(x), np.uint32(status))
    return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), flags, errors.mean(axis=1), feature_mse=errors)


def _unit(x: np.ndarray, *, has_unit: bool) -> np.ndarray:
    """(d,) that errors count in: what each feature of x (p, d) varies by, or all of them together."""
    deviation = x.std(axis=0)
    if has_unit:
        return np.full(len(deviation), max(float(np.sqrt(np.mean(deviation**2))), np.finfo(np.float64).tiny))
    return np.where(deviation > 0, deviation, 1.0)


def _flops(p: int, k: int, d: int) -> float:
    """Operations of one `regression`."""
    s, q = min(p, MOST_SEARCHED), min(p, MOST_RECORDS)
    search = 2 * len(WIDTHS) * (10.0 * s**3 + 2.0 * len(PENALTIES) * s**2 * min(s, d))
    return search + q**3 / 3 + 2.0 * q**2 * (k + d)


@dataclass(frozen=True, kw_only=True)
class PlaceRegression(EmbeddingAttack):
    """Regression on the places of one map that no known method made; see `predict`."""

    name: str = "regression"
    label: str = "Regression on places"
    description: str = "Predicts a record from its place as known records are best predicted from theirs."
    takes_features = True
    each = True
    shares_each = True
    confirms = False

    def suits(self, method: object, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`; where the method is known other attacks say more."""
        del seed_known
        return None if isinstance(method, Unnamed) else "is of maps whose method is not known"

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`."""
        few = f"needs at least {LEAST_RECORDS} known records"
        return EmbeddingAttack.fits(self, threat) or (few if len(threat.known) < LEAST_RECORDS else None)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of all records at once as of one."""
        (p, d), k = threat.known.shape, threat.coords.shape[-1]
        size = min(p, MOST_RECORDS)
        seconds = threat.n_releases * (N_FOLDS + 1) * _flops(p, k, d) / DENSE_FLOPS
        return Cost(seconds, 32.0 * size**2 + 40.0 * p * d)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn. MISFIT where known records are predicted no better than by their mean."""
        del key
        each = [reconstruct_by_place(threat, release).found for release in threat.coords]
        x, norm, status, expected, errors = (
            np.concatenate([getattr(one, name) for one in each])
            for name in ("x", "residual_norm", "status", "expected_mse", "feature_mse")
        )
        return Reconstruction(x, None, x[:, None], norm, status, expected, feature_mse=errors)

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn, and nothing of a record enters its own reconstruction."""
        del key
        coords = every.coords.astype(np.float64)
        x = predict(coords, every.x, coords[:1], has_unit=every.bounds is not None).known[every.rows]
        x = x if every.bounds is None else np.clip(x, *every.bounds)
        status = np.full(len(x), np.uint32(Status.OK))
        return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), status)

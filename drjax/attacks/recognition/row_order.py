"""The order of the rows of a map whose coordinates are linear in the records behind the right steps.

Scores of the known records alone lie near those that the release has for them: an assignment of least cost finds most
rows. Right coordinates are an affine function of the records, so a fit to the rows as assigned predicts all of them
better than the scores did, and they are assigned again. In the end nothing is left over but rounding, where the known
records outnumber their features: of all n! orders, that is the right one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from drjax.attacks.matching import assigned
from drjax.attacks.recognition.belief import Candidate, Release
from drjax.attacks.recognition.inputs import prepare
from drjax.attacks.recognition.linear import CHAINS, LinearFamily

RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
"""Weights of the first guess, as shares of the largest variance of a direction, in turn."""

ROUNDS = 5
"""Most assignments for each of them."""

FAR = 4.0
"""Residuals, in units of the median one, that halve a row's weight in a fit."""

EXACT = 1e-6
"""Largest error of a coordinate, as a share of the largest, that is not rounding to decimals: of float32."""

RAISED = 3.0
"""Factor by which an exchange must raise what a hypothesis leaves over at a record, to be ruled out by it."""

CLEAR = 10.0
"""Factor by which an exchange of two rows must raise what is left over to be ruled out."""


ALIKE = 3.0
"""Distance of two rows, in units of what is left over, up to which they are one row to anybody."""

BLIND = 1e-9
"""Share of an exchange that a fit cannot explain, up to which that is rounding."""


class RowOrder(NamedTuple):
    """Rows of a map in the order of the records.

    Attributes:
        rows: (n,) int, the row of the target, then those of the known records in their order.
        open_pairs: (p, 2) int, i < j, records (0 is the target) whose rows might be exchanged as well.
    """

    rows: np.ndarray
    open_pairs: np.ndarray


def find_order(known: np.ndarray, coords: np.ndarray, rounding: float = 0.0) -> RowOrder | None:
    """The order of the rows of a map of PCA or truncated SVD behind steps, or of another linear one near to these.

    Deterministic; O(n^3) for each of up to some hundred assignments.

    Args:
        known: (n-1, d) float64.
        coords: (n, k) float64, rows in any order; columns of any sign, unit and centre.
        rounding: Largest error of a coordinate by rounding, >= 0.

    Returns:
        None where no order is found that could not as well be chance.
    """
    scaled = (coords - coords.mean(axis=0)) / coords.std(axis=0)
    largest = max(EXACT * float(np.abs(coords).max()), 2 * rounding) / coords.std(axis=0)
    for expected, directions in _guesses(known, coords.shape[1]):
        if can_be_checked(len(coords), 1 + directions.n):
            rows = _order(expected, directions, scaled)
            span = np.linalg.qr(np.column_stack([np.ones(len(known)), directions.left]))[0]
            left = scaled[rows[1:]] - span @ (span.T @ scaled[rows[1:]])
            if (np.abs(left) <= largest).all() and _is_no_chance(left, span):
                return RowOrder(rows, _open_pairs(scaled[rows], left, span))
    return None


def still_open(release: Release, candidate: Candidate, family: LinearFamily, pairs: np.ndarray) -> np.ndarray:
    """The pairs (p, 2) of which a hypothesis does not say, either, which record has which row.

    Args:
        release: Map in the order found.
        candidate: Hypothesis that fits it.
        family: Family of the hypothesis.
        pairs: Pairs as of `RowOrder`.
    """
    own = family.row_misfits(release, candidate)
    usual = float(np.median(own))

    def fits(pair: np.ndarray) -> bool:
        coords = release.coords.copy()
        coords[pair] = coords[pair[::-1]]
        at = pair[pair > 0] - 1
        exchanged = family.row_misfits(Release(release.known, coords, release.rounding), candidate)
        return bool(exchanged[at].max() <= RAISED * max(own[at].max(), usual))

    return np.array([pair for pair in pairs if fits(pair)], int).reshape(-1, 2)


def can_be_checked(n: int, n_free: int) -> bool:
    """Whether the known ones of n records outnumber what a linear map of them leaves free, so that orders differ."""
    return n - 1 > n_free


class _Directions(NamedTuple):
    """Singular vectors (n-1, r) and values of records in units of their features."""

    left: np.ndarray
    values: np.ndarray

    @property
    def n(self) -> int:
        return len(self.values)


def _guesses(known: np.ndarray, k: int) -> Iterator[tuple[np.ndarray, _Directions]]:
    """Scores (n-1, k) that the known records have alone, behind steps, and what coordinates are linear in."""
    found: dict[tuple, _Directions] = {}
    for before in CHAINS:
        # Steps on single features keep what is linear.
        single = tuple(step for step in before if step.per_record)
        records, features = prepare(known, before), prepare(known, single)
        if records is None or features is None:
            continue
        if single not in found:
            found[single] = _directions(features)
        for mean in (records.mean(axis=0), 0.0):
            left, values, _ = np.linalg.svd(records - mean, full_matrices=False)
            scores = (left * values)[:, :k]
            spread = scores.std(axis=0)
            if scores.shape[1] == k and (spread > 0).all():
                yield (scores - scores.mean(axis=0)) / spread, found[single]


def _directions(features: np.ndarray) -> _Directions:
    spread = features.std(axis=0)
    centred = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    n = int((values > 1e-9 * values[0]).sum())
    return _Directions(left[:, :n], values[:n])


def _order(expected: np.ndarray, directions: _Directions, released: np.ndarray) -> np.ndarray:
    """Rows (n,) of released (n, k), the target's first, by fits and assignments in turn."""
    rows, signs, _ = assigned(expected, released)
    expected = expected * signs
    features = directions.left * directions.values
    for ridge in RIDGES:
        penalty = ridge * directions.values[0] ** 2 * np.eye(directions.n)
        for _ in range(ROUNDS):
            beyond = released[rows[1:]] - expected
            predicted, weights = expected, np.ones(len(expected))
            for _ in range(3):
                weighted = features * weights[:, None]
                shift = weights @ beyond / weights.sum()
                slopes = np.linalg.solve(weighted.T @ features + penalty, weighted.T @ (beyond - shift))
                predicted = expected + features @ slopes + shift
                gaps = np.linalg.norm(released[rows[1:]] - predicted, axis=1)
                weights = 1 / (1 + (gaps / (FAR * np.median(gaps) + 1e-12)) ** 2)
            before, (rows, _, _) = rows, assigned(predicted, released, (np.ones(released.shape[1]),))
            if np.array_equal(rows, before):
                break
    return rows


def _is_no_chance(left: np.ndarray, span: np.ndarray) -> bool:
    """Whether so little is left over that one of all n! orders would not do so by chance, in an order of no meaning."""
    size = max(float(np.sqrt((left**2).sum() / (left.shape[1] * (len(span) - span.shape[1])))), 1e-12)
    n_equations = (len(span) - span.shape[1]) * left.shape[1]
    return n_equations * -math.log(size) > math.lgamma(len(span) + 2)


def _open_pairs(coords: np.ndarray, left: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Pairs of records whose rows may be exchanged without more than rounding left over, but for rows that are alike.

    Args:
        coords: (n, k), in order, the target's row first.
        left: (n-1, k), what the fit leaves over at the known records.
        span: (n-1, r), orthonormal basis of what it can explain.
    """
    n = len(coords)
    noise = max(float(np.sqrt((left**2).sum() / (len(span) - span.shape[1]))), 1e-12)
    kernel = span @ span.T
    diagonal = 1 - np.diagonal(kernel)
    # Of the exchange of two known records: the norm of what the fit cannot explain of e_i - e_j; with the target: e_j.
    seen = np.zeros((n, n))
    seen[1:, 1:] = diagonal[:, None] + diagonal + 2 * kernel
    seen[0, 1:] = diagonal
    seen = np.where(seen > BLIND, seen, 0)
    gaps = np.linalg.norm(coords[:, None] - coords, axis=2)
    return np.argwhere(np.triu((gaps * np.sqrt(seen) <= CLEAR * noise) & (gaps > ALIKE * noise), 1))

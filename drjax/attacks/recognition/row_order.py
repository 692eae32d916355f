"""The order of the rows of a map whose coordinates are linear in the records behind the right steps.

Scores of the known records alone lie near those that the release has for them: an assignment of least cost finds most
rows. Right coordinates are an affine function of the records, so a fit to the rows as assigned predicts all of them
better than the scores did, and they are assigned again. In the end nothing is left over but rounding, where the known
records outnumber their features: of all n! orders, that is the right one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from drjax.attacks.matching import assigned
from drjax.attacks.recognition.belief import Candidate, Release
from drjax.attacks.recognition.inputs import prepare
from drjax.attacks.recognition.linear import CHAINS, LinearFamily
from drjax.attacks.recognition.linear_span import EXACT, Directions
from drjax.attacks.recognition.linear_span import directions as directions_of
from drjax.core.kernel_regression import squared_distances
from drjax.core.linalg import eigh

RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
"""Weights of the first guess, as shares of the largest variance of a direction, in turn."""

ROUNDS = 5
"""Most assignments for each of them."""

REWEIGHTED, MOST_REWEIGHTED = 3, 40
"""Fits of one assignment, with a ridge and without; rows are weighted by what the fit before left over at them."""

FAR = 4.0
"""Residuals, in units of the median one, that halve a row's weight in a fit."""

ORTHOGONAL = 0.01
"""Cosine of two columns up to which they are orthogonal."""

EXCHANGED = 1e-9
"""Share of what is left over by which an exchange must lower it."""

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
    axes = _axes(coords)
    coords = (coords - coords.mean(axis=0)) @ axes
    spread = coords.std(axis=0)
    scaled, largest = coords / spread, max(EXACT * float(np.abs(coords).max()), 2 * rounding) / spread
    for expected, directions in _guesses(known, coords.shape[1]):
        if directions.is_checked:
            span = directions.span
            rows = _exchanged(_order(expected, directions, scaled), scaled, span)
            left = scaled[rows[1:]] - span @ (span.T @ scaled[rows[1:]])
            if (np.abs(left) <= largest).all() and _is_no_chance(left, span):
                return RowOrder(rows, _open_pairs(scaled[rows], left, span))
    return None


def settled(release: Release, candidate: Candidate, family: LinearFamily, order: RowOrder) -> RowOrder:
    """The order after its open pairs were looked at under a hypothesis: which record has which row, where it says so.

    Args:
        release: The map, in the order found.
        candidate: Hypothesis that fits it.
        family: Family of the hypothesis.
        order: The order.
    """
    at, left_open = np.arange(len(order.rows)), []
    for pair in order.open_pairs:
        kept, exchanged = at, at.copy()
        exchanged[pair] = at[pair[::-1]]
        left = [
            family.row_misfits(dataclasses.replace(release, coords=release.coords[one]), candidate)
            for one in (kept, exchanged)
        ]
        own, other = (max(float(each[pair[pair > 0] - 1].max()), float(np.median(each))) for each in left)
        if other * RAISED <= own:
            at = exchanged
        elif other < own * RAISED:
            left_open.append(pair)
    return RowOrder(order.rows[at], np.array(left_open, int).reshape(-1, 2))


def _guesses(known: np.ndarray, k: int) -> Iterator[tuple[np.ndarray, Directions]]:
    """Scores (n-1, k) that the known records have alone, behind steps, and what coordinates are linear in."""
    found: dict[tuple, Directions] = {}
    for before in CHAINS:
        # Steps on single features keep what is linear.
        single = tuple(step for step in before if step.per_record)
        records, features = prepare(known, before), prepare(known, single)
        if records is None or features is None:
            continue
        if single not in found:
            found[single] = directions_of(features)
        for mean in (records.mean(axis=0), 0.0):
            left, values, _ = np.linalg.svd(records - mean, full_matrices=False)
            scores = (left * values)[:, :k]
            scores = (scores - scores.mean(axis=0)) @ _axes(scores)
            spread = scores.std(axis=0)
            if scores.shape[1] == k and (spread > 0).all():
                yield scores / spread, found[single]


def _axes(coords: np.ndarray) -> np.ndarray:
    """Principal axes (k, k) of coordinates, as columns; the axes they have where these are such to a hundredth.

    Scores have such axes, but for those of records that are not centred and those that were turned. Whitened ones have
    no others.
    """
    centred = coords - coords.mean(axis=0)
    products = centred.T @ centred
    size = np.sqrt(np.diagonal(products))
    if np.abs(products / np.outer(size, size) - np.eye(len(size))).max() <= ORTHOGONAL:
        return np.eye(len(size))
    return eigh(products)[1][:, ::-1]


def _order(expected: np.ndarray, directions: Directions, released: np.ndarray) -> np.ndarray:
    """Rows (n,) of released (n, k), the target's first, by fits and assignments in turn."""
    rows, signs, _ = assigned(expected, released)
    expected, as_they_are = expected * signs, (np.ones(released.shape[1]),)
    for ridge in (*RIDGES, 0.0):
        for _ in range(ROUNDS):
            predicted = expected + _fitted(directions, released[rows[1:]] - expected, ridge)
            before, (rows, _, _) = rows, assigned(predicted, released, as_they_are)
            if np.array_equal(rows, before):
                break
    return rows


def _fitted(directions: Directions, values: np.ndarray, ridge: float) -> np.ndarray:
    """Values (n-1, k) as an affine function of the records that rows assigned wrong hardly move.

    Without a ridge the sum of distances is least: of few wrong rows nothing is left in the fit.
    """
    terms = np.column_stack([directions.left * directions.values, np.ones(len(values))])
    penalty = max(ridge, 1e-12) * directions.values[0] ** 2 * np.eye(len(directions.values) + 1)
    penalty[-1, -1] = 0
    fitted, weights = values, np.ones(len(values))
    for _ in range(REWEIGHTED if ridge else MOST_REWEIGHTED):
        weighted = terms * weights[:, None]
        fitted = terms @ np.linalg.solve(weighted.T @ terms + penalty, weighted.T @ values)
        gaps = np.linalg.norm(values - fitted, axis=1)
        usual = np.median(gaps) + 1e-12
        weights = 1 / (1 + (gaps / (FAR * usual)) ** 2) if ridge else usual / (gaps + 1e-9)
    return fitted


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
    noise = max(float(np.sqrt((left**2).sum() / (len(span) - span.shape[1]))), 1e-12)
    gaps = np.linalg.norm(coords[:, None] - coords, axis=2)
    is_open = (gaps * np.sqrt(_seen(span)) <= CLEAR * noise) & (gaps > ALIKE * noise)
    return np.argwhere(np.triu(is_open, 1))


def _seen(span: np.ndarray) -> np.ndarray:
    """Part (n, n) of an exchange of two rows that no linear map explains, as a square: of e_i - e_j, or e_j if i is 0.

    Args:
        span: (n-1, r), orthonormal basis of what such maps can do at the known records.
    """
    kernel = span @ span.T
    diagonal = 1 - np.diagonal(kernel)
    seen = np.zeros((len(span) + 1, len(span) + 1))
    seen[1:, 1:] = diagonal[:, None] + diagonal + 2 * kernel
    seen[0, 1:] = seen[1:, 0] = diagonal
    return np.where(seen > BLIND, seen, 0)


def _exchanged(rows: np.ndarray, released: np.ndarray, span: np.ndarray) -> np.ndarray:
    """The order (n,) after those exchanges of two rows that leave less over, the best first."""
    seen = _seen(span)
    for _ in range(len(rows)):
        coords = released[rows]
        left = coords[1:] - span @ (span.T @ coords[1:])
        left = np.concatenate([np.zeros((1, left.shape[1])), left])
        # Of coords + (e_i - e_j)(coords_j - coords_i)', the target's row being left out of the sum of squares.
        products = left @ coords.T
        own = np.diagonal(products)
        along, squares = products + products.T - own[:, None] - own, squared_distances(coords)
        i, j = np.unravel_index(int(np.argmin(2 * along + seen * squares)), seen.shape)
        move = coords[j] - coords[i]
        # The products are of large numbers, next to what is left over in the end.
        change = 2 * ((left[i] - left[j]) * move).sum() + seen[i, j] * (move**2).sum()
        if change >= -EXCHANGED * (left**2).sum() or (left**2).sum() < EXCHANGED:
            break
        rows = rows.copy()
        rows[[i, j]] = rows[[j, i]]
    return rows

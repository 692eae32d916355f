"""What the known records leave over of published scores: whether it lies in one row, or follows a curve."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from scipy import stats

from drjax.attacks.reconstruction.closed_form.components import FEW, Measured, Scores
from drjax.core.streamed import ACCURATE, EPS, Matrix, Product

ENTRIES = 2**19
"""Entries of scores that are held against curves together."""

READ_ENTRIES = 2**22
"""Entries of scores that are looked at together for one row that is odd."""

Others = Callable[[np.ndarray], np.ndarray]
"""Gives the scores (l, n-1, k) of the known records in some releases, by their numbers (l,)."""

LOUD = 3
"""Noise beyond the span, in units of what the caller or the digits tell, up to which nobody looks for a curve."""

CHANCE = 1e-12
"""Probability that white noise is taken for a curve."""

OUTLIER = 4
"""Standard deviations, by the median, at which a remainder is cut off: a few rows make no curve."""

MEDIAN_OF_SIZE = 0.6745
"""Median of the size of a standard normal variable."""


def odd_row(found: Measured, scores: Scores, others: Others, left: Matrix, singular: np.ndarray) -> np.ndarray:
    """(m,) bool: where PCA of the found record and the known ones fits the scores but for those of one known record.

    Args:
        found: In the span of the known records.
        scores: Sums over m releases.
        others: Gives the scores of the known records.
        left: (n-1, r) and singular: (r,), of the centred known records.
    """
    is_odd = (found.level > 10 * np.maximum(scores.floor, _rounded(scores, left))) & (len(left) > 7)
    for some in _parts(is_odd, len(left), READ_ENTRIES):
        amiss = _amiss(found, scores, some, others(some), left, singular)
        squares = (amiss**2).sum(axis=2)
        size = np.sqrt(squares.mean(axis=1) / amiss.shape[2])
        is_one = squares.max(axis=1) > 0.5 * squares.sum(axis=1)
        is_odd[some] = is_one & (size > 0.1 * found.level[some])
    return is_odd


def bent(found: Measured, scores: Scores, others: Others, left: Matrix) -> np.ndarray:
    """(m,) bool: where the known records' scores follow a curve in the known records; arguments as of `odd_row`."""
    is_bent = exceeds(found, np.maximum(scores.floor, _rounded(scores, left)))
    for some in _parts(is_bent, len(left), ENTRIES):
        fitted, own = explained(left, scores.along[some]), others(some)
        centred = own - own.mean(axis=1, keepdims=True) if scores.weight < 1 else own
        is_bent[some] = _follow_curves(fitted, centred - fitted, left)
    return is_bent


def _rounded(scores: Scores, left: Matrix) -> np.ndarray:
    """(m,), what a score is off by where directions come from sums over blocks of records; 0 where they do not.

    Products with such directions are orthogonal up to the precision that a pass finds them with.
    """
    size = np.sqrt(scores.eigenvalue.max(axis=1) / len(left))
    return size * (EPS / ACCURATE if isinstance(left, Product) else 0.0)


def _parts(which: np.ndarray, n: int, entries: int) -> list[np.ndarray]:
    """The releases (m,) bool of n records in parts of about so many scores of a component."""
    lanes = np.flatnonzero(which)
    return np.array_split(lanes, -(-len(lanes) * n // entries)) if len(lanes) else []


def _amiss(
    found: Measured, scores: Scores, some: np.ndarray, others: np.ndarray, left: Matrix, singular: np.ndarray
) -> np.ndarray:
    """(l, n-1, k), what the known records' scores in some releases (l,) differ by from those of PCA."""
    along = scores.along[some]
    if len(left) - 1 - len(singular) >= FEW:
        # What no record explains is enough to tell.
        centred = others - others.mean(axis=1, keepdims=True) if scores.weight < 1 else others
        return centred - explained(left, along)
    z, outside = (found.share * found.z)[some], np.nan_to_num(found.outside)[some]
    target, eigenvalue = scores.target[some], scores.eigenvalue[some]
    eigenvalue = np.where(eigenvalue > 0, eigenvalue, 1.0)
    v = (singular * along + target[..., None] * z[:, None]) / eigenvalue[..., None]
    across = target * outside[:, None] / eigenvalue
    own = np.einsum("mkr,mr->mk", v, z) + across * outside[:, None]
    return explained(left, singular * v) - own[:, None] * (1 - scores.weight) - others


def explained(left: Matrix, along: np.ndarray) -> np.ndarray:
    """(m, n, k) sums of columns left (n, r) by coefficients (m, k, r), as one product of matrices."""
    m, k, r = along.shape
    return (left @ along.reshape(m * k, r).T).reshape(len(left), m, k).transpose(1, 0, 2)


def exceeds(found: Measured, floor: np.ndarray) -> np.ndarray:
    """(m,) bool: where the scores are off the span of the known records by more than noise of deviation `floor`."""
    return found.levels.get("span", np.zeros_like(floor)) > LOUD * floor


def follows_curve(fitted: np.ndarray, rest: np.ndarray, left: Matrix) -> bool:
    """Whether the rest (n, k) of scores is a function, of degree 2 or 3, of what is linear in them (n, k).

    By F tests, one for each component, on what lies beyond the records' own columns left (n, r). White noise is no such
    function, and neither are the errors of a solver, which leave no rest.
    """
    return bool(_follow_curves(fitted[None], rest[None], left)[0])


def n_curves(k: int) -> int:
    """Number of curves that scores on k components are held against."""
    return k * (k + 1) // 2 + k


def _follow_curves(fitted: np.ndarray, rest: np.ndarray, left: Matrix) -> np.ndarray:
    """(m,) bool as `follows_curve` of m releases, fitted and rest (m, n, k); no release has a part in another's."""
    m, n, _ = fitted.shape
    size = np.abs(fitted).max(axis=1, keepdims=True)
    unit = (fitted / np.where(size > 0, size, 1)).transpose(2, 0, 1)
    pairs = itertools.combinations_with_replacement(unit, 2)
    flat = np.array([a * b for a, b in pairs] + list(unit**3)).reshape(-1, n).T
    flat -= flat.mean(axis=0)
    # Of all releases at once: the columns of many records are read from memory once.
    flat -= left @ (left.T @ flat)
    across = flat.reshape(n, -1, m).transpose(0, 2, 1)
    return np.array([_is_explained(rest[lane], across[:, lane], left.shape[1]) for lane in range(m)])


def _is_explained(rest: np.ndarray, curves: np.ndarray, rank: int) -> bool:
    """Whether curves (n, c) beyond the records' own columns, of that rank, explain a rest (n, k)."""
    basis, weight, _ = np.linalg.svd(curves, full_matrices=False)
    basis = basis[:, weight > 1e-6]
    q, free = basis.shape[1], len(rest) - 1 - rank - basis.shape[1]
    if not q or free < FEW:
        return False
    deviation = np.median(np.abs(rest), axis=0) / MEDIAN_OF_SIZE
    cut = np.clip(rest, -OUTLIER * deviation, OUTLIER * deviation)
    found, total = ((basis.T @ cut) ** 2).sum(axis=0), (cut**2).sum(axis=0)
    ratio = found / q / np.maximum((total - found) / free, np.finfo(np.float64).tiny)
    return bool(stats.f.sf(ratio, q, free).min() * rest.shape[1] < CHANCE)

"""What the known records leave over of published scores: whether it lies in one row, or follows a curve."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import stats

from drjax.attacks.reconstruction.closed_form.components import FEW, Measured, Scores

LOUD = 3
"""Noise beyond the span, in units of what the caller or the digits tell, up to which nobody looks for a curve."""

CHANCE = 1e-12
"""Probability that white noise is taken for a curve."""

OUTLIER = 4
"""Standard deviations, by the median, at which a remainder is cut off: a few rows make no curve."""

MEDIAN_OF_SIZE = 0.6745
"""Median of the size of a standard normal variable."""


def odd_row(found: Measured, scores: Scores, others: np.ndarray, left: np.ndarray, singular: np.ndarray) -> np.ndarray:
    """(m,) bool: where PCA of the found record and the known ones fits the scores but for those of one known record.

    Args:
        found: In the span of the known records.
        scores: Sums over m releases.
        others: (m, n-1, k), scores of the known records.
        left: (n-1, r) and singular: (r,), of the centred known records.
    """
    n, r = others.shape[1] + 1, len(singular)
    if n - 2 - r >= FEW:
        # What no record explains is enough to tell.
        centred = others - others.mean(axis=1, keepdims=True) if scores.weight < 1 else others
        amiss = centred - np.einsum("nr,mkr->mnk", left, scores.along)
    else:
        z, outside = found.share * found.z, np.nan_to_num(found.outside)
        eigenvalue = np.where(scores.eigenvalue > 0, scores.eigenvalue, 1.0)
        v = (singular * scores.along + scores.target[..., None] * z[:, None]) / eigenvalue[..., None]
        across = scores.target * outside[:, None] / eigenvalue
        own = np.einsum("mkr,mr->mk", v, z) + across * outside[:, None]
        amiss = np.einsum("nr,mkr->mnk", left * singular, v) - own[:, None] * (1 - scores.weight) - others
    squares = (amiss**2).sum(axis=2)
    size = np.sqrt(squares.mean(axis=1) / others.shape[2])
    is_one = squares.max(axis=1) > 0.5 * squares.sum(axis=1)
    return is_one & (found.level > 10 * scores.floor) & (size > 0.1 * found.level) & (n > 8)


def bent(found: Measured, scores: Scores, others: np.ndarray, left: np.ndarray) -> np.ndarray:
    """(m,) bool: where the known records' scores follow a curve in the known records; arguments as of `odd_row`."""
    is_bent = exceeds(found, scores.floor)
    for lane in np.flatnonzero(is_bent):
        fitted = left @ scores.along[lane].T
        centred = others[lane] - others[lane].mean(axis=0) if scores.weight < 1 else others[lane]
        is_bent[lane] = follows_curve(fitted, centred - fitted, left)
    return is_bent


def exceeds(found: Measured, floor: np.ndarray) -> np.ndarray:
    """(m,) bool: where the scores are off the span of the known records by more than noise of deviation `floor`."""
    return found.levels.get("span", np.zeros_like(floor)) > LOUD * floor


def follows_curve(fitted: np.ndarray, rest: np.ndarray, left: np.ndarray) -> bool:
    """Whether the rest (n, k) of scores is a function, of degree 2 or 3, of what is linear in them (n, k).

    By F tests, one for each component, on what lies beyond the records' own columns left (n, r). White noise is no such
    function, and neither are the errors of a solver, which leave no rest.
    """
    size = np.abs(fitted).max(axis=0)
    unit = fitted / np.where(size > 0, size, 1)
    pairs = itertools.combinations_with_replacement(unit.T, 2)
    curves = np.array([a * b for a, b in pairs] + list(unit.T**3)).T
    curves -= curves.mean(axis=0)
    basis, weight, _ = np.linalg.svd(curves - left @ (left.T @ curves), full_matrices=False)
    basis = basis[:, weight > 1e-6]
    q, free = basis.shape[1], len(rest) - 1 - left.shape[1] - basis.shape[1]
    if not q or free < FEW:
        return False
    deviation = np.median(np.abs(rest), axis=0) / MEDIAN_OF_SIZE
    cut = np.clip(rest, -OUTLIER * deviation, OUTLIER * deviation)
    explained, total = ((basis.T @ cut) ** 2).sum(axis=0), (cut**2).sum(axis=0)
    ratio = explained / q / np.maximum((total - explained) / free, np.finfo(np.float64).tiny)
    return bool(stats.f.sf(ratio, q, free).min() * rest.shape[1] < CHANCE)

"""Which row of a shuffled release belongs to which known record.

One record hardly moves the components of many: the known records' own principal component scores lie near those that
the release has for them, and the assignment of least cost finds the rows again. The row that is left is the target's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.core import validate
from drjax.core.types import Array, DRMethod
from drjax.dr import publishes_scores

MAX_SIGNS = 3
"""Up to so many components every combination of signs is tried; of more, each sign by itself."""

ROUNDS = 3
"""Most assignments beside the first: each after the scores that the target found so far would give all records."""


def can_match(method: DRMethod) -> bool:
    """Whether rows of shuffled releases of a method can be matched."""
    return publishes_scores(method)


def match_rows(known: Array, coords: Array) -> np.ndarray:
    """The order that puts a shuffled release of PCA or classical MDS into that of [target; known].

    Every round reconstructs the target from the rows as matched so far, computes the scores that [target; known] would
    have, and assigns again; it stops when the cost no longer falls. Deterministic. O(n^3) per assignment at worst and
    one singular value decomposition per round.

    Args:
        known: (n-1, d), n >= 4.
        coords: (n, k) scores in any order, their signs unknown, too.

    Returns:
        (n,) rows of coords: first the one taken for the target's, then those taken for the known records in order.

    Raises:
        ValueError: arrays not finite or of shapes that do not match.

    Source: Kuhn (1955), the assignment problem; SciPy's solver.
    """
    known = validate.matrix(known, "known", min_rows=3).astype(np.float64)
    released = validate.matrix(coords, "coords").astype(np.float64)
    if len(released) != len(known) + 1:
        raise ValueError(f"coords must have {len(known) + 1} rows for {len(known)} known records, got {len(released)}")
    k = released.shape[1]
    order, _, cost = assigned(_scores(known, k), released)
    for _ in range(ROUNDS):
        found = reconstruct_pca(known, released[order])
        if found.status != 0:
            break
        expected = _scores(np.vstack([found.x, known]), k)
        new, _, new_cost = assigned(expected[1:], released)
        if not new_cost < cost:
            break
        order, cost = new, new_cost
    return order


def _scores(x: np.ndarray, k: int) -> np.ndarray:
    left, singular, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    scores = np.zeros((len(x), k))
    scores[:, : len(singular)] = (left * singular)[:, :k]
    return scores


def assigned(
    expected: np.ndarray, released: np.ndarray, signs: Sequence[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """The assignment of least cost, over the signs of columns that fit best.

    Args:
        expected: (n-1, k), what known records' coordinates should be.
        released: (n, k), in any order.
        signs: Vectors (k,) of signs of released to try; None for all, or if k > `MAX_SIGNS` the likely ones.

    Returns:
        (n,) rows of released, the one that is left first; the signs (k,); the sum of squares.
    """
    best: tuple[np.ndarray, np.ndarray, float] = (np.arange(len(released)), np.ones(released.shape[1]), np.inf)
    for one in _signs(expected, released) if signs is None else signs:
        squared = cdist(expected, released * one, "sqeuclidean")
        _, column = linear_sum_assignment(squared)
        cost = float(squared[np.arange(len(column)), column].sum())
        if cost < best[2]:
            left = np.setdiff1d(np.arange(len(released)), column)
            best = np.concatenate([left, column]), one, cost
    return best


def _signs(expected: np.ndarray, released: np.ndarray) -> list[np.ndarray]:
    k = expected.shape[1]
    if k <= MAX_SIGNS:
        return [np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=k)]
    at = np.linspace(0, 1, 200)
    of_known, ours, mirrored = (np.quantile(scores, at, axis=0) for scores in (expected, released, -released))
    keeps = ((of_known - ours) ** 2).sum(axis=0) <= ((of_known - mirrored) ** 2).sum(axis=0)
    return [np.where(keeps, 1.0, -1.0)]

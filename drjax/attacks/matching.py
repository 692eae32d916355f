"""Which row of a shuffled release belongs to which known record.

One record hardly moves the components of many: the known records' own principal component scores lie near those that
the release has for them, and the assignment of least cost finds the rows again. The row that is left is the target's.
"""

from __future__ import annotations

import itertools

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
    order, cost = _assigned(_scores(known, k), released)
    for _ in range(ROUNDS):
        found = reconstruct_pca(known, released[order])
        if found.status != 0:
            break
        expected = _scores(np.vstack([found.x, known]), k)
        new, new_cost = _assigned(expected[1:], released)
        if not new_cost < cost:
            break
        order, cost = new, new_cost
    return order


def _scores(x: np.ndarray, k: int) -> np.ndarray:
    left, singular, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    scores = np.zeros((len(x), k))
    scores[:, : len(singular)] = (left * singular)[:, :k]
    return scores


def _assigned(expected: np.ndarray, released: np.ndarray) -> tuple[np.ndarray, float]:
    """The order and its sum of squares, over the signs that fit best; expected (n-1, k), released (n, k)."""
    best: tuple[np.ndarray, float] = (np.arange(len(released)), np.inf)
    for signs in _signs(expected, released):
        squared = cdist(expected, released * signs, "sqeuclidean")
        _, column = linear_sum_assignment(squared)
        cost = float(squared[np.arange(len(column)), column].sum())
        if cost < best[1]:
            left = np.setdiff1d(np.arange(len(released)), column)
            best = np.concatenate([left, column]), cost
    return best


def _signs(expected: np.ndarray, released: np.ndarray) -> list[np.ndarray]:
    k = expected.shape[1]
    if k <= MAX_SIGNS:
        return [np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=k)]
    at = np.linspace(0, 1, 200)
    of_known, ours, mirrored = (np.quantile(scores, at, axis=0) for scores in (expected, released, -released))
    keeps = ((of_known - ours) ** 2).sum(axis=0) <= ((of_known - mirrored) ** 2).sum(axis=0)
    return [np.where(keeps, 1.0, -1.0)]

"""Every record of one sparse random projection in turn as the unknown one: the matrix is recovered once.

A column that all n rows determine satisfies the equations of any n-1 of them. Where those alone admit no other vector
of the alphabet (the certificate of `recover_matrix`), the adversary without the row finds the same column, and it
need not be searched for again. Where they do not, the search is made without the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.closed_form.srp import (
    RecoveredMatrix,
    distinct_columns,
    isotropic_prior,
    reconstruct_srp,
    recover_matrix,
    rounding_precision,
)
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core import validate
from drjax.core.types import Array, Reconstruction

Expectation = Literal["isotropic", "known"]
EXPECTATIONS: tuple[Expectation, ...] = ("isotropic", "known")
"""isotropic: nothing is expected beyond the known records' mean; known: a Gaussian fitted on the known records."""


def reconstruct_srp_each(
    x: Array,
    coords: Array,
    *,
    rows: Sequence[int] | Array | None = None,
    expectation: Expectation = "known",
    density: float | None = None,
    precision: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> Reconstruction:
    """Reconstructs each record from the published projection of all and the other n-1 records.

    What `reconstruct_srp` does for an adversary who knows all rows but one, with its default prior ("isotropic") or
    with `GaussianPrior.fit` of the known rows ("known"). Where its search for a column ends without success although
    the known rows determine the column, this one has it all the same, as an adversary who searches longer.

    Cost: one recovery, O(n d) per record to check the certificate and O(n d^2) more for "known"; where it does not
    hold, a recovery per record.

    Args:
        x: (n, d), all records in the order of the release, n >= 3.
        coords: (n, k), one release.
        rows: The records to reconstruct; all if None.
        expectation: What the adversary expects of a record, one of `EXPECTATIONS`.
        density: Density of the matrix, as for `reconstruct_srp`.
        precision: Precision, as for `reconstruct_srp`.
        bounds: (low, high) that the entries of a record are clipped to.

    Returns:
        Reconstruction as of `reconstruct_srp`, one release for each of `rows`, in their order.

    Raises:
        ValueError: Shapes that do not fit, arrays not finite, or an argument out of range.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_srp_each
        >>> x = np.random.default_rng(0).random((60, 16))
        >>> found = reconstruct_srp_each(x, drjax.embed(x, method="srp", n_components=4))
        >>> bool(((found.x - x) ** 2).mean() < ((x - x.mean(axis=0)) ** 2).mean())  # nearer than the mean record
        True
    """
    x = validate.matrix(x, "x", min_rows=3).astype(np.float64)
    scores = validate.matrix(coords, "coords").astype(np.float64)
    if len(scores) != len(x):
        raise ValueError(f"coords must have {len(x)} rows, one for each record, got {len(scores)}")
    chosen = checked_rows(rows, len(x))
    validate.one_of(EXPECTATIONS, expectation=expectation)
    k = scores.shape[1]
    everything = recover_matrix(x, scores, n_components=k, density=density, precision=precision)
    error = rounding_precision(precision, scores)
    singular = np.linalg.svd(x, compute_uv=False)
    # Leaving a row out lowers no singular value below the next smaller one.
    rank = int((singular > max(10 * error * math.sqrt(k), 1e-12 * singular[0])).sum()) - 1
    found, status = np.empty((len(chosen), x.shape[1])), np.empty(len(chosen), np.uint32)
    for lane, row in enumerate(chosen):
        known = np.delete(x, row, axis=0)
        prior = GaussianPrior.fit(known) if expectation == "known" else isotropic_prior(known)
        known_scores = np.delete(scores, row, axis=0)
        matrix = _certified(everything, known, known_scores, rank, rounding_precision(precision, known_scores))
        one = reconstruct_srp(
            known,
            scores,
            target_index=row,
            prior=prior,
            density=density,
            precision=precision,
            bounds=bounds,
            recovered=matrix,
        )
        found[lane], status[lane] = one.x, one.status
    return Reconstruction(found, None, found[:, None], np.full(len(chosen), np.nan), status)


def _certified(
    everything: RecoveredMatrix, known: np.ndarray, scores: np.ndarray, rank: int, error: float
) -> RecoveredMatrix | None:
    """The matrix as the known rows alone determine it; None if they leave a column open.

    Args:
        everything: Recovered from all rows.
        known: (n-1, d).
        scores: (n-1, k).
        rank: Rank of the matrix, at most that of the known rows.
        error: Largest error of a score.
    """
    if not everything.is_exact.all():
        return None
    largest = float(np.abs(everything.matrix).max())
    distinct = distinct_columns(known, 2 * error / largest) if largest > 0 else np.zeros((known.shape[1], 0))
    matrix = distinct @ (distinct.T @ everything.matrix)
    is_sparse = 2 * np.count_nonzero(np.abs(matrix) > 1e-9 * largest, axis=0) <= rank
    fits = np.abs(known @ matrix - scores).max(axis=0) <= error
    if not (fits & (is_sparse | (rank >= distinct.shape[1]))).all():
        return None
    return RecoveredMatrix(matrix, np.ones(matrix.shape[1], bool), (distinct, distinct))

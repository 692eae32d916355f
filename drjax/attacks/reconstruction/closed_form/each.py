"""Every record of one published PCA in turn as the unknown one, from one decomposition of all records.

For each record this is `reconstruct_pca` of an adversary who knows the other n-1 and no more: nothing of the record
enters its own reconstruction but its row of the release. What is shared is work, see `downdate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, LeftOut, decompose, leave_out
from drjax.attacks.reconstruction.closed_form.pca import check_coords, detect_noise, inside_span
from drjax.attacks.reconstruction.priors import MAX_ITER, TOLERANCE
from drjax.core import validate
from drjax.core.types import Array, Reconstruction, Status

Expectation = Literal["isotropic", "known"]
EXPECTATIONS: tuple[Expectation, ...] = ("isotropic", "known")
"""isotropic: nothing is expected beyond the known records' mean; known: a Gaussian fitted on the known records."""


def reconstruct_pca_each(
    x: Array,
    coords: Array,
    *,
    rows: Sequence[int] | Array | None = None,
    expectation: Expectation = "known",
    bounds: tuple[float, float] | None = None,
    noise: float | None = None,
) -> Reconstruction:
    """Reconstructs each record from the published PCA scores of all and the other n-1 records.

    Agrees up to rounding with `reconstruct_pca(np.delete(x, i, 0), coords, target_index=i)` for every row i, without
    a prior ("isotropic") or with `GaussianPrior.fit(np.delete(x, i, 0))` ("known"): there are no public data. Host,
    float64; one SVD of all records, O(n d min(n, d)), then O(r^2 + r d) per record of rank r, and O(r d) more for each
    step that fits a record which leaves the bounds into them.

    Args:
        x: (n, d), all records in the order of the release, n >= 3.
        coords: (n, k) scores of the release.
        rows: The records to reconstruct; all if None.
        expectation: What the adversary expects of a record, one of `EXPECTATIONS`.
        bounds: Least and greatest possible value of every feature.
        noise: Standard deviation of the error in the coordinates; estimated if None.

    Returns:
        As of `reconstruct_pca` for as many releases as there are rows: x (m, d), in the order of `rows`. A record
        whose others are all equal is DEGENERATE, too.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, or a row, bounds or noise out of range.

    Source: `downdate`; Ledoit & Wolf (2004) for the shrinkage of the Gaussian.
    """
    x = validate.matrix(x, "x", min_rows=3).astype(np.float64)
    given = np.asarray(coords)
    if given.ndim != 2:
        raise ValueError(f"coords must have shape ({len(x)}, k), one release of all records, got {given.shape}")
    scores = check_coords(given, len(x))[0]
    chosen = checked_rows(rows, len(x))
    validate.one_of(EXPECTATIONS, expectation=expectation)
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (least, greatest), got {bounds}")
    if noise is not None:
        validate.non_negative(noise=noise)
    level = detect_noise(given) if noise is None else noise

    everything = decompose(x)
    shrinkage = _Shrinkage.of(everything)
    projected, squares = everything.left.T @ scores, (scores**2).sum(axis=0)
    found = np.empty((len(chosen), x.shape[1]))
    residual, status = np.empty(len(chosen)), np.empty(len(chosen), np.uint32)
    for lane, row in enumerate(chosen):
        mean = everything.mean - (x[row] - everything.mean) / (len(x) - 1)
        others = leave_out(everything, row) if everything.basis.size else None
        if others is None or not len(others.singular):
            # The other records are all equal, and tell nothing of the components.
            found[lane], residual[lane], status[lane] = mean, np.nan, np.uint32(Status.DEGENERATE)
            continue
        along = _along(everything, others, projected, scores, row)
        z, variance, length, longest, flag = inside_span(
            scores[None, row], squares[None], along[None], others.singular, len(x), level
        )
        expected = _Expected(np.ones(len(others.singular)), 1.0, None)
        if expectation == "known":
            inside, outside = shrinkage.variances(row, others.singular)
            expected = _Expected(inside, outside, longest[0])
        residual[lane], status[lane] = length[0], flag[0]
        found[lane] = mean if flag[0] else _most_probable(mean, z[0], variance[0], everything, others, expected, bounds)
    return Reconstruction(found, None, found[:, None], residual, status)


def checked_rows(rows: Sequence[int] | Array | None, n: int) -> np.ndarray:
    """Row numbers in [0, n), all of them for None.

    Raises:
        ValueError: none at all, or one that is no row.
    """
    if rows is None:
        return np.arange(n)
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
        raise ValueError(f"rows must be a sequence of row numbers, got {rows!r}")
    bad = chosen[(chosen < 0) | (chosen >= n)]
    if len(bad):
        raise ValueError(f"rows must be in 0 to {n - 1}, got {bad[0]}")
    return chosen.astype(np.int64)


def _along(
    everything: Decomposition, others: LeftOut, projected: np.ndarray, scores: np.ndarray, row: int
) -> np.ndarray:
    """(k, R): U^T K_c v of every component, from the scores; the left-out row's has no part in it.

    A left vector of the other records is orthogonal to e_row - 1/n, so its product with all scores is that with
    theirs.
    """
    inside = others.left[:-1].T @ projected
    # What scores say beyond the span of all records: 0 for those of an exact solver.
    beyond = scores[row] - scores.mean(axis=0) - everything.left[row] @ projected
    return (inside + others.left[-1][:, None] * (beyond / max(others.beyond, np.finfo(np.float64).tiny))).T


class _Expected(NamedTuple):
    """What is expected of a record: its variance along each known direction (R,) and across them (), about the mean.

    `longest` is the most that it may lie across them, None where the prior leaves that at 0.
    """

    inside: np.ndarray
    outside: float
    longest: float | None


def _most_probable(
    mean: np.ndarray,
    z: np.ndarray,
    variance: np.ndarray,
    everything: Decomposition,
    others: LeftOut,
    expected: _Expected,
    bounds: tuple[float, float] | None,
) -> np.ndarray:
    """The record (d,) of largest posterior density, within the bounds if there are any."""
    gain = expected.inside / (expected.inside + variance)
    x = mean + (others.right @ (gain * z)) @ everything.basis
    if bounds is None:
        return x
    boxed = np.clip(x, *bounds)
    if np.sqrt(np.mean((x - boxed) ** 2)) > TOLERANCE:
        basis = others.right.T @ everything.basis
        boxed = _truncated(x, boxed, basis, expected.inside * variance / (expected.inside + variance), expected, bounds)
        if expected.longest is not None:
            outside = boxed - mean - ((boxed - mean) @ basis.T) @ basis
            excess = 1 - min(expected.longest / max(np.linalg.norm(outside), np.finfo(np.float64).tiny), 1)
            boxed = np.clip(boxed - excess * outside, *bounds)
    return boxed


def _truncated(
    x: np.ndarray,
    boxed: np.ndarray,
    basis: np.ndarray,
    inside: np.ndarray,
    expected: _Expected,
    bounds: tuple[float, float],
) -> np.ndarray:
    """`GaussianPrior.condition` within bounds for a covariance that the basis (R, d) diagonalises."""
    d = len(x)
    spread = (inside.sum() + expected.outside * (d - len(inside))) / d
    if spread <= 0:
        return boxed
    penalty = 20 / spread
    across = expected.outside / (expected.outside + 1 / penalty)
    difference = inside / (inside + 1 / penalty) - across
    dual = np.zeros(d)
    for _ in range(MAX_ITER):
        step = boxed - dual - x
        relaxed = 1.7 * (x + across * step + (difference * (basis @ step)) @ basis) - 0.7 * boxed
        new = np.clip(relaxed + dual, *bounds)
        dual += relaxed - new
        moved = np.sqrt(np.mean((new - boxed) ** 2))
        boxed = new
        if moved <= TOLERANCE:
            break
    return boxed


class _Shrinkage(NamedTuple):
    """What the Ledoit-Wolf shrinkage of every set of n-1 records needs of all n.

    Attributes:
        norms: (n,), squared norms q_j of the centred records b_j.
        quadratic: (n,), b_i . S b_i with S the scatter of all centred records.
        first: (n,), b_i . sum_j q_j b_j.
        d: Features.
    """

    norms: np.ndarray
    quadratic: np.ndarray
    first: np.ndarray
    d: int

    @classmethod
    def of(cls, everything: Decomposition) -> _Shrinkage:
        scaled = everything.left * everything.singular
        norms = (scaled**2).sum(axis=1)
        quadratic = ((scaled * everything.singular) ** 2).sum(axis=1)
        return cls(norms, quadratic, scaled @ (norms @ scaled), everything.basis.shape[1])

    def variances(self, row: int, singular: np.ndarray) -> tuple[np.ndarray, float]:
        """Variances of the Gaussian fitted on the other records, along their R directions and across them."""
        n, d = len(self.norms) - 1, self.d
        squares = singular**2
        mu = squares.sum() / n / d
        if d == 1:
            return squares / n, mu
        own = self.norms[row]
        # The fourth powers of |b_j + b_i / n|, over all j but i; sum_j b_j = 0.
        lengths = self.norms + own / n**2
        fourth = (lengths**2).sum() + 4 / n * self.first[row] + 4 / n**2 * self.quadratic[row]
        fourth -= (own * (1 + 1 / n) ** 2) ** 2
        spread = (squares**2).sum() / n**2
        distance = (spread - d * mu**2) / d
        error = min((fourth / n - spread) / (d * n), distance)
        weight = error / distance if error > 0 else 0.0
        return (1 - weight) * squares / n + weight * mu, weight * mu

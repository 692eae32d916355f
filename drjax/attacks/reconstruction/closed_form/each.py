"""Every record of one published PCA in turn as the unknown one, from one decomposition of all records.

For each record this is `reconstruct_pca` of an adversary who knows the other n-1 and no more: nothing of the record
enters its own reconstruction but its row of the release. What is shared is work, see `downdate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drjax.attacks.reconstruction.closed_form.components import Scores, measure
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, LeftOut, decompose, leave_out
from drjax.attacks.reconstruction.closed_form.left_over import exceeds, follows_curve
from drjax.attacks.reconstruction.closed_form.outside import Others
from drjax.attacks.reconstruction.closed_form.pca import alike, check_coords, is_answer, noise_floor
from drjax.attacks.reconstruction.priors import MAX_ITER, TOLERANCE
from drjax.core import validate
from drjax.core.linalg import eps_of
from drjax.core.types import Array, Reconstruction, Status


def reconstruct_pca_each(
    x: Array,
    coords: Array,
    *,
    rows: Sequence[int] | Array | None = None,
    bounds: tuple[float, float] | None = None,
    noise: float | None = None,
) -> Reconstruction:
    """Reconstructs each record from the published PCA scores of all and the other n-1 records.

    Agrees up to rounding with `reconstruct_pca(np.delete(x, i, 0), coords, target_index=i)` for every row i (where one
    row alone is amiss that one looks closer): there are no public data. Host, float64; one SVD of all records,
    O(n d min(n, d)), of many in blocks of rows without a copy; then O(r^2 + r d) per record of rank r, and O(r d) more
    for each step that fits a record which leaves the bounds into them.

    Args:
        x: (n, d), all records in the order of the release, n >= 3; possibly mapped from a file.
        coords: (n, k) scores of the release.
        rows: The records to reconstruct; all if None.
        bounds: Least and greatest possible value of every feature.
        noise: Noise of the release, as for `reconstruct_pca`.

    Returns:
        As of `reconstruct_pca` for as many releases as there are rows: x (m, d), in the order of `rows`. A record
        whose others are all equal is DEGENERATE, too.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, or a row, bounds or noise out of range.

    Source: `downdate`.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_pca_each
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> found = reconstruct_pca_each(x, drjax.embed(x, dtype="float64"))
        >>> found.x.shape, bool(np.abs(found.x - x).max() < 1e-6)
        ((60, 8), True)
    """
    x = validate.matrix(x, "x", min_rows=3)
    given = np.asarray(coords)
    if given.ndim != 2:
        raise ValueError(f"coords must have shape ({len(x)}, k), one release of all records, got {given.shape}")
    scores = check_coords(given, len(x))[0]
    chosen = checked_rows(rows, len(x))
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (least, greatest), got {bounds}")
    if noise is not None:
        validate.non_negative(noise=noise)

    everything = decompose(x)
    n, d = x.shape
    squares, total = (scores**2).sum(axis=0), scores.sum(axis=0)
    digits = noise_floor(given[None], squares[None])
    floor = np.maximum(digits, noise or 0.0)
    projected = everything.left.T @ scores
    # What scores say beyond the span of all records: 0 for those of an exact solver.
    beyond = scores - scores.mean(axis=0) - everything.left @ projected
    beyond_squares = float((beyond**2).sum())
    is_curve = follows_curve(everything.left @ projected, beyond, everything.left)
    spread = everything.singular**2 @ everything.basis**2 / n  # variance of each feature
    outside_of = Others(everything)
    found, error = np.empty((len(chosen), d)), np.empty(len(chosen))
    residual, status = np.empty(len(chosen)), np.empty(len(chosen), np.uint32)
    for lane, row in enumerate(chosen):
        own = np.asarray(x[row], np.float64) - everything.mean
        mean = everything.mean - own / (n - 1)
        # Of the others, about their own mean.
        error[lane] = np.mean(n / (n - 1) * spread - n / (n - 1) ** 2 * own**2)
        found[lane], residual[lane], status[lane] = mean, np.nan, np.uint32(Status.DEGENERATE)
        others = leave_out(everything, row) if everything.basis.size else None
        if others is None or not len(others.singular):
            # The other records are all equal, and tell nothing of the components.
            continue
        along = _along(others, projected, beyond[row])
        # The left-out row's own direction beyond the span belongs to it alone.
        alone = float((beyond[row] ** 2).sum()) / others.beyond**2 if others.beyond > 1e-3 else 0.0
        left_over = np.array([max(beyond_squares - alone, 0.0)])
        its_own = scores[None, row], squares[None], along[None], total[None]
        seen = Scores(*its_own, left_over, floor, digits, eps_of(given.dtype), (n - 1) / n)
        unseen = outside_of.expected_outside(row, others.singular)
        measured = measure(seen, others.singular, n, d, unseen=unseen, is_stated=noise is not None)
        status[lane] = measured.status[0]
        if is_curve and exceeds(measured, floor)[0] and is_answer(measured.status)[0]:
            status[lane] = np.uint32(Status.MISFIT)
        if not is_answer(status[lane]):
            continue
        variance = alike(measured, others.singular, n, scores.shape[1])[0]
        expected = measured.expected[0]
        found[lane] = _most_probable(
            mean, measured.z[0], variance, expected, measured.longest[0], everything, others, bounds
        )
        residual[lane] = measured.outside[0]
        predicted = np.sum((found[lane] - mean) ** 2) - np.sum(
            (others.right.T @ (everything.basis @ (found[lane] - mean))) ** 2
        )
        error[lane] = (measured.error[0] + max(residual[lane] ** 2 - max(predicted, 0), 0)) / d
    return Reconstruction(found, None, found[:, None], residual, status, error)


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


def _along(others: LeftOut, projected: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    """(k, R): U^T K_c v of every component, from the scores; the left-out row's has no part in it.

    A left vector of the other records is orthogonal to e_row - 1/n, so its product with all scores is that with
    theirs.
    """
    inside = others.left[:-1].T @ projected
    return (inside + others.left[-1][:, None] * (beyond / max(others.beyond, np.finfo(np.float64).tiny))).T


def _most_probable(
    mean: np.ndarray,
    z: np.ndarray,
    variance: np.ndarray,
    expected: np.ndarray,
    longest: float,
    everything: Decomposition,
    others: LeftOut,
    bounds: tuple[float, float] | None,
) -> np.ndarray:
    """The record (d,) of largest posterior density, within the bounds if there are any.

    Expected are deviations from the mean with the variances `expected` (R,) in the span of the other records, and
    across it that of a feature on average, but no longer than `longest` there.
    """
    gain = expected / (expected + variance)
    x = mean + (others.right @ (gain * z)) @ everything.basis
    if bounds is None:
        return x
    boxed = np.clip(x, *bounds)
    if np.sqrt(np.mean((x - boxed) ** 2)) > TOLERANCE:
        basis = others.right.T @ everything.basis
        boxed = _truncated(x, boxed, basis, gain * variance, float(expected.sum()) / len(x), bounds)
        outside = boxed - mean - ((boxed - mean) @ basis.T) @ basis
        excess = 1 - min(longest / max(np.linalg.norm(outside), np.finfo(np.float64).tiny), 1)
        boxed = np.clip(boxed - excess * outside, *bounds)
    return boxed


def _truncated(
    x: np.ndarray,
    boxed: np.ndarray,
    basis: np.ndarray,
    inside: np.ndarray,
    outside: float,
    bounds: tuple[float, float],
) -> np.ndarray:
    """The mode within bounds for variances `inside` (R,) along the basis (R, d), `outside` across it."""
    d = len(x)
    spread = (inside.sum() + outside * (d - len(inside))) / d
    if spread <= 0:
        return boxed
    penalty = 20 / spread
    across = outside / (outside + 1 / penalty)
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

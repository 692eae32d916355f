"""Attack on a sparse random projection: recover the matrix from the known rows, then condition on what it measured.

The known rows give n-1 equations known @ r = coords per column r of the matrix, whose entries are in {0, +v, -v}. Once
r is known, the target's coordinates are k linear measurements of the target, and no more: with a Gaussian prior the
best reconstruction (in squared error) is the conditional mean given those k numbers. Two numbers leak, no picture.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from drjax.attacks.reconstruction.closed_form import factored
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core import streamed, validate
from drjax.core.types import Array, Reconstruction, Status
from drjax.dr.factored import Coords, FactoredCoords, is_finite

FLOAT32_PRECISION = 2e-6
"""Error of coordinates computed in float32, relative to the largest of them; a sum of some 30 products."""


BATCH = 256
"""Columns of the matrix that are searched for together."""


class RecoveredMatrix(NamedTuple):
    """What the known rows say about q columns of a sparse random projection.

    Attributes:
        matrix: (d, q) the best linear estimate of the columns; exact entries where a column is exact.
        is_exact: (q,) the certificate: an alphabet vector reproduces the known coordinates within their precision, and
            it is sparse enough (at most rank / 2 entries) or the rows are many enough that rows in general position
            admit no other. Columns of `known` that are zero or equal to another one are left at their estimate.
        error_bases: two (d, r) orthonormal bases of the determined directions, for inexact and for exact columns; the
            rest of a column is unknown with mean 0 and variance 1/k in every direction orthogonal to the basis.
    """

    matrix: np.ndarray
    is_exact: np.ndarray
    error_bases: tuple[np.ndarray, np.ndarray]


def reconstruct_srp(
    known: Array,
    coords: Array,
    *,
    target_index: int = 0,
    prior: GaussianPrior | None = None,
    density: float | None = None,
    precision: float | None = None,
    bounds: tuple[float, float] | None = None,
    recovered: RecoveredMatrix | None = None,
) -> Reconstruction:
    """The target's conditional mean given its coordinates in m releases, each from its own or one common matrix.

    Where a column r of the matrix is exact, its coordinate is r . x. Where it is not, r = r_hat + e with r_hat the
    projection of r on the known rows' span. Entries of r have mean 0 and variance v^2 density = 1/k and are
    uncorrelated, so for any fixed x the error e . x has mean 0 and variance |P x|^2 / k, P projecting on the
    directions that the known rows do not determine. Its prior expectation (mean' P mean + tr(P covariance)) / k is the
    measurement noise: the estimate is the best affine one in (r_hat, coordinate) up to that averaging over x.

    Args:
        known: (n-1, d) the known records.
        coords: (n, k) or (m, n, k) released coordinates; of factored ones (`shadow_embeddings(..., factored=True)`)
            few are made at a time. Releases whose known coordinates are bit-identical (one shared matrix) cost one
            recovery together; otherwise one each, see `recover_matrix`.
        target_index: Row of the target; the other rows are the known records in their order.
        prior: Fitted on public data. None: the known records' mean and one common variance, that is the smallest
            correction of the known mean that fits the coordinates.
        density: Density of the matrix, in (0, 1]; None is 1 / sqrt(d).
        precision: Largest error of a released coordinate, units of the coordinates: 0.5e-4 if rounded to 4 decimals.
            None is float32 arithmetic.
        bounds: (low, high) that the entries of a record are clipped to.
        recovered: The matrix, if it has been recovered before; for releases that share it.

    Returns:
        Reconstruction with residual_norm nan, and feature_mse (m, d) of the prior given the coordinates. Status
        NOT_CONVERGED where a column was not recovered exactly, DEGENERATE where the release measures nothing of the
        target, NON_FINITE (and x nan) where a coordinate is not finite.

    Raises:
        ValueError: Shapes that do not fit, known not finite, an argument out of range.

    Source: our derivation; the estimate is the linear minimum-mean-square-error one.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_srp
        >>> x = np.random.default_rng(0).random((60, 16))
        >>> coords = drjax.embed(x, method="srp", n_components=4)
        >>> found = reconstruct_srp(x[1:], coords)
        >>> bool(np.abs(found.x - x[0]).mean() < np.abs(x.mean(axis=0) - x[0]).mean())  # nearer than the mean record
        True
    """
    known = validate.matrix(known, "known")
    n, d = known.shape[0] + 1, known.shape[1]
    if factored.reads(coords, known, target_index, is_centred=False):
        releases = factored.check(coords, n, must_be_finite=False)
    else:
        coords = np.asarray(coords, np.float64)
        releases = coords[None] if coords.ndim == 2 else coords
    if releases.ndim != 3 or releases.shape[1] != n or 0 in releases.shape:
        raise ValueError(f"coords must have shape ({n}, k) or (m, {n}, k) for {n - 1} known rows, got {coords.shape}")
    validate.integer(minimum=0, target_index=target_index)
    validate.at_most(n - 1, "n - 1", target_index=target_index)
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")
    m, _, k = releases.shape
    prior = prior if prior is not None else isotropic_prior(known)
    if precision is None and recovered is None and m > 1:
        sizes = _precisions(releases, target_index)
        if len(np.unique(sizes)) > 1:
            # Releases of one size share the recovery; no release has a part in another's.
            options = {"target_index": target_index, "prior": prior, "density": density, "bounds": bounds}
            x, each, status = np.empty((m, d)), np.empty((m, d)), np.empty(m, np.uint32)
            for size in np.unique(sizes):
                part = reconstruct_srp(known, releases[sizes == size], precision=size, **options)
                x[sizes == size], status[sizes == size] = part.x, part.status
                each[sizes == size] = part.feature_mse
            return Reconstruction(x, None, x[:, None], np.full(m, np.nan), status, feature_mse=each)
        precision = float(sizes[0])

    status = np.where(is_finite(releases), Status.OK, Status.NON_FINITE).astype(np.uint32)
    (x, each), noise = np.full((2, m, d), np.nan), np.empty(0)
    groups = _groups_by_known_coords(releases, target_index, np.flatnonzero(status == Status.OK))
    if groups:
        known_coords = _known_columns(releases, target_index, [int(lanes[0]) for lanes in groups])
        if recovered is None:
            recovered = recover_matrix(known, known_coords, n_components=k, density=density, precision=precision)
        elif recovered.matrix.shape != (d, known_coords.shape[1]):
            raise ValueError(
                f"recovered must be the matrix of shape {(d, known_coords.shape[1])} that the releases share, "
                f"got {recovered.matrix.shape}"
            )
        rounding = (rounding_precision(precision, known_coords) ** 2) / 3  # of an error uniform in +-precision
        inexact, exact = (_unknown_variance(prior, basis) / k for basis in recovered.error_bases)
        noise = np.where(recovered.is_exact, exact, inexact) + rounding
    for i, lanes in enumerate(groups):
        assert recovered is not None
        columns = slice(i * k, (i + 1) * k)
        operator = recovered.matrix[:, columns].T
        measures = operator.any(axis=1)
        if measures.any():
            values = releases[lanes, target_index][:, measures]
            x[lanes] = prior.condition(operator[measures], values, noise[columns][measures])
            each[lanes] = prior.left_open(operator[measures], noise[columns][measures])
        else:
            x[lanes], each[lanes] = prior.mean, np.diagonal(prior.covariance)
            status[lanes] |= np.uint32(Status.DEGENERATE)
        if not recovered.is_exact[columns].all():
            status[lanes] |= np.uint32(Status.NOT_CONVERGED)
    if bounds is not None:
        x = np.clip(x, *bounds)
    result = Reconstruction(x, None, x[:, None], np.full(m, np.nan), status, feature_mse=each)
    if coords.ndim == 3:
        return result
    return Reconstruction(x[0], None, x[:1], result.residual_norm[0], status[0], feature_mse=each[0])


def recover_matrix(
    known: Array,
    known_coords: Array | factored.Columns,
    *,
    n_components: int,
    density: float | None = None,
    precision: float | None = None,
) -> RecoveredMatrix:
    """Solves known @ r = c for columns r with entries in {0, +v, -v}, v = sqrt(1 / (density k)).

    Basis pursuit in the box |r| <= v for all columns at once (Douglas-Rachford splitting: two products with the right
    singular vectors of `known` per step), rounding, then greedy single-entry repairs; a column that passes the
    certificate leaves the batch. One singular value decomposition of `known` serves all columns; a column costs at most
    400 steps of 4 d rank operations. Linear programming solves the same problem one column at a time.

    Args:
        known: (n-1, d).
        known_coords: (n-1, q); columns of any number of releases side by side, an array or made when asked for.
        n_components: k of one release; it sets v.
        density: Density of the matrix, in (0, 1]; None is 1 / sqrt(d).
        precision: Largest error of a coordinate; None is float32 arithmetic.

    Raises:
        ValueError: An argument of the wrong shape, not finite or out of range.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import recover_matrix
        >>> x = np.random.default_rng(0).random((60, 16))
        >>> coords = drjax.embed(x, method="srp", n_components=4)
        >>> recover_matrix(x, coords, n_components=4).is_exact  # of each column
        array([ True,  True,  True,  True])
    """
    known = validate.matrix(known, "known")
    if not isinstance(known_coords, factored.Columns):
        known_coords = validate.matrix(known_coords, "known_coords").astype(np.float64)
    if known_coords.shape[0] != known.shape[0]:
        raise ValueError(f"known_coords must have {known.shape[0]} rows, as known has, got {known_coords.shape[0]}")
    validate.integer(n_components=n_components)
    density = density if density is not None else 1 / math.sqrt(known.shape[1])
    validate.positive(density=density)
    validate.at_most(1, density=density)
    precision = rounding_precision(precision, known_coords)
    value = math.sqrt(1 / density / n_components)

    distinct = distinct_columns(known, 2 * precision / value)
    # A direction is worth keeping while the release's error in it stays small against r's own deviation 1/sqrt(k).
    left, singular, basis = _decomposed(known, 10 * precision * math.sqrt(n_components))
    rank, n_columns = basis.shape[1], known_coords.shape[1]
    matrix, is_exact = np.empty((known.shape[1], n_columns)), np.zeros(n_columns, bool)
    is_determined = distinct.any(axis=1)
    is_injective = rank >= distinct.shape[1]
    for start in range(0, n_columns, BATCH):
        open_ = np.arange(start, min(start + BATCH, n_columns))
        values = left.T @ known_coords[:, start : start + BATCH] / singular[:, None]
        state = matrix[:, open_] = basis @ values
        for _ in range(4):
            state, estimate = _basis_pursuit(basis, values, value, state)
            rounded = _repair(basis, values, value, value * np.round(estimate / value))
            rounded *= np.asarray(is_determined)[:, None]
            is_sparse = 2 * np.count_nonzero(rounded, axis=0) <= rank
            fits = _largest_miss(known, rounded, known_coords[:, open_]) <= precision
            done = fits & (is_sparse | is_injective)
            matrix[:, open_[done]] = distinct @ (distinct.T @ rounded[:, done])
            is_exact[open_[done]] = True
            open_, state, values = open_[~done], state[:, ~done], values[:, ~done]
            if not open_.size:
                break
    return RecoveredMatrix(matrix, is_exact, (basis, distinct))


def _decomposed(known: np.ndarray, least: float) -> tuple[streamed.Matrix, np.ndarray, np.ndarray]:
    """Left singular vectors (n-1, r), singular values above `least` and right vectors (d, r); large ones in blocks."""
    left = None
    if streamed.is_large(*known.shape):
        _, singular, basis = streamed.principal_directions(known, is_centred=False)
    else:
        left, singular, basis = np.linalg.svd(known.astype(np.float64), full_matrices=False)
    keep = singular > max(least, 1e-12 * singular.max(initial=0))
    singular, basis = singular[keep], basis[keep].T
    if left is None:
        return streamed.Product(known, weights=basis / singular), singular, basis
    return left[:, keep], singular, basis


def _largest_miss(known: np.ndarray, matrix: np.ndarray, coords: np.ndarray | factored.Columns) -> np.ndarray:
    """(q,), largest |known @ matrix - coords| of each column."""
    found = np.zeros(matrix.shape[1])
    for at, block in streamed.blocks(known, matrix.shape[1]):
        found = np.maximum(found, np.abs(block @ matrix - coords[at]).max(axis=0))
    return found


def _basis_pursuit(
    basis: np.ndarray, values: np.ndarray, bound: float, state: np.ndarray, n_steps: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Douglas-Rachford steps towards min |r|_1 with basis.T @ r = values, |r| <= bound; (state, estimate), (d, q)."""
    threshold = 0.1 * bound
    offset = basis @ values

    def shrink(z: np.ndarray) -> np.ndarray:
        return np.clip(np.sign(z) * np.maximum(np.abs(z) - threshold, 0), -bound, bound)

    for _ in range(n_steps):
        estimate = shrink(state)
        reflected = 2 * estimate - state
        state = state + reflected - basis @ (basis.T @ reflected) + offset - estimate
    return state, shrink(state)


def _repair(basis: np.ndarray, values: np.ndarray, value: float, r: np.ndarray, n_steps: int = 40) -> np.ndarray:
    """Changes one entry of each column at a time to the symbol that lowers |basis.T @ r - values| most."""
    norms = np.sum(basis**2, axis=1)[:, None]
    columns = np.arange(r.shape[1])
    symbols = np.array([-value, 0.0, value])
    for _ in range(n_steps):
        slope = basis @ (values - basis.T @ r)
        change = symbols[:, None, None] - r
        gain = 2 * change * slope - change**2 * norms
        symbol = gain.argmax(axis=0)
        best = gain.max(axis=0)
        row = best.argmax(axis=0)
        improves = best[row, columns] > 1e-9 * value**2
        if not improves.any():
            break
        r[row[improves], columns[improves]] = symbols[symbol[row, columns]][improves]
    return r


def distinct_columns(known: np.ndarray, smallest: float) -> np.ndarray:
    """(d, g): an orthonormal indicator of every set of equal columns; columns within +-smallest of 0 are in none."""
    largest, group = np.zeros(known.shape[1]), np.zeros(known.shape[1], np.int64)
    for _, block in streamed.blocks(known):
        largest = np.maximum(largest, np.abs(block).max(axis=0))
        # Adding 0.0 makes -0.0 and 0.0, which are equal, the same bytes.
        entries = np.ascontiguousarray(block.T) + 0.0
        numbers: dict[tuple[int, bytes], int] = {}
        for column, entry in enumerate(entries):
            group[column] = numbers.setdefault((int(group[column]), entry.tobytes()), len(numbers))
    visible = np.flatnonzero(largest > smallest)
    _, group = np.unique(group[visible], return_inverse=True)
    sizes = np.bincount(group)
    indicator = np.zeros((known.shape[1], sizes.size))
    indicator[visible, group] = 1 / np.sqrt(sizes[group])
    return indicator


def _unknown_variance(prior: GaussianPrior, basis: np.ndarray) -> float:
    """E |P x|^2 with P orthogonal to the basis; units of the input, squared."""
    mean, covariance = np.asarray(prior.mean), np.asarray(prior.covariance)
    determined = np.sum((mean @ basis) ** 2) + np.sum((covariance @ basis) * basis)
    return float(max(mean @ mean + np.trace(covariance) - determined, 0.0))


def _groups_by_known_coords(releases: Coords, target_index: int, lanes: np.ndarray) -> list[np.ndarray]:
    groups: dict[bytes, list[int]] = {}
    for lane in lanes:
        if isinstance(releases, FactoredCoords):
            own = releases.factors.turn[lane].tobytes()
        else:
            own = np.delete(releases[lane], target_index, axis=0).tobytes()
        groups.setdefault(own, []).append(int(lane))
    return [np.array(members) for members in groups.values()]


def _known_columns(releases: Coords, target_index: int, lanes: list[int]) -> np.ndarray | factored.Columns:
    """Coordinates (n-1, l k) of the known records in some releases side by side."""
    if isinstance(releases, FactoredCoords):
        return factored.Columns.of(releases[np.array(lanes)])
    return np.concatenate([np.delete(releases[lane], target_index, axis=0) for lane in lanes], axis=1)


def isotropic_prior(known: np.ndarray) -> GaussianPrior:
    """The known records' mean and one common variance."""
    variance = max(float(known.var(axis=0, dtype=np.float64).mean()), np.finfo(np.float64).tiny)
    mean = known.mean(axis=0, dtype=np.float64)
    return GaussianPrior(mean=mean, covariance=variance * np.eye(known.shape[1]))


def rounding_precision(precision: float | None, coords: np.ndarray | factored.Columns) -> float:
    """Largest error of a coordinate: as stated, else that of float32 arithmetic, up to the next power of 2."""
    if precision is None:
        sizes = coords.largest() if isinstance(coords, factored.Columns) else np.abs(coords)
        return _of_float32(float(sizes.max()))
    validate.non_negative(precision=precision)
    return float(precision)


def _of_float32(largest: float) -> float:
    least = FLOAT32_PRECISION * largest
    return 2.0 ** math.ceil(math.log2(least)) if least > 0 else 0.0


def _precisions(releases: Coords, target_index: int) -> np.ndarray:
    """(m,): `rounding_precision` of the known rows of each release (m, n, k); 0 where they are not finite."""
    if isinstance(releases, FactoredCoords):
        sizes = factored.Columns.of(releases).largest().reshape(len(releases), -1).max(axis=1)
        return np.array([_of_float32(float(size)) for size in sizes])
    known = np.delete(releases, target_index, axis=1)
    return np.array([rounding_precision(None, own) if np.isfinite(own).all() else 0.0 for own in known])

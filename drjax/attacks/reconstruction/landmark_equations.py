"""What a map by landmark MDS says of a record: k equations, or nearly all of it where it is a landmark itself.

With squared Euclidean distances the places of de Silva & Tenenbaum are a projection: the landmarks' k principal axes,
orthonormal columns M (d, k), take every record x to M^T x, but for a shift that all share. A record that is no
landmark has no part in M, so that its own row is all there is of it, k linear equations, whatever n.

A landmark bends M. Let S be the other q - 1 landmarks' scatter matrix about their mean, z the record less that mean
and a = (q - 1) / q. Then (S + a z z^T) M = M B, of which M^T z = c is published. What lies across M is

    z - M c = -(1 - M M^T) S M c / (a |c|^2),

all of it known as soon as M is, and all other records of the release are projected by M: by least squares their rows
give it up to noise / sqrt(n s_j) along a direction of variance s_j. The record bends M by about 1 / q and n rows
average the noise, so that the squared error falls as q^2 / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from drjax.attacks.attack import MOSTLY_OPEN, Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.predicted import left_open
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, LeftOut, decompose, leave_out
from drjax.attacks.reconstruction.closed_form.each import checked_rows, reconstruct_pca_each
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import streamed, validate
from drjax.core.linalg import eigh
from drjax.core.statistics import spread_rows
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import LandmarkMDS, landmarks, metrics

MOST_EXPECTED = 5000
"""Most known records that tell what to expect of one, where there are no public ones."""

LEAST_SHAPE = 2
"""Known records, in units of their rank, from which all their rows tell the axes; with fewer the landmarks' rows do."""

LEAST_SCORE = 3.0
"""Least length of a landmark's coordinates about the others, in units of noise, for its part in the axes to be read."""

Bounds = tuple[float, float] | None


class Answer(NamedTuple):
    """One record (d,), the squared error to expect of each feature (d,), and its status."""

    x: np.ndarray
    left_open: np.ndarray
    status: int


def reconstruct_by_landmarks(
    known: Array,
    coords: Array,
    *,
    n_landmarks: int,
    prior: GaussianPrior,
    precision: float | None = None,
    bounds: Bounds = None,
) -> Reconstruction:
    """Reconstructs the record in row 0, which is no landmark, of maps by landmark MDS from the other n-1 records.

    Nothing is drawn; host, float64. O(q d min(q, d) + n d k), and O(d^3) a release.

    Args:
        known: (n-1, d).
        coords: (m, n, k) releases, target in row 0.
        n_landmarks: Number of landmarks of the method.
        prior: Distribution that is expected of a record.
        precision: Largest error of a rounded coordinate; that of the dtype of coords if None.
        bounds: Least and greatest value of a feature.

    Returns:
        x (m, d), with the errors to expect of each feature; PARTIAL where most is left open, NON_FINITE, and x nan,
        where a release is not finite.

    Raises:
        ValueError: arrays of shapes that do not match, or known not finite.
    """
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    given = np.asarray(coords)
    if given.ndim != 3 or given.shape[1] != len(known) + 1:
        raise ValueError(f"coords must have shape (m, {len(known) + 1}, k), target in row 0, got {given.shape}")
    chosen = known[landmarks.positions(len(known) + 1, n_landmarks) - 1]
    axes, floor = _axes(chosen, given.shape[2]), _floor(given, precision)
    places, middle = known @ axes, known.mean(axis=0)
    answers = [
        _projected(release.astype(np.float64), 0, places, middle, axes, prior, floor, bounds)
        if np.isfinite(release).all()
        else _lost(known.shape[1])
        for release in given
    ]
    return _joined(answers)


def reconstruct_by_landmarks_each(
    x: Array,
    coords: Array,
    *,
    n_landmarks: int,
    rows: Array | None = None,
    precision: float | None = None,
    bounds: Bounds = None,
) -> Reconstruction:
    """Reconstructs records of one map by landmark MDS, each from all others; landmarks may be among them.

    What is expected of a record is a Gaussian fitted on other records, `MOST_EXPECTED` at most. O(n d min(n, d)) for
    all, of many records in blocks of rows; then O(d^3) a record. Where known records are not `LEAST_SHAPE` times as
    many as their rank, of a landmark the other landmarks' rows are used alone, as scores of their PCA.

    Args:
        x: (n, d), all records in the order of the release; possibly mapped from a file.
        coords: (n, k) of the release, finite.
        n_landmarks: Number of landmarks of the method.
        rows: (m,) records to reconstruct; all if None.
        precision: As for `reconstruct_by_landmarks`.
        bounds: Least and greatest value of a feature.

    Returns:
        x (m, d) in the order of `rows`, with the errors to expect of each feature.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, or a row out of range.
    """
    x, given = validate.matrix(x, "x", min_rows=3), validate.matrix(coords, "coords")
    if len(given) != len(x):
        raise ValueError(f"coords must have {len(x)} rows, one for each record, got {len(given)}")
    chosen, (n, k) = checked_rows(rows, len(x)), given.shape
    at, floor, release = landmarks.positions(n, n_landmarks), _floor(given, precision), given.astype(np.float64)
    own = np.asarray(x[at], np.float64)
    axes = _axes(own, k)
    is_landmark = np.isin(chosen, at)
    places = np.empty((0, k)) if is_landmark.all() else np.asarray(streamed.Product(x, 0.0, axes))
    total = x.sum(axis=0, dtype=np.float64)
    all_rows = _Rows.of(x, release) if is_landmark.any() else None
    shared = None if n - len(chosen) < MOST_EXPECTED else _expected(x, chosen)
    answers = []
    for row, is_one in zip(chosen, is_landmark, strict=True):
        prior = _expected(x, np.array([row])) if shared is None else shared
        middle = (total - x[row]) / (n - 1)
        if not is_one:
            others = np.delete(places, row, axis=0)
            answers.append(_projected(release, row, others, middle, axes, prior, floor, bounds))
        elif all_rows is not None and n > LEAST_SHAPE * (len(all_rows.decomposition.singular) + 1):
            rest = own[at != row]
            answers.append(_bent(all_rows, release, row, rest, middle, prior, floor, bounds))
        else:
            answers.append(_alone(own, release[at], int(np.searchsorted(at, row)), bounds))
    return _joined(answers)


def _axes(chosen: np.ndarray, k: int) -> np.ndarray:
    """The principal axes (d, k) of the landmarks (q, d); 0 where they do not vary in so many directions."""
    _, singular, basis = np.linalg.svd(chosen - chosen.mean(axis=0), full_matrices=False)
    kept = singular[:k] ** 2 > len(chosen) * np.finfo(np.float64).eps * singular[0] ** 2
    axes = np.zeros((chosen.shape[1], k))
    axes[:, : len(kept)] = np.where(kept[:, None], basis[:k], 0).T
    return axes


def _floor(coords: np.ndarray, precision: float | None) -> float:
    """Least variance of the noise of a coordinate: that of rounding to the precision, or to the type's digits."""
    dtype = coords.dtype if coords.dtype.kind == "f" else np.dtype(np.float64)
    largest = float(np.abs(coords[np.isfinite(coords)]).max(initial=0.0))
    return max(float(np.finfo(dtype).eps) * largest, precision or 0.0) ** 2 / 3


def _projected(
    release: np.ndarray,
    row: int,
    places: np.ndarray,
    middle: np.ndarray,
    axes: np.ndarray,
    prior: GaussianPrior,
    floor: float,
    bounds: Bounds,
) -> Answer:
    """The likeliest record by its own row of the release (n, k).

    Args:
        release: Coordinates of all records.
        row: Row of the record.
        places: (n-1, k), the others by the landmarks' axes, which the release shifts, turns and mirrors.
        middle: (d,), mean of the others.
        axes: (d, k).
        prior: Distribution that is expected of it.
        floor: Least variance of noise.
        bounds: Least and greatest value of a feature.
    """
    known = np.delete(release, row, axis=0)
    centred, values = places - places.mean(axis=0), known - known.mean(axis=0)
    turn = np.linalg.lstsq(centred, values, rcond=None)[0]
    m, k = known.shape
    noise = np.maximum(((values - centred @ turn) ** 2).sum(axis=0) / max(m - k - 1, 1), floor)
    operator = (axes @ turn).T
    seen = release[row] - known.mean(axis=0) + operator @ middle
    return _likeliest(prior, operator, seen, noise * (1 + (k + 1) / m), bounds)


class _Rows(NamedTuple):
    """What the coordinates of all records say of the axes.

    Attributes:
        decomposition: Decomposition of the records.
        projected: (r, k), products of its left vectors with the coordinates.
        left_over: (n, k), what they do not explain of the centred coordinates.
        middle: (k,), mean coordinates.
    """

    decomposition: Decomposition
    projected: np.ndarray
    left_over: np.ndarray
    middle: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, release: np.ndarray) -> _Rows:
        found, middle = decompose(x), release.mean(axis=0)
        projected = found.left.T @ release
        return cls(found, projected, release - middle - found.left @ projected, middle)

    def without(self, row: int, floor: float) -> tuple[LeftOut, np.ndarray, np.ndarray]:
        """The other records' decomposition, the axes (R, k) in its right vectors, and the noise (k,)."""
        others, n = leave_out(self.decomposition, row), len(self.left_over)
        own = self.left_over[row] / max(others.beyond, np.finfo(np.float64).tiny)
        along = others.left[:-1].T @ self.projected + np.outer(others.left[-1], own)
        squares = (self.left_over**2).sum(axis=0) - own**2
        noise = np.maximum(squares / max(n - 2 - len(others.singular), 1), floor)
        return others, along / others.singular[:, None], noise


def _bent(
    rows: _Rows,
    release: np.ndarray,
    row: int,
    rest: np.ndarray,
    middle: np.ndarray,
    prior: GaussianPrior,
    floor: float,
    bounds: Bounds,
) -> Answer:
    """The likeliest record in a row of the release, a landmark, by the axes that all other rows show.

    Args:
        rows: Rows of all records.
        release: (n, k).
        row: Row of the record.
        rest: (q-1, d), the other landmarks.
        middle: (d,), mean of all other records.
        prior: Distribution that is expected of it.
        floor: Least variance of noise.
        bounds: Least and greatest value of a feature.
    """
    others, axes, noise = rows.without(row, floor)
    basis, n = others.right.T @ rows.decomposition.basis, len(release)
    centre = rest.mean(axis=0)
    within = (rest - centre) @ basis.T
    scatter, share = within.T @ within, len(rest) / (len(rest) + 1)
    others_middle = (n * rows.middle - release[row]) / (n - 1)
    c = release[row] - others_middle - ((centre - middle) @ basis.T) @ axes
    if not c @ c > LEAST_SCORE**2 * noise.sum():
        operator = axes.T @ basis
        return _likeliest(prior, operator, operator @ centre + c, noise, bounds)
    scale = 1 / (share * float(c @ c))
    across = np.eye(len(axes)) - axes @ np.linalg.pinv(axes)
    pulled = scatter @ axes
    z = axes @ c - scale * (across @ (pulled @ c))

    back, spread = axes.T @ (pulled @ c), 1 / others.singular**2
    twisted = scatter * spread
    weights = (noise * back**2).sum(), (noise * c * back).sum(), (noise * c**2).sum()
    covariance = weights[0] * np.diag(spread) - weights[1] * (twisted + twisted.T) + weights[2] * twisted @ scatter
    # The record's own coordinates are rounded, too.
    of_c = axes - scale * (across @ pulled) @ (np.eye(len(c)) - 2 * np.outer(c, c) / (c @ c))
    total = scale**2 * across @ covariance @ across + (of_c * noise) @ of_c.T
    variance, vectors = eigh((total + total.T) / 2)
    operator = vectors.T @ basis
    return _likeliest(prior, operator, operator @ centre + vectors.T @ z, np.maximum(variance, 0), bounds)


def _alone(chosen: np.ndarray, coords: np.ndarray, place: int, bounds: Bounds) -> Answer:
    """A landmark by the landmarks' coordinates (q, k) alone: turned to their principal axes they are scores of PCA."""
    centred = coords - coords.mean(axis=0)
    scores = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    found = reconstruct_pca_each(chosen, scores, rows=[place], bounds=bounds)
    assert found.expected_mse is not None
    return Answer(found.x[0], np.full(found.x.shape[1], found.expected_mse[0]), int(found.status[0]))


def _likeliest(
    prior: GaussianPrior, operator: np.ndarray, values: np.ndarray, noise: np.ndarray, bounds: Bounds
) -> Answer:
    lower, upper = bounds or (None, None)
    x = prior.condition(operator, values[None], noise[None], lower=lower, upper=upper)[0]
    errors = prior.left_open(operator, noise)
    is_open = left_open(errors[None], np.diagonal(prior.covariance))[0] > MOSTLY_OPEN
    return Answer(x, errors, Status.PARTIAL if is_open else Status.OK)


def _expected(x: np.ndarray, without: np.ndarray) -> GaussianPrior:
    """What records other than some say of one, by `MOST_EXPECTED` of them from the whole file."""
    others = np.setdiff1d(np.arange(len(x)), without)
    some = others[spread_rows(len(others), MOST_EXPECTED)]
    return GaussianPrior.fit(x[some])


def _lost(d: int) -> Answer:
    return Answer(np.full(d, np.nan), np.full(d, np.nan), Status.NON_FINITE)


def _joined(answers: list[Answer]) -> Reconstruction:
    x, errors = np.stack([one.x for one in answers]), np.stack([one.left_open for one in answers])
    status = np.array([one.status for one in answers], np.uint32)
    expected, norm = errors.mean(axis=1), np.sqrt(errors.sum(axis=1))
    return Reconstruction(x, None, x[:, None], norm, status, expected, feature_mse=errors)


@dataclass(frozen=True, kw_only=True)
class LandmarkEquations(EmbeddingAttack):
    """Landmark MDS solved for a record; see the module."""

    name: str = "landmark-equations"
    label: str = "Equations of the landmarks"
    description: str = (
        "Takes the likeliest record that fits its own coordinates; of a landmark, one that bends the axes as published."
    )
    why: str = (
        "Coordinates by landmark MDS are a projection to the landmarks' principal axes, which the known records give "
        "away, and of a landmark those axes are made."
    )
    each = True
    shares_each = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        is_euclidean = isinstance(method, LandmarkMDS) and method.metric == metrics.EUCLIDEAN
        return None if is_euclidean else "is of landmark MDS of Euclidean distances"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        (p, d), s, k = threat.known.shape, len(threat.expected_of), threat.coords.shape[2]
        flops = 4.0 * p * d * k + 3.0 * min(s, d) * s * d + threat.n_releases * (4.0 * d**3 + 2000.0 * d**2)
        return Cost(flops / DENSE_FLOPS, 8.0 * (2 * p * d + 3 * s * d + 6 * d**2))

    def seconds_each(self, every: EveryRecord, n_rows: int) -> float:
        """See `EmbeddingAttack`: each row takes the posterior of a record, of landmarks with as many equations as d."""
        n, d = every.x.shape
        expected = 3.0 * min(n, MOST_EXPECTED) * d * min(n, d)
        shared = 6.0 * n * d * min(n, d) + expected
        own = 12.0 * d**3 + 2000.0 * d**2 + (expected if n - n_rows < MOST_EXPECTED else 0.0)
        return (shared + n_rows * own) / DENSE_FLOPS

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        assert isinstance(threat.method, LandmarkMDS)
        prior, options = GaussianPrior.fit(threat.expected_of), {"precision": threat.precision, "bounds": threat.bounds}
        n_landmarks = threat.method.n_landmarks
        return reconstruct_by_landmarks(threat.known, threat.coords, n_landmarks=n_landmarks, prior=prior, **options)

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        assert isinstance(every.method, LandmarkMDS)
        options = {"rows": every.rows, "precision": every.shapes.precision, "bounds": every.bounds}
        return reconstruct_by_landmarks_each(every.x, every.coords, n_landmarks=every.method.n_landmarks, **options)

"""The three scores every attack is read beside: no release at all, an oracle's pick, and ridge on raw coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, LearnedAttack
from drjax.attacks.metrics import CHUNK_ENTRIES, nearest, nearest_among
from drjax.attacks.passing import BLOCK, MOST_INPUTS, Inputs
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.kernel_regression import Spectrum, least
from drjax.core.linalg import eps_of
from drjax.core.regression_sums import RegressionSums
from drjax.core.types import Array, Reconstruction, Status

PENALTIES = tuple(float(10.0**e) for e in range(-3, 7))
"""Grid for standardised features, whose Gram matrix has trace m * n * k: from no shrinkage to almost all of it."""


MOST = 4.0
"""Most that a shadow counts in the choice of the penalty, in units of what the mean errs by: a map that is turned over
near where a sign changes would decide alone."""


def mean_image(public: Array, m: int) -> Reconstruction:
    """The mean of the public records (N, d), m times: what an adversary without the release would answer.

    Raises:
        ValueError: `public` not a finite numeric matrix, or m < 1.
    """
    validate.integer(m=m)
    mean = validate.matrix(public, "public").mean(axis=0, dtype=np.float64)
    return _unlabelled(np.tile(mean, (m, 1)))


def nearest_neighbor(targets: Array, records: Array) -> Reconstruction:
    """The record (N, d) nearest to each target (m, d): an oracle, since finding it takes the target itself.

    Raises:
        ValueError: not finite numeric arrays with the same number of columns.
    """
    row, _ = nearest(targets, records)
    return _unlabelled(np.asarray(records)[row].astype(np.float64))


@dataclass(frozen=True)
class RidgeModel:
    """A linear map from the raw coordinates of a release (n, k) to the target (d,); see `fit_ridge`.

    Attributes:
        center: (n * k,), means of the features on the training shadows.
        scale: (n * k,), their standard deviations; infinite for a feature that did not vary, which so becomes 0.
        weights: (n * k, d), of the standardised features.
        intercept: (d,), the mean of the training targets.
        penalty: The chosen penalty.
        loo_mse: {penalty: mean squared leave-one-out error per coordinate} over the grid; see `fit_ridge`.
        release_shape: (n, k).
    """

    center: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    penalty: float
    loo_mse: dict[float, float]
    release_shape: tuple[int, int]

    def reconstruct(self, coords: Array) -> Reconstruction:
        """Reconstructs the targets of m releases, coords (m, n, k); 2 m n k d FLOP.

        A release that is not finite gives a row of nan with status NON_FINITE.

        Raises:
            ValueError: coords of another shape than (m, n, k) with the training releases' n and k.
        """
        coords = np.asarray(coords, np.float64)
        if coords.ndim != 3 or coords.shape[1:] != self.release_shape:
            n, k = self.release_shape
            raise ValueError(f"coords must have shape (m, {n}, {k}) as in training, got {coords.shape}")
        features = coords.reshape(coords.shape[0], -1)
        finite = np.isfinite(features).all(axis=1)
        x = np.full((features.shape[0], self.intercept.size), np.nan)
        x[finite] = (features[finite] - self.center) / self.scale @ self.weights + self.intercept
        return _unlabelled(x, np.where(finite, Status.OK, Status.NON_FINITE).astype(np.uint32))


def fit_ridge(coords: Array, targets: Array, *, penalties: Sequence[float] = PENALTIES) -> RidgeModel:
    """Ridge regression of the targets on the raw flattened coordinates, the penalty chosen by leave-one-out.

    The features are standardised on these shadows alone, so that one grid serves releases of every scale; the
    intercept is not penalised. The leave-one-out errors are exact, each up to `MOST`, and one eigendecomposition of the
    smaller Gram matrix serves the whole grid: with p = n k and q = min(m, p), O(m p q + q^3) once and 2 m q d FLOP per
    penalty.

    Args:
        coords: (m, n, k) releases of the training shadows, finite; leave out unusable lanes before.
        targets: (m, d), the record in row 0 of each.
        penalties: The grid, each > 0.

    Raises:
        ValueError: fewer than two shadows, shapes that do not match, values not finite, or a bad grid.

    Source: Hoerl & Kennard (1970); leave-one-out by Golub, Heath & Wahba (1979).
    """
    raw = np.asarray(coords)
    if raw.ndim != 3:
        raise ValueError(f"coords must have shape (m, n, k), got {raw.shape}")
    raw = validate.matrix(raw.reshape(raw.shape[0], -1), "coords", min_rows=2)
    y = validate.matrix(targets, "targets").astype(np.float64)
    if y.shape[0] != raw.shape[0]:
        raise ValueError(f"targets must have one row per release, {raw.shape[0]}, got {y.shape[0]}")
    if len(penalties) == 0:
        raise ValueError("penalties must hold at least one value, got none")
    for penalty in penalties:
        validate.positive(penalties=penalty)

    _, n, k = np.shape(coords)
    features = raw.astype(np.float64)
    center, scale = features.mean(axis=0), _scales(features, raw.dtype)
    features = (features - center) / scale
    intercept = y.mean(axis=0)
    y = y - intercept
    spectrum = Spectrum.of_features(features)
    losses = spectrum.leave_one_out(y, penalties, leaves_mean=True, most=MOST)
    _, best = least(losses)
    weights = features.T @ (spectrum.vectors @ (spectrum.vectors.T @ y / (spectrum.values + best)[:, None]))
    return RidgeModel(center, scale, weights, intercept, best, losses, (n, k))


def ridge_of_sums(sums: RegressionSums, release_shape: tuple[int, int], *, eps: float) -> RidgeModel:
    """`fit_ridge` from sums over shadows' flattened coordinates (n k,), however many there were; O((n k)^3).

    The penalty is that of the least generalised cross-validation, for which `loo_mse` stands.

    Args:
        sums: Sums of coordinates and targets.
        release_shape: (n, k).
        eps: Relative rounding of the coordinates.
    """
    scale = sums.deviations(eps)
    found = sums.solve(PENALTIES, scale=scale)
    weights = np.where(np.isfinite(scale), scale, 0)[:, None] * found.weights
    return RidgeModel(sums.inputs, scale, weights, sums.targets, found.penalty, found.losses, release_shape)


def flat(coords: np.ndarray) -> np.ndarray:
    """(m, n k) of releases (m, n, k): what the regression is given of each."""
    return coords.reshape(len(coords), -1)


def _scales(features: np.ndarray, dtype: np.dtype) -> np.ndarray:
    # A known row that the target cannot move still jitters by rounding; standardising would blow that up to a feature.
    spread = features.std(axis=0)
    return np.where(spread > 4 * eps_of(dtype) * np.abs(features).max(axis=0), spread, np.inf)


def _unlabelled(x: np.ndarray, status: np.ndarray | None = None) -> Reconstruction:
    m = x.shape[0]
    status = np.zeros(m, np.uint32) if status is None else status
    return Reconstruction(x, None, x[:, None], np.full(m, np.nan), status)


@dataclass(frozen=True, kw_only=True)
class MeanRecord(EmbeddingAttack):
    """The mean public record; with features of the target, the record to be expected in view of them."""

    name: str = "mean"
    label: str = "Mean record"
    description: str = "Guesses the average public record without looking at the release."
    is_baseline: bool = True
    needs_public: bool = True
    takes_hidden = True
    takes_features = True
    takes_factors = True

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        d = threat.known.shape[1]
        cubes = 0.0 if threat.features is None else 10.0 * d**3
        return Cost(cubes / DENSE_FLOPS, 8.0 * (threat.n_releases * d + (0 if threat.features is None else 4 * d**2)))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        known = threat.features
        if known is None:
            return mean_image(threat.expected_of, threat.n_releases)
        prior = GaussianPrior.fit(threat.expected_of)
        rows = np.eye(len(known.which))[known.which]
        return threat.clipped(_unlabelled(prior.condition(rows, known.values.astype(np.float64))))


@dataclass(frozen=True, kw_only=True)
class NearestRecord(EmbeddingAttack):
    """The known or public record that is nearest to the target."""

    name: str = "nearest"
    label: str = "Nearest neighbour"
    description: str = "Picks the known or public record most similar to the target, which takes looking at the target."
    is_baseline: bool = True
    needs_public: bool = True
    takes_hidden = True
    takes_features = True
    takes_factors = True

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`."""
        return "needs the target itself" if threat.truth is None else EmbeddingAttack.fits(self, threat)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        d, held = threat.known.shape[1], len(threat.known) + len(threat.expected_of)
        return Cost(
            2.0 * threat.n_releases * held * d / DENSE_FLOPS, 8.0 * (4 * threat.n_releases * d + 3 * CHUNK_ENTRIES)
        )

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        assert threat.truth is not None
        return _unlabelled(nearest_among(threat.truth, (threat.known, threat.expected_of))[0])


@dataclass(frozen=True, kw_only=True)
class Ridge(LearnedAttack):
    """Ridge regression; see `fit_ridge`."""

    name: str = "ridge"
    label: str = "Ridge regression"
    description: str = "Predicts the record linearly from the published coordinates, fitted on shadow releases."

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        assert threat.public is not None
        s, p, d = len(threat.public), math.prod(threat.coords.shape[1:]), threat.known.shape[1]
        if threat.further is not None and p <= MOST_INPUTS:
            flops = 2.0 * s * p * (p + d) + 10.0 * p**3
            return Cost(flops / DENSE_FLOPS + threat.further.seconds(), 8.0 * (4 * p * (p + d) + 2 * BLOCK * p))
        q = min(s, p)
        flops = 2.0 * s * p * q + 10.0 * q**3 + len(PENALTIES) * 2.0 * s * q * d
        return Cost(flops / DENSE_FLOPS, 8.0 * (2 * s * p + 3 * s * d + q**2 + p * d))

    def summed(self, threat: EmbeddingThreat) -> Callable[[], Inputs] | None:
        """See `EmbeddingAttack`; of more coordinates than `MOST_INPUTS` none are added up."""
        few = math.prod(threat.coords.shape[1:]) <= MOST_INPUTS
        return (lambda: flat) if threat.further is not None and few else None

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        shadows, make = threat.shadows(), self.summed(threat)
        if threat.further is None or make is None:
            model, count = fit_ridge(shadows.coords, shadows.records), len(shadows.records)
        else:
            sums = threat.further.beside(shadows.coords, shadows.records, flat, self.name)
            model = ridge_of_sums(sums, shadows.coords.shape[1:], eps=eps_of(shadows.coords.dtype))
            count = sums.count
        found = threat.clipped(model.reconstruct(threat.coords))
        return found._replace(facts={"penalty": float(model.penalty), "n_shadows": count})

"""What a release says whatever its rotation, reflection and place: kernel ridge regression on invariant features.

A random start, or a local minimum, turns and mirrors a map. That hides the target from a regression on raw coordinates
and costs an attacker nothing: distances from the target to every known record do not turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingThreat, LearnedAttack
from drjax.attacks.passing import BLOCK
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.kernel_regression import (
    Choice,
    KernelRegression,
    Landmarks,
    fit_with_errors,
    squared_distances,
    tune,
)
from drjax.core.regression_sums import RegressionSums
from drjax.core.types import Array, Reconstruction, Status

WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Grid of the kernel's width, in units of the median squared distance between the features of two shadows."""

N_LANDMARKS = 4096
"""Shadows by whose kernels with it a new one is told where there are more than `MANY`."""

MANY = 2 * N_LANDMARKS
"""Most shadows whose kernels with each other are held: 0.5 GB for each copy."""

PENALTIES_OF_SUMS = tuple(float(10.0**e) for e in np.arange(-9, 1.5, 0.5))
"""Grid of the penalty there, lower than that of few shadows."""

N_SEARCHED = 1000
"""Most shadows that features, width and penalty are chosen on: an eigendecomposition for each of the first two."""


def _known_distances(coords: np.ndarray) -> np.ndarray:
    return np.linalg.norm(coords[:, 1:] - coords[:, :1], axis=-1)


def _distances(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    del reference
    return _known_distances(coords)


def _log_distances(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    del reference
    distances = _known_distances(coords)
    typical = np.median(distances, axis=1, keepdims=True)
    # Records that coincide are as near as a thousandth of a typical distance.
    return np.log(distances + 1e-3 * np.where(typical > 0, typical, 1))


def _affinities(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    del reference
    return 1 / (1 + _known_distances(coords) ** 2)


def _local_affinities(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    del reference
    distances = _known_distances(coords)
    at = min(5, distances.shape[1]) - 1
    reach = np.partition(distances, at, axis=1)[:, at, None]
    return np.exp(-((distances / np.where(reach > 0, reach, 1)) ** 2) / 2)


def _aligned(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    known = coords[:, 1:]
    centre = known.mean(axis=1, keepdims=True)
    left, _, right = np.linalg.svd(np.swapaxes(known - centre, 1, 2) @ reference)
    return ((coords - centre) @ (left @ right)).reshape(len(coords), -1)


FEATURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "distances": _distances,
    "log distances": _log_distances,
    "affinities": _affinities,
    "local affinities": _local_affinities,
    "aligned": _aligned,
}
"""Features by name: functions of releases (m, n, k) and known coordinates (n-1, k) to align with, to (m, p): distances
of the target to the known records; their logarithms; Student's 1 / (1 + d^2), which t-SNE and UMAP work with; a
Gaussian as wide as the distance to the fifth nearest; all coordinates after rotation and reflection onto the reference
(Procrustes)."""


@dataclass(frozen=True)
class KernelModel:
    """Kernel ridge regression from invariant features to the target; see `fit`.

    Attributes:
        features: Key of `FEATURES`.
        reference: (n-1, k), centred known coordinates that "aligned" aligns with.
        regression: Regression from the features (p,) of a release to its target (d,).
        loo_mse: {features: least mean squared leave-one-out error per entry} on the shadows that were searched.
    """

    features: str
    reference: np.ndarray
    regression: KernelRegression
    loo_mse: dict[str, float]

    def reconstruct(self, coords: Array) -> Reconstruction:
        """Reconstructs the targets of b releases, coords (b, n, k); 2 b m (p + d) FLOP.

        A release that is not finite gives a row of nan with status NON_FINITE.

        Raises:
            ValueError: coords of another shape than (b, n, k) with the training releases' n and k.
        """
        n, k = len(self.reference) + 1, self.reference.shape[1]
        coords = np.asarray(coords, np.float64)
        if coords.ndim != 3 or coords.shape[1:] != (n, k):
            raise ValueError(f"coords must have shape (b, {n}, {k}) as in training, got {coords.shape}")
        finite = np.isfinite(coords).all(axis=(1, 2))
        x, errors = np.full((2, len(coords), self.regression.intercept.size), np.nan)
        found = FEATURES[self.features](coords[finite], self.reference)
        x[finite], errors[finite] = self.regression.predict(found), self.regression.expected_squares(found)
        status = np.where(finite, np.uint32(Status.OK), np.uint32(Status.NON_FINITE))
        unknown = np.full(len(x), np.nan)
        return Reconstruction(x, None, x[:, None], unknown, status, errors.mean(axis=1), feature_mse=errors)


def fit(coords: Array, targets: Array, *, features: Sequence[str] = tuple(FEATURES)) -> KernelModel:
    """Learns the target from invariant features of shadow releases; nothing is drawn.

    Features, kernel width and penalty are those of the least leave-one-out error, on the first `N_SEARCHED` shadows.
    It is exact for a fixed intercept, and takes one eigendecomposition for each of the first two. O(m^2 (p + d) +
    m^3 / 3) beside. Above `MANY` shadows it learns from their kernels with the first `N_LANDMARKS`, q, by sums over all
    of them: O(m q (p + q + d) + q^3), and memory for q^2 numbers beside the shadows.

    Args:
        coords: (m, n, k) releases of the training shadows, target in row 0, finite; leave out unusable lanes before.
        targets: (m, d), the record in row 0 of each.
        features: Keys of `FEATURES` to choose among.

    Raises:
        ValueError: fewer than two shadows, shapes that do not match, values that are not finite, or unknown features.

    Source: Saunders, Gammerman & Vovk (1998), kernel ridge regression; leave-one-out by Golub, Heath & Wahba (1979).
    """
    raw = np.asarray(coords)
    if raw.ndim != 3 or raw.shape[1] < 2:
        raise ValueError(f"coords must have shape (m, n, k) with n >= 2, got {raw.shape}")
    validate.matrix(raw.reshape(len(raw), -1), "coords", min_rows=2)
    y = validate.matrix(targets, "targets").astype(np.float64)
    if len(y) != len(raw):
        raise ValueError(f"targets must have one row per release, {len(raw)}, got {len(y)}")
    if len(features) == 0:
        raise ValueError("features must name at least one kind, got none")
    for name in features:
        validate.one_of(FEATURES, features=name)

    if len(raw) > MANY:
        inputs = landmarks_of(raw[:N_LANDMARKS], y[:N_LANDMARKS], features=features)
        return of_sums(RegressionSums.of_blocks(inputs, raw, y, BLOCK), inputs, y[:N_LANDMARKS])
    releases = raw.astype(np.float64)
    reference = reference_of(releases)
    name, choice, losses = _chosen(releases, y, reference, features)
    regression, _ = fit_with_errors(FEATURES[name](releases, reference), y, choice)
    return KernelModel(name, reference, regression, losses)


def _chosen(
    releases: np.ndarray, y: np.ndarray, reference: np.ndarray, features: Sequence[str]
) -> tuple[str, Choice, dict[str, float]]:
    """Features, kernel and penalty of the least leave-one-out error on the first shadows, and that of each features."""
    searched = slice(min(len(y), N_SEARCHED))
    away = (y - y.mean(axis=0))[searched]
    choices = {}
    for name in features:
        squared = squared_distances(FEATURES[name](releases[searched], reference))
        choices[name] = tune(squared, away, widths=WIDTHS)
    losses = {name: choice.loo_mse for name, choice in choices.items()}
    name = min(losses, key=lambda one: losses[one])
    return name, choices[name], losses


@dataclass(frozen=True)
class KernelInputs:
    """What a regression from sums is given of releases: their kernel with some of them, as numbers; see `Landmarks`.

    Attributes:
        features: Key of `FEATURES`.
        reference: (n-1, k), as in `KernelModel`.
        landmarks: Landmarks among the features (q, p) of the first shadows.
        losses: As `loo_mse` of `KernelModel`.
    """

    features: str
    reference: np.ndarray
    landmarks: Landmarks
    losses: dict[str, float]

    def __call__(self, coords: np.ndarray) -> np.ndarray:
        """(m, r) of releases (m, n, k)."""
        return self.landmarks(FEATURES[self.features](np.asarray(coords, np.float64), self.reference))


def landmarks_of(coords: np.ndarray, targets: np.ndarray, *, features: Sequence[str] = tuple(FEATURES)) -> KernelInputs:
    """What releases are told by, chosen on some shadows (q, n, k) and their targets (q, d)."""
    releases, y = np.asarray(coords, np.float64), np.asarray(targets, np.float64)
    reference = reference_of(releases)
    name, choice, losses = _chosen(releases, y, reference, features)
    landmarks = Landmarks.of(choice.kernel, FEATURES[name](releases, reference))
    return KernelInputs(name, reference, landmarks, losses)


def of_sums(sums: RegressionSums, inputs: KernelInputs, targets: np.ndarray) -> KernelModel:
    """The model from sums over shadows, the landmarks themselves among them, whose targets are (q, d)."""
    found, landmarks = sums.solve(PENALTIES_OF_SUMS), inputs.landmarks
    errors = found.left_out(landmarks(landmarks.inputs), np.asarray(targets, np.float64))
    weights, intercept = landmarks.root @ found.weights, found.targets - found.inputs @ found.weights
    choice = Choice(found.loss, found.penalty, landmarks.kernel)
    regression = KernelRegression(landmarks.inputs, weights, intercept, choice, errors**2)
    return KernelModel(inputs.features, inputs.reference, regression, inputs.losses)


def reference_of(releases: np.ndarray) -> np.ndarray:
    """Mean of the known coordinates, each release aligned with the first; centred, (n-1, k)."""
    first = releases[0, 1:] - releases[0, 1:].mean(axis=0)
    aligned = _aligned(releases, first).reshape(releases.shape)[:, 1:]
    return aligned.mean(axis=0)


@dataclass(frozen=True, kw_only=True)
class InvariantKernel(LearnedAttack):
    """Kernel regression on invariant features; see `fit`."""

    name: str = "invariant"
    label: str = "Kernel on invariant features"
    description: str = (
        "Predicts the record from its distances to the known ones in the release, which stay when a map is turned or "
        "mirrored; fitted on shadow releases."
    )
    why: str = (
        "A random start turns and mirrors a map, and distances in it do not turn: they still say which known records "
        "the target is like."
    )

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        assert threat.public is not None
        s, p, d = len(threat.public), math.prod(threat.coords.shape[1:]), threat.known.shape[1]
        searched = min(s, N_SEARCHED)
        trials = len(FEATURES) * len(WIDTHS)
        flops = trials * (3.0 * searched**3 + 2.0 * searched**2 * d)
        if s > MANY or threat.further is not None:
            q = N_LANDMARKS
            flops += 2.0 * s * q * (p + 2 * q + d) + 30.0 * q**3
            making = 0.0 if threat.further is None else threat.further.seconds()
            n_bytes = 8.0 * (8 * q**2 + (q + BLOCK) * (len(FEATURES) * p + q) + 2 * s * d)
            return Cost(flops / DENSE_FLOPS + making, n_bytes)
        flops += 2.0 * s**2 * (p + d) + 2.0 * s**3
        return Cost(flops / DENSE_FLOPS, 8.0 * (4 * s**2 + len(FEATURES) * s * p + 3 * s * d))

    def summed(self, threat: EmbeddingThreat) -> Callable[[], KernelInputs] | None:
        """See `EmbeddingAttack`; the first shadows are the landmarks."""
        if threat.further is None:
            return None
        shadows = threat.shadows()
        return lambda: landmarks_of(shadows.coords[:N_LANDMARKS], shadows.records[:N_LANDMARKS])

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        shadows, make = threat.shadows(), self.summed(threat)
        if threat.further is None or make is None:
            model, count = fit(shadows.coords, shadows.records), len(shadows.records)
        else:
            inputs = make()
            sums = threat.further.beside(shadows.coords, shadows.records, inputs, self.name)
            model, count = of_sums(sums, inputs, np.asarray(shadows.records[:N_LANDMARKS], np.float64)), sums.count
        facts = {"features": model.features, "penalty": model.regression.choice.penalty, "loo_mse": model.loo_mse}
        return threat.clipped(model.reconstruct(threat.coords))._replace(facts=facts | {"n_shadows": count})

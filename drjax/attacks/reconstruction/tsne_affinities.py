"""The target's affinities read off a t-SNE map at rest, as features of a kernel regression.

At rest the forces on a known record i cancel: sum_j (p_ij - q_ij) w_ij (y_i - y_j) = 0 over all other records j, w the
Student weights of the map and q their shares. All of it is known but p_i0, the affinity to the target, and what the
target's presence changes of the others. Leaving that small change out gives an estimate of each p_i0 in one step;
shadows teach a regression what to make of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from drjax.attacks import certificate
from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import barnes_hut, invariant
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.kernel_regression import KernelRegression, fit_with_errors, median_or_one, squared_distances, tune
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import TSNE, metrics
from drjax.dr.tsne.affinity import joint_probabilities

LEAST = 1e-2
"""Estimates below this share of the mean affinity, negative ones too, are taken for it before the logarithm."""

OUT_OF_REACH = 1e9
"""Squared distance, as a multiple of the largest, at which a record has no affinity at any bandwidth."""

MAP_FEATURES = ("affinities", "local affinities")
"""Kinds of `invariant.FEATURES` to choose from, beside the estimates."""


def estimate(known: Array, coords: Array, perplexity: float, *, metric: str = metrics.EUCLIDEAN) -> np.ndarray:
    """Estimates of the joint affinities p_i0 (m, n-1) of the target, row 0, to the known records; all pairs sum to 1.

    Estimates have errors of either sign: some are negative. O(m n^2). A map by the Barnes-Hut algorithm, where a record
    has affinities to the nearest 3 perplexity + 1 alone and repulsion is by groups of points, is recognised by its
    known records, which are at rest with those forces and not with the exact ones.

    Args:
        known: (n-1, d).
        coords: (m, n, k) maps, finite.
        perplexity: Perplexity of the maps, 1 <= perplexity < n.
        metric: Metric of the records.

    Raises:
        ValueError: shapes that do not match, values that are not finite, or a perplexity out of range.
    """
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    coords = np.asarray(coords)
    n = len(known) + 1
    if coords.ndim != 3 or coords.shape[1] != n:
        raise ValueError(f"coords must have shape (m, {n}, k) for {n - 1} known, got {coords.shape}")
    validate.finite(coords=coords)
    validate.at_least(1, perplexity=perplexity)
    if not perplexity < n:
        raise ValueError(f"perplexity must be < n = {n} records, got {perplexity:g}")
    with jax.enable_x64(True):
        squared = metrics.squared_among_records(metric, known)
        among = [np.asarray(_affinities(near, perplexity)) for near in _ways(squared, perplexity)]
    # n - 1 records of one share each have n - 1 of n shares once the target is there.
    among = [one * (n - 1) / n for one in among]
    return np.stack([_of_map(among, one.astype(np.float64)) for one in coords])


_affinities = jax.jit(joint_probabilities, static_argnums=1)


def _ways(squared: np.ndarray, perplexity: float) -> list[np.ndarray]:
    """Squared distances (n-1, n-1) between known records as the exact algorithm sees them, and as Barnes-Hut does."""
    n_neighbors = int(3 * perplexity + 1)
    if n_neighbors >= len(squared) - 1:
        return [squared]
    # A record is the first of its own row.
    last = np.sort(squared, axis=1)[:, n_neighbors : n_neighbors + 1]
    return [squared, np.where(squared <= last, squared, OUT_OF_REACH * squared.max())]


def _of_map(among: list[np.ndarray], coords: np.ndarray) -> np.ndarray:
    difference = coords[:, None] - coords[None]
    freedom = max(coords.shape[1] - 1, 1)
    # Beyond two components scikit-learn and our kernel weigh forces with this power too, where the gradient has 1.
    weight = (1 + (difference**2).sum(axis=-1) / freedom) ** (-(freedom + 1) / 2)
    np.fill_diagonal(weight, 0)
    share = weight / weight.sum()
    force = weight[..., None] * difference
    # The target moves few of the known records by much, so that the median tells with which forces they rest.
    ways = [np.einsum("ij,ijk->ik", way - share[1:, 1:], force[1:, 1:]) for way in among]
    others = min(ways, key=_at_rest)
    if others is ways[-1]:
        exact = np.einsum("ij,ijk->ik", share[1:], force[1:])
        others = min(others, others + exact - barnes_hut.repulsion(coords)[1:], key=_at_rest)
    own = force[1:, 0]
    length = (own**2).sum(axis=1)
    return share[1:, 0] - (others * own).sum(axis=1) / np.where(length > 0, length, 1)


def _at_rest(total: np.ndarray) -> float:
    return float(np.median((total**2).sum(axis=1)))


@dataclass(frozen=True)
class AffinityModel:
    """Kernel ridge regression on estimated affinities and one kind of invariant features; see `fit`.

    Attributes:
        known: (n-1, d).
        perplexity: Perplexity of the maps.
        metric: Metric of the records.
        features: Kind of the invariant features, a key of `invariant.FEATURES`.
        reference: Reference that maps are aligned with; see `invariant.KernelModel`.
        units: Twice the median squared distance between two shadows, along the estimates and along those features.
        regression: Regression from both, each over the root of its unit, to the target (d,).
    """

    known: np.ndarray
    perplexity: float
    metric: str
    features: str
    reference: np.ndarray
    units: tuple[float, float]
    regression: KernelRegression

    def reconstruct(self, coords: Array) -> Reconstruction:
        """Reconstructs the targets of b releases, coords (b, n, k).

        A release that is not finite gives a row of nan with status NON_FINITE.

        Raises:
            ValueError: coords of another shape than in training.
        """
        shape = (len(self.known) + 1, self.reference.shape[1])
        coords = np.asarray(coords, np.float64)
        if coords.ndim != 3 or coords.shape[1:] != shape:
            raise ValueError(f"coords must have shape (b, {shape[0]}, {shape[1]}) as in training, got {coords.shape}")
        finite = np.isfinite(coords).all(axis=(1, 2))
        x, errors = np.full((2, len(coords), self.regression.intercept.size), np.nan)
        if finite.any():
            estimated = _logarithms(estimate(self.known, coords[finite], self.perplexity, metric=self.metric))
            found = estimated, invariant.FEATURES[self.features](coords[finite], self.reference)
            inputs = _joined(found, self.units)
            x[finite], errors[finite] = self.regression.predict(inputs), self.regression.expected_squares(inputs)
        status = np.where(finite, np.uint32(Status.OK), np.uint32(Status.NON_FINITE))
        unknown = np.full(len(x), np.nan)
        return Reconstruction(x, None, x[:, None], unknown, status, errors.mean(axis=1), feature_mse=errors)


def fit(
    known: Array, coords: Array, targets: Array, *, perplexity: float, metric: str = metrics.EUCLIDEAN
) -> AffinityModel:
    """Learns the target from shadow releases; nothing is drawn. Kind, width and penalty as in `invariant.fit`.

    Args:
        known: (n-1, d).
        coords: (m, n, k) maps of the training shadows, target in row 0, finite.
        targets: (m, d), the record in row 0 of each.
        perplexity: Perplexity of the maps.
        metric: Metric of the records.

    Raises:
        ValueError: see `estimate`; or fewer than two shadows, or another number of targets.
    """
    releases = np.asarray(coords, np.float64)
    y = validate.matrix(targets, "targets", min_rows=2).astype(np.float64)
    estimated = estimate(known, releases, perplexity, metric=metric)
    if len(y) != len(releases):
        raise ValueError(f"targets must have one row per release, {len(releases)}, got {len(y)}")
    known = np.asarray(known, np.float64)
    reference = invariant.reference_of(releases)
    searched = slice(min(len(y), invariant.N_SEARCHED))
    away = (y - y.mean(axis=0))[searched]
    logarithms, tried = _logarithms(estimated), {}
    for name in MAP_FEATURES:
        parts = logarithms, invariant.FEATURES[name](releases, reference)
        units = _unit(parts[0][searched]), _unit(parts[1][searched])
        inputs = _joined(parts, units)
        # Each part of a squared distance is one half in the median.
        choice = tune(squared_distances(inputs[searched]), away, widths=invariant.WIDTHS, unit=1.0)
        tried[name] = choice, inputs, units
    name = min(tried, key=lambda one: tried[one][0].loo_mse)
    choice, inputs, units = tried[name]
    regression, _ = fit_with_errors(inputs, y, choice)
    return AffinityModel(known, perplexity, metric, name, reference, units, regression)


def _logarithms(estimated: np.ndarray) -> np.ndarray:
    n = estimated.shape[1] + 1
    return np.log(np.maximum(estimated, LEAST / n**2))


def _unit(inputs: np.ndarray) -> float:
    return 2 * median_or_one(squared_distances(inputs))


def _joined(parts: tuple[np.ndarray, np.ndarray], units: tuple[float, float]) -> np.ndarray:
    return np.concatenate([part / np.sqrt(unit) for part, unit in zip(parts, units, strict=True)], axis=1)


@dataclass(frozen=True, kw_only=True)
class AffinitiesAtRest(EmbeddingAttack):
    """Kernel regression on t-SNE's affinities; see `fit`."""

    name: str = "affinities"
    label: str = "Kernel on affinities at rest"
    description: str = (
        "Reads the target's affinities off the forces that hold the map in place, and predicts the record from them "
        "and its distances; fitted on shadow releases."
    )
    why: str = (
        "Where a map is at rest the forces on every known record cancel, and the one that the target exerts is the "
        "only one that is not known."
    )
    needs_shadows: bool = True
    needs_public: bool = True
    confirms = False

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        return None if isinstance(method, TSNE) else "is of t-SNE"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        kernel, p = invariant.InvariantKernel().cost(threat), len(threat.known)
        maps = (len(threat.expected_of) + threat.n_releases) * 60.0 * p**2
        return Cost(2 * kernel.seconds + maps / DENSE_FLOPS, 2 * kernel.bytes + 32.0 * p**2)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        assert isinstance(threat.method, TSNE)
        shadows = threat.shadows()
        options = {"perplexity": float(threat.method.perplexity), "metric": threat.method.metric}
        model = fit(threat.known, shadows.coords, shadows.records, **options)
        choice = model.regression.choice
        facts = {"features": model.features, "penalty": choice.penalty, "loo_mse": choice.loo_mse}
        return certificate.checked(threat, threat.clipped(model.reconstruct(threat.coords)))._replace(facts=facts)

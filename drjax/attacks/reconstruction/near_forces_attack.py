"""The forces near the target as an attack; see `near_forces`."""

from __future__ import annotations

from dataclasses import dataclass

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction import map_forces, near_forces
from drjax.attacks.reconstruction.invariant import N_SEARCHED
from drjax.attacks.reconstruction.near_forces import N_NEAR
from drjax.attacks.reconstruction.within_map import N_GROUPS, WIDTHS
from drjax.attacks.shadow import DENSE_FLOPS, FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import TSNE, metrics

STEPS = 20
"""Steps of all descents for a target, about."""

STARTING = 0.05
"""Seconds of a target, whatever the sizes."""

PREPARING = 5e-7
"""Seconds of a pair of records in what all targets share."""


@dataclass(frozen=True, kw_only=True)
class NearForces(EmbeddingAttack):
    """Forces on the known records near the target, with what lies around it as a prior."""

    name: str = "near-forces"
    label: str = "Forces near the target"
    description: str = (
        "Solves the forces on the known records near the target in the map for the likeliest record among such as lie "
        "around its place."
    )
    why: str = (
        "Where a map is at rest the forces on every known record cancel, and the one that the target exerts is the "
        "only one that is not known."
    )
    each = True
    only_each = True
    confirms = False

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        is_euclidean = isinstance(method, TSNE) and method.metric == metrics.EUCLIDEAN
        return None if is_euclidean else "is of t-SNE of Euclidean distances"

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`."""
        del threat
        return "is of all records of one map in turn"

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`."""
        return self.suits(every.method, seed_known=False)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of one record, without what all share."""
        n, d = threat.known.shape
        k, s = threat.coords.shape[2], min(N_NEAR, n)
        # Affinities to all known records, products of their derivatives, and the prior's decomposition.
        affinities, products, prior = STEPS * 280.0 * s * n, STEPS * 7.0 * s * n * k * d, 1.5 * d**3
        seconds = STARTING + affinities / FLOPS + (products + prior) / DENSE_FLOPS
        return Cost(threat.n_releases * seconds, 48.0 * n**2)

    def seconds_each(self, every: EveryRecord, n_rows: int) -> float:
        """See `EmbeddingAttack`; and once the affinities of all records, and what the places of all say of them."""
        return super().seconds_each(every, n_rows) + self.seconds_once(every)

    def seconds_once(self, every: EveryRecord) -> float:
        """Time of what all records share."""
        n, d = every.x.shape
        searched = min(n, N_SEARCHED)
        kernels = N_GROUPS * len(WIDTHS) * searched**2 * (2.0 * searched + 7.0 * d)
        return PREPARING * n**2 + kernels / DENSE_FLOPS

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        assert isinstance(every.method, TSNE)
        perplexity = float(every.method.perplexity)
        made = every.once(self.name, lambda: map_forces.prepared(every.x, every.coords, perplexity))
        return near_forces.reconstruct_near_forces(made, every.rows, bounds=every.bounds)

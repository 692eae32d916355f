"""The forces near the target as an attack; see `near_forces`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction import near_forces
from drjax.attacks.reconstruction.near_forces import N_NEAR, Map
from drjax.attacks.shadow import FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import TSNE, metrics

STEPS = 20
"""Steps of all descents for a target, about."""

_LAST: dict[str, Map] = {}
"""What the last map's attacks share: an audit attacks a few of its records at a time."""


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
        step = s * n * (60.0 + 2.0 * k * d) + d**3
        return Cost(threat.n_releases * STEPS * step / FLOPS, 48.0 * n**2)

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        assert isinstance(every.method, TSNE)
        perplexity = float(every.method.perplexity)
        digest = hashlib.sha256(repr((perplexity, every.x.shape, every.x.dtype, every.coords.dtype)).encode())
        for array in (every.x, every.coords):
            digest.update(np.ascontiguousarray(array).data)
        name = digest.hexdigest()
        if name not in _LAST:
            _LAST.clear()
            _LAST[name] = near_forces.prepared(every.x, every.coords, perplexity)
        return near_forces.reconstruct_near_forces(_LAST[name], every.rows, bounds=every.bounds)

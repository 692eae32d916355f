"""The inversion as an attack; see `drjax.attacks.reconstruction.inversion.reconstruct`."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from drjax.attacks import certificate
from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import directions, inversion
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import TSNE, metrics

ROUNDED = 0.6
"""Standard deviation of rounding, in units of its largest error: that of a uniform one, and a little."""

STEPS = 180
"""Steps of the descents for a target, about."""

STARTING = 0.3
"""Seconds of a target, however few records and features there are."""


@dataclass(frozen=True, kw_only=True)
class Inversion(EmbeddingAttack):
    """The likeliest record, found by descent."""

    name: str = "inversion"
    label: str = "Inversion"
    description: str = (
        "Searches for the likeliest record from which the method makes the published coordinates, or with which its "
        "map is at rest."
    )
    why: str = (
        "The published map is all but a minimum of its objective, so the gradient there, which hangs on the target "
        "through its affinities, all but vanishes for the target alone."
    )

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        return inversion.refused(method, seed_known=seed_known)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        n, d = len(threat.known) + 1, threat.known.shape[1]
        q, method = threat.coords[0].size, threat.method
        if inversion.can_match(method, seed_known=threat.seed_key is not None):
            own = method.cost(n, d, itemsize=8)
            step = min(q, d) * own.flops + own.derivative_flops + 4.0 * q * d**2
        elif isinstance(method, TSNE):  # by formulas
            step = 2.0 * n**2 * q + 4.0 * d**2
        else:  # a derivative of all distances for each feature
            step = min(q, d) * n**2 * (40.0 + 2.0 * d)
        seconds = threat.n_releases * (STARTING + STEPS * step / FLOPS)
        return Cost(seconds, 8.0 * (4 * q * max(d, n) + 8 * d**2))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        return certificate.checked(threat, self.unchecked(key, threat))

    def unchecked(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `EmbeddingAttack`; draws nothing, and repeats the draws of a release of known seed."""
        seed: jax.Array | np.ndarray = key if threat.seed_key is None else threat.seed_key
        seen = directions.seen(metrics.of(threat.method), threat)
        found = inversion.reconstruct(
            seed,
            threat.method,
            seen.known,
            threat.coords,
            prior=GaussianPrior.fit(seen.expected),
            seed_known=threat.seed_key is not None,
            noise=None if threat.precision is None else ROUNDED * threat.precision,
            bounds=seen.bounds,
            progress=threat.progress,
        )
        found = seen.record(found)
        facts = {"n_not_converged": int(np.sum(found.status != 0))}
        return found._replace(facts=facts)

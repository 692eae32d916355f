"""Stationarity of MDS as an attack; see `reconstruct_mds`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from drjax.attacks import certificate
from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import directions
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.stationarity.mds import STEPS, calibrate, reconstruct_mds
from drjax.attacks.shadow import FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import MDS

CALIBRATION_RELEASES = 24
"""Most shadow releases that the size of what an early stop leaves is measured on."""

AT_REST = (
    "The iteration moves every known record by what its distance to the target asks for; where it has all but come to "
    "rest, that distance can be read off, whatever the start was"
)


@dataclass(frozen=True, kw_only=True)
class Stationarity(EmbeddingAttack):
    """The gradient that vanishes, and the last steps, with a Gaussian prior.

    Attributes:
        steps: Simulated steps at most, see `reconstruct_mds`.
    """

    steps: int = STEPS
    name: str = "stationarity"
    label: str = "Stationarity and last steps"
    description: str = (
        "Reads the target's distances off the gradient that all but vanishes at the release, and simulates the steps "
        "before an early stop; a few shadow releases calibrate it."
    )
    why: str = f"{AT_REST}."
    needs_shadows: bool = True
    each = True
    most_each = 250

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        return None if isinstance(method, MDS) else "is of MDS"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        n, d = threat.known.shape
        k = threat.coords.shape[2]
        # Derivatives of the steps in the target's distances: n k by n, each a product with n x n.
        each = self.steps * 24.0 * n**2 * k * n + 100.0 * n * k * n * min(n, d) + 30.0 * min(n, d) ** 2 * d
        return Cost(
            threat.n_releases * each / FLOPS + 2.0 * len(threat.expected_of) * d**2 / FLOPS,
            8.0 * (4 * n**2 * k + 3 * d**2),
        )

    def prior(self, records: np.ndarray) -> GaussianPrior | MixturePrior:
        """What is expected of one like records (s, d)."""
        return GaussianPrior.fit(records)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        return certificate.checked(threat, self.unchecked(key, threat))

    def unchecked(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        assert isinstance(threat.method, MDS)
        shadows, used, metric = threat.shadows(), slice(CALIBRATION_RELEASES), threat.method.metric
        scale = calibrate(shadows.known, shadows.coords[used], shadows.records[used], metric=metric)
        seen = directions.seen(metric, threat)
        prior = self.prior(seen.expected)
        options = {"scale": scale, "steps": self.steps, "bounds": seen.bounds, "metric": metric}
        found = reconstruct_mds(seen.known, threat.coords, prior=prior, progress=threat.progress, **options)
        found = seen.record(found)
        facts: dict[str, Any] = {"scale": scale, "expected_error_norm": float(np.nanmean(found.residual_norm))}
        if isinstance(prior, MixturePrior):
            facts["n_components_of_prior"] = len(prior.components)
        return found._replace(facts=facts)


@dataclass(frozen=True, kw_only=True)
class StationarityMixture(Stationarity):
    """The same with a mixture of Gaussians."""

    name: str = "stationarity-mixture"
    label: str = "Stationarity, mixture prior"
    description: str = "The same with a prior that learns kinds of records, a mixture of Gaussians."
    why: str = f"{AT_REST}, and records of the target's kind fill in what distances leave open."
    needs_public: bool = True
    each = False

    def prior(self, records: np.ndarray) -> GaussianPrior | MixturePrior:
        """Prior as in `Stationarity`."""
        return MixturePrior.fit(records)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        one = Stationarity.cost(self, threat)
        return Cost(2 * one.seconds, one.bytes + 160.0 * threat.known.shape[1] ** 2)

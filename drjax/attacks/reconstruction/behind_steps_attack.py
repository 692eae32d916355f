"""The attack on a PCA behind steps; see `behind_steps`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction.behind_steps import MAX_ITER, reconstruct_scores
from drjax.attacks.reconstruction.closed_form.attacks import SOLVED
from drjax.attacks.reconstruction.closed_form.pca import noise_floor
from drjax.attacks.reconstruction.eigen_equations import Form, split_steps
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import FirstPCA, Pipeline, UnitVariance, publishes_scores
from drjax.dr.pipeline.steps import Step


class Scores(NamedTuple):
    """Steps before a PCA, and what is left of its scores once the steps after it are undone."""

    steps: tuple[Step, ...]
    form: Form


def scores_of(method: DRMethod) -> Scores | None:
    """What a pipeline publishes, if it is scores of PCA behind steps that each look at one record or one feature."""
    if not isinstance(method, Pipeline) or not publishes_scores(method.method):
        return None
    steps = method.before
    # Leading components of leading components are these themselves.
    while steps and isinstance(steps[-1], FirstPCA) and not steps[-1].whiten:
        steps = steps[:-1]
    try:
        split_steps(steps)
    except ValueError:
        return None
    return Scores(steps, "directions" if any(isinstance(step, UnitVariance) for step in method.after) else "scores")


@dataclass(frozen=True, kw_only=True)
class BehindSteps(EmbeddingAttack):
    """Scores solved for the target, with what its own values do to the scaling recomputed for every candidate."""

    name: str = "behind-steps"
    label: str = "Closed form behind steps"
    description: str = (
        "Solves the equations of published components of scaled records, the scaling by all records included, for the "
        "likeliest target."
    )
    why: str = f"{SOLVED}; a scaling by all records is a function of the target, too."
    each = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        found = scores_of(method)
        return None if found is not None else "is of PCA behind steps that look at one record or one feature at a time"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        d, q = threat.known.shape[1], threat.coords[0].size
        flops = 2.0 * q * d * (q + d) + q**3
        return Cost(threat.n_releases * 2 * MAX_ITER * flops / DENSE_FLOPS, 8.0 * (8 * q * d + 4 * d**2 + 4 * q**2))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        method = threat.method
        found = scores_of(method)
        assert found is not None
        assert isinstance(method, Pipeline)
        releases = threat.coords.astype(np.float64)
        undone = np.asarray(jax.vmap(method.undone)(releases)) if method.after else releases
        unit = np.abs(undone).max() / max(np.abs(releases).max(), np.finfo(np.float64).tiny)
        noise = unit * noise_floor(threat.coords, (releases**2).sum(axis=1))
        return reconstruct_scores(
            key,
            found.steps,
            threat.known.astype(np.float64),
            undone,
            form=found.form,
            is_centred=True,
            expected_of=threat.expected_of.astype(np.float64),
            noise=np.maximum(noise, 0.6 * (threat.precision or 0.0) * unit),
            bounds=threat.bounds,
            progress=threat.progress,
        )

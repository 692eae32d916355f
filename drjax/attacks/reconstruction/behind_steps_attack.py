"""The attack on PCA and truncated SVD behind steps; see `behind_steps`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import directions
from drjax.attacks.reconstruction.behind_steps import LEAST_NOISE, reconstruct_scores
from drjax.attacks.reconstruction.closed_form.attacks import SOLVED
from drjax.attacks.reconstruction.closed_form.pca import noise_floor, reconstruct_pca
from drjax.attacks.reconstruction.eigen_equations import Form, n_rows, split_steps
from drjax.attacks.reconstruction.gauss_newton import WIDE
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import Centre, FirstPCA, Linear, Pipeline, Rescale, TruncatedSVD, UnitVariance, metrics, publishes_scores
from drjax.dr.pipeline.after import AfterStep
from drjax.dr.pipeline.steps import CentredRows, Standardise, Step, UnitRows

STARTING = 0.03
"""Seconds a release that take no part in products, most of them for values of single features that are tried."""

N_STEPS, SOLVING_FLOPS, PASSING = 120, 3e10, 9e-8
"""Steps of all descents, about; operations a second in each step's solution; and seconds of the passes over a
number of the equations' derivative."""


class Scores(NamedTuple):
    """Steps before a PCA or truncated SVD, and what is left of its scores once the steps after it are undone.

    Attributes:
        steps: Steps before the method, in their order.
        form: Part of the scores that is left, one of `FORMS`.
        is_centred: Whether records are centred after the steps.
    """

    steps: tuple[Step, ...]
    form: Form
    is_centred: bool


def scores_of(method: DRMethod) -> Scores | None:
    """What a pipeline publishes, if it is scores of PCA or truncated SVD behind steps on single records or features."""
    if not isinstance(method, Pipeline):
        return None
    is_centred = publishes_scores(method.method)
    # Of centred scores of the records as they are, their mean is missing.
    if not is_centred and (not isinstance(method.method, TruncatedSVD) or _has(method.after, Centre)):
        return None
    steps = method.before
    # Leading components of leading components are these themselves, and those are centred.
    while steps and isinstance(steps[-1], FirstPCA) and not steps[-1].whiten:
        steps, is_centred = steps[:-1], True
    try:
        split_steps(steps)
    except ValueError:
        return None
    # A feature less its mean has none left.
    is_centred |= bool(steps) and isinstance(steps[-1], Standardise)
    # A factor that was recognised behind a scaler is off by the target's part in the scaling.
    is_off = _has(method.after, Rescale) and any(not step.per_record for step in steps)
    form: Form = "directions" if is_off or _has(method.after, UnitVariance) else "scores"
    # Of a linear map that was recognised no more is used than that there is one.
    return Scores(steps, "span" if _has(method.after, Linear) else form, is_centred)


def _has(steps: tuple[AfterStep, ...], kind: type[AfterStep]) -> bool:
    return any(isinstance(step, kind) for step in steps)


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
        return None if found is not None else "is of PCA and truncated SVD behind steps on single records and scalers"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        (n, k), d = threat.coords.shape[1:], threat.known.shape[1]
        q = n_rows(n, d, k) * k
        # Products of few columns run at a tenth of the speed of others.
        flops = 40.0 * q * d**2 if q >= WIDE * d else 2.0 * q * d * (q + d) + q**3
        seconds = STARTING + N_STEPS * (flops / SOLVING_FLOPS + PASSING * q * d) + 60.0 * n * d**2 / DENSE_FLOPS
        return Cost(threat.n_releases * seconds, 8.0 * (8 * n * k * d + 4 * d**2 + 4 * q**2))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        method = threat.method
        found = scores_of(method)
        assert found is not None
        assert isinstance(method, Pipeline)
        releases = threat.coords.astype(np.float64)
        undone, moved = releases, np.eye(releases.shape[2])
        if method.after:
            with jax.enable_x64(True):
                undone = np.asarray(jax.vmap(method.undone)(releases))
                # Every step is undone by an affine map: what it does to an error of each column.
                moved = np.asarray(method.undone(moved)) - np.asarray(method.undone(0 * moved))
        unit = np.sqrt((moved**2).sum() / len(moved))
        noise = unit * noise_floor(threat.coords, (releases**2).sum(axis=1))
        known, expected = threat.known.astype(np.float64), threat.expected_of.astype(np.float64)
        metric = _shows_directions(found.steps)
        sizes = None if metric is None else directions.fit(metric, expected)
        if metric is not None:
            known, expected = metrics.prepared(metric, known), metrics.prepared(metric, expected)
        if sizes is not None and threat.precision is None and _are_directions_alone(found):
            return _with_sizes(_of_directions(known, expected, undone, noise), sizes, threat)
        result = reconstruct_scores(
            key,
            found.steps,
            known,
            undone,
            form=found.form,
            is_centred=found.is_centred,
            expected_of=known if threat.public is None else expected,
            noise=np.maximum(noise, 0.6 * (threat.precision or 0.0) * unit),
            covariance=(moved / unit).T @ (moved / unit),
            bounds=threat.bounds if metric is None else directions.bounds_of(metric, threat.bounds),
            progress=threat.progress,
        )
        return result if sizes is None else _with_sizes(result, sizes, threat)


def _are_directions_alone(found: Scores) -> bool:
    """Whether scores are those of truncated SVD of directions that `_shows_directions` names, with nothing between."""
    is_unit = len(found.steps) <= 2 and any(isinstance(step, UnitRows) for step in found.steps[-1:])
    return is_unit and found.form == "scores" and not found.is_centred


def _of_directions(known: np.ndarray, expected: np.ndarray, releases: np.ndarray, noise: np.ndarray) -> Reconstruction:
    """The target's direction in closed form; UNCERTIFIED where digits leave more than rounding open."""
    found = reconstruct_pca(known, releases, prior=GaussianPrior.fit(expected), is_centred=False)
    is_open = noise > LEAST_NOISE * np.abs(releases).max(axis=(1, 2))
    status = found.status | np.where(is_open, np.uint32(Status.UNCERTIFIED), np.uint32(0))
    left = np.sqrt(np.asarray(found.expected_mse) * known.shape[1])
    return found._replace(residual_norm=left, status=status.astype(np.uint32))


def _shows_directions(steps: tuple[Step, ...]) -> str | None:
    """The metric of the directions that are all steps leave of a record, where the first take its size; else None."""
    if steps and isinstance(steps[0], UnitRows):
        return "cosine"
    is_of_centred = len(steps) > 1 and isinstance(steps[0], CentredRows) and isinstance(steps[1], UnitRows)
    return "correlation" if is_of_centred else None


def _with_sizes(found: Reconstruction, sizes: directions.Sizes, threat: EmbeddingThreat) -> Reconstruction:
    """Records of directions, of the size that others of such directions have; the mean record where none was found."""
    scaled = sizes.applied(found._replace(residual_norm=np.nan_to_num(found.residual_norm)), threat.bounds)
    is_lost = (found.status & np.uint32(Status.MISFIT | Status.NOT_CONVERGED | Status.DEGENERATE)) != 0
    expected = scaled.residual_norm**2 / scaled.x.shape[1]
    # Where sizes hardly go with directions the mean record is no worse.
    is_open = ~is_lost & (expected > threat.usual_mse)
    status = (found.status | np.where(is_open, np.uint32(Status.UNCERTIFIED), np.uint32(0))).astype(np.uint32)
    return threat.guessed(scaled._replace(expected_mse=expected, status=status), is_lost | is_open)

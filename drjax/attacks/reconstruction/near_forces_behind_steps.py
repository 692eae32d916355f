"""The forces near the target in a t-SNE map of records behind steps, such as standardised ones or components.

Steps that see all records move the known ones with the target. So they are taken with a guess in its place: the record
that its place in the map says. The forces are solved for what the steps make of the target, and the answer is the
likeliest record of which they make that. A second round finds no better one. Where the guess is not good enough for a
precise map, what the forces change from the mean record to this guess is their noise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from drjax.attacks.attack import Cost, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction import map_forces, near_forces
from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.map_forces import Map
from drjax.attacks.reconstruction.near_forces import Solved, reconstruction_of
from drjax.attacks.reconstruction.near_forces_attack import NearForces
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.through_steps import LEAST_SHARE, Back, back_of, pipeline_of, record_of
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import TSNE, Pipeline

SHARES = (1.0, 4.0)
"""Noise that is tried where a guess is not good enough, in units of what the forces change from the one before."""

STARTING, TIMES = 0.1, 1.5
"""Seconds of a target for its way back through the steps; and how often its forces are solved, about."""

AFFINE = 1e-6
"""Largest error of an affine function of the known records, as a share of what steps make of them, that is rounding."""


@dataclass(frozen=True, kw_only=True)
class NearForcesBehindSteps(NearForces):
    """`NearForces` on what steps before the method make of the records, and the record from that."""

    name: str = "near-forces-behind-steps"
    label: str = "Forces near the target, behind steps"
    description: str = f"{NearForces.description} The steps before the method are undone in turn with it."
    why: str = f"{NearForces.why} Steps before the method are functions of the records, and can be undone."

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        if not isinstance(method, Pipeline) or not (method.before or method.after):
            return "is on methods behind steps"
        if any(not step.keeps_shape for step in method.after):
            return "needs maps that keep their shape"
        return super().suits(method.method, seed_known=seed_known)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of one record, without what all share."""
        pipeline, (n, d) = pipeline_of(threat.method), threat.known.shape
        inside = np.broadcast_to(0.0, (n, _width(pipeline, n, d)))
        own = super().cost(dataclasses.replace(threat, method=pipeline.method, known=inside))
        steps = threat.n_releases * (2.0 * n * d**2 + 16.0 * n * d * min(n, d)) / DENSE_FLOPS
        return Cost(threat.n_releases * STARTING + TIMES * own.seconds + steps, own.bytes + 48.0 * n * d)

    def seconds_once(self, every: EveryRecord) -> float:
        """See `NearForces`."""
        pipeline, (n, d) = pipeline_of(every.method), every.x.shape
        return super().seconds_once(dataclasses.replace(every, x=np.broadcast_to(0.0, (n, _width(pipeline, n, d)))))

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        pipeline, x = pipeline_of(every.method), every.x.astype(np.float64)
        made = every.once(self.name, lambda: _prepared(pipeline, every))
        rows = checked_rows(every.rows, len(x))
        return reconstruction_of([_solved(pipeline, made, x, int(row)) for row in rows], every.bounds)


class _Beside(NamedTuple):
    """What the steps make of all records, a guess in the target's place.

    Attributes:
        made: (n, d').
        turn: (d', d') rotation by which these lie as what the steps make of all records does.
    """

    made: np.ndarray
    turn: np.ndarray

    @property
    def turned(self) -> np.ndarray:
        """(n, d')."""
        return self.made @ self.turn


def _prepared(pipeline: Pipeline, every: EveryRecord) -> Map:
    """The map as the method made it, of what the steps make of all records."""
    assert isinstance(pipeline.method, TSNE)
    with jax.enable_x64(True):
        coords = np.asarray(pipeline.undone(jnp.asarray(every.coords, jnp.float64)))
    return map_forces.prepared(_through(pipeline, every.x), coords, float(pipeline.method.perplexity))


def _through(pipeline: Pipeline, x: np.ndarray) -> np.ndarray:
    """What the steps make of records (n, d), (n, d')."""
    with jax.enable_x64(True):
        return np.asarray(pipeline.prepared(jnp.asarray(x, jnp.float64)))


def _solved(pipeline: Pipeline, made: Map, x: np.ndarray, row: int) -> Solved:
    """The likeliest record (d,), and whether what steps make of it fulfils the equations."""
    prior = GaussianPrior.fit(np.delete(x, row, axis=0))
    if pipeline.is_updated:
        guess, found = prior.mean, near_forces.solve(made, row)
    else:
        guess, found = _moving(pipeline, made, x, row, prior)
    back = _back(pipeline, x, row, guess, prior, found.x, made)
    return Solved(back.x, found.is_found, back.left + back.gain**2 @ found.variance)


def _moving(pipeline: Pipeline, made: Map, x: np.ndarray, row: int, prior: GaussianPrior) -> tuple[np.ndarray, Solved]:
    """A guess (d,) at the record, and what the forces say that steps make of it, where they move the known ones."""
    z = made.guess[row]
    last = _equations(pipeline, x, row, prior.mean, made)
    guess = _back(pipeline, x, row, prior.mean, prior, z, made).x
    equations = _equations(pipeline, x, row, guess, made)
    found = near_forces.solve(made, row, equations)
    if not found.is_found:
        # The guess is not good enough for so precise a map. How far it is off, that before it tells.
        with jax.enable_x64(True):
            moved = np.asarray(equations.residual(jnp.zeros(0), z) - last.residual(jnp.zeros(0), z))
        noise = max(made.noise, float(np.sqrt(np.mean(moved**2))))
        for share in SHARES:
            if not found.is_found:
                found = near_forces.solve(made, row, equations, share * noise)
    return guess, found


def _equations(pipeline: Pipeline, x: np.ndarray, row: int, guess: np.ndarray, made: Map) -> near_forces.NearForces:
    """The equations of one of the records x (n, d), the steps taken with a guess in its place."""
    with jax.enable_x64(True):
        return near_forces.equations_of(made, row, _beside(pipeline, x, row, guess, made).turned)


def _beside(pipeline: Pipeline, x: np.ndarray, row: int, guess: np.ndarray, made: Map) -> _Beside:
    """What the steps make of records x (n, d), a guess in the place of one."""
    own = x.copy()
    own[row] = guess
    inside = _through(pipeline, own)
    if _is_apart(pipeline):
        return _Beside(inside, np.eye(inside.shape[1]))
    known, like = (np.delete(records, row, axis=0) for records in (inside, made.x))
    return _Beside(inside, scipy.linalg.orthogonal_procrustes(known - known.mean(axis=0), like - like.mean(axis=0))[0])


def _back(
    pipeline: Pipeline, x: np.ndarray, row: int, guess: np.ndarray, prior: GaussianPrior, z: np.ndarray, made: Map
) -> Back:
    """The likeliest record of which the steps make z (d'), beside the known ones."""
    known = np.delete(x, row, axis=0)
    if not _is_apart(pipeline):
        beside = _beside(pipeline, x, row, guess, made)
        turn, inside = beside.turn.T, np.delete(beside.made, row, axis=0)
        z = z @ turn
        mean, shift = known.mean(axis=0), inside.mean(axis=0)
        slope = np.linalg.lstsq(known - mean, inside - shift)[0]
        if np.abs((known - mean) @ slope - (inside - shift)).max() <= AFFINE * np.ptp(inside):
            # A change of sign of a component is no change of the map, but no linearisation leads across it.
            own = prior.condition(slope.T, (z - shift + mean @ slope)[None])[0]
            found = back_of(own, slope.T, prior, LEAST_SHARE * float(np.var(z)))
            return dataclasses.replace(found, gain=found.gain @ turn.T)
    return record_of(pipeline, known, guess, prior, z, 0.0, None)


def _is_apart(pipeline: Pipeline) -> bool:
    """Whether every step before the method looks at one record or one feature at a time."""
    return all(step.per_record or step.per_feature for step in pipeline.before)


def _width(pipeline: Pipeline, n: int, d: int) -> int:
    """Features that the steps before the method leave of d features of n records."""
    for step in pipeline.before:
        d = step.width(d, n)
    return d

"""Attacks on a method, put to use on the method behind steps: what it was given is rebuilt, then the record from that.

Behind steps that see all records, the known ones move with the target. So the steps are taken with a guess in the
target's place, the method's own attack rebuilds what the steps made of the target, the likeliest record that they make
this of becomes the next guess, and once more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks import certificate
from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow_sets import shadows_of, stand_in_shadows
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import Pipeline

ROUNDS = 4
"""Times that the attack is run on what steps make of the records with the last guess, where they move with it."""

MOST_MOVED = 0.01
"""Where the last round moves a record by more, squared and as a share of a record's variance, there is no end yet."""

STEPS_BACK = 6
"""Linearisations of the steps on the way back from what they made to the record."""

MOST_PUBLIC = 300
"""Public records that are put through steps; each takes all known ones with it."""

LEAST_SHARE = 1e-9
"""Least variance of an error of what the steps made, as a share of its own."""


@dataclass(frozen=True, kw_only=True)
class ThroughSteps(EmbeddingAttack):
    """An attack on the method, run on what the steps before it make of the records.

    Attributes:
        inner: Attack on the method.
        moves: Whether it is run where known records move with the target, too.
    """

    inner: EmbeddingAttack
    moves: bool = True
    name: str = field(init=False)
    label: str = field(init=False)
    description: str = field(init=False)
    why: str = field(init=False)
    needs_shadows: bool = field(init=False)
    needs_public: bool = field(init=False)

    def __post_init__(self) -> None:
        """Takes its words from the inner attack."""
        own = {
            "name": f"{self.inner.name}-behind-steps",
            "label": f"{self.inner.label}, behind steps",
            "description": f"{self.inner.description} The steps before the method are undone in turn with it.",
            "why": f"{self.inner.why} Steps before the method are functions of the records, and can be undone.",
            "needs_shadows": self.inner.needs_shadows,
            "needs_public": self.inner.needs_public,
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        if not isinstance(method, Pipeline) or not (method.before or method.after):
            return "is on methods behind steps"
        if any(not step.keeps_shape for step in method.after):
            return "needs maps that keep their shape"
        if not (self.moves or method.is_updated):
            return "is on methods behind steps that look at one record at a time"
        return self.inner.suits(method.method, seed_known=seed_known)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        own = self.inner.cost(dataclasses.replace(threat, method=pipeline_of(threat.method).method))
        return Cost((1 if pipeline_of(threat.method).is_updated else ROUNDS) * own.seconds, 2 * own.bytes)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        pipeline, known = pipeline_of(threat.method), threat.known.astype(np.float64)
        prior = GaussianPrior.fit(threat.expected_of)
        coords = np.asarray(jax.vmap(pipeline.undone)(threat.coords)) if pipeline.after else threat.coords
        start = np.where(is_held(pipeline, known), known[0], prior.mean)
        found = self._run(key, threat, start, coords)
        back = [record_of(pipeline, known, start, prior, *one, threat.bounds) for one in _made(found)]
        status, moved = np.asarray(found.status, np.uint32), np.zeros((len(back), len(start)))
        usual = float(np.trace(prior.covariance)) / len(prior.mean)
        for _ in range(0 if pipeline.is_updated else ROUNDS - 1):
            parts = [self._run(key, threat, last.x, one[None]) for last, one in zip(back, coords, strict=True)]
            last = np.stack([one.x for one in back])
            back = [
                record_of(pipeline, known, guess, prior, *_made(part)[0], threat.bounds)
                for guess, part in zip(last, parts, strict=True)
            ]
            status = np.concatenate([part.status for part in parts]).astype(np.uint32)
            moved = np.stack([one.x for one in back]) - last
        # What the last round still moved is not known any better.
        x, left = np.stack([one.x for one in back]), np.stack([one.left for one in back]) + moved**2
        expected, is_moving = left.mean(axis=1), (moved**2).mean(axis=1) > MOST_MOVED * usual
        status = status | np.where(is_moving, np.uint32(Status.NOT_CONVERGED), np.uint32(0))
        is_lost = ~np.isfinite(x).all(axis=1)
        status = status | np.where(is_lost, np.uint32(Status.MISFIT), np.uint32(0))
        norm = np.sqrt(expected * x.shape[1])
        own = Reconstruction(x, None, x[:, None], norm, status, expected, feature_mse=left)
        checked = certificate.checked(threat, own)
        # Where as much is open as before, or rounds lead nowhere, what one would guess errs least.
        is_adrift = is_moving & ((checked.status & np.uint32(Status.NOT_CONVERGED)) != 0)
        return threat.guessed(checked, is_adrift | ~(checked.expected_mse < threat.usual_mse))

    def _run(self, key: Array, threat: EmbeddingThreat, guess: np.ndarray, coords: np.ndarray) -> Reconstruction:
        """What the inner attack finds of the steps' result for releases (m, n, k), with a guess (d,) in the steps."""
        pipeline, known = pipeline_of(threat.method), threat.known.astype(np.float64)
        guess = np.where(np.isfinite(guess), guess, known.mean(axis=0))
        with jax.enable_x64(True):
            prepared = np.asarray(pipeline.prepared(jnp.asarray(np.concatenate([guess[None], known]))))[1:]
            public = None if threat.public is None else _all_prepared(pipeline, known, threat.public[:MOST_PUBLIC])

        decimals = decimals_of_map(pipeline, threat.decimals)

        def shadows() -> Shadows:
            of: dict[str, Any] = {"decimals": decimals, "dtype": threat.dtype, "seed_key": threat.seed_key}
            if public is None:
                return stand_in_shadows(key, pipeline.method, prepared, **of)
            return shadows_of(key, pipeline.method, prepared, public, **of)

        inner = dataclasses.replace(
            threat,
            method=pipeline.method,
            known=prepared,
            coords=coords,
            public=public,
            shadows=shadows,
            decimals=decimals,
            bounds=None,
            truth=None,
        )
        return self.inner.unchecked(key, inner)


@dataclass(frozen=True)
class Back:
    """The likeliest record.

    Attributes:
        x: (d,).
        left: (d,) squared error to expect of each feature.
        gain: (d, d') change of the record with a change of what the steps made of it.
    """

    x: np.ndarray
    left: np.ndarray
    gain: np.ndarray


def pipeline_of(method: DRMethod) -> Pipeline:
    """The method, which `ThroughSteps` is for."""
    assert isinstance(method, Pipeline)
    return method


def decimals_of_map(pipeline: Pipeline, decimals: int | None) -> int | None:
    """Decimals to which a map is known before the steps after its method, of as many published ones; None for all."""
    if decimals is None or not pipeline.after:
        return decimals
    with jax.enable_x64(True):
        ends = np.asarray(
            [pipeline.undone(jnp.full((1, pipeline.n_components), end)) for end in (0.0, 10.0**-decimals)]
        )
    # A map that was made smaller is known less closely than to its own decimals.
    return max(0, int(np.floor(1e-9 - np.log10(np.abs(ends[1] - ends[0]).max()))))


def is_held(pipeline: Pipeline, known: np.ndarray) -> np.ndarray:
    """(d,) features in which no known record (n - 1, d) differs, where steps see all records: the target's is theirs.

    A scaler divides such a feature by 1; were the target to differ by any amount at all, by that amount. No step of
    Gauss and Newton leads across such a jump.
    """
    return (not pipeline.is_updated) & (np.ptp(known, axis=0) == 0)


def _all_prepared(pipeline: Pipeline, known: np.ndarray, records: np.ndarray) -> np.ndarray:
    """(s, d') what the steps make of each record (s, d) beside the known ones."""
    return np.asarray(_prepared(pipeline, jnp.asarray(known), jnp.asarray(records, jnp.float64)))


@jax.jit
def _prepared(pipeline: Pipeline, known: jax.Array, records: jax.Array) -> jax.Array:
    def one(record: jax.Array) -> jax.Array:
        return pipeline.prepared(jnp.concatenate([record[None], known]))[0]

    return jax.lax.map(one, records, batch_size=16)


def _made(found: Reconstruction) -> list[tuple[np.ndarray, float]]:
    """What the steps made of each target, (d',), and the variance of its error, a feature."""
    z, d = np.asarray(found.x, np.float64), found.x.shape[1]
    error = np.asarray(found.residual_norm**2 / d if found.expected_mse is None else found.expected_mse)
    return list(zip(z, np.where(np.isfinite(error), error, z.var(axis=1)).tolist(), strict=True))


def record_of(
    pipeline: Pipeline,
    known: np.ndarray,
    guess: np.ndarray,
    prior: GaussianPrior,
    z: np.ndarray,
    variance: float,
    bounds: tuple[float, float] | None,
) -> Back:
    """The likeliest record of which the steps make z (d',), beside the known ones, by steps of Gauss and Newton."""
    if not (np.isfinite(z).all() and np.isfinite(guess).all()):
        nothing = np.full(len(guess), np.nan)
        return Back(nothing, nothing, np.zeros((len(guess), len(z))))
    low, high = (None, None) if bounds is None else bounds
    noise, held = max(variance, LEAST_SHARE * float(np.var(z))), is_held(pipeline, known)
    x = last = np.where(held, known[0], guess)
    slope = np.zeros((len(z), len(guess)))
    with jax.enable_x64(True):
        arrays = jnp.asarray(known)
        for _ in range(STEPS_BACK):
            made, tried = (np.asarray(part) for part in _linearised(pipeline, arrays, jnp.asarray(x)))
            if not (np.isfinite(made).all() and np.isfinite(tried).all()):
                # Logarithms end somewhere: half the way.
                x = (last + x) / 2
                continue
            last, slope = x, np.where(held, 0.0, tried)
            x = prior.condition(slope, (z - made + slope @ x)[None], noise, lower=low, upper=high)[0]
            x = np.where(held, known[0], x)
            if np.abs(x - last).max() <= 1e-9 * np.abs(x).max():
                break
        if not np.isfinite(np.asarray(pipeline.prepared(jnp.concatenate([jnp.asarray(x)[None], arrays])))[0]).all():
            x = last
    return back_of(x, slope, prior, noise)


def back_of(x: np.ndarray, slope: np.ndarray, prior: GaussianPrior, noise: float) -> Back:
    """A record (d,) that was conditioned on what steps of a slope (d', d) make of it, known up to noise."""
    loaded = slope @ prior.covariance
    gain = np.linalg.solve(loaded @ slope.T + noise * np.eye(len(slope)), loaded).T
    left = np.diagonal(prior.covariance) - np.sum(gain.T * loaded, axis=0)
    return Back(x, np.maximum(left, 0), gain)


@jax.jit
def _linearised(pipeline: Pipeline, known: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What the steps make of a record (d,) beside the known ones, (d',), and its derivative (d', d)."""

    def made(x: jax.Array) -> jax.Array:
        return pipeline.prepared(jnp.concatenate([x[None], known]))[0]

    if all(step.per_feature for step in pipeline.before):
        z, slope = jax.jvp(made, (x,), (jnp.ones_like(x),))
        return z, jnp.diag(slope)
    return made(x), jax.jacfwd(made)(x)

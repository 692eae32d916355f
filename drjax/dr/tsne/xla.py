"""t-SNE's descent in XLA, for devices other than CPUs and for derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import platforms
from drjax.core.lanes import while_lanes
from drjax.core.types import Array
from drjax.dr import pallas, quality
from drjax.dr.tsne import gpu
from drjax.dr.tsne.cpu import Descent

_Forces = Callable[[Array, Array], tuple[Array, Array, Array]]

UNROLLED_ITER = 10
"""Up to this many iterations run as a loop of fixed length, through which derivatives pass."""

CHECK_EVERY = 50
MOMENTUM = (0.5, 0.8)
"""scikit-learn's: iterations from one look at the stopping rules to the next, momentum during and after
exaggeration."""


def descend(p: Array, start: Array, descent: Descent) -> tuple[Array, Array, Array, Array, Array]:
    """`descend_batch` for one data set: p (n, n), start (n, k)."""
    coords, *rest = descend_batch(p[None], start[None], descent)
    return coords[0], *(leaf[0] for leaf in rest)  # pyrefly: ignore[bad-return]


def descend_batch(p: Array, starts: Array, descent: Descent) -> tuple[Array, Array, Array, Array, Array]:
    """Gradient descent on t-SNE's divergence from given affinities and given starts; pure XLA.

    Data sets that have stopped leave the batch (`core.lanes`). Differentiable for at most `UNROLLED_ITER` iterations.

    Args:
        p: (b, n, n) joint probabilities.
        starts: (b, n, k).
        descent: How to descend.

    Returns:
        coords (b, n, k), divergence (b,), norm of the last gradient that was looked at (b,), iterations (b,) int32,
        stopped before the cap (b,) bool.
    """
    b, dtype = starts.shape[0], starts.dtype
    infinite = jnp.full(b, jnp.inf, dtype)
    state = _State(
        y=starts,
        update=jnp.zeros_like(starts),
        gains=jnp.ones_like(starts),
        count=jnp.zeros(b, jnp.int32),
        exploring=jnp.full(b, descent.exploration > 0),
        best=infinite,
        best_at=jnp.zeros(b, jnp.int32),
        norm=infinite,
        stopped=jnp.zeros(b, bool),
    )
    if descent.max_iter <= UNROLLED_ITER:
        step = jax.vmap(lambda state, p: _step(descent, forces_in_xla, state, p)[0])
        state, _ = jax.lax.scan(lambda s, _: (step(s, p), None), state, None, length=descent.max_iter)
    else:
        pairs = jax.vmap(pallas.padded)(p) if pallas.is_enabled() else p
        state = while_lanes(
            lambda state, pairs: _segment(descent, state, pairs),
            state,
            pairs,
            done=lambda s: s.stopped | (s.count >= descent.max_iter),
        )
    return state.y, jax.vmap(quality.kl_divergence)(p, state.y), state.norm, state.count, state.stopped


class _State(NamedTuple):
    """State of a descent; `norm` and `best` are as of the last check."""

    y: Array
    update: Array
    gains: Array
    count: Array
    exploring: Array
    best: Array
    best_at: Array
    norm: Array
    stopped: Array


def _step(descent: Descent, forces: _Forces, state: _State, p: Array) -> tuple[_State, Array]:
    """One iteration, and the gradient times the gains."""
    scale, momentum = _scale_and_momentum(descent, state)
    slope = gradient(p, state.y, scale, forces=forces)
    update, gains, slope = gpu.next_update(slope, state.update, state.gains, momentum, descent.learning_rate)
    return state._replace(y=state.y + update, update=update, gains=gains, count=state.count + 1), slope


def _scale_and_momentum(descent: Descent, state: _State) -> tuple[Array, Array]:
    dtype = state.y.dtype
    scale = jnp.where(state.exploring, descent.exaggeration, 1.0).astype(dtype)
    return scale, jnp.where(state.exploring, *MOMENTUM).astype(dtype)


def _steps(descent: Descent, state: _State, pairs: Array) -> _State:
    """The iterations of a lane between two looks at the stopping rules, up to the cap."""

    def one_by_one(state: _State, pairs: Array) -> _State:
        def unless_over(_: int, state: _State) -> _State:
            new = _step(descent, _forces, state, pairs)[0]
            return jax.tree.map(lambda a, b: jnp.where(state.count < descent.max_iter, a, b), new, state)

        return jax.lax.fori_loop(0, CHECK_EVERY - 1, unless_over, state)

    if not pallas.is_enabled():
        return one_by_one(state, pairs)
    at_once = functools.partial(_steps_at_once, descent, backend="cuda")
    return platforms.by_platform(state, pairs, cuda=at_once, default=one_by_one)


def _steps_at_once(descent: Descent, state: _State, pairs: Array, *, backend: str) -> _State:
    """`_steps` in one launch."""
    count = jnp.clip(descent.max_iter - state.count, 0, CHECK_EVERY - 1)
    steps = gpu.Steps(*_scale_and_momentum(descent, state), descent.learning_rate, count)
    y, update, gains = gpu.tsne_steps(pairs, state.y, state.update, state.gains, steps, backend=backend)
    return state._replace(y=y, update=update, gains=gains, count=state.count + count)


def _segment(descent: Descent, state: _State, pairs: Array) -> _State:
    """All iterations of a lane up to the next look at the stopping rules."""
    n = state.y.shape[0]
    state = _steps(descent, state, pairs)
    error = quality.kl_divergence(pairs[:n, :n], state.y)
    new, slope = _step(descent, _forces, state, pairs)
    is_check = new.count <= descent.max_iter
    norm = jnp.sqrt(jnp.sum(slope**2))
    better = ~state.exploring & (error < state.best)
    best, best_at = jnp.where(better, error, state.best), jnp.where(better, new.count, state.best_at)
    stuck = ~state.exploring & ~better & (new.count - best_at > descent.patience)
    stop = stuck | (norm <= descent.min_grad_norm)
    # The second phase starts at rest: scikit-learn calls its descent anew.
    ended = state.exploring & (stop | (new.count == descent.exploration))
    new = new._replace(
        update=jnp.where(ended, 0, new.update),
        gains=jnp.where(ended, 1, new.gains),
        exploring=state.exploring & ~ended,
        best=best,
        best_at=jnp.where(ended, new.count, best_at),
        norm=norm,
        stopped=~state.exploring & stop,
    )
    return jax.tree.map(lambda a, b: jnp.where(is_check, a, b), new, state)


def gradient(p: Array, y: Array, scale: Array | float = 1.0, *, forces: _Forces | None = None) -> Array:
    """Gradient of t-SNE's divergence; (n, k). O(n^2 k).

    Args:
        p: (n, n) joint probabilities with zero diagonal.
        y: (n, k) coordinates.
        scale: Exaggeration of p.
        forces: Function like `forces_in_xla`, which is the default.
    """
    freedom = max(y.shape[1] - 1, 1)
    attraction, repulsion, weights = (forces or forces_in_xla)(p, y)
    return 2 * (freedom + 1) / freedom * (scale * attraction - repulsion / jnp.sum(weights))


def forces_in_xla(p: Array, y: Array) -> tuple[Array, Array, Array]:
    """`gpu.tsne_forces` by XLA: attraction (n, k), repulsion (n, k), sums of weights (n,)."""
    k = y.shape[1]
    freedom = max(k - 1, 1)
    # Column by column, and by differences of coordinates: their tensor would be k times the memory, and differences of
    # weighted sums would cost distant points digits.
    steps = [y[:, c, None] - y[:, c] for c in range(k)]
    u = 1 + functools.reduce(jnp.add, [step**2 for step in steps]) / freedom
    w = 1 / u if freedom == 1 else u ** (-(freedom + 1) / 2)
    pull, push = p * w, w * w
    attraction = jnp.stack([jnp.sum(pull * step, axis=1) for step in steps], axis=1)
    repulsion = jnp.stack([jnp.sum(push * step, axis=1) for step in steps], axis=1)
    return attraction, repulsion, jnp.sum(w, axis=1) - 1


def _forces(pairs: Array, y: Array) -> tuple[Array, Array, Array]:
    """Forces, on the device's own kernel if asked for; pairs (n, n) or padded."""
    n = y.shape[0]

    def otherwise(pairs: Array, y: Array) -> tuple[Array, Array, Array]:
        return forces_in_xla(pairs[:n, :n], y)

    return pallas.on_accelerator(gpu.tsne_forces, otherwise, pairs, y)

"""t-SNE's sums over pairs as a Pallas kernel for GPUs and TPUs, and its steps as one for GPUs; see `dr.pallas`."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from drjax.core.types import Array
from drjax.dr.pallas import COLUMNS, ROWS, barrier, call, call_whole, padded, sum_over_columns

LEAST_GAIN = 0.01
"""Least gain of a coordinate, scikit-learn's."""


def tsne_forces(p: Array, y: Array, *, backend: str) -> tuple[Array, Array, Array]:
    """What t-SNE's gradient consists of, for affinities p (n, n), or `pallas.padded`, and coordinates y (n, k).

    With w_ij = (1 + |y_i - y_j|^2 / f)^(-(f + 1) / 2), f = max(k - 1, 1): the attraction, the sum over j of
    p_ij w_ij (y_i - y_j), (n, k); the repulsion, the sum of w_ij^2 (y_i - y_j), (n, k); and the sum of w_ij over j
    other than i, (n,). With z the sum of the last, 2 (f + 1) / f (attraction - repulsion / z) is the gradient of the
    divergence. `backend` and cost as in `mds.gpu.stress_forces`.
    """
    k = y.shape[1]
    attraction, repulsion, weight = call(functools.partial(_tsne_kernel, y.shape[0]), p, y, (k, k, 1), backend)
    return attraction, repulsion, weight[:, 0]


def _tsne_kernel(
    n: int, pairs_ref: Any, rows_ref: Any, columns_ref: Any, attraction_ref: Any, repulsion_ref: Any, weight_ref: Any
) -> None:
    k = rows_ref.shape[1]
    freedom = max(k - 1, 1)
    row = pl.program_id(0) * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 0)

    def tile(at: Any, steps: list[Array], squared: Array) -> list[Array]:
        column = at.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 1)
        # Points that only fill a tile have weight 1 at the origin.
        weight = jnp.where((column < n) & (column != row), _weight(squared, freedom), 0)
        pull, push = pairs_ref[:, at] * weight, weight * weight
        return [*(pull * step for step in steps), *(push * step for step in steps), weight]

    totals = sum_over_columns(tile, rows_ref, columns_ref, 2 * k + 1)
    for c in range(k):
        attraction_ref[:, c : c + 1] = totals[c]
        repulsion_ref[:, c : c + 1] = totals[k + c]
    weight_ref[...] = totals[2 * k]


def _weight(squared: Array, freedom: int) -> Array:
    """The weight of pairs at squared distances; Triton has no powers."""
    base = 1 + squared / freedom
    return 1 / base if freedom == 1 else jnp.exp(-(freedom + 1) / 2 * jnp.log(base))


def next_update(slope: Array, update: Array, gains: Array, momentum: Any, learning_rate: Any) -> tuple[Array, ...]:
    """scikit-learn's rule: the next update and gains of coordinates, and the gradient times these gains.

    Args:
        slope, update, gains: Gradient, last update and gains, arrays of one shape.
        momentum: Share of the last update that is kept, ().
        learning_rate: ().
    """
    gains = jnp.where(update * slope < 0, gains + 0.2, jnp.maximum(gains * 0.8, LEAST_GAIN))
    slope = slope * gains
    return momentum * update - learning_rate * slope, gains, slope


class Steps(NamedTuple):
    """How a map moves in some steps of the descent.

    Attributes:
        scale: Exaggeration of the affinities, ().
        momentum: Share of the last update that is kept, ().
        learning_rate: ().
        count: Steps, (), int32.
    """

    scale: Any
    momentum: Any
    learning_rate: Any
    count: Any


def tsne_steps(
    p: Array, y: Array, update: Array, gains: Array, steps: Steps, *, backend: str
) -> tuple[Array, Array, Array]:
    """`steps.count` steps of gradient descent on one map in one launch: its coordinates, last update and gains.

    A program of the GPU moves a map; maps that `jax.vmap` adds run beside each other. Nothing is written to memory in
    between but n k numbers a step, which stay in the cache; the affinities are read once a step.

    Args:
        p: (n, n), or already `pallas.padded`.
        y, update, gains: (n, k).
        steps: Number and settings of the steps.
        backend: "cuda", or "interpret", which runs anywhere, slowly, in any dtype.

    Returns:
        Coordinates, last update and gains, (n, k) each. O(n^2 k) operations a step.
    """
    n = len(y)
    p = padded(p) if p.shape == (n, n) else p
    state = [jnp.pad(leaf.T, ((0, 0), (0, p.shape[0] - n))) for leaf in (y, update, gains)]
    settings = jnp.stack([jnp.asarray(leaf, y.dtype) for leaf in steps[:3]])
    count = jnp.reshape(jnp.asarray(steps.count, jnp.int32), 1)
    kernel = functools.partial(_steps_kernel, n, backend)
    moved = call_whole(kernel, (p, settings, count), state, scratch=2, backend=backend)
    return tuple(leaf[:, :n].T for leaf in moved)  # pyrefly: ignore[bad-return]


def _steps_kernel(n: int, backend: str, pairs_ref: Any, settings_ref: Any, count_ref: Any, *refs: Any) -> None:
    y_ref, update_ref, gains_ref, attraction_ref, repulsion_ref = refs
    k, size = y_ref.shape
    freedom = max(k - 1, 1)
    scale, momentum, learning_rate = settings_ref[0], settings_ref[1], settings_ref[2]

    def forces(block: Any, z: Array) -> Array:
        """Attraction and repulsion of some rows; the sum of all weights so far."""
        rows = pl.ds(pl.multiple_of(block * ROWS, ROWS), ROWS)
        row = rows.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 0)
        own = [y_ref[c, rows][:, None] for c in range(k)]

        def add(t: Any, totals: list[Array]) -> list[Array]:
            at = pl.ds(pl.multiple_of(t * COLUMNS, COLUMNS), COLUMNS)
            column = at.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 1)
            apart = [own[c] - y_ref[c, at][None] for c in range(k)]
            squared = functools.reduce(jnp.add, [step * step for step in apart])
            weight = jnp.where((column < n) & (column != row) & (row < n), _weight(squared, freedom), 0)
            pull, push = pairs_ref[rows, at] * weight, weight * weight
            terms = [*(pull * step for step in apart), *(push * step for step in apart), weight]
            return [total + jnp.sum(term, axis=1) for total, term in zip(totals, terms, strict=True)]

        totals = jax.lax.fori_loop(0, size // COLUMNS, add, [jnp.zeros(ROWS, y_ref.dtype)] * (2 * k + 1))
        for c in range(k):
            attraction_ref[c, rows], repulsion_ref[c, rows] = totals[c], totals[k + c]
        return z + jnp.sum(totals[2 * k])

    def move(block: Any, z: Array) -> Array:
        rows = pl.ds(pl.multiple_of(block * ROWS, ROWS), ROWS)
        for c in range(k):
            force = scale * attraction_ref[c, rows] - repulsion_ref[c, rows] / z
            slope = 2 * (freedom + 1) / freedom * force
            last, gain, _ = next_update(slope, update_ref[c, rows], gains_ref[c, rows], momentum, learning_rate)
            y_ref[c, rows], update_ref[c, rows], gains_ref[c, rows] = y_ref[c, rows] + last, last, gain
        return z

    def step(_: Any, carry: None) -> None:
        # A step reads what all rows wrote in the one before.
        z = jax.lax.fori_loop(0, size // ROWS, forces, jnp.zeros((), y_ref.dtype))
        barrier(backend)
        jax.lax.fori_loop(0, size // ROWS, move, z)
        barrier(backend)
        return carry

    jax.lax.fori_loop(0, count_ref[0], step, None)

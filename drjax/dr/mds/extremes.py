"""Signs of classical scaling's coordinates from a few rows: the largest |coordinate| is that of a row far out.

Which row it is differs from target to target, but only among those that lie farthest along the known records' own
directions, as long as no other can have come as far: coordinates are rows times a turn, and turns hardly differ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.linalg import HIGHEST
from drjax.core.streamed import Matrix
from drjax.core.types import Array
from drjax.dr.factored import Factors

FARTHEST = 256
"""Rows that are kept of each direction."""

KEPT_ENTRIES = 2**20
"""Rows of no more entries than this are all kept."""

READ_ENTRIES = 2**24
"""Entries of rows that are made at a time."""


class Extremes(NamedTuple):
    """Rows that may have the largest coordinate, and how far all others may come.

    Attributes:
        rows: (c, r), some of the known records' rows.
        reach: (q,), the most that the entry of any other row is, of each of q leading directions; (0,) without others.
        rest: (q,), the largest norm of a row's other entries.
    """

    rows: Any
    reach: Any
    rest: Any


def extremes(rows: Matrix, n_directions: int) -> Extremes:
    """The rows farthest along each of the leading directions of rows (m, r); one pass."""
    (m, r), q = rows.shape, min(n_directions, rows.shape[1])
    if m * r <= KEPT_ENTRIES:
        return Extremes(np.asarray(rows[np.arange(m)]), np.zeros(0), np.zeros(0))
    farthest, reach, rest = np.empty((q, 0), np.int64), np.empty((q, 0)), np.zeros(q)
    step = max(1, READ_ENTRIES // r)
    for start in range(0, m, step):
        part = np.asarray(rows[start : start + step])
        along = np.abs(part[:, :q].T)
        rest = np.maximum(rest, np.sqrt(np.maximum((part**2).sum(axis=1) - along**2, 0).max(axis=1)))
        numbers = np.broadcast_to(start + np.arange(len(part)), along.shape)
        farthest, reach = np.concatenate([farthest, numbers], axis=1), np.concatenate([reach, along], axis=1)
        if reach.shape[1] > FARTHEST + 1:
            kept = np.argpartition(-reach, FARTHEST, axis=1)[:, : FARTHEST + 1]
            farthest, reach = np.take_along_axis(farthest, kept, axis=1), np.take_along_axis(reach, kept, axis=1)
    # The last of those kept bounds all that are not.
    order = np.argsort(-reach, axis=1)[:, :FARTHEST]
    chosen = np.unique(np.take_along_axis(farthest, order, axis=1))
    return Extremes(np.asarray(rows[chosen]), reach.min(axis=1), rest)


def signs(found: Extremes, factors: Factors, norm: Array) -> tuple[Array, Array]:
    """Sign of each column that makes its largest |entry| positive, and the least that the margin may be, (b, k) each.

    Args:
        found: Extremes of the rows.
        factors: Factors of b embeddings, of any sign.
        norm: (b, k), of each column, by which margins are divided.
    """
    factors = jax.lax.stop_gradient(factors)
    turn, shift = factors.turn, factors.shift[..., None]
    entries = jnp.concatenate(
        [factors.target[..., None], jnp.einsum("bkr,cr->bkc", turn, found.rows, precision=HIGHEST) + shift], axis=-1
    )
    top, bottom = jnp.max(entries, axis=-1), jnp.max(-entries, axis=-1)
    larger, next_ = jnp.maximum(top, bottom), jnp.minimum(top, bottom)
    if q := found.reach.shape[0]:
        own = jnp.abs(turn[..., :q])
        others = jnp.sqrt(jnp.maximum(jnp.sum(turn**2, axis=-1, keepdims=True) - own**2, 0))
        beyond = jnp.min(own * found.reach + others * found.rest, axis=-1) + jnp.abs(factors.shift)
        next_ = jnp.maximum(next_, beyond)
    margin = jnp.maximum(larger - next_, 0) / norm
    return jnp.where(top >= bottom, 1, -1).astype(turn.dtype), margin

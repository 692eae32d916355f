"""Squared distances of many targets to the records that all shadows share.

A descent that is chaotic, or that stops by its seventh digit, makes another map of a row that was rounded otherwise. On
a CPU, where a batch is one chunk of many, a row therefore has the same bits in any batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host, platforms
from drjax.core.types import Array
from drjax.dr import shortest_paths

LANES = 16
"""Targets of one piece of work: they stay in the cache while the known records pass by."""


@jax.custom_jvp
def squared_rows(targets: Array, known: Array) -> Array:
    """Squared distances (b, m) of targets (b, d) to known (m, d), in the dtype of the targets.

    On a CPU sums are in float64 and in one order, whatever b is; elsewhere XLA chooses. By differences, so that small
    distances keep their digits. Differentiable in both, also twice. O(b m d).
    """
    return platforms.by_platform(targets, known, cpu=_on_host, default=in_xla)


@squared_rows.defjvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return squared_rows(*primals), jax.jvp(in_xla, primals, tangents)[1]


def in_xla(a: Array, b: Array) -> Array:
    """(p, q) squared distances of a (p, d) to b (q, d), by differences."""
    return jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)


def _on_host(targets: Array, known: Array) -> Array:
    like = jax.ShapeDtypeStruct((targets.shape[0], known.shape[0]), targets.dtype)
    return host.call(_mapped, like, targets, known, vmap_method="expand_dims")


def _mapped(targets: Array, known: Array) -> np.ndarray:
    """The callback: arrays carry leading axes where the caller is mapped, of length 1 where they are not."""
    targets, known = np.asarray(targets), np.asarray(known)
    lead = np.broadcast_shapes(targets.shape[:-2], known.shape[:-2])
    if all(length == 1 for length in known.shape[:-2]):
        flat = targets.reshape(-1, targets.shape[-1])
        found = _rows(flat, known.reshape(known.shape[-2:]))
        return found.reshape(*targets.shape[:-1], known.shape[-2])
    targets, known = (np.broadcast_to(array, (*lead, *array.shape[-2:])) for array in (targets, known))
    out = np.empty((*lead, targets.shape[-2], known.shape[-2]), targets.dtype)
    for at in np.ndindex(lead):
        out[at] = _rows(targets[at], known[at])
    return out


def _rows(targets: np.ndarray, known: np.ndarray) -> np.ndarray:
    out = np.empty((len(targets), len(known)), targets.dtype)
    others = np.ascontiguousarray(known, np.float64)

    def fill(part: slice) -> None:
        own = np.ascontiguousarray(targets[part], np.float64)
        with np.errstate(over="ignore"):  # a far point is at an infinite distance in float32
            out[part] = shortest_paths.squared(own, others)

    host.spread(fill, len(targets), size=LANES)
    return out

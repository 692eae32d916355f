"""Distances of the rows of one array to those of another, by differences: on the host, and as an operation of JAX.

A descent that is chaotic, or that stops by its seventh digit, makes another map of a row that was rounded otherwise. On
a CPU, where a batch is one chunk of many, `squared_rows` therefore gives a row the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host, platforms
from drjax.core.compiled import njit
from drjax.core.types import Array

LANES = 16
"""Targets of one piece of work: they stay in the cache while the known records pass by."""

DIFFERENCES = 2**28
"""Differences of all pairs, features apart, that XLA may hold at a time, 1 GiB in float32."""


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Euclidean distances of the rows of a (p, d) to those of b (q, d), both float64; (p, q)."""
    return np.sqrt(squared(a, b))


@njit(fastmath={"reassoc", "contract"})
def squared(a, b):
    """Squared Euclidean distances of the rows of a (p, d) to those of b (q, d), both float64; (p, q).

    Differences are squared, not inner products subtracted: equal rows are at 0, and a pair gets the same bits whichever
    of the two comes first and whoever calls, which the rule for ties rests on.
    """
    p, q = a.shape[0], b.shape[0]
    out = np.empty((p, q))
    for low in range(0, p, 16):  # some rows of a stay in the cache while b passes by
        for j in range(q):
            for i in range(low, min(low + 16, p)):
                total = 0.0
                for c in range(a.shape[1]):
                    step = a[i, c] - b[j, c]
                    total += step * step
                out[i, j] = total
    return out


@jax.custom_jvp
def squared_rows(targets: Array, known: Array) -> Array:
    """Squared distances (b, m) of targets (b, d) to known (m, d), in the dtype of the targets.

    On a CPU sums are in float64 and in one order, whatever b is; elsewhere XLA chooses. By differences, so that small
    distances keep their digits. Differentiable in both, also twice. O(b m d).
    """
    return platforms.by_platform(targets, known, cpu=_on_host, default=squared_in_xla)


@squared_rows.defjvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return squared_rows(*primals), jax.jvp(squared_in_xla, primals, tangents)[1]


def squared_in_xla(a: Array, b: Array) -> Array:
    """(p, q) squared distances of a (p, d) to b (q, d), by differences; some rows at a time where these are many."""
    (p, d), q = a.shape, b.shape[0]
    if p * q * d <= DIFFERENCES:
        return jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
    # Their derivatives take a few times as much.
    size = max(1, DIFFERENCES // (4 * q * d))
    return jax.lax.map(jax.checkpoint(lambda row: jnp.sum((row - b) ** 2, axis=-1)), a, batch_size=size)


def _on_host(targets: Array, known: Array) -> Array:
    like = jax.ShapeDtypeStruct((targets.shape[0], known.shape[0]), targets.dtype)
    return host.call(_squared_mapped, like, targets, known, vmap_method="expand_dims")


def _squared_mapped(targets: Array, known: Array) -> np.ndarray:
    return mapped(squared, targets, known)


def mapped(kernel: Callable[[np.ndarray, np.ndarray], np.ndarray], targets: Array, known: Array) -> np.ndarray:
    """What a callback makes of targets (..., b, d) and known (..., m, d) by a kernel of a (p, d) and b (q, d), (p, q).

    Arrays carry leading axes where the caller is mapped, of length 1 where they are not. The kernel is given float64; a
    row of its result must not depend on p.
    """
    targets, known = np.asarray(targets), np.asarray(known)
    lead = np.broadcast_shapes(targets.shape[:-2], known.shape[:-2])
    if all(length == 1 for length in known.shape[:-2]):
        flat = targets.reshape(-1, targets.shape[-1])
        found = _rows(kernel, flat, known.reshape(known.shape[-2:]))
        return found.reshape(*targets.shape[:-1], known.shape[-2])
    targets, known = (np.broadcast_to(array, (*lead, *array.shape[-2:])) for array in (targets, known))
    out = np.empty((*lead, targets.shape[-2], known.shape[-2]), targets.dtype)
    for at in np.ndindex(lead):
        out[at] = _rows(kernel, targets[at], known[at])
    return out


def _rows(kernel: Callable, targets: np.ndarray, known: np.ndarray) -> np.ndarray:
    out = np.empty((len(targets), len(known)), targets.dtype)
    others = np.ascontiguousarray(known, np.float64)

    def fill(part: slice) -> None:
        own = np.ascontiguousarray(targets[part], np.float64)
        with np.errstate(over="ignore"):  # a far point is at an infinite distance in float32
            out[part] = kernel(own, others)

    host.spread(fill, len(targets), size=LANES)
    return out

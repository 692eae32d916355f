"""Exact t-SNE on a CPU inside a jitted program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host
from drjax.core.types import Array
from drjax.dr.tsne.cpu import Descent, tsne_batch


def results(b: int, shape: tuple[int, ...], dtype: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    """What a descent of b data sets to maps of this shape finds."""
    kinds = [((b, *shape), dtype), ((b,), dtype), ((b,), dtype), ((b,), jnp.int32), ((b,), jnp.bool_)]
    return tuple(jax.ShapeDtypeStruct(*kind) for kind in kinds)


def tsne_mapped(
    perplexity: float, descent: Descent, between: Array, rows: Array, starts: Array
) -> tuple[np.ndarray, ...]:
    """The callback: arrays carry leading axes where `_optimise` is mapped, of length 1 where they are not mapped."""
    between, rows, starts = (np.asarray(array) for array in (between, rows, starts))
    lead = np.broadcast_shapes(between.shape[:-2], rows.shape[:-2], starts.shape[:-3])
    rows = np.broadcast_to(rows, (*lead, *rows.shape[-2:]))
    starts = np.broadcast_to(starts, (*lead, *starts.shape[-3:]))
    if all(length == 1 for length in between.shape[:-2]):
        one = between.reshape(between.shape[-2:])
        flat = rows.reshape(-1, rows.shape[-1]), starts.reshape(-1, *starts.shape[-2:])
        found = tsne_batch(one, *flat, perplexity, descent)
        return tuple(leaf.reshape(*rows.shape[:-1], *leaf.shape[1:]) for leaf in found)
    between = np.broadcast_to(between, (*lead, *between.shape[-2:]))
    everywhere = list(np.ndindex(lead))
    each: list[Any] = [None] * len(everywhere)

    def work(part: slice) -> None:
        for i in range(part.start, part.stop):
            at = everywhere[i]
            each[i] = tsne_batch(between[at], rows[at], starts[at], perplexity, descent)

    host.spread(work, len(everywhere))
    return tuple(np.stack(leaf).reshape(*lead, *leaf[0].shape) for leaf in zip(*each, strict=True))

"""t-SNE of many records as operations of JAX: affinities of near records, repulsion by a mesh; on the host everywhere.

A map takes all cores, so maps of a batch come one after the other.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host
from drjax.core.types import Array
from drjax.dr import metrics, neighbors
from drjax.dr.tsne import large, near_affinities
from drjax.dr.tsne.cpu import Descent
from drjax.dr.tsne.shared import NearShared


def prepared(metric: str, known: np.ndarray, perplexity: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices and distances of the known records' (n-1, d) lists, as `NearShared` has them; O(n^2 d)."""
    m = len(known)
    k = min(near_affinities.n_near(m + 1, perplexity), m - 1)
    indices, distances = neighbors.nearest(metric, metrics.prepared(metric, known), k)
    return indices.astype(np.int32), np.ascontiguousarray(distances).view(np.uint32)


def fit(metric: str, perplexity: float, descent: Descent, x: Array, start: Array) -> tuple[Array, ...]:
    """The map of x (n, d) from start (n, 2): coords (n, 2), divergence, last norm, iterations, whether it stopped."""
    on_host = functools.partial(fitted, metric, perplexity, descent)
    return host.call(on_host, _results((), start.shape, start.dtype), x, start, vmap_method="sequential")


def insert(
    metric: str, perplexity: float, descent: Descent, shared: NearShared, targets: Array, starts: Array
) -> tuple[Array, ...]:
    """`fit` of [target; known] for targets (b, d) from starts (b, n, 2); every result gains a leading axis b."""
    on_host = functools.partial(_insert_mapped, metric, perplexity, descent)
    like = _results((len(targets),), starts.shape[1:], starts.dtype)
    lists = shared.known, shared.indices, shared.distances
    return host.call(on_host, like, *lists, targets, starts, vmap_method="sequential")


def _results(lead: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    kinds = [(shape, dtype), ((), dtype), ((), dtype), ((), jnp.int32), ((), jnp.bool_)]
    return tuple(jax.ShapeDtypeStruct((*lead, *own), kind) for own, kind in kinds)


def fitted(metric: str, perplexity: float, descent: Descent, x: Array, start: Array) -> tuple[np.ndarray, ...]:
    """The callback of `fit`, which needs no JAX."""
    points, own = np.asarray(x), np.asarray(start)
    if not (np.isfinite(points).all() and np.isfinite(own).all()):
        return _of_host(None, own)
    k = near_affinities.n_near(len(points), perplexity)
    indices, distances = neighbors.nearest(metric, metrics.prepared(metric, points), k)
    graph = near_affinities.of_lists(indices, distances, perplexity, own.dtype)
    return _of_host(large.descend(graph, own, descent), own)


def _insert_mapped(
    metric: str,
    perplexity: float,
    descent: Descent,
    known: Array,
    indices: Array,
    distances: Array,
    targets: Array,
    starts: Array,
) -> tuple[np.ndarray, ...]:
    # Copies, because arrays of JAX are read-only, and code is compiled for those apart.
    listed, apart = np.array(indices, np.int64), np.array(distances).view(np.float64)
    points, own = np.asarray(targets), np.asarray(starts)
    others = metrics.prepared(metric, np.asarray(known))
    k = near_affinities.n_near(len(others) + 1, perplexity)
    found = []
    for target, start in zip(points, own, strict=True):
        made = None
        if np.isfinite(target).all() and np.isfinite(start).all():
            row = metrics.apart(metric, metrics.prepared(metric, target[None]), others)[0]
            of_all, at = neighbors.with_first(row, listed, apart, k)
            made = large.descend(near_affinities.of_lists(of_all, at, perplexity, own.dtype), start, descent)
        found.append(_of_host(made, start))
    return tuple(np.stack(leaf) for leaf in zip(*found, strict=True))


def _of_host(found: tuple | None, start: np.ndarray) -> tuple[np.ndarray, ...]:
    """What a descent found as arrays; nan and no iteration where the records, or the start, were not finite."""
    kind = start.dtype.type
    coords, divergence, norm, count, stopped = found or (np.full_like(start, np.nan), np.nan, np.nan, 0, False)
    return (
        coords,
        np.asarray(kind(divergence)),
        np.asarray(kind(norm)),
        np.asarray(np.int32(count)),
        np.asarray(stopped),
    )

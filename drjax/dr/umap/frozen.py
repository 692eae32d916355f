"""A record put into a fixed UMAP map: its own edges pull it, random records of the map push it, nothing else moves."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.types import Array
from drjax.dr import metrics
from drjax.dr.umap.cpu import Lists, Settings, as_words, from_words, lists_of, union_of, with_target
from drjax.dr.umap.layout_cpu import CLIP, attraction, repulsion


class FrozenShared(NamedTuple):
    """What all shadows share. float64 arrays travel as pairs of 32-bit words.

    Attributes:
        known: (n-1, d).
        coords: (n-1, k), their map.
        indices: (n-1, q), int32, the known records' lists among themselves.
        distances, weights: (n-1, 2 q), words.
    """

    known: Array
    coords: Array
    indices: Array
    distances: Array
    weights: Array


def prepared(settings: Settings, metric: str, known: np.ndarray, coords: np.ndarray) -> FrozenShared:
    """What known records (n-1, d) and their map (n-1, k) say about the place of one more; O(n^2 d)."""
    lists = lists_of(known, settings.n_neighbors, settings.local_connectivity, metric)
    return FrozenShared(
        known=jnp.asarray(known),
        coords=jnp.asarray(coords),
        indices=jnp.asarray(lists.indices, jnp.int32),
        distances=jnp.asarray(as_words(lists.distances)),
        weights=jnp.asarray(as_words(lists.weights)),
    )


def places(settings: Settings, metric: str, shared: FrozenShared, targets: Array, seeds: Array) -> tuple[Array, Array]:
    """Places (b, k) of targets (b, d) in the map, and how often edges pulled (b,); seeds (b, 2) of what pushes."""
    b, k = len(targets), settings.n_components
    like = jax.ShapeDtypeStruct((b, k), targets.dtype), jax.ShapeDtypeStruct((b,), jnp.int32)
    on_host = functools.partial(_places_mapped, settings, metric)
    return host.call(on_host, like, *shared, targets, seeds, vmap_method="sequential")


def _places_mapped(
    settings: Settings,
    metric: str,
    known: Array,
    coords: Array,
    indices: Array,
    distances: Array,
    weights: Array,
    targets: Array,
    seeds: Array,
) -> tuple[np.ndarray, np.ndarray]:
    points, words = np.asarray(targets), np.asarray(seeds).astype(np.uint64)
    others, where = metrics.prepared(metric, np.asarray(known)), np.array(coords, np.float64)
    lists = Lists(np.array(indices, np.int64), from_words(np.array(distances)), from_words(np.array(weights)))
    forces = np.array([settings.a, settings.b, settings.repulsion])
    found = np.full((len(points), settings.n_components), np.nan, points.dtype), np.zeros(len(points), np.int32)

    def place(part: slice) -> None:
        for i in range(part.start, part.stop):
            if not np.isfinite(points[i]).all():
                continue
            row = metrics.apart(metric, metrics.prepared(metric, points[i : i + 1]), others)[0]
            ends, weight, heaviest = _edges_of_target(settings, lists, row)
            seed = words[i, 0] << np.uint64(32) | words[i, 1]
            every = heaviest / weight
            at = (weight[:, None] * where[ends]).sum(axis=0) / weight.sum()
            rate = settings.negative_sample_rate
            found[1][i] = _settle(at, where, ends, every, settings.n_epochs, settings.learning_rate, rate, seed, forces)
            found[0][i] = at

    host.spread(place, len(points))
    return found


def _edges_of_target(settings: Settings, lists: Lists, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Known records that the target is joined to, the weights, and the heaviest weight of the whole graph."""
    indices, _, weights = with_target(row, *lists, settings.local_connectivity)
    union, first = union_of(indices, weights, settings.mix)
    is_own = first & (indices == 0)
    is_own[0] = first[0]
    # A pair is named by its known end: of row 0 what is listed, of any other row itself.
    ends = np.where(np.arange(len(indices))[:, None] == 0, indices, np.arange(len(indices))[:, None])[is_own] - 1
    weight, heaviest = union[is_own], float(union.max())
    kept = (weight > 0) & (weight >= heaviest / settings.n_prune)
    return ends[kept], weight[kept], heaviest


@njit
def _settle(at, where, ends, every, n_epochs, learning_rate, rate, seed, forces):
    """`layout_cpu`'s epochs for the edges of one record, of which it alone moves; overwrites at (k,)."""
    n, k = where.shape
    step = np.empty(k)
    state, n_updates = seed, 0
    every_negative = every / max(rate, 1)
    next_due, next_negative = every.copy(), every_negative.copy()
    for epoch in range(n_epochs):
        # As umap-learn: the first two epochs both have the full rate.
        alpha = learning_rate * (1.0 - max(epoch - 1, 0) / n_epochs)
        for e in range(len(ends)):
            if next_due[e] > epoch:
                continue
            next_due[e] += every[e]
            n_negative = 0
            if rate > 0:
                n_negative = int((epoch - next_negative[e]) / every_negative[e])
                next_negative[e] += n_negative * every_negative[e]
            n_updates += 2
            # Once as the first end of the edge, once as the second, which draws no samples.
            for turn in range(2):
                square = 0.0
                for c in range(k):
                    step[c] = at[c] - where[ends[e], c]
                    square += step[c] * step[c]
                force = attraction(square, forces)
                for c in range(k):
                    at[c] += min(max(force * step[c], -CLIP), CLIP) * alpha
                for _ in range(n_negative if turn == 0 else 0):
                    state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                    other = ((state >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)
                    square = 0.0
                    for c in range(k):
                        step[c] = at[c] - where[other, c]
                        square += step[c] * step[c]
                    force = repulsion(square, forces)
                    for c in range(k):
                        at[c] += min(max(force * step[c], -CLIP), CLIP) * alpha
    return n_updates

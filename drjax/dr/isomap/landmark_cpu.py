"""Lengths of the shortest paths from landmarks, of a fit and of insertions; on a CPU, in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.types import Array
from drjax.dr import landmarks, metrics
from drjax.dr import neighbors as nearest_neighbors
from drjax.dr.isomap import dijkstra


class Lengths(NamedTuple):
    """Shortest paths of n records from q landmarks.

    Attributes:
        squares: (..., n, q), squared lengths over unit^2; nan where the records are not finite.
        unit: (...), a power of two.
        n_parts: (...), int32, components of the graph before they were joined.
    """

    squares: Any
    unit: Any
    n_parts: Any


class LandmarkIsomapShared(NamedTuple):
    """What all shadows share. float64 arrays travel as pairs of 32-bit words, which JAX keeps whole with x64 off.

    Attributes:
        known: (n-1, d).
        neighbors: (n-1, min(n_neighbors, n-2)), int32, the known records' neighbours among themselves, nearest first.
        distances: (n-1, 2 min(n_neighbors, n-2)), uint32 words, their distances.
    """

    known: Array
    neighbors: Array
    distances: Array


def fit(n_landmarks: int, n_neighbors: int, metric: str, x: Array) -> Lengths:
    """The callback for x (n, d); O(n^2 d) for the neighbours, O(q n log n) for the paths; memory 8 q n."""
    x = np.asarray(x)
    n, dtype = len(x), x.dtype
    chosen = landmarks.positions(n, n_landmarks)
    if not np.isfinite(x).all():
        return Lengths(np.full((n, len(chosen)), np.nan, dtype), np.ones((), dtype), np.int32(1))
    rows = metrics.prepared(metric, x)
    edges, n_parts = dijkstra.joined(metric, rows, *nearest_neighbors.nearest(metric, rows, n_neighbors))
    return _lengths(edges, chosen, n_parts, dtype)


def insert_chunks(
    n_landmarks: int, n_neighbors: int, metric: str, shared: LandmarkIsomapShared, targets: Array
) -> Lengths:
    """The callback for targets (b, d), one after the other where these are fewer than the cores."""
    known, dtype = metrics.prepared(metric, shared.known), np.asarray(targets).dtype
    targets = metrics.prepared(metric, targets)
    neighbors = np.array(shared.neighbors, np.int64)
    distances = np.array(shared.distances).view(np.float64)
    n, chosen = len(known) + 1, landmarks.positions(len(known) + 1, n_landmarks)
    b = len(targets)
    found = Lengths(np.empty((b, n, len(chosen)), dtype), np.ones(b, dtype), np.ones(b, np.int32))

    def one(lane: int) -> None:
        row = metrics.apart(metric, targets[lane : lane + 1], known)[0]
        if not np.isfinite(row).all():
            found.squares[lane] = np.nan
            return
        lists = nearest_neighbors.with_first(row, neighbors, distances, n_neighbors)
        rows = np.concatenate([targets[lane : lane + 1], known])
        edges, n_parts = dijkstra.joined(metric, rows, *lists)
        for whole, of_lane in zip(found, _lengths(edges, chosen, n_parts, dtype), strict=True):
            whole[lane] = of_lane

    def work(part: slice) -> None:
        for lane in range(part.start, part.stop):
            one(lane)

    if b < host.n_cores():
        work(slice(0, b))
    else:
        host.spread(work, b)
    return found


def _lengths(edges: dijkstra.Edges, chosen: np.ndarray, n_parts: int, dtype: Any) -> Lengths:
    lengths = np.empty((len(chosen), len(edges.start) - 1))
    dijkstra.paths(edges, chosen, lengths)
    largest = float(lengths.max())
    unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
    lengths *= 1 / unit
    lengths *= lengths
    return Lengths(np.ascontiguousarray(lengths.T, dtype), np.asarray(unit, dtype), np.int32(n_parts))

"""Lengths of the shortest paths from landmarks, of a fit and of insertions; on a CPU, in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
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
        own = np.argsort(row, kind="stable")[:n_neighbors]
        lists = _with_target(neighbors, distances, row, own, n_neighbors)
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


@njit
def _with_target(neighbors, distances, row, own, n_neighbors):
    """Neighbour lists (n, k) and their distances once a point of index 0 is there, `row` (m,) away from the m others.

    It takes the last place of a full list unless it is farther away than who has it; of equal distances the lower index
    goes first.
    """
    m, kept = neighbors.shape
    is_full = kept == n_neighbors
    width = kept if is_full else kept + 1
    lists, lengths = np.zeros((m + 1, width), np.int64), np.empty((m + 1, width))
    for c in range(width):
        lists[0, c], lengths[0, c] = own[c] + 1, row[own[c]]
    for i in range(m):
        for c in range(kept):
            lists[i + 1, c], lengths[i + 1, c] = neighbors[i, c] + 1, distances[i, c]
        if not is_full or row[i] <= distances[i, kept - 1]:
            lists[i + 1, width - 1], lengths[i + 1, width - 1] = 0, row[i]
    return lists, lengths


def _lengths(edges: dijkstra.Edges, chosen: np.ndarray, n_parts: int, dtype: Any) -> Lengths:
    lengths = np.empty((len(chosen), len(edges.start) - 1))
    dijkstra.paths(edges, chosen, lengths)
    largest = float(lengths.max())
    unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
    lengths *= 1 / unit
    lengths *= lengths
    return Lengths(np.ascontiguousarray(lengths.T, dtype), np.asarray(unit, dtype), np.int32(n_parts))

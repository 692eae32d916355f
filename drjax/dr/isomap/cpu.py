"""Isomap of one more record on a CPU: shortest paths and leading eigenpairs of each lane, in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.linalg import blas
from drjax.core.types import Array
from drjax.dr import metrics
from drjax.dr.isomap import path_insertion, shortest_paths
from drjax.dr.isomap.spectrum import Lanes, leading

GROUP = 32
"""Lanes whose eigenvectors are iterated together, at most: as many rows make a matrix product fast."""

PIECES = 8
"""Pieces that few lanes are cut into, so that as many cores have work."""


class IsomapShared(NamedTuple):
    """What all shadows share. float64 arrays travel as pairs of 32-bit words, which JAX keeps whole with x64 off.

    Attributes:
        known: (n-1, d).
        neighbors: (n-1, min(n_neighbors, n-2)), int32, the known records' neighbours among themselves, nearest first.
        between: (n-1, 2 (n-1)), uint32 words, distances of the known records.
        paths: (n-1, 2 (n-1)), uint32 words, shortest paths of their graph, inf between its components.
        vectors: (q, n-1), leading eigenvectors of their own Gram matrix.
        values: (1, q), their eigenvalues, as shares of the largest.
    """

    known: Array
    neighbors: Array
    between: Array
    paths: Array
    vectors: Array
    values: Array


class Spectrum(NamedTuple):
    """Leading eigenpairs of a Gram matrix, in a unit that keeps their squares finite.

    Attributes:
        vectors: (..., n, k), of any sign; nan where the data are not finite.
        values: (..., min(k + 1, n)), decreasing, over unit^2.
        unit: (...), a power of two.
        strain: (...), over unit^4.
        n_parts, n_iter: (...), int32.
    """

    vectors: Any
    values: Any
    unit: Any
    strain: Any
    n_parts: Any
    n_iter: Any


def insert_chunks(n_components: int, n_neighbors: int, metric: str, shared: IsomapShared, targets: Array) -> Spectrum:
    """The callback: arrays carry leading axes if `insert_batch` is mapped, of length 1 where they are not mapped."""
    leaves = IsomapShared(*(np.asarray(leaf) for leaf in shared))
    targets = np.asarray(targets)
    lead = targets.shape[:-2]
    if all(leaf.shape[:-2] == (1,) * len(lead) for leaf in leaves):
        one = IsomapShared(*(leaf.reshape(leaf.shape[-2:]) for leaf in leaves))
        flat = targets.reshape(-1, targets.shape[-1])
        spectrum = _insert_chunk(n_components, n_neighbors, metric, one, flat)
        return Spectrum(*(leaf.reshape(*targets.shape[:-1], *leaf.shape[1:]) for leaf in spectrum))
    lead = np.broadcast_shapes(lead, *(leaf.shape[:-2] for leaf in leaves))
    targets = np.broadcast_to(targets, (*lead, *targets.shape[-2:]))
    leaves = IsomapShared(*(np.broadcast_to(leaf, (*lead, *leaf.shape[-2:])) for leaf in leaves))
    each = [
        _insert_chunk(n_components, n_neighbors, metric, IsomapShared(*(leaf[at] for leaf in leaves)), targets[at])
        for at in np.ndindex(lead)
    ]
    return Spectrum(*(np.stack(leaf).reshape(*lead, *leaf[0].shape) for leaf in zip(*each, strict=True)))


def _insert_chunk(
    n_components: int, n_neighbors: int, metric: str, shared: IsomapShared, targets: np.ndarray
) -> Spectrum:
    dtype = targets.dtype
    b, n, k = len(targets), len(shared.known) + 1, n_components
    known, points = (metrics.prepared(metric, array) for array in (shared.known, targets))
    between, paths = (np.ascontiguousarray(words).view(np.float64) for words in (shared.between, shared.paths))
    neighbors = np.ascontiguousarray(shared.neighbors, np.int64)
    graph = shortest_paths.Graph(between, neighbors, paths)
    edges = path_insertion.adjacency(neighbors, between)
    base = _base(paths)
    # Copies, because arrays of JAX are read-only and the compiled code below would be compiled for those as well.
    vectors, values = (np.array(array, np.float64) for array in (shared.vectors, shared.values[0]))
    tolerance = max(float(np.finfo(dtype).eps) / 8, 4 * n * float(np.finfo(np.float64).eps))
    found = Spectrum(
        vectors=np.empty((b, k, n)),
        values=np.empty((b, min(k + 1, n))),
        unit=np.ones(b),
        strain=np.empty(b),
        n_parts=np.empty(b, np.int32),
        n_iter=np.empty(b, np.int32),
    )

    def work(part: slice) -> None:
        lanes = Spectrum(*(leaf[part] for leaf in found))
        rows = metrics.apart(metric, points[part], known)
        _insert_lanes(rows, graph, edges, base, vectors, values, n_neighbors, tolerance, lanes)

    # The lanes of a product decide each other's last bits, so that the number of cores must not decide which they are.
    with blas().limit(limits=1, user_api="blas"):
        host.spread(work, b, size=min(GROUP, -(-b // PIECES)))
    found = found._replace(vectors=np.swapaxes(found.vectors, 1, 2))
    return Spectrum(*(leaf if leaf.dtype == np.int32 else np.ascontiguousarray(leaf, dtype) for leaf in found))


class Base(NamedTuple):
    """The squared paths of the known records, a matrix (n, n) whose row and column 0 are 0, and its sums.

    Attributes:
        squares: (n, n), over unit^2.
        largest: The longest path; inf if the known records are not connected, and then the rest says nothing.
        unit: A power of two.
        sums: (n,), row sums of `squares`.
        whole: Sum of the squares of `squares`.
    """

    squares: Any
    largest: Any
    unit: Any
    sums: Any
    whole: Any


def _base(paths: np.ndarray) -> Base:
    n = len(paths) + 1
    largest = float(paths.max())
    squares = np.zeros((n, n))
    if not largest < np.inf:
        return Base(squares, largest, 1.0, np.zeros(n), 0.0)
    unit = _power_of_two(largest)
    np.multiply(paths, 1 / unit, out=squares[1:, 1:])
    squares *= squares
    return Base(squares, largest, unit, squares.sum(axis=1), float(np.vdot(squares, squares)))


@njit
def _power_of_two(largest):
    return 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0


@njit
def _insert_lanes(rows, graph, edges, base, known_vectors, known_values, n_neighbors, tolerance, found):
    """Shortest paths and leading eigenpairs of each lane; overwrites `found`, whose vectors are (b, k, n) here."""
    k = found.vectors.shape[1]
    paths = graph.paths
    start, nodes, weights = edges
    m = paths.shape[0]
    # A lane with more changed pairs than this is better served by a matrix of its own.
    most = m * m // 16 + 1
    group = min(GROUP, len(rows))
    lanes = _empty_lanes(base.squares, group, most + group * m * m // 128)
    members, energies = np.empty(group, np.int64), np.empty(group)
    own, reach, linked = paths.copy(), np.empty(m), np.empty(m, np.bool_)
    count = 0
    for lane in range(len(rows)):
        row = rows[lane]
        if np.all(np.isfinite(row)):
            used = lanes.offsets[count]
            pairs = lanes.pairs[used : used + most]
            n_pairs = path_insertion.change(
                graph.between,
                graph.neighbors,
                paths,
                start,
                nodes,
                weights,
                row,
                n_neighbors,
                own,
                reach,
                linked,
                pairs,
            )
            if base.largest < np.inf and reach.max() < np.inf and n_pairs <= most:
                lanes.offsets[count + 1] = used + n_pairs
                lanes.linked[count] = linked
                found.unit[lane], energies[count] = _fill_lane(lanes, count, base, paths, own, reach)
                found.n_parts[lane] = 1
                members[count] = lane
                count += 1
            else:
                squares = _square_of(own, reach)
                found.n_parts[lane] = path_insertion.join(graph.between, row, squares)
                found.unit[lane], energy = _scale(squares)
                alone = _empty_lanes(squares, 1, 0)
                alone.share[0], alone.linked[0] = 1.0, linked
                vectors, values, n_steps = leading(alone, known_vectors, known_values, k, tolerance)
                _keep(found, lane, vectors[0], values[0], n_steps[0], energy)
            if n_pairs <= most:
                for c in range(n_pairs):
                    i, j = pairs[c]
                    own[i, j] = own[j, i] = paths[i, j]
            else:
                own[:] = paths
        else:
            found.vectors[lane], found.values[lane], found.strain[lane] = np.nan, 0.0, 0.0
            found.n_parts[lane], found.n_iter[lane] = 1, 0
        is_full = count == group or lanes.offsets[count] + most > len(lanes.pairs)
        if count > 0 and (is_full or lane == len(rows) - 1):
            vectors, values, n_steps = leading(_first(lanes, count), known_vectors, known_values, k, tolerance)
            for c in range(count):
                _keep(found, members[c], vectors[c], values[c], n_steps[c], energies[c])
            count = 0


@njit
def _empty_lanes(base, group, room):
    n = len(base)
    share, border, offsets = np.empty(group), np.zeros((group, n)), np.zeros(group + 1, np.int64)
    pairs, steps, linked = np.empty((room, 2), np.int32), np.empty(room), np.empty((group, n - 1), np.bool_)
    return Lanes(base, share, border, offsets, pairs, steps, linked)


@njit
def _first(lanes, count):
    share, border, offsets = lanes.share[:count], lanes.border[:count], lanes.offsets[: count + 1]
    return Lanes(lanes.base, share, border, offsets, lanes.pairs, lanes.steps, lanes.linked[:count])


@njit
def _fill_lane(lanes, lane, base, paths, own, reach):
    """Share, border and steps of one lane whose pairs are known; its unit, and its energy as of `_scale`."""
    low, high = lanes.offsets[lane], lanes.offsets[lane + 1]
    largest = max(base.largest, reach.max())
    for c in range(low, high):
        largest = max(largest, own[lanes.pairs[c, 0], lanes.pairs[c, 1]])
    unit = _power_of_two(largest)
    inverse, share = 1.0 / unit, (base.unit / unit) ** 2
    lanes.share[lane] = share
    sums = share * base.sums
    whole = share * share * base.whole
    for i in range(len(reach)):
        square = (reach[i] * inverse) ** 2
        lanes.border[lane, i + 1] = square
        sums[0] += square
        sums[i + 1] += square
        whole += 2 * square * square
    for c in range(low, high):
        i, j = lanes.pairs[c]
        new, old = (own[i, j] * inverse) ** 2, (paths[i, j] * inverse) ** 2
        lanes.steps[c] = new - old
        sums[i + 1] += new - old
        sums[j + 1] += new - old
        whole += 2 * (new - old) * (new + old)
    return unit, _energy(whole, sums)


@njit
def _square_of(own, reach):
    """Paths of all n points, the new one first."""
    n = len(reach) + 1
    out = np.empty((n, n))
    out[0, 0] = 0.0
    out[0, 1:] = out[1:, 0] = reach
    out[1:, 1:] = own
    return out


@njit
def _scale(paths):
    """Overwrites paths by their squares over unit^2; the unit, and the Gram matrix's sum of squares over unit^4."""
    n = len(paths)
    unit = _power_of_two(paths.max())
    inverse = 1.0 / unit
    sums = np.zeros(n)
    whole = 0.0
    for i in range(n):
        for j in range(n):
            square = (paths[i, j] * inverse) ** 2
            paths[i, j] = square
            sums[i] += square
            whole += square * square
    return unit, _energy(whole, sums)


@njit
def _energy(whole, sums):
    """Sum of the squares of -1/2 H S H, from that of the squares of S and its row sums."""
    n = len(sums)
    total = sums.sum()
    return 0.25 * (whole - 2 * np.dot(sums, sums) / n + total * total / (n * n))


@njit
def _keep(found, lane, vectors, values, n_steps, energy):
    found.vectors[lane], found.values[lane], found.n_iter[lane] = vectors, values, n_steps
    for c in range(len(vectors)):
        energy -= max(values[c], 0.0) ** 2
    found.strain[lane] = max(energy, 0.0)

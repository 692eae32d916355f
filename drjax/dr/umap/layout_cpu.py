"""UMAP's optimiser on a CPU: sequential stochastic gradient descent, update by update as umap-learn does it."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.extending import intrinsic

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.umap.graph import OFFSET

BITS = 6
LOWEST, HIGHEST = -40, 30
"""float32 forces come from a table: squared distances 2^LOWEST to 2^HIGHEST, 2^BITS parabolas from a power to the next.

The error is below 1e-6 of the force, a few units of rounding.
"""

ABREAST = 16
"""Records whose edges take turns. umap-learn goes record by record, where every update waits for the one before it;
with several in turn a processor works on several at a time. See docs/kernels/umap.md.
"""

ALL_PAIRS = 10_000
"""Records up to which the cross entropy is summed over all pairs."""

SAMPLES = 2048
"""Pairs of each record that are drawn where there are more records."""

CLIP = 4.0
"""Most that one coordinate of a gradient may be; umap-learn's."""

_fast = functools.partial(njit, fastmath=True)


def optimise(
    start: np.ndarray, head: np.ndarray, tail: np.ndarray, weight: np.ndarray, seed: np.uint64, settings: Any
) -> tuple[np.ndarray, int]:
    """The layout after `settings.n_epochs` epochs.

    An edge is due as often as its weight is of the largest one, in both directions; it draws its ends together, then
    `negative_sample_rate` random records push its first end away. Every update sees all those before it. The
    learning rate falls linearly to 0.

    Args:
        start: (n, k), float32 or float64; not changed.
        head, tail, weight: (e,), each pair once. An epoch goes through both directions of all pairs, `ABREAST` records
            at a time, see there.
        seed: Seed of the negative samples.
        settings: Settings of the layout, see `cpu.Settings`.

    Returns:
        coords (n, k), and the number of attractive updates.

    Source: McInnes, Healy & Melville (2018); umap-learn 0.5 `optimize_layout_euclidean` for rule and schedule.
    """
    coords = np.ascontiguousarray(start).copy()
    if len(head) == 0:
        return coords, 0
    dtype = coords.dtype
    forces = _forces(dtype, settings.a, settings.b, settings.repulsion)
    ends = np.concatenate([head, tail]).astype(np.uint32)
    order = _by_records(ends, len(coords))
    n_updates = _run(
        coords,
        ends[order],
        np.roll(ends, len(head))[order],
        np.tile(weight.max() / weight, 2)[order],
        settings.n_epochs,
        settings.learning_rate,
        settings.negative_sample_rate,
        seed,
        forces,
    )
    return coords, int(n_updates)


def cross_entropy(
    coords: np.ndarray, indices: np.ndarray, union: np.ndarray, first: np.ndarray, a: float, b: float
) -> float:
    """`graph.cross_entropy` of a graph given by lists: O(n^2 k), sums in float64.

    With more than `ALL_PAIRS` records it is O(n `SAMPLES` k): edges count all the same, and of the repulsion between
    all pairs there is an estimate without bias, from a sample that depends on n alone; its error is about 0.1%.
    """
    forces = _forces(coords.dtype, a, b, 1.0)
    pushed = _of_all(coords, forces) if len(coords) <= ALL_PAIRS else sampled_repulsion(coords, forces)
    return float(pushed + _of_edges(coords, indices, union, first, a, b))


def sampled_repulsion(coords: np.ndarray, forces: np.ndarray) -> float:
    """An estimate of the sum over all pairs of -log(1 - q), on all cores, with the same bits on any number of them.

    The records are cut into `SAMPLES` strata by index, and each record is paired with one of every stratum.
    """
    of_record = np.empty(len(coords))
    host.spread(lambda part: _of_sample(coords, forces, part.start, part.stop, SAMPLES, of_record), len(coords))
    return float(of_record.sum()) / 2


def _forces(dtype: Any, a: float, b: float, repulsion: float) -> np.ndarray:
    """What the compiled loops take: in float32 a table, in float64 the parameters."""
    return _tables(a, b, repulsion) if dtype == np.float32 else np.array([a, b, repulsion])


@functools.lru_cache(maxsize=16)
def _tables(a: float, b: float, repulsion: float) -> np.ndarray:
    """(3, bins, 4): attraction, repulsion and -log(1 - q) as parabolas in the mantissa of the squared distance."""
    functions = (
        lambda s: -2 * a * b * s ** (b - 1) / (1 + a * s**b),
        lambda s: 2 * repulsion * b / ((OFFSET + s) * (1 + a * s**b)),
        lambda s: np.log1p((s + OFFSET) ** -b / a),
    )
    step = 0.5**BITS
    power, place = (part.ravel() for part in np.indices((HIGHEST - LOWEST, 2**BITS)))
    mantissa = step * ((np.cos(np.pi * (np.arange(3) + 0.5) / 3) + 1) / 2)
    at = np.exp2(power + LOWEST)[:, None] * (1 + step * place[:, None] + mantissa)
    inverse = np.linalg.inv(np.vander(mantissa, 3, increasing=True))
    tables = np.zeros((3, len(power), 4), np.float32)
    for table, function in zip(tables, functions, strict=True):
        table[:, :3] = function(at) @ inverse.T
    return tables


@intrinsic
def _bits(_, x):
    def generate(context, builder, signature, args):
        del context, signature
        return builder.bitcast(args[0], ir.IntType(32))

    return (types.int32(types.float32), generate) if x == types.float32 else None


@intrinsic
def _float(_, x):
    def generate(context, builder, signature, args):
        del context, signature
        return builder.bitcast(args[0], ir.FloatType())

    return (types.float32(types.int32), generate) if x == types.int32 else None


@_fast()
def _look_up(square, table):
    word = _bits(square)  # pyrefly: ignore[missing-argument] (numba gives the first)
    place = (word >> np.int32(23 - BITS)) - np.int32((LOWEST + 127) << BITS)
    place = min(max(place, np.int32(0)), np.int32(((HIGHEST - LOWEST) << BITS) - 1))
    row = np.uint32(place)  # of no sign, so that no negative index need be provided for
    rest = word & np.int32((1 << (23 - BITS)) - 1)
    mantissa = _float(np.int32(rest | np.int32(0x3F800000))) - np.float32(1)  # pyrefly: ignore[missing-argument]
    return table[row, 0] + mantissa * (table[row, 1] + mantissa * table[row, 2])


# `forces` is a float32 table (3, bins, 4), or a, b and the repulsion in float64; numba compiles one branch for each.


@_fast()
def attraction(square, forces):
    """What an edge's difference of coordinates is multiplied by, of its squared length; negative."""
    if forces.ndim == 3:
        return _look_up(square, forces[0])
    if square == 0:
        return 0.0
    power = square ** forces[1]
    return -2 * forces[0] * forces[1] * power / (square * (1 + forces[0] * power))


@_fast()
def repulsion(square, forces):
    """What the difference to a random record is multiplied by, of its squared length."""
    if forces.ndim == 3:
        return _look_up(square, forces[1])
    return 2 * forces[2] * forces[1] / ((OFFSET + square) * (1 + forces[0] * square ** forces[1]))


@_fast()
def _apart(square, forces):
    if forces.ndim == 3:
        return _look_up(square, forces[2])
    return np.log1p((square + OFFSET) ** -forces[1] / forces[0])


@_fast()
def _by_records(ends, n):
    """The order of directed edges: the first of each of the first `ABREAST` records, their second ones, and so on."""
    start = np.zeros(n + 1, np.int64)
    for record in ends:
        start[record + 1] += 1
    for record in range(n):
        start[record + 1] += start[record]
    of_record, filled = np.empty(len(ends), np.int64), start[:-1].copy()
    for edge in range(len(ends)):
        record = ends[edge]
        of_record[filled[record]] = edge
        filled[record] += 1
    order = np.empty(len(ends), np.int64)
    count = 0
    for low in range(0, n, ABREAST):
        end = min(low + ABREAST, n)
        for turn in range(len(ends)):
            before = count
            for record in range(low, end):
                if start[record] + turn < start[record + 1]:
                    order[count] = of_record[start[record] + turn]
                    count += 1
            if count == before:
                break
    return order


@_fast()
def _run(coords, head, tail, every, n_epochs, learning_rate, rate, seed, forces):
    """The loop over epochs, written out for two coordinates; overwrites coords. Returns the number of attractions."""
    n, k = coords.shape
    n_edges = len(head)
    kind = coords.dtype.type
    limit = kind(CLIP)
    # In float64, and by addition, as umap-learn: else some edge would be due an epoch earlier or later.
    next_due = every.copy()
    every_negative = every / rate
    next_negative = every_negative.copy()
    due, n_negative = np.empty(n_edges + 1, np.uint32), np.empty(n_edges, np.int32)
    own, step = np.empty(k, coords.dtype), np.empty(k, coords.dtype)
    state = seed
    n_records = np.uint64(n)
    n_updates = 0
    alpha = kind(learning_rate)
    for epoch in range(n_epochs):
        count = 0
        for e in range(n_edges):
            due[np.uint64(count)] = e
            count += next_due[np.uint64(e)] <= epoch
        for place in range(count):
            e = due[place]
            next_due[e] += every[e]
            n_negative[place] = 0
            if rate > 0:
                n_negative[place] = int((epoch - next_negative[e]) / every_negative[e])
                next_negative[e] += n_negative[place] * every_negative[e]
        n_updates += count
        for place in range(count):
            e = due[place]
            i, j = head[e], tail[e]
            if k == 2:
                x, y = coords[i, 0], coords[i, 1]
                dx, dy = x - coords[j, 0], y - coords[j, 1]
                force = attraction(dx * dx + dy * dy, forces)
                dx = min(max(force * dx, -limit), limit) * alpha
                dy = min(max(force * dy, -limit), limit) * alpha
                x += dx
                y += dy
                coords[j, 0] -= dx
                coords[j, 1] -= dy
                for _ in range(n_negative[place]):
                    # Knuth's congruential generator; its upper half, scaled to the number of records.
                    state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                    other = ((state >> np.uint64(32)) * n_records) >> np.uint64(32)
                    dx, dy = x - coords[other, 0], y - coords[other, 1]
                    force = repulsion(dx * dx + dy * dy, forces)
                    # Where it stood a moment ago does not repel the record itself.
                    force = force if other != i else kind(0)
                    x += min(max(force * dx, -limit), limit) * alpha
                    y += min(max(force * dy, -limit), limit) * alpha
                coords[i, 0], coords[i, 1] = x, y
            else:
                square = kind(0)
                for c in range(k):
                    own[c] = coords[i, c]
                    step[c] = own[c] - coords[j, c]
                    square += step[c] * step[c]
                force = attraction(square, forces)
                for c in range(k):
                    move = min(max(force * step[c], -limit), limit) * alpha
                    own[c] += move
                    coords[j, c] -= move
                for _ in range(n_negative[place]):
                    state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                    other = ((state >> np.uint64(32)) * n_records) >> np.uint64(32)
                    square = kind(0)
                    for c in range(k):
                        step[c] = own[c] - coords[other, c]
                        square += step[c] * step[c]
                    force = repulsion(square, forces) if other != i else kind(0)
                    for c in range(k):
                        own[c] += min(max(force * step[c], -limit), limit) * alpha
                for c in range(k):
                    coords[i, c] = own[c]
        alpha = kind(learning_rate * (1.0 - epoch / n_epochs))
    return n_updates


@_fast()
def _of_all(coords, forces):
    n, k = coords.shape
    total = 0.0
    for i in range(n):
        in_row = 0.0
        for j in range(i):
            square = coords.dtype.type(0)
            for c in range(k):
                step = coords[i, c] - coords[j, c]
                square += step * step
            in_row += _apart(square, forces)
        total += in_row
    return total


@_fast()
def _of_sample(coords, forces, low, high, n_strata, out):
    """What a record's pairs add up to, by one of each stratum of the others, for records low..high."""
    n, k = coords.shape
    # Equal parts but for one record, without a division for each.
    size, n_larger = n // n_strata, n % n_strata
    for i in range(low, high):
        state = _scattered(np.uint64(i))
        total = 0.0
        begin = 0
        for stratum in range(n_strata):
            width = size + (stratum < n_larger)
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            j = begin + np.int64(((state >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32))
            begin += width
            square = coords.dtype.type(0)
            for c in range(k):
                step = coords[i, c] - coords[j, c]
                square += step * step
            total += width * _apart(square, forces) if j != i else 0.0
        out[i] = total


@njit
def _scattered(word):
    """A word of which every bit depends on all bits of the given one (SplitMix64)."""
    word += np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@_fast()
def _of_edges(coords, indices, union, first, a, b):
    """What the pairs of weight p > 0 add to the sum over all pairs of -log(1 - q)."""
    n, k = indices.shape
    total = 0.0
    for i in range(n):
        for e in range(k):
            p = union[i, e]
            if not first[i, e] or not p > 0:
                continue
            square = 0.0
            for c in range(coords.shape[1]):
                square += (float(coords[i, c]) - coords[indices[i, e], c]) ** 2
            total += p * (np.log(p) + np.log1p(a * square**b) - np.log1p((square + OFFSET) ** -b / a))
            if p < 1:
                total += (1 - p) * np.log(1 - p)
    return total

"""Isomap of one more record on a CPU: shortest paths and leading eigenpairs of each lane, in float64."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np

from drjax.core.linalg import blas
from drjax.core.types import Array
from drjax.dr import shortest_paths

MAX_BLOCKS = 20
"""Most steps of the iteration for the leading eigenvectors; a lane that needs more has its matrix decomposed."""


class IsomapShared(NamedTuple):
    """What all shadows share. float64 arrays travel as pairs of 32-bit words, which JAX keeps whole with x64 off.

    Attributes:
        known: (n-1, d).
        neighbors: (n-1, min(n_neighbors, n-2)), int32, the known records' neighbours among themselves, nearest first.
        between: (n-1, 2 (n-1)), uint32 words, distances of the known records.
        paths: (n-1, 2 (n-1)), uint32 words, shortest paths of their graph, inf between its components.
        start: (p, n-1), leading eigenvectors of their own Gram matrix.
    """

    known: Array
    neighbors: Array
    between: Array
    paths: Array
    start: Array


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


def insert_chunks(n_components: int, n_neighbors: int, shared: IsomapShared, targets: Array) -> Spectrum:
    """The callback: arrays carry leading axes if `insert_batch` is mapped, of length 1 where they are not mapped."""
    leaves = IsomapShared(*(np.asarray(leaf) for leaf in shared))
    targets = np.asarray(targets)
    lead = targets.shape[:-2]
    if all(leaf.shape[:-2] == (1,) * len(lead) for leaf in leaves):
        one = IsomapShared(*(leaf.reshape(leaf.shape[-2:]) for leaf in leaves))
        flat = targets.reshape(-1, targets.shape[-1])
        spectrum = _insert_chunk(n_components, n_neighbors, one, flat)
        return Spectrum(*(leaf.reshape(*targets.shape[:-1], *leaf.shape[1:]) for leaf in spectrum))
    lead = np.broadcast_shapes(lead, *(leaf.shape[:-2] for leaf in leaves))
    targets = np.broadcast_to(targets, (*lead, *targets.shape[-2:]))
    leaves = IsomapShared(*(np.broadcast_to(leaf, (*lead, *leaf.shape[-2:])) for leaf in leaves))
    each = [
        _insert_chunk(n_components, n_neighbors, IsomapShared(*(leaf[at] for leaf in leaves)), targets[at])
        for at in np.ndindex(lead)
    ]
    return Spectrum(*(np.stack(leaf).reshape(*lead, *leaf[0].shape) for leaf in zip(*each, strict=True)))


def _insert_chunk(n_components: int, n_neighbors: int, shared: IsomapShared, targets: np.ndarray) -> Spectrum:
    dtype = targets.dtype
    b, n, k = len(targets), len(shared.known) + 1, n_components
    known, points = (np.ascontiguousarray(array, np.float64) for array in (shared.known, targets))
    between, paths = (np.ascontiguousarray(words).view(np.float64) for words in (shared.between, shared.paths))
    neighbors = np.ascontiguousarray(shared.neighbors, np.int64)
    start = np.ascontiguousarray(shared.start, np.float64)
    edges = shortest_paths.adjacency(neighbors, between)
    tolerance = max(float(np.finfo(dtype).eps) / 8, 4 * n * float(np.finfo(np.float64).eps))
    spectrum = Spectrum(
        vectors=np.empty((b, k, n), dtype),
        values=np.empty((b, min(k + 1, n)), dtype),
        unit=np.ones(b, dtype),
        strain=np.empty(b, dtype),
        n_parts=np.empty(b, np.int32),
        n_iter=np.empty(b, np.int32),
    )

    def work(part: slice) -> None:
        lanes = [leaf[part] for leaf in spectrum]
        rows = shortest_paths.distances(points[part], known)
        _insert_lanes(rows, between, neighbors, paths, *edges, start, n_neighbors, tolerance, *lanes)

    # Lanes differ in what they cost: several pieces for each worker, so that none waits long for another.
    size = max(1, -(-b // (4 * _n_workers())))
    with blas().limit(limits=1, user_api="blas"):
        list(_pool().map(work, [slice(i, i + size) for i in range(0, b, size)]))
    return spectrum._replace(vectors=np.ascontiguousarray(np.swapaxes(spectrum.vectors, 1, 2)))


@functools.cache
def _n_workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_n_workers(), thread_name_prefix="isomap")


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _insert_lanes(
    rows,
    between,
    neighbors,
    paths,
    start,
    nodes,
    weights,
    known_vectors,
    n_neighbors,
    tolerance,
    vectors,
    values,
    unit,
    strain,
    n_parts,
    n_iter,
):
    """Shortest paths and leading eigenpairs of each lane; the last six arguments are overwritten."""
    b, k, n = vectors.shape
    squares = np.empty((n, n))
    for lane in range(b):
        row = rows[lane]
        if not np.all(np.isfinite(row)):
            vectors[lane], values[lane], strain[lane] = np.nan, 0.0, 0.0
            n_parts[lane], n_iter[lane] = 1, 0
            continue
        count, linked = shortest_paths.insert(
            between, neighbors, paths, start, nodes, weights, row, n_neighbors, squares
        )
        n_parts[lane] = count
        largest = squares.max()
        scale = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
        unit[lane] = scale
        inverse = 1.0 / scale
        whole, total, of_rows = 0.0, 0.0, 0.0
        for i in range(n):
            in_row = 0.0
            for j in range(n):
                square = (squares[i, j] * inverse) ** 2
                squares[i, j] = square
                in_row += square
                whole += square * square
            total += in_row
            of_rows += in_row * in_row
        found_vectors, found_values, n_iter[lane] = _leading(squares, known_vectors, linked, k, tolerance)
        vectors[lane] = found_vectors
        values[lane] = found_values
        rest = 0.25 * (whole - 2 * of_rows / n + total * total / (n * n))
        for c in range(k):
            rest -= max(found_values[c], 0.0) ** 2
        strain[lane] = max(rest, 0.0)


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _leading(squares, known_vectors, linked, k, tolerance):
    """Algebraically largest eigenpairs of -1/2 H squares H, by block Lanczos from those of the known records.

    Returns:
        vectors (k, n) and values (min(k + 1, n),), with residuals below `tolerance` times the largest; the number of
        steps, 0 if the matrix was decomposed: if it is small or the steps did not suffice.
    """
    n = squares.shape[0]
    p = known_vectors.shape[0] + 1
    most = MAX_BLOCKS * p
    if n <= most or p < k + 2:
        return _decomposed(squares, k)
    basis, images = np.empty((most, n)), np.empty((most, n))
    inner = np.empty((most, most))
    # An outlying target has an eigenvector of its own; the others at the target are near those of its neighbours.
    basis[0] = 0.0
    basis[0, 0] = 1.0
    n_linked = linked.sum()
    for c in range(1, p):
        basis[c, 1:] = known_vectors[c - 1]
        at_target = 0.0
        for i in range(n - 1):
            if linked[i]:
                at_target += known_vectors[c - 1, i]
        basis[c, 0] = at_target / n_linked
    for c in range(p):
        basis[c] -= basis[c].mean()
    low, high = 0, _orthonormalize(basis, 0, p)
    for step in range(1, MAX_BLOCKS + 1):
        images[low:high] = np.dot(basis[low:high], squares)
        for c in range(low, high):
            images[c] = -0.5 * (images[c] - images[c].mean())
        block = np.dot(images[low:high], basis[:high].T)
        for c in range(low, high):
            for e in range(high):
                inner[c, e] = inner[e, c] = block[c - low, e]
        if step > 4 and high > k:
            ritz, weights = np.linalg.eigh(np.ascontiguousarray(inner[:high, :high]))
            top = np.ascontiguousarray(weights[:, ::-1].T[: k + 1])
            vectors, moved = np.dot(top, basis[:high]), np.dot(top, images[:high])
            is_done = True
            for c in range(k + 1):
                value = ritz[high - 1 - c]
                residual = np.sqrt(np.sum((moved[c] - value * vectors[c]) ** 2))
                # The value after the last serves the gap alone, and its error is the square of its residual.
                limit = tolerance if c < k else np.sqrt(tolerance)
                is_done = is_done and residual <= limit * ritz[high - 1]
            if is_done:
                return vectors[:k], ritz[::-1][: k + 1].copy(), step
        if step == MAX_BLOCKS:
            break
        upto = min(high + high - low, most)
        basis[high:upto] = images[low : low + upto - high]
        low, high = high, _orthonormalize(basis, high, upto)
        if low == high:
            break
    return _decomposed(squares, k)


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _orthonormalize(basis, low, high):
    """Makes rows low..high of the basis orthonormal to it and each other; drops those that depend; the new end."""
    end = low
    for c in range(low, high):
        own = basis[c].copy()
        before = np.sqrt(np.sum(own**2))
        for _ in range(3):  # what cancellation leaves of the basis in a short remainder is gone after another pass
            if end > 0:
                own -= np.dot(np.dot(basis[:end], own), basis[:end])
            norm = np.sqrt(np.sum(own**2))
            if not norm > 1e-13 * before:
                break
            own /= norm
            before = 1.0
        if norm > 1e-13 * before:
            basis[end] = own
            end += 1
    return end


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _decomposed(squares, k):
    n = squares.shape[0]
    rows = np.empty(n)
    for i in range(n):
        rows[i] = squares[i].mean()
    mean = rows.mean()
    gram = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            gram[i, j] = -0.5 * (squares[i, j] - rows[i] - rows[j] + mean)
    values, vectors = np.linalg.eigh(gram)
    return np.ascontiguousarray(vectors[:, ::-1].T[:k]), values[::-1][: min(k + 1, n)].copy(), 0

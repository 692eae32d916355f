"""Isomap of many records on a CPU, in float64: one matrix of all pairs is held, and no other is made of it.

Shortest paths are those of Dijkstra's algorithm from each record; leading eigenpairs come from products of the matrix
with a few vectors, by block Lanczos.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from drjax.core import host
from drjax.core.linalg import blas
from drjax.core.types import Array
from drjax.dr import metrics, neighbors
from drjax.dr.isomap import dijkstra, path_insertion
from drjax.dr.isomap.cpu import Spectrum
from drjax.dr.isomap.shortest_paths import Graph
from drjax.dr.isomap.spectrum import orthonormalize, rayleigh_ritz

MANY = metrics.MANY
"""Records from which on a CPU takes this way for what shadows share."""

FITTED = 500
"""Records from which on it does for a fit: programs of XLA take longer to compile for each number than a fit takes."""

MAX_BASIS = 512
"""Most vectors of the iteration; a matrix that needs more is decomposed."""

TILE = 256
"""Rows of a matrix that one piece of work reads."""


def fit(n_components: int, n_neighbors: int, metric: str, x: Array) -> Spectrum:
    """The callback: leading eigenpairs of the Gram matrix of x (n, d), and its strain; holds 8 n^2 bytes."""
    x = np.asarray(x)
    n, k, dtype = len(x), n_components, x.dtype
    if not np.isfinite(x).all():
        nothing = np.zeros(min(k + 1, n), dtype)
        count, steps = np.int32(1), np.int32(0)
        return Spectrum(np.full((n, k), np.nan, dtype), nothing, np.ones((), dtype), np.zeros((), dtype), count, steps)
    squares, n_parts = all_paths(metric, x, n_neighbors)
    largest = float(squares.max())
    unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0
    sums, whole = _square(squares, 1 / unit)
    tolerance = max(float(np.finfo(dtype).eps) / 8, 4 * n * float(np.finfo(np.float64).eps))
    vectors, values, n_steps = leading(squares, k, tolerance)
    total = sums.sum()
    energy = 0.25 * (whole - 2 * np.dot(sums, sums) / n + total * total / (n * n))
    strain = max(energy - np.sum(np.maximum(values[:k], 0) ** 2), 0.0)
    return Spectrum(
        vectors=np.ascontiguousarray(vectors.T, dtype),
        values=values.astype(dtype),
        unit=np.asarray(unit, dtype),
        strain=np.asarray(strain, dtype),
        n_parts=np.int32(n_parts),
        n_iter=np.int32(n_steps),
    )


def lengths(n_neighbors: int, metric: str, x: Array) -> np.ndarray:
    """The callback: lengths of the shortest paths of x (n, d), (n, n), in its dtype; nan where x is not finite."""
    x = np.asarray(x)
    if not np.isfinite(x).all():
        return np.full((len(x), len(x)), np.nan, x.dtype)
    return all_paths(metric, x, n_neighbors)[0].astype(x.dtype, copy=False)


def all_paths(metric: str, x: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, int]:
    """Shortest paths of all records x (n, d), finite, components joined, (n, n); how many components there were."""
    rows = metrics.prepared(metric, x)
    edges, n_parts = dijkstra.joined(metric, rows, *neighbors.nearest(metric, rows, n_neighbors))
    out = np.empty((len(rows), len(rows)))
    dijkstra.paths(edges, np.arange(len(rows)), out)
    return out, n_parts


def graph(x: np.ndarray, n_neighbors: int, metric: str) -> Graph:
    """`shortest_paths.graph`, on all cores and without copies."""
    rows = metrics.prepared(metric, x)
    m = len(rows)
    nearest, distances = neighbors.nearest(metric, rows, min(n_neighbors, m - 1))
    paths = np.empty((m, m))
    dijkstra.paths(dijkstra.Edges(*dijkstra.listed(nearest, distances)), np.arange(m), paths)

    def fill(part: slice) -> None:
        # The two ways along a path are sums in another order; each pair is met in one piece of work alone.
        shorter = np.minimum(paths[part, part.start :], paths[part.start :, part].T)
        paths[part, part.start :] = shorter
        paths[part.start :, part] = shorter.T

    host.spread(fill, m, size=metrics.STRIP)
    return Graph(metrics.among(metric, rows), nearest, paths)


def known_eigenpairs(graph: Graph, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of the known records' own Gram matrix, (count, m), and their values over the largest.

    To a residual of 1e-4 of the largest value: they are the start of another iteration.
    """
    squares = graph.paths.copy()
    if not squares.max() < np.inf:
        path_insertion.join(np.ascontiguousarray(graph.between[1:, 1:]), graph.between[0, 1:].copy(), squares)
    largest = squares.max()
    _square(squares, 1 / largest if largest > 0 else 1.0)
    vectors, values, _ = leading(squares, count, 1e-4)
    return vectors, values[:count] / (values[0] if values[0] > 0 else 1.0)


def leading(squares: np.ndarray, k: int, tolerance: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Algebraically largest eigenpairs of -1/2 H S H of squared lengths S (n, n), H the centring.

    The start depends on n alone, and sums on no number of cores: the same matrix has the same bits. A block wider than
    the number of vectors sought finds eigenvalues of that multiplicity.

    Args:
        squares: Symmetric up to rounding.
        k: Number of eigenvectors, below n.
        tolerance: Largest residual, as a share of the largest eigenvalue; its root for the value after the last.

    Returns:
        vectors (k, n), values (k + 1,), decreasing, and the products of the matrix with a block that were made, 0 where
        it was decomposed.
    """
    n, width = len(squares), k + 1
    block = max(8, k + 2)
    most = min(MAX_BASIS, n // 2)
    if block > most:
        return *_decomposed(squares, k), 0
    basis, images, inner = np.empty((most, n)), np.empty((most, n)), np.empty((most, most))
    basis[:block] = np.random.Generator(np.random.PCG64(n)).random((block, n)) - 0.5
    basis[:block] -= basis[:block].mean(axis=1, keepdims=True)
    limits = np.full(width, tolerance)
    limits[k] = tolerance**0.5
    with blas().limit(limits=1, user_api="blas"):
        low, high, n_steps = 0, orthonormalize(basis, 0, block), 0
        while low < high:
            images[low:high] = _images(squares, basis[low:high])
            n_steps += 1
            values, vectors, residuals = rayleigh_ritz(basis, images, inner, low, high, width)
            is_small = np.sqrt((residuals**2).sum(axis=1)) <= limits * max(values[0], 0.0)
            if is_small.all():
                return vectors[:k], values, n_steps
            upto = min(2 * high - low, most)
            basis[high:upto] = images[low : low + upto - high]
            low, high = high, orthonormalize(basis, high, upto)
    return *_decomposed(squares, k), 0


def _images(squares: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """-1/2 H S v of vectors (b, n) of mean 0."""
    out, columns = np.empty((len(squares), len(vectors))), np.ascontiguousarray(vectors.T)

    def fill(part: slice) -> None:
        np.matmul(squares[part], columns, out=out[part])

    host.spread(fill, len(squares), size=TILE)
    out -= out.mean(axis=0)
    return -0.5 * out.T


def _square(lengths: np.ndarray, factor: float) -> tuple[np.ndarray, float]:
    """Overwrites lengths (n, n) by their squares times factor^2; row sums (n,) and the sum of the squares' squares."""
    sums, wholes = np.empty(len(lengths)), np.empty(len(lengths))

    def fill(part: slice) -> None:
        rows = lengths[part]
        rows *= factor
        rows *= rows
        sums[part] = rows.sum(axis=1)
        wholes[part] = np.einsum("ij,ij->i", rows, rows)

    host.spread(fill, len(lengths), size=TILE)
    return sums, float(wholes.sum())


def _decomposed(squares: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """`leading` by LAPACK, with a copy of the matrix."""
    n = len(squares)
    rows = squares.mean(axis=0)
    gram = -0.5 * (squares - rows - rows[:, None] + rows.mean())
    found: Any = scipy.linalg.eigh(gram, subset_by_index=(max(0, n - k - 1), n - 1), overwrite_a=True)
    values, vectors = found
    return np.ascontiguousarray(vectors.T[::-1][:k]), values[::-1]

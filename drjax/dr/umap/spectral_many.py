"""Leading eigenvectors of the graph of many records: block Lanczos with restarts, on all cores.

Vectors are cut at fixed places, and sums over the pieces are taken in one order: the bits do not depend on the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit

PIECE = 2048
"""Entries of every vector that one core works on at a time, so that they stay in its cache."""

BASIS = 120
"""Vectors that are kept; when they are as many, the best `KEPT` combinations of them remain."""

KEPT = 60

WIDEST = 16
"""Records over vectors of a block, at least; the basis has room for half as many blocks."""

MAX_BLOCKS = 1000
"""Blocks of vectors after which the search ends with what it has."""

LOOK_EVERY = 4
"""Blocks from one look at the residuals to the next."""


class Leading(NamedTuple):
    """What the search found.

    Attributes:
        vectors: (k, n), orthonormal, after the trivial one.
        values: (k + 2,), largest eigenvalues, decreasing, the trivial one first.
        is_converged: Whether all residuals are at most the tolerance, that of the last value its root.
    """

    vectors: np.ndarray
    values: np.ndarray
    is_converged: bool


def leading(
    start: np.ndarray, nodes: np.ndarray, scaled: np.ndarray, root: np.ndarray, k: int, tolerance: float
) -> Leading:
    """Eigenvectors of a connected graph's D^-1/2 W D^-1/2 after the trivial one, and its leading eigenvalues.

    The search starts from vectors that depend on n alone and goes on by blocks of k + 1. A block takes
    O(n k (`BASIS` + edges of a record)).

    Args:
        start, nodes, scaled: Matrix, laid out as `spectral_cpu.adjacency` does.
        root: (n,), square roots of the degrees: the trivial vector but for its length.
        k: Number of vectors; n >= `BASIS` and n >= `WIDEST` (k + 1).
        tolerance: Largest residual of an eigenvector.

    Source: Wu & Simon (2000), Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM J. Matrix
    Anal. Appl. 22, 602-616; here by blocks.
    """
    n, width = len(root), k + 1
    rng = np.random.default_rng(0)
    most = max(BASIS, WIDEST * width // 2)
    basis, inner = np.empty((most, n)), np.zeros((most, most))
    basis[0] = root / np.sqrt(np.sum(root**2))
    inner[0, 0] = 1.0
    count = 1
    first, _ = _beyond(rng.uniform(-0.5, 0.5, (width, n)), basis[:1])
    block, _ = _orthonormal(first, basis[:1], rng)
    number = 0
    while True:
        number += 1
        basis[count : count + width] = block
        image = _product(start, nodes, scaled, block)
        count += width
        rest, inner[count - width : count, :count] = _beyond(image, basis[:count])
        inner[:count, count - width : count] = inner[count - width : count, :count].T
        block, links = _orthonormal(rest, basis[:count], rng)
        is_full, is_last = count + width > most, number == MAX_BLOCKS
        if not (is_full or is_last or number % LOOK_EVERY == 0):
            continue
        values, weights = np.linalg.eigh(inner[:count, :count])
        values, weights = values[::-1], np.ascontiguousarray(weights[:, ::-1].T)
        # What the product of a combination has beyond the basis comes from the combination's part in the last block.
        residuals = np.linalg.norm(weights[: k + 2, count - width :] @ links.T, axis=1)
        is_done = bool((residuals[:-1] <= tolerance).all() and residuals[-1] <= np.sqrt(tolerance))
        if is_done or is_last:
            return Leading(_combined(weights[1 : k + 1], basis[:count]), values[: k + 2].copy(), is_done)
        if is_full:
            count = max(KEPT, 4 * width)
            basis[:count] = _combined(weights[:count], basis[: weights.shape[1]])
            inner[:] = 0.0
            inner[range(count), range(count)] = values[:count]


def _pieces(n: int, work: Callable[[int, slice], None]) -> None:
    """Calls `work` with the number and the place of each piece of n entries, on all cores."""

    def several(part: slice) -> None:
        for number in range(part.start, part.stop):
            work(number, slice(number * PIECE, min((number + 1) * PIECE, n)))

    host.spread(several, -(-n // PIECE))


def _product(start: np.ndarray, nodes: np.ndarray, scaled: np.ndarray, block: np.ndarray) -> np.ndarray:
    turned, out = np.ascontiguousarray(block.T), np.empty(block.shape)
    _pieces(block.shape[1], lambda _, place: _multiply(start, nodes, scaled, turned, place.start, place.stop, out))
    return out


@njit
def _multiply(start, nodes, scaled, turned, low, high, out):
    width = turned.shape[1]
    total = np.empty(width)
    for i in range(low, high):
        total[:] = 0.0
        for e in range(start[i], start[i + 1]):
            for c in range(width):
                total[c] += scaled[e] * turned[nodes[e], c]
        for c in range(width):
            out[c, i] = total[c]


def _beyond(block: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What of a block (w, n) the basis (p, n) does not span, and the block's products with it (w, p)."""
    n = block.shape[1]
    partial = np.empty((-(-n // PIECE), len(block), len(basis)))
    rest = np.empty_like(block)

    def project(number: int, place: slice) -> None:
        partial[number] = block[:, place] @ basis[:, place].T

    def subtract(number: int, place: slice) -> None:
        own = basis[:, place]
        rest[:, place] = block[:, place] - products @ own
        partial[number] = rest[:, place] @ own.T

    def subtract_again(_: int, place: slice) -> None:
        rest[:, place] -= left @ basis[:, place]

    _pieces(n, project)
    products = partial.sum(axis=0)
    _pieces(n, subtract)
    left = partial.sum(axis=0)  # what cancellation left of the basis
    _pieces(n, subtract_again)
    return rest, products


def _orthonormal(block: np.ndarray, basis: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal vectors (w, n) whose combinations a block (w, n) is, orthogonal to the basis already; its links.

    A vector that depends on those before it gives way to a random one, in which nothing of the block lies.

    Returns:
        vectors (w, n), and links (w, w): block = links.T @ vectors.
    """
    vectors, links = np.empty_like(block), np.zeros((len(block), len(block)))
    for c, own in enumerate(block):
        before = np.sqrt(own @ own)
        rest = own
        for _ in range(2):
            products = vectors[:c] @ rest
            links[:c, c] += products
            rest = rest - products @ vectors[:c]
        norm = np.sqrt(rest @ rest)
        if norm > 1e-10 * before and norm > 1e-12:
            links[c, c] = norm
        else:
            whole = np.concatenate([basis, vectors[:c]])
            rest, _ = _beyond(rng.uniform(-0.5, 0.5, (1, len(own))), whole)
            rest = rest[0]
            norm = np.sqrt(rest @ rest)
        vectors[c] = rest / norm
    return vectors, links


def _combined(weights: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Combinations (m, n) of the basis (p, n) by weights (m, p)."""
    out = np.empty((len(weights), basis.shape[1]))

    def combine(_: int, place: slice) -> None:
        out[:, place] = weights @ basis[:, place]

    _pieces(basis.shape[1], combine)
    return out

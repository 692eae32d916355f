"""Matrices of more rows than copies of them would fit in memory: read in blocks of rows, in float64, on the host.

mean, gram = streamed.moments(x)              # one pass over x, which may be mapped from a file
scores = streamed.Product(x, mean, basis.T)   # (x - mean) @ basis.T, of which no row is made before it is asked for
scores[:10], scores @ turn, scores.T @ y

Example:
    >>> import drjax, numpy as np
    >>> from drjax.core import streamed
    >>> x = drjax.load("digits").x
    >>> streamed.is_large(*x.shape), streamed.is_large(10**7, 64), streamed.bytes_of(64) < 1e9
    (False, True, True)
    >>> streamed.is_same(x, x), sum(len(block) for _, block in streamed.blocks(x))
    (True, 1797)
    >>> mean, scatter = streamed.moments(x)
    >>> directions = streamed.principal_directions(x)
    >>> directions.basis.shape, bool(np.isclose(directions.singular[0] ** 2, np.linalg.eigvalsh(scatter)[-1]))
    ((61, 64), True)
    >>> scores = streamed.Product(x, mean, directions.basis.T)  # nothing is computed yet
    >>> np.asarray(streamed.part(scores, slice(0, 5))).shape
    (5, 61)
    >>> whole = streamed.Scores(x, mean, directions.basis.T, directions=directions)
    >>> whole.shape
    (1797, 61)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from drjax.core import linalg

BLOCK_ENTRIES = 4 * 2**20
"""Entries of a block, 32 MiB in float64: enough for the speed of products, small beside the data."""

LEAST_ENTRIES = 2**22
"""Entries from which a matrix is large."""

LEAST_SHAPE = 4
"""Rows of a large matrix, at least, in units of its columns: products of its columns with each other are then small."""

ACCURATE = 1e-4
"""Eigenvalues of a scatter matrix below this share of the largest are found anew, from products with their directions:
rounding of the matrix is a share of the largest."""

EPS = float(np.finfo(np.float64).eps)


def is_large(n: int, d: int) -> bool:
    """Whether a matrix (n, d) is better read in blocks."""
    return n * d >= LEAST_ENTRIES and n >= LEAST_SHAPE * d


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays are one: the same entries of the same memory."""
    return one is other or one.__array_interface__ == other.__array_interface__


def bytes_of(d: int) -> float:
    """Memory that `principal_directions` of a large matrix takes, and one pass over it."""
    return 8.0 * (4 * BLOCK_ENTRIES + 8 * d**2)


def blocks(x: Any, width: int = 0) -> Iterator[tuple[slice, np.ndarray]]:
    """Consecutive rows of x (n, d) and where they lie, in float64.

    Args:
        x: The matrix, an array or what is sliced like one.
        width: Columns of what is made of a block, where that is wider than x.
    """
    step = max(1, BLOCK_ENTRIES // max(x.shape[1], width))
    for start in range(0, x.shape[0], step):
        at = slice(start, min(start + step, x.shape[0]))
        yield at, np.asarray(x[at], np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """(rows - centre) @ weights (n, r) in place of an array: whole only where it is asked for as one.

    Attributes:
        rows: (n, d), an array, possibly mapped from a file.
        centre: (d,), or 0.
        weights: (d, r); the unit matrix if None.
    """

    rows: np.ndarray
    centre: np.ndarray | float = 0.0
    weights: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, r)."""
        return self.rows.shape[0], self.rows.shape[1] if self.weights is None else self.weights.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """float64."""
        return np.dtype(np.float64)

    def __len__(self) -> int:
        """n."""
        return self.rows.shape[0]

    def __getitem__(self, at: Any) -> np.ndarray:
        """The entries at one or several rows, or rows and columns: only these rows are computed."""
        rows, columns = at if isinstance(at, tuple) else (at, slice(None))
        moved = np.asarray(self.rows[rows], np.float64) - self.centre
        return moved[..., columns] if self.weights is None else moved @ self.weights[:, columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The whole (n, r)."""
        del copy
        return (self @ np.eye(self.shape[1])).astype(dtype or np.float64, copy=False)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        """Product with right (r, q) or (r,), in one pass: 2 n d q operations."""
        turned = right if self.weights is None else self.weights @ right
        out = np.empty((len(self), *turned.shape[1:]))
        for at, block in blocks(self.rows, turned.shape[1] if turned.ndim > 1 else 1):
            out[at] = (block - self.centre) @ turned
        return out

    @property
    def T(self) -> _Transposed:
        """The transposed matrix, to be multiplied from the left."""
        return _Transposed(self)


Matrix = np.ndarray | Product
"""What is sliced and multiplied as an array (n, r) is."""


def part(matrix: Matrix, at: slice) -> Matrix:
    """Some rows of a matrix, without a copy of them."""
    if isinstance(matrix, Product):
        return Product(matrix.rows[at], matrix.centre, matrix.weights)
    return matrix[at]


class _Transposed(NamedTuple):
    of: Product

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        """Product with right (n, q) or (n,), in one pass: 2 n d q operations."""
        total = np.zeros((self.of.rows.shape[1], *right.shape[1:]))
        for at, block in blocks(self.of.rows):
            total += (block - self.of.centre).T @ right[at]
        return total if self.of.weights is None else self.of.weights.T @ total


def moments(x: np.ndarray, *, is_centred: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and scatter matrix (d, d) about it of the rows of x (n, d); n d^2 operations, one pass.

    Args:
        x: The matrix, finite.
        is_centred: Whether rows are taken about their mean; else about 0, and the mean returned is 0.

    Columns of one value have no scatter, to the last bit.
    """
    n, d = x.shape
    first = np.asarray(x[: min(n, max(1, BLOCK_ENTRIES // d))], np.float64)
    # About a point near the mean: less of the sums cancels in the end.
    about = first.mean(axis=0) if is_centred else np.zeros(d)
    about = np.where(np.ptp(first, axis=0) > 0, about, first[0]) if is_centred else about
    total, gram = np.zeros(d), np.zeros((d, d))
    for _, block in blocks(x):
        moved = block - about
        total += moved.sum(axis=0)
        gram += moved.T @ moved
    if not is_centred:
        return about, gram
    return about + total / n, gram - np.outer(total, total) / n


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scores(Product):
    """The scores (n, r) of the rows on their principal directions.

    Attributes:
        directions: Directions that the centre and the weights are of.
    """

    directions: Directions


class Directions(NamedTuple):
    """Principal directions of the rows of a matrix, of rank r.

    Attributes:
        mean: (d,), or 0 where rows are not centred.
        singular: (r,), singular values of the rows less the mean, decreasing, all above rounding.
        basis: (r, d), orthonormal rows.
    """

    mean: np.ndarray
    singular: np.ndarray
    basis: np.ndarray


def principal_directions(x: np.ndarray, *, is_centred: bool = True) -> Directions:
    """The principal directions of x (n, d), finite: those of a singular value decomposition, in a few passes.

    The first pass finds directions down to 1 / 100 of the largest singular value from the scatter matrix, each further
    one those below from products with all of them: n d^2 operations for the first, at most four times that for a
    further one; a matrix without small directions takes one pass. Small singular values have small relative errors,
    and products with directions of different size are orthogonal.
    """
    mean, gram = moments(x, is_centred=is_centred)
    # Columns without scatter are in no direction.
    varies = np.flatnonzero(np.diag(gram) > 0)
    d = x.shape[1]
    if not len(varies):
        return Directions(mean, np.zeros(0), np.zeros((0, d)))
    found, squares = np.zeros((d, 0)), np.zeros(0)
    rest, gram = np.eye(d)[:, varies], gram[np.ix_(varies, varies)]
    while True:
        values, vectors = linalg.eigh(gram)
        values, rest = np.maximum(values[::-1], 0), rest @ vectors[:, ::-1]
        is_found = values > max(ACCURATE * values[0], _least(x, squares))
        found, squares = np.hstack([found, rest[:, is_found]]), np.append(squares, values[is_found])
        rest = rest[:, ~is_found]
        if not is_found.any() or not rest.shape[1]:
            break
        found, rest, gram = _parted(x, mean, found, squares, rest)
    kept = squares > _least(x, squares)
    return Directions(mean, np.sqrt(squares[kept]), found.T[kept])


def _least(x: np.ndarray, squares: np.ndarray) -> float:
    """Eigenvalue up to which it is rounding, where the largest is known."""
    return (EPS * max(x.shape)) ** 2 * squares[0] if len(squares) else 0.0


def _parted(
    x: np.ndarray, mean: np.ndarray, found: np.ndarray, squares: np.ndarray, rest: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directions found (d, f), with the eigenvalues `squares`, and the rest (d, t), each without a part of the other;
    and the scatter matrix (t, t) of the rest.

    What rounding of the scatter matrix mixed is a share of its largest entries, and so large beside the rest's own.
    """
    f, both = found.shape[1], np.hstack([found, rest])
    cross, gram = np.zeros((f, rest.shape[1])), np.zeros((rest.shape[1],) * 2)
    for _, block in blocks(x):
        product = (block - mean) @ both
        cross += product[:, :f].T @ product[:, f:]
        gram += product[:, f:].T @ product[:, f:]
    turn = cross / squares[:, None]
    both = np.hstack([found + rest @ turn.T, rest - found @ turn])
    # To first order they are orthonormal as they are.
    parted, lengths = np.linalg.qr(both)
    parted = parted * np.where(np.diag(lengths) < 0, -1.0, 1.0)
    return parted[:, :f], parted[:, f:], gram - turn.T @ cross

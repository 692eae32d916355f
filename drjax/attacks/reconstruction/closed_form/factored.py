"""What the closed form asks of scores, from the factors of releases: sums over all records without all scores.

The scores of the known records are those of a linear map of them, whose sums and products with their principal
directions follow from the map; what rounding changed is added up in one pass over the records, for as many releases at
a time as `COLUMNS` allows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np

from drjax.attacks.reconstruction.closed_form.components import Scores
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition
from drjax.core import streamed, validate
from drjax.core.linalg import eps_of
from drjax.dr.factored import FactoredCoords

COLUMNS = 1024
"""Columns of scores that are made together, of a block of records."""


def reads(coords: Any, known: np.ndarray, target_index: int, *, is_centred: bool) -> TypeGuard[FactoredCoords]:
    """Whether `sums` are of these coordinates: factors of the known records themselves, the target in row 0."""
    if not isinstance(coords, FactoredCoords) or target_index:
        return False
    rows = coords.rows
    if not isinstance(rows, streamed.Product) or not streamed.is_same(rows.rows, known):
        return False
    # A shift of records that are not centred is in no direction of theirs.
    return is_centred or not (np.any(coords.factors.shift) or np.any(rows.centre))


def check(coords: FactoredCoords, n: int, *, must_be_finite: bool = True) -> FactoredCoords:
    """Releases of n records, with turns of the records themselves.

    Raises:
        ValueError: another number of records, or unless told otherwise values that are not finite.
    """
    if coords.shape[1] != n:
        raise ValueError(f"coords must have shape (m, {n}, k) for {n - 1} known records, got {coords.shape}")
    if must_be_finite:
        validate.finite(**{f"coords.factors.{name}": leaf for name, leaf in coords.factors._asdict().items()})
    return coords.of_records()


def sums(coords: FactoredCoords, span: Decomposition, *, is_centred: bool) -> Scores:
    """`Scores` of releases (m, n, k) from factors of records, without noise; `floor` and `digits` are 0.

    2 d r k operations for each release, and where coordinates are rounded 4 n d k more.

    Args:
        coords: As `check` returns them.
        span: Decomposition of the known records.
        is_centred: Whether they were centred.
    """
    (m, n, k), r = coords.shape, len(span.singular)
    rows, factors = coords.rows, coords.factors
    assert isinstance(rows, streamed.Product)
    target = np.asarray(factors.target, np.float64)
    target = coords.rounded(target).astype(np.float64)
    turn, shift = factors.turn.reshape(m * k, -1), np.asarray(factors.shift, np.float64)
    along = ((turn @ span.basis.T) * span.singular).reshape(m, k, r)
    about = shift + (turn @ (span.mean - rows.centre)).reshape(m, k) if is_centred else np.zeros((m, k))
    squares, total, beyond = (along**2).sum(axis=2) + (n - 1) * about**2, (n - 1) * about, np.zeros(m)
    if coords.is_rounded:
        step = max(1, COLUMNS // k)
        for start in range(0, m, step):
            some = slice(start, start + step)
            found = _rounded(coords[some], span, is_centred=is_centred)
            along[some] += found[0]
            squares[some], total[some], beyond[some] = found[1:]
    none = np.zeros(m)
    total, weight = (target + total, (n - 1) / n) if is_centred else (np.zeros_like(target), 1.0)
    return Scores(target, target**2 + squares, along, total, beyond, none, none, eps_of(coords.dtype), weight)


def _rounded(
    coords: FactoredCoords, span: Decomposition, *, is_centred: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What rounding adds to U^T theta, (m, k, r); and of the rounded scores of the known records the sums of squares
    (m, k), the sums (m, k) and the sum of squares outside the columns of U, (m,)."""
    (m, n, k), rows = coords.shape, coords.rows
    assert isinstance(rows, streamed.Product)
    turn, shift = coords.factors.turn.reshape(m * k, -1).T, np.ravel(coords.factors.shift)
    squares, total, errors, error_squares = np.zeros((4, m * k))
    across = np.zeros((len(span.mean), m * k))
    for _, block in streamed.blocks(rows.rows, m * k):
        exact = (block - rows.centre) @ turn + shift
        published = coords.rounded(exact).astype(np.float64)
        exact -= published
        squares += np.einsum("ij,ij->j", published, published)
        total += published.sum(axis=0)
        errors -= exact.sum(axis=0)
        error_squares += np.einsum("ij,ij->j", exact, exact)
        across -= (block - span.mean).T @ exact
    along = ((across.T @ span.basis.T) / span.singular).reshape(m, k, -1)
    error_squares -= errors**2 / (n - 1) if is_centred else 0
    beyond = error_squares.reshape(m, k) - (along**2).sum(axis=2)
    return along, squares.reshape(m, k), total.reshape(m, k), np.maximum(beyond, 0).sum(axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """Published scores (n-1, q) of the known records in several releases side by side, made a few rows at a time.

    `columns[rows]` and `columns[rows, some]` are arrays; `columns[:, some]` makes nothing.

    Attributes:
        coords: Releases that rounding is of.
        rows: Known records less one point, times the turns of all columns.
        shift: (q,).
    """

    coords: FactoredCoords
    rows: streamed.Product
    shift: np.ndarray

    @classmethod
    def of(cls, coords: FactoredCoords) -> Columns:
        """All columns of releases, as `check` returns them."""
        rows, turn = coords.rows, coords.factors.turn
        assert isinstance(rows, streamed.Product)
        weights = turn.reshape(-1, turn.shape[2]).T
        return cls(coords, streamed.Product(rows.rows, rows.centre, weights), np.ravel(coords.factors.shift))

    @property
    def shape(self) -> tuple[int, int]:
        """(n-1, q)."""
        return self.rows.shape

    def __getitem__(self, at: Any) -> Any:
        """Scores, in float64, of the known records at some rows; see the class."""
        rows, some = at if isinstance(at, tuple) else (at, slice(None))
        if isinstance(rows, slice) and rows == slice(None):
            assert self.rows.weights is not None
            narrow = dataclasses.replace(self.rows, weights=self.rows.weights[:, some])
            return dataclasses.replace(self, rows=narrow, shift=self.shift[some])
        return self.coords.rounded(self.rows[rows, some] + self.shift[some]).astype(np.float64)

    def largest(self) -> np.ndarray:
        """(q,), size of the largest score of each column; 2 n d q operations."""
        found = np.zeros(self.shape[1])
        for start in range(0, len(found), COLUMNS):
            some = self[:, start : start + COLUMNS]
            for at, _ in streamed.blocks(self.rows.rows, COLUMNS):
                found[start : start + COLUMNS] = np.maximum(
                    found[start : start + COLUMNS], np.abs(some[at]).max(axis=0)
                )
        return found


def heads(coords: FactoredCoords, n_rows: int) -> Iterator[np.ndarray]:
    """The first rows of each release, (n_rows, k) at most, as they are published."""
    step = max(1, COLUMNS // coords.shape[2])
    for start in range(0, len(coords), step):
        yield from coords[start : start + step][:, :n_rows]

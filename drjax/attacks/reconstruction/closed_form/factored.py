"""What the closed form asks of scores, from the factors of releases: sums over all records without all scores.

The scores of the known records are those of a linear map of them, whose sums and products with their principal
directions follow from the map; what rounding changed is added up in one pass over the records, for as many releases at
a time as `COLUMNS` allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from drjax.attacks.reconstruction.closed_form.components import Scores
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition
from drjax.core import streamed, validate
from drjax.dr.factored import FactoredCoords

COLUMNS = 1024
"""Columns of scores that are made together, of a block of records."""


def reads(coords: Any, known: np.ndarray, target_index: int, *, is_centred: bool) -> bool:
    """Whether `sums` are of these coordinates: factors of the known records themselves, the target in row 0."""
    if not isinstance(coords, FactoredCoords) or target_index:
        return False
    rows = coords.rows
    is_known = isinstance(rows, streamed.Product) and streamed.is_same(rows.rows, known)
    # A shift of records that are not centred is in no direction of theirs.
    return is_known and (is_centred or not (np.any(coords.factors.shift) or np.any(rows.centre)))


def check(coords: FactoredCoords, n: int) -> FactoredCoords:
    """Releases of n records, with turns of the records themselves.

    Raises:
        ValueError: another number of records, or values that are not finite.
    """
    if coords.shape[1] != n:
        raise ValueError(f"coords must have shape (m, {n}, k) for {n - 1} known records, got {coords.shape}")
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
    return Scores(target, target**2 + squares, along, total, beyond, none, none, weight)


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


def heads(coords: FactoredCoords, n_rows: int) -> Iterator[np.ndarray]:
    """The first rows of each release, (n_rows, k) at most, as they are published."""
    step = max(1, COLUMNS // coords.shape[2])
    for start in range(0, len(coords), step):
        yield from coords[start : start + step][:, :n_rows]

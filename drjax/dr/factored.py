"""Coordinates of many embeddings as what they do not share: a row for the target, and a turn of rows that all share.

The known records' rows of a linear method are `rows @ turn + shift`, with the same `rows` (n-1, r) in every embedding:
kilobytes for each, whatever n is.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.linalg import HIGHEST
from drjax.core.streamed import Directions, Matrix, Product, Scores, part
from drjax.core.types import Array, DRMethod, Embedding, PyTree

MADE_ENTRIES = 2**24
"""Entries of coordinates that are made at a time, 128 MiB in float64."""


class Factors(NamedTuple):
    """Coordinates of one embedding (n, k); batched, every field gains a leading axis.

    Attributes:
        target: (k,), of the target, row 0.
        turn: (k, r), and shift (k,): the others are rows @ turn.T + shift.
        shift: (k,).
    """

    target: Any
    turn: Any
    shift: Any


@runtime_checkable
class Linear(Protocol):
    """A `DRMethod` whose embeddings have factors; `has_factors` says whether with its hyperparameters they do."""

    @property
    def has_factors(self) -> bool:
        """True where they do."""
        ...

    def prepare_factored(self, known: Array, *, dtype: Any, shared_key: Array | None = None) -> tuple[PyTree, Matrix]:
        """What all embeddings share: for `insert_factors`, and the rows (n-1, r) on the host.

        Args:
            known: (n-1, d), possibly mapped from a file.
            dtype: Floating-point type that embeddings are computed in.
            shared_key: As for `DRMethod.prepare`.
        """
        ...

    def insert_factors(self, keys: Array, shared: PyTree, targets: Array) -> Embedding:
        """`DRMethod.insert_batch` with `Factors` for coordinates."""
        ...


def expanded(factors: Factors, rows: Array) -> jax.Array:
    """Coordinates (b, n, k) of b embeddings from the rows (n-1, r)."""
    others = jnp.einsum("bkr,nr->bkn", factors.turn, rows, precision=HIGHEST) + factors.shift[..., None]
    return jnp.swapaxes(jnp.concatenate([factors.target[..., None], others], axis=-1), 1, 2)


def has_factors(method: DRMethod) -> bool:
    """Whether a method's embeddings have factors."""
    return isinstance(method, Linear) and method.has_factors


def checked(method: DRMethod) -> Linear:
    """The method, if its embeddings have factors.

    Raises:
        ValueError: they have none.
    """
    if not has_factors(method):
        raise ValueError(f"factored must be False for method {method.name!r}, whose coordinates have no factors")
    made: Any = method
    return made


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FactoredCoords:
    """Coordinates (m, n, k) of m embeddings, of which none is made before it is asked for.

    `coords[i]`, `coords[i, rows]`, `coords[:, 0]` and `np.asarray(coords)` are arrays; `coords[a:b]` has factors again.

    Attributes:
        factors: (m, ...), on the host.
        rows: (n-1, r), an array or what is sliced and multiplied like one.
        dtype: Type of the coordinates.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        directions: Principal directions of the known records, where they are at hand.
    """

    factors: Factors
    rows: Matrix
    dtype: np.dtype
    decimals: int | None = None
    directions: Directions | None = None

    ndim = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        return len(self.factors.target), 1 + self.rows.shape[0], self.factors.target.shape[1]

    @property
    def size(self) -> int:
        """Number of coordinates, m n k."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the factors, without what all embeddings share."""
        return sum(leaf.nbytes for leaf in self.factors)

    @property
    def is_rounded(self) -> bool:
        """Whether coordinates are other than the factors say by more than rounding in float64."""
        return self.decimals is not None or self.dtype != np.float64

    @property
    def centre(self) -> np.ndarray:
        """(r,), what is taken off the rows of a product before they are turned."""
        assert isinstance(self.rows, Product)
        return np.broadcast_to(self.rows.centre, self.rows.rows.shape[1:])

    def of_records(self) -> FactoredCoords:
        """The same with the known records, less one point, for rows: turns (m, k, d), in float64.

        Raises:
            TypeError: the rows are no product with records.
        """
        rows, turn = self.rows, np.asarray(self.factors.turn, np.float64)
        if not isinstance(rows, Product):
            raise TypeError(f"rows must be a product with records, got {type(rows).__name__}")
        if rows.weights is not None:
            m, k, r = turn.shape
            turn = (turn.reshape(m * k, r) @ rows.weights.T).reshape(m, k, -1)
        directions = rows.directions if isinstance(rows, Scores) else self.directions
        factors, rows = self.factors._replace(turn=turn), Product(rows.rows, rows.centre)
        return dataclasses.replace(self, factors=factors, rows=rows, directions=directions)

    def rounded(self, coords: np.ndarray) -> np.ndarray:
        """Coordinates as they are published, in their type and with their decimals."""
        made = coords.astype(self.dtype, copy=False)
        return made if self.decimals is None else np.round(made, self.decimals)

    def __len__(self) -> int:
        """m."""
        return self.shape[0]

    def __repr__(self) -> str:
        """Shape and type."""
        return f"FactoredCoords of shape {self.shape}, {self.dtype}"

    def __getitem__(self, at: Any) -> Any:
        """The coordinates at lanes, lanes and rows, or all three: integers, slices, or one array among slices.

        Raises:
            IndexError: out of range, or more than three indices.
        """
        at = at if isinstance(at, tuple) else (at,)
        if len(at) > 3 or any(one is None or one is Ellipsis for one in at):
            raise IndexError(f"coordinates of {self.shape} have three axes, got the index {at}")
        lanes, rows, columns = (*at, *[slice(None)] * (3 - len(at)))
        factors = Factors(*(leaf[lanes] for leaf in self.factors))
        if len(at) == 1 and factors.target.ndim == 2:
            return dataclasses.replace(self, factors=factors)
        which = np.arange(self.shape[1])[rows]
        of_target = factors.target[..., None, :]
        if np.ndim(which) == 0 and which == 0:
            made = of_target[..., 0, :]
        else:
            places = np.atleast_1d(which)
            if len(places) and (np.diff(places) == 1).all():
                made = self._others(factors, part(self.rows, slice(max(places[0] - 1, 0), places[-1])))
                made = made if places[0] else np.concatenate([of_target, made], axis=-2)
            else:
                others = self._others(factors, self.rows[np.maximum(places - 1, 0)])
                made = np.where((places == 0)[:, None], of_target, others)
            made = made if np.ndim(which) else made[..., 0, :]
        return self.rounded(made[..., columns])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All of it, (m, n, k)."""
        del copy
        made = np.empty(self.shape, self.dtype)
        step = max(1, MADE_ENTRIES // (self.shape[1] * self.shape[2]))
        for start in range(0, len(self), step):
            made[start : start + step] = self[start : start + step, :]
        return made.astype(dtype or self.dtype, copy=False)

    @staticmethod
    def _others(factors: Factors, rows: Matrix) -> np.ndarray:
        """(..., n', k) of the factors of one lane or several, in one product with the rows (n', r)."""
        *lanes, k, r = factors.turn.shape
        made = rows @ factors.turn.reshape(-1, r).astype(np.float64).T
        made = np.moveaxis(made.reshape(-1, *lanes, k), 0, -2)
        return made + factors.shift[..., None, :]


Coords = Array | FactoredCoords
"""Coordinates (m, n, k) of m embeddings."""


def is_finite(coords: Coords) -> np.ndarray:
    """(m,) bool: where all coordinates are finite, or all factors."""
    leaves = coords.factors if isinstance(coords, FactoredCoords) else [np.asarray(coords)]
    return np.all([np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1) for leaf in leaves], axis=0)

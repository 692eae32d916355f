"""Steps after a method: what becomes of coordinates before they are published. One line each in `AFTER`."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced

DTYPES = ("float16", "float32", "float64")


def _dtype(coords: Array) -> Any:
    """The dtype of coordinates, as JAX has it: NumPy's float64 are float32 unless x64 is on."""
    return jax.dtypes.canonicalize_dtype(coords.dtype)


@hyperparams
class AfterStep:
    """What every step after a method says of itself.

    Attributes:
        name: Name on the command line and in records.
        title: What it makes of coordinates, as it stands in a sentence: "centred".
        keeps_shape: Whether distances in the map are in proportion once the step is undone, but for rounding.
        keeps_unit: Whether distances in the map stay as they are, but for a constant and rounding.
        is_told: Whether known records tell the step to its last digit where nobody states it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    keeps_shape: ClassVar[bool] = True
    keeps_unit: ClassVar[bool] = True
    is_told: ClassVar[bool] = True

    def apply(self, coords: Array) -> Array:
        """Coordinates (n, k) as published, (n, k); pure."""
        raise NotImplementedError

    def undo(self, coords: Array) -> Array:
        """Coordinates (n, k) up to what the step took from them: all that is lost is a shift, or digits."""
        return coords


@hyperparams
class Rescale(AfterStep):
    """Multiplies all coordinates.

    Attributes:
        factor: Number > 0; traced.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Rescale
        >>> Rescale(factor=2.0).apply(jnp.array([[1.0, 5.0]])).tolist()
        [[2.0, 10.0]]
    """

    name: ClassVar[str] = "rescale"
    title: ClassVar[str] = "multiplied by a constant"
    factor: Any = traced(default=1.0)

    def __post_init__(self) -> None:
        """Checks the factor."""
        if not validate.is_abstract(self.factor):
            validate.positive(factor=self.factor)

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords * jnp.asarray(self.factor, _dtype(coords))

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords / jnp.asarray(self.factor, _dtype(coords))


@hyperparams
class RescaleColumns(AfterStep):
    """Multiplies each coordinate by a number of its own, as scaling a map to run from 0 to 1 does.

    Attributes:
        factors: k numbers > 0, one a column; traced.

    Raises:
        ValueError: a factor that is not positive; at trace time, if there are not as many as columns.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import RescaleColumns
        >>> RescaleColumns(factors=(2.0, 10.0)).apply(jnp.array([[1.0, 5.0]])).tolist()
        [[2.0, 50.0]]
    """

    name: ClassVar[str] = "rescale-columns"
    title: ClassVar[str] = "each column multiplied by a constant"
    keeps_unit: ClassVar[bool] = False
    factors: Any = traced(default=())

    def __post_init__(self) -> None:
        """Checks the factors."""
        for factor in self.factors if isinstance(self.factors, tuple) else ():
            if not validate.is_abstract(factor):
                validate.positive(factors=factor)

    def _factors(self, coords: Array) -> jax.Array:
        if len(self.factors) != coords.shape[1]:
            raise ValueError(f"factors must have {coords.shape[1]} numbers, one a column, got {len(self.factors)}")
        return jnp.asarray(self.factors, _dtype(coords))

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords * self._factors(coords)

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords / self._factors(coords)


@hyperparams
class UnitVariance(AfterStep):
    """Every coordinate over its standard deviation (ddof = 1); after PCA that is whitening.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.dr import UnitVariance
        >>> coords = UnitVariance().apply(drjax.embed(drjax.load("digits").x[:60]))
        >>> np.std(coords, axis=0, ddof=1).round(3)
        Array([1., 1.], dtype=float32)
    """

    name: ClassVar[str] = "unit-variance"
    title: ClassVar[str] = "scaled to unit variance"
    keeps_shape: ClassVar[bool] = False
    keeps_unit: ClassVar[bool] = False

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        spread = jnp.std(coords, axis=0, ddof=1)
        return coords / jnp.where(spread > 0, spread, 1)


@hyperparams
class Rotate(AfterStep):
    """Turns the map: by a rotation that a seed draws from all rotations, or by a given matrix, which may mirror it too.

    Attributes:
        seed: Seed >= 0, where no matrix is given.
        matrix: Orthogonal (k, k), rows as tuples, that coordinates are multiplied by from the right; traced.

    Raises:
        ValueError: a negative seed, a matrix that is not orthogonal; at trace time, one of another size than the map.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Rotate
        >>> turned = Rotate(seed=1).apply(jnp.array([[3.0, 4.0]]))
        >>> round(float(jnp.linalg.norm(turned)), 3)  # as long as before
        5.0
    """

    name: ClassVar[str] = "rotate"
    title: ClassVar[str] = "rotated"
    seed: int = 0
    matrix: Any = traced(default=None)

    def __post_init__(self) -> None:
        """Checks seed and matrix."""
        validate.integer(minimum=0, seed=self.seed)
        if any(validate.is_abstract(value) for value in jax.tree.leaves(self.matrix)) or self.matrix is None:
            return
        matrix = validate.matrix(self.matrix, "matrix", columns=len(self.matrix))
        if not np.allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-5):
            raise ValueError(f"matrix must be orthogonal, got {self.matrix}")

    def _matrix(self, coords: Array) -> jax.Array:
        k = coords.shape[1]
        if self.matrix is not None:
            if len(self.matrix) != k:
                raise ValueError(f"matrix must have {k} rows for a map of {k} columns, got {len(self.matrix)}")
            return jnp.asarray(self.matrix, _dtype(coords))
        q, r = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(k, k)))
        q = q * np.sign(np.diagonal(r))
        q[:, 0] *= np.sign(np.linalg.det(q))
        return jnp.asarray(q, coords.dtype)

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return jnp.matmul(coords, self._matrix(coords), precision=HIGHEST)

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return jnp.matmul(coords, self._matrix(coords).T, precision=HIGHEST)


@hyperparams
class Linear(AfterStep):
    """Multiplies the map by an invertible matrix: independent components are whitened scores times one.

    Attributes:
        matrix: Invertible (k, k), rows as tuples, that coordinates are multiplied by from the right; traced.

    Raises:
        ValueError: a matrix that is not square or not invertible; at trace time, one of another size than the map.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Linear
        >>> sheared = Linear(matrix=((1.0, 0.5), (0.0, 2.0))).apply(jnp.array([[2.0, 1.0]]))
        >>> sheared.tolist(), Linear(matrix=((1.0, 0.5), (0.0, 2.0))).undo(sheared).tolist()
        ([[2.0, 3.0]], [[2.0, 1.0]])
    """

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "mixed by a linear map"
    keeps_shape: ClassVar[bool] = False
    keeps_unit: ClassVar[bool] = False
    is_told: ClassVar[bool] = False
    matrix: Any = traced(default=())

    def __post_init__(self) -> None:
        """Checks the matrix."""
        if any(validate.is_abstract(value) for value in jax.tree.leaves(self.matrix)) or not len(self.matrix):
            return
        matrix = validate.matrix(self.matrix, "matrix", columns=len(self.matrix))
        if np.linalg.matrix_rank(matrix) < len(matrix):
            raise ValueError(f"matrix must be invertible, got {self.matrix}")

    def _matrix(self, coords: Array) -> jax.Array:
        if len(self.matrix) != coords.shape[1]:
            raise ValueError(f"matrix must have {coords.shape[1]} rows, one a column, got {len(self.matrix)}")
        return jnp.asarray(self.matrix, _dtype(coords))

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return jnp.matmul(coords, self._matrix(coords), precision=HIGHEST)

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return jnp.linalg.solve(self._matrix(coords).T, coords.T).T


@hyperparams
class Shift(AfterStep):
    """Adds a constant to every coordinate.

    Attributes:
        offset: k numbers, one a column; traced.

    Raises:
        ValueError: at trace time, if there are not as many as columns.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Shift
        >>> Shift(offset=(1.0, -1.0)).apply(jnp.array([[1.0, 5.0]])).tolist()
        [[2.0, 4.0]]
    """

    name: ClassVar[str] = "shift"
    title: ClassVar[str] = "shifted"
    offset: Any = traced(default=())

    def _offset(self, coords: Array) -> jax.Array:
        if len(self.offset) != coords.shape[1]:
            raise ValueError(f"offset must have {coords.shape[1]} numbers, one a column, got {len(self.offset)}")
        return jnp.asarray(self.offset, _dtype(coords))

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords + self._offset(coords)

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords - self._offset(coords)


@hyperparams
class Mirror(AfterStep):
    """Changes the sign of some coordinates.

    Attributes:
        axes: Numbers of the coordinates, from 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Mirror
        >>> Mirror(axes=(1,)).apply(jnp.array([[1.0, 5.0]])).tolist()
        [[1.0, -5.0]]
    """

    name: ClassVar[str] = "mirror"
    title: ClassVar[str] = "mirrored"
    axes: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for axis in self.axes:
            validate.integer(minimum=0, axes=axis)

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        mirrored = [axis in self.axes for axis in range(coords.shape[1])]
        return jnp.where(jnp.asarray(mirrored), -coords, coords)

    def undo(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return self.apply(coords)


@hyperparams
class Centre(AfterStep):
    """Subtracts the mean of every coordinate.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Centre
        >>> Centre().apply(jnp.array([[1.0, 5.0], [3.0, 7.0]])).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    name: ClassVar[str] = "centre"
    title: ClassVar[str] = "centred"

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords - jnp.mean(coords, axis=0)


@hyperparams
class Round(AfterStep):
    """Rounds to decimals; without a derivative of use.

    Attributes:
        decimals: Number of decimals >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Round
        >>> Round(decimals=1).apply(jnp.array([[0.26, 1.0]]))
        Array([[0.3, 1. ]], dtype=float32)
    """

    name: ClassVar[str] = "round"
    title: ClassVar[str] = "rounded"
    decimals: int = 3

    def __post_init__(self) -> None:
        """Checks the number."""
        validate.integer(minimum=0, decimals=self.decimals)

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return jnp.round(coords, self.decimals)


@hyperparams
class Cast(AfterStep):
    """Rounds to the digits of a smaller type of float; the dtype stays that of the method.

    Attributes:
        dtype: Type, one of `DTYPES`.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Cast
        >>> bool(Cast(dtype="float16").apply(jnp.array([[1 / 3]]))[0, 0] == 1 / 3)  # digits are lost
        False
    """

    name: ClassVar[str] = "cast"
    title: ClassVar[str] = "cast to fewer digits"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Checks the type."""
        validate.one_of(DTYPES, dtype=self.dtype)

    def apply(self, coords: Array) -> Array:
        """See `AfterStep`."""
        return coords.astype(self.dtype).astype(coords.dtype)


AFTER: dict[str, type[AfterStep]] = {
    step.name: step
    for step in (Rescale, RescaleColumns, UnitVariance, Rotate, Linear, Mirror, Centre, Shift, Round, Cast)
}
"""Every step after a method by its name."""

"""Sparse random projection, with the matrix shared by all shadows or redrawn for each of them."""

from __future__ import annotations

import math
from numbers import Real
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import linalg, validate
from drjax.core.types import Array, Embedding, Status, hyperparams


class FreshMatrices(NamedTuple):
    """Every shadow draws its own matrix: the adversary does not know the seed.

    Attributes:
        known: (n-1, d).
    """

    known: Array


class SharedMatrix(NamedTuple):
    """All shadows use one matrix: the adversary knows the seed.

    Attributes:
        matrix: (d, k).
        known_coords: (n-1, k), the known rows projected with it.
    """

    matrix: Array
    known_coords: Array


class SRPInfo(NamedTuple):
    """Diagnostics: n_nonzero (), int32, the number of non-zero entries of the matrix."""

    n_nonzero: Array


@hyperparams
class SparseRandomProjection:
    """Multiplies the rows by a random (d, k) matrix with entries in {0, +v, -v}, v = sqrt(1 / (density k)).

    The law of scikit-learn's `SparseRandomProjection` (entries are independent, each non-zero with probability
    `density`, signs even), not its random stream. The data are not centred. A shadow costs O(d k) if the matrix is
    shared and O(n d k) if it is redrawn.

    Attributes:
        n_components: Output dimension k >= 1; may exceed d.
        density: Probability of a non-zero entry, in (0, 1]; None is 1 / sqrt(d).

    Raises:
        ValueError: On construction, for hyperparameters out of range.

    Source: Li, Hastie & Church (2006), "Very sparse random projections"; scikit-learn 1.9 `random_projection.py`.
    """

    name: ClassVar[str] = "srp"
    n_components: int = 2
    density: float | None = None

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)
        density = self.density
        if density is not None and (isinstance(density, bool) or not isinstance(density, Real) or not 0 < density <= 1):
            raise ValueError(f"density must be None or a number in (0, 1], got {density!r}")

    @property
    def deterministic(self) -> bool:
        """False: the result depends on the key."""
        return False

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Projects x (n, d) with a matrix drawn from the key; coords (n, k) in the units of x.

        Raises:
            ValueError: at trace time, if x has not rank 2.
        """
        validate.shape_2d(x=x)
        x = jnp.asarray(x, linalg.compute_dtype(x))
        matrix = self._matrix(key, x.shape[1], x.dtype)
        return _embedding(jnp.dot(x, matrix, precision=linalg.HIGHEST), matrix)

    def objective(self, coords: Array, x: Array) -> Array:
        """nan: a random projection minimises nothing."""
        del x
        return jnp.full((), jnp.nan, linalg.compute_dtype(coords))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> FreshMatrices | SharedMatrix:
        """Projects the known rows once, or keeps them for matrices that differ from shadow to shadow.

        Args:
            known: (n-1, d) on the host.
            shared_key: Draws the one matrix of all shadows, projects in float64 and makes `insert` ignore its own
                key. None if every shadow draws its own.

        Raises:
            ValueError: known is not a finite numeric matrix.
        """
        known = validate.matrix(known, "known")
        dtype = linalg.compute_dtype(known)
        if shared_key is None:
            return FreshMatrices(jnp.asarray(known, dtype))
        matrix = self._matrix(shared_key, known.shape[1], dtype)
        known_coords = np.asarray(known, np.float64) @ np.asarray(matrix, np.float64)
        return SharedMatrix(matrix, jnp.asarray(known_coords, dtype))

    def insert(self, key: Array, shared: FreshMatrices | SharedMatrix, target: Array) -> Embedding:
        """The embedding of [target; known]; target (d,), row 0 of coords (n, k) is its own."""
        batch = self.insert_batch(key[None], shared, target[None])
        return jax.tree.map(lambda leaf: leaf[0], batch)

    def insert_batch(self, keys: Array, shared: FreshMatrices | SharedMatrix, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d): one product of the known rows with all b matrices side by side.

        Raises:
            ValueError: at trace time, if targets do not match the known rows.
        """
        d = shared.matrix.shape[0] if isinstance(shared, SharedMatrix) else shared.known.shape[1]
        if targets.ndim != 2 or targets.shape[1] != d:
            raise ValueError(f"targets must have shape (m, {d}) to match known, got {targets.shape}")
        b = targets.shape[0]
        if isinstance(shared, SharedMatrix):
            targets = jnp.asarray(targets, shared.matrix.dtype)
            first = jnp.dot(targets, shared.matrix, precision=linalg.HIGHEST)
            rest = jnp.broadcast_to(shared.known_coords, (b, *shared.known_coords.shape))
            matrices = jnp.broadcast_to(shared.matrix, (b, *shared.matrix.shape))
        else:
            targets = jnp.asarray(targets, shared.known.dtype)
            matrices = jax.vmap(lambda key: self._matrix(key, d, targets.dtype))(keys)
            first = jnp.einsum("bd,bdk->bk", targets, matrices, precision=linalg.HIGHEST)
            # A GEMM batched over shadows has only k columns each and runs at a fraction of this one's rate.
            side_by_side = matrices.transpose(1, 0, 2).reshape(d, -1)
            rest = jnp.dot(shared.known, side_by_side, precision=linalg.HIGHEST)
            rest = rest.reshape(-1, b, self.n_components).transpose(1, 0, 2)
        return jax.vmap(_embedding)(jnp.concatenate([first[:, None], rest], axis=1), matrices)

    def _matrix(self, key: Array, d: int, dtype: np.dtype) -> jax.Array:
        """Every 32-bit word makes two entries: generating words is what a shadow of few rows spends its time on.

        The words are cut, in this order, into those that leave both entries zero, set the first, set the second, set
        both. The cuts are multiples of 4, so that the two lowest bits are fair and independent signs; they represent
        the density to within 2**-29.
        """
        density = self.density if self.density is not None else 1 / math.sqrt(d)
        empty = 1 - density
        cuts = np.round(np.array([empty**2, empty, empty + empty * density]) * 2**30)
        some, second, both = (np.minimum(cuts, 2**30 - 1) * 4).astype(np.uint32)
        words = jax.random.bits(key, (math.ceil(d * self.n_components / 2),), jnp.uint32)
        has_second = words >= second
        has_first = ((words >= some) & ~has_second) | (words >= both)
        value = np.asarray(math.sqrt(1 / density / self.n_components), dtype)
        first = jnp.where(has_first, jnp.where(words & 1, value, -value), 0)
        last = jnp.where(has_second, jnp.where(words & 2, value, -value), 0)
        entries = jnp.stack([first, last], axis=-1).astype(dtype)
        return entries.reshape(-1)[: d * self.n_components].reshape(d, self.n_components)


def _embedding(coords: jax.Array, matrix: jax.Array) -> Embedding:
    is_finite = jnp.all(jnp.isfinite(coords))
    return Embedding(
        coords=coords,
        objective=jnp.full((), jnp.nan, coords.dtype),
        n_iter=jnp.int32(0),
        status=jnp.where(is_finite, jnp.uint32(Status.OK), jnp.uint32(Status.NON_FINITE)),
        info=SRPInfo(n_nonzero=jnp.sum(matrix != 0, dtype=jnp.int32)),
    )

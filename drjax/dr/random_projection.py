"""Sparse random projection, with the matrix shared by all shadows or redrawn for each of them."""

from __future__ import annotations

import functools
import math
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from drjax.core import linalg, streamed, validate
from drjax.core.types import Array, Cost, Embedding, hyperparams
from drjax.dr import base
from drjax.dr.factored import Factors

SPARSE_SHARE = 0.25
"""A column with at most this share of non-zero entries is drawn and multiplied entry by entry, without its zeros."""

UNROLL = 5
"""Entries that one step of the sparse product adds, so that the running sum is read and written a fifth as often."""


class FreshMatrices(NamedTuple):
    """Every shadow draws its own matrix: the adversary does not know the seed.

    Attributes:
        columns: (d + 1, n-1), the known records' features as rows, which a sparse matrix picks from, and one of zeros.
    """

    columns: Array


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
    shared and O(n d k density) if it is redrawn.

    Attributes:
        n_components: Output dimension k >= 1; may exceed d.
        density: Probability of a non-zero entry, in (0, 1]; None is 1 / sqrt(d).

    Raises:
        ValueError: On construction, for hyperparameters out of range.

    Source: Li, Hastie & Church (2006), "Very sparse random projections"; scikit-learn 1.9 `random_projection.py`.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.SparseRandomProjection().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "srp"
    title = "sparse random projection"
    unit = "of the input"
    minimises = None
    repeatable = True
    has_factors = True
    stationary = False
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

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: the records, and a matrix and a product each; see `DRMethod.cost`."""
        k = self.n_components
        return Cost(
            shared_flops=0.0,
            shared_bytes=3.0 * itemsize * n * d,
            flops=(2.0 * self._density(d) * n + 20) * d * k,
            bytes=itemsize * (3.0 * n * k + 4.0 * d * k),
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Projects x (n, d) with a matrix drawn from the key; coords (n, k) in the units of x.

        Raises:
            ValueError: at trace time, if x has not rank 2.
        """
        x = base.records(x)
        matrix = self._matrix(key, x.shape[1], x.dtype)
        coords = jnp.dot(x, matrix, precision=linalg.HIGHEST)
        return _embedding(coords, jnp.sum(matrix != 0, dtype=jnp.int32), base.non_finite(coords))

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
            return FreshMatrices(jnp.asarray(np.pad(known, ((0, 0), (0, 1))).T.astype(dtype)))
        matrix = self._matrix(shared_key, known.shape[1], dtype)
        known_coords = np.asarray(known, np.float64) @ np.asarray(matrix, np.float64)
        return SharedMatrix(matrix, linalg.on_device(known_coords, dtype))

    def insert(self, key: Array, shared: FreshMatrices | SharedMatrix, target: Array) -> Embedding:
        """The embedding of [target; known]; target (d,), row 0 of coords (n, k) is its own."""
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: FreshMatrices | SharedMatrix, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d).

        Raises:
            ValueError: at trace time, if targets do not match the known rows.
        """
        is_shared = isinstance(shared, SharedMatrix)
        d = shared.matrix.shape[0] if is_shared else shared.columns.shape[0] - 1
        base.check_targets(targets, d)
        if is_shared:
            first, rest, n_nonzero = self._insert_shared(shared, targets)
        elif (slots := _slots(d, self._density(d))) <= SPARSE_SHARE * d:
            first, rest, n_nonzero = self._insert_sparse(keys, shared.columns, targets, slots)
        else:
            first, rest, n_nonzero = self._insert_dense(keys, shared.columns[:-1], targets)
        coords = jnp.concatenate([first[:, None], rest], axis=1)
        return jax.vmap(_embedding)(coords, n_nonzero, base.non_finite(coords))

    def prepare_factored(
        self, known: Array, *, dtype: Any, shared_key: Array | None = None
    ) -> tuple[FreshMatrices | SharedMatrix, streamed.Matrix]:
        """As `prepare`, with the known records, or their projections, apart: rows are made when they are asked for.

        Raises:
            ValueError: known is not a finite numeric matrix.
        """
        known, dtype = validate.matrix(known, "known"), np.dtype(dtype)
        d = known.shape[1]
        if shared_key is None:
            return FreshMatrices(jnp.zeros((d + 1, 0), dtype)), streamed.Product(known)
        matrix = self._matrix(shared_key, d, dtype)
        rows = streamed.Product(known, weights=np.asarray(matrix, np.float64))
        return SharedMatrix(matrix, jnp.zeros((0, self.n_components), dtype)), rows

    def insert_factors(self, keys: Array, shared: FreshMatrices | SharedMatrix, targets: Array) -> Embedding:
        """`insert_batch` with `Factors` for coordinates: the matrix and a product with it, whatever n is."""
        b, k = targets.shape[0], self.n_components
        if isinstance(shared, SharedMatrix):
            first, _, n_nonzero = self._insert_shared(shared, targets)
            turn = jnp.broadcast_to(jnp.eye(k, dtype=first.dtype), (b, k, k))
        else:
            first, turn, n_nonzero = self._drawn(keys, shared.columns[:-1], targets)
        factors = Factors(first, turn, jnp.zeros_like(first))
        return jax.vmap(_embedding)(factors, n_nonzero, base.non_finite(first[:, None]))

    def _insert_shared(self, shared: SharedMatrix, targets: Array) -> tuple[Array, Array, Array]:
        b = targets.shape[0]
        targets = jnp.asarray(targets, shared.matrix.dtype)
        first = jnp.dot(targets, shared.matrix, precision=linalg.HIGHEST)
        rest = jnp.broadcast_to(shared.known_coords, (b, *shared.known_coords.shape))
        return first, rest, jnp.broadcast_to(jnp.sum(shared.matrix != 0, dtype=jnp.int32), (b,))

    def _insert_dense(self, keys: Array, columns: Array, targets: Array) -> tuple[Array, Array, Array]:
        d, b = columns.shape[0], targets.shape[0]
        first, turn, n_nonzero = self._drawn(keys, columns, targets)
        # A GEMM batched over shadows has only k columns each and runs at a fraction of this one's rate.
        side_by_side = turn.transpose(2, 0, 1).reshape(d, -1)
        rest = jnp.dot(columns.T, side_by_side, precision=linalg.HIGHEST)
        return first, rest.reshape(-1, b, self.n_components).transpose(1, 0, 2), n_nonzero

    def _drawn(self, keys: Array, columns: Array, targets: Array) -> tuple[Array, Array, Array]:
        """Targets' projections (b, k), the matrices (b, k, d) that make them, and their numbers of entries (b,)."""
        targets = jnp.asarray(targets, columns.dtype)
        matrices = jax.vmap(lambda key: self._matrix(key, columns.shape[0], targets.dtype))(keys)
        first = jnp.einsum("bd,bdk->bk", targets, matrices, precision=linalg.HIGHEST)
        return first, matrices.transpose(0, 2, 1), jnp.sum(matrices != 0, axis=(1, 2), dtype=jnp.int32)

    def _insert_sparse(self, keys: Array, columns: Array, targets: Array, slots: int) -> tuple[Array, Array, Array]:
        """Adds up the picked features: with 1 / density times fewer operations it beats a GEMM at full speed."""
        columns = jnp.asarray(columns)
        d, b, k = columns.shape[0] - 1, targets.shape[0], self.n_components
        value = self._value(d, columns.dtype)
        index, signs = jax.vmap(lambda key: self._picks(key, d, slots))(keys)  # (b, k, slots)
        weights = jnp.where(index < d, jnp.where(signs, value, -value), 0)
        lanes = jnp.arange(b)[:, None, None]
        targets = jnp.asarray(targets, columns.dtype)
        picked = targets.at[lanes, jnp.minimum(index, d - 1)].get(mode="promise_in_bounds")
        first = jnp.sum(weights * picked, axis=-1)

        def steps(array: Array) -> Array:
            return array.reshape(b * k, -1, UNROLL).swapaxes(0, 1)  # (slots / UNROLL, b k, UNROLL)

        def add(total: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
            for j in range(UNROLL):
                total = total + step[1][:, j, None] * columns.at[step[0][:, j]].get(mode="promise_in_bounds")
            return total, None

        zero = jnp.zeros((b * k, columns.shape[1]), columns.dtype)
        rest, _ = jax.lax.scan(add, zero, (steps(index), steps(weights)))
        n_nonzero = jnp.sum(index < d, axis=(1, 2), dtype=jnp.int32)
        return first, jnp.swapaxes(rest.reshape(b, k, -1), 1, 2), n_nonzero

    def _matrix(self, key: Array, d: int, dtype: np.dtype) -> jax.Array:
        """(d, k); of two laws equal to rounding, the one that `insert` takes for this size."""
        k, value = self.n_components, self._value(d, dtype)
        if (slots := _slots(d, self._density(d))) <= SPARSE_SHARE * d:
            index, signs = self._picks(key, d, slots)
            entries = jnp.where(signs, value, -value)
            return jnp.zeros((d + 1, k), dtype).at[index, jnp.arange(k)[:, None]].set(entries)[:d]
        words = jax.random.bits(key, (d, k), jnp.uint32)
        non_zero = (words >> 1) <= np.uint32(round(self._density(d) * (2**31 - 1)))
        return jnp.where(non_zero, jnp.where(words & 1, value, -value), 0).astype(dtype)

    def _picks(self, key: Array, d: int, slots: int) -> tuple[Array, Array]:
        """The non-zero entries of each column: feature numbers (k, slots), increasing and then d; is-positive flags.

        The gap from one non-zero entry to the next is geometric. One 32-bit word draws it by Walker's alias method in
        integers, so that the same key gives the same matrix on every device, and the sign.
        """
        bits, threshold, alias = _gap_tables(d, self._density(d))
        words = jax.random.bits(key, (self.n_components, slots), jnp.uint32)
        # From the top: the cell, what is compared with the cell's threshold, and in the lowest bit the sign.
        cell, rest = (words >> (32 - bits)).astype(jnp.int32), (words >> 1) << (bits + 1)
        own = rest < jnp.asarray(threshold).at[cell].get(mode="promise_in_bounds")
        gap = jnp.where(own, cell, jnp.asarray(alias).at[cell].get(mode="promise_in_bounds"))
        return jnp.minimum(jnp.cumsum(gap + 1, axis=-1) - 1, d), (words & 1).astype(bool)

    def _density(self, d: int) -> float:
        return self.density if self.density is not None else 1 / math.sqrt(d)

    def _value(self, d: int, dtype: np.dtype) -> np.ndarray:
        return np.asarray(math.sqrt(1 / self._density(d) / self.n_components), dtype)


@functools.lru_cache(maxsize=64)
def _slots(d: int, density: float) -> int:
    """How many non-zero entries a column of d may have: more happens once in 10^9 columns, and is cut off."""
    most = int(scipy.stats.binom.isf(1e-9, d, density))
    return math.ceil(max(1, min(most, d)) / UNROLL) * UNROLL


@functools.lru_cache(maxsize=64)
def _gap_tables(d: int, density: float) -> tuple[int, np.ndarray, np.ndarray]:
    """Walker's tables for the number of zeros before the next non-zero entry, d standing for all larger ones.

    Returns:
        bits, and for each of 2^bits equally likely cells the uint32 threshold below which the cell's own number is
        drawn, and the number drawn otherwise.
    """
    # A longer gap than this happens once in 10^9; leaving it out keeps the tables small when d is large.
    longest = min(d, math.ceil(math.log(1e-9) / math.log1p(-density)))
    law = np.append(density * (1 - density) ** np.arange(longest), (1 - density) ** longest)
    bits = max(1, longest.bit_length())
    share = np.pad(law * 2**bits, (0, 2**bits - len(law)))  # in units of one cell
    alias = np.arange(2**bits, dtype=np.int32)
    threshold = np.full(2**bits, 2**32 - 1, np.uint32)
    small, large = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
    while small and large:  # what rounding leaves in either list are full cells
        cell, giver = small.pop(), large[-1]
        threshold[cell], alias[cell] = round(share[cell] * (2**32 - 1)), giver
        share[giver] -= 1 - share[cell]
        if share[giver] < 1:
            small.append(large.pop())
    return bits, threshold, alias


def _embedding(coords: Array | Factors, n_nonzero: Array, flags: Array) -> Embedding:
    return Embedding(
        coords=coords,
        objective=jnp.full((), jnp.nan, jax.tree.leaves(coords)[0].dtype),
        n_iter=jnp.int32(0),
        status=flags,
        info=SRPInfo(n_nonzero=n_nonzero),
    )

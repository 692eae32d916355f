"""PCA behind a scaler: what one more record does to it, by block iterations from the known records' own components.

With the target a = x - mean of the known records K (n-1, d), centred K_c, and scales s(x) of the n records, the scatter
of the scaled records is D^-1 (K_c^T K_c + c a a^T) D^-1, D = diag(s(x)), c = (n-1)/n. A scaler of n records moves every
column, so the change from the known records' own scatter is of full rank; but it is small, of the order of 1/n. So the
leading eigenvectors are found by the block Davidson method: Rayleigh-Ritz on the current vectors, what they were
before, and their residuals, preconditioned by the known records' own eigenvalues and eigenvectors. Only the last are
multiplied by the matrix: the others' images are mixtures of known ones, with orthonormal coefficients.

Sources: Davidson (1975), Journal of Computational Physics 17, 87-94, for the method; Hetmaniuk and Lehoucq (2006),
ibid. 218, 324-332, for the coefficients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.lanes import while_lanes
from drjax.core.linalg import HIGHEST, on_device, scatter_basis
from drjax.core.types import Array, PyTree
from drjax.dr.pipeline.steps import Scaler

LARGE = 64
"""Records and features up to which, and half the number up to which as many vectors are iterated, all components are
taken at once in a shorter time."""

GUARD = 1
"""Vectors found beside those that are wanted: a gap to the next eigenvalue that is small slows these alone."""

N_LEADING = 192
"""Directions of the known records that the preconditioner knows; beyond them eigenvalues are taken for their mean."""

MAX_ITER = 200

N_SURE = 8
"""From this iteration on every other one takes a plain residual: far from the known records' scales, as with a target
that is far from all others, their matrix is a poor guide."""

TOLERANCE = 32
"""Residual at which a vector is done, in units of rounding of the largest eigenvalue."""


class ScaledShared(NamedTuple):
    """What all shadows share.

    Attributes:
        mean: (d,), of the known records, and centred: (n-1, d).
        centred: Known records less it.
        summary: What the scaler needs of them.
        scale: (d,), theirs with one record at their mean.
        basis: (r, d), orthonormal principal directions of the known records over `scale`.
        squares: (r,), their eigenvalues over the largest, and unit: (), the largest.
        unit: Largest eigenvalue.
        matrix: (d, d), what they are of, where products with it take less than with the directions; else None.
    """

    mean: Array
    centred: Array
    summary: PyTree
    scale: Array
    basis: Array
    squares: Array
    unit: Array
    matrix: Array | None


class Leading(NamedTuple):
    """Leading components of one data set.

    Attributes:
        vectors: (p, d), and values: (p,) decreasing, of the scatter of scaled records.
        values: Eigenvalues.
        scale: (d,).
        target: (d,), scaled offset of the target from the known records' mean.
        scatter: (), sum of squares of the centred scaled records.
        converged: () bool, and n_iter: () int32.
        n_iter: Iterations.
    """

    vectors: Array
    values: Array
    scale: Array
    target: Array
    scatter: Array
    converged: Array
    n_iter: Array


class _State(NamedTuple):
    """Orthonormal rows (p + k, d), first the current vectors (p, d), their images, the products of the two, and the
    values (p,) of the vectors."""

    block: Array
    images: Array
    products: Array
    values: Array
    worst: Array
    n_iter: Array


def serves(n_known: int, d: int, k: int) -> bool:
    """Whether k components are iterated for; else they are to be taken of each data set as a whole."""
    least = min(n_known, d)
    return least > LARGE and 2 * (3 * k + GUARD) <= least


def prepare(scaler: Scaler, known: np.ndarray, dtype: Any) -> ScaledShared:
    """What shadows of known records (n-1, d) share; host, float64, O(n d min(n, d)) once."""
    with jax.enable_x64(True):
        exact = jnp.asarray(known, jnp.float64)
        summary = scaler.summary(exact)
        scale = np.asarray(scaler.with_record(summary, jnp.mean(exact, axis=0)).scale)
    mean = known.mean(axis=0)
    centred = known - mean
    _, basis, singular, _ = scatter_basis(centred / scale)
    unit = float(singular[0]) ** 2 if singular[0] > 0 else 1.0
    squares = singular**2 / unit
    matrix = (basis.T * squares) @ basis if basis.shape[1] < 2 * len(basis) else None
    shared = ScaledShared(mean, centred, summary, scale, basis, squares, np.asarray(unit), matrix)
    return jax.tree.map(lambda leaf: on_device(np.asarray(leaf), dtype), shared)


def leading(scaler: Scaler, shared: ScaledShared, targets: Array, k: int) -> Leading:
    """The k + GUARD leading components with each of the targets (b, d) in turn; fields gain an axis b."""
    dtype = shared.basis.dtype
    n = shared.centred.shape[0] + 1
    p = k + GUARD
    targets = jnp.asarray(targets, dtype)
    finite = jnp.all(jnp.isfinite(targets), axis=1)
    targets = jnp.where(finite[:, None], targets, shared.mean)
    scale = jax.vmap(lambda t: scaler.with_record(shared.summary, t).scale)(targets)
    ratio = shared.scale / scale
    offset = (targets - shared.mean) / scale
    unit = shared.unit
    weight = (n - 1) / n / unit
    eps = float(jnp.finfo(dtype).eps)

    def image(vectors: Array, data: tuple[Array, Array]) -> Array:
        """The scatter matrix times vectors (p, d), over the unit."""
        own_ratio, own_offset = data
        scaled = vectors * own_ratio
        if shared.matrix is None:
            inside = jnp.matmul(scaled, shared.basis.T, precision=HIGHEST) * shared.squares
            back = jnp.matmul(inside, shared.basis, precision=HIGHEST)
        else:
            back = jnp.matmul(scaled, shared.matrix, precision=HIGHEST)
        return back * own_ratio + weight * jnp.matmul(vectors, own_offset, precision=HIGHEST)[:, None] * own_offset

    def body(state: _State, data: tuple[Array, Array]) -> _State:
        values = state.values[:k, None]
        residual = state.images[:k] - values * state.block[:k]
        move = _undone(shared, residual, values)
        move = jnp.where((state.n_iter < N_SURE) | (state.n_iter % 2 == 0), move, residual)
        new = _orthonormal(move, state.block)
        own = image(new, data)
        # The product of many rows by few is the one that a CPU takes fast.
        across = jnp.matmul(jnp.concatenate([state.images, own]), new.T, precision=HIGHEST)
        products = jnp.concatenate([jnp.concatenate([state.products, across[: p + k]], axis=1), across.T])
        block, images = jnp.concatenate([state.block, new]), jnp.concatenate([state.images, own])
        return _ritz(block, images, products, k, state.n_iter + 1)

    def start(own_ratio: Array, own_offset: Array) -> _State:
        data = own_ratio, own_offset
        # The known records' own, carried over to the new scales, and the target's direction.
        block = _orthonormal(jnp.concatenate([own_offset[None], shared.basis[: p + k - 1] * own_ratio]), None)
        images = image(block, data)
        return _ritz(block, images, jnp.matmul(images, block.T, precision=HIGHEST), k, jnp.int32(0))

    bound = TOLERANCE * eps
    data = (ratio, offset)
    state = jax.vmap(start)(*data)
    state = while_lanes(body, state, data, done=lambda s: ~((s.worst > bound) & (s.n_iter < MAX_ITER)))
    columns = jnp.sum((shared.centred / shared.scale) ** 2, axis=0)
    scatter = jnp.matmul(ratio**2, columns, precision=HIGHEST) + weight * unit * jnp.sum(offset**2, axis=1)
    return Leading(
        jnp.where(finite[:, None, None], state.block[:, :p], jnp.nan),
        state.values * unit,
        scale,
        offset,
        scatter,
        (state.worst <= bound) & finite,
        state.n_iter,
    )


def _ritz(block: Array, images: Array, products: Array, k: int, n_iter: Array) -> _State:
    """The p = k + GUARD best of orthonormal rows (q, d), and k more that hold what the first k of them were."""
    p, dtype = k + GUARD, block.dtype
    eps = float(jnp.finfo(dtype).eps)
    values, mix = jnp.linalg.eigh((products + products.T) / 2)
    mix = mix[:, ::-1].T
    # Vectors that did not move at all leave the next best in their place.
    before = jnp.eye(k, len(block), dtype=dtype) - mix[:k] + eps * mix[p : p + k]
    mix = jnp.concatenate([mix[:p], _orthonormal(before, mix[:p])])
    # Rounding adds up in mixtures of mixtures: a step of Newton and Schulz keeps them orthonormal.
    mixed = jnp.matmul(mix, block, precision=HIGHEST)
    even = 1.5 * jnp.eye(p + k, dtype=dtype) - 0.5 * jnp.matmul(mixed, mixed.T, precision=HIGHEST)
    mix = jnp.matmul(even, mix, precision=HIGHEST)
    block, images = jnp.matmul(even, mixed, precision=HIGHEST), jnp.matmul(mix, images, precision=HIGHEST)
    products = jnp.matmul(jnp.matmul(mix, products, precision=HIGHEST), mix.T, precision=HIGHEST)
    values = values[::-1][:p]
    left = jnp.linalg.norm(images[:k] - values[:k, None] * block[:k], axis=1)
    return _State(block, images, products, values, jnp.max(left) / jnp.maximum(values[0], eps), n_iter)


def _undone(shared: ScaledShared, residual: Array, values: Array) -> Array:
    """(matrix - value)^-1, with the known records' own matrix, times residuals (k, d) of values (k, 1).

    A direction whose eigenvalue is the value itself is one that the vectors have, and what the residual holds of it is
    little.
    """
    n_known = min(N_LEADING, shared.basis.shape[0])
    head, squares = shared.basis[:n_known], shared.squares[:n_known]
    tail = jnp.sum(shared.squares[n_known:]) / max(shared.basis.shape[1] - n_known, 1)
    eps = float(jnp.finfo(residual.dtype).eps)
    along = jnp.matmul(residual, head.T, precision=HIGHEST)
    gap = squares - values
    nearest = 1e-2 * jnp.maximum(values, eps)
    gap = jnp.where(jnp.abs(gap) < nearest, jnp.where(gap < 0, -nearest, nearest), gap)
    beyond = jnp.minimum(tail - values, -eps)
    return jnp.matmul(along * (1 / gap - 1 / beyond), head, precision=HIGHEST) + residual / beyond


def _orthonormal(rows: Array, beside: Array | None) -> Array:
    """Orthonormal rows that span what `rows` (q, d) do, at a right angle to the orthonormal rows `beside` (p, d)."""
    for _ in range(2):
        if beside is not None:
            rows = rows - jnp.matmul(jnp.matmul(rows, beside.T, precision=HIGHEST), beside, precision=HIGHEST)
        length = jnp.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / jnp.where(length > 0, length, 1)
        rows = jnp.linalg.qr(rows.T)[0].T
    return rows

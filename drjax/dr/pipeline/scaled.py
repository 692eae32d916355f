"""PCA behind a scaler: what one more record does to it, by block iterations from the known records' own components.

With the target a = x - mean of the known records K (n-1, d), centred K_c, and scales s(x) of the n records, the scatter
of the scaled records is D^-1 (K_c^T K_c + c a a^T) D^-1, D = diag(s(x)), c = (n-1)/n. A scaler of n records moves every
column, so the change from the known records' own scatter is of full rank; but it is small, of the order of 1/n. So the
leading eigenvectors are found by the block Davidson method: Rayleigh-Ritz on the current vectors and their residuals,
preconditioned by the known records' own eigenvalues and eigenvectors.

Source: Davidson (1975), Journal of Computational Physics 17, 87-94, for the method.
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

GUARD = 1
"""Vectors found beside those that are wanted: a gap to the next eigenvalue that is small slows these alone."""

N_LEADING = 96
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
    """

    mean: Array
    centred: Array
    summary: PyTree
    scale: Array
    basis: Array
    squares: Array
    unit: Array


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
    vectors: Array
    images: Array
    moves: Array
    values: Array
    worst: Array
    n_iter: Array


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
    shared = ScaledShared(mean, centred, summary, scale, basis, singular**2 / unit, np.asarray(unit))
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
        inside = jnp.matmul(vectors * own_ratio, shared.basis.T, precision=HIGHEST) * shared.squares
        back = jnp.matmul(inside, shared.basis, precision=HIGHEST) * own_ratio
        return back + weight * jnp.matmul(vectors, own_offset, precision=HIGHEST)[:, None] * own_offset

    def ritz(block: Array, images: Array) -> tuple[Array, Array, Array]:
        """The p best of orthonormal vectors (q, d), their images and values."""
        small = jnp.matmul(block, images.T, precision=HIGHEST)
        values, mix = jnp.linalg.eigh((small + small.T) / 2)
        mix = mix[:, ::-1][:, :p].T
        return (
            jnp.matmul(mix, block, precision=HIGHEST),
            jnp.matmul(mix, images, precision=HIGHEST),
            values[::-1][:p],
        )

    n_known = min(N_LEADING, shared.basis.shape[0])
    head, head_squares = shared.basis[:n_known], shared.squares[:n_known]
    rest = shared.basis.shape[1] - n_known
    tail = jnp.sum(shared.squares[n_known:]) / max(rest, 1)

    def body(state: _State, data: tuple[Array, Array]) -> _State:
        residual = state.images - state.values[:, None] * state.vectors
        # (matrix - value)^-1 of the known records' own matrix; a direction whose eigenvalue is the value itself is one
        # that the vectors have, and what the residual holds of it is little.
        along = jnp.matmul(residual, head.T, precision=HIGHEST)
        gap = head_squares - state.values[:, None]
        nearest = 1e-2 * jnp.maximum(state.values[:, None], eps)
        gap = jnp.where(jnp.abs(gap) < nearest, jnp.where(gap < 0, -nearest, nearest), gap)
        beyond = jnp.minimum(tail - state.values, -eps)[:, None]
        move = jnp.matmul(along * (1 / gap - 1 / beyond), head, precision=HIGHEST) + residual / beyond
        move = jnp.where((state.n_iter < N_SURE) | (state.n_iter % 2 == 0), move, residual)
        block = _orthonormal(jnp.concatenate([move, state.moves]), state.vectors)
        vectors, images, values = ritz(
            jnp.concatenate([state.vectors, block]), jnp.concatenate([state.images, image(block, data)])
        )
        return _state(vectors, images, vectors - state.vectors, values, state.n_iter + 1)

    def _state(vectors: Array, images: Array, moves: Array, values: Array, n_iter: Array) -> _State:
        left = jnp.linalg.norm(images[:k] - values[:k, None] * vectors[:k], axis=1)
        return _State(vectors, images, moves, values, jnp.max(left) / jnp.maximum(values[0], eps), n_iter)

    def start(own_ratio: Array, own_offset: Array) -> _State:
        data = own_ratio, own_offset
        # The known records' own, carried over to the new scales, and the target's direction.
        block = _orthonormal(jnp.concatenate([shared.basis[: p + 1] * own_ratio, own_offset[None]]), None)
        vectors, images, values = ritz(block, image(block, data))
        return _state(vectors, images, -vectors, values, jnp.int32(0))

    bound = TOLERANCE * eps
    data = (ratio, offset)
    state = jax.vmap(start)(*data)
    state = while_lanes(body, state, data, done=lambda s: ~((s.worst > bound) & (s.n_iter < MAX_ITER)))
    columns = jnp.sum((shared.centred / shared.scale) ** 2, axis=0)
    scatter = jnp.matmul(ratio**2, columns, precision=HIGHEST) + weight * unit * jnp.sum(offset**2, axis=1)
    return Leading(
        jnp.where(finite[:, None, None], state.vectors, jnp.nan),
        state.values * unit,
        scale,
        offset,
        scatter,
        (state.worst <= bound) & finite,
        state.n_iter,
    )


def _orthonormal(rows: Array, beside: Array | None) -> Array:
    """Orthonormal rows that span what `rows` (q, d) do, at a right angle to the orthonormal rows `beside` (p, d)."""
    for _ in range(2):
        if beside is not None:
            rows = rows - jnp.matmul(jnp.matmul(rows, beside.T, precision=HIGHEST), beside, precision=HIGHEST)
        length = jnp.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / jnp.where(length > 0, length, 1)
        rows = jnp.linalg.qr(rows.T)[0].T
    return rows

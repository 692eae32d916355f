"""Forces between all pairs of points in one pass over the pairs, as Pallas kernels for GPUs and TPUs.

XLA writes at least one number per pair and iteration to memory and reads it back; here a tile of pairs lives in
registers, and only forces are written. A program of the grid handles a block of rows of one data set against all
columns; `jax.vmap` adds the data sets to the grid, and what they share is not copied.

On an H100 MDS was 1.7 times faster with them and t-SNE 1.2 times slower (docs/kernels.md), so XLA stays the default
everywhere; no TPU has run them. They are used, on GPUs (by way of Triton) and TPUs only, if the environment variable
DRJAX_PALLAS is 1 when a function is traced; it is not a hyperparameter, because the mechanism does not depend on it but
by rounding. They have no derivative: derivatives of the methods go through XLA. JAX 0.11 deprecates Pallas' Triton
backend, which still ran in 0.11.2; its successor, Mosaic GPU, does not lower these kernels as they are (an assertion
fails in JAX 0.10).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from drjax.core import platforms
from drjax.core.types import Array

VARIABLE = "DRJAX_PALLAS"

ROWS, COLUMNS = 64, 128
"""A tile of pairs. TPUs want columns in multiples of 128; with 8 warps a GPU thread holds 32 numbers of a tile."""

N_WARPS = 8


def is_enabled() -> bool:
    """Whether DRJAX_PALLAS asks for these kernels; functions traced before it changed keep what they had.

    Raises:
        ValueError: it is neither unset nor 0 or 1.
    """
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ValueError(f"the environment variable {VARIABLE} must be 0 or 1, got {value!r}")
    return value == "1"


def on_accelerator(kernel: Callable, otherwise: Callable, *args: Array) -> Any:
    """`kernel(*args, backend=...)` on GPUs and TPUs if `is_enabled()`, else and elsewhere `otherwise(*args)`."""
    if not is_enabled():
        return otherwise(*args)
    cuda, tpu = (functools.partial(kernel, backend=name) for name in ("cuda", "tpu"))
    return platforms.by_platform(*args, cuda=cuda, tpu=tpu, default=otherwise)


def padded(pairs: Array) -> Array:
    """A matrix of pairs (m, m) with zeros up to whole tiles; once, outside the loop, because it is a copy."""
    missing = -pairs.shape[0] % COLUMNS
    return jnp.pad(pairs, ((0, missing), (0, missing)))


def stress_forces(dissimilarities: Array, x: Array, *, backend: str) -> Array:
    """The sum over j of dissimilarity_ij (x_i - x_j) / |x_i - x_j|, SMACOF's Guttman transform but for its scale.

    Coinciding points do not act on each other. O(m^2 k) operations, m^2 numbers read, none but the result written.

    Args:
        dissimilarities: (m, m), or already `padded`.
        x: (m, k).
        backend: "cuda", "tpu", or "interpret", which runs anywhere, slowly, in any dtype. TPUs have no float64.

    Returns:
        (m, k).
    """
    (forces,) = _call(_stress_kernel, dissimilarities, x, (x.shape[1],), backend)
    return forces


def tsne_forces(p: Array, y: Array, *, backend: str) -> tuple[Array, Array, Array]:
    """What t-SNE's gradient consists of, for affinities p (n, n), or `padded`, and coordinates y (n, k).

    With w_ij = (1 + |y_i - y_j|^2 / f)^(-(f + 1) / 2), f = max(k - 1, 1): the attraction, the sum over j of
    p_ij w_ij (y_i - y_j), (n, k); the repulsion, the sum of w_ij^2 (y_i - y_j), (n, k); and the sum of w_ij over j
    other than i, (n,). With z the sum of the last, 2 (f + 1) / f (attraction - repulsion / z) is the gradient of the
    divergence. `backend` and cost as in `stress_forces`.
    """
    k = y.shape[1]
    attraction, repulsion, weight = _call(functools.partial(_tsne_kernel, y.shape[0]), p, y, (k, k, 1), backend)
    return attraction, repulsion, weight[:, 0]


def _call(kernel: Callable, pairs: Array, x: Array, widths: tuple[int, ...], backend: str) -> list[Array]:
    """The kernel's results, (m, width) for each width."""
    m, k = x.shape
    if pairs.shape == (m, m):
        pairs = padded(pairs)
    size = pairs.shape[0]
    if pairs.shape != (size, size) or size != m - m % -COLUMNS:
        raise ValueError(f"pairs of {m} points must have shape ({m}, {m}) or that padded, got {pairs.shape}")
    x = jnp.pad(x, ((0, size - m), (0, 0)))

    def rows(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((ROWS, width), lambda i: (i, 0))

    found = pl.pallas_call(
        kernel,
        grid=(size // ROWS,),
        in_specs=[rows(size), rows(k), pl.BlockSpec((k, size), lambda _: (0, 0))],
        out_specs=[rows(width) for width in widths],
        out_shape=[jax.ShapeDtypeStruct((size, width), x.dtype) for width in widths],
        interpret=backend == "interpret",
        compiler_params=triton.CompilerParams(num_warps=N_WARPS, num_stages=2) if backend == "cuda" else None,
    )(pairs, x, x.T)
    return [leaf[:m] for leaf in found]


def _stress_kernel(pairs_ref: Any, rows_ref: Any, columns_ref: Any, forces_ref: Any) -> None:
    k = rows_ref.shape[1]

    def tile(at: Any, steps: list[Array], squared: Array) -> list[Array]:
        is_zero = squared == 0
        pull = jnp.where(is_zero, 0, pairs_ref[:, at] * jax.lax.rsqrt(jnp.where(is_zero, 1, squared)))
        return [pull * step for step in steps]

    for c, total in enumerate(_sum_over_columns(tile, rows_ref, columns_ref, k)):
        forces_ref[:, c : c + 1] = total


def _tsne_kernel(
    n: int, pairs_ref: Any, rows_ref: Any, columns_ref: Any, attraction_ref: Any, repulsion_ref: Any, weight_ref: Any
) -> None:
    k = rows_ref.shape[1]
    freedom = max(k - 1, 1)
    row = pl.program_id(0) * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 0)

    def tile(at: Any, steps: list[Array], squared: Array) -> list[Array]:
        column = at.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 1)
        # Points that only fill a tile have weight 1 at the origin.
        base = 1 + squared / freedom
        weight = 1 / base if freedom == 1 else jnp.exp(-(freedom + 1) / 2 * jnp.log(base))
        weight = jnp.where((column < n) & (column != row), weight, 0)
        pull, push = pairs_ref[:, at] * weight, weight * weight
        return [*(pull * step for step in steps), *(push * step for step in steps), weight]

    totals = _sum_over_columns(tile, rows_ref, columns_ref, 2 * k + 1)
    for c in range(k):
        attraction_ref[:, c : c + 1] = totals[c]
        repulsion_ref[:, c : c + 1] = totals[k + c]
    weight_ref[...] = totals[2 * k]


def _sum_over_columns(tile: Callable, rows_ref: Any, columns_ref: Any, count: int) -> list[Array]:
    """Sums over all columns of the `count` terms (ROWS, COLUMNS) that tile(at, steps, squared) returns, (ROWS, 1)."""
    k, size = columns_ref.shape
    own = [rows_ref[:, c : c + 1] for c in range(k)]

    def add(t: Any, totals: list[Array]) -> list[Array]:
        at = pl.ds(pl.multiple_of(t * COLUMNS, COLUMNS), COLUMNS)
        # Differences, not a product of the coordinates, which would lose small distances to cancellation.
        steps = [own[c] - columns_ref[c : c + 1, at] for c in range(k)]
        squared = functools.reduce(jnp.add, [step * step for step in steps])
        terms = tile(at, steps, squared)
        return [total + jnp.sum(term, axis=1, keepdims=True) for total, term in zip(totals, terms, strict=True)]

    return jax.lax.fori_loop(0, size // COLUMNS, add, [jnp.zeros((ROWS, 1), rows_ref.dtype)] * count)

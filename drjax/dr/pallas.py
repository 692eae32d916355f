"""Forces between all pairs of points in one pass over the pairs, as Pallas kernels for GPUs and TPUs: what they share.

XLA writes at least one number per pair and iteration to memory and reads it back; here a tile of pairs lives in
registers, and only forces are written. A program of the grid handles a block of rows of one data set against all
columns; `jax.vmap` adds the data sets to the grid, and what they share is not copied. The forces themselves are in
`mds.gpu` and `tsne.gpu`.

On an H100 MDS was 1.7 times faster with them and t-SNE 1.2 times slower (docs/kernels/xla.md): each step is a launch of
its own, so XLA stays the default everywhere; no TPU has run them. Those that make many steps in one launch have not run
on a card yet. They are used, on GPUs (by way of Triton) and TPUs only, if the environment variable
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


def call(kernel: Callable, pairs: Array, x: Array, widths: tuple[int, ...], backend: str) -> list[Array]:
    """Runs a kernel on blocks of `ROWS` rows of the pairs of one data set.

    Args:
        kernel: Gets references to a block's pairs, its own points, all points transposed, and each of its results.
        pairs: (m, m), or already `padded`.
        x: (m, k), the points.
        widths: Columns of each result.
        backend: "cuda", "tpu" or "interpret".

    Returns:
        The kernel's results, (m, width) for each width.

    Raises:
        ValueError: at trace time, if the shape of `pairs` is neither.
    """
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


def call_whole(kernel: Callable, given: tuple, state: list[Any], *, scratch: int, backend: str) -> list[Array]:
    """Runs a kernel that changes the state of one data set in place, in one program.

    Args:
        kernel: Gets references to what is given, to the state and to `scratch` arrays like the first of it.
        given: Arrays that are read.
        state: Arrays (k, size), which the kernel changes.
        scratch: Number of arrays that only the kernel needs.
        backend: "cuda" or "interpret".

    Returns:
        The state as the kernel left it.
    """
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in state]

    def in_place(*refs: Any) -> None:
        # The state's references as arguments are those as results.
        kernel(*refs[: len(given)], *refs[len(given) + len(state) :])

    found = pl.pallas_call(
        in_place,
        out_shape=[*like, *[like[0]] * scratch],
        input_output_aliases={len(given) + i: i for i in range(len(state))},
        interpret=backend == "interpret",
        compiler_params=triton.CompilerParams(num_warps=N_WARPS, num_stages=2) if backend == "cuda" else None,
    )(*given, *state)
    return list(found[: len(state)])


def barrier(backend: str) -> None:
    """Lets all threads of a program see what each has written."""
    if backend == "cuda":
        triton.debug_barrier()


def sum_over_columns(tile: Callable, rows_ref: Any, columns_ref: Any, count: int) -> list[Array]:
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

"""SMACOF's sum over pairs as a Pallas kernel for GPUs and TPUs, and its iterations as one for GPUs; see `dr.pallas`."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from drjax.core.types import Array
from drjax.dr.pallas import COLUMNS, ROWS, barrier, call, call_whole, padded, sum_over_columns


def stress_forces(dissimilarities: Array, x: Array, *, backend: str) -> Array:
    """The sum over j of dissimilarity_ij (x_i - x_j) / |x_i - x_j|, SMACOF's Guttman transform but for its scale.

    Coinciding points do not act on each other. O(m^2 k) operations, m^2 numbers read, none but the result written.

    Args:
        dissimilarities: (m, m), or already `pallas.padded`.
        x: (m, k).
        backend: "cuda", "tpu", or "interpret", which runs anywhere, slowly, in any dtype. TPUs have no float64.

    Returns:
        (m, k).
    """
    (forces,) = call(_stress_kernel, dissimilarities, x, (x.shape[1],), backend)
    return forces


def _stress_kernel(pairs_ref: Any, rows_ref: Any, columns_ref: Any, forces_ref: Any) -> None:
    k = rows_ref.shape[1]

    def tile(at: Any, steps: list[Array], squared: Array) -> list[Array]:
        pull = pairs_ref[:, at] * inverse_root(squared)
        return [pull * step for step in steps]

    for c, total in enumerate(sum_over_columns(tile, rows_ref, columns_ref, k)):
        forces_ref[:, c : c + 1] = total


class Lane(NamedTuple):
    """A map and where its iteration stands.

    Attributes:
        coords: (n, k), the target first.
        moved: Square of its last step, ().
        stress: (); of the coordinates before the last step, but of the last ones once it has finished.
        count: Iterations, (), int32.
        stopped, finished: Whether it has by the rule, or at all, (), bool.
    """

    coords: Any
    moved: Any
    stress: Any
    count: Any
    stopped: Any
    finished: Any


class Apart(NamedTuple):
    """What only one map has of its dissimilarities, and when it stops.

    Attributes:
        row: (n-1,), the target's.
        share: Factor of the shared ones, ().
        squares: Half the sum of the squares of all, ().
        eps, max_iter: Rule.
    """

    row: Any
    share: Any
    squares: Any
    eps: Any
    max_iter: int


def smacof_steps(between: Array, lane: Lane, apart: Apart, most: int, *, backend: str) -> Lane:
    """At most `most` iterations of one map in one launch, as `mds.xla` makes them one by one.

    A program of the GPU moves a map; maps that `jax.vmap` adds run beside each other and read the shared
    dissimilarities from the cache.

    Args:
        between: Dissimilarities of the known points (n-1, n-1), or `pallas.padded`.
        lane: State of the map before.
        apart: Dissimilarities that are the map's own, and its stopping rule.
        most: Number of iterations at most.
        backend: "cuda", or "interpret", which runs anywhere, slowly, in any dtype.

    Returns:
        State of the map after them. O(n^2 k) operations an iteration.
    """
    n = len(lane.coords)
    between = padded(between) if between.shape == (n - 1, n - 1) else between
    missing = between.shape[0] - (n - 1)
    dtype = lane.coords.dtype
    row = jnp.pad(apart.row, (0, missing))
    numbers = jnp.stack([jnp.asarray(value, dtype) for value in (apart.share, apart.squares, apart.eps)])
    known = jnp.pad(lane.coords[1:].T, ((0, 0), (0, missing)))
    reals = jnp.concatenate([jnp.stack([lane.moved, lane.stress]), lane.coords[0]])
    flags = jnp.stack([leaf.astype(jnp.int32) for leaf in (lane.count, lane.stopped, lane.finished)])
    kernel = functools.partial(_smacof_kernel, n, apart.max_iter, most, backend)
    state = [known, reals, flags]
    known, reals, flags = call_whole(kernel, (between, row, numbers), state, scratch=1, backend=backend)
    coords = jnp.concatenate([reals[None, 2:], known[:, : n - 1].T])
    return Lane(coords, reals[0], reals[1], flags[0], flags[1] != 0, flags[2] != 0)


def _smacof_kernel(n: int, max_iter: int, most: int, backend: str, *refs: Any) -> None:
    pairs_ref, row_ref, numbers_ref, known_ref, reals_ref, flags_ref, new_ref = refs
    k, size = known_ref.shape
    dtype = known_ref.dtype
    share, squares, eps = numbers_ref[0], numbers_ref[1], numbers_ref[2]
    blocks = size // ROWS

    def rows_of(block: Any) -> Any:
        return pl.ds(pl.multiple_of(block * ROWS, ROWS), ROWS)

    def transform(first: list[Array], block: Any, sums: list[Array]) -> list[Array]:
        """Guttman's transform of some known points; the pull on the target, and four sums over points."""
        rows = rows_of(block)
        inside = rows.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS,), 0) < n - 1
        own = [known_ref[c, rows] for c in range(k)]

        def add(t: Any, totals: list[Array]) -> list[Array]:
            at = pl.ds(pl.multiple_of(t * COLUMNS, COLUMNS), COLUMNS)
            steps = [own[c][:, None] - known_ref[c, at][None] for c in range(k)]
            pull = pairs_ref[rows, at] * inverse_root(_squared(steps))
            return [total + jnp.sum(pull * step, axis=1) for total, step in zip(totals, steps, strict=True)]

        totals = jax.lax.fori_loop(0, size // COLUMNS, add, [jnp.zeros(ROWS, dtype)] * k)
        steps = [own[c] - first[c] for c in range(k)]
        weight = jnp.where(inside, row_ref[rows] * inverse_root(_squared(steps)), 0)
        pulls = [weight * step for step in steps]
        new = [jnp.where(inside, (share * totals[c] + pulls[c]) / n, 0) for c in range(k)]
        for c in range(k):
            new_ref[c, rows] = new[c]
        terms = [*(-pull for pull in pulls), *_terms(own, new)]
        return [total + jnp.sum(term) for total, term in zip(sums, terms, strict=True)]

    def move(is_last: Array, block: Any, carry: None) -> None:
        rows = rows_of(block)
        for c in range(k):
            known_ref[c, rows] = jnp.where(is_last, known_ref[c, rows], new_ref[c, rows])
        return carry

    def iterate(state: tuple) -> tuple:
        done, moved, _, count, _, _, *first = state
        zeros = [jnp.zeros((), dtype)] * (k + 4)
        sums = jax.lax.fori_loop(0, blocks, functools.partial(transform, first), zeros)
        target = [total / n for total in sums[:k]]
        whole = [total + term for total, term in zip(sums[k:], _terms(first, target), strict=True)]
        along, square, step, length = whole
        stress = jnp.maximum(squares - 2 * n * along + n * square, 0)
        is_over = (count >= 2) & (n * (moved + 2 * step) < eps * n * square)
        is_last = is_over | (count == max_iter)
        # All have read the coordinates before any is overwritten, and the other way round.
        barrier(backend)
        jax.lax.fori_loop(0, blocks, functools.partial(move, is_last), None)
        barrier(backend)
        first = [jnp.where(is_last, old, new) for old, new in zip(first, target, strict=True)]
        stopped, finished = is_over.astype(jnp.int32), is_last.astype(jnp.int32)
        return done + 1, length, stress, count + 1 - finished, stopped, finished, *first

    # Flags are carried as numbers: Triton's lowering has no loops over truth values.
    start = (reals_ref[0], reals_ref[1], flags_ref[0], flags_ref[1], flags_ref[2])
    state = (jnp.int32(0), *start, *(reals_ref[2 + c] for c in range(k)))
    state = jax.lax.while_loop(lambda state: (state[0] < most) & (state[5] == 0), iterate, state)
    _, moved, stress, count, stopped, finished, *first = state
    for i, value in enumerate((moved, stress, *first)):
        reals_ref[i] = value
    for i, value in enumerate((count, stopped, finished)):
        flags_ref[i] = value


def _terms(old: list[Any], new: list[Any]) -> list[Any]:
    """x new, x^2, x (new - x) and (new - x)^2 of points x by columns, each added up over the columns."""
    add: Any = functools.partial(functools.reduce, jnp.add)
    pairs = list(zip(old, new, strict=True))
    return [
        add([x * y for x, y in pairs]),
        add([x * x for x, _ in pairs]),
        add([x * (y - x) for x, y in pairs]),
        add([(y - x) * (y - x) for x, y in pairs]),
    ]


def inverse_root(squared: Array) -> Array:
    """1 / sqrt, and 0 with derivative 0 at 0: coinciding points do not pull at each other."""
    is_zero = squared == 0
    return jnp.where(is_zero, 0, jax.lax.rsqrt(jnp.where(is_zero, 1, squared)))


def _squared(steps: list[Any]) -> Array:
    """Squared length of steps by columns."""
    return functools.reduce(jnp.add, [step * step for step in steps])

"""Loops over lanes that stop at different times: those that are done leave the batch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from drjax.core import platforms, validate
from drjax.core.types import Array, PyTree

SMALLEST = 8
"""Batches up to this width are not compacted: each width is one more copy of the body to compile."""


def while_lanes(
    body: Callable[[PyTree, PyTree], PyTree],
    state: PyTree,
    data: PyTree = (),
    *,
    done: Callable[[PyTree], Array],
    check_every: int = 1,
    smallest: int = SMALLEST,
) -> PyTree:
    """What `vmap` of a `while_loop` returns, without paying for finished lanes as long as the slowest one runs.

    Whenever at most half of a batch is alive, the lanes that are alive are gathered into a batch of half the width,
    and so on down to `smallest`. While a batch of width w > smallest runs, more than w / 2 of its lanes are alive, so
    all lanes together take at most twice the steps they need, plus `smallest` times the steps of the slowest lane.
    With check_every = c there are at most (c - 1) w more for each width. The body is compiled once for each width,
    log2(b / smallest) + 1 times; gathering and scattering move each lane's state and data at most twice in all.

    Shapes are fixed, so it runs under jit and lowers for every platform. Over devices use it inside `jax.shard_map`:
    a gather across devices would leave the smaller batch on all of them. A lane's result does not depend on the others
    but by rounding, where the compiler treats one width differently from another.

    Args:
        body: Step of one lane, (state, data) -> state. What lanes share it may close over: that is not copied.
        state: Pytree of arrays with a leading axis b.
        data: Constants of each lane, a pytree with leading axis b; gathered with the lanes, not returned.
        done: Whether a lane, from its state, has finished, () bool. Must stay true where no step is taken.
        check_every: Steps between two looks at who is done. A lane takes no step once it is done, whatever this is.
        smallest: Width from which on the batch is left as it is.

    Returns:
        The final states, in the order of the lanes.
    """
    validate.integer(check_every=check_every, smallest=smallest)
    width = jax.tree.leaves(state)[0].shape[0]
    return _run(jax.vmap(body), jax.vmap(done), state, data, width, check_every, smallest)


def alone(fn: Callable[[PyTree], PyTree], lanes: PyTree) -> PyTree:
    """`vmap(fn)(lanes)`; on a CPU one lane after the other, so that a lane's rounding depends on no other lane.

    For what a chaotic descent starts from. A product of a batch of another width sums in another order.

    Args:
        fn: Function from one lane to a pytree of arrays.
        lanes: Pytree of arrays with a leading axis b >= 1.
    """

    def in_turn(lanes: PyTree) -> PyTree:
        width = jax.tree.leaves(lanes)[0].shape[0]
        if width > 1:
            return jax.lax.map(fn, lanes)
        # The compiler would unroll a loop of one pass, and then fuse it with what is around it.
        twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), lanes)
        return jax.tree.map(lambda leaf: leaf[:1], jax.lax.map(fn, twice))

    return platforms.by_platform(lanes, cpu=in_turn, default=jax.vmap(fn))


def _run(
    body: Callable, done: Callable, state: PyTree, data: PyTree, width: int, check_every: int, smallest: int
) -> PyTree:
    if width == 0:
        return state
    half = (width + 1) // 2
    is_last = width <= smallest

    def step(_: int, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        state, finished = carry
        state = _where(finished, state, body(state, data))
        return state, finished | done(state)

    def steps(carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        return step(0, carry) if check_every == 1 else jax.lax.fori_loop(0, check_every, step, carry)

    def is_crowded(carry: tuple[PyTree, Array]) -> Array:
        return jnp.sum(~carry[1]) > (0 if is_last else half)

    state, finished = jax.lax.while_loop(is_crowded, steps, (state, done(state)))
    if is_last:
        return state
    # Stable: those alive first, in their order.
    chosen = jnp.argsort(finished, stable=True)[:half]
    inner_state, inner_data = jax.tree.map(lambda leaf: leaf[chosen], (state, data))
    inner_state = _run(body, done, inner_state, inner_data, half, check_every, smallest)
    return jax.tree.map(lambda leaf, new: leaf.at[chosen].set(new), state, inner_state)


def _where(condition: Array, kept: PyTree, new: PyTree) -> PyTree:
    """`kept` for the lanes where the condition (b,) holds, else `new`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, kept, new)

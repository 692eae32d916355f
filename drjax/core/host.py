"""Compiled host code inside a jitted program."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import named_calls, platforms
from drjax.core.types import PyTree

PIECES_PER_CORE = 8

POOL = "drjax-host"
"""How the names of the threads that share the work begin."""


def call(fn: Callable[..., PyTree], result: PyTree, *args: PyTree, vmap_method: str | None = None) -> PyTree:
    """`fn(*args)` on NumPy arrays, as one step of a jitted program; float64 arrives and returns whole.

    On a CPU, JAX can keep the program on disk if `fn` is a function of a module's top level, or `functools.partial` of
    one with numbers, strings and tuples of them; any other is compiled into the program as an object of this process.

    Args:
        fn: Pure; takes and returns pytrees of arrays.
        result: Pytree of `jax.ShapeDtypeStruct` like what `fn` returns, without the leading axes of a `vmap`.
        *args: Pytrees of arrays.
        vmap_method: Rule under `vmap`, see `jax.pure_callback`; None refuses `vmap`.
    """
    leaves, structure = jax.tree.flatten(args)
    leaves = [_constant(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf for leaf in leaves]
    name = named_calls.enter(fn, structure)

    def by_name(*leaves: Any) -> PyTree:
        like, made = jax.tree.flatten(result)
        return jax.tree.unflatten(made, named_calls.call(str(name), like, *leaves, vmap_method=vmap_method))

    def by_callback(*leaves: Any) -> PyTree:
        return _call_back(fn, result, *jax.tree.unflatten(structure, leaves), vmap_method=vmap_method)

    if name is None:
        return by_callback(*leaves)
    return platforms.by_platform(*leaves, cpu=by_name, default=by_callback)


@jax.custom_jvp
def _constant(leaf: Any) -> Any:
    return leaf


@_constant.defjvp
def _constant_has_no_derivative(primals: tuple, tangents: tuple) -> NoReturn:
    # JAX refuses to differentiate a callback, but would let words through as constants: derivatives of 0.
    del primals, tangents
    raise ValueError("host code has no derivative of its own: its caller must give it one (jax.custom_jvp)")


def _call_back(fn: Callable[..., PyTree], result: PyTree, *args: PyTree, vmap_method: str | None) -> PyTree:
    """`call` by `jax.pure_callback`.

    Whether x64 is on belongs to a thread, and the callback may run in another one than the call: a float64 array would
    then be cut to float32 on its way. So it travels as pairs of 32-bit words.
    """

    def on_host(*packed: PyTree) -> PyTree:
        found = fn(*jax.tree.map(_unpack_host, packed, wide))
        return jax.tree.map(_pack_host, found)

    wide = jax.tree.map(lambda leaf: leaf.dtype == np.float64, args)
    packed = jax.tree.map(_pack, args)
    out = jax.pure_callback(on_host, jax.tree.map(_packed_shape, result), *packed, vmap_method=vmap_method)
    return jax.tree.map(_unpack, out, result)


def _pack(leaf: Any) -> Any:
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32) if leaf.dtype == np.float64 else leaf


def _unpack(leaf: Any, like: Any) -> Any:
    return jax.lax.bitcast_convert_type(leaf, jnp.float64) if like.dtype == np.float64 else leaf


def _packed_shape(leaf: Any) -> jax.ShapeDtypeStruct:
    if leaf.dtype == np.float64:
        return jax.ShapeDtypeStruct((*leaf.shape, 2), jnp.uint32)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _pack_host(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype != np.float64:
        return array
    return np.ascontiguousarray(array).view(np.uint32).reshape(*array.shape, 2)


def _unpack_host(leaf: Any, is_wide: bool) -> np.ndarray:
    array = np.asarray(leaf)
    return np.ascontiguousarray(array).view(np.float64)[..., 0] if is_wide else array


def spread(work: Callable[[slice], Any], count: int, *, size: int | None = None) -> None:
    """Calls `work` on slices that together cover range(count), several at a time on the cores of this process.

    May be called from `work` itself: the inner slices then run one after the other on the core of the outer one.

    Args:
        work: Writes its own part of a result. Gains where it lets go of the interpreter's lock (numba's `nogil`).
        count: Items. Each core gets several slices, because items differ in what they cost.
        size: Items in a slice, if it matters.
    """
    size = size or max(1, -(-count // (PIECES_PER_CORE * n_cores())))
    parts = [slice(i, min(i + size, count)) for i in range(0, count, size)]
    # Work of the pool that waits for work of the pool would wait for ever once all threads do.
    is_nested = threading.current_thread().name.startswith(POOL)
    list(map(work, parts) if is_nested else _pool().map(work, parts))


@functools.cache
def n_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_cores(), thread_name_prefix=POOL)

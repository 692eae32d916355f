"""Compiled host code inside a jitted program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.types import PyTree


def call(fn: Callable[..., PyTree], result: PyTree, *args: PyTree, vmap_method: str | None = None) -> PyTree:
    """`fn(*args)` on NumPy arrays, as one step of a jitted program; float64 arrives and returns whole.

    Whether x64 is on belongs to a thread, and the callback may run in another one than the call: a float64 array would
    then be cut to float32 on its way. So it travels as pairs of 32-bit words.

    Args:
        fn: Pure; takes and returns pytrees of arrays.
        result: Pytree of `jax.ShapeDtypeStruct` like what `fn` returns, without the leading axes of a `vmap`.
        *args: Pytrees of arrays.
        vmap_method: See `jax.pure_callback`; None refuses `vmap`.
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

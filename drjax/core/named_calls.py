"""Python functions that compiled programs call by name, so that JAX may keep the programs on disk.

`jax.pure_callback` ties a program to a function of this process, and JAX keeps no such program. Here the program has
one target of XLA's foreign function interface, with the name of a function as its attribute; the function is entered
under that name whenever a program that calls it is traced, which is before it is compiled or found on disk. CPU only.

The structures are those of `xla/ffi/api/c_api.h`. XLA keeps their layout for handlers of version 0.1, which this one
says it is. Should it refuse that version one day, when the target is registered, no function has a name.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

TARGET = "drjax_named_call"
"""What XLA knows the handler by."""

_VERSION = (0, 1)
_METADATA = 1
_RESOURCE_EXHAUSTED, _INTERNAL = 8, 13
_DTYPES = {
    code: np.dtype(name)
    for code, name in (
        *((1, "bool"), (2, "int8"), (3, "int16"), (4, "int32"), (5, "int64")),
        *((6, "uint8"), (7, "uint16"), (8, "uint32"), (9, "uint64")),
        *((10, "float16"), (11, "float32"), (12, "float64"), (15, "complex64"), (18, "complex128")),
    )
}


class _Function(NamedTuple):
    call: Callable[..., Any]
    structure: Any
    """Structure of its arguments, as a pytree."""


_functions: dict[str, _Function] = {}


def enter(fn: Callable[..., Any], structure: Any) -> str | None:
    """The name that `fn` is called by, the same in every process; None if it has no such name.

    Args:
        fn: A function of a module's top level, or `functools.partial` of one with numbers, strings, None and tuples of
            them. A closure, a lambda or a method depends on more than its name says.
        structure: `jax.tree.structure` of the tuple of its arguments.
    """
    options: list[Any] = []
    inner: Any = fn
    while isinstance(inner, functools.partial):
        options.append((inner.args, tuple(sorted(inner.keywords.items()))))
        inner = inner.func
    module, qualified = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
    if not qualified or getattr(sys.modules.get(module or ""), qualified, None) is not inner:
        return None
    if not _is_plain(tuple(options)) or not _is_registered():
        return None
    digest = hashlib.sha256(repr((options, str(structure))).encode()).hexdigest()
    name = f"{module}.{qualified}:{digest[:16]}"
    if name in _functions and _functions[name].structure != structure:
        return None
    _functions[name] = _Function(fn, structure)
    return name


def call(
    name: str, like: Sequence[jax.ShapeDtypeStruct], *args: jax.Array, vmap_method: str | None = None
) -> Sequence[jax.Array]:
    """What the function of this name returns for the leaves of its arguments, as leaves; on a CPU, in any program.

    Args:
        name: Name from `enter`.
        like: What the leaves are like, without the leading axes of a `vmap`.
        *args: Leaves of the arguments.
        vmap_method: Rule under `vmap`, see `jax.pure_callback`; None refuses `vmap`.
    """
    return jax.ffi.ffi_call(TARGET, list(like), vmap_method=vmap_method)(*args, function=name)


@functools.cache
def _is_registered() -> bool:
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_handle), platform="cpu")
    except Exception:  # no class is promised
        return False
    return True


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.generic))


class _Extension(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("next", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


class _Text(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("items", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("kinds", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.POINTER(_Text))),
    )


class _Error(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class _Api(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("new_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Error))),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_MetadataExtension)),
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    )


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
def _handle(pointer: Any) -> int | None:
    """What XLA calls: once to ask for the version, then whenever a program comes to the target."""
    frame = pointer.contents
    try:
        if frame.extension and frame.extension.contents.base.kind == _METADATA:
            metadata = frame.extension.contents.metadata.contents
            metadata.version.major, metadata.version.minor = _VERSION
        else:
            _run(frame)
    except BaseException as error:  # nothing may be raised into XLA, which stops the program and raises the message
        text = "".join(traceback.format_exception(error)).replace("\0", "?").encode(errors="replace")
        code = _RESOURCE_EXHAUSTED if isinstance(error, MemoryError) else _INTERNAL
        return frame.api.contents.new_error(ctypes.byref(_Error(ctypes.sizeof(_Error), None, text, code)))
    return None


def _run(frame: Any) -> None:
    (name,) = (frame.attributes.values[i].contents for i in range(frame.attributes.count))
    function = _functions[ctypes.string_at(name.start, name.length).decode()]
    args, out = (
        [_array(buffers.items[i].contents, is_result) for i in range(buffers.count)]
        for buffers, is_result in ((frame.arguments, False), (frame.results, True))
    )
    found = jax.tree.leaves(function.call(*jax.tree.unflatten(function.structure, args)))
    for target, leaf in zip(out, found, strict=True):
        if np.shape(leaf) != target.shape:
            raise ValueError(f"a result must have shape {target.shape}, got {np.shape(leaf)}")
        np.copyto(target, leaf, casting="same_kind")


class _Memory:
    """A buffer of XLA's as NumPy sees it, without a copy."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype, is_writable: bool) -> None:
        data = address, not is_writable
        self.__array_interface__ = {"version": 3, "typestr": dtype.str, "shape": shape, "data": data}


def _array(buffer: Any, is_result: bool) -> np.ndarray:
    shape, dtype = tuple(buffer.dims[i] for i in range(buffer.rank)), _DTYPES[buffer.dtype]
    if 0 in shape:  # may have no address
        return np.empty(shape, dtype)
    return np.asarray(_Memory(buffer.data, shape, dtype, is_result))

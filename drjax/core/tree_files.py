"""Pytrees in files that need no template to be read: arrays bit for bit, and what holds them, without pickle.

A file is an npz of arrays, with a text in JSON of what they are in: tuples, lists, mappings with text keys, numbers,
text, and NamedTuples and dataclasses of drjax, by name. To read one these classes are looked up, and nothing is called.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import array_files, streamed
from drjax.core.types import PyTree

_TREE = "tree"


def contents(tree: PyTree, beside: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """A pytree as named arrays.

    Args:
        tree: What `put` says.
        beside: Host arrays that need no copy: a leaf that has the bits of one, or of one in another dtype, is its name.

    Raises:
        ValueError: a type that has no form here, such as a class from outside drjax or a bfloat16.
    """
    written = _Written(dict(beside or {}), {})
    text = json.dumps(written.encoded(tree), allow_nan=False, sort_keys=True)
    return {_TREE: np.frombuffer(text.encode(), np.uint8), **written.arrays}


def restored(arrays: Mapping[str, np.ndarray], beside: Mapping[str, np.ndarray] | None = None) -> PyTree:
    """The pytree that `contents` named the arrays of, with the same arrays beside it.

    Raises:
        ValueError: arrays that are none, or whose dtypes JAX has no use for now (float64 without x64).
    """
    try:
        return _decoded(json.loads(arrays[_TREE].tobytes()), arrays, beside or {})
    except (KeyError, TypeError, IndexError, AttributeError, ImportError, UnicodeDecodeError) as error:
        raise ValueError(f"arrays must be a pytree's, got {type(error).__name__}: {error}") from error


def put(path: Path, arrays: Mapping[str, np.ndarray], beside: Mapping[str, np.ndarray] | None = None) -> PyTree:
    """Writes `contents` unless the file is there by now; returns what it holds.

    Raises:
        ValueError: the file is damaged.
        OSError: it cannot be written.
    """
    return restored(array_files.put_arrays(path, arrays), beside)


def load(path: Path, beside: Mapping[str, np.ndarray] | None = None) -> PyTree:
    """What `put` wrote.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged.
    """
    return restored(array_files.load_arrays(path), beside)


@dataclasses.dataclass(frozen=True)
class _Written:
    """What is written: arrays that need no copy, and those that are found on the way."""

    beside: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]

    def encoded(self, value: Any) -> Any:
        """A value in JSON types."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if type(value) in (tuple, list):
            return {type(value).__name__: [self.encoded(entry) for entry in value]}
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": [[key, self.encoded(entry)] for key, entry in value.items()]}
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return {
                "key": self.encoded(np.asarray(jax.random.key_data(value))),
                "impl": str(jax.random.key_impl(value)),
            }
        if isinstance(value, jax.Array) and not value.weak_type:
            return {"jax": self.encoded(np.asarray(value))}
        if isinstance(value, np.dtype) and value.kind in "biufc":
            return {"dtype": value.str}
        if isinstance(value, np.generic):
            return {"scalar": self.encoded(np.asarray(value))}
        names = _fields(type(value))
        fields = [self.encoded(getattr(value, name)) for name in names]
        return {"class": [type(value).__module__, type(value).__qualname__], "fields": fields}

    def _array(self, array: np.ndarray) -> Any:
        if array.dtype.kind not in "biufc":
            raise ValueError(f"a pytree's array must be numeric or boolean, got dtype {array.dtype}")
        for name, other in self.beside.items():
            if streamed.is_same(array, other):
                return {"beside": name}
            if array.shape == other.shape and _has_bits(array, other.astype(array.dtype)):
                return {"beside": name, "as": array.dtype.str}
        # The order of the axes decides how a product is summed.
        is_turned = array.flags.f_contiguous and not array.flags.c_contiguous
        name = str(len(self.arrays))
        self.arrays[name] = array.T if is_turned else array
        return {"array": name, "turned": is_turned}


def _has_bits(array: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape and dtype are the same in memory, too."""
    if not array.flags.c_contiguous:
        return False
    one, two = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (array, other))
    return bool(np.array_equal(one, two))


def _fields(cls: type) -> tuple[str, ...]:
    """The names of a class's fields.

    Raises:
        ValueError: neither a NamedTuple nor a dataclass of drjax.
    """
    if cls.__module__.partition(".")[0] == "drjax" and cls.__qualname__.isidentifier():
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return cls._fields
        if dataclasses.is_dataclass(cls):
            return tuple(field.name for field in dataclasses.fields(cls))
    raise ValueError(f"a pytree's part must be an array, a number, text or a class of drjax, got {cls}")


def _decoded(code: Any, arrays: Mapping[str, np.ndarray], beside: Mapping[str, np.ndarray]) -> Any:
    def inner(entry: Any) -> Any:
        return _decoded(entry, arrays, beside)

    if not isinstance(code, dict):
        return code
    if "float" in code:
        return float.fromhex(code["float"])
    if "tuple" in code:
        return tuple(map(inner, code["tuple"]))
    if "list" in code:
        return list(map(inner, code["list"]))
    if "dict" in code:
        return {key: inner(entry) for key, entry in code["dict"]}
    if "key" in code:
        return jax.random.wrap_key_data(inner(code["key"]), impl=code["impl"])
    if "jax" in code:
        array = inner(code["jax"])
        moved = jnp.asarray(array)
        if moved.dtype != array.dtype:
            raise ValueError(f"arrays must have dtypes that JAX keeps, got {array.dtype}")
        return moved
    if "dtype" in code:
        return np.dtype(code["dtype"])
    if "scalar" in code:
        return inner(code["scalar"])[()]
    if "beside" in code:
        array = beside[code["beside"]]
        return array.astype(code["as"], order="C") if "as" in code else array
    if "array" in code:
        array = arrays[code["array"]]
        return array.T if code["turned"] else array
    module, name = code["class"]
    return _made(module, name, [inner(entry) for entry in code["fields"]])


def _made(module: str, name: str, fields: list[Any]) -> Any:
    """An instance with these fields, of a class of drjax; no code of the class runs."""
    if module.partition(".")[0] != "drjax":
        raise ValueError(f"a class must be one of drjax, got {module}")
    cls = getattr(importlib.import_module(module), name)
    names = _fields(cls)
    if len(names) != len(fields):
        raise ValueError(f"{name} must have {len(names)} fields, got {len(fields)}")
    if issubclass(cls, tuple):
        return tuple.__new__(cls, fields)
    made = object.__new__(cls)
    for field, value in zip(names, fields, strict=True):
        object.__setattr__(made, field, value)
    return made

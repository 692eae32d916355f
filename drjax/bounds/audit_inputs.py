"""Checks of what an audit of a mechanism is given: data, a mechanism and a score that JAX can trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.types import PyTree


def arrays_of(value: PyTree, name: str) -> PyTree:
    """Arrays of JAX, of numbers that are finite.

    Raises:
        ValueError: anything else, named.
    """
    for leaf in jax.tree.leaves(value):
        kind = getattr(np.asarray(leaf), "dtype", np.dtype(object))
        if kind.kind not in "fiub" and kind.name != "bfloat16":
            raise ValueError(f"{name} must be arrays of numbers, got {leaf!r}")
        validate.finite(**{name: leaf})
    return jax.tree.map(jnp.asarray, value)


def shapes_of(function: Callable, name: str, *arguments: Any) -> PyTree:
    """What a function returns, as shapes and dtypes.

    Raises:
        ValueError: a function that JAX cannot trace.
    """
    try:
        return jax.eval_shape(function, *arguments)
    except jax.errors.JAXTypeError as error:
        raise ValueError(
            f"{name} must be traceable by JAX (audit_samples takes the scores of host functions), got {function!r}"
        ) from error


def check_outputs(null: PyTree, alternative: PyTree) -> None:
    """Raises ValueError unless both outputs are non-empty arrays of real numbers and of the same shapes."""
    for output in (null, alternative):
        leaves = jax.tree.leaves(output)
        if not leaves or any(not _is_real(leaf) or not np.prod(leaf.shape) for leaf in leaves):
            raise ValueError(f"mechanism must return non-empty arrays of real numbers, got {output}")
    if jax.tree.map(np.shape, null) != jax.tree.map(np.shape, alternative):
        raise ValueError(f"mechanism must return the same shapes for both inputs, got {null} and {alternative}")


def check_score(value: Any) -> None:
    """Raises ValueError unless the score is a single real number."""
    if not _is_real(value) or value.shape:
        raise ValueError(f"score must return a single real number, got {value}")


def _is_real(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (np.floating, np.integer, np.bool_))

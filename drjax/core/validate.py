"""Eager checks at the public boundary; each raises a ValueError naming the argument, the rule and the value.

Ranges are stated as what is accepted, so that nan fails every one of them.

Example:
    >>> import jax, numpy as np
    >>> from drjax.core import validate
    >>> def said(check, *args, **values):
    ...     try:
    ...         check(*args, **values)
    ...     except ValueError as error:
    ...         return str(error)
    >>> said(validate.positive, sigma=0.0), said(validate.non_negative, step=-1.0)
    ('sigma must be > 0, got 0.0', 'step must be >= 0, got -1.0')
    >>> said(validate.at_least, 2, n=1), said(validate.at_most, 5, k=9)
    ('n must be >= 2, got 1', 'k must be <= the limit = 5, got 9')
    >>> said(validate.integer, k=0.5), said(validate.seed, seed=-1)
    ('k must be an integer >= 1, got 0.5', 'seed must be an integer >= 0, got -1')
    >>> said(validate.probability, share=2.0), said(validate.open_unit, level=1.0)
    ('share must be in [0, 1], got 2.0', 'level must be in (0, 1), got 1.0')
    >>> said(validate.one_of, ("sgd", "adam"), optimizer="lion")
    "optimizer must be one of adam, sgd; got 'lion'"
    >>> said(validate.shape_2d, x=np.ones(3))
    'x must be a non-empty array of shape (rows, columns), got shape (3,)'
    >>> said(validate.finite, x=np.array([1.0, np.nan]))
    'x must be finite, got 1 nan or infinite entries, the first at (1,)'
    >>> validate.matrix([[1, 2], [3, 4]]).shape, validate.device_matrix(jax.numpy.ones((3, 2))).shape
    ((2, 2), (3, 2))
    >>> said(validate.prng_key, 0)
    'key must be a single key from jax.random.key(seed), got 0'
    >>> int(jax.jit(lambda k: k + validate.is_abstract(k))(1))  # 1 more: it was traced
    2
"""

from __future__ import annotations

from typing import Any

import numpy as np


def positive(**values: float) -> None:
    """Each value > 0."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value}")


def non_negative(**values: float) -> None:
    """Each value >= 0."""
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0, got {value}")


def at_least(limit: float, **values: float) -> None:
    """Each value a number >= limit."""
    for name, value in values.items():
        if not value >= limit:
            raise ValueError(f"{name} must be >= {limit:g}, got {value}")


def integer(*, minimum: int = 1, **values: Any) -> None:
    """Each value an integer (bool excluded) of at least `minimum`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
            raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}")


def at_most(limit: float, what: str = "the limit", **values: float) -> None:
    """Each value <= limit; `what` names the limit in the message, e.g. "min(n, d)"."""
    for name, value in values.items():
        if not value <= limit:
            raise ValueError(f"{name} must be <= {what} = {limit}, got {value}")


def seed(**values: Any) -> None:
    """Each value an integer in [0, 2^32): of a larger one JAX takes as many bits as its mode of numbers has."""
    integer(minimum=0, **values)
    at_most(2**32 - 1, "2^32 - 1", **values)


def probability(**values: Any) -> None:
    """Each value, or each entry of an array, in [0, 1]."""
    for name, value in values.items():
        entries = np.asarray(value)
        bad = ~((entries >= 0) & (entries <= 1))
        if bad.any():
            raise ValueError(f"{name} must be in [0, 1], got {entries[bad].flat[0]}")


def open_unit(**values: float) -> None:
    """Each value in (0, 1), as a confidence level must be."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must be in (0, 1), got {value}")


def one_of(options: Any, **values: Any) -> None:
    """Each value among the options."""
    names = sorted(options)
    for name, value in values.items():
        # What compares as arrays do, or has no hash, is none of them.
        if not any(isinstance(value, type(option)) and value == option for option in names):
            raise ValueError(f"{name} must be one of {', '.join(map(str, names))}; got {value!r}")


def shape_2d(**arrays: Any) -> None:
    """Each array has rank 2 and no empty axis; safe on traced arrays."""
    for name, array in arrays.items():
        if np.ndim(array) != 2 or 0 in np.shape(array):
            raise ValueError(f"{name} must be a non-empty array of shape (rows, columns), got shape {np.shape(array)}")


def matrix(
    x: Any, name: str = "x", *, min_rows: int = 1, columns: int | None = None, must_be_finite: bool = True
) -> np.ndarray:
    """A numeric (rows, columns) array on the host, with at least `min_rows` rows, finite but where said otherwise.

    Integers and booleans are accepted and kept; objects, strings and complex numbers are not.

    Raises:
        ValueError: wrong rank, empty, too few rows, another number of columns, not numeric; if `must_be_finite`, nan
            or infinity.
    """
    array = np.asarray(x)
    _matrix_shape(array, name, min_rows, columns)
    if must_be_finite:
        finite(**{name: array})
    return array


def device_matrix(x: Any, name: str = "x", *, columns: int | None = None) -> Any:
    """As `matrix`, of an array (rows, columns) that stays on its device: its sum alone comes to the host.

    Raises:
        ValueError: as `matrix`.
    """
    _matrix_shape(x, name, 1, columns)
    # The sum says what it says in `finite`; a finite array whose sum overflows is looked at again.
    if x.dtype.kind not in "iub" and not np.isfinite(np.asarray(x.sum(), np.float64)):
        finite(**{name: x})
    return x


def _matrix_shape(array: Any, name: str, min_rows: int, columns: int | None) -> None:
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise ValueError(f"{name} must be numeric (float, integer or bool), got dtype {array.dtype}")
    shape_2d(**{name: array})
    if array.shape[0] < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} rows, got {array.shape[0]}")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(f"{name} must have {columns} columns, got {array.shape[1]}")


def finite(**arrays: Any) -> None:
    """Every entry finite; the message says how many are not and where the first one is."""
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            continue
        # A nan or infinity survives in the sum, which is several times cheaper than looking at each entry.
        with np.errstate(all="ignore"):
            if np.isfinite(array.sum()):
                continue
        bad = ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{name} must be finite, got {int(bad.sum())} nan or infinite entries, the first at {where}"
            )


def is_abstract(value: Any) -> bool:
    """Whether a number is traced, or a placeholder that JAX put in its stead: it has no value to check.

    Whoever rebuilds a pytree calls its constructor: transformations with tracers and with bare objects,
    `jax.eval_shape` with shapes, and `lower` of a jitted function, which says what it was called with, with
    `jax.stages.ArgInfo`.
    """
    import jax
    from jax.core import Tracer

    abstract = (Tracer, jax.ShapeDtypeStruct, jax.stages.ArgInfo)
    return type(value) is object or isinstance(value, abstract)


def prng_key(key: Any, name: str = "key") -> None:
    """A single new-style JAX PRNG key, as `jax.random.key(seed)` makes."""
    import jax

    if not (isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()):
        raise ValueError(f"{name} must be a single key from jax.random.key(seed), got {key!r}")

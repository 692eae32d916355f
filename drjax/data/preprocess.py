"""Scalers, fitted on the adversary's shadow-training records only and applied to everything else.

They are pytrees of plain arrays. `fit` is eager and computes on the host in float64; `transform` and `inverse` are
safe under jit, take NumPy and JAX arrays and give back their kind. Axis 0 counts records; the rest may be any shape.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from drjax.core import validate
from drjax.core.types import Array


class _Affine(NamedTuple):
    """(x - offset) / scale, feature by feature.

    Attributes:
        offset: Shape of one record.
        scale: Shape of one record; 1 for features that were constant over the fitted records.
    """

    offset: Any
    scale: Any

    def transform(self, x: Array) -> Any:
        """x (m, ...), original units, to scaled ones."""
        return (x - self.offset) / self.scale

    def inverse(self, z: Array) -> Any:
        """z (m, ...), scaled units, to original ones."""
        return z * self.scale + self.offset


class MinMaxScaler(_Affine):
    """Maps each feature's range over the fitted records to [0, 1]; values beyond it are not clipped.

    A feature whose range is below ten units of rounding at 1 counts as constant and is only shifted.

    Source: scikit-learn's MinMaxScaler, whose threshold this is.

    Example:
        >>> import numpy as np
        >>> from drjax.data import MinMaxScaler
        >>> scaler = MinMaxScaler.fit(np.array([[20.0], [60.0]]))
        >>> scaler.transform(np.array([[40.0], [80.0]]))
        array([[0.5],
               [1.5]])
    """

    __slots__ = ()

    @classmethod
    def fit(cls, x: Array) -> Self:
        """Fits to x (n, ...).

        Raises:
            ValueError: no records, not numeric, or nan or infinity.
        """
        values, dtype = _host(x)
        low = values.min(axis=0)
        spread = values.max(axis=0) - low
        constant = spread < 10 * np.finfo(dtype).eps
        return cls(low.astype(dtype), np.where(constant, 1.0, spread).astype(dtype))


class StandardScaler(_Affine):
    """Gives each feature mean 0 and variance 1 (divided by n) over the fitted records.

    A feature whose variance is what rounding makes of a constant's is only shifted.

    Source: scikit-learn's StandardScaler, whose threshold this is.

    Example:
        >>> import numpy as np
        >>> from drjax.data import StandardScaler
        >>> scaler = StandardScaler.fit(np.array([[20.0], [60.0]]))
        >>> scaler.transform(np.array([[40.0], [80.0]]))
        array([[0.],
               [2.]])
    """

    __slots__ = ()

    @classmethod
    def fit(cls, x: Array) -> Self:
        """Fits to x (n, ...).

        Raises:
            ValueError: no records, not numeric, or nan or infinity.
        """
        values, dtype = _host(x)
        n, eps = len(values), np.finfo(np.float64).eps
        mean, variance = values.mean(axis=0), values.var(axis=0)
        # The error bound of a two-pass variance: relative in the variance, squared and relative in the mean.
        constant = variance <= n * eps * variance + (n * mean * eps) ** 2
        return cls(mean.astype(dtype), np.where(constant, 1.0, np.sqrt(variance)).astype(dtype))


def _host(x: Array) -> tuple[np.ndarray, np.dtype]:
    """The records in float64, and the dtype that the fitted arrays take: that of x where it is a float's."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiub" or array.ndim < 1 or 0 in array.shape:
        raise ValueError(f"x must be a non-empty numeric array, got shape {array.shape} and dtype {array.dtype}")
    validate.finite(x=array)
    return array.astype(np.float64), array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)

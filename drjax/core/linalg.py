"""Linear algebra that several layers share: centring and scikit-learn's sign convention."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.types import Array

HIGHEST = "highest"
"""Matmul precision of every kernel: a GPU's default (TF32) would break parity with the CPU."""


def compute_dtype(x: Array) -> np.dtype:
    """The dtype a kernel computes in: float64 only with x64 on, half precision as float32, integers as floats."""
    dtype = np.dtype(x.dtype)
    if dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    return np.dtype(jax.dtypes.canonicalize_dtype(np.promote_types(dtype, np.float32)))


def sign_and_margin(loadings: Array) -> tuple[Array, Array]:
    """The sign that makes each row's largest |loading| positive, and by how much it is the largest.

    Args:
        loadings: (..., d).

    Returns:
        sign: (...), +1 or -1 (+1 for a zero row).
        margin: (...), | max(loading) - max(-loading) |: below the error of the loadings, the sign is a coin toss.

    Source: scikit-learn 1.9 `utils.extmath.svd_flip(u_based_decision=False)`, as `decomposition.PCA` uses it.
    """
    top, bottom = jnp.max(loadings, axis=-1), -jnp.min(loadings, axis=-1)
    return jnp.where(top >= bottom, 1.0, -1.0).astype(loadings.dtype), jnp.abs(top - bottom)

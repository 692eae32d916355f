"""SMACOF's sum over pairs as a Pallas kernel for GPUs and TPUs; see `dr.pallas`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from drjax.core.types import Array
from drjax.dr.pallas import call, sum_over_columns


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
        is_zero = squared == 0
        pull = jnp.where(is_zero, 0, pairs_ref[:, at] * jax.lax.rsqrt(jnp.where(is_zero, 1, squared)))
        return [pull * step for step in steps]

    for c, total in enumerate(sum_over_columns(tile, rows_ref, columns_ref, k)):
        forces_ref[:, c : c + 1] = total

"""t-SNE's sums over pairs as a Pallas kernel for GPUs and TPUs; see `dr.pallas`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from drjax.core.types import Array
from drjax.dr.pallas import COLUMNS, ROWS, call, sum_over_columns


def tsne_forces(p: Array, y: Array, *, backend: str) -> tuple[Array, Array, Array]:
    """What t-SNE's gradient consists of, for affinities p (n, n), or `pallas.padded`, and coordinates y (n, k).

    With w_ij = (1 + |y_i - y_j|^2 / f)^(-(f + 1) / 2), f = max(k - 1, 1): the attraction, the sum over j of
    p_ij w_ij (y_i - y_j), (n, k); the repulsion, the sum of w_ij^2 (y_i - y_j), (n, k); and the sum of w_ij over j
    other than i, (n,). With z the sum of the last, 2 (f + 1) / f (attraction - repulsion / z) is the gradient of the
    divergence. `backend` and cost as in `mds.gpu.stress_forces`.
    """
    k = y.shape[1]
    attraction, repulsion, weight = call(functools.partial(_tsne_kernel, y.shape[0]), p, y, (k, k, 1), backend)
    return attraction, repulsion, weight[:, 0]


def _tsne_kernel(
    n: int, pairs_ref: Any, rows_ref: Any, columns_ref: Any, attraction_ref: Any, repulsion_ref: Any, weight_ref: Any
) -> None:
    k = rows_ref.shape[1]
    freedom = max(k - 1, 1)
    row = pl.program_id(0) * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 0)

    def tile(at: Any, steps: list[Array], squared: Array) -> list[Array]:
        column = at.start + jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 1)
        # Points that only fill a tile have weight 1 at the origin.
        base = 1 + squared / freedom
        weight = 1 / base if freedom == 1 else jnp.exp(-(freedom + 1) / 2 * jnp.log(base))
        weight = jnp.where((column < n) & (column != row), weight, 0)
        pull, push = pairs_ref[:, at] * weight, weight * weight
        return [*(pull * step for step in steps), *(push * step for step in steps), weight]

    totals = sum_over_columns(tile, rows_ref, columns_ref, 2 * k + 1)
    for c in range(k):
        attraction_ref[:, c : c + 1] = totals[c]
        repulsion_ref[:, c : c + 1] = totals[k + c]
    weight_ref[...] = totals[2 * k]

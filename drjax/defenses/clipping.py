"""The factor that shortens a vector to a bound, apart from its norm: not everybody needs the shortened vectors.

What is not finite counts as 0, so that every record stays within the bound, whatever its numbers are.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from drjax.core.linalg import finite_rows, squares_above


def clip_factor(squares: Any, clip_norm: Any) -> jax.Array:
    """min(1, clip_norm / norm): what a vector is multiplied by so that its norm is at most clip_norm.

    The derivative is finite everywhere: 0 for vectors within the bound, the bound itself included. Norms are as exact
    as their squares, so the bound holds up to rounding. Squares that are infinite or nan give 0, whatever the bound;
    the vector itself has to be left out then (`in_ball` does), because 0 times infinity is nan.

    Args:
        squares: Squared Euclidean norms >= 0, any shape; see `drjax.core.linalg.squares_above`.
        clip_norm: Largest norm, > 0, a number or an array that broadcasts against squares; infinity clips nothing that
            is finite.

    Returns:
        Factors of the shape that the two broadcast to, in [0, 1] and the dtype of squares.
    """
    squares = jnp.asarray(squares)
    bound = jnp.asarray(clip_norm, squares.dtype)
    exceeds = squares > bound * bound
    # The inner choice keeps the infinite derivative of the root at 0 out of the branch that is not taken.
    norm = jnp.sqrt(jnp.where(exceeds, squares, 1))
    factor = jnp.where(exceeds, jnp.minimum(jnp.where(exceeds, bound, 0) / norm, 1), 1)
    return jnp.where(jnp.isfinite(squares), factor, 0)


def in_ball(rows: Any, radius: Any) -> jax.Array:
    """Rows (n, q) in units of the radius, shortened to a norm of at most 1, up to rounding.

    A row that is not finite, or whose squared norm is not, counts as 0.
    """
    rows = jnp.asarray(rows)
    squares = squares_above(rows, axis=1)
    factor = clip_factor(squares, radius) / jnp.asarray(radius, rows.dtype)
    return finite_rows(rows) * factor[:, None]

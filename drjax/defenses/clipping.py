"""The factor that shortens a vector to a bound, kept apart from its norm: nobody needs the shortened vectors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def clip_factor(squares: Any, clip_norm: Any) -> jax.Array:
    """min(1, clip_norm / norm): what a vector is multiplied by so that its norm is at most clip_norm.

    The derivative is finite everywhere: 0 for vectors within the bound, the bound itself included. Norms are as exact
    as their squares, so the bound holds up to rounding; a norm that overflows gives 0, and nan gives 1.

    Args:
        squares: Squared Euclidean norms >= 0, any shape.
        clip_norm: > 0, a number or an array that broadcasts against squares; infinity clips nothing.

    Returns:
        Of the shape that the two broadcast to, in [0, 1] and the dtype of squares.
    """
    squares = jnp.asarray(squares)
    bound = jnp.asarray(clip_norm, squares.dtype)
    exceeds = squares > bound * bound
    # The inner choice keeps the infinite derivative of the root at 0 out of the branch that is not taken.
    norm = jnp.sqrt(jnp.where(exceeds, squares, 1))
    return jnp.where(exceeds, jnp.minimum(jnp.where(exceeds, bound, 0) / norm, 1), 1)

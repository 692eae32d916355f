"""What t-SNE and UMAP share: the search for each point's bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from drjax.core.types import Array


def bisect(value: Callable[[Array], Array], target: float, like: Array, *, max_steps: int, tol: float) -> Array:
    """The positive parameter of every point at which an increasing function of it meets the target.

    Starts at 1, doubles until the target is bracketed, then halves the bracket: the search of van der Maaten's t-SNE,
    of scikit-learn's and of umap-learn's, step by step. Points that have met the target stand still.

    Args:
        value: Maps parameters (n,) to function values (n,), each increasing in its own parameter.
        target: What the values should be.
        like: (n,), gives shape and dtype.
        max_steps: Evaluations at most; the last parameter tried is returned where none met the target.
        tol: A value within this of the target is met.

    Returns:
        Parameters (n,). Constant in what `value` closes over as far as derivatives go.
    """

    def body(state: tuple) -> tuple:
        step, parameter, low, high, done = state
        error = value(parameter) - target
        done = done | (jnp.abs(error) <= tol)
        low = jnp.where(error < 0, parameter, low)
        high = jnp.where(error < 0, high, parameter)
        tried = jnp.where(jnp.isinf(high), 2 * parameter, (low + high) / 2)
        return step + 1, jnp.where(done, parameter, tried), low, high, done

    ones = jnp.ones_like(like)
    state = (jnp.int32(0), ones, jnp.zeros_like(like), jnp.full_like(like, jnp.inf), jnp.zeros(like.shape, bool))
    return jax.lax.while_loop(lambda s: (s[0] < max_steps) & ~jnp.all(s[4]), body, state)[1]

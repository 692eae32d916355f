"""What t-SNE and UMAP share: the search for each point's bandwidth."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from drjax.core.types import Array

MAX_STEPS = 100
ENTROPY_TOL = 1e-5
P_FLOOR = 2.0**-52
"""scikit-learn's: steps of the search, nats within which the entropy is met, least joint probability."""


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


def joint_probabilities(squared: Array, perplexity: float, *, tol: float = ENTROPY_TOL) -> Array:
    """t-SNE's symmetric affinities: Gaussian around each point, as wide as to have the wanted perplexity.

    Differentiable: the precision found by bisection counts as the root that it approximates, by the implicit function
    theorem. O(n^2) a step, `MAX_STEPS` steps at most.

    Args:
        squared: (n, n) squared distances; the diagonal is not read.
        perplexity: 2 to the power of the entropy in bits, below n.
        tol: Nats within which the entropy of a point's neighbours is met.

    Returns:
        (n, n), symmetric, 0 on the diagonal and at least `P_FLOOR` off it; sums to 1.

    Source: van der Maaten & Hinton (2008); scikit-learn 1.9 `manifold/_t_sne.py` and `_utils.pyx` for search and floor.
    """
    n = squared.shape[0]
    off = ~jnp.eye(n, dtype=bool)
    # The entropy does not see a shift by the nearest neighbour's, which keeps the exponentials from vanishing all.
    nearest = jnp.min(jnp.where(off, squared, jnp.inf), axis=1, keepdims=True)
    # Masked before the difference: infinity less infinity would poison the derivative.
    shifted = jnp.where(off, squared - jnp.where(jnp.isfinite(nearest), nearest, 0), 0)

    def entropy(beta: Array, shifted: Array) -> Array:
        weight = jnp.where(off, jnp.exp(-beta[:, None] * shifted), 0)
        total = jnp.sum(weight, axis=1)
        return jnp.log(total) + beta * jnp.sum(shifted * weight, axis=1) / total

    target = math.log(perplexity)
    fixed = jax.lax.stop_gradient(shifted)
    beta = bisect(lambda beta: -entropy(beta, fixed), -target, fixed[:, 0], max_steps=MAX_STEPS, tol=tol)
    # One Newton step of size zero, whose derivative is that of the root.
    slope = jax.jvp(lambda b: entropy(b, fixed), (beta,), (jnp.ones_like(beta),))[1]
    moved = entropy(beta, shifted) - jax.lax.stop_gradient(entropy(beta, fixed))
    # Neighbours at one distance have the same entropy at every precision: nothing moves the root.
    beta = beta - jnp.where(slope < 0, moved / jnp.where(slope < 0, slope, -1), 0)
    weight = jnp.where(off, jnp.exp(-beta[:, None] * shifted), 0)
    conditional = weight / jnp.sum(weight, axis=1, keepdims=True)
    joint = conditional + conditional.T
    return jnp.where(off, jnp.maximum(joint / jnp.sum(joint), P_FLOOR), 0)

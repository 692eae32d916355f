"""t-SNE's affinities, in JAX: Gaussian around each point, as wide as to have the wanted perplexity."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from drjax.core.types import Array
from drjax.dr.bandwidth import bisect

MAX_STEPS = 100
ENTROPY_TOL = 1e-5
P_FLOOR = 2.0**-52
"""scikit-learn's: steps of the search, nats within which the entropy is met, least joint probability."""


def joint_probabilities(squared: Array, perplexity: float, *, tol: float = ENTROPY_TOL) -> Array:
    """t-SNE's symmetric affinities: Gaussian around each point, as wide as to have the wanted perplexity.

    Differentiable: the precision found by bisection counts as the root that it approximates, by the implicit function
    theorem. O(n^2) a step, `MAX_STEPS` steps at most.

    Args:
        squared: (n, n) squared distances; the diagonal is not read.
        perplexity: Perplexity: 2 to the power of the entropy in bits, below n.
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

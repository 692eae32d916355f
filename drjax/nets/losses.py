"""What the training loop minimises: weighted errors, or the cross-entropy of probabilities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from drjax.core import validate

LOSSES = ("errors", "cross_entropy")


def loss_value(loss: str, outputs: Array, targets: Array, *, weights: tuple[float, float]) -> jax.Array:
    """The loss of outputs (b, d), a mean over rows; the weights of "errors" are of squared and absolute ones."""
    if loss == "cross_entropy":
        return cross_entropy(outputs, targets)
    difference = outputs - targets
    return weights[0] * jnp.mean(difference**2) + weights[1] * jnp.mean(jnp.abs(difference))


def cross_entropy(probabilities: Array, targets: Array) -> jax.Array:
    """Mean over b rows of -sum_j t_j log p_j, both (b, d) with rows that sum to 1.

    From probabilities and not from logits, so that a network says the same in training as in use. Below the least
    normal number of float32 (1e-38) a probability counts as that, and gives no gradient.
    """
    safe = jnp.maximum(probabilities, jnp.finfo(jnp.float32).tiny)
    return -jnp.mean(jnp.sum(targets * jnp.log(safe), axis=-1))


def check_targets(loss: str, name: str, targets: np.ndarray) -> None:
    """Raises ValueError if targets (..., d) are none that the loss is for."""
    if loss != "cross_entropy":
        return
    validate.probability(**{name: targets})
    sums = targets.sum(axis=-1, dtype=np.float64).ravel()
    worst = sums[np.abs(sums - 1).argmax()]
    # A row of d float32 numbers misses its sum by less than d roundings.
    if abs(worst - 1) > targets.shape[-1] * np.finfo(np.float32).eps:
        raise ValueError(f"{name} of the cross-entropy must be rows that sum to 1, got a sum of {worst}")

"""What the training loop asks of a critic that is trained against a network."""

from __future__ import annotations

from typing import Protocol

from jax import Array

from drjax.core.types import PyTree


class Adversary(Protocol):
    """A critic of outputs: after every step of the network against it, it takes one on what the network had made.

    All methods are pure, and mapped over the members of an ensemble. `repr` has to say all that a critic is, because a
    checkpoint is told by it.
    """

    def start(self, key: Array) -> PyTree:
        """The critic's state before training."""
        ...

    def loss(self, state: PyTree, outputs: Array) -> Array:
        """What is added to the network's loss for outputs (b, d); differentiable in them."""
        ...

    def step(self, state: PyTree, outputs: Array, targets: Array) -> PyTree:
        """The critic's state after one step on outputs (b, d) and the true records (b, d)."""
        ...

"""A perceptron with residual blocks, for inputs whose order means nothing."""

from __future__ import annotations

import jax
from flax import nnx
from jax import Array

from drjax.core import validate
from drjax.nets.reconstructors import linear


class ResidualMLP(nnx.Module):
    """Inputs (b, p) to outputs (b, q): a dense layer, residual blocks of one dense layer each, and a linear one.

    Attributes:
        first: Dense layer.
        blocks: Dense layers, one for each residual block.
        last: Starts at 0, so that an untrained network says nothing.
    """

    def __init__(
        self, n_inputs: int, n_outputs: int, *, width: int, n_blocks: int, dropout: float, rngs: nnx.Rngs
    ) -> None:
        validate.integer(n_inputs=n_inputs, n_outputs=n_outputs, width=width)
        validate.integer(minimum=0, n_blocks=n_blocks)
        self.first = linear(n_inputs, width, rngs)
        self.blocks = nnx.List([linear(width, width, rngs) for _ in range(n_blocks)])
        zeros = nnx.initializers.zeros_init()
        self.last = nnx.Linear(width, n_outputs, kernel_init=zeros, bias_init=zeros, rngs=rngs)
        self.dropout = nnx.Dropout(dropout)

    def __call__(self, inputs: Array, dropout_key: Array | None = None) -> jax.Array:
        """(b, p) to (b, q); the key is needed in training mode if the network has dropout."""
        x = self._dropped(jax.nn.gelu(self.first(inputs)), dropout_key, 0)
        for i, block in enumerate(self.blocks):
            x = x + self._dropped(jax.nn.gelu(block(x)), dropout_key, i + 1)
        return self.last(x)

    def _dropped(self, x: Array, key: Array | None, i: int) -> jax.Array:
        if not self.dropout.rate or self.dropout.deterministic or key is None:
            return jax.numpy.asarray(x)
        return self.dropout(x, rngs=jax.random.fold_in(key, i))

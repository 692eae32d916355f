"""What a network says in evaluation mode of any number of rows, a chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from drjax.core.types import PyTree

CHUNK = 256
"""Rows that a network is given at a time."""

MakeModel = Callable[[nnx.Rngs], nnx.Module]


def graphdef(make_model: MakeModel, *, training: bool) -> Any:
    """A network without its weights, in training or in evaluation mode."""
    model = nnx.eval_shape(lambda: make_model(nnx.Rngs(params=0)))
    if training:
        model.train()
    else:
        model.eval()
    return nnx.graphdef(model)


def outputs(graph: Any, params: PyTree, rest: PyTree, inputs: Array) -> jax.Array:
    """(m, d) of inputs (m, ...) by a network in evaluation mode, in chunks of bounded memory."""
    m = inputs.shape[0]
    size = min(CHUNK, m)
    n_chunks = math.ceil(m / size)
    padded = jnp.concatenate([inputs, jnp.repeat(inputs[-1:], n_chunks * size - m, axis=0)])
    chunks = padded.reshape(n_chunks, size, *inputs.shape[1:])
    predicted = lax.map(partial(_evaluated, graph, params, rest), chunks)
    return predicted.reshape(n_chunks * size, -1)[:m]


def _evaluated(graph: Any, params: PyTree, rest: PyTree, chunk: Array) -> jax.Array:
    return nnx.merge(graph, params, rest, copy=True)(chunk.astype(jnp.float32))

"""What a network says in evaluation mode of any number of rows, a chunk at a time; and networks without weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from drjax.core.types import PyTree

CHUNK = 256
"""Rows that a network is given at a time."""

N_KEPT = 16
"""Results that `kept` keeps of a function."""

MakeModel = Callable[[nnx.Rngs], nnx.Module]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class _Parts:
    """A partial function that is equal to others of the same parts."""

    function: Callable[..., nnx.Module]
    positional: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    def __call__(self, rngs: nnx.Rngs) -> nnx.Module:
        return self.function(*self.positional, rngs, **dict(self.named))


def comparable(make_model: MakeModel) -> MakeModel:
    """A partial function as one that is equal to others of the same parts, so that `kept` knows it again."""
    if not isinstance(make_model, partial):
        return make_model
    return _Parts(make_model.func, make_model.args, tuple(sorted(make_model.keywords.items())))


def kept(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose last results are kept, but for arguments without a hash and functions that hold variables."""
    remembered = lru_cache(maxsize=N_KEPT)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if any(_holds_variables(given) for given in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        try:
            hash((args, tuple(kwargs.values())))
        except TypeError:
            return function(*args, **kwargs)
        return remembered(*args, **kwargs)

    return call


def _holds_variables(given: Any) -> bool:
    function = given.function if isinstance(given, _Parts) else given
    return bool(getattr(function, "__closure__", None))


def graphdef(make_model: MakeModel, *, training: bool) -> Any:
    """A network without its weights, in training or in evaluation mode."""
    return _graphdef(comparable(make_model), training)


@kept
def _graphdef(make_model: MakeModel, training: bool) -> Any:
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

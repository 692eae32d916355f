"""A network on sets: the order of the points means nothing to it, and their number may differ from set to set.

Source: Zaheer et al., "Deep sets" (2017); with a second round in which every point sees the summary of all.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from drjax.core import validate
from drjax.nets.plot_networks import HEADS
from drjax.nets.reconstructors import linear

POOLED = 3
"""Summaries of a channel: mean, standard deviation and maximum over the points."""


@dataclass(frozen=True, kw_only=True)
class SetNetworkConfig:
    """The shape of a network.

    Attributes:
        width: Channels of every layer, >= 1.
        dropout: Share of the summary's channels left out in training, in [0, 1).
    """

    width: int = 64
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.integer(width=self.width)
        validate.non_negative(dropout=self.dropout)
        if not self.dropout < 1:
            raise ValueError(f"dropout must be < 1, got {self.dropout}")


class SetNetwork(nnx.Module):
    """Features of points to shares.

    Its outputs do not change with the order of the points, nor with points that are masked; and with rotation, mirror
    image, scale and place of a map exactly as little as the features do.

    Args:
        config: Shape.
        n_features: Number of features of a point, without the mask.
        head: "classification", whose outputs are probabilities of `n_outputs` classes, or "regression", whose
            `n_outputs` are shares in (0, 1) by a sigmoid.
        n_outputs: Number of outputs, >= 1.
        rngs: Random generators with a stream "params".
    """

    def __init__(self, config: SetNetworkConfig, n_features: int, head: str, n_outputs: int, *, rngs: nnx.Rngs) -> None:
        validate.one_of(HEADS, head=head)
        validate.integer(n_features=n_features, n_outputs=n_outputs)
        width = config.width
        self.head = head
        self.first = nnx.List([linear(n_features, width, rngs), linear(width, width, rngs)])
        self.context = linear(POOLED * width, width, rngs)
        self.second = nnx.List([linear(width, width, rngs), linear(width, width, rngs)])
        self.summary = linear(POOLED * width, width, rngs)
        self.last = nnx.Linear(width, n_outputs, rngs=rngs)
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(self, points: Array, dropout_key: Array | None = None) -> jax.Array:
        """(b, n, n_features + 1), the last being 1 for points and 0 for padding, to (b, n_outputs) in (0, 1).

        The key is needed in training mode if the network has dropout.
        """
        mask = points[..., -1:]
        x = jax.nn.gelu(self.first[1](jax.nn.gelu(self.first[0](points[..., :-1]))))
        context = self.context(_pooled(x, mask))[:, None]
        x = x + jax.nn.gelu(self.second[1](jax.nn.gelu(self.second[0](x) + context)))
        x = _pooled(x, mask)
        if self.dropout.rate and not self.dropout.deterministic and dropout_key is not None:
            x = self.dropout(x, rngs=dropout_key)
        logits = self.last(jax.nn.gelu(self.summary(x)))
        return jax.nn.softmax(logits) if self.head == "classification" else jax.nn.sigmoid(logits)


def maker(config: SetNetworkConfig, n_features: int, head: str, n_outputs: int) -> Any:
    """A fresh network from `nnx.Rngs`, as `drjax.nets.training.train` wants it."""
    return functools.partial(_make, config, n_features, head, n_outputs)


def _make(config: SetNetworkConfig, n_features: int, head: str, n_outputs: int, rngs: nnx.Rngs) -> SetNetwork:
    return SetNetwork(config, n_features, head, n_outputs, rngs=rngs)


def _pooled(x: Array, mask: Array) -> jax.Array:
    """(b, n, c) to (b, 3 c): mean, standard deviation and maximum over the points that the mask (b, n, 1) keeps."""
    n = jnp.maximum(mask.sum(axis=1), 1)
    mean = (x * mask).sum(axis=1) / n
    variance = ((x - mean[:, None]) ** 2 * mask).sum(axis=1) / n
    most = jnp.where(mask > 0, x, -jnp.inf).max(axis=1)
    # The root's slope at 0 is infinite, which a channel that all points share would meet.
    return jnp.concatenate([mean, jnp.sqrt(variance + 1e-6), most], axis=-1)

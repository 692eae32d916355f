"""The gradient of many dense classifiers at once, all trained on the same records but one.

The first layers of B models of width w are one (B w, d) matrix, so that forward and backward are one GEMM each with
the records that the models share; the record that each has for itself adds one row. Records run along the last axis:
the small layers above are then batched products whose long axis is contiguous.

Features that are 0 in all shared records need no GEMM: their weights see the own record alone. They are called silent
here, and the first layer is carried in two parts, weights of active and of silent features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.linalg import squares_above
from drjax.core.types import Array, PyTree
from drjax.nets.classifiers import ACTIVATIONS, PRECISION, Classifier

BLOCK = 1024
"""Records of one block on a CPU: what lies between the two GEMMs of a model, 40 kB a unit, then stays in the cache."""

FactorFn = Callable[[Any], Any]
"""Squared norms of per-record gradients (...,) to the factors they are multiplied by, of the same shape."""


class First(NamedTuple):
    """A first-layer weight, or records, split by features.

    Attributes:
        active: (..., d_active), features that some shared record has.
        silent: (..., d - d_active), features that are 0 in all of them.
    """

    active: Any
    silent: Any


class Split(NamedTuple):
    """Which features are active.

    Attributes:
        order: (d,) int32, the active ones first; the original order within each part.
        n_active: How many are.
    """

    order: np.ndarray
    n_active: int

    @classmethod
    def of(cls, known_x: np.ndarray) -> Split:
        """The features of known_x (n, d) that are not 0 throughout."""
        is_active = (known_x != 0).any(axis=0)
        return cls(np.argsort(~is_active, kind="stable").astype(np.int32), max(1, int(is_active.sum())))

    def split(self, array: Array) -> First:
        """An array whose last axis is d, in two parts."""
        return First(array[..., self.order[: self.n_active]], array[..., self.order[self.n_active :]])

    def join(self, parts: First) -> jax.Array:
        """The array that `split` was given."""
        return jnp.concatenate(parts, axis=-1)[..., np.argsort(self.order)]


class Records(NamedTuple):
    """Records of one step.

    Attributes:
        x: (d_active, n), shared by all models; `First` (B, d_active) and (B, d_silent) of own records.
        y: (C, n) or (B, C), one-hot.
        weight: (n,) or (B,), what a record's gradient is multiplied by.

    Shared records may come in blocks (`blocked`), with one more axis in front.
    """

    x: Any
    y: Any
    weight: Any


def blocked(shared: Records) -> Records:
    """Shared records in blocks of equal size, the last filled up with records of weight 0; as they are if few."""
    n = shared.weight.shape[0]
    if n <= BLOCK or jax.default_backend() != "cpu":
        return shared
    n_blocks = -(-n // BLOCK)
    size = -(-n // n_blocks)

    def cut(array: Array) -> jax.Array:
        rows = jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, n_blocks * size - n)])
        return jnp.moveaxis(rows.reshape(*rows.shape[:-1], n_blocks, size), -2, 0)

    return Records(*map(cut, shared))


def gradients(
    classifier: Classifier, params: PyTree, shared: Records, own: Records, factor: FactorFn | None = None
) -> PyTree:
    """Weighted sums over records of the gradients of the cross-entropy, for B models.

    2 GEMMs of B w d_active n multiplications each; with `factor`, per-record norms come from the products of norms
    that a dense layer's rank-one gradients have, so no per-record gradient is ever formed (Goodfellow 2015).

    Args:
        classifier: A dense one.
        params: Layers with a leading axis B; the first one's weight is a `First`.
        shared: The records of all models.
        own: One record per model.
        factor: What each record's gradient is multiplied by beside its weight, given its squared norm. Records
            themselves have to be finite then; one whose gradient is not counts as 0.

    Returns:
        Pytree of the structure of `params`.
    """
    first = params[0]["w"]
    b, width = params[0]["b"].shape
    z_own = _own(first.active, own.x.active) + _own(first.silent, own.x.silent)
    squares = factor and (_squares(own.x.active, axis=1) + _squares(own.x.silent, axis=1))[:, None]
    z_own = (z_own + params[0]["b"])[..., None]
    delta, rest = _columns(classifier, params[1:], z_own, own.y[..., None], own.weight[:, None], squares, factor)
    weight = First(delta * own.x.active[:, None], delta * own.x.silent[:, None])
    total = ({"w": weight, "b": delta[..., 0]}, *rest)

    def add(sums: PyTree, block: Records) -> tuple[PyTree, None]:
        stacked = first.active.reshape(b * width, -1)
        z = jnp.matmul(stacked, block.x, precision=PRECISION).reshape(b, width, -1) + params[0]["b"][..., None]
        squares = factor and _squares(block.x, axis=0)
        delta, rest = _columns(classifier, params[1:], z, block.y, block.weight, squares, factor)
        active = jnp.matmul(delta.reshape(b * width, -1), block.x.T, precision=PRECISION).reshape(b, width, -1)
        own_weight = sums[0]["w"]
        layer = {"w": First(own_weight.active + active, own_weight.silent), "b": sums[0]["b"] + delta.sum(axis=-1)}
        return (layer, *jax.tree.map(jnp.add, sums[1:], tuple(rest))), None

    if shared.weight.ndim == 2:
        return jax.lax.scan(add, total, shared)[0]
    return add(total, shared)[0]


def _own(weight: Array, x: Array) -> jax.Array:
    return jnp.einsum("bwd,bd->bw", weight, x, precision=PRECISION)


def _squares(x: Array, axis: int) -> jax.Array:
    return jnp.sum(x * x, axis=axis)


def _columns(
    classifier: Classifier,
    layers: PyTree,
    z: Array,
    y: Array,
    weight: Array,
    input_squares: Any,
    factor: FactorFn | None,
) -> tuple[jax.Array, PyTree]:
    """Gradients for records that run along the last axis of z (B, w, n), the first layer's outputs.

    Returns:
        Gradients of z (B, w, n), times weight and factor of each record; and of the layers above, summed over records.
    """
    act = ACTIVATIONS[classifier.activation]
    inputs, slopes = [], []
    for layer in layers:
        h, slope = jax.jvp(act, (z,), (jnp.ones_like(z),))
        inputs.append(h)
        slopes.append(slope)
        z = jnp.matmul(layer["w"], h, precision=PRECISION) + layer["b"][..., None]
    delta = jax.nn.softmax(z, axis=-2) - y
    deltas = [delta]
    for layer, slope in zip(layers[::-1], slopes[::-1], strict=True):
        delta = slope * jnp.matmul(jnp.swapaxes(layer["w"], -1, -2), delta, precision=PRECISION)
        deltas.append(delta)
    deltas = deltas[::-1]
    if factor is not None:
        squares = squares_above(deltas[0], axis=-2) * (input_squares + 1)
        for h, delta in zip(inputs, deltas[1:], strict=True):
            squares += squares_above(delta, axis=-2) * (_squares(h, axis=-2) + 1)
        weight = weight * factor(squares)
        # A factor of 0 is not enough: times infinity it is nan, and the sums over records would be.
        counts = jnp.isfinite(squares)[..., None, :]
        deltas = [jnp.where(counts, delta, 0) for delta in deltas]
        inputs = [jnp.where(counts, h, 0) for h in inputs]
    deltas = [delta * weight[..., None, :] for delta in deltas]
    above = tuple(
        {"w": jnp.matmul(delta, jnp.swapaxes(h, -1, -2), precision=PRECISION), "b": delta.sum(axis=-1)}
        for h, delta in zip(inputs, deltas[1:], strict=True)
    )
    return deltas[0], above

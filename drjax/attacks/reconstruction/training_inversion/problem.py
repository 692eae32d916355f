"""The training run as a function of the target that can be evaluated for many candidates at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.batching import lane_bytes, map_lanes, memory_budget
from drjax.core.types import Array, PyTree
from drjax.nets import classifier_training
from drjax.nets.classifier_training import Context, Lanes, Mechanism, Training

SKETCH_ROWS = 32
"""Outputs of a layer beyond which its weights are compared through this many random combinations of them: what a
record leaves in a layer is close to one outer product, which survives any of them."""

N_ORDERS = 8
"""Orders of mini-batches that a training of unknown order is averaged over: it leaves an eighth of their variance."""

LANES, DEVICE_LANES = 16, 128
"""Models of one chunk on CPUs and elsewhere; GEMMs of their first layers are near their best, and few are wasted on a
last chunk. What an accelerator takes to start a step's kernels is the same for one model as for a hundred."""


class Seen(NamedTuple):
    """What `_observe` needs: the context, how features are laid out, and the sketch of each layer.

    Attributes:
        context: Context from `classifier_training.prepare`.
        back: (d,) where each feature went in the split first layer, or None for other models.
        sketches: Sketch of each layer (r, outputs) with orthonormal rows, or None.
    """

    context: Context
    back: Any
    sketches: tuple[Any, ...]


class Problem:
    """theta(x, y): the parameters that training ends with, as one vector a candidate.

    Parameters come in the order of layers, weight before bias; the first `n_first` entries are the first layer's weight
    as (rows, d), where it is dense. Everything here is on the host, in the dtype of the known records.
    """

    def __init__(
        self,
        training: Training,
        known_x: np.ndarray,
        known_y: np.ndarray,
        *,
        init: PyTree,
        batches: Array | None,
        mechanism: Mechanism | None = None,
        order_key: Array | None = None,
    ) -> None:
        """Arguments as for `reconstruct_model`; with an order key the order is unknown, and `batches` left out."""
        self.training, self.d = training, known_x.shape[1]
        self._n, self._has_noise = len(known_x) + 1, mechanism is not None
        self.is_order_unknown = order_key is not None
        orders = [batches]
        if order_key is not None:
            orders = [training.batches(key, self._n) for key in jax.random.split(order_key, N_ORDERS)]
        self.split, context = classifier_training.prepare(
            training, known_x, known_y, init=init, batches=orders[0], mechanism=mechanism
        )
        self.dtype = context.y.dtype
        model = training.model
        outputs = [shape["w"][0] if len(shape["w"]) == 2 else 0 for shape in model.shapes(self.d)]
        self._seen = Seen(
            context,
            np.argsort(self.split.order).astype(np.int32) if model.is_dense else None,
            tuple(_sketch(n, self.dtype) for n in outputs),
        )
        self._orders = [context.batches] if order_key is None else [np.asarray(order) for order in orders]
        self.rows = min(outputs[0], SKETCH_ROWS) if model.is_dense else 0
        self.n_first = self.rows * self.d
        self._device_lanes: int | None = None

    def run(
        self, x: np.ndarray, y: np.ndarray, *, with_target: bool = True, noise_key: Array | None = None
    ) -> np.ndarray:
        """(m, P) observed parameters for candidates x (m, d) of classes y (m,), float64.

        What the adversary does not know is left out, or averaged over `N_ORDERS` orders; with a key each candidate has
        noise and an order of its own.
        """
        m = len(x)
        eye = np.eye(self.training.model.n_classes, dtype=self.dtype)
        own = classifier_training.split_records(self.training.model, self.split, x.astype(self.dtype))
        lanes = Lanes(own, eye[y], np.full(m, with_target, self.dtype))
        orders = self._orders
        if noise_key is not None:
            keys = jax.random.split(noise_key, (2, m))
            if self._has_noise:
                lanes = lanes._replace(noise_key=keys[0])
            if self.is_order_unknown:
                lanes = lanes._replace(batches=jax.vmap(lambda key: self.training.batches(key, self._n))(keys[1]))
            orders = orders[:1]
        # A last chunk of another size would be one more program to compile.
        size = self._lanes(jax.tree.map(lambda leaf: leaf[:1], lanes))
        rows = np.minimum(np.arange(m + -m % size), m - 1)
        padded = jax.tree.map(lambda leaf: leaf[rows], lanes)
        total = np.zeros(())
        for order in orders:
            seen = self._seen._replace(context=self._seen.context._replace(batches=order))
            total = total + np.asarray(map_lanes(_observed_run, seen, padded, batch_size=size))[:m].astype(np.float64)
        return total / len(orders)

    def _lanes(self, lane: Lanes) -> int:
        if jax.default_backend() == "cpu":
            return LANES
        if self._device_lanes is None:
            fits = memory_budget() // max(1, lane_bytes(_observed_run, self._seen, lane))
            self._device_lanes = int(np.clip(fits, 1, DEVICE_LANES))
        return self._device_lanes

    def observe(self, params: PyTree) -> np.ndarray:
        """(m, P) of given parameters with a leading axis m, float64."""
        seen = self._seen._replace(back=None)
        return np.asarray(_observe(seen, jax.tree.map(jnp.asarray, params))).astype(np.float64)

    def first(self, observed: np.ndarray) -> np.ndarray:
        """The first layer's weight in observed parameters (..., P): (..., rows, d)."""
        return observed[..., : self.n_first].reshape(*observed.shape[:-1], self.rows, self.d)


def _sketch(n: int, dtype: Any) -> np.ndarray | None:
    if n <= SKETCH_ROWS:
        return None
    normal = np.random.default_rng(n).normal(size=(n, SKETCH_ROWS))
    return np.linalg.qr(normal)[0].T.astype(dtype)


def _observed_run(seen: Seen, lanes: Lanes) -> jax.Array:
    return _observe(seen, classifier_training.run(seen.context, lanes))


def _observe(seen: Seen, params: PyTree) -> jax.Array:
    leaves = []
    for layer, sketch in zip(params, seen.sketches, strict=True):
        w = layer["w"]
        if isinstance(w, tuple):
            w = jnp.concatenate(w, axis=-1)[..., seen.back]
        if sketch is not None:
            w = jnp.einsum("ro,boi->bri", sketch, w, precision=jax.lax.Precision.HIGHEST)
        leaves += [w.reshape(w.shape[0], -1), layer["b"]]
    return jnp.concatenate(leaves, axis=1)

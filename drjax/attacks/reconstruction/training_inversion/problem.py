"""The training run as a function of the target that can be evaluated for many candidates at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.batching import map_lanes
from drjax.core.types import Array, PyTree
from drjax.nets import classifier_training
from drjax.nets.classifier_training import Context, Lanes, Mechanism, Training

SKETCH_ROWS = 32
"""Outputs of a layer beyond which its weights are compared through this many random combinations of them: what a
record leaves in a layer is close to one outer product, which survives any of them."""

LANES = 16
"""Models of one chunk; GEMMs of their first layers are near their best, and few are wasted on a last chunk."""


class Seen(NamedTuple):
    """What `_observe` needs: the context, how features are laid out, and the sketch of each layer.

    Attributes:
        context: From `classifier_training.prepare`.
        back: (d,) where each feature went in the split first layer, or None for other models.
        sketches: For each layer (r, outputs) with orthonormal rows, or None.
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
    ) -> None:
        self.training, self.d = training, known_x.shape[1]
        self.split, context = classifier_training.prepare(
            training, known_x, known_y, init=init, batches=batches, mechanism=mechanism
        )
        self.dtype = context.y.dtype
        model = training.model
        outputs = [shape["w"][0] if len(shape["w"]) == 2 else 0 for shape in model.shapes(self.d)]
        self._seen = Seen(
            context,
            np.argsort(self.split.order).astype(np.int32) if model.is_dense else None,
            tuple(_sketch(n, self.dtype) for n in outputs),
        )
        self.rows = min(outputs[0], SKETCH_ROWS) if model.is_dense else 0
        self.n_first = self.rows * self.d

    def run(
        self, x: np.ndarray, y: np.ndarray, *, with_target: bool = True, noise_keys: Array | None = None
    ) -> np.ndarray:
        """(m, P) observed parameters for candidates x (m, d) of classes y (m,), float64.

        Without noise, though there be a mechanism, unless each has a key (m,).
        """
        m = len(x)
        eye = np.eye(self.training.model.n_classes, dtype=self.dtype)
        own = classifier_training.split_records(self.training.model, self.split, x.astype(self.dtype))
        lanes = Lanes(own, eye[y], np.full(m, with_target, self.dtype), noise_key=noise_keys)
        # A last chunk of another size would be one more program to compile.
        rows = np.minimum(np.arange(m + -m % LANES), m - 1)
        padded = jax.tree.map(lambda leaf: leaf[rows], lanes)
        return np.asarray(map_lanes(_observed_run, self._seen, padded, batch_size=LANES))[:m].astype(np.float64)

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

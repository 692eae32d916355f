"""Gradient descent on records that all models share and one that each has for itself, as one differentiable scan.

Record 0 is the target, records 1 to n-1 are the known ones; `batches` names records by these numbers, so that the
order of another framework's mini-batches can be given as well as our own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drjax.core import validate
from drjax.core.linalg import squares_above
from drjax.core.types import Array, PyTree, hyperparams, traced
from drjax.nets import stacked
from drjax.nets.classifiers import Classifier
from drjax.nets.stacked import Records

OPTIMIZERS = ("sgd", "adam")
PADDING = -1
"""Entry of `batches` that names no record."""


class Mechanism(Protocol):
    """What makes training private: `drjax.defenses.dp_gd` has it. A gradient that is not finite counts as 0."""

    def factor(self, squares: Any) -> Any:
        """Squared norms of per-record gradients to what each is multiplied by."""
        ...

    @property
    def noise_scale(self) -> Any:
        """Standard deviation of the noise on every entry of the sum of gradients."""
        ...


@hyperparams
class Training:
    """How a released model is trained; the defaults are those of the paper's notebook on MNIST.

    The loss is the mean cross-entropy of a batch plus l2 / 2 times the squared norm of the weights (biases excluded).

    Attributes:
        model: The classifier.
        epochs: Passes over the records, >= 1; steps where the batch is full.
        batch_size: Records per step, or None for all of them.
        optimizer: "sgd" or "adam" (Kingma & Ba 2015; beta 0.9 and 0.999, epsilon 1e-8).
        learning_rate: Learning rate, > 0; may be swept without retracing.
        momentum: Momentum of "sgd", in [0, 1).
        nesterov: Whether the momentum is Nesterov's.
        l2: Weight of the penalty, >= 0.

    Example:
        >>> import jax
        >>> from drjax.nets.classifier_training import Training
        >>> from drjax.nets.classifiers import Classifier
        >>> training = Training(model=Classifier(hidden=(32,), activation="tanh"), epochs=20, batch_size=10)
        >>> training.batches(jax.random.key(0), 60).shape  # an order for 60 records, in 20 epochs of 6 steps
        (120, 10)
    """

    model: Classifier = Classifier()
    epochs: int = 100
    batch_size: int | None = None
    optimizer: str = "sgd"
    learning_rate: float = traced(default=0.1)
    momentum: float = 0.9
    nesterov: bool = False
    l2: float = 0.0

    def __post_init__(self) -> None:
        """Checks every field but a traced learning rate."""
        validate.integer(epochs=self.epochs)
        if self.batch_size is not None:
            validate.integer(batch_size=self.batch_size)
        validate.one_of(OPTIMIZERS, optimizer=self.optimizer)
        if isinstance(self.learning_rate, (int, float, np.number)):
            validate.positive(learning_rate=self.learning_rate)
            validate.finite(learning_rate=self.learning_rate)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        validate.non_negative(l2=self.l2)
        validate.finite(l2=self.l2)

    def batches(self, key: Array, n: int) -> jax.Array | None:
        """Rows (steps, batch_size) of the records that each step sees, all n once an epoch in a fresh order.

        A smaller last batch is filled up with `PADDING`. None for full batches.
        """
        size = self.batch_size
        if size is None or size >= n:
            return None
        per_epoch = math.ceil(n / size)

        def epoch(k: Array) -> jax.Array:
            order = jax.random.permutation(k, n).astype(jnp.int32)
            return jnp.pad(order, (0, per_epoch * size - n), constant_values=PADDING).reshape(per_epoch, size)

        return jax.vmap(epoch)(jax.random.split(key, self.epochs)).reshape(-1, size)


class Context(NamedTuple):
    """What all models share; see `drjax.nets.classifier_training.prepare`.

    Attributes:
        training: How they are trained.
        x: (d_active, n-1) for dense models, else (n-1, d).
        y: (C, n-1), one-hot.
        init: Parameters at the start (the first layer split for dense models), or None: each model has its own.
        batches: (steps, b), or None: full batches, or each model has its own.
        mechanism: Clipping and noise, or None.
    """

    training: Training
    x: Any
    y: Any
    init: PyTree
    batches: Any
    mechanism: Any


class Lanes(NamedTuple):
    """What each of B models has for itself.

    Attributes:
        x: (B, d) as `First` for dense models, else (B, d).
        y: (B, C), one-hot, or 0 throughout with a weight of 0.
        weight: (B,), 1, or 0 for a model trained without a target.
        init: Initial parameters as in `Context`, with a leading axis, or None.
        batches: (B, steps, b), or None.
        noise_key: (B,) keys, or None.
    """

    x: Any
    y: Any
    weight: Any
    init: PyTree = None
    batches: Any = None
    noise_key: Any = None


def run(context: Context, lanes: Lanes, *, checkpoint: bool = False) -> PyTree:
    """Trained parameters of B models, the first layer split for dense ones; pure and differentiable in the lanes.

    Args:
        context: Context from `drjax.nets.classifier_training.prepare`.
        lanes: What each model has for itself.
        checkpoint: Keep for the reverse pass the parameters of each step alone, and compute a step's activations anew.
    """
    if lanes.batches is None:
        return _run_stack(context, lanes, checkpoint)

    def one(lane: Lanes) -> PyTree:
        stack = jax.tree.map(lambda leaf: leaf[None], lane._replace(batches=None))
        trained = _run_stack(context._replace(batches=lane.batches), stack, checkpoint)
        return jax.tree.map(lambda leaf: leaf[0], trained)

    return jax.vmap(one)(lanes)


def _run_stack(context: Context, lanes: Lanes, checkpoint: bool) -> PyTree:
    training, b = context.training, lanes.weight.shape[0]
    n = context.y.shape[1] + 1
    start = lanes.init
    if start is None:
        start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (b, *leaf.shape)), context.init)
    steps = training.epochs if context.batches is None else context.batches.shape[0]

    full = _records(context, lanes, None, n) if context.batches is None else None
    if full is not None and training.model.is_dense:
        full = stacked.blocked(full[0]), full[1]

    def step(carry: tuple, now: tuple) -> tuple[tuple, None]:
        params, state = carry
        i, rows = now
        shared, own = _records(context, lanes, rows, n) if full is None else full
        gradient = _gradients(context, params, shared, own)
        chex.assert_trees_all_equal_shapes_and_dtypes(gradient, params)
        if context.mechanism is not None and lanes.noise_key is not None:
            size = n if rows is None else training.batch_size
            gradient = _noisy(gradient, lanes.noise_key, i, context.mechanism.noise_scale / size)
        if training.l2:
            gradient = tuple(
                g | {"w": jax.tree.map(lambda a, w: a + training.l2 * w, g["w"], p["w"])}
                for g, p in zip(gradient, params, strict=True)
            )
        return _update(training, i, params, state, gradient), None

    body = jax.checkpoint(step) if checkpoint else step
    zeros = jax.tree.map(jnp.zeros_like, start)
    carry = start, (zeros, zeros if training.optimizer == "adam" else None)
    (params, _), _ = lax.scan(body, carry, (jnp.arange(steps), context.batches))
    return params


def _records(context: Context, lanes: Lanes, rows: Array | None, n: int) -> tuple[Records, Records]:
    """The shared and own records of a step, with the weights that make their sum a mean over the batch.

    A dense model's are multiplied as one matrix, where 0 times infinity would spread. For a mechanism all entries are
    finite; of a record that was not, a square is infinite, and so is the norm of its gradient.
    """
    if context.mechanism is not None and context.training.model.is_dense:
        context = context._replace(x=_finite(context.x))
        lanes = lanes._replace(x=jax.tree.map(_finite, lanes.x))
    if rows is None:
        weight = jnp.full(n - 1, 1 / n, context.y.dtype)
        return Records(context.x, context.y, weight), Records(lanes.x, lanes.y, lanes.weight / n)
    is_record = rows != PADDING
    # A private batch is divided by its expected size, which does not depend on who was drawn.
    size: Any = context.training.batch_size if context.mechanism is not None else jnp.maximum(jnp.sum(is_record), 1)
    known = jnp.maximum(rows - 1, 0)
    x, y = jnp.asarray(context.x), jnp.asarray(context.y)  # NumPy's, where the caller's program closes over them
    x = x[:, known] if context.training.model.is_dense else x[known]
    weight = (rows > 0).astype(context.y.dtype) / size
    own_weight = lanes.weight * jnp.sum(rows == 0) / size
    return Records(x, y[:, known], weight), Records(lanes.x, lanes.y, own_weight)


def _finite(x: Any) -> jax.Array:
    return jnp.where(jnp.isfinite(x), x, jnp.finfo(x.dtype).max)


def _gradients(context: Context, params: PyTree, shared: Records, own: Records) -> PyTree:
    model, mechanism = context.training.model, context.mechanism
    factor: Any = mechanism.factor if mechanism is not None else None
    if model.is_dense:
        return stacked.gradients(model, params, shared, own, factor)

    def loss(p: PyTree, x: Array, y: Array) -> jax.Array:
        return -jnp.sum(y * jax.nn.log_softmax(model.logits(p, x[None])[0]))

    def one(p: PyTree, x: Array, y: Array, weight: Array) -> PyTree:
        records = jnp.concatenate([x[None], shared.x]), jnp.concatenate([y[None], shared.y.T])
        weights = jnp.append(weight, shared.weight)
        if factor is None:

            def total_loss(q: PyTree) -> jax.Array:
                log_p = jax.nn.log_softmax(model.logits(q, records[0]))
                return -jnp.dot(weights, jnp.sum(records[1] * log_p, axis=1))

            return jax.grad(total_loss)(p)

        def add(total: PyTree, record: tuple) -> tuple[PyTree, None]:
            *z, w = record
            g = jax.grad(loss)(p, *z)
            squares = sum(squares_above(leaf) for leaf in jax.tree.leaves(g))
            w, counts = w * factor(squares), jnp.isfinite(squares)
            return jax.tree.map(lambda t, leaf: t + jnp.where(counts, w * leaf, 0), total, g), None

        return lax.scan(add, jax.tree.map(jnp.zeros_like, p), (*records, weights))[0]

    return jax.vmap(one)(params, own.x, own.y, own.weight)


def _noisy(gradient: PyTree, keys: Array, step: Array, scale: Any) -> PyTree:
    leaves, structure = jax.tree.flatten(gradient)

    def draw(key: Array) -> list[jax.Array]:
        own = jax.random.split(jax.random.fold_in(key, step), len(leaves))
        return [jax.random.normal(k, leaf.shape[1:], leaf.dtype) for k, leaf in zip(own, leaves, strict=True)]

    noise = jax.vmap(draw)(keys)
    return jax.tree.unflatten(
        structure, [leaf + jnp.asarray(scale, leaf.dtype) * z for leaf, z in zip(leaves, noise, strict=True)]
    )


def _update(training: Training, step: Array, params: PyTree, state: tuple, gradient: PyTree) -> tuple[PyTree, tuple]:
    """One step of the optimizer. Not Optax's: the derivative of its Adam is nan where a gradient is always 0."""
    first, second = state
    dtype = jax.tree.leaves(params)[0].dtype
    rate = jnp.asarray(training.learning_rate, dtype)
    if training.optimizer == "sgd":
        first = jax.tree.map(lambda m, g: training.momentum * m + g, first, gradient)
        move = first
        if training.nesterov:
            move = jax.tree.map(lambda m, g: training.momentum * m + g, first, gradient)
        return jax.tree.map(lambda p, v: p - rate * v, params, move), (first, None)
    beta1, beta2 = 0.9, 0.999
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradient)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradient)
    t = (step + 1).astype(dtype)

    def moved(p: Any, m: Any, v: Any) -> jax.Array:
        has_moved = v > 0
        root = jnp.where(has_moved, jnp.sqrt(jnp.where(has_moved, v, 1) / (1 - beta2**t)), 0)
        return p - rate * m / (1 - beta1**t) / (root + 1e-8)

    return jax.tree.map(moved, params, first, second), (first, second)

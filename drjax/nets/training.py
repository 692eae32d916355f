"""The one training loop: mini-batches, early stopping, an ensemble of members in one program.

An epoch, its shuffling, its mini-batches and its validation are a single jitted call, mapped over the members. The
host only counts epochs, so that it can show progress and write a checkpoint between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from drjax.core import processes, validate
from drjax.core.progress import shown
from drjax.core.types import PyTree, Status
from drjax.nets import checkpoints, data_parallel, evaluation
from drjax.nets.adversary import Adversary
from drjax.nets.evaluation import MakeModel as MakeModel
from drjax.nets.losses import LOSSES, check_targets, loss_value
from drjax.nets.training_data import Data, as_inputs, checked, renewed

OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {"adam": optax.adam, "rmsprop": optax.rmsprop}
"""Optimizers with Optax's defaults; RMSProp's are a decay of 0.9 and an epsilon of 1e-8 inside the root."""
SCHEDULES = ("constant", "cosine")
CHECKPOINT_SECONDS = 10.0
"""Least time between two checkpoints: writing one must not cost more than a fast epoch does."""

CRITIC = 2**31 - 1
"""What the key of a member's critic is folded in by: no epoch's number."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a network is trained.

    Attributes:
        epochs: Most passes over the data, >= 1.
        batch_size: Records per step, >= 1.
        drop_last: Let the records that do not fill a batch sit out an epoch, others in each; a smaller last batch
            (PyTorch's default) is one more program to compile.
        optimizer: A name in `OPTIMIZERS`.
        learning_rate: Learning rate of the optimizer, > 0; the peak of a schedule.
        schedule: "constant", or "cosine": a linear rise over `warmup_epochs`, then a half cosine to 0 at the end.
        warmup_epochs: Number of epochs of warm-up, >= 0 and < epochs; for "cosine" only.
        patience: Epochs without a better validation loss after which a member stops, >= 1.
        mse_weight: Weight of the mean squared error in the loss, >= 0.
        l1_weight: Weight of the mean absolute error in the loss, >= 0; not both 0.
    """

    epochs: int = 500
    batch_size: int = 64
    drop_last: bool = False
    optimizer: str = "adam"
    learning_rate: float = 1e-5
    schedule: str = "constant"
    warmup_epochs: int = 0
    patience: int = 5
    mse_weight: float = 1.0
    l1_weight: float = 1.0

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.integer(epochs=self.epochs, batch_size=self.batch_size, patience=self.patience)
        validate.integer(minimum=0, warmup_epochs=self.warmup_epochs)
        validate.at_most(self.epochs - 1, "epochs - 1", warmup_epochs=self.warmup_epochs)
        validate.one_of(OPTIMIZERS, optimizer=self.optimizer)
        validate.positive(learning_rate=self.learning_rate)
        validate.one_of(SCHEDULES, schedule=self.schedule)
        validate.non_negative(mse_weight=self.mse_weight, l1_weight=self.l1_weight)
        validate.positive(**{"mse_weight + l1_weight": self.mse_weight + self.l1_weight})


@dataclass(frozen=True)
class History:
    """What happened in training; epochs are rows, of which a stopped member's last ones are nan.

    Attributes:
        train_loss: (epochs run, members), mean over an epoch's mini-batches, in training mode; an adversary's term
            included.
        validation_loss: (epochs run, members), in evaluation mode; what early stopping looks at.
        validation_mse: (epochs run, members), the squared part of it.
        best_epoch: (members,), 0-based; -1 where no validation loss was finite.
        status: (members,) uint32 flags: NON_FINITE if no validation loss was finite, and NOT_CONVERGED if a loss
            became nan or infinite after one was (the member keeps its best weights).
        epoch_seconds: (epochs run,), wall clock.
        compile_seconds: Wall clock of tracing and compiling; next to none if this process has done both before.
    """

    train_loss: np.ndarray
    validation_loss: np.ndarray
    validation_mse: np.ndarray
    best_epoch: np.ndarray
    status: np.ndarray
    epoch_seconds: np.ndarray
    compile_seconds: float


class _Member(NamedTuple):
    params: PyTree
    rest: PyTree
    optimizer: PyTree
    critic: PyTree
    best_params: PyTree
    best_rest: PyTree
    best_loss: Array
    best_epoch: Array
    is_active: Array
    status: Array


class _Losses(NamedTuple):
    train_loss: Any
    validation_loss: Any
    validation_mse: Any


def train(
    keys: Array,
    make_model: MakeModel,
    inputs: ArrayLike,
    targets: ArrayLike,
    config: TrainConfig,
    *,
    validation: tuple[ArrayLike, ArrayLike],
    loss: str = "errors",
    stacked: bool = False,
    adversary: Adversary | None = None,
    mesh: Mesh | None = None,
    renew: Callable[[int], tuple[ArrayLike, ArrayLike]] | None = None,
    checkpoint: Path | None = None,
    tag: str = "",
    progress: bool = False,
) -> tuple[PyTree, History]:
    """Trains one network per key and returns the weights of each one's best validation epoch.

    A member depends on its own key alone, up to the rounding of batched matrix products, and on the devices up to that
    of sums over them. Computes in float32. All data are moved to the devices once; an epoch is one call there.

    Args:
        keys: (members,) typed keys.
        make_model: A fresh network from `nnx.Rngs` with a stream "params"; called as model(inputs, dropout_key).
        inputs: (m, ...); uint8 stays that on the device, a quarter of the memory, and is converted batch by batch.
        targets: (m, d).
        config: How to train.
        validation: Inputs and targets that are not trained on.
        loss: "errors", the sum of the configuration's weighted errors, or "cross_entropy" of outputs that are
            probabilities of d classes, with targets that are probabilities too; see `losses.cross_entropy`.
        stacked: Whether every array of data has a leading axis of members; otherwise all members share the data.
        adversary: A critic for each member, which its loss in training has a term of; the validation loss has none.
        mesh: Devices that the data and each batch are split over, along all its axes; the default device if None. With
            devices of several processes (`jax.distributed`) all of them call this alike, with all the data, and all
            return the whole; a checkpoint is the first one's to write and has to be within reach of all.
        renew: Gives inputs and targets of epoch 1, 2, ..., like `inputs` and `targets`, which are those of epoch 0; the
            same for a number whenever it is asked. No other epoch's data are held. None: all epochs have the same.
        checkpoint: Written between epochs and read if it exists, after which a run ends bit-identical to one that
            was not interrupted. It outlives the call (a finished one makes a second call return at once): delete it
            when the result is safe.
        tag: Describes `make_model` in the checkpoint's fingerprint.
        progress: Show a bar of epochs on standard error.

    Returns:
        The state of `make_model`'s network (parameters and running statistics) with a leading axis of members, for
        `predict`; and the history.

    Raises:
        ValueError: data of unequal lengths or not finite, or targets of the cross-entropy that are no probabilities;
            a checkpoint of another configuration, other data or other keys, or a damaged one; what is no mesh; in every
            process, if keys, data, settings or the checkpoint are not the same in all of a mesh.
    """
    validate.one_of(LOSSES, loss=loss)
    mesh = data_parallel.flat(mesh)
    data = checked(inputs, targets, validation, stacked, len(keys))
    check_targets(loss, "targets", data.targets)
    check_targets(loss, "validation targets", data.validation_targets)
    graph = evaluation.graphdef(make_model, training=True)
    evaluation_graph = evaluation.graphdef(make_model, training=False)
    members = _start_program(evaluation.comparable(make_model), config, adversary)(keys)
    fingerprint = ""
    if checkpoint is not None:
        # Only what is not the default enters beside these, so that older checkpoints stay valid.
        further = [
            one for one, usual in ((adversary, None), (loss, "errors"), (renew and "renewed", None)) if one != usual
        ]
        fingerprint = checkpoints.fingerprint_of(config, tag, members.params, further, keys, data)
    log: list[_Losses] = []
    seconds: list[float] = []
    if checkpoint is not None and checkpoint.exists():
        members, rows = checkpoints.read(checkpoint, fingerprint, members)
        log = [_Losses(*row) for row in zip(*(rows[name] for name in _Losses._fields), strict=True)]
        seconds = rows["epoch_seconds"].tolist()
    sizes = tuple(array.shape[int(stacked)] for array in (data.targets, data.validation_targets))
    if processes.is_shared(mesh):
        settings = np.frombuffer(repr((config, tag, loss, stacked, adversary)).encode(), np.uint8)
        processes.require_same(keys=keys, data=data, settings=settings, checkpoint=np.int64(len(log)))
    keys, members = data_parallel.everywhere(mesh, (keys, members))
    placed = data_parallel.placed(mesh, data, stacked=stacked)

    compile_seconds, run_epoch = 0.0, None
    written = time.perf_counter()
    with shown("epochs", config.epochs, len(log), enabled=progress) as advance:
        for epoch in range(len(log), config.epochs):
            if not np.any(members.is_active):
                break
            if renew is not None and epoch:
                placed = data_parallel.placed(mesh, renewed(data, *renew(epoch)), stacked=stacked)
            arguments = keys, members, placed, jnp.int32(epoch)
            if run_epoch is None:
                start = time.perf_counter()
                fixed = {"config": config, "loss": loss, "adversary": adversary, "sizes": sizes}
                program = _epoch_program(mesh, stacked, graph=graph, evaluation_graph=evaluation_graph, **fixed)
                run_epoch = program.lower(*arguments).compile()
                compile_seconds = time.perf_counter() - start
            start = time.perf_counter()
            members, losses = jax.block_until_ready(run_epoch(*arguments))
            seconds.append(time.perf_counter() - start)
            log.append(_Losses(*map(np.asarray, losses)))
            advance(1, f"best loss {np.min(members.best_loss):.4f}")
            is_last = epoch + 1 == config.epochs or not np.any(members.is_active)
            is_due = is_last or time.perf_counter() - written >= CHECKPOINT_SECONDS
            if checkpoint is not None and is_due and data_parallel.is_writer(mesh):
                rows = _rows(log) | {"epoch_seconds": np.asarray(seconds)}
                checkpoints.write(checkpoint, fingerprint, members, rows)
                written = time.perf_counter()
    if checkpoint is not None and processes.is_shared(mesh):
        processes.require_same()  # none returns before the first one has written
    ended = {"best_epoch": np.asarray(members.best_epoch), "status": np.asarray(members.status)}
    history = History(**_rows(log), **ended, epoch_seconds=np.asarray(seconds), compile_seconds=compile_seconds)
    best = members.best_params, members.best_rest
    return best if mesh is None else data_parallel.here(best), history


def predict(make_model: MakeModel, state: PyTree, inputs: ArrayLike) -> jax.Array:
    """What trained networks say in evaluation mode, in chunks of bounded memory.

    Args:
        make_model: Function as given to `train`.
        state: State as `train` returned it, with a leading axis of members.
        inputs: (m, ...), the same for all members.

    Returns:
        (members, m, d) float32.
    """
    graph = evaluation.graphdef(make_model, training=False)
    return _predict(graph, state, jnp.asarray(as_inputs(inputs)))


def abstract_state(make_model: MakeModel, n_members: int) -> PyTree:
    """Shapes and dtypes of the state that `train` returns, without computing it."""

    def make(keys: Array) -> PyTree:
        return jax.vmap(lambda key: nnx.split(make_model(nnx.Rngs(params=key)), nnx.Param, ...)[1:])(keys)

    return jax.eval_shape(make, jax.random.split(jax.random.key(0), n_members))


@partial(jax.jit, static_argnums=0)
def _predict(graph: Any, state: PyTree, inputs: Array) -> jax.Array:
    return jax.vmap(lambda params, rest: evaluation.outputs(graph, params, rest, inputs))(*state)


def _rows(log: list[_Losses]) -> dict[str, np.ndarray]:
    return {name: np.stack([getattr(losses, name) for losses in log]) for name in _Losses._fields}


def _optimizer(config: TrainConfig, steps_per_epoch: int) -> optax.GradientTransformation:
    make = OPTIMIZERS[config.optimizer]
    if config.schedule == "constant":
        return make(config.learning_rate)
    rise = config.warmup_epochs * steps_per_epoch
    return make(
        optax.warmup_cosine_decay_schedule(
            init_value=0.0 if rise else config.learning_rate,
            peak_value=config.learning_rate,
            warmup_steps=rise,
            decay_steps=config.epochs * steps_per_epoch,
        )
    )


@evaluation.kept
def _start_program(make_model: MakeModel, config: TrainConfig, adversary: Adversary | None) -> Any:
    return jax.jit(jax.vmap(partial(_start, make_model=make_model, config=config, adversary=adversary)))


@evaluation.kept
def _epoch_program(mesh: Mesh | None, stacked: bool, **fixed: Any) -> Any:
    one = jax.vmap(partial(_epoch, **fixed, mesh=mesh), in_axes=(0, 0, 0 if stacked else None, None))
    where: Any = {} if mesh is None else {"out_shardings": NamedSharding(mesh, PartitionSpec())}
    return jax.jit(one, donate_argnums=1, **where)


def _start(key: Array, *, make_model: MakeModel, config: TrainConfig, adversary: Adversary | None) -> _Member:
    _, params, rest = nnx.split(make_model(nnx.Rngs(params=key)), nnx.Param, ...)
    return _Member(
        params,
        rest,
        # The schedule's length is no part of the optimizer's state.
        _optimizer(config, 1).init(params),
        critic=None if adversary is None else adversary.start(jax.random.fold_in(key, CRITIC)),
        # Copies, because the member's own buffers are donated to the next epoch.
        best_params=jax.tree.map(jnp.copy, params),
        best_rest=jax.tree.map(jnp.copy, rest),
        best_loss=jnp.float32(jnp.inf),
        best_epoch=jnp.int32(-1),
        is_active=jnp.bool_(True),
        status=jnp.uint32(Status.NON_FINITE),
    )


def _epoch(
    key: Array,
    member: _Member,
    data: Data,
    epoch: Array,
    *,
    graph: Any,
    evaluation_graph: Any,
    config: TrainConfig,
    loss: str,
    adversary: Adversary | None,
    mesh: Mesh | None,
    sizes: tuple[int, ...],
) -> tuple[_Member, _Losses]:
    """One epoch of one member; a member that has stopped comes back unchanged, with nan losses.

    Sizes are the numbers of rows to train on and to validate on; the data may have more, which are no one's.
    """
    m, n_validation = sizes
    size = min(config.batch_size, m)
    n_steps = m // size
    spare = 0 if config.drop_last else m - n_steps * size
    optimizer = _optimizer(config, n_steps + (spare > 0))
    shuffle_key, dropout_key = jax.random.split(jax.random.fold_in(key, epoch))
    order = data_parallel.order_of(mesh, shuffle_key, m)
    batches, weights = order[: n_steps * size].reshape(n_steps, size), (config.mse_weight, config.l1_weight)

    def loss_of(params: PyTree, rest: PyTree, critic: PyTree, rows: Array, step: Array) -> tuple[Array, tuple]:
        # Copied, because BatchNorm may only write to variables made inside this trace.
        model = nnx.merge(graph, params, rest, copy=True)
        inputs = data_parallel.batch_of(mesh, data.inputs, rows).astype(jnp.float32)
        predicted = model(inputs, jax.random.fold_in(dropout_key, step))
        value = loss_value(loss, predicted, data_parallel.batch_of(mesh, data.targets, rows), weights=weights)
        if adversary is not None:
            value = value + adversary.loss(critic, predicted)
        return value, (nnx.split(model, nnx.Param, ...)[2], predicted)

    def step(carry: tuple, batch: tuple[Array, Array]) -> tuple[tuple, Array]:
        params, rest, state, critic = carry
        (value, (rest, predicted)), gradient = jax.value_and_grad(loss_of, has_aux=True)(params, rest, critic, *batch)
        updates, state = optimizer.update(gradient, state, params)
        if adversary is not None:
            critic = adversary.step(critic, predicted, data_parallel.batch_of(mesh, data.targets, batch[0]))
        return (optax.apply_updates(params, updates), rest, state, critic), value

    carry = member.params, member.rest, member.optimizer, member.critic
    carry, losses = lax.scan(step, carry, (batches, jnp.arange(n_steps)))
    if spare:
        carry, value = step(carry, (order[-spare:], jnp.int32(n_steps)))
        losses = jnp.append(losses, value)
    params, rest, state, critic = carry
    train_loss = jnp.mean(losses)
    predicted = data_parallel.outputs(mesh, evaluation_graph, params, rest, data.validation_inputs, n_validation)
    targets = data.validation_targets[:n_validation]
    mse = jnp.mean((predicted - targets) ** 2)
    value = loss_value(loss, predicted, targets, weights=weights)

    is_finite = jnp.isfinite(value) & jnp.isfinite(train_loss)
    is_better = is_finite & (value < member.best_loss)
    best_epoch = jnp.where(is_better, epoch, member.best_epoch)
    if_better = partial(jnp.where, is_better)
    ended = jnp.where(best_epoch >= 0, jnp.uint32(Status.NOT_CONVERGED), jnp.uint32(Status.NON_FINITE))
    trained = _Member(
        params,
        rest,
        state,
        critic,
        best_params=jax.tree.map(if_better, params, member.best_params),
        best_rest=jax.tree.map(if_better, rest, member.best_rest),
        best_loss=if_better(value, member.best_loss),
        best_epoch=best_epoch,
        is_active=is_finite & (epoch - best_epoch < config.patience),
        status=jnp.where(is_finite, jnp.uint32(Status.OK), ended),
    )
    trained = jax.tree.map(partial(jnp.where, member.is_active), trained, member)
    losses = _Losses(train_loss, value, mse)
    return trained, jax.tree.map(lambda value: jnp.where(member.is_active, value, jnp.nan), losses)

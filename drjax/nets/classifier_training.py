"""Training released models, thousands at once: what is asked for is checked here and run in `classifier_descent`.

Example:
    >>> import drjax, jax, numpy as np
    >>> from drjax.nets import classifier_training as c
    >>> from drjax.nets.classifiers import Classifier
    >>> data = drjax.load("digits")
    >>> model = Classifier(hidden=(4,))
    >>> init = c.check_params(model, model.init(jax.random.key(0), 64), 64)
    >>> classes = c.check_labels(data.y[40:60], 20, model.n_classes, "targets_y")
    >>> split, context = c.prepare(c.Training(model=model, epochs=5), data.x[:40], data.y[:40], init=init)
    >>> own = c.split_records(model, split, data.x[40:60])
    >>> lanes = c.Lanes(x=own, y=np.eye(10, dtype=np.float32)[classes], weight=np.ones(20, np.float32))
    >>> models = c.join_params(model, split, c.run(context, lanes))  # differentiable in the records
    >>> models[0]["w"].shape
    (20, 4, 64)
    >>> c.join_params(model, split, c.split_params(model, split, init))[0]["w"].shape
    (4, 64)
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from drjax.core import validate
from drjax.core.batching import map_lanes
from drjax.core.types import Array, PyTree
from drjax.nets.classifier_descent import PADDING, Context, Lanes, Mechanism, Training, run
from drjax.nets.classifiers import Classifier
from drjax.nets.stacked import First, Split

__all__ = [
    "PADDING",
    "Context",
    "Lanes",
    "Mechanism",
    "Training",
    "check_labels",
    "check_params",
    "join_params",
    "prepare",
    "run",
    "split_params",
    "split_records",
    "train_many",
]


def train_many(
    training: Training,
    known_x: Array,
    known_y: Array,
    targets_x: Array,
    targets_y: Array,
    *,
    init: PyTree,
    batches: Array | None = None,
    own_init: bool = False,
    own_batches: bool = False,
    mechanism: Mechanism | None = None,
    noise_keys: Array | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> PyTree:
    """Trains m models that share all records but the first.

    Costs 4 n d w FLOP a model and step, w the width of the first layer, in GEMMs shared by all models.

    Args:
        training: How.
        known_x: (n-1, d).
        known_y: (n-1,) classes.
        targets_x: (m, d), record 0 of each model.
        targets_y: (m,) classes.
        init: Parameters at the start as from `Classifier.init`; with a leading axis m if `own_init`.
        batches: (steps, b) records of each step, see the module and `Training.batches`; (m, steps, b) if
            `own_batches`. Needed where `training.batch_size` is less than n. A record named twice counts twice,
            which a mechanism does not allow.
        own_init: Whether each model starts from parameters of its own.
        own_batches: Whether each model has an order of its own. Its first layer then shares no GEMM with others.
        mechanism: Mechanism of per-record clipping and noise, from `drjax.defenses.dp_gd`; a record whose gradient is
            not finite counts as 0 then.
        noise_keys: (m,) keys for the noise of `mechanism`; None for no noise.
        batch_size: Models per chunk; see `drjax.core.batching`.
        progress: Show a bar.

    Returns:
        Parameters with a leading axis m, on the host.

    Raises:
        ValueError: shapes that do not match, records not finite without a mechanism, classes out of range, batches
            missing, noise keys without a mechanism, or for a mechanism batches that name a record twice or come without
            `training.batch_size`, by which it divides.

    Example:
        >>> import drjax, jax
        >>> from drjax.nets.classifier_training import Training, train_many
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> x, y, training = data.x, data.y, Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> models = train_many(training, x[:40], y[:40], x[40:60], y[40:60], init=init)
        >>> models[0]["w"].shape  # of 20 models that differ in one record
        (20, 4, 64)
    """
    targets = validate.matrix(targets_x, "targets_x", must_be_finite=mechanism is None)
    _check_noise_keys(mechanism, noise_keys, len(targets))
    if mechanism is not None and batches is not None:
        _check_private_batches(training, np.asarray(batches))
    split, context = prepare(
        training,
        known_x,
        known_y,
        init=None if own_init else init,
        batches=None if own_batches else batches,
        mechanism=mechanism,
        has_own=(own_init, own_batches),
    )
    if targets.shape[1] != len(split.order):
        raise ValueError(f"targets_x must have {len(split.order)} columns as known_x, got {targets.shape[1]}")
    m = len(targets)
    classes = check_labels(targets_y, m, training.model.n_classes, "targets_y")
    own = Lanes(
        x=split_records(training.model, split, _cast(targets, context.y.dtype)),
        y=np.eye(training.model.n_classes, dtype=context.y.dtype)[classes],
        weight=np.ones(m, context.y.dtype),
        init=_start(training.model, split, init, context.y.dtype, m) if own_init else None,
        batches=_check_batches(training, batches, len(known_x) + 1, (m,)) if own_batches else None,
        noise_key=noise_keys,
    )
    params = map_lanes(run, context, own, batch_size=batch_size, progress=progress, description="models")
    return jax.tree.map(np.asarray, join_params(training.model, split, params))


def prepare(
    training: Training,
    known_x: Array,
    known_y: Array,
    *,
    init: PyTree,
    batches: Array | None = None,
    mechanism: Mechanism | None = None,
    has_own: tuple[bool, bool] = (False, False),
) -> tuple[Split, Context]:
    """What all models share, checked and laid out for `run`; arguments and errors as for `train_many`."""
    x = validate.matrix(known_x, "known_x", must_be_finite=mechanism is None)
    d, model = x.shape[1], training.model
    model.shapes(d)
    classes = check_labels(known_y, len(x), model.n_classes, "known_y")
    dtype = jax.dtypes.canonicalize_dtype(np.result_type(x.dtype, np.float32))
    x = _cast(x, dtype)
    split = Split.of(x)
    y = np.eye(model.n_classes, dtype=dtype)[:, classes]
    start = None if has_own[0] else _start(model, split, init, dtype)
    order = None if has_own[1] else _check_batches(training, batches, len(x) + 1, ())
    laid_out = np.ascontiguousarray(split.split(x).active.T) if model.is_dense else x
    return split, Context(training, laid_out, y, start, order, mechanism)


def _cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    # Numbers of float64 beyond the largest of float32 become infinite, which is said of nobody.
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def _start(model: Classifier, split: Split, init: PyTree, dtype: Any, m: int | None = None) -> PyTree:
    params = split_params(model, split, check_params(model, init, len(split.order), m))
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def split_params(model: Classifier, split: Split, params: PyTree) -> PyTree:
    """Parameters as `run` carries them: of a dense model, the first weight in two parts."""
    if not model.is_dense:
        return params
    return ({"w": split.split(params[0]["w"]), "b": params[0]["b"]}, *params[1:])


def join_params(model: Classifier, split: Split, params: PyTree) -> PyTree:
    """Undoes `split_params`."""
    if not model.is_dense:
        return params
    return ({"w": split.join(First(*params[0]["w"])), "b": params[0]["b"]}, *params[1:])


def split_records(model: Classifier, split: Split, x: Array) -> Any:
    """Own records (B, d) as `run` takes them."""
    return split.split(x) if model.is_dense else x


def check_labels(labels: Array, n: int, n_classes: int, name: str) -> np.ndarray:
    """(n,) classes as int32.

    Raises:
        ValueError: not n whole numbers from 0 to n_classes - 1.
    """
    y = np.asarray(labels)
    if y.shape != (n,) or y.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be {n} classes, one per record, got shape {y.shape} of {y.dtype}")
    bad = ~((y == np.round(y)) & (y >= 0) & (y < n_classes))
    if bad.any():
        raise ValueError(f"{name} must be integers from 0 to {n_classes - 1}, got {y[bad][0]}")
    return y.astype(np.int32)


def check_params(model: Classifier, params: PyTree, d: int, m: int | None = None) -> PyTree:
    """Parameters of the model for records of d entries, on the host; with a leading axis if m is given.

    Raises:
        ValueError: other layers or shapes than the model's, or values not finite.
    """
    shapes = model.shapes(d)
    lead = () if m is None else (m,)
    if not isinstance(params, (tuple, list)) or len(params) != len(shapes):
        got = len(params) if isinstance(params, (tuple, list)) else type(params).__name__
        raise ValueError(f"params must have {len(shapes)} layers for this architecture, got {got}")
    for i, (layer, shape) in enumerate(zip(params, shapes, strict=True)):
        if not isinstance(layer, dict) or layer.keys() != shape.keys():
            raise ValueError(f"layer {i} of params must have the arrays w and b, got {layer!r:.80}")
        for name, expected in shape.items():
            if np.shape(layer[name]) != (*lead, *expected):
                raise ValueError(
                    f"{name} of layer {i} must have shape {(*lead, *expected)}, got {np.shape(layer[name])}"
                )
            validate.finite(**{f"{name} of layer {i}": layer[name]})
    return tuple({name: np.asarray(layer[name]) for name in ("w", "b")} for layer in params)


def _check_noise_keys(mechanism: Mechanism | None, keys: Any, m: int) -> None:
    if keys is None:
        return
    if mechanism is None:
        raise ValueError("noise_keys must be None without a mechanism")
    is_key = isinstance(keys, jax.Array) and jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if not is_key or keys.shape != (m,):
        raise ValueError(f"noise_keys must be {m} keys as from jax.random.split, one per model, got {keys!r:.80}")


def _check_private_batches(training: Training, rows: np.ndarray) -> None:
    if training.batch_size is None:
        raise ValueError("training.batch_size must be the expected size of the batches of a mechanism, got None")
    order = np.sort(rows, axis=-1)
    if ((order[..., 1:] == order[..., :-1]) & (order[..., 1:] != PADDING)).any():
        raise ValueError("batches of a mechanism must name no record twice in a step: its gradient would count twice")


def _check_batches(training: Training, batches: Array | None, n: int, lead: tuple[int, ...]) -> np.ndarray | None:
    if batches is None:
        if training.batch_size is not None and training.batch_size < n:
            raise ValueError(f"batches must be given where batch_size {training.batch_size} is less than n = {n}")
        return None
    rows = np.asarray(batches)
    if rows.ndim != len(lead) + 2 or rows.shape[: len(lead)] != lead or rows.dtype.kind not in "iu":
        raise ValueError(f"batches must be integers of shape {(*lead, 'steps', 'b')}, got {rows.shape} of {rows.dtype}")
    if rows.size == 0 or rows.min() < PADDING or rows.max() >= n:
        raise ValueError(f"batches must name records from 0 to {n - 1}, or {PADDING} for none, in at least one step")
    return rows.astype(np.int32)

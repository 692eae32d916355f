"""Attacks that learn from as many shadows as there is time for, none of which is kept.

Regressions learn from sums: a range of shadows is made, added up (`RegressionSums`) and forgotten. Ranges are the tasks
of an executor, and their sums are merged in order: the result does not depend on who made them but for rounding.
Networks learn from an epoch's shadows, which are made for it.

    model = passing_shadows.fit_ridge(key, PCA(n_components=2), known, records, executor="ray")
    found = model.reconstruct(coords)

`records` may be mapped from a file (`np.load(path, mmap_mode="r")`) or be anything with a length whose slices are
arrays (m, d).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from drjax.attacks.prepared import Prepared
from drjax.attacks.reconstruction import invariant, neural
from drjax.attacks.reconstruction.baselines import RidgeModel, ridge_of_sums
from drjax.attacks.reconstruction.neural import NeuralConfig, NeuralModel
from drjax.attacks.shadow import chunk_on_any_machine, iter_shadow_embeddings
from drjax.core import executors, validate
from drjax.core.executors import Executor
from drjax.core.regression_sums import RegressionSums
from drjax.core.types import Array, DRMethod, is_usable
from drjax.nets.training import History

RANGE = 10_000
"""Shadows of a task."""

CHUNK = 1024
"""Most of them that are made, and turned into inputs, at a time."""

AHEAD = 32
"""Ranges whose records are with workers at once, where nobody says how many workers there are."""

Inputs = Callable[[np.ndarray], np.ndarray]
"""Gives the inputs (m, p) of a regression for releases (m, n, k); a function of a module's top level, or an object that
can be pickled."""


class _Key(NamedTuple):
    """A key as a task carries it."""

    data: np.ndarray
    impl: Any

    @classmethod
    def of(cls, key: Array) -> _Key:
        return cls(np.asarray(jax.random.key_data(key)), jax.random.key_impl(key))


def sums_of_shadows(
    key: Array,
    method: DRMethod,
    known: Array,
    records: Any,
    inputs: Inputs,
    *,
    dtype: str = "float32",
    executor: str | Executor | None = None,
    workers: int | None = None,
) -> RegressionSums:
    """Sums over shadows [record; known] of every record; memory for some ranges' sums, whatever their number.

    Args:
        key: A key from `jax.random.key`; each range draws from one of its own.
        method: DR method.
        known: (n-1, d).
        records: (m, d), the adversary's own; see the module.
        inputs: What the regression is given of a release. Shadows that are not usable have no part.
        dtype: "float32" or "float64", of the releases.
        executor: Who makes the ranges, see `drjax.core.executors.run`; this process if None.
        workers: Workers to ask for.

    Raises:
        ValueError: not a key, records of another width, an unknown executor, or no usable shadow at all.
    """
    validate.prng_key(key)
    validate.one_of(("float32", "float64"), dtype=dtype)
    array = validate.matrix(known, "known")
    if len(records) == 0 or np.shape(records[:1])[1:] != array.shape[1:]:
        raise ValueError(f"records must have shape (m, {array.shape[1]}), m >= 1, got {np.shape(records[:1])[1:]}")
    told, total = _Key.of(key), None
    starts = range(0, len(records), RANGE)
    if executor is None:
        kept = Prepared()
        found = (_sums(told, method, array, records[at : at + RANGE], at, inputs, dtype, kept) for at in starts)
    else:
        executors.check(executor)
        tasks = _Tasks(
            starts, lambda at: (told, method, array, np.asarray(records[at : at + RANGE]), at, inputs, dtype)
        )
        ahead = AHEAD if workers is None else 4 * workers
        found = _in_order(executors.run(_sums, tasks, executor=executor, workers=workers, ahead=ahead))
    for one in found:
        if one is not None:
            total = one if total is None else total.merged(one)
    if total is None:
        raise ValueError(f"records must have usable shadows, got none among {len(records):,}")
    return total


def fit_ridge(
    key: Array,
    method: DRMethod,
    known: Array,
    records: Any,
    *,
    dtype: str = "float32",
    executor: str | Executor | None = None,
    workers: int | None = None,
) -> RidgeModel:
    """`baselines.fit_ridge` on the shadows of all records, of which none is kept; arguments as `sums_of_shadows`.

    Worth it where there are more shadows than coordinates n k, whose products are held: 8 (n k)^2 bytes.
    """
    shape = len(known) + 1, method.n_components
    options = {"dtype": dtype, "executor": executor, "workers": workers}
    sums = sums_of_shadows(key, method, known, records, _flat, **options)
    return ridge_of_sums(sums, shape, eps=float(np.finfo(dtype).eps))


def fit_kernel(
    key: Array,
    method: DRMethod,
    known: Array,
    records: Any,
    *,
    n_landmarks: int = invariant.N_LANDMARKS,
    features: Sequence[str] = tuple(invariant.FEATURES),
    dtype: str = "float32",
    executor: str | Executor | None = None,
    workers: int | None = None,
) -> invariant.KernelModel:
    """`invariant.fit` on the shadows of all records, of which the first `n_landmarks` are kept; the other arguments as
    there and as `sums_of_shadows`."""
    validate.integer(minimum=2, n_landmarks=n_landmarks)
    validate.at_most(RANGE, "the shadows of a task", n_landmarks=n_landmarks)
    validate.prng_key(key)
    told, array = _Key.of(key), validate.matrix(known, "known")
    first = np.asarray(records[:n_landmarks])
    coords, targets = _held(told, method, array, first, 0, dtype, Prepared())
    inputs, losses = invariant.landmarks_of(coords, targets, features=features)
    options = {"dtype": dtype, "executor": executor, "workers": workers}
    sums = sums_of_shadows(key, method, known, records, inputs, **options)
    return invariant.of_sums(sums, inputs, targets, losses)


def fit_network(
    key: Array,
    method: DRMethod,
    known: Array,
    records: Any,
    config: NeuralConfig,
    *,
    validation: Array,
    epoch_size: int,
    dtype: str = "float32",
    mesh: Mesh | None = None,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> tuple[NeuralModel, History]:
    """`neural.fit` on shadows made for each epoch, of which none is kept beyond it.

    An epoch is on the next `epoch_size` records, from the first on again after the last; a record that comes again has
    a release of other draws, where the method draws. Where a shadow is not usable, another stands for it.

    Args:
        key: A key from `jax.random.key`, of shadows and training.
        method, known, records, dtype: As for `sums_of_shadows`.
        config: As for `neural.fit`, as are mesh, checkpoint and progress.
        validation: (v, d), records whose shadows early stopping looks at.
        epoch_size: Shadows of an epoch, at most as many as there are records.

    Raises:
        ValueError: as `neural.fit`, or an epoch without a usable shadow.
    """
    validate.integer(epoch_size=epoch_size)
    validate.at_most(len(records), "the number of records", epoch_size=epoch_size)
    validate.prng_key(key)
    shadow_key, validation_key, training_key = jax.random.split(key, 3)
    array, kept = validate.matrix(known, "known"), Prepared()

    def made(draw: Array, own: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        coords, theirs = _held(_Key.of(draw), method, array, own, start, dtype, kept)
        again = np.arange(len(own)) % len(coords)
        return coords[again], theirs[again]

    def of_epoch(epoch: int) -> tuple[np.ndarray, np.ndarray]:
        start = epoch * epoch_size
        at = start % len(records)
        own = np.asarray(records[at : at + epoch_size])
        if len(own) < epoch_size:
            own = np.concatenate([own, np.asarray(records[: epoch_size - len(own)])])
        return made(shadow_key, own, start)

    options = {"mesh": mesh, "checkpoint": checkpoint, "progress": progress, "renew": of_epoch}
    stopping = made(validation_key, validate.matrix(validation, "validation", columns=array.shape[1]), 0)
    return neural.fit(training_key, *of_epoch(0), config, validation=stopping, **options)


class _Tasks(Sequence):
    """Tasks whose records are read when they are asked for."""

    def __init__(self, starts: range, make: Callable[[int], tuple]) -> None:
        self._starts, self._make = starts, make

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, at: Any) -> Any:
        return self._make(self._starts[at])


def _in_order(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Results by number, as soon as those before are there."""
    waiting, wanted = {}, 0
    for number, one in found:
        waiting[number] = one
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted += 1


def _sums(
    told: _Key,
    method: DRMethod,
    known: np.ndarray,
    records: np.ndarray,
    start: int,
    inputs: Inputs,
    dtype: str,
    kept: Prepared | None = None,
) -> RegressionSums | None:
    """Sums over one range; None where no shadow is usable."""
    total = None
    for coords, own in _shadows(told, method, known, records, start, dtype, kept or Prepared()):
        one = RegressionSums.of(inputs(coords), own)
        total = one if total is None else total.merged(one)
    return total


def _shadows(
    told: _Key,
    method: DRMethod,
    known: np.ndarray,
    records: np.ndarray,
    start: int,
    dtype: str,
    kept: Prepared,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Usable releases (m, n, k) of a range that begins at `start`, and their records (m, d), in chunks."""
    precise = functools.partial(jax.enable_x64, dtype == "float64")
    with precise():
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(told.data), impl=told.impl), start)
        shape = len(known) + 1, known.shape[1]
        size = chunk_on_any_machine(method, *shape, CHUNK, itemsize=np.dtype(dtype).itemsize)
        options = {"batch_size": size, "dtype": np.dtype(dtype), "kept": kept}
        chunks = iter_shadow_embeddings(key, method, known, records, **options)
    while True:
        # Around no yield, which would leave it to whoever takes the chunk.
        with precise():
            chunk = next(chunks, None)
        if chunk is None:
            return
        at, coords = chunk[0], np.asarray(chunk[1].coords)
        usable = is_usable(chunk[1].status) & np.isfinite(coords).all(axis=(1, 2))
        if usable.any():
            yield coords[usable], np.asarray(records[at : at + len(coords)])[usable]


def _held(
    told: _Key, method: DRMethod, known: np.ndarray, records: np.ndarray, *further: Any
) -> tuple[np.ndarray, ...]:
    """All chunks of `_shadows` together.

    Raises:
        ValueError: no shadow is usable.
    """
    parts = list(_shadows(told, method, known, records, *further))
    if not parts:
        raise ValueError(f"records must have usable shadows, got none among {len(records):,}")
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _flat(coords: np.ndarray) -> np.ndarray:
    return coords.reshape(len(coords), -1)

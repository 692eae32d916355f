"""Regressions on as many shadows as there is time for: each range of them is made, added up and forgotten.

What is left of a range is a `RegressionSums`. Ranges are the tasks of an executor, and their sums are merged in order:
the result does not depend on who made them but for rounding.

    model = shadow_sums.fit_ridge(key, PCA(n_components=2), known, records, executor="ray")
    found = model.reconstruct(coords)

`records` may be mapped from a file (`np.load(path, mmap_mode="r")`) or be anything with a length whose slices are
arrays (m, d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.prepared import Prepared
from drjax.attacks.reconstruction import invariant
from drjax.attacks.reconstruction.baselines import RidgeModel, ridge_of_sums
from drjax.attacks.shadow import chunk_on_any_machine, iter_shadow_embeddings
from drjax.core import executors, validate
from drjax.core.executors import Executor
from drjax.core.regression_sums import RegressionSums
from drjax.core.types import Array, DRMethod, is_usable

RANGE = 10_000
"""Shadows of a task."""

CHUNK = 1024
"""Most of them that are made, and turned into inputs, at a time."""

AHEAD = 32
"""Ranges whose records are with workers at once, where nobody says how many workers there are."""

Inputs = Callable[[np.ndarray], np.ndarray]
"""Gives the inputs (m, p) of a regression for releases (m, n, k); a function of a module's top level, or an object that
can be pickled."""


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
    data, total = np.asarray(jax.random.key_data(key)), None
    starts = range(0, len(records), RANGE)
    if executor is None:
        kept = Prepared()
        found = (_sums(data, method, array, records[at : at + RANGE], at, inputs, dtype, kept) for at in starts)
    else:
        executors.check(executor)
        tasks = _Tasks(
            starts, lambda at: (data, method, array, np.asarray(records[at : at + RANGE]), at, inputs, dtype)
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
    validate.prng_key(key)
    data, array = np.asarray(jax.random.key_data(key)), validate.matrix(known, "known")
    first = np.asarray(records[: min(n_landmarks, RANGE)])
    made = [(coords, own) for coords, own in _shadows(data, method, array, first, 0, dtype, Prepared())]
    coords, targets = (np.concatenate(parts) for parts in zip(*made, strict=True))
    inputs, losses = invariant.landmarks_of(coords, targets, features=features)
    options = {"dtype": dtype, "executor": executor, "workers": workers}
    sums = sums_of_shadows(key, method, known, records, inputs, **options)
    return invariant.of_sums(sums, inputs, targets, losses)


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
    key_data: np.ndarray,
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
    for coords, own in _shadows(key_data, method, known, records, start, dtype, kept or Prepared()):
        one = RegressionSums.of(inputs(coords), own)
        total = one if total is None else total.merged(one)
    return total


def _shadows(
    key_data: np.ndarray,
    method: DRMethod,
    known: np.ndarray,
    records: np.ndarray,
    start: int,
    dtype: str,
    kept: Prepared,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Usable releases (m, n, k) of a range that begins at `start`, and their records (m, d), in chunks."""
    with jax.enable_x64(dtype == "float64"):
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key_data)), start)
        shape = len(known) + 1, known.shape[1]
        size = chunk_on_any_machine(method, *shape, CHUNK, itemsize=np.dtype(dtype).itemsize)
        options = {"batch_size": size, "dtype": np.dtype(dtype), "kept": kept}
        for at, found in iter_shadow_embeddings(key, method, known, records, **options):
            coords = np.asarray(found.coords)
            usable = is_usable(found.status) & np.isfinite(coords).all(axis=(1, 2))
            if usable.any():
                yield coords[usable], np.asarray(records[at : at + len(coords)])[usable]


def _flat(coords: np.ndarray) -> np.ndarray:
    return coords.reshape(len(coords), -1)

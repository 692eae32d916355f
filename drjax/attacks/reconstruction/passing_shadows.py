"""Attacks that learn from as many shadows as there is time for, none of which is kept; see `drjax.attacks.passing`.

    model = passing_shadows.fit_ridge(key, PCA(n_components=2), known, records, executor="ray")
    found = model.reconstruct(coords)

`records` may be mapped from a file (`np.load(path, mmap_mode="r")`) or be anything with a length whose slices are
arrays (m, d).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from drjax.attacks import passing
from drjax.attacks.passing import PassingShadows
from drjax.attacks.reconstruction import invariant, neural
from drjax.attacks.reconstruction.baselines import RidgeModel, flat, ridge_of_sums
from drjax.attacks.reconstruction.neural import NeuralConfig, NeuralModel
from drjax.core import validate
from drjax.core.executors import Executor
from drjax.core.types import Array, DRMethod
from drjax.nets.training import History


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
    """`baselines.fit_ridge` on the shadows of all records, of which none is kept.

    Worth it where there are more shadows than coordinates n k, whose products are held: 8 (n k)^2 bytes.

    Args:
        key: A key from `jax.random.key`.
        method, known, records, dtype: As of `PassingShadows`.
        executor, workers: As of its `sums`.

    Raises:
        ValueError: as there.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import passing_shadows
        >>> x = drjax.load("digits").x
        >>> model = passing_shadows.fit_ridge(jax.random.key(0), drjax.PCA(), x[:19], x[100:400])
        >>> releases = drjax.shadow_embeddings(jax.random.key(1), drjax.PCA(), x[:19], x[19:29]).coords
        >>> found = model.reconstruct(releases).x
        >>> bool(((found - x[19:29]) ** 2).mean() < ((x[100:400].mean(axis=0) - x[19:29]) ** 2).mean())
        True
    """
    shadows = PassingShadows(key=key, method=method, known=np.asarray(known), records=records, dtype=dtype)
    sums = shadows.sums(flat, executor=executor, workers=workers)
    return ridge_of_sums(sums, (len(shadows.known) + 1, method.n_components), eps=float(np.finfo(dtype).eps))


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
    there and of `fit_ridge`.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import passing_shadows
        >>> x = drjax.load("digits").x
        >>> model = passing_shadows.fit_kernel(jax.random.key(0), drjax.PCA(), x[:19], x[100:400])
        >>> releases = drjax.shadow_embeddings(jax.random.key(1), drjax.PCA(), x[:19], x[19:29]).coords
        >>> model.reconstruct(releases).x.shape
        (10, 64)
    """
    validate.integer(minimum=2, n_landmarks=n_landmarks)
    validate.at_most(passing.RANGE, "the shadows of a task", n_landmarks=n_landmarks)
    shadows = PassingShadows(key=key, method=method, known=np.asarray(known), records=records, dtype=dtype)
    coords, targets = shadows.held(np.asarray(records[:n_landmarks]))
    inputs = invariant.landmarks_of(coords, targets, features=features)
    sums = shadows.sums(inputs, executor=executor, workers=workers)
    return invariant.of_sums(sums, inputs, targets)


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
    """`neural.fit` on shadows made for each epoch, of which none is kept beyond it; see `PassingShadows.epoch`.

    Args:
        key: A key from `jax.random.key`, of shadows and training.
        method, known, records, dtype: As of `PassingShadows`.
        config: As for `neural.fit`, as are mesh, checkpoint and progress.
        validation: (v, d), records whose shadows early stopping looks at.
        epoch_size: Shadows of an epoch, at most as many as there are records.

    Raises:
        ValueError: as `neural.fit`, or an epoch without a usable shadow.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import neural, passing_shadows
        >>> x = drjax.load("digits").x
        >>> config = neural.NeuralConfig(epochs=2, architecture="bch22", learning_rate=1e-3)
        >>> model, _ = passing_shadows.fit_network(
        ...     jax.random.key(0), drjax.PCA(), x[:19], x[200:400], config, validation=x[100:120], epoch_size=80
        ... )
        >>> releases = drjax.shadow_embeddings(jax.random.key(1), drjax.PCA(), x[:19], x[19:39]).coords
        >>> neural.reconstruct(model, releases).x.shape
        (20, 64)
    """
    validate.integer(epoch_size=epoch_size)
    validate.at_most(len(records), "the number of records", epoch_size=epoch_size)
    validate.prng_key(key)
    shadow_key, validation_key, training_key = jax.random.split(key, 3)
    shared: dict[str, Any] = {"method": method, "known": np.asarray(known), "dtype": dtype}
    shadows = PassingShadows(key=shadow_key, records=records, **shared)
    others = validate.matrix(validation, "validation", columns=shadows.known.shape[1])
    stopping = PassingShadows(key=validation_key, records=others, **shared).epoch(0, len(others))
    options: dict[str, Any] = {"mesh": mesh, "checkpoint": checkpoint, "progress": progress}
    options |= {"renew": lambda epoch: shadows.epoch(epoch, epoch_size)}
    return neural.fit(training_key, *shadows.epoch(0, epoch_size), config, validation=stopping, **options)

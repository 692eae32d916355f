"""Maps of many groups of records: what a publisher plots, and what the adversary makes to train on.

t-SNE by default, which the paper attacks; any method of `drjax.dr.METHODS` will do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.property.defences import Defence
from drjax.attacks.property.groups import Groups
from drjax.core import batching, host, validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, DRMethod, Embedding, PyTree
from drjax.dr import TSNE
from drjax.dr.tsne.method import TSNEPool

DEFAULT = TSNE()
"""What the paper attacks; its text gives no hyperparameters, these are scikit-learn's."""

LANES_PER_CORE = 8
"""Fewest maps in a chunk for each core of a CPU: cores wait for the last map of a chunk."""


class Maps(NamedTuple):
    """Maps of g groups.

    Attributes:
        coords: (g, n, k), in the units of the method, defended.
        status: (g,) uint32 `core.types.Status` flags; t-SNE of 1,000 records nearly always meets its cap of iterations.
        objective: (g,), what the method minimised, before a defence of the coordinates; nan where it has none.
        n_iter: (g,) int32.
    """

    coords: np.ndarray
    status: np.ndarray
    objective: np.ndarray
    n_iter: np.ndarray


def tsne_maps(
    key: Array,
    features: Array,
    groups: Groups | Array,
    method: DRMethod = DEFAULT,
    *,
    defence: Defence | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Maps:
    """Maps every group of records; on a CPU t-SNE runs a group at a time on every core.

    Args:
        key: What map i draws (noise of a defence, random starts) depends on the key and i alone.
        features: (N, d), finite; what an extractor makes of all records.
        groups: Groups of records from `sample_groups`, or their rows (g, n).
        method: What is published; a DR method.
        defence: Applied to the features before the map and to its coordinates.
        batch_size: Maps per chunk; from the memory of the device if None. t-SNE's maps do not depend on it; those of
            other methods do by the rounding of batched products.
        progress: Show a bar with rate and time left.

    Returns:
        Maps of host arrays. Count statuses with `core.types.count_status`.

    Raises:
        ValueError: not a key, features not finite, rows that are no records, or hyperparameters out of range for n.
    """
    validate.prng_key(key)
    x = validate.matrix(features, "features")
    rows = checked_rows(groups.rows if isinstance(groups, Groups) else groups, len(x))
    x = x.astype(compute_dtype(x), copy=False)
    is_noised = defence is not None and not defence.is_recordwise
    if defence is not None and not is_noised:
        x = np.asarray(jax.jit(type(defence).on_features)(defence, key, x))
    # Distances of the pool are of use only if the features are those of the pool.
    pool = method.pool(x) if isinstance(method, TSNE) and not is_noised else TSNEPool(jnp.asarray(x), None)
    context = method, defence, key, pool
    lanes = np.arange(len(rows), dtype=np.uint32), rows
    if batch_size is None:
        batch_size = batching.choose_batch_size(_map_chunk, context, lanes)
        if jax.default_backend() == "cpu":
            batch_size = max(batch_size, LANES_PER_CORE * host.n_cores())
    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "description": "maps"}
    found = batching.map_lanes(_map_chunk, context, lanes, **options)
    return Maps(found.coords, found.status, found.objective, found.n_iter)


def _map_chunk(context: PyTree, lanes: PyTree) -> Embedding:
    method, defence, key, pool = context
    indices, rows = lanes
    own = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), 3))(indices)
    if defence is not None and not defence.is_recordwise:
        found = _fit_batch(method, own[:, 1], jax.vmap(defence.on_features)(own[:, 0], pool.x[rows]))
    elif isinstance(method, TSNE):
        found = method.fit_subsets(own[:, 1], pool, rows)
    else:
        found = _fit_batch(method, own[:, 1], pool.x[rows])
    if defence is None:
        return found._replace(info=None)
    return found._replace(coords=jax.vmap(defence.on_coords)(own[:, 2], found.coords), info=None)


def _fit_batch(method: DRMethod, keys: Array, x: Array) -> Embedding:
    return method.fit_batch(keys, x) if isinstance(method, TSNE) else jax.vmap(method.fit_transform)(keys, x)


def checked_rows(rows: Any, n_records: int) -> np.ndarray:
    """(g, n) int32 rows of groups.

    Raises:
        ValueError: not integers of that rank, or no records.
    """
    array = np.asarray(rows)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(f"groups must be integer rows (groups, records), got shape {array.shape} of {array.dtype}")
    if array.min() < 0 or array.max() >= n_records:
        raise ValueError(f"groups must name records from 0 to {n_records - 1}, got {array.min()} to {array.max()}")
    return array.astype(np.int32, copy=False)

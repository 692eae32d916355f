"""umap-learn itself on every lane of a batch, in a pool of processes: what drjax's own UMAP is compared with."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from drjax.core import host
from drjax.core.types import Array

INSTALL = 'pip install "drjax[umap]"'

OPTIONS = (
    "n_neighbors",
    "min_dist",
    "spread",
    "n_epochs",
    "learning_rate",
    "negative_sample_rate",
    "repulsion_strength",
    "init",
    "set_op_mix_ratio",
    "local_connectivity",
    "metric",
)
"""Hyperparameters that have the same name there, beside n_components."""


def require() -> None:
    """Raises an ImportError that says what to install if umap-learn is not there."""
    if importlib.util.find_spec("umap") is None:
        raise ImportError(f"backend='umap-learn' needs umap-learn, which is not installed: {INSTALL}")


def fit_lanes(options: tuple[tuple[str, Any], ...], x: Array, seeds: Array) -> tuple[np.ndarray, np.ndarray]:
    """The callback: umap-learn's embedding of every lane.

    The pool starts on the first call, by spawning, which takes some seconds; a script must therefore guard its own
    start with `if __name__ == "__main__"`.

    Args:
        options: Keyword arguments of `umap.UMAP`, as pairs.
        x: (..., n, d), with 1 in place of leading axes of `seeds` that it lacks.
        seeds: (...) uint32, each the `random_state` of its lane.

    Returns:
        coords (..., n, k) in the dtype of x, nan for a lane that is not finite; components of the graph (...) int32.
    """
    points, numbers = np.asarray(x), np.asarray(seeds)
    lead = np.broadcast_shapes(points.shape[:-2], numbers.shape)
    shape = points.shape[-2:]
    flat = np.broadcast_to(points, (*lead, *shape))
    seeds = np.broadcast_to(numbers, lead)
    lanes = [(flat[at], int(seeds[at])) for at in np.ndindex(lead)]
    work = functools.partial(_fit, dict(options))
    try:
        found = list(_pool().map(work, lanes))
    except BrokenProcessPool:
        # Somebody has killed a process, now or since the last call, and no other will do: once more with new ones.
        _pool.cache_clear()
        found = list(_pool().map(work, lanes))
    coords = np.stack([coords for coords, _ in found]).reshape(*lead, shape[0], -1)
    n_parts = np.array([parts for _, parts in found], np.int32).reshape(lead)
    return coords.astype(points.dtype), n_parts


@functools.cache
def _pool() -> ProcessPoolExecutor:
    # A fork would copy the locks that the threads of XLA hold.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(host.n_cores(), mp_context=context, initializer=_single_thread)


def _single_thread() -> None:
    """One process a core, one thread a process."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"


def _fit(options: dict[str, Any], lane: tuple[np.ndarray, int]) -> tuple[np.ndarray, int]:
    import warnings

    import scipy.sparse.csgraph
    import umap

    x, seed = lane
    if not np.isfinite(x).all():
        return np.full((len(x), options["n_components"]), np.nan, np.float32), 1
    with warnings.catch_warnings():
        # That n_neighbors is cut to n - 1, and that a seed means one thread, is known and documented.
        warnings.simplefilter("ignore")
        fitted = umap.UMAP(**options, random_state=seed, n_jobs=1).fit(x)
    n_parts, _ = scipy.sparse.csgraph.connected_components(fitted.graph_)
    return np.asarray(fitted.embedding_), int(n_parts)

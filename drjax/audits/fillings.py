"""Shadow releases in which public records stand for released ones that the adversary does not know.

Every shadow has its own draw of them (`shadow_sets.beside_strangers`), so that each is a release computed from scratch.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from drjax.attacks.shadow_sets import beside_strangers
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.progress import track
from drjax.core.types import Array, count_status

CHUNK = 64
"""Shadows between two files."""


def filled_shadows(
    folder: RunFolder,
    key: Array,
    config: AuditConfig,
    known: np.ndarray,
    n_hidden: int,
    public: np.ndarray,
    *,
    progress: bool,
) -> dict[str, np.ndarray]:
    """Releases of [public_i; known; n_hidden other public records] for every public record, read back where finished.

    Shadow i draws from fold_in(key, i); with a known seed all take the one of the attacked releases.

    Args:
        folder: Keeps finished chunks.
        key: PRNG key of the shadows.
        config: Configuration that the adversary believes in.
        known: (p, d).
        n_hidden: h, at least 1. Records repeat where there are fewer public ones.
        public: (s, d), s >= 2.
        progress: Show a bar on standard error.

    Returns:
        coords (s, p + 1, k), and where the strangers lie, hidden (s, h, k); objective, n_iter and status (s,).
    """
    method, dtype = config.dr_method, np.dtype(config.dtype)
    fill_key, draw_key = jax.random.split(key)
    # What shadow releases with a known seed share, see `attacks.shadow`.
    shared_key = jax.random.split(key)[1]
    starts = range(0, len(public), CHUNK)
    begun = time.perf_counter()
    chunks = []
    for start in track(starts, f"shadows, {CHUNK} at a time", enabled=progress):

        def make(start: int = start) -> dict[str, np.ndarray]:
            found = []
            for i in range(start, min(start + CHUNK, len(public))):
                own = shared_key if config.seed_known else jax.random.fold_in(draw_key, i)
                made = beside_strangers(own, fill_key, method, known.astype(dtype), public.astype(dtype), i, n_hidden)
                found.append(_lane(made, len(known) + 1, config.decimals))
            return {name: np.stack([lane[name] for lane in found]) for name in found[0]}

        chunks.append(folder.arrays(f"shadows/{start:08d}", make))
    gathered = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    seconds = time.perf_counter() - begun
    folder.record("stage", "shadows", n=len(public), seconds=seconds, status_counts=count_status(gathered["status"]))
    return gathered


def _lane(embedding: Any, n_rows: int, decimals: int | None) -> dict[str, np.ndarray]:
    coords = np.asarray(embedding.coords)
    coords = coords if decimals is None else np.round(coords, decimals)
    fields = {name: np.asarray(getattr(embedding, name)) for name in ("objective", "n_iter", "status")}
    return fields | {"coords": coords[:n_rows], "hidden": coords[n_rows:]}

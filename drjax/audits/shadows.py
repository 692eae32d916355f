"""Embeddings in a run folder, chunk by chunk: a finished chunk is never computed again."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from drjax.attacks.shadow import Prepared, iter_shadow_embeddings, shadow_batch_size
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.types import Array, DRMethod, count_status
from drjax.reports import records

LANE_FIELDS = ("objective", "n_iter", "status")
"""What is kept of each embedding beside its coordinates."""


def embeddings(
    folder: RunFolder,
    stage: str,
    key: Array,
    config: AuditConfig,
    known: np.ndarray,
    targets: np.ndarray,
    *,
    progress: bool,
    method: DRMethod | None = None,
    kept: Prepared | None = None,
) -> dict[str, np.ndarray]:
    """Embeddings of [target; known] for every target.

    Args:
        folder: Keeps finished chunks.
        stage: Name of the folder in it, and of the record.
        key: PRNG key, as for `shadow_embeddings`.
        config: Configuration of the audit.
        known: (n-1, d).
        targets: (m, d).
        progress: Show a bar on standard error.
        method: Method to take instead of the configured one.
        kept: Keeps what the method makes of the known records for stages that follow.

    Returns:
        coords (m, n, k), rounded as configured; objective, n_iter and status (m,).
    """
    method = config.dr_method if method is None else method

    kept = Prepared() if kept is None else kept
    options: dict[str, Any] = {"randomness": config.randomness, "dtype": config.dtype, "kept": kept}

    def plan() -> dict[str, np.ndarray]:
        # The chunk size is part of the result's last bits: a resumed run takes the recorded one.
        also = (config.n_shadow + config.n_validation, config.n_targets)
        size = shadow_batch_size(method, known, targets, also=also, **options)
        return {"batch_size": np.asarray(size)}

    size = int(folder.arrays(f"{stage}/plan", plan)["batch_size"])
    starts = range(0, len(targets), size)
    done = 0
    while done < len(starts) and (folder.path / stage / f"{starts[done]:08d}.npz").exists():
        done += 1
    begun = time.perf_counter()
    if done < len(starts):
        for offset, embedding in iter_shadow_embeddings(
            key,
            method,
            known,
            targets,
            batch_size=size,
            start=starts[done],
            progress=progress,
            **options,
        ):
            coords = np.asarray(embedding.coords)
            if config.decimals is not None:
                coords = np.round(coords, config.decimals)
            chunk = {"coords": coords} | {name: np.asarray(getattr(embedding, name)) for name in LANE_FIELDS}
            folder.arrays(f"{stage}/{offset:08d}", lambda chunk=chunk: chunk)
    seconds = time.perf_counter() - begun
    chunks = [records.load_arrays(folder.path / stage / f"{start:08d}.npz") for start in starts]
    gathered = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in ("coords", *LANE_FIELDS)}
    folder.record("stage", stage, n=len(targets), seconds=seconds, status_counts=count_status(gathered["status"]))
    return gathered

"""Embeddings in a run folder, chunk by chunk: a finished chunk is never computed again."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from drjax.attacks.shadow import Prepared, factored_at, iter_shadow_embeddings, shadow_batch_size
from drjax.audits.adversary import is_weaker
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.streamed import Product
from drjax.core.types import Array, DRMethod, count_status
from drjax.dr.factored import FactoredCoords, Factors
from drjax.reports import records

LANE_FIELDS = ("objective", "n_iter", "status")
"""What is kept of each embedding beside its coordinates."""


def keeps_factors(config: AuditConfig, n: int, d: int) -> bool:
    """Whether an audit keeps of releases of n records of d features what they do not share, and makes no coordinates:
    of many records, where all that is asked of them are attacks by who knows all others."""
    return config.defense == "none" and not is_weaker(config) and factored_at(config.dr_method, n, d)


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
) -> dict[str, Any]:
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
        coords (m, n, k), rounded as configured, a `FactoredCoords` where `keeps_factors`; objective, n_iter and status
        (m,).
    """
    method, is_factored = method or config.dr_method, keeps_factors(config, len(known) + 1, known.shape[1])
    kept = Prepared() if kept is None else kept
    options: dict[str, Any] = {"randomness": config.randomness, "dtype": config.dtype, "kept": kept}
    options["factored"] = is_factored

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
    begun, directions = time.perf_counter(), None
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
            if isinstance(embedding.coords, FactoredCoords):
                made = embedding.coords.of_records()
                chunk, directions = made.factors._asdict() | {"centre": made.centre}, made.directions
            else:
                chunk = {"coords": np.asarray(embedding.coords)}
                if config.decimals is not None:
                    chunk["coords"] = np.round(chunk["coords"], config.decimals)
            chunk |= {name: np.asarray(getattr(embedding, name)) for name in LANE_FIELDS}
            folder.arrays(f"{stage}/{offset:08d}", lambda chunk=chunk: chunk)
    seconds = time.perf_counter() - begun
    chunks = [records.load_arrays(folder.path / stage / f"{start:08d}.npz") for start in starts]
    names = (*(Factors._fields if is_factored else ("coords",)), *LANE_FIELDS)
    gathered: dict[str, Any] = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
    folder.record("stage", stage, n=len(targets), seconds=seconds, status_counts=count_status(gathered["status"]))
    if is_factored:
        factors, rows = Factors(*map(gathered.pop, Factors._fields)), Product(known, chunks[0]["centre"])
        gathered["coords"] = FactoredCoords(factors, rows, np.dtype(config.dtype), config.decimals, directions)
    return gathered

"""Result files that an interrupted experiment goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from drjax.data import Dataset
from drjax.reports import records


def take_up(
    file: Path, config: Any, data: Dataset | Mapping[str, Dataset], *, x64: bool = False
) -> list[dict[str, Any]]:
    """The records of an interrupted run, or those of a new one: its configuration and provenance.

    Args:
        file: JSON lines; made with its folder if missing.
        config: Dataclass of what decides the results, with a field `seed`.
        data: What is used, by name if there are several.
        x64: Whether the experiment computes in float64.

    Raises:
        ValueError: the file is of another configuration.
    """
    fingerprint = records.config_fingerprint(config)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with jax.enable_x64(x64):
            provenance = records.provenance(config.seed)
        sources = data.provenance if isinstance(data, Dataset) else {name: d.provenance for name, d in data.items()}
        facts = {"config": config, "provenance": provenance, "data": sources}
        records.append_record(file, "run", fingerprint=fingerprint, **facts)
    found = records.read_records(file)
    if not found or found[0].get("fingerprint") != fingerprint:
        raise ValueError(f"out must be a new folder or one of the same configuration, got {file.parent} of another")
    return found

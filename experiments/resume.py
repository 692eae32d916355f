"""Results that an interrupted experiment goes on with, and that several processes may compute together.

Every cell of an experiment is a file of its own beside `results.jsonl` (`drjax.reports.records`), which is written
whole when a command ends. What that file holds counts as done, whether there are cells of it or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from drjax.core.store import remove_stale
from drjax.data import Dataset, Summary
from drjax.reports import records


def take_up(
    file: Path, config: Any, data: Dataset | Mapping[str, Dataset | Summary], *, x64: bool = False
) -> list[dict[str, Any]]:
    """The records of an interrupted run, or those of a new one: its configuration and provenance.

    Args:
        file: JSON lines; made with its folder if missing. What killed processes left in the folder is removed.
        config: Dataclass of what decides the results, with a field `seed`.
        data: What is used, by name if there are several; of what another machine has loaded, what is known of it.
        x64: Whether the experiment computes in float64.

    Raises:
        ValueError: the file is of another configuration.
    """
    fingerprint = records.config_fingerprint(config)
    file.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(file.parent)
    found = _written(file)
    if not found:
        with jax.enable_x64(x64):
            provenance = records.provenance(config.seed)
        sources = data.provenance if isinstance(data, Dataset) else {name: d.provenance for name, d in data.items()}
        facts = {"config": config, "provenance": provenance, "data": sources}
        # Another process may have begun meanwhile: the first line is of whoever was first.
        records.put_record(file, "run", "experiment", fingerprint=fingerprint, **facts)
        found = records.read_records(file)
    if found[0].get("fingerprint") != fingerprint:
        raise ValueError(f"out must be a new folder or one of the same configuration, got {file.parent} of another")
    return found


def cell_name(*parts: int | float | str | None) -> str:
    """Name of a cell from what orders it and what it is of; integers sort as numbers."""
    return "-".join(f"{part:05d}" if isinstance(part, int) else str(part) for part in parts)


def _written(file: Path) -> list[dict[str, Any]]:
    try:
        return records.read_records(file)
    except FileNotFoundError:
        return []

"""The run folder: one file per finished piece of work, so that an interrupted audit goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from drjax.reports import records

CONFIG, RECORDS, REPORT = "config.json", "records.jsonl", "report.html"


class RunFolder:
    """A folder of one audit. Every file is written whole, so what exists is finished.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, config: Any, *, resume: bool) -> None:
        """Makes the folder, or takes up the one of the same configuration.

        Raises:
            ValueError: without `resume`, a folder that is not empty; with it, one that is no run folder or belongs to
                another configuration. Nothing is written then.
            OSError: the folder cannot be made or written to.
        """
        self.path = path
        fingerprint = records.config_fingerprint(config)
        config_file = path / CONFIG
        if config_file.exists():
            found = _read_config(config_file)
            if not resume:
                raise ValueError(
                    f"out must be a new folder, got {path} of an earlier run: pass --resume or another --out"
                )
            if found.get("fingerprint") != fingerprint:
                changed = _differences(found.get("config", {}), records.to_json(config))
                raise ValueError(
                    f"out must hold a run of the same configuration to resume, got {path} where {changed} differ: "
                    "pass the same options or another --out"
                )
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"out must be a new or empty folder or one of an earlier run, got {path}")
        else:
            content = {"fingerprint": fingerprint, "config": records.to_json(config)}
            try:
                path.mkdir(parents=True, exist_ok=True)
                records.atomic_write_text(config_file, json.dumps(content, indent=1) + "\n")
            except OSError as error:
                raise OSError(
                    f"out must be a folder that can be written, got {path} ({error.strerror}): choose another --out"
                ) from error

    def arrays(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """What `make` returns, from the file of an earlier run if there is one; written before it is returned.

        Raises:
            ValueError: the file is damaged.
        """
        file = self.path / f"{name}.npz"
        if file.exists():
            return records.load_arrays(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        made = {key: np.asarray(value) for key, value in make().items()}
        records.save_arrays(file, **made)
        return made

    def record(self, kind: str, name: str, **fields: Any) -> None:
        """Appends a record unless an earlier run wrote the one of this kind and name."""
        file = self.path / RECORDS
        existing = records.read_records(file) if file.exists() else []
        if not any(r["kind"] == kind and r.get("name") == name for r in existing):
            records.append_record(file, kind, name=name, **fields)


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"out must be a run folder, got one whose {file.name} cannot be read: delete {file}"
        ) from error


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(names) or "versions of drjax"

"""The run folder: one file per finished piece of work, so that an interrupted audit goes on where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drjax.core.store import atomic_write_text, is_temporary, key_of, remove_stale
from drjax.reports import records

CONFIG, RECORDS, REPORT = "config.json", "records.jsonl", "report.html"


def run_folder(name: str, *, resume: bool) -> Path:
    """runs/NAME, with a number behind it if that exists and is not to be resumed."""
    folder, number = Path("runs") / name.replace(":", "-"), 2
    while folder.exists() and not resume:
        folder, number = Path("runs") / f"{name.replace(':', '-')}-{number}", number + 1
    return folder


class RunFolder:
    """A folder of one audit, which several processes may work on at once.

    Every file is written whole, so what exists is finished; of two processes that compute the same, the first to end
    is believed by both.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, config: Any, *, resume: bool) -> None:
        """Makes the folder, or takes up the one of the same configuration; removes what killed processes left in it.

        Raises:
            ValueError: without `resume`, a folder that is not empty; with it, one that does not exist, is no run folder
                or belongs to another configuration. Nothing is written then.
            OSError: the folder cannot be made or written to.
        """
        self.path = path
        fingerprint = records.config_fingerprint(config)
        config_file = path / CONFIG
        if resume and not path.exists():
            raise ValueError(
                f"out must be the folder of an earlier run to resume, got {path}, which does not exist: leave --resume "
                "out to start a new run"
            )
        if config_file.exists():
            if not resume:
                raise ValueError(
                    f"out must be a new folder, got {path} of an earlier run: pass --resume or another --out"
                )
        # A kill before the configuration was there leaves an empty folder, or one with a temporary file.
        elif path.exists() and (not path.is_dir() or not all(map(is_temporary, path.iterdir()))):
            raise ValueError(f"out must be a new or empty folder or one of an earlier run, got {path}")
        else:
            content = {"fingerprint": fingerprint, "config": records.to_json(config)}
            try:
                # Reconstructions of private records are for whoever holds the records alone.
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                atomic_write_text(config_file, json.dumps(content, indent=1) + "\n", replace=False)
            except OSError as error:
                raise OSError(
                    f"out must be a folder that can be written, got {path} ({error.strerror}): choose another --out"
                ) from error
        found = _read_config(config_file)
        if found.get("fingerprint") != fingerprint:
            changed = _differences(found.get("config", {}), records.to_json(config))
            raise ValueError(
                f"out must hold a run of the same configuration to resume, got {path} where {changed} differ: "
                "pass the same options or another --out"
            )
        remove_stale(path)

    def arrays(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """What `make` returns, from the file of an earlier run if there is one; written before it is returned.

        Raises:
            ValueError: the file is damaged.
        """
        file = self.path / f"{name}.npz"
        if file.exists():
            return records.load_arrays(file)
        made = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        return records.put_arrays(file, made)

    def timed(
        self, name: str, make: Callable[[], tuple[Mapping[str, Any], Mapping[str, Any]]], *, stage: str
    ) -> tuple[dict[str, np.ndarray], float]:
        """Arrays as from `arrays`, and the seconds that `make` took when it was called.

        Equal runs have equal arrays, so that times are not among them but in a record of kind "stage".

        Args:
            name: Array file, without its ending.
            make: Returns arrays, and facts for the record.
            stage: Name of the record.

        Raises:
            ValueError: the file is damaged, or has no record.
        """

        def measured() -> Mapping[str, Any]:
            begun = time.perf_counter()
            made, facts = make()
            # Before the arrays: whoever finds those finds the record.
            self.record("stage", stage, seconds=time.perf_counter() - begun, **facts)
            return made

        found = self.arrays(name, measured)
        record = records.find_record(self.path / RECORDS, "stage", _cell(stage))
        if record is None:
            raise ValueError(
                f"out must hold the record of {stage!r} beside {name}.npz, got {self.path} without it: choose another "
                "--out"
            )
        return found, float(record["seconds"])

    def record(self, kind: str, name: str, *, place: int = 0, **fields: Any) -> None:
        """Writes a record unless there is one of this kind, name and place, which orders those of a kind."""
        records.put_record(self.path / RECORDS, kind, _cell(name, place), name=name, **fields)

    def finish(self) -> list[dict[str, Any]]:
        """Writes all records into the one file that people read; returns them."""
        return records.gather_records(self.path / RECORDS)

    def checkpoint(self, name: str) -> Path:
        """Where the training of one attack may leave its state while it lasts."""
        return self.path / f"training-{key_of(name)}.npz"


def _cell(name: str, place: int = 0) -> str:
    return f"{place:04d}-{name}"


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

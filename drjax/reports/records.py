"""Result records on disk: JSON with provenance, written so that a kill leaves nothing half-done; and arrays.

Every record is a cell, a file of its own in the folder `NAME.cells` beside `NAME.jsonl`, so that many processes may
write at once and lose nothing. `NAME.jsonl` holds all of them as lines for people to read; it is only ever written
whole.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

import drjax
from drjax.core import validate
from drjax.core.array_files import load_arrays as load_arrays
from drjax.core.array_files import put_arrays as put_arrays
from drjax.core.array_files import save_arrays as save_arrays
from drjax.core.store import Store, atomic_open
from drjax.core.store import atomic_write_text as atomic_write_text

SCHEMA_VERSION = 1
"""Version of the record layout; a reader refuses files from a later one."""

KINDS = ("run", "stage", "quality", "attack", "curve", "status", "option")
"""What a record may be about."""

_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "flax", "optax")


def put_record(path: Path | str, kind: str, cell: str, /, **fields: Any) -> dict[str, Any]:
    """Writes one record as a file of its own beside `path`, unless the cell has one; returns the one that is there.

    Any number of processes may write at once. On the disk when it returns; `read_records` sees it at once, and the file
    `path` holds it after `gather_records`. Values are encoded as `to_json` says.

    Args:
        path: The record file; its folder must exist.
        kind: Kind of the record, one of `KINDS`.
        cell: What the record is of. Records are ordered by kind and by this: begin it with what should order it.
        **fields: The record's content; "schema" and "kind" are taken.

    Raises:
        ValueError: an unknown kind, a taken field name, or a value that JSON cannot carry.
        OSError: the folder cannot be written.
    """
    name = _cell_name(kind, cell)
    if "schema" in fields:
        raise ValueError(f"fields must not contain the reserved name 'schema', got {sorted(fields)}")
    line = encoded_line({"schema": SCHEMA_VERSION, "kind": kind, **fields})
    return _parsed(_cells(path).put(name, line), path, 1)


def find_record(path: Path | str, kind: str, cell: str) -> dict[str, Any] | None:
    """The record of a cell that `put_record` wrote; None if there is none."""
    there = _cells(path).get(_cell_name(kind, cell))
    return None if there is None else _parsed(there, path, 1)


def read_records(path: Path | str) -> list[dict[str, Any]]:
    """The records of a file and of its cells, whether `gather_records` put them into the file or not.

    Lines of which there is no cell come first, in their order and without a torn last one; then cells by kind and name.
    "NaN", "Infinity" and "-Infinity" come back as floats, whether they were floats or text when written.

    Raises:
        FileNotFoundError: neither the file nor a cell is there.
        ValueError: a complete line or a cell that is not a record, or one of a later schema version.

    Example:
        >>> import tempfile, drjax
        >>> from drjax.reports.records import read_records
        >>> sizes = {"n_known": 20, "n_shadow": 20, "n_validation": 4, "n_targets": 4, "n_decoys": 10}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = drjax.audit("digits", out=f"{folder}/run", attacks=("closed-form",), **sizes)
        ...     records = read_records(f"{folder}/run/records.jsonl")
        >>> len(records) > 1
        True
    """
    return [_parsed(*line) for line in _lines(path)]


def gather_records(path: Path | str) -> list[dict[str, Any]]:
    """Writes all records into the one file that people read, whole, in the order of `read_records`; returns them.

    The last of several processes to do so leaves a file with the cells of all. Cells stay where they are.

    Raises:
        As `read_records`.
        OSError: the file cannot be written.
    """
    path, cells = Path(path), _cells(path)
    while True:
        names, lines = cells.names(), _lines(path)
        found = [_parsed(*line) for line in lines]
        content = b"".join(line for line, _, _ in lines)
        if not path.exists() or path.read_bytes() != content:
            with atomic_open(path) as file:
                file.write(content)
        # A cell that came meanwhile may have been gathered by its writer into a file that this one has just replaced.
        if cells.names() == names:
            return found


def has_cells(path: Path | str) -> bool:
    """Whether there are cells beside a record file, which decide what it holds."""
    return bool(_cells(path).names())


def encoded_line(record: Mapping[str, Any]) -> bytes:
    """A record as the line of a record file."""
    return json.dumps(to_json(record), allow_nan=False, ensure_ascii=False).encode() + b"\n"


def to_json(value: Any) -> Any:
    """The value as JSON types only.

    Numpy and JAX arrays become nested lists, NamedTuples and dataclasses become objects by field name, enums their
    value, paths their text. A float that JSON lacks becomes the text "NaN", "Infinity" or "-Infinity".

    Raises:
        ValueError: a mapping with keys that are not text, a PRNG key, or a type without a JSON form.
    """
    return _encoded(value, with_types=False)


def config_fingerprint(config: Any) -> str:
    """SHA-256, in hex, of a dataclass's fields and the class names of it and of every dataclass inside it.

    Equal configurations give equal fingerprints in every process and on every platform; class names count because
    two methods may share their fields.

    Raises:
        ValueError: not a dataclass instance, or a field that `to_json` refuses.
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise ValueError(f"config must be a dataclass instance, got {config!r}")
    return fingerprint_of(_encoded(config, with_types=True))


def fingerprint_of(value: Any) -> str:
    """SHA-256, in hex, of JSON types; the same whatever the order of their keys."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def provenance(seed: int | None = None) -> dict[str, Any]:
    """Where a result comes from: code, versions, machine, device, precision and the UTC time now.

    `commit` and `dirty` are None unless drjax runs from its own git checkout; `dirty` counts untracked files too.
    Starts the JAX backend; costs two calls of git.
    """
    commit, dirty = _git_state(Path(drjax.__file__).resolve().parents[1])
    return {
        "drjax": drjax.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "backend": jax.default_backend(),
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "x64": jax.dtypes.canonicalize_dtype(np.float64) == np.float64,
        "seed": seed,
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _encoded(value: Any, *, with_types: bool) -> Any:
    def inner(entry: Any) -> Any:
        return _encoded(entry, with_types=with_types)

    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):
        return inner(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _encoded_float(float(value))
    if isinstance(value, np.generic):
        return inner(value.item())
    if isinstance(value, (np.ndarray, jax.Array)):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise ValueError(f"a record must not hold a PRNG key, record its seed instead; got {value!r}")
        return inner(np.asarray(value).tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: inner(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"__class__": type(value).__qualname__, **fields} if with_types else fields
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)):
        return {name: inner(entry) for name, entry in zip(names, value, strict=True)}
    if isinstance(value, (list, tuple)):
        return [inner(entry) for entry in value]
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise ValueError(f"a record's mapping must have text keys, got {list(value)!r}")
        return {key: inner(entry) for key, entry in value.items()}
    raise ValueError(f"a record must hold numbers, text, arrays, dataclasses, lists or mappings; got {value!r}")


def _encoded_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _cells(path: Path | str) -> Store:
    return Store(Path(path).with_suffix(".cells"), suffix=".json")


def _cell_name(kind: str, cell: str) -> str:
    validate.one_of(KINDS, kind=kind)
    return f"{KINDS.index(kind)}-{kind}-{cell}"


def _lines(path: Path | str) -> list[tuple[bytes, Path, int]]:
    """Every complete line of the file and its cells, with the file and the line's number in it."""
    path, cells = Path(path), _cells(path)
    own = [(cells.get(name) or b"", cells.path / (name + cells.suffix), 1) for name in cells.names()]
    if own and not path.exists():
        return own
    # A complete line ends with a newline, so what follows the last one is empty or torn.
    written = [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]]
    gathered = {content for content, _, _ in own}
    return [(line, path, i) for i, line in enumerate(written, start=1) if line not in gathered] + own


def _parsed(line: bytes, path: Path | str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"path must hold one JSON record per line, got {path} with a bad line {number}") from error
    if not isinstance(record, dict) or not {"schema", "kind"} <= record.keys():
        raise ValueError(f"path must hold records with 'schema' and 'kind', got {path} without them in line {number}")
    if record["schema"] not in range(1, SCHEMA_VERSION + 1):
        raise ValueError(
            f"path must hold records of schema version 1 to {SCHEMA_VERSION}, got {record['schema']!r} in {path}"
            " (a newer drjax may have written it)"
        )
    return _decoded(record)


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _SPECIAL_FLOATS.get(value, value)
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _decoded(entry) for key, entry in value.items()}
    return value


def _git_state(root: Path) -> tuple[str | None, bool | None]:
    # A git hook sets GIT_DIR and the like, which would point git at the hook's repository instead of drjax's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=environment)
        return done.stdout.strip()

    try:
        # An installed drjax may lie inside somebody else's repository, whose commit says nothing about drjax.
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != root:
            return None, None
        return commit, bool(git("status", "--porcelain"))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None, None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()

"""The file of a budget ledger: hashes that show damage, a lock, and a write that survives a kill."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from drjax.core import json_files, validate

SCHEMA_VERSION = 1
"""Version of the file's layout; a reader refuses others."""


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and entries of a file whose hashes are right.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no ledger's file, a damaged one, or one of another schema version.
    """
    try:
        document = json_files.parse(path.read_bytes(), "path", str(path))
        header, rows, head = (document[name] for name in ("header", "entries", "head"))
        version, expected = header["schema"], [chained("", header)]
        for row in rows:
            expected.append(chained(expected[-1], {name: row[name] for name in row if name != "hash"}))
        is_intact = len(document) == 3 and [*(row["hash"] for row in rows), head] == [*expected[1:], expected[-1]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"path must be a ledger's file, got {path}: {error!r}") from error
    if version != SCHEMA_VERSION:
        raise ValueError(f"path must be a ledger of schema version {SCHEMA_VERSION}, got {version!r} in {path}")
    if not is_intact:
        raise ValueError(f"path must be an intact ledger, got {path}, whose hashes do not match: damaged or edited")
    return header, rows


def chained(previous: str, content: dict[str, Any]) -> str:
    """SHA-256 of a hash and what comes after it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256((previous + text).encode()).hexdigest()


def replace(path: Path, document: dict[str, Any]) -> None:
    """Puts the file in place of the old one, mode 0600; who holds the lock is alone with the temporary file."""
    temporary = path.with_name(f".{path.name}.tmp")
    # What a killed process left may have another mode, which opening it would keep.
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", encoding="utf-8", opener=_owners) as file:
        json.dump(document, file, indent=1, allow_nan=False, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    # The new name is on the disk once the folder is; Windows opens no folders, and has no need to.
    if sys.platform == "win32":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path, timeout: float) -> Generator[None]:
    """Alone with a ledger among all processes and threads of any system; a process that dies lets go.

    Raises:
        TimeoutError: another process holds the lock for longer than `timeout` seconds.
        OSError: the file system has no locks.
    """
    validate.non_negative(timeout=timeout)
    # A file of its own, never removed: the ledger's is replaced, and a lock on the old one would keep nobody out. No
    # file whose existence is the lock in its place: a process that dies would leave it.
    file = path.with_name(f".{path.name}.lock")
    lock = FileLock(file, timeout=timeout, mode=0o600, poll_interval=0.01, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise TimeoutError(
            f"timeout must be longer than others hold the lock {file}, got {timeout:g} seconds"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _owners(name: str, flags: int) -> int:
    """Opens a file that nobody but the owner may read or write if it is new."""
    return os.open(name, flags, 0o600)

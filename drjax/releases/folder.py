"""The two folders of a release: the one to publish appears whole or not at all; the private one lies beside it.

What was computed from the records without noise never lies inside the folder to publish. It is kept in memory until
that folder is there, and its file gets a name when it is complete: a process that is killed leaves nothing of it.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from drjax.core.store import is_alive, machine

PRIVATE = ".private"
"""What the name of the private folder has more than that of the folder to publish."""


def private_folder(out: Path) -> Path:
    """The folder beside `out` for what nobody else may see."""
    # Such as ".", which has no name by itself.
    named = out if out.name else out.absolute()
    return named.with_name(named.name + PRIVATE)


@contextmanager
def new_folder(out: Path, private: Mapping[str, str]) -> Generator[Path]:
    """A hidden folder beside `out` that takes its name when the block ends, and is deleted if the block raises.

    Args:
        out: The folder to publish.
        private: Texts by file name, which the block may still add to; written to `private_folder(out)` once `out` is
            there, readable by the owner alone.

    Raises:
        ValueError: `out` or its private folder exists already.
        OSError: a folder cannot be made or written to.
    """
    check_new_folder(out)
    temporary = private_folder(out).with_name(f".{out.name}.{machine()}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"out must be a folder that can be made, got {out} ({error.strerror}): choose another --out"
        ) from error
    try:
        yield temporary
        check_new_folder(out)
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    kept = private_folder(out)
    kept.mkdir(mode=0o700)
    for name, text in private.items():
        _write_private(kept / name, text.encode())


def check_new_folder(out: Path) -> None:
    """Before any work: nothing has that name or that of its private folder; what killed releases left is removed.

    Raises:
        ValueError: something has.
    """
    for path in (out, private_folder(out)):
        if path.exists():
            raise ValueError(f"out must be a new folder, got {out} and {path} exists: choose another --out")
    for left in out.parent.glob(f".{glob.escape(out.name)}.{machine()}.*.tmp"):
        process = left.suffixes[-2].lstrip(".")
        if process.isdigit() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _write_private(path: Path, blob: bytes) -> None:
    """A new file that only its owner may read, and that has no name until it is complete, where the system can."""
    try:
        unnamed = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (AttributeError, OSError):  # not Linux, or a file system that cannot; another error comes again below
        unnamed = None
    if unnamed is None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            _write_through(file, blob)
        return
    with os.fdopen(unnamed, "wb") as file:
        _write_through(file, blob)
        # With a folder's descriptor Python follows the link to the file that has no name; the path is absolute.
        os.link(f"/proc/self/fd/{unnamed}", path, src_dir_fd=unnamed, follow_symlinks=True)


def _write_through(file: BinaryIO, blob: bytes) -> None:
    file.write(blob)
    file.flush()
    os.fsync(file.fileno())

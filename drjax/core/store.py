"""Files written whole or not at all, and the resumable store of cells that many processes may share.

A file is written under a temporary name in its own folder, flushed to the disk, and then renamed or linked, so that a
reader sees the old file or the new one, and a kill leaves at most a temporary file, which `remove_stale` takes away.

A cell is one whole object under a name: a folder here, and just as well a bucket elsewhere, because nothing is ever
appended or changed. The first writer of a name wins and the others are told what is there, so that a cell computed
twice does no harm.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pooch

STALE_SECONDS = 86400.0
"""Age at which a temporary file counts as left behind even if its writer cannot be asked."""

_TEMPORARY = re.compile(r"\..*?(?:\.(?P<machine>[0-9a-f]{8}))?\.(?P<process>\d+)(?:\.[0-9a-f]{8})?\.tmp")
_SAFE = re.compile(r"[a-z0-9_][a-z0-9._=+-]{0,127}")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}


def cache_dir() -> Path:
    """The per-user folder of what can be had again: downloads, compiled programs.

    Example:
        >>> from drjax.data import cache_dir
        >>> cache_dir().name
        'drjax'
    """
    return Path(pooch.os_cache("drjax"))


@contextmanager
def atomic_open(path: Path | str, *, private: bool = False, replace: bool = True) -> Generator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends, and leaves it alone if the block raises.

    Content and name are on the disk when the block is left. Any number of processes and threads may write the same
    path at once: every one of them writes a temporary file of its own.

    Args:
        path: The file; its folder must exist.
        private: Nobody but the owner may read or write the file, from its first byte on (mode 0600); otherwise the
            umask decides.
        replace: Whether to replace a file that is there when the block ends; if not, what was written is dropped.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    # Part of the name only: it must leave room for the rest, at four bytes a character.
    temporary = path.with_name(f".{path.name[:50]}.{machine()}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    mode = 0o600 if private else 0o666
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            _publish_first(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def atomic_write_text(path: Path | str, text: str, *, private: bool = False, replace: bool = True) -> None:
    """Writes the text as UTF-8 so that `path` holds the old content or all of the new; options of `atomic_open`."""
    with atomic_open(path, private=private, replace=replace) as file:
        file.write(text.encode())


def atomic_write_columns(path: Path | str, names: Sequence[str], values: np.ndarray) -> None:
    """Writes numbers (n, k) to nine digits as CSV under a line of their k names; atomically, as `atomic_open` does."""
    with atomic_open(path) as file:
        np.savetxt(file, values, delimiter=",", header=",".join(names), comments="", fmt="%.9g")


class Store:
    """Cells by name in one folder, each a file that is written once; many processes may use it at the same time.

    Attributes:
        path: The folder; made by the first `put`.
        suffix: End of every file name.
    """

    def __init__(self, path: Path | str, *, suffix: str = "") -> None:
        self.path, self.suffix = Path(path), suffix

    def put(self, name: str, content: bytes) -> bytes:
        """Keeps the content under a name that is free; returns what is there: this content or an earlier one's.

        On the disk when it returns. A disk without hard links cannot tell which of two writers came first at the same
        moment: one of both contents stays, whole.

        Raises:
            OSError: the cell cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with atomic_open(self._file(name), replace=False) as file:
            file.write(content)
        return self._file(name).read_bytes()

    def get(self, name: str) -> bytes | None:
        """The content under a name; None if there is none."""
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """The names of all cells as `key_of` gives them, sorted."""
        if not self.path.is_dir():
            return []
        files = (entry.name for entry in os.scandir(self.path) if not entry.name.startswith("."))
        return sorted(name.removesuffix(self.suffix) for name in files if name.endswith(self.suffix))

    def __contains__(self, name: str) -> bool:
        return self._file(name).exists()

    def _file(self, name: str) -> Path:
        return self.path / (key_of(name) + self.suffix)


def key_of(name: str) -> str:
    """The file name of a cell: the name itself if every file system takes it, else a slug and a hash of the name.

    The same on every machine, and itself for what it returns. At most 128 characters, lower case.
    """
    if _SAFE.fullmatch(name):
        return name
    slug = re.sub(r"[^a-z0-9._=+]+", "-", name.lower()).strip("-.=+")[:100] or "cell"
    return f"{slug}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def remove_stale(folder: Path | str) -> None:
    """Removes temporary files in a folder and those below: of processes that died here, or older than `STALE_SECONDS`.

    Raises:
        OSError: one of them cannot be removed.
    """
    for file in Path(folder).rglob(".*.tmp"):
        if is_temporary(file) and file.is_file() and _is_stale(file):
            file.unlink(missing_ok=True)


def is_temporary(file: Path) -> bool:
    """Whether a file is what `atomic_open` writes before it renames."""
    return _TEMPORARY.fullmatch(file.name) is not None


@functools.cache
def machine() -> str:
    """8 hexadecimal digits for where a process number means one process: the host, and a container on it."""
    space = Path("/proc/self/ns/pid")
    where = socket.gethostname() + (os.readlink(space) if space.is_symlink() else "")
    return hashlib.sha256(where.encode()).hexdigest()[:8]


def _is_stale(file: Path) -> bool:
    found = _TEMPORARY.fullmatch(file.name)
    assert found is not None
    # Names without a machine are those of earlier versions, which knew one machine only.
    if found["machine"] in (None, machine()) and not is_alive(int(found["process"])):
        return True
    try:
        return time.time() - file.stat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return False


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs; True where the system cannot be asked."""
    if os.name != "posix":  # elsewhere `os.kill` would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _publish_first(temporary: Path, path: Path) -> None:
    """Gives a finished file its name, unless another has it."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in _NO_LINKS and not path.exists():
            os.replace(temporary, path)
        elif error.errno not in (*_NO_LINKS, errno.EEXIST):
            raise
    temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk once its folder is."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

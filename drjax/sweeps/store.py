"""Where a sweep keeps its results: a folder, or a bucket of any service that fsspec knows.

    sweep.json          what the sweep is
    cells/NAME.parquet  the result of a cell, written once and whole
    work/NAME/          the run folder of a cell that is not finished

Run folders are worked on in place where the store is a folder. Elsewhere a worker copies what there is to a folder of
its own, and what it adds back.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from drjax.core.store import Store, is_temporary

SWEEP, CELLS, WORK = "sweep.json", "cells", "work"
SUFFIX = ".parquet"

_copies = threading.local()
"""Copies of run folders, by where they are from: a worker's next piece is often of the same cell."""


class SweepStore:
    """The store of one sweep; any number of processes on any number of machines may use it.

    Attributes:
        url: Where it is.
    """

    def __init__(self, url: str | Path) -> None:
        """Nothing is read or written yet.

        Args:
            url: Folder, or address such as s3://bucket/folder.

        Raises:
            ValueError: an address that fsspec does not know, or whose package is missing.
        """
        self.url = str(url)
        try:
            self._fs, self._root = fsspec.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"out must be a folder or an address that fsspec knows, got {self.url}: {error}"
            ) from error

    @property
    def local(self) -> Path | None:
        """The folder; None where the store is none of this machine's."""
        return Path(self._root) if isinstance(self._fs, LocalFileSystem) else None

    def begin(self, fingerprint: str, config: Any) -> None:
        """Says what the sweep is, or checks that it is the one that the store is of.

        Raises:
            ValueError: the store is of another sweep, or holds something else.
            OSError: it cannot be read or written.
        """
        with self._reachable():
            # Listed first: another process may be at beginning the same sweep.
            others = [name for name in self._children("") if not name.startswith(".")]
            if self.get(SWEEP) is None and others:
                raise ValueError(f"out must be a new or empty folder, or the store of a sweep, got {self.url}")
            if self.local is not None:
                # Errors of reconstructions of private records are for whoever holds the records alone.
                self.local.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = json.dumps({"fingerprint": fingerprint, "config": config}, indent=1, ensure_ascii=False) + "\n"
            found = json.loads(self.put(SWEEP, content.encode()))
        if found["fingerprint"] != fingerprint:
            names = sorted({*found["config"], *config})
            changed = [name for name in names if found["config"].get(name) != config.get(name)]
            raise ValueError(
                f"out must be of the same sweep to go on with it, got {self.url} where {', '.join(changed)} differ: "
                "pass the same options, or name another store"
            )

    def found(self) -> dict[str, Any]:
        """What the sweep is.

        Raises:
            ValueError: there is none.
            OSError: the store cannot be read.
        """
        with self._reachable():
            content = self.get(SWEEP)
        if content is None:
            raise ValueError(f"out must be the store of a sweep, got {self.url} without {SWEEP}")
        return json.loads(content)

    def put(self, name: str, content: bytes) -> bytes:
        """Keeps a file under a name that is free; returns what is there: this content or an earlier one's."""
        if self.local is not None:
            folder, _, file = name.rpartition("/")
            return Store(self.local / folder).put(file, content)
        there = self.get(name)
        if there is None:
            # An object appears whole or not at all.
            self._fs.pipe_file(self._path(name), content)
        return content if there is None else there

    def get(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        try:
            return self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def done(self) -> list[str]:
        """Names of the cells that are finished, sorted.

        Raises:
            OSError: the store cannot be read.
        """
        with self._reachable():
            return sorted(name.removesuffix(SUFFIX) for name in self._children(CELLS) if name.endswith(SUFFIX))

    def begun(self) -> list[str]:
        """Names of the cells that have a run folder, sorted."""
        return sorted(self._children(WORK))

    def remove(self, name: str) -> None:
        """Removes a folder, if it is there; what cannot be removed stays."""
        _own().pop((self.url, name), None)
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)

    @contextlib.contextmanager
    def folder(self, name: str) -> Generator[Path]:
        """A folder of the store as one of this machine, until the block ends; what the block adds is in the store then.

        Raises:
            OSError: the store cannot be read or written.
        """
        if self.local is not None:
            if not self.local.is_dir():
                raise OSError(f"out must be a folder that all workers reach, got {self.url} which is not there")
            yield self.local / name
            return
        copies = _own()
        if (self.url, name) not in copies:
            for copy in copies.values():
                copy.cleanup()
            copies.clear()
            copies[self.url, name] = tempfile.TemporaryDirectory(prefix="drjax-sweep-", ignore_cleanup_errors=True)
        path = Path(copies[self.url, name].name) / "cell"
        with self._reachable():
            there = self._files(name)
            for file in there:
                if not (path / file).exists():
                    (path / file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    (path / file).write_bytes(self._fs.cat_file(self._path(f"{name}/{file}")))
        yield path
        with self._reachable():
            added = [file for file in _files_below(path) if file not in there]
            # Whoever finds arrays finds the record of them.
            for file in sorted(added, key=lambda file: (file.endswith(".npz"), file)):
                self._fs.pipe_file(self._path(f"{name}/{file}"), (path / file).read_bytes())

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def _children(self, name: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._fs.ls(self._path(name), detail=False)]
        except FileNotFoundError:
            return []

    def _files(self, name: str) -> set[str]:
        self._fs.invalidate_cache()
        start = self._path(name).lstrip("/") + "/"
        return {str(path).lstrip("/").removeprefix(start) for path in self._fs.find(self._path(name))}

    @contextlib.contextmanager
    def _reachable(self) -> Generator[None]:
        """Errors of a service, whatever their kind, as an OSError in one line."""
        try:
            yield
        except (OSError, ValueError):
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise OSError(f"out must be a store that can be read and written, got {self.url}: {text}") from error


def _own() -> dict[tuple[str, str], tempfile.TemporaryDirectory]:
    if not hasattr(_copies, "folders"):
        _copies.folders = {}
    return _copies.folders


def _files_below(path: Path) -> list[str]:
    files = (file for file in path.rglob("*") if file.is_file() and not is_temporary(file))
    return [file.relative_to(path).as_posix() for file in files]

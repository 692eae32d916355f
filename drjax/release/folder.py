"""The folder of a release: it appears whole, under a name that was free, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = "private"
"""Folder inside a release's for what was computed from the records without noise."""


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` that takes its name when the block ends, and is deleted if the block raises.

    Raises:
        ValueError: `out` exists already.
        OSError: the folder cannot be made.
    """
    check_new_folder(out)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
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


def check_new_folder(out: Path) -> None:
    """Before any work: nothing has that name.

    Raises:
        ValueError: something has.
    """
    if out.exists():
        raise ValueError(f"out must be a new folder, got {out} which exists: choose another --out")

"""Named arrays in npz files, without pickle: the same arrays give the same bytes, and damage is found."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from drjax.core.store import atomic_open


def save_arrays(path: Path | str, /, **arrays: Any) -> None:
    """Writes named arrays to an npz file, atomically and without pickle.

    The same arrays give the same bytes, in whatever order they are named: entries are sorted, uncompressed, in C
    order and carry no time.

    Raises:
        ValueError: an array that is not numeric, boolean or text (bfloat16 has no npz form; cast it first).
    """
    hosted = _hosted(arrays)
    with atomic_open(path) as file:
        _write_npz(file, hosted)


def put_arrays(path: Path | str, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Saves arrays as `save_arrays` does, unless the file is there by now; returns the arrays that it holds.

    Raises:
        ValueError: an array as `save_arrays` refuses it, or a file that is damaged.
    """
    hosted = _hosted(arrays)
    with atomic_open(path, replace=False) as file:
        _write_npz(file, hosted)
    return load_arrays(path)


def load_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """Reads every array of an npz file into memory; checksums are verified and pickles refused.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an npz file, damaged, or with an array that only pickle could restore.

    Example:
        >>> import tempfile, numpy as np
        >>> from drjax.reports.records import load_arrays
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/found.npz", x=np.ones((3, 2)))
        ...     arrays = load_arrays(f"{folder}/found.npz")
        >>> arrays["x"].shape
        (3, 2)
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"checksum of {damaged} does not match")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"path must be an intact npz file without pickled objects, got {path}: {reason}") from error


def _hosted(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    hosted = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
    for name, array in hosted.items():
        if array.dtype.kind not in "biufcSU":
            raise ValueError(f"{name} must be a numeric, boolean or text array, got dtype {array.dtype}")
    return hosted


def _write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # A ZipInfo made here carries the constant date 1980-01-01 and never the time of writing.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)

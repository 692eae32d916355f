"""The user's own files: CSV, Excel, Parquet, NPY, NPZ, or a folder of images."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from drjax.core import streamed, validate
from drjax.data import large_tables, table_cells, tables
from drjax.data.checksums import file_sha256
from drjax.data.dataset import OWN, Dataset, Provenance, coded, duplicates_note, unit_levels, unit_range
from drjax.data.images import from_folder
from drjax.data.own_table import Stated, dataset_of
from drjax.data.sheets import SUFFIXES, read_sheet
from drjax.data.table_cells import Columns
from drjax.data.table_files import columns_of, is_table

_ARRAYS = (".npy", ".npz")

MAPPED_BYTES = 2**28
"""Size from which an .npy file is mapped into memory and not read as a whole."""

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".webp", ".bmp", ".tif", ".tiff")
"""Endings of pictures, which hold no numbers of records."""


def load_file(
    path: str | Path,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
    schema: Stated = None,
    id: str | None = None,
) -> Dataset:
    """Reads the user's own records and scales them to [0, 1].

    Tables: see `drjax.data.plan` and `drjax.data.own_table`; a Parquet file of numbers of 256 MiB or more in float32 is
    read in parts (`drjax.data.large_tables`), with the same results. Image folders: see `drjax.data.images`. Arrays
    have one record per entry of their first axis: uint8 is divided by 255; bool, and floats that all lie in [0, 1], are
    kept as they are; other (n, d) arrays are scaled by each column's minimum and maximum, other arrays of higher rank
    (images) by one common pair. An .npz file holds the records as `x`, or as its only array of rank 2 or more, and
    optional labels as `y`. Nothing is ever unpickled.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: unreadable, damaged or unsupported file; what is wrong with its contents; or `categorical`,
            `drop`, `label`, `schema` or `id` for anything but a table.

    Example:
        >>> import tempfile, numpy as np
        >>> from drjax.data import load_file
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.array([[20.0, 1.5], [60.0, 1.8], [40.0, 1.6]]))
        ...     data = load_file(f"{folder}/x.npy")
        >>> data.x.round(2)
        array([[0.  , 0.  ],
               [1.  , 1.  ],
               [0.5 , 0.33]], dtype=float32)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}: check the path")
    suffix = path.suffix.lower()
    options: dict[str, Any] = {"categorical": categorical, "drop": drop, "label": label, "schema": schema, "id": id}
    for name, value in options.items():
        if value not in (None, (), []) and (suffix not in SUFFIXES or path.is_dir()):
            raise ValueError(f"{name} applies to tables ({', '.join(SUFFIXES)}), and {path} is none")
    try:
        if path.is_dir():
            return from_folder(path)
        if suffix not in (*SUFFIXES, *_ARRAYS):
            supported = ", ".join((*SUFFIXES, *_ARRAYS))
            raise ValueError(f"{path} must be a folder of images or end in one of {supported}, got {suffix!r}")
        digest = file_sha256(path)
    except OSError as error:
        raise ValueError(f"{error.filename or path} cannot be read: {error.strerror or error}") from error
    provenance = Provenance(
        source=str(path),
        licence=OWN,
        files={path.name: digest},
        note="Columns scaled to [0, 1] by their own minimum and maximum.",
    )
    if suffix in SUFFIXES:
        return dataset_of(large_tables.sheet_of(path) or read_sheet(path), provenance, **options)
    x, y = _read_arrays(path)
    return from_array(x, y, provenance)


class Values(NamedTuple):
    """Numbers of a file as they are.

    Attributes:
        x: (n, d).
        names: Names of the columns of a table, d of them; empty for an array.
        shape: Shape of one record: (d,), or that of an image in an array of higher rank.
    """

    x: np.ndarray
    names: tuple[str, ...]
    shape: tuple[int, ...]


def load_values(path: str | Path, *, finite: bool = True) -> np.ndarray:
    """The numbers of a table or array file as they are, (n, d): not scaled, dtype of an array kept.

    For coordinates and for records that must match them in units.

    Args:
        path: The file.
        finite: Refuse an array with nan or infinite entries; tables always are.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: unreadable or damaged file, not numeric, or not finite.

    Example:
        >>> import tempfile, pandas as pd
        >>> from drjax.data import load_values
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pd.DataFrame({"x": [0.5, 2.0], "y": [1, 3]}).to_csv(f"{folder}/map.csv", index=False)
        ...     values = load_values(f"{folder}/map.csv")
        >>> values
        array([[0.5, 1. ],
               [2. , 3. ]])
    """
    return read_values(path, finite=finite).x


def read_values(path: str | Path, *, finite: bool = True) -> Values:
    """As `load_values`, with the names of a table's columns and the shape of an array's records.

    Example:
        >>> import tempfile, pandas as pd
        >>> from drjax.data import read_values
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pd.DataFrame({"x": [0.5, 2.0], "y": [1, 3]}).to_csv(f"{folder}/map.csv", index=False)
        ...     values = read_values(f"{folder}/map.csv")
        >>> values.names, values.x.shape
        (('x', 'y'), (2, 2))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        raise ValueError(
            f"{path} is a picture, and must be a table or an array of numbers: take the coordinates themselves, or "
            "attack the picture by drjax attack property"
        )
    if suffix in SUFFIXES:
        columns = strict_columns(path)
        x = tables.numeric(str(path), columns, "correct the file, or take the column out")
        return Values(x, tuple(columns), x.shape[1:])
    if suffix not in _ARRAYS:
        raise ValueError(f"{path} must end in one of {', '.join((*SUFFIXES, *_ARRAYS))}, got {suffix!r}")
    x = _read_arrays(path)[0]
    if x.dtype.kind not in "fiub" or x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"{path} must hold a numeric array of rank 2 or more, got {x.dtype} of shape {x.shape}")
    values = x.reshape(len(x), -1)
    if finite:
        validate.finite(**{str(path): values})
    return Values(values, (), x.shape[1:])


def strict_columns(path: str | Path) -> Columns:
    """The columns of a table as they stand in its file; nothing is taken for a title or for totals but in workbooks.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: unreadable or damaged file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    return columns_of(path, path.read_bytes()) if is_table(path) else read_sheet(path).columns


def _read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Records and labels; a large array stays in its file, from which what is looked at is read."""
    is_mapped = path.suffix.lower() == ".npy" and path.stat().st_size >= MAPPED_BYTES
    blob = b"" if is_mapped else path.read_bytes()
    try:
        if is_mapped:
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            loaded = np.load(io.BytesIO(blob), allow_pickle=False)
        arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as error:  # zipfile, zlib, struct and NumPy each raise errors of their own on damage
        if isinstance(error, MemoryError) and _may_hold(error, blob):
            raise
        raise ValueError(
            f"{path} is damaged or holds Python objects: write a numeric array with numpy.save or numpy.savez"
        ) from error
    if "x" in arrays:
        return arrays["x"], arrays.get("y")
    records = [name for name, array in arrays.items() if array.ndim >= 2]
    if len(records) != 1:
        described = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise ValueError(f"{path} must hold the records as an array named x, got {described}: rename it")
    return arrays[records[0]], arrays.get("y")


def _may_hold(error: MemoryError, blob: bytes) -> bool:
    """Whether a file can hold what there is no memory for: the header of a damaged one promises anything."""
    # An attribute of NumPy's own MemoryError; compressed data are at most 1,032 times their size.
    shape, dtype = getattr(error, "shape", (0,)), np.dtype(getattr(error, "dtype", np.uint8))
    return math.prod(shape) * dtype.itemsize <= 1032 * len(blob)


def from_array(x: np.ndarray, y: np.ndarray | None, provenance: Provenance) -> Dataset:
    """The data set of an array (n, ...) and its labels (n,); see `load_file`.

    Raises:
        ValueError: not numeric, empty, not finite, or labels that do not match.
    """
    path = provenance.source
    if x.dtype.kind not in "fiub":
        raise ValueError(f"the records of {path} must be numbers, got dtype {x.dtype}: save a numeric array")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(
            f"the records of {path} must be a non-empty array of shape (records, features) or (records, height, "
            f"width, ...), got shape {x.shape}: reshape it"
        )
    values = x.reshape(len(x), -1)
    finite = np.ones(values.shape[1], bool)
    for _, block in streamed.blocks(values):
        finite &= np.isfinite(block).all(axis=0)
    for column in np.flatnonzero(~finite)[:1]:
        table_cells.require_finite(values[:, column], f"column {column} (counted from 0) of {path}")
    labels, class_names = (None, None) if y is None else _array_labels(y, len(x), path)
    if x.dtype == np.uint8:
        note = "8-bit values scaled by 255."
        records, offset, scale = unit_levels(values)
    elif x.dtype.kind == "b" or (x.dtype.kind == "f" and values.min() >= 0 and values.max() <= 1):
        note = "Values already in [0, 1], kept as they are."
        # A caller may go on to change an array, but no file that is mapped for reading.
        own = values.astype(np.float32, copy=not isinstance(values, np.memmap))
        records, offset, scale = np.asarray(own), np.zeros(values.shape[1]), np.ones(values.shape[1])
    else:
        note = f"{'Columns' if x.ndim == 2 else 'All entries'} scaled to [0, 1] by their own minimum and maximum."
        records, offset, scale = unit_range(values, axis=0 if x.ndim == 2 else None)
    return Dataset(
        name=path,
        x=records,
        y=labels,
        shape=x.shape[1:],
        feature_names=None,
        groups=None,
        provenance=dataclasses.replace(provenance, note=note + duplicates_note(records)),
        offset=offset,
        scale=scale,
        class_names=class_names,
    )


def _array_labels(y: np.ndarray, n: int, path: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    if y.shape != (n,) or y.dtype.kind not in "iubU":
        raise ValueError(
            f"y of {path} must hold {n} integers or strings, one per record, got shape {y.shape} and dtype {y.dtype}"
        )
    return coded(y) if y.dtype.kind == "U" else (y.astype(np.int64), None)

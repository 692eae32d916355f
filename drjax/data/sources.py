"""Loads a data set by its name or path."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from drjax.data import checksums
from drjax.data.catalog import ALIASES, SOURCES, Source, resolve
from drjax.data.dataset import Dataset, Provenance
from drjax.data.downloads import cache_dir, fetch
from drjax.data.files import load_file
from drjax.data.frames import from_memory
from drjax.data.own_table import Stated

__all__ = ["SOURCES", "Dataset", "Provenance", "Summary", "available", "describe", "load"]

DATA_VARIABLE = "DRJAX_DATA"
"""Environment variable that names the data folder."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What is known of a named data set without reading it.

    Attributes:
        name: Name of the data set, a key of `SOURCES`.
        n: Number of records.
        shape: Shape of one record.
        class_names: What the labels 0, 1, ... mean, or None.
        provenance: Provenance, as of a loaded data set; `files` has the known checksums.
        files: Path of each file it is read from, None where the file was not found; empty for the embedded one.
        present: Whether it can be loaded now.
        fetchable: Whether `fetch` can download it.
    """

    name: str
    n: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...] | None
    provenance: Provenance
    files: dict[str, Path | None]
    present: bool
    fetchable: bool


def load(
    records: Any,
    *,
    data_dir: str | Path | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
    schema: Stated = None,
    id: str | None = None,
    download: bool = False,
) -> Dataset:
    """A named data set, or the user's own records, in [0, 1].

    Args:
        records: A key of `SOURCES`, else a table (CSV, Excel, Parquet), an NPY or NPZ file or a folder of images, see
            `drjax.data.files.load_file`. A name wins over a file called like it; a `Path` is never a name. Or an array
            or a DataFrame, see `drjax.data.frames`.
        data_dir: Folder with the named sets' folders. Looked through first, then the one that the environment
            variable DRJAX_DATA names, then the per-user cache that `fetch` fills.
        categorical: Columns of the user's table that are categories, where it is not seen.
        drop: Columns of the user's table to leave out.
        label: Column of the user's table that becomes `y`.
        schema: What is stated of the user's columns: a file that `drjax data plan` wrote, its contents, or the plan of
            another table.
        id: Column of the user's table that records are called by.
        download: Fetch a named set that is not there.

    Returns:
        The whole set, 4 bytes per entry. Files of named sets are verified against their checksums.

    Raises:
        FileNotFoundError: neither a name nor an existing path, or the files of a named set are not there.
        ValueError: a file that differs from its checksum, a table option for a named set, or what
            `load_file` finds wrong with the user's file.
        TypeError: records of another kind.

    Example:
        >>> from drjax.data import load
        >>> load("digits").x.shape
        (1797, 64)
    """
    options: dict[str, Any] = {"categorical": categorical, "drop": drop, "label": label, "schema": schema, "id": id}
    if not isinstance(records, str | Path):
        return from_memory(records, **options)
    if not is_named(records):
        if not Path(records).exists():
            raise FileNotFoundError(
                f"there is no data set, file or folder {str(records)!r}: check the path, or use one of "
                f"{', '.join(SOURCES)}"
            )
        return load_file(records, **options)
    for option, value in options.items():
        if value not in (None, (), []):
            raise ValueError(f"{option} applies to your own tables, and {records} is a named set")
    name, source = resolve(records)
    found = _find(source, data_dir)
    if download and None in found.values():
        fetch(name, data_dir)
        found = _find(source, data_dir)
    blobs: dict[str, bytes] = {}
    for file, path in found.items():
        if path is None:
            raise FileNotFoundError(_how_to_get(name, source, file, data_dir))
        blobs[file] = _read_verified(name, source, path)
    files = {file: checksums.sha256(blob) for file, blob in blobs.items()}
    dataset = source.read(name, blobs, Provenance(source.source, source.licence, files, source.note))
    return dataclasses.replace(dataset, class_names=source.class_names)


def is_named(records: str | Path) -> TypeGuard[str]:
    """Whether `load` takes this for the name of a data set; else it is a path."""
    return not isinstance(records, Path) and ALIASES.get(records, records) in SOURCES


def describe(name: str, *, data_dir: str | Path | None = None) -> Summary:
    """What is known of a named data set, and where its files are; reads none of them.

    Raises:
        ValueError: no data set has this name.

    Example:
        >>> from drjax.data import describe
        >>> digits = describe("digits")
        >>> digits.n, digits.present
        (1797, True)
    """
    name, source = resolve(name)
    found = _find(source, data_dir)
    return Summary(
        name=name,
        n=source.n,
        shape=source.shape,
        class_names=source.class_names,
        provenance=Provenance(source.source, source.licence, dict(source.files), source.note),
        files=found,
        present=None not in found.values(),
        fetchable=source.url is not None,
    )


def available(*, data_dir: str | Path | None = None) -> tuple[Summary, ...]:
    """`describe` of every named data set.

    Example:
        >>> from drjax.data import available
        >>> [summary.name for summary in available() if summary.name == "digits" and summary.present]
        ['digits']
    """
    return tuple(describe(name, data_dir=data_dir) for name in SOURCES)


def _roots(data_dir: str | Path | None) -> list[Path]:
    return [Path(root) for root in (data_dir, os.environ.get(DATA_VARIABLE), cache_dir()) if root]


def _find(source: Source, data_dir: str | Path | None) -> dict[str, Path | None]:
    """Path of each file in the first data folder that has it, None where none has."""
    found: dict[str, Path | None] = {}
    for file in source.files:
        candidates = (root / source.folder / file for root in _roots(data_dir))
        found[file] = next((path for path in candidates if path.is_file()), None)
    return found


def _read_verified(name: str, source: Source, path: Path) -> bytes:
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if not checksums.matches(blob, source.files[path.name]):
        remedy = f"run `drjax data fetch {name}`" if source.url else "put an undamaged copy there"
        raise ValueError(f"{path} is damaged or another version (its checksum differs): delete it and {remedy}")
    return blob


def _how_to_get(name: str, source: Source, file: str, data_dir: str | Path | None) -> str:
    remedy = f"run `drjax data fetch {name}`" if source.url else source.obtain
    searched = ", ".join(str(root) for root in _roots(data_dir))
    return (
        f"data set {name} needs the file {source.folder}/{file}, which is not in {searched}: set --data-dir or "
        f"{DATA_VARIABLE} to the folder that holds {source.folder}/, or: {remedy}"
    )

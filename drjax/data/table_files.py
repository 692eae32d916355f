"""The one reader of table files: from a path, or its bytes, to columns."""

from __future__ import annotations

from pathlib import Path

from drjax.core import validate
from drjax.data import tables
from drjax.data.tables import Columns

SUFFIXES = (".csv", ".tsv", ".parquet")
"""Endings of the files that are tables, in lower case."""


def is_table(path: Path | str) -> bool:
    """Whether a file is taken for a table, by its ending."""
    return Path(path).suffix.lower() in SUFFIXES


def columns_of(path: Path | str, blob: bytes) -> Columns:
    """The columns of a table file that holds `blob`.

    Args:
        path: Where the bytes came from; its ending tells the format.
        blob: What the file holds.

    Raises:
        ValueError: another ending, or not readable.
    """
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": Path(path).suffix.lower()})
    if Path(path).suffix.lower() == ".parquet":
        return tables.read_parquet(str(path), blob)
    return tables.read_csv(str(path), blob)


def read_table(path: Path) -> Columns:
    """The columns of a CSV, TSV or Parquet file.

    Raises:
        ValueError: another ending, not readable, or no record.
        FileNotFoundError: nothing there.
    """
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": path.suffix.lower()})
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    columns = columns_of(path, path.read_bytes())
    if not any(map(len, columns.values())):
        raise ValueError(f"{path} must hold records, got none")
    return columns

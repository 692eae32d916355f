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


def columns_of(path: Path | str, blob: bytes, *, as_text: bool = False) -> Columns:
    """The columns of a table file that holds `blob`.

    Args:
        path: Where the bytes came from; its ending tells the format.
        blob: What the file holds.
        as_text: Take bytes of a CSV file that are no UTF-8 for unknown characters, and an empty line of a table of one
            column for a record, so that one cell refuses no table and does not show in the number of records.

    Raises:
        ValueError: another ending, or not readable.
    """
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": Path(path).suffix.lower()})
    if Path(path).suffix.lower() == ".parquet":
        return tables.read_parquet(str(path), blob)
    text = blob.decode(errors="replace").encode() if as_text else blob
    return tables.read_csv(str(path), text, keep_empty=as_text)


def read_table(path: Path, *, as_text: bool = False) -> Columns:
    """The columns of a CSV, TSV or Parquet file.

    Args:
        path: The file.
        as_text: See `columns_of`.

    Raises:
        ValueError: another ending, not readable, or no record.
        FileNotFoundError: nothing there.
    """
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": path.suffix.lower()})
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    columns = columns_of(path, path.read_bytes(), as_text=as_text)
    if not any(map(len, columns.values())):
        raise ValueError(f"{path} must hold records, got none")
    return columns

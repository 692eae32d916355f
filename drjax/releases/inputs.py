"""Records from the user's files in their units: nothing is scaled by numbers that the records themselves give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drjax.core import json_files
from drjax.data import load_values, stated_cells, table_files, tables
from drjax.data.checksums import sha256
from drjax.data.private_tables import SUFFIXES, read_private
from drjax.data.schema import Schema
from drjax.releases import schema_form


@dataclass(frozen=True, eq=False)
class Table:
    """A file of records.

    Attributes:
        source: The file.
        values: (n, d) float64, as they are in the file; nan for a cell that is no number, of private records alone.
        columns: d names, or None for an array file.
        label: (n,) the column that was asked for as label, or None.
        sha256: SHA-256 of the file's bytes, 64 hexadecimal digits.
        outside: Cells that became another value by what is stated of their columns; None where nothing is.
    """

    source: Path
    values: np.ndarray
    columns: tuple[str, ...] | None
    label: np.ndarray | None
    sha256: str
    outside: int | None = None


def read_table(
    path: Path | str, *, drop: Sequence[str] = (), label: str | None = None, is_private: bool = False
) -> Table:
    """Reads CSV, TSV, Parquet, NPY or NPZ (an array `x`, or the only matrix).

    Args:
        path: The file.
        drop: Columns of a table to leave out.
        label: Column of a table that is no feature.
        is_private: Refuse no record for its values: every cell is read by itself, and is nan where it is no number.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: unreadable or damaged file, not numeric or, unless private, not finite, names that are no columns,
            or `drop` and `label` for an array.
    """
    path = Path(path)
    if not table_files.is_table(path):
        if drop or label is not None:
            raise ValueError(f"drop and label must be left out for an array file, which names no columns, got {path}")
        values = load_values(path, finite=not is_private)
        return Table(path, values.astype(np.float64), None, None, sha256(path.read_bytes()))
    columns = dict(read_private(path) if is_private else table_files.read_table(path))
    unknown = [name for name in (*drop, *(() if label is None else (label,))) if name not in columns]
    if unknown:
        raise ValueError(f"{path} must have the columns that options name, got no {unknown[0]!r} in {_listed(columns)}")
    advice = "write numbers, or leave it out with --drop"
    found = None if label is None else tables.numeric(str(path), {label: columns.pop(label)}, advice)[:, 0]
    kept = {name: column for name, column in columns.items() if name not in drop}
    if not kept:
        raise ValueError(f"{path} must have a column left, got all of {_listed(columns)} dropped")
    if is_private:
        values = np.column_stack([*map(stated_cells.numbers, kept.values())])
    else:
        values = tables.numeric(str(path), kept, advice)
    return Table(path, values, tuple(kept), found, sha256(path.read_bytes()))


def states_more(path: Path, bounds: Path | None) -> bool:
    """Whether a bounds file states more of a private table than a range for every column, as a schema does.

    Raises:
        ValueError: no JSON object.
        OSError: the file cannot be read.
    """
    if bounds is None or path.suffix.lower() not in SUFFIXES:
        return False
    found = json_files.read_object(bounds, "bounds")
    if found.keys() == {"lower", "upper"}:
        return False
    return not all(isinstance(entry, list) and not any(isinstance(v, str) for v in entry) for entry in found.values())


def read_stated_table(path: Path, bounds: Path, drop: Sequence[str] = ()) -> tuple[Table, Schema]:
    """A private table as encoded features by what is stated of its columns, and that.

    Cells that are missing, with no `fill` stated, are nan.

    Raises:
        ValueError: a column of which nothing is stated, or statements that do not fit.
        OSError: a file cannot be read.
    """
    given, layout = schema_form.read_stated(bounds)
    columns = read_private(path, layout)
    schema, rest = schema_form.read_schema(columns, given, drop=tuple(drop))
    if rest:
        raise ValueError(schema_form.refusal(rest))
    values, _ = schema.encode(columns, is_filled=False)
    outside = sum(sum(counts.values()) for counts in schema.outside(columns).values())
    return Table(path, values, schema.feature_names, None, sha256(path.read_bytes()), outside), schema


def read_public_table(path: Path, schema: Schema) -> Table:
    """Public records as encoded features of a schema.

    Raises:
        ValueError: not readable, or a column of the schema that is missing.
        OSError: the file cannot be read.
    """
    values, _ = schema.encode(table_files.read_table(path))
    return Table(path, values, schema.feature_names, None, sha256(path.read_bytes()))


def matched(table: Table, columns: Sequence[str] | None, d: int) -> np.ndarray:
    """The values (n, d) in the order of the columns named; those of other names are left out.

    Args:
        table: Where the values are.
        columns: d names; None where they are not known, and then the order has to be the same.
        d: How many columns are asked for.

    Raises:
        ValueError: a column is missing, or nothing is named and the number of columns differs.
    """
    if table.columns is not None and columns is not None:
        missing = [name for name in columns if name not in table.columns]
        if missing:
            raise ValueError(
                f"{table.source} must have the columns {_listed(columns)}, got no {missing[0]!r}"
                f"{f' and {len(missing) - 1} others' if len(missing) > 1 else ''}"
            )
        return table.values[:, [table.columns.index(name) for name in columns]]
    if table.values.shape[1] != d:
        raise ValueError(f"{table.source} must have {d} columns, got {table.values.shape[1]}")
    return table.values


def _listed(names: Sequence[str] | tables.Columns) -> str:
    some = list(names)
    return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")

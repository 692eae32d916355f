"""A map that somebody made of a table: its coordinates, one row for each record of the table in the same order.

A file is read as a table of records is (`drjax.data.sheets`): a first column that counts the rows is left out, as R and
pandas write it, and columns without names are called by their numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from drjax.core import validate
from drjax.core.types import Array
from drjax.data import table_cells
from drjax.data.dataset import Rows
from drjax.data.files import load_values
from drjax.data.sheets import SUFFIXES, Sheet, read_sheet, sheet_of

# Typed loosely, because its functions are made at import time, where a type checker sees none of them.
pc: Any = pyarrow.compute

MOST_NUMBERS = 0.5
"""Share of cells that are numbers, up to which a column is of names."""


class GivenMap(NamedTuple):
    """Coordinates (n, k), and a sentence for all that was not taken as it stands."""

    coords: np.ndarray
    notes: tuple[str, ...]


def read_map(source: Any, rows: Rows | None = None, *, argument: str = "released") -> GivenMap:
    """The coordinates of a map.

    Args:
        source: Path of a table (CSV, TSV, TXT, Parquet, workbook) or of an array (NPY, NPZ), array or DataFrame.
        rows: What the records are called: a column of text in the map must have the same names in the same order.
        argument: Name of the argument or option that gave the source, for errors.

    Raises:
        ValueError: not there, not readable, not finite numbers, or other names.
    """
    try:
        if isinstance(source, Array):
            return GivenMap(validate.matrix(source, "the map"), ())
        if isinstance(source, str | Path) and Path(source).suffix.lower() not in SUFFIXES:
            return GivenMap(validate.matrix(load_values(source), "the map"), ())
        sheet = read_sheet(source) if isinstance(source, str | Path) else sheet_of(source)
        return _of_sheet(sheet, rows)
    except (ValueError, OSError) as error:
        name = Path(source).name if isinstance(source, str | Path) else ""
        where = f" in {name}" if name and name not in str(error) else ""
        raise ValueError(f"{argument} must hold a map, one row of finite numbers per record{where}: {error}") from error


def _of_sheet(sheet: Sheet, rows: Rows | None) -> GivenMap:
    columns, notes = dict(sheet.columns), list(sheet.notes)
    for name in [name for name, column in columns.items() if _is_of_names(column, name, rows)]:
        cells = table_cells.cell_texts(columns.pop(name))
        if rows is None or rows.ids is None:
            notes.append(f"Column {name!r} of the map holds no numbers and was left out.")
            continue
        at = next((i for i, pair in enumerate(zip(cells, rows.ids, strict=False)) if pair[0] != pair[1]), None)
        if at is not None:
            raise ValueError(
                f"column {name!r} of {sheet.name} must name the records in the order of data, got {cells[at]!r} for "
                f"record {at} (counted from 0), which is {rows.ids[at]!r} in column {rows.named_by!r} of data: bring "
                "both into one order, or take the column out"
            )
        notes.append(f"Column {name!r} of the map names the records, in the order of data, and was left out.")
    if not columns:
        raise ValueError(f"{sheet.name} has no column of numbers")
    numbers = [table_cells.number_column(name, _with_points(column)) for name, column in columns.items()]
    return GivenMap(validate.matrix(np.column_stack(numbers), "the map"), tuple(notes))


def _is_of_names(column: pa.ChunkedArray, name: str, rows: Rows | None) -> bool:
    """Whether a column says whose a row is: it has the name of the column that does so in data, or few of its cells are
    numbers; of others, those that are none are errors."""
    if rows is not None and name == rows.named_by:
        return True
    plain = table_cells.plain(column)
    cells = pc.replace_substring(plain, ",", ".") if table_cells.is_text(plain.type) else plain
    is_number = np.isfinite(table_cells.cell_numbers(cells)) | (table_cells.cell_texts(cells) == "")
    return float(is_number.mean()) <= MOST_NUMBERS


def _with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of text with points for decimal commas, where it then holds numbers."""
    column = table_cells.plain(column)
    if not table_cells.is_text(column.type) or table_cells.holds_numbers(column):
        return column
    found = pc.replace_substring(column, ",", ".")
    return found if table_cells.holds_numbers(found) else column

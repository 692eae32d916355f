"""The records of a data set in the units of their file, where `load` scales them to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.core.types import Array
from drjax.data import table_cells
from drjax.data.dataset import Dataset
from drjax.data.files import Values, load_values, read_values
from drjax.data.frames import values_from_memory
from drjax.data.own_table import Stated
from drjax.data.plan import Plan, planned, read_plan
from drjax.data.sheets import SUFFIXES, Sheet, read_sheet, sheet_of
from drjax.data.sources import is_named

WHOLE = 1e-4
"""Records of named sets and pictures that are all as close as this to whole numbers are taken for these."""


def in_own_units(records: Any, dataset: Dataset) -> np.ndarray:
    """The records of a data set in their own units, (n, d) float64, features in the order of `dataset`.

    Numbers of tables and arrays are as in the file, to the last digit; one-hot columns are 0 and 1. Of a named set or a
    folder of images they are scaled back, from float32.

    Args:
        records: What `load` was given.
        dataset: What it gave back.

    Raises:
        ValueError, OSError: the file cannot be read a second time.
    """
    if dataset.values is not None:
        return dataset.values
    if isinstance(records, Array):
        return np.asarray(records, np.float64).reshape(len(records), -1)
    if is_named(records) or Path(records).is_dir():
        values = dataset.x.astype(np.float64) * dataset.scale + dataset.offset
        whole = np.rint(values)
        return whole if np.abs(values - whole).max() <= WHOLE else values
    return load_values(records).astype(np.float64)


def records_of(*sources: Any, schema: Stated = None) -> tuple[tuple[Values, ...], Plan | None]:
    """Records of one kind in their own units, of files, arrays or DataFrames that belong together.

    Arrays and tables of numbers are taken as they are, none missing. Other tables become numbers by one plan of all of
    them, so that a category of any has its column in each.

    Args:
        *sources: What holds records; the first says which columns there are, if it is a table.
        schema: Statements on columns; see `drjax.data.plan.planned`.

    Returns:
        The records of each source, and the plan if one was needed.

    Raises:
        ValueError: what is wrong with a file, or columns of tables that differ.
        FileNotFoundError: nothing there.
    """
    if schema is None:
        try:
            return tuple(map(_as_they_are, sources)), None
        except ValueError:
            if not all(map(_has_columns, sources)) or _are_numbers(sources):
                raise
    sheets = list(map(_sheet, sources))
    columns = [dict(sheet.columns) for sheet in sheets]
    for one, sheet in zip(columns, sheets, strict=True):
        if set(one) != set(columns[0]):
            differ = sorted(set(one) ^ set(columns[0]))
            raise ValueError(f"{sheet.name} must have the columns of {sheets[0].name}, got another: {differ[0]!r}")
    texts = {name: [table_cells.cell_texts(one[name]) for one in columns] for name in columns[0]}
    together = {name: pa.chunked_array([pa.array(np.concatenate(parts), pa.string())]) for name, parts in texts.items()}
    stated = read_plan(schema) if isinstance(schema, str | Path) else schema
    plan = stated if isinstance(stated, Plan) else planned(together, stated, delimiter=sheets[0].delimiter)
    encoded = [plan.encode(one) for one in columns]
    return tuple(Values(one.values, one.names, one.values.shape[1:]) for one in encoded), plan


def _as_they_are(source: Any) -> Values:
    return read_values(source) if isinstance(source, str | Path) else values_from_memory(source)


def _sheet(source: Any) -> Sheet:
    return read_sheet(source) if isinstance(source, str | Path) else sheet_of(source)


def _are_numbers(sources: Sequence[Any]) -> bool:
    """Whether all columns of all tables are numbers, of which some are missing: nobody asked to fill them in."""
    return all(table_cells.is_numeric_column(cells) for one in sources for cells in _sheet(one).columns.values())


def _has_columns(source: Any) -> bool:
    if isinstance(source, str | Path):
        return Path(source).suffix.lower() in SUFFIXES
    return not isinstance(source, Array)

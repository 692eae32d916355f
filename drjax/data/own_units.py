"""The records of a data set in the units of their file, where `load` scales them to [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drjax.core.types import Array
from drjax.data import files, table_cells, tables
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

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.data import in_own_units
        >>> ages = np.array([[20.0, 1.5], [60.0, 1.8], [40.0, 1.6]])
        >>> in_own_units(ages, drjax.load(ages)).tolist() == ages.tolist()  # not in [0, 1] as `x` is
        True
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


class Records(NamedTuple):
    """Records of several sources.

    Attributes:
        values: Numbers of each source.
        labels: Label column of each source, None for arrays and where it has none.
        plan: The plan that they were read by, if one was needed.
    """

    values: tuple[Values, ...]
    labels: tuple[pa.ChunkedArray | None, ...]
    plan: Plan | None


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

    Example:
        >>> import pandas as pd
        >>> from drjax.data import records_of
        >>> one, other = pd.DataFrame({"age": [20, 60], "sex": ["f", "m"]}), pd.DataFrame({"age": [40], "sex": ["f"]})
        >>> (first, second), plan = records_of(one, other)
        >>> second.x.shape[1] == first.x.shape[1], first.names
        (True, ('age', 'sex=f', 'sex=m'))
    """
    found = labelled_records_of(*sources, schema=schema)
    return found.values, found.plan


def labelled_records_of(
    *sources: Any, schema: Stated = None, label: str | None = None, only_common: bool = False
) -> Records:
    """As `records_of`, with a column of labels that is no feature.

    Args:
        *sources: What holds records.
        schema: Statements on columns.
        label: Column of the labels, of the tables that have it; None without.
        only_common: Whether tables that need a plan may differ: columns that not all of them have are left out.

    Raises:
        ValueError, FileNotFoundError: as `records_of`, a schema for arrays, or no column beside the label.
    """
    if schema is None:
        try:
            read = [_as_they_are(source, label) for source in sources]
            return Records(tuple(values for values, _ in read), tuple(column for _, column in read), None)
        except ValueError:
            if not all(map(_has_columns, sources)) or _are_numbers(sources, label):
                raise
    elif not all(map(_has_columns, sources)):
        raise ValueError(f"schema applies to tables ({', '.join(SUFFIXES)}), and got an array beside: leave it out")
    sheets = list(map(_sheet, sources))
    columns = [dict(sheet.columns) for sheet in sheets]
    labels = tuple(one.pop(label, None) if label is not None else None for one in columns)
    common = [name for name in columns[0] if all(name in one for one in columns)]
    for one, sheet in zip(columns, sheets, strict=True):
        if not only_common and set(one) != set(columns[0]):
            differ = sorted(set(one) ^ set(columns[0]))
            raise ValueError(f"{sheet.name} must have the columns of {sheets[0].name}, got another: {differ[0]!r}")
        if not common:
            raise ValueError(f"{sheet.name} must have columns of {sheets[0].name} beside a label, got none in common")
    texts = {name: [table_cells.cell_texts(one[name]) for one in columns] for name in common}
    together = {name: pa.chunked_array([pa.array(np.concatenate(parts), pa.string())]) for name, parts in texts.items()}
    stated = read_plan(schema) if isinstance(schema, str | Path) else schema
    if isinstance(stated, Mapping):
        # A plan of the whole table has an entry for the label too.
        stated = {name: entry for name, entry in stated.items() if name != label}
    plan = stated if isinstance(stated, Plan) else planned(together, stated, delimiter=sheets[0].delimiter)
    encoded = [plan.encode(one) for one in columns]
    return Records(tuple(Values(one.values, one.names, one.values.shape[1:]) for one in encoded), labels, plan)


def _as_they_are(source: Any, label: str | None) -> tuple[Values, pa.ChunkedArray | None]:
    if label is None or not _has_columns(source):
        return (read_values(source) if isinstance(source, str | Path) else values_from_memory(source)), None
    is_file = isinstance(source, str | Path)
    columns = dict(files.strict_columns(source) if is_file else _sheet(source).columns)
    column = columns.pop(label, None)
    if not columns:
        raise ValueError(f"{source if is_file else 'DataFrame'} must have columns beside its label, got {label} alone")
    x = tables.numeric(str(source) if is_file else "a DataFrame", columns, "write numbers")
    return Values(x, tuple(columns), x.shape[1:]), column


def _sheet(source: Any) -> Sheet:
    return read_sheet(source) if isinstance(source, str | Path) else sheet_of(source)


def _are_numbers(sources: Sequence[Any], label: str | None) -> bool:
    """Whether all columns of all tables are numbers, of which some are missing: nobody asked to fill them in."""
    return all(
        table_cells.is_numeric_column(cells)
        for one in sources
        for name, cells in _sheet(one).columns.items()
        if name != label
    )


def _has_columns(source: Any) -> bool:
    if isinstance(source, str | Path):
        return Path(source).suffix.lower() in SUFFIXES
    return not isinstance(source, Array)

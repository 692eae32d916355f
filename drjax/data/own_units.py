"""The records of a data set in the units of their file, where `load` scales them to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drjax.core.types import Array
from drjax.data import table_cells, tables
from drjax.data.dataset import Dataset
from drjax.data.files import load_values
from drjax.data.frames import arrow_of
from drjax.data.sources import is_named
from drjax.data.table_files import is_table, read_table
from drjax.data.tables import Columns

WHOLE = 1e-4
"""Records of named sets and pictures that are all as close as this to whole numbers are taken for these."""


def in_own_units(
    records: Any,
    dataset: Dataset,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
) -> np.ndarray:
    """The records of a data set in their own units, (n, d) float64, features in the order of `dataset`.

    Numbers of tables and arrays are as in the file, to the last digit; one-hot columns are 0 and 1. Of a named set or a
    folder of images they are scaled back, from float32.

    Args:
        records: What `load` was given.
        dataset: What it gave back.
        categorical: Columns of a table that were one-hot encoded.
        drop: Columns of a table that were left out.
        label: Column of a table that became `y`.

    Raises:
        ValueError, OSError: the file cannot be read a second time.
    """
    if isinstance(records, Array):
        return np.asarray(records, np.float64).reshape(len(records), -1)
    if not isinstance(records, str | Path):
        table = arrow_of(records)
        return _of_table({name: table[name] for name in table.column_names}, categorical, (*drop, label))
    if is_named(records) or Path(records).is_dir():
        values = dataset.x.astype(np.float64) * dataset.scale + dataset.offset
        whole = np.rint(values)
        return whole if np.abs(values - whole).max() <= WHOLE else values
    if is_table(records):
        return _of_table(read_table(Path(records)), categorical, (*drop, label))
    return load_values(records).astype(np.float64)


def _of_table(columns: Columns, categorical: Sequence[str], left_out: Sequence[str | None]) -> np.ndarray:
    blocks = [
        tables.encode({name: column}, [name]).x.astype(np.float64)
        if name in categorical
        else table_cells.number_column(name, column)[:, None]
        for name, column in columns.items()
        if name not in left_out
    ]
    return np.concatenate(blocks, axis=1)

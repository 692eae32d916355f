"""Columns that are numbers by their type: what `drjax.data.kinds` finds of them, without a text for each cell.

A million different numbers as texts take ten seconds and 500 MB a column.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from drjax.data import cell_quantities, table_cells
from drjax.data.kinds import MOST_CATEGORIES, PlannedColumn


def column_of(name: str, column: pa.ChunkedArray) -> PlannedColumn | None:
    """The plan of a column of which nothing is stated, as `kinds.column_of` makes it; None where that looks at texts.

    Fractions in more values than a category may have are numbers, whatever the column is called.
    """
    column = table_cells.plain(column)
    if not pa.types.is_floating(column.type) or len(column) <= MOST_CATEGORIES or column.null_count:
        return None
    values = table_cells.cell_numbers(column)
    different = np.unique(values)
    if not np.isfinite(values).all() or len(different) <= MOST_CATEGORIES or (different == np.rint(different)).all():
        return None
    found = cell_quantities.found(column, (), np.zeros(0), None, delimiter=None)
    assert found is not None
    reason = found.reason + cell_quantities.sentinel_of(values)
    return PlannedColumn(name=name, kind="number", reason=reason, unit=found.unit, format=found.format)


def values_of(planned: PlannedColumn, column: pa.ChunkedArray) -> np.ndarray | None:
    """The cells (n,) of a column of numbers, nan where they are missing; None where texts say what they are."""
    column = table_cells.plain(column)
    is_number = planned.kind == "number" and not (planned.categories or planned.missing or planned.censored)
    if not is_number or not table_cells.is_number_type(column.type):
        return None
    values = table_cells.cell_numbers(column)
    return np.where(np.isfinite(values), values, np.nan)

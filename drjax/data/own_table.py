"""Somebody's own table as a data set: its columns by their plan, as numbers in [0, 1] and in their own units."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.data import large_tables, table_cells, tables
from drjax.data.dataset import Dataset, Provenance, Rows, duplicates_note, unit_range
from drjax.data.plan import Plan, planned, read_plan, validate_names
from drjax.data.sheet_lines import noun_of
from drjax.data.sheets import Sheet

Stated = Plan | Mapping[str, Any] | str | Path | None
"""A plan, what is stated of columns, or a file of that."""

OPTIONS = ("categorical", "drop", "label", "schema", "id")
"""Arguments of `load` for somebody's own table: fields of what is configured."""

MOST_FEATURES = 5000
"""Features that a table may have as numbers."""


def dataset_of(
    sheet: Sheet,
    provenance: Provenance,
    *,
    schema: Stated = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
    id: str | None = None,
) -> Dataset:
    """The data set of a table.

    Args:
        sheet: The table, as it stands in its file.
        provenance: Where it comes from.
        schema: Plan of another table that this one is read by, what is stated of columns, or a file of that; see
            `drjax.data.plan.planned`.
        categorical: Columns that are categories.
        drop: Columns to leave out.
        label: Column that becomes `y`, and no feature.
        id: Column that records are called by; the first that tells them apart if None.

    Raises:
        ValueError: names that are no columns, or one with two uses; a plan that does not fit; no feature left.
    """
    columns = sheet.columns
    uses = _uses(columns, categorical=categorical, drop=drop, label=label, id=id)
    y, class_names = None, None
    if label is not None:
        check_labels_known(sheet, label, columns[label])
        y, class_names = tables.label_column(label, columns[label])
        columns = _without(columns, label)
    if len(sheet.lines) < 2:
        raise ValueError(f"{sheet.name} must hold at least two records, got {len(sheet.lines)}: add others")
    if isinstance(schema, Plan):
        plan = schema
    else:
        stated = dict(read_plan(schema) if isinstance(schema, str | Path) else schema or {})
        if label is not None:
            stated.pop(label, None)
        plan = planned(columns, stated | uses, delimiter=sheet.delimiter)
    is_large = isinstance(columns, large_tables.LargeColumns)
    encoded = large_tables.encode(plan, columns) if is_large else plan.encode(columns)
    if encoded.values.shape[1] > MOST_FEATURES:
        most = max(plan.used, key=lambda column: len(column.categories))
        raise ValueError(
            f"{sheet.name} must have at most {MOST_FEATURES:,} features as numbers, got {encoded.values.shape[1]:,}, "
            f"most of them of {most.name!r}: leave columns out with --drop"
        )
    x, offset, scale = (large_tables.unit_range if is_large else unit_range)(encoded.values)
    named = id if id is not None else next((column.name for column in plan.ids if column.name in columns), None)
    ids = None if named is None else tuple(str(text) for text in table_cells.cell_texts(columns[named]))
    return Dataset(
        name=sheet.name,
        x=x,
        y=y,
        shape=(x.shape[1],),
        feature_names=encoded.names,
        groups=None,
        provenance=dataclasses.replace(provenance, note=provenance.note + duplicates_note(x)),
        offset=offset,
        scale=scale,
        class_names=class_names,
        plan=plan,
        sources=encoded.sources,
        values=encoded.values,
        rows=Rows(named, ids, np.asarray(sheet.lines, np.int64), sheet.counted),
        notes=sheet.notes,
    )


def _without(columns: table_cells.Columns, name: str) -> table_cells.Columns:
    if isinstance(columns, large_tables.LargeColumns):
        return columns.without(name)
    return {other: cells for other, cells in columns.items() if other != name}


def check_labels_known(sheet: Sheet, label: str, column: pa.ChunkedArray) -> None:
    """Raises ValueError where some cells of a label column are empty, with the line of the first."""
    missing = np.flatnonzero(table_cells.cell_texts(column) == "")
    if 0 < len(missing) < len(column):
        noun, rest = noun_of(sheet.counted)
        where = f"{noun} {sheet.lines[missing[0]]:,}{rest}"
        raise ValueError(
            f"column {label!r}, the label, must be known of every record, but {len(missing):,} of its cells in "
            f"{sheet.name} are missing, the first in {where}: fill them in, or leave out those records"
        )


def _uses(
    columns: table_cells.Columns,
    *,
    categorical: Sequence[str],
    drop: Sequence[str],
    label: str | None,
    id: str | None,
) -> dict[str, str]:
    """Kinds by column of what the options name, checked."""
    found: dict[str, tuple[str, str]] = {}
    options = (
        ("categorical", "category", categorical),
        ("drop", "drop", drop),
        ("label", "label", [label]),
        ("id", "id", [id]),
    )
    for option, kind, names in options:
        given = [name for name in names if name is not None]
        validate_names(given, columns, what=option)
        for name in given:
            if name in found:
                raise ValueError(f"column {name!r} is named in {found[name][0]} and in {option}: name it once")
            found[name] = (option, kind)
    return {name: kind for name, (option, kind) in found.items() if option != "label"}

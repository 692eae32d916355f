"""A form on the columns of a private table: what an audit takes them for, as a draft that a person states or changes.

    form = drafted(path, sheet, plan, known)    # {"age": {"stated": null, "draft": {...}, "seen": {...}}, ...}

Nothing in it is stated: a draft and what was seen come from private records and count for nothing
(`drjax.data.schema_sources.stated`). A draft is what to copy to "stated" once every null in it is replaced by what is
known without the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.data import cell_dates, kinds, private_tables, stated_cells, table_cells
from drjax.data.kinds import LEFT_OUT, PlannedColumn
from drjax.data.plan import Plan
from drjax.data.private_tables import FILE, Layout
from drjax.data.schema import Schema
from drjax.data.schema_sources import DRAFT, DROP, HALF, SEEN, STATED
from drjax.data.sheets import Sheet

MOST_SHOWN = 60
"""Values of a private column that a form lists."""

MOST_COMPARED = 1000
"""Records by which the columns of a file are told."""


def drafted(path: Path, sheet: Sheet, plan: Plan, known: Schema, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    """The form: an entry on the layout of the file where it needs one, and one for each column.

    Args:
        path: The file.
        sheet: Table of the file, as an audit reads it.
        plan: Plan by which an audit reads it.
        known: Columns that are stated or public already.
        drop: Columns that a person leaves out.

    Raises:
        ValueError: a column of the name of the entry on the layout.
    """
    if FILE in sheet.columns:
        raise ValueError(f"no column may be called {FILE!r}, as a form has an entry of that name: give it another")
    form: dict[str, Any] = {}
    layout = None if path.suffix.lower() == ".parquet" else _layout(path, sheet)
    names = list(sheet.columns)
    if layout:
        form[FILE] = {STATED: None, DRAFT: layout, SEEN: {"records": len(sheet.lines), "notes": list(sheet.notes)}}
        names = list(layout.get("names", names))
    stated = known.to_json()
    for name in names:
        if name in drop:
            form[name] = DROP
        elif name in stated:
            form[name] = stated[name]
        elif name not in sheet.columns:
            form[name] = {STATED: None, DRAFT: DROP, SEEN: {"kind": "left out by an audit"}}
        else:
            column = plan.of(name)
            form[name] = {
                STATED: None,
                DRAFT: _draft(column, sheet.columns[name]),
                SEEN: seen(column, sheet.columns[name]),
            }
    return form


def _draft(column: PlannedColumn, cells: pa.ChunkedArray) -> Any:
    """What to state of a column: constants, the kind and the format, and null for all that is not known."""
    if column.kind in ("id", *LEFT_OUT):
        return DROP
    if column.kind in ("category", "yes/no") or (column.kind == "ordinal" and column.categories):
        found: dict[str, Any] = {"kind": column.kind, "categories": None, "fill": None}
        return found | ({"scale": HALF} if column.kind == "ordinal" else {})
    found = {"kind": column.kind, "lower": None, "upper": None, "fill": None, "scale": HALF}
    if column.kind in stated_cells.USUAL:
        return {"kind": column.kind, "format": column.format or stated_cells.USUAL[column.kind]} | found
    known = _known(column, cells)
    is_whole = bool(len(known)) and bool(np.all(known == np.rint(known)))
    found["kind"] = "integer" if is_whole else "number"
    if column.format in stated_cells.NUMBER_FORMATS:
        found["format"] = column.format
    return found | ({"missing": list(column.missing)} if column.missing else {})


def seen(column: PlannedColumn, cells: pa.ChunkedArray) -> dict[str, Any]:
    """What a private column holds, in words that no release takes for bounds."""
    found: dict[str, Any] = {"kind": column.kind, "why": column.reason}
    texts = table_cells.cell_texts(cells)
    if column.kind in ("id", "text"):
        return found | {"different values": len(np.unique(texts.astype(object)))}
    if column.kind in ("constant", "empty", "drop"):
        return found
    if column.kind == "category" or column.categories:
        values = [str(text) for text in np.unique(texts.astype(object)) if str(text)]
        missing = int((texts == "").sum())
        found |= {"missing": missing} if missing else {}
        if column.kind != "category":
            values = list(column.categories)
        return found | ({"values": values} if len(values) <= MOST_SHOWN else {"different values": len(values)})
    known = _known(column, cells)
    missing = len(texts) - len(known)
    found |= {"missing": missing} if missing else {}
    ends = [float(known.min()), float(known.max())] if len(known) else []
    if column.kind in stated_cells.USUAL:
        return found | dict(
            zip(("least", "largest"), (cell_dates.written(end, column.kind) for end in ends), strict=False)
        )
    return found | dict(zip(("least", "largest"), ends, strict=False))


def _known(column: PlannedColumn, cells: pa.ChunkedArray) -> np.ndarray:
    values = kinds.numbers_of(column, cells).values
    return values[np.isfinite(values)]


def _layout(path: Path, sheet: Sheet) -> dict[str, Any]:
    """What to state of the layout, so that a release reads the records that an audit does; empty if nothing."""
    stated: dict[str, Any] = {}
    blob = path.read_bytes()
    if not any(blob.startswith(mark) for mark in private_tables.MARKS):
        try:
            blob.decode()
        except UnicodeDecodeError:
            stated["encoding"] = "cp1252"
    if stated == {} and _reads(path, sheet, Layout()):
        return {}
    for quotes in private_tables.QUOTES:
        found: dict[str, Any] = stated | ({} if quotes == "paired" else {"quotes": quotes})
        try:
            if _reads(path, sheet, Layout(**found)):
                return found
            return _located(path, sheet, found)
        except ValueError:
            # Quotes that are not closed.
            continue
    return stated


def _reads(path: Path, sheet: Sheet, layout: Layout) -> bool:
    """Whether a layout gives the columns of a sheet, and as many records."""
    try:
        columns = private_tables.read_private(path, layout)
    except ValueError:
        return False
    return list(columns) == list(sheet.columns) and len(next(iter(columns.values()))) == len(sheet.lines)


def _located(path: Path, sheet: Sheet, stated: Mapping[str, Any]) -> dict[str, Any]:
    """First line, names, separator and lines below, by the places of the sheet's records."""
    first = int(sheet.lines[0])
    found: dict[str, Any] = {**stated, "first_line": first}
    if sheet.delimiter in tuple(private_tables.SEPARATORS):
        found["separator"] = sheet.delimiter
    layout = private_tables.layout_of(found | {"names": ["unknown"]})
    _, rows = private_tables.records_of(path, layout)
    records = dict(rows)
    below = [line for line, cells in records.items() if line > sheet.lines[-1] and cells != [""]]
    shared = [(i, int(line)) for i, line in enumerate(sheet.lines[:MOST_COMPARED]) if int(line) in records]
    width = max(len(records[line]) for _, line in shared)
    sheets = [(name, table_cells.cell_texts(cells.slice(0, MOST_COMPARED))) for name, cells in sheet.columns.items()]
    names: list[str] = []
    for j in range(width):
        texts = [(i, records[line][j] if j < len(records[line]) else "") for i, line in shared]
        is_next = bool(sheets) and all(sheets[0][1][i] == text for i, text in texts)
        names.append(sheets.pop(0)[0] if is_next else f"column {j + 1}")
    return found | {"names": names} | ({"lines_below": len(below)} if below else {})

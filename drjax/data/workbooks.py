"""Workbooks (Excel, OpenDocument) as rows of cells."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from drjax.data import sheet_texts
from drjax.data.sheet_lines import SHEET_ROW, Grid, filled

_OLE = b"\xd0\xcf\x11\xe0"

COVER = 0.1
"""Share of the largest sheet's area below which a first sheet is passed over, as a cover."""


def of_workbook(name: str, blob: bytes) -> Grid:
    """The rows of the first sheet of a workbook that holds records; hidden ones come last, covers are passed over.

    Raises:
        ValueError: nothing in it, damaged, protected, or the package that reads it is missing.
    """
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise ValueError(
            f"{name} needs a package to be read: pip install python-calamine, or save the sheet as CSV"
        ) from error
    if not blob:
        raise ValueError(f"{name} is empty: save the sheet again")
    protected = f"{name} is protected by a password: save it without one, or save the sheet as CSV"
    if blob.startswith(_OLE) and "EncryptedPackage".encode("utf-16-le") in blob:
        raise ValueError(protected)
    try:
        book = calamine.load_workbook(io.BytesIO(blob))
        kinds = book.sheets_metadata
        order = sorted(range(len(kinds)), key=lambda i: kinds[i].visible != calamine.SheetVisibleEnum.Visible)
        order = [i for i in order if kinds[i].typ == calamine.SheetTypeEnum.WorkSheet]
        sheets = _first_of_records([sheet for sheet in map(book.get_sheet_by_index, order) if sheet.height])
        hidden = {one.name for one in kinds if one.visible != calamine.SheetVisibleEnum.Visible}
        rows = [[_cell(cell) for cell in row] for row in sheets[0].to_python(skip_empty_area=False)] if sheets else []
        merged = getattr(sheets[0], "merged_cell_ranges", None) if sheets else None
    except calamine.PasswordError as error:
        raise ValueError(protected) from error
    except calamine.CalamineError as error:
        if (
            b"\0" not in blob
            and not blob.lstrip().startswith(b"<")
            and sheet_texts.separator_of(sheet_texts.decoded(name, blob)[0])
        ):
            grid = sheet_texts.of_text(name, blob)
            return grid._replace(notes=["The file is no workbook but text, and was read as such.", *grid.notes])
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name} is no workbook or a damaged one ({reason}): open and save it again, or save the sheet as CSV"
        ) from error
    if not any(map(filled, rows)):
        raise ValueError(f"{name} is empty: none of its sheets holds a cell")
    notes = []
    if len(sheets) > 1:
        others = ", ".join(f"{sheet.name!r}{' (hidden)' * (sheet.name in hidden)}" for sheet in sheets[1:])
        way_out = "to read another, move it to the front and delete or hide these, or save it as CSV"
        notes.append(f"Sheet {sheets[0].name!r} was read, but not {others}: {way_out}.")
    merged_into = _fill_merged(rows, merged or [])
    return Grid(rows, list(range(1, len(rows) + 1)), SHEET_ROW, notes, None, merged_into)


def _first_of_records(sheets: list[Any]) -> list[Any]:
    """The sheets with the one to read in front: the first that is no cover beside the others."""
    areas = [sheet.height * sheet.width for sheet in sheets]
    at = next((i for i, area in enumerate(areas) if area >= COVER * max(areas)), None)
    return sheets if not at else [sheets[at], *sheets[:at], *sheets[at + 1 :]]


def _cell(cell: Any) -> Any:
    return cell.strip() if isinstance(cell, str) else cell


def _fill_merged(rows: list[list[Any]], ranges: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> frozenset[int]:
    """Writes the value of merged cells into all of them; the rows, counted from 1, that got some.

    Cells that lie in one row are filled above and in the first full row only, where they are names of groups, unless
    they span the table as a title does.
    """
    width = max(map(len, rows))
    counts = [len(filled(row)) for row in rows[:50]]
    top, found = counts.index(max(counts)), set()
    for (first, left), (last, right) in ranges:
        if (first == last and (first > top or right - left + 1 >= width)) or first >= len(rows):
            continue
        for i in range(first, min(last + 1, len(rows))):
            for j in range(left, min(right + 1, len(rows[i]))):
                if rows[i][j] == "" and rows[first][left] != "":
                    rows[i][j] = rows[first][left]
                    found.add(i + 1)
    return frozenset(found)

"""Text files and workbooks as rows of cells, before anyone says which row is the header."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drjax.data import table_cells
from drjax.data.kind_words import MISSING

SEPARATORS = ",;\t|"

LINE, SHEET_ROW, ROW = "line", "row of the sheet", "row"
"""What the places of records count: lines of a text, rows of a sheet, or rows from 0."""

_BINARY = (
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file or a protected one", "name it .xls, or save it without a password"),
    (b"PAR1", "a Parquet file", "name it .parquet"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"%PDF", "a PDF file", "export the table as CSV"),
    (b"\x89HDF", "an HDF5 file", "export the table as CSV"),
    (b"SQLite format 3", "an SQLite database", "export the table as CSV"),
)
"""First bytes of files that are no text, what these are, and the way out."""

_OLE = b"\xd0\xcf\x11\xe0"
_BREAK = re.compile(r"\r\n|\r|\n")
_SAMPLE, _SAMPLE_RECORDS = 2**18, 200
_END = "\x1eend of text"

_DATE = re.compile(
    r"^(\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, \d{4})"
    r"([ T]\d{1,2}:\d\d\S*)?$|^\d{1,2}:\d\d(:\d\d)?$"
)
_NUMBER = re.compile(r"^[<>≤≥~]?=?\s*[€$£]?\s*[+\-−]?(\d[\d.,' \u00a0\u202f]*|[.,]\d+)([eE][+-]?\d+)?\s*[%‰€$£]?$")
_LEAST_OF_KIND = 0.8


class Grid(NamedTuple):
    """Rows of cells as they stand.

    Attributes:
        rows: Cells without surrounding space; "" where empty.
        lines: Where each row begins, counted from 1.
        counted: `LINE` or `SHEET_ROW`.
        notes: What was read otherwise than it stands.
        delimiter: Of a text; None if it has one column, or is no text.
        merged_into: Rows of a sheet that got cells from merged ones.
    """

    rows: list[list[Any]]
    lines: list[int]
    counted: str
    notes: list[str]
    delimiter: str | None = None
    merged_into: frozenset[int] = frozenset()


def of_text(name: str, blob: bytes) -> Grid:
    """The rows of a text with separators, in whichever of UTF-8, UTF-16 and Windows-1252 it is.

    Raises:
        ValueError: nothing in it, no text, or quotes that do not close.
    """
    for first, what, way_out in _BINARY:
        if blob.startswith(first):
            if first == b"PK\x03\x04" and b"xl/" in blob:
                what, way_out = "an Excel file", "name it .xlsx"
            elif first == b"PK\x03\x04" and b"opendocument.spreadsheet" in blob[:200]:
                what, way_out = "an OpenDocument file", "name it .ods"
            raise ValueError(f"{name} is no text but {what}: {way_out}")
    text, notes = _decoded(name, blob)
    if not text.strip():
        raise ValueError(f"{name} is empty: write a first line that names the columns, then one record per line")
    if "\0" in text:
        line = len(_BREAK.findall(text[: text.index("\0")])) + 1
        raise ValueError(f"line {line:,} of {name} holds a NUL byte, so it is damaged or no text: export it again")
    stated = re.match(r'\s*"?sep=([^"\r\n])"?[ \t,;]*(?:\r\n|\r|\n)', text, re.IGNORECASE)
    start = 0
    if stated:
        start = len(_BREAK.findall(stated[0]))
        text = text[stated.end() :]
    delimiter = stated[1] if stated else _separator(text)
    rows, lines, said = _records(name, text, delimiter or "\x1f", start)
    return Grid(rows, lines, LINE, notes + said, delimiter)


def of_workbook(name: str, blob: bytes) -> Grid:
    """The rows of the first sheet of a workbook that holds something; hidden sheets come last.

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
        sheets = [sheet for sheet in map(book.get_sheet_by_index, order) if sheet.height]
        rows = [[_cell(cell) for cell in row] for row in sheets[0].to_python(skip_empty_area=False)] if sheets else []
        merged = getattr(sheets[0], "merged_cell_ranges", None) if sheets else None
    except calamine.PasswordError as error:
        raise ValueError(protected) from error
    except calamine.CalamineError as error:
        if b"\0" not in blob and not blob.lstrip().startswith(b"<") and _separator(_decoded(name, blob)[0]):
            grid = of_text(name, blob)
            return grid._replace(notes=["The file is no workbook but text, and was read as such.", *grid.notes])
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name} is no workbook or a damaged one ({reason}): open and save it again, or save the sheet as CSV"
        ) from error
    if not any(map(filled, rows)):
        raise ValueError(f"{name} is empty: none of its sheets holds a cell")
    notes = []
    if len(sheets) > 1:
        others = ", ".join(repr(sheet.name) for sheet in sheets[1:])
        notes.append(f"Sheet {sheets[0].name!r} was read, but not {others}.")
    merged_into = _fill_merged(rows, merged or [])
    return Grid(rows, list(range(1, len(rows) + 1)), SHEET_ROW, notes, None, merged_into)


def typed_column(cells: Sequence[Any]) -> pa.ChunkedArray:
    """Cells of Python objects as a column: of their type if it is one, else of text; missing where None or ""."""
    there = [None if cell is None or cell == "" or cell != cell else cell for cell in cells]
    types = {type(cell) for cell in there if cell is not None}
    if types == {bool}:
        kind = pa.bool_()
    elif types and types <= {int, float}:
        is_whole = all(cell is None or (abs(cell) < 2**53 and cell == int(cell)) for cell in there)
        kind = pa.int64() if is_whole else pa.float64()
        there = [None if cell is None else int(cell) if is_whole else float(cell) for cell in there]
    elif types and types <= {datetime.date, datetime.datetime}:
        kind = pa.timestamp("us")
        there = [datetime.datetime(*cell.timetuple()[:3]) if type(cell) is datetime.date else cell for cell in there]
    elif types and types <= {datetime.time, datetime.timedelta} and all(map(_is_of_a_day, there)):
        kind = pa.time64("us")
        there = [
            (datetime.datetime.min + cell).time() if isinstance(cell, datetime.timedelta) else cell for cell in there
        ]
    else:
        return text_column([None if cell is None else text_of(cell) for cell in there])
    return pa.chunked_array([pa.array(there, kind)])


def text_column(cells: Sequence[str | None]) -> pa.ChunkedArray:
    """Cells of text as a column; missing where None or ""."""
    return pa.chunked_array([pa.array([cell or None for cell in cells], pa.string())])


def text_of(cell: Any) -> str:
    """A cell as text: whole numbers without decimals, dates without a time where it is midnight."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, int | float):
        return table_cells.number_text(float(cell)) if abs(cell) < 2**53 else str(cell)
    if isinstance(cell, datetime.datetime):
        return str(cell.date() if cell.time() == datetime.time() else cell)
    if isinstance(cell, datetime.timedelta):
        minutes, seconds = divmod(round(cell.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    return str(cell).strip()


def filled(row: Sequence[Any]) -> list[Any]:
    """The cells of a row that are not empty."""
    return [cell for cell in row if cell != ""]


def width_of(rows: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Cells that most rows have, and how many these are; above 2 the larger number if there are as many of another."""
    lengths = Counter(map(len, rows))
    return max(lengths.items(), key=lambda item: (item[1], item[0] > 2, item[0]), default=(1, 0))


def kind_of(cell: Any) -> str:
    """What a cell is: "number", "date", "text", or "" where it stands for a missing one."""
    if isinstance(cell, bool | int | float):
        return "number"
    if not isinstance(cell, str):
        return "date"
    # Natrium is a name.
    if cell.lower() in MISSING and cell != "Na":
        return ""
    if _DATE.match(cell):
        return "date"
    return "number" if _NUMBER.match(cell) else "text"


def kind_of_column(rows: Sequence[Sequence[Any]], at: int) -> str:
    """What most cells of a column are, as `kind_of` says it; "text" if they are mixed."""
    kinds = Counter(kind_of(row[at]) for row in rows if at < len(row))
    del kinds[""]
    if not kinds:
        return ""
    kind, times = kinds.most_common(1)[0]
    return kind if times >= _LEAST_OF_KIND * kinds.total() else "text"


def number_of(cell: Any, *, comma: bool) -> float:
    """The number in a cell, whose decimals stand behind a comma or a point; nan if it is none."""
    if isinstance(cell, int | float):
        return float(cell)
    text = str(cell).strip("<>%‰€$£ ")
    text = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return np.nan


def shape_of(cell: Any) -> str:
    """A text with every number and word as one sign."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", str(cell)))


def sums_up(cell: Any, above: Sequence[Any], *, comma: bool) -> bool:
    """Whether a cell is the sum, the mean or the number of those above, as exactly as it is written."""
    total = number_of(cell, comma=comma)
    numbers = np.array([number_of(one, comma=comma) for one in above])
    numbers = numbers[~np.isnan(numbers)]
    mean = numbers.mean() if len(numbers) else np.nan
    decimals = len(str(cell).rpartition("," if comma else ".")[2]) if ("," if comma else ".") in str(cell) else 0
    within = 0.51 * 10.0**-decimals + 1e-9 * abs(total)
    return any(abs(total - one) <= within for one in (numbers.sum(), mean, len(filled(above))))


def noun_of(places: str) -> tuple[str, str]:
    """ "row" and " of the sheet"."""
    noun, gap, rest = places.partition(" ")
    return noun, gap + rest


def listed(places: str, lines: Sequence[int], one: str, many: str) -> str:
    """A sentence on lines that are all named."""
    noun, rest = noun_of(places)
    if len(lines) == 1:
        return f"{noun.capitalize()} {lines[0]:,}{rest} {one}."
    shown = [f"{line:,}" for line in lines]
    if len(lines) > 2 and lines[-1] - lines[0] == len(lines) - 1:
        return f"{noun.capitalize()}s {shown[0]} to {shown[-1]}{rest} {many}."
    return f"{noun.capitalize()}s {', '.join(shown[:-1])} and {shown[-1]}{rest} {many}."


def counted(places: str, lines: Sequence[int], one: str, many: str, end: str = "") -> str:
    """A sentence on lines of which the first is named."""
    noun, rest = noun_of(places)
    if len(lines) == 1:
        return f"{noun.capitalize()} {lines[0]:,}{rest} {one}{end}."
    return f"{len(lines):,} {noun}s{rest} {many}, the first is {noun} {lines[0]:,}{end}."


def _decoded(name: str, blob: bytes) -> tuple[str, list[str]]:
    """Text and notes."""
    if blob.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return blob.decode("utf-16"), []
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} begins as UTF-16 but is damaged ({error.reason}): save it as UTF-8") from error
    try:
        return blob.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = len(_BREAK.findall(blob[: error.start].decode("latin-1"))) + 1
        note = f"The file is no UTF-8 and was read as Windows-1252; the first line that shows it is line {line:,}."
        return blob.decode("cp1252", errors="replace"), [note]


def _separator(text: str) -> str | None:
    """The separator that gives the same number of cells, above 1, on most lines; None if there is one column."""
    sample = text[:_SAMPLE]
    if len(text) > _SAMPLE:
        sample = sample[: max(sample.rfind("\n"), sample.rfind("\r")) + 1] or sample
    best, found = (), None
    for separator in SEPARATORS:
        rows = [row for row in _sampled(sample, separator) if row]
        cells, times = width_of(rows)
        if cells < 2 or times * 2 < len(rows):
            continue
        first = next(i for i, row in enumerate(rows) if len(row) == cells)
        # Decimal commas below one name are of one column.
        decimals = len(re.findall(r"(?:^|[\r\n])[+-]?\d+,\d+(?=[\r\n]|$)", sample))
        if first and cells == 2 and separator == "," and decimals >= times * 0.9:
            continue
        # A separator that only occurs in cells is missing in the header above them.
        score = (-first, round(times / len(rows), 2), separator in ";\t", cells)
        if found is None or score > best:
            best, found = score, separator
    return found


def _sampled(text: str, separator: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    try:
        yield from itertools.islice(rows, _SAMPLE_RECORDS)
    except csv.Error:
        # `_records` says which cell is too long.
        return


def _records(name: str, text: str, separator: str, start: int) -> tuple[list[list[str]], list[int], list[str]]:
    """Rows, their lines, which are `start` below those of the text, and notes."""
    first: tuple[int, int, str] | None = None
    for escape, is_last in ((None, False), ("\\", False), (None, True)):
        if escape and '\\"' not in text:
            continue
        # Without strictness only a last line of our own tells whether all quotes are closed.
        lines_of = io.StringIO(f"{text.rstrip()}\n{_END}" if is_last else text, newline="")
        reader = csv.reader(lines_of, delimiter=separator, escapechar=escape, skipinitialspace=True, strict=not is_last)
        rows, lines, at = [], [], 0
        try:
            for row in reader:
                rows.append([cell.strip() for cell in row])
                lines.append(at + 1 + start)
                at = reader.line_num
        except csv.Error as error:
            first = first or (at + 1 + start, reader.line_num + start, str(error))
            continue
        if is_last and rows.pop() != [_END.strip()]:
            break
        notes = []
        if first is not None:
            what = "the quotes of the file were read as they stand" if is_last else "\\ was read as the sign before it"
            notes.append(f"Line {first[1]:,} has a quote inside a cell that is not written twice, so {what}.")
        return rows, lines[: len(rows)], notes
    assert first is not None
    begins, ends, reason = first
    raise ValueError(
        f"the record that begins in line {begins:,} of {name} cannot be split into cells up to line {ends:,} "
        f"({reason}): close each quote, and write one inside a quoted cell twice"
    )


def _cell(cell: Any) -> Any:
    return cell.strip() if isinstance(cell, str) else cell


def _is_of_a_day(cell: Any) -> bool:
    day = datetime.timedelta(days=1)
    return not isinstance(cell, datetime.timedelta) or datetime.timedelta() <= cell < day


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

"""Rows of cells before anyone says which is the header: what cells are, and sentences on lines."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drjax.data import table_cells
from drjax.data.kind_words import MISSING

LINE, SHEET_ROW, ROW = "line", "row of the sheet", "row"
"""What the places of records count: lines of a text, rows of a sheet, or rows from 0."""

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


def sums_up(cell: Any, above: Sequence[Any], *, comma: bool, is_named: bool = False) -> bool:
    """Whether a cell is the sum, the mean or the number of those above, as exactly as it is written.

    Args:
        cell: The cell.
        above: Cells of its column.
        comma: Whether decimals stand behind a comma.
        is_named: Whether its line says which statistic it is: then median, deviation, least and greatest count too.
    """
    total = number_of(cell, comma=comma)
    numbers = np.array([number_of(one, comma=comma) for one in above])
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return total == len(filled(above))
    decimals = len(str(cell).rpartition("," if comma else ".")[2]) if ("," if comma else ".") in str(cell) else 0
    within = 0.51 * 10.0**-decimals + 1e-9 * abs(total)
    statistics = [numbers.sum(), numbers.mean(), len(filled(above))]
    if is_named:
        statistics += [np.median(numbers), numbers.std(), numbers.min(), numbers.max()]
        statistics += [numbers.std(ddof=1)] if len(numbers) > 1 else []
    return any(abs(total - one) <= within for one in statistics)


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


def _is_of_a_day(cell: Any) -> bool:
    day = datetime.timedelta(days=1)
    return not isinstance(cell, datetime.timedelta) or datetime.timedelta() <= cell < day

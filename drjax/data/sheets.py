"""Tables as spreadsheets and hospitals export them: files and frames to columns, with the lines they come from.

    sheet = read_sheet("ward 3.csv")    # also .tsv .txt .parquet .xlsx .xls .ods
    sheet.columns["Na"]                 # text of a CSV file, else typed
    sheet.notes                         # "Line 1 stands above the header and was left out.", ...

It looks at private cells to tell header, totals and footnotes from records: it is for an audit, which stays with the
owner. What is published under a guarantee is read by `drjax.data.private_tables`, which guesses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import sheet_lines, sheet_texts, sheet_totals, tables, workbooks
from drjax.data.arrow import arrow_of
from drjax.data.sheet_lines import Grid, counted, filled, kind_of, listed
from drjax.data.table_cells import Columns

TEXTS, WORKBOOKS = (".csv", ".tsv", ".txt"), (".xlsx", ".xls", ".ods")

SUFFIXES = (*TEXTS, ".parquet", *WORKBOOKS)
"""Endings of the files that can be read, in lower case."""

MOST_SHORT = 0.05
"""Largest share of records with fewer cells than the header; one record always may."""

_SAMPLE = 200

_UNDERLINE = re.compile(r"^[:=+|_\-]{2,}$")


@dataclass(frozen=True)
class Sheet:
    """A table as it stands in a file: cells and the lines they come from.

    Attributes:
        name: Path of the file, or "DataFrame".
        columns: By name. Text without surrounding space for text files, where an empty cell is missing; numbers,
            logical values, times and text for Parquet, workbooks and frames.
        lines: (n,) int64, where each record begins: the line of the file, or the row of the sheet, counted from 1, the
            header included; the row counted from 0 for Parquet and frames.
        counted: What `lines` counts: "line", "row of the sheet" or "row".
        notes: A sentence for all that was read otherwise than it stands.
        delimiter: Of a text file; None if it has one column, and for all others.
    """

    name: str
    columns: Columns
    lines: np.ndarray
    counted: str
    notes: tuple[str, ...]
    delimiter: str | None


def read_sheet(path: str | Path) -> Sheet:
    """The table in a file; its header, totals and footnotes are found by its cells.

    Args:
        path: The file; its ending, one of `SUFFIXES`, tells the format.

    Raises:
        ValueError: another ending, damaged, no record, or lines that do not fit the header.
        FileNotFoundError: nothing there.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": suffix})
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    name, blob = str(path), path.read_bytes()
    if suffix == ".parquet":
        return _typed(name, tables.read_parquet(name, blob))
    grid = workbooks.of_workbook(name, blob) if suffix in WORKBOOKS else sheet_texts.of_text(name, blob)
    return _Table(name, grid).sheet()


def sheet_of(frame: Any) -> Sheet:
    """The table in a DataFrame of pandas, polars or whatever else narwhals knows; cells of mixed types become text.

    Raises:
        ValueError: two columns of one name, no column, or no record.
        TypeError: no DataFrame that is in memory.
    """
    try:
        table = arrow_of(frame)
    except (TypeError, pa.ArrowException) as error:
        # Arrow has no column for objects of mixed types.
        given = nw.from_native(frame, eager_only=True, pass_through=True)
        if not isinstance(given, nw.DataFrame):
            raise
        columns = {}
        for name in given.columns:
            is_missing = given[name].is_null().to_list()
            cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in given[name].to_list()]
            pairs = zip(cells, is_missing, strict=True)
            columns[str(name)] = sheet_lines.typed_column([None if missing else cell for cell, missing in pairs])
        if len(columns) < len(given.columns):
            raise ValueError("DataFrame has two columns of one name: give each column its own name") from error
        return _typed("DataFrame", columns)
    return _typed("DataFrame", dict(zip(table.column_names, table.columns, strict=True)))


def _typed(name: str, columns: Columns) -> Sheet:
    if not any(map(len, columns.values())):
        raise ValueError(f"{name} must hold records, got none: add at least one")
    return Sheet(name, columns, np.arange(len(next(iter(columns.values())))), sheet_lines.ROW, (), None)


class _Table:
    """The rows of a file while it is told which are header, records and neither."""

    def __init__(self, name: str, grid: Grid) -> None:
        self.name, self.grid = name, grid
        self.rows, self.lines, self.notes = grid.rows, grid.lines, list(grid.notes)
        self.header: list[str] = []

    def sheet(self) -> Sheet:
        """The table of the records."""
        while self.rows and not self.rows[-1]:
            self.rows.pop()
        if not any(map(filled, self.rows)):
            raise ValueError(f"{self.name} is empty: write a header, then one record per line")
        self.lines = self.lines[: len(self.rows)]
        self._skip_above()
        self._take_header()
        if not self.rows:
            raise ValueError(f"{self.name} has a header but no records: add at least one line below it")
        self._drop_below()
        self._even_out()
        columns = self._columns()
        if not self.rows or not columns:
            raise ValueError(f"{self.name} must hold records, got none: add at least one line below the header")
        return Sheet(
            name=self.name,
            columns=columns,
            lines=np.array(self.lines, np.int64),
            counted=self.grid.counted,
            notes=tuple(self.notes),
            delimiter=self.grid.delimiter,
        )

    def _skip_above(self) -> None:
        """Leaves out titles and empty lines above the header."""
        width = sheet_lines.width_of(list(islice(filter(filled, self.rows), 5 * _SAMPLE)))[0]
        end = len(self.rows) - 1
        above = 0
        while above < end and _is_title(self.rows[above], self.rows[above + 1], width):
            above += 1
        # A sheet of one column has a cell in every row.
        if all(len(filled(row)) < 2 for row in self.rows[above:]) and width > 2:
            above = next(i for i, row in enumerate(self.rows) if filled(row))
        stands = "stands above the header and was left out", "stand above the header and were left out"
        self._leave_out(range(above), listed, *stands)

    def _take_header(self) -> None:
        """Takes the lines of the header off, and leaves out empty ones and those that repeat it."""
        empty = [i for i, row in enumerate(self.rows) if not filled(row)]
        self._leave_out(empty, counted, "holds nothing and was left out", "hold nothing and were left out")
        if len(self.rows) > 2 and all(_UNDERLINE.match(str(cell)) for cell in filled(self.rows[1])):
            only = "only underlines the header and was left out"
            self._leave_out([1], listed, only, only)
        first, sample = self.rows[0], self.rows[1 : _SAMPLE + 1]
        if _is_record(first, sample):
            self.notes.append("No line names the columns, so they are called column 1, column 2 and so on.")
            width = sheet_lines.width_of(self.rows[:_SAMPLE])[0]
            self.header = [f"column {i + 1}" for i in range(width)]
            return
        told = {j for j in range(len(first)) if sheet_lines.kind_of_column(sample, j) in ("number", "date")}
        again = [i for i, row in enumerate(self.rows) if i and len(first) > 1 and _repeats(first, row, told)]
        self._leave_out(again, counted, "repeats the header and was left out", "repeat the header and were left out")
        header, used = [_name(cell) for cell in first], 1
        while used < min(3, len(self.rows)) and _is_header_too(self.rows[used : used + 1 + _SAMPLE]):
            header = _joined(header, [_name(cell) for cell in self.rows[used]], may_group=used == 1)
            used += 1
        if used > 1:
            self.notes.append(listed(self.grid.counted, self.lines[:used], "", "name the columns together"))
        self.header = header
        self.rows, self.lines = self.rows[used:], self.lines[used:]
        got = "got cells from merged ones above or beside"
        self._note(counted, [line for line in self.lines if line in self.grid.merged_into], got, got)

    def _drop_below(self) -> None:
        """Leaves out totals and footnotes behind the last record."""
        width, end = max(len(self.header), len(self.rows[0])), len(self.rows)
        totals, footnotes = [], []
        while end > 1:
            if sheet_totals.is_footnote(self.rows, self.header, end - 1, width):
                footnotes.insert(0, self.lines[end - 1])
            elif sheet_totals.is_total(self.rows, end - 1, width):
                totals.insert(0, self.lines[end - 1])
            else:
                break
            end -= 1
        self.rows, self.lines = self.rows[:end], self.lines[:end]
        for lines, what in ((totals, "totals"), (footnotes, "a footnote" if len(footnotes) == 1 else "footnotes")):
            left_out = f"holds {what} and was left out", f"hold {what} and were left out"
            self._note(listed, lines, *left_out)
        within = [self.lines[i] for i in sheet_totals.named_within(self.rows)]
        one = "begins with a word for totals and was read as a record: take it out of the file if it is none"
        many = "begin with a word for totals and were read as records: take them out of the file if they are none"
        self._note(listed, within, one, many)

    def _even_out(self) -> None:
        """Gives every record as many cells as the header has.

        Raises:
            ValueError: records with more cells, or too many with fewer.
        """
        lengths = np.array([len(row) for row in self.rows])
        while self.header and not self.header[-1] and lengths.max() < len(self.header):
            self.header.pop()
        if (lengths == len(self.header) + 1).all() and any(row[-1] != "" for row in self.rows):
            if not _are_names([row[0] for row in self.rows]):
                way_out = "name every column, and put numbers with decimal commas in quotes"
                raise ValueError(f"{self._of_length(0, len(self.header))}: {way_out}")
            self.header.insert(0, "row")
            self.notes.append("The header has one name less than the lines have cells: the first column is called row.")
        width = len(self.header)
        for i in np.flatnonzero(lengths > width).tolist():
            if filled(self.rows[i][width:]):
                quotes = f"put cells that contain {self.grid.delimiter!r} in quotes, or name every column"
                raise ValueError(f"{self._of_length(i, width)}: {quotes}")
            self.rows[i] = self.rows[i][:width]
        short = np.flatnonzero(lengths < width).tolist()
        if len(short) > max(1, MOST_SHORT * len(lengths)):
            more = f" and {len(short) - 1:,} more have too few as well"
            is_tail = short == list(range(len(lengths) - len(short), len(lengths)))
            other = ", or take another table that begins there out of the file" * (is_tail and short[0] > 0)
            raise ValueError(f"{self._of_length(short[0], width)},{more}: write empty cells too{other}")
        for i in short:
            self.rows[i] = [*self.rows[i], *[""] * (width - len(self.rows[i]))]
        fewer, end = "fewer cells than the header", ": what is missing was taken for empty"
        self._note(counted, [self.lines[i] for i in short], f"has {fewer}", f"have {fewer}", end)

    def _columns(self) -> Columns:
        """The cells by name."""
        convert = sheet_lines.text_column if self.grid.counted == sheet_lines.LINE else sheet_lines.typed_column
        columns: dict[str, pa.ChunkedArray] = {}
        empty, unnamed, repeated = [], [], []
        for j, (name, cells) in enumerate(zip(self.header, zip(*self.rows, strict=True), strict=True)):
            if j == 0 and name in ("", "Unnamed: 0") and _is_index(cells):
                self.notes.append("Column 1 only counts the records and was left out.")
                continue
            if not name and not filled(cells):
                empty.append(j + 1)
                continue
            if not name:
                name = f"column {j + 1}"
                unnamed.append(j + 1)
            if name in columns:
                times = 2
                while f"{name} ({times})" in columns or f"{name} ({times})" in self.header:
                    times += 1
                name = f"{name} ({times})"
                repeated.append(repr(name))
            columns[name] = convert(cells)
        self._say_merged(columns)
        left_out = "has neither name nor cells and was left out", "have neither name nor cells and were left out"
        numbered = "has no name and is called by its number", "have no name and are called by their numbers"
        for which, (one, many) in ((empty, left_out), (unnamed, numbered)):
            if which:
                self.notes.append(listed("column", which, one, many))
        if repeated:
            some = ", ".join(repeated[:5]) + (" and so on" if len(repeated) > 5 else "")
            self.notes.append(f"Names of columns repeat, so there {'is' if len(repeated) == 1 else 'are'} {some}.")
        return columns

    def _say_merged(self, columns: Columns) -> None:
        """Says which columns on the left look like merged cells, of which a text file keeps the first."""
        for name, column in columns.items():
            cells = column.to_pylist()
            at = [i for i, cell in enumerate(cells) if cell is not None]
            texts = {cells[i] for i in at}
            is_text = all(isinstance(text, str) and kind_of(text) == "text" for text in texts)
            if len(at) < 2 or at[0] or len(at) * 2 > len(cells) or len(texts) < len(at) or not is_text:
                return
            noun, rest = sheet_lines.noun_of(self.grid.counted)
            self.notes.append(
                f"Column {name!r} has a cell in {len(at):,} of {len(cells):,} records only, the first of them in "
                f"{noun} {self.lines[0]:,}{rest}, as merged cells have: write it into every {noun} if it holds for all "
                "below."
            )

    def _leave_out(self, at: Sequence[int], say: Callable[..., str], one: str, many: str) -> None:
        out = set(at)
        self._note(say, [self.lines[i] for i in at], one, many)
        if out:
            self.rows = [row for i, row in enumerate(self.rows) if i not in out]
            self.lines = [line for i, line in enumerate(self.lines) if i not in out]

    def _note(self, say: Callable[..., str], lines: Sequence[int], *parts: str) -> None:
        if lines:
            self.notes.append(say(self.grid.counted, lines, *parts))

    def _of_length(self, at: int, width: int) -> str:
        noun, rest = sheet_lines.noun_of(self.grid.counted)
        n = len(self.rows[at])
        has = f"{n:,} cell{'s' * (n != 1)}, but the header names {width:,} column{'s' * (width != 1)}"
        return f"{noun} {self.lines[at]:,}{rest} of {self.name} has {has}"


def _is_title(row: Sequence[Any], below: Sequence[Any], width: int) -> bool:
    """Whether a line above another is empty, a title, or a word with its value, as in "Exported by: Ward 3"."""
    cells = filled(row)
    if len(cells) < 2 and (width > 2 or not cells):
        return True
    if width == 2:
        # The header of a table whose lines have names in R has one cell as well.
        return len(row) == 1 and not {"number", "date"} & {kind_of(cell) for cell in below}
    return width > 4 and (len(row) == 2 or (len(cells) == 2 and str(cells[0]).endswith(":")))


def _is_record(first: Sequence[Any], sample: Sequence[Sequence[Any]]) -> bool:
    """Whether the first line is no header: its cells are of the kinds of those below."""
    kinds = [(kind_of(cell), sheet_lines.kind_of_column(sample, j)) for j, cell in enumerate(first)]
    pairs = [(one, below) for one, below in kinds if one and below not in ("", "text")]
    numbers = [
        sheet_lines.number_of(cell, comma=False)
        for cell, (kind, _) in zip(first, kinds, strict=True)
        if kind == "number"
    ]
    # pandas names the columns of an array 0, 1, 2, ...; years and wavelengths keep a step too.
    steps = {round(float(step), 6) for step in np.diff(numbers)}
    is_from_zero = numbers[:1] == [0] and steps == {1} and len(numbers) == len(filled(first))
    is_header = is_from_zero or (len(steps) == 1 and steps != {0} and len(numbers) > 4)
    return bool(pairs) and all(one == below for one, below in pairs) and not is_header and len(pairs) * 2 >= len(first)


def _is_header_too(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether the first of the lines is of the header: it has text, and no number, where those below have some."""
    row, *below = rows
    kinds = [kind_of(cell) for cell in row]
    if len(below) < 2 or "number" in kinds or "date" in kinds:
        return False
    # One more line of the header may follow.
    records = below[1:] if len(below) > 2 else below
    among = [j for j in range(len(row)) if sheet_lines.kind_of_column(records, j) in ("number", "date")]
    named = [str(row[j]) for j in among if kinds[j] == "text"]
    # A record may say "refused" in many columns.
    is_word = len(set(named)) == 1 and named[0].isalpha() and len(named[0]) > 4
    return len(named) >= 2 and len(named) * 2 >= len(among) and not is_word


def _joined(upper: Sequence[str], lower: Sequence[str], *, may_group: bool) -> list[str]:
    """Names of two lines: "Lab Na" below groups, else "weight [kg]"."""
    n = max(len(upper), len(lower))
    pairs = list(zip(*([*line, *[""] * (n - len(line))] for line in (upper, lower)), strict=True))
    is_repeated = any(one[0] and one[0] == next_[0] and one[1] != next_[1] for one, next_ in pairwise(pairs))
    if not may_group or not (is_repeated or any(below and not above for above, below in pairs)):
        return [f"{above} [{below.strip('[]() ')}]" if below and below != above else above for above, below in pairs]
    names, group = [], ""
    for above, below in pairs:
        if above:
            # A name that stands over nothing, or over itself, is that of a column.
            group = above if below not in ("", above) else ""
        names.append(f"{group} {below}".strip() if group and below else below or above)
    return names


def _repeats(header: Sequence[Any], row: Sequence[Any], told: Set[int]) -> bool:
    """Whether a line is the header, or has most of its names, one of them above numbers."""
    if row == header:
        return True
    equal = {j for j, (name, cell) in enumerate(zip(header, row, strict=False)) if name == cell != ""}
    return len(equal) > 1 and len(equal) * 2 >= len(header) and bool(equal & told)


def _name(cell: Any) -> str:
    return " ".join(sheet_lines.text_of(cell).split())


def _are_names(cells: Sequence[Any]) -> bool:
    """Whether cells may be names of rows as R writes them: all different, and numbers in their order only."""
    if len(set(cells)) < len(cells):
        return False
    numbers = [sheet_lines.number_of(cell, comma=False) for cell in cells]
    return bool(np.isnan(numbers).any() or (np.diff(numbers) > 0).all())


def _is_index(cells: Sequence[Any]) -> bool:
    texts = [sheet_lines.text_of(cell) for cell in cells]
    return any(texts == [str(i + start) for i in range(len(texts))] for start in (0, 1))

"""The reader of private tables that something is published of: no cell changes how another record is read.

The reader of an audit (`drjax.data.sheets`) finds titles, header, totals and footnotes by the cells, all of them. Here
the layout of the file decides, and nothing else: a byte order mark, the line of the header, and what a person states
(`Layout`) where these do not suffice. Decided by the layout:

- Lines above the first record, and a stated number below the last one, are left out. Every other line is a record: a
  header that comes again, a total that is not stated, a line of blanks. Only an empty line is none, in a table of two
  columns or more.
- The separator is the one that the header holds most of, or the stated one.
- A record with more cells than names loses those behind, one with fewer gets missing ones: its own row alone.
- Bytes that are no text are unknown characters, in their own cell.
- Quotes are those of a program that writes CSV files: a quoted cell may hold separators and ends of lines, and a quote
  in it comes twice. A quote that is not closed would swallow the records that follow, so that it is refused, by its
  line; where a file has such quotes, state "quotes": "line": every line is a record then, and an open quote ends with
  it.
- Sheets of workbooks are refused: their last row is the last that is not empty, so that one record may change how many
  there are.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from drjax.core import validate
from drjax.data import tables
from drjax.data.sheets import TEXTS, WORKBOOKS
from drjax.data.tables import Columns

FILE = "(file)"
"""Key of a form's entry on the layout; no column may be called so."""

SUFFIXES = (*TEXTS, ".parquet")
"""Endings of the files that can be read, in lower case."""

SEPARATORS = ",;\t|"
QUOTES = ("paired", "line")

_BREAK = re.compile(rb"\r\n|\r|\n")
_OPENS = re.compile(rb' *"')

_SHIFTS = re.compile("iso2022|hz|utf-7|unicode-escape|raw-unicode-escape|punycode")
"""Names of encodings in which some bytes say how those behind them are read, beyond the end of a line."""

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Byte order marks, and the encoding that each tells."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the records of a text file stand, as a person states it; the defaults suffice for most files.

    Attributes:
        first_line: Line of the first record, counted from 1; None where the first line that is not empty names the
            columns, and records follow.
        names: Names of all columns of the file in their order; those of the line above the first record if None.
        separator: One of `SEPARATORS`; the one that the names hold most of if None.
        encoding: Encoding of a file without a byte order mark, one that Python knows; none with shift sequences
            (ISO-2022, HZ, UTF-7) or escapes, in which one cell may change how the next ones are read.
        lines_below: Lines below the last record that are none, such as totals and footnotes; empty ones do not count.
        quotes: "paired" where a program wrote the quotes, or "line" where every line is a record whatever it holds.
    """

    first_line: int | None = None
    names: tuple[str, ...] | None = None
    separator: str | None = None
    encoding: str = "utf-8"
    lines_below: int = 0
    quotes: str = "paired"

    def __post_init__(self) -> None:
        """Checks every field."""
        if self.first_line is not None:
            validate.integer(minimum=1 if self.names else 2, **{f"first_line of {FILE!r}": self.first_line})
        elif self.names is not None:
            raise ValueError(f"first_line of {FILE!r} must be stated with names, got none")
        if self.names is not None and (not all(self.names) or len(set(self.names)) < max(1, len(self.names))):
            raise ValueError(f"names of {FILE!r} must be different texts, at least one, got {self.names!r:.80}")
        if self.separator is not None:
            validate.one_of(SEPARATORS, **{f"separator of {FILE!r}": self.separator})
        try:
            b"a".decode(self.encoding, errors="replace")
        except (LookupError, TypeError, UnicodeError) as error:
            raise ValueError(f"encoding of {FILE!r} must be one that Python knows, got {self.encoding!r}") from error
        if _SHIFTS.match(codecs.lookup(self.encoding).name):
            raise ValueError(
                f"encoding of {FILE!r} must be one that Python knows and in which no cell decides how others are read, "
                f"got {self.encoding!r}: save the file as UTF-8"
            )
        validate.integer(minimum=0, **{f"lines_below of {FILE!r}": self.lines_below})
        validate.one_of(QUOTES, **{f"quotes of {FILE!r}": self.quotes})


def layout_of(stated: Any) -> Layout:
    """The layout of an object with fields of `Layout`.

    Raises:
        ValueError: no such object, or a field out of its range.
    """
    known = {field.name for field in fields(Layout)}
    if not isinstance(stated, Mapping) or not set(stated) <= known:
        raise ValueError(f"{FILE!r} must be an object with some of {', '.join(sorted(known))}, got {stated!r:.80}")
    names = stated.get("names")
    if names is not None and not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"names of {FILE!r} must be a list of texts, got {names!r:.80}")
    given: dict[str, Any] = {**stated, "names": None if names is None else tuple(names)}
    return Layout(**given)


def read_private(path: Path, layout: Layout = Layout()) -> Columns:
    """The columns of a private table, text of a CSV file; no value of a record refuses it but an unpaired quote.

    Args:
        path: The file; its ending, one of `SUFFIXES`, tells the format.
        layout: Layout of a text file.

    Raises:
        ValueError: another ending, a layout that does not fit, a header that is none, an unpaired quote, or no record.
        FileNotFoundError: nothing there.
    """
    suffix = path.suffix.lower()
    if suffix in WORKBOOKS:
        raise ValueError(
            f"{path} must be a text or Parquet file to be released: of a sheet, the last row that is not empty is the "
            "last, so that one record could change how many there are; save the sheet as CSV"
        )
    validate.one_of(SUFFIXES, **{f"the suffix of {path}": suffix})
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    blob = path.read_bytes()
    if suffix == ".parquet":
        if layout != Layout():
            raise ValueError(f"{FILE!r} must be left out for a Parquet file, which has no layout, got one for {path}")
        columns = tables.read_parquet(str(path), blob)
    else:
        columns = _columns(str(path), *_parts(str(path), blob, layout), layout)
    if not any(map(len, columns.values())):
        raise ValueError(f"{path} must hold records, got none")
    return columns


def records_of(path: Path, layout: Layout) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Names of the columns of a text file, and its records: the line of each, counted from 1, and its cells."""
    names, separator, body, first = _parts(str(path), path.read_bytes(), layout)
    rows = _rows(str(path), body, separator, first, is_by_line=layout.quotes == "line")
    return names, ((line, [cell.decode(errors="replace").strip() for cell in row]) for line, row in rows)


def _parts(name: str, blob: bytes, layout: Layout) -> tuple[list[str], bytes, bytes, int]:
    """Names of the columns, the separator, the lines of the records as UTF-8, and the number of the first one."""
    text = _as_utf8(blob, layout.encoding)
    if not text.strip():
        raise ValueError(f"{name} is empty: write a first line that names the columns, then one record per line")
    if layout.first_line is None:
        body = text.lstrip(b"\r\n")
        skipped = len(_BREAK.findall(text[: len(text) - len(body)]))
        head, *rest = _BREAK.split(body, maxsplit=1)
        first = skipped + 2
    else:
        lines = _BREAK.split(text, maxsplit=layout.first_line - 1)
        if len(lines) < layout.first_line:
            raise ValueError(f"first_line of {FILE!r} must be a line of {name}, got {layout.first_line}")
        *above, last = lines
        head, rest, first = above[-1] if above else b"", [last], layout.first_line
    separator = (layout.separator or max(SEPARATORS, key=lambda one: head.count(one.encode()))).encode()
    if layout.names is not None:
        names = list(layout.names)
    else:
        (_, cells), *_ = [*_rows(name, head, separator, first - 1, is_by_line=True)] or [(0, [b""])]
        names = [" ".join(cell.decode(errors="replace").split()) for cell in cells]
        tables.check_header(name, names)
    body = rest[0] if rest else b""
    for _ in range(layout.lines_below):
        body = body.rstrip()
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    return names, separator, body, first


def _as_utf8(blob: bytes, encoding: str) -> bytes:
    """The text of a file, unknown characters where bytes are none."""
    mark, known = next(((mark, known) for mark, known in MARKS.items() if blob.startswith(mark)), (b"", encoding))
    return blob[len(mark) :].decode(known, errors="replace").encode(errors="replace")


def _columns(name: str, names: Sequence[str], separator: bytes, body: bytes, first: int, layout: Layout) -> Columns:
    """The columns of the records."""
    if b'"' not in body:
        found = _by_arrow(names, separator, body)
        if found is not None:
            return found
    columns: list[list[bytes]] = [[] for _ in names]
    for _, row in _rows(name, body, separator, first, is_by_line=layout.quotes == "line"):
        if row != [b""] or len(names) == 1:
            for column, cell in zip(columns, [*row, *[b""] * len(names)], strict=False):
                column.append(cell)
    return {one: pa.chunked_array([pa.array(cells, pa.string())]) for one, cells in zip(names, columns, strict=True)}


def _by_arrow(names: Sequence[str], separator: bytes, body: bytes) -> Columns | None:
    """The same of lines without a quote, in less time and memory; None where they differ in length, or there is none.

    Every line is split at its separators, whatever the others hold: as `_rows` does.
    """
    parse = pyarrow.csv.ParseOptions(delimiter=separator.decode(), quote_char=False, ignore_empty_lines=len(names) > 1)
    # One block, because a cell that lies in more than two is an error.
    read = pyarrow.csv.ReadOptions(
        column_names=list(names), use_threads=False, block_size=min(max(2**20, len(body)), 2**31 - 1)
    )
    as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(body), read_options=read, parse_options=parse, convert_options=as_text)
    except pa.ArrowException:
        return None
    return dict(zip(names, table.columns, strict=True))


def _rows(
    name: str, body: bytes, separator: bytes, first: int, *, is_by_line: bool
) -> Iterator[tuple[int, list[bytes]]]:
    """Lines and cells of the records.

    Args:
        name: The file, for messages.
        body: Lines of the records.
        separator: One character.
        first: Line of the first record.
        is_by_line: Whether a quoted cell ends with its line; else one that does not end is refused.
    """
    ends = re.compile(re.escape(separator) + rb"|\r\n|\r|\n")
    at, line = 0, first
    while at < len(body):
        row, begins, is_open = [], line, True
        while is_open:
            cell, at, is_quoted = _quoted(body, at, is_by_line=is_by_line)
            end = ends.search(body, at)
            rest = body[at : end.start() if end else len(body)]
            if cell is None or (is_quoted and not is_by_line and rest.strip()):
                raise ValueError(
                    f"the record that begins in line {begins:,} of {name} has a quote that is not closed, or closed "
                    "within a cell, and could hide those that follow: write a quote in a cell twice, or state "
                    f'"quotes": "line" under "{FILE}" of the bounds, where every line is a record'
                )
            line += len(_BREAK.findall(cell)) if is_quoted else 0
            row.append(cell + rest)
            at = end.end() if end else len(body)
            is_open = end is not None and end[0] == separator
        line += 1
        yield begins, row


def _quoted(body: bytes, at: int, *, is_by_line: bool) -> tuple[bytes | None, int, bool]:
    """What is quoted at a place, the place behind it, and whether anything is; None where the quote is not closed."""
    start = _OPENS.match(body, at)
    if start is None:
        return b"", at, False
    stop = len(body)
    if is_by_line:
        found = _BREAK.search(body, at)
        stop = found.start() if found else stop
    cell, at = b"", start.end()
    while True:
        end = body.find(b'"', at, stop)
        if end < 0:
            return (cell + body[at:stop], stop, True) if is_by_line else (None, at, True)
        cell += body[at:end]
        if body[end + 1 : end + 2] != b'"':
            return cell, end + 1, True
        cell, at = cell + b'"', end + 2

"""Text files with separators as rows of cells."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

from drjax.data import separators
from drjax.data.sheet_lines import LINE, Grid, width_of

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

_BREAK = re.compile(r"\r\n|\r|\n")
_SAMPLE, _SAMPLE_RECORDS = 2**18, 200
_END = "\x1eend of text"
_MARKED, _FORMULA = re.compile(r"^'[\d+=@.\-][^']*$"), re.compile(r'^="[^"]*"$')


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
    text, notes = decoded(name, blob)
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
    quote = "'" if _are_quoted_by_apostrophes(text) else '"'
    delimiter = stated[1] if stated else separator_of(text, quote)
    if delimiter is None:
        # Every quote stands as it is in lines that are split later, or hold one column.
        split = separators.rows_of([line.strip() for line in _lines_of_one_cell(text)])
        if split is not None:
            rows, delimiter, note = split
            lines = list(range(start + 1, start + 1 + len(rows)))
            return Grid(*_without_marks(rows, [*notes, note], lines), delimiter)
    rows, lines, said = _records(name, text, delimiter or "\x1f", start, quote)
    if quote == "'":
        said.append("Cells are quoted by apostrophes.")
    return Grid(*_without_marks(rows, notes + said, lines), delimiter)


def _lines_of_one_cell(text: str) -> list[str]:
    """Lines without the quotes around the whole of them; none where a quote holds several lines."""
    lines = _BREAK.split(text.rstrip())
    if not all(line.count('"') % 2 == 0 for line in lines):
        return []
    found = []
    for line in lines:
        whole = re.fullmatch(r'\s*"((?:[^"]|"")*)"\s*', line)
        found.append(whole[1].replace('""', '"') if whole else line)
    return found


def _are_quoted_by_apostrophes(text: str) -> bool:
    lines = [line.strip() for line in _BREAK.split(text[:_SAMPLE])[:_SAMPLE_RECORDS] if line.strip()]
    return len(lines) > 1 and all(len(line) > 4 and line[0] == line[-1] == "'" for line in lines[:-1])


def _without_marks(
    rows: list[list[str]], notes: list[str], lines: list[int]
) -> tuple[list[list[str]], list[int], str, list[str]]:
    """The first entries of a `Grid`: cells without the signs by which spreadsheets keep a number as text."""
    times = 0
    for row in rows:
        for j, cell in enumerate(row):
            if cell[:1] == "'" and _MARKED.match(cell):
                row[j] = cell[1:]
            elif cell[:2] == '="' and _FORMULA.match(cell):
                row[j] = cell[2:-1]
            else:
                continue
            times += 1
    if times:
        one, many = "cell begins with an apostrophe or is a formula", "cells begin with an apostrophe or are formulas"
        notes = [*notes, f"{times:,} {one if times == 1 else many} of a text, which was left out."]
    return rows, lines, LINE, notes


def decoded(name: str, blob: bytes) -> tuple[str, list[str]]:
    """Text and notes."""
    if blob.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return blob.decode("utf-32", errors="replace"), []
    if blob.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return blob.decode("utf-16"), []
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} begins as UTF-16 but is damaged ({error.reason}): save it as UTF-8") from error
    for encoding, zero, other in (("utf-16-le", 1, 0), ("utf-16-be", 0, 1)):
        if len(blob) > 3 and blob[zero:1000:2].count(0) * 2 > len(blob[zero:1000:2]) and 0 not in blob[other:1000:2]:
            note = "No mark tells the encoding; the file was read as UTF-16."
            return blob.decode(encoding, errors="replace"), [note]
    try:
        return blob.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = len(_BREAK.findall(blob[: error.start].decode("latin-1"))) + 1
        note = f"The file is no UTF-8 and was read as Windows-1252; the first line that shows it is line {line:,}."
        return blob.decode("cp1252", errors="replace"), [note]


def separator_of(text: str, quote: str = '"') -> str | None:
    """The separator that gives the same number of cells, above 1, on most lines; None if there is one column."""
    sample = text[:_SAMPLE]
    if len(text) > _SAMPLE:
        sample = sample[: max(sample.rfind("\n"), sample.rfind("\r")) + 1] or sample
    best, found = (), None
    for separator in separators.USUAL:
        rows = [row for row in _sampled(sample, separator, quote) if row]
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


def _sampled(text: str, separator: str, quote: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, skipinitialspace=True)
    try:
        yield from itertools.islice(rows, _SAMPLE_RECORDS)
    except csv.Error:
        # `_records` says which cell is too long.
        return


def _records(
    name: str, text: str, separator: str, start: int, quote: str
) -> tuple[list[list[str]], list[int], list[str]]:
    """Rows, their lines, which are `start` below those of the text, and notes."""
    first: tuple[int, int, str] | None = None
    for escape, is_last in ((None, False), ("\\", False), (None, True)):
        if escape and '\\"' not in text:
            continue
        # Without strictness only a last line of our own tells whether all quotes are closed.
        lines_of = io.StringIO(f"{text.rstrip()}\n{_END}" if is_last else text, newline="")
        form: dict[str, Any] = {"delimiter": separator, "quotechar": quote, "escapechar": escape}
        reader = csv.reader(lines_of, **form, skipinitialspace=True, strict=not is_last)
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

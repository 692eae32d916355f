"""Lines without a usual separator as cells: quoted as a whole, parted by an unusual sign, or by spaces."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence

from drjax.data.sheet_lines import kind_of, kind_of_column

USUAL = ",;\t|"
UNUSUAL = "~^¦\x01\x1e:"
"""Separators of a table that has none of the usual ones, in the order in which they are tried."""

_QUOTED = re.compile(r'"(?:[^"]|"")*"|\S+')


def rows_of(cells: Sequence[str]) -> tuple[list[list[str]], str, str] | None:
    """The rows of a table whose lines have one cell each, if they can be split in one way only.

    Args:
        cells: Lines without surrounding space, some empty.

    Returns:
        Rows, empty where a line is; the separator; and a sentence on it. None where nothing fits: it has one column.
    """
    filled = [cell for cell in cells if cell]
    if len(filled) < 2:
        return None
    for separator in (*USUAL, *UNUSUAL):
        lengths = {len(_split(cell, separator)) for cell in filled[:200]}
        if len(lengths) == 1 and lengths != {1}:
            rows = [_split(cell, separator) if cell else [] for cell in cells]
            if len({len(row) for row in rows if row}) > 1:
                continue
            if separator in USUAL:
                return rows, separator, f"Each line is quoted as a whole, and was split at {separator!r}."
            return rows, separator, f"Cells are parted by {separator!r}."
    # Words of one cell have one space between them, so less has to tell of columns where there are more.
    ways: tuple[tuple[Callable[[str], list[str]], float], ...] = ((_at_gaps, 0), (_at_spaces, 0.5))
    for split, share in ways:
        rows = [split(cell) for cell in cells]
        if _fits(rows, share):
            return rows, " ", "Cells are parted by spaces."
    return None


def _fits(rows: Sequence[list[str]], share: float) -> bool:
    """Whether lines have as many cells each, and such a share of the columns, or one, are numbers or dates."""
    first, *below = [row for row in rows if row]
    width = len(below[0])
    # R leaves out the name above the names of rows, which it quotes.
    is_named = len(first) == width or (len(first) == width - 1 and all(cell.startswith('"') for cell in first))
    if width < 2 or not is_named or any(len(row) != width for row in below):
        return False
    # Numbers beside cells of several words are two columns of fixed width, one of which is empty at times.
    for j in range(width):
        cells = [row[j] for row in below]
        if any(kind_of(cell) == "number" for cell in cells) and any(" " in cell and cell[0] != '"' for cell in cells):
            return False
    kinds = [kind_of_column(below[:200], j) for j in range(width)]
    is_fit = sum(kind in ("number", "date") for kind in kinds) >= max(1, share * width)
    if is_fit:
        for row in rows:
            row[:] = [cell[1:-1].replace('""', '"') if cell[:1] == cell[-1:] == '"' else cell for cell in row]
    return is_fit


def _split(cell: str, separator: str) -> list[str]:
    return [part.strip() for part in next(csv.reader([cell], delimiter=separator, skipinitialspace=True))]


def _at_gaps(line: str) -> list[str]:
    return re.split(r"\s{2,}", line) if line else []


def _at_spaces(line: str) -> list[str]:
    return _QUOTED.findall(line)

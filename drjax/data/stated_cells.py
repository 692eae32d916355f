"""Cells of a private column as numbers, each by itself, by what is stated of the column.

What a cell becomes depends on its own text, the kind and the format alone, which a person states: no other cell, and no
type of the whole column, changes it. Nothing is refused; a cell that does not parse is nan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from drjax.data import cell_dates, cell_quantities, table_cells
from drjax.data.cell_quantities import COMMA

NUMBER_FORMATS = ("decimal point", COMMA)

ISO = {
    "date": ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"),
    "time": ("%H:%M:%S", "%H:%M"),
}
"""Formats that are read beside the stated one: typed columns of Parquet files and DataFrames have them."""

USUAL = {"date": "%Y-%m-%d", "time": "%H:%M"}
"""Format of a column, by kind, if none is stated."""


def numbers(cells: pa.ChunkedArray, form: str = "") -> np.ndarray:
    """Every cell as a number, (n,) float64; nan where it is none.

    Units, signs of currencies and gaps between thousands are taken off, and a number behind < or > is the limit.

    Args:
        cells: The column.
        form: `COMMA` where decimals stand behind a comma; else they stand behind a point.
    """
    found = np.full(len(cells), np.nan) if form == COMMA else table_cells.cell_numbers(cells)
    rest = np.flatnonzero(np.isnan(found))
    # Cells of typed columns that are no number are missing ones.
    if not len(rest) or not (form == COMMA or table_cells.is_text(table_cells.plain(cells).type)):
        return found
    texts, at, column = _different(cells.take(pa.array(rest)))
    found[rest] = cell_quantities.numbers(column, texts, at, form if form == COMMA else "").values
    return found


def moments(cells: pa.ChunkedArray, kind: str, form: str) -> np.ndarray:
    """Every cell as days since 1970 (dates) or hours (times of day), (n,) float64; nan where it is none.

    Args:
        cells: The column.
        kind: Key of `ISO`.
        form: Format of `strptime`; cells written as `ISO` says are read as well.
    """
    texts, at, column = _different(cells)
    found = cell_dates.numbers(column, texts, np.arange(len(texts)), form)
    for other in ISO[kind]:
        if np.isnan(found).any():
            found = np.where(np.isnan(found), cell_dates.numbers(column, texts, np.arange(len(texts)), other), found)
    return found[at]


def moment(text: str, kind: str, form: str) -> float:
    """One date or time of day as `moments` gives it; nan if it is none."""
    return float(moments(pa.chunked_array([[text]]), kind, form)[0])


def is_among(cells: pa.ChunkedArray, texts: Sequence[str]) -> np.ndarray:
    """(n,) whether each cell is one of some texts, in whatever case."""
    wanted = [text.strip().lower() for text in texts]
    found, at, _ = _different(cells)
    return np.array([text.lower() in wanted for text in found], bool)[at]


def _different(cells: pa.ChunkedArray) -> tuple[list[str], np.ndarray, pa.ChunkedArray]:
    """Different texts, which of them each cell is (n,), and them as a column."""
    texts, at = np.unique(table_cells.cell_texts(cells).astype(object), return_inverse=True)
    listed = [str(text) for text in texts]
    return listed, at, pa.chunked_array([pa.array(listed, pa.string())])

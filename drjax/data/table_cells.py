"""One column of a table as numbers or as text, whatever type its file gave it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

# Typed loosely, because its functions are made at import time, where a type checker sees none of them.
pc: Any = pyarrow.compute

Columns = Mapping[str, pa.ChunkedArray]

_NUMBER = r"^[+-]?\.?[0-9][0-9.]*([eE][+-]?[0-9]+)?$"

_ONE_NUMBER = r"^[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|inf(inity)?)$"

_MISSING = ("", "na", "n/a", "#n/a", "null", "none")


def require_finite(values: np.ndarray, what: str) -> None:
    """Every one of (n,) values finite; the error counts the others and says in which row the first is."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{what} has {int(bad.sum())} missing, nan or infinite values, the first in row {int(bad.argmax())} "
            "(counted from 0): "
            "fill them in, or leave out those rows or the column"
        )


def number_column(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as finite (n,) float64.

    Raises:
        ValueError: text or another type, or a missing or infinite value.
    """
    column = plain(column)
    kind = column.type
    if is_text(kind):
        text = _without_missing(column)
        try:
            column = text.cast(pa.float64())
        except pa.ArrowInvalid:
            raise ValueError(_text_message(name, text)) from None
    elif not _is_numeric(kind):
        raise ValueError(f"column {name!r} holds {kind}, not numbers: leave it out with --drop {shlex.quote(name)}")
    # safe=False lets integers above 2^53 round, as every conversion to float does.
    values = column.cast(pa.float64(), safe=False).to_numpy()
    require_finite(values, f"column {name!r}")
    return values


def text_column(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """A categorical column as text (n,) without surrounding space.

    Raises:
        ValueError: a column that cannot be read as text, or a missing cell.
    """
    try:
        text = pc.utf8_trim_whitespace(plain(column).cast(pa.string()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise ValueError(
            f"column {name!r} holds {column.type}, not text: leave it out with --drop {shlex.quote(name)}"
        ) from None
    text = pc.fill_null(text, "")
    require_finite(np.where(pc.equal(text, "").to_numpy(), np.nan, 0.0), f"column {name!r}")
    return text.to_numpy().astype(str)


def cell_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Every cell by itself as a number, (n,) float64; nan where it is missing or no number, infinities kept.

    What a cell becomes depends on no other cell: a text among numbers, or another type of the whole column for its
    sake, changes no other entry. Nothing is refused.
    """
    column = _decoded(plain(column))
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        is_number = pc.fill_null(pc.match_substring_regex(text, _ONE_NUMBER, ignore_case=True), False)
        column = pc.if_else(is_number, text, pa.scalar(None, pa.string()))
    elif not _is_numeric(column.type):
        return np.full(len(column), np.nan)
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def cell_texts(column: pa.ChunkedArray) -> np.ndarray:
    """Every cell by itself as text without surrounding space, (n,) objects; "" where it is missing or has no text.

    Whole numbers are written without decimals and logical values in lower case, so that 1 is the same text whether its
    column holds integers, floats or text. Bytes that are no UTF-8 are unknown characters. Nothing is refused.
    """
    column = _decoded(plain(column))
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
    elif pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        cells = (None if cell is None else float(cell) for cell in column.to_pylist())
        text = pa.array(
            [None if cell is None or math.isnan(cell) else number_text(cell) for cell in cells], pa.string()
        )
    else:
        try:
            text = column.cast(pa.string())
        except pa.ArrowException:
            # A type without text, whatever its cells hold.
            return np.full(len(column), "", object)
    # Objects, because an array of text is as wide everywhere as its widest cell.
    return pc.fill_null(text, "").to_numpy(zero_copy_only=False)


def parsed_number(text: str) -> float | None:
    """The number that a text is, as `cell_numbers` reads it; None if it is none, or not finite."""
    found = float(cell_numbers(pa.chunked_array([[text]]))[0])
    return found if math.isfinite(found) else None


def is_numeric_column(column: pa.ChunkedArray) -> bool:
    """Whether a column holds numbers, or text that reads as numbers where it is not missing."""
    column = plain(column)
    return holds_numbers(column) if is_text(column.type) else _is_numeric(column.type)


def is_number_type(kind: pa.DataType) -> bool:
    """Whether a type is of numbers; logical values are none."""
    return _is_numeric(kind) and not pa.types.is_boolean(kind) and not pa.types.is_null(kind)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a plain type: extension types as what they store, dictionaries as their values, one type of text."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_other_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if is_other_text else column


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes, and text whose bytes nobody checked, as text: unknown characters for what is no UTF-8, cell by cell."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if not (is_text(column.type) or any(check(column.type) for check in kinds)):
        return column
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        cells = (None if cell is None else cell.decode(errors="replace") for cell in column.to_pylist())
        return pa.chunked_array([pa.array(cells, pa.string())])


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, once it is `plain`."""
    return pa.types.is_string(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    is_whole_or_truth = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return is_whole_or_truth or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _without_missing(text: pa.ChunkedArray) -> pa.ChunkedArray:
    text = pc.utf8_trim_whitespace(text)
    missing = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether a column of text reads as numbers where it is not missing."""
    try:
        _without_missing(column).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def number_text(value: float) -> str:
    """A number as text: whole ones without decimals."""
    return str(int(value)) if value.is_integer() else repr(value)


def _text_message(name: str, text: pa.ChunkedArray) -> str:
    # By halves: the rows before `low` hold numbers, those from `low` to `high` hold the first text.
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        if holds_numbers(text.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    example = text[low].as_py()[:60]
    column = shlex.quote(name)
    ways_out = f"one-hot encode it with --categorical {column} or leave it out with --drop {column}"
    if pc.any(pc.match_substring_regex(text, _NUMBER)).as_py():
        return (
            f"column {name!r} mixes numbers and text: row {low} (counted from 0) holds {example!r}; correct it, or "
            f"{ways_out}"
        )
    return f"column {name!r} holds text such as {example!r}: {ways_out}"

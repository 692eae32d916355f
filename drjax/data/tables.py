"""Tables with named columns, CSV and Parquet, to records in [0, 1].

Every numeric column is scaled by its own minimum and maximum. A text column is an error until the user says what
it is: one-hot encoded, the label, or dropped. A missing value (an empty cell, NA, null, none or nan; only the empty
cell in a categorical column) is an error. Rows are counted from 0 below the header, as in the
tables of an audit.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from drjax.data.dataset import Dataset, Provenance, coded, duplicates_note, unit_range

# Typed loosely, because its functions are made at import time, where a type checker sees none of them.
pc: Any = pyarrow.compute

MAX_CATEGORIES = 1000
"""More distinct values than this in a categorical column are taken for an identifier or free text."""

_NUMBER = r"^[+-]?\.?[0-9][0-9.]*([eE][+-]?[0-9]+)?$"

_ONE_NUMBER = r"^[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|inf(inity)?)$"

_MISSING = ("", "na", "n/a", "#n/a", "null", "none")

Columns = Mapping[str, pa.ChunkedArray]


class Encoded(NamedTuple):
    """Records from columns: x (n, d) float32 in [0, 1], offset and scale (d,) float64, d feature names."""

    x: np.ndarray
    offset: np.ndarray
    scale: np.ndarray
    feature_names: tuple[str, ...]


def from_table(
    name: str,
    columns: Columns,
    provenance: Provenance,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
) -> Dataset:
    """The data set of a table; `label` becomes y, the other columns but `drop` become features.

    Raises:
        ValueError: unknown column names, one column with two uses, no column or row left, text where numbers are
            expected, missing or infinite values, or a label that is neither integer nor text.
    """
    labels = () if label is None else (label,)
    uses: dict[str, str] = {}
    for use, names in (("categorical", categorical), ("drop", drop), ("label", labels)):
        for column in names:
            if column not in columns:
                raise ValueError(f"{use} names column {column!r}, but the columns of {name} are {_listed(columns)}")
            if column in uses:
                raise ValueError(f"column {column!r} is named in {uses[column]} and in {use}: name it once")
            uses[column] = use
    features = {column: values for column, values in columns.items() if uses.get(column) not in ("drop", "label")}
    if not features:
        raise ValueError(f"{name} has no column left to audit: drop fewer of {_listed(columns)}")
    if len(next(iter(features.values()))) == 0:
        raise ValueError(f"{name} has a header but no rows: add at least one record")
    encoded = encode(features, categorical)
    y, class_names = _labels(label, columns[label]) if label is not None else (None, None)
    return Dataset(
        name=name,
        x=encoded.x,
        y=y,
        shape=(encoded.x.shape[1],),
        feature_names=encoded.feature_names,
        groups=None,
        provenance=dataclasses.replace(provenance, note=provenance.note + duplicates_note(encoded.x)),
        offset=encoded.offset,
        scale=encoded.scale,
        class_names=class_names,
    )


def encode(columns: Columns, categorical: Iterable[str]) -> Encoded:
    """Scales numeric columns to [0, 1] and one-hot encodes the categorical ones in place, categories sorted."""
    one_hot = set(categorical)
    names: list[str] = []
    blocks: list[np.ndarray] = []
    offsets: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    for name, column in columns.items():
        if name in one_hot:
            codes, categories = coded(text_column(name, column))
            if len(categories) > MAX_CATEGORIES:
                raise ValueError(
                    f"column {name!r} has {len(categories)} different values, more than the {MAX_CATEGORIES} that can "
                    f"be one-hot encoded: leave it out with --drop {shlex.quote(name)}"
                )
            block = np.zeros((len(codes), len(categories)), np.float32)
            block[np.arange(len(codes)), codes] = 1.0
            offset, scale = np.zeros(len(categories)), np.ones(len(categories))
            names += [f"{name}={category}" for category in categories]
        else:
            block, offset, scale = unit_range(number_column(name, column)[:, None])
            names.append(name)
        blocks.append(block)
        offsets.append(offset)
        scales.append(scale)
    return Encoded(np.concatenate(blocks, axis=1), np.concatenate(offsets), np.concatenate(scales), tuple(names))


def numeric(source: str, columns: Columns, advice: str) -> np.ndarray:
    """All columns as they are, (n, d) float64.

    Args:
        source: Name of the table, for messages.
        columns: Columns by name.
        advice: What to do where a column is not numeric; the end of the message.

    Raises:
        ValueError: a column that is not numeric, or a missing or infinite value.
    """
    try:
        return np.column_stack([number_column(name, column) for name, column in columns.items()])
    except ValueError as error:
        # Behind the colon are options of commands that recode columns, which others lack.
        what = str(error).rpartition(": ")[0]
        raise ValueError(f"{source} must hold numbers only: {what}; {advice}") from error


def read_csv(name: str, blob: bytes, *, keep_empty: bool = False) -> Columns:
    """The columns of a CSV file as text, unconverted, by name.

    The first line names the columns; the separator is whichever of comma, semicolon and tab it has most of.

    Args:
        name: Name of the file, for messages.
        blob: What the file holds.
        keep_empty: Take an empty line of a table of one column for a record whose cell is missing; else it is none.

    Raises:
        ValueError: empty file, no usable header, rows of unequal length, or not UTF-8.
    """
    if not blob.strip():
        raise ValueError(f"{name} is empty: write a first line that names the columns, then one record per line")
    blob = blob.lstrip(b"\r\n")
    first_line, *rest = re.split(rb"\r\n|[\r\n]", blob if keep_empty else blob.strip(), maxsplit=1)
    separator = max(",;\t", key=lambda character: first_line.count(character.encode()))
    if not rest or not rest[0]:
        raise ValueError(f"{name} has a header but no rows: add at least one record")
    parse = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    # One thread, because only then does an error say in which row it is.
    # One block, because a cell that lies in more than two is an error.
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=min(max(2**20, len(blob)), 2**31 - 1))
    try:
        with pyarrow.csv.open_csv(io.BytesIO(blob), read_options=read, parse_options=parse) as reader:
            header = reader.schema.names
        _check_header(name, header)
        parse.ignore_empty_lines = not (keep_empty and len(header) == 1)
        as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()))
        table = pyarrow.csv.read_csv(io.BytesIO(blob), read_options=read, parse_options=parse, convert_options=as_text)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name} is not a readable CSV file ({' '.join(str(error).split())[:300]}): save it as UTF-8 text with as "
            "many cells in every row as in the first"
        ) from error
    return dict(zip(header, table.columns, strict=True))


def read_parquet(name: str, blob: bytes) -> Columns:
    """The columns of a Parquet file by name.

    Raises:
        ValueError: not a Parquet file, or two columns of one name.
    """
    try:
        table = pyarrow.parquet.read_table(pa.BufferReader(blob))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is not a readable Parquet file: {' '.join(str(error).split())}") from error
    _check_unique(name, table.column_names)
    return dict(zip(table.column_names, table.columns, strict=True))


def require_finite(values: np.ndarray, what: str) -> None:
    """Every one of (n,) values finite; the error counts the others and says in which row the first is."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{what} has {int(bad.sum())} missing, nan or infinite values, the first in row {int(bad.argmax())} "
            "(counted from 0): "
            "fill them in, or leave out those rows or the column"
        )


def _check_header(name: str, header: list[str]) -> None:
    _check_unique(name, header)
    if "" in header:
        raise ValueError(
            f"column {header.index('') + 1} of {name} has no name: name it in the first line "
            "(pandas writes such a column unless told index=False)"
        )
    # pandas names the columns of an array 0, 1, 2, ...: the one header of numbers that is meant as one.
    if all(map(_is_number, header)) and header != [str(i) for i in range(len(header))]:
        raise ValueError(f"the first line of {name} holds only numbers: add a first line that names the columns")


def _check_unique(name: str, header: list[str]) -> None:
    column, times = Counter(header).most_common(1)[0] if header else ("", 0)
    if times > 1:
        raise ValueError(f"{name} has {times} columns named {column!r}: give each column its own name")


def number_column(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as finite (n,) float64.

    Raises:
        ValueError: text or another type, or a missing or infinite value.
    """
    column = _plain(column)
    kind = column.type
    if _is_text(kind):
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
        text = pc.utf8_trim_whitespace(_plain(column).cast(pa.string()))
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
    column = _decoded(_plain(column))
    if _is_text(column.type):
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
    column = _decoded(_plain(column))
    if _is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
    elif pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        cells = (None if cell is None else float(cell) for cell in column.to_pylist())
        text = pa.array(
            [None if cell is None or math.isnan(cell) else _number_text(cell) for cell in cells], pa.string()
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
    column = _plain(column)
    return _holds_numbers(column) if _is_text(column.type) else _is_numeric(column.type)


def _labels(name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Integer labels as they are; text as codes with the names that they stand for."""
    column = _plain(column)
    if not _is_text(column.type) or _holds_numbers(column):
        values = number_column(name, column)
        if (values != np.round(values)).any():
            row = int(np.argmax(values != np.round(values)))
            raise ValueError(
                f"label column {name!r} must hold integers or text, but row {row} (counted from 0) holds "
                f"{values[row]}: leave it among the features, or drop it"
            )
        return values.astype(np.int64), None
    return coded(text_column(name, column))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_other_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if is_other_text else column


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes, and text whose bytes nobody checked, as text: unknown characters for what is no UTF-8, cell by cell."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if not (_is_text(column.type) or any(check(column.type) for check in kinds)):
        return column
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        cells = (None if cell is None else cell.decode(errors="replace") for cell in column.to_pylist())
        return pa.chunked_array([pa.array(cells, pa.string())])


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    is_whole_or_truth = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return is_whole_or_truth or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _without_missing(text: pa.ChunkedArray) -> pa.ChunkedArray:
    text = pc.utf8_trim_whitespace(text)
    missing = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def _holds_numbers(column: pa.ChunkedArray) -> bool:
    try:
        _without_missing(column).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_number(text: str) -> bool:
    return _holds_numbers(pa.chunked_array([[text]]))


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _text_message(name: str, text: pa.ChunkedArray) -> str:
    # By halves: the rows before `low` hold numbers, those from `low` to `high` hold the first text.
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        if _holds_numbers(text.slice(low, middle - low)):
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


def _listed(columns: Columns) -> str:
    names = list(columns)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")

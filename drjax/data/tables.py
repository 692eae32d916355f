"""Tables with named columns, CSV and Parquet, to records in [0, 1].

Every numeric column is scaled by its own minimum and maximum. A text column is an error until the user says what
it is: one-hot encoded, the label, or dropped. A missing value (an empty cell, NA, null, none or nan; only the empty
cell in a categorical column) is an error. Rows are counted from 0 below the header, as in the
tables of an audit.

Example:
    >>> import io, pandas as pd
    >>> from drjax.data import Provenance, tables
    >>> table = pd.DataFrame({"age": [20, 60], "sex": ["f", "m"], "ill": [1, 0]})
    >>> columns = tables.read_csv("t.csv", table.to_csv(index=False).encode())
    >>> tables.check_header("t.csv", list(columns))  # no name is empty, repeated or a number
    >>> tables.numeric("t.csv", {"age": columns["age"]}, "leave it out")
    array([[20.],
           [60.]])
    >>> tables.encode(columns, ["sex", "ill"]).feature_names
    ('age', 'sex=f', 'sex=m', 'ill=0', 'ill=1')
    >>> tables.label_column("sex", columns["sex"])
    (array([0, 1]), ('f', 'm'))
    >>> data = tables.from_table("t.csv", columns, Provenance("made up", "", {}, ""), categorical=["sex"], label="ill")
    >>> data.x, data.y
    (array([[0., 1., 0.],
           [1., 0., 1.]], dtype=float32), array([1, 0]))
    >>> file = io.BytesIO()
    >>> table.to_parquet(file)
    >>> list(tables.read_parquet("t.parquet", file.getvalue()))
    ['age', 'sex', 'ill']
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from drjax.data import table_cells
from drjax.data.dataset import Dataset, Provenance, coded, duplicates_note, unit_range
from drjax.data.table_cells import Columns

INDEX = r"__index_level_\d+__"
"""Names under which pandas writes the numbers of rows of a frame into a file."""

MAX_CATEGORIES = 1000
"""More distinct values than this in a categorical column are taken for an identifier or free text."""


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
    y, class_names = label_column(label, columns[label]) if label is not None else (None, None)
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


def label_column(name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Integer labels as they are; text as codes with the names that they stand for.

    Raises:
        ValueError: numbers that are not whole, another type than numbers or text, or a missing cell.
    """
    column = table_cells.plain(column)
    if not table_cells.is_text(column.type) or table_cells.holds_numbers(column):
        values = table_cells.number_column(name, column)
        if (values != np.round(values)).any():
            row = int(np.argmax(values != np.round(values)))
            raise ValueError(
                f"label column {name!r} must hold integers or text, but row {row} (counted from 0) holds "
                f"{values[row]}: leave it among the features, or drop it"
            )
        return values.astype(np.int64), None
    return coded(table_cells.text_column(name, column))


def encode(columns: Columns, categorical: Iterable[str]) -> Encoded:
    """Scales numeric columns to [0, 1] and one-hot encodes the categorical ones in place, categories sorted."""
    one_hot = set(categorical)
    names: list[str] = []
    blocks: list[np.ndarray] = []
    offsets: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    for name, column in columns.items():
        if name in one_hot:
            codes, categories = coded(table_cells.text_column(name, column))
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
            block, offset, scale = unit_range(table_cells.number_column(name, column)[:, None])
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
        return np.column_stack([table_cells.number_column(name, column) for name, column in columns.items()])
    except ValueError as error:
        # Behind the colon are options of commands that recode columns, which others lack.
        what = str(error).rpartition(": ")[0]
        raise ValueError(f"{source} must hold numbers only: {what}; {advice}") from error


def read_csv(name: str, blob: bytes) -> Columns:
    """The columns of a CSV file as text, unconverted, by name.

    The first line names the columns; the separator is whichever of comma, semicolon and tab it has most of.

    Args:
        name: Name of the file, for messages.
        blob: What the file holds.

    Raises:
        ValueError: empty file, no usable header, rows of unequal length, or not UTF-8.
    """
    if not blob.strip():
        raise ValueError(f"{name} is empty: write a first line that names the columns, then one record per line")
    blob = blob.lstrip(b"\r\n")
    first_line, *rest = re.split(rb"\r\n|[\r\n]", blob.strip(), maxsplit=1)
    separator = max(",;\t", key=lambda character: first_line.count(character.encode()))
    if not rest or not rest[0]:
        raise ValueError(f"{name} has a header but no rows: add at least one record")
    parse = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    # One thread, because only then does an error say in which row it is.
    # One block, because a cell that lies in more than two is an error.
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=min(max(2**20, len(blob)), 2**31 - 1))
    try:
        # Not by a reader of pyarrow's that is not read to its end: it may abort the process where that ends soon after.
        text = io.TextIOWrapper(io.BytesIO(blob), "utf-8-sig", newline="")
        header = next(csv.reader(text, delimiter=separator))
        check_header(name, header)
        as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()))
        table = pyarrow.csv.read_csv(io.BytesIO(blob), read_options=read, parse_options=parse, convert_options=as_text)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{name} is not a readable CSV file ({' '.join(str(error).split())[:300]}): save it as UTF-8 text with as "
            "many cells in every row as in the first"
        ) from error
    return dict(zip(header, table.columns, strict=True))


def read_parquet(name: str, blob: bytes) -> Columns:
    """The columns of a Parquet file by name, without the numbers of rows that pandas puts beside them.

    Raises:
        ValueError: not a Parquet file, or two columns of one name.
    """
    try:
        table = pyarrow.parquet.read_table(pa.BufferReader(blob))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is not a readable Parquet file: {' '.join(str(error).split())}") from error
    _check_unique(name, table.column_names)
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: column for name, column in columns if not re.fullmatch(INDEX, name)}


def check_header(name: str, header: list[str]) -> None:
    """Raises ValueError for names of columns that are empty, repeated, or numbers alone."""
    _check_unique(name, header)
    if "" in header:
        raise ValueError(
            f"column {header.index('') + 1} of {name} has no name: name it in the first line "
            "(pandas writes such a column unless told index=False)"
        )
    # pandas names the columns of an array 0, 1, 2, ...: the one header of numbers that is meant as one.
    if all(table_cells.is_numeric_column(pa.chunked_array([[name]])) for name in header) and header != [
        str(i) for i in range(len(header))
    ]:
        raise ValueError(f"the first line of {name} holds only numbers: add a first line that names the columns")


def _check_unique(name: str, header: list[str]) -> None:
    column, times = Counter(header).most_common(1)[0] if header else ("", 0)
    if times > 1:
        raise ValueError(f"{name} has {times} columns named {column!r}: give each column its own name")


def _listed(columns: Columns) -> str:
    names = list(columns)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")

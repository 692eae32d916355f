"""What the columns of a table may hold, so that a table becomes numbers with public bounds and numbers a table again.

    schema, _ = stated(["age", "work"], {"age": [17, 90], "work": ["Private", "State-gov"]}, target="work")
    x, y = schema.encode(columns)             # (n, m): numbers within their bounds, categories one-hot
    made = schema.write(schema.decode(x, y), ".csv")

A schema for private records comes from what a person states of each column, or from public records (`stated` and
`infer` in `drjax.data.schema_sources`), and looks at no private record. `encode` maps every cell by itself, by a fixed
rule, and refuses none, so that one record changes its own row alone:

- a number, date or rank beyond its bounds becomes the bound; a missing one, or a text in its place, the `fill` that is
  stated, or else the middle of the bounds;
- a category that is not listed becomes the `fill`, or else counts for none; a missing cell is the category "", if that
  is listed;
- a target that is none of its classes has the class -1.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from drjax.core import validate
from drjax.data.schema_column import Column
from drjax.data.tables import Columns

__all__ = ["FROM_RECORDS", "Column", "Schema"]

FROM_RECORDS = "from_records"
"""Key that marks an entry whose bounds were read off private records."""


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a table in their order, and which one is the target.

    Attributes:
        columns: Columns that are kept.
        target: The name of one of them, or None.

    Example:
        >>> import pyarrow as pa
        >>> from drjax.data.schema import Column, Schema
        >>> age = Column(name="age", kind="integer", lower=0, upper=120)
        >>> sex = Column(name="sex", kind="category", categories=("f", "m"))
        >>> table = {"age": pa.chunked_array([[20, 130]]), "sex": pa.chunked_array([["m", "f"]])}
        >>> x, _ = Schema((age, sex)).encode(table)
        >>> x  # 130 is cut to the bounds
        array([[ 20.,   0.,   1.],
               [120.,   1.,   0.]])
    """

    columns: tuple[Column, ...]
    target: str | None = None

    @functools.cached_property
    def features(self) -> tuple[Column, ...]:
        """All but the target."""
        return tuple(column for column in self.columns if column.name != self.target)

    @functools.cached_property
    def target_column(self) -> Column | None:
        """The target."""
        return next((column for column in self.columns if column.name == self.target), None)

    @property
    def from_records(self) -> tuple[str, ...]:
        """Names of columns whose bounds were read off the records."""
        return tuple(column.name for column in self.columns if not column.is_public)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """m names of encoded features."""
        return tuple(name for column in self.features for name in column.feature_names)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds (m,) of encoded features; 0 and 1 for one-hot ones."""
        pairs = [
            (0.0, 1.0) if column.kind == "category" else (column.lower, column.upper)
            for column in self.features
            for _ in range(column.width)
        ]
        lower, upper = np.array(pairs, np.float64).T
        return lower, upper

    @property
    def scales(self) -> np.ndarray:
        """(m,) scales that are stated of encoded features; nan where none is."""
        pairs = [(np.nan if column.scale is None else column.scale, column.width) for column in self.features]
        return np.array([scale for scale, width in pairs for _ in range(width)], np.float64)

    @property
    def written(self) -> Schema:
        """The schema of the tables that `write` gives: numbers have decimal points, and no text is a missing cell."""
        columns = (
            dataclasses.replace(column, missing=(), format=column.format if column.is_temporal else "")
            for column in self.columns
        )
        return Schema(tuple(columns), self.target)

    def encode(self, table: Columns, *, is_filled: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Features (n, m) float64 within their bounds, and the target (n,): classes, numbers, or None without one.

        Row i depends on row i of the table alone; see the top of this module for what a cell outside becomes.

        Args:
            table: Columns by name.
            is_filled: Put the middle of the bounds where a cell is missing and no `fill` is stated; else nan.

        Raises:
            ValueError: a column that is missing.
        """
        self._check_columns(table)
        x = np.concatenate([one.encode(table[one.name], is_filled=is_filled) for one in self.features], axis=1)
        target = self.target_column
        if target is None:
            return x, None
        cells = table[target.name]
        return x, target.numbers(cells) if target.kind != "category" else target.codes(cells).astype(np.int32)

    def outside(self, table: Columns) -> dict[str, dict[str, int]]:
        """Counts by column of the cells that were mapped into what it may hold, and why; only what occurs. Private."""
        self._check_columns(table)
        found = {column.name: column.outside(table[column.name]) for column in self.columns}
        occurs = {name: {why: n for why, n in counts.items() if n} for name, counts in found.items()}
        return {name: counts for name, counts in occurs.items() if counts}

    def decode(self, x: Any, y: Any = None) -> pa.Table:
        """A table of (n, m) features and the target (n,), columns in their order.

        Numbers are float64, integers int64 and categories text, whatever a private file holds.

        Raises:
            ValueError: shapes that do not match, or no y for a target.
        """
        x = np.asarray(x)
        m = sum(column.width for column in self.features)
        if x.ndim != 2 or x.shape[1] != m:
            raise ValueError(f"x must have shape (n, {m}), got {x.shape}")
        if (y is None) != (self.target is None):
            raise ValueError(f"y must be given exactly where there is a target, which is {self.target!r}")
        cells, at = {}, 0
        for column in self.features:
            cells[column.name] = column.decode(x[:, at : at + column.width])
            at += column.width
        target = self.target_column
        if target is not None:
            values = np.asarray(y)
            cells[target.name] = (
                target.of_codes(values.astype(int)) if target.kind == "category" else target.decode(values[:, None])
            )
        return pa.table({column.name: cells[column.name] for column in self.columns})

    def write(self, table: pa.Table, suffix: str) -> bytes:
        """The bytes of a CSV or Parquet file of a table that `decode` made.

        Raises:
            ValueError: another suffix.
        """
        validate.one_of((".csv", ".parquet"), suffix=suffix)
        if suffix == ".parquet":
            sink = io.BytesIO()
            pyarrow.parquet.write_table(table, sink)
            return sink.getvalue()
        # Not by pyarrow, which puts every text in quotation marks.
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.texts(table[column.name]) for column in self.columns), strict=True))
        return text.getvalue().encode()

    def to_json(self) -> dict[str, Any]:
        """What `stated` takes to make it again; bounds survive exactly. Columns read off the records say so."""
        marks = [{} if column.is_public else {FROM_RECORDS: True} for column in self.columns]
        return {column.name: mark | column.to_json() for column, mark in zip(self.columns, marks, strict=True)}

    def _check_columns(self, table: Columns) -> None:
        for column in self.columns:
            if column.name not in table:
                raise ValueError(f"column {column.name!r} must be in the table, which has {', '.join(table)}")

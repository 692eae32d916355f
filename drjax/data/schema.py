"""What the columns of a table may hold, so that a table becomes numbers with public bounds and numbers a table again.

    schema, _ = stated(["age", "work"], {"age": [17, 90], "work": ["Private", "State-gov"]}, target="work")
    x, y = schema.encode(columns)             # (n, m): numbers within their bounds, categories one-hot
    made = schema.write(schema.decode(x, y), ".csv")

A schema for private records comes from what a person states of each column, or from public records (`stated` and
`infer` in `drjax.data.schema_sources`), and looks at no private record. `encode` maps every cell by itself, by a fixed
rule, and refuses none, so that one record changes its own row alone:

- a number beyond its bounds becomes the bound; a missing one, or a text in its place, the middle of the bounds;
- a category that is not listed counts for none; a missing cell is the category "", if that is listed;
- a target that is none of its classes has the class -1.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from drjax.core import validate
from drjax.data import table_cells, tables
from drjax.data.tables import Columns

KINDS = ("number", "integer", "category")
MOST_DECIMALS = 15
LEAST_STEPS = 1000
"""Steps that the decimals of a column divide its range into at least, where nobody states them."""

FROM_RECORDS = "from_records"
"""Key that marks an entry whose bounds were read off private records."""

LARGEST = 2**53
"""Largest bound, and largest multiple of the step of a column: float64 holds every whole number up to it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        name: Header of the column.
        kind: A name in `KINDS`.
        lower: Least value of numbers and integers, in units of the column.
        upper: The same, larger.
        decimals: Decimals that are written of a number; None for as many as divide the range into `LEAST_STEPS`.
        categories: Values of a category, all of them, as text, without surrounding space; a missing cell is "".
        is_public: Whether bounds and categories were stated or public, not read off the records.
    """

    name: str
    kind: str
    lower: float = 0.0
    upper: float = 0.0
    decimals: int | None = None
    categories: tuple[str, ...] = ()
    is_public: bool = True

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(KINDS, **{f"kind of {self.name!r}": self.kind})
        if self.kind == "category":
            object.__setattr__(self, "categories", tuple(text.strip() for text in self.categories))
            if len(self.categories) < 1 or len(set(self.categories)) < len(self.categories):
                raise ValueError(f"categories of {self.name!r} must be distinct and at least one, got {self._shown}")
            if len(self.categories) > tables.MAX_CATEGORIES:
                raise ValueError(
                    f"categories of {self.name!r} must be at most {tables.MAX_CATEGORIES}, got {len(self.categories)}"
                )
            return
        ends = [self.lower, self.upper]
        if not (np.isfinite(ends).all() and self.lower < self.upper):
            raise ValueError(f"bounds of {self.name!r} must be finite, lower < upper, got {self.lower}, {self.upper}")
        if max(map(abs, ends)) > LARGEST:
            raise ValueError(
                f"bounds of {self.name!r} must lie within +-2^53, got {self.lower:g}, {self.upper:g}: state narrower "
                "ones, or give the column another unit"
            )
        if self.kind == "integer":
            object.__setattr__(self, "decimals", 0)
        elif self.decimals is None:
            object.__setattr__(self, "decimals", _decimals_for(self.lower, self.upper))
        else:
            validate.integer(minimum=0, **{f"decimals of {self.name!r}": self.decimals})
            validate.at_most(MOST_DECIMALS, "the most", **{f"decimals of {self.name!r}": self.decimals})
        least, most = self._multiples
        if most - least < 1 or max(abs(least), abs(most)) > LARGEST:
            what = "whole numbers" if self.kind == "integer" else f"numbers of {self.decimals} decimals"
            raise ValueError(
                f"bounds of {self.name!r} must hold from 2 to 2^53 {what}, got {self.lower:g}, {self.upper:g}: state "
                "other bounds, kind or decimals"
            )

    @property
    def width(self) -> int:
        """Columns that it takes when encoded."""
        return len(self.categories) if self.kind == "category" else 1

    @property
    def feature_names(self) -> list[str]:
        """Names of those columns."""
        return [f"{self.name}={c}" for c in self.categories] if self.kind == "category" else [self.name]

    @property
    def _shown(self) -> str:
        return ", ".join(map(repr, self.categories[:5])) + (" ..." if len(self.categories) > 5 else "")

    @property
    def _multiples(self) -> tuple[int, int]:
        """Least and largest multiple of the step 10^-decimals within the bounds."""
        scale = Decimal(10) ** int(self.decimals or 0)
        # By the decimals that they are written as: 0.1 is a multiple of 0.1.
        return math.ceil(Decimal(repr(self.lower)) * scale), math.floor(Decimal(repr(self.upper)) * scale)

    def __str__(self) -> str:
        """One line for people."""
        if self.kind == "category":
            return f"{self.name}: {self.width} categor{'y' if self.width == 1 else 'ies'} ({self._shown})"
        digits = "" if self.kind == "integer" else f", {self.decimals} decimal{'' if self.decimals == 1 else 's'}"
        return f"{self.name}: {self.kind} in [{self.lower:g}, {self.upper:g}]{digits}"

    def codes(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n,) index of each cell among the categories; -1 for a cell that is none of them.

        A cell is the category of the same text; failing that, the one of the same number, so that 1.0 is 1 and a column
        may hold integers or floats; failing that, the one of the same logical value.
        """
        texts, at = np.unique(table_cells.cell_texts(cells), return_inverse=True)
        return np.array([self._code(str(text)) for text in texts], np.int64)[at]

    def _code(self, text: str) -> int:
        by_text, by_number, by_truth = self._lookup
        if text in by_text:
            return by_text[text]
        number = table_cells.parsed_number(text)
        return by_truth.get(text.lower(), -1) if number is None else by_number.get(number, -1)

    @functools.cached_property
    def _lookup(self) -> tuple[dict[str, int], dict[float, int], dict[str, int]]:
        numbers: dict[float, int] = {}
        truths: dict[str, int] = {}
        for i, text in enumerate(self.categories):
            number, truth = table_cells.parsed_number(text), text.lower()
            # Two categories of one number, such as 7 and 07, are told by their texts alone.
            if number is not None:
                numbers[number] = i if number not in numbers else -1
            if truth in ("true", "false"):
                truths[truth] = i if truth not in truths else -1
        return {text: i for i, text in enumerate(self.categories)}, numbers, truths

    def numbers(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n,) float64 within the bounds; a cell that is no number is the middle of them."""
        middle = self.lower + (self.upper - self.lower) / 2
        found = table_cells.cell_numbers(cells)
        return np.clip(np.where(np.isnan(found), middle, found), self.lower, self.upper)

    def encode(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n, width) float64: `numbers`; categories one-hot, unlisted ones all 0."""
        if self.kind != "category":
            return self.numbers(cells)[:, None]
        return (self.codes(cells)[:, None] == np.arange(self.width)).astype(np.float64)

    def outside(self, cells: pa.ChunkedArray) -> dict[str, int]:
        """How many cells the fixed rule changed, by what they were; private."""
        if self.kind == "category":
            return {"none of the categories": int((self.codes(cells) < 0).sum())}
        found = table_cells.cell_numbers(cells)
        is_cut = (found < self.lower) | (found > self.upper)
        return {"beyond the bounds": int(is_cut.sum()), "missing or no number": int(np.isnan(found).sum())}

    def decode(self, x: np.ndarray) -> pa.Array:
        """The cells of (n, width) values: clipped and rounded numbers, the largest of one-hot values; nan is lower."""
        if self.kind == "category":
            return self.of_codes(np.argmax(x, axis=1))
        multiples = self._rounded(x[:, 0])
        if self.kind == "integer":
            return pa.array(multiples)
        return pa.array(multiples / 10.0 ** int(self.decimals or 0))

    def of_codes(self, codes: np.ndarray) -> pa.Array:
        """The cells of (n,) indices among the categories."""
        texts = np.asarray(self.categories, object)[codes]
        return pa.array([text or None for text in texts], pa.string())

    def texts(self, cells: pa.ChunkedArray) -> list[str]:
        """Cells as `decode` gives them, as they are written to a CSV file: all decimals, trailing zeros among them."""
        if self.kind == "category":
            return [text or "" for text in cells.to_pylist()]
        if self.kind == "integer":
            return [str(value) for value in cells.to_pylist()]
        # + 0.0 takes the sign off a zero.
        return [f"{value + 0.0:.{self.decimals}f}" for value in cells.to_pylist()]

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        """The nearest multiples of the step within the bounds, (n,) int64."""
        least, most = self._multiples
        known = np.nan_to_num(np.asarray(values, np.float64), nan=self.lower, posinf=self.upper, neginf=self.lower)
        scaled = np.rint(np.clip(known, self.lower, self.upper) * 10.0 ** int(self.decimals or 0))
        return np.clip(scaled, least, most).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a table in their order, and which one is the target.

    Attributes:
        columns: Columns that are kept.
        target: The name of one of them, or None.
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

    def encode(self, table: Columns) -> tuple[np.ndarray, np.ndarray | None]:
        """Features (n, m) float64 within their bounds, and the target (n,): classes, numbers, or None without one.

        Row i depends on row i of the table alone; see the top of this module for what a cell outside becomes.

        Raises:
            ValueError: a column that is missing.
        """
        self._check_columns(table)
        x = np.concatenate([column.encode(table[column.name]) for column in self.features], axis=1)
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
        found = {}
        for column in self.columns:
            said: dict[str, Any] = {} if column.is_public else {FROM_RECORDS: True}
            if column.kind == "category":
                said |= {"kind": column.kind, "categories": list(column.categories)}
            else:
                said |= {"kind": column.kind, "lower": column.lower, "upper": column.upper}
            if column.kind == "number":
                said["decimals"] = column.decimals
            found[column.name] = said
        return found

    def _check_columns(self, table: Columns) -> None:
        for column in self.columns:
            if column.name not in table:
                raise ValueError(f"column {column.name!r} must be in the table, which has {', '.join(table)}")


def _decimals_for(lower: float, upper: float) -> int:
    """The fewest decimals whose step divides the range into `LEAST_STEPS` or more; fewer where float64 ends."""
    wanted = math.ceil(math.log10(LEAST_STEPS) - math.log10(upper - lower))
    room = math.floor(math.log10(LARGEST) - math.log10(max(abs(lower), abs(upper))))
    return max(0, min(wanted, room, MOST_DECIMALS))

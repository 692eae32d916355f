"""What the columns of a table may hold, so that a table becomes numbers with public bounds and numbers a table again.

    columns = tables.read_csv("adult.csv", blob)
    schema = infer(columns, target="income", given={"age": [17, 90], "workclass": ["Private", "State-gov"]})
    schema.from_records                       # names of columns whose bounds or categories nobody has given
    x, y = schema.encode(columns)             # (n, m): numbers as they are, categories one-hot
    made = schema.decode(x, y)                # a table with the columns of the first one

Bounds and categories that are read off the records depend on them, and so does everything that is computed with them.
Which columns are numbers, and with how many decimals, is taken for public.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from drjax.core import validate
from drjax.data import tables
from drjax.data.tables import Columns

KINDS = ("number", "integer", "category")
MOST_CLASSES = 20
"""A target of whole numbers with more distinct values than this is taken for a number."""

MOST_DECIMALS = 9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its header.
        kind: A name in `KINDS`.
        lower: Of numbers and integers, in units of the column.
        upper: The same, larger.
        decimals: Of numbers: how many are written; None for as many as there are.
        categories: Of a category: all values that it can have, as text; a missing cell is "".
        dtype: The type in a Parquet file; "" in CSV.
        is_public: Whether bounds or categories were given, not read off the records.
    """

    name: str
    kind: str
    lower: float = 0.0
    upper: float = 0.0
    decimals: int | None = None
    categories: tuple[str, ...] = ()
    dtype: str = ""
    is_public: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(KINDS, **{f"kind of {self.name!r}": self.kind})
        if self.kind == "category":
            if len(self.categories) < 1 or len(set(self.categories)) < len(self.categories):
                raise ValueError(f"categories of {self.name!r} must be distinct and at least one, got {self._shown}")
        elif not (np.isfinite([self.lower, self.upper]).all() and self.lower < self.upper):
            raise ValueError(f"bounds of {self.name!r} must be finite, lower < upper, got {self.lower}, {self.upper}")

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

    def __str__(self) -> str:
        """One line for people."""
        if self.kind == "category":
            return f"{self.name}: {len(self.categories)} categories ({self._shown})"
        digits = "" if self.kind == "integer" or self.decimals is None else f", {self.decimals} decimals"
        return f"{self.name}: {self.kind} in [{self.lower:g}, {self.upper:g}]{digits}"

    def codes(self, values: pa.ChunkedArray) -> np.ndarray:
        """(n,) index of each cell among the categories; -1 for a value that is none of them."""
        text = tables.text_column(self.name, values, allow_missing=True)
        order = np.argsort(self.categories)
        known = np.asarray(self.categories)[order]
        at = np.minimum(np.searchsorted(known, text), len(known) - 1)
        return np.where(known[at] == text, order[at], -1)

    def encode(self, values: pa.ChunkedArray) -> np.ndarray:
        """(n, width) float64: numbers as they are, not clipped; categories one-hot, unknown ones all 0."""
        if self.kind != "category":
            return tables.number_column(self.name, values)[:, None]
        return (self.codes(values)[:, None] == np.arange(self.width)).astype(np.float64)

    def decode(self, x: np.ndarray) -> pa.Array:
        """The cells of (n, width) values: clipped and rounded numbers, the largest of one-hot values; nan is lower."""
        if self.kind == "category":
            return self.of_codes(np.argmax(x, axis=1))
        clipped = np.clip(np.nan_to_num(x[:, 0].astype(np.float64), nan=self.lower), self.lower, self.upper)
        if self.kind == "integer":
            # Rounded inward: a bound need not be whole.
            whole = np.clip(np.rint(clipped), np.ceil(self.lower), np.floor(self.upper)).astype(np.int64)
            return self._typed(pa.array(whole))
        return self._typed(pa.array(clipped if self.decimals is None else np.round(clipped, self.decimals)))

    def of_codes(self, codes: np.ndarray) -> pa.Array:
        """The cells of (n,) indices among the categories."""
        texts = np.asarray(self.categories, object)[codes]
        return self._typed(pa.array([text or None for text in texts], pa.string()))

    def _typed(self, cells: pa.Array) -> pa.Array:
        return cells.cast(pa.type_for_alias(self.dtype), safe=False) if self.dtype else cells


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a table in their order, and which one is the target.

    Attributes:
        columns: All that are kept.
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
        """Names of columns whose bounds or categories were read off the records."""
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
        """Features (n, m) float64, and the target (n,): codes, numbers, or None where there is none.

        Raises:
            ValueError: a column that is missing, a missing value in a column of numbers, or a value of the target that
                is none of its categories.
        """
        for column in self.columns:
            if column.name not in table:
                raise ValueError(f"column {column.name!r} must be in the table, which has {', '.join(table)}")
        x = np.concatenate([column.encode(table[column.name]) for column in self.features], axis=1)
        target = self.target_column
        if target is None:
            return x, None
        if target.kind != "category":
            return x, tables.number_column(target.name, table[target.name])
        codes = target.codes(table[target.name])
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            value = table[target.name][row].as_py()
            raise ValueError(f"target {target.name!r} must be one of its categories, got {value!r} in row {row + 1}")
        return x, codes.astype(np.int32)

    def decode(self, x: Any, y: Any = None) -> pa.Table:
        """A table of (n, m) features and the target (n,), columns in their order.

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

    def to_json(self) -> dict[str, Any]:
        """What `infer` takes as `given` to make it again without the records; float bounds survive exactly.

        A column that is not public says so, and remains so until somebody takes "from_records" out.
        """
        found = {}
        for column in self.columns:
            said: dict[str, Any] = {} if column.is_public else {"from_records": True}
            if column.kind == "category":
                said |= {"kind": column.kind, "categories": list(column.categories)}
            else:
                said |= {"kind": column.kind, "lower": column.lower, "upper": column.upper}
            if column.kind == "number":
                said["decimals"] = column.decimals
            found[column.name] = said
        return found


def infer(
    table: Columns,
    *,
    target: str | None = None,
    given: Mapping[str, Any] | None = None,
    drop: Sequence[str] = (),
    task: str | None = None,
) -> Schema:
    """The schema of a table, from what is given and, where nothing is, from the records.

    Args:
        table: From `tables.read_csv` or `tables.read_parquet`.
        target: The column to predict.
        given: By column: [lower, upper]; a list of texts, the categories; or an object with "lower" and "upper" or
            "categories", and "kind" or "decimals" if wanted; with "from_records" true it is as good as not given. A key
            that is no column is an error.
        drop: Columns to leave out.
        task: "classification" or "regression", of the target; None to tell by its values.

    Raises:
        ValueError: unknown names, an entry of `given` that is none of these, or a column that is neither numbers nor
            text of at most `tables.MAX_CATEGORIES` values.
    """
    given = dict(given or {})
    for use, names in (("target", [target] if target is not None else []), ("given", given), ("drop", drop)):
        for name in names:
            if name not in table:
                raise ValueError(f"{use} must name columns of the table, {', '.join(table)}; got {name!r}")
    if target is not None and target in drop:
        raise ValueError(f"drop must leave the target, got {target!r}")
    if task is not None:
        validate.one_of(("classification", "regression"), task=task)
    kept = {name: values for name, values in table.items() if name not in drop}
    if not [name for name in kept if name != target]:
        raise ValueError(f"drop must leave a column beside the target, got {', '.join(drop)}")
    return Schema(
        tuple(
            _column(name, values, given.get(name), task if name == target else None, is_target=name == target)
            for name, values in kept.items()
        ),
        target,
    )


def write_table(table: pa.Table, suffix: str) -> bytes:
    """The bytes of a CSV or Parquet file.

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
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return text.getvalue().encode()


def read_table(path: Path) -> Columns:
    """The columns of a CSV or Parquet file.

    Raises:
        ValueError: another suffix, or not readable.
        FileNotFoundError: nothing there.
    """
    validate.one_of((".csv", ".tsv", ".parquet"), **{f"the suffix of {path}": path.suffix.lower()})
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    read = tables.read_parquet if path.suffix.lower() == ".parquet" else tables.read_csv
    return read(str(path), path.read_bytes())


def _column(name: str, values: pa.ChunkedArray, given: Any, task: str | None, *, is_target: bool) -> Column:
    dtype = _type_of(values)
    said = _said(name, given)
    is_category = "categories" in said or said.get("kind") == "category" or task == "classification"
    # Bounds given for text are an error, which reading it as numbers will say.
    if is_category or not ("lower" in said or (tables.is_numeric_column(values) and dtype != "bool")):
        found = said.get("categories")
        return Column(name=name, kind="category", categories=found or _categories(name, values), dtype=dtype,
                      is_public=found is not None and not said.get("from_records"))  # fmt: skip
    numbers = tables.number_column(name, values)
    is_whole = bool(np.all(numbers == np.rint(numbers)))
    if is_target and task is None and not said and is_whole and len(np.unique(numbers)) <= MOST_CLASSES:
        return Column(name=name, kind="category", categories=_categories(name, values), dtype=dtype)
    lower, upper = said.get("lower"), said.get("upper")
    is_public = lower is not None and not said.get("from_records")
    if lower is None or upper is None:
        lower, upper = float(numbers.min()), float(numbers.max())
        # A column of one value has bounds all the same.
        upper = upper if upper > lower else lower + 1
    kind = said.get("kind") or ("integer" if is_whole else "number")
    decimals = said["decimals"] if "decimals" in said else _decimals(numbers)
    return Column(name=name, kind=kind, lower=float(lower), upper=float(upper), is_public=is_public, dtype=dtype,
                  decimals=None if kind == "integer" else decimals)  # fmt: skip


def _said(name: str, given: Any) -> dict[str, Any]:
    """An entry of `given` as an object with known keys."""
    if given is None:
        return {}
    said = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(given, (list, tuple)):
        is_pair = len(given) == 2 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given)
        is_texts = all(isinstance(v, str) for v in given)
        said = {"lower": given[0], "upper": given[1]} if is_pair else {"categories": given} if is_texts else {}
    allowed = {"lower", "upper", "categories", "kind", "decimals", "from_records"}
    if (
        not said
        or set(said) - allowed
        or ("lower" in said) != ("upper" in said)
        or {"lower", "categories"} <= set(said)
    ):
        raise ValueError(
            f"bounds of {name!r} must be [lower, upper], a list of texts, the categories, or an object with lower and "
            f"upper, or categories, and kind or decimals; got {given!r:.80}"
        )
    if "categories" in said:
        values = said["categories"]
        if not isinstance(values, (list, tuple)) or not all(isinstance(v, (str, int, float, bool)) for v in values):
            raise ValueError(f"categories of {name!r} must be a list of texts, got {values!r:.80}")
        said["categories"] = tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    for end in ("lower", "upper"):
        if end in said and (not isinstance(said[end], (int, float)) or isinstance(said[end], bool)):
            raise ValueError(f"{end} of {name!r} must be a number, got {said[end]!r}")
    if said.get("decimals") is not None:
        validate.integer(minimum=0, **{f"decimals of {name!r}": said["decimals"]})
    return said


def _categories(name: str, values: pa.ChunkedArray) -> tuple[str, ...]:
    found = np.unique(tables.text_column(name, values, allow_missing=True))
    if len(found) > tables.MAX_CATEGORIES:
        raise ValueError(
            f"column {name!r} has {len(found)} different values, more than the {tables.MAX_CATEGORIES} that can be "
            f"one-hot encoded: leave it out with --drop {shlex.quote(name)}"
        )
    return tuple(str(value) for value in found)


def _decimals(numbers: np.ndarray) -> int | None:
    for decimals in range(MOST_DECIMALS + 1):
        if np.array_equal(np.round(numbers, decimals), numbers):
            return decimals
    return None


def _type_of(values: pa.ChunkedArray) -> str:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return ""
    if pa.types.is_decimal(kind):
        return "double"
    return str(kind)

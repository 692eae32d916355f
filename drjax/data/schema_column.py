"""One column of a table that is published: what it may hold, how its cells become numbers, and numbers cells again."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import cell_dates, stated_cells, table_cells, tables

KINDS = ("number", "integer", "date", "time", "ordinal", "category")
MOST_DECIMALS = 15
LEAST_STEPS = 1000
"""Steps that the decimals of a column divide its range into at least, where nobody states them."""

LARGEST = 2**53
"""Largest bound, and largest multiple of the step of a column: float64 holds every whole number up to it."""

_EPOCH = datetime.datetime(1970, 1, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        name: Header of the column.
        kind: A name in `KINDS`.
        lower: Least value: of numbers and integers in units of the column, of dates in days since 1970, of times in
            hours; 0 for ordinals, whose values are ranks.
        upper: The same, larger.
        decimals: Decimals that are written of a number; None for as many as divide the range into `LEAST_STEPS`.
        categories: Values of a category, or of an ordinal from least to most, all of them, as text, without surrounding
            space; a missing cell is "".
        format: Format of `strptime` that dates and times are read and written by, its usual one if empty; "decimal
            comma" for numbers that are read so.
        missing: Texts that stand for a missing cell, beside all that does not parse.
        fill: Value in the place of a missing cell, within the bounds or among the categories; None for the middle of
            the bounds, and for no category.
        scale: Public number > 0 that components divide the column by, in its units; None if none is stated.
        is_public: Whether bounds and categories were stated or public, not read off the records.

    Example:
        >>> from drjax.data.schema import Column
        >>> age = Column(name="age", kind="integer", lower=0, upper=120)
        >>> age.middle, age.width
        (60.0, 1)
    """

    name: str
    kind: str
    lower: float = 0.0
    upper: float = 0.0
    decimals: int | None = None
    categories: tuple[str, ...] = ()
    format: str = ""
    missing: tuple[str, ...] = ()
    fill: float | str | None = None
    scale: float | None = None
    is_public: bool = True

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(KINDS, **{f"kind of {self.name!r}": self.kind})
        if self.kind in ("category", "ordinal"):
            self._check_categories()
        if self.is_temporal and not self.format:
            object.__setattr__(self, "format", stated_cells.USUAL[self.kind])
        if self.scale is not None and not (self.kind != "category" and 0 < self.scale < math.inf):
            raise ValueError(f"scale of {self.name!r} must be a finite number > 0 of numbers, got {self.scale}")
        if self.kind == "category":
            return
        ends = [self.lower, self.upper]
        if not (np.isfinite(ends).all() and self.lower < self.upper):
            raise ValueError(f"bounds of {self.name!r} must be finite, lower < upper, got {self.lower}, {self.upper}")
        if max(map(abs, ends)) > LARGEST:
            raise ValueError(
                f"bounds of {self.name!r} must lie within +-2^53, got {self.lower:g}, {self.upper:g}: state narrower "
                "ones, or give the column another unit"
            )
        if self.fill is not None and not (self.kind == "ordinal" or self.lower <= float(self.fill) <= self.upper):
            raise ValueError(f"fill of {self.name!r} must lie within its bounds, got {self.fill}")
        if self.kind != "number":
            object.__setattr__(self, "decimals", 0)
        elif self.decimals is None:
            object.__setattr__(self, "decimals", _decimals_for(self.lower, self.upper))
        else:
            validate.integer(minimum=0, **{f"decimals of {self.name!r}": self.decimals})
            validate.at_most(MOST_DECIMALS, "the most", **{f"decimals of {self.name!r}": self.decimals})
        least, most = self._multiples
        if most - least < 1 or max(abs(least), abs(most)) > LARGEST:
            what = f"numbers of {self.decimals} decimals" if self.kind == "number" else "whole numbers"
            raise ValueError(
                f"bounds of {self.name!r} must hold from 2 to 2^53 {what}, got {self.lower:g}, {self.upper:g}: state "
                "other bounds, kind or decimals"
            )

    def _check_categories(self) -> None:
        object.__setattr__(self, "categories", tuple(text.strip() for text in self.categories))
        least = 2 if self.kind == "ordinal" else 1
        if len(self.categories) < least or len(set(self.categories)) < len(self.categories):
            words = {1: "one", 2: "two"}[least]
            raise ValueError(f"categories of {self.name!r} must be distinct and at least {words}, got {self._shown}")
        if len(self.categories) > tables.MAX_CATEGORIES:
            raise ValueError(
                f"categories of {self.name!r} must be at most {tables.MAX_CATEGORIES}, got {len(self.categories)}"
            )
        if self.fill is not None and self.fill not in self.categories:
            raise ValueError(f"fill of {self.name!r} must be one of its categories, got {self.fill!r}")
        if self.kind == "ordinal":
            object.__setattr__(self, "lower", 0.0)
            object.__setattr__(self, "upper", float(len(self.categories) - 1))

    @property
    def is_temporal(self) -> bool:
        """Whether it holds dates or times of day."""
        return self.kind in stated_cells.USUAL

    @property
    def width(self) -> int:
        """Columns that it takes when encoded."""
        return len(self.categories) if self.kind == "category" else 1

    @property
    def feature_names(self) -> list[str]:
        """Names of those columns."""
        return [f"{self.name}={c}" for c in self.categories] if self.kind == "category" else [self.name]

    @property
    def middle(self) -> float:
        """Middle of the bounds."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def _shown(self) -> str:
        return ", ".join(map(repr, self.categories[:5])) + (" ..." if len(self.categories) > 5 else "")

    @property
    def _steps(self) -> int:
        """Values in one unit that are written apart: days or minutes of a date, minutes or seconds of a time."""
        if self.kind == "date":
            return 24 * 60 if "%H" in self.format else 1
        if self.kind == "time":
            return 3600 if "%S" in self.format else 60
        return 10 ** int(self.decimals or 0)

    @property
    def _multiples(self) -> tuple[int, int]:
        """Least and largest multiple of the step within the bounds."""
        if self.is_temporal:
            return round(self.lower * self._steps), round(self.upper * self._steps)
        # By the decimals that they are written as: 0.1 is a multiple of 0.1.
        scale = Decimal(self._steps)
        return math.ceil(Decimal(repr(self.lower)) * scale), math.floor(Decimal(repr(self.upper)) * scale)

    def __str__(self) -> str:
        """One line for people."""
        if self.kind == "category":
            return f"{self.name}: {self.width} categor{'y' if self.width == 1 else 'ies'} ({self._shown})"
        if self.kind == "ordinal":
            return f"{self.name}: ordinal of {len(self.categories)} ranks ({self._shown})"
        if self.is_temporal:
            ends = (cell_dates.written(end, self.kind) for end in (self.lower, self.upper))
            return f"{self.name}: {self.kind} in [{', '.join(ends)}]"
        digits = "" if self.kind == "integer" else f", {self.decimals} decimal{'' if self.decimals == 1 else 's'}"
        return f"{self.name}: {self.kind} in [{self.lower:g}, {self.upper:g}]{digits}"

    def codes(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n,) index of each cell among the categories; that of `fill` for a missing cell, or -1 without one.

        A cell is the category of the same text; failing that, the one of the same number, so that 1.0 is 1 and a column
        may hold integers or floats; failing that, the one of the same text in another case.
        """
        texts, at = np.unique(table_cells.cell_texts(cells), return_inverse=True)
        left_out = {text.strip().lower() for text in self.missing}
        found = [-1 if str(text).lower() in left_out else self._code(str(text)) for text in texts]
        filled = -1 if self.fill is None else self.categories.index(str(self.fill))
        return np.array([filled if code < 0 else code for code in found], np.int64)[at]

    def _code(self, text: str) -> int:
        by_text, by_number, by_lower = self._lookup
        if text in by_text:
            return by_text[text]
        number = table_cells.parsed_number(text)
        return by_lower.get(text.lower(), -1) if number is None else by_number.get(number, -1)

    @functools.cached_property
    def _lookup(self) -> tuple[dict[str, int], dict[float, int], dict[str, int]]:
        numbers: dict[float, int] = {}
        lower: dict[str, int] = {}
        for i, text in enumerate(self.categories):
            number = table_cells.parsed_number(text)
            # Two categories of one number, such as 7 and 07, or of one word are told by their texts alone.
            if number is not None:
                numbers[number] = i if number not in numbers else -1
            lower[text.lower()] = i if text.lower() not in lower else -1
        return {text: i for i, text in enumerate(self.categories)}, numbers, lower

    def known(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n,) float64, of any kind but a category: each cell as it is; nan where it is missing or does not parse."""
        if self.kind == "ordinal":
            codes = dataclasses.replace(self, fill=None).codes(cells)
            return np.where(codes < 0, np.nan, codes)
        if self.is_temporal:
            found = stated_cells.moments(cells, self.kind, self.format)
        else:
            found = stated_cells.numbers(cells, self.format)
        return np.where(stated_cells.is_among(cells, self.missing), np.nan, found) if self.missing else found

    def numbers(self, cells: pa.ChunkedArray) -> np.ndarray:
        """(n,) float64 within the bounds; a cell that is no number is `fill`, or else the middle of them."""
        return self._within(self.known(cells), self.middle if self.fill is None else self._filled)

    @property
    def _filled(self) -> float:
        """`fill` as a number; nan without one."""
        if self.fill is None:
            return math.nan
        return float(self.categories.index(str(self.fill)) if self.kind == "ordinal" else self.fill)

    def _within(self, found: np.ndarray, fill: float) -> np.ndarray:
        return np.clip(np.where(np.isnan(found), fill, found), self.lower, self.upper)

    def encode(self, cells: pa.ChunkedArray, *, is_filled: bool = True) -> np.ndarray:
        """(n, width) float64: `numbers`; categories one-hot, unlisted ones all 0.

        Args:
            cells: The column.
            is_filled: Put the middle of the bounds where a cell is missing and no `fill` is stated; else nan.
        """
        if self.kind != "category":
            return self.numbers(cells)[:, None] if is_filled else self._within(self.known(cells), self._filled)[:, None]
        return (self.codes(cells)[:, None] == np.arange(self.width)).astype(np.float64)

    def outside(self, cells: pa.ChunkedArray) -> dict[str, int]:
        """How many cells the fixed rule changed, by what they were; private."""
        if self.kind == "category":
            return {"none of the categories": int((dataclasses.replace(self, fill=None).codes(cells) < 0).sum())}
        found = self.known(cells)
        is_cut = (found < self.lower) | (found > self.upper)
        what = {"ordinal": "none of the categories", "date": "missing or no date", "time": "missing or no time"}
        missing = what.get(self.kind, "missing or no number")
        return {"beyond the bounds": int(is_cut.sum()), missing: int(np.isnan(found).sum())}

    def decode(self, x: np.ndarray) -> pa.Array:
        """The cells of (n, width) values: clipped and rounded numbers, the largest of one-hot values; nan is lower."""
        if self.kind == "category":
            return self.of_codes(np.argmax(x, axis=1))
        multiples = self._rounded(x[:, 0])
        if self.kind == "ordinal":
            return self.of_codes(multiples)
        if self.is_temporal:
            seconds = multiples * ((86400 if self.kind == "date" else 3600) // self._steps)
            return pa.array([self._moment(int(one)) for one in seconds], pa.string())
        if self.kind == "integer":
            return pa.array(multiples)
        return pa.array(multiples / float(self._steps))

    def _moment(self, seconds: int) -> str:
        """Seconds since 1970, or of the day, as they are written; lengths of time go beyond 24 hours."""
        if self.format.startswith("%H:%M"):
            parts = seconds // 3600, seconds // 60 % 60, seconds % 60
            return ":".join(f"{part:02d}" for part in parts[: self.format.count("%")])
        return (_EPOCH + datetime.timedelta(seconds=seconds)).strftime(self.format)

    def of_codes(self, codes: np.ndarray) -> pa.Array:
        """The cells of (n,) indices among the categories."""
        texts = np.asarray(self.categories, object)[codes]
        return pa.array([text or None for text in texts], pa.string())

    def texts(self, cells: pa.ChunkedArray) -> list[str]:
        """Cells as `decode` gives them, as they are written to a CSV file: all decimals, trailing zeros among them."""
        if self.kind == "integer":
            return [str(value) for value in cells.to_pylist()]
        if self.kind == "number":
            # + 0.0 takes the sign off a zero.
            return [f"{value + 0.0:.{self.decimals}f}" for value in cells.to_pylist()]
        return [text or "" for text in cells.to_pylist()]

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        """The nearest multiples of the step within the bounds, (n,) int64."""
        least, most = self._multiples
        known = np.nan_to_num(np.asarray(values, np.float64), nan=self.lower, posinf=self.upper, neginf=self.lower)
        scaled = np.rint(np.clip(known, self.lower, self.upper) * float(self._steps))
        return np.clip(scaled, least, most).astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """What is stated of the column, as `drjax.data.schema_sources.stated` takes it; bounds survive exactly."""
        said: dict[str, Any] = {"kind": self.kind}
        if self.categories:
            said["categories"] = list(self.categories)
        elif self.is_temporal:
            said |= {"lower": self.shown(self.lower), "upper": self.shown(self.upper)}
        else:
            said |= {"lower": self.lower, "upper": self.upper}
        if self.kind == "number":
            said["decimals"] = self.decimals
        fill = self.shown(float(self.fill)) if self.is_temporal and self.fill is not None else self.fill
        optional = {"format": self.format or None, "missing": list(self.missing) or None}
        optional |= {"fill": fill, "scale": self.scale}
        return said | {name: value for name, value in optional.items() if value is not None}

    def shown(self, value: float) -> str:
        """A date or time of day as a person states it."""
        return cell_dates.written(value, self.kind)


def _decimals_for(lower: float, upper: float) -> int:
    """The fewest decimals whose step divides the range into `LEAST_STEPS` or more; fewer where float64 ends."""
    wanted = math.ceil(math.log10(LEAST_STEPS) - math.log10(upper - lower))
    room = math.floor(math.log10(LARGEST) - math.log10(max(abs(lower), abs(upper))))
    return max(0, min(wanted, room, MOST_DECIMALS))

"""What one column of a private table is, by its cells, and how its cells are read.

Rules are tried in the order of `column_of`; each says why it holds. A kind that is stated is taken as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drjax.data import cell_dates, cell_quantities, table_cells
from drjax.data.cell_quantities import CENSORED

LEFT_OUT = ("text", "constant", "empty", "drop")
ENCODED = ("number", "date", "time", "category", "ordinal", "yes/no")
KINDS = ("id", *LEFT_OUT, *ENCODED)

OTHER = "(other)"
"""Category of the rare values of a column that has many."""

MOST_CATEGORIES = 50
"""Categories of a column whose kind nobody stated; the rest becomes `OTHER`."""

MISSING = frozenset(
    (
        "", "na", "n/a", "n.a.", "#n/a", "null", "nan", "-", "--", "---", ".", "?", "nd", "n.d.", "not done", "unknown",
        "not known", "missing", "not available", "k.a.", "keine angabe", "unbekannt", "inconnu", "desconocido",
    )
)  # fmt: skip
"""Texts that stand for a missing cell, in lower case."""

MISSING_NUMBER = frozenset(("none", "nil"))
"""Texts that do among numbers and dates."""

LEAST_READ = 0.9
"""Least share of the cells that are there which have to be numbers, or dates, for the column to be of these."""

NEAR_UNIQUE, LEAST_FOR_UNIQUE = 0.9, 20
"""Share of different texts, among so many at least, from which a column tells records apart or is free text."""

TEXT_WORDS, SOME_WORDS = 3.0, 4.0
"""Mean number of words from which different texts are free text, and that of texts of which some repeat."""

ID_NAME = re.compile(
    r"(^|[^a-z])(id|ids|nr|no|num|number|mrn|ssn|nhs|uuid|guid|pid|key|record|patient|subject|sample|index)($|[^a-z])"
)

DATE_NAME = re.compile(r"date|birth|dob|admi|disch|day")

YES_NO = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("nein", "ja"), ("non", "oui"), ("absent", "present"),
    ("negative", "positive"), ("neg", "pos"), ("off", "on"), ("0", "1"),
)  # fmt: skip
"""Pairs of texts that say no and yes, in lower case."""

LADDERS = (
    ("none", "minimal", "mild", "moderate", "severe", "critical"),
    ("very low", "low", "medium", "high", "very high"),
    ("very low", "low", "moderate", "high", "very high"),
    ("low", "normal", "high"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("none", "primary", "secondary", "tertiary"),
    ("small", "medium", "large"),
    ("xs", "s", "m", "l", "xl", "xxl"),
    ("i", "ii", "iii", "iv", "v", "vi"),
)
"""Texts that have an order, in lower case."""

BAND = re.compile(r"^(?:(\d+(?:\.\d+)?)\s*(?:-|–|to)\s*\d+(?:\.\d+)?|(<|<=|≤|>|>=|≥)?\s*(\d+(?:\.\d+)?)\s*\+?)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedColumn:
    """What a column is, and how it is read.

    Attributes:
        name: Header of the column.
        kind: A name in `KINDS`.
        reason: Why it is taken for that.
        unit: Unit of the numbers; empty if nobody knows.
        format: How dates or numbers are written: of `cell_dates`, or "decimal comma"; empty for what is typed or plain.
        categories: Texts of a category; of an ordinal from least to most, none if it is written in numbers; no and yes.
        missing: Texts that stand for a missing cell, beside the usual ones.
        censored: Signs before limits that occur, among "<" and ">".
        has_missing: Whether cells are missing.
        fill: What stands in for a missing cell: median, or most frequent category; None if none is needed.
    """

    name: str
    kind: str
    reason: str
    unit: str = ""
    format: str = ""
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    censored: tuple[str, ...] = ()
    has_missing: bool = False
    fill: float | str | None = None


class Cells(NamedTuple):
    """The cells of a column by their texts.

    Attributes:
        column: As it was read.
        texts: Different texts, sorted.
        at: (n,), which of them each cell is.
        count: Cells of each text.
        is_there: Which of them are no missing cell.
    """

    column: pa.ChunkedArray
    texts: list[str]
    at: np.ndarray
    count: np.ndarray
    is_there: np.ndarray

    @property
    def there(self) -> list[str]:
        """Different texts that are no missing cell."""
        return [text for text, is_there in zip(self.texts, self.is_there, strict=True) if is_there]

    @property
    def counted(self) -> np.ndarray:
        """Cells of each text, 0 for those that stand for a missing one among numbers."""
        is_number = [text.lower() not in MISSING_NUMBER for text in self.texts]
        return np.where(self.is_there & is_number, self.count, 0)

    @property
    def n_there(self) -> int:
        """Cells that are not missing."""
        return int(self.count[self.is_there].sum())


def cells_of(column: pa.ChunkedArray, missing: Sequence[str] = ()) -> Cells:
    """The cells of a column; `missing` are further texts that stand for none."""
    column = table_cells.plain(column)
    texts, at, count = np.unique(table_cells.cell_texts(column), return_inverse=True, return_counts=True)
    stands_for_none = MISSING | {text.lower() for text in missing}
    is_there = np.array([str(text).lower() not in stands_for_none for text in texts], bool)
    return Cells(column, [str(text) for text in texts], at, count, is_there)


def column_of(
    name: str, column: pa.ChunkedArray, said: Mapping[str, Any], *, delimiter: str | None = None
) -> PlannedColumn:
    """The plan of one column.

    Args:
        name: Header.
        column: Its cells.
        said: Statements on it: "kind", "categories", "format", "missing", "unit".
        delimiter: Separator of the file; see `drjax.data.plan.planned`.

    Raises:
        ValueError: cells that do not fit what is stated.
    """
    cells = cells_of(column, said.get("missing", ()))
    kind = said.get("kind")
    found = None
    if kind in ("id", *LEFT_OUT):
        return PlannedColumn(name=name, kind=kind, reason="stated", missing=tuple(said.get("missing", ())))
    for rule in _RULES:
        if kind is None or kind in _MAY_FIND[rule]:
            found = rule(name, cells, said, delimiter)
        if found is not None:
            break
    if found is None:
        raise ValueError(
            f"kind of {name!r} in the plan must fit its cells, got {kind!r} for {_shown(cells.there)}: state another "
            "kind, or the format or categories"
        )
    return dataclasses.replace(
        found,
        reason="stated" if kind is not None else found.reason,
        unit=str(said.get("unit", found.unit)),
        missing=tuple(said.get("missing", ())),
    )


def numbers_of(column: PlannedColumn, cells: pa.ChunkedArray) -> cell_quantities.Numbers:
    """The cells of a column that is no category as numbers; nan where they are missing."""
    return _numbers(column, cells_of(cells, column.missing))


def codes_of(column: PlannedColumn, cells: pa.ChunkedArray) -> np.ndarray:
    """(n,) index of each cell among the categories; -1 where it is missing, or none of them and there is no other."""
    return _codes(column.categories, cells_of(cells, column.missing))


def shown_fill(column: PlannedColumn, shown: Any) -> str:
    """What stands in for a missing cell, as a person writes it."""
    if column.kind in ("date", "time"):
        return cell_dates.written(float(shown), column.kind)
    if column.categories and column.kind != "category":
        return column.categories[int(float(shown))]
    return str(shown)


def _numbers(column: PlannedColumn, cells: Cells) -> cell_quantities.Numbers:
    if column.kind in ("date", "time"):
        return cell_quantities.unsigned(cell_dates.numbers(cells.column, cells.texts, cells.at, column.format))
    if column.categories:
        codes = _codes(column.categories, cells)
        return cell_quantities.unsigned(np.where(codes < 0, np.nan, codes))
    read = cell_quantities.numbers(cells.column, cells.texts, cells.at, column.format)
    return read._replace(values=np.where(cells.is_there[cells.at], read.values, np.nan))


def _codes(categories: Sequence[str], cells: Cells) -> np.ndarray:
    by_text = {text: i for i, text in enumerate(categories)}
    by_lower = {text.lower(): i for i, text in enumerate(categories)}
    other = by_text.get(OTHER, -1)
    codes = [by_text.get(text, by_lower.get(text.lower(), other)) for text in cells.texts]
    # A category that is stated is one, even if its text else stands for a missing cell.
    is_known = [is_there or text in by_text for text, is_there in zip(cells.texts, cells.is_there, strict=True)]
    return np.where(is_known, codes, -1)[cells.at]


def _complete(column: PlannedColumn, cells: Cells) -> PlannedColumn:
    """With what stands in for missing cells, and the signs that occur."""
    if column.kind == "category":
        codes = _codes(column.categories, cells)
        known = codes[codes >= 0]
        if not len(known) or (codes >= 0).all():
            return column
        fill = column.categories[int(np.bincount(known, minlength=len(column.categories)).argmax())]
        return dataclasses.replace(column, has_missing=True, fill=fill)
    read = _numbers(column, cells)
    known = read.values[~np.isnan(read.values)]
    signs = tuple(sign for i, sign in enumerate(CENSORED) if (read.signs == i).any())
    column = dataclasses.replace(column, censored=signs)
    if len(known) == len(read.values) or not len(known):
        return column
    method = "linear" if column.kind == "number" else "lower"
    return dataclasses.replace(column, has_missing=True, fill=float(np.quantile(known, 0.5, method=method)))


def _nothing(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns that hold nothing, or one value in every cell."""
    del said, delimiter
    if not cells.n_there:
        kind = cells.column.type
        is_empty = cells.column.null_count == len(cells.column) or table_cells.is_text(kind)
        why = "every cell is missing" if is_empty else f"{kind} is neither number, date nor text"
        return PlannedColumn(name=name, kind="empty", reason=why)
    if len(cells.texts) == 1:
        return PlannedColumn(name=name, kind="constant", reason=f"{cells.texts[0]!r:.40} in every cell")
    return None


def _yes_no(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of two values that say no and yes, or of one value and missing cells."""
    del delimiter
    there, pair = cells.there, said.get("categories")
    if pair is None:
        lower = sorted({text.lower() for text in there})
        pair = next((both for both in YES_NO if lower == sorted(both)), None)
        if pair is None and len(there) == 2 and said:
            pair = tuple(there)
        if pair is None or len(lower) != 2:
            return None
    column = PlannedColumn(name=name, kind="yes/no", reason=f"{pair[0]} and {pair[1]}", categories=tuple(pair))
    return _complete(column, cells)


def _date(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of dates and of times of day."""
    del delimiter
    is_named = bool(DATE_NAME.search(name.lower())) or "kind" in said
    found = cell_dates.found(
        cells.column, cells.texts, cells.counted, said.get("format"), is_named=is_named, least=LEAST_READ
    )
    if found is None or said.get("kind", found.kind) != found.kind:
        return None
    column = PlannedColumn(name=name, kind=found.kind, reason=found.reason, unit=found.unit, format=found.format)
    return _complete(column, cells)


def _number(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of numbers: ids that count or are named so, scales, and all others."""
    found = cell_quantities.found(cells.column, cells.texts, cells.counted, said.get("format"), delimiter=delimiter)
    is_stated = "kind" in said
    if found is None or (not is_stated and found.share < LEAST_READ):
        return None
    column = PlannedColumn(name=name, kind="number", reason=found.reason, unit=found.unit, format=found.format)
    read = _numbers(column, cells)
    known = read.values[~np.isnan(read.values)]
    if not len(known):
        return None
    is_whole, different = bool(np.all(known == np.rint(known))), np.unique(known)
    is_named = bool(ID_NAME.search(name.lower().replace("_", " ")))
    if not is_stated and is_whole and len(different) == len(known) == cells.n_there and (read.signs < 0).all():
        is_counted = not found.unit and np.array_equal(np.diff(different), np.ones(len(known) - 1))
        # Years of a series have a step of one, too.
        if len(known) > 4 and is_counted and (different[0] in (0, 1) or is_named):
            return PlannedColumn(name=name, kind="id", reason="counts the records")
        if is_named and len(known) >= LEAST_FOR_UNIQUE:
            return PlannedColumn(name=name, kind="id", reason=f"all {len(known):,} different, and named like one")
    is_scale = is_whole and 3 <= len(different) <= 11 and different[0] in (0, 1) and np.ptp(different) < 11
    if said.get("kind") == "ordinal" or (not is_stated and is_scale and np.all(np.diff(different) == 1)):
        reason = f"whole numbers from {different[0]:.0f} to {different[-1]:.0f}" if is_scale else found.reason
        column = dataclasses.replace(column, kind="ordinal", reason=reason)
    elif said.get("kind") == "yes/no":
        return None
    return _complete(column, cells)


def _ordinal(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of texts that have an order."""
    del delimiter
    there = cells.there
    if "categories" in said:
        order = tuple(said["categories"])
        return _complete(PlannedColumn(name=name, kind="ordinal", reason="stated", categories=order), cells)
    by_lower = {text.lower(): text for text in there}
    if len(by_lower) < 3 or len(by_lower) < len(there):
        return None
    for ladder in LADDERS:
        if set(by_lower) <= set(ladder):
            order = tuple(by_lower[text] for text in ladder if text in by_lower)
            reason = f"{order[0]} to {order[-1]}"
            return _complete(PlannedColumn(name=name, kind="ordinal", reason=reason, categories=order), cells)
    bands = {text: BAND.match(text) for text in there}
    if all(bands.values()) and sum(band is not None and band[1] is not None for band in bands.values()) >= 2:
        order = tuple(sorted(there, key=lambda text: _least_of(bands[text])))
        reason = f"bands from {order[0]} to {order[-1]}"
        return _complete(PlannedColumn(name=name, kind="ordinal", reason=reason, categories=order), cells)
    return None


def _least_of(band: re.Match[str] | None) -> float:
    assert band is not None
    if band[1] is not None:
        return float(band[1])
    return float(band[3]) + {"<": -0.5, "<=": -0.5, "≤": -0.5}.get(band[2] or "", 0.5)


def _words(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of texts that tell records apart, or are free text."""
    del said, delimiter
    there, n = cells.there, cells.n_there
    words = float(np.mean([len(text.split()) for text in there]))
    share = len(there) / n
    if n >= LEAST_FOR_UNIQUE and share >= NEAR_UNIQUE:
        all_of = f"all {n:,}" if len(there) == n else f"{share:.0%} of them"
        if words >= TEXT_WORDS:
            return PlannedColumn(name=name, kind="text", reason=f"{words:.0f} words a cell, {all_of} different")
        return PlannedColumn(name=name, kind="id", reason=f"texts, {all_of} different")
    if n >= LEAST_FOR_UNIQUE and (share > 0.5 or (words >= SOME_WORDS and share > 0.3)):
        return PlannedColumn(name=name, kind="text", reason=f"{len(there):,} different texts in {n:,} cells")
    return None


def _category(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Every other column."""
    del delimiter
    if "categories" in said:
        listed = tuple(said["categories"])
    else:
        order = np.argsort(-cells.count[cells.is_there], kind="stable")
        there = cells.there
        listed = tuple(sorted(there))
        if len(there) > MOST_CATEGORIES:
            listed = (*sorted(there[i] for i in order[: MOST_CATEGORIES - 1]), OTHER)
    if not listed:
        return None
    n = len(cells.there)
    reason = f"{n:,} different {'text' if n == 1 else 'texts'}"
    if listed[-1] == OTHER:
        reason += f"; all but the {MOST_CATEGORIES - 1} most frequent are one"
    return _complete(PlannedColumn(name=name, kind="category", reason=reason, categories=listed), cells)


_RULES = (_nothing, _yes_no, _date, _ordinal, _number, _words, _category)
_MAY_FIND: dict[Any, tuple[str, ...]] = {
    _nothing: (),
    _yes_no: ("yes/no",),
    _date: ("date", "time"),
    _ordinal: ("ordinal",),
    _number: ("number", "ordinal"),
    _words: (),
    _category: ("category",),
}


def _shown(texts: Sequence[str]) -> str:
    return ", ".join(repr(text[:20]) for text in texts[:4]) + (" ..." if len(texts) > 4 else "")

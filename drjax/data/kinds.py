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

from drjax.data import cell_dates, cell_quantities, kind_words, table_cells
from drjax.data.cell_quantities import CENSORED
from drjax.data.kind_words import LADDERS, MISSING, MISSING_NUMBER, NO, PLUS, YES, YES_NO

LEFT_OUT = ("text", "constant", "empty", "drop")
ENCODED = ("number", "date", "time", "category", "ordinal", "yes/no")
KINDS = ("id", *LEFT_OUT, *ENCODED)

OTHER = "(other)"
"""Category of the rare values of a column that has many."""

MOST_CATEGORIES = 50
"""Categories of a column whose kind nobody stated; the rest becomes `OTHER`."""

LEAST_READ = 0.9
"""Least share of the cells that are there which have to be numbers, or dates, for the column to be of these."""

LEAST_AMONG_WORDS, LEAST_NUMBERS, MOST_WORDS = 0.5, 20, 0.25
"""Least share of numbers in a column that has some words too, least different numbers, and most words by these."""

NEAR_UNIQUE, LEAST_FOR_UNIQUE = 0.9, 20
"""Share of different texts, among so many at least, from which a column tells records apart or is free text."""

TEXT_WORDS, SOME_WORDS = 3.0, 4.0
"""Mean number of words from which different texts are free text, and that of texts of which some repeat."""

ID_NAME = re.compile(
    r"(^|[^a-z])(id|ids|nr|no|num|number|mrn|ssn|nhs|uuid|guid|pid|key|record|patient|subject|sample|index)($|[^a-z])"
)

DATE_NAME = re.compile(r"date|birth|dob|admi|disch|day")


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
    coded = pa.array(table_cells.cell_texts(column), pa.string()).dictionary_encode()
    found: list[str] = coded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=found.__getitem__)
    at = np.argsort(order)[coded.indices.to_numpy()]
    texts = [found[i] for i in order]
    stands_for_none = MISSING | {text.lower() for text in missing}
    is_there = np.array([text.lower() not in stands_for_none for text in texts], bool)
    return Cells(column, texts, at, np.bincount(at, minlength=len(texts)), is_there)


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
    kind: Any = said.get("kind")
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
        reason="stated" if kind is not None else found.reason + _errors_of(cells),
        unit=str(said.get("unit", found.unit)),
        missing=tuple(said.get("missing", ())),
    )


def numbers_of(column: PlannedColumn, cells: pa.ChunkedArray) -> cell_quantities.Numbers:
    """The cells of a column that is no category as numbers; nan where they are missing."""
    return _numbers(column, cells_of(cells, column.missing))


def codes_of(column: PlannedColumn, cells: pa.ChunkedArray) -> np.ndarray:
    """(n,) index of each cell among the categories; -1 where it is missing, or none of them and there is no other."""
    return _codes(column, cells_of(cells, column.missing))


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
        codes = _codes(column, cells)
        return cell_quantities.unsigned(np.where(codes < 0, np.nan, codes))
    read = cell_quantities.numbers(cells.column, cells.texts, cells.at, column.format)
    return read._replace(values=np.where(cells.is_there[cells.at], read.values, np.nan))


def _codes(column: PlannedColumn, cells: Cells) -> np.ndarray:
    by_text = {text: i for i, text in enumerate(column.categories)}
    by_lower = {text.lower(): i for i, text in enumerate(column.categories)}
    if column.kind == "yes/no" and len(by_lower) == 2 and set(by_lower) & NO and set(by_lower) & YES:
        # Other spellings of the same, as Y beside yes.
        by_lower = dict.fromkeys(NO, 0) | dict.fromkeys(YES, 1) | by_lower
    other = by_text.get(OTHER, -1)
    codes = [by_text.get(text, by_lower.get(text.lower(), other)) for text in cells.texts]
    # A category that is stated is one, even if its text else stands for a missing cell.
    is_known = [is_there or text in by_text for text, is_there in zip(cells.texts, cells.is_there, strict=True)]
    return np.where(is_known, codes, -1)[cells.at]


def _errors_of(cells: Cells) -> str:
    """A clause on errors of formulas, empty if there are none."""
    found = [
        (text, int(n))
        for text, n in zip(cells.texts, cells.count, strict=True)
        if text.lower() in kind_words.FORMULA_ERRORS
    ]
    # "#N/A" alone is how programs write a missing cell.
    if all(text.lower() == "#n/a" for text, _ in found):
        return ""
    n = sum(number for _, number in found)
    return f"; {n:,} {'is an error' if n == 1 else 'are errors'} of formulas, as {found[0][0]!r}, taken for missing"


def _complete(column: PlannedColumn, cells: Cells) -> PlannedColumn:
    """With what stands in for missing cells, and the signs that occur."""
    if column.kind == "category":
        codes = _codes(column, cells)
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
        if pair is None and set(lower) <= NO | YES and set(lower) & NO and set(lower) & YES:
            reason = f"spellings of no and yes: {', '.join(lower)}"
            return _complete(PlannedColumn(name=name, kind="yes/no", reason=reason, categories=("no", "yes")), cells)
        if pair is None and there == ["+"] and "-" in cells.texts:
            return _complete(PlannedColumn(name=name, kind="yes/no", reason="- and +", categories=("-", "+")), cells)
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
    is_stated = "kind" in said
    least = 1 if is_stated else cell_quantities.LEAST_DIFFERENT
    form = said.get("format")
    found = cell_quantities.found(
        cells.column, cells.texts, cells.counted, form, delimiter=delimiter, least_different=least
    )
    if found is None:
        return None
    column = PlannedColumn(name=name, kind="number", reason=found.reason, unit=found.unit, format=found.format)
    read = _numbers(column, cells)
    known = read.values[~np.isnan(read.values)]
    if not len(known):
        return None
    is_whole, different = bool(np.all(known == np.rint(known))), np.unique(known)
    if not is_stated and found.share < LEAST_READ:
        is_enough = found.share >= LEAST_AMONG_WORDS and len(different) >= LEAST_NUMBERS
        if not is_enough or found.n_others > MOST_WORDS * len(different):
            return None
    is_named = bool(ID_NAME.search(name.lower().replace("_", " ")))
    # A number of the state may have letters, so a few may be no number.
    is_unique = len(different) == len(known) and len(cells.there) == cells.n_there and (read.signs < 0).all()
    if not is_stated and is_whole and is_unique and (is_named or len(known) == cells.n_there):
        is_counted = not found.unit and np.array_equal(np.diff(different), np.ones(len(known) - 1))
        # Years of a series have a step of one, too.
        if len(known) > 4 and is_counted and (different[0] in (0, 1) or is_named):
            return PlannedColumn(name=name, kind="id", reason="counts the records")
        if is_named and len(known) >= LEAST_FOR_UNIQUE:
            return PlannedColumn(name=name, kind="id", reason=f"all {cells.n_there:,} different, and named like one")
    is_scale = is_whole and 3 <= len(different) <= 11 and different[0] in (0, 1) and np.ptp(different) < 11
    if said.get("kind") == "ordinal" or (not is_stated and is_scale and np.all(np.diff(different) == 1)):
        reason = f"whole numbers from {different[0]:.0f} to {different[-1]:.0f}" if is_scale else found.reason
        column = dataclasses.replace(column, kind="ordinal", reason=reason)
    elif said.get("kind") == "yes/no":
        return None
    column = dataclasses.replace(column, reason=column.reason + cell_quantities.sentinel_of(known))
    return _complete(column, cells)


def _ordinal(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of texts that have an order."""
    del delimiter
    there = cells.there
    if "categories" in said:
        order = tuple(said["categories"])
        return _complete(PlannedColumn(name=name, kind="ordinal", reason="stated", categories=order), cells)
    order = kind_words.in_order(there) if len(there) <= min(MOST_CATEGORIES, 0.5 * cells.n_there) else None
    if order is not None:
        reason = f"intervals from {order[0]} to {order[-1]}"
        return _complete(PlannedColumn(name=name, kind="ordinal", reason=reason, categories=order), cells)
    if "+" in there and set(there) <= set(PLUS):
        order = tuple(text for text in PLUS if text in cells.texts)
        if len(order) > 2:
            reason = f"{order[0]} to {order[-1]}"
            return _complete(PlannedColumn(name=name, kind="ordinal", reason=reason, categories=order), cells)
    by_lower = {text.lower(): text for text in there}
    if len(by_lower) < 3 or len(by_lower) < len(there):
        return None
    for ladder in LADDERS:
        if set(by_lower) <= set(ladder):
            order = tuple(by_lower[text] for text in ladder if text in by_lower)
            reason = f"{order[0]} to {order[-1]}"
            return _complete(PlannedColumn(name=name, kind="ordinal", reason=reason, categories=order), cells)
    return None


def _words(name: str, cells: Cells, said: Mapping[str, Any], delimiter: str | None) -> PlannedColumn | None:
    """Columns of texts that tell records apart, or are free text."""
    del said, delimiter
    there, n = cells.there, cells.n_there
    words = float(np.mean([len(text.split()) for text in there]))
    share = len(there) / n
    hint = kind_words.hint_of(there)
    if n >= LEAST_FOR_UNIQUE and share >= NEAR_UNIQUE:
        all_of = f"all {n:,}" if len(there) == n else f"{share:.0%} of them"
        if words >= TEXT_WORDS:
            return PlannedColumn(name=name, kind="text", reason=f"{words:.0f} words a cell, {all_of} different{hint}")
        return PlannedColumn(name=name, kind="id", reason=f"texts, {all_of} different{hint}")
    if n >= LEAST_FOR_UNIQUE and (share > 0.5 or (words >= SOME_WORDS and share > 0.3)):
        return PlannedColumn(name=name, kind="text", reason=f"{len(there):,} different texts in {n:,} cells{hint}")
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

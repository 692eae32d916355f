"""Numbers as people write them: decimal commas, thousands, percent and units, and limits such as <5."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from drjax.data import table_cells

CENSORED = ("<", ">")
"""Signs before a limit that a number is below or above."""

COMMA = "decimal comma"

_SIGNS = {"<": 0, "<=": 0, "≤": 0, "below": 0, "under": 0, "less than": 0}
_SIGNS |= {">": 1, ">=": 1, "≥": 1, "above": 1, "over": 1, "more than": 1}
_QUANTITY = re.compile(
    r"^(?P<sign><=|>=|[<>≤≥]|below |under |less than |above |over |more than )?\s*(?P<before>[€$£])?\s*"
    r"(?P<number>[+\-−]?(?:\d[\d.,' \u00a0\u202f]*|[.,]\d+))(?P<power>[eE][+-]?\d+)?"
    r"\s*(?P<unit>%|‰|[€$£]|[A-Za-zµμ°][A-Za-zµμ°/²³·]{0,14})?$"
)
_GAP = r"[ '\u00a0\u202f]"
_POINT = re.compile(rf"^[+-]?(?:\d*(?:\.\d*)?|\d{{1,3}}(?:(?:,|{_GAP})\d{{3}})+(?:\.\d*)?)$")
_COMMA = re.compile(rf"^[+-]?(?:\d*(?:,\d*)?|\d{{1,3}}(?:(?:\.|{_GAP})\d{{3}})+(?:,\d*)?)$")
_THOUSAND = re.compile(r"^[+-]?[1-9]\d{0,2}(?:,\d{3})+$")

LEAST_DIFFERENT = 2
"""Different numbers that a column of text has at least, for it to be of numbers."""


class Numbers(NamedTuple):
    """Cells as numbers: values (n,) float64, nan where missing; signs (n,), index in `CENSORED` or -1."""

    values: np.ndarray
    signs: np.ndarray


class Found(NamedTuple):
    """How a column writes numbers.

    Attributes:
        format: `COMMA` or empty.
        unit: Unit behind or before each number; empty without.
        share: Share of the cells that are there which are numbers.
        reason: In words.
    """

    format: str
    unit: str
    share: float
    reason: str


def unsigned(values: np.ndarray) -> Numbers:
    """Numbers without signs."""
    return Numbers(np.asarray(values, np.float64), np.full(len(values), -1))


def found(
    column: pa.ChunkedArray, texts: Sequence[str], count: np.ndarray, stated: str | None, *, delimiter: str | None
) -> Found | None:
    """How a column writes numbers; None where none of its cells is one.

    Args:
        column: The cells.
        texts: Different texts of them.
        count: Cells of each text; 0 for those that stand for a missing one.
        stated: `COMMA`, or "decimal point"; None to tell by the texts.
        delimiter: Separator of the file; None if it has none.
    """
    if is_typed(column):
        return Found("", "days" if pa.types.is_duration(column.type) else "", 1.0, f"typed as {column.type}")
    total = int(count.sum())
    if not total:
        return None
    forms = {COMMA: (COMMA,), "decimal point": ("",)}.get(stated or "", ("", COMMA))
    read = {form: [_read(text, form) for text in texts] for form in forms}
    counts = {
        form: sum(int(c) for c, one in zip(count, parsed, strict=True) if one is not None)
        for form, parsed in read.items()
    }
    # 1,234 in every cell is a thousand and more, but behind a semicolon a decimal comma.
    commas = [text for text, c in zip(texts, count, strict=True) if c and "," in text]
    order = forms
    if len(forms) > 1 and commas:
        is_thousands = all(_THOUSAND.match(text) for text in commas)
        order = (COMMA, "") if delimiter == ";" or not is_thousands else ("", COMMA)
    form = max(order, key=lambda one: counts[one])
    parsed = read[form]
    units = Counter({"": 0})
    for one, c in zip(parsed, count, strict=True):
        if one is not None and c:
            units[one[2]] += int(c)
    unit, of_unit = max(units.items(), key=lambda item: item[1])
    numbers_read = sum(units.values())
    different = {one[0] for one, c in zip(parsed, count, strict=True) if one is not None and c}
    # Bare numbers may stand among those with a unit; several units are no numbers of one column.
    if not numbers_read or (of_unit + units[""] * (unit != "") < numbers_read) or len(different) < LEAST_DIFFERENT:
        return None
    reason = "numbers" if form != COMMA else "numbers with decimal commas"
    n_not = total - numbers_read
    if n_not:
        example = next(text for text, one, c in zip(texts, parsed, count, strict=True) if one is None and c)
        reason += f"; {n_not:,} {'is' if n_not == 1 else 'are'} none, as {example[:20]!r}, taken for missing"
    return Found(form, unit, numbers_read / total, reason)


def numbers(column: pa.ChunkedArray, texts: Sequence[str], at: np.ndarray, form: str) -> Numbers:
    """The cells as numbers.

    Args:
        column: The cells.
        texts: Different texts of them.
        at: (n,), which text each cell is.
        form: Format, as `found` gives it.
    """
    if is_typed(column):
        values = _days(column) if pa.types.is_duration(column.type) else table_cells.cell_numbers(column)
        return unsigned(np.where(np.isfinite(values), values, np.nan))
    parsed = [_read(text, form) for text in texts]
    values = np.array([np.nan if one is None else one[0] for one in parsed])
    signs = np.array([-1 if one is None else one[1] for one in parsed])
    return Numbers(values[at], signs[at])


def is_typed(column: pa.ChunkedArray) -> bool:
    """Whether a column is of numbers, or of lengths of time, by its type."""
    return table_cells.is_number_type(column.type) or pa.types.is_duration(column.type)


def _days(column: pa.ChunkedArray) -> np.ndarray:
    ticks = column.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(ticks, np.float64) / 8.64e10


def _read(text: str, form: str) -> tuple[float, int, str] | None:
    """Number, sign and unit of a text; None if it is none."""
    match = _QUANTITY.match(text)
    if match is None:
        return None
    number = match["number"].replace("−", "-").strip()
    if not (_COMMA if form == COMMA else _POINT).match(number) or not re.search(r"\d", number):
        return None
    plain = re.sub(_GAP, "", number)
    plain = plain.replace(".", "").replace(",", ".") if form == COMMA else plain.replace(",", "")
    value = float(plain + (match["power"] or ""))
    if not np.isfinite(value):
        return None
    return value, _SIGNS.get((match["sign"] or "").strip(), -1), match["unit"] or match["before"] or ""

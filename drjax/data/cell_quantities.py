"""Numbers as people write them: decimal commas, thousands, percent and units, and limits such as <5."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from drjax.data import table_cells

# Typed loosely, because its functions are made at import time, where a type checker sees none of them.
pc: Any = pyarrow.compute

CENSORED = ("<", ">")
"""Signs before a limit that a number is below or above."""

COMMA = "decimal comma"

_SIGNS = {"<": 0, "<=": 0, "≤": 0, "below": 0, "under": 0, "less than": 0}
_SIGNS |= {">": 1, ">=": 1, "≥": 1, "above": 1, "over": 1, "more than": 1}
_CURRENCY = (
    r"(?:US|CA|AU|NZ|HK|[ACRS])?\$|[€£¥₹₽₩₺₪]|zł|Kč|kr\.?|Fr\.|Rs\.?|EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|"
    r"CAD|AUD|NZD|BRL|MXN|ZAR|TRY|RUB|KRW|SGD|HKD|ILS"
)
_UNIT = r"[%‰]|/?[A-Za-zµμ°][A-Za-zµμ°/²³·]{0,14}(?:/[A-Za-z]{1,4}[23])?"
_QUANTITY = re.compile(
    rf"^(?P<sign><=|>=|[<>≤≥]|below |under |less than |above |over |more than )?\s*(?P<minus>[\-−](?=\D))?"
    rf"(?P<before>{_CURRENCY})?\s*(?P<open>\()?(?P<inside>{_CURRENCY})?\s*"
    rf"(?P<number>[+\-−]?(?:\d[\d.,' \u00a0\u202f]*|[.,]\d+))(?P<power>[eE][+-]?\d+)?(?P<behind>[\-−])?(?P<close>\))?"
    rf"\s*(?P<unit>{_CURRENCY}|{_UNIT})?$"
)
_DEVIATION = re.compile(rf"^(?P<mean>.*?\d.*?)\s*(?:±|\+/[\-−]|\+[\-−])\s*[\d.,' ]+\s*(?P<unit>{_CURRENCY}|{_UNIT})?$")
_GAP = r"[ '\u00a0\u202f]"
_POINT = re.compile(rf"^[+-]?(?:\d*(?:\.\d*)?|\d{{1,3}}(?:(?:,|{_GAP})\d{{2,3}})*(?:,|{_GAP})\d{{3}}(?:\.\d*)?)$")
_COMMA = re.compile(rf"^[+-]?(?:\d*(?:,\d*)?|\d{{1,3}}(?:(?:\.|{_GAP})\d{{3}})+(?:,\d*)?)$")
_THOUSAND = re.compile(r"^[+-]?[1-9]\d{0,2}(?:,\d{3})+$")
_SIMPLE = re.compile(r"^[+-]?\d+(?:\.\d+)?$", re.ASCII)
_THREE_DECIMALS = re.compile(r"^\D*[1-9]\d{0,2}\.\d{3}\D*$")

DEVIATION, BRACKETS = "±", "()"
"""What is special in how a number is written: a deviation behind it, or brackets that make it negative."""

SENTINELS = frozenset(float(sign * value) for sign in (-1, 1) for value in (9, 99, 999, 9999, 99999)) | {
    -1.0,
    888.0,
    8888.0,
}
"""Numbers that questionnaires and devices write where there is none."""

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
        n_others: Different texts of cells that are there and no numbers.
    """

    format: str
    unit: str
    share: float
    reason: str
    n_others: int = 0


class Quantity(NamedTuple):
    """A number as it is written: value, index of its sign in `CENSORED` or -1, unit, and what is special in it."""

    value: float
    sign: int
    unit: str
    special: str


def unsigned(values: np.ndarray) -> Numbers:
    """Numbers without signs."""
    return Numbers(np.asarray(values, np.float64), np.full(len(values), -1))


def found(
    column: pa.ChunkedArray,
    texts: Sequence[str],
    count: np.ndarray,
    stated: str | None,
    *,
    delimiter: str | None,
    least_different: int = LEAST_DIFFERENT,
) -> Found | None:
    """How a column writes numbers; None where none of its cells is one.

    Args:
        column: The cells.
        texts: Different texts of them.
        count: Cells of each text; 0 for those that stand for a missing one.
        stated: `COMMA`, or "decimal point"; None to tell by the texts.
        delimiter: Separator of the file; None if it has none.
        least_different: Different numbers that there are at least.
    """
    if is_typed(column):
        return Found("", "days" if pa.types.is_duration(column.type) else "", 1.0, f"typed as {column.type}")
    total = int(count.sum())
    if not total:
        return None
    may_be_comma = any("," in text or text.count(".") > 1 for text in texts)
    forms = {COMMA: (COMMA,), "decimal point": ("",)}.get(stated or "", ("", COMMA) if may_be_comma else ("",))
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
            units[one.unit] += int(c)
    unit, of_unit = max(units.items(), key=lambda item: item[1])
    numbers_read = sum(units.values())
    different = {one.value for one, c in zip(parsed, count, strict=True) if one is not None and c}
    # Bare numbers may stand among those with a unit; several units are no numbers of one column.
    if not numbers_read or (of_unit + units[""] * (unit != "") < numbers_read) or len(different) < least_different:
        return None
    reason = ("numbers" if form != COMMA else "numbers with decimal commas") + _said(
        [(text, one) for text, one, c in zip(texts, parsed, count, strict=True) if one is not None and c],
        form,
        is_thousands=bool(commas) and form != COMMA and all(_THOUSAND.match(text) for text in commas),
        is_stated=stated is not None,
        is_point_sure=delimiter == ",",
    )
    n_not = total - numbers_read
    if n_not:
        example = next(text for text, one, c in zip(texts, parsed, count, strict=True) if one is None and c)
        reason += f"; {n_not:,} {'is' if n_not == 1 else 'are'} none, as {example[:20]!r}, taken for missing"
    n_others = sum(one is None and c > 0 for one, c in zip(parsed, count, strict=True))
    return Found(form, unit, numbers_read / total, reason, n_others)


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
    # Most columns are of plain numbers, which Arrow reads a hundred times as fast.
    cells = pa.array(texts, pa.string())
    is_plain = pc.match_substring_regex(cells, r"^[+-]?[0-9]+$" if form == COMMA else r"^[+-]?[0-9]+([.][0-9]+)?$")
    plain = pc.if_else(is_plain, cells, pa.scalar(None, pa.string()))
    plain = pc.utf8_ltrim(plain, "+").cast(pa.float64()).to_numpy(zero_copy_only=False)
    values, signs = np.where(np.isfinite(plain), plain, np.nan), np.full(len(texts), -1)
    for i in np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)).tolist():
        read = _read(texts[i], form)
        if read is not None:
            values[i], signs[i] = read.value, read.sign
    return Numbers(values[at], signs[at])


def sentinel_of(known: np.ndarray) -> str:
    """A clause on a number that lies apart, repeats, and may stand for a missing one; empty without."""
    different = np.unique(known)
    for value, rest in ((different[0], different[1:]), (different[-1], different[:-1])):
        times = int((known == value).sum())
        if value in SENTINELS and times > 1 and len(rest) > 2 and np.abs(rest - value).min() > np.ptp(rest):
            return f"; {value:.0f} in {times:,} cells may stand for none: state it as missing if so"
    return ""


def may_part_thousands(texts: Sequence[str]) -> bool:
    """Whether points may part thousands: some texts have one, and each has three digits behind it."""
    points = [text for text in texts if "." in text]
    return bool(points) and all(map(_THREE_DECIMALS.match, points))


def is_typed(column: pa.ChunkedArray) -> bool:
    """Whether a column is of numbers, or of lengths of time, by its type."""
    return table_cells.is_number_type(column.type) or pa.types.is_duration(column.type)


def _days(column: pa.ChunkedArray) -> np.ndarray:
    ticks = column.cast(pa.duration("us"), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(ticks, np.float64) / 8.64e10


def _said(
    read: Sequence[tuple[str, Quantity]], form: str, *, is_thousands: bool, is_stated: bool, is_point_sure: bool
) -> str:
    """What is to be said of how the numbers of a column are written."""
    found = ""
    if any(one.special == DEVIATION for _, one in read):
        found += "; what stands behind ± is left out"
    if any(one.special == BRACKETS for _, one in read):
        found += "; those in brackets are negative"
    if is_stated:
        return found
    if is_thousands:
        found += f'; three digits behind each comma: state the format "{COMMA}" if they are decimals'
    elif form != COMMA and not is_point_sure and may_part_thousands([text for text, _ in read]):
        found += f'; three digits behind each point: state the format "{COMMA}" if they are thousands'
    return found


def _read(text: str, form: str) -> Quantity | None:
    """What a text says if it is a number; None else."""
    if _SIMPLE.match(text) and (form != COMMA or "." not in text):
        value = float(text)
        return Quantity(value, -1, "", "") if np.isfinite(value) else None
    special = ""
    if "±" in text or "+/" in text or "+-" in text or "+−" in text:
        deviation = _DEVIATION.match(text)
        if deviation:
            text, special = f"{deviation['mean']} {deviation['unit'] or ''}".strip(), DEVIATION
            if deviation["unit"] and not _QUANTITY.match(text):
                text = deviation["mean"]
    match = _QUANTITY.match(text)
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    number = match["number"].replace("−", "-").strip()
    if not (_COMMA if form == COMMA else _POINT).match(number) or not re.search(r"\d", number):
        return None
    signs = [match["minus"], match["behind"], match["open"], number.startswith(("-", "+"))]
    # A grade such as 2- is no number below zero.
    if sum(map(bool, signs)) > 1 or (match["behind"] and not re.search("[.,]", number)):
        return None
    plain = re.sub(_GAP, "", number)
    plain = plain.replace(".", "").replace(",", ".") if form == COMMA else plain.replace(",", "")
    value = float(plain + (match["power"] or ""))
    if not np.isfinite(value):
        return None
    if match["open"]:
        special = BRACKETS
    unit = match["unit"] or match["before"] or match["inside"] or ""
    is_negative = bool(match["minus"] or match["behind"] or match["open"])
    return Quantity(-value if is_negative else value, _SIGNS.get((match["sign"] or "").strip(), -1), unit, special)

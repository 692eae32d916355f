"""Dates and times of day in a column: how they are written, and their numbers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from drjax.data import date_words

# Typed loosely, because its functions are made at import time, where a type checker sees none of them.
pc: Any = pyarrow.compute

DATE_UNIT, TIME_UNIT = "days since 1970-01-01", "hours"

_DAYS = (
    "%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
    "%d %b %Y", "%d-%b-%Y", "%b-%d-%Y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%B %d %Y", "%m-%d-%Y",
    "%d-%m-%y", "%y-%m-%d", "%m-%d-%y", "%d-%b-%y", "%d %b %y", "%d %B %y",
)  # fmt: skip
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y", "%b-%y", "%b %Y", "%b-%Y", "%B %Y", "%m/%y")
_CLOCKS = ("%H:%M:%S", "%H:%M")
_CLOCKS_OF_TWELVE = ("%I:%M:%S %p", "%I:%M %p")
_COMPACT = "%Y%m%d"
_LEAST_COMPACT = 5
"""Different texts of eight digits that a column has at least, for it to be of dates where its name says nothing."""

FORMATS = (
    *_DAYS,
    *_MONTHS,
    *(f"{day}{gap}{clock}" for day in _DAYS for gap in (" ", "T") for clock in _CLOCKS),
    *(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS_OF_TWELVE),
)

_REST = re.compile(r"(:\d\d)\.\d+|(?<=\d)(Z|[+-]\d\d:?\d\d)$")
"""Fractions of a second, and a zone behind a time."""

_LENGTH = {
    "%H:%M:%S": re.compile(r"^(\d{1,4}):([0-5]\d):([0-5]\d)(?:\.\d+)?$"),
    "%H:%M": re.compile(r"^(\d{1,4}):([0-5]\d)$"),
}

_PLAIN_NUMBER = re.compile(r"^[+-]?\d+(?:[.,]\d+)?$")

_EPOCH = datetime.datetime(1970, 1, 1)


class Found(NamedTuple):
    """How a column writes dates.

    Attributes:
        kind: "date" or "time".
        format: A format of `strptime`; empty for a typed column.
        unit: Unit of the numbers.
        reason: In words.
    """

    kind: str
    format: str
    unit: str
    reason: str


def found(
    column: pa.ChunkedArray,
    texts: Sequence[str],
    count: np.ndarray,
    stated: str | None,
    *,
    is_named: bool,
    least: float,
) -> Found | None:
    """How a column writes dates or times of day; None if it does not.

    Args:
        column: The cells.
        texts: Different texts of them.
        count: Cells of each text; 0 for those that stand for a missing one.
        stated: A format of `strptime` that is taken as it is; None to try all.
        is_named: Whether the name of the column says that it may hold dates: numbers of eight digits may be such then.
        least: Least share of the cells that have to be dates.
    """
    if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
        kind = "time" if pa.types.is_time(column.type) else "date"
        return Found(kind, "", TIME_UNIT if kind == "time" else DATE_UNIT, f"typed as {kind}s")
    is_whole = pa.types.is_integer(column.type)
    if not pa.types.is_string(column.type) and not is_whole:
        return None
    total = int(count.sum())
    if not total:
        return None
    there = [str(text) for text, c in zip(texts, count, strict=True) if c]
    is_compact = (is_named or _are_compact(there)) and all(len(text) == 8 for text in there[:20])
    if is_whole and not (stated or is_compact or is_named):
        return None
    if not stated and not is_compact and all(map(_PLAIN_NUMBER.match, there[:20])):
        return None
    tried = (stated,) if stated else (*FORMATS, *_CLOCKS, *_CLOCKS_OF_TWELVE, *((_COMPACT,) if is_compact else ()))
    # Most formats do not fit the first texts.
    some = there[:20]
    in_words = [date_words.plain(text) for text in some]
    shares = {}
    for one in tried:
        if stated or not np.isnan(_parsed(some, one, in_words)).all():
            shares[one] = float(count[~np.isnan(_parsed(texts, one))].sum()) / total
    best = max(shares, key=lambda one: shares[one], default=None)
    if best is None or shares[best] < (least if not stated else 1e-9):
        return None
    parsed = _parsed(texts, best)
    equal = [one for one in shares if shares[one] == shares[best] and _differ(parsed, _parsed(texts, one))]
    example = next(text for text, value in zip(texts, parsed, strict=True) if not np.isnan(value))
    reason = f"written as {best}: {example}"
    if equal:
        reason += f", or as {equal[0]}: nothing tells which"
    if best in _CLOCKS and np.nanmax(parsed) >= 24:
        reason += "; some are beyond 24 hours: lengths of time"
    if "%y" in best:
        reason += "; of years with two digits 69 to 99 are 1969 to 1999, others 2000 to 2068"
    n_not = round((1 - shares[best]) * total)
    if n_not:
        reason += f"; {n_not:,} {'is' if n_not == 1 else 'are'} none, taken for missing"
    kind = "time" if best in (*_CLOCKS, *_CLOCKS_OF_TWELVE) else "date"
    return Found(kind, best, TIME_UNIT if kind == "time" else DATE_UNIT, reason)


def numbers(column: pa.ChunkedArray, texts: Sequence[str], at: np.ndarray, form: str) -> np.ndarray:
    """(n,) days since 1970, or hours of the day; nan for cells that are no date.

    Args:
        column: The cells.
        texts: Different texts of them.
        at: (n,), which text each cell is.
        form: Format, as `found` gives it.
    """
    if form:
        return _parsed(texts, form)[at]
    if pa.types.is_time(column.type):
        ticks = column.cast(pa.time64("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return np.asarray(ticks, np.float64) / 3.6e9
    ticks = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(ticks, np.float64) / 8.64e10


def written(value: float, kind: str) -> str:
    """A number of `numbers` as a date or a time of day: 2024-03-01, 2024-03-01 14:30 or 14:30; 30:15 beyond a day."""
    if kind == "time":
        minutes = round(value * 60) % (24 * 60) if value < 24 else round(value * 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"
    moment = _EPOCH + datetime.timedelta(minutes=round(value * 24 * 60))
    return f"{moment:%Y-%m-%d}" if value == int(value) else f"{moment:%Y-%m-%d %H:%M}"


def _differ(values: np.ndarray, others: np.ndarray) -> bool:
    return not np.array_equal(values, others, equal_nan=True)


def _are_compact(texts: Sequence[str]) -> bool:
    """Whether all texts are days of the twentieth and twenty-first century in eight digits."""
    if len(texts) < _LEAST_COMPACT or not all(re.fullmatch(r"(19|20)\d{6}", text) for text in texts):
        return False
    return not np.isnan(_parsed(texts, _COMPACT)).any()


def _parsed(texts: Sequence[str], form: str, in_words: Sequence[str] | None = None) -> np.ndarray:
    """(m,) days since 1970, or hours of the day; nan for texts that are not of the format.

    Args:
        texts: m cells.
        form: The format.
        in_words: The same with months in English, as of `date_words.plain`; found out if None.
    """
    if form in _LENGTH:
        found = [_LENGTH[form].match(text) for text in texts]
        parts = [[float(part) for part in one.groups()] if one else [np.nan] for one in found]
        return np.array([sum(part / 60**i for i, part in enumerate(one)) for one in parts])
    raw = _by_strptime(texts, form)
    if not np.isnan(raw).any():
        return raw
    plain = [date_words.plain(text) for text in texts] if in_words is None else in_words
    return raw if plain == list(texts) else np.where(np.isnan(raw), _by_strptime(plain, form), raw)


def _by_strptime(texts: Sequence[str], form: str) -> np.ndarray:
    plain = [_REST.sub(r"\1", text) if ":" in text else text for text in texts]
    is_clock = form in _CLOCKS_OF_TWELVE
    if form in _MONTHS:
        plain, form = [f"01 {text}" for text in plain], f"%d {form}"
    if is_clock:
        plain, form = [f"1970-01-01 {text}" for text in plain], f"%Y-%m-%d {form}"
    moments = pc.strptime(pa.array(plain, pa.string()), format=form, unit="s", error_is_null=True)
    seconds = np.asarray(moments.cast(pa.int64()).to_numpy(zero_copy_only=False), np.float64)
    if form == "%d %m/%y":
        # 6/12 is no month: two digits each.
        seconds = np.where([re.fullmatch(r"\d\d/\d\d", text) is not None for text in texts], seconds, np.nan)
    # strptime takes 1990 for a 19 and a 90, and 31 February for 3 March: what it has read must give the same numbers.
    again = pc.strftime(moments, format=re.sub("%[^dmYyHMSI]", "", form)).to_pylist()
    is_told = [one is not None and _whole(one) == _whole(text) for one, text in zip(again, plain, strict=True)]
    seconds = np.where(is_told, seconds, np.nan)
    # Four digits of a year are written in full: strptime takes fewer.
    if "%Y" in form and not is_clock:
        seconds = np.where([re.search(r"\d{4}", text) is not None for text in plain], seconds, np.nan)
    return seconds / (3600 if is_clock else 86400)


def _whole(text: str) -> list[int]:
    """Numbers of digits in a text, in their order."""
    return [int(number) for number in re.findall(r"\d+", text)]

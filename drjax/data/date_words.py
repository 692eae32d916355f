"""Dates in words as formats of `strptime` read them: months in English, no weekday, no ordinal sign, weeks as days."""

from __future__ import annotations

import datetime
import re

_MONTHS = (
    "january januar janvier enero gennaio januari jan jän jänner",
    "february februar février fevrier febrero febbraio februari feb fév",
    "march märz maerz mars marzo maart mar mär mrz",
    "april avril abril aprile apr avr abr",
    "may mai mayo maggio mei maj mag",
    "june juni juin junio giugno jun giu",
    "july juli juillet julio luglio jul lug",
    "august août aout agosto augustus augusti aug ago",
    "september septembre septiembre settembre sep sept set",
    "october oktober octobre octubre ottobre oct okt ott",
    "november novembre noviembre nov",
    "december dezember décembre decembre diciembre dicembre dec dez déc dic",
)  # English, German, French, Spanish, Italian, Dutch and Swedish
_NUMBER_OF = {name: i for i, names in enumerate(_MONTHS, 1) for name in names.split()}
_SHORT = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_WEEKDAY = re.compile(r"^[^\W\d_]{2,10}\.?,?\s+(?=\S*\d|[^\W\d_]+\.? \d)")
_ORDINAL = re.compile(r"(?<=\d)(st|nd|rd|th|er)\b|(?<=\d)\.(?=\s*[^\W\d_])")
_OF = re.compile(r"(?<=[\w.]) +(de|of|del) +(?=\w)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+\.?")
_WEEK = re.compile(r"^(\d{4})-?[Ww](\d{2})$")
_QUARTER = re.compile(r"^(?:(\d{4})[ \-/]?Q([1-4])|Q([1-4])[ \-/]?(\d{4}))$", re.IGNORECASE)


def plain(text: str) -> str:
    """A date in the words of a format of `strptime`; the text itself where nothing has to change.

    Months of seven languages become English ones, weekdays, ordinal signs and "of" go, a week becomes its Monday
    (2024-W01: 2024-01-01), a quarter its first month (2024Q2: 2024-04).
    """
    week, quarter = _WEEK.match(text), _QUARTER.match(text)
    if week:
        try:
            return datetime.date.fromisocalendar(int(week[1]), int(week[2]), 1).isoformat()
        except ValueError:
            return text
    if quarter:
        year, number = (quarter[1], quarter[2]) if quarter[1] else (quarter[4], quarter[3])
        return f"{year}-{3 * int(number) - 2:02d}"
    words = _WORD.findall(text)
    if not words or not any(_month(word) for word in words):
        return text
    if not _month(words[0]):
        text = _WEEKDAY.sub("", text)
    text = _OF.sub(" ", _ORDINAL.sub(" ", text))
    return " ".join(_WORD.sub(lambda found: _english(found[0]), text).replace(" ,", ",").split())


def _month(word: str) -> int:
    return _NUMBER_OF.get(word.lower().rstrip("."), 0)


def _english(word: str) -> str:
    """A month in English, with a space where a point parted it from a year; other words as they are."""
    number = _month(word)
    return _SHORT[number] + (" " if word.endswith(".") else "") if number else word

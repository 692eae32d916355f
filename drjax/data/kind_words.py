"""Texts that say what a column is: missing cells, yes and no, words with an order, intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence

FORMULA_ERRORS = frozenset(
    (
        "#div/0!", "#n/a", "#ref!", "#value!", "#name?", "#num!", "#null!", "#spill!", "#calc!", "#error!", "#nv",
        "#n/v", "#wert!", "#bezug!", "#zahl!", "#valeur!", "#nom?", "#nombre!", "#¡valor!", "#¡div/0!", "#¡ref!",
    )
)  # fmt: skip
"""What spreadsheets write where a formula has no value, in lower case."""

MISSING = FORMULA_ERRORS | frozenset(
    (
        "", "na", "n/a", "n.a.", "null", "nan", "<na>", "nat", "-", "--", "---", ".", "?", "nd", "n.d.", "not done",
        "unknown", "not known", "missing", "not available", "k.a.", "keine angabe", "unbekannt", "inconnu",
        "desconocido",
    )
)  # fmt: skip
"""Texts that stand for a missing cell, in lower case."""

MISSING_NUMBER = frozenset(("none", "nil"))
"""Texts that do among numbers and dates."""

YES_NO = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("nein", "ja"), ("non", "oui"), ("absent", "present"),
    ("negative", "positive"), ("neg", "pos"), ("off", "on"), ("0", "1"),
)  # fmt: skip
"""Pairs of texts that say no and yes, in lower case."""

NO, YES = (frozenset(pair[i] for pair in YES_NO) for i in (0, 1))

PLUS = ("-", "(+)", "+/-", "+", "++", "+++", "++++")
"""Results of a test strip, from least to most; the first stands for a missing cell elsewhere."""

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

_NUMBER = r"[€$£]?(\d[\d,']*(?:\.\d+)?)"
_UNIT = r"(?:\s*(?:years?|yrs?|y|jahre?|ans|months?|days?|kg|cm|mm|km|k|%|€))?"
_RANGE = re.compile(rf"^{_NUMBER}{_UNIT}\s*(?:-|–|—|to|bis|\.\.)\s*{_NUMBER}{_UNIT}$", re.IGNORECASE)
_CUT = re.compile(r"^(?=\[|.*\]$)[\[(]\s*(-?\d+(?:\.\d+)?)\s*[,;]\s*(-?\d+(?:\.\d+)?)\s*[\])]$")
_END = re.compile(
    rf"^(<|<=|≤|under|below|less than|unter|>|>=|≥|over|above|more than|über)?\s*{_NUMBER}{_UNIT}\s*"
    r"(\+|(?:and|or|und) (?:over|above|more|older|mehr|älter)|(?:and|or) (?:under|below|less|younger))?$",
    re.IGNORECASE,
)
_BELOW = ("<", "<=", "≤", "under", "below", "less than", "unter")

_TWO_NUMBERS = re.compile(r"^[+-]?\d+(?:\.\d+)?\s*[°]?\s*[NSEW]?\s*[/,;x×]\s*[+-]?\d+(?:\.\d+)?\s*[°]?\s*[NSEW]?$")
_DATE_LIKE = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)|\d[/.:]\d+[/.:]\d")


def bounds_of(text: str) -> tuple[float, bool] | None:
    """Where an interval such as 18-40, [20, 30) or 65+ begins, and whether it has two ends; None if it is none."""
    found = _RANGE.match(text) or _CUT.match(text)
    if found:
        low, high = (_number(one) for one in found.groups())
        return (low, True) if low < high else None
    found = _END.match(text)
    if not found:
        return None
    is_below = (found[1] or "").lower() in _BELOW or (found[3] or "").lower().endswith(
        ("under", "below", "less", "younger")
    )
    return _number(found[2]) + (-0.5 if is_below else 0.5), False


def in_order(texts: Sequence[str]) -> tuple[str, ...] | None:
    """Intervals from the least to the greatest; None if the texts are not all intervals, most with two ends."""
    found = {text: bounds_of(text) for text in texts}
    if not all(found.values()):
        return None
    known = {text: one for text, one in found.items() if one is not None}
    n_whole = sum(is_whole for _, is_whole in known.values())
    if n_whole < 2 or len(known) - n_whole > 2:
        return None
    return tuple(sorted(known, key=lambda text: known[text][0]))


def hint_of(texts: Sequence[str]) -> str:
    """How to use a column of texts that are all different and left out; empty if they are only texts."""
    if _most(_TWO_NUMBERS, texts):
        return "; two numbers a cell: give each a column of its own to use them"
    if _most(_DATE_LIKE, texts):
        return '; if these are dates, state the kind "date" and their format'
    return ""


def _most(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    return sum(pattern.search(text) is not None for text in texts) >= 0.9 * len(texts)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("'", ""))

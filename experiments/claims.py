"""Claims of a paper beside what committed rows give, as the pages of the results show them, and their verdicts.

A comparison of two estimates counts where the 95% interval of their difference leaves out zero, or the slack that is
stated; the interval of a difference is made from those of the two as if they were independent (Zou & Donner,
"Construction of confidence limits about effect measures", 2008). Settings that share their targets differ less than
that: it errs towards "undecided".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from drjax.core.statistics import Interval
from experiments.markdown import markdown_table
from experiments.sweep import Claim

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NOT_RUN, ELSEWHERE = "not run", "not in the paper's setting"

HEADS = ("claim of the paper", "the paper prints", "the committed rows give", "verdict", "why")


class Told(NamedTuple):
    """What the test of a claim found.

    Attributes:
        outcome: Verdict.
        evidence: Figures that it rests on.
        why: What the verdict is of.
    """

    outcome: str
    evidence: str
    why: str = ""


def table(claims: Iterable[Claim]) -> str:
    """One row for each claim."""
    return markdown_table(HEADS, [(c.claim, c.paper, c.ours, f"**{c.verdict}**", c.note) for c in claims])


def outcome(answers: Iterable[bool | None], *, lacks: bool = False) -> str:
    """What comparisons say of a claim that all of them hold.

    Args:
        answers: Whether each comparison is for the claim; None where it does not count.
        lacks: Whether comparisons that the claim is about could not be made.
    """
    found = list(answers)
    if False in found:
        return REFUTED
    if lacks or not found:
        return NOT_RUN
    return UNDECIDED if None in found else CONFIRMED


def difference(a: Interval, b: Interval) -> Interval:
    """The first less the second, with the interval that theirs give."""
    gap = a.estimate - b.estimate
    down = math.hypot(a.estimate - a.low, b.high - b.estimate)
    up = math.hypot(a.high - a.estimate, b.estimate - b.low)
    return Interval(gap, gap - down, gap + up)


def sign(gap: Interval, *, over: float = 0.0) -> bool | None:
    """Whether a difference is above a value: True or False where all of its interval is on one side."""
    if gap.low > over:
        return True
    return False if gap.high < over else None


def below(a: Interval, b: Interval) -> bool | None:
    """Whether the first is smaller."""
    return sign(difference(b, a))


def no_better(a: Interval, b: Interval, slack: float) -> bool | None:
    """Whether an error is not smaller than another: False where it is, True where it is not by more than a slack."""
    gap = difference(a, b)
    if gap.high < 0:
        return False
    return True if gap.low > -slack else None


def alike(gap: Interval, slack: float) -> bool | None:
    """Whether a difference is within a slack: True or False where all of its interval is inside or outside."""
    if -slack < gap.low and gap.high < slack:
        return True
    return False if gap.low > slack or gap.high < -slack else None

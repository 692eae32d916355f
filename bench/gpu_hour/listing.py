"""What there is to do and what it is expected to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.gpu_hour.hour import Hour, left
from bench.gpu_hour.steps import PARTS, Step

LACKING = "not here"
"""What begins the lines about files that are not on this machine."""


@dataclass
class _Line:
    """Steps in a row that a list shows as one: those of one family, with one basis.

    Attributes:
        first: Name of the first.
        last: Name of the last.
        part: Their part.
        basis: Source of their estimates.
        steps: How many.
        cells: Cells that are left.
        seconds: Expected of those.
        longest: Seconds of the longest step.
    """

    first: str
    last: str
    part: str
    basis: str
    steps: int
    cells: int
    seconds: float
    longest: float


def lines(steps: Sequence[Step], hour: Hour, *, each: bool = False) -> list[str]:
    """Text of the list: a line for each family of steps, sums of parts and of all, and what is not on this machine.

    Args:
        steps: Steps to list.
        hour: The run that is gone on with: cells that it holds are left out.
        each: A line for every step.
    """
    rows = list(_rows(steps, hour, each))
    width = max(len(_name(row)) for row in rows)
    found = [f"{'step':{width}}  steps  cells  minutes  longest  estimate"]
    for part, title in PARTS.items():
        own = [row for row in rows if row.part == part]
        if not own:
            continue
        found.append(f"({part}) {title}")
        for row in own:
            minutes = f"{row.seconds / 60:7.1f}  {row.longest / 60:7.1f}"
            found.append(f"{_name(row):{width}}  {row.steps:5d}  {row.cells:5d}  {minutes}  {row.basis}")
        found.append(_sum(f"total of part {part}", own, width))
    found.append(_sum("total", rows, width))
    lacking = Counter(reason for step in steps for cell in step.cells(hour) if (reason := cell.lacks()) is not None)
    return found + [f"{LACKING}, and needed by {count} cells: {reason}" for reason, count in lacking.items()]


def _rows(steps: Sequence[Step], hour: Hour, each: bool) -> Iterator[_Line]:
    row: _Line | None = None
    for step in steps:
        cells, seconds = left(hour, step)
        if row is None or each or _family(row.first) != _family(step.name) or row.basis != step.basis:
            if row is not None:
                yield row
            row = _Line(step.name, step.name, step.part, step.basis, 0, 0, 0.0, 0.0)
        row.last = step.name
        row.steps, row.cells, row.seconds = row.steps + 1, row.cells + cells, row.seconds + seconds
        row.longest = max(row.longest, seconds)
    if row is not None:
        yield row


def _family(name: str) -> str:
    return name.rpartition("/")[0] or name


def _name(row: _Line) -> str:
    return row.first if row.first == row.last else f"{row.first} to {row.last.rpartition('/')[2]}"


def _sum(title: str, rows: Sequence[_Line], width: int) -> str:
    steps, cells = sum(row.steps for row in rows), sum(row.cells for row in rows)
    return f"{title:{width}}  {steps:5d}  {cells:5d}  {sum(row.seconds for row in rows) / 60:7.1f}"

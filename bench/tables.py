"""What the tables of benchmarks have in common: which row stands for a cell, where rows are from, how figures look."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench import harness
from drjax.reports import records
from drjax.reports.ladder import number

Row = Mapping[str, Any]

NOT_RUN = "not run"

WIDTH = 120
"""Characters of a line of documentation."""

EPYC, XEON = "AMD EPYC", "Intel(R) Xeon(R) Processor"
"""Field `cpu` of rows of the two machines with two cores."""


@functools.cache
def rows_of(file: str) -> tuple[Row, ...]:
    """The committed rows of a file of `bench/results`, in its order."""
    return tuple(records.read_records(harness.RESULTS / file))


def newest(rows: Iterable[Row], **labels: Any) -> Row:
    """The newest of the rows with these labels; of equal times the last. A label of None is one that a row lacks.

    Raises:
        LookupError: there is none.
    """
    own = [row for row in rows if all(row.get(name) == value for name, value in labels.items())]
    if not own:
        raise LookupError(f"labels must be those of a committed row, got {labels}")
    return max(reversed(own), key=lambda row: row["utc"])


def origin(file: str, rows: Sequence[Row]) -> str:
    """A sentence that says where the rows of a table are, and of which machines, commits and dates they are."""
    machines = dict.fromkeys(f"{r['cores']} core{'s' if r['cores'] > 1 else ''} of an {_named(r)}" for r in rows)
    runs: dict[str, set[str]] = {}
    for row in rows:
        changed = " with changes" if row["dirty"] else ""
        runs.setdefault(f"{row['commit'][:7]}{changed}", set()).add(row["utc"][:10])
    told = [f"{commit} ({', '.join(sorted(dates))})" for commit, dates in sorted(runs.items(), key=lambda r: min(r[1]))]
    named = f"commit{'s' if len(told) > 1 else ''} {', '.join(told)}"
    return filled(f"Rows of `bench/results/{file}`: {', '.join(machines)}, {named}.")


def filled(text: str, indent: str = "") -> str:
    """The text in lines of at most `WIDTH` characters; lines after the first are indented."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _named(row: Row) -> str:
    cpu = row["cpu"].replace("(R)", "").removesuffix(" Processor")
    return cpu if row["device_kind"] == "cpu" else f"{cpu} with an {row['device_kind']}"


def short(value: float) -> str:
    """Two digits, of numbers from 100 on all before the point: 0.0040, 1.6, 27, 107."""
    return number(value) if value < 100 else f"{value:,.0f}"


def times(value: float) -> str:
    """How many times faster: three digits, without zeros that it ends with after the point: 3,090, 5.4, 88."""
    return f"{float(f'{value:.3g}'):,g}"

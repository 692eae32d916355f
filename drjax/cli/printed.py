"""What several commands print: the plan of a table, how to change it, a verdict."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from drjax.data.dataset import Dataset
from drjax.reports.sections import Verdict


def print_plan(console: Console, found: Dataset) -> None:
    """The plan of a table as a table, with what of the file was read otherwise than it stands."""
    assert found.plan is not None
    table = Table("column", "is", "becomes", "because", title=f"{found.name}: {len(found.x):,} records")
    for line in found.plan.lines():
        table.add_row(*map(escape, line))
    console.print(table)
    for note in found.notes:
        console.print(note, markup=False)
    console.print(f"{len(found.plan.used)} of {len(found.plan.columns)} columns become {found.x.shape[1]:,} features.")


def print_verdict(console: Console, verdict: Verdict) -> None:
    """A verdict as on top of the page; each command in one line, to be copied."""
    console.print(f"[bold]{verdict.headline}.[/bold] {verdict.sentence}")
    for line in verdict.details:
        console.print(line, markup=False)
    for advice in verdict.advice:
        console.print(advice.text, markup=False)
        if advice.command:
            console.print(f"    {advice.command}", markup=False, soft_wrap=True)
    for line in verdict.caveats:
        console.print(line, markup=False)


def to_correct(data: str, schema: str | None) -> str:
    """What changes the plan of a table."""
    if schema is not None:
        return f"To change what a column is, correct {schema}."
    words = shlex.join(["drjax", "data", "plan", data, "plan.json"])
    return f"To change what a column is: {words}, correct plan.json, and add --schema plan.json."

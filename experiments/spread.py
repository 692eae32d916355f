"""Cells of an experiment on workers: each computes some of them, as its own process would, and keeps them itself."""

from __future__ import annotations

import dataclasses
import glob
import importlib
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from drjax.core import executors
from experiments.bar import Bar
from experiments.cells import Group

if TYPE_CHECKING:
    from experiments.sweep import Asked, Sweep


def compute(
    sweep: Sweep[Any],
    asked: Asked[Any],
    executor: str | Executor,
    workers: int | None,
    *,
    part: str,
    minutes: float | None,
    say: Callable[[str], None],
) -> list[Group]:
    """Computes missing cells on an executor; returns the groups of which nothing was begun in the time.

    Arguments and errors as of `sweep.run`.
    """
    from experiments.sweep import begin

    begun = time.monotonic()
    left, done = begin(sweep, asked, part)
    tasks = _together(left)
    here = dataclasses.replace(asked, progress=False)
    calls = [
        (sweep.groups.__module__, here, tuple(glob.escape(cell.path) for group in task for cell in group.missing(done)))
        for task in tasks
    ]
    unfinished = set(range(len(tasks)))
    sizes = [(sum(len(group.cells) for group in task), sum(group.share for group in task)) for task in tasks]
    with Bar(sizes, shown=asked.progress) as bar:
        for number, said in executors.run(work, calls, executor=executor, workers=workers):
            unfinished.discard(number)
            for text in said:
                say(text)
            bar.advance()
            if minutes is not None and time.monotonic() - begun > 60 * minutes:
                break
    return [group for number in sorted(unfinished) for group in tasks[number]]


def work(module: str, asked: Asked[Any], only: tuple[str, ...]) -> list[str]:
    """Computes some cells of the experiment of a module in this process; returns what it says of them."""
    from experiments.sweep import compute as compute_here

    said: list[str] = []
    found: Sweep[Any] = importlib.import_module(module).SWEEP
    compute_here(found, dataclasses.replace(asked, only=only), say=said.append)
    return said


def _together(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups as tasks: those that share files of unfinished work are one."""
    tasks: dict[Hashable, list[Group]] = {}
    for number, group in enumerate(groups):
        tasks.setdefault(("alone", number) if group.together is None else ("shared", group.together), []).append(group)
    return list(tasks.values())

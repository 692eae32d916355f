"""A bar of cells with the time left, by what those so far have taken for their share of the work."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from drjax.reports import ladder


class Bar:
    """Cells done of all, on standard error where that is a terminal. Use as a context manager."""

    def __init__(self, groups: Sequence[tuple[int, float]], *, shown: bool) -> None:
        """Takes the number of cells and the share of the work of each group, in any unit, in their order."""
        self._groups = iter(groups)
        self._work = sum(share for _, share in groups)
        self._spent, self._begun = 0.0, time.perf_counter()
        self._bar = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not (shown and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task("", total=sum(cells for cells, _ in groups), left="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """Counts the next group as done."""
        cells, share = next(self._groups)
        self._spent += share
        left = (time.perf_counter() - self._begun) * max(0.0, self._work / self._spent - 1)
        self._bar.update(self._task, advance=cells, left=f"about {ladder.duration(left)} left")

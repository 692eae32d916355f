"""A progress bar over epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def epoch_bar(epochs: int) -> Iterator[Callable[[int, float], None]]:
    """Shows done/total, epochs a minute, time left and the best loss on standard error.

    Yields:
        A function of the number of epochs done and the best validation loss so far.
    """
    columns = (
        TextColumn("epochs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs, state="")

        def show(done: int, best_loss: float) -> None:
            bar.update(task, completed=done)
            speed = bar.tasks[0].speed
            pace = f"{60 * speed:.3g}/min, " if speed else ""
            bar.update(task, state=f"{pace}best loss {best_loss:.4f}")

        yield show

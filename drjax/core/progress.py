"""How far long work is: a bar in a terminal or notebook, else a line now and then, and the cost beforehand.

Lines are for logs of batch jobs: the first one as soon as the second piece of work says that the rest takes long, then
one at most every `INTERVAL` seconds. Short work prints none.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

INTERVAL = 30.0
"""Seconds between two lines."""

LONG = 10.0
"""Seconds that work is predicted to take from which on its cost is said beforehand."""

T = TypeVar("T")


class Advance(Protocol):
    """Says that n more pieces are done, and in `note` what else is worth to know."""

    def __call__(self, n: int, note: str = "", /) -> None:
        """Counts n pieces."""
        ...


@contextmanager
def shown(description: str, total: int, done: int = 0, *, enabled: bool = True) -> Generator[Advance]:
    """Shows progress on standard error until the block ends.

    Args:
        description: Name of what is counted, such as "shadows".
        total: Pieces of work.
        done: How many of them an earlier run did.
        enabled: Whether to show anything.

    Yields:
        A function that counts finished pieces.
    """
    if not enabled:
        yield lambda _n, _note="", /: None
    elif sys.stderr.isatty() or (in_notebook() and importlib.util.find_spec("ipywidgets") is not None):
        with _Bar(description, total, done) as bar:
            yield bar
    else:
        with Lines(description, total, done) as lines:
            yield lines


def in_notebook() -> bool:
    """Whether this runs in the kernel of a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def track(pieces: Sequence[T], description: str, *, enabled: bool = True) -> Iterator[T]:
    """The pieces one after the other, each counted as done when the next is asked for."""
    with shown(description, len(pieces), enabled=enabled) as advance:
        for piece in pieces:
            yield piece
            advance(1)


def announce(what: str, seconds: float, n_bytes: float = 0.0, *, enabled: bool = True) -> None:
    """Says on standard error what work is about to cost, if it is predicted to take longer than `LONG`.

    Args:
        what: The work, such as "1,550 releases of 200 records"; a plural.
        seconds: Predicted time.
        n_bytes: Predicted memory; left out where it is below 100 MB.
        enabled: Whether to say anything.
    """
    if enabled and seconds > LONG:
        from drjax.core.memory import in_words

        room = f" and {in_words(n_bytes)} of memory" if n_bytes >= 1e8 else ""
        print(f"drjax: {what} take about {_span(seconds)}{room}", file=sys.stderr, flush=True)


def _span(seconds: float) -> str:
    """Duration in words, such as "45 s", "3 min 20 s", "2 h 5 min" or "3 d 4 h"."""
    whole = round(seconds)
    for unit, name, smaller, least in ((86400, "d", "h", 3600), (3600, "h", "min", 60), (60, "min", "s", 1)):
        if whole >= unit:
            rest = whole % unit // least
            return f"{whole // unit} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


class Lines:
    """Lines on standard error, at most one every `interval` seconds, also while a piece of work takes longer."""

    def __init__(
        self,
        description: str,
        total: int,
        done: int = 0,
        *,
        interval: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts counting; arguments as of `shown`.

        Args:
            description: Name of what is counted.
            total: Pieces of work.
            done: How many are done.
            interval: Seconds between two lines; `INTERVAL` if None.
            clock: Seconds since any fixed time.
        """
        self.description, self.total, self.done = description, total, done
        self.interval = INTERVAL if interval is None else interval
        self._clock, self._began, self._skipped = clock, clock(), done
        self._last = self._began
        self._first: tuple[float, int] | None = None
        self._note, self._lock, self._stop = "", threading.Lock(), threading.Event()

    def __enter__(self) -> Lines:
        threading.Thread(target=self._watch, name="drjax-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def __call__(self, n: int, note: str = "", /) -> None:
        """Counts n more pieces, and says so if it is time."""
        with self._lock:
            self.done += n
            self._note = note or self._note
            if self._first is None:
                # The first piece compiles; the second says what the others take.
                self._first = self._clock(), self.done
            elif self._last == self._began and self._left() > LONG:
                self._say()
        self.look()

    def look(self) -> None:
        """Prints a line if the last one is old enough."""
        with self._lock:
            if self._clock() - self._last >= self.interval and self.done < self.total:
                self._say()

    def _left(self) -> float:
        """Seconds to go, by the pieces after the first where there are some; infinite before any is done."""
        since, done = self._first or (self._began, self._skipped)
        if self.done == done:
            since, done = self._began, self._skipped
        made = self.done - done
        return (self.total - self.done) * (self._clock() - since) / made if made else float("inf")

    def _say(self) -> None:
        now = self._clock()
        share = f"{self.done:,} of {self.total:,} ({self.done / max(1, self.total):.0%})"
        made, took = self.done - self._skipped, now - self._began
        if made:
            # Rates below one a second read better a minute.
            rate = f"{made / took:,.3g}/s" if made >= took else f"{60 * made / took:,.3g}/min"
            ahead = f"{rate}, about {_span(self._left())} left"
        else:
            ahead = f"none finished after {_span(took)}"
        note = f", {self._note}" if self._note else ""
        print(f"drjax: {self.description}: {share}, {ahead}{note}", file=sys.stderr, flush=True)
        self._last = now

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self.look()


class _Bar:
    """A rich bar: done/total, pieces per second, time left."""

    def __init__(self, description: str, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=False,
        )
        self._task = self._bar.add_task(description, total=total, completed=done, rate="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __call__(self, n: int, note: str = "", /) -> None:
        self._bar.advance(self._task, n)
        speed = self._bar.tasks[0].speed
        rate = f"{speed:,.3g}/s" if speed and speed >= 1 else f"{60 * speed:,.3g}/min" if speed else ""
        self._bar.update(self._task, rate=", ".join(part for part in (rate, note) if part))

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()

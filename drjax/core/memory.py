"""Memory of the host: what is available, and work refused before it starts because it would need more.

A process that runs out of memory dies after minutes, in a traceback or killed without a word. What a method needs it
says itself (`DRMethod.cost`); who puts methods together adds up and calls `require` before any work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")

UNLIMITED = 2**60
"""A limit of a cgroup from here on means that there is none: version 1 writes 2^63 less a page."""


class NotEnoughMemory(MemoryError):
    """Work that was not begun, because it would need more memory than is available; says both figures."""


_NOTHING = (0.0, "")
_expected: ContextVar[tuple[float, str]] = ContextVar("expected", default=_NOTHING)


@contextmanager
def task() -> Generator[None]:
    """Within it `expected` knows of nothing that was begun before; after it, of nothing that was begun within."""
    token = _expected.set(_NOTHING)
    try:
        yield
    finally:
        _expected.reset(token)


def available() -> int | None:
    """Bytes that this process can still take without swapping; None where the system does not say.

    The least of what the kernel calls available and what the limits of the process's cgroups (version 1 or 2, as
    containers and batch systems set them) leave.
    """
    found = [left for left in (_of_machine(), *_of_cgroups()) if left is not None]
    return max(0, min(found)) if found else None


def require(needed: float, what: str, why: str, remedy: str | Callable[[], str]) -> None:
    """Refuses work that needs more memory than there is; does nothing where the system does not say how much.

    Args:
        needed: Bytes, at the peak.
        what: The work, such as "this audit".
        why: What takes most of them.
        remedy: What to do instead, as a command; a function is called only if it is needed.

    Raises:
        NotEnoughMemory: one sentence with both figures.
    """
    left = available()
    if left is not None and needed > left:
        remedy = remedy if isinstance(remedy, str) else remedy()
        raise NotEnoughMemory(
            f"{what} needs about {in_words(needed)} of memory ({why}), and {in_words(left)} are available: {remedy}"
        )
    _expected.set(max(_expected.get(), (needed, f"{what} was expected to need about {in_words(needed)}")))


def expected() -> str:
    """What the largest work let begin in this task was expected to need, as half a sentence; "" if none was."""
    return _expected.get()[1]


def would_fit(need: Callable[[int], float], upto: int, *, least: int = 3) -> str:
    """How many would fit, in words: the largest count below `upto`, to two digits, whose need is available.

    Args:
        need: Bytes for a count; does not fall as the count grows.
        upto: A count that does not fit.
        least: The least count that is of use.
    """
    left = available() or 0
    if upto <= least or need(least) > left:
        return "not even the fewest possible would fit"
    low, high = least, upto
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if need(middle) <= left else (low, middle)
    unit = 10 ** max(0, len(str(low)) - 2)
    return f"about {low // unit * unit:,} would fit"


def in_words(n_bytes: float) -> str:
    """Size in words, such as "61 GB" or "350 MB"; powers of 1000."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit:
            value = n_bytes / unit
            return f"{value:,.0f} {name}" if value >= 10 else f"{value:.1f} {name}"
    return f"{n_bytes / 1e3:,.0f} kB"


def _of_machine() -> int | None:
    try:
        for line in MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or a kernel without the line: asked below
    for pages in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        try:
            return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            continue
    return None


def _of_cgroups() -> list[int]:
    """What the limits of the own cgroups and of those above them leave."""
    try:
        lines = OWN_CGROUP.read_text("utf-8").splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        controllers, _, own = line.partition(":")[2].partition(":")
        if controllers == "":
            root, names = CGROUP, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = (
                CGROUP / "memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        # In a container the path is often that of the host, and the group itself is mounted at the root.
        path = Path(own.lstrip("/"))
        for folder in {root / path, *(root / parent for parent in path.parents), root}:
            found = _left(folder, *names)
            left += [] if found is None else [found]
    return left


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    try:
        # "max" is no number: no limit.
        most_bytes, used = int((folder / limit).read_text("ascii")), int((folder / usage).read_text("ascii"))
    except (OSError, ValueError):
        return None
    if most_bytes >= UNLIMITED:
        return None
    try:
        # Pages of files that nobody uses count as used and are given back when memory is short.
        rows = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
        used -= int(rows.get(reclaimable, 0))
    except (OSError, ValueError):
        return most_bytes - used
    return most_bytes - used

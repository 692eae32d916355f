"""Results of the parts of one run, put together: which process computed which line stays in it.

A line has in `provenance` where it was computed: commit, machine and device (`origin`). A line without one is of the
run that the first line of its file describes, perhaps of a later hour of it (`origin_of` marks it `of_run`); put into a
file of another run, it gets that provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drjax.core.store import atomic_open
from drjax.reports import records

Line = Mapping[str, Any]

_COPIED = ("commit", "dirty", "backend", "device_kind", "device_count", "cpu", "cores", "utc")


def origin(provenance: Line) -> dict[str, Any]:
    """What a line says of where it was computed, from the provenance of its process (`records.provenance`).

    `utc` is the time at which the process began.
    """
    found = {name: provenance.get(name) for name in _COPIED}
    return {**found, "jax": (provenance.get("versions") or {}).get("jax")}


def origin_of(line: Line, head: Line) -> Line:
    """Where a line was computed: what it says, else, marked `of_run`, where the run of its file began."""
    if "provenance" in line:
        return line["provenance"]
    # Lines that were merged by earlier versions number the provenances in their first line.
    number = line.get("origin")
    return {**origin(head.get("provenance", {}) if number is None else head["origins"][number]), "of_run": True}


def gathered(parts: Sequence[Path], identity: Callable[[Line], Any]) -> tuple[Line, list[Line]]:
    """First line of the first part, and every cell once, as the first part that has it says.

    A cell has its provenance unless it is that of the first line.

    Args:
        parts: Files of results.
        identity: What tells lines apart; of any line but the first of a part.

    Raises:
        ValueError: no parts, one without a line, or parts of different configurations.
        OSError: a part cannot be read.
    """
    if not parts:
        raise ValueError("parts must name at least one file, got none")
    found = [records.read_records(part) for part in parts]
    head = found[0][0] if found[0] else {}
    cells: dict[Any, Line] = {}
    for part, lines in zip(parts, found, strict=True):
        if not lines or "fingerprint" not in lines[0]:
            raise ValueError(f"parts must hold results, got {part} without any")
        if lines[0]["fingerprint"] != head["fingerprint"]:
            raise ValueError(f"parts must be of one configuration, got {parts[0]} and {part} of different ones")
        for line in lines[1:]:
            own = {name: value for name, value in line.items() if name not in ("origin", "provenance")}
            where = origin_of(line, lines[0])
            cells.setdefault(identity(line), own if where == origin_of({}, head) else {**own, "provenance": where})
    return head, list(cells.values())


def merge(
    parts: Sequence[Path],
    out: Path,
    identity: Callable[[Line], Any],
    place: Callable[[Line, Line], Any] | None = None,
) -> int:
    """Writes the cells of all parts to one file, each once and traceable by `origin_of`; returns how many.

    The first line is that of the first part. Merging again, or merging what was merged with a part of it, changes
    nothing. `out` may be one of the parts.

    Args:
        parts: Files of results.
        out: File of the whole; replaced.
        identity: What tells lines apart.
        place: From the first line and a cell to what orders cells of one kind; in the order of the parts if None.

    Raises:
        ValueError: no parts, one without a line, parts of different configurations, or `out` with cells of its own.
        OSError: a part cannot be read, or `out` not be written.
    """
    head, cells = gathered(parts, identity)
    if place is not None:
        order = records.KINDS.index
        cells = sorted(cells, key=lambda line: (order(line["kind"]), *place(head, line)))
    write([head, *cells], out)
    return len(cells)


def write(lines: Sequence[Line], file: Path) -> None:
    """Replaces a file of results whole.

    Raises:
        ValueError: there are cells beside the file, which say what it holds.
    """
    if records.has_cells(file):
        raise ValueError(
            f"out must be a folder without results of its own, got {file.parent} with cells of {file.name}"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(file) as target:
        target.writelines(map(records.encoded_line, lines))

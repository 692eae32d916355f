"""Results of the parts of one run, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drjax.core.store import atomic_open
from drjax.reports import records

Line = Mapping[str, Any]


def gathered(parts: Sequence[Path], identity: Callable[[Line], Any]) -> tuple[list[Line], list[tuple[int, Line]]]:
    """First lines of all parts, and every cell once with the number of the first part that has it.

    Raises:
        ValueError: no parts, one without a line, or parts of different configurations.
        OSError: a part cannot be read.
    """
    if not parts:
        raise ValueError("parts must name at least one file, got none")
    found = [records.read_records(part) for part in parts]
    cells: dict[Any, tuple[int, Line]] = {}
    for number, (part, lines) in enumerate(zip(parts, found, strict=True)):
        if not lines:
            raise ValueError(f"parts must hold results, got {part} without any")
        if lines[0]["fingerprint"] != found[0][0]["fingerprint"]:
            raise ValueError(f"parts must be of one configuration, got {parts[0]} and {part} of different ones")
        for line in lines[1:]:
            cells.setdefault(identity(line), (number, line))
    return [lines[0] for lines in found], list(cells.values())


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

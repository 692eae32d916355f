"""What a step and a cell are, and how cells are put into steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.gpu_hour.hour import Hour

STEP_SECONDS = 480.0
"""No step may be expected to take longer."""

PARTS = {
    "a": "agreement with the CPU, and the tests that a GPU changes",
    "b": "speed: all methods beside naive vmap, scikit-learn and TorchDR",
    "c": "profiles of the two worst",
    "d": "experiments",
}
"""The parts by letter, in order of value."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The smallest piece of work that is kept: a kill loses the one that is being computed.

    Attributes:
        name: Unique; a path.
        seconds: Expected on one H100 or better with 16 cores of its host, compilation included; > 0.
        compute: Makes the fields of the cell's record: numbers, text, lists and mappings.
        lacks: Says what the cell needs and is not here; None if nothing.
    """

    name: str
    seconds: float
    compute: Callable[[Hour], Mapping[str, Any]]
    lacks: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Step:
    """Cells that are worth having together.

    Attributes:
        name: Unique; a path, whose beginning is that of the family that the step was cut from.
        part: Key of `PARTS`.
        basis: Source of the cells' seconds.
        cells: Names the cells; asked when the step's turn comes, because some follow from results before it.
        seconds: Expected of all cells together; at most `STEP_SECONDS`.
        count: Expected number of cells.
    """

    name: str
    part: str
    basis: str
    cells: Callable[[Hour], list[Cell]]
    seconds: float
    count: int

    def __post_init__(self) -> None:
        """Checks part and length."""
        if self.part not in PARTS:
            raise ValueError(f"part must be one of {', '.join(PARTS)}, got {self.part!r}")
        if not 0 < self.seconds <= STEP_SECONDS:
            raise ValueError(f"seconds of {self.name} must be > 0 and at most {STEP_SECONDS:g}, got {self.seconds}")


def step(name: str, part: str, basis: str, cells: Iterable[Cell]) -> Step:
    """A step of cells that are known beforehand."""
    known = list(cells)
    total = sum(cell.seconds for cell in known)
    return Step(name=name, part=part, basis=basis, cells=lambda _: known, seconds=total, count=len(known))


def cut(name: str, part: str, basis: str, cells: Iterable[Cell]) -> Iterator[Step]:
    """Steps "NAME/01", "NAME/02" and so on, with as many cells each, in their order, as are expected to fit.

    Raises:
        ValueError: a cell that is too long for a step.
    """
    groups: list[list[Cell]] = []
    for cell in cells:
        if groups and sum(c.seconds for c in groups[-1]) + cell.seconds <= STEP_SECONDS:
            groups[-1].append(cell)
        else:
            groups.append([cell])
    for number, group in enumerate(groups, start=1):
        yield step(f"{name}/{number:02d}", part, basis, group)

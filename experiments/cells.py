"""Cells of an experiment, groups of them that are computed together, and which of them are asked for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One line of the results, before it is computed.

    Attributes:
        path: Name for people and for patterns: "main/utkface:male/0/densenet/regression".
        name: Name of its file. Lines of one kind are in the order of these names.
        identity: What tells its line from others, as `Sweep.identity` gives it.
        fields: What its line says beside what is computed.
        kind: Kind of the record, one of `records.KINDS`.
        what: What it is computed from, in the experiment's own terms.
    """

    path: str
    name: str
    identity: Hashable
    fields: Line
    kind: str = "attack"
    what: Any = None


def cell_of(name: str, *, kind: str = "attack", what: Any = None, **fields: int | float | str) -> Cell:
    """The cell that its fields name, in their order: they are its path and its identity, see `by`."""
    path = "/".join(f"{value:g}" if isinstance(value, float) else str(value) for value in fields.values())
    return Cell(path=path, name=name, identity=tuple(fields.values()), fields=fields, kind=kind, what=what)


def by(*fields: str) -> Callable[[Line], tuple[Any, ...]]:
    """Tells lines apart by some of their fields."""
    return lambda line: tuple(line[field] for field in fields)


class LeftOut(NamedTuple):
    """Why a cell cannot be computed here; it stays to do."""

    reason: str


Computed = tuple[Cell, Line | LeftOut]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Cells with a common preparation: a data set, releases, shadow models.

    Attributes:
        cells: The cells, in the order of computing.
        compute: Generator that takes those of the cells that are missing and yields each with its facts. It is asked
            for the next when the line of the last is on the disk. Other cells that it yields are kept too.
        seconds: Seconds that the group is expected to take; None where nobody knows.
        share: Share of all work, in any unit, for the time left.
        is_whole: Whether a part of the sweep has all of its cells or none.
        together: Mark of groups that share files of unfinished work: one worker has all of them. None for a group that
            shares none.
    """

    cells: tuple[Cell, ...]
    compute: Callable[[Sequence[Cell]], Iterator[Computed]]
    seconds: Callable[[], float] | None = None
    share: float = 1.0
    is_whole: bool = False
    together: Hashable = None

    def missing(self, done: set[Hashable]) -> list[Cell]:
        """The cells whose identities are not among these."""
        return [cell for cell in self.cells if cell.identity not in done]


def matching(groups: Iterable[Group], only: Sequence[str]) -> list[Group]:
    """The groups with those of their cells that some pattern fits, as in a shell; all without a pattern.

    Raises:
        ValueError: a pattern that no cell fits.
    """
    groups = list(groups)
    if not only:
        return groups
    paths = [cell.path for group in groups for cell in group.cells]
    for pattern in only:
        if not any(fnmatchcase(path, pattern) for path in paths):
            raise ValueError(f"only must fit some cell, such as {next(iter(paths), '')!r}, got {pattern!r}")
    return _with(groups, ([c for c in group.cells if any(fnmatchcase(c.path, p) for p in only)] for group in groups))


def shared(groups: Sequence[Group], i: int, n: int) -> list[Group]:
    """Every n-th cell in the order that they come in, so that what is alike is spread over all parts."""
    numbers, found = itertools.count(1), []
    for group in groups:
        first = next(numbers)
        own = [first if group.is_whole or not k else next(numbers) for k in range(len(group.cells))]
        found.append([cell for number, cell in zip(own, group.cells, strict=True) if number % n == i % n])
    return _with(groups, found)


def _with(groups: Iterable[Group], cells: Iterable[Sequence[Cell]]) -> list[Group]:
    """The groups with these of their cells, without those that have none."""
    return [dataclasses.replace(group, cells=tuple(own)) for group, own in zip(groups, cells, strict=True) if own]

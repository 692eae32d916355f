"""An experiment as a sweep: cells that are computed once, by as many processes as there are, into one folder.

Every cell is a file of its own beside `results.jsonl` (`drjax.reports.records`), which is written whole when a command
ends. What that file holds counts as done, whether there are cells of it or not. An experiment says what its cells are
and how groups of them are computed; `experiments.command` makes the command line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import jax

from drjax.core import executors, validate
from drjax.core.parts import ALL, part_of
from drjax.core.store import remove_stale
from drjax.data import Dataset, Summary
from drjax.reports import ladder, records
from experiments import merging, spread
from experiments.bar import Bar
from experiments.cells import Group, LeftOut, Line, matching, shared

RESULTS = "results.jsonl"


class Seeded(Protocol):
    """A configuration, which is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def seed(self) -> int:
        """Seed of everything that is drawn."""
        ...


C = TypeVar("C", bound=Seeded)

Data = Dataset | Mapping[str, Dataset | Summary]


@dataclass(frozen=True, kw_only=True)
class Asked(Generic[C]):
    """What is asked of a sweep.

    Attributes:
        config: What decides the results.
        out: Folder of the results.
        options: What else the experiment can be told, see `Sweep.options`.
        only: Patterns of cells; all if none.
        progress: Whether to show bars on standard error.
    """

    config: C
    out: Path
    options: Any = None
    only: tuple[str, ...] = ()
    progress: bool = False


class Outcome(NamedTuple):
    """What a run leaves.

    Attributes:
        lines: All lines of the folder, that of the run first.
        left: Groups that did not fit into the time.
    """

    lines: list[dict[str, Any]]
    left: list[Group]


@dataclass(frozen=True, kw_only=True)
class Sweep(Generic[C]):
    """An experiment: what its cells are, how they are computed, and what becomes of their lines.

    Attributes:
        name: Name of the experiment, and of its folder below `runs`.
        about: What its command does.
        scales: Configurations by name, dataclasses with a field `seed`.
        groups: Function that gives the cells in the order of computing.
        sources: Function that gives the data of the groups to compute, by name if there are several; fails where
            records are too few.
        identity: Function from a line to what tells it from others.
        said: Text about a line that was just computed; None for nothing.
        scale: Scale that is run by default.
        plain: Scale whose default folder is named without it.
        results: Name of the file of results.
        options: Further options of the command with their defaults, a dataclass that only `groups` sees.
        configured: Function that puts options which are part of the configuration into that of a scale.
        select: Function that takes the cells which some patterns name.
        listed: Lines of a list of cells; None for paths and whether they are done.
        place: Order of the lines of one kind in a merged file, from the first line and another; None for that of the
            parts.
        beside: Function that reads what folders have beside lines and returns what writes it into another folder.
        report: Text about the results in a folder, which may write figures too; None for nothing.
        claims: What the paper says, judged by all lines; None where the experiment tests no claims.
        x64: Whether float64 is computed in.
    """

    name: str
    about: str | None
    scales: Mapping[str, C]
    groups: Callable[[Asked[C]], Iterable[Group]]
    sources: Callable[[Asked[C], Sequence[Group]], Data]
    identity: Callable[[Line], Hashable]
    said: Callable[[Line], str | None]
    scale: str = "cpu"
    plain: str | None = None
    results: str = RESULTS
    options: Any = None
    configured: Callable[[C, Any], C] = lambda config, _: config
    select: Callable[[Iterable[Group], Sequence[str]], list[Group]] = matching
    listed: Callable[[Asked[C]], Iterable[str]] | None = None
    place: Callable[[Line, Line], Any] | None = None
    beside: Callable[[Sequence[Path]], Callable[[Path], None]] | None = None
    report: Callable[[Path, C], str | None] = lambda *_: None
    claims: Callable[[Sequence[Line]], list[Claim]] | None = None
    x64: bool = False

    def asked(self, config: C, out: Path, only: str | Sequence[str] = (), options: Any = None) -> Asked[C]:
        """What is asked, with the default options for none."""
        patterns = (only,) if isinstance(only, str) else tuple(only)
        return Asked(config=config, out=out, only=patterns, options=self.options if options is None else options)

    def chosen(self, asked: Asked[C], part: str = ALL) -> list[Group]:
        """The groups with the cells that are asked for, and of these one part.

        Raises:
            ValueError: a pattern that names no cell, options that the experiment refuses, or a part that is not "i/n".
        """
        i, n = part_of(part)
        return shared(self.select(self.groups(asked), asked.only), i, n)

    def done(self, asked: Asked[C]) -> set[Hashable]:
        """Identities of the lines that a folder holds; nothing is written.

        Raises:
            ValueError: the folder is of another configuration.
        """
        return {self.identity(line) for line in found(asked.out / self.results, asked.config)[1:]}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper says, and whether it holds here.

    Attributes:
        claim: The claim.
        paper: Where the paper says it, or the value that it gives.
        ours: Value found here; empty where the claim was not tested.
        verdict: Whether the claim holds.
        note: What the verdict is of: data, attack or variant, and how the run differs from the paper's.
    """

    claim: str
    paper: str
    ours: str
    verdict: str
    note: str


def run(
    sweep: Sweep[C],
    config: C,
    out: Path,
    *,
    only: str | Sequence[str] = (),
    part: str = ALL,
    minutes: float | None = None,
    options: Any = None,
    executor: str | Executor | None = None,
    workers: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Computes the cells that `out` does not hold yet, in their order.

    Args:
        sweep: The experiment.
        config: What decides the results.
        out: Folder of the results; made if missing. Any number of processes may share it.
        only: Patterns of paths of cells; all by default.
        part: "i/n", one of n disjoint parts of the cells that are asked for, whatever is done.
        minutes: Time after which nothing is begun, nor what is not expected to end within it; no end if None.
        options: What else the experiment can be told, see `Sweep.options`.
        executor: Where cells are computed, see `drjax.core.executors`; in this process if None. Workers write into
            `out` themselves, which all of them must reach under this name.
        workers: Workers to ask for; see there.
        progress: Show bars with the time left where standard error is a terminal.
        say: Told of each cell as it is done.

    Raises:
        ValueError: results of another configuration in `out`, what `Sweep.chosen` refuses, minutes that are not > 0,
            or too few records.
        OSError: `out` cannot be written, or a data set is not there.
    """
    if minutes is not None:
        validate.positive(minutes=minutes)
    asked = dataclasses.replace(sweep.asked(config, out, only, options), progress=progress)
    if executor is None:
        left = compute(sweep, asked, part=part, minutes=minutes, say=say)
    else:
        executors.check(executor)
        left = spread.compute(sweep, asked, executor, workers, part=part, minutes=minutes, say=say)
    lines = records.gather_records(out / sweep.results)
    done = {sweep.identity(line) for line in lines[1:]}
    return Outcome(lines, [group for group in left if group.missing(done)])


def begin(sweep: Sweep[C], asked: Asked[C], part: str = ALL) -> tuple[list[Group], set[Hashable]]:
    """The groups of which cells are missing, and the identities of those that are not; begins the folder.

    Raises:
        ValueError, OSError: as of `run`.
    """
    left = sweep.chosen(asked, part)
    lines = take_up(asked.out / sweep.results, asked.config, sweep.sources(asked, left), x64=sweep.x64)
    done = {sweep.identity(line) for line in lines[1:]}
    return [group for group in left if group.missing(done)], done


def compute(
    sweep: Sweep[C], asked: Asked[C], *, part: str = ALL, minutes: float | None = None, say: Callable[[str], None]
) -> list[Group]:
    """Computes missing cells in this process, one after the other; returns the groups that did not fit into the time.

    Arguments and errors as of `run`.
    """
    begun, file = time.monotonic(), asked.out / sweep.results
    left, done = begin(sweep, asked, part)
    where = merging.origin(records.provenance(asked.config.seed))

    def is_over(needed: float = 0.0) -> bool:
        return minutes is not None and needed > 60 * minutes - (time.monotonic() - begun)

    with Bar([(len(group.cells), group.share) for group in left], shown=asked.progress) as bar:
        while left:
            group, is_cut = left[0], False
            needed = group.seconds() if group.seconds and minutes is not None else 0.0
            # Another group may have had the same cells.
            if (missing := group.missing(done)) and is_over(needed):
                expected = f" takes about {ladder.duration(needed)}" if group.seconds else ""
                say(f"{missing[0].path}{expected}: not begun")
                break
            for cell, facts in group.compute(missing) if missing else ():
                if isinstance(facts, LeftOut):
                    say(f"{cell.path}: left out, {facts.reason}")
                    continue
                own = {**cell.fields, **facts, "provenance": where}
                line = records.put_record(file, cell.kind, cell.name, **own)
                done.add(cell.identity)
                if (text := sweep.said(line)) is not None:
                    say(text)
                if is_cut := group.seconds is None and is_over():
                    break
            if not is_cut:
                bar.advance()
                # What the group has prepared goes with it.
                del left[0], group
    return left


def take_up(file: Path, config: Seeded, data: Data, *, x64: bool = False) -> list[dict[str, Any]]:
    """The records of an interrupted run, or those of a new one: its configuration and provenance.

    Args:
        file: JSON lines; made with its folder if missing. What killed processes left in the folder is removed.
        config: Dataclass of what decides the results.
        data: What is used, by name if there are several; of what another machine has loaded, what is known of it.
        x64: Whether the experiment computes in float64.

    Raises:
        ValueError: the file is of another configuration.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(file.parent)
    if not _read(file):
        with jax.enable_x64(x64):
            provenance = records.provenance(config.seed)
        sources = data.provenance if isinstance(data, Dataset) else {name: d.provenance for name, d in data.items()}
        facts = {"config": config, "provenance": provenance, "data": sources}
        # Another process may have begun meanwhile: the first line is of whoever was first.
        records.put_record(file, "run", "experiment", fingerprint=records.config_fingerprint(config), **facts)
    return found(file, config)


def found(file: Path, config: Any) -> list[dict[str, Any]]:
    """The records of a run; none if it has not begun.

    Raises:
        ValueError: the file is of another configuration.
    """
    lines = _read(file)
    wanted = records.config_fingerprint(config)
    if lines and lines[0].get("fingerprint", _unnamed(lines[0], config, wanted)) != wanted:
        raise ValueError(f"out must be a new folder or one of the same configuration, got {file.parent} of another")
    return lines


def merge(sweep: Sweep[Any], parts: Sequence[Path], out: Path) -> int:
    """Writes the lines of all folders to `out`, each once, as `merging.merge` does; returns how many.

    Raises:
        ValueError: no folders, one without results, different configurations, or `out` with a run in progress.
        OSError: results cannot be read or written.
    """
    write = sweep.beside(parts) if sweep.beside else None
    count = merging.merge([p / sweep.results for p in parts], out / sweep.results, sweep.identity, sweep.place)
    if write:
        write(out)
    return count


def cell_name(*parts: int | float | str | None) -> str:
    """Name of a cell from what orders it and what it is of; integers sort as numbers."""
    return "-".join(f"{part:05d}" if isinstance(part, int) else str(part) for part in parts)


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        return records.read_records(file)
    except FileNotFoundError:
        return []


def _unnamed(head: Line, config: Any, fingerprint: str) -> str | None:
    """The fingerprint of a run of an earlier version, which wrote the configuration alone."""
    return fingerprint if head.get("config") == records.to_json(config) else None

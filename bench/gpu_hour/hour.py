"""Runs steps cell by cell: goes on where a run ended, begins nothing that does not fit, survives failures."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bench import harness
from bench.gpu_hour import archive
from bench.gpu_hour.steps import Cell, Step
from bench.peers import PeerPool
from bench.shadow_embeddings import NaiveRates, n_workers
from drjax.core.store import atomic_write_text, key_of
from drjax.reports import records
from experiments import sweep

RECORDS = "hour.jsonl"
"""One line a cell."""

CELLS = "hour.cells"
"""Folder of the cells themselves."""

FAILURES = "failures"
"""Folder of one text a cell that failed, the last failure of it."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Which sizes are run: results of one are never taken for those of another.

    Attributes:
        name: "card" or "toy".
        seed: Random seed of the records.
    """

    name: str
    seed: int = 0


class Hour:
    """One run: its folder, what its cells share, and which of them are done.

    Use as a context manager, which ends the processes of the reference libraries.

    Attributes:
        out: Folder of all results; made if missing.
        scale: Sizes.
    """

    def __init__(self, out: Path, scale: Scale, *, done: Iterable[Path] = ()) -> None:
        """Takes over what other folders hold.

        Raises:
            ValueError: a folder of another scale, or one of `done` without cells.
            OSError: a folder cannot be read or written.
        """
        self.out, self.scale = out, scale
        out.mkdir(parents=True, exist_ok=True)
        for folder in done:
            archive.take_over(folder, out)
        sweep.take_up(out / RECORDS, scale, {})
        self.naive_rates: NaiveRates = {}
        self._pool: PeerPool | None = None

    def __enter__(self) -> Hour:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end_pool()

    def found(self, cell: str) -> dict[str, Any] | None:
        """The record of a cell, by its name; None if it is not done."""
        return records.find_record(self.out / RECORDS, "stage", cell)

    def records(self) -> list[dict[str, Any]]:
        """The records of all cells that are done."""
        return [record for record in records.read_records(self.out / RECORDS) if record["kind"] == "stage"]

    def keep(self, step: Step, cell: Cell, seconds: float, fields: Mapping[str, Any]) -> None:
        """Writes the record of a cell."""
        own = {"step": step.name, "part": step.part, "cell": cell.name, "seconds": seconds, "expected_s": cell.seconds}
        records.put_record(self.out / RECORDS, "stage", cell.name, **own, provenance=self.provenance, **fields)
        self.failure_file(cell.name).unlink(missing_ok=True)

    def failure_file(self, cell: str) -> Path:
        """Where the traceback of a cell that failed is kept."""
        return self.out / FAILURES / f"{key_of(cell)}.txt"

    @functools.cached_property
    def provenance(self) -> dict[str, Any]:
        """Commit, versions, machine and device of this process, and the time at which it began."""
        return records.provenance(self.scale.seed)

    @property
    def pool(self) -> PeerPool:
        """Processes of the reference libraries, one a core; started when first asked for."""
        if self._pool is None:
            self._pool = PeerPool(1 if self.scale.name == "toy" else n_workers())
        return self._pool

    def end_pool(self) -> None:
        """Ends those processes: where one has died the others wait for it, and new ones have to be started."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @functools.cached_property
    def peaks(self) -> list[dict[str, Any]]:
        """What the device reaches at best."""
        sizes = {"gemm_size": 64, "copy_entries": 2**12, "repeats": 2} if self.scale.name == "toy" else {}
        return harness.machine_peaks(**sizes)


@dataclass
class Outcome:
    """What became of the cells of a run, by name.

    Attributes:
        computed: Computed now.
        kept: Done before.
        failed: Text of the exception.
        lacking: Name of what this machine does not have.
        unfit: Expected seconds of cells for which too little time was left.
        findings: Words on done cells that found something wrong: a kernel that differs, a test that fails.
    """

    computed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, float] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)

    def summary(self) -> list[str]:
        """Lines for a person."""
        lines = [f"{len(self.computed)} cells computed, {len(self.kept)} done before"]
        if self.unfit:
            first, seconds = next(iter(self.unfit.items()))
            lines.append(f"{len(self.unfit)} not begun for lack of time; the first is {first} ({seconds:.0f} s)")
        for title, found in (("needs", self.lacking), ("FAILED", self.failed), ("FOUND", self.findings)):
            lines += [f"{title}: {name}: {text}" for name, text in found.items()]
        return lines


def run(
    hour: Hour,
    steps: Iterable[Step],
    *,
    minutes: float | None = None,
    pack: Path | None = None,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Computes the cells that are not done, in order.

    A cell whose expected seconds do not fit into what is left is not begun; later ones that fit are.

    Args:
        hour: Folder and scale.
        steps: In order of value.
        minutes: Time for all, from now; None for no end.
        pack: Folder that everything is packed into after every cell, see `archive.pack`; None for `hour.out`.
        say: Told of every cell.
        clock: Seconds, for `minutes`.

    Raises:
        OSError: a result cannot be written.
    """
    outcome, begun = Outcome(), clock()
    for step in steps:
        cells = step.cells(hour)
        if not cells:
            say(f"{step.name}: nothing, its cells follow from results that are not there")
        for cell in cells:
            if (before := hour.found(cell.name)) is not None:
                outcome.kept.append(cell.name)
                _note(outcome, cell.name, before)
                continue
            if (reason := cell.lacks()) is not None:
                outcome.lacking[cell.name] = reason
                continue
            if minutes is not None and clock() - begun + cell.seconds > 60 * minutes:
                if not outcome.unfit:
                    left = max(0.0, 60 * minutes - (clock() - begun))
                    say(f"{cell.name} is not begun: {cell.seconds:.0f} s are expected, {left:.0f} s are left")
                outcome.unfit[cell.name] = cell.seconds
                continue
            say(f"{cell.name} ({cell.seconds:.0f} s expected)")
            _compute(hour, step, cell, outcome, say)
            archive.pack(hour.out, pack or hour.out)
    records.gather_records(hour.out / RECORDS)
    return outcome


def _compute(hour: Hour, step: Step, cell: Cell, outcome: Outcome, say: Callable[[str], None]) -> None:
    start, x64 = time.perf_counter(), jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    try:
        fields = cell.compute(hour)
    except Exception as error:  # whatever a cell raises, the hour goes on with the next
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        outcome.failed[cell.name] = text
        file = hour.failure_file(cell.name)
        file.parent.mkdir(exist_ok=True)
        where = f"{cell.name}\n{hour.provenance['device_kind']}, commit {hour.provenance['commit']}\n"
        atomic_write_text(file, where + traceback.format_exc())
        say(f"  FAILED: {text}")
        return
    finally:
        jax.config.update("jax_enable_x64", x64)
    seconds = time.perf_counter() - start
    hour.keep(step, cell, seconds, fields)
    outcome.computed.append(cell.name)
    _note(outcome, cell.name, fields)
    say(f"  {seconds:.0f} s" + (f", FOUND: {outcome.findings[cell.name]}" if cell.name in outcome.findings else ""))


def _note(outcome: Outcome, name: str, fields: Mapping[str, Any]) -> None:
    if fields.get("finding"):
        outcome.findings[name] = str(fields["finding"])


def left(hour: Hour, step: Step) -> tuple[int, float]:
    """How many cells of a step are not done, and their expected seconds; a guess while they are unknown."""
    cells = step.cells(hour)
    if not cells:
        return step.count, step.seconds
    waiting = [cell for cell in cells if hour.found(cell.name) is None]
    return len(waiting), sum(cell.seconds for cell in waiting)

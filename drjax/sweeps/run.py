"""The driver of a sweep: which cells are missing, what comes next of each, and who does it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from drjax.audits import pieces
from drjax.audits.pipeline import Piece
from drjax.core import executors, validate
from drjax.core.parts import ALL
from drjax.core.progress import shown
from drjax.data import Dataset
from drjax.reports import records
from drjax.sweeps.config import Cell, SweepConfig
from drjax.sweeps.result import SweepResult
from drjax.sweeps.store import SweepStore
from drjax.sweeps.work import ATTACK, BEGIN, CHOOSE, FINISH, MAKE, Share, work


def run(
    config: SweepConfig,
    out: str | Path,
    *,
    data: Dataset | None = None,
    part: str = ALL,
    executor: str | Executor = "local",
    workers: int | None = None,
    keep: bool = False,
    progress: bool = False,
) -> SweepResult:
    """Computes the cells that a store does not hold yet.

    Whatever dies, the same call goes on where it was: a worker's task is given to another, a cell's finished pieces
    stay, and a finished cell is never computed again.

    Args:
        config: What is crossed.
        out: Store: a folder, or an address such as s3://bucket/folder; made if it is not there.
        data: Data set already loaded, under the name in `config.base`; loaded by the workers if None.
        part: "i/n", one of n disjoint parts of the cells, for as many calls that share a store.
        executor: Where cells are computed, see `drjax.core.executors`. All workers must reach the store.
        workers: Workers to ask for; see there.
        keep: Keep the run folders of finished cells, with their releases and reconstructions.
        progress: Show how many cells are done, and the time left.

    Raises:
        ValueError: a part that is not "i/n", a store of another sweep, a worker of another version, or settings that do
            not fit the data. What is finished stays.
        OSError: the store cannot be reached, or is full. What is finished stays.
    """
    executors.check(executor)
    if workers is not None:
        validate.integer(workers=workers)
    wanted = config.part(part)
    store, share = SweepStore(out), share_of(config, out, data, keep=keep)
    store.begin(share.fingerprint, _facts(config))
    there = set(store.done())
    left = [cell for cell in wanted if cell.key not in there]
    cells = Course(share, left)
    description, total = "cells of the sweep", len(wanted)
    with shown(description, total, total - len(left), enabled=progress) as advance:
        for _ in executors.run(work, list(cells.tasks), then=cells.then, executor=executor, workers=workers):
            advance(cells.taken())
    return SweepResult(str(out))


class Course:
    """Which step of which cell comes next.

    Attributes:
        tasks: All tasks so far, by number.
    """

    def __init__(self, share: Share, cells: Sequence[Cell]) -> None:
        """Begins with the first step of every cell.

        Args:
            share: What all workers are told.
            cells: Cells to compute.
        """
        self._waiting: dict[str, int] = {}
        self._done = 0
        self.tasks: list[tuple[Any, ...]] = [(share, cell, BEGIN) for cell in cells]

    def then(self, number: int, pieces: list[Piece]) -> list[tuple[Any, ...]]:
        """Tasks that the end of one makes possible."""
        share, cell, step = self.tasks[number][:3]
        if step in (MAKE, ATTACK):
            self._waiting[cell.key] -= 1
            if self._waiting[cell.key]:
                return []
            further = [(share, cell, CHOOSE if step == MAKE else FINISH)]
        elif pieces:
            self._waiting[cell.key] = len(pieces)
            further = [(share, cell, ATTACK if piece.is_attack else MAKE, piece) for piece in pieces]
        else:
            self._done += 1
            further = []
        self.tasks += further
        return further

    def taken(self) -> int:
        """Cells that were finished since this was asked last."""
        found, self._done = self._done, 0
        return found


def share_of(config: SweepConfig, out: str | Path, data: Dataset | None, *, keep: bool) -> Share:
    """What all workers of a sweep are told."""
    # Data that are crossed are named; those in memory are of the common configuration alone.
    given = None if "data" in config.over else data
    job = pieces.job(config.base, Path(tempfile.gettempdir()), given, lanes=config.lanes)
    url = str(out) if "://" in str(out) else str(Path(out).absolute())
    return Share(url=url, job=job, fingerprint=_fingerprint(config), types=config.types, keep=keep)


def _facts(config: SweepConfig) -> dict[str, Any]:
    """What a sweep is, with the versions that its results depend on."""
    names = dict(zip(("drjax", "jax"), pieces.versions(), strict=True))
    cells = [cell.name for cell in config.cells]
    base: dict[str, Any] = records.to_json(config.base)
    crossed = {"over": config.over, "common": config.common, "lanes": config.lanes}
    return {**base, **records.to_json(crossed), "versions": names, "cells": cells}


def _fingerprint(config: SweepConfig) -> str:
    return records.fingerprint_of([records.config_fingerprint(config), *pieces.versions()])

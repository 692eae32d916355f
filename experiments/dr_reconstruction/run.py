"""Reconstruction attacks on six dimensionality-reduction methods, as in paper 000, beside stronger ones.

    python -m experiments.dr_reconstruction.run                  # "cpu": six methods, three data sets, on two cores
    python -m experiments.dr_reconstruction.run --scale smoke    # digits: the same code in seconds
    python -m experiments.dr_reconstruction.run --scale full --list                  # the paper's grid: what it takes
    python -m experiments.dr_reconstruction.run --scale full --only "mnist/*:network" --minutes 8      # some of it

Every attack on every release, with and without noise on the records, is a cell and a line of `results.jsonl`, kept as a
file of its own when it is done; the same command goes on with an interrupted run, also within the shadows of a release
and the training of a network, and `merge.py` puts together what several machines computed. Cells come in an order in
which whatever is done is a result (`order.py`). An attack that was added to drjax since is computed, and nothing else.
At the end figures and tables are drawn (`report.py`, which can also be called alone). Runtime and figures: README.md in
this folder.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from drjax.core import validate
from drjax.data import describe, load
from drjax.reports import ladder, records
from experiments import merging
from experiments.dr_reconstruction import cells, forecast, order, report
from experiments.dr_reconstruction.config import Config, Release, of_scale
from experiments.dr_reconstruction.order import Task
from experiments.resume import cell_name, take_up

RESULTS = report.RESULTS


def run(
    config: Config,
    out: Path,
    *,
    only: str | Sequence[str] = "*",
    minutes: float | None = None,
    keep: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = print,
) -> list[Task]:
    """Computes the cells that `out` does not hold yet, in the order of `order.tasks`.

    Args:
        config: What to compute.
        out: Folder of `results.jsonl`, of the examples and of work in progress; made if missing.
        only: Patterns of releases or cells, as `order.tasks` takes them; all by default. Several processes may share a
            folder if no release is in the patterns of two, or all of them keep their shadows.
        minutes: Time in which tasks may be begun that are expected to end in it; without end if None. The first that
            is not ends the run.
        keep: Keep the shadows of releases whose cells are done, for other attacks later. Those of a release of which
            some cell that was asked for is not done stay in any case.
        progress: Show bars with the time left on standard error.
        say: Told of each cell as it is done.

    Returns:
        What did not fit into the time, in order.

    Raises:
        ValueError: results of another configuration in `out`, too few records for a split, a pattern that names no
            cell, or minutes that are not > 0.
        OSError: `out` cannot be written, or a data set is not there.
    """
    begun = time.monotonic()
    if minutes is not None:
        validate.positive(minutes=minutes)
    chosen = order.tasks(config, only)
    data = {name: load(name) for name in dict.fromkeys(task.release.data for task in chosen)}
    for found in data.values():
        cells.partition(config, found, 0)  # fails now if there are too few records
    others = {plan.data: describe(plan.data) for plan in config.plans}
    head, *found = take_up(out / RESULTS, config, others | data)
    here = merging.origin(records.provenance(config.seed))
    pace = forecast.pace_of(config, head, found, here)
    done = {cells.identity(record) for record in found}
    left = forecast.left_of(chosen, done)
    with _Bar(forecast.with_seconds(config, left, pace, out), shown=progress and sys.stderr.isatty()) as bar:
        while left:
            task = left[0]
            needed = 0.0 if minutes is None else forecast.seconds(config, task, pace, out)
            if minutes is not None and needed > 60 * minutes - (time.monotonic() - begun):
                say(f"{order.text_of(task.cells[0])} takes about {ladder.duration(needed)}: not begun")
                break
            made = []
            for kind, name, fields in cells.compute(
                config, task, data[task.release.data], out, done, progress=progress
            ):
                own = {"release": task.release.name, "name": name, **_place(task.release), **fields, "provenance": here}
                cell = _cell(config, task.release, kind, name, fields)
                made.append(records.put_record(out / RESULTS, kind, cell, **own))
                done.add(cells.identity(made[-1]))
                if kind == "attack":
                    say(_line(task.release, fields))
            pace.take(made)
            bar.advance(task)
            left = left[1:]
            if not keep and all(other.release != task.release for other in left):
                shutil.rmtree(cells.work_folder(out, task.release))
    records.gather_records(out / RESULTS)
    return left


def main(
    *,
    scale: Annotated[Literal["smoke", "cpu", "full"], tyro.conf.arg(aliases=["-s"])] = "cpu",
    out: Path | None = None,
    only: tuple[str, ...] = (),
    cells_of: Annotated[Path | None, tyro.conf.arg(name="cells")] = None,
    is_list: Annotated[bool, tyro.conf.arg(name="list")] = False,
    minutes: float | None = None,
    keep: bool = False,
) -> None:
    """Attacks the releases of paper 000 and draws its figures.

    Args:
        scale: "smoke" shows that everything runs, "cpu" is for two cores, "full" is the paper's grid.
        out: Folder of the results; runs/dr_reconstruction-SCALE if not given.
        only: Patterns of the releases or cells to compute, such as "mnist/pca/*" or "mnist/*/199/*:network:0".
        cells_of: File with names of cells to compute, one a line, as --list prints them.
        is_list: List the cells in the order in which they are computed, with seconds, and compute nothing.
        minutes: Begin nothing that is not expected to end within these minutes.
        keep: Keep the shadows of finished releases, so that attacks added later find them.
    """
    config = of_scale(scale)
    folder = out or Path("runs") / f"dr_reconstruction-{scale}"
    patterns = [*only, *(order.read_names(cells_of) if cells_of else [])] or ["*"]
    if is_list:
        print(*forecast.listed(config, folder, patterns), sep="\n")
        return
    left = run(config, folder, only=patterns, minutes=minutes, keep=keep, progress=True)
    if left:
        print(f"{sum(len(task.cells) for task in left):,} cells did not fit: the same command goes on with them")
    if any(record["kind"] == "attack" for record in records.read_records(folder / RESULTS)):
        report.write([folder], folder)
        print(f"figures and tables: {folder}")


def _cell(config: Config, release: Release, kind: str, name: str, fields: Mapping[str, Any]) -> str:
    """In the order of the configuration, of the ladder and of the noise."""
    places = [config.releases().index(release)]
    if kind == "stage":
        return cell_name(*places, release.name, name, f"{fields['sigma']:g}")
    places += [list(config.attacks(release)).index(name), config.sigmas_of(release).index(fields["sigma"])]
    return cell_name(*places, release.name, name)


def _place(release: Release) -> dict[str, str | int]:
    return {"data": release.data, "method": release.method, "n_known": release.n_known, "repeat": release.repeat}


def _line(release: Release, fields: Mapping[str, Any]) -> str:
    noise = f", noise {fields['sigma']:g}" if fields["sigma"] else ""
    if "refused" in fields:
        return f"{release.name} {fields['attack']}{noise}: refused, {fields['refused']}"
    return f"{release.name} {fields['attack']}{noise}: {ladder.number(fields['scores'].mse.estimate)}"


class _Bar:
    """Cells done of all, and the time left by what the cells so far have taken for their share of the work."""

    def __init__(self, work: Sequence[tuple[Task, float]], *, shown: bool) -> None:
        self._work = dict(work)
        self._spent, self._begun = 0.0, time.perf_counter()
        self._bar = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._bar.add_task("", total=sum(len(task.cells) for task in self._work), left="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def advance(self, task: Task) -> None:
        self._spent += self._work[task]
        left = (time.perf_counter() - self._begun) * max(0.0, sum(self._work.values()) / self._spent - 1)
        self._bar.update(self._task, advance=len(task.cells), left=f"about {ladder.duration(left)} left")


if __name__ == "__main__":
    tyro.cli(main)

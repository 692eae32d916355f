"""Reconstruction attacks on six dimensionality-reduction methods, as in paper 000, beside stronger ones.

    python -m experiments.dr_reconstruction.run                  # "cpu": six methods, three data sets, on two cores
    python -m experiments.dr_reconstruction.run --scale smoke    # digits: the same code in seconds
    python -m experiments.dr_reconstruction.run --scale full --list                  # the paper's grid: what it takes
    python -m experiments.dr_reconstruction.run --scale full --only "mnist/*:network" --minutes 8      # some of it

Every attack on every release, with and without noise on the records, is a cell and a line of `results.jsonl`, kept as a
file of its own when it is done; the same command goes on with an interrupted run, also within the shadows of a release
and the training of a network, and `--merge` puts together what several machines computed. Cells come in an order in
which whatever is done is a result (`order.py`). An attack that was added to drjax since is computed, and nothing else.
At the end figures and tables are drawn (`report.py`, which can also be called alone). Runtime and figures: README.md in
this folder.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drjax.attacks.registry import ATTACKS
from drjax.data import Dataset, Summary, describe, load
from drjax.reports import ladder, records
from experiments import command
from experiments.cells import Cell, Computed, Group, Line
from experiments.dr_reconstruction import cells, claims, forecast, order
from experiments.dr_reconstruction.config import ADAPTIVE, SCALES, Config, Release
from experiments.dr_reconstruction.order import Task
from experiments.dr_reconstruction.results import IMAGES, examples
from experiments.sweep import RESULTS, Asked, Sweep, cell_name


@dataclass(frozen=True, kw_only=True)
class Options:
    """Further options.

    Attributes:
        cells: File with names of cells to compute, one a line, as --list prints them.
        keep: Keep the shadows of finished releases, so that attacks added later find them. Those of a release of which
            some cell that was asked for is not done stay in any case.
    """

    cells: Path | None = None
    keep: bool = False


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The tasks of `order.tasks`.

    Raises:
        ValueError: a pattern that names no cell, or results of another configuration.
        OSError: the file of names cannot be read.
    """
    config, tasks = asked.config, order.tasks(asked.config, _patterns(asked))
    state = forecast.State.read(config, asked.out)
    left = forecast.left_of(tasks, state.done)
    work = dict(forecast.with_seconds(config, left, state.pace, asked.out))
    last = {task.release: task for task in left}
    for task in tasks:
        own = [_cell(config, task.release, "attack", task.attack, sigma, task) for sigma in task.sigmas]
        is_last = task == last.get(task.release)
        yield Group(
            cells=tuple(own),
            compute=functools.partial(_compute, asked, state, task, is_last),
            seconds=functools.partial(forecast.seconds, config, task, state.pace, asked.out),
            share=work.get(task, 0.0),
            is_whole=True,
            together=task.release.name,
        )


def _patterns(asked: Asked[Config]) -> Sequence[str]:
    names = order.read_names(asked.options.cells) if asked.options.cells else []
    return [*asked.only, *names] or ["*"]


def _compute(
    asked: Asked[Config], state: forecast.State, task: Task, is_last: bool, _: Sequence[Cell]
) -> Iterator[Computed]:
    config, release, made = asked.config, task.release, []
    data, file = _data(release.data), asked.out / RESULTS
    for kind, name, fields in cells.compute(config, task, data, asked.out, state.done, progress=asked.progress):
        cell = _cell(config, release, kind, name, fields["sigma"], task)
        yield cell, fields
        state.done.add(cell.identity)
        made.append(records.find_record(file, kind, cell.name))
    state.pace.take(made)
    if is_last and not asked.options.keep:
        shutil.rmtree(cells.work_folder(asked.out, release))


@functools.lru_cache(maxsize=4)
def _data(name: str) -> Dataset:
    return load(name)


def _sources(asked: Asked[Config], chosen: Sequence[Group]) -> dict[str, Dataset | Summary]:
    used = {name: _data(name) for name in dict.fromkeys(group.cells[0].what.release.data for group in chosen)}
    for data in used.values():
        cells.partition(asked.config, data, 0)  # fails now if there are too few records
    return {plan.data: describe(plan.data) for plan in asked.config.plans} | used


def _cell(config: Config, release: Release, kind: str, name: str, sigma: float, task: Task) -> Cell:
    """In the order of the configuration, of the ladder and of the noise."""
    places, words = [config.releases().index(release)], [release.name, name]
    if kind == "stage":
        words.append(f"{sigma:g}")
    else:
        places += [list(config.attacks(release)).index(name), config.sigmas_of(release).index(sigma)]
    where = {"data": release.data, "method": release.method, "n_known": release.n_known, "repeat": release.repeat}
    return Cell(
        kind=kind,
        path=order.text_of((release.name, name, sigma)),
        name=cell_name(*places, *words),
        identity=(release.name, name, sigma),
        fields={"release": release.name, "name": name, **where},
        what=task,
    )


def _said(line: Line) -> str | None:
    if line["kind"] != "attack":
        return None
    noise = f", noise {line['sigma']:g}" if line["sigma"] else ""
    if "refused" in line:
        return f"{line['release']} {line['attack']}{noise}: refused, {line['refused']}"
    return f"{line['release']} {line['attack']}{noise}: {ladder.number(line['scores']['mse']['estimate'])}"


def _place(head: Mapping[str, Any], line: Line) -> tuple[Any, ...]:
    """In the order of a single run: releases as the configuration has them, attacks as the ladder has them."""
    config = head["config"]
    plans = [plan["data"] for plan in config["plans"]]
    release = (line["repeat"], plans.index(line["data"]), line["n_known"], config["methods"].index(line["method"]))
    _, what, sigma = cells.identity(line)
    names = ATTACKS["embedding"]
    ladder = [*names, *(f"{ADAPTIVE}{name}" for name in names)]
    return (*release, ladder.index(what) if what in ladder else len(ladder), what, sigma or 0)


def _images(parts: Sequence[Path]) -> Callable[[Path], None]:
    """Of an image that several folders have, that of the first is kept."""
    images = examples(*reversed(parts))

    def write(out: Path) -> None:
        if images:
            records.save_arrays(out / IMAGES, **images)

    return write


def _report(out: Path, _: Config) -> str | None:
    from experiments.dr_reconstruction import report  # which merges runs

    if not any(record["kind"] == "attack" for record in records.read_records(out / RESULTS)):
        return None
    report.write([out], out)
    return f"figures and tables: {out}"


SWEEP = Sweep(
    name="dr_reconstruction",
    about=__doc__,
    scales=SCALES,
    groups=groups,
    sources=_sources,
    identity=cells.identity,
    said=_said,
    options=Options(),
    select=lambda chosen, _: list(chosen),  # a task takes the noises that it is asked for
    listed=lambda asked: forecast.listed(asked.config, asked.out, _patterns(asked)),
    place=_place,
    beside=_images,
    report=_report,
    claims=claims.judged_claims,
)


if __name__ == "__main__":
    command.main(SWEEP)

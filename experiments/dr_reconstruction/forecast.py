"""What of a run is left to compute, and what it is expected to take on this machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from drjax.reports import ladder, records
from experiments import merging
from experiments.dr_reconstruction import cells, expected, order
from experiments.dr_reconstruction.config import Config
from experiments.dr_reconstruction.order import Task
from experiments.sweep import RESULTS, found

MACHINE = ("cpu", "cores", "device_kind", "device_count")
"""Of a provenance: what decides how long work takes."""


def forecast(config: Config, out: Path, only: str | Sequence[str] = "*") -> list[tuple[Task, float]]:
    """What is left to compute, in order, and the seconds that each task is expected to take on this machine.

    Embeddings count where they are needed first. Reads `out`, if there is one, and writes nothing.

    Args:
        config: What there is.
        out: Folder of a run; what of it was computed on such a machine scales what is expected.
        only: Patterns, as `order.tasks` takes them.

    Raises:
        ValueError: a pattern that names no cell, or results of another configuration.
    """
    state = State.read(config, out)
    return with_seconds(config, left_of(order.tasks(config, only), state.done), state.pace, out)


def listed(config: Config, out: Path, only: str | Sequence[str] = "*") -> Iterator[str]:
    """Lines on every cell that some patterns name: name, seconds, seconds up to there, and whether it is done.

    `order.read_names` reads the names of cells from such lines. The seconds of cells that are computed together stand
    beside the first of them. Arguments and errors are those of `forecast`.
    """
    state, tasks = State.read(config, out), order.tasks(config, only)
    needed = dict(with_seconds(config, left_of(tasks, state.done), state.pace, out))
    basis = f"scaled by {state.pace.n_kinds} kinds of work that were done here" if state.pace.n_kinds else "unscaled"
    yield f"# cell, seconds (of two cores of an AMD EPYC, {basis}), seconds up to it"
    total, counts = 0.0, Counter()
    by_data: dict[str, float] = defaultdict(float)
    for task in tasks:
        total += needed.get(task, 0.0)
        by_data[task.release.data] += needed.get(task, 0.0)
        for i, cell in enumerate(task.cells):
            is_done = cell in state.done
            counts[is_done] += 1
            own = 0.0 if i else needed.get(task, 0.0)
            yield f"{order.text_of(cell):52} {own:10.1f} {total:12.0f}  {'done' if is_done else 'to do'}"
    yield from (f"# {name}: {ladder.duration(seconds)}" for name, seconds in by_data.items())
    yield f"# {counts[True]:,} cells done, {counts[False]:,} to do in about {ladder.duration(total)}"


def left_of(tasks: Sequence[Task], done: set[Any]) -> list[Task]:
    """Tasks of which some cell is not done."""
    return [task for task in tasks if not done.issuperset(task.cells)]


def pace_of(
    config: Config, head: Mapping[str, Any], found: Sequence[Mapping[str, Any]], here: Mapping[str, Any]
) -> expected.Pace:
    """How fast this machine is by the records of a run, of which those of such a machine count.

    Args:
        config: What there is.
        head: First record of the run.
        found: The others.
        here: `merging.origin` of this process.
    """
    pace = expected.Pace(config, on_accelerator=jax.default_backend() != "cpu")
    machine = [here[name] for name in MACHINE]
    pace.take(r for r in found if [merging.origin_of(r, head).get(name) for name in MACHINE] == machine)
    return pace


def seconds(
    config: Config, task: Task, pace: expected.Pace, out: Path, counted: set[tuple[str, str]] | None = None
) -> float:
    """What a task takes, with the embeddings that its work folder lacks; those in `counted` were counted before."""
    counted = set() if counted is None else counted
    total = pace.attack(task.release, task.attack, expected.n_answers(config, task.release, task.attack, task.sigmas))
    for name, sigma, n_left in cells.lanes_left(config, task, out):
        if (task.release.name, name) not in counted:
            counted.add((task.release.name, name))
            total += pace.lanes(task.release, n_left, sigma)
    return total


def with_seconds(config: Config, tasks: Sequence[Task], pace: expected.Pace, out: Path) -> list[tuple[Task, float]]:
    """Tasks and what each takes when those before it are done."""
    counted: set[tuple[str, str]] = set()
    return [(task, seconds(config, task, pace, out, counted)) for task in tasks]


class State(NamedTuple):
    """What a folder holds.

    Attributes:
        done: What `cells.identity` gives of its records.
        pace: How fast this machine is.
    """

    done: set[Any]
    pace: expected.Pace

    @classmethod
    def read(cls, config: Config, out: Path) -> State:
        """Of a folder that holds a run of the configuration, or nothing yet.

        Raises:
            ValueError: it holds a run of another.
        """
        head, *lines = found(out / RESULTS, config) or [{}]
        here = merging.origin(records.provenance(config.seed))
        return cls({cells.identity(line) for line in lines}, pace_of(config, head, lines, here))

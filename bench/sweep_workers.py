"""Sweeps on workers that die, on a Ray cluster that loses a node, and on sixteen simulated ones.

    python -m bench.sweep_workers

README.md beside this file says what is measured.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import tyro

from bench import harness
from drjax import sweeps
from drjax.audits import AuditConfig
from drjax.audits.pipeline import Piece
from drjax.core import executors
from drjax.core.executors import LocalExecutor
from drjax.sweeps.run import Course, share_of

Kind = Literal["kills", "ray", "simulated", "overhead"]

SIZES: dict[str, Any] = {"n_known": 60, "n_shadow": 60, "n_validation": 20, "n_targets": 20}
OVER = {"method": ("pca", "srp"), "n_components": (1, 2, 3), "decimals": (None, 3)}
REPLAYED = {**OVER, "method": ("pca", "srp", "svd", "classical_mds"), "n_components": (2, 3), "seed": tuple(range(12))}
LARGER: dict[str, Any] = {"n_known": 199, "n_shadow": 400, "n_validation": 100, "n_targets": 200}
ATTACKS = ("closed-form", "srp-closed-form", "ridge")


MOMENT = 9.0
"""Latest second of a sweep at which it is disturbed."""


def main(
    *,
    kinds: tuple[Kind, ...] = ("kills", "ray", "simulated", "overhead"),
    times: int = 20,
    workers: int = 16,
    out: Path = harness.RESULTS / "sweep_workers.jsonl",
) -> None:
    """Runs sweeps on workers, and adds a row for each kind.

    Args:
        kinds: What to run: workers of this machine that are killed, a Ray cluster of two nodes that loses one, recorded
            times replayed on more workers than there are cores, tasks that do nothing.
        times: Sweeps in which a worker is killed, or a node is lost.
        workers: Simulated workers.
        out: JSON-lines file that the rows are added to.
    """
    measures: Mapping[str, Callable[[], dict[str, Any]]] = {
        "kills": functools.partial(killed, times),
        "ray": functools.partial(without_a_node, times),
        "simulated": functools.partial(simulated, workers),
        "overhead": overhead,
    }
    for kind in kinds:
        fields = measures[kind]()
        harness.append_row(out, harness.make_row(f"sweep_{kind}", {}, fields))
        print(kind, *(f"{name} {value:.4g}" for name, value in fields.items()), flush=True)


def killed(times: int) -> dict[str, Any]:
    """Sweeps by two workers of this machine, of which one is killed at a random moment."""

    def kill() -> None:
        found = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
        if found:
            os.kill(random.choice(found), signal.SIGKILL)

    return _disturbed(times, kill, executor="local", workers=2)


def without_a_node(times: int) -> dict[str, Any]:
    """Sweeps on two nodes of Ray, of which one is taken away at a random moment, and another one comes."""
    with cluster() as made:

        def lose() -> None:
            made.cluster.remove_node(made.nodes.pop(0), allow_graceful=False)

        return _disturbed(times, lose, made.fill, executor="ray")


class Nodes:
    """A Ray cluster on this machine, and those of its nodes that work."""

    def __init__(self) -> None:
        """Starts a head without workers, and two nodes of one core."""
        from ray.cluster_utils import Cluster  # of the extra "ray"

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.nodes: list[Any] = []
        self.fill()

    def fill(self) -> None:
        """Starts nodes until there are two; from the main thread alone."""
        while len(self.nodes) < 2:
            self.nodes.append(self.cluster.add_node(num_cpus=1))


@contextmanager
def cluster() -> Generator[Nodes]:
    """Two nodes of Ray that `drjax.core.executors` joins."""
    made = Nodes()
    os.environ["RAY_ADDRESS"] = made.cluster.address
    try:
        yield made
    finally:
        del os.environ["RAY_ADDRESS"]
        made.cluster.shutdown()


def _disturbed(
    times: int, disturb: Callable[[], None], mend: Callable[[], None] = lambda: None, **options: Any
) -> dict[str, Any]:
    """Cells that are lost, done twice, or of other bits than those of one process, in all of so many sweeps."""
    config = sweeps.SweepConfig(base=AuditConfig(data="digits", attacks=ATTACKS, **SIZES), over=OVER, lanes=8)
    lost = twice = other = disturbed = done = 0
    with tempfile.TemporaryDirectory() as folder:
        alone = _rows(sweeps.run(config, Path(folder) / "alone", executor=ThreadPoolExecutor(1)))
        begun = time.perf_counter()
        while disturbed < times:
            mend()
            done += 1
            out, ended, moment = Path(folder) / str(done), threading.Event(), random.uniform(1, MOMENT)

            def wait(ended: threading.Event = ended, moment: float = moment) -> int:
                if ended.wait(moment):
                    return 0
                disturb()
                return 1

            with ThreadPoolExecutor(1) as other_thread:
                waiting = other_thread.submit(wait)
                rows = _rows(sweeps.run(config, out, **options))
                ended.set()
                disturbed += waiting.result()
            lost += len(config.cells) - len(list(out.glob("cells/*.parquet")))
            twice += len(rows) - len(alone)
            other += not rows.equals(alone)
            print(f"{done}: disturbed {disturbed} times", flush=True)
        seconds = (time.perf_counter() - begun) / done
    fields = {"sweeps": done, "disturbed": disturbed, "cells": len(config.cells)}
    return {**fields, "cells_lost": lost, "lines_twice": twice, "other_bits": other, "wall_s": seconds}


def _rows(found: sweeps.SweepResult) -> pa.Table:
    return pa.Table.from_pandas(found.rows)


def simulated(workers: int) -> dict[str, Any]:
    """Time that so many workers would take for a sweep whose steps take what they took here, one after the other."""
    base = AuditConfig(data="digits", attacks=ATTACKS, **LARGER)
    config = sweeps.SweepConfig(base=base, over=REPLAYED)
    timed = Timed()
    with tempfile.TemporaryDirectory() as folder:
        sweeps.run(config, Path(folder) / "once", executor=timed)
    # The first step of a process compiles what all others find: of a worker, too.
    replay = functools.partial(_replayed, timed.seconds)
    share = share_of(config, "replayed", None, keep=False)
    cells = Course(share, config.cells)
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for _ in executors.run(replay, list(cells.tasks), then=cells.then, executor=pool):
            pass
    wall, work = time.perf_counter() - begun, sum(seconds for seconds, _ in timed.seconds.values())
    fields = {"workers": workers, "cells": len(config.cells), "tasks": len(timed.seconds), "work_s": work}
    return {**fields, "wall_s": wall, "efficiency": work / (workers * wall)}


class Timed(Executor):
    """Does every task at once, here.

    Attributes:
        seconds: Seconds that each task took, and what it returned.
    """

    def __init__(self) -> None:
        """Has done nothing yet."""
        self.seconds: dict[tuple[str, str, Piece | None], tuple[float, Any]] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """See `Executor.submit`."""
        future: Future = Future()
        begun = time.perf_counter()
        future.set_result(fn(*args, **kwargs))
        self.seconds[_named(*args)] = time.perf_counter() - begun, future.result()
        return future


def _named(_: Any, cell: sweeps.Cell, step: str, piece: Piece | None = None) -> tuple[str, str, Piece | None]:
    return cell.key, step, piece


def _replayed(seconds: Mapping[Any, tuple[float, Any]], *task: Any) -> Any:
    taken, result = seconds[_named(*task)]
    time.sleep(taken)
    return result


def overhead(tasks: int = 5_000) -> dict[str, Any]:
    """Time that a task takes which does nothing, on one worker of this machine once it has started."""
    pool = LocalExecutor(1)
    try:
        list(executors.run(abs, [(0,)], executor=pool))
        begun = time.perf_counter()
        for _ in executors.run(abs, [(number,) for number in range(tasks)], executor=pool):
            pass
        return {"tasks": tasks, "s_per_task": (time.perf_counter() - begun) / tasks}
    finally:
        pool.shutdown()


if __name__ == "__main__":
    tyro.cli(main)

"""Reconstruction attacks on six dimensionality-reduction methods, as in paper 000, beside stronger ones.

    python -m experiments.dr_reconstruction.run                  # "cpu": six methods, three data sets, on two cores
    python -m experiments.dr_reconstruction.run --scale smoke    # digits: the same code in seconds
    python -m experiments.dr_reconstruction.run --scale full     # the paper's grid, for a GPU

Every attack on every release, with and without noise on the records, is one line of `results.jsonl`, kept as a file of
its own when it is done; the same command goes on with an interrupted run, also within the shadows of a release and the
training of a network. An attack that was added to drjax since is computed, and nothing else. At the end figures and
tables are drawn (`report.py`, which can also be called alone). Runtime and figures: README.md in this folder.
"""

from __future__ import annotations

import fnmatch
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from drjax.data import load
from drjax.reports import ladder, records
from experiments.dr_reconstruction import cells, report
from experiments.dr_reconstruction.config import Config, Release, of_scale
from experiments.dr_reconstruction.results import DENSE_NETWORK, NETWORK
from experiments.resume import cell_name, take_up

RESULTS = report.RESULTS

NETWORKS = (NETWORK, DENSE_NETWORK)

MS_PER_LANE = {
    "pca": (1.0, 0.005, 0.0),
    "srp": (0.5, 0.003, 0.0),
    "mds": (1.0, 0.02, 1.2e-4),
    "isomap": (1.0, 0.01, 3e-5),
    "tsne": (2.0, 0.15, 1e-4),
    "umap": (5.0, 0.2, 5e-5),
}
"""What an embedding of n records costs, as coefficients of 1, n and n^2: only how the parts of a run compare, for the
time left that is shown."""

NOISY_FACTOR = 3
"""How many lanes a lane with noise on all its records costs: it shares nothing with the others."""

MS_PER_ATTACK = 4000.0
MS_PER_NETWORK = 120_000.0


def run(
    config: Config,
    out: Path,
    *,
    only: str = "*",
    keep: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Computes the cells that `out` does not hold yet.

    Args:
        config: What to compute.
        out: Folder of `results.jsonl`, of the examples and of work in progress; made if missing.
        only: Pattern of the releases to compute, "mnist/pca/*"; all by default. Several processes may share a folder
            if no release is in the patterns of two.
        keep: Keep the shadows of finished releases, for attacks that drjax does not have yet.
        progress: Show bars with the time left on standard error.
        say: Told of each cell as it is done.

    Raises:
        ValueError: results of another configuration in `out`, too few records for a split, or a pattern that no
            release fits.
        OSError: `out` cannot be written, or a data set is not there.
    """
    releases = [r for r in config.releases() if fnmatch.fnmatchcase(r.name, only)]
    if not releases:
        raise ValueError(f"only must fit some release, such as {config.releases()[0].name}, got {only!r}")
    data = {plan.data: load(plan.data) for plan in config.plans}
    for name in data:
        cells.partition(config, data[name], 0)  # fails now if there are too few records
    done = cells.cell_names(take_up(out / RESULTS, config, data))
    waiting = [release for release in releases if cells.missing(config, release, done)]
    with _Bar(config, waiting, done, shown=progress and sys.stderr.isatty()) as bar:
        for release in waiting:
            for kind, name, fields in cells.compute(config, release, data[release.data], out, done, progress=progress):
                own = {"release": release.name, "name": name, **_place(release), **fields}
                records.put_record(out / RESULTS, kind, _cell(config, release, kind, name, fields), **own)
                if kind == "attack":
                    bar.advance((release.name, name, fields["sigma"]))
                    say(_line(release, fields))
            if not keep:
                shutil.rmtree(cells.work_folder(out, release))
    records.gather_records(out / RESULTS)


def main(
    *,
    scale: Annotated[Literal["smoke", "cpu", "full"], tyro.conf.arg(aliases=["-s"])] = "cpu",
    out: Path | None = None,
    only: str = "*",
    keep: bool = False,
) -> None:
    """Attacks the releases of paper 000 and draws its figures.

    Args:
        scale: "smoke" shows that everything runs, "cpu" is for two cores, "full" is the paper's grid.
        out: Folder of the results; runs/dr_reconstruction-SCALE if not given.
        only: Pattern of the releases to compute, such as "mnist/pca/*".
        keep: Keep the shadows of finished releases, so that attacks added later find them.
    """
    folder = out or Path("runs") / f"dr_reconstruction-{scale}"
    run(of_scale(scale), folder, only=only, keep=keep, progress=True)
    report.write([folder], folder)
    print(f"figures and tables: {folder}")


def _cell(config: Config, release: Release, kind: str, name: str, fields: Mapping[str, Any]) -> str:
    """In the order of the configuration, of the ladder and of the noise."""
    order = [config.releases().index(release)]
    if kind == "attack":
        order += [list(config.attacks(release)).index(name), config.sigmas_of(release).index(fields["sigma"])]
    return cell_name(*order, release.name, name)


def _place(release: Release) -> dict[str, str | int]:
    return {"data": release.data, "method": release.method, "n_known": release.n_known, "repeat": release.repeat}


def _line(release: Release, fields: Mapping[str, Any]) -> str:
    noise = f", noise {fields['sigma']:g}" if fields["sigma"] else ""
    if "refused" in fields:
        return f"{release.name} {fields['attack']}{noise}: refused, {fields['refused']}"
    return f"{release.name} {fields['attack']}{noise}: {ladder.number(fields['scores'].mse.estimate)}"


class _Bar:
    """Cells done of all, and the time left by what the cells so far have taken for their share of the work."""

    def __init__(self, config: Config, waiting: list[Release], done: set[cells.CellName], *, shown: bool) -> None:
        self._work = {}
        for release in waiting:
            names = list(cells.missing(config, release, done))
            left = [(a, s) for a in names for s in config.sigmas_of(release, a) if (release.name, a, s) not in done]
            # The shadows are counted with the first cell, since there is nothing to show before it.
            for i, (attack, sigma) in enumerate(left):
                cost = (MS_PER_NETWORK if attack in NETWORKS else MS_PER_ATTACK) / len(config.sigmas_of(release))
                self._work[release.name, attack, sigma] = cost + (0.0 if i else _shadow_ms(config, release))
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
        self._task = self._bar.add_task("", total=len(self._work), left="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def advance(self, cell: cells.CellName) -> None:
        self._spent += self._work[cell]
        left = (time.perf_counter() - self._begun) * max(0.0, sum(self._work.values()) / self._spent - 1)
        self._bar.update(self._task, advance=1, left=f"about {ladder.duration(left)} left")


def _shadow_ms(config: Config, release: Release) -> float:
    plan, n = config.plan(release), release.n_known + 1
    constant, linear, quadratic = MS_PER_LANE[release.method]
    n_noisy = (len(config.sigmas_of(release)) - 1) * min(config.n_noisy_targets, plan.n_targets)
    n_trained = (len(config.sigmas_of(release)) - 1) * plan.n_shadow
    n_lanes = plan.n_shadow + plan.n_validation + plan.n_targets + NOISY_FACTOR * (n_noisy + n_trained)
    return n_lanes * (constant + linear * n + quadratic * n * n)


if __name__ == "__main__":
    tyro.cli(main)

"""Tables II to IV and figures 1 and 2 of paper 002, and Adult against MST and AIM.

    OPENBLAS_NUM_THREADS=1 python -m experiments.pca_gauss.run
    python -m experiments.pca_gauss.run --tables clustering adult
    python -m experiments.pca_gauss.run --scale smoke           # digits and small stand-ins, seconds

A cell is a data set, a method, an epsilon, a number of components and, for clustering, a number of clusters; it is one
line of `results.jsonl` as soon as it is done, and the same command goes on with an interrupted run. Realdisp and
Twitter are synthetic stand-ins unless their files are there (`data.py`), and every line says so.
"""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import tyro

from drjax.core import validate
from drjax.data import load
from drjax.reports import records
from experiments.pca_gauss import data, methods, practice, theory, trials
from experiments.pca_gauss.config import SCALES, TABLES, Config, Part
from experiments.resume import take_up

RESULTS = "results.jsonl"
FEW = ("real", "normal", "li", "jiang", "pca-gauss-printed", "pca-gauss")
"""Rows at other numbers of clusters."""

SWEPT = {
    "unsupervised": ("pca-gauss", "pca-gauss-printed"),
    "classification": ("pca-gauss-pub",),
    "regression": ("pca-gauss-pub",),
}
"""Methods of figure 1."""


class Cell(NamedTuple):
    """What a line of the results is of.

    Attributes:
        table: A name in `TABLES`.
        data: A name in `data.NAMES`.
        method: A key of `methods` or of `trials.CONTROLS`.
        epsilon: Asked for; None for what has none.
        p: Number of components, or None.
        k: Number of clusters, or None.
        trials: How many.
    """

    table: str
    data: str
    method: str
    epsilon: float | None
    p: int | None
    k: int | None
    trials: int


def run(
    config: Config,
    out: Path,
    *,
    tables: tuple[str, ...] = TABLES,
    data_dir: str | None = None,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Computes the cells of some tables that `out` does not hold yet, and returns all lines.

    Raises:
        ValueError: results of another configuration in `out`, or an unknown table.
        OSError: `out` cannot be written, or a data set without a stand-in is not there.
    """
    for table in tables:
        validate.one_of(TABLES, **{"a table": table})
    file = out / RESULTS
    loaded = [name for name in _names(config) if name not in ("realdisp", "twitter")]
    found = take_up(file, config, {name: load(name, data_dir=data_dir) for name in loaded})
    done = {_identity(line) for line in found[1:]}
    for table in tables:
        if table == "adult":
            _run_practice(config, file, done, data_dir, say)
            continue
        for part in parts(config, table):
            _run_part(config, table, part, file, done, data_dir, say)
    return records.read_records(file)


def parts(config: Config, table: str) -> tuple[Part, ...]:
    """The tasks of a table."""
    own = {
        "clustering": (config.clustering,),
        "classification": config.classification,
        "regression": (config.regression,),
    }
    every = (config.clustering, *config.classification, config.regression)
    return own[table] if table in own else tuple(part for part in every if part.sweep)


def cells(config: Config, table: str, part: Part, task: data.Task) -> Iterator[Cell]:
    """What a table has of a task."""
    is_clustering = task.kind == "unsupervised"
    d = task.x.shape[1]
    default = methods.default_dimension(task, config.public_energy)
    if table == "dimensions":
        for name in SWEPT[task.kind]:
            for epsilon in part.sweep_epsilons:
                for p in part.sweep:
                    k = config.n_clusters if is_clustering else None
                    yield Cell(table, part.data, name, epsilon, min(p, d), k, part.sweep_trials)
        return
    dimensions = sorted({*part.dimensions, default})
    for k in (config.n_clusters, *config.other_clusters) if is_clustering else (None,):
        is_main = k in (None, config.n_clusters)
        shown = dimensions if is_main else [default]
        for name in trials.CONTROLS:
            if name == ("constant" if is_clustering else "normal") or not (is_main or name in FEW):
                continue
            for p in shown if name == "normal" else [None]:
                yield Cell(table, part.data, name, None, p, k, part.trials)
        for name, entry in entries(task.kind).items():
            if (is_main or name in FEW) and (not config.only or name in config.only):
                for p in shown if entry.has_dimension else [None]:
                    yield Cell(table, part.data, name, config.epsilon, p, k, part.trials)


def entries(kind: str) -> dict[str, methods.Entry]:
    """The methods of a task."""
    return {
        "unsupervised": methods.CLUSTERING,
        "classification": methods.CLASSIFICATION,
        "regression": methods.SUPERVISED,
    }[kind]


def _run_part(
    config: Config,
    table: str,
    part: Part,
    file: Path,
    done: set[Any],
    data_dir: str | None,
    say: Callable[[str], None],
) -> None:
    task = data.task(part.data, n_private=part.n_private, n_test=part.n_test, data_dir=data_dir, seed=config.seed)
    facts = {
        "shown": task.name,
        "is_stand_in": task.is_stand_in,
        "kind_of_task": task.kind,
        "n_private": len(task.x),
        "d": task.x.shape[1],
        "n_public": len(task.x_public),
        "n_test": len(task.x_test),
        "default_p": methods.default_dimension(task, config.public_energy),
        "metric": trials.METRICS[task.kind],
    }
    if table == "dimensions" and task.kind == "unsupervised" and ("curve", part.data) not in done:
        values = [float(f"{value:.5g}") for value in theory.singular_values(task)]
        records.append_record(file, "curve", table=table, data=part.data, singular_values=values, **facts)
    for cell in cells(config, table, part, task):
        if tuple(cell)[:-1] in done:
            continue
        key = _key(config, cell)
        if cell.method in trials.CONTROLS:
            arguments = (cell.method, cell.p or 0, cell.trials, cell.k or 0)
            found = trials.control_cell(key, config, part, task, *arguments)
        else:
            assert cell.epsilon is not None
            entry = entries(task.kind)[cell.method]
            arguments = (entry, cell.epsilon, cell.p or 0, cell.trials, cell.k or 0)
            found = trials.method_cell(key, config, part, task, *arguments)
        records.append_record(file, "attack", **{**cell._asdict(), **facts, **found})
        where = "".join(f", {n} {v:g}" for n, v in (("epsilon", cell.epsilon), ("p", cell.p), ("k", cell.k)) if v)
        say(f"{task.name}, {cell.method}{where}: {facts['metric']} {found['mean']:.4f}, {found['seconds']:.1f} s")


def _run_practice(config: Config, file: Path, done: set[Any], data_dir: str | None, say: Callable[[str], None]) -> None:
    name = config.practice.data
    if name is None:
        return
    table = practice.load_table(config, data_dir)
    for method, p in practice.cells(config):
        cell = Cell("adult", name, method, config.epsilon if method in practice.RELEASES else None, p, None, 0)
        if tuple(cell)[:-1] in done:
            continue
        if method in practice.PACKAGES and importlib.util.find_spec("mbi") is None:
            say(f"{method}: left out, the package mbi is not installed")
            continue
        found = practice.cell(_key(config, cell), config, table, method, p)
        facts = {"n_private": len(table.split.x), "n_test": len(table.split.x_test), "is_stand_in": False}
        records.append_record(file, "attack", **{**cell._asdict(), **facts, **found})
        figures = ", ".join(f"{m} {v['mean']:.3f}" for m, v in found["measures"].items())
        say(f"{name}, {method}{'' if p is None else f', p {p}'}: {figures}")


def _key(config: Config, cell: Cell) -> Any:
    """Of a cell by what it is, so that it does not depend on what else is run."""
    return jax.random.fold_in(jax.random.key(config.seed), zlib.crc32(repr(tuple(cell)[:-1]).encode()))


def _identity(line: dict[str, Any]) -> Any:
    if line["kind"] == "curve":
        return ("curve", line["data"])
    return tuple(line[field] for field in Cell._fields[:-1])


def _names(config: Config) -> list[str]:
    found = [part.data for part in (config.clustering, *config.classification, config.regression)]
    return sorted({*found, *([config.practice.data] if config.practice.data else [])})


def main(
    *,
    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = "cpu",
    tables: tuple[str, ...] = TABLES,
    out: Path = Path("runs/pca_gauss"),
    data_dir: str | None = None,
) -> None:
    """Computes what is missing of the tables.

    Args:
        scale: How much; README.md beside this file says what it takes.
        tables: Which.
        out: Folder of the results.
        data_dir: Where data sets are looked for, beside DRJAX_DATA.
    """
    validate.one_of(SCALES, scale=scale)
    run(SCALES[scale], out, tables=tables, data_dir=data_dir)


if __name__ == "__main__":
    tyro.cli(main)

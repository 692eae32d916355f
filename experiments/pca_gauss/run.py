"""Tables II to IV and figures 1 and 2 of paper 002, and Adult against MST and AIM.

    OPENBLAS_NUM_THREADS=1 python -m experiments.pca_gauss.run
    python -m experiments.pca_gauss.run --tables clustering adult
    python -m experiments.pca_gauss.run --scale smoke           # digits and small stand-ins, seconds
    python -m experiments.pca_gauss.run --part 3/16             # a sixteenth of the cells

A cell is a data set, a method, an epsilon, a number of components and, for clustering, a number of clusters; it is a
file of its own as soon as it is done and a line of `results.jsonl` when the command ends, and the same command goes on
with an interrupted run. Parts are disjoint, whatever is in `out`, and may share it; `--merge` puts together what other
machines computed in theirs. Realdisp and Twitter are synthetic stand-ins unless their files are there (`data.py`), and
every line says so.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from drjax.core import validate
from drjax.data import Dataset, load
from drjax.reports import records
from experiments import cells as experiment_cells
from experiments import command
from experiments.cells import Computed, Group, LeftOut, Line
from experiments.pca_gauss import data, methods, practice, theory, trials
from experiments.pca_gauss.config import SCALES, TABLES, Config, Part
from experiments.sweep import Asked, Claim, Sweep

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Further options.

    Attributes:
        tables: Tables to compute, in this order.
        only_data: Data sets; all if none is named.
        data_dir: Folder in which data sets are looked for, beside DRJAX_DATA.
    """

    tables: tuple[str, ...] = TABLES
    only_data: tuple[str, ...] = ()
    data_dir: str | None = None


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The cells of each data set of each table.

    Raises:
        ValueError: an unknown table or data set.
        OSError: a data set without a stand-in is not there.
    """
    config, options = asked.config, asked.options
    for table in options.tables:
        validate.one_of(TABLES, **{"a table": table})
    for name in options.only_data:
        validate.one_of(data.NAMES, **{"a data set": name})
    for table in options.tables:
        if table == "adult":
            name = config.practice.data
            if name is not None and (not options.only_data or name in options.only_data):
                yield _practice(config, name, options.data_dir)
            continue
        for part in parts(config, table):
            if not options.only_data or part.data in options.only_data:
                yield _of_part(config, table, part, options.data_dir)


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


def _of_part(config: Config, table: str, part: Part, data_dir: str | None) -> Group:
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
    own = [_cell(config, "attack", cell._asdict() | facts, cell) for cell in cells(config, table, part, task)]
    if table == "dimensions" and task.kind == "unsupervised":
        own.insert(0, _cell(config, "curve", {"table": table, "data": part.data, **facts}, None))
    return Group(cells=tuple(own), compute=functools.partial(_compute, config, part, task))


def _compute(
    config: Config, part: Part, task: data.Task, missing: Sequence[experiment_cells.Cell]
) -> Iterator[Computed]:
    for one in missing:
        cell: Cell | None = one.what
        if cell is None:
            yield one, {"singular_values": [float(f"{value:.5g}") for value in theory.singular_values(task)]}
            continue
        key = _key(config, cell)
        if cell.method in trials.CONTROLS:
            arguments = (cell.method, cell.p or 0, cell.trials, cell.k or 0)
            yield one, trials.control_cell(key, config, part, task, *arguments)
        else:
            assert cell.epsilon is not None
            entry = entries(task.kind)[cell.method]
            arguments = (entry, cell.epsilon, cell.p or 0, cell.trials, cell.k or 0)
            yield one, trials.method_cell(key, config, part, task, *arguments)


def _practice(config: Config, name: str, data_dir: str | None) -> Group:
    own = []
    for method, p in practice.cells(config):
        cell = Cell("adult", name, method, config.epsilon if method in practice.RELEASES else None, p, None, 0)
        own.append(_cell(config, "attack", cell._asdict(), cell))
    return Group(cells=tuple(own), compute=functools.partial(_compute_practice, config, data_dir))


def _compute_practice(
    config: Config, data_dir: str | None, missing: Sequence[experiment_cells.Cell]
) -> Iterator[Computed]:
    table = practice.load_table(config, data_dir)
    facts = {"n_private": len(table.split.x), "n_test": len(table.split.x_test), "is_stand_in": False}
    for one in missing:
        cell: Cell = one.what
        if cell.method in practice.PACKAGES and importlib.util.find_spec("mbi") is None:
            yield one, LeftOut("the package mbi is not installed")
        else:
            yield one, {**facts, **practice.cell(_key(config, cell), config, table, cell.method, cell.p)}


def _key(config: Config, cell: Cell) -> Any:
    """Of a cell by what it is, so that it does not depend on what else is run."""
    return jax.random.fold_in(jax.random.key(config.seed), zlib.crc32(repr(tuple(cell)[:-1]).encode()))


def identity(line: Line) -> tuple[Any, ...]:
    """What tells lines of results apart."""
    if line["kind"] == "curve":
        return ("curve", line["data"])
    return tuple(line[field] for field in Cell._fields[:-1])


def place(head: Line, line: Line) -> tuple[float, ...]:
    """Orders lines of one kind by table, data, method and parameters; `head` is the first line of results."""
    config = head["config"]
    table = TABLES.index(line["table"])
    if line["kind"] == "curve":
        return (table, 0)
    if line["table"] == "adult":
        return (table, 0, 0, list(practice.LABELS).index(line["method"]), 0, line["p"] or 0)
    order = [config["clustering"]["data"], *(part["data"] for part in config["classification"])]
    order.append(config["regression"]["data"])
    ks = [None, config["n_clusters"], *config["other_clusters"]]
    methods = [*trials.CONTROLS, *entries(line["kind_of_task"])]
    where = (table, order.index(line["data"]), ks.index(line["k"]), methods.index(line["method"]))
    return (*where, line["epsilon"] or 0, line["p"] or 0)


def _cell(config: Config, kind: str, fields: Line, what: Cell | None) -> experiment_cells.Cell:
    order = place({"config": records.to_json(config)}, {"kind": kind, **fields})
    named = [fields.get(field) for field in ("data", "method", "epsilon", "p", "k")]
    return experiment_cells.Cell(
        kind=kind,
        path="/".join(
            [fields["table"], *(f"{v:g}" if isinstance(v, float) else str(v) for v in named if v is not None)]
        ),
        # Four digits before the point and four behind it sort as the numbers do.
        name="-".join([*(f"{number:09.4f}" for number in order), *map(str, named)]),
        identity=identity({"kind": kind, **fields}),
        fields=fields,
        what=what,
    )


def _names(config: Config) -> list[str]:
    found = [part.data for part in (config.clustering, *config.classification, config.regression)]
    return sorted({*found, *([config.practice.data] if config.practice.data else [])})


def _sources(asked: Asked[Config], _: Sequence[Group]) -> dict[str, Dataset]:
    names = [name for name in _names(asked.config) if name not in ("realdisp", "twitter")]
    return {name: load(name, data_dir=asked.options.data_dir) for name in names}


def _said(line: Line) -> str | None:
    if line["kind"] == "curve":
        return None
    if line["table"] == "adult":
        figures = ", ".join(f"{m} {v['mean']:.3f}" for m, v in line["measures"].items())
        where = "" if line["p"] is None else f", p {line['p']}"
        return f"{line['data']}, {line['method']}{where}: {figures}"
    where = "".join(f", {name} {line[name]:g}" for name in ("epsilon", "p", "k") if line[name])
    return f"{line['shown']}, {line['method']}{where}: {line['metric']} {line['mean']:.4f}, {line['seconds']:.1f} s"


def _claims(lines: Sequence[Line]) -> list[Claim]:
    from experiments.pca_gauss import report  # which reads what this module computes

    return report.judged_claims(lines)


SWEEP = Sweep(
    name="pca_gauss",
    about=__doc__,
    scales=SCALES,
    plain="cpu",
    groups=groups,
    sources=_sources,
    identity=identity,
    said=_said,
    options=Options(),
    place=place,
    claims=_claims,
)


if __name__ == "__main__":
    command.main(SWEEP)

"""Tables II to IV and figures 1 and 2 of paper 002, and Adult against MST and AIM.

    OPENBLAS_NUM_THREADS=1 python -m experiments.pca_gauss.run
    python -m experiments.pca_gauss.run --tables clustering adult
    python -m experiments.pca_gauss.run --scale smoke           # digits and small stand-ins, seconds
    python -m experiments.pca_gauss.run --part 3/16             # a sixteenth of the cells

A cell is a data set, a method, an epsilon, a number of components and, for clustering, a number of clusters; it is a
file of its own as soon as it is done and a line of `results.jsonl` when the command ends, and the same command goes on
with an interrupted run. Parts are disjoint, whatever is in `out`, and may share it; `merge.py` puts together what other
machines computed in theirs. Realdisp and Twitter are synthetic stand-ins unless their files are there (`data.py`), and
every line says so.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import tyro

from drjax.core import validate
from drjax.data import load
from drjax.reports import records
from experiments import resume
from experiments.pca_gauss import data, methods, practice, theory, trials
from experiments.pca_gauss.config import SCALES, TABLES, Config, Part

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


@dataclasses.dataclass
class Share:
    """Every n-th of the cells in the order that they come in, so that what is alike is spread over all parts.

    Attributes:
        part: 1 to n.
        n: How many parts.
        seen: Cells so far.
    """

    part: int = 1
    n: int = 1
    seen: int = 0

    def __post_init__(self) -> None:
        """Checks the range."""
        validate.integer(part=self.part)
        validate.at_most(self.n, "the number of parts", part=self.part)

    @classmethod
    def of(cls, words: str) -> Share:
        """From "i/n".

        Raises:
            ValueError: words of another form, or i not in 1 to n.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", words)
        if found is None:
            raise ValueError(f"part must be i/n, as 3/16, got {words!r}")
        return cls(int(found[1]), int(found[2]))

    def takes_next(self) -> bool:
        """Whether the next cell is of this part."""
        self.seen += 1
        return self.seen % self.n == self.part % self.n


def run(
    config: Config,
    out: Path,
    *,
    tables: tuple[str, ...] = TABLES,
    only_data: tuple[str, ...] = (),
    part: str = "1/1",
    data_dir: str | None = None,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Computes the cells of some tables that `out` does not hold yet, and returns all lines.

    Args:
        config: Sizes.
        out: Folder of the results.
        tables: Names in `TABLES`, in the order to compute them.
        only_data: Names in `data.NAMES`; all data sets of a table if empty.
        part: "i/n", one of n disjoint parts of the cells of these tables and data sets.
        data_dir: Where data sets are looked for, beside DRJAX_DATA.
        say: Is told of every cell.

    Raises:
        ValueError: results of another configuration in `out`, an unknown table or data set, or a part of another form.
        OSError: `out` cannot be written, or a data set without a stand-in is not there.
    """
    for table in tables:
        validate.one_of(TABLES, **{"a table": table})
    for name in only_data:
        validate.one_of(data.NAMES, **{"a data set": name})
    share = Share.of(part)
    file = out / RESULTS
    loaded = [name for name in _names(config) if name not in ("realdisp", "twitter")]
    found = resume.take_up(file, config, {name: load(name, data_dir=data_dir) for name in loaded})
    done = {identity(line) for line in found[1:]}
    for table in tables:
        if table == "adult":
            if not only_data or config.practice.data in only_data:
                _run_practice(config, file, done, share, data_dir, say)
            continue
        for own in parts(config, table):
            if not only_data or own.data in only_data:
                _run_part(config, table, own, file, done, share, data_dir, say)
    return records.gather_records(file)


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
    share: Share,
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
    is_curve = table == "dimensions" and task.kind == "unsupervised"
    if is_curve and share.takes_next() and ("curve", part.data) not in done:
        values = [float(f"{value:.5g}") for value in theory.singular_values(task)]
        _put(config, file, "curve", table=table, data=part.data, singular_values=values, **facts)
    for cell in cells(config, table, part, task):
        if not share.takes_next() or tuple(cell)[:-1] in done:
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
        _put(config, file, "attack", **{**cell._asdict(), **facts, **found})
        where = "".join(f", {n} {v:g}" for n, v in (("epsilon", cell.epsilon), ("p", cell.p), ("k", cell.k)) if v)
        say(f"{task.name}, {cell.method}{where}: {facts['metric']} {found['mean']:.4f}, {found['seconds']:.1f} s")


def _run_practice(
    config: Config, file: Path, done: set[Any], share: Share, data_dir: str | None, say: Callable[[str], None]
) -> None:
    name = config.practice.data
    if name is None:
        return
    table = practice.load_table(config, data_dir)
    for method, p in practice.cells(config):
        cell = Cell("adult", name, method, config.epsilon if method in practice.RELEASES else None, p, None, 0)
        if not share.takes_next() or tuple(cell)[:-1] in done:
            continue
        if method in practice.PACKAGES and importlib.util.find_spec("mbi") is None:
            say(f"{method}: left out, the package mbi is not installed")
            continue
        found = practice.cell(_key(config, cell), config, table, method, p)
        facts = {"n_private": len(table.split.x), "n_test": len(table.split.x_test), "is_stand_in": False}
        _put(config, file, "attack", **{**cell._asdict(), **facts, **found})
        figures = ", ".join(f"{m} {v['mean']:.3f}" for m, v in found["measures"].items())
        say(f"{name}, {method}{'' if p is None else f', p {p}'}: {figures}")


def _key(config: Config, cell: Cell) -> Any:
    """Of a cell by what it is, so that it does not depend on what else is run."""
    return jax.random.fold_in(jax.random.key(config.seed), zlib.crc32(repr(tuple(cell)[:-1]).encode()))


def identity(line: Mapping[str, Any]) -> Any:
    """What tells lines of results apart."""
    if line["kind"] == "curve":
        return ("curve", line["data"])
    return tuple(line[field] for field in Cell._fields[:-1])


def place(config: Mapping[str, Any], line: Mapping[str, Any]) -> tuple[float, ...]:
    """Orders lines of one kind by table, data, method and parameters; `config` as the first line of results has it."""
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


def _put(config: Config, file: Path, kind: str, **line: Any) -> None:
    order = place(records.to_json(config), {"kind": kind, **line})
    what = [str(line.get(field)) for field in ("data", "method", "epsilon", "p", "k")]
    # Four digits before the point and four behind it sort as the numbers do.
    records.put_record(file, kind, "-".join([*(f"{number:09.4f}" for number in order), *what]), **line)


def _names(config: Config) -> list[str]:
    found = [part.data for part in (config.clustering, *config.classification, config.regression)]
    return sorted({*found, *([config.practice.data] if config.practice.data else [])})


def main(
    *,
    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = "cpu",
    tables: tuple[str, ...] = TABLES,
    only_data: tuple[str, ...] = (),
    part: str = "1/1",
    out: Path = Path("runs/pca_gauss"),
    data_dir: str | None = None,
) -> None:
    """Computes what is missing of the tables.

    Args:
        scale: How much; README.md beside this file says what it takes.
        tables: Which, in this order.
        only_data: Data sets; all if none is named.
        part: i/n computes one of n disjoint parts, for as many processes, which may share `out`.
        out: Folder of the results.
        data_dir: Where data sets are looked for, beside DRJAX_DATA.
    """
    validate.one_of(SCALES, scale=scale)
    run(SCALES[scale], out, tables=tables, only_data=only_data, part=part, data_dir=data_dir)


if __name__ == "__main__":
    tyro.cli(main)

"""Figures of the pages that belong to no other experiment, each from the command or function that the page names.

    python -m experiments.pages.run --list                                # the cells: TABLE/CELL
    python -m experiments.pages.run --only 'erm/*' 'ranges/*'             # the cells of two tables
    python -m experiments.pages.run --scale smoke --only 'erm/0.1'        # with few targets, to try it

Every cell is one line of `results.jsonl`, kept when it is done; the same command goes on with an interrupted run.
`python -m experiments.pages.report TABLE` prints a table of the committed lines.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drjax.data import Dataset, load
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.pages import (
    attacks_cells,
    attacks_inversion_cells,
    audits,
    behind_steps_cells,
    bounds_cells,
    dp_pca_cells,
    kernels_cells,
    leak_cells,
    mechanisms,
    models,
    models_cells,
    options_cells,
    property_cells,
    release_cells,
    scale_cells,
    synthesis_cells,
    unrecognised_cells,
)
from experiments.sweep import Asked, Sweep, cell_name
from experiments.tsne_property import generated

KINDS = ("descriptors", "set", "picture")
"""Attacks on plots, see `drjax.attacks.property.models`."""


def _of_plots(kind: str, is_toy: bool) -> Mapping[str, Any]:
    return generated.judged(kind, n_fitted=40, n_judged=10, n=40, epochs=1) if is_toy else generated.judged(kind)


TABLES: Mapping[str, Mapping[str, Callable[[bool], Mapping[str, Any]]]] = {
    **mechanisms.TABLES,
    **dp_pca_cells.TABLES,
    **models.TABLES,
    **release_cells.TABLES,
    **synthesis_cells.TABLES,
    **models_cells.TABLES,
    **attacks_inversion_cells.TABLES,
    "property": {kind: functools.partial(_of_plots, kind) for kind in KINDS},
    **audits.TABLES,
    **attacks_cells.TABLES,
    **kernels_cells.TABLES,
    **scale_cells.TABLES,
    **leak_cells.TABLES,
    **options_cells.TABLES,
    **property_cells.TABLES,
    **behind_steps_cells.TABLES,
    **bounds_cells.TABLES,
    **unrecognised_cells.TABLES,
}
"""What computes the facts of a cell, by table and cell; told whether to take as few targets as do."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        is_toy: Whether functions take few targets; commands are the same.
        seed: Seed of the commands' default, and of the functions.
    """

    is_toy: bool = False
    seed: int = 0


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """Every cell by itself."""
    for table, cells in TABLES.items():
        for place, (name, function) in enumerate(cells.items()):
            cell = cell_of(cell_name(table, place, name), table=table, cell=name)
            yield Group(cells=(cell,), compute=functools.partial(_compute, function, asked.config.is_toy))


def _compute(function: Callable[[bool], Line], is_toy: bool, missing: Sequence[Cell]) -> Iterator[Computed]:
    for cell in missing:
        begun = time.process_time()
        found = function(is_toy)
        yield cell, {**found, "processor_s": time.process_time() - begun}


def _data(asked: Asked[Config], _: Sequence[Group]) -> dict[str, Dataset]:
    names = ("digits",) if asked.config.is_toy else ("digits", "mnist", "adult")
    return {name: load(name) for name in names}


SWEEP = Sweep(
    name="pages",
    about=__doc__,
    scales={"smoke": Config(is_toy=True), "cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=_data,
    identity=by("table", "cell"),
    said=lambda line: f"{line['table']}/{line['cell']}: {line['processor_s']:.0f} s of processor time",
)


if __name__ == "__main__":
    command.main(SWEEP)

"""Puts the results of parts (`run --part`) together.

python -m experiments.pca_gauss.merge --parts runs/pca_gauss/part-* --out runs/pca_gauss
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from experiments import merging
from experiments.pca_gauss import practice, trials
from experiments.pca_gauss.config import TABLES
from experiments.pca_gauss.run import RESULTS, entries, identity


def merge(parts: Sequence[Path], out: Path) -> int:
    """Writes the cells of all parts to `out`, each once, in the order of a single run; returns how many.

    Of a cell that several parts have, and of where results come from, what the first one says is kept.

    Raises:
        ValueError: no parts, one without a line, or parts of different configurations.
        OSError: a part has no results, or `out` cannot be written.
    """
    heads, cells = merging.gathered([part / RESULTS for part in parts], identity)
    found = sorted((line for _, line in cells), key=lambda line: _place(heads[0]["config"], line))
    merging.write([heads[0], *found], out / RESULTS)
    return len(cells)


def _place(config: Mapping[str, Any], line: Mapping[str, Any]) -> tuple[float, ...]:
    """Sorts lines as a single run writes them; `config` as the first line of results has it."""
    table = TABLES.index(line["table"])
    if line["kind"] == "curve":
        return (table, 0, -1)
    if line["table"] == "adult":
        return (table, 0, 0, list(practice.LABELS).index(line["method"]), 0, line["p"] or 0)
    order = [config["clustering"]["data"], *(part["data"] for part in config["classification"])]
    order.append(config["regression"]["data"])
    ks = [None, config["n_clusters"], *config["other_clusters"]]
    methods = [*trials.CONTROLS, *entries(line["kind_of_task"])]
    where = (table, order.index(line["data"]), ks.index(line["k"]), methods.index(line["method"]))
    return (*where, line["epsilon"] or 0, line["p"] or 0)


def main(*, parts: tuple[Path, ...], out: Path = Path("runs/pca_gauss")) -> None:
    """Writes one file of results from those of several parts.

    Args:
        parts: Folders of the parts.
        out: Folder of the whole.
    """
    print(f"{merge(parts, out)} cells")


if __name__ == "__main__":
    tyro.cli(main)

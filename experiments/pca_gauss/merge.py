"""Puts the results of parts (`run --part`) together.

python -m experiments.pca_gauss.merge --parts runs/pca_gauss/part-* --out runs/pca_gauss
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from drjax.reports import records
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
    if not parts:
        raise ValueError("parts must name at least one folder, got none")
    found = {part: records.read_records(part / RESULTS) for part in parts}
    empty = [part for part, lines in found.items() if not lines]
    if empty:
        raise ValueError(f"parts must hold results, got {empty[0]} without any")
    head = found[parts[0]][0]
    cells: dict[Any, Mapping[str, Any]] = {}
    for part, lines in found.items():
        if lines[0]["fingerprint"] != head["fingerprint"]:
            raise ValueError(f"parts must be of one configuration, got {parts[0]} and {part} of different ones")
        for line in lines[1:]:
            cells.setdefault(identity(line), line)
    lines = [head, *sorted(cells.values(), key=lambda line: _place(head["config"], line))]
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(records.to_json(line), allow_nan=False, ensure_ascii=False)}\n" for line in lines)
    records.atomic_write_text(out / RESULTS, text)
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

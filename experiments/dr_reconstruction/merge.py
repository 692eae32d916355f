"""Puts cells together that were computed in folders of their own, on other machines or at other commits.

    python -m experiments.dr_reconstruction.merge --parts runs/mine runs/from-a-card --out runs/dr_reconstruction-full

Every line of the whole says where it was computed. `run` goes on with the whole, and `report` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from drjax.attacks.registry import ATTACKS
from drjax.reports import records
from experiments import merging
from experiments.dr_reconstruction.cells import identity
from experiments.dr_reconstruction.config import ADAPTIVE
from experiments.dr_reconstruction.results import IMAGES, RESULTS, examples


def merge(parts: Sequence[Path], out: Path) -> int:
    """Writes the cells of all folders to `out`, each once, in the order of a single run; returns how many.

    Of a cell that several folders have, what the first one says is kept, its images too. Merging again changes nothing,
    and `out` may be one of the folders.

    Raises:
        ValueError: no folders, one without results, different configurations, or `out` with a run in progress.
        OSError: results cannot be read or written.
    """
    images = examples(*reversed(parts))
    n_cells = merging.merge([part / RESULTS for part in parts], out / RESULTS, identity, _place)
    if images:
        records.save_arrays(out / IMAGES, **images)
    return n_cells


def _place(head: Mapping[str, Any], line: Mapping[str, Any]) -> tuple[Any, ...]:
    """In the order of a single run: releases as the configuration has them, attacks as the ladder has them."""
    config = head["config"]
    plans = [plan["data"] for plan in config["plans"]]
    release = (line["repeat"], plans.index(line["data"]), line["n_known"], config["methods"].index(line["method"]))
    _, what, sigma = identity(line)
    names = ATTACKS["embedding"]
    ladder = [*names, *(f"{ADAPTIVE}{name}" for name in names)]
    return (*release, ladder.index(what) if what in ladder else len(ladder), what, sigma or 0)


def main(*, parts: tuple[Path, ...], out: Path) -> None:
    """Writes one folder of results and images from several.

    Args:
        parts: Folders of runs of one configuration.
        out: Folder of the whole.
    """
    print(f"{merge(parts, out)} records")


if __name__ == "__main__":
    tyro.cli(main)

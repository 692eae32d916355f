"""Puts cells together that were computed in folders of their own, on other machines or at other commits.

python -m experiments.informed_adversary.merge --parts runs/mine runs/from-a-card --out runs/informed_adversary-cpu
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro

from experiments import merging
from experiments.informed_adversary.run import RESULTS, identity


def merge(parts: Sequence[Path], out: Path) -> int:
    """Writes the cells of all folders to `out`, each once and with where it was computed; returns how many.

    Of a cell that several folders have, what the first one says is kept. `out` may be one of them.

    Raises:
        ValueError: no folders, one without results, different configurations, or `out` with a run in progress.
        OSError: results cannot be read or written.
    """
    return merging.merge([part / RESULTS for part in parts], out / RESULTS, identity)


def main(*, parts: tuple[Path, ...], out: Path) -> None:
    """Writes one folder of results from several.

    Args:
        parts: Folders of runs of one configuration.
        out: Folder of the whole.
    """
    print(f"{merge(parts, out)} cells")


if __name__ == "__main__":
    tyro.cli(main)

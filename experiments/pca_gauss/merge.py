"""Puts the results of parts (`run --part`) together that were computed in folders of their own, on other machines.

python -m experiments.pca_gauss.merge --parts runs/pca_gauss/part-* --out runs/pca_gauss
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro

from experiments import merging
from experiments.pca_gauss.run import RESULTS, identity, place


def merge(parts: Sequence[Path], out: Path) -> int:
    """Writes the cells of all parts to `out`, each once, in the order of a single run; returns how many.

    Of a cell that several parts have, what the first one says is kept. Every line says where it was computed.

    Raises:
        ValueError: no parts, one without a line, or parts of different configurations.
        OSError: a part has no results, or `out` cannot be written.
    """
    files = [part / RESULTS for part in parts]
    return merging.merge(files, out / RESULTS, identity, lambda head, line: place(head["config"], line))


def main(*, parts: tuple[Path, ...], out: Path = Path("runs/pca_gauss")) -> None:
    """Writes one file of results from those of several parts.

    Args:
        parts: Folders of the parts.
        out: Folder of the whole.
    """
    print(f"{merge(parts, out)} cells")


if __name__ == "__main__":
    tyro.cli(main)

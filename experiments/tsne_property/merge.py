"""Puts results of several processes together, each of which ran some of the parts with a folder of its own.

python -m experiments.tsne_property.merge --parts runs/main runs/picture --out runs/tsne_property
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro

from experiments import merging
from experiments.tsne_property.run import RESULTS


def merge(parts: Sequence[Path], out: Path) -> int:
    """Writes the cells of all folders to `out`, each once and with where it was computed; returns how many.

    Raises:
        ValueError: no folders, one without results, or different configurations.
        OSError: results cannot be read or written.
    """
    return merging.merge([part / RESULTS for part in parts], out / RESULTS, lambda line: line["id"])


def main(*, parts: tuple[Path, ...], out: Path = Path("runs/tsne_property")) -> None:
    """Writes one file of results from several.

    Args:
        parts: Folders of results.
        out: Folder of the whole.
    """
    print(f"{merge(parts, out)} cells")


if __name__ == "__main__":
    tyro.cli(main)

"""Files of figures: an SVG of each that ends with a digest of what is drawn, so that a test needs not draw it again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from drjax.reports import plots
from drjax.reports.records import atomic_open

MARK = "digest of what is drawn: "


def save(figures: Mapping[str, Figure], folder: Path, *, pdf: bool = False) -> list[Path]:
    """Writes figures into a folder: drawings as SVG, pictures of records as PNG; returns the files.

    Args:
        figures: Name -> figure.
        folder: Made if it is not there.
        pdf: Whether to write a PDF of each as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, figure in figures.items():
        files.append(folder / f"{name}{plots.suffix(figure)}")
        if files[-1].suffix == ".svg":
            with atomic_open(files[-1]) as file:
                file.write(_short(plots.svg(figure)) + f"<!-- {MARK}{digest(figure)} -->\n".encode())
        else:
            plots.save_figure(figure, files[-1])
        if pdf:
            files.append(folder / f"{name}.pdf")
            plots.save_figure(figure, files[-1])
    return files


def _short(drawing: bytes) -> bytes:
    """A drawing whose curves are given to hundredths of a point."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), drawing)


def digest(figure: Figure) -> str:
    """A digest of names, and of values to four digits: of lines, intervals, bands and points.

    It does not depend on how the figure is laid out and rendered, which versions of matplotlib do differently.
    """
    told = []
    for ax in figure.axes:
        names = [ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()]
        told += [*names, *(text.get_text() for text in ax.texts)]
        shapes = [line.get_xydata() for line in ax.lines]
        for collection in ax.collections:
            offsets = np.ma.getdata(collection.get_offsets())
            # Of a band every corner once, whatever their order.
            corners = [np.unique(np.asarray(path.vertices), axis=0) for path in collection.get_paths()]
            shapes += [offsets] if len(offsets) > 1 else corners
        told += [" ".join(f"{value:.4g}" for value in np.ravel(np.asarray(shape, float))) for shape in shapes]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def digest_of(file: Path) -> str | None:
    """The digest that `save` wrote into a drawing, or None."""
    found = re.search(rf"<!-- {MARK}(\w+) -->\n\Z", file.read_text(encoding="utf-8"))
    return found[1] if found else None

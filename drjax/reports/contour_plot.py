"""Density contours of a map as a picture and as a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from drjax.core.store import atomic_write_columns
from drjax.defenses.contours import LEAST_RECORDS, Contours
from drjax.reports import plots, styles

SUFFIXES = (".svg", ".png", ".csv")
"""What contours are written as: two kinds of pictures, and the lattice."""


def picture(found: Contours) -> Figure:
    """Filled contours, darker where there are more records; nothing else of the map.

    Raises:
        ValueError: there are no lines.
    """
    found = found.cropped()
    drawing = Figure(figsize=(styles.WIDTH, 0.75 * styles.WIDTH), layout="constrained")
    ax = drawing.add_subplot()
    styles.style_axes(ax)
    first, second = found.axes
    most = int(found.levels.max())
    # Lines stand between the cells of two levels: places between cells are not told apart.
    shades = ax.contourf(first, second, found.levels.T, levels=np.arange(most + 2) - 0.5, cmap="Blues")
    ticks = drawing.colorbar(shades, ax=ax, ticks=np.arange(most + 1))
    ticks.set_label("records, each weighed by its distance: at least")
    ticks.set_ticklabels(["0", *(f"{LEAST_RECORDS * 2**level:,}" for level in range(most))])
    ax.set_aspect("equal")
    ax.set_xlabel("map 1")
    ax.set_ylabel("map 2")
    return drawing


def write(path: Path, found: Contours) -> None:
    """Writes a picture, or the cells inside of the outermost line: both coordinates and the density of the last line.

    Args:
        path: File whose suffix is one of `SUFFIXES`.
        found: Contours.

    Raises:
        ValueError: there are no lines.
        OSError: the file cannot be written.
    """
    if path.suffix != ".csv":
        plots.save_figure(picture(found), path)
        return
    found = found.cropped()
    at = np.argwhere(found.levels > 0)
    least = LEAST_RECORDS * 2 ** (found.levels[tuple(at.T)] - 1)
    names = ("map1", "map2", "records_at_least")
    atomic_write_columns(path, names, np.column_stack([(at + found.corner) * found.cell, least]))

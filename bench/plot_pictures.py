"""Scatter plots drawn per second, beside matplotlib's.

    OPENBLAS_NUM_THREADS=1 python -m bench.plot_pictures

README.md beside this file says what is compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import tyro

from bench import harness
from drjax.attacks.property import raster

DPI = 100


def main(
    *,
    n: int = 1000,
    sizes: tuple[int, ...] = (75, 300),
    plots: int = 512,
    plots_matplotlib: int = 32,
    repeats: int = 5,
    out: Path = harness.RESULTS / "plot_pictures.jsonl",
) -> None:
    """Draws the same maps by both and appends the rows.

    Args:
        n: Points of a map.
        sizes: Pixels of a side.
        plots: Maps per call.
        plots_matplotlib: Of which matplotlib draws the first.
        repeats: Timed calls, at most.
        out: JSON-lines file that the rows are added to.
    """
    maps = np.random.default_rng(0).normal(size=(plots, n, 2))
    print("| size | by | plots per second | mean difference from matplotlib, levels of 255 | largest |")
    print("|---|---|---|---|---|")
    for size in sizes:
        radius = size / 150
        few = maps[:plots_matplotlib]
        theirs = _by_matplotlib(few, size, radius).astype(float)
        runs = {
            "matplotlib": (lambda few=few, size=size, radius=radius: _by_matplotlib(few, size, radius), len(few)),
            "host": (lambda size=size: raster.draw(maps, size=size, snap=True, method="host"), plots),
            "xla": (lambda size=size: raster.draw(maps[:64], size=size, snap=True, method="xla"), min(64, plots)),
        }
        for by, (draw, count) in runs.items():
            row = harness.measure("plot_pictures", draw, repeats=repeats, by=by, size=size, n=n, plots=count)
            difference = np.abs(draw()[: len(few)] - theirs[:count])
            row |= {"plots_per_s": count / row["run_s"]}
            row |= {"mean_difference": float(difference.mean()), "largest_difference": float(difference.max())}
            values = f"{row['mean_difference']:.3f} | {row['largest_difference']:.0f}"
            print(f"| {size} | {by} | {row['plots_per_s']:.0f} | {values} |", flush=True)
            harness.append_row(out, row)


def _by_matplotlib(maps: np.ndarray, size: int, radius: float) -> np.ndarray:
    """Grey pictures (g, size, size) of figures of axes alone; one figure is made and its points are replaced."""
    figure = plt.figure(figsize=(size / DPI, size / DPI), dpi=DPI)
    canvas: Any = figure.canvas
    axes = figure.add_axes((0, 0, 1, 1))
    pictures = np.empty((len(maps), size, size), np.uint8)
    for picture, points in zip(pictures, maps, strict=True):
        axes.clear()
        axes.axis("off")
        axes.scatter(points[:, 0], points[:, 1], s=(2 * radius * 72 / DPI) ** 2, c="black", linewidths=0)
        canvas.draw()
        picture[:] = np.asarray(canvas.buffer_rgba())[..., 0]
    plt.close(figure)
    return pictures


if __name__ == "__main__":
    tyro.cli(main)

"""Scatter plots in the default styles of matplotlib, seaborn, plotnine and plotly, with the places of their markers.

A style is a function of points (n, 2), labels (n,) and a file. It draws the file and returns a `Drawn`. Those of other
libraries import them when they are called: an ImportError says what has to be installed.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from drjax.data.images import read_image

TAB = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


class Drawn(NamedTuple):
    """What was drawn.

    Attributes:
        places: (n, 2) centres in pixels of the file, from its upper left corner, y down; in the order of drawing.
        radius: Half the width of a marker with its edge, in pixels.
    """

    places: np.ndarray
    radius: float


Style = Callable[[np.ndarray, np.ndarray, Path], Drawn]


def _saved(figure: Any, ax: Any, points: np.ndarray, path: Path, radius: float) -> Drawn:
    figure.savefig(path, dpi=figure.dpi)  # lays the figure out
    places = ax.transData.transform(points)
    places[:, 1] = figure.get_size_inches()[1] * figure.dpi - places[:, 1]
    looks = [c for c in ax.collections if len(c.get_offsets())]
    if all(len(c.get_facecolors()) == len(c.get_sizes()) == 1 for c in looks):
        places = np.floor(places + 0.5) + 0.5  # Agg puts markers of one look in the middle of a pixel
    plt.close(figure)
    return Drawn(places, radius)


def _in_matplotlib(
    points: np.ndarray,
    labels: np.ndarray,
    path: Path,
    *,
    style: str = "default",
    colors: str = "one",
    markers: tuple[str, ...] = ("o",),
    legend: dict[str, Any] | None = None,
    texts: bool = False,
    grid: bool = False,
    frame: bool = True,
    titled: bool = True,
    colorbar: bool = False,
    figsize: tuple[float, float] = (6.4, 4.8),
    dpi: float = 100,
    web: int | None = None,
    **scatter: Any,
) -> Drawn:
    """One colour, a colour for each class ("class"), or one for each value ("value")."""
    with plt.style.context(style):
        figure, ax = plt.subplots(figsize=figsize, dpi=dpi)
        order = np.arange(len(points))
        if colors == "one" and len(markers) == 1:
            drawn = ax.scatter(*points.T, marker=markers[0], **scatter)
        elif colors == "value":
            drawn = ax.scatter(points[:, 0], points[:, 1], c=points.sum(axis=1), **scatter)
        else:
            order, parts = np.argsort(labels, kind="stable"), []
            for label in np.unique(labels):
                own = points[labels == label]
                marker = markers[label % len(markers)]
                parts.append(ax.scatter(*own.T, marker=marker, label=f"class {label}", **scatter))
            drawn = parts[-1]
        if colorbar:
            figure.colorbar(drawn)
        if legend is not None:
            ax.legend(**legend)
        if texts:
            for label in np.unique(labels):
                x, y = points[labels == label].mean(axis=0)
                ax.text(x, y, f"class {label}", fontsize=12, ha="center")
        if grid:
            ax.grid(True)
        if titled:
            ax.set(title="t-SNE of digits", xlabel="t-SNE 1", ylabel="t-SNE 2")
        if not frame:
            ax.axis("off")
        if legend and "bbox_to_anchor" in legend:
            figure.tight_layout()
        s = drawn.get_sizes()[0]
        width = plt.getp(drawn, "linewidths")[0] if len(plt.getp(drawn, "edgecolors")) else 0.0
        radius = (math.sqrt(s) + width) / 2 * dpi / 72
        found = _saved(figure, ax, points[order], path, radius)
    if web is None:
        return found
    png = path.with_suffix(".full.png")
    path.rename(png)
    image = read_image(png, png.read_bytes(), "RGB")
    zoom = web / image.width
    small = image.resize((web, round(image.height * zoom)), Image.Resampling.LANCZOS)
    png.unlink()
    small.save(path, "JPEG", quality=75)
    return Drawn(found.places * zoom, found.radius * zoom)


def _in_seaborn(
    points: np.ndarray,
    labels: np.ndarray,
    path: Path,
    *,
    style: Any = None,
    hue: bool = False,
    shapes: bool = False,
    **kwargs: Any,
) -> Drawn:
    import seaborn  # of the extra "plots"

    names = np.array([f"class {label}" for label in labels])
    with seaborn.axes_style(style) if style else plt.style.context("default"):
        figure, ax = plt.subplots(dpi=100)
        options = {"hue": names if hue else None, "style": names if shapes else None}
        seaborn.scatterplot(x=points[:, 0], y=points[:, 1], ax=ax, **options, **kwargs)
        drawn: Any = ax.collections[0]
        s, width = drawn.get_sizes()[0], drawn.get_linewidths()[0]
        return _saved(figure, ax, points, path, (math.sqrt(s) + width) / 2 * 100 / 72)


def _in_plotnine(
    points: np.ndarray,
    labels: np.ndarray,
    path: Path,
    *,
    theme: str = "theme_gray",
    color: bool = False,
    shape: bool = False,
    **point: Any,
) -> Drawn:
    import pandas
    import plotnine as p9  # of the extra "plots"

    names = [f"class {label}" for label in labels]
    table = pandas.DataFrame({"x": points[:, 0], "y": points[:, 1], "group": names})
    mapping: dict[str, str] = {"x": "x", "y": "y"}
    mapping |= {"color": "group"} if color else {}
    mapping |= {"shape": "group"} if shape else {}
    plot: Any = p9.ggplot(table, p9.aes(**mapping)) + p9.geom_point(**point) + getattr(p9, theme)()
    figure = (plot + p9.theme(dpi=100)).draw()
    figure.canvas.draw()
    ax = figure.axes[0]
    drawn = [c for c in ax.collections if len(c.get_offsets())]
    s, width = drawn[0].get_sizes()[0], drawn[0].get_linewidths()[0]
    placed = np.concatenate([np.asarray(c.get_offsets()) for c in drawn])
    return _saved(figure, ax, placed, path, (math.sqrt(s) + width) / 2 * figure.dpi / 72)


def _in_plotly(
    points: np.ndarray,
    labels: np.ndarray,
    path: Path,
    *,
    template: str = "plotly",
    color: bool = False,
    symbol: bool = False,
    **marker: Any,
) -> Drawn:
    import plotly.express as px  # of the extra "plots"

    names = [f"class {label}" for label in labels]
    figure = px.scatter(
        x=points[:, 0],
        y=points[:, 1],
        color=names if color else None,
        symbol=names if symbol else None,
        template=template,
        render_mode="svg",
    )
    if marker:
        figure.update_traces(marker=marker)
    figure.write_image(path, width=700, height=500)
    drawing = path.with_suffix(".svg")
    figure.write_image(drawing, width=700, height=500)
    places = _places_in_svg(drawing)
    drawing.unlink()
    width = marker["line"]["width"] if "line" in marker else 0
    return Drawn(places, (marker.get("size", 6) + width) / 2)


def _places_in_svg(path: Path) -> np.ndarray:
    """Pixels (n, 2) of the points of a plotly drawing: places within the plot's area, and where that is."""
    root = ElementTree.parse(path).getroot()
    number = r"(-?[\d.]+)"
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "xy" and group.get("transform"):
            shift = re.search(rf"translate\({number},\s*{number}\)", group.get("transform", ""))
            paths = [node.get("transform", "") for node in group.iter() if node.get("class") == "point"]
            found = [re.search(rf"translate\({number},\s*{number}\)", text) for text in paths]
            assert shift is not None
            offset = np.array([float(part) for part in shift.groups()])
            return np.array([[float(part) for part in match.groups()] for match in found if match]) + offset
    raise ValueError(f"{path} has no plot")


_mpl, _sns, _p9, _px = _in_matplotlib, _in_seaborn, _in_plotnine, _in_plotly

STYLES: dict[str, Style] = {
    "matplotlib: default": _mpl,
    "matplotlib: no edges, s=12": partial(_mpl, s=12, linewidths=0),
    "matplotlib: edgecolors black": partial(_mpl, edgecolors="black"),
    "matplotlib: black edges, colours": partial(_mpl, colors="class", edgecolors="black", linewidths=0.5),
    "matplotlib: edgecolors white": partial(_mpl, colors="class", edgecolors="white"),
    "matplotlib: colours, legend": partial(_mpl, colors="class", legend={}),
    "matplotlib: legend outside": partial(
        _mpl, colors="class", legend={"bbox_to_anchor": (1.02, 1), "loc": "upper left"}
    ),
    "matplotlib: legend without frame": partial(_mpl, colors="class", s=16, legend={"frameon": False}),
    "matplotlib: marker per class": partial(_mpl, colors="class", markers=("o", "s", "^", "D", "v")),
    "matplotlib: crosses": partial(_mpl, markers=("x",)),
    "matplotlib: alpha 0.5": partial(_mpl, alpha=0.5),
    "matplotlib: alpha 0.5, colours": partial(_mpl, colors="class", alpha=0.5, legend={}),
    "matplotlib: alpha 0.3, black edges": partial(_mpl, alpha=0.3, edgecolors="black"),
    "matplotlib: dark_background": partial(_mpl, style="dark_background", colors="class"),
    "matplotlib: ggplot sheet": partial(_mpl, style="ggplot"),
    "matplotlib: seaborn-v0_8 sheet": partial(_mpl, style="seaborn-v0_8", colors="class"),
    "matplotlib: small s=4, 200 dpi": partial(_mpl, s=4, dpi=200, linewidths=0),
    "matplotlib: text on clusters": partial(_mpl, colors="class", s=16, texts=True),
    "matplotlib: colour bar": partial(_mpl, colors="value", s=16, colorbar=True),
    "matplotlib: JPEG, 600 wide": partial(_mpl, s=12, linewidths=0, figsize=(8, 6), dpi=150, web=600),
    "matplotlib: no frame": partial(_mpl, colors="class", s=16, frame=False),
    "seaborn: default": _sns,
    "seaborn: hue": partial(_sns, hue=True),
    "seaborn: darkgrid, hue": partial(_sns, style="darkgrid", hue=True),
    "seaborn: hue and style": partial(_sns, hue=True, shapes=True),
    "plotnine: theme_gray": _p9,
    "plotnine: theme_bw, colours": partial(_p9, theme="theme_bw", color=True),
    "plotnine: theme_minimal, colours": partial(_p9, theme="theme_minimal", color=True),
    "plotly: default, colours": partial(_px, color=True),
    "plotly: plotly_white, line": partial(
        _px, template="plotly_white", color=True, size=8, line={"width": 1, "color": "DarkSlateGrey"}
    ),
}
"""The styles that reading was developed on."""

UNSEEN: dict[str, Style] = {
    "matplotlib: black edges, tab10, grid": partial(
        _mpl, colors="class", s=25, edgecolors="k", grid=True, linewidths=0.7
    ),
    "matplotlib: bmh sheet, legend": partial(_mpl, style="bmh", colors="class", legend={"loc": "lower left"}),
    "seaborn: whitegrid, hue, alpha 0.7": partial(_sns, style="whitegrid", hue=True, alpha=0.7, palette="Set2"),
    "plotnine: theme_light, shapes": partial(_p9, theme="theme_light", shape=True),
    "plotly: simple_white": partial(_px, template="simple_white"),
    "plotly: dark, colours": partial(_px, template="plotly_dark", color=True),
}
"""Styles that were tried once, at the end."""

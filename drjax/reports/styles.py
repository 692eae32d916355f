"""The style of every figure: colours in a fixed order, panels, names beside what they name, bands and axes.

Colours are Okabe and Ito's, which readers with any kind of colour vision tell apart. Line styles and markers say a
second time which line is which. What has an order, as sizes or epsilon, has colours from light to dark instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from scipy.optimize import isotonic_regression

from drjax.reports.ladder import number

BLUE, SKY, GREEN, ORANGE, RED, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
INK, FAINT, GRID = "#1f2933", "#5f6b76", "#dfe3e8"
ATTACK, BEST, BASELINE = BLUE, RED, "#8a8f94"
SERIES = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, INK)
LINE_STYLES = ("-", "--", "-.")
Grid = Literal["x", "y", "both"]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH = 8.6
"""Width of a figure in inches, for a column 1,000 pixels wide."""

MOST_POINTS = 80
"""Points of a curve that are drawn, at most, where `few` chooses."""

LEAST_CONTRAST = 4.5
"""Contrast of text with white, as WCAG 2 asks for."""

LINE = 1.2
"""Height of a line of text, as a multiple of its size."""


class End(NamedTuple):
    """A line's end and its name.

    Attributes:
        x: Horizontal place of the end, in the units of the data.
        y: Height of the end, in the units of the data.
        text: Name of the line.
        color: Colour of the line.
    """

    x: float
    y: float
    text: str
    color: str


def plain(text: str) -> str:
    """A text for matplotlib, which draws it as it is: what stands between two dollar signs would be a formula.

    Every name that users give goes through here on its way into a figure, last of all, after it is cut or wrapped.
    """
    return text.replace("$", r"\$")


def ordered(n: int) -> list[str]:
    """Colours of n things that have an order, from light to dark, that differ in grey as well."""
    return [to_hex(color) for color in matplotlib.colormaps["viridis"](np.linspace(0.85, 0.0, n))]


def text_color(color: str) -> str:
    """The colour, as much darker as its text needs on white."""
    rgb = np.array(to_rgb(color))
    while 1.05 / (_luminance(rgb) + 0.05) < LEAST_CONTRAST:
        rgb = rgb * 0.97
    return to_hex(tuple(rgb))


def _luminance(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def panels(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = 3.8, grid: Grid = "both", **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels (rows, columns) in the common style.

    Args:
        rows: Rows of panels.
        columns: Columns of panels.
        width: Inches.
        height: Inches, of the whole figure.
        grid: Axes whose grid is drawn, as of `style_axes`.
        shared: Options of `Figure.subplots`, as `sharey`.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for ax in axes.ravel():
        style_axes(ax, grid=grid)
    return figure, axes


def style_axes(ax: Axes, *, grid: Grid = "x") -> None:
    """The look that all panels share: a thin grid below what is drawn, no frame above and on the right.

    Args:
        ax: Panel.
        grid: "x", "y" or "both".
    """
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8.5, labelcolor=INK, color=GRID, which="both")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)


def title(ax: Axes, text: str) -> None:
    """What a panel is of, above its left end."""
    ax.set_title(plain(text), fontsize=9.5, color=INK, loc="left")


def name_axes(ax: Axes, x: str | None = None, y: str | None = None) -> None:
    """What the axes show, with the unit."""
    if x is not None:
        ax.set_xlabel(x, fontsize=9, color=INK)
    if y is not None:
        ax.set_ylabel(y, fontsize=9, color=INK)


def label(ax: Axes, x: float, y: float, text: str, color: str, **more: Any) -> None:
    """A text that stands beside what it names, in its colour, and in place of a legend."""
    looks: dict[str, Any] = {"va": "center", "fontsize": 9, **more}
    ax.text(x, y, plain(text), color=text_color(color), **looks)


def label_ends(ax: Axes, ends: Sequence[End], *, size: float = 8.5, dx: float = 6) -> None:
    """Names of lines, to the right of their ends; what would overlap is moved apart, in the order of the ends.

    Call it last: the places depend on the limits of the axes. Ends at different x are placed independently.

    Args:
        ax: Panel.
        ends: Ends and names; those of nan are left out.
        size: Height of the text, in points.
        dx: Distance from the end, in points.
    """
    ax.autoscale_view()
    box, figure = ax.get_position(), ax.get_figure(root=True)
    assert figure is not None
    height = box.height * figure.get_size_inches()[1] * 72
    to_axes = ax.transScale + ax.transLimits
    known = [end for end in ends if np.isfinite(end.y)]
    for x in dict.fromkeys(end.x for end in known):
        own = [end for end in known if end.x == x]
        heights = np.array([LINE * size * len(end.text.splitlines()) for end in own])
        wanted = np.array([to_axes.transform((end.x, end.y))[1] * height for end in own])
        for end, at, place in zip(own, wanted, spread(wanted, heights), strict=True):
            ax.annotate(
                plain(end.text), (end.x, end.y), xytext=(dx, place - at), textcoords="offset points", va="center",
                fontsize=size, color=text_color(end.color), annotation_clip=False,
            )  # fmt: skip


def spread(wanted: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Centres (n,) of texts of some heights (n,) that do not overlap, as near as can be to the wanted ones (n,).

    They are in the order of the wanted ones; of equal ones the first is the highest.
    """
    order = np.lexsort((-np.arange(len(wanted)), wanted))
    tall = heights[order]
    # Where each would be if all touched: what is left may only grow, and is the isotonic fit of what was wanted.
    offsets = np.cumsum(tall) - tall / 2
    fitted = isotonic_regression(wanted[order] - offsets).x if len(wanted) else np.empty(0)
    places = np.empty(len(wanted))
    places[order] = fitted + offsets
    return places


def band(ax: Axes, x: Any, middle: Any, low: Any, high: Any, color: str, *, alpha: float = 0.18, **more: Any) -> None:
    """A line with the band of its interval; `alpha` is of the band, `more` of the line."""
    looks: dict[str, Any] = {"linewidth": 1.4, **more}
    ax.plot(x, middle, color=color, **looks)
    ax.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0)


def few(n: int) -> np.ndarray:
    """Indices of as many of n points, the first and the last among them, as a curve needs that stays a small file."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(int))


def level(ax: Axes, y: float, text: str, *, x: float = 0.0, linestyle: str = ":", **more: Any) -> None:
    """A horizontal line of what is had anyway, named above the line.

    Args:
        ax: Panel.
        y: Height, in the units of the data.
        text: Name.
        x: Place of the name, from 0 at the left end of the axes to 1.
        linestyle: Style of the line.
        more: Options of the text.
    """
    ax.axhline(y, color=BASELINE, linestyle=linestyle, linewidth=1.4, zorder=1)
    place = {"transform": ax.get_yaxis_transform(), "va": "bottom", "fontsize": 8.5}
    label(ax, x, y, text, FAINT, **{**place, **more})


def log_x(ax: Axes, ticks: Sequence[float], names: Sequence[str] | None = None) -> None:
    """A logarithmic horizontal axis with ticks where something was measured, and their names."""
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), [f"{tick:,g}" for tick in ticks] if names is None else list(names))
    ax.xaxis.set_minor_locator(NullLocator())


def log_y(ax: Axes) -> None:
    """A logarithmic vertical axis; within few decades 2 and 5 have ticks as well."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    width = high / low
    if width < 1e4:
        subs = (1,) if width > 1e3 else (1, 2, 5) if width > 5 else (1, 2, 3, 4, 5, 6, 7, 8)
        ax.yaxis.set_major_locator(LogLocator(subs=subs))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    ax.yaxis.set_minor_formatter(NullFormatter())

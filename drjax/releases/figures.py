"""Figures about a release: what is kept over epsilon, and ROC curves under the most that any attack can reach."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from drjax.bounds.curve import TradeOff
from drjax.core.statistics import Interval
from drjax.reports import styles

LEAST_RATE = 1e-3
"""Left end of the logarithmic panel."""


def kept_over_epsilon(
    epsilons: np.ndarray,
    values: tuple[Interval, ...],
    chosen: float,
    *,
    label: str,
    baseline: tuple[float, str] | None = None,
) -> Figure:
    """A measure of utility over epsilon, with its interval and the chosen epsilon marked.

    Args:
        epsilons: (g,), increasing.
        values: g of them, in [0, 1].
        chosen: The epsilon asked for, one of them.
        label: Name of the measure.
        baseline: A value that is had without any of this, and what it is of, for a dotted line.
    """
    figure = Figure(figsize=(0.75 * styles.WIDTH, 3.6), layout="constrained")
    ax = figure.subplots()
    table = np.array(values)
    ax.fill_between(epsilons, table[:, 1], table[:, 2], color=styles.ATTACK, alpha=0.22, linewidth=0)
    ax.plot(epsilons, table[:, 0], "o-", color=styles.ATTACK, markersize=4)
    index = int(np.argmin(np.abs(epsilons - chosen)))
    ax.plot(epsilons[index], table[index, 0], "o", color=styles.BEST, markersize=9)
    ax.annotate(
        f"epsilon {chosen:g}: {table[index, 0]:.2f}",
        (epsilons[index], table[index, 0]),
        xytext=(10, -14),
        textcoords="offset points",
        fontsize=9,
        color=styles.BEST,
    )
    if baseline is not None:
        value, words = baseline
        ax.axhline(value, color=styles.BASELINE, linestyle=":")
        ax.annotate(
            f"{words}: {value:.2f}",
            (epsilons[-1], value),
            xytext=(0, -12),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color=styles.INK,
        )
    ax.set_xscale("log")
    ax.set_xticks(epsilons, [f"{value:.3g}" for value in epsilons])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("epsilon (smaller is more private)", fontsize=9, color=styles.INK)
    ax.set_ylabel(styles.plain(label), fontsize=9, color=styles.INK)
    styles.style_axes(ax)
    return figure


def roc_under_ceilings(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ceilings: Mapping[str, TradeOff],
    *,
    dotted: frozenset[str] = frozenset(),
) -> Figure:
    """ROC curves on linear and logarithmic axes, below the most that any attack reaches.

    Args:
        curves: Curves by label: false-positive and true-positive rates, both not decreasing.
        ceilings: Trade-off curves by label; none where nothing is guaranteed.
        dotted: Labels of `curves` to draw dashed.
    """
    figure = Figure(figsize=(styles.WIDTH, 4.9), layout="constrained")
    axes = figure.subplots(1, 2)
    handles: list[Any] = []
    for ax, grid in zip(axes, (np.linspace(0, 1, 401), np.geomspace(LEAST_RATE, 1, 401)), strict=True):
        handles = []
        for (label, curve), style in zip(ceilings.items(), itertools.cycle(("-", "-.")), strict=False):
            power = curve.power(grid)
            handles += ax.plot(grid, power, color=styles.INK, linestyle=style, linewidth=1.8, label=styles.plain(label))
            if style == "-":
                ax.fill_between(grid, power, 1, color=styles.GRID, alpha=0.6, linewidth=0)
        for (label, (fpr, tpr)), color in zip(curves.items(), itertools.cycle(styles.SERIES), strict=False):
            style = "--" if label in dotted else "-"
            handles += ax.plot(
                fpr, tpr, drawstyle="steps-post", color=color, linestyle=style, linewidth=1.6, label=styles.plain(label)
            )
        handles += ax.plot(grid, grid, color=styles.BASELINE, linestyle=":", label="guessing")
        ax.set_xlabel("share of others called members", fontsize=9, color=styles.INK)
        ax.set_ylim(0, 1.01)
        styles.style_axes(ax)
    axes[0].set_xlim(0, 1)
    axes[0].set_ylabel("share of members found", fontsize=9, color=styles.INK)
    axes[1].set_xscale("log")
    axes[1].set_yscale("log")
    axes[1].set_xlim(LEAST_RATE, 1)
    axes[1].set_ylim(LEAST_RATE, 1.1)
    for ticks in (axes[1].xaxis, axes[1].yaxis):
        ticks.set_major_formatter(ScalarFormatter())
        ticks.get_major_formatter().set_scientific(False)
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    return figure

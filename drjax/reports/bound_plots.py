"""Figures of bounds: success over the baseline, and trade-off curves. Each returns a Figure."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from drjax.bounds import rero
from drjax.bounds.curve import TradeOff
from drjax.reports import styles


def success_over_baseline(
    curves: Mapping[str, TradeOff],
    *,
    marks: Sequence[float] = (),
    looser: Mapping[str, np.ndarray] | None = None,
    kappa: np.ndarray | None = None,
    n_targets: int = 1,
) -> Figure:
    """Largest probability of a reconstruction over the probability without the release, on logarithmic axes.

    Args:
        curves: Curves by label.
        marks: Baselines to mark on the first curve.
        looser: Bounds beside the curves, by label, (m,) at `kappa`, dashed.
        kappa: (m,) where everything is drawn; 1e-6 to 1 if not given.
        n_targets: Number of targets, see `rero.from_tradeoff`.
    """
    grid = np.geomspace(1e-6, 1, 300) if kappa is None else kappa
    figure, ((ax,),) = styles.panels(height=4.2)
    colors = itertools.cycle(styles.SERIES)
    for label, curve in curves.items():
        values = rero.from_tradeoff(grid, curve, n_targets=n_targets)
        ax.plot(grid, values, color=next(colors), label=styles.plain(label))
    for label, values in (looser or {}).items():
        ax.plot(grid, values, color=next(colors), linestyle="--", label=styles.plain(label))
    if marks:
        first = next(iter(curves.values()))
        ax.plot(marks, rero.from_tradeoff(np.array(marks), first, n_targets=n_targets), "o", color=styles.SERIES[0])
    ax.plot(grid, grid, color=styles.BASELINE, linestyle=":", label="without the release")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(grid[0], 1.3)
    styles.name_axes(
        ax, "success of the best guess without the release, kappa", "success of any reconstruction, at most"
    )
    # All curves meet at 1, and some of them are close throughout: names beside them would not tell which is which.
    ax.legend(fontsize=8.5, loc="lower right", frameon=False)
    return figure


def success_over_mu(
    rows: Sequence[Mapping[str, Any]], *, kappa: float, mse: float, guess: float | None = None
) -> Figure:
    """Success of every attack over mu, with its interval, under the bound of Gaussian differential privacy.

    Args:
        rows: Rows, one for each mu and attack: "mu", "attack", and "success" as (estimate, low, high).
        kappa: Success that no guess exceeds without the release: the bound is computed from it.
        mse: Error that counts as success, for the label.
        guess: Success of the best guess that was found, of which the same formula gives an estimate, no bound.
    """
    figure, ((ax,),) = styles.panels(height=4.2)
    mus = np.unique([row["mu"] for row in rows])
    grid = np.geomspace(mus.min(), mus.max(), 200)
    bound = rero.success_of_mu(kappa, grid)
    ax.plot(grid, bound, color=styles.INK)
    ends = [styles.End(mus[-1], bound[-1], "bound: no attack\ndoes better", styles.INK)]
    if guess is not None:
        estimate = rero.success_of_mu(guess, grid)
        ax.plot(grid, estimate, color=styles.FAINT, linestyle="--")
        ends.append(styles.End(mus[-1], estimate[-1], "with the best guess\nfound (no bound)", styles.FAINT))
        ax.axhline(guess, color=styles.BASELINE, linestyle=":", linewidth=1.4, zorder=1)
        ends.append(styles.End(mus[-1], guess, "best guess found,\nwithout the release", styles.FAINT))
    for name, color in zip(dict.fromkeys(row["attack"] for row in rows), itertools.cycle(styles.SERIES), strict=False):
        own = [row for row in rows if row["attack"] == name]
        share = np.array([row["success"] for row in own])
        reach = np.clip([share[:, 0] - share[:, 1], share[:, 2] - share[:, 0]], 0, None)
        ax.errorbar([row["mu"] for row in own], share[:, 0], reach, marker="o", markersize=4, capsize=2, color=color)
        ends.append(styles.End(mus[-1], share[-1, 0], textwrap.fill(name, 24), color))
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.02)
    styles.name_axes(
        ax,
        "mu of Gaussian differential privacy (smaller is more private)",
        f"share of targets rebuilt to an MSE of {mse:.3f}",
    )
    styles.label_ends(ax, ends)
    return figure


def power_over_level(curves: Mapping[str, TradeOff]) -> Figure:
    """Detections over false alarms, on linear and on logarithmic axes."""
    figure = Figure(figsize=(styles.WIDTH, 4.0), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, grid in zip(axes, (np.linspace(0, 1, 301), np.geomspace(1e-9, 1, 301)), strict=True):
        for (label, curve), color in zip(curves.items(), itertools.cycle(styles.SERIES), strict=False):
            ax.plot(grid, curve.power(grid), color=color, label=styles.plain(label))
        ax.plot(grid, grid, color=styles.BASELINE, linestyle=":", label="guessing")
        ax.set_xlabel("false alarms")
        styles.style_axes(ax)
    axes[0].set_ylabel("detections of the target, at most")
    axes[1].set_xscale("log")
    axes[1].set_yscale("log")
    axes[1].legend(fontsize=8, loc="lower right")
    return figure


def over_noise(noise: np.ndarray, values: np.ndarray, *, found: tuple[float, float], label: str) -> Figure:
    """A guarantee over the noise multiplier, on logarithmic axes.

    Args:
        noise: (m,) noise multipliers.
        values: (m,) the guarantee at each; points that are not finite are left out.
        found: Noise and guarantee to mark.
        label: Label of the guarantee.
    """
    figure = _line(noise, values, x_label="noise multiplier", y_label=label)
    figure.axes[0].plot(*found, "o", color=styles.SERIES[0])
    return figure


def epsilon_over_delta(deltas: np.ndarray, epsilons: np.ndarray) -> Figure:
    """Epsilon over delta (m,), on logarithmic axes; points that are not finite, or 0, are left out."""
    return _line(deltas, epsilons, x_label="delta", y_label="epsilon")


def _line(x: np.ndarray, y: np.ndarray, *, x_label: str, y_label: str) -> Figure:
    figure = Figure(figsize=(0.6 * styles.WIDTH, 3.6), layout="constrained")
    ax = figure.subplots()
    shown = np.isfinite(y) & (y > 0)
    ax.plot(x[shown], y[shown], color=styles.SERIES[0])
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(styles.plain(x_label))
    ax.set_ylabel(styles.plain(y_label))
    styles.style_axes(ax)
    return figure

"""Figures of an audit. Each function returns a matplotlib Figure and touches no global state.

Their style is that of `styles`; where attacks must be told apart within one panel, the line style says it too.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drjax.attacks.metrics import mean_squared_errors
from drjax.core import validate
from drjax.core.types import Array
from drjax.reports.ladder import LadderRow, bounds, number, strongest
from drjax.reports.records import atomic_open
from drjax.reports.styles import ATTACK, BASELINE, BEST, FAINT, GRID, INK, LINE_STYLES, SERIES, WIDTH, plain, style_axes

MAX_FEATURES = 30
"""Features that `feature_errors` shows at most; more would not be legible at report size."""

MAX_MULTIPLE = 3.0
"""Right end of the axis of `feature_errors`."""

DPI = 150


def png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes under one matplotlib version."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, facecolor="white")
    return file.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file, its text as text; the same figure gives the same bytes under one matplotlib."""
    file = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "drjax"}):
        figure.savefig(file, format="svg", facecolor="white", metadata=nothing, dpi=DPI)
    return file.getvalue()


def pdf(figure: Figure) -> bytes:
    """The figure as a PDF file, its fonts within; the same figure gives the same bytes under one matplotlib."""
    file = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format="pdf", facecolor="white", metadata={"CreationDate": None}, dpi=DPI)
    return file.getvalue()


def suffix(figure: Figure) -> str:
    """The kind of file that suits the figure: ".png" of pictures, ".svg" of drawings."""
    return ".png" if any(axes.images for axes in figure.axes) else ".svg"


def save_figure(figure: Figure, path: Path | str) -> None:
    """Writes the figure, atomically: as an SVG or a PDF if `path` ends in .svg or .pdf, else as a PNG."""
    drawn = {".svg": svg, ".pdf": pdf}.get(Path(path).suffix.lower(), png)(figure)
    with atomic_open(path) as file:
        file.write(drawn)


def image_grid(
    targets: Array,
    reconstructions: Mapping[str, Array],
    shape: tuple[int, ...],
    *,
    errors: Mapping[str, Array] | None = None,
) -> Figure:
    """Originals in the first row, one row per attack under it, one column per target, the MSE under each cell.

    Args:
        targets: (t, d), or (t, *shape); values in [0, 1], anything beyond is shown as 0 or 1.
        reconstructions: Attack label -> array of the same form; a row with nan is drawn as a grey cell.
        shape: (h, w) or (h, w, 3) with product d.
        errors: Attack label -> (t,) mean squared errors to print, where the images are rounded; computed if None.

    Raises:
        ValueError: no target or no attack, a shape that is no image, or arrays that do not match.
    """
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)):
        raise ValueError(f"shape must be (h, w) or (h, w, 3), got {shape}")
    truth, recons = flat_pairs(targets, reconstructions)
    t, d = truth.shape
    if d != math.prod(shape):
        raise ValueError(f"targets must have {math.prod(shape)} values for shape {shape}, got {d}")
    printed = {label: mean_squared_errors(recon, truth) for label, recon in recons.items()}
    for label, values in (errors or {}).items():
        if label not in printed or np.shape(values) != (t,):
            raise ValueError(
                f"errors must be {t} numbers for attacks that are shown, got {np.shape(values)} for {label!r}"
            )
        printed[label] = np.asarray(values, np.float64)
    n_rows = len(recons) + 1
    label_width = 1.7
    cell = min(1.1, (WIDTH - label_width) / t)
    height = cell * shape[0] / shape[1]
    gap = 0.26
    fig = Figure(figsize=(label_width + cell * t, (height + gap) * n_rows))
    axes = fig.subplots(n_rows, t, squeeze=False)
    width, total = fig.get_size_inches()
    fig.subplots_adjust(
        left=label_width / width,
        right=0.995,
        top=1 - 0.03 / total,
        bottom=0.23 / total,
        wspace=0.06,
        hspace=gap / height,
    )
    # A cell narrower than about half an inch has no room for a figure in the usual size.
    size = 8.0 if cell > 0.55 else 6.0
    for row, (label, images) in enumerate({"original": truth, **recons}.items()):
        for column in range(t):
            ax = axes[row, column]
            _draw_image(ax, images[column], shape)
            if row:
                error = printed[label][column]
                text = "failed" if math.isnan(error) else number(error)
                ax.set_xlabel(text, fontsize=size, color=FAINT, labelpad=2)
        axes[row, 0].set_ylabel(
            plain(textwrap.fill(label, 20)), rotation=0, ha="right", va="center", fontsize=9, color=INK, labelpad=8
        )
    return fig


def feature_errors(
    targets: Array,
    reconstructions: Mapping[str, Array],
    mean_record: Array,
    *,
    feature_names: Sequence[str] | None = None,
    scale: Array | None = None,
) -> Figure:
    """Error bars per feature, one panel per attack: the attack's absolute error over that of guessing the mean record.

    Dot and line are the median and the range from 5% to 95% of the targets, drawn as multiples of the mean record's
    root mean squared error in that feature, so that features of any unit share the axis and 1 means no better than
    guessing; a median beyond `MAX_MULTIPLE` is drawn there. The medians, attack then guess, stand beside the panel in
    original units. Features are sorted by exposure: how much of the mean record's root mean squared error the best
    attack removes, in the targets' units, so that a category which hardly anybody has does not come first. At most
    `MAX_FEATURES` are drawn and the figure says how many are left out. A pair of panels is up to 7 inches high, so
    pass the attacks that matter.

    Args:
        targets: (t, d).
        reconstructions: Attack label -> (t, d); rows with nan are left out of that attack's panel.
        mean_record: (d,) the guess of somebody who has not seen the release.
        feature_names: d names; numbers if None.
        scale: (d,) factors > 0 from the targets' units to the original ones; 1 if None.

    Raises:
        ValueError: no target or no attack, arrays that do not match, or a scale that is not positive.
    """
    truth, recons = flat_pairs(targets, reconstructions)
    d = truth.shape[1]
    mean_record = validate.matrix(np.reshape(mean_record, (1, -1)), "mean_record", columns=d)
    names = [f"feature {j}" for j in range(d)] if feature_names is None else list(feature_names)
    if len(names) != d:
        raise ValueError(f"feature_names must have {d} entries, got {len(names)}")
    units = validate.matrix(np.reshape(np.ones(d) if scale is None else scale, (1, -1)), "scale", columns=d)
    validate.positive(scale=float(units.min()))
    guess = np.abs(truth - mean_record)
    errors = {label: np.abs(recon - truth) for label, recon in recons.items()}
    errors = {label: error[np.isfinite(error).all(axis=1)] for label, error in errors.items()}
    shown = most_exposed(guess, list(errors.values()))[:MAX_FEATURES]
    typical = np.sqrt(np.mean(guess[:, shown] ** 2, axis=0))
    typical[typical == 0] = 1.0

    n_columns = min(2, len(errors))
    n_bands = math.ceil(len(errors) / n_columns)
    fig = Figure(figsize=(WIDTH, n_bands * (0.2 * len(shown) + 0.85) + 0.6), layout="constrained")
    grid = fig.subplots(n_bands, n_columns, sharey=True, squeeze=False).ravel()
    for ax, (label, error) in zip(grid, errors.items(), strict=False):
        guesses, attacks = guess[:, shown], error[:, shown]
        _draw_ranges(ax, guesses / typical, color=BASELINE, label="guessing the mean record", is_baseline=True)
        _draw_ranges(ax, attacks / typical, color=ATTACK, label="the attack", is_baseline=False)
        for position, pair in enumerate(zip(_medians(attacks), _medians(guesses), strict=True)):
            text = " | ".join(number(float(value * units[0, shown[position]])) for value in pair)
            ax.text(1.02, position, text, transform=ax.get_yaxis_transform(), va="center", fontsize=7.5, color=FAINT)
        ax.set_title(plain(textwrap.fill(label, 40)), fontsize=9.5, color=INK, loc="left")
        ax.set_yticks(range(len(shown)), [plain(_shortened(names[j], 28)) for j in shown])
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_xlim(0, MAX_MULTIPLE)
        style_axes(ax)
    for ax in grid[len(errors) :]:
        ax.remove()
    fig.supxlabel(
        "absolute error as a multiple of the guess's typical error; line: 5% to 95% of targets\n"
        f"(right of each panel: median error of attack | guess{', original units' if scale is not None else ''})",
        fontsize=9,
        color=INK,
    )
    left_out = f"; {d - len(shown)} of {d} are left out" if d > len(shown) else ""
    handles, labels = grid[0].get_legend_handles_labels()
    fig.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=2,
        frameon=False,
        fontsize=8.5,
        title=f"Most exposed features first{left_out}",
        title_fontsize=9,
        alignment="left",
    )
    return fig


def ladder(rows: Sequence[LadderRow]) -> Figure:
    """Mean MSE of every attack with its 95% interval on a logarithmic axis; the baselines are vertical lines.

    A figure under a millionth of the largest, which nobody could see, is an arrow at the left edge; nan has no mark
    but keeps its row.

    Raises:
        ValueError: no row that is an attack.
    """
    best = strongest(rows)
    attacks = [row for row in rows if not row.is_baseline]
    baselines = [row for row in rows if row.is_baseline]
    floor, ceiling = _log_range(np.array([value for row in rows for value in row.scores.mse]))
    fig = Figure(figsize=(WIDTH, 0.42 * len(attacks) + 1.35), layout="constrained")
    ax = fig.subplots()
    for row, style in zip(baselines, itertools.cycle(("--", ":", "-."))):
        label = plain(f"{row.label}: {number(row.scores.mse.estimate)}")
        ax.axvline(max(row.scores.mse.estimate, floor), color=FAINT, linestyle=style, linewidth=1.6, label=label)
    for position, row in enumerate(attacks):
        color = BEST if row is best else ATTACK
        estimate, low, high = np.maximum(row.scores.mse, floor)
        ax.plot([low, high], [position, position], color=color, linewidth=2.2, solid_capstyle="butt")
        ax.plot(estimate, position, "<" if estimate == floor else "o", color=color, markersize=7)
        ax.text(
            1.02,
            position,
            f"{number(row.scores.mse.estimate)}  [{bounds(row.scores.mse, number)}]",
            transform=ax.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
            color=INK,
            fontweight="bold" if row is best else "normal",
        )
    ax.set_yticks(range(len(attacks)), [plain(textwrap.fill(row.label, 30)) for row in attacks])
    ax.set_ylim(len(attacks) - 0.5, -0.5)
    ax.set_xlabel("mean squared error (smaller: more was taken back)", fontsize=9, color=INK)
    ax.set_xscale("log")
    ax.set_xlim(floor / 1.5, ceiling * 2)
    style_axes(ax)
    if baselines:
        # Above the axes, because labels on the lines would collide when the two baselines are close.
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8.5, borderaxespad=0.2)
    return fig


def error_distribution(errors: Mapping[str, Array], nearest_neighbor: Array) -> Figure:
    """Share of targets (vertical) whose MSE is at most a value (horizontal, logarithmic), one step curve per attack.

    An error under a millionth of the largest is drawn at the left edge.

    Args:
        errors: Attack label -> (m,) MSE per target, >= 0; nan entries are left out.
        nearest_neighbor: (m,) MSE of each target's nearest known or public record, drawn as the grey reference.

    Raises:
        ValueError: no attack, or a negative or infinite error.
    """
    if not errors:
        raise ValueError("errors must hold at least one attack, got none")
    reference = _sorted_errors("nearest_neighbor", nearest_neighbor)
    curves = {label: _sorted_errors(label, values) for label, values in errors.items()}
    floor, ceiling = _log_range(np.concatenate([reference, *curves.values()]))
    fig = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    ax = fig.subplots()
    _draw_ecdf(ax, reference, floor, color=BASELINE, linewidth=3.5, label="nearest neighbour (baseline)")
    for (label, values), color, style in zip(curves.items(), itertools.cycle(SERIES), itertools.cycle(LINE_STYLES)):
        label = plain(textwrap.fill(label, 30))
        _draw_ecdf(ax, values, floor, color=color, linestyle=style, linewidth=1.7, label=label)
    ax.set_ylim(0, 1.01)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    ax.set_xlabel("mean squared error of one target", fontsize=9, color=INK)
    ax.set_ylabel("share of targets at or below", fontsize=9, color=INK)
    ax.set_xscale("log")
    ax.set_xlim(floor / 1.5, ceiling * 2)
    style_axes(ax)
    fig.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return fig


def flat_pairs(targets: Array, reconstructions: Mapping[str, Array]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Targets (t, d) and what each attack made of them (t, d).

    Raises:
        ValueError: no target or no attack, or arrays that do not match.
    """
    if not reconstructions:
        raise ValueError("reconstructions must hold at least one attack, got none")
    array = np.asarray(targets)
    truth = validate.matrix(array.reshape(len(array), -1), "targets")
    flat = {label: np.asarray(recon) for label, recon in reconstructions.items()}
    for label, recon in flat.items():
        if recon.shape[:1] != truth.shape[:1] or recon.size != truth.size:
            raise ValueError(f"reconstructions[{label!r}] must match targets {array.shape}, got shape {recon.shape}")
    return truth, {label: recon.reshape(truth.shape) for label, recon in flat.items()}


def _draw_image(ax: Axes, image: np.ndarray, shape: tuple[int, ...]) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(GRID)
    if np.isfinite(image).all():
        ax.imshow(np.clip(image, 0, 1).reshape(shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        ax.imshow(np.full((*shape[:2], 3), 0.88))


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def most_exposed(guess: np.ndarray, errors: Sequence[np.ndarray]) -> np.ndarray:
    """Feature indices by decreasing exposure; a feature that the mean record already gets right comes last."""
    base = np.mean(guess**2, axis=0)
    best = np.min([np.mean(error**2, axis=0) if len(error) else base for error in errors], axis=0)
    exposure = np.where(base > 0, np.sqrt(base) - np.sqrt(best), -np.inf)
    return np.argsort(-exposure, kind="stable")


def _draw_ranges(ax: Axes, errors: np.ndarray, *, color: str, label: str, is_baseline: bool) -> None:
    if not len(errors):
        return
    low, high = np.quantile(errors, [0.05, 0.95], axis=0)
    position = np.arange(errors.shape[1])
    # The baseline's thick pale bar lies under the attack's thin one, so that both stay visible where they overlap.
    width, alpha, marker, size = (5, 0.45, "|", 8) if is_baseline else (1.6, 1, "o", 4.5)
    ax.hlines(position, low, high, color=color, linewidth=width, alpha=alpha)
    # Drawn unclipped, because a dot on the edge of the panel would lose its half.
    style = {"color": color, "markersize": size, "markeredgewidth": 1.8, "label": label, "clip_on": False}
    ax.plot(np.minimum(_medians(errors), MAX_MULTIPLE), position, marker, **style)


def _medians(errors: np.ndarray) -> np.ndarray:
    return np.median(errors, axis=0) if len(errors) else np.full(errors.shape[1], np.nan)


def _log_range(values: np.ndarray) -> tuple[float, float]:
    """Lowest and highest value that a logarithmic axis shows."""
    positive = values[values > 0]
    if not positive.size:
        return 1e-6, 1.0
    return max(float(positive.min()), 1e-6 * float(positive.max())), float(positive.max())


def _sorted_errors(name: str, values: Array) -> np.ndarray:
    array = np.asarray(values, np.float64).ravel()
    array = np.sort(array[~np.isnan(array)])
    if array.size and not (array[0] >= 0 and array[-1] < np.inf):
        raise ValueError(f"{name} must hold finite errors >= 0, got values from {array[0]} to {array[-1]}")
    return array


def _draw_ecdf(ax: Axes, values: np.ndarray, floor: float, **style: Any) -> None:
    x = np.maximum(np.concatenate([values[:1], values]), floor)
    ax.step(x, np.linspace(0, 1, len(x)), where="post", **style)

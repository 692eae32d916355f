"""The paper's figures 2 to 7 from the records of a run, with the two baselines drawn in.

Error bars are one standard deviation over repeats, as in the paper; where a cell has one repeat there is none. Methods
keep their colour and marker in all figures, and an attack its name. A line breaks where its attack was not run. Where
an attack that is stronger elsewhere was not run, a hollow point with an arrow down is an upper end of the error.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drjax.reports import styles
from experiments.dr_reconstruction.config import LEVELS, NETWORK
from experiments.dr_reconstruction.paper import (
    DATA_NAMES,
    METHOD_NAMES,
    N_SHADOW,
    RECIPE,
    TABLE_4,
    TABLE_4_DATA,
    TABLE_4_KNOWN,
)
from experiments.dr_reconstruction.results import BEST, MEAN, NEAREST, Estimate, Results

STYLES: dict[str, dict[str, Any]] = {
    method: {"color": color, "marker": marker}
    for method, color, marker in zip(METHOD_NAMES, styles.SERIES, styles.MARKERS, strict=False)
}
BASELINE_STYLES = {MEAN: ("mean image", "--"), NEAREST: ("nearest image", ":")}
ERROR = "mean squared error (pixels from 0 to 1)"
LENS_NAMES = {NETWORK: "the paper's network", BEST: "the strongest attack that was run"}
NOISY_LENS_NAMES = {NETWORK: "the paper's network", BEST: "the strongest attack run at each noise"}

BOUNDS_NOTE = "hollow with an arrow: at most this, an attack that is stronger elsewhere was not run"

NOISY_BOUNDS_NOTE = (
    "right, hollow with an arrow: at most this, an attack stronger elsewhere or trained under the noise was not run"
)

NOT_RUN, NOT_KEPT = "not run", "not kept"
"""In place of a picture: of a cell that was not computed, and of one whose images are not at hand."""

ARROW = 0.15
"""Length of the arrow of a bound, as a share of it."""

COMMON = 3
"""Methods that an attack is on, at least, which has one colour in all panels."""

EXAMPLES_SHOWN = 2
"""Targets whose reconstructions are shown beside each other."""


def error_by_known(results: Results, data: str) -> Figure | None:
    """Figures 2 and 4: error against the size of the known set, one line a method, the baselines beside.

    One panel for the paper's network, where it was run, and one for the strongest attack. On MNIST the values that the
    paper prints (Table 4) are hollow. None where no attack was run.
    """
    lenses = [lens for lens in LENS_NAMES if _is_measured(results, data, lens)]
    if not lenses:
        return None
    fig, grid = styles.panels(1, len(lenses), height=4.3)
    has_bounds = False
    for ax, lens in zip(grid[0], lenses, strict=True):
        sizes = results.sizes(data)
        run = [n for n in sizes if any(results.estimate(data, m, n, lens) for m in results.methods(data))]
        styles.title(ax, f"{DATA_NAMES.get(data, data)}: {LENS_NAMES[lens]}")
        if lens == NETWORK and run == [TABLE_4_KNOWN] and data == TABLE_4_DATA:
            _beside_printed(ax, results)
            continue
        ends = []
        for method in results.methods(data):
            found = [results.estimate(data, method, n, lens) for n in sizes]
            bounds = [lens == BEST and results.lacks_strongest(data, method, n) for n in sizes]
            has_bounds |= _line(ax, sizes, found, bounds, label=METHOD_NAMES[method], **STYLES[method])
            ends += _ends(sizes, found, METHOD_NAMES[method], STYLES[method]["color"])
            if lens == NETWORK and data == TABLE_4_DATA:
                _printed(ax, TABLE_4_KNOWN, method)
        ends += _baselines(ax, sizes, lambda name, n: results.baseline(data, n, name))
        styles.log_x(ax, sizes)
        styles.log_y(ax)
        styles.label_ends(ax, ends)
    styles.name_axes(grid[0][0], y=ERROR)
    notes = []
    if NETWORK in lenses and data == TABLE_4_DATA:
        notes.append(f"left, hollow: as printed, from {N_SHADOW:,} shadows{_here(results, data)}")
    notes += [BOUNDS_NOTE] if has_bounds else []
    lines = ["number of known records", *notes, *_run_on(results, data)]
    fig.supxlabel("\n".join(lines), fontsize=8.5, color=styles.INK)
    return fig


def _beside_printed(ax: Axes, results: Results) -> None:
    """The network at the one size of Table 4: what the paper prints of every method, and what was measured here."""
    data, n = TABLE_4_DATA, TABLE_4_KNOWN
    methods = results.methods(data)
    for place, method in enumerate(methods):
        _printed(ax, place, method)
        if (found := results.estimate(data, method, n, NETWORK)) is None:
            styles.label(ax, place, 0.02, "not run", styles.FAINT, ha="center", va="bottom", fontsize=7.5,
                         transform=ax.get_xaxis_transform())  # fmt: skip
        else:
            _line(ax, [place], [found], **STYLES[method])
    for name, (text, linestyle) in BASELINE_STYLES.items():
        if (found := results.baseline(data, n, name)) is not None:
            styles.level(ax, found.mean, text, linestyle=linestyle)
    ax.set_xticks(range(len(methods)), [METHOD_NAMES[method] for method in methods])
    ax.set_xlim(-0.6, len(methods) - 0.4)
    ax.set_ylim(bottom=0)
    ax.set_title(f"{ax.get_title('left')}, {n} known", fontsize=9.5, color=styles.INK, loc="left")


def _printed(ax: Axes, x: float, method: str) -> None:
    mean, spread = TABLE_4[NETWORK][method]
    style: dict[str, Any] = {**STYLES[method], "markerfacecolor": "white", "linestyle": "none"}
    ax.errorbar(x, mean, spread, capsize=2, linewidth=1, markersize=6, **style)


def attacks_by_known(results: Results, data: str) -> Figure:
    """What the paper does not have: every attack on every method, a panel each, with the baselines."""
    methods, sizes = results.methods(data), results.sizes(data)
    names = {n for m in methods for size in sizes for n in results.attacks(data, m, size)}
    order = [name for name in results.labels if name in names]
    n_methods = {name: sum(any(name in results.attacks(data, m, n) for n in sizes) for m in methods) for name in order}
    # Colours are few: those that an attack on many methods has are left out where others are chosen.
    common = [name for name in order if n_methods[name] >= COMMON]
    n_columns = min(2, len(methods))
    n_rows = -(-len(methods) // n_columns)
    fig, grid = styles.panels(n_rows, n_columns, height=2.5 * n_rows + 0.6, sharex=True)
    axes = grid.ravel()
    for ax, method in zip(axes, methods, strict=False):
        ends: list[styles.End] = []
        own = [
            name for name in order if name not in common and any(results.estimate(data, method, n, name) for n in sizes)
        ]
        looks = dict(zip((*common, *own), zip(styles.SERIES, styles.MARKERS, strict=False), strict=False))
        for name, (color, marker) in looks.items():
            found = [results.estimate(data, method, n, name) for n in sizes]
            _line(ax, sizes, found, label=results.labels[name], color=color, marker=marker)
            ends += _ends(sizes, found, textwrap.fill(results.labels[name], 24), color)
        ends += _baselines(ax, sizes, lambda name, n: results.baseline(data, n, name))
        styles.title(ax, METHOD_NAMES[method])
        styles.log_x(ax, sizes)
        styles.log_y(ax)
        styles.label_ends(ax, ends, size=7)
    for ax in axes[len(methods) :]:
        ax.remove()
    fig.supylabel(ERROR, fontsize=9, color=styles.INK)
    about = [f"{DATA_NAMES.get(data, data)}: number of known records", *_run_on(results, data)]
    fig.supxlabel("\n".join(about), fontsize=9, color=styles.INK)
    return fig


def example_grid(results: Results, images: Mapping[str, np.ndarray], data: str, lens: str) -> Figure | None:
    """Figures 3 and 5: reconstructions by method (rows) and size of the known set (columns); None if there are none."""
    methods, sizes = results.methods(data), results.sizes(data)
    shown = [n for n in sizes if any(not isinstance(_image(results, images, data, m, n, lens), str) for m in methods)]
    if f"{data}/original" not in images or not shown:
        return None
    originals = images[f"{data}/original"][:EXAMPLES_SHOWN]
    columns = ["original", *map(str, shown)]

    def picture(method: str, target: int, column: int) -> np.ndarray | str:
        if column == 0:
            return originals[target]
        found = _image(results, images, data, method, shown[column - 1], lens)
        return found if isinstance(found, str) else found[target] if target < len(found) else NOT_KEPT

    title = f"{DATA_NAMES.get(data, data)}, by {LENS_NAMES[lens]}; columns: known records"
    return _pictures(methods, columns, len(originals), picture, title)


def error_by_noise(results: Results, data: str) -> Figure | None:
    """Figure 6: Eq. 12 of attacks that know of no noise, and the error against the original, by the noise.

    None where no attack was run under noise.
    """
    lenses = [lens for lens in LENS_NAMES if _is_measured(results, data, lens, noisy=True)]
    if not lenses:
        return None
    (n_known,) = results.noisy_sizes(data)
    sigmas, d = results.sigmas(data), results.n_features(data)
    fig, grid = styles.panels(len(lenses), 2, height=3.4 * len(lenses) + 0.7)
    has_bounds = False
    for (moved, error), lens in zip(grid, lenses, strict=True):
        moved_ends, error_ends = [], []
        for method in results.methods(data):
            name, style = METHOD_NAMES[method], STYLES[method]
            found = [results.estimate(data, method, n_known, lens, sigma=s, measure="eq12") for s in sigmas]
            _line(moved, sigmas, found, (), label=name, **style)
            moved_ends += _ends(sigmas, found, name, style["color"])
            found = [results.estimate(data, method, n_known, lens, sigma=s) for s in sigmas]
            bounds = [lens == BEST and results.lacks_strongest(data, method, n_known, s) for s in sigmas]
            has_bounds |= _line(error, sigmas, found, bounds, label=name, **style)
            error_ends += _ends(sigmas, found, name, style["color"])
        error_ends += _baselines(error, sigmas, lambda name, s: results.baseline(data, n_known, name, sigma=s))
        # Both baselines ignore the release, so that noise does not move them: their errors times d give the scale.
        moved_ends += _baselines(
            moved, sigmas, lambda name, s: _times(results.baseline(data, n_known, name, sigma=s), d)
        )
        styles.name_axes(moved, y="squared distance to the reconstruction\nfrom the clean release (Eq. 12)")
        styles.name_axes(error, y="mean squared error\nagainst the original (pixels from 0 to 1)")
        styles.title(moved, f"{NOISY_LENS_NAMES[lens]}, {n_known} known")
        for ax, ends in ((moved, moved_ends), (error, error_ends)):
            styles.log_x(ax, sigmas)
            styles.log_y(ax)
            styles.label_ends(ax, ends)
    fig.supxlabel(
        f"{DATA_NAMES.get(data, data)}: standard deviation of the noise, on pixels from 0 to 255\n"
        f"(left: attacks trained without noise, and baselines with {d} times their error against the original)"
        + "".join(f"\n{note}" for note in [*([NOISY_BOUNDS_NOTE] if has_bounds else []), *_run_on(results, data)]),
        fontsize=9,
        color=styles.INK,
    )
    return fig


def noisy_examples(results: Results, images: Mapping[str, np.ndarray], data: str, lens: str) -> Figure | None:
    """Figure 7: reconstructions from noisy releases by method (rows) and noise (columns); None if there are none."""
    methods, sizes = results.methods(data), results.noisy_sizes(data)
    if not sizes or f"{data}/original" not in images:
        return None
    (n_known,) = sizes
    sigmas = [0.0, *results.sigmas(data)]
    original = images[f"{data}/original"][:1]
    if all(isinstance(_image(results, images, data, m, n_known, lens, s), str) for m in methods for s in sigmas):
        return None
    rng = np.random.default_rng(0)
    # Drawn for the eye: the noise of the releases is on all n records, anew in each of them.
    noisy = [np.clip(original[0] + s * rng.standard_normal(original[0].shape), 0, LEVELS) for s in sigmas]

    def picture(row: str, target: int, column: int) -> np.ndarray | str:
        if row == "the record":
            return noisy[column]
        found = _image(results, images, data, row, n_known, lens, sigmas[column])
        return found if isinstance(found, str) else found[target]

    about = f"{DATA_NAMES.get(data, data)}, {n_known} known, by {NOISY_LENS_NAMES[lens]}"
    title = f"{about}; columns: noise on pixels from 0 to 255"
    return _pictures(["the record", *methods], [f"{s:g}" for s in sigmas], 1, picture, title)


def _pictures(
    rows: Sequence[str],
    columns: Sequence[str],
    n_targets: int,
    picture: Callable[[str, int, int], np.ndarray | str],
    title: str,
) -> Figure:
    cell = min(0.95, (styles.WIDTH - 0.9) / (n_targets * len(columns) + 0.4 * (n_targets - 1)))
    width = 0.9 + cell * (n_targets * len(columns) + 0.4 * (n_targets - 1))
    title = textwrap.fill(title, int(13 * width))
    above = 0.35 + 0.17 * len(title.splitlines())
    height = cell * len(rows) + above + 0.05
    fig = Figure(figsize=(width, height))
    place = {"left": 0.85 / width, "right": 0.995, "top": 1 - above / height, "bottom": 0.05 / height}
    outer = fig.add_gridspec(1, n_targets, wspace=0.06, **place)
    for target in range(n_targets):
        grid = outer[target].subgridspec(len(rows), len(columns), wspace=0.05, hspace=0.05)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                ax = fig.add_subplot(grid[i, j])
                ax.set_xticks([])
                ax.set_yticks([])
                for spine in ax.spines.values():
                    spine.set_color(styles.GRID)
                found = picture(row, target, j)
                if isinstance(found, str):
                    ax.text(0.5, 0.5, found, ha="center", va="center", fontsize=6, color=styles.FAINT)
                else:
                    ax.imshow(found, cmap="gray", vmin=0, vmax=LEVELS, interpolation="nearest")
                if i == 0:
                    ax.set_title(column, fontsize=8, color=styles.INK, pad=3)
                if j == 0 and target == 0:
                    name = METHOD_NAMES.get(row, row)
                    ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=styles.INK, labelpad=6)
    fig.text(0.01, 1 - 0.06 / height, title, fontsize=9.5, color=styles.INK, va="top")
    return fig


def _image(
    results: Results,
    images: Mapping[str, np.ndarray],
    data: str,
    method: str,
    n_known: int,
    lens: str,
    sigma: float = 0,
) -> np.ndarray | str:
    """The images (n, h, w) of an attack, or why there are none."""
    name = results.named(lens, data, method, n_known, sigma)
    if name is None or not results.records(data, method, n_known, name, sigma):
        return NOT_RUN
    return images.get(f"{data}/{method}/{n_known}/{name}/{sigma:g}", NOT_KEPT)


def _run_on(results: Results, data: str) -> list[str]:
    """A line on what a figure's cells were computed on; none where records do not say."""
    devices = results.devices(data)
    return [f"computed on {' and '.join(devices)}; a point that is not there was not run"] if devices else []


def _is_measured(results: Results, data: str, lens: str, *, noisy: bool = False) -> bool:
    sigmas = results.sigmas(data) if noisy else [0.0]
    sizes = results.noisy_sizes(data) if noisy else results.sizes(data)
    cells = itertools.product(results.methods(data), sizes, sigmas)
    return any(results.estimate(data, m, n, lens, sigma=sigma) is not None for m, n, sigma in cells)


def _times(estimate: Estimate | None, factor: float) -> Estimate | None:
    if estimate is None:
        return None
    mean, error, spread, n_repeats = estimate
    return Estimate(factor * mean, factor * error, factor * spread, n_repeats)


def _line(
    ax: Axes,
    places: Sequence[float],
    found: Sequence[Estimate | None],
    bounds: Sequence[bool] = (),
    **style: Any,
) -> bool:
    """Draws a line that breaks where there is no estimate or only a bound, and the bounds; whether there were any."""
    if all(e is None for e in found):
        return False
    is_bound = [bool(b) and e is not None for b, e in zip(bounds or [False] * len(found), found, strict=True)]
    shown = [None if b else e for b, e in zip(is_bound, found, strict=True)]
    # A point of nan breaks a line.
    means = [np.nan if e is None else e.mean for e in shown]
    spreads = [0.0 if e is None or np.isnan(e.spread) else e.spread for e in shown]
    ax.errorbar(places, means, spreads, markersize=4.5, linewidth=1.5, capsize=2.5, **style)
    ends = [(x, e.mean) for x, e, b in zip(places, found, is_bound, strict=True) if b and e is not None]
    if ends:
        hollow: dict[str, Any] = {**style, "markerfacecolor": "white", "linestyle": "none", "label": "_nolegend_"}
        x, y = np.array(ends).T
        ax.errorbar(x, y, ARROW * y, uplims=True, markersize=4.5, linewidth=1, zorder=3, **hollow)
    return bool(ends)


def _ends(places: Sequence[float], found: Sequence[Estimate | None], text: str, color: str) -> list[styles.End]:
    """The last point of a line and its name, which stand at the right edge of the panel; none where there is no point.

    The name of a line that ends before says where.
    """
    points = [(x, e.mean) for x, e in zip(places, found, strict=True) if e is not None]
    if not points:
        return []
    last, y = points[-1]
    until = "" if last == places[-1] else f" (at {last:g})" if len(points) == 1 else f" (to {last:g})"
    return [styles.End(places[-1], y, text + until, color)]


def _here(results: Results, data: str) -> str:
    """What the paper's network was trained on here, where that is something else."""
    config = results.head["config"]
    n_shadow = next(plan["n_shadow"] for plan in config["plans"] if plan["data"] == data)
    if (n_shadow, config["network"]) == (N_SHADOW, RECIPE):
        return ""
    return f"; filled: from {n_shadow:,}, recipe {config['network']!r}"


def _baselines(ax: Axes, places: Sequence[float], of: Callable[[str, Any], Estimate | None]) -> list[styles.End]:
    """Draws both baselines; returns their ends and names."""
    ends = []
    for name, (text, linestyle) in BASELINE_STYLES.items():
        found = [of(name, x) for x in places]
        points = [(x, e.mean) for x, e in zip(places, found, strict=True) if e is not None]
        if points:
            ax.plot(*zip(*points, strict=True), linestyle, color=styles.FAINT, linewidth=1.6, zorder=1)
        ends += _ends(places, found, text, styles.FAINT)
    return ends

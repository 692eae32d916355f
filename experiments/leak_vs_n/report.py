"""Tables and the figure of the cells."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drjax.core import streamed
from drjax.core.statistics import Interval, percentile_interval, resampled, share_interval
from drjax.reports import styles
from drjax.reports.ladder import number, percent
from experiments import drawings
from experiments.cells import Line
from experiments.leak_vs_n import law, releases
from experiments.markdown import markdown_table

FIGURE = "leak_vs_n"
"""Name of the figure."""

RESAMPLES = 2000
"""Resamples of the targets, of which an interval of a median is made."""

LEAST_SHOWN = 1e-9
"""Least share that the figure shows of PCA."""

ERROR_LEFT = "error left, share of the mean record's (median)"

LAW = "dashed: the law, nothing fitted"
"""Legend of a figure."""

SCORES = ("PCA", "classical")
"""What ways begin with that publish principal scores."""

MAPS = ("t-SNE", "UMAP", "Isomap", "MDS, at rest")
"""Ways that the figure shows together: maps in which all records have a part."""

PROJECTIONS = ("random projection", "landmark MDS", "landmark MDS, a landmark", "landmark Isomap")
"""Ways that the figure shows together: what places records one by one."""


def written(lines: Sequence[Line], out: Path) -> str:
    """Both tables as Markdown; writes the figure into a folder.

    Args:
        lines: Cells of one run.
        out: Folder.
    """
    drawn = figure(lines) if any(line["published"] == "float32" for line in lines) else rounding_figure(lines)
    drawings.save({FIGURE: drawn}, out)
    return f"{cells_table(lines)}\n\n{law_table(lines)}"


def shares(line: Line, of: str = "error") -> np.ndarray:
    """(m,) errors of one kind as a share of the mean record's; 1 of targets of which the attack gave no record."""
    own = np.asarray(line[of], np.float64) / np.asarray(line["mean_error"], np.float64)
    return np.where(np.isfinite(own), own, 1.0)


def median(values: np.ndarray) -> Interval:
    """Median of (m,) values with the interval of a bootstrap over them."""
    draws = resampled(np.random.default_rng(0), values, lambda some: np.median(some, axis=1), RESAMPLES)
    return percentile_interval(float(np.median(values)), draws)


def series(lines: Iterable[Line]) -> dict[tuple[str, str, str], list[Line]]:
    """Cells by way, data and what is published, in the order of n."""
    found: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["way"], line["data"], line["published"]), []).append(line)
    return {name: sorted(own, key=lambda line: line["n"]) for name, own in found.items()}


def cells_table(lines: Iterable[Line]) -> str:
    """One row for each cell: errors as shares of the mean record's error, and how many targets are rebuilt."""
    heads = ("method", "data", "published", "records", "targets", "error left", "nearest record", "rebuilt", "s")
    rows = []
    for (way, data, published), own in series(lines).items():
        for line in own:
            rebuilt = share_interval(line["n_rebuilt"], line["targets"])
            ends = f"{percent(rebuilt.low)} to {percent(rebuilt.high)}"
            rows.append(
                (
                    way,
                    data,
                    published,
                    f"{line['n']:,}",
                    str(line["targets"]),
                    _words(median(shares(line))),
                    number(float(np.median(shares(line, "nearest_error")))),
                    f"{percent(rebuilt.estimate)} ({ends})",
                    number(line["seconds"]),
                )
            )
    return markdown_table(heads, rows)


class Grown(NamedTuple):
    """How the errors of a way grow with the number of records.

    Attributes:
        used: Cells that count, in the order of n.
        error: Exponent of n in the attack's error.
        predicted: In the error by the law; None where the law says nothing.
        nearest: In the error of the nearest record.
        ratios: Measured error over that of the law, median over the targets; empty where the law says nothing.
    """

    used: Sequence[Line]
    error: Interval
    predicted: Interval | None
    nearest: Interval
    ratios: Sequence[float]


def grown(own: Sequence[Line]) -> Grown | None:
    """Exponents of one series of cells; None where less than two numbers of records count.

    Of PCA, and of landmarks, the numbers count that are at least four times the features.
    """
    way, published = own[0]["way"], own[0]["published"]
    is_scores = way.startswith(SCORES)
    is_of_axes = is_scores or releases.WAYS[way].at_landmarks
    used = [line for line in own if not is_of_axes or line["n"] >= streamed.LEAST_SHAPE * line["d"]]
    # In float64 what is left is what the attack's own decomposition rounds.
    if len(used) < 2 or (is_scores and published == "float64"):
        return None
    m, n = min(line["targets"] for line in used), np.array([line["n"] for line in used])

    def exponent(of: str) -> Interval:
        return law.exponent(n, np.array([line[of][:m] for line in used], np.float64))

    is_predicted = all("predicted" in line for line in used)
    ratios = [float(np.median(np.divide(line["error"], line["predicted"]))) for line in used] if is_predicted else []
    predicted = exponent("predicted") if is_predicted else None
    return Grown(used, exponent("error"), predicted, exponent("nearest_error"), ratios)


def law_table(lines: Iterable[Line]) -> str:
    """One row for each series of two numbers of records or more: how errors grow with n, and by the law of PCA."""
    heads = ("method", "data", "published", "records", "exponent", "by the law", "nearest record", "measured / law")
    rows = []
    for name, own in series(lines).items():
        if (found := grown(own)) is not None:
            ratios = f"{min(found.ratios):.2f} to {max(found.ratios):.2f}" if found.ratios else ""
            rows.append((*name, span(found.used), *map(_exponent, found[1:4]), ratios))
    return markdown_table(heads, rows)


def span(lines: Sequence[Line]) -> str:
    """The numbers of records of a series."""
    return f"{lines[0]['n']:,} to {lines[-1]['n']:,}"


def two(value: float) -> str:
    """Two digits after the point, without the sign of what is rounded to zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def exponent_words(interval: Interval) -> str:
    """An exponent with its interval."""
    return f"{two(interval.estimate)} ({two(interval.low)} to {two(interval.high)})"


def _exponent(interval: Interval | None) -> str:
    return "" if interval is None or np.isnan(interval.estimate) else exponent_words(interval)


def _words(interval: Interval) -> str:
    return f"{number(interval.estimate)} ({number(interval.low)} to {number(interval.high)})"


def figure(lines: Sequence[Line]) -> Figure:
    """Error left by the number of records: PCA of two data sets with the law, maps, and what places records singly."""
    found = series(lines)
    shown, grid = styles.panels(2, 2, height=7.6)
    panels = grid.ravel()
    data = list(dict.fromkeys(name[1] for name in found if name[0] == "PCA" and name[1] != "cifar10"))
    for ax, name in zip(panels[:2], data, strict=False):
        _scores_panel(ax, found, name)
    _others_panel(panels[2], found, "maps: mnist, float32", MAPS, (0.15, 1.3))
    _others_panel(panels[3], found, "random projection and landmarks: mnist, float32", PROJECTIONS, (1e-10, 3.0))
    shown.supxlabel("records in the release, n", fontsize=9, color=styles.INK)
    shown.supylabel(ERROR_LEFT, fontsize=9, color=styles.INK)
    return shown


def rounding_figure(lines: Sequence[Line]) -> Figure:
    """Error left of PCA by the records times the squared step of rounding: one curve for each data set."""
    found = series(lines)
    data_sets = list(dict.fromkeys(name[1] for name in found))
    shown, grid = styles.panels(1, len(data_sets), height=3.8, sharey=True)
    for ax, data in zip(grid[0], data_sets, strict=True):
        _axes(ax, f"PCA: {data}", (1e-3, 1.6))
        for i, published in enumerate(dict.fromkeys(name[2] for name in found if name[1] == data)):
            own, color = found["PCA", data, published], styles.SERIES[i]
            squared = 10.0 ** (-2 * (releases.PUBLISHED[published][1] or 0))
            x = [line["n"] * squared for line in own]
            _points(ax, own, color, styles.MARKERS[i], x)
            _below(ax, x[0], float(np.median(shares(own[0]))), published, color)
            lawful = [(at, line) for at, line in zip(x, own, strict=True) if "predicted" in line]
            law_ends = [at for at, _ in lawful], [np.median(shares(line, "predicted")) for _, line in lawful]
            ax.plot(*law_ends, "--", color=color, linewidth=1)
        _note(ax, LAW)
    shown.supxlabel("records times the squared step of rounding", fontsize=9, color=styles.INK)
    styles.name_axes(grid[0][0], y=ERROR_LEFT)
    return shown


def _scores_panel(ax: Axes, found: dict[tuple[str, str, str], list[Line]], data: str) -> None:
    exact = found["PCA", data, "float32"]
    _axes(ax, f"PCA: {data}, {exact[0]['d']} features", (LEAST_SHOWN, 3.0))
    ends = []
    for i, published in enumerate(("3 decimals", "float32")):
        own = found.get(("PCA", data, published), [])
        color = styles.SERIES[i]
        if own:
            _points(ax, own, color, styles.MARKERS[i])
            ends.append(_end(own, published, color))
        lawful = [line for line in own if "predicted" in line]
        n = [line["n"] for line in lawful]
        ax.plot(n, [np.median(shares(line, "predicted")) for line in lawful], "--", color=color, linewidth=1.2)
    if any("predicted" in line for line in exact):
        _note(ax, LAW)
    styles.label_ends(ax, [*ends, *_baseline(ax, exact)])


def _others_panel(
    ax: Axes,
    found: dict[tuple[str, str, str], list[Line]],
    title: str,
    ways: Sequence[str],
    limits: tuple[float, float],
) -> None:
    own = {name[0]: lines for name, lines in found.items() if name[1:] == ("mnist", "float32")}
    _axes(ax, title, limits)
    ends = []
    drawn = [way for way in ways if len(own.get(way, [])) > 1]
    most = max((own[way][-1]["n"] for way in drawn), default=0)
    for i, way in enumerate(drawn):
        color = styles.SERIES[i]
        rounded = found.get((way, "mnist", "3 decimals"), [])
        shown = [float(np.median(shares(line))) for line in rounded]
        ax.plot([line["n"] for line in rounded], shown, styles.MARKERS[i], color=color, markersize=7, fillstyle="none")
        _points(ax, own[way], color, styles.MARKERS[i])
        ends.append(_end(own[way], way, color, at=most))
    if limits[0] > 0.01:
        ax.set_yticks([0.2, 0.5, 1.0], ["0.2", "0.5", "1"])
        ax.minorticks_off()
    if "PCA" in own:
        ends += _baseline(ax, [line for line in own["PCA"] if line["n"] <= most] or own["PCA"][:1])
    _note(ax, "hollow: 3 decimals")
    styles.label_ends(ax, [end._replace(x=most) for end in ends])


def _axes(ax: Axes, title: str, limits: tuple[float, float]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(*limits)
    styles.title(ax, title)
    ax.axhline(1, color=styles.FAINT, linewidth=0.8, linestyle=":")


def _points(ax: Axes, own: Sequence[Line], color: str, marker: str, at: Sequence[float] | None = None) -> None:
    n, found = at or [line["n"] for line in own], [median(shares(line)) for line in own]
    estimate = np.array([one.estimate for one in found])
    reach = np.array([[one.estimate - one.low, one.high - one.estimate] for one in found]).T
    ax.errorbar(n, estimate, reach, fmt=f"{marker}-", color=color, markersize=4, linewidth=1.2, capsize=2)


def _end(own: Sequence[Line], name: str, color: str, *, at: float | None = None) -> styles.End:
    """The last of some cells, and its name, which says where it ends if that is before `at`."""
    last = own[-1]
    until = "" if at is None or last["n"] >= at else f" (to {last['n']:,})"
    return styles.End(last["n"], float(np.median(shares(last))), textwrap.fill(name + until, 18), color)


def _baseline(ax: Axes, own: Sequence[Line]) -> list[styles.End]:
    nearest = [float(np.median(shares(line, "nearest_error"))) for line in own]
    ax.plot([line["n"] for line in own], nearest, "-", color=styles.BASELINE, linewidth=2, zorder=1)
    return [styles.End(own[-1]["n"], nearest[-1], "nearest record", styles.FAINT)]


def _note(ax: Axes, text: str) -> None:
    place = {"transform": ax.transAxes, "ha": "right", "fontsize": 8.5}
    styles.label(ax, 0.98, 0.04, text, styles.FAINT, **place)


def _below(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    style = {"textcoords": "offset points", "fontsize": 8.5, "color": styles.text_color(color)}
    ax.annotate(text, (x, y), xytext=(8, -16), **style)

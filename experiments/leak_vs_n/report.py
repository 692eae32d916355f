"""Tables and the figure of the cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drjax.core import streamed
from drjax.core.statistics import Interval, percentile_interval, resampled, share_interval
from drjax.reports import plots, styles
from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.leak_vs_n import law, releases
from experiments.markdown import markdown_table

FIGURE = "leak_vs_n.png"
"""Name of the figure."""

RESAMPLES = 2000
"""Resamples of the targets, of which an interval of a median is made."""

LEAST_SHOWN = 1e-9
"""Least share that the figure shows of PCA."""

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
    plots.save_figure(drawn, out / FIGURE)
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


def law_table(lines: Iterable[Line]) -> str:
    """One row for each series of two numbers of records or more: how errors grow with n, and by the law of PCA.

    Of PCA, and of landmarks, the numbers count that are at least four times the features.
    """
    heads = ("method", "data", "published", "records", "exponent", "by the law", "nearest record", "measured / law")
    rows = []
    for (way, data, published), own in series(lines).items():
        is_scores = way.startswith(SCORES)
        is_of_axes = is_scores or releases.WAYS[way].at_landmarks
        used = [line for line in own if not is_of_axes or line["n"] >= streamed.LEAST_SHAPE * line["d"]]
        # In float64 what is left is what the attack's own decomposition rounds.
        if len(used) < 2 or (is_scores and published == "float64"):
            continue
        m, n = min(line["targets"] for line in used), np.array([line["n"] for line in used])

        def grown(of: str, used: Sequence[Line] = used, m: int = m, n: np.ndarray = n) -> str:
            interval = law.exponent(n, np.array([line[of][:m] for line in used], np.float64))
            return "" if np.isnan(interval.estimate) else _words(interval, "{:.2f}")

        is_predicted = all("predicted" in line for line in used)
        ratios = [np.median(np.divide(line["error"], line["predicted"])) for line in used] if is_predicted else []
        rows.append(
            (
                way,
                data,
                published,
                f"{n[0]:,} to {n[-1]:,}",
                grown("error"),
                grown("predicted") if is_predicted else "",
                grown("nearest_error"),
                f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "",
            )
        )
    return markdown_table(heads, rows)


def _words(interval: Interval, form: str | None = None) -> str:
    estimate, low, high = (number(value) if form is None else form.format(value) for value in interval)
    return f"{estimate} ({low} to {high})"


def figure(lines: Sequence[Line]) -> Figure:
    """Error left by the number of records: PCA of two data sets with the law, maps, and what places records singly."""
    found = series(lines)
    shown = Figure(figsize=(styles.WIDTH, 7.4), layout="constrained")
    panels = shown.subplots(2, 2).ravel()
    data = list(dict.fromkeys(name[1] for name in found if name[0] == "PCA" and name[1] != "cifar10"))
    for ax, name in zip(panels[:2], data, strict=False):
        _scores_panel(ax, found, name)
    _others_panel(panels[2], found, "maps: mnist, float32", MAPS, (0.15, 1.3))
    _others_panel(panels[3], found, "random projection and landmarks: mnist, float32", PROJECTIONS, (1e-10, 3.0))
    for ax in panels[::2]:
        ax.set_ylabel("error left, share of the mean record's (median)", fontsize=8.5)
    for ax in panels:
        ax.set_xlabel("records in the release, n", fontsize=8.5)
    return shown


def rounding_figure(lines: Sequence[Line]) -> Figure:
    """Error left of PCA by the records times the squared step of rounding: one curve for each data set."""
    shown = Figure(figsize=(styles.WIDTH, 3.6), layout="constrained")
    panels, found = shown.subplots(1, 2, sharey=True), series(lines)
    for ax, data in zip(panels, dict.fromkeys(name[1] for name in found), strict=True):
        _axes(ax, f"PCA: {data}", (1e-3, 1.6))
        for i, published in enumerate(dict.fromkeys(name[2] for name in found if name[1] == data)):
            own = found["PCA", data, published]
            squared = 10.0 ** (-2 * (releases.PUBLISHED[published][1] or 0))
            x = [line["n"] * squared for line in own]
            _points(ax, own, styles.SERIES[i], "os^D"[i], x)
            _label(ax, x[0], float(np.median(shares(own[0]))), published, styles.SERIES[i], (8, -16))
            lawful = [(at, line) for at, line in zip(x, own, strict=True) if "predicted" in line]
            law_ends = [at for at, _ in lawful], [np.median(shares(line, "predicted")) for _, line in lawful]
            ax.plot(*law_ends, "--", color=styles.SERIES[i], linewidth=1)
        _label(ax, ax.get_xlim()[1], ax.get_ylim()[0], LAW, styles.FAINT, (-4, 6), align="right")
        ax.set_xlabel("records times the squared step of rounding", fontsize=8.5)
    panels[0].set_ylabel("error left, share of the mean record's (median)", fontsize=8.5)
    return shown


def _scores_panel(ax: Axes, found: dict[tuple[str, str, str], list[Line]], data: str) -> None:
    exact = found["PCA", data, "float32"]
    _axes(ax, f"PCA: {data}, {exact[0]['d']} features", (LEAST_SHOWN, 3.0))
    for i, published in enumerate(("3 decimals", "float32")):
        own = found.get(("PCA", data, published), [])
        color = styles.SERIES[i]
        if own:
            at = own[-min(3, len(own))]
            _points(ax, own, color, "os"[i])
            _label(ax, at["n"], float(np.median(shares(at))), published, color, (2, -15))
        lawful = [line for line in own if "predicted" in line]
        n = [line["n"] for line in lawful]
        ax.plot(n, [np.median(shares(line, "predicted")) for line in lawful], "--", color=color, linewidth=1.2)
    if any("predicted" in line for line in exact):
        _label(ax, exact[0]["n"], LEAST_SHOWN, LAW, styles.FAINT, (0, 6))
    nearest, second = _baseline(ax, exact), min(1, len(exact) - 1)
    # Below the line where that is near the mean record's.
    offset = (0, -13) if nearest[second] > 0.5 else (0, 5)
    _label(ax, exact[second]["n"], nearest[second], "nearest record", styles.FAINT, offset)


def _others_panel(
    ax: Axes,
    found: dict[tuple[str, str, str], list[Line]],
    title: str,
    ways: Sequence[str],
    limits: tuple[float, float],
) -> None:
    own = {name[0]: lines for name, lines in found.items() if name[1:] == ("mnist", "float32")}
    _axes(ax, title, limits)
    is_long = limits[0] < 0.01
    for i, way in enumerate(way for way in ways if len(own.get(way, [])) > 1):
        color, last = styles.SERIES[(2, 3, 5, 6)[i]], own[way][-1]
        rounded = found.get((way, "mnist", "3 decimals"), [])
        shown = [float(np.median(shares(line))) for line in rounded]
        ax.plot([line["n"] for line in rounded], shown, "^vDP"[i], color=color, markersize=7, fillstyle="none")
        _points(ax, own[way], color, "^vDP"[i])
        at = float(np.median(shares(last)))
        # On a long axis all that is near the mean record's lies together.
        if at < 0.5 or not is_long:
            _label(ax, last["n"], at, way, color, (0, 7), align="right")
    if not is_long:
        ax.set_yticks([0.2, 0.5, 1.0], ["0.2", "0.5", "1"])
        ax.minorticks_off()
    if "PCA" in own:
        most = max((own[way][-1]["n"] for way in ways if way in own), default=0)
        nearest = _baseline(ax, [line for line in own["PCA"] if line["n"] <= most] or own["PCA"][:1])
        if is_long:
            text = "near 1: the other three; grey: nearest record"
            _label(ax, most, nearest[-1], text, styles.FAINT, (0, -16), align="right")
        else:
            _label(ax, own["PCA"][0]["n"], nearest[0], "nearest record", styles.FAINT, (8, 2))


def _axes(ax: Axes, title: str, limits: tuple[float, float]) -> None:
    styles.style_axes(ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(*limits)
    ax.set_title(title, fontsize=9.5, color=styles.INK)
    ax.axhline(1, color=styles.FAINT, linewidth=0.8, linestyle=":")


def _points(ax: Axes, own: Sequence[Line], color: str, marker: str, at: Sequence[float] | None = None) -> None:
    n, found = at or [line["n"] for line in own], [median(shares(line)) for line in own]
    estimate = np.array([one.estimate for one in found])
    reach = np.array([[one.estimate - one.low, one.high - one.estimate] for one in found]).T
    ax.errorbar(n, estimate, reach, fmt=f"{marker}-", color=color, markersize=4, linewidth=1.2, capsize=2)


def _baseline(ax: Axes, own: Sequence[Line]) -> list[float]:
    nearest = [float(np.median(shares(line, "nearest_error"))) for line in own]
    ax.plot([line["n"] for line in own], nearest, "-", color=styles.BASELINE, linewidth=2)
    return nearest


def _label(
    ax: Axes, n: float, share: float, name: str, color: str, offset: tuple[int, int], *, align: str = "left"
) -> None:
    ax.annotate(name, (n, share), xytext=offset, textcoords="offset points", ha=align, fontsize=8, color=color)

"""Tables and figures 2 to 6 of paper 001, with sound curators and stronger attacks beside them.

python -m experiments.pca_membership.private_report --results experiments/pca_membership/results
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from drjax.defenses.dp_pca import PAPER, PUBLIC
from drjax.reports import records, styles
from experiments import drawings
from experiments.pca_membership import private_tables
from experiments.pca_membership.crossing import crossing
from experiments.pca_membership.private import NONE, RESULTS
from experiments.pca_membership.private_tables import LABELS, Cells, interval

COLORS = dict(zip(LABELS, styles.SERIES, strict=False))
CONVENTIONS = {PAPER: "as printed", PUBLIC: "public bounds"}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
INFINITY = 10.0
"""How far beyond the largest epsilon the point without noise stands, as a factor."""


def draw_components(cells: Cells, convention: str, gaussian: str) -> Figure:
    """Figure 2: AUC over k under a Gaussian mechanism and under the vector query, a line for each epsilon."""
    rows = (gaussian, "laplace_vector")
    figure, axes = _grid(len(rows), cells.names)
    for row, curator in enumerate(rows):
        ends: list[styles.End] = []
        for ax, name in zip(axes[row], cells.names, strict=True):
            free = cells.main(name, NONE, convention)
            ends = [_drawn_end(ax, free["k"], free["points"][0]["auc"], styles.INK, "no noise")]
            cell = cells.main(name, curator, convention)
            points = [p for p in cell["points"] if row == 0 or p["epsilon"] in _decades(cell)]
            for point, color in zip(points, styles.ordered(len(points)), strict=True):
                label = f"ε = {_number(point['epsilon'])}"
                ends.append(_drawn_end(ax, cell["k"], point["auc"], color, label, band=True))
        styles.label_ends(axes[row][-1], ends)
        styles.name_axes(axes[row][0], y=f"{LABELS[curator]}\nAUC")
    figure.supxlabel("components, k", fontsize=9, color=styles.INK)
    return figure


def draw_ratio(cells: Cells) -> Figure:
    """The counterpart of figure 2 for the likelihood ratio (solid) beside the reconstruction error (dashed)."""
    rows = ("analytic_gauss", "laplace_vector")
    figure, axes = _grid(len(rows), cells.names, sharey="none")
    for row, curator in enumerate(rows):
        for ax, name in zip(axes[row], cells.names, strict=True):
            found = [c for c in cells.all if (c["data"], c["curator"], c["attack"]) == (name, curator, "ratio")]
            ends = []
            for cell, color in zip(found, styles.ordered(len(found)), strict=True):
                point = cell["points"][0]
                label = f"ε = {_number(point['epsilon'])}"
                ends.append(_drawn_end(ax, cell["k"], point["auc"], color, label, band=True))
                ax.plot(cell["k"], point["reconstruction"]["mean"], color=color, linestyle="--", linewidth=1)
            styles.label_ends(ax, ends, size=8)
        styles.name_axes(axes[row][0], y=f"{LABELS[curator]}\nAUC")
    note = "components, k (solid: likelihood ratio with noisy shadows; dashed: reconstruction error)"
    figure.supxlabel(note, fontsize=9, color=styles.INK)
    return figure


def draw_laplace(cells: Cells) -> Figure:
    """Figure 3: AUC at the best k over epsilon of the Laplace curators; dotted where figure 4 has the crossing."""
    curators = ("laplace_vector", "laplace_scalar", "laplace_advanced")
    figure, axes = _grid(2, cells.names)
    for row, convention in enumerate(CONVENTIONS):
        ends: list[styles.End] = []
        for ax, name in zip(axes[row], cells.names, strict=True):
            free, ends = np.array(cells.main(name, NONE, convention)["points"][0]["best"]), []
            found = [cells.main(name, curator, convention) for curator in curators]
            for curator, cell in zip(curators, found, strict=True):
                values = [*(np.array(p["best"]) for p in cell["points"]), free]
                epsilons = [p["epsilon"] for p in cell["points"]]
                _over_epsilon(ax, epsilons, values, curator)
                ends.append(_curator_end(epsilons[-1] * INFINITY, values[-2], curator))
            ends.append(styles.End(ends[0].x, interval(free)[0], "no noise (×)", styles.INK))
            at = crossing(found[-1]["d"] * (found[-1]["d"] + 1) // 2, 1 / found[-1]["n"])
            ax.axvline(at, color=styles.FAINT, linestyle=":")
            _epsilon_axis(ax, [p["epsilon"] for p in found[-1]["points"]])
        styles.label_ends(axes[row][-1], ends)
        styles.name_axes(axes[row][0], y=f"{CONVENTIONS[convention]}\nAUC at the best k")
    note = "ε (dotted: where naive and advanced composition add the same noise)"
    figure.supxlabel(note, fontsize=9, color=styles.INK)
    return figure


def draw_region(cells: Cells) -> Figure:
    """Figure 4: epsilon and number of queries at which naive composition adds less noise than advanced."""
    figure, ((ax,),) = styles.panels(width=styles.WIDTH * 0.75, height=3.6)
    delta = 1 / max(cells.main(name, NONE, PAPER)["n"] for name in cells.names)
    queries = np.unique(np.geomspace(1, 1e6, 200).astype(int))
    edge = np.array([crossing(int(n), delta) for n in queries])
    ax.fill_between(queries, np.maximum(edge, 1e-1), 1e7, color=styles.ORANGE, alpha=0.2, linewidth=0)
    ax.plot(queries[edge > 0], edge[edge > 0], color=styles.INK)
    for i, name in enumerate(cells.names):
        cell = cells.main(name, NONE, PAPER)
        alpha = cell["d"] * (cell["d"] + 1) // 2
        here = crossing(alpha, 1 / cell["n"])
        ax.plot([alpha], [here], "o", color=styles.SERIES[i])
        # Two of the points are close together: every other name stands on the other side of the line.
        place: dict[str, Any] = {"xytext": (8, -10)} if i % 2 else {"xytext": (-8, 4), "ha": "right"}
        text = f"{name}: α = {alpha:,}, ε = {here:,.0f}"
        color = styles.text_color(styles.SERIES[i])
        ax.annotate(text, (alpha, here), textcoords="offset points", fontsize=8.5, color=color, **place)
    styles.label(ax, 1.5, 1e6, "naive composition adds less noise", styles.ORANGE)
    styles.label(ax, 5e5, 1, "advanced adds less", styles.INK, ha="right")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1, 1e6)
    ax.set_ylim(1e-1, 1e7)
    styles.name_axes(ax, "coefficients, α", f"ε, at δ = {_number(delta)}")
    return figure


def draw_utility(cells: Cells) -> Figure:
    """Figure 5: captured energy over epsilon."""
    return _draw_utility(cells, lambda ax, cell, curator, _: _utility_over_epsilon(ax, cell, curator))


def draw_tradeoff(cells: Cells) -> Figure:
    """Figure 6: captured energy over AUC at the best k; the cross is without noise."""
    return _draw_utility(cells, _utility_over_auc)


def draw_stronger(cells: Cells) -> Figure:
    """AUC of three adversaries over epsilon, under the ceiling of the guarantee; public bounds, replace-one."""
    figure, axes = _grid(2, cells.names)
    for row, family in enumerate((("analytic_gauss", "analyze_gauss_tight"), ("laplace_vector",))):
        ends: list[styles.End] = []
        for ax, name in zip(axes[row], cells.names, strict=True):
            found = [c for c in cells.all if c["data"] == name and c["curator"] in family]
            ratios = [c["points"][0] for c in found if c["attack"] == "ratio"]
            games = [p for c in found if c["attack"] == "informed" for p in c["points"]]
            x = [p["epsilon"] for p in ratios]
            series = [("reconstruction error", [p["reconstruction"]["best"] for p in ratios])]
            series.append(("likelihood ratio", [p["best"] for p in ratios]))
            ends = []
            for (label, values), color in zip(series, styles.SERIES, strict=False):
                means, halves = np.array([interval(v) for v in values]).T
                ax.errorbar(x, means, halves, color=color, marker="o", markersize=3, capsize=2)
                ends.append(styles.End(x[-1], means[-1], label, color))
            x = [p["epsilon"] for p in games]
            for published, style in (("scatter", "-"), ("components", "--")):
                shown = [(p["epsilon"], p[published]) for p in games if published in p]
                if not shown:
                    continue
                centre = np.array([g["auc"] for _, g in shown])
                reach = np.array([[g["auc"] - g["low"], g["high"] - g["auc"]] for _, g in shown]).T
                options: dict[str, Any] = {"color": styles.SERIES[2], "linestyle": style, "marker": "s", "capsize": 2}
                ax.errorbar([e for e, _ in shown], centre, reach, markersize=3, **options)
                seen = "the matrix" if published == "scatter" else "components (dashed)"
                ends.append(styles.End(shown[-1][0], centre[-1], f"knows all but one,\nsees {seen}", styles.SERIES[2]))
            # No lines: between these epsilons the ceilings are elsewhere.
            alone: dict[str, Any] = {"color": styles.INK, "linestyle": "none"}
            ax.plot(x, [p["ceiling"] for p in games], marker="_", markersize=14, **alone)
            ax.plot(x, [p["promised"] for p in games], marker="^", markersize=4, **alone)
            ax.set_xscale("log")
            ax.set_ylim(0.45, 1.03)
        # The last column has every adversary.
        edge = max(end.x for end in ends)
        styles.label_ends(axes[row][-1], [end._replace(x=edge) for end in ends], size=8)
        styles.name_axes(axes[row][0], y=("Gaussian" if row == 0 else "Laplace vector query") + "\nAUC")
    note = "ε (bars: the ceiling of the guarantee; triangles: the ceiling of (ε, δ) alone)"
    figure.supxlabel(note, fontsize=9, color=styles.INK)
    return figure


def _draw_utility(
    cells: Cells, draw: Callable[[Axes, Mapping[str, Any], str, Mapping[str, Any]], styles.End]
) -> Figure:
    shown = {
        PAPER: ("analyze_gauss", "laplace_vector", "laplace_scalar", "laplace_advanced"),
        PUBLIC: tuple(LABELS),
    }
    figure, axes = _grid(2, cells.names)
    for row, (convention, curators) in enumerate(shown.items()):
        ends: list[styles.End] = []
        for ax, name in zip(axes[row], cells.names, strict=True):
            free = cells.main(name, NONE, convention)["points"][0]
            ends = [draw(ax, cells.main(name, curator, convention), curator, free) for curator in curators]
            ax.set_ylim(-0.03, 1.05)
        # At one place, so that they do not overlap.
        edge = max(end.x for end in ends)
        styles.label_ends(axes[row][-1], [end._replace(x=edge) for end in ends], size=8)
        styles.name_axes(axes[row][0], y=f"{CONVENTIONS[convention]}\ncaptured energy, q")
    return figure


def _utility_over_epsilon(ax: Axes, cell: Mapping[str, Any], curator: str) -> styles.End:
    epsilons = [p["epsilon"] for p in cell["points"]]
    means, halves = np.array([interval(p["utility"]) for p in cell["points"]]).T
    styles.band(ax, epsilons, means, means - halves, means + halves, COLORS[curator], marker="o", markersize=2.5)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator([1e-2, 1, 1e2, 1e4, 1e6]))
    ax.xaxis.set_minor_locator(NullLocator())
    styles.name_axes(ax, "ε")
    return styles.End(epsilons[-1], means[-1], textwrap.fill(LABELS[curator], 16), COLORS[curator])


def _utility_over_auc(ax: Axes, cell: Mapping[str, Any], curator: str, free: Mapping[str, Any]) -> styles.End:
    auc = [interval(p["best"])[0] for p in cell["points"]]
    q = [interval(p["utility"])[0] for p in cell["points"]]
    ax.plot(auc, q, color=COLORS[curator], marker="o", markersize=2.5, linewidth=1)
    ax.plot([interval(free["best"])[0]], [1], "x", color=styles.INK, markersize=5)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    styles.name_axes(ax, "AUC at the best k")
    return styles.End(auc[-1], q[-1], textwrap.fill(LABELS[curator], 16), COLORS[curator])


def _grid(rows: int, names: Sequence[str], *, sharey: Literal["col", "none"] = "col") -> tuple[Figure, np.ndarray]:
    """Axes (rows, data sets), the data sets' names above."""
    width = styles.WIDTH * max(1.0, len(names) / 3.4)
    figure, axes = styles.panels(rows, len(names), width=width, height=2.5 * rows + 0.4, sharey=sharey)
    for ax, name in zip(axes[0], names, strict=True):
        styles.title(ax, name)
    return figure, axes


def _drawn_end(
    ax: Axes, k: Sequence[int], auc: Mapping[str, Any], color: str, label: str, *, band: bool = False
) -> styles.End:
    """Draws AUC over k; returns the end and its name."""
    shown = styles.few(len(k))
    at, mean, half = (np.array(values)[shown] for values in (k, auc["mean"], auc["half"]))
    if band:
        styles.band(ax, at, mean, mean - half, mean + half, color, alpha=0.1)
    else:
        ax.plot(at, mean, "--", color=color)
    return styles.End(at[-1], mean[-1], label, color)


def _curator_end(x: float, best: np.ndarray, curator: str) -> styles.End:
    return styles.End(x, interval(best)[0], LABELS[curator], COLORS[curator])


def _over_epsilon(ax: Axes, epsilons: Sequence[float], values: Sequence[np.ndarray], curator: str) -> None:
    """Means with intervals over epsilon, the last of the values without noise, apart."""
    means, halves = np.array([interval(v) for v in values]).T
    x = [*epsilons, epsilons[-1] * INFINITY]
    style: dict[str, Any] = {"color": COLORS[curator], "marker": "o", "markersize": 2.5, "linewidth": 1.2}
    ax.errorbar(x[:-1], means[:-1], halves[:-1], **style)
    ax.errorbar(x[-1:], means[-1:], halves[-1:], color=styles.INK, marker="x", markersize=5)


def _epsilon_axis(ax: Axes, epsilons: Sequence[float]) -> None:
    ax.set_xscale("log")
    powers = [p for p in range(-1, 8, 2) if epsilons[0] <= 10.0**p <= epsilons[-1] / 5]
    ticks = [*(10.0**p for p in powers), epsilons[-1] * INFINITY]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.set_xticks(ticks, [*(f"$10^{{{p}}}$" for p in powers), "∞"])
    ax.xaxis.set_minor_locator(NullLocator())


def _decades(cell: Mapping[str, Any]) -> set[float]:
    return {p["epsilon"] for p in cell["points"] if math.log10(p["epsilon"]).is_integer()}


def _number(value: float) -> str:
    if 0.01 <= value < 1000:
        return f"{value:g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    lead, power = value / 10.0**exponent, f"10{str(exponent).translate(RAISED)}"
    return power if abs(lead - 1) < 1e-6 else f"{lead:.2g}·{power}"


FIGURES: dict[str, Callable[[Cells], Figure]] = {
    "figure2": lambda cells: draw_components(cells, PAPER, "analyze_gauss"),
    "figure2-sound": lambda cells: draw_components(cells, PUBLIC, "analytic_gauss"),
    "figure2-ratio": draw_ratio,
    "figure3": draw_laplace,
    "figure4": draw_region,
    "figure5": draw_utility,
    "figure6": draw_tradeoff,
    "stronger": draw_stronger,
}


def drawn(results: Path) -> dict[str, Figure]:
    """The figures by their names.

    Args:
        results: Folder of `private.jsonl`.
    """
    cells = _cells(results)
    return {name: draw(cells) for name, draw in FIGURES.items()}


def _cells(results: Path) -> Cells:
    return Cells([r for r in records.read_records(results / RESULTS) if r["kind"] == "attack"])


def main(*, results: Path) -> None:
    """Writes private_tables.md and the figures beside the results.

    Args:
        results: Folder of `private.jsonl`.
    """
    records.atomic_write_text(results / "private_tables.md", private_tables.every_table(_cells(results)))
    drawings.save(drawn(results), results)


if __name__ == "__main__":
    tyro.cli(main)

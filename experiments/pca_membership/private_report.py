"""Tables and figures 2 to 6 of paper 001, with sound curators and stronger attacks beside them.

python -m experiments.pca_membership.private_report --results experiments/pca_membership/results
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from drjax.defenses.dp_pca import PAPER, PUBLIC
from drjax.reports import plots, records, styles
from experiments.pca_membership import private_tables
from experiments.pca_membership.crossing import crossing
from experiments.pca_membership.private import NONE, RESULTS
from experiments.pca_membership.private_tables import LABELS, Cells, interval

COLORS = dict(zip(LABELS, styles.SERIES, strict=False))
CONVENTIONS = {PAPER: "as printed", PUBLIC: "public bounds"}
INFINITY = 10.0
"""How far beyond the largest epsilon the point without noise stands, as a factor."""


def draw_components(cells: Cells, convention: str, gaussian: str) -> Figure:
    """Figure 2: AUC over k under a Gaussian mechanism and under the vector query, a line for each epsilon."""
    rows = (gaussian, "laplace_vector")
    figure, axes = _grid(len(rows), cells.names)
    for row, curator in enumerate(rows):
        for ax, name in zip(axes[row], cells.names, strict=True):
            free = cells.main(name, NONE, convention)
            ax.plot(free["k"], free["points"][0]["auc"]["mean"], color="black", linestyle="--", label="no noise")
            cell = cells.main(name, curator, convention)
            points = [p for p in cell["points"] if row == 0 or p["epsilon"] in _decades(cell)]
            for point, color in zip(points, styles.SERIES, strict=False):
                _band(ax, cell["k"], point["auc"], color, f"ε = {_number(point['epsilon'])}")
        axes[row][0].set_ylabel(f"{LABELS[curator]}\nAUC")
        handles, labels = axes[row][-1].get_legend_handles_labels()
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "borderaxespad": 0}
        axes[row][-1].legend(handles, labels, fontsize=7, **beside)
    for ax in axes[-1]:
        ax.set_xlabel("components, k")
    return figure


def draw_ratio(cells: Cells) -> Figure:
    """The counterpart of figure 2 for the likelihood ratio (solid) beside the reconstruction error (dashed)."""
    rows = ("analytic_gauss", "laplace_vector")
    figure, axes = _grid(len(rows), cells.names, sharey="none")
    for row, curator in enumerate(rows):
        for ax, name in zip(axes[row], cells.names, strict=True):
            found = [c for c in cells.all if (c["data"], c["curator"], c["attack"]) == (name, curator, "ratio")]
            for cell, color in zip(found, styles.SERIES, strict=False):
                point = cell["points"][0]
                _band(ax, cell["k"], point["auc"], color, f"ε = {_number(point['epsilon'])}")
                ax.plot(cell["k"], point["reconstruction"]["mean"], color=color, linestyle="--", linewidth=1)
            ax.legend(fontsize=6, loc="best")
        axes[row][0].set_ylabel(f"{LABELS[curator]}\nAUC")
    for ax in axes[-1]:
        ax.set_xlabel("components, k")
    figure.suptitle("solid: likelihood ratio with noisy shadows; dashed: reconstruction error", fontsize=9)
    return figure


def draw_laplace(cells: Cells) -> Figure:
    """Figure 3: AUC at the best k over epsilon of the Laplace curators; dotted where figure 4 has the crossing."""
    curators = ("laplace_vector", "laplace_scalar", "laplace_advanced")
    figure, axes = _grid(2, cells.names)
    for row, convention in enumerate(CONVENTIONS):
        for ax, name in zip(axes[row], cells.names, strict=True):
            free = np.array(cells.main(name, NONE, convention)["points"][0]["best"])
            for curator in curators:
                cell = cells.main(name, curator, convention)
                values = [*(np.array(p["best"]) for p in cell["points"]), free]
                epsilons = [p["epsilon"] for p in cell["points"]]
                _over_epsilon(ax, epsilons, values, curator)
            ax.axvline(crossing(cell["d"] * (cell["d"] + 1) // 2, 1 / cell["n"]), color=styles.FAINT, linestyle=":")
            _epsilon_axis(ax, epsilons)
        axes[row][0].set_ylabel(f"{CONVENTIONS[convention]}\nAUC at the best k")
    _legend_top(figure, axes[0][0])
    return figure


def draw_region(cells: Cells) -> Figure:
    """Figure 4: epsilon and number of queries at which naive composition adds less noise than advanced."""
    figure = Figure(figsize=(styles.WIDTH * 0.62, 3.4), layout="constrained")
    ax = figure.subplots()
    delta = 1 / max(cells.main(name, NONE, PAPER)["n"] for name in cells.names)
    queries = np.unique(np.geomspace(1, 1e6, 200).astype(int))
    edge = np.array([crossing(int(n), delta) for n in queries])
    ax.fill_between(queries, np.maximum(edge, 1e-1), 1e7, color="#ddcc77", alpha=0.7, label="naive adds less noise")
    ax.plot(queries[edge > 0], edge[edge > 0], color=styles.INK)
    for name, color in zip(cells.names, styles.SERIES, strict=False):
        cell = cells.main(name, NONE, PAPER)
        alpha = cell["d"] * (cell["d"] + 1) // 2
        here = crossing(alpha, 1 / cell["n"])
        label = f"{name}: α = {alpha:,}, ε = {here:,.0f}"
        ax.plot([alpha], [here], "o", color=color, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1, 1e6)
    ax.set_ylim(1e-1, 1e7)
    ax.set_xlabel("coefficients, α")
    ax.set_ylabel(f"ε, at δ = {_number(delta)}")
    ax.legend(fontsize=7, loc="lower right")
    styles.style_axes(ax)
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
        for ax, name in zip(axes[row], cells.names, strict=True):
            found = [c for c in cells.all if c["data"] == name and c["curator"] in family]
            ratios = [c["points"][0] for c in found if c["attack"] == "ratio"]
            games = [p for c in found if c["attack"] == "informed" for p in c["points"]]
            x = [p["epsilon"] for p in ratios]
            series = [("reconstruction error", [p["reconstruction"]["best"] for p in ratios])]
            series.append(("likelihood ratio", [p["best"] for p in ratios]))
            for (label, values), color in zip(series, styles.SERIES, strict=False):
                means, halves = np.array([interval(v) for v in values]).T
                ax.errorbar(x, means, halves, color=color, marker="o", markersize=3, capsize=2, label=label)
            x = [p["epsilon"] for p in games]
            for published, style in (("scatter", "-"), ("components", "--")):
                shown = [(p["epsilon"], p[published]) for p in games if published in p]
                if not shown:
                    continue
                centre = np.array([g["auc"] for _, g in shown])
                ends = np.array([[g["auc"] - g["low"], g["high"] - g["auc"]] for _, g in shown]).T
                label = f"knows all but one, sees {'the matrix' if published == 'scatter' else 'components'}"
                options: dict[str, Any] = {"color": styles.SERIES[2], "linestyle": style, "marker": "s", "capsize": 2}
                ax.errorbar([e for e, _ in shown], centre, ends, markersize=3, label=label, **options)
            # No lines: between these epsilons the ceilings are elsewhere.
            ends = {"color": "black", "linestyle": "none"}
            ax.plot(x, [p["ceiling"] for p in games], marker="_", markersize=14, label="ceiling", **ends)
            ax.plot(
                x, [p["promised"] for p in games], marker="^", markersize=4, label="ceiling of (ε, δ) alone", **ends
            )
            ax.set_xscale("log")
            ax.set_ylim(0.45, 1.03)
        axes[row][0].set_ylabel(("Gaussian" if row == 0 else "Laplace vector query") + "\nAUC")
    for ax in axes[-1]:
        ax.set_xlabel("ε")
    _legend_top(figure, axes[0][-1], columns=3)
    return figure


def _draw_utility(cells: Cells, draw: Callable[[Axes, Mapping[str, Any], str, Mapping[str, Any]], None]) -> Figure:
    shown = {
        PAPER: ("analyze_gauss", "laplace_vector", "laplace_scalar", "laplace_advanced"),
        PUBLIC: tuple(LABELS),
    }
    figure, axes = _grid(2, cells.names)
    for row, (convention, curators) in enumerate(shown.items()):
        for ax, name in zip(axes[row], cells.names, strict=True):
            free = cells.main(name, NONE, convention)["points"][0]
            for curator in curators:
                draw(ax, cells.main(name, curator, convention), curator, free)
            ax.set_ylim(-0.03, 1.05)
        axes[row][0].set_ylabel(f"{CONVENTIONS[convention]}\ncaptured energy, q")
    _legend_top(figure, axes[1][0], columns=3)
    return figure


def _utility_over_epsilon(ax: Axes, cell: Mapping[str, Any], curator: str) -> None:
    epsilons = [p["epsilon"] for p in cell["points"]]
    means, halves = np.array([interval(p["utility"]) for p in cell["points"]]).T
    ax.plot(epsilons, means, color=COLORS[curator], marker="o", markersize=2.5, linewidth=1.2, label=LABELS[curator])
    ax.fill_between(epsilons, means - halves, means + halves, color=COLORS[curator], alpha=0.15, linewidth=0)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator([1e-2, 1, 1e2, 1e4, 1e6]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("ε")


def _utility_over_auc(ax: Axes, cell: Mapping[str, Any], curator: str, free: Mapping[str, Any]) -> None:
    auc = [interval(p["best"])[0] for p in cell["points"]]
    q = [interval(p["utility"])[0] for p in cell["points"]]
    ax.plot(auc, q, color=COLORS[curator], marker="o", markersize=2.5, linewidth=1, label=LABELS[curator])
    ax.plot([interval(free["best"])[0]], [1], "x", color="black", markersize=5)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel("AUC at the best k")


def _grid(rows: int, names: Sequence[str], *, sharey: Literal["col", "none"] = "col") -> tuple[Figure, np.ndarray]:
    """Axes (rows, data sets), the data sets' names above."""
    figure = Figure(figsize=(styles.WIDTH * max(1.0, len(names) / 3.4), 2.5 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, len(names), squeeze=False, sharey=sharey)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(name, fontsize=9)
    for ax in axes.ravel():
        styles.style_axes(ax)
    return figure, axes


def _band(ax: Axes, k: Sequence[int], auc: Mapping[str, Any], color: str, label: str) -> None:
    mean, half = np.array(auc["mean"]), np.array(auc["half"])
    ax.plot(k, mean, color=color, linewidth=1.2, label=label)
    ax.fill_between(k, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)


def _over_epsilon(ax: Axes, epsilons: Sequence[float], values: Sequence[np.ndarray], curator: str) -> None:
    """Means with intervals over epsilon, the last of the values without noise, apart."""
    means, halves = np.array([interval(v) for v in values]).T
    x = [*epsilons, epsilons[-1] * INFINITY]
    style: dict[str, Any] = {"color": COLORS[curator], "marker": "o", "markersize": 2.5, "linewidth": 1.2}
    ax.errorbar(x[:-1], means[:-1], halves[:-1], capsize=1.5, label=LABELS[curator], **style)
    ax.errorbar(x[-1:], means[-1:], halves[-1:], capsize=1.5, color="black", marker="x", markersize=5)


def _epsilon_axis(ax: Axes, epsilons: Sequence[float]) -> None:
    ax.set_xscale("log")
    powers = [p for p in range(-1, 8, 2) if epsilons[0] <= 10.0**p <= epsilons[-1] / 5]
    ticks = [*(10.0**p for p in powers), epsilons[-1] * INFINITY]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.set_xticks(ticks, [*(f"$10^{{{p}}}$" for p in powers), "∞"])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("ε")


def _legend_top(figure: Figure, ax: Axes, columns: int = 4) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=columns, loc="outside upper center")


def _decades(cell: Mapping[str, Any]) -> set[float]:
    return {p["epsilon"] for p in cell["points"] if math.log10(p["epsilon"]).is_integer()}


def _number(value: float) -> str:
    if 0.01 <= value < 1000:
        return f"{value:g}"
    exponent = math.floor(math.log10(value) + 1e-9)
    lead = value / 10.0**exponent
    return f"$10^{{{exponent}}}$" if abs(lead - 1) < 1e-6 else f"${lead:.2g}·10^{{{exponent}}}$"


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


def main(*, results: Path) -> None:
    """Writes private_tables.md and the figures beside the results.

    Args:
        results: Folder of `private.jsonl`.
    """
    cells = Cells([r for r in records.read_records(results / RESULTS) if r["kind"] == "attack"])
    records.atomic_write_text(results / "private_tables.md", private_tables.every_table(cells))
    for name, draw in FIGURES.items():
        plots.save_figure(draw(cells), results / f"{name}.png")


if __name__ == "__main__":
    tyro.cli(main)

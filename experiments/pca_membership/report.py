"""Table and figures of the sweep.

python -m experiments.pca_membership.report --results experiments/pca_membership/results
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from drjax.reports import plots, records, styles
from experiments.pca_membership.run import ATTACKS, RATES
from experiments.sweep import RESULTS

LABELS = {"reconstruction": "reconstruction error (paper 001)", "ratio": "likelihood ratio"}
STYLES = dict(zip(ATTACKS, ("--", "-"), strict=True))
RATE = f"{RATES[1]:g}"


def table(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row for each data set, N and attack."""
    heads = ("data", "N", "attack", "AUC at the best k", "best k", "TPR at 0.1% FPR", "TPR at 1% FPR", "trials", "s")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for cell in cells:
        row = [cell["data"], str(cell["n"]), LABELS[cell["attack"]]]
        if cell["best"] is None:
            row += [f"left out: {cell['left_out']}", *[""] * 5]
        else:
            row += [_with_half(cell["best"]), str(cell["best_k"])]
            row += [_with_half(cell["tpr"].get(f"{rate:g}")) for rate in RATES]
            row += [str(cell["trials"]), f"{cell['seconds']:.1f}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _with_half(value: Mapping[str, float] | None) -> str:
    return "" if value is None else f"{value['mean']:.3f} ± {value['half']:.3f}"


def draw_sizes(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """AUC at the best k, and TPR at 1% FPR there, over N: a column for each data set."""
    names = list(dict.fromkeys(cell["data"] for cell in cells))
    figure = Figure(figsize=(styles.WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharey="row")
    for column, name in enumerate(names):
        for attack, color in zip(ATTACKS, styles.SERIES, strict=False):
            own = [c for c in cells if (c["data"], c["attack"]) == (name, attack) and c["best"] is not None]
            for ax, values in (
                (axes[0][column], [(c["n"], c["best"]) for c in own]),
                (axes[1][column], [(c["n"], c["tpr"][RATE]) for c in own if RATE in c["tpr"]]),
            ):
                if values:
                    n, points = zip(*values, strict=True)
                    means = [point["mean"] for point in points]
                    halves = [point["half"] for point in points]
                    style: dict[str, Any] = {"color": color, "linestyle": STYLES[attack], "marker": "o"}
                    ax.errorbar(n, means, halves, markersize=4, capsize=2, label=LABELS[attack], **style)
        axes[0][column].set_title(name, fontsize=9)
        axes[1][column].set_xlabel("records, N")
        for ax in (axes[0][column], axes[1][column]):
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
            styles.style_axes(ax)
    axes[0][0].set_ylabel("AUC at the best k")
    axes[1][0].set_ylabel("TPR at 1% FPR")
    axes[0][0].set_ylim(0.45, 1.02)
    axes[1][0].set_ylim(-0.02, 1.02)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=2, loc="outside upper center")
    return figure


def draw_components(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """The paper's figure 1: AUC over k, a line for each N, both attacks; bands are 95% intervals of the mean."""
    names = list(dict.fromkeys(cell["data"] for cell in cells))
    figure = Figure(figsize=(styles.WIDTH, 2.9 * ((len(names) + 1) // 2)), layout="constrained")
    axes = figure.subplots((len(names) + 1) // 2, min(2, len(names)), squeeze=False, sharey=True).ravel()
    for ax, name in zip(axes, names, strict=False):
        sizes = sorted({cell["n"] for cell in cells if cell["data"] == name})
        for n, color in zip(sizes, styles.SERIES, strict=False):
            for cell in (c for c in cells if (c["data"], c["n"]) == (name, n) and c["best"] is not None):
                k, mean, half = (np.array(v) for v in (cell["k"], cell["auc"]["mean"], cell["auc"]["half"]))
                is_first = cell["attack"] == ATTACKS[0]
                label = f"N = {n}" if is_first else None
                ax.plot(k, mean, color=color, linestyle=STYLES[cell["attack"]], linewidth=1.2, label=label)
                ax.fill_between(k, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("components intercepted, k")
        ax.set_ylabel("AUC")
        # Where the AUC is low its lines are at the bottom.
        ax.legend(fontsize=6, loc="upper right" if ax.dataLim.y1 < 0.85 else "lower right", ncols=2)
        styles.style_axes(ax)
    for ax in axes[len(names) :]:
        ax.remove()
    figure.suptitle("dashed: reconstruction error; solid: likelihood ratio", fontsize=9)
    return figure


def main(*, results: Path) -> None:
    """Writes tables.md, sizes.png and components.png beside the results.

    Args:
        results: Folder of `results.jsonl`.
    """
    cells = [r for r in records.read_records(results / RESULTS) if r["kind"] == "attack"]
    if not cells:
        raise ValueError(f"results must hold a cell, got none in {results}")
    records.atomic_write_text(results / "tables.md", table(cells) + "\n")
    plots.save_figure(draw_sizes(cells), results / "sizes.png")
    plots.save_figure(draw_components(cells), results / "components.png")


if __name__ == "__main__":
    tyro.cli(main)

"""Table and figures of the sweep.

python -m experiments.pca_membership.report --results experiments/pca_membership/results
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from drjax.reports import records, styles
from experiments import drawings
from experiments.pca_membership.run import ATTACKS, RATES
from experiments.sweep import RESULTS

LABELS = {"reconstruction": "reconstruction error (paper 001)", "ratio": "likelihood ratio"}
STYLES = dict(zip(ATTACKS, ("--", "-"), strict=True))
RATE = f"{RATES[1]:g}"
LIMITS = (0.45, 1.02), (-0.02, 1.02)
"""Of the axes of AUC and TPR."""


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
    figure, axes = styles.panels(2, len(names), height=4.6, sharey="row")
    for column, name in enumerate(names):
        ends, edge = [], max(cell["n"] for cell in cells if cell["data"] == name and cell["best"] is not None)
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
                    ax.errorbar(n, means, halves, markersize=4, capsize=2, **style)
            if own:
                last = own[-1]
                ends.append(styles.End(edge, last["best"]["mean"], textwrap.fill(LABELS[attack], 20), color))
        styles.title(axes[0][column], name)
        for ax in axes[:, column]:
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_ylim(*LIMITS[ax is axes[1][column]])
        if column == len(names) - 1:
            styles.label_ends(axes[0][column], ends)
    styles.name_axes(axes[0][0], y="AUC at the best k")
    styles.name_axes(axes[1][0], y="TPR at 1% FPR")
    figure.supxlabel("records, N", fontsize=9, color=styles.INK)
    return figure


def draw_components(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """The paper's figure 1: AUC over k, a line for each N, a column for each attack; bands are 95% intervals."""
    names = list(dict.fromkeys(cell["data"] for cell in cells))
    figure, axes = styles.panels(len(names), len(ATTACKS), height=2.3 * len(names), sharey="row")
    for row, name in zip(axes, names, strict=True):
        sizes = sorted({cell["n"] for cell in cells if cell["data"] == name})
        colors = dict(zip(sizes, styles.ordered(len(sizes)), strict=True))
        for ax, attack in zip(row, ATTACKS, strict=True):
            own = [c for c in cells if (c["data"], c["attack"]) == (name, attack) and c["best"] is not None]
            ends = []
            for cell in own:
                shown = styles.few(len(cell["k"]))
                k, mean, half = (np.array(v)[shown] for v in (cell["k"], cell["auc"]["mean"], cell["auc"]["half"]))
                styles.band(ax, k, mean, mean - half, mean + half, colors[cell["n"]])
                ends.append(styles.End(k[-1], mean[-1], f"N = {cell['n']:,}", colors[cell["n"]]))
            styles.title(ax, f"{name}: {LABELS[attack]}")
            edge = max(end.x for end in ends)
            styles.label_ends(ax, [end._replace(x=edge) for end in ends], size=8)
        styles.name_axes(row[0], y="AUC")
    figure.supxlabel("components intercepted, k", fontsize=9, color=styles.INK)
    return figure


def drawn(results: Path) -> dict[str, Figure]:
    """The figures by their names.

    Args:
        results: Folder of `results.jsonl`.
    """
    cells = _cells(results)
    return {"sizes": draw_sizes(cells), "components": draw_components(cells)}


def _cells(results: Path) -> Sequence[Mapping[str, Any]]:
    cells = [r for r in records.read_records(results / RESULTS) if r["kind"] == "attack"]
    if not cells:
        raise ValueError(f"results must hold a cell, got none in {results}")
    return cells


def main(*, results: Path) -> None:
    """Writes tables.md, sizes.svg and components.svg beside the results.

    Args:
        results: Folder of `results.jsonl`.
    """
    records.atomic_write_text(results / "tables.md", table(_cells(results)) + "\n")
    drawings.save(drawn(results), results)


if __name__ == "__main__":
    tyro.cli(main)

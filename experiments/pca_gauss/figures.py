"""Figures 1 and 2 of paper 002, and Adult against MST and AIM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from drjax.reports import styles
from experiments.pca_gauss import practice, theory

Line = Mapping[str, Any]

METRIC_NAMES = {"silhouette": "silhouette coefficient", "accuracy": "accuracy", "rmse": "root mean square error"}


def drawn(lines: Sequence[Line]) -> dict[str, Figure]:
    """Names and figures of what the results hold."""
    found = {}
    swept = [line for line in lines[1:] if line.get("table") == "dimensions" and line["kind"] != "curve"]
    if swept:
        found["figure1"] = draw_dimensions(lines, swept)
    for line in lines[1:]:
        if line["kind"] == "curve":
            found["figure2"] = draw_sir(line)
    compared = [line for line in lines[1:] if line.get("table") == "adult"]
    if compared:
        found["adult"] = draw_practice(compared)
    return found


def draw_dimensions(lines: Sequence[Line], swept: Sequence[Line]) -> Figure:
    """Figure 1: utility over the number of components, a line for each epsilon; bars are 95% intervals of the mean."""
    names = list(dict.fromkeys(line["data"] for line in swept))
    figure, axes = styles.panels(1, len(names), height=3.4)
    epsilons = sorted({line["epsilon"] for line in swept})
    has_printed = False
    for ax, name in zip(axes[0], names, strict=True):
        own, ends = [line for line in swept if line["data"] == name], []
        for epsilon, color in zip(epsilons, styles.ordered(len(epsilons)), strict=True):
            for method in dict.fromkeys(line["method"] for line in own):
                chosen = [line for line in own if (line["method"], line["epsilon"]) == (method, epsilon)]
                if not chosen:
                    continue
                is_printed = method.endswith("printed")
                has_printed |= is_printed
                ax.errorbar(
                    [line["p"] for line in chosen], [line["mean"] for line in chosen],
                    [line["half"] for line in chosen], color=color, linestyle="--" if is_printed else "-",
                    marker="o", markersize=3, capsize=2, linewidth=1.2,
                )  # fmt: skip
                if not is_printed:
                    ends.append(styles.End(chosen[-1]["p"], chosen[-1]["mean"], f"ε = {epsilon:g}", color))
        for line in lines[1:]:
            if (line.get("data"), line.get("method"), line.get("k")) == (name, "real", own[0]["k"]):
                styles.level(ax, line["mean"], "real data")
        styles.log_x(ax, sorted({line["p"] for line in own}))
        styles.title(ax, own[0]["shown"] + (f", k = {own[0]['k']}" if own[0]["k"] else ""))
        styles.name_axes(ax, y=METRIC_NAMES[own[0]["metric"]])
        styles.label_ends(ax, ends)
    note = "components, p" + (" (dashed: as printed, no guarantee)" if has_printed else "")
    figure.supxlabel(note, fontsize=9, color=styles.INK)
    return figure


def draw_sir(line: Line) -> Figure:
    """Figure 2: gain in sensitivity over loss of information."""
    curves = theory.sir_curves(np.asarray(line["singular_values"]))
    figure, ((ax,),) = styles.panels(width=0.75 * styles.WIDTH, height=3.4)
    for (name, values), color, style in zip(curves.items(), styles.SERIES, styles.LINE_STYLES, strict=False):
        ax.loglog(np.arange(1, len(values) + 1), values, color=color, linestyle=style)
        is_below = values[1] < 1
        y = 0.7 * values.min() if is_below else 1.7 * values[1]
        styles.label(ax, 2.2, y, f"sensitivity of {name}", color, va="top" if is_below else "bottom")
    ax.axhline(1, color=styles.BASELINE, linewidth=0.8)
    ax.set_ylim(bottom=0.05)
    styles.name_axes(
        ax, f"components, p ({line['shown']}, m = {line['d']})", "gain in sensitivity\nover loss of information"
    )
    return figure


def draw_practice(lines: Sequence[Line]) -> Figure:
    """Accuracy of logistic regression over the error of two-way marginals, a point for each method and p."""
    figure, ((ax,),) = styles.panels(width=0.8 * styles.WIDTH, height=3.8)
    named = [line for line in lines if line["method"] in practice.RELEASES]
    for method, color in zip(practice.RELEASES, styles.SERIES, strict=False):
        own = [line for line in named if line["method"] == method]
        if not own:
            continue
        x, y = ([line["measures"][m] for line in own] for m in ("two_way", "logistic"))
        ax.errorbar(
            [v["mean"] for v in x], [v["mean"] for v in y], xerr=[v["half"] for v in x], yerr=[v["half"] for v in y],
            color=color, marker="o", markersize=4, capsize=2, linewidth=0.8,
        )  # fmt: skip
        # Points of one method are close together: its name stands at the least p alone.
        for line, a, b in zip(own, x, y, strict=True):
            text = f"p = {line['p']}" if line["p"] is not None else practice.LABELS[method]
            if line["p"] == min((line["p"] or 0) for line in own) and line["p"] is not None:
                text = f"{practice.LABELS[method]}, {text}"
            side, dx = ("right", -6) if method == "pca-gauss" else ("left", 6)
            ax.annotate(
                text, (a["mean"], b["mean"]), textcoords="offset points", xytext=(dx, 3), ha=side, fontsize=8,
                color=styles.text_color(color),
            )  # fmt: skip
    for line in lines:
        if line["method"] in ("real", "majority"):
            style = "--" if line["method"] == "real" else ":"
            level = line["measures"]["logistic"]["mean"]
            styles.level(ax, level, practice.LABELS[line["method"]], x=1, ha="right", linestyle=style)
    styles.name_axes(ax, "total variation of two-way marginals (0: as in the real records)", "accuracy on real records")
    return figure

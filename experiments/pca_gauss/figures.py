"""Figures 1 and 2 of paper 002, and Adult against MST and AIM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from drjax.reports import styles
from experiments.pca_gauss import practice, theory

Line = Mapping[str, Any]

METRIC_NAMES = {"silhouette": "silhouette coefficient", "accuracy": "accuracy", "rmse": "root mean square error"}


def drawn(lines: Sequence[Line]) -> dict[str, Figure]:
    """File names and figures of what the results hold."""
    found = {}
    swept = [line for line in lines[1:] if line.get("table") == "dimensions" and line["kind"] != "curve"]
    if swept:
        found["figure1.png"] = draw_dimensions(lines, swept)
    for line in lines[1:]:
        if line["kind"] == "curve":
            found["figure2.png"] = draw_sir(line)
    compared = [line for line in lines[1:] if line.get("table") == "adult"]
    if compared:
        found["adult.png"] = draw_practice(compared)
    return found


def draw_dimensions(lines: Sequence[Line], swept: Sequence[Line]) -> Figure:
    """Figure 1: utility over the number of components, a line for each epsilon; bars are 95% intervals of the mean."""
    names = list(dict.fromkeys(line["data"] for line in swept))
    figure = Figure(figsize=(styles.WIDTH, 3.4), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    epsilons = sorted({line["epsilon"] for line in swept})
    for ax, name in zip(axes, names, strict=True):
        own = [line for line in swept if line["data"] == name]
        for epsilon, color in zip(epsilons, styles.SERIES, strict=False):
            for method in dict.fromkeys(line["method"] for line in own):
                chosen = [line for line in own if (line["method"], line["epsilon"]) == (method, epsilon)]
                if not chosen:
                    continue
                is_printed = method.endswith("printed")
                label = None if is_printed else f"epsilon {epsilon:g}"
                ax.errorbar(
                    [line["p"] for line in chosen], [line["mean"] for line in chosen],
                    [line["half"] for line in chosen], color=color, linestyle="--" if is_printed else "-",
                    marker="o", markersize=3, capsize=2, linewidth=1.2, label=label,
                )  # fmt: skip
        for line in lines[1:]:
            if (line.get("data"), line.get("method"), line.get("k")) == (name, "real", own[0]["k"]):
                ax.axhline(line["mean"], color=styles.BASELINE, linestyle=":", label="real data")
        if any(line["method"].endswith("printed") for line in own):
            ax.plot([], [], color=styles.FAINT, linestyle="--", label="as printed, no guarantee")
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        shown = sorted({line["p"] for line in own})
        ax.set_xticks(shown, [str(p) for p in shown], fontsize=7)
        ax.set_title(own[0]["shown"] + (f", k = {own[0]['k']}" if own[0]["k"] else ""), fontsize=9)
        ax.set_xlabel("components, p")
        ax.set_ylabel(METRIC_NAMES[own[0]["metric"]])
        ax.legend(fontsize=7)
        styles.style_axes(ax)
    return figure


def draw_sir(line: Line) -> Figure:
    """Figure 2: gain in sensitivity over loss of information."""
    curves = theory.sir_curves(np.asarray(line["singular_values"]))
    figure = Figure(figsize=(0.6 * styles.WIDTH, 3.2), layout="constrained")
    ax = figure.subplots()
    for (name, values), color, style in zip(curves.items(), styles.SERIES, styles.LINE_STYLES, strict=False):
        ax.loglog(np.arange(1, len(values) + 1), values, color=color, linestyle=style, label=name)
    ax.axhline(1, color=styles.BASELINE, linewidth=0.8)
    ax.set_xlabel(f"components, p ({line['shown']}, m = {line['d']})")
    ax.set_ylabel("gain in sensitivity\nover loss of information")
    ax.legend(fontsize=7, title="sensitivity of", title_fontsize=7)
    styles.style_axes(ax)
    return figure


def draw_practice(lines: Sequence[Line]) -> Figure:
    """Accuracy of logistic regression over the error of two-way marginals, a point for each method and p."""
    figure = Figure(figsize=(0.7 * styles.WIDTH, 3.6), layout="constrained")
    ax = figure.subplots()
    named = [line for line in lines if line["method"] in practice.RELEASES]
    for method, color in zip(practice.RELEASES, styles.SERIES, strict=False):
        own = [line for line in named if line["method"] == method]
        if not own:
            continue
        x, y = ([line["measures"][m] for line in own] for m in ("two_way", "logistic"))
        ax.errorbar(
            [v["mean"] for v in x], [v["mean"] for v in y], xerr=[v["half"] for v in x], yerr=[v["half"] for v in y],
            color=color, marker="o", markersize=4, capsize=2, linewidth=0.8, label=practice.LABELS[method],
        )  # fmt: skip
        # Their points are close together: one's names go to the left, the other's to the right.
        side, dx = ("right", -6) if method == "pca-gauss" else ("left", 6)
        for line, a, b in zip(own, x, y, strict=True):
            if line["p"] is not None:
                ax.annotate(f"p = {line['p']}", (a["mean"], b["mean"]), textcoords="offset points", xytext=(dx, 3),
                            ha=side, fontsize=7, color=styles.FAINT)  # fmt: skip
    for line in lines:
        if line["method"] in ("real", "majority"):
            level = line["measures"]["logistic"]["mean"]
            style = "--" if line["method"] == "real" else ":"
            ax.axhline(level, color=styles.BASELINE, linestyle=style, label=practice.LABELS[line["method"]])
    ax.set_xlabel("total variation of two-way marginals")
    ax.set_ylabel("accuracy on real records")
    ax.legend(fontsize=7)
    styles.style_axes(ax)
    return figure

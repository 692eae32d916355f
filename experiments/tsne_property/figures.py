"""Figures of the cells and of the maps behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drjax.attacks.property.grad_cam import grad_cam
from drjax.attacks.property.groups import LEVELS
from drjax.attacks.property.models import PropertyModel
from drjax.dr import TSNE
from drjax.reports import styles
from experiments.tsne_property import cells, data
from experiments.tsne_property.extractors import TUNABLE
from experiments.tsne_property.map_sets import FINE_TUNED, Store, Wanted
from experiments.tsne_property.run import Config, Plan, sizes
from experiments.tsne_property.tables import CHANCE, PAPER, Record, constant_error, defended, grouped, summary

NAMES = {"descriptors": "coordinates: descriptors", "set": "coordinates: network", "picture": "picture: network"}
NAMES |= {"densenet": "picture: DenseNet-121", "mean": "reference: mean embedding"}
SHOWN = ("", "E-N 1*STD", "E-N 2*STD", "C-N 2%*STD", "C-N 5%*STD")


def scores(found: Sequence[Record]) -> Figure:
    """The paper's figures 1 and 2: accuracy and error of every property, by attack, with 95% intervals."""
    own = [cell for cell in found if cell.get("part") in ("main", "properties")]
    props = list(dict.fromkeys(cell["test"]["prop"] for cell in own))
    figure = Figure(figsize=(styles.WIDTH, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    for ax, task, field in ((upper, "classification", "accuracy"), (lower, "regression", "error")):
        for i, (attack, name) in enumerate(NAMES.items()):
            by_prop = grouped(
                [c for c in own if (c["attack"], c["task"]) == (attack, task)], lambda cell: cell["test"]["prop"]
            )
            if by_prop:
                values = {prop: summary(some, field) for prop, some in by_prop.items()}
                x = np.array([props.index(prop) for prop in values]) + 0.15 * (i - 2)
                mean = np.array([value.mean for value in values.values()])
                ends = np.array([(value.low, value.high) for value in values.values()]).T
                reach = np.maximum(np.stack([mean - ends[0], ends[1] - mean]), 0)
                ax.errorbar(x, mean, reach, fmt="os^vD"[i], color=styles.SERIES[i], capsize=2, markersize=5, label=name)
        column = 0 if task == "classification" else 1
        paper = [(i, PAPER[prop][column]) for i, prop in enumerate(props) if prop in PAPER]
        if paper:
            ax.plot(*zip(*paper, strict=True), "_", color=styles.INK, markersize=26, label="paper")
        ax.set_xticks(range(len(props)), props)
        ax.set_xlim(-0.5, len(props) - 0.5)
        styles.style_axes(ax)
    upper.axhline(CHANCE, color=styles.BASELINE, linestyle="--", linewidth=1)
    lower.axhline(constant_error(found), color=styles.BASELINE, linestyle="--", linewidth=1)
    upper.set_ylabel("accuracy of five classes")
    lower.set_ylabel("mean absolute error")
    upper.set_ylim(0, 1.02)
    lower.set_ylim(0, None)
    upper.plot([], [], color=styles.BASELINE, linestyle="--", linewidth=1, label="chance; always 0.5")
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=3, loc="outside upper center")
    return figure


def defences(found: Sequence[Record]) -> Figure:
    """Tables 5 and 6: error under every defence, adaptive or not, and what the maps are still worth."""
    rows = defended(found[1:])
    figure = Figure(figsize=(styles.WIDTH, 3.6), layout="constrained")
    ax, worth = figure.subplots(1, 2, sharey=True)
    for i, (kind, marker) in enumerate((("not adaptive", "o"), ("adaptive", "s"))):
        points = [(summary(kinds[kind], "error"), y) for y, kinds in enumerate(rows.values()) if kind in kinds]
        for j, (value, y) in enumerate(points):
            reach = [[value.mean - value.low], [value.high - value.mean]]
            label = kind if j == 0 else None
            ax.errorbar([value.mean], [y], xerr=reach, fmt=marker, color=styles.SERIES[i], capsize=2, label=label)
    ax.axvline(constant_error(found), color=styles.BASELINE, linestyle="--", linewidth=1, label="always 0.5")
    ax.set_yticks(range(len(rows)), [name or "none" for name in rows])
    ax.invert_yaxis()
    ax.set_xlabel("mean absolute error of the attack")
    ax.legend(fontsize=7)
    for i, measure in enumerate(("trustworthiness", "knn_preservation")):
        values = [np.mean([c[measure] for c in kinds.get("utility", [])] or [np.nan]) for kinds in rows.values()]
        worth.plot(values, range(len(rows)), "o^"[i], color=styles.SERIES[i + 2], label=measure.replace("_", " "))
    worth.set_xlabel("utility of the map")
    worth.legend(fontsize=7)
    for panel in (ax, worth):
        styles.style_axes(panel)
    return figure


def means(store: Store, config: Config) -> Figure:
    """Figures 5 and 6: mean embeddings of plots by our own t-SNE, and one plot at share 0.5 with its colours."""
    figure = Figure(figsize=(styles.WIDTH, 4.2 * len(config.main)), layout="constrained")
    axes = figure.subplots(len(config.main), 2, squeeze=False)
    for (left, right), prop in zip(axes, config.main, strict=True):
        wanted = first_seed(config, prop, "target", "classification")
        five = store.get(wanted)
        found = cells.mean_embeddings(store, wanted, five)
        method = TSNE(perplexity=min(30.0, (len(found) - 1) / 3))
        coords = np.asarray(method.fit_transform(jax.random.key(0), found.astype(np.float32)).coords)
        for i, level in enumerate(LEVELS):
            own = five.proportions == level
            left.scatter(*coords[own].T, s=8, color=styles.SERIES[i], label=f"{level:g}")
        left.legend(fontsize=7, title="share", title_fontsize=7)
        left.set_title(f"{prop}: mean embeddings of {len(found)} plots", fontsize=9)
        _coloured(right, five.at((0.5,), 1), data.case(prop).has_property)
        right.set_title(f"{prop}: one plot at share 0.5", fontsize=9)
        _bare(left)
    return figure


def maps(store: Store, config: Config) -> Figure:
    """Figures 4 and 11: plots of three shares, and of one share under the defences that the paper calls successful."""
    figure = Figure(figsize=(styles.WIDTH, 3.6), layout="constrained")
    axes = figure.subplots(2, len(SHOWN))
    prop, flags = config.main[0], data.case(config.main[0]).has_property
    classes, wanted = (first_seed(config, prop, "target", task) for task in cells.TASKS)
    for ax, level in zip(axes[0], LEVELS, strict=True):
        coords = store.get(classes).at((level,), 1).coords[0]
        ax.scatter(*coords.T, s=1, color=styles.INK)
        ax.set_title(f"share {level:g}", fontsize=8)
        _bare(ax)
    for ax, name in zip(axes[1], SHOWN, strict=True):
        _coloured(ax, store.get(dataclasses.replace(wanted, defence=name)).at((0.5,), 1), flags)
        ax.set_title(name or "no defence", fontsize=8)
    return figure


def more_maps(store: Store, config: Config) -> Figure | None:
    """Figures 10 and 13: maps at share 0.5, coloured, of other numbers of points and by fine-tuned networks.

    None where the run has made none of them.
    """
    plain = first_seed(config, config.main[0], "target", "regression")
    shown = {f"{n} points": dataclasses.replace(plain, n=n) for n in sorted({*config.densities, config.n})}
    tuned = {"prop": plain.prop, "extractor": FINE_TUNED + TUNABLE}
    shown |= {f"{p}, fine-tuned": dataclasses.replace(plain, **tuned | {"prop": p}) for p in config.fine_tuned}
    made = {title: wanted for title, wanted in shown.items() if store.holds(wanted)}
    if len(made) < 2:
        return None
    figure = Figure(figsize=(styles.WIDTH, 1.9), layout="constrained")
    axes = figure.subplots(1, len(made), squeeze=False)[0]
    for ax, (title, wanted) in zip(axes, made.items(), strict=True):
        _coloured(ax, store.get(wanted).at((0.5,), 1), data.case(wanted.prop).has_property)
        ax.set_title(title, fontsize=7)
    return figure


def attention(store: Store, config: Config) -> Figure | None:
    """Figure 3: plots of five shares and, below, where the network on pictures looks; None where none was trained."""
    cell = next(one for one in Plan(config).parts["picture"]() if isinstance(one, cells.Cell))
    if not cells.model_file(store, cell).is_file():
        return None
    model = PropertyModel.load(cells.model_file(store, cell))
    tried = store.get(cell.test).at(LEVELS, 1)
    pictures = cells.drawn(tried.coords, config.picture.network.size)
    heat = grad_cam(model, pictures)
    said = model.predict(pictures).proportion
    figure = Figure(figsize=(styles.WIDTH, 3.6), layout="constrained")
    axes = figure.subplots(2, len(LEVELS))
    for i, level in enumerate(tried.proportions):
        axes[0][i].imshow(pictures[i], cmap="gray", vmin=0, vmax=255)
        axes[1][i].imshow(pictures[i], cmap="gray", vmin=0, vmax=255)
        axes[1][i].imshow(heat[i], cmap="inferno", alpha=0.6, vmin=0, vmax=1)
        axes[0][i].set_title(f"share {level:g}, said {said[i]:g}", fontsize=8)
        _bare(axes[0][i])
        _bare(axes[1][i])
    return figure


def first_seed(config: Config, prop: str, side: str, task: str) -> Wanted:
    """The first seed's maps of a property."""
    fields = {"side": side, "n": config.n, **sizes(config, side, task)}
    return Wanted(prop=prop, extractor=config.extractor, seed=0, **fields)


def _coloured(ax: Axes, made: Any, flags: np.ndarray) -> None:
    coords, has = made.coords[0], flags[made.rows[0]]
    for value, color in ((True, styles.SERIES[0]), (False, styles.SERIES[3])):
        ax.scatter(*coords[has == value].T, s=2, color=color)
    _bare(ax)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])

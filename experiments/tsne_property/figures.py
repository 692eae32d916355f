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
from experiments.tsne_property.tables import CHANCE, PAPER, Record, constant_error, defended, summary

NAMES = {"descriptors": "coordinates: descriptors", "set": "coordinates: network", "picture": "picture: network"}
NAMES |= {"densenet": "picture: DenseNet-121", "mean": "reference: mean embedding"}
MEASURES = {"trustworthiness": "trustworthiness", "knn_preservation": "neighbours kept"}
SHOWN = ("", "E-N 1*STD", "E-N 2*STD", "C-N 2%*STD", "C-N 5%*STD")


def scores(found: Sequence[Record]) -> Figure:
    """The paper's figures 1 and 2: accuracy and error of every property, by attack, with 95% intervals."""
    own = [cell for cell in found if cell.get("part") in ("main", "properties")]
    props = list(dict.fromkeys(cell["test"]["prop"] for cell in own))
    attacks = [name for name in NAMES if any(cell["attack"] == name for cell in own)]
    figure, axes = styles.panels(2, len(props), height=4.8, sharey=True, sharex="row")
    tasks = (
        ("classification", "accuracy", CHANCE, "chance"),
        ("regression", "error", constant_error(found), "always 0.5"),
    )
    for row, (task, field, anyway, words) in zip(axes, tasks, strict=True):
        for ax, prop in zip(row, props, strict=True):
            for y, attack in enumerate(attacks):
                some = [c for c in own if (c["attack"], c["task"], c["test"]["prop"]) == (attack, task, prop)]
                if some:
                    _across(ax, summary(some, field), y, styles.SERIES[y])
                else:
                    styles.label(ax, 0.5, y, "not run", styles.FAINT, fontsize=7.5, transform=ax.get_yaxis_transform())
            ax.axvline(anyway, color=styles.BASELINE, linestyle=":", linewidth=1.4, zorder=1)
            marks = [(anyway, words, styles.FAINT)]
            printed = PAPER.get(prop, (None, None))[0 if task == "classification" else 1]
            if printed is not None:
                ax.axvline(printed, color=styles.INK, linewidth=1.4, zorder=1)
                marks.append((printed, "paper", styles.INK))
            for x, text, color in marks:
                styles.label(ax, x, -0.75, text, color, ha="center", fontsize=7.5)
            ax.set_yticks(range(len(attacks)), [NAMES[name] for name in attacks])
            ax.set_ylim(len(attacks) - 0.4, -1.1)
            ax.set_xlim(0, None)
            styles.name_axes(ax, "accuracy of five classes" if task == "classification" else "mean absolute error")
            if task == "classification":
                styles.title(ax, prop)
    return figure


def defences(found: Sequence[Record]) -> Figure:
    """Tables 5 and 6: error under every defence, adaptive or not, and what the maps are still worth."""
    rows = defended(found[1:])
    figure, ((ax, worth),) = styles.panels(1, 2, height=3.8, sharey=True)
    for (kind, marker), color in zip((("not adaptive", "o"), ("adaptive", "s")), styles.SERIES, strict=False):
        points = [(summary(kinds[kind], "error"), y) for y, kinds in enumerate(rows.values()) if kind in kinds]
        for value, y in points:
            _across(ax, value, y, color, marker)
        if points:
            # Beside the largest error of its kind, where there is room.
            value, y = max(points, key=lambda point: point[0].mean)
            styles.label(ax, value.mean, y - 0.45, kind, color, ha="center")
    always = constant_error(found)
    ax.axvline(always, color=styles.BASELINE, linestyle=":", linewidth=1.4)
    styles.label(ax, always, -0.8, "always 0.5", styles.FAINT, ha="center")
    ax.set_yticks(range(len(rows)), [name or "none" for name in rows])
    ax.set_ylim(len(rows) - 0.5, -1.2)
    styles.name_axes(ax, "mean absolute error of the attack")
    for measure, marker, color in zip(("trustworthiness", "knn_preservation"), "^v", styles.SERIES[2:4], strict=True):
        values = [np.mean([c[measure] for c in kinds.get("utility", [])] or [np.nan]) for kinds in rows.values()]
        worth.plot(values, range(len(rows)), marker, color=color)
        styles.label(worth, float(values[0]), -0.8, MEASURES[measure], color, ha="center")
    worth.set_xlim(-0.03, 1.15)
    styles.name_axes(worth, "utility of the map (1: as in the records)")
    return figure


def _across(ax: Axes, value: Any, y: float, color: str, marker: str = "o") -> None:
    reach = np.maximum([[value.mean - value.low], [value.high - value.mean]], 0)
    ax.errorbar([value.mean], [y], xerr=reach, fmt=marker, color=color, capsize=2, markersize=5)


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
            left.scatter(*coords[own].T, s=8, color=styles.SERIES[i], rasterized=True, label=f"{level:g}")
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
        ax.scatter(*coords.T, s=1, color=styles.INK, rasterized=True)
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
    tuned: dict[str, Any] = {"prop": plain.prop, "extractor": FINE_TUNED + TUNABLE}
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
    fields: dict[str, Any] = {"side": side, "n": config.n, **sizes(config, side, task)}
    return Wanted(prop=prop, extractor=config.extractor, seed=0, **fields)


def _coloured(ax: Axes, made: Any, flags: np.ndarray) -> None:
    coords, has = made.coords[0], flags[made.rows[0]]
    for value, color in ((True, styles.SERIES[0]), (False, styles.SERIES[3])):
        ax.scatter(*coords[has == value].T, s=2, color=color, rasterized=True)
    _bare(ax)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])

"""Tables and figures of a run: every factor, learned attacks and inversion side by side.

    python -m experiments.informed_adversary.report --results experiments/informed_adversary/results

writes `tables.md`, `shadows.svg`, `factors.svg` and `examples-*.png` beside `results.jsonl`.
"""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure

from drjax.reports import plots, records, styles
from drjax.reports.ladder import number, percent
from experiments import drawings
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.informed_adversary.config import FACTORS
from experiments.informed_adversary.run import records_of
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS

NETWORKS = ("fast", "cifar10-fast", "notebook")
"""Recipes of RecoNN; a setting has one of them."""

Settings = dict[tuple[str, str], dict[str, Mapping[str, Any]]]

COLUMNS = {
    "mean": "mean record",
    NEAREST: "nearest neighbour",
    "ridge": "ridge",
    "quadratic": "quadratic kernel",
    "network": "RecoNN",
    INVERSION: "inversion",
}
MARKERS = dict(zip(COLUMNS, "x|v^os", strict=True))
COLORS = dict(
    zip(COLUMNS, (styles.FAINT, styles.INK, styles.ORANGE, styles.PURPLE, styles.ATTACK, styles.BEST), strict=True)
)


def by_setting(cells: Sequence[Mapping[str, Any]]) -> Settings:
    """Cells by factor and setting, then by attack, in the order of `FACTORS`; any RecoNN is called "network"."""
    found: Settings = {}
    for cell in sorted(cells, key=_place):
        name = "network" if cell["attack"] in NETWORKS else cell["attack"]
        found.setdefault((cell["factor"], cell["setting"]), {})[name] = cell
    return found


def _place(cell: Mapping[str, Any]) -> tuple[int, int]:
    factor = cell["factor"]
    return FACTORS.index(factor), cell["of"]["n_shadow"] if factor == "shadows" else 0


def to_markdown(settings: Settings) -> str:
    """One row a setting: mean squared errors and the share of targets closer than the nearest neighbour.

    The last column counts the releases of which inversion itself says that it has not explained them.
    """
    heads = ["factor", "setting", "accuracy", *COLUMNS.values(), "inversion, median", "label", "not explained"]
    rows = []
    for (factor, setting), attacks in settings.items():
        row = [factor, setting, percent(attacks["mean"]["accuracy"]) if "mean" in attacks else ""]
        row += [_error(attacks.get(name), name) for name in COLUMNS]
        inverted = attacks.get(INVERSION)
        row.append(number(inverted["scores"]["mse_median"]["estimate"]) if inverted else "")
        row.append(percent(inverted["label"]["estimate"]) if inverted else "")
        row.append(str(inverted["n_unexplained"]) if inverted else "")
        rows.append(row)
    return markdown_table(heads, rows)


def _error(cell: Mapping[str, Any] | None, name: str) -> str:
    if cell is None:
        return ""
    scores = cell["scores"]
    text = number(scores["mse"]["estimate"])
    return text if name in ("mean", NEAREST) else f"{text}, {percent(scores['success']['estimate'])}"


def scores_of_images(settings: Settings) -> str:
    """One row for each attack under DP-GD or with pictures, with the percentiles of the oracle's distances."""
    heads = ("factor", "setting", "attack", "SSIM", "KL, mean", "KL, median", "oracle at 1%, 10%, 50%")
    rows = []
    for (factor, setting), attacks in settings.items():
        if factor != "privacy" and not any("examples" in cell for cell in attacks.values()):
            continue
        for name in (n for n in COLUMNS if n in attacks):
            cell = attacks[name]
            kl = [number(cell["kl"][which]) for which in ("mean", "median")] if "kl" in cell else ["", ""]
            oracle = ", ".join(number(v) for v in cell.get("percentiles", {}).values())
            rows.append((factor, setting, COLUMNS[name], f"{cell['ssim']:.3f}", *kl, oracle))
    return markdown_table(heads, rows)


def draw_shadows(settings: Settings) -> Figure:
    """Error over the number of shadow models, beside inversion, which needs none."""
    rows = [
        (a["mean"]["of"]["n_shadow"], a)
        for (f, _), a in settings.items()
        if f in ("default", "shadows") and "mean" in a
    ]
    figure, ((ax,),) = styles.panels(height=4.0)
    kinds = {
        "RecoNN, the notebook's recipe": ("notebook", False),
        "the same at 20 and 40 epochs": ("notebook", True),
        "RecoNN, fast recipe": ("fast", False),
    }
    lines = {
        label: [(n, a["network"]) for n, a in rows if (_recipe(a), _is_short(a)) == kind]
        for label, kind in kinds.items()
    }
    for name in ("mean", NEAREST, "ridge", "quadratic"):
        lines[COLUMNS[name]] = [(n, a[name]) for n, a in rows if name in a and _recipe(a) != "notebook"]
    most, ends = max(n for n, _ in rows), []
    for (label, points), color in zip(lines.items(), styles.SERIES, strict=True):
        if points:
            points.sort(key=lambda point: point[0])
            scores = [cell["scores"]["mse"] for _, cell in points]
            middle = np.array([s["estimate"] for s in scores])
            reach = [middle - [s["low"] for s in scores], [s["high"] for s in scores] - middle]
            line = "--" if label in (COLUMNS["mean"], COLUMNS[NEAREST]) else "-"
            style: dict[str, Any] = {"linestyle": line, "color": color, "marker": "o", "markersize": 4, "capsize": 2}
            ax.errorbar([n for n, _ in points], middle, reach, **style)
            until = "" if points[-1][0] == most else f" (to {points[-1][0]:,})"
            ends.append(styles.End(most, middle[-1], textwrap.fill(label + until, 26), color))
    for _, attacks in rows:
        if INVERSION in attacks:
            # Far below the axis, which is for what shadow models do.
            error = number(attacks[INVERSION]["scores"]["mse"]["estimate"])
            place = {"transform": ax.transAxes}
            styles.label(ax, 0.02, 0.04, f"inversion, without any shadow model: {error}", styles.BEST, **place)
    styles.log_x(ax, sorted({n for n, _ in rows}))
    styles.log_y(ax)
    styles.name_axes(ax, "shadow models", "mean squared error of the target (pixels from 0 to 1)")
    styles.label_ends(ax, ends)
    return figure


def _recipe(attacks: Mapping[str, Mapping[str, Any]]) -> str:
    return attacks["network"]["attack"] if "network" in attacks else ""


def _is_short(attacks: Mapping[str, Mapping[str, Any]]) -> bool:
    # Rows of older files do not have the field.
    return "network" in attacks and attacks["network"]["of"].get("learned_epochs") is not None


def draw_factors(settings: Settings) -> Figure:
    """The median error of every attack on every setting, on one logarithmic axis."""
    shown = {key: attacks for key, attacks in settings.items() if key[0] != "shadows"}
    figure, ((ax,),) = styles.panels(height=0.8 + 0.21 * len(shown))
    for name, label in COLUMNS.items():
        points = [
            (attacks[name]["scores"]["mse_median"]["estimate"], -i)
            for i, attacks in enumerate(shown.values())
            if name in attacks
        ]
        if points:
            x, y = zip(*points, strict=True)
            ax.plot(x, y, linestyle="none", marker=MARKERS[name], color=COLORS[name], label=label, markersize=5)
    ax.set_xscale("log")
    ax.set_yticks([-i for i in range(len(shown))], [f"{f}: {s}" if f != s else f for f, s in shown], fontsize=7)
    ax.set_ylim(0.7 - len(shown), 0.7)
    styles.name_axes(ax, "mean squared error (pixels from 0 to 1), median over targets")
    # Of the figure: long names of settings leave little of its width to the axes.
    figure.legend(fontsize=8.5, ncols=len(COLUMNS), loc="outside upper center", columnspacing=1, frameon=False)
    return figure


def draw_examples(attacks: Mapping[str, Mapping[str, Any]], config: Mapping[str, Any]) -> Figure:
    """The first targets of a setting and what each attack makes of them."""
    of = next(iter(attacks.values()))["of"]
    data, parts = records_of(config, of["data"])
    x = data.x.reshape(len(data.x), -1)
    guesses, errors = {}, {}
    for name in (n for n in COLUMNS if n in attacks and n != "mean"):
        pixels = np.frombuffer(zlib.decompress(base64.b64decode(attacks[name]["examples"])), np.uint8)
        guesses[COLUMNS[name]] = pixels.reshape(-1, x.shape[1]) / 255
        # Pixels are kept as bytes: what they are off by would often be nothing.
        errors[COLUMNS[name]] = attacks[name]["errors"][: len(guesses[COLUMNS[name]])]
    shown = len(next(iter(guesses.values())))
    return plots.image_grid(x[parts.targets[:shown]], guesses, data.shape, errors=errors)


def drawn(results: Path) -> dict[str, Figure]:
    """The figures of the errors, by their names.

    Args:
        results: Folder of `results.jsonl`.
    """
    settings = by_setting([r for r in records.read_records(results / RESULTS) if r["kind"] == "attack"])
    found = {"factors": draw_factors(settings)}
    return found | ({"shadows": draw_shadows(settings)} if any(f == "shadows" for f, _ in settings) else {})


def main(*, results: Path) -> None:
    """Writes the tables and the figures.

    Args:
        results: Folder of `results.jsonl`.

    Raises:
        ValueError: no cell in the file.
        OSError: no file, or the data set of the examples is not there.
    """
    written = records.read_records(results / RESULTS)
    settings = by_setting([r for r in written if r["kind"] == "attack"])
    if not settings:
        raise ValueError(f"results must hold at least one cell, got none in {results}")
    text = f"{to_markdown(settings)}\n\n{scores_of_images(settings)}\n"
    with records.atomic_open(results / "tables.md") as file:
        file.write(text.encode())
    print(text)
    drawings.save(drawn(results), results)
    for (factor, setting), attacks in settings.items():
        if factor in ("default", "cifar10") and all("examples" in cell for cell in attacks.values()):
            name = setting.lower().replace(", ", "-").replace(" ", "-")
            plots.save_figure(draw_examples(attacks, written[0]["config"]), results / f"examples-{name}.png")


if __name__ == "__main__":
    tyro.cli(main)

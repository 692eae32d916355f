"""The privacy-utility curve of a defence: its points, its figure, its sections of the report, its table as text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drjax.attacks.metrics import AttackScores
from drjax.core import validate
from drjax.core.statistics import Interval
from drjax.reports import sections
from drjax.reports.ladder import LadderRow, bounds, number, percent
from drjax.reports.styles import ATTACK, BASELINE, BEST, FAINT, GRID, INK, SERIES, WIDTH, plain, style_axes

HEADERS = ("Scale", "Trustworthiness", "Labels right (kNN)", "Adversary", "MSE, mean", "Closer than NN", "Identified")
"""Column heads of the table, in the order of `cells`."""

READING = (
    "The adaptive adversary knows the defence and its scale: it trained on releases defended in the same way, chose "
    "the attack that does best on them and corrects its answers for what the defence does to it. The non-adaptive one, "
    "as in the paper this audit follows, attacks as if there were no defence. Whoever publishes the defence, or lets "
    "it be guessed, faces the first. Where only the second fails, ignorance protects the records and not the noise. No "
    "scale comes with a guarantee: these defences bound the influence of no record, so a better attack may undo them. "
    "A mechanism that is differentially private bounds every attack. All other sections of this report are about the "
    "release without a defence."
)
"""How a data owner reads the section."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One scale of the defence: what the release is worth and what the adversaries take from it.

    Attributes:
        scale: Scale of the defence; 0 is the undefended release.
        trustworthiness: Trustworthiness of the releases for the records without noise; unknown where it cannot be
            measured.
        knn_preservation: Share of the nearest neighbours kept, in the same releases.
        knn_accuracy: Accuracy of labels from the nearest records in the release, leave-one-out; None without labels.
        adaptive: Scores of the adversary that knows the defence.
        adaptive_label: The attack it chose.
        non_adaptive: Scores of the adversary that does not.
        status_counts: Flags of the attacked releases.
    """

    scale: float
    trustworthiness: Interval
    knn_preservation: Interval
    knn_accuracy: Interval | None
    adaptive: AttackScores
    adaptive_label: str
    non_adaptive: AttackScores
    status_counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class DefenseCurve:
    """A defence at several scales.

    Attributes:
        defense: Defence in words, e.g. "Gaussian noise on the records".
        unit: What a scale of 1 means, in words.
        points: Points by increasing scale, the first at 0.
        non_adaptive_label: The attack of the adversary that ignores the defence.
        baselines: Rows of the ladder that attack nothing.
        left_out: Attacks of the ladder that no adversary chose among, because every scale would take minutes.
        majority: Share of the largest class, what guessing labels scores; None without labels.
    """

    defense: str
    unit: str
    points: tuple[CurvePoint, ...]
    non_adaptive_label: str
    baselines: tuple[LadderRow, ...]
    left_out: tuple[str, ...] = ()
    majority: float | None = None

    def __post_init__(self) -> None:
        """Checks the order of the points."""
        scales = [point.scale for point in self.points]
        if len(scales) < 2 or scales[0] != 0 or not all(a < b for a, b in itertools.pairwise(scales)):
            raise ValueError(f"points must have increasing scales from 0, at least two, got {scales}")


def lead(curve: DefenseCurve) -> str:
    """What the curve says, in a few sentences with figures."""
    first, last = curve.points[0], curve.points[-1]
    mean = [row for row in curve.baselines if row.label.startswith("Mean")]
    guess = f" (guessing the mean record: {number(mean[0].scores.mse.estimate)})" if mean else ""
    text = (
        f"{curve.defense}, scale = {curve.unit}. Without it the strongest attack tried here has a mean squared "
        f"error of {number(first.adaptive.mse.estimate)}; at scale {last.scale:g}, the largest tried, an "
        f"adversary who knows of it still reaches {number(last.adaptive.mse.estimate)}{guess} and rebuilds "
        f"{_rebuilt(last.adaptive)} of the records more closely than the nearest known or public one and with less "
        f"than half of the mean record's error ({_rebuilt(first.adaptive)} without). "
    )
    costs = [("trustworthiness", first.trustworthiness, last.trustworthiness)]
    if first.knn_accuracy is not None and last.knn_accuracy is not None:
        costs.append(("the accuracy of labels from neighbours", first.knn_accuracy, last.knn_accuracy))
    changes = [f"{what} from {a.estimate:.3f} to {b.estimate:.3f}" for what, a, b in costs]
    text += f"It takes {' and '.join(changes)}."
    if curve.left_out:
        text += f" Not tried here, because each scale would take minutes: {', '.join(curve.left_out)}."
    return text


def cells(curve: DefenseCurve) -> list[tuple[tuple[str, ...], ...]]:
    """Rows of the table, two for each scale above 0; a cell is its figure and small print. Baselines come last."""
    rows: list[tuple[tuple[str, ...], ...]] = []
    for point in curve.points:
        scale = ("0", "undefended") if point.scale == 0 else (f"{point.scale:g}",)
        accuracy = ("no labels",) if point.knn_accuracy is None else _share(point.knn_accuracy)
        adversary = ("adaptive" if point.scale else "either", point.adaptive_label)
        rows.append((scale, _number(point.trustworthiness), accuracy, adversary, *_scores(point.adaptive)))
        if point.scale == 0:
            continue  # both are the same
        rows.append((("",), ("",), ("",), ("non-adaptive", curve.non_adaptive_label), *_scores(point.non_adaptive)))
    for row in curve.baselines:
        rows.append((("",), ("",), ("",), (row.label, "baseline"), *_scores(row.scores)))
    return rows


def alt_text(curve: DefenseCurve) -> str:
    """What the figure shows, with its figures, for readers who cannot see it."""
    said = []
    for point in curve.points:
        accuracy = "" if point.knn_accuracy is None else f", labels right {percent(point.knn_accuracy.estimate)}"
        said.append(
            f"scale {point.scale:g}: error {number(point.adaptive.mse.estimate)} adaptive, "
            f"{number(point.non_adaptive.mse.estimate)} non-adaptive, trustworthiness "
            f"{number(point.trustworthiness.estimate)}{accuracy}"
        )
    return f"Error of both adversaries, their success, and utility, by scale of the defence. {'; '.join(said)}."


def sections_of(curve: DefenseCurve, svg: bytes | Path) -> tuple[sections.Table, sections.Figure]:
    """The sections of the report: the table, and the figure `svg`."""
    guess = "" if curve.majority is None else f" Guessing the largest class gets {curve.majority:.1%} of labels right."
    rows = cells(curve)
    return (
        sections.Table(
            title="What a defence would cost, and what it would buy",
            paragraphs=(lead(curve), READING),
            caption="Small figures are 95% confidence intervals over the targets. “Closer than NN”: rebuilt more "
            f"closely than the nearest known or public record.{guess}",
            headers=HEADERS,
            rows=tuple(rows),
            text_columns=(HEADERS.index("Adversary"),),
            baselines=tuple(i for i, row in enumerate(rows) if "baseline" in row[3]),
            has_row_heads=False,  # a scale has two rows
        ),
        sections.Figure(
            title="Privacy and utility by scale of the defence",
            caption="Above: what the adversaries take back, by scale. Below left: what the release is still worth. "
            "Below right: both at once for the adaptive adversary, one point for each scale; better releases lie to "
            "the right, safer ones higher up.",
            svg=svg,
            alt=alt_text(curve),
        ),
    )


def print_curve(console: Console, curve: DefenseCurve) -> None:
    """Prints the table to a rich console."""
    table = Table(caption="Ranges are 95% confidence intervals.", caption_justify="left")
    for header in HEADERS:
        table.add_column(header, justify="left" if header == "Adversary" else "right")
    for row in cells(curve):
        style = "dim" if "baseline" in row[3] else ""
        # Text, not markup: a label may contain square brackets.
        table.add_row(*(Text("\n".join(cell), style=style) for cell in row))
    console.print(table)


def figure(curve: DefenseCurve) -> Figure:
    """Error, success and utility by scale, and error against utility; scales are evenly spaced whatever they are."""
    points = curve.points
    validate.at_least(2, **{"number of points": len(points)})
    fig = Figure(figsize=(WIDTH, 7.2), layout="constrained")
    (errors, shares), (utility, trade) = fig.subplots(2, 2)
    # Side by side: the two adversaries often do equally well.
    adversaries = (
        ("adaptive", [point.adaptive for point in points], BEST, "-", -0.05),
        ("non-adaptive", [point.non_adaptive for point in points], ATTACK, "--", 0.05),
    )
    for name, scores, color, style, shift in adversaries:
        _draw(errors, [s.mse for s in scores], color, style, "o", name, shift=shift)
        success, found = ([getattr(s, field) for s in scores] for field in ("success", "identification"))
        _draw(shares, success, color, style, "o", f"closer than NN, {name}", shift=shift)
        _draw(shares, found, color, style, "D", f"identified, {name}", is_hollow=True, shift=shift)
    _draw_baselines(errors, curve.baselines)
    _draw(utility, [point.trustworthiness for point in points], SERIES[0], "-", "o", "trustworthiness")
    _draw(utility, [point.knn_preservation for point in points], SERIES[2], "--", "s", "nearest neighbours kept")
    accuracies = [point.knn_accuracy for point in points if point.knn_accuracy is not None]
    if len(accuracies) == len(points):
        _draw(utility, accuracies, SERIES[1], "-.", "^", "labels right (kNN)")
        utility.axhline(curve.majority or 0, color=FAINT, linestyle=":", linewidth=1.2, label="largest class")
    _draw_trade(trade, curve)
    errors.set_ylabel("mean squared error", fontsize=9, color=INK)
    shares.set_ylabel("share of targets", fontsize=9, color=INK)
    utility.set_ylabel("utility", fontsize=9, color=INK)
    for ax in (errors, trade):
        ax.set_yscale("log")
    for ax in (shares, utility):
        ax.set_ylim(-0.03, 1.03)
    for ax in (errors, shares, utility):
        ax.set_xticks(range(len(points)), ["none", *(f"{point.scale:g}" for point in points[1:])])
        ax.set_xlabel("scale of the defence", fontsize=9, color=INK)
    for ax in (errors, shares, utility, trade):
        style_axes(ax)
        ax.grid(axis="y", color=GRID, linewidth=0.8)
        # Above the axes, where it covers no curve.
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=7.5, borderaxespad=0.2)
    return fig


def _draw(
    ax: Axes,
    values: Sequence[Interval],
    color: str,
    style: str,
    marker: str,
    label: str,
    *,
    is_hollow: bool = False,
    shift: float = 0.0,
) -> None:
    x = np.arange(len(values)) + shift
    estimate, low, high = (np.array(part, float) for part in zip(*values, strict=True))
    face = "white" if is_hollow else color
    ax.plot(x, estimate, style, marker=marker, color=color, markerfacecolor=face, markersize=5, label=label)
    ax.vlines(x, np.where(np.isnan(low), estimate, low), np.where(np.isnan(high), estimate, high), color=color)


def _draw_baselines(ax: Axes, rows: Sequence[LadderRow]) -> None:
    for row, style in zip(rows, ("--", ":", "-."), strict=False):
        value = row.scores.mse.estimate
        if value > 0:
            ax.axhline(
                value, color=BASELINE, linestyle=style, linewidth=1.6, label=plain(f"{row.label}: {number(value)}")
            )


def _draw_trade(ax: Axes, curve: DefenseCurve) -> None:
    accuracies = [point.knn_accuracy for point in curve.points if point.knn_accuracy is not None]
    has_labels = len(accuracies) == len(curve.points)
    useful = [v.estimate for v in (accuracies if has_labels else [p.trustworthiness for p in curve.points])]
    errors = [point.adaptive.mse.estimate for point in curve.points]
    _draw_baselines(ax, curve.baselines)
    ax.plot(useful, errors, "-", marker="o", color=BEST, markersize=5, label="adaptive adversary")
    for point, x, y in zip(curve.points, useful, errors, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            text = "none" if point.scale == 0 else f"{point.scale:g}"
            # Below the point, on white: a baseline may run through it.
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            style = {"textcoords": "offset points", "fontsize": 7.5, "color": INK, "bbox": box, "ha": "center"}
            ax.annotate(text, (x, y), xytext=(0, -13), **style)
    ax.margins(x=0.08, y=0.15)  # room for the labels
    what = "labels right (kNN)" if has_labels else "trustworthiness"
    ax.set_xlabel(f"utility: {what}", fontsize=9, color=INK)
    ax.set_ylabel("mean squared error", fontsize=9, color=INK)


def _scores(scores: AttackScores) -> tuple[tuple[str, ...], ...]:
    return (
        (number(scores.mse.estimate), bounds(scores.mse, number)),
        (percent(scores.success.estimate), bounds(scores.success, percent)),
        (percent(scores.identification.estimate), bounds(scores.identification, percent)),
    )


def _rebuilt(scores: AttackScores) -> str:
    return "n/a" if scores.gain is None else percent(scores.gain.rebuilt.estimate)


def _number(value: Interval) -> tuple[str, ...]:
    if math.isnan(value.estimate):
        return ("not measured",)
    return f"{value.estimate:.3f}", f"{value.low:.3f} to {value.high:.3f}"


def _share(value: Interval) -> tuple[str, ...]:
    if math.isnan(value.estimate):
        return ("not measured",)
    return f"{value.estimate:.1%}", f"{value.low:.1%} to {value.high:.1%}"

"""The page of an attack on one published embedding: what was taken back of each unknown record, how surely."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from drjax.reports import plots, styles
from drjax.reports.ladder import number
from drjax.reports.sections import Facts, Figure, Level, Report, Section, Table, Text, Verdict

MOST_DRAWN = 40
"""Features that the figure of intervals has room for."""

MOST_NAMED = 5
"""Features that the alternative text of the figure names."""

LEVELS: dict[str, Level] = {"reliable": "high", "partly": "high", "not reconstructed": "not shown"}

HEADLINES = {
    "reliable": "The record was taken back",
    "partly": "Part of the record was taken back",
    "not reconstructed": "The record was not taken back",
}

GLOSSARY = (
    ("reliable", "The release confirms the record, and every feature is expected to be close."),
    ("partly", "The features marked as shown are expected to be close, or nothing in the release checks the answer."),
    (
        "a likeness",
        "No feature by itself is expected to be close, but of half of them less than half of the variance is left "
        "open, so that the record as a whole may be recognised.",
    ),
    (
        "not reconstructed",
        "This attack tells no feature. That is no all-clear: another attack, more known records or another view of how "
        "the release was made may tell them.",
    ),
    ("interval", "The feature is between the two ends with a probability of 90%, if the release was made as said."),
    ("shown", "The squared error to expect is less than a tenth of what the feature varies by among records."),
)


def report(
    answers: Sequence[Mapping[str, Any]],
    *,
    usual: np.ndarray,
    range_of: tuple[float, float],
    shape: tuple[int, ...],
) -> Report:
    """The page of one or several unknown records of a release.

    Args:
        answers: Facts of each, from `drjax.attacks.answer.Answer.facts`.
        usual: Mean and standard deviation (2, d) of the records that say what to expect.
        range_of: Least and greatest value of the known records, black and white of pictures.
        shape: Shape of a record; (h, w) or (h, w, 3) are drawn as pictures.
    """
    sections: list[Section] = []
    for one in answers:
        prefix = f"Row {one['row']}: " if len(answers) > 1 else ""
        sections += _sections(one, prefix, usual, range_of, shape)
    sections.append(Facts(title="What the words mean", facts=GLOSSARY, is_glossary=True))
    return Report(
        kind="Attack on a published embedding",
        title="What the release tells of an unknown record",
        verdict=_verdict(answers),
        sections=tuple(sections),
    )


def _verdict(answers: Sequence[Mapping[str, Any]]) -> Verdict:
    """That of the record of which most was taken back."""
    worst = min(answers, key=lambda one: list(LEVELS).index(one["verdict"]))
    is_open = worst["verdict"] == "not reconstructed" and worst["why"]
    row = f"Row {worst['row']}: " if len(answers) > 1 else ""
    return Verdict(
        level="undetermined" if is_open else LEVELS[worst["verdict"]],
        headline=HEADLINES[worst["verdict"]],
        sentence=f"{row}{worst['verdict_in_words']}.",
        caveats=tuple(worst["why"]),
    )


def _sections(
    one: Mapping[str, Any], prefix: str, usual: np.ndarray, range_of: tuple[float, float], shape: tuple[int, ...]
) -> list[Section]:
    features = one["features"]
    error = "not known" if one["share"] is None else f"{number(one['share'])} of what features vary by"
    facts = (("Attack", one["attack_label"]), ("Status", ", ".join(one["status"])), ("Error to expect", error))
    made = ("As stated.",) if one["release"] is None else tuple(one["release"])
    found: list[Section] = [
        Facts(title=f"{prefix}How it was found", facts=facts),
        Text(title=f"{prefix}How the release was made", points=made),
    ]
    is_image = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
    if one["contradiction"]:
        # What is drawn, or stands in a table, is read as found.
        found.append(Text(title=f"{prefix}The record", points=(one["about_intervals"], "Its values are in the files.")))
    elif is_image:
        found.append(_pictures(features, prefix, range_of, shape))
    else:
        found.append(_drawn(features, prefix, usual))
        rows = tuple(
            (
                feature["name"],
                f"{feature['value']:.6g}",
                "not known" if feature["low"] is None else f"{feature['low']:.6g} to {feature['high']:.6g}",
                "yes" if feature["shown"] else "no",
            )
            for feature in features
        )
        headers = ("Feature", "Value", "90% interval", "Shown")
        found.append(Table(title=f"{prefix}The record", headers=headers, rows=rows, note=one["about_intervals"]))
    if one["practice_errors"]:
        points = tuple(f"{name}: {number(error)}" for name, error in one["practice_errors"].items())
        title = f"{prefix}Squared errors of attacks where the answer is known, over variance"
        found.append(Text(title=title, points=points))
    return found


def _drawn(features: Sequence[Mapping[str, Any]], prefix: str, usual: np.ndarray) -> Figure:
    """Intervals beside what records usually are, in standard deviations of each feature."""
    shown = [j for j, one in enumerate(features) if one["low"] is not None and usual[1, j] > 0][:MOST_DRAWN]
    drawing = Drawing(figsize=(styles.WIDTH, 0.8 + 0.24 * max(len(shown), 1)))
    axes = drawing.subplots()
    for place, j in enumerate(shown):
        mean, unit = usual[:, j]
        low, high, value = ((features[j][name] - mean) / unit for name in ("low", "high", "value"))
        axes.plot([-1.645, 1.645], [place, place], color=styles.GRID, linewidth=7, solid_capstyle="butt")
        axes.plot([low, high], [place, place], color=styles.INK, linewidth=2)
        axes.plot([value], [place], "o", color=styles.INK, markersize=4)
    axes.set_yticks(range(len(shown)), [styles.plain(features[j]["name"]) for j in shown])
    axes.invert_yaxis()
    axes.set_xlabel("standard deviations from the records' mean")
    styles.style_axes(axes)
    drawing.tight_layout()
    more = f" The first {len(shown)} of {len(features)} features." if len(shown) < len(features) else ""
    told = [features[j] for j in shown if features[j]["shown"]]
    named = "; ".join(f"{one['name']} {one['low']:.4g} to {one['high']:.4g}" for one in told[:MOST_NAMED])
    which = f", {'the first of them ' if len(told) > MOST_NAMED else ''}{named}" if told else ""
    return Figure(
        title=f"{prefix}How much of each feature is told",
        caption=f"Dot and dark line: the value found and its 90% interval. Light bar: where nine of ten records are. A "
        f"dark line much shorter than the bar is a feature that the release tells.{more}",
        svg=plots.svg(drawing),
        alt=f"90% intervals of {len(shown)} features, beside where nine of ten records are. The release tells "
        f"{len(told)} of them{which}.",
    )


def _pictures(
    features: Sequence[Mapping[str, Any]], prefix: str, range_of: tuple[float, float], shape: tuple[int, ...]
) -> Figure:
    """The image found, and half the width of the interval of each pixel."""
    low, high = range_of
    span = max(high - low, np.finfo(np.float64).tiny)
    value = np.array([one["value"] for one in features]).reshape(shape)
    drawing = Drawing(figsize=(styles.WIDTH / 2, styles.WIDTH / 4 * max(shape[0] / shape[1], 0.5) + 0.3))
    left, right = drawing.subplots(1, 2)
    left.imshow(np.clip((value - low) / span, 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    left.set_title("found", fontsize=9)
    widths = [math.nan if one["low"] is None else (one["high"] - one["low"]) / 2 for one in features]
    known = [width / span for width in widths if not math.isnan(width)]
    open_share = f"in the median {number(float(np.median(known)))} of the range of values" if known else "not known"
    right.imshow(np.clip(np.array(widths).reshape(shape) / span, 0, 1), cmap="gray", vmin=0, vmax=1)
    right.set_title("half the width of the interval", fontsize=9)
    for axes in (left, right):
        axes.set_xticks([])
        axes.set_yticks([])
    drawing.tight_layout()
    return Figure(
        title=f"{prefix}The record",
        caption="Left the image as it was taken back, right how far each pixel may be off, black for not at all.",
        png=plots.png(drawing),
        alt=f"The image of {shape[0]} by {shape[1]} pixels as it was taken back, and how far each may be off: "
        f"{open_share}.",
    )

"""What an audit says of something else to publish: a sentence for its verdict, a table, a figure and the commands."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from drjax.audits.report import save_figures
from drjax.decisions.audited import Audited
from drjax.decisions.found import Found, Measured
from drjax.decisions.statistics_attacks import DifferenceOfMoments, LeakIntoComponents
from drjax.decisions.usefulness import Usefulness
from drjax.releases.manifest import CHOSEN_OUTSIDE
from drjax.reports import styles
from drjax.reports.ladder import LadderRow, duration, number, percent
from drjax.reports.sections import Advice, Cell, Facts, Section, Table, Text
from drjax.reports.verdict_rule import CONCLUSIONS, deciding

TITLE = "What to publish instead"

NO_GUARANTEE = "It has no guarantee: a better attack than those that were tried may undo it."

ADAPTED = (
    "Each option was attacked by the attacks of this audit adapted to it: they have what the option publishes and all "
    "other records, measure its noise on these, and choose their settings by leaving known records out in turn."
)


def advice(found: Found) -> tuple[Advice, ...]:
    """What to do, for the verdict."""
    best = found.recommended
    if best is None:
        tried = f"None of {len(found.measured)} other things to publish that were tried"
        passes = "stays below the rule's thresholds and holds in the final check"
        if found.not_run:
            left = f"{len(found.not_run)} others were not run for lack of time: this says nothing of them."
            return (Advice(f"Instead: none found so far. {tried} {passes}. {left}"),)
        return (Advice(f"Instead: none found. {tried} {passes}. Publish no row per record of these data."),)
    if best.option.guarantee:
        return (_guaranteed(CONCLUSIONS["guaranteed"], best),)
    said = Advice(
        f"Publish instead: {_lower(best.option.label)}. It keeps {percent(best.usefulness.share)} of what this map "
        f"shows; on {_checked_on(best):,} records neither the adapted attacks nor “{found.judge.label}”, which the "
        f"search had not used, came to high exposure. {NO_GUARANTEE}",
        best.command,
    )
    if found.proven is None:
        return (said,)
    return said, _guaranteed(f"Or {_lower(CONCLUSIONS['guaranteed'])}", found.proven)


def _guaranteed(begin: str, one: Measured) -> Advice:
    assert one.ceiling is not None
    return Advice(
        f"{begin} ({one.option.guarantee}): {_lower(one.option.label)}. It keeps {percent(one.usefulness.share)} of "
        f"what this map shows. By the guarantee no attack picks the right one of {one.n_records:,} equally likely "
        f"records with more than {percent(one.ceiling)} probability (guessing: {percent(1 / one.n_records)})."
        f"{_tried(one)}",
        one.command,
    )


def _tried(one: Measured) -> str:
    """Sentence on the final check of an option with a guarantee; empty without one."""
    if not one.check:
        return ""
    first, *others = (f"“{row.label}”" for row in one.check)
    found = f"neither {first} nor {' nor '.join(others)} came" if others else f"{first} did not come"
    return f" On {_checked_on(one):,} records {found} to high exposure."


def _lower(label: str) -> str:
    return label[0].lower() + label[1:]


def sections(audited: Audited, found: Found) -> tuple[Section, ...]:
    """The sections of the report; writes the figure into the run folder."""
    folder = audited.table.parent
    drawn = save_figures(folder, [("options", figure(found), _words(found))])
    commands = Facts(
        title="Commands of the options",
        facts=tuple((one.option.label, one.command) for one in found.measured),
        is_glossary=True,
    )
    return (table(found), *drawn, commands, _how(found))


def table(found: Found) -> Table:
    """Exposure and usefulness of every option, the audited map first."""
    has_classes = math.isfinite(found.own.classes)
    heads = ["Option", "By the rule", "Error taken away", "Rebuilt", "Identified", "Usefulness"]
    heads += ["Trustworthiness", "Neighbours kept", "Visible clusters"] + ["Labels right"] * has_classes
    rows: list[tuple[Cell, ...]] = [
        (("The audited map", "for comparison"), "", "", "", "", "100%", *_figures(found.own, has_classes))
    ]
    for one in found.measured:
        rows.append(
            (
                (one.option.label, *_marks(found, one)),
                _rule(one),
                percent(one.taken),
                percent(one.rebuilt),
                percent(one.identified),
                percent(one.usefulness.share),
                *_figures(one.usefulness, has_classes),
            )
        )
    not_run = f" Not run for lack of time: {'; '.join(found.not_run)}." if found.not_run else ""
    return Table(
        title=TITLE,
        paragraphs=(
            f"{len(found.measured)} other things to publish, tried in {duration(found.seconds)} on {found.n_rows:,} of "
            f"the records each. {ADAPTED}{not_run}",
        ),
        caption="Error taken away, rebuilt and identified are those of the attack that does best in each; less is "
        "better. Usefulness is what is left of the figures behind it, above chance, on average.",
        headers=tuple(heads),
        rows=tuple(rows),
        text_columns=(1,),
    )


def so_far(measured: Sequence[Measured]) -> Table:
    """The options that have been tried while others are still to come."""
    return Table(
        title=f"{TITLE}: not finished",
        paragraphs=(f"{len(measured)} options are tried so far.",),
        headers=("Option", "By the rule", "Error taken away", "Usefulness"),
        rows=tuple((m.option.label, _rule(m), percent(m.taken), percent(m.usefulness.share)) for m in measured),
        text_columns=(1,),
    )


def figure(found: Found) -> Drawing:
    """Exposure against usefulness."""
    drawing = Drawing(figsize=(styles.WIDTH, 4.6), layout="constrained")
    ax = drawing.add_subplot()
    styles.style_axes(ax)
    for i, one in enumerate(found.measured, start=1):
        is_best = found.recommended is not None and one.option.name == found.recommended.option.name
        color = styles.BEST if is_best else styles.ATTACK
        at = (one.taken, one.usefulness.share)
        ax.plot(*at, "o", ms=9, mec=color, mfc=color if one.passes else "none", mew=1.5, zorder=3)
        if one.is_undominated:
            ax.plot(*at, "o", ms=15, mec=color, mfc="none", mew=0.8, zorder=2)
        ax.annotate(str(i), at, xytext=(8, 4), textcoords="offset points", fontsize=9, color=styles.INK)
    ax.set_xlabel("share of the guess's error that the best attack takes away")
    ax.set_ylabel("usefulness beside the audited map")
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.05, 1.1)
    return drawing


def _words(found: Found) -> tuple[str, str, str]:
    listed = "; ".join(f"{i} {one.option.label}" for i, one in enumerate(found.measured, start=1))
    described = "; ".join(
        f"{one.option.label}: {percent(one.taken)} of the error, usefulness {percent(one.usefulness.share)}"
        for one in found.measured
    )
    return (
        "Exposure and usefulness of the options",
        "Left is less exposed, up is more useful. Filled: the rule does not call it high exposure. Ringed: no other "
        f"option is as good in all. The recommended one has another colour. {listed}.",
        f"Exposure against usefulness of {len(found.measured)} options. {described}.",
    )


def _how(found: Found) -> Text:
    points = [
        "The recommended option is the most useful map of those that the rule does not call high exposure and that "
        f"hold in the final check: on up to {_most_checked(found):,} records, by the same attacks and by "
        f"“{found.judge.label}”, which the search has not used; of synthetic records by "
        f"“{DifferenceOfMoments().label}”, of components with a guarantee by “{LeakIntoComponents().label}”.",
        "The options were chosen by looking at the exposure of private records: which one is recommended tells a "
        "little of these, too.",
        "Options that leave out or merge the most exposed records were found with the table of this audit.",
        "Groups and contours, where they were tried, were attacked on what they publish and on the places that "
        "somebody works out who has the exact places of all other records. Nobody has these where the method gives "
        "another map without the unknown record: there this is more careful than it need be.",
    ]
    if any(one.option.guarantee for one in found.measured):
        points.append(
            "Options with a guarantee were attacked by their noisy mean, and in the final check by the second moments "
            "of synthetic records or by the noisy components, too; the guarantee bounds every attack. "
            "They were rehearsed: noise from a key, and the ranges of the audited records in the "
            "place of public ones, which a release asks for. What they keep of trustworthiness and neighbours is "
            f"counted above what a map keeps that knows nothing of the records. {CHOSEN_OUTSIDE}"
        )
    if found.slow:
        points.insert(
            1,
            f"Too slow for the search, and run in the final check alone, on a few records: {', '.join(found.slow)}.",
        )
    failed = [one for one in found.measured if one.held is False]
    if failed:
        listed = "; ".join(f"{one.option.label} ({_undone_by(one)})" for one in failed)
        points.insert(1, f"Passed the search and failed the final check: {listed}.")
    return Text(title="How the options were tried", points=tuple(points))


def _undone_by(one: Measured) -> str:
    by = {row.label: _by([row]) for row in one.check}
    return "; ".join(f"“{label}”: {', '.join(names)}" for label, names in by.items() if names)


def _checked_on(one: Measured) -> int:
    return max(row.scores.n_targets for row in one.check)


def _most_checked(found: Found) -> int:
    return max((_checked_on(one) for one in found.measured if one.check), default=found.n_rows)


def _rule(one: Measured) -> tuple[str, ...]:
    checked = {None: (), True: ("holds in the final check",), False: ("not the final check",)}[one.held]
    said = ("passes", *checked) if one.passes else ("high exposure", f"by {', '.join(_by(one.rows))}")
    if not one.option.guarantee:
        return said
    assert one.ceiling is not None
    return *said, f"guaranteed: {one.option.guarantee}, no attack identifies more than {percent(one.ceiling)}"


def _by(rows: Sequence[LadderRow]) -> list[str]:
    """The comparisons by which attacks mean high exposure."""
    return sorted({name for row in rows for name in deciding(row.scores)})


def _marks(found: Found, one: Measured) -> tuple[str, ...]:
    is_best = found.recommended is not None and one.option.name == found.recommended.option.name
    return ("recommended",) * is_best + ("no other is as good in all",) * one.is_undominated


def _figures(useful: Usefulness, has_classes: bool) -> tuple[str, ...]:
    values = [number(useful.trustworthiness), percent(useful.neighbors), _silhouette(useful.clusters)]
    return (*values, percent(useful.classes)) if has_classes else tuple(values)


def _silhouette(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "none seen"

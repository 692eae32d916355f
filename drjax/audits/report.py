"""The report of an audit: what was released, the attack ladder, what was measured beside it, assumptions, terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from drjax.audits import legal_terms, quality
from drjax.reports import ladder, plots, sections
from drjax.reports.ladder import LadderRow
from drjax.reports.scatter import ScatterPlot
from drjax.reports.sections import Facts, Figure, Report, Section, Table, Text, Verdict
from drjax.reports.verdict_rule import VERDICT_RULE

PRIVATE = "PRIVATE: for the owner of the records"
"""Line above a page on somebody's own records."""

LIMITATIONS = (
    "It tests the attacks in the table, not every possible one: a stronger attack may take back more.",
    "It measures averages and shares over the targets tried here. A single unusual record may be far more exposed than "
    "the average.",
    "It says nothing of what else is published beside this release, of several releases of the same data, or of "
    "adversaries with other knowledge than listed under the assumptions.",
    "It is a measurement, not a guarantee. Only a formal one, such as differential privacy, holds against attacks "
    "that nobody has thought of yet.",
)
"""What no audit of this kind can show."""

GLOSSARY = (
    (
        "Informed adversary",
        "Somebody who already holds every record but one and wants that one, the target. Few real adversaries know so "
        "much; what this one cannot take back, one who knows less cannot take back by the same attack either.",
    ),
    (
        "Release",
        "What is published: here the low-dimensional coordinates of all records, the target's among them.",
    ),
    (
        "MSE (mean squared error)",
        "How far a reconstruction is from the true record: the squared difference, averaged over all features, which "
        "are scaled to run from 0 to 1. 0 is a perfect copy; 0.01 is a typical error of a tenth of a feature's range.",
    ),
    (
        "Closer than nearest neighbour (success)",
        "The reconstruction is nearer to the target than any record that was already known or public. Where features "
        "hang together little, the mean record is that too, so it proves nothing by itself.",
    ),
    (
        "Rebuilt",
        "Closer than the nearest neighbour, and with less than half of the error that guessing the mean record makes "
        "on the same target; where the neighbour is a twin or nearly one, with less than a hundredth of that error. "
        "The release then gave away something about this target that neither looking up a similar record nor guessing "
        "the mean would.",
    ),
    (
        "Identified",
        "Shown the reconstruction and a line-up of the target and decoy records, one would pick the target, because it "
        "is the nearest. Chance is what picking blindly scores.",
    ),
    (
        "Mean record",
        "The average public record: the guess of somebody who has not seen the release. An attack that does no better "
        "has learnt nothing, so every attack is compared with it on the same targets.",
    ),
    (
        "Nearest neighbour",
        "The known or public record most similar to the target. Picking it takes knowledge of the target, so it is a "
        "yardstick and not an attack.",
    ),
    (
        "Trustworthiness, continuity, stress-1",
        "Measures of how well an embedding shows its data. The first two ask whether neighbours stay neighbours, in "
        "one direction each, and are 1 for a perfect picture; the third asks how far distances are off, and is 0 then.",
    ),
    (
        "Shadow release",
        "A practice release that the adversary computes from the known records and a public one in the target's place, "
        "to learn how releases and records go together.",
    ),
    (
        "95% confidence interval",
        "The range that the figure plausibly lies in, given that only some targets were tried.",
    ),
    (
        "Excluded",
        "Targets whose computation failed numerically. They enter no figure, and their number is always shown.",
    ),
)
"""Terms in plain words."""


def release_facts(
    *,
    method: str,
    dataset: str,
    n_records: int,
    n_features: int,
    n_components: int,
    precision: str,
    summary: str = "",
    components: str = "Published coordinates per record (k)",
) -> Facts:
    """The section that says what was released.

    Args:
        method: The DR method with its hyperparameters, in words.
        dataset: Name of the data set.
        n_records: n, rows of the release.
        n_features: d, values per record.
        n_components: k, coordinates published per record.
        precision: Dtype or rounding of the published numbers, e.g. "float32" or "rounded to 4 decimals".
        summary: Sentence on what was published; made of the numbers if empty.
        components: Words for what `n_components` counts.
    """
    counted = f"{n_components:,} number{'' if n_components == 1 else 's'}"
    made = f"For each of {n_records:,} private records, {counted} computed from its {n_features:,} features."
    return Facts(
        title="What was released",
        paragraphs=(summary or made,),
        facts=(
            ("Method", method),
            ("Data set", dataset),
            ("Precision of the published numbers", precision),
            ("Records (n)", f"{n_records:,}"),
            ("Features per record (d)", f"{n_features:,}"),
            (components, f"{n_components:,}"),
        ),
    )


def audit_report(
    *,
    title: str,
    verdict: Verdict,
    release: Facts,
    rows: tuple[LadderRow, ...],
    assumptions: tuple[str, ...],
    status_counts: Mapping[str, Mapping[str, int]],
    command: str,
    provenance: Mapping[str, Any],
    tables: tuple[Section, ...] = (),
    instead: tuple[Section, ...] = (),
    measured: tuple[Section, ...] = (),
    winner: str = "",
    limitations: tuple[str, ...] = LIMITATIONS,
    is_private: bool = False,
) -> Report:
    """The report of an audit: what every reader needs first, and details for experts behind it.

    Args:
        title: Heading of the page.
        verdict: Verdict from `ladder.verdict` on the same rows.
        release: Facts of the release, from `release_facts`.
        rows: The attack ladder with both baselines, in the order of display.
        assumptions: Sentences: who the adversary is, what they know, what was public.
        status_counts: Stage -> status name -> lanes, as `core.types.count_status` counts them.
        command: The shell command that reruns this audit.
        provenance: Where the figures come from, as `records.provenance` returns it.
        tables: Further tables, shown in front of the ladder.
        instead: Sections on other things to publish, shown before all else but the map.
        measured: Map, quality, defence and figures. The map is shown first, the quality among the details, all else
            behind the ladder.
        winner: Text on which attack was the strongest and why, from `ladder.winner`; left out if empty.
        limitations: Sentences on what the report does not show.
        is_private: Whether the records are somebody's own, so that the page is for their owner alone.

    Raises:
        ValueError: no row that is an attack.
    """
    maps = tuple(section for section in measured if isinstance(section, ScatterPlot))
    embedded = tuple(section for section in measured if section.title == quality.TITLE)
    return Report(
        kind="drjax exposure audit",
        notice=PRIVATE if is_private else "",
        title=title,
        verdict=verdict,
        sections=(
            *maps,
            *instead,
            *tables,
            ladder.section(rows, note=winner),
            *(section for section in measured if section not in (*maps, *embedded)),
            release,
            Text(title="What was assumed", points=assumptions),
            Text(title="What this report does not show", points=limitations),
            Text(title="How to rerun", code=command),
        ),
        details=(
            ladder.descriptions(rows),
            *embedded,
            Text(title="How the verdict was reached", paragraphs=(VERDICT_RULE,)),
            _status(status_counts),
            legal_terms.annex(rows),
            Facts(title="Terms", facts=GLOSSARY, is_glossary=True),
            sections.provenance(provenance),
        ),
    )


def unfinished_report(rows: Sequence[LadderRow], n_attacks: int, *, data: str, is_private: bool) -> Report:
    """The report of an audit whose attacks are not all done, with a verdict on nothing.

    Args:
        rows: Ladder so far, with an attack in it.
        n_attacks: Attacks and baselines of the whole ladder.
        data: Name of the data set.
        is_private: Whether the records are somebody's own.
    """
    return Report(
        kind="drjax exposure audit",
        notice=PRIVATE if is_private else "",
        title=f"Audit of {data}, not finished",
        verdict=Verdict(
            "undetermined",
            "Not finished",
            f"{len(rows)} of {n_attacks} attacks and baselines are done. The verdict follows when all are; this page "
            "is written anew after each.",
        ),
        sections=(ladder.section(rows), ladder.descriptions(rows)),
    )


def save_figures(folder: Path, drawings: Iterable[tuple[str, Drawing, tuple[str, str, str]]]) -> tuple[Figure, ...]:
    """Writes figures into `figures/` of a run folder, drawings as SVG and pictures as PNG; returns them as sections.

    Args:
        folder: The run folder.
        drawings: File name without its ending, figure, and its title, caption and alternative text.
    """
    path = folder / "figures"
    path.mkdir(exist_ok=True)
    figures = []
    for name, drawing, (title, caption, alt) in drawings:
        file = path / f"{name}{plots.suffix(drawing)}"
        plots.save_figure(drawing, file)
        image, svg = (None, file) if file.suffix == ".svg" else (file, None)
        figures.append(Figure(title=title, caption=caption, alt=alt, png=image, svg=svg))
    return tuple(figures)


def _status(status_counts: Mapping[str, Mapping[str, int]]) -> Table:
    return Table(
        title="Numerical status of every computation",
        caption="One computation may carry several flags. Those flagged DEGENERATE or NON_FINITE are excluded from all "
        "figures; the other flags are information.",
        headers=("Stage", "Flag: number of computations"),
        rows=tuple(
            (stage, ", ".join(f"{name}: {count:,}" for name, count in counts.items()))
            for stage, counts in status_counts.items()
        ),
        text_columns=(1,),
    )

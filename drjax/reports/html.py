"""The audit report: one self-contained HTML page that a reader without background can follow."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from drjax.reports.ladder import HEADERS, VERDICT_RULE, LadderRow, Verdict, cells, strongest
from drjax.reports.records import atomic_write_text

LIMITATIONS = (
    "It tests the attacks in the table, not every possible one: a stronger attack may take back more.",
    "It measures averages and shares over the targets tried here. A single unusual record may be far more exposed than "
    "the average.",
    "It says nothing of what else is published beside this release, of several releases of the same data, or of "
    "adversaries with other knowledge than listed under the assumptions.",
    "It is a measurement, not a guarantee. Only a formal one, such as differential privacy, holds against attacks "
    "that nobody has thought of yet.",
)
"""What no audit of this kind can show; the default of `AuditReport.limitations`."""

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
        "on the same target. The release then gave away something about this target that neither looking up a similar "
        "record nor guessing the mean would.",
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
"""Terms in plain words; the default of `AuditReport.glossary`."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, kw_only=True)
class Release:
    """What was released.

    Attributes:
        method: The DR method with its hyperparameters, in words.
        dataset: Name of the data set.
        n_records: n, rows of the release.
        n_features: d, values per record.
        n_components: k, coordinates published per record.
        precision: Dtype or rounding of the published numbers, e.g. "float32" or "rounded to 4 decimals".
        summary: What was published, in a sentence; made of the numbers if empty.
        components: What `n_components` counts.
    """

    method: str
    dataset: str
    n_records: int
    n_features: int
    n_components: int
    precision: str
    summary: str = ""
    components: str = "Published coordinates per record (k)"


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A figure: a PNG as bytes or the path of one, its alt text for readers who cannot see it, and its caption."""

    title: str
    caption: str
    png: bytes | Path
    alt: str


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of text: its title, what it shows in a sentence or two, column heads, and rows of as many cells."""

    title: str
    lead: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class QualityRow:
    """One measure of how good a release is: its name, the figure with its interval if any, and how to read it."""

    label: str
    figure: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, kw_only=True)
class ReleaseQuality:
    """How good the release is: a sentence, how to read the section, what the figures are means of, and the figures."""

    lead: str
    reading: str
    caption: str
    rows: tuple[QualityRow, ...]


@dataclass(frozen=True, kw_only=True)
class CurveSection:
    """What a defence costs and what it buys: two paragraphs, a table whose cells end in small print, and a figure."""

    lead: str
    reading: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], ...], ...]
    figure: ReportFigure


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Everything that the report page says; all text is escaped when rendered.

    Attributes:
        title: Heading of the page.
        verdict: From `ladder.verdict` on the same rows.
        release: What was released.
        rows: The attack ladder with both baselines, in the order of display.
        figures: In the order of display.
        assumptions: Sentences: who the adversary is, what they know, what was public.
        status_counts: Stage -> status name -> lanes, as `core.types.count_status` counts them.
        command: The shell command that reruns this audit.
        provenance: As `records.provenance` returns it.
        quality: How good the release is as an embedding; None where it could not be measured.
        curve: The defence at several scales; None if none was audited.
        winner: Which attack was the strongest and why, from `ladder.winner`; left out if empty.
        verdict_rule: How the verdict was reached, in words.
        limitations: What the report does not show.
        tables: Further tables, shown behind the ladder.
        glossary: (term, explanation) pairs.
    """

    title: str
    verdict: Verdict
    release: Release
    rows: tuple[LadderRow, ...]
    figures: tuple[ReportFigure, ...]
    assumptions: tuple[str, ...]
    status_counts: Mapping[str, Mapping[str, int]]
    command: str
    provenance: Mapping[str, Any]
    quality: ReleaseQuality | None = None
    curve: CurveSection | None = None
    winner: str = ""
    verdict_rule: str = VERDICT_RULE
    limitations: tuple[str, ...] = LIMITATIONS
    tables: tuple[ReportTable, ...] = ()
    glossary: tuple[tuple[str, str], ...] = GLOSSARY


def render(report: AuditReport) -> str:
    """The report as one HTML document: figures embedded, no scripts, nothing fetched from anywhere.

    Raises:
        ValueError: no row that is an attack, or a figure that is not a PNG.
    """
    best = strongest(report.rows)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("drjax.reports").joinpath("report.html.jinja").read_text("utf-8"))
    return template.render(
        report=report,
        headers=HEADERS,
        ladder=[(row, cells(row), row is best) for row in report.rows],
        figures=[(figure, _data_uri(figure)) for figure in report.figures],
        curve_uri=_data_uri(report.curve.figure) if report.curve is not None else "",
        provenance=[(name, _plain(value)) for name, value in report.provenance.items()],
    )


def write(report: AuditReport, path: Path | str) -> None:
    """Renders the report to a file, atomically: an old report stays if rendering fails.

    Raises:
        ValueError: as `render`.
    """
    atomic_write_text(path, render(report))


def _data_uri(figure: ReportFigure) -> str:
    png = figure.png if isinstance(figure.png, bytes) else figure.png.read_bytes()
    if not png.startswith(_PNG_SIGNATURE):
        raise ValueError(f"png of figure {figure.title!r} must be a PNG image, got bytes starting {png[:8]!r}")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _plain(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(entry)}" for name, entry in value.items())
    return str(value)

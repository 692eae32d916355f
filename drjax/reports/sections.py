"""What a report is made of: sections are data, and `page.render` writes them all as one HTML page.

A new kind of section is a class here and a template beside this file that extends `section.html.jinja`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

Level = Literal["high", "not shown", "undetermined"]

Cell = str | tuple[str, ...]
"""A cell of a table: text, or a figure followed by lines of small print."""


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        text: Sentences.
        command: Command that does it; empty if there is none.
    """

    text: str
    command: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a report shows, at the top of its page.

    Attributes:
        level: Exposure, or "undetermined" where nothing was tested; the colour of the box.
        headline: A few words.
        sentence: The main finding with its figures. A page folds it where `details` and `advice` stand beside it.
        caveats: Points that limit the finding.
        details: Further paragraphs behind `sentence`.
        advice: What to do, behind these.
    """

    level: Level
    headline: str
    sentence: str
    caveats: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report.

    Attributes:
        template: File that renders the section.
        is_interactive: Whether the page's script does something with it.
        title: Heading.
        paragraphs: Text below the heading, before anything else.

    Example:
        >>> from drjax.reports.sections import Section
        >>> Section(title="Who attacks", paragraphs=("Somebody who knows all records but one.",)).is_interactive
        False
    """

    template: ClassVar[str]
    is_interactive: ClassVar[bool] = False
    title: str
    paragraphs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Text(Section):
    """Paragraphs, a list of points and a block of code; each may be empty.

    Attributes:
        points: Items of the list.
        code: Code, shown as it is.
    """

    template: ClassVar[str] = "text.html.jinja"
    points: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts(Section):
    """Names with what is said of each.

    Attributes:
        facts: (name, value) pairs.
        is_glossary: Whether values are sentences, to be read one below another.
    """

    template: ClassVar[str] = "facts.html.jinja"
    facts: tuple[tuple[str, str], ...]
    is_glossary: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Section):
    """A table of text.

    Attributes:
        headers: Column heads.
        rows: Rows with one cell for each column.
        caption: Note that the reader must know of all its figures.
        note: A paragraph below the table.
        text_columns: Indices of columns of words, which are aligned to the left; the first column always is.
        strongest: Index of the row to highlight as the strongest attack; none if None.
        baselines: Indices of the rows to shade as baselines.
        has_row_heads: Whether the first cell names its row, as a heading.

    Raises:
        ValueError: a row of another length than `headers`.
    """

    template: ClassVar[str] = "table.html.jinja"
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    note: str = ""
    text_columns: tuple[int, ...] = ()
    strongest: int | None = None
    baselines: tuple[int, ...] = ()
    has_row_heads: bool = True

    def __post_init__(self) -> None:
        """Checks the number of cells."""
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"rows of {self.title!r} must have {len(self.headers)} cells each, got {len(row)}")

    @property
    def is_listing(self) -> bool:
        """Whether the table lists names and what is said of them in words, without figures."""
        return set(range(1, len(self.headers))) <= set(self.text_columns)


@dataclass(frozen=True, kw_only=True)
class Figure(Section):
    """A picture, as a PNG, or a drawing, as an SVG.

    Attributes:
        caption: What the reader sees.
        alt: Text on what the picture shows, with its figures, for readers who cannot see it.
        png: A PNG as bytes, or the path of one.
        svg: An SVG that only draws as bytes, e.g. of `plots.svg`, or the path of one.

    Raises:
        ValueError: both of `png` and `svg`, or neither.
    """

    template: ClassVar[str] = "figure.html.jinja"
    caption: str
    alt: str
    png: bytes | Path | None = None
    svg: bytes | Path | None = None

    def __post_init__(self) -> None:
        """Checks that there is one picture."""
        if (self.png is None) == (self.svg is None):
            got = "neither" if self.png is None else "both"
            raise ValueError(f"png or svg of figure {self.title!r} must be given, and not both, got {got}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a report page says; all text is escaped when rendered.

    Attributes:
        kind: What kind of report this is, above the heading.
        title: Heading of the page.
        verdict: What the report shows.
        sections: Sections in the order of display, those that every reader needs first.
        details: Sections for experts, in a part of their own behind `sections`, each closed until it is asked for.
        notice: A line above all else, e.g. who may see the page; none if empty.
        warnings: (headline, sentence) pairs at the top, before all else; a sentence may be empty.
    """

    kind: str
    title: str
    verdict: Verdict
    sections: tuple[Section, ...]
    details: tuple[Section, ...] = ()
    notice: str = ""
    warnings: tuple[tuple[str, str], ...] = ()

    @property
    def is_interactive(self) -> bool:
        """Whether the page needs its script."""
        return bool(self.details) or any(section.is_interactive for section in self.sections)


def provenance(values: Mapping[str, Any]) -> Table:
    """The section that ends a report: where its figures come from.

    Args:
        values: Facts by name, as `records.provenance` returns them.
    """
    return Table(
        title="Provenance",
        headers=("Item", "Value"),
        rows=tuple((name, _plain(value)) for name, value in values.items()),
        text_columns=(1,),
    )


def _plain(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(entry)}" for name, entry in value.items())
    return str(value)

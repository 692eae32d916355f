"""The report of a release: one self-contained HTML page for whoever holds the records, in the look of the audit's."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, TypeVar

import jinja2

from drjax.reports import records
from drjax.reports.html import ReportFigure, ReportTable

T = TypeVar("T")

Level = Literal["high", "not shown", "undetermined"]

KEEP = "DO NOT PUBLISH THIS REPORT. It is computed from the private records without noise, and no guarantee covers it."
"""First line of every report."""

_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ page.title }}</title>
{{ style }}
</head>
<body>
<header>
<p class="kicker">drjax release report</p>
<h1>{{ page.title }}</h1>
</header>
<main>
{% for warning in page.warnings %}
<section class="verdict high" role="note">
<h2>{{ warning[0] }}</h2>
{% if warning[1] %}<p class="sentence">{{ warning[1] }}</p>{% endif %}
</section>
{% endfor %}
<section class="verdict {{ page.level | replace(' ', '-') }}" aria-labelledby="summary">
<h2 id="summary">{{ page.headline }}</h2>
{% for sentence in page.summary %}
<p class="sentence">{{ sentence }}</p>
{% endfor %}
</section>

{% if page.facts %}
<section aria-labelledby="released">
<h2 id="released">What was released</h2>
<dl class="facts">
{% for name, value in page.facts %}
<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor %}
</dl>
</section>
{% endif %}

{% for table in page.tables %}
<section aria-labelledby="table-{{ loop.index }}">
<h2 id="table-{{ loop.index }}">{{ table.title }}</h2>
<p>{{ table.lead }}</p>
<div class="scroll" tabindex="0" role="region" aria-labelledby="table-{{ loop.index }}">
<table{{ ' class="left"' | safe if table.headers | length == 2 else '' }}>
<thead><tr>
{% for header in table.headers %}
<th scope="col">{{ header }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in table.rows %}
<tr><th scope="row">{{ row[0] }}</th>
{% for cell in row[1:] %}
<td>{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
{% endfor %}

{% for figure, uri in figures %}
<section aria-labelledby="figure-{{ loop.index }}">
<figure>
<h2 id="figure-{{ loop.index }}">{{ figure.title }}</h2>
<img src="{{ uri }}" alt="{{ figure.alt }}">
<figcaption>{{ figure.caption }}</figcaption>
</figure>
</section>
{% endfor %}

{% for title, sentences in page.notes %}
<section aria-labelledby="notes-{{ loop.index }}">
<h2 id="notes-{{ loop.index }}">{{ title }}</h2>
<ul>
{% for sentence in sentences %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
</section>
{% endfor %}

{% if page.command %}
<section aria-labelledby="command">
<h2 id="command">The command</h2>
<pre><code>{{ page.command }}</code></pre>
</section>
{% endif %}

<section aria-labelledby="provenance">
<h2 id="provenance">Provenance</h2>
<div class="scroll">
<table class="left">
<thead><tr><th scope="col">Item</th><th scope="col">Value</th></tr></thead>
<tbody>
{% for name, value in page.provenance.items() %}
<tr><th scope="row">{{ name }}</th><td>
{% if value is mapping %}
{% for key, entry in value.items() %}
{{ key }} {{ entry }}{{ "" if loop.last else ", " }}
{% endfor %}
{% else %}
{{ "not known" if value is none else value }}
{% endif %}
</td></tr>
{% endfor %}
</tbody>
</table>
</div>
</section>

</main>
</body>
</html>
"""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that the page says; all text is escaped when rendered.

    Attributes:
        title: Heading of the page.
        warnings: (headline, sentence) pairs at the top, before all else.
        level: Colour of the summary, as of `reports.ladder.Verdict`.
        headline: A few words.
        summary: Sentences with the main figures.
        facts: (name, value) of what was released.
        tables: In the order of display; those of two columns are texts.
        figures: Behind them, PNGs as bytes.
        notes: (title, sentences) of the sections at the end.
        command: The shell command.
        provenance: As `records.provenance` returns it.
    """

    title: str
    warnings: tuple[tuple[str, str], ...]
    level: Level
    headline: str
    summary: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[ReportTable, ...]
    figures: tuple[ReportFigure, ...]
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    command: str
    provenance: Mapping[str, Any]


def render(page: Page) -> str:
    """The page as one HTML document: figures embedded, no scripts, nothing fetched from anywhere."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_TEMPLATE).render(
        page=page, style=_style(), figures=[(figure, _data_uri(figure)) for figure in page.figures]
    )


def attempted(make: Callable[[], T]) -> tuple[T | None, str]:
    """What `make` returns and "", or None and why it failed.

    What records make fail here, a rehearsal or a report, must not decide whether they are published.
    """
    try:
        return make(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"


def or_reason(title: str, make: Callable[[], str]) -> str:
    """The page that `make` renders, or one that says why it could not be."""
    made, reason = attempted(make)
    if made is not None:
        return made
    return render(
        Page(
            title=title,
            warnings=((KEEP, ""),),
            level="undetermined",
            headline="This report could not be made. The release stands as it is.",
            summary=(reason,),
            facts=(),
            tables=(),
            figures=(),
            notes=(),
            command="",
            provenance=records.provenance(),
        )
    )


def _style() -> Any:
    """The style sheet of the audit's report: one look for all reports, kept in one place."""
    template = files("drjax.reports").joinpath("report.html.jinja").read_text("utf-8")
    _, begin, rest = template.partition("<style>")
    sheet, end, _ = rest.partition("</style>")
    # Nothing of it is a user's text.
    return jinja2.utils.markupsafe.Markup(begin + sheet + end)


def _data_uri(figure: ReportFigure) -> str:
    blob = figure.png if isinstance(figure.png, bytes) else figure.png.read_bytes()
    return "data:image/png;base64," + base64.b64encode(blob).decode()

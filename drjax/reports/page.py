"""The page of a report: one self-contained HTML document, by one template and one style sheet for all reports."""

from __future__ import annotations

import base64
import functools
from pathlib import Path

import jinja2

from drjax.reports.records import atomic_write_text
from drjax.reports.sections import Figure, Report

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def render(report: Report) -> str:
    """The report as one HTML document: figures embedded, no scripts, nothing fetched from anywhere.

    Raises:
        ValueError: a figure that is not a PNG.
    """
    return _environment().get_template("page.html.jinja").render(report=report)


def write(report: Report, path: Path | str) -> None:
    """Renders the report to a file, atomically: an old page stays if rendering fails.

    Raises:
        ValueError: as `render`.
    """
    atomic_write_text(path, render(report))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("drjax.reports", package_path=""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    return environment


def _data_uri(figure: Figure) -> str:
    png = figure.png if isinstance(figure.png, bytes) else figure.png.read_bytes()
    if not png.startswith(_PNG_SIGNATURE):
        raise ValueError(f"png of figure {figure.title!r} must be a PNG image, got bytes starting {png[:8]!r}")
    return "data:image/png;base64," + base64.b64encode(png).decode()

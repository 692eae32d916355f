"""The page of a report: one self-contained HTML document, by one template, style sheet and script for all reports."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from drjax.reports import svg
from drjax.reports.records import atomic_write_text
from drjax.reports.sections import Figure, Report

LEAST_LISTED = 3
"""Sections from which on a page has a list of contents."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def render(report: Report) -> str:
    """The report as one HTML document: figures embedded, nothing fetched from anywhere, which a policy enforces.

    The page's own script is the only one that may run; it is there if the report has something for it to do, and
    without it the page says the same.

    Raises:
        ValueError: a figure that is not a PNG or an SVG that only draws.
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
    environment.filters |= {"data_uri": _data_uri, "drawing": _drawing}
    script = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shared: dict[str, Any] = environment.globals
    shared |= {
        "least_listed": LEAST_LISTED,
        "script": Markup(script),
        "policy": Markup(
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    }
    return environment


def _data_uri(figure: Figure) -> str:
    assert figure.png is not None
    png = _content(figure.png)
    if not png.startswith(_PNG_SIGNATURE):
        raise ValueError(f"png of figure {figure.title!r} must be a PNG image, got bytes starting {png[:8]!r}")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _drawing(figure: Figure, anchor: str) -> Markup:
    assert figure.svg is not None
    try:
        return svg.inline(_content(figure.svg), prefix=anchor, label=figure.alt)
    except ValueError as error:
        raise ValueError(f"figure {figure.title!r}: {error}") from None


def _content(image: bytes | Path) -> bytes:
    return image if isinstance(image, bytes) else image.read_bytes()

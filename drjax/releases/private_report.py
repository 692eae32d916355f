"""The report of a release: for whoever holds the records, computed from them, never to be published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from drjax.releases import manifest
from drjax.reports import page, records, sections
from drjax.reports.sections import Facts, Report, Section, Text, Verdict

T = TypeVar("T")

KIND = "drjax release report"

KEEP = "DO NOT PUBLISH THIS REPORT. It is computed from the private records without noise, and no guarantee covers it."
"""First warning of every report."""

NOTHING_ELSE = (
    "Nothing else: this report, and whatever else is computed from the records, stays with whoever holds them."
)

NO_GUARANTEE = "Nothing in this folder has a guarantee: the bounds were computed from the private records."


def report(
    *,
    title: str,
    holds: bool,
    worthless: tuple[str, str] | None,
    headline: str,
    summary: tuple[str, ...],
    facts: tuple[tuple[str, str], ...],
    measured: tuple[Section, ...],
    publish: tuple[str, ...],
    reading: tuple[str, ...],
    command: str,
    seed: int,
) -> Report:
    """The report of any release.

    Args:
        title: Heading of the page.
        holds: Whether the guarantee holds: its bounds are public.
        worthless: Headline and sentence of the warning that the release is worth nothing; None where it is not known
            to be.
        headline: The verdict in a few words.
        summary: Sentences with the main figures, at least one.
        facts: (name, value) of what was released.
        measured: Tables and figures.
        publish: Files that may be published if the guarantee holds, with what to know of them, in sentences.
        reading: How to read the report, in sentences.
        command: The shell command.
        seed: Seed of the simulations.
    """
    warnings = [(KEEP, "")]
    if not holds:
        warnings.insert(0, (manifest.NOT_PRIVATE + ".", "What the figures below show is no more than a measurement."))
    if worthless is not None:
        warnings.append(worthless)
    sentence, *details = summary
    return Report(
        kind=KIND,
        title=title,
        warnings=tuple(warnings),
        verdict=Verdict(
            "not shown" if holds and worthless is None else "high", headline, sentence, details=tuple(details)
        ),
        sections=(
            Facts(title="What was released", facts=facts),
            *measured,
            Text(title="What may be published", points=(*publish, NOTHING_ELSE) if holds else (NO_GUARANTEE,)),
            Text(title="What the guarantee does not cover", points=manifest.NOT_COVERED),
            Text(title="How to read this report", points=reading),
            Text(title="The command", code=command),
            sections.provenance(records.provenance(seed)),
        ),
    )


def attempted(make: Callable[[], T]) -> tuple[T | None, str]:
    """What `make` returns and "", or None and why it failed.

    What records make fail here, a rehearsal or a report, must not decide whether they are published.
    """
    try:
        return make(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"


def page_or_reason(title: str, make: Callable[[str], Report]) -> str:
    """The page of the report that `make` returns for a title, or one that says why there is none."""
    made, reason = attempted(lambda: page.render(make(title)))
    if made is not None:
        return made
    return page.render(
        Report(
            kind=KIND,
            title=title,
            warnings=((KEEP, ""),),
            verdict=Verdict("undetermined", "This report could not be made. The release stands as it is.", reason),
            sections=(sections.provenance(records.provenance()),),
        )
    )

"""Tables of the pages, from the committed results of `experiments.plot_styles.run`.

python -m experiments.plot_styles.report styles      # every style
python -m experiments.plot_styles.report counts      # how many styles are right, refused and wrong
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from drjax.reports import records
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.plot_styles.styles import STYLES, UNSEEN
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

MOST_OFF = 0.02
"""Most by which the number of markers may be off, and share of the found ones that may be out of place."""

OUTCOMES = ("right", "refused", "wrong")
ALL_STYLES = STYLES | UNSEEN

made = Tables()
block = made.block


def to_markdown(found: Iterable[Line]) -> str:
    """A row for each style with the outcome for each map and number of records, and a count of the outcomes."""
    lines = list(found)
    columns = list(dict.fromkeys(_column(line) for line in lines))
    at = {(line["style"], *_column(line)): line for line in lines}
    rows = []
    for style in dict.fromkeys(line["style"] for line in lines):
        own = [at.get((style, *column)) for column in columns]
        rows.append((style, *("not run" if line is None else _shown(line) for line in own)))
    for title, among in (("all", ALL_STYLES), ("unseen", UNSEEN)):
        outcomes = [
            [line["outcome"] for line in lines if line["style"] in among and _column(line) == column]
            for column in columns
        ]
        counts = [", ".join(str(own.count(one)) for one in OUTCOMES) for own in outcomes]
        rows.append((f"{title}: {', '.join(OUTCOMES)}", *counts))
    short = [sum(map(is_short, (line for line in lines if _column(line) == column))) for column in columns]
    rows.append(("right, but wrong by the markers found alone", *map(str, short)))
    return markdown_table(("style", *(f"{name}, {n:,}" for name, n in columns)), rows)


def is_short(line: Line) -> bool:
    """Whether a plot that is right would be wrong if hidden markers did not count as given."""
    if line["outcome"] != "right":
        return False
    n = line["n_drawn"]
    return abs(line["n_found"] - n) > MOST_OFF * n or line["n_in_place"] < (1 - MOST_OFF) * n


def _column(line: Line) -> tuple[str, int]:
    return line["map"], line["n"]


def _shown(line: Line) -> str:
    return line["outcome"] + (f" ({line['n_given']:,})" if "n_given" in line else "")


@made
def styles() -> str:
    """Every style, and how many have which outcome."""
    return to_markdown(records.read_records(HERE / RESULTS)[1:])


@made
def counts() -> str:
    """How many styles have which outcome."""
    return counts_table(records.read_records(HERE / RESULTS)[1:])


def counts_table(lines: Sequence[Line]) -> str:
    """A row for each outcome with the number of styles for each map and number of records."""
    columns = list(dict.fromkeys(_column(line) for line in lines))
    n_styles = len({line["style"] for line in lines})
    rows = [
        (
            outcome,
            *(str(sum((*_column(line), line["outcome"]) == (*one, outcome) for line in lines)) for one in columns),
        )
        for outcome in OUTCOMES
    ]
    return markdown_table((f"of {n_styles} styles", *(f"{name}, {n:,}" for name, n in columns)), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))

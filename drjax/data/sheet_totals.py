"""Lines below the records of a table: totals and footnotes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from drjax.data import sheet_lines
from drjax.data.sheet_lines import filled, kind_of

TOTALS = frozenset(
    (
        "total", "totals", "sum", "mean", "average", "count", "grand total", "subtotal", "gesamt", "gesamtsumme",
        "summe", "durchschnitt", "mittelwert", "somme", "moyenne", "suma", "media", "totale", "totaal", "ergebnis",
        "gesamtergebnis",
    )
)  # fmt: skip
"""First cells of lines below a table that hold no record, in lower case."""

STATISTICS = frozenset(
    ("n", "anzahl", "median", "sd", "std", "std dev", "stdev", "stddev", "min", "minimum", "max", "maximum")
)
"""First cells of such lines that may be of a record too, which counts if its numbers are no such statistics."""

_SAMPLE = 200

_FOOTNOTE = re.compile(
    r"^([*†‡]|(sources?|notes?|footnotes?|legend|quellen?|anmerkung(en)?|hinweis)\s*:)", re.IGNORECASE
)


def is_footnote(rows: Sequence[Sequence[Any]], header: Sequence[str], at: int, width: int) -> bool:
    """Whether a line holds one cell of text that no record would have."""
    row = rows[at]
    j = next(j for j, cell in enumerate(row) if cell != "")
    cell, n_filled = row[j], len(filled(row))
    if width < 3 or n_filled == width or not isinstance(cell, str) or any(header[:j]):
        return False
    if _FOOTNOTE.match(cell):
        return True
    if n_filled > 1 or kind_of(cell) != "text" or is_total_name(cell):
        return False
    end = at
    while end and len(filled(rows[end - 1])) == 1:
        end -= 1
    above = rows[max(0, end - _SAMPLE) : end]
    if any(len(filled(one)) == 1 for one in above):
        return False
    # The id of a record whose other cells are missing looks like those above it.
    shapes = {sheet_lines.shape_of(one[j]) for one in above if j < len(one)}
    return not (re.search(r"\d", cell) and sheet_lines.shape_of(cell) in shapes)


def is_total(rows: Sequence[Sequence[Any]], at: int, width: int) -> bool:
    """Whether a line says so, or its numbers are the sums, means or numbers of cells above."""
    row = [*rows[at], *[""] * (width - len(rows[at]))]
    label = next(j for j, cell in enumerate(row) if cell != "")
    is_statistic = _name(row[label]) in STATISTICS
    if not is_statistic and not is_total_name(row[label]):
        if row[0] != "" or not all(above and above[0] != "" for above in rows[:at]):
            return False
        label = 0
    others = [j for j in range(len(row)) if j != label]
    if not is_statistic and (not others or sum(row[j] == "" for j in others) * 2 >= len(others)):
        return bool(others)
    end = at
    while end > 1 and _is_label(next(iter(filled(rows[end - 1])), "")):
        end -= 1
    numbers = [j for j in others if kind_of(row[j]) == "number"]
    columns = {j: [above[j] for above in rows[:end] if j < len(above)] for j in numbers}
    return bool(numbers) and any(
        all(sheet_lines.sums_up(row[j], columns[j], comma=comma, is_named=is_statistic) for j in numbers)
        for comma in (False, True)
    )


def named_within(rows: Sequence[Sequence[Any]]) -> list[int]:
    """Which of the records begin with a word for totals; none where many do, for it is a value then."""
    found = [i for i, row in enumerate(rows) if is_total_name(next(iter(filled(row)), ""))]
    return found if len(found) <= max(3, 0.05 * len(rows)) else []


def is_total_name(cell: Any) -> bool:
    """Whether a cell is a word for totals, as "Total (n = 30):"."""
    return _name(cell) in TOTALS


def _is_label(cell: Any) -> bool:
    return _name(cell) in TOTALS | STATISTICS


def _name(cell: Any) -> str:
    return re.sub(r"\s*\([^)]*\)$", "", cell.lower().strip(" :.")).strip(" :.") if isinstance(cell, str) else ""

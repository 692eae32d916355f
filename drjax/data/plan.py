"""The plan of a private table: what each column is, why, and how it becomes numbers that a method can embed.

    plan = planned(columns)                    # kinds with reasons, from the cells (drjax.data.kinds)
    encoded = plan.encode(columns)             # numbers, dates as days, categories one-hot, missing cells filled in
    plan = planned(columns, json.loads(text))  # what a person states of a column counts

A plan looks at private records and describes them: it is for an audit, which stays with the owner. What is published
under a guarantee has a `drjax.data.schema.Schema` instead, which is stated or public.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import cell_quantities, kinds, typed_numbers
from drjax.data.cell_quantities import CENSORED, COMMA
from drjax.data.kinds import ENCODED, KINDS, LEFT_OUT, PlannedColumn
from drjax.data.table_cells import Columns

STATED = ("kind", "categories", "format", "missing", "unit")
"""Keys of an entry of a plan file that count; "why" and "seen" are for the reader."""


MOST_NAMED = 40
"""Columns that a sentence names."""


LONG_RUN = 20
"""Columns in a row that are alike, from which they have one line of the plan."""


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
        values: (n, d) float64, in the units of the columns: numbers as they are, dates in days since 1970, times in
            hours, ordinals by rank, yes and categories as 0 and 1.
        names: d names of features: the column, "column=category", "column is missing", "column < limit".
        sources: d names of the columns that they come from.
        is_number: (d,), False for features that are 0 or 1 by what they mean.
        is_known: (n, d), False where a missing cell was filled in.
    """

    values: np.ndarray
    names: tuple[str, ...]
    sources: tuple[str, ...]
    is_number: np.ndarray
    is_known: np.ndarray


@dataclasses.dataclass(frozen=True)
class Plan:
    """The columns of a table in their order.

    Attributes:
        columns: One entry for each column, those that are left out among them.
    """

    columns: tuple[PlannedColumn, ...]

    def __post_init__(self) -> None:
        """Checks that something is left to embed."""
        if not self.used:
            kinds_of = ", ".join(f"{column.name!r} ({column.kind})" for column in self.columns[:10])
            way_out = "state the kind of a column in a plan file (drjax data plan)"
            if len(self.columns) == 1:
                way_out = f"if it has more than one column, save it with commas between its cells; else {way_out}"
            raise ValueError(
                f"a table must have a column of numbers, dates or categories to embed, got {kinds_of}: {way_out}"
            )

    @property
    def used(self) -> tuple[PlannedColumn, ...]:
        """Columns that become features."""
        return tuple(column for column in self.columns if column.kind in ENCODED)

    @property
    def ids(self) -> tuple[PlannedColumn, ...]:
        """Columns that tell records apart; never attacked."""
        return tuple(column for column in self.columns if column.kind == "id")

    def of(self, name: str) -> PlannedColumn:
        """The entry of a column."""
        return next(column for column in self.columns if column.name == name)

    def encode(self, table: Columns) -> Encoded:
        """The features of a table that has the columns used.

        Raises:
            ValueError: a column that is missing.
        """
        validate_names([column.name for column in self.used], table)
        found = [_encoded(column, table[column.name]) for column in self.used]
        return Encoded(
            values=np.concatenate([values for values, _, _, _ in found], axis=1),
            names=tuple(name for _, names, _, _ in found for name in names),
            sources=tuple(
                column.name for column, (_, names, _, _) in zip(self.used, found, strict=True) for _ in names
            ),
            is_number=np.concatenate([is_number for _, _, is_number, _ in found]),
            is_known=np.concatenate([is_known for _, _, _, is_known in found], axis=1),
        )

    def lines(self) -> list[tuple[str, str, str, str]]:
        """Column, kind, what becomes of it, and why, for people; long runs of columns that are alike have one line."""
        found: list[tuple[str, str, str, str]] = []
        for (kind, becomes, reason), same in itertools.groupby(self.columns, lambda c: (c.kind, _becomes(c), c.reason)):
            run = list(same)
            if len(run) < LONG_RUN:
                found += [(column.name, kind, becomes + _filled(column), reason) for column in run]
                continue
            fills = [column.fill for column in run if column.has_missing]
            typical = "the median" if all(isinstance(fill, float) for fill in fills) else "the most frequent"
            filled = f"; missing, in {len(fills):,} of them: {typical}, marked" if fills else ""
            found.append((f"{run[0].name} to {run[-1].name}, {len(run):,} columns", kind, becomes + filled, reason))
        return found

    def in_words(self, source: Any) -> str:
        """A sentence on what the columns of a source are taken for, at most `MOST_NAMED` of them by name."""
        named = [f"{column.name} ({column.kind})" for column in self.columns[:MOST_NAMED]]
        n_more = len(self.columns) - MOST_NAMED
        more = f" and {n_more:,} more" if n_more > 0 else ""
        filled = [column.name for column in self.used if column.has_missing]
        missing = f" Missing cells of {len(filled)} of them are filled in." if filled else ""
        return f"Columns of {source} are taken for: {', '.join(named)}{more}.{missing}"

    def to_json(self) -> dict[str, Any]:
        """What `planned` takes to make it again, with the reasons for the reader."""
        found = {}
        for column in self.columns:
            said: dict[str, Any] = {"kind": column.kind, "why": column.reason}
            for key in STATED[1:]:
                value = getattr(column, key)
                if value:
                    said[key] = list(value) if isinstance(value, tuple) else value
            found[column.name] = said
        return found


def planned(table: Columns, stated: Mapping[str, Any] | None = None, *, delimiter: str | None = None) -> Plan:
    """The plan of a table: what is stated of a column, and what its cells look like where nothing is.

    Args:
        table: Columns by name.
        stated: By column: a kind, or an object with "kind", and "categories", "format", "missing" or "unit" if wanted,
            as `Plan.to_json` gives them; other keys say why and do not count. "drop" for a kind leaves a column out.
        delimiter: Separator of the file: behind a semicolon commas are decimal commas.

    Raises:
        ValueError: a name that is no column, a kind that there is not, cells that do not fit what is stated, or no
            column left.
    """
    stated = {} if stated is None else stated
    if not isinstance(stated, Mapping):
        raise ValueError(f"a plan must be an object with an entry for each column, got {type(stated).__name__}")
    validate_names(stated, table, what="a plan")
    said = {name: _said(name, entry) for name, entry in stated.items()}
    found = [_column_of(name, cells, said.get(name, {}), delimiter) for name, cells in table.items()]
    if any(column.format == COMMA for column in found):
        found = [column if column.name in said else _with_points(column, table[column.name]) for column in found]
    return Plan(tuple(found))


def _column_of(name: str, cells: pa.ChunkedArray, said: dict[str, Any], delimiter: str | None) -> PlannedColumn:
    found = None if said else typed_numbers.column_of(name, cells)
    return found or kinds.column_of(name, cells, said, delimiter=delimiter)


def _with_points(column: PlannedColumn, cells: pa.ChunkedArray) -> PlannedColumn:
    """A column of a table with decimal commas: points part thousands in it."""
    if column.kind != "number" or column.format or cell_quantities.is_typed(cells):
        return column
    if not cell_quantities.may_part_thousands([text for text in kinds.cells_of(cells).there if text[-1].isdigit()]):
        return column
    stated = {"kind": "number", "format": COMMA}
    reason = "numbers; points part thousands, because other columns have decimal commas"
    return dataclasses.replace(kinds.column_of(column.name, cells, stated), reason=reason)


def read_plan(path: str | Path) -> Mapping[str, Any]:
    """What a plan file states of each column.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: no JSON object of that kind.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no plan {path}: write one with drjax data plan")
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}): write a new one with drjax data plan") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold an object with an entry for each column, got {type(found).__name__}")
    return found


def validate_names(names: Any, table: Columns, *, what: str = "the plan") -> None:
    """Raises ValueError where a name is no column of the table."""
    for name in names:
        if name not in table:
            has = ", ".join(list(table)[:20]) + (f" and {len(table) - 20} more" if len(table) > 20 else "")
            raise ValueError(f"{what} must name columns of the table, which has {has}; got {name!r}")


def _said(name: str, entry: Any) -> dict[str, Any]:
    """What is stated of one column, checked."""
    said = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(said, Mapping) or "kind" not in said:
        raise ValueError(f"the plan of {name!r} must be a kind, or an object with kind, got {entry!r:.80}")
    validate.one_of(KINDS, **{f"kind of {name!r} in the plan": said["kind"]})
    for key in ("categories", "missing"):
        texts = said.get(key, [])
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{key} of {name!r} in the plan must be a list of texts, got {texts!r:.80}")
        if len(set(texts)) < len(texts):
            raise ValueError(f"{key} of {name!r} in the plan must be different texts, got {texts!r:.80}")
    for key in ("format", "unit"):
        if not isinstance(said.get(key, ""), str):
            raise ValueError(f"{key} of {name!r} in the plan must be a text, got {said[key]!r:.80}")
    return {key: tuple(said[key]) if key in ("categories", "missing") else said[key] for key in STATED if key in said}


def _encoded(column: PlannedColumn, cells: pa.ChunkedArray) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
    """Features (n, width), their names, which are numbers, and which cells are known."""
    if column.kind == "category":
        codes = kinds.codes_of(column, cells)
        is_known = codes >= 0
        codes = np.where(is_known, codes, column.categories.index(str(column.fill)) if column.fill is not None else -1)
        values = (codes[:, None] == np.arange(len(column.categories))).astype(np.float64)
        names = [f"{column.name}={category}" for category in column.categories]
        is_number = np.zeros(len(names), bool)
    else:
        typed = typed_numbers.values_of(column, cells)
        read = kinds.numbers_of(column, cells) if typed is None else cell_quantities.unsigned(typed)
        is_known = ~np.isnan(read.values)
        values = np.where(is_known, read.values, np.nan if column.fill is None else float(column.fill))[:, None]
        names, is_number = [column.name], np.array([column.kind != "yes/no"])
        for sign in column.censored:
            values = np.column_stack([values, read.signs == CENSORED.index(sign)])
            names.append(f"{column.name} {sign} limit")
            is_number = np.append(is_number, False)
    known = np.repeat(is_known[:, None], values.shape[1], axis=1)
    if column.has_missing:
        values, known = np.column_stack([values, ~is_known]), np.column_stack([known, np.ones(len(known), bool)])
        names.append(f"{column.name} is missing")
        is_number = np.append(is_number, False)
    return values.astype(np.float64), names, is_number, known


def _becomes(column: PlannedColumn) -> str:
    """What becomes of a column where it is not missing, in words."""
    if column.kind == "id":
        return "kept beside, never attacked"
    if column.kind in LEFT_OUT:
        return "left out"
    found = {
        "category": f"{len(column.categories)} columns of 0 and 1",
        "ordinal": f"ranks 0 to {len(column.categories) - 1}" if column.categories else "a number",
        "yes/no": "0 or 1",
        "date": f"a number: {column.unit}",
        "time": f"a number: {column.unit}",
        "number": f"a number{f' in {column.unit}' if column.unit else ''}",
    }[column.kind]
    if column.censored:
        found += f", {' and '.join(column.censored)} marked"
    return found


def _filled(column: PlannedColumn) -> str:
    """What becomes of missing cells, in words; empty where there are none."""
    if not column.has_missing:
        return ""
    # A median of two numbers has digits that are rounding.
    shown = format(column.fill, ".15g") if isinstance(column.fill, float) else column.fill
    return f"; missing: {kinds.shown_fill(column, shown)}, marked"

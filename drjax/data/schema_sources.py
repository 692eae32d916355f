"""Where a schema comes from: what a person states of each column, or public records; never private ones.

schema, missing = stated(names, {"age": [0, 120], "work": ["", "Private", "State-gov"]})
schema = infer(public_table)              # kinds, bounds, categories and decimals of records that are no secret
json.dumps(form(schema, private, missing))    # for a person to fill in; a release refuses what is not filled in
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import table_cells, tables
from drjax.data.schema import FROM_RECORDS, Column, Schema
from drjax.data.tables import Columns

STATED, SEEN = "stated", "seen"
"""Keys of an entry that a person has to fill in, and of what the records hold, which counts for nothing."""

MOST_CLASSES = 20
"""A public target of whole numbers with more distinct values than this is taken for a number."""

MOST_SHOWN = 60
"""Values of a private column that a form lists."""


def stated(
    names: Sequence[str],
    given: Mapping[str, Any],
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    task: str | None = None,
) -> tuple[Schema, tuple[str, ...]]:
    """The schema of what was stated, and the names of columns of which nothing was; no record is looked at.

    Args:
        names: Columns of the table.
        given: Statements by column: [lower, upper]; a list of texts, the categories; or an object with "lower" and
            "upper" or "categories", and "kind" or "decimals" if wanted. An entry {"stated": ..., "seen": ...} is its
            "stated"; null there is as good as no entry. A key that is no column is an error.
        target: The column to predict.
        drop: Columns to leave out.
        task: "classification" or "regression", of the target; None to tell by what is stated of it.

    Returns:
        A schema of the columns that something was stated of, in the order of `names`, and the other names.

    Raises:
        ValueError: unknown names, an entry of `given` that is none of these, or one that does not fit the task.
    """
    kept = _kept(names, given, target, drop, task)
    said = {name: _said(name, given[name]) for name in kept if name in given}
    said = {name: entry for name, entry in said.items() if entry}
    columns = tuple(_stated_column(name, entry) for name, entry in said.items())
    for column in columns:
        if column.name == target and task is not None and (column.kind == "category") != (task == "classification"):
            wanted = "a list of its classes" if task == "classification" else "[lower, upper]"
            raise ValueError(f"bounds of the target {target!r} must be {wanted} for {task}, got {column}")
    return Schema(columns, target), tuple(name for name in kept if name not in said)


def infer(
    table: Columns,
    *,
    target: str | None = None,
    given: Mapping[str, Any] | None = None,
    drop: Sequence[str] = (),
    task: str | None = None,
) -> Schema:
    """The schema of public records: what is stated, and where nothing is, what the records hold.

    Args:
        table: Public columns from `table_files.read_table`.
        target: The column to predict.
        given: Statements by column, as for `stated`.
        drop: Columns to leave out.
        task: "classification" or "regression", of the target; None to tell by its values.

    Raises:
        ValueError: as `stated`, or a column that is neither numbers nor text of at most `tables.MAX_CATEGORIES` values.
    """
    known, rest = stated(list(table), given or {}, target=target, drop=drop, task=task)
    return in_order(completed(known, rest, table, task=task), list(table))


def completed(known: Schema, names: Sequence[str], table: Columns, *, task: str | None = None) -> Schema:
    """A schema with more columns, read off public records.

    Args:
        known: Schema of what is stated.
        names: Columns to add; of a public table.
        table: Public records with these columns.
        task: Task, as for `infer`.

    Returns:
        The columns of `known` before the others.

    Raises:
        ValueError: a column that is neither numbers nor text of at most `tables.MAX_CATEGORIES` values.
    """
    target = known.target
    more = [_read_off(n, table[n], task if n == target else None, is_target=n == target) for n in names]
    return Schema((*known.columns, *more), target)


def in_order(schema: Schema, names: Sequence[str]) -> Schema:
    """The same schema with its columns in the order of a table's names."""
    return Schema(tuple(sorted(schema.columns, key=lambda column: list(names).index(column.name))), schema.target)


def numbers_of(name: str, cells: pa.ChunkedArray) -> Column:
    """A column of numbers with the bounds of its own cells, which are private: nothing is guaranteed with them.

    Raises:
        ValueError: a column of text, or a missing number.
    """
    return dataclasses.replace(_number_column(name, table_cells.number_column(name, cells)), is_public=False)


def form(schema: Schema, table: Columns, rest: Sequence[str]) -> dict[str, Any]:
    """A bounds file to fill in: entries of a schema as they are, and for every other column what its cells hold.

    Args:
        schema: Columns that are stated.
        table: The private records.
        rest: Names of the other columns, in the table.
    """
    known = schema.to_json()
    return {
        name: known[name] if name in known else {STATED: None, SEEN: _seen(cells)}
        for name, cells in table.items()
        if name in known or name in rest
    }


def _kept(
    names: Sequence[str], given: Mapping[str, Any], target: str | None, drop: Sequence[str], task: str | None
) -> list[str]:
    """The columns that are not dropped, after a check of all names."""
    for use, found in (("target", [target] if target is not None else []), ("given", given), ("drop", drop)):
        for name in found:
            if name not in names:
                raise ValueError(f"{use} must name columns of the table, {', '.join(names)}; got {name!r}")
    if target is not None and target in drop:
        raise ValueError(f"drop must leave the target, got {target!r}")
    if task is not None:
        validate.one_of(("classification", "regression"), task=task)
    kept = [name for name in names if name not in drop]
    if not [name for name in kept if name != target]:
        raise ValueError(f"drop must leave a column beside the target, got {', '.join(drop)}")
    return kept


def _stated_column(name: str, said: Mapping[str, Any]) -> Column:
    is_public = not said.get(FROM_RECORDS)
    if "categories" in said:
        return Column(name=name, kind="category", categories=said["categories"], is_public=is_public)
    kind, decimals = said.get("kind") or "number", said.get("decimals")
    if kind == "category" or (kind == "integer" and decimals):
        raise ValueError(f"kind of {name!r} must fit what else is stated of it, got {kind!r} with {dict(said)!r:.80}")
    lower, upper = float(said["lower"]), float(said["upper"])
    return Column(name=name, kind=kind, lower=lower, upper=upper, decimals=decimals, is_public=is_public)


def _said(name: str, given: Any) -> dict[str, Any]:
    """An entry of `given` as an object with known keys; empty where nothing is stated yet."""
    if isinstance(given, Mapping) and set(given) <= {STATED, SEEN} and given:
        given = given.get(STATED)
        if given is None:
            return {}
    said = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(given, (list, tuple)) and given:
        is_pair = len(given) == 2 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given)
        is_texts = all(isinstance(v, str) for v in given)
        said = {"lower": given[0], "upper": given[1]} if is_pair else {"categories": given} if is_texts else {}
    allowed = {"lower", "upper", "categories", "kind", "decimals", FROM_RECORDS}
    ends = {"lower", "upper"} & set(said)
    if set(said) - allowed or len(ends) == 1 or bool(ends) == ("categories" in said):
        raise ValueError(
            f"bounds of {name!r} must be [lower, upper], a list of texts, the categories, at least one, or an object "
            f"with lower and upper, or categories, and kind or decimals; got {given!r:.80}"
        )
    if said.get(FROM_RECORDS):
        raise ValueError(
            f"bounds of {name!r} must not be those of the records, got an entry marked {FROM_RECORDS}: state what is "
            "known without them"
        )
    if "categories" in said:
        values = said["categories"]
        is_list = isinstance(values, (list, tuple)) and len(values) > 0
        if not is_list or not all(isinstance(v, (str, int, float, bool)) for v in values):
            raise ValueError(f"categories of {name!r} must be a list of texts, at least one, got {values!r:.80}")
        if said.get("kind", "category") != "category" or said.get("decimals") is not None:
            raise ValueError(f"kind of {name!r} must be category where categories are stated, got {given!r:.80}")
        said["categories"] = tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    for end in sorted(ends):
        if not isinstance(said[end], (int, float)) or isinstance(said[end], bool):
            raise ValueError(f"{end} of {name!r} must be a number, got {said[end]!r}")
    return said


def _read_off(name: str, cells: pa.ChunkedArray, task: str | None, *, is_target: bool) -> Column:
    """What the cells of a public column hold."""
    is_number = table_cells.is_numeric_column(cells) and not pa.types.is_boolean(cells.type)
    if task == "classification" or not (is_number or task == "regression"):
        return Column(name=name, kind="category", categories=_categories(name, cells))
    numbers = table_cells.number_column(name, cells)
    is_whole = bool(np.all(numbers == np.rint(numbers)))
    if is_target and task is None and is_whole and len(np.unique(numbers)) <= MOST_CLASSES:
        return Column(name=name, kind="category", categories=_categories(name, cells))
    return _number_column(name, numbers)


def _number_column(name: str, numbers: np.ndarray) -> Column:
    is_whole = bool(np.all(numbers == np.rint(numbers)))
    lower, upper = float(numbers.min()), float(numbers.max())
    # A column of one value has bounds all the same.
    upper = upper if upper > lower else lower + 1
    decimals = None if is_whole else _decimals_of(numbers)
    kind = "integer" if is_whole else "number"
    return Column(name=name, kind=kind, lower=lower, upper=upper, decimals=decimals)


def _seen(cells: pa.ChunkedArray) -> dict[str, Any]:
    """What a private column holds, in words that no release takes for bounds."""
    texts, numbers = table_cells.cell_texts(cells), table_cells.cell_numbers(cells)
    missing, known = int((texts == "").sum()), numbers[np.isfinite(numbers)]
    found: dict[str, Any] = {"missing": missing} if missing else {}
    if len(known) and len(known) + missing == len(texts):
        return found | {"least": float(known.min()), "largest": float(known.max()),
                        "whole": bool(np.all(known == np.rint(known)))}  # fmt: skip
    values = [str(text) for text in np.unique(texts)]
    if len(values) <= MOST_SHOWN:
        return found | {"values": values}
    return found | {"different values": len(values), "hint": "identifiers, dates and free text are best dropped"}


def _categories(name: str, cells: pa.ChunkedArray) -> tuple[str, ...]:
    found = np.unique(table_cells.cell_texts(cells))
    if len(found) > tables.MAX_CATEGORIES:
        raise ValueError(
            f"column {name!r} has {len(found)} different values, more than the {tables.MAX_CATEGORIES} that can be "
            f"one-hot encoded: leave it out with --drop {shlex.quote(name)}"
        )
    return tuple(str(value) for value in found)


def _decimals_of(numbers: np.ndarray) -> int | None:
    """The decimals that public numbers are written with; None where there are too many to tell."""
    for decimals in range(10):
        if np.array_equal(np.round(numbers, decimals), numbers):
            return decimals
    return None

"""Where a schema comes from: what a person states of each column, or public records; never private ones.

schema, missing = stated(names, {"age": [0, 120], "work": ["", "Private", "State-gov"]})
schema = infer(public_table)              # kinds, bounds, categories and decimals of records that are no secret

A form for a person to fill in is in `drjax.data.schema_draft`.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import stated_cells, table_cells, tables
from drjax.data.schema import FROM_RECORDS, Column, Schema
from drjax.data.schema_column import KINDS
from drjax.data.tables import Columns

STATED, DRAFT, SEEN = "stated", "draft", "seen"
"""Keys of an entry that a person has to fill in, of a proposal for it, and of what the records hold; the last two count
for nothing."""

DROP, YES_NO = "drop", "yes/no"
"""What is stated of a column that is left out, and a kind that is a category of two."""

HALF = "half the range"
"""Scale that follows from the bounds."""

MOST_CLASSES = 20
"""A public target of whole numbers with more distinct values than this is taken for a number."""


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
        given: Statements by column: [lower, upper]; a list of texts, the categories; "drop"; or an object with "lower"
            and "upper" or "categories", and "kind" (of `KINDS`, or "yes/no"), "decimals", "format", "missing", "fill"
            or "scale" if wanted: see `Column`; "scale" may be `HALF`. Ends and fills of dates and times are texts. An
            entry {"stated": ..., "draft": ..., "seen": ...} is its "stated". Null there, or anywhere in it, is as good
            as no entry. A key that is no column is an error.
        target: The column to predict.
        drop: Columns to leave out.
        task: "classification" or "regression", of the target; None to tell by what is stated of it.

    Returns:
        A schema of the columns that something was stated of, in the order of `names`, and the other names.

    Raises:
        ValueError: unknown names, an entry of `given` that is none of these, or one that does not fit the task.
    """
    dropped = {name for name, entry in given.items() if _unwrapped(entry) == DROP}
    kept = _kept(names, given, target, [*drop, *(name for name in names if name in dropped)], task)
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
    kind = said.get("kind") or ("category" if "categories" in said else "number")
    is_listed, decimals = kind in ("category", "ordinal", YES_NO), said.get("decimals")
    if is_listed != ("categories" in said) or (kind != "number" and decimals):
        raise ValueError(f"kind of {name!r} must fit what else is stated of it, got {kind!r} with {dict(said)!r:.80}")
    if kind == YES_NO and len(said["categories"]) != 2:
        raise ValueError(f"categories of {name!r} must be two, no and yes, got {len(said['categories'])}")
    fields: dict[str, Any] = {key: said[key] for key in ("format", "missing", "fill", "scale") if key in said}
    is_half = fields.get("scale") == HALF
    if is_half:
        del fields["scale"]
    ends = {key: said[key] for key in ("lower", "upper", "fill") if key in said}
    if is_listed:
        fields["categories"] = said["categories"]
    elif kind in stated_cells.USUAL:
        form = fields.get("format") or stated_cells.USUAL[kind]
        fields |= {key: _moment(f"{key} of {name!r}", end, kind, form) for key, end in ends.items()}
    else:
        validate.one_of(("", *stated_cells.NUMBER_FORMATS), **{f"format of {name!r}": fields.get("format", "")})
        fields |= {key: float(end) for key, end in ends.items()} | {"decimals": decimals}
    is_public, kind = not said.get(FROM_RECORDS), "category" if kind == YES_NO else kind
    column = Column(name=name, kind=kind, is_public=is_public, **fields)
    if not is_half or column.kind == "category":
        return column
    return dataclasses.replace(column, scale=(column.upper - column.lower) / 2)


def _moment(what: str, text: Any, kind: str, form: str) -> float:
    found = stated_cells.moment(text, kind, form) if isinstance(text, str) else float("nan")
    if np.isnan(found):
        raise ValueError(f"{what} must be a {kind} written as {form} or {stated_cells.USUAL[kind]}, got {text!r:.40}")
    return found


def _unwrapped(given: Any) -> Any:
    """What is stated in an entry of a form; the entry itself if it is of none."""
    if isinstance(given, Mapping) and set(given) <= {STATED, DRAFT, SEEN} and given:
        return given.get(STATED)
    return given


def _said(name: str, given: Any) -> dict[str, Any]:
    """An entry of `given` as an object with known keys; empty where nothing is stated yet."""
    given = _unwrapped(given)
    if given is None or (isinstance(given, Mapping) and given and None in given.values()):
        return {}
    said: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(given, (list, tuple)) and given:
        is_pair = len(given) == 2 and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given)
        is_texts = all(isinstance(v, str) for v in given)
        said = {"lower": given[0], "upper": given[1]} if is_pair else {"categories": given} if is_texts else {}
    allowed = {"lower", "upper", "categories", "kind", "decimals", "format", "missing", "fill", "scale", FROM_RECORDS}
    ends = {"lower", "upper"} & set(said)
    if set(said) - allowed or len(ends) == 1 or bool(ends) == ("categories" in said):
        raise ValueError(
            f"bounds of {name!r} must be [lower, upper], a list of texts, the categories, at least one, {DROP!r}, or "
            f"an object with lower and upper, or categories, and kind, decimals, format, missing, fill or scale; got "
            f"{given!r:.80}"
        )
    if said.get(FROM_RECORDS):
        raise ValueError(
            f"bounds of {name!r} must not be those of the records, got an entry marked {FROM_RECORDS}: state what is "
            "known without them"
        )
    validate.one_of((*KINDS, YES_NO), **{f"kind of {name!r}": said.get("kind", "number")})
    for key in ("categories", "missing"):
        if key in said:
            said[key] = _texts(name, key, said[key])
    is_listed = "categories" in said
    if not isinstance(said.get("format", ""), str):
        raise ValueError(f"format of {name!r} must be a text, got {said['format']!r:.40}")
    is_moment = said.get("kind") in stated_cells.USUAL
    for key in (*sorted(ends), *(key for key in ("fill", "scale") if key in said)):
        is_number = isinstance(said[key], (int, float)) and not isinstance(said[key], bool)
        may_be_text = said[key] == HALF if key == "scale" else is_moment or is_listed
        if not is_number and not (isinstance(said[key], str) and may_be_text):
            raise ValueError(f"{key} of {name!r} must be a number, got {said[key]!r}")
    if is_listed and "fill" in said:
        said["fill"] = _text(said["fill"]).strip()
    return said


def _texts(name: str, key: str, values: Any) -> tuple[str, ...]:
    is_list = isinstance(values, (list, tuple)) and (len(values) > 0 or key == "missing")
    if not is_list or not all(isinstance(v, (str, int, float, bool)) for v in values):
        raise ValueError(f"{key} of {name!r} must be a list of texts, at least one, got {values!r:.80}")
    return tuple(map(_text, values))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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

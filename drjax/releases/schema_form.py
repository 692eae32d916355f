"""What is stated of a private table before a release: its layout and its columns, and the form that asks for it.

A release reads kinds, categories, bounds, formats, fills and scales off a bounds file or public records, and none off
private ones. `write_schema` drafts the file from what an audit sees in the table; nothing in a draft counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drjax.core import json_files, store
from drjax.data import schema_draft, schema_sources, table_cells
from drjax.data.own_table import Stated
from drjax.data.plan import Plan, planned, read_plan
from drjax.data.private_tables import FILE, SUFFIXES, Layout, layout_of, read_private
from drjax.data.schema import Schema
from drjax.data.schema_sources import DRAFT, SEEN, STATED
from drjax.data.sheets import read_sheet
from drjax.data.table_files import read_table
from drjax.data.tables import Columns

SCHEMA = "schema.json"
"""File of a release that says what is stated of its columns."""


def as_text(schema: Schema) -> str:
    """What `SCHEMA` holds."""
    return json.dumps(schema.to_json(), indent=1, ensure_ascii=False) + "\n"


def read_stated(bounds: Path | None) -> tuple[dict[str, Any], Layout]:
    """What a bounds file states of each column, and of the layout of the private table.

    Raises:
        ValueError: no JSON object, or a layout that is drafted and not stated, or out of its range.
        OSError: the file cannot be read.
    """
    given = {} if bounds is None else dict(json_files.read_object(bounds, "bounds"))
    entry = given.pop(FILE, {})
    if isinstance(entry, Mapping) and entry and set(entry) <= {STATED, DRAFT, SEEN}:
        entry = entry.get(STATED)
        if entry is None:
            raise ValueError(
                f"the layout must be stated in the bounds, got none for {FILE!r}: write where its records begin, as in "
                f'"draft", behind "stated" of {bounds}'
            )
    return given, layout_of(entry)


def read_schema(
    private: Columns,
    given: Mapping[str, Any],
    *,
    public: Columns | None = None,
    target: str | None = None,
    task: str | None = None,
    drop: tuple[str, ...] = (),
) -> tuple[Schema, tuple[str, ...]]:
    """The schema of a private table by what is stated and by public records, and the columns that neither tells of.

    Nothing but the names of the private table's columns is looked at. Arguments as of the configuration; `given` as of
    `read_stated`.

    Raises:
        ValueError: statements or public records that do not fit.
    """
    names = list(private)
    schema, rest = schema_sources.stated(names, given, target=target, drop=drop, task=task)
    if public is not None:
        schema = schema_sources.completed(schema, [name for name in rest if name in public], public, task=task)
        rest = tuple(name for name in rest if name not in public)
    return schema_sources.in_order(schema, names), rest


def complete_schema(
    private: Columns,
    given: Mapping[str, Any],
    *,
    public: Columns | None,
    target: str | None,
    task: str | None,
    drop: tuple[str, ...],
    from_private: bool,
) -> Schema:
    """The schema of a release, complete; arguments as of `read_schema`.

    Raises:
        ValueError: a column of which nothing is stated or public, unless ranges of numbers may come from the records.
    """
    schema, rest = read_schema(private, given, public=public, target=target, task=task, drop=drop)
    if not rest:
        return schema
    if not from_private:
        raise ValueError(refusal(rest))
    is_class = task == "classification"
    texts = [c for c in rest if not table_cells.is_numeric_column(private[c]) or (c == target and is_class)]
    if texts:
        raise ValueError(
            f"categories must be stated or public, got none for {', '.join(map(repr, texts[:6]))}: "
            "--bounds-from-private-data takes ranges of numbers from the records and never categories, which would be "
            "published as they are"
        )
    read_off = tuple(schema_sources.numbers_of(name, private[name]) for name in rest)
    return schema_sources.in_order(Schema((*schema.columns, *read_off), schema.target), list(private))


def refusal(names: Sequence[str]) -> str:
    """What is said where columns have no public bounds."""
    some = ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (
        f"bounds must not depend on the private records, got none for {some}: pass --bounds FILE (JSON: a range or the "
        "categories of every column; drjax release schema writes a form to fill in) or --public FILE (records of the "
        "same kind that are no secret); or --bounds-from-private-data to go without any guarantee"
    )


def write_schema(
    data: Path,
    out: Path,
    *,
    schema: Stated = None,
    target: str | None = None,
    task: str | None = None,
    drop: tuple[str, ...] = (),
    public: Path | None = None,
) -> tuple[Schema, tuple[str, ...]]:
    """Writes a bounds file to fill in, readable by the owner alone; arguments as of the configuration.

    Public records state their columns, and `drop` those that it names. Every other entry has a draft from what an audit
    takes the column for and what it sees there, which count for nothing, and waits for what is known without the
    records: {"stated": null, "draft": ..., "seen": ...}. The file is private.

    Args:
        data: Private records.
        out: File to write, a new one.
        schema: Statements on columns for the audit's reader (`drjax data plan`), which shape the draft.
        target: Column to predict.
        task: Kind of prediction.
        drop: Columns to leave out.
        public: Public records.

    Returns:
        The schema of the columns that are stated, and what is to be stated: names of columns, and `FILE` if the layout
        of the file is.

    Raises:
        ValueError: `out` exists, a file of another kind, or a table that does not fit.
        OSError: a file cannot be read or written.
    """
    if out.exists():
        raise ValueError(f"out must be a new file, got {out} which exists: choose another --out")
    if data.suffix.lower() not in SUFFIXES:
        read_private(data)
    sheet = read_sheet(data)
    said = read_plan(schema) if isinstance(schema, str | Path) else schema
    plan = said if isinstance(said, Plan) else planned(sheet.columns, said, delimiter=sheet.delimiter)
    known = None if public is None else read_table(public)
    found, rest = read_schema(sheet.columns, {}, public=known, target=target, task=task, drop=drop)
    form = schema_draft.drafted(data, sheet, plan, found, drop)
    lines = [
        f" {json.dumps(name, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False)}"
        for name, entry in form.items()
    ]
    store.atomic_write_text(out, "{\n" + ",\n".join(lines) + "\n}\n", private=True, replace=False)
    unnamed = tuple(name for name in form if name not in sheet.columns)
    return found, (*unnamed, *rest)

"""Records that are in memory already: arrays, and DataFrames of pandas, polars or whatever else narwhals knows."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.core.types import Array
from drjax.data import files, tables
from drjax.data.arrow import arrow_of
from drjax.data.dataset import OWN, Dataset, Provenance
from drjax.data.files import Values
from drjax.data.own_table import Stated, dataset_of
from drjax.data.sheets import sheet_of


def from_memory(
    records: Any,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    label: str | None = None,
    schema: Stated = None,
    id: str | None = None,
) -> Dataset:
    """An array or a DataFrame as `load_file` reads the file that it would be saved to.

    Args:
        records: (n, d), or (n, height, width, ...) images; or a DataFrame.
        categorical: Columns of a DataFrame that are categories.
        drop: Columns of a DataFrame to leave out.
        label: Column of a DataFrame that becomes `y`.
        schema: Statements on columns; see `drjax.data.own_table.dataset_of`.
        id: Column of a DataFrame that records are called by.

    Returns:
        The data set, named by a checksum of its values.

    Raises:
        ValueError: what is wrong with the contents, or one of the options for an array.
        TypeError: neither an array nor a DataFrame.
    """
    options: dict[str, Any] = {"categorical": categorical, "drop": drop, "label": label, "schema": schema, "id": id}
    if isinstance(records, Array):
        for name, value in options.items():
            if value not in (None, (), []):
                raise ValueError(f"{name} applies to DataFrames, and records are an array")
        x = np.asarray(records)
        digest = hashlib.sha256(repr((x.shape, x.dtype.str)).encode() + np.ascontiguousarray(x).tobytes())
        return files.from_array(x, None, _provenance("array", digest.hexdigest()))
    sheet = sheet_of(records)
    provenance = _provenance("DataFrame", _digest(pa.table(dict(sheet.columns))))
    return dataset_of(dataclasses.replace(sheet, name=provenance.source), provenance, **options)


def values_from_memory(records: Any) -> Values:
    """The numbers of an array or a DataFrame as they are, not scaled, as `read_values` gives those of its file.

    Args:
        records: (n, d) or images; an array of rank 2 is handed on unchecked.

    Raises:
        ValueError: a column that holds no numbers, or a missing or infinite value.
        TypeError: neither an array nor a DataFrame.
    """
    if isinstance(records, Array):
        x = np.asarray(records)
        return Values(x.reshape(len(x), -1) if x.ndim > 2 else x, (), x.shape[1:])
    table = arrow_of(records)
    columns = {name: table[name] for name in table.column_names}
    x = tables.numeric("a DataFrame", columns, "convert the column, or take it out")
    return Values(x, tuple(columns), x.shape[1:])


def _digest(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None).combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _provenance(kind: str, digest: str) -> Provenance:
    return Provenance(
        source=f"{kind}-{digest[:12]}",
        licence=OWN,
        files={},
        note="Columns scaled to [0, 1] by their own minimum and maximum.",
    )


def frame_of(table: pa.Table) -> Any:
    """A table as a pandas DataFrame, or as it is where pandas is not installed."""
    return table if importlib.util.find_spec("pandas") is None else table.to_pandas()

"""Records that are in memory already: arrays, and DataFrames of pandas, polars or whatever else narwhals knows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from drjax.core.types import Array
from drjax.data import files, tables
from drjax.data.dataset import Dataset, Provenance
from drjax.data.files import Values


def from_memory(
    records: Any, *, categorical: Sequence[str] = (), drop: Sequence[str] = (), label: str | None = None
) -> Dataset:
    """An array or a DataFrame as `load_file` reads the file that it would be saved to.

    Args:
        records: (n, d), or (n, height, width, ...) images; or a DataFrame.
        categorical: Columns of a DataFrame to one-hot encode.
        drop: Columns of a DataFrame to leave out.
        label: Column of a DataFrame that becomes `y`.

    Returns:
        The data set, named by a checksum of its values.

    Raises:
        ValueError: what is wrong with the contents, or `categorical`, `drop` or `label` for an array.
        TypeError: neither an array nor a DataFrame.
    """
    if isinstance(records, Array):
        if categorical or drop or label is not None:
            raise ValueError("categorical, drop and label apply to DataFrames, and records are an array")
        x = np.asarray(records)
        digest = hashlib.sha256(repr((x.shape, x.dtype.str)).encode() + np.ascontiguousarray(x).tobytes())
        return files.from_array(x, None, _provenance("array", digest.hexdigest()))
    table = arrow_of(records)
    columns = {name: table[name] for name in table.column_names}
    provenance = _provenance("DataFrame", _digest(table))
    return tables.from_table(provenance.source, columns, provenance, categorical=categorical, drop=drop, label=label)


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


def arrow_of(frame: Any) -> pa.Table:
    """A DataFrame as a table of Arrow, without the index that pandas has beside the columns.

    Raises:
        TypeError: no DataFrame that is in memory.
    """
    try:
        given = nw.from_native(frame, eager_only=True)
        return given.to_arrow().select(range(len(given.columns)))
    except TypeError as error:
        raise TypeError(
            f"records must be a path, a name, an array or a DataFrame in memory, got {type(frame).__name__}"
        ) from error


def _digest(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None).combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _provenance(kind: str, digest: str) -> Provenance:
    return Provenance(
        source=f"{kind}-{digest[:12]}",
        licence="the user's own data",
        files={},
        note="Columns scaled to [0, 1] by their own minimum and maximum.",
    )

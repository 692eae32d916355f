"""DataFrames of pandas, polars or whatever else narwhals knows, as tables of Arrow."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa


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

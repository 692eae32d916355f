"""Parquet files of numbers that are larger than what should be read as a whole.

What a column is, is told from all of its cells, one column at a time; then all columns become numbers a few rows at a
time, in files without a name that vanish with the process, from which what is looked at is read.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from drjax.core import streamed
from drjax.core.store import cache_dir
from drjax.data import sheet_lines, table_cells, tables
from drjax.data.dataset import in_range, limits
from drjax.data.plan import Encoded, Plan
from drjax.data.sheets import Sheet

LEAST_BYTES = 2**28
"""Size of the records in float32 from which a file is large."""


class LargeColumns(Mapping[str, pa.ChunkedArray]):
    """The columns of a Parquet file by name, each read when it is asked for."""

    def __init__(self, file: pyarrow.parquet.ParquetFile, names: Iterable[str]) -> None:
        self._file, self._names = file, tuple(names)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """All cells of a column."""
        if name not in self._names:
            raise KeyError(name)
        return self._file.read(columns=[name]).column(0)

    def __iter__(self) -> Iterator[str]:
        """Names in their order."""
        return iter(self._names)

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._names)

    def without(self, name: str) -> LargeColumns:
        """All other columns."""
        return LargeColumns(self._file, (other for other in self._names if other != name))

    def batches(self, names: list[str]) -> Iterator[dict[str, pa.ChunkedArray]]:
        """Some columns, a few rows at a time."""
        step = max(1, streamed.BLOCK_ENTRIES // len(names))
        for batch in self._file.iter_batches(step, columns=names):
            yield {name: pa.chunked_array([batch.column(name)]) for name in names}


def sheet_of(path: Path) -> Sheet | None:
    """The table in a large Parquet file whose columns are all numbers; None for any other, damaged ones too."""
    if path.suffix.lower() != ".parquet":
        return None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError):
        return None
    schema, n = file.schema_arrow, file.metadata.num_rows
    names = [name for name in schema.names if not re.fullmatch(tables.INDEX, name)]
    is_numeric = all(table_cells.is_number_type(schema.field(i).type) for i in range(len(schema)))
    if not is_numeric or len(set(schema.names)) < len(schema) or 4 * n * len(names) < LEAST_BYTES:
        return None
    return Sheet(str(path), LargeColumns(file, names), np.arange(n), sheet_lines.ROW, (), None)


def encode(plan: Plan, columns: LargeColumns) -> Encoded:
    """As `Plan.encode`, with values that are mapped from a file; `is_known` is True, and takes no memory."""
    names = [column.name for column in plan.used]
    parts = (plan.encode(batch) for batch in columns.batches(names))
    first = next(parts)

    def values() -> Iterator[np.ndarray]:
        yield first.values
        yield from (part.values for part in parts)

    made = mapped(values(), first.values.shape[1], np.dtype(np.float64))
    return first._replace(values=made, is_known=np.broadcast_to(True, made.shape))


def unit_range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `drjax.data.dataset.unit_range` by columns, with records that are mapped from a file."""
    low, scale = limits(values)
    blocks = (block for _, block in in_range(values, low, scale))
    return mapped(blocks, values.shape[1], np.dtype(np.float32)), low, scale


def mapped(blocks: Iterable[np.ndarray], width: int, dtype: np.dtype) -> np.ndarray:
    """Blocks of rows (b, width) one below the other, mapped for reading from a file that has no name.

    Raises:
        OSError: no space left in the folder of `drjax.core.store.cache_dir`.
    """
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever reads the records again makes it anew: no copy of private records is left behind, whatever ends this.
    with tempfile.TemporaryFile(dir=folder) as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)
        file.flush()
        n = os.fstat(file.fileno()).st_size // (width * dtype.itemsize)
        return np.asarray(np.memmap(file, dtype, "r", shape=(n, width)))

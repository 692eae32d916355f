"""Parquet files of numbers that are larger than what should be read as a whole.

What a column is, is told from all of its cells, one column at a time; then all columns become numbers a few rows at a
time, in files without a name that vanish with the process, from which what is looked at is read.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

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
    """As `Plan.encode`, with values and `is_known` that are mapped from files."""
    names = [column.name for column in plan.used]
    parts = (plan.encode(batch) for batch in columns.batches(names))
    first = next(parts)
    blocks = ((part.values, part.is_known) for part in itertools.chain([first], parts))
    values, is_known = mapped(blocks, first.values.shape[1], np.float64, np.bool_)
    return first._replace(values=values, is_known=is_known)


def unit_range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `drjax.data.dataset.unit_range` by columns, with records that are mapped from a file."""
    low, scale = limits(values)
    (x,) = mapped(((block,) for _, block in in_range(values, low, scale)), values.shape[1], np.float32)
    return x, low, scale


def mapped(blocks: Iterable[Sequence[np.ndarray]], width: int, *dtypes: type[np.generic]) -> list[np.ndarray]:
    """Arrays (n, width), one for each type, mapped for reading from files that have no name.

    Args:
        blocks: Rows (b, width) of each array, one block below the other.
        width: Columns.
        *dtypes: Types of the arrays.

    Raises:
        OSError: no space left in the folder of `drjax.core.store.cache_dir`.
    """
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever reads the records again makes them anew: no copy of private records is left behind, whatever ends this.
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in dtypes]
        for parts in blocks:
            for file, part, dtype in zip(files, parts, dtypes, strict=True):
                file.write(np.ascontiguousarray(part, dtype).data)
        return [_read(file, width, np.dtype(dtype)) for file, dtype in zip(files, dtypes, strict=True)]


def _read(file: IO[bytes], width: int, dtype: np.dtype) -> np.ndarray:
    file.flush()
    n = os.fstat(file.fileno()).st_size // (width * dtype.itemsize)
    return np.asarray(np.memmap(file, dtype, "r", shape=(n, width)))

"""What a data set is to drjax, and how raw values become records in [0, 1].

The ranges used for scaling (0 to 255 for 8-bit pixels, a column's minimum and maximum otherwise) are treated as
public knowledge: the adversary is assumed to know them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from drjax.core import streamed
from drjax.data.plan import Plan


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where records come from.

    Attributes:
        source: Who published the records, or the path of the user's file.
        licence: What the publisher permits, as far as known.
        files: SHA-256 of every file that was read, by file name; empty where nothing was read from disk.
        note: What was done on the way to [0, 1], and what a reader of results should know.

    Example:
        >>> import drjax
        >>> drjax.load("digits").provenance.licence
        'CC BY 4.0; comes with scikit-learn'
    """

    source: str
    licence: str
    files: dict[str, str]
    note: str


OWN = "the user's own data"
"""Licence of what is read from a user's file or memory."""


class Rows(NamedTuple):
    """What the records of somebody's own table are called, and where they stand.

    Attributes:
        named_by: Column whose texts `ids` are; None without.
        ids: n texts; None where no column tells records apart.
        lines: (n,) where each record stands in its file.
        counted: What `lines` counts: "line" or "row of the sheet", from 1, or "row", from 0.
    """

    named_by: str | None
    ids: tuple[str, ...] | None
    lines: np.ndarray
    counted: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records in [0, 1] with what is needed to read them in their original units: x * scale + offset.

    Attributes:
        name: The name or path that it was loaded by.
        x: (n, d) float32 in [0, 1].
        y: (n,) integer labels, or None.
        shape: Shape of one record: (28, 28), (32, 32, 3) or (d,).
        feature_names: d names, "column=category" for one-hot columns, or None.
        groups: (n,) integers; records of one group (a person, a patient, a video) belong on one side of a split.
        provenance: Source, licence, checksums.
        offset: (d,) float64, in the original units; the value itself for a constant column.
        scale: (d,) float64, in the original units; 0 for a constant column.
        class_names: What the labels 0, 1, ... mean, or None.
        plan: What the columns of somebody's own table are; None for other data.
        sources: d names of the columns that the features of such a table come from; empty for other data.
        values: (n, d) float64, the features of such a table in the units of its columns; None for other data.
        rows: What its records are called and where they stand; None for other data.
        notes: What of the file was read otherwise than it stands; whole sentences.

    Example:
        >>> import drjax
        >>> data = drjax.load("digits")
        >>> data.x.shape, data.shape, data.class_names[:3]
        ((1797, 64), (8, 8), ('0', '1', '2'))
        >>> bool((data.x[0] * data.scale + data.offset).max() > 1)  # in the original units
        True
    """

    name: str
    x: np.ndarray
    y: np.ndarray | None
    shape: tuple[int, ...]
    feature_names: tuple[str, ...] | None
    groups: np.ndarray | None
    provenance: Provenance
    offset: np.ndarray
    scale: np.ndarray
    class_names: tuple[str, ...] | None = None
    plan: Plan | None = None
    sources: tuple[str, ...] = ()
    values: np.ndarray | None = None
    rows: Rows | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether they are somebody's own records, and no published set."""
        return self.provenance.licence == OWN

    def called(self, row: int) -> str:
        """What a record is called: its id and line in an own table, else its row, counted from 0."""
        if self.rows is None:
            return f"row {row:,}"
        where = f"{self.rows.counted} {self.rows.lines[row]:,}"
        return where if self.rows.ids is None else f"{self.rows.ids[row]} ({where})"

    def __repr__(self) -> str:
        """What it holds, without a value of a record."""
        labels = "no labels" if self.y is None else "labels"
        names = self.feature_names or ()
        shown = f": {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else ""
        return f"Dataset {self.name!r}: {len(self.x):,} records of shape {self.shape}, {labels}{shown}"


def from_levels(
    name: str,
    values: np.ndarray,
    provenance: Provenance,
    *,
    top: float = 255.0,
    y: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    class_names: tuple[str, ...] | None = None,
) -> Dataset:
    """Records of shape (n, ...) whose every entry runs from 0 to `top`, as pixels do."""
    x, offset, scale = unit_levels(values.reshape(len(values), -1), top=top)
    return Dataset(
        name=name,
        x=x,
        y=None if y is None else y.astype(np.int64),
        shape=values.shape[1:],
        feature_names=None,
        groups=groups,
        provenance=provenance,
        offset=offset,
        scale=scale,
        class_names=class_names,
    )


def unit_levels(values: np.ndarray, *, top: float = 255.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps (n, d) values between 0 and `top` to [0, 1]; returns x (n, d) float32, offset and scale (d,) float64."""
    d = values.shape[1]
    return np.divide(values, np.float32(top), dtype=np.float32), np.zeros(d), np.full(d, float(top))


def unit_range(values: np.ndarray, *, axis: int | None = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps (n, d) values to [0, 1] by each column's minimum and maximum, or by one common pair if axis is None.

    Returns:
        x (n, d) float32, offset (d,) and scale (d,) float64. A constant column becomes 0, with scale 0.

    Raises:
        ValueError: a column spans more than a float64 holds.
    """
    low, scale = limits(values, axis=axis)
    x = np.empty(values.shape, np.float32)
    for at, block in in_range(values, low, scale):
        x[at] = block
    return x, low, scale


def limits(values: np.ndarray, *, axis: int | None = 0) -> tuple[np.ndarray, np.ndarray]:
    """Least value (d,) and range (d,) of each column of (n, d), or of all in common if axis is None; float64.

    Raises:
        ValueError: a column spans more than a float64 holds.
    """
    d = values.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        low = np.broadcast_to(values.min(axis=axis), (d,)).astype(np.float64)
        scale = np.broadcast_to(values.max(axis=axis), (d,)).astype(np.float64) - low
    if not np.isfinite(scale).all():
        at = int(np.argmin(np.isfinite(scale)))
        raise ValueError(
            f"values must span less than {np.finfo(np.float64).max:.2g} from the least to the largest, got "
            f"[{values[:, at].min():.3g}, {values[:, at].max():.3g}] in feature {at}: rescale them"
        )
    return low, scale


def in_range(values: np.ndarray, low: np.ndarray, scale: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of values (n, d) less `low` (d,), in units of `scale` (d,), and where they lie; float64."""
    unit = np.where(scale > 0, scale, 1.0)
    for at, block in streamed.blocks(values):
        yield at, (block - low) / unit


def coded(values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Integer codes of (n,) values and the sorted distinct values, as text, that the codes stand for."""
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), tuple(str(value) for value in distinct)


def count_duplicates(x: np.ndarray) -> int:
    """How many rows of x (n, d) equal an earlier row, bit for bit. O(n d) time, O(n) memory.

    Example:
        >>> import numpy as np
        >>> from drjax.data import count_duplicates
        >>> count_duplicates(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
        1
    """
    rows = np.ascontiguousarray(x)
    return len(rows) - len({hashlib.blake2b(row, digest_size=16).digest() for row in rows})


def duplicates_note(x: np.ndarray) -> str:
    """A sentence for `Provenance.note` that says how many rows of x repeat an earlier one."""
    repeated = count_duplicates(x)
    return f" {repeated} of {len(x)} records repeat an earlier record exactly." if repeated else ""

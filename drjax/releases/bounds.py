"""Bounds on records that do not depend on them: ranges of the columns, a centre, a norm.

A mechanism cuts every record to its bounds, and its noise is in units of them. Its guarantee holds for bounds that were
fixed before the records were seen: read from a file (`from_file`) or computed from public records (`from_public`).
`from_private` takes them from the records themselves, as papers do, and then nothing is guaranteed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drjax.core import json_files, validate
from drjax.data import StandardScaler
from drjax.data.schema import Schema
from drjax.releases.inputs import Table, matched

QUANTILE = 0.9
"""Share of the public records whose distance from the centre the norm bound covers; docs/dp_pca/digits.md."""

LEAST_WIDTH = 1e-3
"""Half-width of a column that is constant among the public records, as a share of that of the widest: none may be 0."""

LARGEST = 1e150
"""Largest end of a range that a file may state: squares of records must be numbers."""

REFUSAL = (
    "bounds must not depend on the private records: pass --bounds FILE (JSON: a range for every column) or --public "
    "FILE (records of the same kind that are no secret); or --bounds-from-private-data to go without any guarantee"
)
"""What is said where there are no bounds."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Where records are cut, in units of the data; see `scaled` for those of the release.

    Attributes:
        lower: (d,).
        upper: (d,), > lower.
        center: (d,), within [lower, upper].
        scale: (d,) > 0, what each column is divided by.
        row_norm: Largest norm of (record - center) / scale, > 0.
        sources: Where each of them is from, in words; no number in it comes from private records.
        is_public: Whether none depends on the private records.
        finds_mean: Whether the mean of the records is to be found, with noise, by the query itself: no public record
            tells where it is.
    """

    lower: np.ndarray
    upper: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    row_norm: float
    sources: Mapping[str, str]
    is_public: bool
    finds_mean: bool = False

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Records (n, d), or one (d,), cut to the ranges, in the units of the release; not centred."""
        return np.clip(x, self.lower, self.upper) / self.scale

    def within(self, x: np.ndarray) -> np.ndarray:
        """Records (n, d) by the rule for cells outside: cut to the ranges; what is no number is the centre."""
        return np.clip(np.where(np.isnan(x), self.center, x), self.lower, self.upper)

    def outside(self, x: np.ndarray) -> int:
        """How many cells `within` changes; private."""
        return int((~((x >= self.lower) & (x <= self.upper))).sum())

    @property
    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranges of records about the centre, in the units of the release: lower <= 0 <= upper."""
        return (self.lower - self.center) / self.scale, (self.upper - self.center) / self.scale


def make_bounds(
    private: Table,
    *,
    file: Path | None,
    public: Table | None,
    from_private: bool,
    row_norm: float | None,
    standardise: bool,
    schema: Schema | None = None,
) -> Bounds:
    """Bounds from what was given: ranges of the file before those of public records, a centre of the latter.

    Args:
        private: The records; their values are looked at with `from_private` only.
        file: JSON file with ranges.
        public: Public records.
        from_private: Take everything from the records; excludes the other two.
        row_norm: A public bound on the norm, in the units of the release, in the place of that of the others.
        standardise: Divide each column by its deviation among the public records, or by half its range.
        schema: Schema of the records, encoded, by the file; None where it states ranges alone.

    Raises:
        ValueError: no bounds, contradictory ones, or bounds that do not fit the columns.
        OSError: the file cannot be read.
    """
    if from_private and (file is not None or public is not None):
        raise ValueError("bounds_from_private_data must be left out with --bounds or --public, which need it not")
    if file is None and public is None and not from_private:
        raise ValueError(REFUSAL)
    columns, d = private.columns, private.values.shape[1]
    sample, sample_words = None, ""
    if from_private:
        sample, sample_words = private.values, "the PRIVATE records themselves"
    elif public is not None:
        sample = validate.matrix(matched(public, columns, d), f"{public.source}", min_rows=2)
        sample_words = f"the {len(sample)} public records"
    sources = {}
    if file is not None:
        lower, upper = read_bounds(file, columns, d) if schema is None else schema.bounds
        sources["ranges"] = "stated"
    else:
        assert sample is not None
        lower, upper = _ranges(sample)
        sources["ranges"] = f"least and largest values of {sample_words}"
    if sample is not None:
        center = sample.mean(axis=0)
        sources["center"] = f"mean of {sample_words}"
        _check_within(center, lower, upper, columns)
    else:
        # Not (lower + upper) / 2, which may overflow.
        center = lower / 2 + upper / 2
        sources["center"] = "noisy mean of the records, from the same query as the components"
        sources["origin"] = "middle of the ranges"
        if schema is not None and any(map(len, _blocks(schema))):
            for block in _blocks(schema):
                center[block] = 1 / max(1, len(block))
            sources["origin"] += ", an equal share of each category"
    scale = np.ones(d)
    sources["scale"] = "1: columns keep their units"
    if standardise:
        if sample is not None:
            scale = np.asarray(StandardScaler.fit(sample).scale, np.float64)
            sources["scale"] = f"standard deviations of {sample_words}"
        else:
            scale = upper / 2 - lower / 2
            sources["scale"] = "half the ranges"
    if schema is not None and np.isfinite(schema.scales).any():
        scale = np.where(np.isfinite(schema.scales), schema.scales, scale)
        sources["scale"] = f"stated; where nothing is, {sources['scale']}"
    if row_norm is not None:
        if not (isinstance(row_norm, (int, float)) and 0 < row_norm < math.inf):
            raise ValueError(f"row_norm must be a finite number > 0, got {row_norm!r}")
        norm, sources["row_norm"] = float(row_norm), "given on the command line"
    elif sample is not None:
        norm = float(np.quantile(np.linalg.norm((sample - center) / scale, axis=1), QUANTILE))
        sources["row_norm"] = f"{QUANTILE:.0%} quantile of the distances from the centre of {sample_words}"
    else:
        norm = reach(lower, upper, center, scale, [] if schema is None else _blocks(schema))
        sources["row_norm"] = "largest distance from the middle within the ranges: cuts nothing off"
    if not 0 < norm < math.inf:
        raise ValueError(f"row_norm must be a finite number > 0, got {norm} from {sample_words}: pass --row-norm")
    return Bounds(lower, upper, center, scale, norm, sources, not from_private, sample is None)


def read_bounds(path: Path, columns: Sequence[str] | None, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds (d,) of a JSON file.

    Args:
        path: Holds {"column": [lower, upper], ...}, or {"lower": [...], "upper": [...]} in the order of the columns.
        columns: Names of the columns; None for an array.
        d: Their number.

    Raises:
        OSError: the file cannot be read.
        ValueError: no such JSON, a column without bounds or bounds of no column, lower >= upper, or an
            end beyond `LARGEST`.
    """
    found = json_files.read_object(path, "bounds")
    # A table may have columns of these names.
    if found.keys() == {"lower", "upper"} and set(columns or ()) != {"lower", "upper"}:
        pair = [_vector(found[name], f"{name} in {path}", d) for name in ("lower", "upper")]
    elif columns is None:
        raise ValueError(
            f'bounds of an array file must be {{"lower": [...], "upper": [...]}}, got names {_some(found)} in {path}'
        )
    else:
        missing = [name for name in columns if name not in found]
        extra = [name for name in found if name not in columns]
        if missing or extra:
            what = f"none for {_some(missing)}" if missing else f"some for {_some(extra)}, which is no column"
            raise ValueError(f"bounds must be given for every column, got {what} in {path}")
        rows = [_vector(found[name], f"the bounds of column {name!r} in {path}", 2) for name in columns]
        pair = list(np.array(rows).T)
    lower, upper = pair
    bad = ~(lower < upper)
    if bad.any():
        i = int(np.argmax(bad))
        name = repr(columns[i]) if columns is not None else i
        raise ValueError(f"lower must be < upper, got [{lower[i]:g}, {upper[i]:g}] for column {name} in {path}")
    far = np.maximum(np.abs(lower), np.abs(upper)) > LARGEST
    if far.any():
        i = int(np.argmax(far))
        name = repr(columns[i]) if columns is not None else i
        raise ValueError(
            f"bounds must lie within +-{LARGEST:g}, got [{lower[i]:g}, {upper[i]:g}] for column {name} in {path}"
        )
    return lower, upper


def _blocks(schema: Schema) -> list[list[int]]:
    """Places of the features of every category."""
    at, found = 0, []
    for column in schema.features:
        if column.kind == "category":
            found.append(list(range(at, at + column.width)))
        at += column.width
    return found


def reach(
    lower: np.ndarray, upper: np.ndarray, center: np.ndarray, scale: np.ndarray, blocks: Sequence[Sequence[int]]
) -> float:
    """Largest distance of a record from the centre, in units of the release.

    Args:
        lower: (d,) least values.
        upper: (d,) largest values.
        center: (d,) within them.
        scale: (d,) what features are divided by.
        blocks: Places of the features of each category, of which one at most is 1 and the rest 0.
    """
    squares = (np.maximum(upper - center, center - lower) / scale) ** 2
    for block in blocks:
        middle, width = center[list(block)], scale[list(block)]
        own = (middle / width) ** 2
        with_one = own.sum() - own + ((1 - middle) / width) ** 2
        squares[list(block)] = 0
        squares[block[0]] = max(own.sum(), with_one.max())
    return float(np.sqrt(squares.sum()))


def _ranges(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = sample.min(axis=0), sample.max(axis=0)
    half = (upper - lower) / 2
    if not half.max() > 0:
        raise ValueError("the records that bounds are computed from must differ, got equal ones")
    widened = np.where(half > 0, 0, LEAST_WIDTH * half.max())
    return lower - widened, upper + widened


def _check_within(center: np.ndarray, lower: np.ndarray, upper: np.ndarray, columns: Sequence[str] | None) -> None:
    bad = ~((lower <= center) & (center <= upper))
    if bad.any():
        i = int(np.argmax(bad))
        name = repr(columns[i]) if columns is not None else i
        raise ValueError(
            f"bounds must contain the public mean, got [{lower[i]:g}, {upper[i]:g}] and a mean of {center[i]:g} for "
            f"column {name}"
        )


def _vector(value: Any, name: str, size: int) -> np.ndarray:
    is_list = isinstance(value, list) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)
    if not is_list or len(value) != size or not all(math.isfinite(v) for v in value):
        raise ValueError(f"{name} must be a list of {size} finite numbers, got {str(value)[:60]}")
    return np.array(value, np.float64)


def _some(names: Any) -> str:
    some = list(names)
    return ", ".join(map(repr, some[:5])) + (f" and {len(some) - 5} more" if len(some) > 5 else "")

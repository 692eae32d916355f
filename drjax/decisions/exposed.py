"""Changes to the most exposed records of a map, which the table of an audit ranks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from drjax.core import validate

N_MERGED = 5
"""Records whose centre a merged record is drawn at, itself among them."""


def most_exposed(table: Path, n: int, **count: int) -> np.ndarray:
    """(count,) rows, from 0, of the most exposed records by the table that an audit of every record writes.

    Args:
        table: Path of `exposure.csv`.
        n: Number of records of the data.
        **count: How many, >= 1 and less than n, by the name that errors call it.

    Raises:
        ValueError: no such table, one with fewer records, or one of other data.
        FileNotFoundError: nothing at the path.
    """
    ((name, wanted),) = count.items()
    validate.integer(**count)
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"rank", "row"} <= rows[0].keys():
        raise ValueError(f"exposure must be the exposure.csv of an audit, got {table} without columns rank and row")
    if wanted > min(len(rows), n - 1):
        raise ValueError(f"{name} must be at most {min(len(rows), n - 1):,}, as {table} ranks records, got {wanted}")
    found = np.array([int(row["row"]) for row in sorted(rows, key=lambda row: int(row["rank"]))[:wanted]])
    if found.max() >= n:
        raise ValueError(f"exposure must be of the same {n:,} records, got row {found.max():,} in {table}")
    return found


def merged(coords: np.ndarray, rows: np.ndarray, *, size: int = N_MERGED) -> np.ndarray:
    """Coordinates (n, k) with some records at the mean place of their nearest ones; the others stay where they are.

    Args:
        coords: (n, k).
        rows: Records that are moved, m of them; each to the mean of the `size` places nearest to its own, that one
            included. O(m n k).
        size: Number of places.
    """
    moved = coords.copy()
    for row in rows:
        squared = np.sum((coords - coords[row]) ** 2, axis=1)
        nearest = np.argsort(squared, kind="stable")[: min(size, len(coords))]
        moved[row] = coords[nearest].mean(axis=0)
    return moved

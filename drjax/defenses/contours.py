"""Density contours of a map in place of its points: what is published belongs to no record.

The density at a place is a number of records, each weighed by its distance. Lines stand at 5, 10, 20, 40 and so on of
them, the same for all data, on a lattice whose cells are a simple share of the map's spread. Without a guarantee: who
knows all other places can add one more wherever it leaves the lines as they are (`Contours.worked_out`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.ndimage
from skimage.measure import label

from drjax.core import validate
from drjax.defenses.noisy_dr import told_spread

LEAST_RECORDS = 5
"""Density of the outermost line, in records at one place; each line further in has twice as much."""

CELLS = 6
"""Cells of the lattice in the radius of a record's bump."""

MOST_CELLS = 4e6
"""Cells of a lattice: finer ones are no picture."""


class Contours(NamedTuple):
    """Levels of density on a lattice.

    Attributes:
        corner: (2,) cells that the lattice's first one is away from (0, 0), int.
        cell: Width of a cell, in units of the coordinates.
        levels: (a, b) number of lines around each cell, int; 0 outside of all.
    """

    corner: np.ndarray
    cell: float
    levels: np.ndarray

    @property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Both coordinates of the cells, (a,) and (b,)."""
        (first, second), (a, b) = self.corner, self.levels.shape
        return (first + np.arange(a)) * self.cell, (second + np.arange(b)) * self.cell

    def cropped(self) -> Contours:
        """The part around the lines: how far the lattice goes beyond would tell where the outermost records are.

        Raises:
            ValueError: there are no lines.
        """
        inside = np.argwhere(self.levels > 0)
        if not len(inside):
            raise ValueError(
                f"radius must leave a line around at least {LEAST_RECORDS} records, got one that leaves none; take more"
            )
        low, high = inside.min(axis=0) - CELLS, inside.max(axis=0) + CELLS + 1
        # A line ends a bump at least before the lattice does.
        return Contours(self.corner + low, self.cell, self.levels[low[0] : high[0], low[1] : high[1]])


def contours(coords: np.ndarray, radius: float) -> Contours:
    """The contours of a map; O(n + cells).

    Args:
        coords: (n, 2) places.
        radius: Radius of the bump of one record, > 0, in units of the map's spread (`told_spread`). Its weight falls
            from 1 to 0 as (1 - t^2)^2.

    Raises:
        ValueError: coords not (n, 2) and finite, radius not finite and > 0, a map without spread, or more than
            `MOST_CELLS` cells.

    Source: Silverman (1986), Density estimation for statistics and data analysis, section 4.2 (the bump).
    """
    at, corner, cell, shape = _lattice(coords, radius)
    return Contours(corner, cell, _levels(_density(at, shape)))


def is_drawable(coords: np.ndarray, radius: float) -> bool:
    """Whether `contours` takes a map (n, k) and a radius: not one number per record, nor one far outlier of many."""
    try:
        _lattice(coords, radius)
    except ValueError:
        return False
    return True


def places(coords: np.ndarray, found: Contours) -> np.ndarray:
    """(n, 2) what a reader sees of each place: the centre of the region between two lines that it lies in."""
    at = np.round(coords / found.cell).astype(np.int64) - found.corner
    seen = np.empty(coords.shape)
    own = found.levels[tuple(at.T)]
    for level in range(int(found.levels.max()) + 1):
        regions = np.asarray(label(found.levels == level, connectivity=1))
        cells, own_region = np.argwhere(regions > 0), regions[regions > 0]
        sizes = np.bincount(own_region)[1:]
        centres = np.column_stack([np.bincount(own_region, axis)[1:] / sizes for axis in cells.T])
        here = own == level
        seen[here] = (centres[regions[tuple(at[here].T)] - 1] + found.corner) * found.cell
    return seen


def worked_out(coords: np.ndarray, found: Contours) -> np.ndarray:
    """(n, 2) where who knows all other places expects each: the mean of the cells at which one more bump leaves every
    level as it is published, weighed by the density of the others. O(cells of a bump squared) each.

    Args:
        coords: (n, 2) places, of which that of each record in turn is unknown.
        found: Their contours.
    """
    at = np.round(coords / found.cell).astype(np.int64) - found.corner
    bump, near = _bump(), 2 * CELLS
    density = _density(at, found.levels.shape)
    low, high = _limits(found.levels)
    # Wherever another bump changes no line: where it would do so too if the unknown record's own were still there.
    anywhere = _fits(low - density, high - density, bump)
    prior = np.where(anywhere, density, 0.0)
    grid = np.indices(density.shape).astype(float)
    rows, columns = grid[0], grid[1]
    sums = np.array([prior.sum(), (prior * rows).sum(), (prior * columns).sum()])
    taken, which = np.unique(np.ravel_multi_index(tuple(at.T), density.shape), return_inverse=True)
    cells = np.column_stack(np.unravel_index(taken, density.shape))
    expected = np.empty(cells.shape)
    for i, (row, column) in enumerate(cells):
        around = slice(row - near, row + near + 1), slice(column - near, column + near + 1)
        wide = slice(row - 3 * CELLS, row + 3 * CELLS + 1), slice(column - 3 * CELLS, column + 3 * CELLS + 1)
        others = density[wide].copy()
        own = slice(2 * CELLS, 4 * CELLS + 1)
        others[own, own] -= bump
        below, above = low[wide] - others, high[wide] - others
        inner = others[CELLS:-CELLS, CELLS:-CELLS]
        # The record's own cell is possible at least, however few others are near.
        weight = np.where(_fits(below, above, bump)[CELLS:-CELLS, CELLS:-CELLS], np.maximum(inner, 1e-6), 0.0)
        total = np.array([weight.sum(), (weight * rows[around]).sum(), (weight * columns[around]).sum()])
        if (below <= 0).all() and (above > 0).all():
            # Without it all levels would be the same: it may be far away.
            gone = prior[around]
            total += sums - [gone.sum(), (gone * rows[around]).sum(), (gone * columns[around]).sum()]
        expected[i] = total[1:] / total[0]
    return (expected[which] + found.corner) * found.cell


def _lattice(coords: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int]]:
    """Cell (n, 2) of each place, first cell (2,), width of a cell, and numbers of cells with room for three bumps."""
    validate.positive(radius=radius)
    if not math.isfinite(radius):
        raise ValueError(f"radius must be finite, got {radius}")
    if coords.ndim != 2 or coords.shape[1] != 2 or not np.isfinite(coords).all():
        raise ValueError(f"coords must be finite and of two columns, got shape {coords.shape}")
    unit = float(told_spread(coords))
    if not unit > 0:
        raise ValueError("coords must not be all the same, got no spread")
    cell = radius * unit / CELLS
    at = np.round(coords / cell).astype(np.int64)
    corner, last = at.min(axis=0) - 3 * CELLS, at.max(axis=0) + 3 * CELLS
    a, b = (int(count) for count in last - corner + 1)
    if a * b > MOST_CELLS:
        raise ValueError(f"radius must leave at most {MOST_CELLS:,.0f} cells, got {radius}, which makes {a * b:,}")
    return at - corner, corner, cell, (a, b)


def _bump() -> np.ndarray:
    offsets = np.arange(-CELLS, CELLS + 1) / CELLS
    return np.maximum(1 - (offsets[:, None] ** 2 + offsets[None, :] ** 2), 0) ** 2


def _density(at: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(a, b) records at each cell, each as wide as its bump."""
    counts = np.zeros(shape)
    np.add.at(counts, tuple(at.T), 1.0)
    return scipy.ndimage.convolve(counts, _bump(), mode="constant")


def _levels(density: np.ndarray) -> np.ndarray:
    # Ten digits: sums in another order are the same then.
    held = np.round(density, 10)
    return np.where(held < LEAST_RECORDS, 0, 1 + np.floor(np.log2(np.maximum(held / LEAST_RECORDS, 1)))).astype(int)


def _limits(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least density of each level, and that of the next."""
    tolerance = 1e-9
    least = np.where(levels == 0, -math.inf, LEAST_RECORDS * 2.0 ** (levels - 1))
    return least - tolerance, LEAST_RECORDS * 2.0**levels - tolerance


def _fits(below: np.ndarray, above: np.ndarray, bump: np.ndarray) -> np.ndarray:
    """(a, b) whether a bump at each cell lifts the density over what is `below` everywhere, and not to what is `above`;
    False at the edge."""
    a, b = below.shape
    fits = np.zeros((a, b), bool)
    inner = np.ones((a - 2 * CELLS, b - 2 * CELLS), bool)
    # What no bump at a cell reaches has to be right without it.
    lacking = below > 0
    reached = np.zeros(inner.shape, np.int64)
    for i, j in np.argwhere(bump > 0):
        part = slice(i, i + inner.shape[0]), slice(j, j + inner.shape[1])
        inner &= (below[part] <= bump[i, j]) & (above[part] > bump[i, j])
        reached += lacking[part]
    fits[CELLS:-CELLS, CELLS:-CELLS] = inner & (reached == lacking.sum())
    return fits

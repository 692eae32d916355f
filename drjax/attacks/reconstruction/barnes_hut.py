"""Repulsion in a t-SNE map as the Barnes-Hut algorithm computes it: groups of far points stand in for their members.

It depends on the map alone, so that an adversary repeats it exactly, whatever the target is.

Source: van der Maaten (2014), "Accelerating t-SNE using tree-based algorithms", section 4.2. Which cells there are, and
which of them count as far, is not the algorithm's to say: here as in scikit-learn 1.9, `neighbors/_quad_tree.pyx` and
`manifold/_barnes_hut_tsne.pyx`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from drjax.core import validate
from drjax.core.types import Array

ANGLE = 0.5
"""Width of a cell over its distance, below which it stands in for its members; the libraries' default."""

MARGIN = 1e-3
"""Margin by which the root is wider than the map at its upper end: a share of the bound there, and the least margin."""

SAME = 1e-6
"""Difference of coordinates up to which points count as one."""

MAX_DEPTH = 64
"""Halvings after which points are not told apart: no float64 coordinates need more."""


class _Cell(NamedTuple):
    """A square, or what it is in k dimensions: mean (k,), how many points, squared width, children, if it is a leaf."""

    mean: np.ndarray
    size: int
    squared_width: float
    children: tuple[_Cell, ...]


def repulsion(coords: Array, angle: float = ANGLE) -> np.ndarray:
    """Mean repulsive force on each point (n, k): of all others, weighed by the map's own affinities to them.

    O(n log n) for maps that are not degenerate; some 10 ms at n = 200.

    Args:
        coords: (n, k), k of 1 to 3 as in the libraries; finite, n >= 2.
        angle: Opening angle, >= 0; at 0 the force is exact.

    Raises:
        ValueError: coordinates of another shape or not finite, or a negative angle.
    """
    points = validate.matrix(coords, "coords", min_rows=2).astype(np.float64)
    validate.finite(coords=points)
    validate.at_least(0, angle=angle)
    n, k = points.shape
    freedom = max(k - 1, 1)
    force, total = np.zeros((n, k)), 0.0
    for cell, at in _summaries(_tree(points), points, angle):
        difference = points[at] - cell.mean
        weight = (1 + (difference**2).sum(axis=1) / freedom) ** (-(freedom + 1) / 2)
        total += cell.size * float(weight.sum())
        force[at] += (cell.size * weight**2)[:, None] * difference
    return force / max(total, np.finfo(np.float64).tiny)


def excess(coords: Array) -> np.ndarray:
    """Excess (n, k) of the libraries' repulsion over the exact one; arguments and cost as of `repulsion`."""
    return repulsion(coords) - repulsion(coords, angle=0)


def _tree(points: np.ndarray) -> _Cell:
    low, high = points.min(axis=0), points.max(axis=0)
    high = np.maximum(high * (1 + MARGIN * np.sign(high)), high + MARGIN)
    return _cell(points, low, high, 0)


def _cell(points: np.ndarray, low: np.ndarray, high: np.ndarray, depth: int) -> _Cell:
    squared_width = float(((high - low) ** 2).max())
    if depth == MAX_DEPTH or (np.abs(points - points[0]) <= SAME).all():
        return _Cell(points[0], len(points), squared_width, ())
    centre = (low + high) / 2
    is_upper = points >= centre
    which = is_upper @ (1 << np.arange(points.shape[1]))
    children = []
    for one in np.unique(which):
        inside = which == one
        upper = is_upper[np.argmax(inside)]
        bounds = np.where(upper, centre, low), np.where(upper, high, centre)
        children.append(_cell(points[inside], *bounds, depth + 1))
    return _Cell(points.mean(axis=0), len(points), squared_width, tuple(children))


def _summaries(root: _Cell, points: np.ndarray, angle: float) -> Iterator[tuple[_Cell, np.ndarray]]:
    """Each cell with the points (p,) for which it stands in for its members; a point never meets its own leaf."""
    pending = [(root, np.arange(len(points)))]
    while pending:
        cell, at = pending.pop()
        difference = points[at] - cell.mean
        if not cell.children:
            others = at[(np.abs(difference) > SAME).any(axis=1)]
            yield cell, others
            continue
        is_far = cell.squared_width < angle**2 * (difference**2).sum(axis=1)
        yield cell, at[is_far]
        if not is_far.all():
            pending += [(child, at[~is_far]) for child in cell.children]

"""Norm bounds that hold of the float64 numbers that come out, not up to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drjax.bounds.curve import number
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.linalg import finite_rows
from drjax.core.types import Array
from drjax.defenses.exact_noise import power_of_two


def clip_l1(rows: Array, bound: float, *, grid: float | None = None) -> np.ndarray:
    """Rows shortened to an L1 norm of at most `bound`, exactly; otherwise as `clip_l2`.

    Example:
        >>> from drjax.defenses.mechanisms import clip_l1
        >>> clip_l1([[3.0, 1.0], [0.1, 0.2]], 1.0).round(3)
        array([[0.75, 0.25],
               [0.1 , 0.2 ]])
    """
    return _clipped(rows, bound, grid, lambda unit: np.abs(unit).sum(axis=1))


def clip_l2(rows: Array, bound: float, *, grid: float | None = None) -> np.ndarray:
    """Rows shortened to a Euclidean norm of at most `bound`: of the float64 numbers that come out, not up to rounding.

    To leave room for rounding, rows within (d + 8) 2^-52 of the bound are shortened too. A row that is not finite
    becomes 0: refused, it would show. On the host, O(n d).

    Args:
        rows: (n, d).
        bound: Largest norm, > 0.
        grid: A power of two, at least bound / 2^53: entries are cut to multiples of it, towards 0. A sum of fewer than
            2^53 grid / bound such rows is exact in any order.

    Returns:
        (n, d) float64.

    Raises:
        ValueError: rows are no matrix of numbers, bound is not finite and > 0, or grid is no such number.

    Example:
        >>> from drjax.defenses.mechanisms import clip_l2
        >>> clip_l2([[3.0, 4.0], [0.3, 0.4]], 1.0).round(3)
        array([[0.6, 0.8],
               [0.3, 0.4]])
    """
    return _clipped(rows, bound, grid, lambda unit: np.sqrt((unit * unit).sum(axis=1)))


def _clipped(rows: Array, bound: float, grid: float | None, norm: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    x = finite_rows(validate.matrix(rows, "rows", must_be_finite=False).astype(np.float64))
    check_positive(bound=number(bound=bound))
    # Norms of rows with a largest entry of 1 neither overflow nor vanish.
    top = np.abs(x).max(axis=1)
    unit = x / np.where(top > 0, top, 1)[:, None]
    limit = float(bound) / np.maximum(norm(unit), 1) * (1 - (x.shape[1] + 8) * 2.0**-52)
    clipped = np.where((top > limit)[:, None], unit * limit[:, None], x)
    if grid is None:
        return clipped
    step = power_of_two(grid)
    if step < bound / 2**53:
        raise ValueError(f"grid must be at least bound / 2**53 = {bound / 2**53:g}, got {grid!r}")
    return np.trunc(clipped / step) * step

"""Compiled inner loops of the search for markers: votes, circles through pieces of edge, and discs of an image."""

from __future__ import annotations

import math

import numpy as np

from drjax.core.compiled import njit

STEPS = 6
"""Gauss-Newton steps of a circle."""

ALIGNED = 0.7
"""Least cosine of the angle between the inside of a piece of edge and the way to the centre."""


@njit
def vote(
    counts: np.ndarray, at: np.ndarray, lengths: np.ndarray, stamp: np.ndarray, pieces: np.ndarray, sign: float
) -> None:
    """Adds to the counts (h, w), in place, a stamp (s, s) for each of the pieces, times its length and the sign.

    `at`: (p, 2) column and row of a stamp's first cell.
    """
    side = len(stamp)
    for i in pieces:
        x, y = at[i]
        weight = sign * lengths[i]
        for row in range(side):
            for column in range(side):
                counts[y + row, x + column] += weight * stamp[row, column]


@njit
def circle_through(
    points: np.ndarray,
    inward: np.ndarray,
    lengths: np.ndarray,
    near: np.ndarray,
    centre: np.ndarray,
    radius: float,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The centre (2,) of the circle of that radius through pieces next to it, and which of these lie on it (k,).

    `near`: (k,) rows of the pieces; `points`, `inward` and `lengths` are those of all `Contours`.
    """
    x, y = centre
    is_on = np.zeros(len(near), np.bool_)
    for _ in range(STEPS):
        n_on, total = 0, 0.0
        xx, xy, yy, along_x, along_y = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(len(near)):
            i = near[k]
            dx, dy = points[i, 0] - x, points[i, 1] - y
            distance = max(math.sqrt(dx * dx + dy * dy), 1e-9)
            u, v = dx / distance, dy / distance
            off = distance - radius
            is_on[k] = -(u * inward[i, 0] + v * inward[i, 1]) > ALIGNED and abs(off) < tolerance
            if is_on[k]:
                weight = lengths[i]
                n_on += 1
                total += weight
                xx += weight * u * u
                xy += weight * u * v
                yy += weight * v * v
                along_x += u * weight * off
                along_y += v * weight * off
        if n_on < 2:
            break
        xx += 1e-3 * total
        yy += 1e-3 * total
        step_y = (along_y - xy / xx * along_x) / (yy - xy / xx * xy)
        x += (along_x - xy * step_y) / xx
        y += step_y
    return np.array([x, y]), is_on


@njit
def _window(centre: float, radius: float, size: int) -> tuple[int, int]:
    """First pixel along an axis that a disc around a place may hold, and the one after its last."""
    return max(math.ceil(centre - 0.5 - radius), 0), min(math.floor(centre - 0.5 + radius) + 1, size)


@njit
def _is_within(row: int, column: int, centre: np.ndarray, radius: float) -> bool:
    across, down = (column + 0.5 - centre[0]) / radius, (row + 0.5 - centre[1]) / radius
    return down * down + across * across < 1


@njit
def mean_in_disc(image: np.ndarray, centre: np.ndarray, radius: float) -> float:
    """Mean of an image (h, w) over the pixels whose middles are in the disc around a place (x, y); 0 if none is."""
    top, bottom = _window(centre[1], radius, image.shape[0])
    left, right = _window(centre[0], radius, image.shape[1])
    total, n = 0.0, 0
    for row in range(top, bottom):
        for column in range(left, right):
            if _is_within(row, column, centre, radius):
                total += image[row, column]
                n += 1
    return total / n if n else 0.0


@njit
def clear_discs(image: np.ndarray, centres: np.ndarray, radius: float) -> None:
    """Sets an image (h, w) to False, in place, where a pixel's middle is in a disc around one of the places (m, 2)."""
    for centre in centres:
        top, bottom = _window(centre[1], radius, image.shape[0])
        left, right = _window(centre[0], radius, image.shape[1])
        for row in range(top, bottom):
            for column in range(left, right):
                if _is_within(row, column, centre, radius):
                    image[row, column] = False

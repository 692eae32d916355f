"""Tells words and legends without a frame from markers: strokes side by side, and a column of markers left of words."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage
from scipy.sparse.csgraph import connected_components

MIN_HEIGHT, MAX_HEIGHT = 4, 48
"""Pixels of the height of a letter."""

STROKE = (1.5, 0.1)
"""Most that half the width of a stroke may be: pixels, and a share of a letter's height in addition."""

GAP = 0.6
"""Most that lies between two letters of a word, in heights."""

MIN_WIDTH = 2.0
"""Width of strokes that touch each other from which on they are more than one letter, in heights."""

TO_WORD = 6.0
"""Most that lies between the marker of a legend and its word, in heights."""

IN_COLUMN = 1.0
"""Pixels by which the markers of a legend may miss each other's column."""

Box = tuple[int, int, int, int]
"""left, top, right, bottom, in pixels; right and bottom are the first ones outside."""


def words(drawn: np.ndarray, in_marker: np.ndarray) -> list[Box]:
    """Boxes of the words in a picture: (h, w) whether a pixel is drawn, and whether it belongs to a marker.

    A word is two thin pieces or more beside each other, or one as wide as several letters. What is thick or touches a
    marker is none, and no more are crosses here and there.
    """
    labelled: Any = ndimage.label(drawn, np.ones((3, 3)))
    parts: Any = ndimage.find_objects(labelled[0])
    depth: Any = ndimage.distance_transform_edt(drawn)
    touches = np.zeros(len(parts) + 1, bool)
    touches[labelled[0][in_marker]] = True
    letters = []
    for i, (rows, columns) in enumerate(parts, 1):
        height = rows.stop - rows.start
        if MIN_HEIGHT <= height <= MAX_HEIGHT and not touches[i]:
            thickest = depth[rows, columns][labelled[0][rows, columns] == i].max()
            if thickest <= STROKE[0] + STROKE[1] * height:
                letters.append((columns.start, rows.start, columns.stop, rows.stop))
    if not letters:
        return []
    left, top, right, bottom = np.array(letters).T
    height = bottom - top
    shared = np.minimum(bottom, bottom[:, None]) - np.maximum(top, top[:, None])
    between = np.maximum(left, left[:, None]) - np.minimum(right, right[:, None])
    is_beside = (shared > np.minimum(height, height[:, None]) / 2) & (
        between <= GAP * np.maximum(height, height[:, None])
    )
    n, of = connected_components(is_beside, directed=False)
    found = []
    for word in range(n):
        own = of == word
        box = int(left[own].min()), int(top[own].min()), int(right[own].max()), int(bottom[own].max())
        if own.sum() > 1 or box[2] - box[0] > MIN_WIDTH * (box[3] - box[1]):
            found.append(box)
    return found


def in_legend(boxes: list[Box], centres: np.ndarray) -> np.ndarray:
    """(m,) whether markers at centres (m, 2) are those of a legend: two or more in a column, each left of a word."""
    found = np.zeros(len(centres), bool)
    columns = []
    for left, top, _, bottom in boxes:
        away = left - centres[:, 0]
        beside = (away > 0) & (away < TO_WORD * (bottom - top)) & (centres[:, 1] > top) & (centres[:, 1] < bottom)
        if beside.any():
            columns.append(int(np.nonzero(beside)[0][away[beside].argmin()]))
    for i in columns:
        found[i] = (np.abs(centres[columns, 0] - centres[i, 0]) <= IN_COLUMN).sum() > 1
    return found

"""The colour that outlines markers, learned from markers that lie alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

from drjax.attacks.property.marker_colors import contrast_to

MIN_ALONE = 3
"""Least number of markers that lie alone, for their edge to be learned."""

MIN_EDGE = 0.15
"""Least difference of an edge from the line between the ground and the marker's inside, of 1."""

MIN_SHARE = 0.7
"""Least share of the markers that lie alone that have an edge."""


class Edge(NamedTuple):
    """How markers are outlined.

    Attributes:
        color: (3,) in [0, 1].
        radius: Radius of a marker with its edge, in pixels.
    """

    color: np.ndarray
    radius: float


def edge_of(image: np.ndarray, ground: np.ndarray, least: float) -> Edge | None:
    """The edge of the markers in an image (h, w, 3) on a ground (3,); None if they have none of another colour.

    Args:
        image: Red, green and blue in [0, 1].
        ground: Its background.
        least: Least difference from the ground of what is marked.
    """
    alone = alone_in(contrast_to(image, ground) > least)
    found, sizes = [], []
    for rows, columns, mask in alone:
        patch = image[rows, columns]
        y, x = np.nonzero(mask)
        middle = (np.array(mask.shape) - 1) / 2
        away = np.hypot(y - middle[0], x - middle[1])
        radius = np.sqrt(len(y) / np.pi)
        pixels = patch[mask]
        inside = np.median(pixels[away <= max(0.4 * radius, 0.75)], axis=0)
        offset, along = pixels - ground, inside - ground
        on_line = np.clip(offset @ along / max(float(along @ along), 1e-9), 0, None)
        across = np.linalg.norm(offset - on_line[:, None] * along, axis=1)
        ring = away > 0.6 * radius
        top = ring & (across >= np.quantile(across[ring], 0.75))
        sizes.append(radius)
        if np.mean(across[ring]) > MIN_EDGE and np.mean(across[ring]) > 2 * np.mean(across[~ring]):
            found.append(np.median(pixels[top], axis=0))
    if len(found) < max(MIN_ALONE, MIN_SHARE * len(alone)):
        return None
    colors = np.array(found)
    color = np.median(colors, axis=0)
    # Edges of one colour: a marker's shade of its own colour is no edge of all.
    if np.median(np.abs(colors - color).max(axis=1)) > MIN_EDGE:
        return None
    return Edge(color, float(np.median(sizes)))


def alone_in(marked: np.ndarray) -> list[tuple[slice, slice, np.ndarray]]:
    """Rows, columns and mask of the connected parts (h, w) that are as wide as high and of the most frequent size."""
    labelled: Any = ndimage.label(marked, np.ones((3, 3)))
    parts: Any = ndimage.find_objects(labelled[0])
    found = []
    for i, (rows, columns) in enumerate(parts):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if min(height, width) >= 4 and abs(height - width) <= 1:
            mask = labelled[0][rows, columns] == i + 1
            if 0.6 < mask.mean() < 0.95:
                found.append((rows, columns, mask))
    if len(found) < MIN_ALONE:
        return []
    areas = np.array([mask.sum() for *_, mask in found])
    near = (np.abs(areas[:, None] - areas) <= 0.15 * areas[:, None]).sum(axis=1)
    best = areas[near.argmax()]
    return [part for part, area in zip(found, areas, strict=True) if abs(area - best) <= 0.2 * best]

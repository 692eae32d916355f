"""Colours of the markers in a picture, and how much of each a pixel has."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

MIN_CONTRAST = 0.12
"""Least difference of a marker from the ground in one of red, green and blue, of 1."""

MAX_COLORS = 12
MIN_COLOR_SHARE = 0.02
"""Least share of all marked pixels that have a colour of their own."""

SAME_COLOR = 0.25
"""How far from a colour's line to the ground a mixture of the two may lie, in lengths of that line."""

SAME_SHADE = 0.25
"""How far from a colour's line to the ground a mixture may lie, of 1."""

STRICTNESS = 3.0
"""How fast a pixel stops being of a colour when another one's line to the ground is nearer."""

FOREIGN = 0.3
"""Distance from all colours' lines to the ground at which a pixel has none of them, of 1: text over markers."""


def contrast_to(pixels: np.ndarray, color: np.ndarray) -> np.ndarray:
    """Largest difference (...) of pixels (..., 3) from a colour (3,) in red, green and blue."""
    red, green, blue = (np.abs(pixels[..., k] - color[k]) for k in range(3))
    return np.maximum(np.maximum(red, green), blue)


def marker_colors(image: np.ndarray, ground: np.ndarray, contrast: np.ndarray) -> np.ndarray:
    """(c, 3) colours of what is drawn, at most `MAX_COLORS`, the most frequent first; mixtures with the ground left
    out.
    """
    flat = (ndimage.maximum_filter(image, (3, 3, 1)) - ndimage.minimum_filter(image, (3, 3, 1))).max(axis=-1)
    marked = contrast > MIN_CONTRAST
    inner = marked & (flat < 0.1)
    if inner.sum() < 0.05 * marked.sum():
        # Markers of a few pixels have no inside: their darkest pixels stand for it.
        inner = marked & (contrast >= 0.95 * ndimage.maximum_filter(contrast, 3))
    pixels = image[inner]
    if len(pixels) == 0:
        return np.zeros((0, 3))
    bins, which, counts = np.unique(
        np.round(pixels * 15).astype(np.int64) @ (256, 16, 1), return_inverse=True, return_counts=True
    )
    del bins
    means = np.stack([np.bincount(which, pixels[:, k]) / counts for k in range(3)], axis=1)
    kept: list[np.ndarray] = []
    taken: list[int] = []
    for i in np.argsort(-counts, kind="stable"):
        offset = means[i] - ground
        for j, color in enumerate(kept):
            along, across = _split(offset, color - ground)
            # Lighter is an edge, darker several translucent markers over each other.
            length = np.linalg.norm(color - ground)
            if (across < SAME_COLOR and across * length < SAME_SHADE and along > 0) or np.abs(
                means[i] - color
            ).max() < 0.15:
                taken[j] += int(counts[i])
                break
        else:
            kept.append(means[i])
            taken.append(int(counts[i]))
    order = [j for j in np.argsort(taken)[::-1] if taken[j] >= MIN_COLOR_SHARE * len(pixels)]
    return np.stack([kept[j] for j in order[:MAX_COLORS]])


def _split(offset: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Part of an offset (..., 3) along a direction, and length of the part across, in lengths of the direction."""
    squared = float(direction @ direction)
    along = offset @ direction / squared
    red, green, blue = ((offset[..., k] - along * direction[k]) ** 2 for k in range(3))
    return along, np.sqrt(red + green + blue) / np.sqrt(squared)


def color_shares(image: np.ndarray, ground: np.ndarray, palette: np.ndarray) -> list[np.ndarray]:
    """Share (h, w) of each colour, in [0, 1]: how far a pixel is from the ground to it; 0 if of another colour."""
    split = [_split(image - ground, color - ground) for color in palette]
    lengths = [np.linalg.norm(color - ground) for color in palette]
    off = [across * length for (_, across), length in zip(split, lengths, strict=True)]
    nearest = np.min(off, axis=0) if off else np.zeros(image.shape[:2])
    return [
        np.where(nearest > FOREIGN, 0, np.clip(np.minimum(along, 1) - STRICTNESS * (own - nearest) / length, 0, 1))
        for (along, _), own, length in zip(split, off, lengths, strict=True)
    ]

"""Found markers drawn again, and compared with the picture: what of it they do not explain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from drjax.attacks.property.raster import coverage_on_host

ALONE = 1.5
"""Pixels between the edges of a marker that lies alone and of the next one."""

MOST_COMPARED = 60
"""Markers of one colour whose shape is compared."""


class Comparison(NamedTuple):
    """Differences of a picture and its markers drawn again, by colour of the palette.

    Attributes:
        missing: Share of the coloured pixels that lie in no marker.
        surplus: Share of the markers' pixels that show the ground.
        misshapen: (c,) difference of a marker that lies alone from a disc, in areas of the disc: the median, and nan
            for colours without any.
        n_compared: (c,) markers that lie alone.
    """

    missing: float
    surplus: float
    misshapen: np.ndarray
    n_compared: np.ndarray


def compare(
    centres: np.ndarray, colors: np.ndarray, radius: float, shares: np.ndarray, marked: np.ndarray, reach: float
) -> Comparison:
    """Draws discs and compares them with the picture.

    Args:
        centres: (m, 2) places (x, y) in pixels.
        colors: (m,) rows of the palette.
        radius: Radius of the discs.
        shares: (c, h, w) share of each colour in every pixel.
        marked: (h, w) whether a pixel is not of the ground.
        reach: Radius of a marker with its edge.
    """
    height, width = marked.shape
    misshapen, n_compared = [], []
    tree = KDTree(centres)
    nearest = tree.query(centres, k=2)[0][:, 1] if len(centres) > 1 else np.full(len(centres), np.inf)
    for color, share in enumerate(shares):
        alone = centres[(colors == color) & (nearest > 2 * reach + ALONE)][:MOST_COMPARED]
        found = [_difference(share, at, radius, reach) for at in alone]
        misshapen.append(float(np.median(found)) if found else np.nan)
        n_compared.append(len(found))
    y, x = np.nonzero(shares.max(axis=0) > 0.5)
    away = tree.query(np.stack([x, y], axis=1) + 0.5)[0]
    missing = float((away > radius + 0.75).mean()) if len(y) else 0.0
    y, x = np.mgrid[:height, :width]
    inside = tree.query(np.stack([x.ravel(), y.ravel()], axis=1) + 0.5, distance_upper_bound=max(radius - 0.75, 0.5))[0]
    inside = np.isfinite(inside).reshape(height, width)
    surplus = float((inside & ~marked).sum() / max(inside.sum(), 1))
    return Comparison(missing, surplus, np.array(misshapen), np.array(n_compared))


def _difference(share: np.ndarray, centre: np.ndarray, radius: float, reach: float) -> float:
    far = int(np.ceil(reach + 1.5))
    left, top = np.floor(centre).astype(int) - far
    n = 2 * far + 1
    if left < 0 or top < 0 or left + n > share.shape[1] or top + n > share.shape[0]:
        return 0.0
    disc = coverage_on_host(np.array([left, top]) - centre, radius, n)
    return float(np.abs(share[top : top + n, left : left + n] - disc).sum() / disc.sum())

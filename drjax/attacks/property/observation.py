"""What an adversary holds of a plot: coordinates, or what was read of a picture, and shadow maps seen the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from drjax.attacks.property import invariants, raster, reading
from drjax.attacks.property.markers import find_markers
from drjax.attacks.property.reading import Reading
from drjax.core import validate
from drjax.core.types import Array

INK = (255, 0, 0)
"""Red, green and blue of what `overlay` draws."""

ZOOM = 3
"""What `overlay` enlarges a picture by, so that outlines do not cover what they outline."""


class Sheet(NamedTuple):
    """How a plot was drawn.

    Attributes:
        size: Pixels of the side of a square of the plot's area.
        radius: Of a marker, in pixels.
    """

    size: int
    radius: float

    def read_back(self, coords: np.ndarray) -> np.ndarray | None:
        """The points of a map (n, 2) after drawing and reading, each axis from 0 to 1; None if it cannot be read.

        Drawn in black and opaque. About 0.2 s at n = 500.
        """
        picture = raster.draw(coords[None], size=self.size, radius=min(self.radius, float(self.size)))[0]
        found = find_markers(np.repeat(picture[..., None] / raster.WHITE, 3, axis=-1), np.ones(3))
        if found is None or len(found.centres) < reading.MIN_MARKERS:
            return None
        low, high = found.centres.min(axis=0), found.centres.max(axis=0)
        points = (found.centres - low) / np.maximum(high - low, 1e-9)
        return np.stack([points[:, 0], 1 - points[:, 1]], axis=1)


@dataclass(frozen=True, eq=False)
class Plot:
    """What was published.

    Attributes:
        points: (m, 2); those of a picture from 0 to 1 on each axis.
        sheet: How it was drawn; None for coordinates.
        reading: What was read of the picture; None for coordinates.
    """

    points: np.ndarray
    sheet: Sheet | None = None
    reading: Reading | None = None


def plot_of_coords(coords: Array) -> Plot:
    """A plot whose coordinates (n, 2) are at hand.

    Raises:
        ValueError: not numbers, not finite, not two columns, or fewer than `invariants.MIN_POINTS` rows.
    """
    return Plot(validate.matrix(coords, "coords", min_rows=invariants.MIN_POINTS, columns=2).astype(np.float64))


def plot_of_picture(path: str | Path) -> Plot:
    """A plot in an image file.

    Raises:
        ValueError, FileNotFoundError: as `reading.read_picture`.
    """
    found = reading.read_picture(path)
    # On a square of the same area as many markers overlap, and the axes are scaled to one length anyway.
    side = math.sqrt(float(np.prod(np.maximum(np.ptp(found.pixels, axis=0), 1)))) * (1 + 2 * raster.MARGIN)
    return Plot(found.points, Sheet(max(round(side), reading.MIN_SIDE), found.radius), found)


def overlay(path: str | Path, found: Reading) -> Image.Image:
    """The picture that was read, enlarged by `ZOOM`, with the part that was read and every found marker outlined."""
    with Image.open(path) as file:
        layer = file.convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("L").convert("RGB")
    image = image.resize((ZOOM * image.width, ZOOM * image.height), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(image)
    pen.rectangle([ZOOM * side for side in found.crop], outline=INK)
    for x, y in found.pixels:
        box = [ZOOM * (side + sign * found.radius) for sign in (-1, 1) for side in (x, y)]
        pen.ellipse(box, outline=INK)
    return image

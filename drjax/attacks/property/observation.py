"""What an adversary holds of a plot: coordinates, or what was read of a picture, and shadow maps seen the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from scipy.spatial import KDTree

from drjax.attacks.property import invariants, raster, reading
from drjax.attacks.property.markers import find_markers
from drjax.attacks.property.reading import Reading
from drjax.core import validate
from drjax.core.types import Array
from drjax.data.images import read_image

INK = (255, 0, 0)
"""Red, green and blue of what `overlay` draws."""

MOST_HIDDEN = 0.2
"""Most of a plot's markers that others may hide: shadow maps are drawn and read back, and lose as many."""

ZOOM = 3
"""What `overlay` enlarges a picture by, so that outlines do not cover what they outline."""


class Sheet(NamedTuple):
    """How a plot was drawn.

    Attributes:
        size: Pixels of the side of a square of the plot's area.
        radius: Radius of a marker, in pixels.
        palette: Red, green and blue in [0, 255] of the colours of the markers, as they stand out from white.
        shares: Share of the markers that have each colour.
        cohesion: Share in [0, 1]: 1 where neighbours have one colour, 0 where colours are mixed at random.
    """

    size: int
    radius: float
    palette: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    shares: tuple[float, ...] = (1.0,)
    cohesion: float = 0.0

    def read_back(self, coords: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """The points of a map (n, 2) after drawing and reading, each axis from 0 to 1; None if it cannot be read.

        Drawn opaque, in the order of the points, in colours that the generator draws. About 0.2 s at n = 500.
        """
        picture = raster.draw(
            coords[None],
            size=self.size,
            radius=min(self.radius, float(self.size)),
            color=self.colors(coords, rng)[None],
            palette=np.array(self.palette),
        )[0]
        found = find_markers(picture / raster.WHITE, np.ones(3))
        if found is None or len(found.centres) < reading.MIN_MARKERS:
            return None
        low, high = found.centres.min(axis=0), found.centres.max(axis=0)
        points = (found.centres - low) / np.maximum(high - low, 1e-9)
        return np.stack([points[:, 0], 1 - points[:, 1]], axis=1)

    def colors(self, coords: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) rows of the palette for a map (n, 2), whose records' colours the adversary does not know.

        In the plot's shares: by strips across a random direction, and so many of them redrawn at random that
        neighbours have one colour as often as in the plot. Markers of one colour hide more of each other.
        """
        n, angle = len(coords), rng.uniform(0, 2 * np.pi)
        rank = np.empty(n)
        rank[np.argsort(coords @ np.array([np.cos(angle), np.sin(angle)]))] = (np.arange(n) + 0.5) / n
        order = rng.permutation(len(self.shares))
        bounds = np.cumsum(np.array(self.shares)[order])[:-1]
        of_strip, at_random = (order[np.searchsorted(bounds, at)] for at in (rank, rng.uniform(size=n)))
        return np.where(rng.uniform(size=n) < self.cohesion, of_strip, at_random)


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


def plot_of_picture(path: str | Path, *, most_hidden: float = MOST_HIDDEN) -> Plot:
    """A plot in an image file.

    Args:
        path: See `reading.read_picture`.
        most_hidden: Most of its markers that others may hide, a share in [0, 1].

    Raises:
        ValueError, FileNotFoundError: as `reading.read_picture`.

    Example:
        >>> import tempfile, numpy as np
        >>> from PIL import Image, ImageDraw
        >>> from drjax.attacks.property.observation import plot_of_picture
        >>> picture = Image.new("RGB", (400, 400), "white")
        >>> draw = ImageDraw.Draw(picture)
        >>> for x, y in np.random.default_rng(0).integers(40, 360, size=(60, 2)):
        ...     draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill="black")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     picture.save(f"{folder}/plot.png")
        ...     plot = plot_of_picture(f"{folder}/plot.png")
        >>> plot.points.shape
        (60, 2)
    """
    found = reading.read_picture(path, most_hidden=most_hidden)
    # On a square of the same area as many markers overlap, and the axes are scaled to one length anyway.
    side = math.sqrt(float(np.prod(np.maximum(np.ptp(found.pixels, axis=0), 1)))) * (1 + 2 * raster.MARGIN)
    size, n_colors = max(round(side), reading.MIN_SIDE), len(found.palette)
    shares = np.bincount(found.colors, minlength=n_colors) / len(found.colors)
    # On another ground a colour is to stand out as it does from white.
    palette = raster.WHITE - np.abs(found.palette.astype(int) - found.ground.astype(int))
    table = tuple((int(red), int(green), int(blue)) for red, green, blue in palette)
    sheet = Sheet(size, found.radius, table, tuple(shares.tolist()), _cohesion(found, shares))
    return Plot(found.points, sheet, found)


def _cohesion(found: Reading, shares: np.ndarray) -> float:
    """Where colours are redrawn with a probability of 1 - c, neighbours agree with one of c^2 + (1 - c^2) by chance."""
    chance = float((shares**2).sum())
    if chance == 1:
        return 0.0
    nearest = np.asarray(KDTree(found.pixels).query(found.pixels, k=2)[1])[:, 1]
    agree = float((found.colors == found.colors[nearest]).mean())
    return math.sqrt(max(0.0, (agree - chance) / (1 - chance)))


def overlay(path: str | Path, found: Reading) -> Image.Image:
    """The picture that was read, enlarged by `ZOOM`, with the part that was read and every found marker outlined."""
    layer = read_image(Path(path), Path(path).read_bytes(), "RGBA")
    image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("L").convert("RGB")
    image = image.resize((ZOOM * image.width, ZOOM * image.height), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(image)
    pen.rectangle([ZOOM * side for side in found.crop], outline=INK)
    for x, y in found.pixels:
        box = [ZOOM * (side + sign * found.radius) for sign in (-1, 1) for side in (x, y)]
        pen.ellipse(box, outline=INK)
    return image

"""Reads somebody's scatter plot as an attacker would: an image file in, markers and a normalised picture out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial import KDTree

from drjax.attacks.property import circles, raster, redraw, text
from drjax.attacks.property.edges import MIN_ALONE
from drjax.attacks.property.hidden import hidden_share, under_legend
from drjax.attacks.property.marker_colors import MIN_CONTRAST, contrast_to
from drjax.attacks.property.markers import SMALLEST, Markers, find_markers
from drjax.attacks.property.panel import LINE_CONTRAST, Box, erase_lines, ground_of, inside_of
from drjax.core import validate
from drjax.data.images import read_image

MIN_SIDE = 48
"""Least pixels of an image's side."""

MIN_MARKERS = 10
MIN_EXPLAINED = 0.5
"""Least share of all edges that have to be arcs of markers, for a picture to be a scatter plot."""

MOST_MISSHAPEN, MOST_MISSHAPEN_IF_SMALL, SMALL = 0.25, 0.35, 2.5
"""Most that markers that lie alone may differ from discs, in areas of a disc, and that of radii below 2.5 pixels.

Squares, triangles and crosses differ by 0.3 to 0.6, JPEG's discs of 1.8 pixels by 0.29.
"""

MOST_SURPLUS = 0.15
"""Most of the found markers' area that may show the ground: white edges do."""

MOST_MISSING = 0.04
"""Most of the coloured pixels that may lie in no found marker."""

MOST_HIDDEN = 0.02
"""Most of a plot's markers that others may hide, as a share."""

MIN_FILLED = 0.9
"""Least share of a disc that is drawn, for it to be a marker when words are looked for."""

MIN_EMPTY = 0.15
"""Least share of a picture that shows the ground."""


@dataclass(frozen=True)
class Reading:
    """What was read of a plot.

    Attributes:
        picture: uint8 (size, size), the found points drawn by `raster.draw`: black, one radius, margins as in training.
        points: (m, 2) centres of the markers: 0 to 1 from the least to the largest on each axis, y up.
        pixels: (m, 2) the same in pixels of the file, from its upper left corner, y down.
        colors: (m,) which colour, 0 being the first row of the palette.
        palette: (c, 3) red, green and blue in [0, 255].
        ground: (3,) colour of what is around the markers, on the same scale.
        radius: Radius of a marker, inside its edge where that has another colour, in pixels of the file.
        n_overlapping: Points whose marker touches another one's.
        share_hidden: Share in [0, 1] of the plot's markers that others or a legend hide: an estimate, see `hidden`.
            Markers in one place are one.
        confidence: Share in [0, 1] of the edges in the plot that are arcs of the found markers.
        crop: Part of the file that was read, inside the axes if these are drawn.
    """

    picture: np.ndarray
    points: np.ndarray
    pixels: np.ndarray
    colors: np.ndarray
    palette: np.ndarray
    ground: np.ndarray
    radius: float
    n_overlapping: int
    share_hidden: float
    confidence: float
    crop: Box

    @property
    def n_drawn(self) -> int:
        """Markers of the plot, the hidden ones that `share_hidden` expects among them."""
        return round(len(self.points) / (1 - self.share_hidden))


def read_picture(
    path: str | Path, *, size: int = 300, radius: float | None = None, most_hidden: float = MOST_HIDDEN
) -> Reading:
    """Finds the markers of a scatter plot in an image file.

    Frame, ticks, labels, title, grid lines and framed legends are left out; markers may have any colours, but have to
    be round and of one size. Transparent pixels count as white. Deterministic; some 0.4 s for 100 to 1,000 markers.

    Args:
        path: PNG, JPEG, BMP or TIFF, see `drjax.data.images.read_image`.
        size: Pixels of a side of the normalised picture.
        radius: Radius of a marker in the pictures that the attack was trained on, in pixels; see `raster.draw`.
        most_hidden: Most of the plot's markers that others may hide, a share in [0, 1]. The found ones are where they
            are seen, but how many there are cannot be told from a plot of which many are hidden.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: no image, one too small, one without a scatter plot of round markers, one that the found markers,
            drawn again, do not look like, or one that hides too many of them.
    """
    validate.integer(size=size)
    validate.probability(most_hidden=most_hidden)
    image = _load(Path(path))
    ground = ground_of(image)
    empty = float((contrast_to(image, ground) < LINE_CONTRAST).mean())
    if empty < MIN_EMPTY:
        raise ValueError(
            f"path must be a scatter plot on a ground of one colour, but only {empty:.0%} of {path} has its most "
            "frequent one"
        )
    crop = inside_of(image, ground)
    inside = image[crop[1] : crop[3], crop[0] : crop[2]].copy()
    legends = erase_lines(inside, ground)
    found = _without_text(inside, ground, find_markers(inside, ground))
    if found is None or len(found.centres) < MIN_MARKERS:
        n = 0 if found is None else len(found.centres)
        raise ValueError(f"path must be a scatter plot of at least {MIN_MARKERS} round markers, found {n} in {path}")
    if found.explained < MIN_EXPLAINED:
        raise ValueError(
            f"path must be a scatter plot of round markers of one size, but of what {path} shows only "
            f"{found.explained:.0%} looks like one"
        )
    _check_redrawn(path, inside, ground, found)
    n_under = sum(under_legend(legend, found) for legend in legends)
    by_markers = hidden_share(inside, ground, found, np.random.default_rng(0))
    share_hidden = 1 - (1 - by_markers) * len(found.centres) / (len(found.centres) + n_under)
    if share_hidden > most_hidden:
        raise ValueError(
            f"path must be a scatter plot that hides at most {most_hidden:.0%} of its markers, but of {path} an "
            f"estimated {share_hidden:.0%} are hidden by others or the legend, and {len(found.centres):,} are found: "
            "draw smaller markers, pass coordinates instead, or set most_hidden if what is seen will do"
        )
    low, high = found.centres.min(axis=0), found.centres.max(axis=0)
    points = (found.centres - low) / np.maximum(high - low, 1e-9)
    points[:, 1] = 1 - points[:, 1]
    return Reading(
        picture=raster.draw(points[None], size=size, radius=radius)[0],
        points=points,
        pixels=found.centres + crop[:2],
        colors=found.colors,
        palette=np.rint(found.palette * 255).astype(np.uint8),
        ground=np.rint(ground * 255).astype(np.uint8),
        radius=found.radius,
        n_overlapping=int(found.is_overlapping.sum()),
        share_hidden=share_hidden,
        confidence=found.explained,
        crop=crop,
    )


def _without_text(image: np.ndarray, ground: np.ndarray, found: Markers | None) -> Markers | None:
    """Markers of an image without its words and without legends, which are painted over in place."""
    if found is None or len(found.centres) == 0:
        return found
    drawn = contrast_to(image, ground) > MIN_CONTRAST
    # Letters may have been taken for markers, but strokes do not fill a disc.
    radius = max(found.radius, SMALLEST)
    discs = np.array([at for at in found.centres if circles.mean_in_disc(drawn, at, radius) > MIN_FILLED])
    if len(discs) == 0:
        return found
    y, x = np.nonzero(drawn)
    in_marker = np.zeros_like(drawn)
    in_marker[y, x] = KDTree(discs).query(np.stack([x, y], axis=1) + 0.5)[0] <= found.reach + 0.75
    words = text.words(drawn, in_marker)
    if not words:
        return found
    far = found.reach + 1.5
    legend = found.centres[text.in_legend(words, found.centres)]
    keys = np.concatenate([np.floor(legend - far), np.ceil(legend + far)], axis=1).astype(int)
    for left, top, right, bottom in [*words, *keys]:
        image[max(0, top - 1) : bottom + 1, max(0, left - 1) : right + 1] = ground
    return find_markers(image, ground)


def _check_redrawn(path: str | Path, image: np.ndarray, ground: np.ndarray, found: Markers) -> None:
    """Raises ValueError where the found markers, drawn again, do not look like the picture."""
    marked = contrast_to(image, ground) > MIN_CONTRAST
    by_color = redraw.compare(found.centres, found.colors, found.radius, found.shares, marked, found.reach)
    what, instead = "", "pass coordinates instead"
    shapes = by_color.misshapen[by_color.n_compared >= MIN_ALONE]
    if by_color.n_compared.sum() < MIN_ALONE:
        what, instead = "no three markers lie alone, so that their size cannot be checked", f"or {instead}"
        instead = f"draw smaller markers {instead}"
    elif (shapes > (MOST_MISSHAPEN_IF_SMALL if found.radius < SMALL else MOST_MISSHAPEN)).any():
        what = f"markers that lie alone differ from discs by {shapes.max():.0%} of their area"
    elif by_color.surplus > MOST_SURPLUS:
        what = f"{by_color.surplus:.0%} of the area of the found markers shows the ground"
    elif by_color.missing > MOST_MISSING:
        what, instead = f"{by_color.missing:.1%} of the coloured pixels are in no found marker", f"labels, or {instead}"
        instead = f"draw smaller markers without {instead}"
    if what:
        raise ValueError(f"path must be a scatter plot of round markers that are seen, but in {path} {what}: {instead}")


def _load(path: Path) -> np.ndarray:
    """(h, w, 3) in [0, 1], over white."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    try:
        layer = read_image(path, path.read_bytes(), "RGBA")
    except ValueError as error:
        raise ValueError(f"path must be an image file: {error}") from error
    if min(layer.size) < MIN_SIDE:
        raise ValueError(f"path must be an image of at least {MIN_SIDE} pixels each side, got {layer.size} in {path}")
    white = Image.new("RGBA", layer.size, "white")
    return np.asarray(Image.alpha_composite(white, layer).convert("RGB"), np.float64) / 255

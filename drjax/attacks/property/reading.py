"""Reads somebody's scatter plot as an attacker would: an image file in, markers and a normalised picture out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage
from scipy.spatial import KDTree

from drjax.attacks.property import raster, redraw, text
from drjax.attacks.property.edges import MIN_ALONE
from drjax.attacks.property.hidden import hidden_share
from drjax.attacks.property.marker_colors import MIN_CONTRAST
from drjax.attacks.property.markers import Markers, find_markers, mean_in_disc
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

LINE_CONTRAST = 0.07
"""Least difference from the ground of lines: grids and legends' borders are paler than markers."""

FULL = 0.4
"""Least share of the width or height that a line of a grid is seen along."""

ALIKE = 0.7
"""Least contrast of a line of a grid, as a share of that of another one."""

CORNER = 8
"""Pixels by which the sides of a box may miss each other: legends have round corners."""

MIN_SHEET = 0.2
"""Least share of a picture that a sheet of another colour than the rest covers."""

Box = tuple[int, int, int, int]
"""left, top, right, bottom, in pixels; right and bottom are the first ones outside."""


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
        share_hidden: Share in [0, 1] of the plot's markers that others hide: an estimate, see `hidden.hidden_share`.
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


def read_picture(
    path: str | Path, *, size: int = 300, radius: float | None = None, most_hidden: float = MOST_HIDDEN
) -> Reading:
    """Finds the markers of a scatter plot in an image file.

    Frame, ticks, labels, title, grid lines and framed legends are left out; markers may have any colours, but have to
    be round and of one size. Transparent pixels count as white. Deterministic; some 2 to 5 s for 100 to 1,000 markers.

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
    ground = _ground(image)
    empty = float((np.abs(image - ground).max(axis=-1) < LINE_CONTRAST).mean())
    if empty < MIN_EMPTY:
        raise ValueError(
            f"path must be a scatter plot on a ground of one colour, but only {empty:.0%} of {path} has its most "
            "frequent one"
        )
    crop = _axes_box(image, ground)
    inside = image[crop[1] : crop[3], crop[0] : crop[2]].copy()
    _erase_lines(inside, ground)
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
    share_hidden = hidden_share(inside, ground, found, np.random.default_rng(0))
    if share_hidden > most_hidden:
        raise ValueError(
            f"path must be a scatter plot of which others hide at most {most_hidden:.0%} of the markers, but in {path} "
            f"they hide an estimated {share_hidden:.0%}, and {len(found.centres):,} are found: draw smaller markers, "
            "pass coordinates instead, or set most_hidden if what is seen will do"
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
    drawn = np.abs(image - ground).max(axis=-1) > MIN_CONTRAST
    # Letters may have been taken for markers, but strokes do not fill a disc.
    discs = np.array([at for at in found.centres if mean_in_disc(drawn, at, found.radius) > MIN_FILLED])
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
    marked = np.abs(image - ground).max(axis=-1) > MIN_CONTRAST
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


def _ground(image: np.ndarray) -> np.ndarray:
    """The most frequent colour (3,), or the second most frequent one if the first surrounds a sheet of it."""
    bins = np.round(image * 15).astype(np.int64) @ (256, 16, 1)
    values, counts = np.unique(bins, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:2]
    first, *others = [np.median(image[bins == values[i]], axis=0) for i in order]
    for other, i in zip(others, order[1:], strict=True):
        if counts[i] > MIN_SHEET * bins.size and np.abs(first - other).max() > LINE_CONTRAST:
            left, top, right, bottom = _ground_box(image, other)
            is_inside = left > 0 and top > 0 and right < image.shape[1] and bottom < image.shape[0]
            if is_inside and counts[i] > (right - left) * (bottom - top) / 2:
                return other
    return first


def _axes_box(image: np.ndarray, ground: np.ndarray) -> Box:
    """The inside of the axes: of a frame, of a ground of another colour than the rest, or of two axis lines."""
    height, width = image.shape[:2]
    left, top, right, bottom = _ground_box(image, ground)
    if (left, top, right, bottom) != (0, 0, width, height):
        return left, top, right, bottom
    contrast = np.abs(image[top:bottom, left:right] - ground).max(axis=-1)
    rows, columns = _segments(contrast)
    boxes = _boxes(rows, columns)
    frames = [b for b in boxes if (b[2] - b[0]) * (b[3] - b[1]) > 0.2 * height * width]
    if frames:
        x0, y0, x1, y1 = max(frames, key=lambda b: (b[2] - b[0]) * (b[3] - b[1]))
        edge = _thickness(contrast.shape)
        return left + x0 + edge, top + y0 + edge, left + x1 - edge, top + y1 - edge
    row = _axis([s for s in rows if s[2] > 0.6 * (bottom - top)], rows, contrast)
    column = _axis([s for s in columns if s[2] < 0.4 * (right - left)], columns, contrast.T)
    if row is not None and column is not None:
        return left + column[3] + 1, top, right, top + row[2] - 1
    return left, top, right, bottom


def _axis(candidates: list[Box], lines: list[Box], contrast: np.ndarray) -> Box | None:
    """The line of an axis without a frame: long, and of a contrast of its own; lines of a grid are alike."""

    def strength(line: Box) -> float:
        return float(np.median(contrast[line[2] : line[3] + 1, line[0] : line[1]]))

    far = [line for line in lines if line[1] - line[0] > FULL * contrast.shape[1]]
    strongest = max((strength(line) for line in far if line in candidates), default=0.0)
    found = [line for line in far if strength(line) > ALIKE * strongest]
    return found[0] if len(found) == 1 else None


def _ground_box(image: np.ndarray, ground: np.ndarray) -> Box:
    """The part of the image whose border has the ground's colour: plots may lie on a sheet of another one."""
    height, width = image.shape[:2]
    is_ground = np.abs(image - ground).max(axis=-1) < LINE_CONTRAST
    edge = np.concatenate([is_ground[0], is_ground[-1], is_ground[:, 0], is_ground[:, -1]])
    if edge.mean() > 0.5:
        return 0, 0, width, height
    # Grid lines cut the ground into cells, so it is no connected region.
    rows, columns = (
        np.nonzero(share > share.max() / 3)[0] for share in (is_ground.mean(axis=1), is_ground.mean(axis=0))
    )
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _thickness(shape: tuple[int, ...]) -> int:
    """Most pixels across a line."""
    return max(3, -(-min(shape[:2]) // 240))


def _run_lengths(mask: np.ndarray) -> np.ndarray:
    """Length of the run of mask pixels in a row that each pixel belongs to; 0 outside the mask."""
    steps = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    starts, ends = (np.nonzero(steps == sign)[1] for sign in (1, -1))
    lengths = np.zeros(mask.shape, int)
    lengths[mask] = np.repeat(ends - starts, ends - starts)
    return lengths


def _thin(contrast: np.ndarray) -> np.ndarray:
    """Pixels of what is at most a line's thickness high."""
    lengths = _run_lengths((contrast > LINE_CONTRAST).T).T
    return (lengths > 0) & (lengths <= _thickness(contrast.shape))


def _segments(contrast: np.ndarray) -> tuple[list[Box], list[Box]]:
    """Straight thin lines along rows and along columns: (start, end, first row or column, last one)."""
    return _along_rows(contrast), _along_rows(contrast.T)


def _along_rows(contrast: np.ndarray) -> list[Box]:
    least = 20
    line = _run_lengths(_thin(contrast)) >= 8
    labelled: Any = ndimage.label(line, np.ones((3, 3)))
    found: Any = ndimage.find_objects(labelled[0])
    pieces = [[int(c.start), int(c.stop), int(r.start), int(r.stop) - 1] for r, c in found]
    pieces = [p for p in pieces if p[3] - p[2] < 2 * _thickness(contrast.shape)]
    merged: list[list[int]] = []
    gap = 4 * _thickness(contrast.shape)
    # Markers over a line interrupt it.
    for piece in sorted(pieces):
        for other in merged:
            if abs(piece[2] - other[2]) <= 1 and abs(piece[3] - other[3]) <= 1 and 0 <= piece[0] - other[1] <= gap:
                other[1] = piece[1]
                break
        else:
            merged.append(piece)
    return [(p[0], p[1], p[2], p[3]) for p in merged if p[1] - p[0] >= least]


def _boxes(rows: list[Box], columns: list[Box]) -> list[Box]:
    """Rectangles whose four sides are drawn, their lines included."""

    def has_side(x: int, top: int, bottom: int) -> bool:
        return any(
            abs((c[2] + c[3]) / 2 - x) <= CORNER and min(c[1], bottom) - max(c[0], top) > 0.6 * (bottom - top)
            for c in columns
        )

    found = []
    for upper in rows:
        for lower in rows:
            same = abs(upper[0] - lower[0]) <= CORNER and abs(upper[1] - lower[1]) <= CORNER
            if same and lower[2] - upper[3] >= 10:
                left, right = min(upper[0], lower[0]), max(upper[1], lower[1])
                if has_side(left, upper[3], lower[2]) and has_side(right, upper[3], lower[2]):
                    found.append((left, upper[2], right, lower[3] + 1))
    return found


def _erase_lines(image: np.ndarray, ground: np.ndarray) -> None:
    """Paints legends and grid lines with the ground's colour, in place; markers on them stay."""
    contrast = np.abs(image - ground).max(axis=-1)
    height, width = contrast.shape
    for left, top, right, bottom in _boxes(*_segments(contrast)):
        if (right - left) * (bottom - top) < 0.5 * height * width:
            image[max(0, top - 2) : bottom + 2, max(0, left - 4) : right + 4] = ground
    contrast = np.abs(image - ground).max(axis=-1)
    for lines, pixels in ((_thin(contrast), image), (_thin(contrast.T), image.swapaxes(0, 1))):
        for row in np.nonzero(lines.mean(axis=1) > FULL)[0]:
            color = np.median(pixels[row, lines[row]], axis=0)
            # Next to a marker a line is not thin, but it has its colour.
            pixels[row, lines[row] | (np.abs(pixels[row] - color).max(axis=-1) < LINE_CONTRAST)] = ground
    image[np.abs(image - ground).max(axis=-1) < MIN_CONTRAST / 2] = ground

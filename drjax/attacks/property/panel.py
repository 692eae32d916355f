"""Where the points of a plot lie in a picture: the inside of its axes, without grid lines and legends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

from drjax.attacks.property.marker_colors import MIN_CONTRAST, contrast_to

MIN_SHEET = 0.2
"""Least share of a picture that a sheet of another colour than the rest covers."""

LINE_CONTRAST = 0.07
"""Least difference from the ground of lines: grids and legends' borders are paler than markers."""

FULL = 0.4
"""Least share of the width or height that a line of a grid is seen along."""

CORNER = 8
"""Pixels by which the sides of a box may miss each other: legends have round corners."""

ALIKE = 0.7
"""Least contrast of a line of a grid, as a share of that of another one."""

Box = tuple[int, int, int, int]
"""left, top, right, bottom, in pixels; right and bottom are the first ones outside."""


class Legend(NamedTuple):
    """A framed legend.

    Attributes:
        pixels: (h, w, 3) in [0, 1].
        ground: (3,) its background.
    """

    pixels: np.ndarray
    ground: np.ndarray


def ground_of(image: np.ndarray) -> np.ndarray:
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


def inside_of(image: np.ndarray, ground: np.ndarray) -> Box:
    """The inside of the axes: of a frame, of a ground of another colour than the rest, or of two axis lines."""
    height, width = image.shape[:2]
    left, top, right, bottom = _ground_box(image, ground)
    if (left, top, right, bottom) != (0, 0, width, height):
        return left, top, right, bottom
    contrast = contrast_to(image[top:bottom, left:right], ground)
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
    return found[0] if len(found) == 1 and found[0] in candidates else None


def _ground_box(image: np.ndarray, ground: np.ndarray) -> Box:
    """The part of the image whose border has the ground's colour: plots may lie on a sheet of another one."""
    height, width = image.shape[:2]
    is_ground = contrast_to(image, ground) < LINE_CONTRAST
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


def erase_lines(image: np.ndarray, ground: np.ndarray) -> list[Legend]:
    """Paints legends and grid lines with the ground's colour, in place; markers on and under lines stay.

    Returns the legends.
    """
    legends = []
    contrast = contrast_to(image, ground)
    height, width = contrast.shape
    for left, top, right, bottom in _boxes(*_segments(contrast)):
        if (right - left) * (bottom - top) < 0.5 * height * width:
            area = image[max(0, top - 2) : bottom + 2, max(0, left - 4) : right + 4]
            legends.append(Legend(area.copy(), ground_of(area)))
            area[:] = ground
    contrast = contrast_to(image, ground)
    for lines, pixels in ((_thin(contrast), image), (_thin(contrast.T), image.swapaxes(0, 1))):
        rows = np.nonzero(lines.mean(axis=1) > FULL)[0]
        for together in np.split(rows, np.nonzero(np.diff(rows) > 1)[0] + 1) if len(rows) else ():
            _erase_rows(pixels, lines, together, ground)
    image[contrast_to(image, ground) < MIN_CONTRAST / 2] = ground
    return legends


def _erase_rows(pixels: np.ndarray, lines: np.ndarray, rows: np.ndarray, ground: np.ndarray) -> None:
    """Paints a line of some rows with the ground's colour, or that of a marker that is cut by it."""
    sides = pixels[[max(rows[0] - 1, 0), min(rows[-1] + 1, len(pixels) - 1)]]
    is_cut = np.asarray((contrast_to(sides, ground) > MIN_CONTRAST).all(axis=0))
    below = np.where(is_cut[:, None], sides.mean(axis=0), ground)
    for row in rows:
        color = np.median(pixels[row, lines[row]], axis=0)
        # Next to a marker a line is not thin, but it has its colour.
        is_line = lines[row] | (contrast_to(pixels[row], color) < LINE_CONTRAST)
        pixels[row, is_line] = below[is_line]

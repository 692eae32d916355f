"""Finds round markers of one size in a picture: their colours, their radius, and a centre for each, overlaps included.

A marker shows as arcs of its edge. Every piece of an edge votes for the centre that lies one radius inside of it; the
place with the most votes is fitted to its arc, takes its pieces out of the vote, and the next one follows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage
from scipy.spatial import KDTree
from skimage.measure import find_contours

from drjax.attacks.property import circles
from drjax.attacks.property.edges import Edge, edge_of
from drjax.attacks.property.marker_colors import MIN_CONTRAST, color_shares, contrast_to, marker_colors

GRID = 2
"""Cells of the vote per pixel and axis."""

GHOST = 0.3
"""Least distance of two markers of different colours, in radii."""

FAINT, FAINT_GHOST = 0.43, 0.42
"""The same where less than the first of a marker's edge is seen: of one that another covers in part, half is."""

MIN_ARC = 0.14
"""Least share of a circle that has to be seen of a marker."""

SMALLEST = 0.8
"""Least radius in pixels of a disc that is looked at."""

MIN_FILLED = 0.75
"""Least share of a marker's disc that has to be marked, whatever the colour."""

MIN_REST = 0.35
"""Marked area beside all found markers that is taken for one more, in areas of a marker."""


MIN_OWN = 0.04
"""Least area of a marker's colour that no other marker explains, in areas of a marker."""


class Contours(NamedTuple):
    """Edges of what has one colour, in pieces.

    Attributes:
        points: (p, 2) places (x, y) in pixels from the upper left corner.
        inward: (p, 2) unit normals.
        lengths: (p,) in pixels.
        of: (p,) number of the closed curve that a piece belongs to.
        curves: (c, 5) area enclosed by each curve, width, height, and the middle (x, y) of its extents.
    """

    points: np.ndarray
    inward: np.ndarray
    lengths: np.ndarray
    of: np.ndarray
    curves: np.ndarray


class Markers(NamedTuple):
    """What was found.

    Attributes:
        centres: (m, 2) places (x, y) in pixels from the upper left corner, y down.
        radius: Radius of all markers, in pixels.
        colors: (m,) rows of the palette.
        palette: (c, 3) in [0, 1].
        is_overlapping: (m,) whether another one is nearer than two radii.
        explained: Share of all edges that are arcs of the found markers.
        shares: (c, h, w) share of each colour of the palette in every pixel, in [0, 1].
        edge: What outlines the markers, if it has another colour; `radius` is then that of their insides.
        contour_radius: Radius of the contours of markers, in pixels; those of few pixels cut corners.
    """

    centres: np.ndarray
    radius: float
    colors: np.ndarray
    palette: np.ndarray
    is_overlapping: np.ndarray
    explained: float
    shares: np.ndarray
    edge: Edge | None
    contour_radius: float

    @property
    def reach(self) -> float:
        """Radius of a marker with its edge, in pixels."""
        return self.radius if self.edge is None else self.edge.radius


def find_markers(image: np.ndarray, ground: np.ndarray, like: Markers | None = None) -> Markers | None:
    """Markers in an image (h, w, 3) in [0, 1] on a ground colour (3,); None if nothing round repeats itself.

    Under half a second for a thousand markers on 640 x 480 pixels without axes. `like`: markers of the same radius,
    colours and edge.
    """
    contrast = contrast_to(image, ground)
    edge = edge_of(image, ground, MIN_CONTRAST) if like is None else like.edge
    palette = _palette(image, ground, contrast, edge) if like is None else like.palette
    if len(palette) == 0:
        return None
    shares = _insides(image, ground, palette, edge)
    contours = [contours_of(share) for share in shares]
    radius = common_radius(contours) if like is None else like.contour_radius
    if radius is None:
        return None
    filled = np.max([np.minimum(1, 2 * share) for share in shares], axis=0)
    if edge is not None:
        filled = np.maximum(filled, contrast > MIN_CONTRAST)
    found = [_centres(own, share, filled, radius) for own, share in zip(contours, shares, strict=True)]
    total = sum(float(own.lengths.sum()) for own in contours)
    centres, arcs = (np.concatenate(parts) for parts in zip(*found, strict=True))
    colors = np.repeat(np.arange(len(palette)), [len(c) for c, _ in found])
    kept = _without_ghosts(centres, colors, arcs, radius)
    explained = float(arcs.sum()) / total
    centres, colors, arcs = centres[kept], colors[kept], arcs[kept]
    kept = _with_own_pixels(centres, colors, arcs, shares, radius)
    centres, colors = centres[kept], colors[kept]
    if len(centres) == 0:
        return None
    near = KDTree(centres).query(centres, k=2)[0][:, 1] if len(centres) > 1 else np.full(1, np.inf)
    of_disc = _disc_radius(contours, shares, radius) if like is None else like.radius
    reach = of_disc if edge is None else edge.radius
    return Markers(centres, of_disc, colors, palette, near < 2 * reach, explained, np.stack(shares), edge, radius)


def _palette(image: np.ndarray, ground: np.ndarray, contrast: np.ndarray, edge: Edge | None) -> np.ndarray:
    """(c, 3) colours of the markers' insides."""
    if edge is None:
        return marker_colors(image, ground, contrast)
    from_edge = np.where(contrast > MIN_CONTRAST, contrast_to(image, edge.color), 0)
    palette = marker_colors(image, edge.color, from_edge)
    return palette[np.abs(palette - ground).max(axis=1) > MIN_CONTRAST]


def _insides(image: np.ndarray, ground: np.ndarray, palette: np.ndarray, edge: Edge | None) -> list[np.ndarray]:
    """Share (h, w) of each of the insides' colours.

    Inside an edge of another colour a marker ends where it mixes with that colour: the edge is the ground then, and the
    ground one more colour, which is left out.
    """
    if edge is None:
        return color_shares(image, ground, palette)
    return color_shares(image, edge.color, np.concatenate([palette, ground[None]]))[:-1]


def contours_of(share: np.ndarray) -> Contours:
    """Edges of a colour, where its share passes one half."""
    padded = np.pad(share, 1)
    smooth = ndimage.gaussian_filter(padded, 0.6)
    by_row, by_column = np.gradient(smooth)
    slope = np.stack([by_column, by_row], axis=-1)
    parts = [curve for curve in find_contours(padded, 0.5) if len(curve) > 3]
    if parts:
        ends = np.stack([[curve[0], curve[-1]] for curve in parts])
        is_closed = np.asarray(np.isclose(ends[:, 0], ends[:, 1]).all(axis=1))
        parts = [curve for curve, closed in zip(parts, is_closed, strict=True) if closed]
    if not parts:
        return Contours(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0), np.zeros(0, int), np.zeros((0, 5)))
    places = np.concatenate([curve[:-1] for curve in parts])
    normal = np.stack([ndimage.map_coordinates(slope[..., k], places.T, order=1) for k in range(2)], axis=1)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
    steps = np.linalg.norm(np.concatenate([np.diff(curve, axis=0) for curve in parts]), axis=1)
    sizes = np.array([len(curve) - 1 for curve in parts])
    starts = np.cumsum(sizes) - sizes
    before = np.arange(-1, len(steps) - 1)
    before[starts] += sizes
    low, high = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
    area = [abs(np.dot(y[:-1], x[1:]) - np.dot(x[:-1], y[1:])) / 2 for y, x in (curve.T for curve in parts)]
    # Pixels' centres are at halves, and the padding moved everything by one.
    curves = np.column_stack([area, (high - low)[:, ::-1], ((low + high - 1) / 2)[:, ::-1]])
    of = np.repeat(np.arange(len(parts)), sizes)
    return Contours(places[:, ::-1] - 0.5, normal, (steps + steps[before]) / 2, of, curves)


def common_radius(contours: list[Contours]) -> float | None:
    """The radius in pixels of most round curves; None if fewer than three agree.

    Curves of few pixels cut corners: the disc itself is up to a tenth of a pixel larger, see `_disc_radius`.
    """
    curves = np.concatenate([own.curves for own in contours]) if contours else np.zeros((0, 5))
    area, width, height = curves.T[:3]
    is_round = (np.abs(width - height) <= 0.5 + 0.12 * np.minimum(width, height)) & (area > 0.7)
    fill = area / np.maximum(width * height, 1e-9)
    # Of a few pixels' edge only a polygon is seen.
    is_round &= np.abs(fill - np.pi / 4) < 0.1 + 0.4 / np.maximum(width, 1)
    radii = np.sqrt(area[is_round] / np.pi)
    if len(radii) < 3:
        return None
    # Blobs of two are as common as single markers in a dense map, but they are larger.
    near = (np.abs(radii[:, None] - radii) <= 0.1 + 0.06 * radii[:, None]).sum(axis=1)
    best = np.nonzero(near >= max(3, near.max() / 2))[0]
    if len(best) == 0:
        return None
    at = radii[best].min()
    # The mode next to the smallest frequent radius.
    close = best[radii[best] <= 1.3 * at]
    mode = radii[close[near[close].argmax()]]
    return float(np.median(radii[np.abs(radii - mode) <= 0.1 + 0.06 * mode]))


def _disc_radius(contours: list[Contours], shares: list[np.ndarray], radius: float) -> float:
    """The radius of the discs whose curves have a radius: from their areas, pixels at the edge counted by share."""
    reach = radius + 1.5
    found = []
    for own, share in zip(contours, shares, strict=True):
        of_one = np.abs(np.sqrt(own.curves[:, 0] / np.pi) - radius) <= 0.1 + 0.06 * radius
        for x, y in own.curves[of_one, 3:]:
            rows, columns = (slice(max(0, round(at - reach)), round(at + reach)) for at in (y, x))
            found.append(share[rows, columns].sum())
    return float(np.sqrt(np.median(found) / np.pi))


def _without_ghosts(centres: np.ndarray, colors: np.ndarray, arcs: np.ndarray, radius: float) -> np.ndarray:
    """Which to keep: of two colours in nearly one place, as JPG's blurred colours give, the one with the longer arc."""
    kept = np.ones(len(centres), bool)
    for i, j in KDTree(centres).query_pairs(FAINT_GHOST * radius) if len(centres) else ():
        least = FAINT_GHOST if min(arcs[i], arcs[j]) < FAINT * 2 * np.pi * radius else GHOST
        is_ghost = colors[i] != colors[j] and np.linalg.norm(centres[i] - centres[j]) <= least * radius
        if is_ghost and kept[i] and kept[j]:
            kept[i if arcs[i] < arcs[j] else j] = False
    return kept


def _with_own_pixels(
    centres: np.ndarray, colors: np.ndarray, arcs: np.ndarray, shares: list[np.ndarray], radius: float
) -> np.ndarray:
    """Which to keep (m,): those with pixels of their colour that no other one explains. Short arcs go first."""
    kept = np.ones(len(centres), bool)
    least = max(1.0, MIN_OWN * np.pi * radius**2)
    for color, share in enumerate(shares):
        own = np.nonzero(colors == color)[0]
        y, x = np.nonzero(share > 0.3)
        if len(own) == 0 or len(y) == 0:
            continue
        inside = KDTree(np.stack([x, y], axis=1) + 0.5).query_ball_point(centres[own], 1.15 * radius + 0.1)
        times = np.bincount(np.concatenate([np.array(p, int) for p in inside]), minlength=len(y))
        for i in np.argsort(arcs[own], kind="stable"):
            pixels = np.array(inside[i], int)
            if (times[pixels] == 1).sum() < least:
                kept[own[i]] = False
                times[pixels] -= 1
    return kept


def _centres(own: Contours, share: np.ndarray, filled: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Centres (m, 2) of one colour's markers, and the length of edge that each explains (m,)."""
    if len(own.points) == 0:
        return np.zeros((0, 2)), np.zeros(0)
    shape = np.array(share.shape) * GRID
    votes = _Votes(own, radius, (int(shape[0]), int(shape[1])))
    tree = KDTree(own.points)
    tolerance = 0.3 + 0.08 * radius
    free = np.ones(len(own.points), bool)
    least = MIN_ARC * 2 * np.pi * radius
    centres: list[np.ndarray] = []
    seen: list[float] = []
    for _ in range(4 * len(own.points)):
        centre, weight = votes.best()
        if weight < least / 2:
            break
        near = np.array(tree.query_ball_point(centre, radius + 3 * tolerance + 1), int)
        near = near[free[near]]
        fitted, is_on = circles.circle_through(own.points, own.inward, own.lengths, near, centre, radius, tolerance)
        arc = near[is_on]
        length = float(own.lengths[arc].sum())
        if length < least or circles.mean_in_disc(filled, fitted, max(radius, SMALLEST)) < MIN_FILLED:
            votes.silence(centre)
            continue
        centres.append(fitted)
        seen.append(length)
        free[arc] = False
        votes.withdraw(arc)
    found = np.array(centres).reshape(-1, 2)
    rest = _rest(share, found, radius)
    return np.concatenate([found, rest]), np.concatenate([seen, np.zeros(len(rest))])


class _Votes:
    """Where edges expect centres: a histogram with `GRID` cells per pixel, each vote a small Gaussian."""

    def __init__(self, own: Contours, radius: float, shape: tuple[int, int]) -> None:
        width = max(0.5, 0.12 * radius) * GRID
        self.reach = int(np.ceil(2.5 * width))
        self.at = np.rint((own.points + radius * own.inward) * GRID).astype(int)
        self.lengths = own.lengths
        offsets = np.arange(-self.reach, self.reach + 1)
        self.stamp = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * width**2))
        self.counts = np.zeros((shape[0] + 2 * self.reach + 1, shape[1] + 2 * self.reach + 1))
        self.is_inside = np.asarray(((self.at >= 0) & (self.at <= (shape[1], shape[0]))).all(axis=1))
        self._add(np.nonzero(self.is_inside)[0], 1.0)
        self.most = self.counts.max(axis=1)

    def _add(self, pieces: np.ndarray, sign: float) -> None:
        circles.vote(self.counts, self.at, self.lengths, self.stamp, pieces, sign)

    def best(self) -> tuple[np.ndarray, float]:
        """Place (x, y) in pixels of the most votes, and their length of edge."""
        row = int(self.most.argmax())
        column = int(self.counts[row].argmax())
        return (np.array([column, row]) - self.reach) / GRID, float(self.counts[row, column])

    def silence(self, centre: np.ndarray) -> None:
        """Nothing around a place counts any more."""
        x, y = np.rint(centre * GRID).astype(int) + self.reach
        rows = slice(max(0, y - 1), y + 2)
        self.counts[rows, max(0, x - 1) : x + 2] = -np.inf
        self.most[rows] = self.counts[rows].max(axis=1)

    def withdraw(self, pieces: np.ndarray) -> None:
        """Takes back the votes of pieces of edge."""
        pieces = pieces[self.is_inside[pieces]]
        if len(pieces):
            self._add(pieces, -1.0)
            rows = slice(self.at[pieces, 1].min(), self.at[pieces, 1].max() + 2 * self.reach + 1)
            self.most[rows] = self.counts[rows].max(axis=1)


def _rest(share: np.ndarray, centres: np.ndarray, radius: float) -> np.ndarray:
    """Centres for what is left of a colour when all found markers are taken away: the insides of blobs, without edges.

    They fill the blob with as few markers as will do; how many lie there, and where, cannot be seen.
    """
    left = share > 0.5
    circles.clear_discs(left, centres, radius + 0.7)
    least = MIN_REST * np.pi * radius**2
    found: list[np.ndarray] = []
    while True:
        labelled: Any = ndimage.label(left)
        labels, n = labelled
        sizes = np.bincount(labels.ravel(), minlength=n + 1)
        sizes[0] = 0
        if sizes.max() < least:
            return np.concatenate([np.zeros((0, 2)), *found])
        # Strips between markers are no markers: some point of the rest has to be well inside of it.
        depth: Any = ndimage.distance_transform_edt(left)
        y, x = np.nonzero(left & (depth >= 0.5 * radius) & (sizes[labels] >= least))
        # The deepest pixel of each part, the first one of several.
        deepest_first = np.lexsort((-depth[y, x], labels[y, x]))
        _, first = np.unique(labels[y, x][deepest_first], return_index=True)
        chosen = deepest_first[first]
        new = np.stack([x[chosen], y[chosen]], axis=1) + 0.5
        if len(new) == 0:
            return np.concatenate([np.zeros((0, 2)), *found])
        circles.clear_discs(left, new, radius + 0.7)
        found.append(new)

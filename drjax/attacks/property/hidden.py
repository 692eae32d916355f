"""How many markers of a plot lie behind others: copies of its own markers are laid over it, and counted by reading.

Of f m markers that are added to m in the same way, reading finds fewer, as some lie over each other. The number of
hidden ones grows as the square of the number of all: the share that is lost of the added ones is 2 + f times the share
that was hidden of the m. Where it takes more than one marker to hide another it grows faster, and the share is smaller
than this says.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import ndimage
from scipy.spatial import KDTree

from drjax.attacks.property.marker_colors import color_shares, contrast_to
from drjax.attacks.property.markers import Markers, find_markers
from drjax.attacks.property.panel import Legend
from drjax.attacks.property.raster import coverage_on_host
from drjax.attacks.property.redraw import ALONE

ADDED = 0.5
"""Copies that are laid over a plot at once, as a share of its markers."""

N_ADDED = 400
"""Least number of copies, in as many plots as it takes: a share of 0.02 has a standard error of 0.005."""

SPREAD = 2.0
"""Standard deviation of a copy's place around that of a marker, in radii."""

DISTANCES = np.array([0, 0.3, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4])
"""Bounds of the distances of two markers by which their frequency is compared with that of copies, in radii."""

RIM_STEP, RIM_STEPS = 0.5, 6
"""Pixels across a ring around a marker in which its rim is looked for, and number of rings."""

LEAST_LIKELY = 0.01
"""Frequency of markers so near to others, beside that of places drawn around them, below which there are none."""

THROUGH, FLAT = (0.08, 0.5), 0.03
"""Share of a marker's colour in what shows through a legend, and most that it differs from the pixels around it."""

PROPOSALS = 20
"""Places that are drawn for each copy: those nearer to others than markers are to each other are dropped."""


def hidden_share(image: np.ndarray, ground: np.ndarray, found: Markers, rng: np.random.Generator) -> float:
    """Share of all markers that are not found because others lie over them: an estimate, in [0, 1].

    Markers in one place, as of records that are alike, are one in a picture, and do not count: nobody can tell them.
    Copies keep the distances that found markers have from each other: points of t-SNE avoid each other. Standard error
    0.005 at a share of 0.02. Of blobs of points the mean is right, of t-SNE it is one to four times the true share.

    Args:
        image: (h, w, 3) in [0, 1], as `find_markers` read it.
        ground: (3,) its background.
        found: What was found, with some markers that lie alone.
        rng: Draws the places.

    Returns:
        The share; 1 where no marker lies alone, to be copied. Some two to four times what `find_markers` takes, and
        more for fewer than 400 markers.
    """
    m, n_lost, n_added = len(found.centres), 0, 0
    n_copies = max(round(ADDED * m), 1)
    stamps = _Stamps(image, ground, found)
    if len(stamps.alone) == 0:
        return 1.0
    for _ in range(math.ceil(N_ADDED / n_copies)):
        picture = image.copy()
        n_laid = stamps.lay(picture, _places(found, n_copies, rng), rng)
        again = find_markers(picture, ground, like=found)
        n_lost += m + n_laid - (0 if again is None else len(again.centres))
        n_added += n_copies
    return float(np.clip(n_lost / n_added / (2 + ADDED), 0, 1))


def under_legend(legend: Legend, found: Markers) -> float:
    """Number of markers that show through a legend: of the area that has a little of a marker's colour, and all alike.

    Letters are too thin to count, and a legend's own markers have all of their colour.
    """
    flat = (ndimage.maximum_filter(legend.pixels, (3, 3, 1)) - ndimage.minimum_filter(legend.pixels, (3, 3, 1))).max(-1)
    share = np.max(color_shares(legend.pixels, legend.ground, found.palette), axis=0)
    is_through = (flat < FLAT) & (share > THROUGH[0]) & (share < THROUGH[1])
    return float(is_through.sum() / (np.pi * max(found.radius - 1.5, 0.7) ** 2))


class _Stamps:
    """Markers that lie alone, with the pixels around them."""

    def __init__(self, image: np.ndarray, ground: np.ndarray, found: Markers) -> None:
        self.ground, self.found = ground, found
        self.reach = found.reach + rim_width(image, ground, found)
        self.far = math.ceil(self.reach + 1.5)
        nearest = KDTree(found.centres).query(found.centres, k=2)[0][:, 1]
        corners = np.floor(found.centres).astype(int) - self.far
        is_inside = (corners >= 0).all(axis=1) & (corners + self.side <= np.array(image.shape[1::-1])).all(axis=1)
        self.alone = np.nonzero((nearest > 2 * found.reach + ALONE) & is_inside)[0]
        self.patches = {i: self._patch(image, corners[i], found.centres[i]) for i in self.alone}

    @property
    def side(self) -> int:
        return 2 * self.far + 1

    def _patch(self, image: np.ndarray, corner: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Share of each pixel that the marker covers, and its own colour there."""
        covered = coverage_on_host(corner - centre, self.reach, self.side)[..., None]
        pixels = image[corner[1] : corner[1] + self.side, corner[0] : corner[0] + self.side]
        return covered, np.clip(self.ground + (pixels - self.ground) / np.maximum(covered, 0.2), 0, 1)

    def lay(self, picture: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> int:
        """Lays a marker over each place (k, 2) that has room for it, in place; of the colour of the one next to it."""
        colors = self.found.colors
        nearest = np.asarray(KDTree(self.found.centres).query(places)[1])
        corners, n_laid = np.floor(places).astype(int) - self.far, 0
        for (left, top), color in zip(corners, colors[nearest], strict=True):
            if min(left, top) < 0 or left + self.side > picture.shape[1] or top + self.side > picture.shape[0]:
                continue
            same = self.alone[colors[self.alone] == color]
            covered, own = self.patches[rng.choice(same if len(same) else self.alone)]
            below = picture[top : top + self.side, left : left + self.side]
            below += covered * (own - below)
            n_laid += 1
        return n_laid


def _places(found: Markers, k: int, rng: np.random.Generator) -> np.ndarray:
    """(k, 2) or fewer: around the markers, as often near to them as they are to each other."""
    centres, reach = found.centres, found.reach
    proposed = centres[rng.integers(len(centres), size=PROPOSALS * k)]
    proposed = proposed + rng.normal(0, SPREAD * reach, proposed.shape)
    _, of_found = _near(centres, centres, reach)
    at, of_proposed = _near(proposed, centres, reach)
    n_bins = len(DISTANCES) - 1
    expected = np.bincount(of_proposed, minlength=n_bins) / len(proposed)
    ratio = np.bincount(of_found, minlength=n_bins) / len(centres) / np.maximum(expected, 1e-9)
    # Of the nearest pairs one marker is often not found.
    ratio[0] = max(ratio[0], ratio[1])
    likelihood = np.exp(np.bincount(at, np.log(np.maximum(ratio, 1e-12))[of_proposed], minlength=len(proposed)))
    # Where markers keep away from each other few places are left, and the other copies would lie alone.
    kept = rng.uniform(size=len(proposed)) * max(np.quantile(likelihood, 0.9), LEAST_LIKELY) < likelihood
    return proposed[kept][:k]


def _near(of: np.ndarray, to: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of different places less than the largest of `DISTANCES` apart: row of the first, bin of the distance."""
    pairs = KDTree(of).sparse_distance_matrix(KDTree(to), DISTANCES[-1] * reach, output_type="ndarray")
    pairs = pairs[(pairs["v"] > 0) & (pairs["v"] < DISTANCES[-1] * reach)]
    return pairs["i"], np.digitize(pairs["v"] / reach, DISTANCES) - 1


def rim_width(image: np.ndarray, ground: np.ndarray, found: Markers) -> float:
    """Pixels across a rim of the ground's colour around the markers, which is seen where they lie over others.

    Of two markers that overlap one lies above. If it has a rim, the ring around it is paler in half of all pairs.
    """
    centres, reach = found.centres, found.reach
    pairs = KDTree(centres).query_pairs(2 * reach, output_type="ndarray")
    if len(pairs) == 0:
        return 0.0
    if found.edge is None:
        shown = found.shares.max(axis=0)
    else:
        shown = np.clip(contrast_to(image, ground) / np.abs(found.edge.color - ground).max(), 0, 1)
    paleness, n = np.zeros(RIM_STEPS), np.zeros(RIM_STEPS)
    far = math.ceil(reach)
    y, x = np.mgrid[-far : far + 1, -far : far + 1]
    window = np.stack([x.ravel(), y.ravel()], axis=1)
    for upper, lower in np.concatenate([pairs, pairs[:, ::-1]]):
        pixels = np.floor(centres[lower]).astype(int) + window
        pixels = pixels[((pixels >= 0) & (pixels < shown.shape[::-1])).all(axis=1)]
        from_upper, from_lower = (np.linalg.norm(pixels + 0.5 - centres[i], axis=1) for i in (upper, lower))
        ring = np.floor((from_upper - reach) / RIM_STEP).astype(int)
        within = (from_lower < reach - 0.75) & (ring >= 0) & (ring < RIM_STEPS)
        x, y = pixels[within].T
        paleness += np.bincount(ring[within], 1 - shown[y, x], minlength=RIM_STEPS)
        n += np.bincount(ring[within], minlength=RIM_STEPS)
    return float(2 * RIM_STEP * (paleness / np.maximum(n, 1)).sum())

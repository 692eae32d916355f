"""What maps say whatever their rotation, mirror image, scale and place, and the order and number of their points.

t-SNE leaves all of these to chance or to the size of the sample; the proportion of a property shows in the sizes,
shapes and densities of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drjax.attacks.property.pair_distances import PairDistances, neighbourhoods, pair_distances
from drjax.attacks.property.two_clusters import two_clusters
from drjax.core import host, validate
from drjax.core.linalg import eigh
from drjax.core.types import Array

NEIGHBOURS = (1, 2, 4, 8, 16, 32)
"""Ranks of the neighbours whose distances are features."""

RADII = (0.1, 0.2, 0.4, 0.8)
"""Radii within which points are counted, in units of the map's root mean square distance from its centroid."""

MIN_POINTS = 3
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
N_BINS, BIN_WIDTH = 32, 0.1
"""Bins of the histogram of distances between points, and their width in units of `RADII`; the last is open-ended."""

AXIS_QUANTILES = np.linspace(0.05, 0.95, 13)
N_RINGS = 10
"""Parts of equally many points by distance from the centroid."""

RING_RANK = 3
"""Where in `NEIGHBOURS` the neighbour is whose distance says how dense a ring is."""

ORDERS = (1, 2, 3, 4)
FLOOR = 1e-3
"""Points that coincide are as near as this, in the unit of `RADII`."""

N_POINT_FEATURES = len(NEIGHBOURS) + len(RADII) + 4
N_ALIGNED = 2
N_DESCRIPTORS = 239


class Descriptors(np.ndarray):
    """(g, p) float64, what `descriptors` found; given to it again, or rows of it, they are returned as they are.

    So whatever takes maps for the sake of their descriptors takes these in their place.
    """


def as_maps(maps: Array | Sequence[Array]) -> list[np.ndarray]:
    """Maps as a list of (n, 2) arrays, not copied.

    Args:
        maps: (g, n, 2), or g arrays (n_i, 2) of any lengths.

    Raises:
        ValueError: no maps, or one that is not finite, not (n, 2), or of fewer than `MIN_POINTS` points.
    """
    found = []
    for i, points in enumerate(maps):
        found.append(validate.matrix(points, f"maps[{i}]", min_rows=MIN_POINTS, columns=2))
    if not found:
        raise ValueError("maps must hold at least one map, got none")
    return found


def point_features(maps: Array | Sequence[Array], *, aligned: bool = False) -> np.ndarray:
    """Features of every point, for `drjax.nets.set_network`.

    Logarithms of the distances to near neighbours, scaled by sqrt(n / rank) so that they do not change with the size
    of a sample; logarithms of the shares of points within four radii; the distance from the centroid; how far off the
    centre of its neighbours a point lies, and how elongated they are. O(n^2) per map.

    Args:
        maps: (g, n, 2), or g arrays (n_i, 2).
        aligned: Add the coordinates in units of the map's spread, turned onto its principal axes and mirrored so that
            their third moments are positive: invariant too, save where two axes are equally long or a map is
            symmetric.

    Returns:
        (g, max n, p + 1) float32; the last column is 1 for points and 0 for padding.

    Raises:
        ValueError: see `as_maps`.
    """
    clouds = as_maps(maps)
    n_features = N_POINT_FEATURES + (N_ALIGNED if aligned else 0)
    features = np.zeros((len(clouds), max(map(len, clouds)), n_features + 1), np.float32)

    def work(part: slice) -> None:
        for i in range(part.start, part.stop):
            x = _standard(clouds[i])
            rows = [_of_points(x, _pairs(x)), *([_principal(x)] if aligned else []), np.ones((len(x), 1))]
            features[i, : len(x)] = np.concatenate(rows, axis=1)

    host.spread(work, len(clouds))
    return features


def descriptors(maps: Array | Sequence[Array]) -> Descriptors:
    """One vector per map: what can be said of it as a whole.

    Means, deviations and quantiles of `point_features`; the histogram of all distances; moments, and quantiles along
    the principal axes; densities of rings around the centroid; sizes and shapes of two clusters. O(n^2) per map.

    Args:
        maps: (g, n, 2), or g arrays (n_i, 2); `Descriptors` are returned unchanged.

    Raises:
        ValueError: see `as_maps`, or descriptors that are not finite or not of that shape.
    """
    if isinstance(maps, Descriptors):
        if maps.ndim != 2 or maps.shape[1] != N_DESCRIPTORS or not len(maps) or not np.isfinite(maps).all():
            raise ValueError(f"descriptors must be finite, of shape (g, {N_DESCRIPTORS}), got shape {maps.shape}")
        return maps
    clouds = as_maps(maps)
    found: list[np.ndarray] = [np.empty(0)] * len(clouds)

    def work(part: slice) -> None:
        for i in range(part.start, part.stop):
            found[i] = _of_map(_standard(clouds[i]))

    host.spread(work, len(clouds))
    return np.stack(found).view(Descriptors)


def _standard(points: np.ndarray) -> np.ndarray:
    x = points.astype(np.float64)
    x -= x.mean(axis=0)
    spread = np.sqrt((x**2).sum(axis=1).mean())
    return x / spread if spread > 0 else x


def _pairs(x: np.ndarray) -> PairDistances:
    return pair_distances(x, min(NEIGHBOURS[-1], len(x) - 1), RADII, BIN_WIDTH, N_BINS)


def _of_points(x: np.ndarray, pairs: PairDistances) -> np.ndarray:
    n = len(x)
    ranks = np.minimum(NEIGHBOURS, n - 1)
    near = np.log((pairs.near[:, ranks - 1] + FLOOR) * np.sqrt(n / ranks))
    # Itself left out, and half a point so that none is not infinitely few.
    dense = np.log((pairs.counts - 0.5) / n)
    local = neighbourhoods(x, pairs.order, pairs.near[:, -1] + FLOOR)
    local[:, 3] /= local[:, 2] + FLOOR
    return np.concatenate([near, dense, local], axis=1)


def _principal(x: np.ndarray) -> np.ndarray:
    _, vectors = eigh(x.T @ x)
    turned = x @ vectors[:, ::-1]
    return turned * np.where((turned * turned * turned).sum(axis=0) < 0, -1.0, 1.0)


def _of_map(x: np.ndarray) -> np.ndarray:
    pairs = _pairs(x)
    points = _of_points(x, pairs)
    quantiles = np.quantile(points, QUANTILES, axis=0)
    # The cumulative shares vary less from map to map than those of single bins.
    shares = np.cumsum(pairs.histogram / pairs.histogram.sum())[:-1]
    main = _principal(x)
    deviations = main.std(axis=0)
    scaled = main / np.maximum(deviations, FLOOR)
    # Powers above the second are slow.
    squares = scaled * scaled
    moments = np.concatenate([deviations, (squares * scaled).mean(axis=0), (squares * squares).mean(axis=0)])
    z = x[:, 0] + 1j * x[:, 1]
    radius = np.abs(z)
    unit = z / np.maximum(radius, FLOOR)
    angular, turned = [], np.ones_like(unit)
    for m in ORDERS:
        turned = turned * unit
        # The mean of z itself is 0 but for rounding, which standardisation would blow up.
        for power in (0, 2) if m == 1 else (0, 1, 2):
            angular.append(np.abs(np.vdot(radius**power, turned)) / len(x))
    along = np.quantile(main, AXIS_QUANTILES, axis=0)
    summary = [points.mean(axis=0), points.std(axis=0), quantiles.ravel(), shares, moments, angular]
    return np.concatenate([*summary, along.ravel(), _of_rings(radius, points[:, RING_RANK]), two_clusters(main)])


def _of_rings(radius: np.ndarray, sparse: np.ndarray) -> np.ndarray:
    """Mean radius, and mean and deviation of how sparse it is, of every ring."""
    order = np.argsort(radius, kind="stable")
    starts = np.arange(N_RINGS) * len(radius) // N_RINGS
    # Of fewer points than rings, one belongs to several.
    counts = np.maximum(np.diff(starts, append=len(radius)), 1)
    of_rings = np.stack([radius, sparse, sparse**2])[:, order]
    means = np.add.reduceat(of_rings, starts, axis=1) / counts
    means[2] = np.sqrt(np.maximum(means[2] - means[1] ** 2, 0))
    return means.ravel()

"""What maps say whatever their rotation, mirror image, scale and place, and the order and number of their points.

t-SNE leaves all of these to chance or to the size of the sample; the proportion of a property shows in the sizes,
shapes and densities of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist

from drjax.core import host, validate
from drjax.core.types import Array

NEIGHBOURS = (1, 2, 4, 8, 16, 32)
"""Ranks of the neighbours whose distances are features."""

RADII = (0.1, 0.2, 0.4, 0.8)
"""Radii within which points are counted, in units of the map's root mean square distance from its centroid."""

MIN_POINTS = 3
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
BINS = np.linspace(0, 3.2, 33)
"""Edges of the histogram of distances between points, in the unit of `RADII`; the last bin takes all beyond."""

ORDERS = (1, 2, 3, 4)
FLOOR = 1e-3
"""Points that coincide are as near as this, in the unit of `RADII`."""

N_POINT_FEATURES = len(NEIGHBOURS) + len(RADII) + 4
N_ALIGNED = 2


def as_maps(maps: Array | Sequence[Array]) -> list[np.ndarray]:
    """Maps as a list of (n, 2) float64 arrays.

    Args:
        maps: (g, n, 2), or g arrays (n_i, 2) of any lengths.

    Raises:
        ValueError: no maps, or one that is not finite, not (n, 2), or of fewer than `MIN_POINTS` points.
    """
    found = []
    for i, points in enumerate(maps):
        found.append(validate.matrix(points, f"maps[{i}]", min_rows=MIN_POINTS, columns=2).astype(np.float64))
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
            rows = [_of_points(x), *([_principal(x)] if aligned else []), np.ones((len(x), 1))]
            features[i, : len(x)] = np.concatenate(rows, axis=1)

    host.spread(work, len(clouds))
    return features


def descriptors(maps: Array | Sequence[Array]) -> np.ndarray:
    """One vector per map: means, deviations and quantiles of `point_features`, the histogram of all distances, moments.

    O(n^2) per map.

    Returns:
        (g, p) float64.

    Raises:
        ValueError: see `as_maps`.
    """
    clouds = as_maps(maps)
    found: list[np.ndarray] = [np.empty(0)] * len(clouds)

    def work(part: slice) -> None:
        for i in range(part.start, part.stop):
            found[i] = _of_map(_standard(clouds[i]))

    host.spread(work, len(clouds))
    return np.stack(found)


def _standard(points: np.ndarray) -> np.ndarray:
    x = points - points.mean(axis=0)
    spread = np.sqrt((x**2).sum(axis=1).mean())
    return x / spread if spread > 0 else x


def _of_points(x: np.ndarray) -> np.ndarray:
    n = len(x)
    ranks = np.minimum(NEIGHBOURS, n - 1)
    tree = KDTree(x)
    distances, order = map(np.asarray, tree.query(x, k=int(ranks[-1]) + 1))
    near = np.log((distances[:, ranks] + FLOOR) * np.sqrt(n / ranks))
    counts = np.stack([tree.query_ball_point(x, radius, return_length=True) for radius in RADII], axis=1)
    # Itself left out, and half a point so that none is not infinitely few.
    dense = np.log((counts - 0.5) / n)
    around = x[order[:, 1:]] - x[:, None]
    centre = around.mean(axis=1)
    reach = distances[:, -1:] + FLOOR
    around = (around - centre[:, None]) / reach[:, None]
    a, b = (around[..., 0] ** 2).mean(axis=1), (around[..., 1] ** 2).mean(axis=1)
    c = (around[..., 0] * around[..., 1]).mean(axis=1)
    gap = np.sqrt((a - b) ** 2 + 4 * c**2)
    local = np.stack(
        [np.linalg.norm(x, axis=1), np.linalg.norm(centre, axis=1) / reach[:, 0], a + b, gap / (a + b + FLOOR)], axis=1
    )
    return np.concatenate([near, dense, local], axis=1)


def _principal(x: np.ndarray) -> np.ndarray:
    _, vectors = np.linalg.eigh(x.T @ x)
    turned = x @ vectors[:, ::-1]
    return turned * np.where((turned**3).sum(axis=0) < 0, -1.0, 1.0)


def _of_map(x: np.ndarray) -> np.ndarray:
    points = _of_points(x)
    quantiles = np.quantile(points, QUANTILES, axis=0)
    distances = pdist(x)
    histogram = np.histogram(np.minimum(distances, BINS[-1]), BINS)[0] / len(distances)
    # The cumulative shares vary less from map to map than those of single bins.
    shares = np.cumsum(histogram)[:-1]
    main = _principal(x)
    deviations = main.std(axis=0)
    scaled = main / np.maximum(deviations, FLOOR)
    moments = np.concatenate([deviations, (scaled**3).mean(axis=0), (scaled**4).mean(axis=0)])
    z = x[:, 0] + 1j * x[:, 1]
    radius = np.abs(z)
    unit = z / np.maximum(radius, FLOOR)
    # The mean of z itself is 0 but for rounding, which standardisation would blow up.
    angular = [np.abs((radius**power * unit**m).mean()) for m in ORDERS for power in (0, 1, 2) if (m, power) != (1, 1)]
    return np.concatenate([points.mean(axis=0), points.std(axis=0), quantiles.ravel(), shares, moments, angular])

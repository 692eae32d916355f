"""A mixture of two Gaussians fitted to a map: how its points divide between a dense and a sparse cluster."""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit

N_ITER = 25
FLOOR = 1e-4
"""Added to variances, in the square of the unit of the points."""

N_FEATURES = 9


def two_clusters(turned: np.ndarray) -> np.ndarray:
    """What two components fitted to a map say of it, (9,) float64.

    Shares of the points, log areas and log elongations of the denser and of the sparser component; the distance of
    their means, the mean log likelihood, and the mean probability of the likelier component.

    `N_ITER` steps of EM from the two halves along the first axis: deterministic, the same for mirror images. O(n).

    Args:
        turned: (n, 2), n >= 3, finite, on their principal axes, centred and scaled.

    Source: Dempster, Laird & Rubin (1977).
    """
    rank = np.empty(len(turned), np.int64)
    rank[np.argsort(turned[:, 0], kind="stable")] = np.arange(len(turned))
    return _fit(np.ascontiguousarray(turned), (2 * rank >= len(turned)).astype(np.float64))


@njit
def _fit(x, second):
    n = len(x)
    share, middle, spread = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 3))
    areas, likelihood, certainty = np.zeros(2), 0.0, 0.0
    for step in range(N_ITER):
        for c in range(2):
            total = u = v = uu = vv = uv = 0.0
            for i in range(n):
                w = second[i] if c else 1 - second[i]
                a, b = x[i, 0], x[i, 1]
                total, u, v = total + w, u + w * a, v + w * b
                uu, vv, uv = uu + w * a * a, vv + w * b * b, uv + w * a * b
            total += 1e-9
            u, v = u / total, v / total
            share[c], middle[c, 0], middle[c, 1] = total / n, u, v
            spread[c, 0] = max(uu / total - u * u, 0.0) + FLOOR
            spread[c, 1] = max(vv / total - v * v, 0.0) + FLOOR
            spread[c, 2] = uv / total - u * v
        areas = spread[:, 0] * spread[:, 1] - spread[:, 2] ** 2
        # Rounding may leave no area of points on a line.
        areas = np.maximum(areas, FLOOR * FLOOR)
        tops = np.log(share) - np.log(areas) / 2
        for i in range(n):
            log0 = tops[0] - _half_square(x[i], middle[0], spread[0], areas[0])
            log1 = tops[1] - _half_square(x[i], middle[1], spread[1], areas[1])
            likelier = 1 / (1 + np.exp(-abs(log0 - log1)))
            second[i] = likelier if log1 > log0 else 1 - likelier
            if step == N_ITER - 1:
                likelihood += max(log0, log1) - np.log(likelier)
                certainty += likelier
    found = np.empty(N_FEATURES)
    logs = np.log(areas) / 2
    denser = 0 if np.log(share[0]) - logs[0] >= np.log(share[1]) - logs[1] else 1
    for at, c in enumerate((denser, 1 - denser)):
        half = (spread[c, 0] + spread[c, 1]) / 2
        gap = np.sqrt(max(half * half - areas[c], 0.0))
        found[at], found[2 + at] = share[c], logs[c]
        found[4 + at] = np.log((half + gap) / max(half - gap, FLOOR))
    found[6] = np.sqrt((middle[0, 0] - middle[1, 0]) ** 2 + (middle[0, 1] - middle[1, 1]) ** 2)
    found[7], found[8] = likelihood / n - np.log(2 * np.pi), certainty / n
    return found


@njit(inline="always")
def _half_square(point, middle, spread, area):
    a, b = point[0] - middle[0], point[1] - middle[1]
    return (spread[1] * a * a - 2 * spread[2] * a * b + spread[0] * b * b) / (2 * area)

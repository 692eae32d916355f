"""The repulsion between all points of a map in the plane, by a mesh: n + (mesh points) log (mesh points) operations.

Repulsion is the slope of one potential, the sum of the weights w = 1 / (1 + r^2) to all points, and so is their
normaliser its sum. Each point's charge is spread over the mesh points near it by cubic B-splines, the mesh is convolved
with w by a Fourier transform, and potential and slope are read off at the points by the same splines, whose blurring is
divided out of the transform. One transform there and one back, where interpolation by polynomials takes eight.

Source: Hockney & Eastwood (1988), "Computer simulation using particles", ch. 5; Essmann et al. (1995), for splines; the
idea for t-SNE, Linderman et al. (2019).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.fft

from drjax.core import host
from drjax.core.compiled import njit

SPACING = 1 / 3
"""Most that mesh points are apart, in the map's units; see docs/kernels/tsne.md for the error of the forces."""

LEAST_CELLS = 40
"""Cells along the longer side of a map, at least."""

SIDES = 16
"""Cells by which a mesh grows, so that one transform of the weights serves many iterations."""

SUPPORT = 4
"""Mesh points along each axis that a point has a part in."""

ROWS = 4096
"""Points of one piece of work: sums are over pieces in their order, whatever the number of cores."""


class Mesh:
    """A mesh under the points of a map, kept from one iteration to the next while the map fits it."""

    def __init__(self, n: int, dtype: np.dtype) -> None:
        """Room for n points; potentials are computed in `dtype` where the map is wide, else in float64."""
        self._dtype = np.dtype(dtype)
        self._kept: tuple | None = None
        self._kernel = np.empty(0)
        self._place = np.empty((n, 2), np.int32)
        # In float64, so that the slopes of a constant add up to 0.
        self._weights = np.empty((n, 2, SUPPORT))
        self._slopes = np.empty((n, 2, SUPPORT))

    def repulsion(self, y: np.ndarray, out: np.ndarray) -> float:
        """Writes the sums over j of w^2 (y_i - y_j) of points y (n, 2) to out (n, 2); the sum of w over pairs."""
        low, high = y.min(axis=0).astype(np.float64), y.max(axis=0).astype(np.float64)
        wide = float((high - low).max())
        spacing = min(SPACING, wide / LEAST_CELLS)
        if not spacing > 0 or not np.isfinite(spacing):
            out[:] = 0 if spacing == 0 else np.nan
            return float(len(y)) * (len(y) - 1)
        cells = np.ceil((high - low) / spacing).astype(int) + SUPPORT
        shape = tuple(int(-(-c // SIDES) * SIDES) for c in cells)
        # On a small mesh the potential hardly varies, and its slope would drown in the rounding of float32.
        kind = self._dtype if spacing == SPACING else np.dtype(np.float64)
        transform = self._transform(shape, spacing, kind)
        origin = low - spacing

        def place(part: slice) -> None:
            _splines(y[part], origin, spacing, self._place[part], self._weights[part], self._slopes[part])

        host.spread(place, len(y), size=ROWS)
        charges = np.zeros(shape, kind)
        _spread(self._place, self._weights, charges)
        potential = _convolved(charges, transform)
        totals = np.zeros(-(-len(y) // ROWS))

        def read(part: slice) -> None:
            own = self._place[part], self._weights[part], self._slopes[part]
            totals[part.start // ROWS] = _read(*own, potential, out[part])

        host.spread(read, len(y), size=ROWS)
        return float(totals.sum()) - len(y)

    def _transform(self, shape: tuple[int, ...], spacing: float, kind: np.dtype) -> np.ndarray:
        """Transform of the weights over a mesh of twice this shape, divided by those of the splines; real."""
        if self._kept != (shape, spacing, kind):
            sizes = [_doubled(side) for side in shape]
            steps = [np.minimum(np.arange(size), size - np.arange(size)) * spacing for size in sizes]
            weights = 1.0 / (1.0 + steps[0][:, None] ** 2 + steps[1] ** 2)
            found: Any = scipy.fft.rfft2(weights, workers=host.n_cores())
            blur = [np.sinc(np.fft.fftfreq(size)) ** (2 * SUPPORT) for size in sizes]
            self._kernel = (found.real / (blur[0][:, None] * blur[1][: found.shape[1]])).astype(kind)
            self._kept = (shape, spacing, kind)
        return self._kernel


def _convolved(charges: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """The mesh convolved with the weights; beyond it there is nothing, and of what comes out beyond it nothing."""
    (rows, columns), cores = charges.shape, host.n_cores()
    tall = transform.shape[0]
    size = _doubled(columns)
    found = scipy.fft.fft(scipy.fft.rfft(charges, size, axis=1, workers=cores), tall, axis=0, workers=cores)
    found *= transform
    found = scipy.fft.ifft(found, axis=0, workers=cores, overwrite_x=True)[:rows]
    return np.ascontiguousarray(np.asarray(scipy.fft.irfft(found, size, axis=1, workers=cores))[:, :columns])


def _doubled(side: int) -> int:
    """Size of the transform along a side, at least twice as long."""
    size: Any = scipy.fft.next_fast_len(2 * side, real=True)
    return int(size)


@njit
def _splines(y, origin, spacing, place, weights, slopes):
    """First mesh point of each point's part along both axes, its cubic B-splines there, and their slopes."""
    for i in range(y.shape[0]):
        for c in range(2):
            at = (y[i, c] - origin[c]) / spacing
            whole = int(np.floor(at))
            u = at - whole
            v = 1.0 - u
            place[i, c] = whole - 1
            weights[i, c, 0] = v * v * v / 6
            weights[i, c, 1] = (4 - 6 * u * u + 3 * u * u * u) / 6
            weights[i, c, 2] = (4 - 6 * v * v + 3 * v * v * v) / 6
            weights[i, c, 3] = u * u * u / 6
            slopes[i, c, 0] = -v * v / 2 / spacing
            slopes[i, c, 1] = (1.5 * u * u - 2 * u) / spacing
            slopes[i, c, 2] = (2 * v - 1.5 * v * v) / spacing
            slopes[i, c, 3] = u * u / 2 / spacing


@njit
def _spread(place, weights, charges):
    for i in range(place.shape[0]):
        row, column = place[i, 0], place[i, 1]
        for a in range(SUPPORT):
            for b in range(SUPPORT):
                charges[row + a, column + b] += weights[i, 0, a] * weights[i, 1, b]


@njit
def _read(place, weights, slopes, potential, out):
    """Half the downward slope of the potential at each point, (n, 2); the sum of the potential over points."""
    kind = out.dtype.type
    total = 0.0
    for i in range(place.shape[0]):
        row, column = place[i, 0], place[i, 1]
        value, along, across = 0.0, 0.0, 0.0
        for a in range(SUPPORT):
            plain, sloped = 0.0, 0.0
            for b in range(SUPPORT):
                here = potential[row + a, column + b]
                plain += here * weights[i, 1, b]
                sloped += here * slopes[i, 1, b]
            value += weights[i, 0, a] * plain
            along += slopes[i, 0, a] * plain
            across += weights[i, 0, a] * sloped
        out[i, 0], out[i, 1] = kind(-0.5 * along), kind(-0.5 * across)
        total += value
    return total

"""What a linear map of the known records can do at them: coordinates of linear methods lie in it to rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RANK = 1e-9
"""Singular value of a direction in units of features, as a share of the largest, that is rounding of 0."""


EXACT = 1e-6
"""Largest error of a coordinate that is linear in the records, as a share of the largest, that is rounding to float32.
"""


class Directions(NamedTuple):
    """Singular vectors (m, r) and values (r,) of m records in units of their features, centred."""

    left: np.ndarray
    values: np.ndarray

    @property
    def span(self) -> np.ndarray:
        """(m, r + 1), orthonormal basis of all affine functions of the records."""
        return np.linalg.qr(np.column_stack([np.ones(len(self.left)), self.left]))[0]

    @property
    def is_checked(self) -> bool:
        """Whether the records outnumber what an affine map of them leaves free, so that not all coordinates fit."""
        return len(self.left) > len(self.values) + 1


def directions(features: np.ndarray) -> Directions:
    """The directions of records (m, d)."""
    spread = features.std(axis=0)
    centred = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    n = int((values > RANK * values[0]).sum())
    return Directions(left[:, :n], values[:n])


def left_over(features: np.ndarray, coords: np.ndarray) -> np.ndarray | None:
    """What the best affine function of records (m, d) leaves over of coordinates (m, k); None where all would fit."""
    found = directions(features)
    if not found.is_checked:
        return None
    span = found.span
    return coords - span @ (span.T @ coords)

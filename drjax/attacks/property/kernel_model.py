"""Kernel ridge regression from descriptors of a map to its proportion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.kernel_ridge import leave_one_out, squared_distances
from drjax.data.preprocess import StandardScaler

WIDTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Grid of the kernel's squared width, in units of the median squared distance between descriptors."""


@dataclass(frozen=True)
class KernelRidge:
    """Kernel ridge regression of the proportion on standardised descriptors.

    Attributes:
        scaler: Of the descriptors.
        inputs: (m, p) standardised training descriptors.
        weights: (m,).
        intercept: Mean of the training proportions.
        unit: Squared width of the kernel.
        loo_error: Root mean squared leave-one-out error.
    """

    scaler: StandardScaler
    inputs: np.ndarray
    weights: np.ndarray
    intercept: float
    unit: float
    loo_error: float

    def predict(self, found: np.ndarray) -> np.ndarray:
        """(g,) of descriptors (g, p); not clipped."""
        squared = squared_distances(self.scaler.transform(found), self.inputs)
        return np.exp(-squared / self.unit) @ self.weights + self.intercept


def fit_kernel_ridge(found: np.ndarray, y: np.ndarray) -> KernelRidge:
    """Learns proportions y (m,) from descriptors (m, p); width and penalty of the least leave-one-out error, O(m^3).

    Source: Saunders, Gammerman & Vovk (1998).
    """
    scaler = StandardScaler.fit(found)
    inputs = scaler.transform(found)
    squared = squared_distances(inputs, inputs)
    median = float(np.median(squared)) or 1.0
    intercept = float(y.mean())
    target = (y - intercept)[:, None]
    scores = [(*leave_one_out(np.exp(-squared / (width * median)), target), width * median) for width in WIDTHS]
    penalty, loss, unit = min(scores, key=lambda score: score[1])
    kernel = np.exp(-squared / unit)
    kernel[np.diag_indices(len(kernel))] += penalty
    weights = scipy.linalg.solve(kernel, y - intercept, assume_a="pos")
    # A class needs a width to be probable in, where every map is met exactly.
    return KernelRidge(scaler, inputs, weights, intercept, unit, max(math.sqrt(loss), 1e-6))

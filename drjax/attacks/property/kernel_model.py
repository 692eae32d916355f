"""Kernel ridge regression from descriptors of a map to its proportion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.kernel_ridge import leave_one_out, squared_distances
from drjax.data.preprocess import StandardScaler

WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Grid of the kernel's squared width, in units of the median squared distance between descriptors."""

MAX_TUNED = 1500
"""Most maps that width and penalty are chosen on: the choice costs an eigendecomposition for each width."""


@dataclass(frozen=True)
class KernelRidge:
    """Kernel ridge regression of the proportion on standardised, weighted descriptors.

    The kernel is Matern's of order 3/2: the proportion may bend where an exponential of the squared distance would have
    it smooth.

    Attributes:
        scaler: Of the descriptors; its scale is the standard deviation over the weight, see `relevance`.
        inputs: (m, p) scaled training descriptors.
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
        squared = squared_distances(self.scaler.transform(np.asarray(found)), self.inputs)
        return _kernel(squared, self.unit) @ self.weights + self.intercept


def fit_kernel_ridge(found: np.ndarray, y: np.ndarray) -> KernelRidge:
    """Learns proportions y (m,) from descriptors (m, p).

    Width and penalty are those of the least leave-one-out error, on `MAX_TUNED` maps if there are more. O(m^3).

    Source: Saunders, Gammerman & Vovk (1998).
    """
    found = np.asarray(found)
    plain = StandardScaler.fit(found)
    relevant = relevance(plain.transform(found), y)
    # What says nothing gets a scale at which all maps are alike.
    scaler = StandardScaler(plain.offset, plain.scale / np.maximum(relevant, 1e-6))
    inputs = scaler.transform(found)
    intercept = float(y.mean())

    tuned = np.random.default_rng(0).permutation(len(y))[:MAX_TUNED] if len(y) > MAX_TUNED else np.arange(len(y))
    squared = _between(inputs[tuned])
    median = float(np.median(squared)) or 1.0
    target = (y[tuned] - intercept)[:, None]
    scores = [(*leave_one_out(_kernel(squared, width * median), target), width * median) for width in WIDTHS]
    penalty, loss, unit = min(scores, key=lambda score: score[1])

    kernel = _kernel(_between(inputs) if len(y) > MAX_TUNED else squared, unit)
    kernel[np.diag_indices(len(kernel))] += penalty
    weights = scipy.linalg.solve(kernel, y - intercept, assume_a="pos", overwrite_a=True)
    # A class needs a width to be probable in, where every map is met exactly.
    return KernelRidge(scaler, inputs, weights, intercept, unit, max(math.sqrt(loss), 1e-6))


def relevance(standardised: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(p,) in [0, 1]: how much each column says of y (m,), the most of all being 1.

    The larger of its correlations with y and with (y - mean)^2, less what chance gives: t-SNE makes a share and its
    complement look alike. All 1 where none says anything.
    """
    m = len(y)
    centred = y - y.mean()
    bent = centred**2 - (centred**2).mean()
    found = np.zeros(standardised.shape[1])
    for target in (centred, bent):
        norm = np.linalg.norm(target)
        if norm > 0:
            found = np.maximum(found, np.abs(target @ standardised) / (norm * math.sqrt(m)))
    found = np.sqrt(np.maximum(found**2 - 1 / m, 0))
    return found / found.max() if found.max() > 0 else np.ones_like(found)


def _between(inputs: np.ndarray) -> np.ndarray:
    squared = squared_distances(inputs, inputs)
    # A root would blow up what cancellation leaves.
    squared[np.diag_indices(len(squared))] = 0
    return squared


def _kernel(squared: np.ndarray, unit: float) -> np.ndarray:
    distances = np.sqrt(squared * (3 / unit))
    return (1 + distances) * np.exp(-distances)

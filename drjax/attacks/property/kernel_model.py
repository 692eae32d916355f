"""Kernel ridge regression from descriptors of a map to its proportion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from drjax.core import kernel_regression
from drjax.core.kernel_regression import KernelRegression, matern, squared_distances, tune
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
        scaler: Scaler of the descriptors; its scale is the standard deviation over the weight, see `relevance`.
        regression: Regression from scaled descriptors (p,) to the proportion.
        loo_error: Root mean squared leave-one-out error.
    """

    scaler: StandardScaler
    regression: KernelRegression
    loo_error: float

    def predict(self, found: np.ndarray) -> np.ndarray:
        """(g,) of descriptors (g, p); not clipped."""
        return self.regression.predict(self.scaler.transform(np.asarray(found)))


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

    tuned = np.random.default_rng(0).permutation(len(y))[:MAX_TUNED] if len(y) > MAX_TUNED else np.arange(len(y))
    choice = tune(squared_distances(inputs[tuned]), y[tuned] - y.mean(), widths=WIDTHS, profile=matern)
    regression = kernel_regression.fit(inputs, y, choice)
    # A class needs a width to be probable in, where every map is met exactly.
    return KernelRidge(scaler, regression, max(math.sqrt(choice.loo_mse), 1e-6))


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

"""What an attack predicts of its own errors."""

from __future__ import annotations

import numpy as np

from drjax.core.types import Reconstruction


def left_open(errors: np.ndarray, variance: np.ndarray, *, most: float = 1.0) -> np.ndarray:
    """(m,) mean share that squared errors (m, d) are of the variances of features (d,), those that vary.

    Each counts in its own unit, whatever the others', and for `most` of its variance: any can be guessed.
    """
    varies = variance > 0
    return np.minimum(errors[:, varies] / variance[varies], most).sum(axis=1) / max(int(varies.sum()), 1)


def predicted_mse(found: Reconstruction) -> np.ndarray:
    """(m,) mean squared error that an attack predicts of its answers: by the part that is open, where it says no more;
    nan where it says nothing."""
    if found.expected_mse is not None:
        return np.asarray(found.expected_mse, np.float64)
    return np.asarray(found.residual_norm, np.float64) ** 2 / found.x.shape[1]

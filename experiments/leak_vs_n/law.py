"""The law of the leak of PCA: what rounding leaves of the closed form, from the records alone.

Of n records a component v of variance lam is bent by the target towards direction j by w z_j / (n (lam - s_j)), with w
and z_j the target's scores and s_j the variance along j. The known records' scores say it with an error of rounding /
sqrt(n s_j), so that z_j is known up to

    rounding^2 (n (lam - s_j)^2 / s_j + z_j^2) / w^2,

which grows as n. What a record is expected to be along j, s_j, bounds what can be lost. What components say, adds up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.core import streamed
from drjax.core.statistics import UNKNOWN, Interval, mean_interval


class Population(NamedTuple):
    """What the law needs to know of records.

    Attributes:
        variances: (r,) along the principal directions, decreasing.
        z: (m, r) scores of the targets.
        scores: (p, k) of all records on the published components.
        d: Features.
    """

    variances: np.ndarray
    z: np.ndarray
    scores: np.ndarray
    d: int


def population(x: np.ndarray, targets: int, n_components: int = 2) -> Population:
    """Of records x (p, d), of which the first are the targets; three passes or so."""
    mean, singular, basis = streamed.principal_directions(x)
    z = (x[:targets].astype(np.float64) - mean) @ basis.T
    scores = streamed.Product(x, mean, basis[:n_components].T)
    return Population(singular**2 / len(x), z, np.asarray(scores), x.shape[1])


def rounding(scores: np.ndarray, decimals: int | None, dtype: str = "float32") -> np.ndarray:
    """(k,) variance of the rounding of scores (p, k): a twelfth of the squared step, in the mean over records."""
    steps = np.spacing(np.abs(scores).astype(dtype)).astype(np.float64) if decimals is None else 10.0**-decimals
    return np.mean(np.broadcast_to(steps, scores.shape) ** 2, axis=0) / 12


def predicted(of: Population, n: int, noise: np.ndarray) -> np.ndarray:
    """(m,) mean squared error to expect of each target.

    Args:
        of: The records.
        n: Records of the release, several times as many as features.
        noise: (k,) variance of the rounding of a score.
    """
    k = len(noise)
    w, gap = of.z[:, :k, None], of.variances[:k, None] - of.variances
    each = noise[:, None] * (n * gap**2 / of.variances + of.z[:, None] ** 2) / w**2
    variance = 1 / (1 / each).sum(axis=1)
    share = of.variances / (of.variances + variance)
    return (share**2 * variance + (1 - share) ** 2 * of.z**2).sum(axis=1) / of.d


def exponent(n: np.ndarray, errors: np.ndarray) -> Interval:
    """Mean exponent of n in the errors (len(n), m) of m targets, with Student's interval over the targets.

    Each target has its slope of log error on log n by least squares; targets with an error of 0 or nan are left out.
    """
    own = np.asarray(errors, np.float64)
    usable = np.isfinite(own).all(axis=0) & (own > 0).all(axis=0)
    if len(n) < 2 or not usable.any():
        return UNKNOWN
    logs = np.log(np.asarray(n, np.float64))
    centred = logs - logs.mean()
    return mean_interval(centred @ np.log(own[:, usable]) / (centred @ centred))

"""How far the distribution of synthetic records is from that of real ones: marginals and correlations.

Bins are of equal width between public bounds, so nothing depends on which data set is called the real one. What is
computed from real records here is a measurement for an experiment, not a private release.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import wasserstein_distance

from drjax.core import validate
from drjax.core.types import Array
from drjax.synthesis.contract import Box

MAX_PAIRS = 1000
"""Pairs of features that two-way marginals are compared on."""


class MarginalDistances(NamedTuple):
    """Distances between marginals.

    Attributes:
        one_way: (d,) total variation distance of each feature's binned distribution, in [0, 1].
        two_way: (q,) that of pairs of features.
        pairs: (q, 2) which.
        wasserstein: (d,) Wasserstein-1 distance of each feature, as a share of the width of its bounds, in [0, 1].
    """

    one_way: np.ndarray
    two_way: np.ndarray
    pairs: np.ndarray
    wasserstein: np.ndarray


def marginal_distances(
    key: Array, real: Array, synthetic: Array, box: Box, *, n_bins: int = 10, max_pairs: int = MAX_PAIRS
) -> MarginalDistances:
    """Distances between one-way and two-way marginals.

    Values beyond the bounds count as the bounds. Missing synthetic values (nan) have a bin of their own, which real
    records never fall into; for the Wasserstein distance a missing value is as far away as the bounds allow. O((n + m)
    (d + q)) for n real and m synthetic records.

    Args:
        key: Draws the pairs where there are more than `max_pairs`.
        real: (n, d), finite.
        synthetic: (m, d).
        box: Public bounds of the d features.
        n_bins: Number of bins between the bounds, >= 1.
        max_pairs: Pairs to compare, >= 1.

    Raises:
        ValueError: shapes that do not match, real records that are not finite, or a number out of its range.
    """
    validate.prng_key(key)
    validate.integer(n_bins=n_bins, max_pairs=max_pairs)
    x = _unit(validate.matrix(real, "real", columns=box.d), box)
    z = _unit(_synthetic(synthetic, box.d), box)
    bins, other = _binned(x, n_bins), _binned(z, n_bins)
    one_way = np.array([_total_variation(bins[:, j], other[:, j], n_bins + 1) for j in range(box.d)])
    pairs = _pairs(key, box.d, max_pairs)
    side = n_bins + 1
    two_way = np.array(
        [_total_variation(bins[:, i] * side + bins[:, j], other[:, i] * side + other[:, j], side**2) for i, j in pairs]
    )
    wasserstein = np.array([_wasserstein(x[:, j], z[:, j]) for j in range(box.d)])
    return MarginalDistances(one_way, two_way, pairs, wasserstein)


def correlation_distance(real: Array, synthetic: Array) -> float:
    """Mean absolute difference between the Pearson correlations of all pairs of features, in [0, 2].

    A feature that is constant correlates with nothing: 0. Synthetic records that are not finite are left out, and where
    fewer than two are left all their correlations are 0. A single feature has no pairs: 0. O((n + m) d^2).

    Args:
        real: (n, d), finite, n >= 2.
        synthetic: (m, d).

    Raises:
        ValueError: shapes that do not match, or real records that are not finite.
    """
    x = validate.matrix(real, "real", min_rows=2).astype(np.float64)
    z = _synthetic(synthetic, x.shape[1])
    z = z[np.isfinite(z).all(axis=1)]
    above = np.triu_indices(x.shape[1], 1)
    if not len(above[0]):
        return 0.0
    return float(np.mean(np.abs(_correlations(x)[above] - _correlations(z)[above])))


def _synthetic(records: Any, d: int) -> np.ndarray:
    z = np.asarray(records, np.float64)
    if z.ndim != 2 or z.shape[1] != d or not len(z):
        raise ValueError(f"synthetic must be non-empty with the {d} columns of the real records, got shape {z.shape}")
    return z


def _unit(x: np.ndarray, box: Box) -> np.ndarray:
    """Values as a share of the way between the bounds; nan stays nan."""
    low, high = np.asarray(box.lower), np.asarray(box.upper)
    return np.clip((x.astype(np.float64) - low) / (high - low), 0, 1)


def _binned(unit: np.ndarray, n_bins: int) -> np.ndarray:
    is_missing = np.isnan(unit)
    bins = np.minimum(np.floor(np.where(is_missing, 0, unit) * n_bins), n_bins - 1).astype(np.int64)
    return np.where(is_missing, n_bins, bins)


def _total_variation(first: np.ndarray, second: np.ndarray, n_cells: int) -> float:
    p = np.bincount(first, minlength=n_cells) / len(first)
    q = np.bincount(second, minlength=n_cells) / len(second)
    return float(np.abs(p - q).sum() / 2)


def _wasserstein(x: np.ndarray, z: np.ndarray) -> float:
    present = z[~np.isnan(z)]
    share = len(present) / len(z)
    return share * float(wasserstein_distance(x, present)) + (1 - share) if len(present) else 1.0


def _pairs(key: Array, d: int, limit: int) -> np.ndarray:
    n_pairs = d * (d - 1) // 2
    if n_pairs <= limit:
        return np.array(list(itertools.combinations(range(d), 2)), np.int64).reshape(n_pairs, 2)
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))
    chosen = np.sort(rng.choice(n_pairs, limit, replace=False))
    return np.stack(np.triu_indices(d, 1), axis=1)[chosen]


def _correlations(x: np.ndarray) -> np.ndarray:
    d = x.shape[1]
    if len(x) < 2:
        return np.zeros((d, d))
    centred = x - x.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    # A constant column differs from its mean by rounding alone.
    varies = norms > 8 * np.finfo(np.float64).eps * np.sqrt(len(x)) * np.abs(x).max(axis=0)
    scaled = np.where(varies, centred / np.where(varies, norms, 1), 0)
    return scaled.T @ scaled

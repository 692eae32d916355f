"""A prior that learns kinds of records: a mixture of Gaussians, of as many components as held-out records call for.

A Gaussian expects every record to vary in the same directions. Records of several kinds (digits, poses, professions) do
not: a measurement first says which kind a record is of, and then, with that kind's own mean and directions, more about
the rest of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from drjax.attacks.reconstruction.priors import GaussianPrior, box_of, measurements, noise_groups
from drjax.core import validate
from drjax.core.types import Array

COMPONENTS = (2, 5, 10, 20)
"""Numbers of components that are tried beside one."""

POOLING = (0.1, 0.3, 0.6)
"""Shares of the pooled covariance in that of every component that are tried: a kind has few records of its own."""

RECORDS = 10
"""Public records for each component at the least."""

NEGLIGIBLE = 1e-3
"""Probability of a component, over that of the likeliest, below which it is left out."""

HELD_OUT = 0.2
"""Share of the public records by whose likelihood both are chosen."""


@dataclasses.dataclass(frozen=True)
class MixturePrior:
    """Records as draws from one of several Gaussians.

    Attributes:
        weights: (c,), shares of the components; they sum to 1.
        components: c Gaussians.
        mean: (d,), and covariance: (d, d), of the mixture.
        pooling: Share of the pooled covariance in the components.
    """

    weights: np.ndarray
    components: tuple[GaussianPrior, ...]
    mean: np.ndarray
    covariance: np.ndarray
    pooling: float

    @classmethod
    def fit(
        cls,
        public: Array,
        *,
        components: Sequence[int] = COMPONENTS,
        pooling: Sequence[float] = POOLING,
        seed: int = 0,
    ) -> MixturePrior:
        """Components by k-means of public records (N, d), their number and pooling by held-out likelihood.

        One component, which is `GaussianPrior.fit`, competes with the others. Float64; O(N d^2 + c d^3) for every pair
        that is tried.

        Args:
            public: Records the adversary may use: neither the target's nor derived from it.
            components: Numbers of components to try beside one, up to one for every `RECORDS` records.
            pooling: Shares to try, in (0, 1].
            seed: Seed of k-means and of the choice of the held-out records.

        Raises:
            ValueError: public is not a finite numeric matrix with two rows, or a number or share is out of range.
        """
        x = validate.matrix(public, "public", min_rows=2).astype(np.float64)
        validate.integer(minimum=0, seed=seed)
        for count in components:
            validate.integer(minimum=2, components=count)
        for share in pooling:
            validate.positive(pooling=share)
            validate.at_most(1, pooling=share)
        count, share = _chosen(x, components, pooling, seed)
        single = GaussianPrior.fit(x)
        labels = np.zeros(len(x), int) if count == 1 else _labels(x, count, seed)
        weights, parts = _mixture(x, labels, share, single)
        return cls(weights, parts, single.mean, single.covariance, share)

    def raised(self, share: float) -> MixturePrior:
        """Prior as by `GaussianPrior.raised`, with every component raised by a share of its own variance."""
        whole = GaussianPrior(self.mean, self.covariance, scale=self.components[0].scale).raised(share)
        parts = tuple(part.raised(share) for part in self.components)
        return dataclasses.replace(self, components=parts, covariance=whole.covariance)

    def condition(
        self,
        operator: Array,
        values: Array,
        noise_variance: Array | float = 0.0,
        *,
        lower: Array | float | None = None,
        upper: Array | float | None = None,
    ) -> np.ndarray:
        """The expected records (m, d) given linear measurements.

        With bounds the mean of what each component makes of them, by how probable the measurements make it. Arguments,
        lanes and errors as of `GaussianPrior.condition`; of the cost c times as much, less for components that are out
        of the question.
        """
        operator, values, noise = measurements(operator, values, noise_variance, len(self.mean))
        x = np.zeros((len(values), len(self.mean)))
        low, high = box_of(lower, upper, x.shape) or (None, None)
        evidence = self._evidence(operator, values, noise)
        share = np.exp(evidence - evidence.max(axis=0))
        share = np.where(share > NEGLIGIBLE, share, 0)
        share /= share.sum(axis=0)
        for part, own in zip(self.components, share, strict=True):
            at = np.flatnonzero(own)
            if len(at):
                bounds = {"lower": None if low is None else low[at], "upper": None if high is None else high[at]}
                x[at] += own[at, None] * part.condition(operator, values[at], noise[at], **bounds)
        return x

    def _evidence(self, operator: np.ndarray, values: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Log-probability of each component and the measurements, (c, m), up to a constant."""
        found = np.empty((len(self.components), len(values)))
        for i, part in enumerate(self.components):
            gram = part.spread(operator) @ operator.T
            for lanes in noise_groups(noise):
                level = np.diag(noise[lanes[0]] + 1e-9 * np.trace(gram) / len(gram))
                factor = scipy.linalg.cholesky(gram + level, lower=True)
                away: Any = scipy.linalg.solve_triangular(factor, (values[lanes] - operator @ part.mean).T, lower=True)
                found[i, lanes] = -(away**2).sum(axis=0) / 2 - np.log(np.diagonal(factor)).sum()
        return found + np.log(self.weights)[:, None]


def _chosen(x: np.ndarray, components: Sequence[int], pooling: Sequence[float], seed: int) -> tuple[int, float]:
    """Number of components and pooling of the best held-out likelihood."""
    held, used = np.split(np.random.default_rng(seed).permutation(len(x)), [int(HELD_OUT * len(x))])
    possible = [count for count in components if count <= len(used) / RECORDS]
    best, chosen = 0.0, (1, 1.0)
    if not possible:
        return chosen
    single = GaussianPrior.fit(x[used])
    alone = _log_density(single, x[held])
    for count in possible:
        labels = _labels(x[used], count, seed)
        for share in pooling:
            weights, parts = _mixture(x[used], labels, share, single)
            density = np.stack([_log_density(part, x[held]) for part in parts])
            gain = logsumexp(density + np.log(weights)[:, None], axis=0) - alone
            # One Gaussian stands unless the held-out records are of another mind by more than chance.
            if gain.mean() > max(best, 2 * gain.std() / np.sqrt(len(gain))):
                best, chosen = float(gain.mean()), (count, share)
    return chosen


def _labels(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    return KMeans(count, n_init="auto", random_state=seed).fit_predict(x)


def _mixture(
    x: np.ndarray, labels: np.ndarray, pooling: float, single: GaussianPrior
) -> tuple[np.ndarray, tuple[GaussianPrior, ...]]:
    """Weights and components of labelled records; a share of each covariance is that of all records, shrunken."""
    if labels.max() == 0:
        return np.ones(1), (single,)
    parts, sizes = [], []
    for label in np.unique(labels):
        own = x[labels == label]
        mean = own.mean(axis=0)
        spread = np.sqrt((1 - pooling) / len(own)) * (own - mean)
        covariance = spread.T @ spread + pooling * single.covariance
        factor = None
        if single.factor is not None:
            factor = np.concatenate([spread / single.scale, np.sqrt(pooling) * single.factor])
        parts.append(GaussianPrior(mean, covariance, factor, pooling * single.floor, single.scale))
        sizes.append(len(own))
    return np.array(sizes) / len(x), tuple(parts)


def _log_density(part: GaussianPrior, x: np.ndarray) -> np.ndarray:
    """Log density of records (m, d), up to a constant of d and the units of the part."""
    d = len(part.mean)
    if part.scale is not None:
        part, x = part.standard(), x / part.scale
    # A feature that never varied in a kind has no density; with a share of its variance it has, the same for all kinds.
    more = 1e-2 * np.trace(part.covariance) / d
    away = x - part.mean
    if part.factor is None or 2 * len(part.factor) > d:
        factor = scipy.linalg.cholesky(part.covariance + more * np.eye(d), lower=True)
        length = np.square(scipy.linalg.solve_triangular(factor, away.T, lower=True)).sum(axis=0)
        return -length / 2 - np.log(np.diagonal(factor)).sum()
    # By Woodbury's identity, in as many dimensions as the factor has rows.
    r, floor = len(part.factor), part.floor + more
    factor = scipy.linalg.cholesky(part.factor @ part.factor.T + floor * np.eye(r), lower=True)
    seen: Any = scipy.linalg.solve_triangular(factor, part.factor @ away.T, lower=True)
    length = ((away**2).sum(axis=1) - (seen**2).sum(axis=0)) / floor
    return -length / 2 - np.log(np.diagonal(factor)).sum() - (d - r) * np.log(floor) / 2

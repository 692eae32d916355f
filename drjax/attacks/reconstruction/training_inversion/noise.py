"""Noise in the released parameters: measured on models of known records, then taken for Gaussian.

Training turns the noise of its steps the way it turns a target's gradient: what the known records pull back it makes
smaller, the target's trace and the noise alike. Taken for equal in all directions the noise would seem to hide just the
directions in which records vary most. So its covariance is measured where the Jacobian leads, and counts as equal
beyond. In units of that noise the problem is the one without noise, with a deviation of 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks.reconstruction.training_inversion.linear import Linear
from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.core.linalg import eigh
from drjax.core.types import Array


class Spread(NamedTuple):
    """Covariance of the parameters: floor^2 times the identity, but within a subspace.

    Attributes:
        basis: (q, P), orthonormal.
        whiten: (q, q), the inverse root of the covariance within the basis.
        floor: Standard deviation elsewhere.
    """

    basis: np.ndarray
    whiten: np.ndarray
    floor: float

    @classmethod
    def fit(cls, deviations: np.ndarray, directions: np.ndarray) -> Spread:
        """Spread of draws (s, P) of mean 0, with the covariance within the span of directions (q, P), q < s / 2."""
        basis = np.linalg.qr(directions.T)[0].T
        within = deviations @ basis.T
        floor = float(np.sqrt((np.sum(deviations**2) - np.sum(within**2)) / (deviations.size - within.size)))
        covariance = within.T @ within / len(deviations)
        values, vectors = eigh(covariance)
        # Of as few draws the smallest values come out too small, which would trust them too much.
        values = np.maximum(values, values.mean() * len(basis) / len(deviations) / 4)
        return cls(basis, vectors / np.sqrt(values) @ vectors.T, floor)

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """Parameters (..., P) in units of the noise."""
        within = theta @ self.basis.T
        return theta / self.floor + (within @ self.whiten - within / self.floor) @ self.basis


class Whitened(Problem):
    """A problem whose parameters are in units of the noise."""

    def __init__(self, problem: Problem, spread: Spread) -> None:
        vars(self).update(vars(problem))
        self._problem, self._spread = problem, spread

    def run(
        self, x: np.ndarray, y: np.ndarray, *, with_target: bool = True, noise_key: Array | None = None
    ) -> np.ndarray:
        """Parameters in units of the noise, as from `Problem.run`."""
        return self._spread(self._problem.run(x, y, with_target=with_target, noise_key=noise_key))


def measure_spread(problem: Problem, x: np.ndarray, y: int, linear: Linear, key: Array, n: int) -> Spread:
    """Spread of n models trained with the record x (d,) of class y, each with noise and an order of its own."""
    theta = problem.run(np.repeat(x[None], n, axis=0), np.full(n, y), noise_key=key)
    return Spread.fit(theta - theta.mean(axis=0), linear.along.astype(np.float64))

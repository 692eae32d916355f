"""How errors of published scores stand in the equations of `eigen_equations`.

To first order errors delta (n, k) of the scores change what the equations leave over by W W^T delta B^-1 - delta, where
B (k, k) has the eigenvalues: along an eigenvector v_j of W W^T by (lambda_j / lambda_a - 1) of the error of score a.
Rounding of the last component stands there multiplied along the first, and hardly along a component next to its own.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from drjax.attacks.reconstruction.eigen_equations import Eigen
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array

LEAST = 0.3
"""Least share of an error that is taken to be left in the equations: eigenvalues are not known exactly. With a third of
it 90% intervals of Adult's 108 features, three decimals, held 86%, with this 88%, and of three other tables 91% to 95%.
"""


class ScoreNoise(NamedTuple):
    """Errors of the equations, independent along eigenvectors of W W^T.

    Attributes:
        basis: (n, n), the eigenvectors, as columns.
        factor: (n, k, k), lower triangles: covariances of the k equations along each are these times their transposes.
    """

    basis: Array
    factor: Array

    def whiten(self, r: Array) -> jax.Array:
        """r (n k,) or derivatives (n k, p) in units of the noise."""
        n, k, _ = self.factor.shape
        turned = jnp.matmul(self.basis.T, r.reshape(n, -1), precision=HIGHEST).reshape(n, k, -1)
        return jax.scipy.linalg.solve_triangular(self.factor, turned, lower=True).reshape(r.shape)

    @property
    def log_scale(self) -> jax.Array:
        """Logarithm of the root of the errors' determinant; ()."""
        return jnp.sum(jnp.log(jnp.diagonal(self.factor, axis1=1, axis2=2)))

    def times(self, level: Array) -> ScoreNoise:
        """Errors `level` times as large."""
        return self._replace(factor=level * self.factor)


def of_scores(equations: Eigen, release: Array, x: Array, covariance: Array) -> ScoreNoise:
    """The errors of the equations of a release (n, k) at a record near its target's; O(n^3 + n d k).

    Args:
        equations: Equations of the release.
        release: (n, k).
        x: (p + 1,), where eigenvalues and eigenvectors are taken.
        covariance: (k, k) of the errors of a row of the release.
    """
    gram = equations.gram_matrix(x)
    values, basis = jnp.linalg.eigh(gram)
    k = release.shape[1]
    eigenvalues = equations.eigenvalues(release, gram @ release)
    moved = values[:, None, None] * jnp.linalg.inv(eigenvalues) - jnp.eye(k)
    if equations.form == "scores":
        # A score's length is its eigenvalue: an error along itself counts twice, the other way.
        own = (basis.T @ release) ** 2 / jnp.sum(release**2, axis=0)
        moved -= 2 * own[:, :, None] * jnp.eye(k)
    found = jnp.einsum("jba,bc,jcd->jad", moved, covariance, moved, precision=HIGHEST)
    return ScoreNoise(basis, jnp.linalg.cholesky(found + LEAST**2 * covariance))

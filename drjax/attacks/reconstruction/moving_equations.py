"""The eigenvector equations of an Isomap of records that all move with the target, as functions of the target.

With the steps, the graph and the paths recomputed for a candidate, what is left of the equations is smooth in it but
where another neighbour or another path becomes the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.geodesic_fit import Release
from drjax.attacks.reconstruction.inversion import definite
from drjax.attacks.reconstruction.moving_graph import edges_of, paths_of, product_derivative
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core.types import Array
from drjax.dr import Isomap, Pipeline, metrics

EDGES = 512
"""Edges that slopes are computed of go by so many at a time: each number of them would be compiled anew."""

TINY = np.finfo(np.float64).tiny

ROUNDING = 4 * np.finfo(np.float64).eps
"""Share of the trace of normal equations that is rounding of their smallest eigenvalues."""


class Whitened(NamedTuple):
    """A Gaussian prior in units in which it is standard normal: a record is mean + factor @ u.

    Attributes:
        mean: (d,), in the units of the records.
        factor: (d, p), root of the covariance; rows of features that are held are 0.
        inverse: (p, d), from a record less the mean to u.
        is_held: (d,), features whose value is taken for known.
    """

    mean: np.ndarray
    factor: np.ndarray
    inverse: np.ndarray
    is_held: np.ndarray

    @classmethod
    def of(cls, prior: GaussianPrior, is_held: np.ndarray, at: np.ndarray) -> Whitened:
        """The prior, with the features `is_held` (d,) as in the record `at` (d,); O(d^3)."""
        free = np.flatnonzero(~is_held)
        root = np.linalg.cholesky(definite(prior.covariance[np.ix_(free, free)]))
        factor, inverse = np.zeros((len(at), len(free))), np.zeros((len(free), len(at)))
        factor[free], inverse[:, free] = root, np.linalg.inv(root)
        return cls(np.where(is_held, at, prior.mean), factor, inverse, is_held)

    def unit(self, x: np.ndarray) -> np.ndarray:
        """u (p,) of a record (d,)."""
        return self.inverse @ (x - self.mean)

    def record(self, u: np.ndarray) -> np.ndarray:
        """(d,) of u (p,)."""
        return self.mean + self.factor @ u

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A draw (d,) less the mean."""
        return self.factor @ rng.standard_normal(self.factor.shape[1])


@dataclass
class Equations:
    """H A v - lambda v = 0 of one release, A of the records as the steps make them with a candidate as the first.

    Attributes:
        pipeline: Isomap behind steps.
        known: (n-1, d), float64.
        release: Eigenpairs as published, the target's entry first.
        n_evaluations: Times that the residual was computed, a derivative counted as two.
    """

    pipeline: Pipeline
    known: np.ndarray
    release: Release
    n_evaluations: int = 0

    def paths(self, x: np.ndarray) -> np.ndarray:
        """The shortest paths (n, n) with a candidate (d,)."""
        return self._graph(x)[2]

    def residual(self, x: np.ndarray) -> np.ndarray:
        """What is left at a candidate (d,), over the largest eigenvalue, (n q,); O(n^3)."""
        self.n_evaluations += 1
        return self._left(self.paths(x))

    def linearised(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, and its derivative (n q, d); O(n^3 + n e d) for e edges, O(n d^2) more where steps mix features."""
        self.n_evaluations += 2
        edges, lengths, paths = self._graph(x)
        slopes = self._slopes(x, edges, lengths)
        by_length = product_derivative(edges, lengths, paths, np.ascontiguousarray(self.release.vectors.T))
        by_length -= by_length.mean(axis=0)
        return self._left(paths), by_length.reshape(-1, len(edges)) @ slopes / self.release.values.max()

    @property
    def _isomap(self) -> Isomap:
        method = self.pipeline.method
        assert isinstance(method, Isomap)
        return method

    def _slopes(self, x: np.ndarray, edges: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Derivative of the lengths of edges (e, 2) in the record, (e, d)."""
        with jax.enable_x64(True):
            if self._isomap.metric == metrics.EUCLIDEAN and all(step.per_feature for step in self.pipeline.before):
                made, change = (np.asarray(part) for part in _changed(self.pipeline, self.known, x))
                across, changes = (part[edges[:, 0]] - part[edges[:, 1]] for part in (made, change))
                return across * changes / np.maximum(lengths, TINY)[:, None]
            padded = np.zeros((-(-len(edges) // EDGES) * EDGES, 2), np.int64)
            padded[: len(edges)] = edges
            return np.asarray(_slopes_in_xla(self.pipeline, self.known, x, padded))[: len(edges)]

    def _graph(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        method = self._isomap
        with jax.enable_x64(True):
            made = metrics.prepared(method.metric, np.asarray(_prepared(self.pipeline, self.known, x)))
        if method.metric == metrics.EUCLIDEAN:
            norms = (made**2).sum(axis=1)
            edges = edges_of(norms[:, None] + norms - 2 * made @ made.T, method.n_neighbors)
            lengths = np.sqrt(((made[edges[:, 0]] - made[edges[:, 1]]) ** 2).sum(axis=1))
        else:
            between = metrics.among(method.metric, made)
            edges = edges_of(between, method.n_neighbors)
            lengths = between[edges[:, 0], edges[:, 1]]
        return edges, lengths, paths_of(edges, lengths, len(made))

    def _left(self, paths: np.ndarray) -> np.ndarray:
        vectors, values = self.release.vectors.T, self.release.values
        product = -0.5 * paths**2 @ vectors
        return (product - product.mean(axis=0) - vectors * values).ravel() / values.max()


class Linearised(NamedTuple):
    """The equations about a record, to first order.

    Attributes:
        noise: Standard deviation of an equation's error, over the largest eigenvalue.
        jacobian: (n q, p), their derivative in u, the record in units of the prior, over the noise.
        root: (p, p), whose product with its transpose is the covariance of u given the equations.
    """

    noise: float
    jacobian: np.ndarray
    root: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """(p, p)."""
        return self.root @ self.root.T

    @classmethod
    def at(cls, equations: Equations, prior: Whitened, x: np.ndarray, noise: float) -> Linearised:
        """About a record (d,)."""
        return cls.of(equations.linearised(x)[1], prior, noise)

    @classmethod
    def of(cls, slope: np.ndarray, prior: Whitened, noise: float) -> Linearised:
        """From the derivative (n q, d) in the record."""
        jacobian = slope @ prior.factor / noise
        # Of the product of the jacobian with itself rounding would hide what the equations hardly show.
        _, singular, directions = np.linalg.svd(np.linalg.qr(jacobian, mode="r"))
        precisions = np.ones(len(directions))
        precisions[: len(singular)] += singular**2
        return cls(noise, jacobian, directions.T / np.sqrt(precisions))

    def promise(self, equations: Equations, prior: Whitened, x: np.ndarray) -> float:
        """The objective that one step from a record (d,) would lead to, were slopes there as here."""
        left, u = equations.residual(x) / self.noise, prior.unit(x)
        pull = self.root.T @ (self.jacobian.T @ left + u)
        return float(left @ left + u @ u - pull @ pull)


def damped_step(normal: np.ndarray, pull: np.ndarray, damping: float) -> np.ndarray:
    """The step (p,) against half a gradient (p,), of normal equations (p, p) that are positive definite to rounding.

    Source: Marquardt (1963).
    """
    own = np.diag(normal)
    return -np.linalg.solve(normal + np.diag(damping * own + ROUNDING * own.sum()), pull)


@jax.jit
def _prepared(pipeline: Pipeline, known: Array, x: Array) -> jax.Array:
    return pipeline.prepared(jnp.concatenate([x[None], known]))


@jax.jit
def _changed(pipeline: Pipeline, known: Array, x: Array) -> tuple[jax.Array, jax.Array]:
    """The records (n, d) behind steps on single features, and what each changes by with its feature of the record."""
    return jax.jvp(lambda x: _prepared(pipeline, known, x), (x,), (jnp.ones_like(x),))


@jax.jit
def _slopes_in_xla(pipeline: Pipeline, known: Array, x: Array, edges: Array) -> jax.Array:
    """Derivative of the lengths of edges (e, 2) in the record, (e, d)."""
    metric = metrics.of(pipeline)

    def length(a: Array, b: Array) -> Array:
        return metrics.apart_in_xla(metric, a[None], b[None])[0, 0]

    def lengths(x: jax.Array) -> Array:
        rows = jnp.asarray(metrics.prepared_in_xla(metric, _prepared(pipeline, known, x)))
        return jax.vmap(length)(rows[edges[:, 0]], rows[edges[:, 1]])

    return jax.jacfwd(lengths)(x)

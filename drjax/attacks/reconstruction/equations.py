"""What a release says of its target, as equations: it is what the kernel makes, or its objective is at rest in it."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core.types import Array, DRMethod, PyTree, hyperparams, traced
from drjax.dr import metrics
from drjax.dr.bandwidth import bisect
from drjax.dr.tsne.affinity import MAX_STEPS, P_FLOOR

NEAR, NEWTON_STEPS = 1e-2, 4
"""Nats to which bisection brings the entropy, and Newton's steps from there on: t-SNE's own tolerance of 1e-5, unseen
in a map, would leave the equations with steps that no derivative knows of."""


class OfRecord:
    """Equations whose features are the record itself."""

    def forward(self, x: Array, change: Array) -> Array:
        """The change itself."""
        del x
        return change

    def backward(self, x: Array, weights: Array) -> Array:
        """The weights themselves."""
        del x
        return weights

    def loading(self, covariance: Array) -> Array:
        """The covariance itself."""
        return covariance

    def gram(self, x: Array, loading: Array) -> Array:
        """The covariance of the record."""
        del x
        return loading


@hyperparams
class Match(OfRecord):
    """The kernel's coordinates for [x; known] are those released.

    Attributes:
        method: What was released; differentiable from the record to the coordinates.
        shared: Shared data from `method.prepare`.
        key: PRNG key of the release, where the method draws any.
        signs: Whether a component may come mirrored.
    """

    method: DRMethod = traced()
    shared: PyTree = traced()
    key: Array = traced()
    signs: bool = False

    def residual(self, release: Array, x: Array, about: Array | None = None) -> Array:
        """(n k,) coordinates less the released ones."""
        del about
        coords = self.method.insert(self.key, self.shared, x).coords
        if self.signs:
            agreement = jnp.sum(coords[1:] * release[1:], axis=0)
            coords = coords * jax.lax.stop_gradient(jnp.where(agreement < 0, -1, 1))
        return (coords - release).ravel()

    def linearise(self, release: Array, x: Array) -> tuple[Array, Array]:
        """`residual` and its derivative (n k, d)."""
        return self.residual(release, x), _jacobian(lambda t: self.residual(release, t), release.size, x)

    def curvature(self, release: Array, x: Array) -> None:
        """None: the residual is no gradient."""
        del release, x


@hyperparams
class Rest(OfRecord):
    """The gradient of the method's objective in the coordinates vanishes at the release.

    Attributes:
        method: What was released; its objective is twice differentiable, in coordinates and record.
        known: (n-1, d).
    """

    method: DRMethod = traced()
    known: Array = traced()

    def residual(self, release: Array, x: Array, about: Array | None = None) -> Array:
        """(n k,) gradient."""
        del about
        return jax.grad(self.method.objective)(release, jnp.concatenate([x[None], self.known])).ravel()

    def linearise(self, release: Array, x: Array) -> tuple[Array, Array]:
        """`residual` and its derivative (n k, d)."""
        return self.residual(release, x), _jacobian(lambda t: self.residual(release, t), release.size, x)

    def curvature(self, release: Array, x: Array) -> Array:
        """Hessian of the objective, (n k, n k)."""
        return jax.jacfwd(lambda c: self.residual(c, x))(release).reshape(release.size, release.size)


class _Loading(NamedTuple):
    """A covariance C (d, d), and its products: known C (n-1, d), known C known^T (n-1, n-1)."""

    covariance: Array
    known: Array
    between: Array


@hyperparams
class TSNERest:
    """`Rest` of t-SNE by formulas: it depends on x through its squared distances s (n-1,) to the known records.

    Derivatives of s in x are formulas for the Euclidean metric, by JAX for others.

    Row i of the conditional affinities, of a known record, depends on s_i alone, and the target's row on all of s: all
    derivatives take O(n^2 k).

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), their squared distances.
        perplexity: Perplexity of the release.
        n_neighbors: Nearest records to which a record has an affinity; None for all.
        reach: (n-1, 2) squared distances from each known record to its last neighbour but one and its last, among the
            known; where `n_neighbors` is given.
        excess: (n, k) by which the repulsion that made the map is more than the exact one; zero if None.
        metric: Metric of the records, `known` as `metrics.prepared` makes them.
    """

    known: Array = traced()
    between: Array = traced()
    perplexity: float = 30.0
    reach: Array | None = traced(default=None)
    excess: Array | None = traced(default=None)
    n_neighbors: int | None = None
    metric: str = metrics.EUCLIDEAN

    def nearest(self) -> TSNERest:
        """The equations of the Barnes-Hut algorithm: affinities to as many nearest records as its libraries keep.

        Source: van der Maaten (2014), "Accelerating t-SNE using tree-based algorithms", section 4.1; scikit-learn 1.9
        `manifold/_t_sne.py`.
        """
        n_others = self.known.shape[0]
        n_neighbors = int(3 * self.perplexity + 1)
        if n_neighbors >= n_others:
            return self
        # A record is the first of its row, at a distance of zero.
        reach = jnp.sort(self.between, axis=1)[:, n_neighbors - 1 : n_neighbors + 1]
        return dataclasses.replace(self, n_neighbors=n_neighbors, reach=reach)

    def residual(self, release: Array, x: Array, about: Array | None = None) -> Array:
        """(n k,) gradient of the Kullback-Leibler divergence, of the neighbours that a record `about` (d,) has."""
        s = self._distances(x)
        others, rows = self._neighbors(s if about is None else self._distances(about))
        first, rest = self._first(s, others), jax.vmap(self._row)(jnp.arange(len(s)), s, rows)
        joint = self._joint(jnp.concatenate([first[None], rest]))
        pull, push = self._forces(release)
        return (_factor(release) * (jnp.einsum("ij,ijk->ik", joint, pull) - push)).ravel()

    def linearise(self, release: Array, x: Array) -> tuple[Array, Array]:
        """`residual` and its derivative in s, (n k, n-1)."""
        s = self._distances(x)
        m, at = len(s), jnp.arange(len(s))
        others, rows = self._neighbors(s)
        by_s, first = jax.jacfwd(lambda s: (self._first(s, others),) * 2, has_aux=True)(s)  # (n, n-1), (n,)
        rest, own = jax.vmap(lambda i, v, row: jax.jvp(lambda t: self._row(i, t, row), (v,), (jnp.ones_like(v),)))(
            at, s, rows
        )
        conditional = jnp.concatenate([first[None], rest])
        pull, push = self._forces(release)
        r = _factor(release) * (jnp.einsum("ij,ijk->ik", self._joint(conditional), pull) - push)
        # A conditional affinity of i for j enters the joint one of both, over 2 n.
        derivative = jnp.einsum("lj,jlk->jkl", own, pull[:, 1:])
        derivative = derivative.at[at + 1, :, at].add(jnp.einsum("lj,ljk->lk", own, pull[1:]))
        derivative = derivative + by_s[:, None, :] * pull[:, 0][:, :, None]
        derivative = derivative.at[0].add(jnp.einsum("jk,jl->kl", pull[0], by_s))
        return r.ravel(), _factor(release) / (2 * (m + 1)) * derivative.reshape(r.size, m)

    def forward(self, x: Array, change: Array) -> Array:
        """s has the derivative 2 (x - known_i) in x, where distances are Euclidean."""
        if self.metric != metrics.EUCLIDEAN:
            return jax.jvp(self._distances, (x,), (change,))[1]
        return 2 * (jnp.dot(x, change) - self.known @ change)

    def backward(self, x: Array, weights: Array) -> Array:
        """Transposed `forward`."""
        if self.metric != metrics.EUCLIDEAN:
            return jax.vjp(self._distances, x)[1](weights)[0]
        return 2 * (jnp.sum(weights) * x - weights @ self.known)

    def loading(self, covariance: Array) -> _Loading | Array:
        """Products of the known records with the covariance; the covariance itself for another metric."""
        if self.metric != metrics.EUCLIDEAN:
            return covariance
        loaded = self.known @ covariance
        return _Loading(covariance, loaded, loaded @ self.known.T)

    def gram(self, x: Array, loading: _Loading | Array) -> Array:
        """4 (x - known_i) C (x - known_j), from products that x is not in; O(n d^2) for another metric."""
        if not isinstance(loading, _Loading):
            jacobian = jax.jacrev(self._distances)(x)
            return jacobian @ loading @ jacobian.T
        mixed = loading.known @ x
        return 4 * (x @ loading.covariance @ x - mixed[:, None] - mixed + loading.between)

    def curvature(self, release: Array, x: Array) -> Array:
        """Hessian of the divergence in the coordinates, (n k, n k)."""
        hessian = jax.jacfwd(lambda c: self.residual(c, x))(release).reshape(release.size, release.size)
        return (hessian + hessian.T) / 2

    def _forces(self, release: Array) -> tuple[Array, Array]:
        pull, push = forces(release)
        return pull, push if self.excess is None else push + self.excess

    def _distances(self, x: Array) -> Array:
        if self.metric != metrics.EUCLIDEAN:
            # An x that is not quite a direction is not made one: half a squared distance knows no poles.
            return metrics.apart_in_xla(self.metric, x[None], self.known)[0] ** 2
        return jnp.sum((x - self.known) ** 2, axis=1)

    def _neighbors(self, s: Array) -> tuple[Array, Array]:
        """Masks of the records with affinities to the target (n,) and to the known ones (n-1, n), the target first."""
        m = len(s)
        target, known = jnp.arange(m + 1) != 0, jnp.arange(m + 1) != jnp.arange(1, m + 1)[:, None]
        if self.n_neighbors is None or self.reach is None:
            return target, known
        target &= jnp.concatenate([jnp.zeros(1, bool), s <= jnp.sort(s)[self.n_neighbors - 1]])
        last = jnp.clip(s, self.reach[:, 0], self.reach[:, 1])[:, None]
        return target, known & (jnp.concatenate([s[:, None], self.between], axis=1) <= last)

    def _row(self, i: Array, s_i: Array, others: Array) -> Array:
        """Conditional affinities (n,) of known record i, for the target first."""
        return _conditional(jnp.concatenate([s_i[None], self.between[i]]), others, self.perplexity)

    def _first(self, s: Array, others: Array) -> Array:
        """Conditional affinities (n,) of the target."""
        return _conditional(jnp.concatenate([jnp.zeros(1, s.dtype), s]), others, self.perplexity)

    def _joint(self, conditional: Array) -> Array:
        n = conditional.shape[0]
        joint = (conditional + conditional.T) / (2 * n)
        return jnp.where(jnp.eye(n, dtype=bool), 0, jnp.maximum(joint, P_FLOOR))


@functools.partial(jax.jit, static_argnames="perplexity")
def _conditional(squared: Array, others: Array, perplexity: float) -> Array:
    """Gaussian affinities (n,) of one point of the wanted perplexity, from its squared distances (n,) to the others."""
    nearest = jnp.min(jnp.where(others, squared, jnp.inf))
    shifted = jnp.where(others, squared - nearest, 0)
    fixed = jax.lax.stop_gradient(shifted)
    target = math.log(perplexity)

    def entropy(beta: Array, shifted: Array) -> Array:
        weight = jnp.where(others, jnp.exp(-beta * shifted), 0)
        total = jnp.sum(weight)
        return jnp.log(total) + beta * jnp.sum(shifted * weight) / total

    def value(beta: Array) -> Array:
        return -jax.vmap(entropy, (0, None))(beta, fixed)

    beta = bisect(value, -target, fixed[:1], max_steps=MAX_STEPS, tol=NEAR)[0]

    def newton(_: int, beta: Array) -> Array:
        at, slope = jax.value_and_grad(entropy)(beta, fixed)
        return beta - _ratio(at - target, slope)

    beta = jax.lax.stop_gradient(jax.lax.fori_loop(0, NEWTON_STEPS, newton, beta))
    slope = jax.grad(entropy)(beta, fixed)
    # A Newton step of size zero, whose derivative is that of the root.
    moved = entropy(beta, shifted) - jax.lax.stop_gradient(entropy(beta, fixed))
    beta = beta - _ratio(moved, slope)
    weight = jnp.where(others, jnp.exp(-beta * shifted), 0)
    return weight / jnp.sum(weight)


def _ratio(a: Array, slope: Array) -> Array:
    # Neighbours at one distance have the same entropy at every precision.
    return jnp.where(slope < 0, a / jnp.where(slope < 0, slope, -1), 0)


def forces(coords: Array) -> tuple[Array, Array]:
    """Forces in the map (n, k): differences by Student's weights, (n, n, k), and their mean by the map's affinities,
    (n, k).

    Beyond two components scikit-learn and our kernel follow these forces too, where the gradient has the weights' root.
    """
    freedom = max(coords.shape[1] - 1, 1)
    difference = coords[:, None] - coords[None]
    weight = (1 + jnp.sum(difference**2, axis=-1) / freedom) ** (-(freedom + 1) / 2)
    pull = weight[..., None] * difference
    off = jnp.where(jnp.eye(coords.shape[0], dtype=bool), 0, weight)
    return pull, jnp.einsum("ij,ijk->ik", off / jnp.sum(off), pull)


def _factor(coords: Array) -> float:
    freedom = max(coords.shape[1] - 1, 1)
    return 2 * (freedom + 1) / freedom


def _jacobian(fn: Any, q: int, x: Array) -> Array:
    return (jax.jacrev if q < x.size else jax.jacfwd)(fn)(x)

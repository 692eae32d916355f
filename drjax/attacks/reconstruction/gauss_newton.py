"""The most probable record given equations that its release fulfils: Gauss-Newton steps for nonlinear least squares.

Minimises |r(x)|^2 + (x - mean)^T covariance^-1 (x - mean), r scaled to unit noise: the mode of the posterior under a
Gaussian prior. Levenberg's damping is in the metric of the prior, and each step carries the geodesic correction of
Transtrum & Sethna (2012), arXiv:1201.5885: the exponentials of affinities make narrow curved valleys, in which plain
steps are refused until the damping has all but stopped them.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from drjax.core.types import Array, PyTree

RAISE, LOWER = 3.0, 5.0
"""Factors of the damping after a refused and an accepted step."""

MOST_DAMPING = 1e20
"""A lane that refuses steps up to here has nowhere to go."""

PROBE, MOST_BEND = 0.1, 0.75
"""Share of a step at which its curvature is measured; largest correction, relative to half the step, that is taken."""

WIDE = 3
"""So many times as many equations as features are replaced by as many as there are features."""

TOLERANCE, TINY = 1e-3, 1e-8
"""A lane stops when an undamped step lowers the objective by less than this share of it, or is shorter than the root of
this in standard deviations of the prior."""


class Equations(Protocol):
    """q equations r = 0 of one release, in the record x (d,) through p features of it; a pytree."""

    def residual(self, release: PyTree, x: Array, about: Array | None = None) -> Array:
        """r (q,) at x; what of it jumps with the record, as it is at `about` (d,)."""
        ...

    def linearise(self, release: PyTree, x: Array) -> tuple[Array, Array]:
        """r (q,) and its derivative in the features (q, p)."""
        ...

    def forward(self, x: Array, change: Array) -> Array:
        """Change (p,) of the features with a change (d,) of the record."""
        ...

    def backward(self, x: Array, weights: Array) -> Array:
        """(d,) transposed `forward` of weights (p,)."""
        ...

    def loading(self, covariance: Array) -> PyTree:
        """What `gram` needs of a covariance (d, d), computed once for all steps."""
        ...

    def gram(self, x: Array, loading: PyTree) -> Array:
        """(p, p) covariance of the features about x."""
        ...

    def curvature(self, release: PyTree, x: Array) -> Array | None:
        """(q, q) derivative of r in the coordinates of the release, symmetric; None where r is no gradient."""
        ...


class Errors(Protocol):
    """What is known of the errors of r; a pytree."""

    def whiten(self, r: Array) -> jax.Array:
        """r (q,) or derivatives (q, p) in units of the noise."""
        ...


class Noise(NamedTuple):
    """Errors of r, independent in some basis: standard deviations (q,) along columns of basis (q, q), or the axes."""

    scale: Array
    basis: Array | None

    def whiten(self, r: Array) -> jax.Array:
        """r (q,) or derivatives (q, p) in units of the noise."""
        turned = jnp.asarray(r if self.basis is None else self.basis.T @ r)
        return turned / (self.scale if r.ndim == 1 else self.scale[:, None])


class Belief(NamedTuple):
    """A Gaussian: mean (d,) and covariance (d, d), positive definite."""

    mean: Array
    covariance: Array


class Model(NamedTuple):
    """The equations about x.

    Attributes:
        residual: r (q,).
        basis: (q, p), orthonormal columns that span the derivative of the whitened r, where q is several times p; else
            None. Along all others r changes with no feature, so that what follows is taken in this basis.
        derivative: Derivative of the whitened r in the features, (q, p), or (p, p) in the basis.
        gram: Its covariance under the prior, (q, q) or (p, p).
    """

    residual: Array
    basis: Array | None
    derivative: Array
    gram: Array

    def seen(self, r: Array) -> Array:
        """A whitened r (q,) in the basis."""
        return r if self.basis is None else self.basis.T @ r


class Fit(NamedTuple):
    """Where a descent ended.

    Attributes:
        x: (d,).
        cost: (), the objective; twice the negative logarithm of the posterior density up to a constant.
        model: The equations about x.
        n_iter: () int32 steps tried.
        converged: () bool.
    """

    x: Array
    cost: Array
    model: Model
    n_iter: Array
    converged: Array

    @property
    def leverage(self) -> Array:
        """How many of the q equations the fit could bend, in [0, q]; ()."""
        return jnp.trace(_explained(self.model.gram, self.model.gram))


class _State(NamedTuple):
    x: Array
    dual: Array
    model: Model
    is_stale: Array
    damping: Array
    n_iter: Array
    converged: Array


@functools.partial(jax.jit, static_argnames="max_iter")
def descend(equations: Equations, release: PyTree, noise: Errors, prior: Belief, start: Array, *, max_iter: int) -> Fit:
    """The nearest mode of the posterior from a start (d,); pure, in the dtype of the prior.

    A step costs one derivative of the equations and O(q p (q + p) + q^3 + d^2); O(q p^2 + p^3 + d^2) where q is more
    than `WIDE` times p.
    """
    loading = equations.loading(prior.covariance)

    def linearised(x: Array) -> Model:
        return _linearised(equations, release, noise, loading, x)

    def cost_of(r: Array, x: Array, dual: Array) -> Array:
        return jnp.sum(r**2) + jnp.dot(x - prior.mean, dual)

    def over(state: _State) -> Array:
        return (state.n_iter >= max_iter) | state.converged | (state.damping > MOST_DAMPING)

    def body(state: _State) -> _State:
        x, dual = state.x, state.dual
        # Only here, so that the program holds one copy of the derivative, and a refused step asks for none.
        model = jax.lax.cond(state.is_stale, linearised, lambda _: state.model, x)
        left = noise.whiten(model.residual)
        r = model.seen(left)
        damping = jnp.where(state.n_iter == 0, jnp.maximum(jnp.mean(left**2), 1.0), state.damping)
        # min |r + J step|^2 + |away + step|^2 + damping |step|^2, the last two in the metric of the prior. Its product
        # with a step is carried along as the step's dual: the inverse of the covariance never enters.
        shrink = 1 / (1 + damping)
        factor = jax.scipy.linalg.cho_factor(jnp.eye(r.size) + shrink * model.gram)

        def toward(r: Array, along: Array, away: Array, dual: Array) -> tuple[Array, Array]:
            weights = shrink * jax.scipy.linalg.cho_solve(factor, shrink * along - r)
            pull = equations.backward(x, weights @ model.derivative)
            return prior.covariance @ pull - shrink * away, pull - shrink * dual

        def along(change: Array) -> Array:
            return model.derivative @ equations.forward(x, change)

        away = x - prior.mean
        step, change = toward(r, along(away), away, dual)
        probed = model.seen(noise.whiten(_residual(equations, release, x + PROBE * step, x)))
        bend = 2 / PROBE * ((probed - r) / PROBE - along(step))
        zero = jnp.zeros_like(x)
        correction, second = toward(bend / 2, jnp.zeros_like(bend), zero, zero)
        length, bent = jnp.dot(step, change), jnp.dot(correction, second)
        new, new_dual = x + step + correction, dual + change + second
        old_cost = cost_of(left, x, dual)
        # A step is judged on this side of all jumps: over them there is no descent, and most are small.
        cost = cost_of(noise.whiten(_residual(equations, release, new, x)), new, new_dual)
        # The bend of a step that is next to nothing is rounding.
        is_straight = (4 * bent <= MOST_BEND**2 * length) | (bent < TINY)
        is_over = over(state)
        accepted = is_straight & (cost < old_cost) & ~is_over
        is_small = (accepted & (old_cost - cost < TOLERANCE * old_cost)) | (length + bent < TINY)
        eased = jnp.where(accepted, jnp.maximum(damping / LOWER, 1e-9), damping * RAISE)
        return _State(
            x=jnp.where(accepted, new, x),
            dual=jnp.where(accepted, new_dual, dual),
            model=model,
            is_stale=accepted,
            damping=jnp.where(is_over, damping, eased),
            n_iter=state.n_iter + ~is_over,
            converged=state.converged | (is_small & (damping < 0.1)),
        )

    shapes = jax.eval_shape(linearised, start)
    state = _State(
        x=start,
        dual=jax.scipy.linalg.solve(prior.covariance, start - prior.mean, assume_a="pos"),
        model=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes),
        is_stale=jnp.bool_(True),
        damping=jnp.ones_like(start[0]),
        n_iter=jnp.int32(0),
        converged=jnp.bool_(False),
    )
    # The last step taken leaves a model of where it came from: one more pass brings it up to date, and moves nothing.
    end = jax.lax.while_loop(lambda s: s.is_stale | ~over(s), body, state)
    cost = cost_of(noise.whiten(end.model.residual), end.x, end.dual)
    return Fit(end.x, cost, end.model, end.n_iter, end.converged)


# Jitted within a program, so that each is traced once and not wherever it stands.
@jax.jit
def _linearised(equations: Equations, release: PyTree, noise: Errors, loading: Any, x: Array) -> Model:
    residual, derivative = equations.linearise(release, x)
    derivative, basis = noise.whiten(derivative), None
    if len(derivative) >= WIDE * derivative.shape[1]:
        basis, derivative = jnp.linalg.qr(derivative)
    return Model(residual, basis, derivative, derivative @ equations.gram(x, loading) @ derivative.T)


@jax.jit
def _residual(equations: Equations, release: PyTree, x: Array, about: Array) -> Array:
    return equations.residual(release, x, about)


def variances(equations: Equations, prior: Belief, fit: Fit) -> Array:
    """Diagonal of the posterior covariance about a fit under the same prior; (d,)."""
    jacobian = jax.vmap(lambda row: equations.backward(fit.x, row))(fit.model.derivative)
    loaded = jacobian @ prior.covariance
    return jnp.diagonal(prior.covariance) - jnp.sum(_explained(fit.model.gram, loaded) * loaded, axis=0)


def _explained(gram: Array, columns: Array) -> Array:
    # A gram of equations with next to no noise is singular within rounding.
    rounding = 4 * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    return jax.scipy.linalg.solve(gram + (1 + rounding) * jnp.eye(gram.shape[0]), columns, assume_a="pos")


def noise_by_curvature(residual: Array, curvature: Array | None, leverage: Array) -> Noise:
    """The noise that the residual of a fit shows; by curvature where r is a gradient.

    A descent that ended early, or coordinates that are rounded, leave a gradient H e, H the curvature at the release:
    far larger in some of its directions than in others. So the mean square is taken over bands of H's eigenvectors in
    the order of their eigenvalues, together up to 1.6 times as wide as all before, and scaled up by what the fit bent.
    """
    q = residual.shape[0]
    bent = q / jnp.maximum(q - leverage, q / 10)
    if curvature is None:
        level = jnp.sqrt(bent * jnp.mean(residual**2))
        return Noise(jnp.full(q, level), None)
    _, basis = jnp.linalg.eigh(curvature)
    square = (basis.T @ residual) ** 2
    edges = _bands(q)
    means = [jnp.full(b - a, jnp.mean(square[a:b])) for a, b in pairwise(edges)]
    scale = jnp.sqrt(bent * jnp.concatenate(means))
    # Rotations and shifts of the map change nothing: their directions hold rounding alone, and no equation.
    return Noise(jnp.maximum(scale, 1e-2 * jnp.median(scale)), basis)


def _bands(q: int) -> list[int]:
    edges = [0]
    while edges[-1] < q:
        edges.append(min(q, max(edges[-1] + 4, int(1.6 * edges[-1]))))
    return edges

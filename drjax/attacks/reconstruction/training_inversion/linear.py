"""How the trained parameters answer to the target near a point: measured by training, in a few directions.

Along the directions in which records vary most the answer is measured, one training run each. In the rest of the space
known records hardly pull a changed parameter back, so that the first layer ends with one outer product a dx^T more,
and one or two runs show a. What steps of the solver have shown since (secants) replaces either where they have been.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.core import validate
from drjax.core.linalg import eigh

N_REST = 2
"""Random directions of the rest along which a is measured."""

NEW = 1e-3
"""Share of a secant's length outside the span of the others below which it is taken to lie in it."""

FLOOR = 1e-10
"""Added to the Gram matrix, as a share of its mean diagonal: the square of float32's rounding would be 1e-14."""


class Belief(NamedTuple):
    """What records look like: a Gaussian with d - K directions of equal variance.

    Attributes:
        mean: (d,).
        directions: (K, d), orthonormal.
        variance: (K,) along them, > 0.
        rest: Variance in every other direction, > 0.
    """

    mean: np.ndarray
    directions: np.ndarray
    variance: np.ndarray
    rest: float

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, n_directions: int) -> Belief:
        """Belief from records x (n, d), n >= 2, with the variance within classes y (n,); the mean is that of all."""
        validate.integer(n_directions=n_directions)
        centred = x - _class_means(x, y)[y]
        _, singular, v = np.linalg.svd(centred, full_matrices=False)
        variance = singular**2 / len(x)
        k = min(n_directions, int(np.sum(singular > 1e-6 * singular[0])))
        k = max(1, k)
        d = x.shape[1]
        rest = float(variance[k:].sum() / (d - k)) if d > k else 1.0
        floor = 1e-4 * float(variance.sum()) / d + 1e-12
        return cls(x.mean(axis=0), v[:k], np.maximum(variance[:k], floor), max(rest, floor))


def _class_means(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    means = np.repeat(x.mean(axis=0)[None], int(y.max()) + 1, axis=0)
    for c in np.unique(y):
        means[c] = x[y == c].mean(axis=0)
    return means


class Linear(NamedTuple):
    """An approximate Jacobian, with the products that every step needs of it.

    Attributes:
        along: (K, P) derivative along each direction of the belief, float32.
        own: (rows,) the factor a of the first layer's outer product; of no entries where that layer is not dense.
        gram: (K, K), along @ along.T.
        contracted: (K, d), a applied to the first layer of each derivative.
    """

    along: np.ndarray
    own: np.ndarray
    gram: np.ndarray
    contracted: np.ndarray


class Secant(NamedTuple):
    """A step and what the Jacobian had not foreseen of it.

    Attributes:
        dx: (d,), of length 1.
        surprise: (P,) change of the parameters per unit less that of the Jacobian, float32.
        along: (K,), the Jacobian's derivatives times it.
        contracted: (d,), a applied to its first layer.
    """

    dx: np.ndarray
    surprise: np.ndarray
    along: np.ndarray
    contracted: np.ndarray


def measure(problem: Problem, belief: Belief, x: np.ndarray, y: np.ndarray, width: float, seed: int) -> list[Linear]:
    """Jacobians at points x (m, d) of classes y (m,), by differences over `width` times a unit step.

    Costs m (K + 3) training runs. The random directions go by the seed alone: one point's Jacobian is the same whatever
    other points are measured with it, or before.
    """
    v = belief.directions
    k, d = v.shape
    n_rest = N_REST if problem.rows and k < d else 0
    rest = np.random.default_rng(seed).normal(size=(n_rest, d))
    rest -= rest @ v.T @ v
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    moves = np.concatenate([np.zeros((1, d)), v, rest])
    points = x[:, None] + width * moves
    theta = problem.run(points.reshape(-1, d), np.repeat(y, len(moves))).reshape(len(x), len(moves), -1)
    found = []
    for slope in (theta[:, 1:] - theta[:, :1]) / width:
        own = np.einsum("rwd,rd->w", problem.first(slope[k:]), rest) / n_rest if n_rest else np.zeros(problem.rows)
        along = slope[:k].astype(np.float32)
        gram = (along @ along.T).astype(np.float64)
        found.append(Linear(along, own, gram, np.einsum("w,kwd->kd", own, problem.first(slope[:k]))))
    return found


def unexplained(problem: Problem, belief: Belief, linear: Linear, residual: np.ndarray) -> float:
    """Root mean square, over the P - d equations to spare, of what no small change of x explains of a residual (P,)."""
    v, a = belief.directions, linear.own
    has_rest = len(v) < problem.d and bool(a.any())
    both = np.concatenate([linear.along.astype(np.float64), residual[None]])
    if has_rest:
        first = problem.first(both)
        rest = np.einsum("w,kwd->kd", a / (a @ a), first)
        rest -= rest @ v.T @ v
        both[:, : problem.n_first] -= np.einsum("w,kd->kwd", a, rest).reshape(len(both), -1)
    q, _ = np.linalg.qr(both[:-1].T)
    left = both[-1] - q @ (q.T @ both[-1])
    n = len(left) - (problem.d if has_rest else len(v))
    return float(np.linalg.norm(left)) / math.sqrt(max(1, n))


def posterior_variance(belief: Belief, linear: Linear, noise: float) -> float:
    """Sum over features of the variance of x, given parameters with noise of this standard deviation > 0 on each."""
    v, a = belief.directions, linear.own
    k, d = v.shape
    precision = linear.gram / noise**2 + np.diag(1 / belief.variance)
    rest = a @ a / noise**2 + 1 / belief.rest
    # The rest of the space is eliminated: a multiple of the identity, coupled to the directions.
    coupling = (linear.contracted - linear.contracted @ v.T @ v) / noise**2 if k < d else np.zeros((k, d))
    values, vectors = eigh(precision - coupling @ coupling.T / rest)
    # No release makes a record less certain than it was; measured Jacobians may say so.
    values = np.maximum(values, 1 / belief.variance.max())
    spill = vectors.T @ coupling / rest
    return float(np.sum(1 / values) + (d - k) / rest + np.sum(spill**2 / values[:, None]))


def secant(problem: Problem, belief: Belief, linear: Linear, dx: np.ndarray, dtheta: np.ndarray) -> Secant:
    """Secant of a step dx (d,) of length > 0 that changed the parameters by dtheta (P,)."""
    length = np.linalg.norm(dx)
    unit, change = dx / length, dtheta / length
    along = belief.directions @ unit
    surprise = change - along @ linear.along
    surprise[: problem.n_first] -= np.outer(linear.own, unit - along @ belief.directions).ravel()
    small = surprise.astype(np.float32)
    return Secant(unit, small, linear.along @ small, linear.own @ problem.first(surprise))


def step(
    problem: Problem,
    belief: Belief,
    linear: Linear,
    secants: list[Secant],
    residual: np.ndarray,
    towards: np.ndarray,
    noise: float,
) -> np.ndarray:
    """The Gauss-Newton step (d,) of one candidate: the mode of the posterior of the linearised model.

    The Jacobian is that of `linear` plus, on the span of the secants, what those have shown beyond it. It is never
    formed: O(K P) for the residual, all else is small.

    Args:
        problem: The training run.
        belief: Gives directions and variances.
        linear: Jacobian where no secant has been.
        secants: The latest steps, measured against `linear`.
        residual: (P,) released parameters less those of the candidate.
        towards: (d,) mean of the belief less the candidate.
        noise: Standard deviation of every parameter.
    """
    v, d, a = belief.directions, problem.d, linear.own
    h = len(secants)
    dx = np.array([s.dx for s in secants]).reshape(h, d)
    surprise = np.array([s.surprise for s in secants]).reshape(h, len(residual))
    contracted = np.array([s.contracted for s in secants]).reshape(h, d)
    more = _outside(dx, v)
    basis = np.concatenate([v, more])
    # (K + q, h): the minimum-norm combination of secants that a basis vector amounts to.
    weight = basis @ np.linalg.pinv(dx, rcond=NEW)

    own = a @ problem.first(residual) if len(a) else np.zeros(d)
    cross = linear.contracted @ more.T
    gram = np.block([[linear.gram, cross], [cross.T, (a @ a) * np.eye(len(more))]])
    with_surprise = np.concatenate([np.array([s.along for s in secants]).reshape(h, len(v)).T, more @ contracted.T])
    mixed = with_surprise @ weight.T
    gram += mixed + mixed.T + weight @ (surprise @ surprise.T).astype(np.float64) @ weight.T
    small = residual.astype(np.float32)
    right = np.concatenate([linear.along @ small, more @ own]) + weight @ (surprise @ small)

    precision = np.concatenate([1 / belief.variance, np.full(len(more), 1 / belief.rest)])
    gram[np.diag_indices(len(gram))] += noise**2 * precision + FLOOR * np.trace(gram) / len(gram)
    along = np.linalg.solve(gram, right + noise**2 * precision * (basis @ towards))
    move = along @ basis
    if a.any():
        left = own - along[: len(v)] @ linear.contracted - (a @ a) * (along[len(v) :] @ more)
        left -= (along @ weight) @ contracted
        rest = (left + noise**2 / belief.rest * towards) / (a @ a + noise**2 / belief.rest)
        move += rest - (rest @ basis.T) @ basis
    return move


def _outside(dx: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(q, d) orthonormal: what the rows of dx span outside the rows of v."""
    if not len(dx) or len(v) == dx.shape[1]:
        return np.empty((0, dx.shape[1]))
    qr: Any = scipy.linalg.qr((dx - (dx @ v.T) @ v).T, mode="economic", pivoting=True)
    q, r, _ = qr
    return q[:, np.abs(np.diag(r)) > NEW].T

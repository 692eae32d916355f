"""Fitting a target and the last steps of SMACOF to a release that stopped before it converged.

Let theta be the release, T the Guttman transform under the distances of a candidate x, e = T(theta) - theta what one
more step would do and J the Jacobian of T. A converged release has e = 0. One that stopped early has not, and e lives
in the slow modes of J; but it hardly changes from one step to the next. The acceleration T(T(theta)) - 2 T(theta) +
theta, to first order (J - I) e, is small, of one size in all modes, and has heavy tails where points pass each other.
Its size is calibrated on shadow releases. Two stages follow from it.

1. At the release: least squares of (I - J) e over x, with the weights of Student's t for the tails and a Gaussian
   prior of x.
2. Through the last m steps: the unknowns are x and the map theta' of m steps before. That T^m(theta') is theta is
   known exactly, and at theta' the acceleration is small again. The steps shrink what is unknown of theta' in the fast
   modes, so those say without noise how far the target is from each known record. m grows from 1, each stage starting
   where the last one ended.

Both are Gauss-Newton in the whitened part z of the target that distances can show; stage 2 with Levenberg's damping.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.stationarity import guttman
from drjax.core.linalg import eigh
from drjax.dr import metrics

FREEDOM = 4.0
"""Degrees of freedom of Student's t for accelerations; 2 gives the same errors on MNIST."""

CLOSENESS = 3e-4
"""Standard deviation granted to the end of a simulation, in units of the release's spread: linearisation, not noise."""

LONGEST_LEAP = 4
"""Most steps by which a stage goes further back than the one before."""

COOLING = 10.0
"""Most by which the scale of the residuals falls from round to round of stage 1."""

N_NEAREST = 5
"""Known records nearest in the map whose mean is where stage 1 starts, where the prior's mean is no start."""

MAX_COOLINGS = 20
"""Most rounds of stage 1, each with a Jacobian of its own."""

SMALL = 500
"""Known records up to which the part of a target that distances show is split from the rest."""

SETTLED = 1e-7
"""Change of x, in units of its largest entry, below which stage 1 ends."""

MAX_ROUNDS = 8
"""Most Gauss-Newton rounds at one Jacobian of stage 1, and for one number of steps of stage 2."""

SLOW = 0.03
"""Relative fall of the loss below which a stage ends."""


@dataclass(frozen=True)
class Problem:
    """What is known before a release is seen.

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), distances of the known records.
        mean: (d,), of the prior.
        covariance: (d, d), of the prior.
        spread: (d, n-1), covariance @ known.T.
        scale: Typical size of an acceleration in units of the coordinates.
        bounds: Bounds of every feature, or None.
        metric: Metric of the records.
    """

    known: np.ndarray
    between: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    spread: np.ndarray
    scale: float
    bounds: tuple[float, float] | None
    metric: str = metrics.EUCLIDEAN

    def distances(self, x: np.ndarray) -> np.ndarray:
        """Distances of x (d,) to all known records, (n-1,).

        Directions are at 1 - x.k, which is taken for the distance of an x that is not quite one, too: it is linear, and
        what a release says of the distances makes a direction of x.
        """
        if self.metric in metrics.OF_DIRECTIONS:
            return 1 - self.known @ x
        if self.metric != metrics.EUCLIDEAN:
            return metrics.apart(self.metric, x[None], self.known)[0]
        return np.sqrt(((x - self.known) ** 2).sum(axis=1))

    @functools.cached_property
    def whitening(self) -> tuple[np.ndarray, np.ndarray]:
        """(d, r) that makes deviations from the mean of r standard normal numbers, and (r, d) that does the reverse."""
        values, vectors = eigh(self.covariance)
        kept = values > np.finfo(np.float64).eps * values[-1]
        root, vectors = np.sqrt(values[kept]), vectors[:, kept]
        return vectors * root, (vectors / root).T

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Derivative of `distances` in x, (n-1, d), of another metric than the Euclidean one."""
        return -self.known if self.metric in metrics.OF_DIRECTIONS else np.sign(x - self.known)

    def matrix(self, x: np.ndarray) -> np.ndarray:
        """All distances of [x; known], (n, n)."""
        n = len(self.known) + 1
        matrix = np.zeros((n, n))
        matrix[1:, 1:] = self.between
        matrix[0, 1:] = matrix[1:, 0] = self.distances(x)
        return matrix

    def clip(self, x: np.ndarray) -> np.ndarray:
        """x within the bounds."""
        return x if self.bounds is None else np.clip(x, *self.bounds)


@dataclass(frozen=True)
class Line:
    """The target's distances near x, to first order in q standard normal numbers z, with x = mean + lift @ z.

    Attributes:
        slope: (n-1, d), of the distances in x.
        basis: (n-1, q), of the distances in z.
        lift: (d, q).
        z: (q,), that of x as far as distances show it.
    """

    slope: np.ndarray
    basis: np.ndarray
    lift: np.ndarray
    z: np.ndarray


def linearise(problem: Problem, x: np.ndarray) -> Line:
    """The line at x; O(n d^2) for more known records than features and than `SMALL`, of all z.

    For fewer, of the z that distances show, O(d^2 + n^2 d + n^3), with another metric than the Euclidean one
    O(n d^2 + n^2 d + n^3).
    """
    if problem.metric == metrics.EUCLIDEAN:
        distance = problem.distances(x)
        # A target on a known record has no direction from it; any is as good.
        floor = 1e-9 * max(distance.max(), np.finfo(np.float64).tiny)
        distance = np.maximum(distance, floor)
        slope = (x - problem.known) / distance[:, None]
    else:
        slope, distance = problem.slope(x), None
    if len(slope) > max(slope.shape[1], SMALL):
        lift, back = problem.whitening
        return Line(slope, slope @ lift, lift, back @ (x - problem.mean))
    if distance is not None:
        # A product with the covariance takes n times as long.
        spread = ((problem.covariance @ x)[:, None] - problem.spread) / distance
    else:
        spread = problem.covariance @ slope.T
    values, vectors = eigh(slope @ spread)
    kept = values > 1e-13 * values[-1]
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
    z = vectors.T @ (slope @ (x - problem.mean)) / root
    return Line(slope, vectors * root, spread @ (vectors / root), z)


def acceleration(coords: np.ndarray, between: np.ndarray) -> np.ndarray:
    """(I - J) e at coords (n, k), what a step loses of its length, (n k,); O((n k)^2)."""
    jacobian, step = _steps(coords, between)
    return step - jacobian @ step


def at_release(problem: Problem, coords: np.ndarray) -> np.ndarray:
    """The target (d,) by stage 1, from `_start`; O(n^3 k^2) a round, 10 to 60 rounds.

    Far from the answer every residual is in the tails of t, which have many minima: the scale begins at the residuals'
    own size and follows it down, by a factor of `COOLING` at most, to that of accelerations.
    """
    size = coords.size
    x, scale = _start(problem, coords), np.inf
    for _ in range(MAX_COOLINGS):
        jacobian, step = _steps(coords, problem.matrix(x))
        drag = np.eye(size) - jacobian
        typical = float(np.median(np.abs(drag @ step)))
        is_last = scale <= problem.scale
        scale = max(problem.scale, typical if np.isinf(scale) else min(scale, max(typical, scale / COOLING)))
        new = _descend(problem, x, drag @ step / scale, guttman.times_row_derivative(drag, coords) / scale)
        moved, x = np.abs(new - x).max(), new
        if is_last and moved < SETTLED * max(1.0, np.abs(x).max()):
            break
    return x


def _start(problem: Problem, coords: np.ndarray) -> np.ndarray:
    """The prior's mean; for manhattan distances the mean of the nearest records in the map.

    The mean may be on many records' values, where absolute values bend.
    """
    if problem.metric != "manhattan":
        return problem.mean
    nearest = np.argsort(((coords[1:] - coords[0]) ** 2).sum(axis=1), kind="stable")[:N_NEAREST]
    return problem.known[nearest].mean(axis=0)


def _descend(problem: Problem, x: np.ndarray, residual: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Gauss-Newton from x where `residual` is linear in the distances, with this slope; backtracking on the loss."""
    origin = problem.distances(x)
    prior = None
    for _ in range(MAX_ROUNDS):
        line = linearise(problem, x)
        here = residual + slope @ (problem.distances(x) - origin)
        root = np.sqrt(_weights(here))
        # No normal equations: a converged release measures some distances a thousand times better than others.
        own = np.column_stack([root[:, None] * (slope @ line.basis), root * here])
        r = np.asarray(np.linalg.qr(np.concatenate([own, np.column_stack([np.eye(len(line.z)), line.z])]), mode="r"))
        change = scipy.linalg.solve_triangular(r[:-1, :-1], -r[:-1, -1])
        before = _robust(here) + (line.z @ line.z if prior is None else prior)
        for length in 0.5 ** np.arange(8):
            z = line.z + length * change
            tried = problem.mean + line.lift @ z
            after = _robust(residual + slope @ (problem.distances(tried) - origin)) + z @ z
            if after < before:
                break
        else:
            break
        moved, x, prior = np.abs(tried - x).max(), tried, z @ z
        if moved < SETTLED * max(1.0, np.abs(x).max()):
            break
    return x


@dataclass(frozen=True)
class Fit:
    """Where a descent stands.

    Attributes:
        x: (d,), the target.
        start: (n, k), the map of `steps` steps before the release.
        steps: Simulated steps; 0 at the release.
        gap: Root-mean-square distance of the simulation's end from the release, in units of the coordinates.
        misfit: Sum of the robust losses of the accelerations.
    """

    x: np.ndarray
    start: np.ndarray
    steps: int
    gap: float
    misfit: float


def through_steps(problem: Problem, coords: np.ndarray, x: np.ndarray, steps: int) -> Fit:
    """Stage 2 from x (d,): goes back as far as `steps`, or as far as a simulation can be made to end at the release.

    O(steps (n k)^2 (n k + n)) a round, some 40 rounds in all.
    """
    fit = Fit(x, coords, 0, 0.0, np.inf)
    close = 2 * _closeness(problem, coords)
    leap = 1
    while fit.steps < steps and leap >= 1:
        back = min(fit.steps + leap, steps)
        step = guttman.transform(fit.start, problem.matrix(fit.x)) - fit.start
        new = _stage(problem, coords, fit.start - (back - fit.steps) * step, fit.x, back)
        if fit.steps == 0 or (new.gap < close and new.misfit < max(3 * fit.misfit, 4 * coords.size)):
            fit, leap = new, min(leap + 1, LONGEST_LEAP)
        else:
            leap //= 2
    return fit


class Local:
    """The likelihood of the target and of theta' around a fit: quadratic in both, with frozen weights.

    Attributes:
        normal: (n k + n-1, n k + n-1), Gauss-Newton matrix in theta' and the target's distances.
        gradient: (n k + n-1,) there.
        value: Loss at the fit.
    """

    def __init__(self, problem: Problem, coords: np.ndarray, fit: Fit) -> None:
        """O(steps (n k)^2 (n k + n))."""
        size = coords.size
        between = problem.matrix(fit.x)
        jacobian, step = _steps(fit.start, between)
        drag = np.eye(size) - jacobian
        self._problem, self._coords, self._steps, self._whiten = problem, coords, fit.steps, drag / problem.scale
        residual = self._whiten @ step
        # A product of a matrix with itself, and drag is symmetric, takes half the time.
        across = drag.T @ drag / -problem.scale
        slope = np.column_stack([across, guttman.times_row_derivative(self._whiten, fit.start)])
        root = np.sqrt(_weights(residual))
        slope *= root[:, None]
        self.normal = slope.T @ slope
        self.gradient = slope.T @ (root * residual)
        self._width = 1.0
        if fit.steps:
            end, derivative = guttman.simulate_with_derivative(fit.start, between, fit.steps)
            missed = (end - coords).ravel()
            # A simulation that ends far away is brought near before it is brought close.
            self._width = max(_closeness(problem, coords), 0.3 * np.sqrt((missed**2).mean()))
            self.normal += derivative.T @ derivative / self._width**2
            self.gradient += derivative.T @ missed / self._width**2
        self.value, _, _ = self.at(fit.start, fit.x)

    def at(self, start: np.ndarray, x: np.ndarray) -> tuple[float, float, float]:
        """Loss at theta' (n, k) and x (d,); of it the gap and the misfit, as in `Fit`."""
        between = self._problem.matrix(x)
        missed = guttman.simulate(start, between, self._steps) - self._coords
        misfit = _robust(self._whiten @ (guttman.transform(start, between) - start).ravel())
        return (missed**2).sum() / self._width**2 + misfit, np.sqrt((missed**2).mean()), misfit

    def eliminated(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is left of the distances once theta' is as good as it can be for them.

        Returns:
            precision (n-1, n-1) and gradient (n-1,) in the distances; answer (n k, n), by which theta' changes by
            -answer @ [change of the distances, 1].
        """
        size, n = self._coords.size, len(self._coords)
        if self._steps == 0:
            return self.normal[size:, size:], self.gradient[size:], np.zeros((size, n))
        block = self.normal[:size, :size].copy()
        block[np.diag_indices(size)] += 1e-9 * np.trace(block) / size
        right = np.column_stack([self.normal[:size, size:], self.gradient[:size]])
        answer = scipy.linalg.solve(block, right, assume_a="pos")
        across = self.normal[size:, :size]
        precision = self.normal[size:, size:] - across @ answer[:, :-1]
        return (precision + precision.T) / 2, self.gradient[size:] - across @ answer[:, -1], answer


def _stage(problem: Problem, coords: np.ndarray, start: np.ndarray, x: np.ndarray, steps: int) -> Fit:
    """Levenberg-Marquardt in theta' and z for one number of steps."""
    size = coords.size
    close = 2 * _closeness(problem, coords)
    # Changes that a round should not exceed: a three-hundredth of the spread, a hundredth of the distances.
    reach = (300**2 / (coords**2).mean(), 100 / np.median(problem.distances(x)))
    damping = 1e-3
    fit = Fit(x, start, steps, np.inf, np.inf)
    prior = None
    for _ in range(MAX_ROUNDS):
        line, local = linearise(problem, fit.x), Local(problem, coords, fit)
        normal = np.empty((size + len(line.z),) * 2)
        normal[:size, :size] = local.normal[:size, :size]
        normal[:size, size:] = local.normal[:size, size:] @ line.basis
        normal[size:, :size] = normal[:size, size:].T
        normal[size:, size:] = line.basis.T @ local.normal[size:, size:] @ line.basis + np.eye(len(line.z))
        gradient = np.concatenate([local.gradient[:size], line.basis.T @ local.gradient[size:] + line.z])
        units = np.concatenate([np.full(size, reach[0]), ((reach[1] * line.basis) ** 2).sum(axis=0)])
        before = local.value + (line.z @ line.z if prior is None else prior)
        for _ in range(6):
            damped = normal.copy()
            damped[np.diag_indices_from(damped)] += damping * units
            move = -scipy.linalg.solve(damped, gradient, assume_a="pos", overwrite_a=True)
            z = line.z + move[size:]
            tried, moved = problem.mean + line.lift @ z, fit.start + move[:size].reshape(coords.shape)
            value, gap, misfit = local.at(moved, tried)
            after = value + z @ z
            if after < before:
                break
            damping = max(10 * damping, 1e-4)
        else:
            break
        damping = max(damping / 8, 1e-7)
        fit, prior = Fit(tried, moved, steps, gap, misfit), z @ z
        if before - after < SLOW * after and gap < close:
            break
    return fit


def _steps(coords: np.ndarray, between: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Jacobian of T at coords, and T(coords) - coords flat."""
    jacobian = np.empty((coords.size, coords.size))
    guttman.jacobian(coords, between, jacobian)
    return jacobian, (guttman.transform(coords, between) - coords).ravel()


def _closeness(problem: Problem, coords: np.ndarray) -> float:
    return max(CLOSENESS * np.sqrt((coords**2).mean()), problem.scale)


def _weights(residual: np.ndarray) -> np.ndarray:
    return (FREEDOM + 1) / (FREEDOM + residual**2)


def _robust(residual: np.ndarray) -> float:
    return (FREEDOM + 1) * np.log1p(residual**2 / FREEDOM).sum()

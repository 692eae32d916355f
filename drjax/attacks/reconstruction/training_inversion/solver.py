"""Gauss-Newton on |theta - train(x)|^2 by training runs alone: no gradient through the training is taken.

Each step uses the Jacobian that `linear` measured at a point many targets share, mended by what the target's own steps
have shown. Where that stops helping, the Jacobian is measured anew at the target's own candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from drjax.attacks.reconstruction.training_inversion.linear import Belief, Linear, Secant, measure, secant, step
from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.core import validate

FIRST_WIDTH, LATER_WIDTH = 0.5, 0.1
"""Differences for Jacobians, in units of the records: wide where many targets share one, narrow at a candidate."""

SHORTEST = 0.25
"""Share of a step below which it is worth a new Jacobian."""

STALE = 6
"""Evaluations in a row that lower the misfit by less than `WORTH` each, after which a candidate is given up."""
WORTH = 0.1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How hard the solver tries.

    Attributes:
        max_evaluations: Training runs of one candidate beside Jacobians, >= 1.
        max_refreshes: Jacobians measured at a candidate of its own, >= 0.
        n_directions: Directions in which a Jacobian is measured, >= 1; fewer if the records span fewer.
        memory: Secants kept, >= 1.
        tolerance: Misfit at which a candidate is done, relative to the one without the target, > 0.
    """

    max_evaluations: int = 40
    max_refreshes: int = 4
    n_directions: int = 100
    memory: int = 30
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.integer(max_evaluations=self.max_evaluations, n_directions=self.n_directions, memory=self.memory)
        validate.integer(minimum=0, max_refreshes=self.max_refreshes)
        validate.positive(tolerance=self.tolerance)


@dataclass
class _Lane:
    x: np.ndarray
    residual: np.ndarray
    linear: Linear
    share: float = 1.0
    refreshes: int = 0
    stale: int = 0
    evaluations: int = 1
    secants: list[Secant] = field(default_factory=list)

    @property
    def misfit(self) -> float:
        return float(self.residual @ self.residual)


@dataclass(frozen=True)
class Solution:
    """Candidates at the end.

    Attributes:
        x: (m, d).
        misfit: (m,) |theta - train(x)|.
        evaluations: (m,) training runs of each, Jacobians not counted.
        refreshes: (m,) Jacobians of its own.
    """

    x: np.ndarray
    misfit: np.ndarray
    evaluations: np.ndarray
    refreshes: np.ndarray


def solve(
    problem: Problem,
    theta: np.ndarray,
    start: np.ndarray,
    labels: np.ndarray,
    means: np.ndarray,
    linears: list[Linear],
    belief: Belief,
    *,
    scale: np.ndarray,
    noise: float,
    bounds: tuple[float, float] | None,
    settings: Settings,
    rng: np.random.Generator,
) -> Solution:
    """Candidates for m releases at once; every training run is shared by all that still run.

    Args:
        problem: The training run.
        theta: (m, P) observed parameters.
        start: (m, d) first candidates.
        labels: (m,) their classes.
        means: (m, d) what each record is expected to be.
        linears: m Jacobians to begin with.
        belief: Directions and variances.
        scale: (m,) misfit of a model trained without the target.
        noise: Standard deviation of every parameter.
        bounds: Least and greatest value of a feature, or None.
        settings: When to stop.
        rng: For the directions of new Jacobians.
    """
    first = theta - problem.run(start, labels)
    lanes = [_Lane(x, r, linear) for x, r, linear in zip(start.astype(np.float64), first, linears, strict=True)]
    # Rounding alone leaves as much, and a Jacobian measured to get below it is wasted.
    goal = np.maximum(settings.tolerance * scale, noise * np.sqrt(theta.shape[1]))
    while active := [i for i, lane in enumerate(lanes) if not _is_done(lane, goal[i], settings)]:
        tried = np.array([_candidate(problem, belief, lanes[i], means[i], noise, bounds) for i in active])
        residuals = theta[active] - problem.run(tried, labels[active])
        for i, x, residual in zip(active, tried, residuals, strict=True):
            _learn(problem, belief, lanes[i], x, residual, settings.memory)
        _refresh(problem, belief, [(lanes[i], labels[i]) for i in active if _is_stuck(lanes[i], settings)], rng)
    return Solution(
        np.array([lane.x for lane in lanes]),
        np.sqrt([lane.misfit for lane in lanes]),
        np.array([lane.evaluations for lane in lanes]),
        np.array([lane.refreshes for lane in lanes]),
    )


def _is_done(lane: _Lane, goal: float, settings: Settings) -> bool:
    is_still = lane.stale >= STALE and lane.refreshes == settings.max_refreshes
    return lane.misfit <= goal**2 or is_still or lane.evaluations >= settings.max_evaluations


def _is_stuck(lane: _Lane, settings: Settings) -> bool:
    return lane.refreshes < settings.max_refreshes and (lane.share < SHORTEST or lane.stale >= STALE)


def _candidate(
    problem: Problem,
    belief: Belief,
    lane: _Lane,
    mean: np.ndarray,
    noise: float,
    bounds: tuple[float, float] | None,
) -> np.ndarray:
    move = step(problem, belief, lane.linear, lane.secants, lane.residual, mean - lane.x, noise)
    x = lane.x + lane.share * move
    return x if bounds is None else np.clip(x, *bounds)


def _learn(problem: Problem, belief: Belief, lane: _Lane, x: np.ndarray, residual: np.ndarray, memory: int) -> None:
    lane.evaluations += 1
    moved = x - lane.x
    if moved.any() and np.isfinite(residual).all():
        latest = secant(problem, belief, lane.linear, moved, lane.residual - residual)
        lane.secants = [*lane.secants, latest][-memory:]
    better = float(residual @ residual)
    before = lane.misfit
    lane.stale = 0 if better < (1 - WORTH) ** 2 * before else lane.stale + 1
    if better < before:
        lane.x, lane.residual, lane.share = x, residual, min(1.0, 2 * lane.share)
    else:
        lane.share /= 2


def _refresh(problem: Problem, belief: Belief, stuck: list[tuple[_Lane, int]], rng: np.random.Generator) -> None:
    if not stuck:
        return
    x, y = np.array([lane.x for lane, _ in stuck]), np.array([label for _, label in stuck])
    for (lane, _), linear in zip(stuck, measure(problem, belief, x, y, LATER_WIDTH, rng), strict=True):
        lane.linear, lane.secants = linear, []
        lane.share, lane.stale = 1.0, 0
        lane.refreshes += 1

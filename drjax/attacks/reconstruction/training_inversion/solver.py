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
"""Evaluations in a row that are worth too little each, after which a candidate is given up."""
WORTH, LEAST = 0.2, 0.5
"""What an evaluation has to lower the cost by: a share of what the noise does not account for, or this much."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How hard the solver tries.

    Attributes:
        max_evaluations: Training runs of one candidate beside Jacobians, >= 1.
        max_refreshes: Jacobians measured at a candidate of its own, >= 0.
        n_restarts: Number of other starts tried with the best label where no label explains a release, >= 0.
        n_directions: Directions in which a Jacobian is measured, >= 1; fewer if the records span fewer.
        memory: Secants kept, >= 1.
        tolerance: Misfit at which a candidate is done, relative to that of a model without the target, > 0.

    Example:
        >>> from drjax.attacks.reconstruction.training_inversion import Settings
        >>> Settings(max_evaluations=10, n_restarts=0).tolerance  # for `reconstruct_model(settings=...)`
        1e-05
    """

    max_evaluations: int = 40
    max_refreshes: int = 4
    n_restarts: int = 2
    n_directions: int = 100
    memory: int = 30
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.integer(max_evaluations=self.max_evaluations, n_directions=self.n_directions, memory=self.memory)
        validate.integer(minimum=0, max_refreshes=self.max_refreshes, n_restarts=self.n_restarts)
        validate.positive(tolerance=self.tolerance)


@dataclass
class _Lane:
    x: np.ndarray
    residual: np.ndarray
    cost: float
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
class _Cost:
    """Twice the negative logarithm of the posterior density of x (d,) given what it leaves of the parameters."""

    belief: Belief
    mean: np.ndarray
    noise: float

    def __call__(self, x: np.ndarray, residual: np.ndarray) -> float:
        off = x - self.mean
        along = self.belief.directions @ off
        prior = np.sum(along**2 / self.belief.variance) + (off @ off - along @ along) / self.belief.rest
        return float(residual @ residual / self.noise**2 + prior)


@dataclass(frozen=True)
class Solution:
    """Candidates at the end.

    Attributes:
        x: (m, d).
        misfit: (m,) |theta - train(x)|.
        cost: (m,) twice the negative logarithm of the posterior density.
        evaluations: (m,) training runs of each, Jacobians not counted.
        refreshes: (m,) Jacobians of its own.
    """

    x: np.ndarray
    misfit: np.ndarray
    cost: np.ndarray
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
    goal: np.ndarray,
    noise: np.ndarray,
    bounds: tuple[float, float] | None,
    settings: Settings,
    seed: int,
    any_step: bool = False,
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
        goal: (m,) misfit at which a candidate is done.
        noise: (m,) standard deviation of every parameter of a release.
        bounds: Least and greatest value of a feature, or None.
        settings: Settings of the solver: when to stop.
        seed: Seed of the directions of new Jacobians.
        any_step: Take every step whole, though it raise the cost: under noise the way from what records look like
            matters, and not where it ends.
    """
    first = theta - problem.run(start, labels)
    judge = [_Cost(belief, mean, level) for mean, level in zip(means, noise, strict=True)]
    lanes = [
        _Lane(x, r, cost(x, r), linear)
        for x, r, linear, cost in zip(start.astype(np.float64), first, linears, judge, strict=True)
    ]
    while active := [i for i, lane in enumerate(lanes) if not _is_done(lane, goal[i], settings)]:
        tried = np.array([_candidate(problem, belief, lanes[i], means[i], noise[i], bounds) for i in active])
        residuals = theta[active] - problem.run(tried, labels[active])
        for i, x, residual in zip(active, tried, residuals, strict=True):
            _learn(problem, belief, lanes[i], x, residual, judge[i](x, residual), settings.memory, any_step)
        _refresh(problem, belief, [(lanes[i], labels[i]) for i in active if _is_stuck(lanes[i], settings)], seed)
    return Solution(
        np.array([lane.x for lane in lanes]),
        np.sqrt([lane.misfit for lane in lanes]),
        np.array([lane.cost for lane in lanes]),
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


def _learn(
    problem: Problem,
    belief: Belief,
    lane: _Lane,
    x: np.ndarray,
    residual: np.ndarray,
    cost: float,
    memory: int,
    any_step: bool,
) -> None:
    lane.evaluations += 1
    moved = x - lane.x
    if moved.any() and np.isfinite(residual).all():
        latest = secant(problem, belief, lane.linear, moved, lane.residual - residual)
        lane.secants = [*lane.secants, latest][-memory:]
    unexplained = lane.cost - len(residual)
    lane.stale = 0 if lane.cost - cost > max(LEAST, WORTH * unexplained) else lane.stale + 1
    if cost < lane.cost or (any_step and np.isfinite(cost)):
        lane.x, lane.residual, lane.cost, lane.share = x, residual, cost, min(1.0, 2 * lane.share)
    else:
        lane.share /= 2


def _refresh(problem: Problem, belief: Belief, stuck: list[tuple[_Lane, int]], seed: int) -> None:
    if not stuck:
        return
    x, y = np.array([lane.x for lane, _ in stuck]), np.array([label for _, label in stuck])
    for (lane, _), linear in zip(stuck, measure(problem, belief, x, y, LATER_WIDTH, seed), strict=True):
        lane.linear, lane.secants = linear, []
        lane.share, lane.stale = 1.0, 0
        lane.refreshes += 1

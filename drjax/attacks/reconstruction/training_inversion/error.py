"""How far off a candidate is expected to be, judged from the release alone.

The misfit has two parts. A small change of x explains the first: the step that is left. Where the search has stuck, as
at the kinks of ReLU, that step leads nowhere: what one more would be, over it, is the rate at which steps come nearer,
and a series of such steps the distance. No small change explains the second: rounding, kinks, a hyperparameter a little
off. It is taken for noise on the parameters, `HIDDEN` times as large where a change of x hides it as where it shows,
and the Jacobian at the candidate says what noise does to x.
"""

from __future__ import annotations

import numpy as np

from drjax.attacks.reconstruction.training_inversion.linear import (
    Belief,
    measure,
    posterior_variance,
    step,
    unexplained,
)
from drjax.attacks.reconstruction.training_inversion.problem import LANES, Problem
from drjax.attacks.reconstruction.training_inversion.solver import LATER_WIDTH

SLOWEST = 0.6
"""Rate of steps beyond which their series says no more: the distance is then 2.5 steps. On 150 targets of ReLU networks
the true errors were 0.2 to 4.4 times the expected ones, and 0.6 to 13 times with the step alone."""

HIDDEN = 2.0
"""Noise where a change of x hides it, in units of that where it shows: what is wrong with the training run that is
repeated moves parameters the way records do."""


def expected_mse(
    problem: Problem,
    theta: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    belief: Belief,
    *,
    rounding: np.ndarray,
    bounds: tuple[float, float] | None,
    seed: int,
) -> np.ndarray:
    """(m,) mean squared error that candidates are expected to have; costs K + 5 training runs each.

    Args:
        problem: The training run.
        theta: (m, P) observed parameters.
        x: (m, d) candidates.
        y: (m,) their classes.
        belief: Directions and variances.
        rounding: (m,) standard deviation, > 0, of the rounding of a parameter: the least that noise can be.
        bounds: Least and greatest value of a feature, or None.
        seed: Seed of the directions of Jacobians.
    """
    residual = theta - problem.run(x, y)
    square = np.empty(len(x))
    # The Jacobians of all candidates at once could fill the memory.
    for first in range(0, len(x), LANES):
        of = slice(first, first + LANES)
        linears = measure(problem, belief, x[of], y[of], LATER_WIDTH, seed)
        ends = np.empty_like(x[of])
        noises = np.empty(len(ends))
        for lane, (linear, left) in enumerate(zip(linears, residual[of], strict=True)):
            noises[lane] = max(unexplained(problem, belief, linear, left), rounding[of][lane])
            # Towards x itself: how far a prior would pull away from where the release leads is no error.
            end = x[of][lane] + step(problem, belief, linear, [], left, np.zeros(problem.d), noises[lane])
            ends[lane] = end if bounds is None else np.clip(end, *bounds)
        after = theta[of] - problem.run(ends, y[of])
        for lane, linear in enumerate(linears):
            move = float(np.linalg.norm(ends[lane] - x[of][lane]))
            again = step(problem, belief, linear, [], after[lane], np.zeros(problem.d), noises[lane])
            rate = min(SLOWEST, float(np.linalg.norm(again)) / move) if move > 0 else 0.0
            variance = posterior_variance(belief, linear, HIDDEN * noises[lane])
            square[first + lane] = (move / (1 - rate)) ** 2 + variance
    return square / problem.d

"""How far off a candidate is expected to be, judged from the release alone.

The misfit has two parts. A small change of x explains the first: the step that is left. No small change explains the
second: rounding, kinks, a hyperparameter a little off. It is taken for noise on the parameters, `HIDDEN` times as large
where a change of x hides it as where it shows, and the Jacobian at the candidate says what noise does to x.
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
    """(m,) mean squared error that candidates are expected to have; costs K + 4 training runs each.

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
        for i, linear in enumerate(measure(problem, belief, x[of], y[of], LATER_WIDTH, seed), first):
            noise = max(unexplained(problem, belief, linear, residual[i]), rounding[i])
            # Towards x itself: how far a prior would pull away from where the release leads is no error.
            end = x[i] + step(problem, belief, linear, [], residual[i], np.zeros(problem.d), noise)
            move = (end if bounds is None else np.clip(end, *bounds)) - x[i]
            square[i] = move @ move + posterior_variance(belief, linear, HIDDEN * noise)
    return square / problem.d

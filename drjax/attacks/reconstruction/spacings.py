"""Steps in which features are recorded: whole numbers, two decimals, a pixel's 256 values.

A value that an attack finds to more digits than that, and that lies between two steps, is wrong; a dozen that all lie
on them are right. Nothing but the records says so, and no model of the release enters.
"""

from __future__ import annotations

import numpy as np

from drjax.core.types import Array

ERRORS = (1e-9, 2e-7)
"""Errors of values as shares of a feature's range: of float64 scaled at will, and of float32."""

LEAST_STEPS = 30
"""Fewest errors in a step; fewer, and any values lie on such steps."""

ON = 0.02
"""Share of a step within which a value lies on it: of all values twice as many do by chance."""


def spacings(known: np.ndarray) -> np.ndarray:
    """(d,), the greatest step of which all differences within a column of known (n, d) are multiples; 0 for none."""
    return np.array([_spacing(np.unique(column)) for column in np.asarray(known, np.float64).T])


def _spacing(values: np.ndarray) -> float:
    """The step of distinct values (v,) in their order."""
    if len(values) < 2:
        return 0.0
    away = values[1:] - values[0]
    for error in ERRORS:
        least = error * away[-1]
        step = float(away[0])
        for one in away[1:]:
            step = _common(float(one), step, least)
            if step < LEAST_STEPS * least:
                break
        # Errors of the values add up in the step: the mean over all multiples has the least.
        counts = np.round(away / step)
        step = float(away @ counts / (counts @ counts))
        if step >= LEAST_STEPS * least and np.abs(away / step - np.round(away / step)).max() <= ON / 2:
            return step
    return 0.0


def _common(a: float, b: float, least: float) -> float:
    """Greatest common divisor of two positive numbers whose errors are below `least`, by Euclid."""
    while b > least:
        left = a % b
        a, b = b, 0.0 if b - left <= least else left
    return a


def off_steps(x: Array, spacing: Array, origin: Array, within: float | Array = ON) -> Array:
    """Whether each value of x (..., d) lies between two steps from an origin (d,); False where spacing (d,) is 0.

    Args:
        x: Values.
        spacing: Steps of each feature; 0 for none.
        origin: A value on them.
        within: Share of a step within which a value lies on it.
    """
    is_stepped = spacing > 0
    share = (x - origin) / (spacing + ~is_stepped)
    return is_stepped & (abs(share - share.round()) > within)

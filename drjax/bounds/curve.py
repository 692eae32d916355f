"""What a trade-off curve is: the most power that any test between two neighbouring runs of a mechanism has at a level.

The null hypothesis is the run without the target, M(known + nothing), the alternative the run with it; "level" is the
probability of a false alarm, "power" that of a detection. Power is what Dong, Roth & Su (2022) write as 1 - f(alpha).

Everything is computed in logarithms, so that a level of 1e-300 has as many digits as one of 0.1, and is raised by
`SLACK`, which is more than the functions of SciPy are off by: a curve may be loose, never low.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from drjax.bounds.rounding import LARGEST, SLACK, raised
from drjax.core import validate
from drjax.core.types import Array

RELATIONS = ("add_or_remove", "replace_one", "zero_out")
"""Which data sets are neighbours; see `drjax.bounds.gdp.SENSITIVITY`."""


@dataclass(frozen=True)
class TradeOff(abc.ABC):
    """A trade-off curve, of one of the kinds in `drjax.bounds.tradeoff`.

    Attributes:
        neighbouring: Relation that it was derived for, a name in `RELATIONS`; None where nobody has said.
    """

    EXACT: ClassVar[bool] = False
    SOURCE: ClassVar[str] = ""
    HAS_EXACT_RUNS: ClassVar[bool] = False
    """Whether a chain of such curves is one of them, so that `_log_run` is exact for any number."""

    neighbouring: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Checks the relation, and what `_check` checks."""
        if self.neighbouring is not None:
            validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        self._check()

    def _check(self) -> None:  # noqa: B027 (a curve may have nothing to check)
        """Raises ValueError for parameters out of their range."""

    def _keep(self, **values: Any) -> None:
        """Replaces parameters by what was made of them, as float64 of other numbers."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def is_exact(self) -> bool:
        """Whether some mechanism of this description attains the curve; an upper bound otherwise."""
        return self.EXACT

    @property
    def source(self) -> str:
        """Where it is proven."""
        return self.SOURCE

    @abc.abstractmethod
    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        """Before slack and limits; for log_alpha <= 0, -inf among them."""

    @abc.abstractmethod
    def _log_delta(self, epsilon: float) -> float:
        """Logarithm of an upper bound on the largest power(alpha) - exp(epsilon) alpha, for epsilon >= 0; before slack.

        -inf where it is 0, and only there.
        """

    def _epsilon(self, delta: float) -> float:
        """Nearly the smallest epsilon >= 0 at a delta, from which `epsilon_at` looks for one above; inf if none."""
        return smallest(lambda epsilon: self.delta_at(epsilon) <= delta, 0.0, LARGEST)

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Before slack and limits, an upper bound on the logarithm of the power of power of ... power, n times.

        It may keep to the part of the curve that is the lowest at `log_alpha`: `drjax.bounds.chain` finds out how far
        that is good enough. A curve that knows none says nothing of more than one.
        """
        return np.where(n <= 1, self._log_power(log_alpha), 0.0)

    def log_power(self, log_alpha: Array | float) -> np.ndarray:
        """Natural logarithm of the largest power at levels exp(log_alpha).

        Args:
            log_alpha: Logarithms of levels, any shape, <= 0; -inf for a level of 0.

        Returns:
            The same shape, in [log_alpha, 0].

        Raises:
            ValueError: not real numbers, nan, or > 0.
        """
        x = numbers(log_alpha=log_alpha)
        bad = ~(x <= 0)
        if bad.any():
            raise ValueError(f"log_alpha must be <= 0, got {x[bad].flat[0]}")
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            # In units of the result, so that what rises goes on to rise.
            found = raised(np.asarray(self._log_power(x), np.float64))
        # What cannot be computed is no certificate. No test does worse than its level, none better than 1.
        return np.clip(np.where(np.isnan(found), 0.0, found), x, 0.0)

    def power(self, alpha: Array | float) -> np.ndarray:
        """Largest power at levels alpha, of any shape, in [alpha, 1].

        Raises:
            ValueError: not real numbers, nan, or outside [0, 1].
        """
        a = numbers(alpha=alpha)
        validate.probability(alpha=a)
        with np.errstate(divide="ignore"):
            log_alpha = np.log(a)
        found = np.exp(self.log_power(log_alpha))
        # The logarithm of a level near 1 has lost digits that the level has.
        return np.clip(found, a, 1.0)

    def delta_at(self, epsilon: float) -> float:
        """An upper bound on the delta at which the pair is (epsilon, delta)-indistinguishable, in this direction.

        Raises:
            ValueError: epsilon is not a finite number >= 0.
        """
        value = float(number(epsilon=epsilon))
        if not 0 <= value < math.inf:
            raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
        found = self._log_delta(value)
        if math.isnan(found):
            return 1.0
        # What is too small for float64 is not 0.
        least = 0.0 if found == -math.inf else math.nextafter(0.0, 1.0)
        return max(least, math.exp(min(float(raised(found)), 0.0)))

    def epsilon_at(self, delta: float) -> float:
        """An upper bound on the smallest epsilon with `delta_at(epsilon)` <= delta; inf where there is none.

        Raises:
            ValueError: delta is not in [0, 1].
        """
        goal = float(number(delta=delta))
        validate.probability(delta=goal)
        if goal == 1:
            return 0.0
        # `delta_at` is raised by `SLACK`.
        log_goal = math.log(goal) if goal else -math.inf
        aim = math.exp(log_goal - 1.5 * SLACK * max(1.0, -log_goal)) if goal else 0.0
        high = first_above(lambda epsilon: self.delta_at(epsilon) <= goal, self._epsilon(aim))
        low = high * (1 - 1e-10)
        if not 0 < high < math.inf or self.delta_at(low) <= goal:
            return high
        # The least at which `delta_at` says so: who stays within a budget by the one does by the other.
        while high - low > 1e-15 * high:
            middle = low + (high - low) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.delta_at(middle) <= goal else (middle, high)
        return high


def first_above(holds: Callable[[float], bool], guess: float) -> float:
    """A number at or just above a guess at which a condition holds; inf if none of float64 does.

    Args:
        holds: A condition that stays true once true.
        guess: Starting value, >= 0, good to its last digits; inf is returned.
    """
    found, step = guess, max(1e-15 * guess, math.nextafter(0.0, 1.0))
    while found < math.inf and not holds(found):
        found, step = guess + step, 8 * step
    return found


def increasing_root(function: Callable[[float], float]) -> float:
    """Where an increasing function of numbers > 0 is 0, to nine digits, between exp(-700) and exp(700)."""
    low, high = -700.0, 700.0
    while high - low > 1e-9:
        middle = low + (high - low) / 2
        low, high = (low, middle) if function(math.exp(middle)) > 0 else (middle, high)
    return math.exp(low)


def smallest(holds: Callable[[float], bool], low: float, limit: float) -> float:
    """The least x >= low, to 12 digits and from above, at which a condition that stays true once true is true.

    Args:
        holds: The condition.
        low: Least value allowed, >= 0.
        limit: Beyond which inf is returned.
    """
    if holds(low):
        return low
    if not holds(limit):
        return math.inf
    step = max(1e-6, low)
    high = low + step
    while not holds(high):
        low, step = high, 2 * step
        high = min(low + step, limit)
    while high - low > 1e-12 * high:
        middle = low + (high - low) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def numbers(**values: Any) -> np.ndarray:
    """Real numbers as float64.

    Raises:
        ValueError: anything else, naming it.
    """
    ((name, value),) = values.items()
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real numbers, got {value!r}")
    return array.astype(np.float64)


def number(**values: Any) -> np.ndarray:
    """One real number, as a float64 of no dimension.

    Raises:
        ValueError: anything else, naming it.
    """
    ((name, value),) = values.items()
    array = numbers(**values)
    if array.ndim:
        raise ValueError(f"{name} must be a single number, got {value!r}")
    return array

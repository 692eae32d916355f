"""Trade-off curves with a closed form."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from drjax.bounds import gdp, rounding
from drjax.bounds.chain import least_line, run_of_lines
from drjax.bounds.curve import TradeOff, increasing_root, number, numbers
from drjax.bounds.rounding import log_1mexp, log_at_least, log_failure, log_survival
from drjax.core import validate

DONG = "Dong, Roth & Su (2022), Gaussian differential privacy"


@dataclass(frozen=True)
class Gaussian(TradeOff):
    """mu-GDP: telling N(0, 1) from N(mu, 1), as of full-batch DP-GD and any composition of Gaussian noise.

    Attributes:
        mu: Distance of the two means over the standard deviation, >= 0, finite.
    """

    mu: float

    def _check(self) -> None:
        self._keep(mu=check_finite(mu=self.mu))

    EXACT: ClassVar[bool] = True
    HAS_EXACT_RUNS: ClassVar[bool] = True
    SOURCE: ClassVar[str] = f"{DONG}, equation 6"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return gdp.log_power(log_alpha, self.mu)

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        return gdp.log_power(log_alpha, n * self.mu * (1 + 1e-15))

    def _log_delta(self, epsilon: float) -> float:
        return gdp.log_delta(self.mu, epsilon) if self.mu else -math.inf

    def _epsilon(self, delta: float) -> float:
        if self.mu == 0 or delta == 1:
            return 0.0
        return gdp.epsilon_at(self.mu, delta) if delta else math.inf


@dataclass(frozen=True)
class EpsilonDelta(TradeOff):
    """(epsilon, delta)-differential privacy, and pure privacy where delta is 0.

    Attained by binary randomised response that shows its input with probability delta.

    Attributes:
        epsilon: Epsilon, >= 0, finite.
        delta: Delta, in [0, 1].
    """

    epsilon: float
    delta: float = 0.0

    def _check(self) -> None:
        self._keep(epsilon=check_finite(epsilon=self.epsilon), delta=float(number(delta=self.delta)))
        validate.probability(delta=self.delta)

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Wasserman & Zhou (2010); Kairouz, Oh & Viswanath (2015)"

    def epsilon_at(self, delta: float) -> float:
        """Smallest epsilon at delta, as for any curve; exactly `epsilon` at `delta`, where rounding must not decide."""
        found = super().epsilon_at(delta)
        return min(found, self.epsilon) if delta >= self.delta else found

    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        # exp(epsilon) alpha + delta, and 1 - exp(-epsilon) (1 - delta - alpha) as a sum of positive terms.
        log_delta = math.log(self.delta) if self.delta else -math.inf
        flat = np.logaddexp(log_1mexp(-self.epsilon), log_delta - self.epsilon)
        return np.array([self.epsilon, -self.epsilon]), np.array([log_delta, flat])

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return least_line(log_alpha, *self._lines())

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        return run_of_lines(log_alpha, n, *self._lines())

    def _log_delta(self, epsilon: float) -> float:
        if self.delta >= 1:
            return 0.0
        # The largest gap to a line of slope exp(epsilon) is at the corner of the curve.
        corner = (1 - self.delta) * -math.expm1(min(epsilon - self.epsilon, 0.0)) / (1 + math.exp(-self.epsilon))
        total = self.delta + corner
        return math.log(total) if total > 0 else -math.inf

    def _epsilon(self, delta: float) -> float:
        if delta <= self.delta:
            return self.epsilon if delta == self.delta else math.inf
        share = (delta - self.delta) / (1 - self.delta) * (1 + math.exp(-self.epsilon))
        return max(0.0, self.epsilon + math.log1p(-share)) if share < 1 else 0.0


@dataclass(frozen=True)
class Laplace(TradeOff):
    """Telling Laplace(0, 1) from Laplace(mu, 1): one number with Laplace noise, mu = sensitivity / scale.

    Attributes:
        mu: Distance of the two centres over the scale, >= 0, finite; also the epsilon of its pure guarantee.
    """

    mu: float

    def _check(self) -> None:
        self._keep(mu=check_finite(mu=self.mu))

    EXACT: ClassVar[bool] = True
    HAS_EXACT_RUNS: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Neyman & Pearson's lemma: the likelihood ratio rises with the output"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return self._log_run(log_alpha, np.ones_like(log_alpha))

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        # A chain of such pairs is one of their total distance. Levels up to exp(-mu) / 2, up to 1/2, and above: the
        # threshold is right of both centres, between, or left.
        log_half, mu = math.log(0.5), n * self.mu
        right = mu + log_alpha
        between = np.log1p(-np.exp(np.minimum(2 * log_half - right, 0)))
        left = np.log1p(-np.exp(-mu) * -np.expm1(log_alpha))
        return np.where(right <= log_half, right, np.where(log_alpha <= log_half, between, left))

    def _log_delta(self, epsilon: float) -> float:
        if epsilon >= self.mu:
            return -math.inf
        return math.log(max(-math.expm1((epsilon - self.mu) / 2), math.nextafter(0.0, 1.0)))

    def _epsilon(self, delta: float) -> float:
        return max(0.0, self.mu + 2 * math.log1p(-delta)) if delta < 1 else 0.0


@dataclass(frozen=True)
class RandomizedResponse(TradeOff):
    """Telling two categories apart from one answer: the truth with a probability, else any other category, all alike.

    Attributes:
        truth: Probability of the true category, in (1 / n_categories, 1].
        n_categories: Number of categories, >= 2.
    """

    truth: float
    n_categories: int = 2

    def _check(self) -> None:
        validate.integer(minimum=2, n_categories=self.n_categories)
        self._keep(truth=float(number(truth=self.truth)), n_categories=int(self.n_categories))
        if not 1 / self.n_categories < self.truth <= 1:
            raise ValueError(
                f"truth must be in (1 / n_categories, 1] = ({1 / self.n_categories:g}, 1], got {self.truth}"
            )

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Neyman & Pearson's lemma; the mechanism is Warner's (1965)"

    @functools.cached_property
    def _exact(self) -> tuple[Fraction, Fraction]:
        truth = Fraction(self.truth)
        return truth, (1 - truth) / (self.n_categories - 1)

    @property
    def other(self) -> float:
        """Probability of each category but the true one."""
        return float(self._exact[1])

    @functools.cached_property
    def epsilon(self) -> float:
        """The epsilon of its pure guarantee, rounded up; inf where the truth is certain."""
        truth, other = self._exact
        return log_at_least(truth / other) if other else math.inf

    @functools.cached_property
    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        truth, other = self._exact
        if not other:
            return np.zeros(1), np.zeros(1)
        # alpha truth / other, alpha + (truth - other), and 1 - (1 - alpha) other / truth as a sum of positive terms.
        log_gap, log_truth = log_at_least(truth - other), math.log(self.truth)
        return np.array([self.epsilon, 0.0, -self.epsilon]), np.array([-math.inf, log_gap, log_gap - log_truth])

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return least_line(log_alpha, *self._lines)

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        return run_of_lines(log_alpha, n, *self._lines)

    def _log_delta(self, epsilon: float) -> float:
        truth, other = self._exact
        if other and epsilon > self.epsilon:
            return -math.inf
        # In decimals, because near the guarantee itself the two cancel.
        gap = truth - rounding.exp(epsilon) * other if other else truth
        return log_at_least(gap) if gap > 0 else -math.inf

    def _epsilon(self, delta: float) -> float:
        truth, other = self._exact
        gap = truth - Fraction(delta)
        if gap <= other:
            return 0.0
        return log_at_least(gap / other) if other else math.inf


@dataclass(frozen=True)
class RDP(TradeOff):
    """Renyi differential privacy at some orders, in both directions between neighbours.

    Power is the least over orders of Holder's bound (theorem 2 of Balle, Cherubin & Hayes) and of the same bound on
    the error of the reversed test, 1 - exp(-epsilon) (1 - alpha)^(order / (order - 1)).

    Attributes:
        orders: Renyi orders, one or several, > 1; inf is pure privacy.
        epsilons: The guarantee at each, >= 0; inf where there is none.
    """

    orders: float | Sequence[float]
    epsilons: float | Sequence[float]

    def _check(self) -> None:
        orders = np.atleast_1d(numbers(orders=self.orders))
        epsilons = np.atleast_1d(numbers(epsilons=self.epsilons))
        if orders.ndim != 1 or orders.shape != epsilons.shape or not orders.size:
            raise ValueError(f"orders and epsilons must be as many, got shapes {orders.shape} and {epsilons.shape}")
        if not (orders > 1).all():
            raise ValueError(f"orders must be > 1, got {orders[~(orders > 1)][0]}")
        if not (epsilons >= 0).all():
            raise ValueError(f"epsilons must be >= 0, got {epsilons[~(epsilons >= 0)][0]}")
        # Hashable, and never another's array.
        self._keep(orders=tuple(map(float, orders)), epsilons=tuple(map(float, epsilons)))

    EXACT: ClassVar[bool] = False
    SOURCE: ClassVar[str] = "Balle, Cherubin & Hayes (2022), theorem 2, in both directions"

    def pairs(self) -> list[tuple[float, float]]:
        """Orders with their epsilons, those without a guarantee left out."""
        orders, epsilons = np.atleast_1d(self.orders), np.atleast_1d(self.epsilons)
        return [(float(a), float(e)) for a, e in zip(orders, epsilons, strict=True) if e < math.inf]

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return self._log_run(log_alpha, np.ones_like(log_alpha))

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        # log(alpha) goes to share (log(alpha) + epsilon), and -log(1 - alpha), for the reversed test, to epsilon plus
        # 1 / share of it; n times over.
        best, log_rest = np.zeros_like(log_alpha), log_survival(log_alpha)
        pairs = np.reshape(self.pairs(), (-1, 2))
        pure = pairs[np.isinf(pairs[:, 0]), 1]
        if pure.size:
            epsilon = pure.min()
            steep, flat = log_alpha + n * epsilon, np.logaddexp(log_rest, np.log(n * epsilon))
            best = np.minimum(best, np.minimum(steep, log_failure(flat)))
        order, epsilon = pairs[np.isfinite(pairs[:, 0])].T
        if order.size:
            log_alpha, log_rest, n = (np.asarray(a)[..., None] for a in (log_alpha, log_rest, n))
            t, log_shares = order - 1, -n * np.log1p(1 / (order - 1))
            steep = np.exp(log_shares) * log_alpha - np.expm1(log_shares) * t * epsilon
            steep = np.where(n == 1, t / order * (log_alpha + epsilon), steep)
            total = rounding.raised(log_1mexp(log_shares) - log_shares + np.log(t))
            flat = np.logaddexp(log_rest - log_shares, np.log(epsilon) + np.where(n == 1, 0.0, total))
            best = np.minimum(best, np.minimum(steep, log_failure(flat)).min(axis=-1))
        return best

    def _log_delta(self, epsilon: float) -> float:
        best = 0.0
        for order, renyi in self.pairs():
            if math.isinf(order):
                best = min(best, EpsilonDelta(renyi)._log_delta(epsilon))
                continue
            # Canonne, Kamath & Steinke (2020), proposition 12.
            t = order - 1
            best = min(best, max(t * (renyi - epsilon - math.log1p(1 / t)) - math.log1p(t), -rounding.LARGEST))
        return best

    def _epsilon(self, delta: float) -> float:
        best = math.inf if delta < 1 else 0.0
        for order, renyi in self.pairs():
            if math.isinf(order):
                best = min(best, EpsilonDelta(renyi)._epsilon(delta))
            elif delta:
                t = order - 1
                best = min(best, max(0.0, renyi - math.log1p(1 / t) - (math.log(delta) + math.log1p(t)) / t))
        return best


@dataclass(frozen=True)
class ZCDP(TradeOff):
    """rho-zCDP: `RDP` with order * rho at all orders, optimised in closed form.

    Attributes:
        rho: Rho, >= 0, finite.
    """

    rho: float

    def _check(self) -> None:
        self._keep(rho=check_finite(rho=self.rho))

    EXACT: ClassVar[bool] = False
    SOURCE: ClassVar[str] = "Balle, Cherubin & Hayes (2022), corollary 4, in both directions"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return self._log_run(log_alpha, np.ones_like(log_alpha))

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        # The roots of -log(alpha), and for the reversed test of -log(1 - alpha), move by that of rho; n times over.
        steep = log_power_of_zcdp(log_alpha, n**2 * self.rho)
        flat = 2 * np.logaddexp(log_survival(log_alpha) / 2, np.log(n) + np.log(self.rho) / 2)
        return np.minimum(steep, log_failure(flat))

    def _log_delta(self, epsilon: float) -> float:
        if self.rho == 0:
            return -math.inf
        # Of the bounds of all orders 1 + t the least is where 2 rho t + log(t / (1 + t)) = epsilon - rho; there it is
        # -rho t^2 - log(1 + t), and t times what is missing is what any other t adds to that.
        rho, gap = self.rho, epsilon - self.rho
        t = increasing_root(lambda t: 2 * rho * t - math.log1p(1 / t) - gap)
        missing = 2 * rho * t - math.log1p(1 / t) - gap
        return max(min(0.0, t * missing - rho * t * t - math.log1p(t)), -rounding.LARGEST)

    def _epsilon(self, delta: float) -> float:
        if self.rho == 0 or delta == 1:
            return 0.0
        if delta == 0:
            return math.inf
        rho, log_delta = self.rho, math.log(delta)
        t = increasing_root(lambda t: rho * t * t + math.log1p(t) + log_delta)
        return max(0.0, rho * (1 + t) - math.log1p(1 / t) - (log_delta + math.log1p(t)) / t)


@dataclass(frozen=True)
class Minimum(TradeOff):
    """The least of several curves that hold for the same pair: tighter than each.

    Attributes:
        curves: Curves, one or more.
    """

    curves: Sequence[TradeOff]

    def _check(self) -> None:
        curves = tuple(self.curves)
        if not curves or not all(isinstance(curve, TradeOff) for curve in curves):
            raise ValueError(f"curves must be trade-off curves, one or more, got {self.curves!r}")
        self._keep(curves=curves)

    @property
    def is_exact(self) -> bool:
        """Where it is that of one curve alone."""
        return len(self.curves) == 1 and self.curves[0].is_exact

    @property
    def source(self) -> str:
        """Sources of all its curves."""
        return "the least of: " + "; ".join(dict.fromkeys(curve.source for curve in self.curves))

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return np.min([curve.log_power(log_alpha) for curve in self.curves], axis=0)

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        return np.min([curve._log_run(log_alpha, n) for curve in self.curves], axis=0)

    def _log_delta(self, epsilon: float) -> float:
        return min(curve._log_delta(epsilon) for curve in self.curves)

    def _epsilon(self, delta: float) -> float:
        return min(curve._epsilon(delta) for curve in self.curves)


def log_power_of_zcdp(log_alpha: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """-(sqrt(log(1 / alpha)) - sqrt(rho))^2 where that is the root of something, else 0."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        gap = np.maximum(-log_alpha - rho, 0) / (np.sqrt(-log_alpha) + np.sqrt(rho))
        # No budget is enough to make a success of what cannot be guessed, but for an infinite one.
        return np.where(np.isinf(log_alpha) & ~np.isinf(rho), -np.inf, -(np.where(np.isnan(gap), 0.0, gap) ** 2))


def renyi_share(order: float) -> float:
    """(order - 1) / order, with all digits near an order of 1."""
    return 1.0 if math.isinf(order) else (order - 1) / order


def check_finite(**values: Any) -> float:
    """A single finite number >= 0, as float64; raises ValueError otherwise."""
    ((name, value),) = values.items()
    found = float(number(**values))
    if not 0 <= found < math.inf:
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    return found

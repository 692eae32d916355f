"""Trade-off curves with a closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from drjax.bounds import gdp
from drjax.bounds.curve import TradeOff, number, numbers
from drjax.core import validate

DONG = "Dong, Roth & Su (2022), Gaussian differential privacy"


@dataclass(frozen=True)
class Gaussian(TradeOff):
    """mu-GDP: telling N(0, 1) from N(mu, 1), as of full-batch DP-GD and any composition of Gaussian noise.

    Attributes:
        mu: >= 0, finite: distance of the two means over the standard deviation.
    """

    mu: float

    def _check(self) -> None:
        check_finite(mu=self.mu)

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = f"{DONG}, equation 6"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return log_ndtr(ndtri_exp(log_alpha) + self.mu)

    def _log_delta(self, epsilon: float) -> float:
        return gdp.log_delta(float(self.mu), epsilon) if self.mu else -math.inf


@dataclass(frozen=True)
class EpsilonDelta(TradeOff):
    """(epsilon, delta)-differential privacy, and pure privacy where delta is 0.

    Attained by binary randomised response that shows its input with probability delta.

    Attributes:
        epsilon: >= 0, finite.
        delta: In [0, 1].
    """

    epsilon: float
    delta: float = 0.0

    def _check(self) -> None:
        check_finite(epsilon=self.epsilon)
        validate.probability(delta=number(delta=self.delta))

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Wasserman & Zhou (2010); Kairouz, Oh & Viswanath (2015)"

    def epsilon_at(self, delta: float) -> float:
        """As of any curve, and `epsilon` at `delta` itself, where rounding must not decide."""
        found = super().epsilon_at(delta)
        return min(found, float(self.epsilon)) if delta >= self.delta else found

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        steep = np.logaddexp(self.epsilon + log_alpha, np.log(self.delta))
        # 1 - exp(-epsilon) (1 - delta - alpha); 1 - alpha by expm1, or levels near 1 would lose it.
        rest = np.maximum(-np.expm1(log_alpha) - self.delta, 0)
        return np.minimum(steep, np.log1p(-np.exp(-self.epsilon) * rest))

    def _log_delta(self, epsilon: float) -> float:
        if self.delta >= 1:
            return 0.0
        # The largest gap to a line of slope exp(epsilon) is at the corner of the curve.
        corner = (1 - self.delta) * -math.expm1(min(epsilon - self.epsilon, 0.0)) / (1 + math.exp(-self.epsilon))
        total = self.delta + corner
        return math.log(total) if total > 0 else -math.inf


@dataclass(frozen=True)
class Laplace(TradeOff):
    """Telling Laplace(0, 1) from Laplace(mu, 1): one number with Laplace noise, mu = sensitivity / scale.

    Attributes:
        mu: >= 0, finite; also the epsilon of its pure guarantee.
    """

    mu: float

    def _check(self) -> None:
        check_finite(mu=self.mu)

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Neyman & Pearson's lemma: the likelihood ratio rises with the output"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        # Levels up to exp(-mu) / 2, up to 1/2, and above: the threshold is right of both centres, between, or left.
        log_half = math.log(0.5)
        right = self.mu + log_alpha
        between = np.log1p(-np.exp(np.minimum(2 * log_half - self.mu - log_alpha, 0)))
        left = np.log1p(-np.exp(-self.mu) * -np.expm1(log_alpha))
        return np.where(log_alpha <= log_half - self.mu, right, np.where(log_alpha <= log_half, between, left))

    def _log_delta(self, epsilon: float) -> float:
        return math.log(-math.expm1((epsilon - self.mu) / 2)) if epsilon < self.mu else -math.inf


@dataclass(frozen=True)
class RandomizedResponse(TradeOff):
    """Telling two categories apart from one answer: the truth with a probability, else any other category, all alike.

    Attributes:
        truth: Probability of the true category, in (1 / n_categories, 1].
        n_categories: >= 2.
    """

    truth: float
    n_categories: int = 2

    def _check(self) -> None:
        validate.integer(minimum=2, n_categories=self.n_categories)
        value = float(number(truth=self.truth))
        if not 1 / self.n_categories < value <= 1:
            raise ValueError(
                f"truth must be in (1 / n_categories, 1] = ({1 / self.n_categories:g}, 1], got {self.truth}"
            )

    EXACT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "Neyman & Pearson's lemma; the mechanism is Warner's (1965)"

    @property
    def other(self) -> float:
        """Probability of each category but the true one."""
        return (1 - self.truth) / (self.n_categories - 1)

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        alpha = np.exp(log_alpha)
        with np.errstate(divide="ignore"):
            log_ratio = np.log(self.truth) - np.log(self.other)
        steep = log_ratio + log_alpha if math.isfinite(log_ratio) else np.zeros_like(log_alpha)
        middle = np.log(self.truth - self.other + alpha)
        flat = np.log1p(-np.exp(-log_ratio) * -np.expm1(log_alpha))
        return np.minimum(np.minimum(steep, middle), flat)

    def _log_delta(self, epsilon: float) -> float:
        gap = self.truth - math.exp(min(epsilon, 700.0)) * self.other
        return math.log(gap) if gap > 0 else -math.inf


@dataclass(frozen=True)
class RDP(TradeOff):
    """Renyi differential privacy at some orders, in both directions between neighbours.

    Power is the least over orders of Holder's bound (theorem 2 of Balle, Cherubin & Hayes) and of the same bound on
    the error of the reversed test, 1 - exp(-epsilon) (1 - alpha)^(order / (order - 1)).

    Attributes:
        orders: One or several, > 1; inf is pure privacy.
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
        object.__setattr__(self, "orders", tuple(map(float, orders)))
        object.__setattr__(self, "epsilons", tuple(map(float, epsilons)))

    EXACT: ClassVar[bool] = False
    SOURCE: ClassVar[str] = "Balle, Cherubin & Hayes (2022), theorem 2, in both directions"

    def pairs(self) -> list[tuple[float, float]]:
        """Orders with their epsilons, those without a guarantee left out."""
        orders, epsilons = np.atleast_1d(self.orders), np.atleast_1d(self.epsilons)
        return [(float(a), float(e)) for a, e in zip(orders, epsilons, strict=True) if e < math.inf]

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        best = np.zeros_like(log_alpha)
        log_rest = np.log(-np.expm1(log_alpha))
        for order, epsilon in self.pairs():
            share = 1 - 1 / order
            best = np.minimum(best, share * (log_alpha + epsilon))
            best = np.minimum(best, np.log1p(-np.exp(-epsilon + log_rest / share)))
        return best

    def _log_delta(self, epsilon: float) -> float:
        best = 0.0
        for order, renyi in self.pairs():
            if math.isinf(order):
                best = min(best, EpsilonDelta(renyi)._log_delta(epsilon))
                continue
            # Canonne, Kamath & Steinke (2020), proposition 12.
            best = min(best, (order - 1) * (renyi - epsilon + math.log1p(-1 / order)) - math.log(order))
        return best


@dataclass(frozen=True)
class ZCDP(TradeOff):
    """rho-zCDP: `RDP` with order * rho at all orders, optimised in closed form.

    Attributes:
        rho: >= 0, finite.
    """

    rho: float

    def _check(self) -> None:
        check_finite(rho=self.rho)

    EXACT: ClassVar[bool] = False
    SOURCE: ClassVar[str] = "Balle, Cherubin & Hayes (2022), corollary 4, in both directions"

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        root = math.sqrt(self.rho)
        steep = -(np.maximum(np.sqrt(-log_alpha) - root, 0) ** 2)
        # The reversed test: -log(1 - power) <= (sqrt(rho) + sqrt(-log(1 - alpha)))^2.
        log_rest = np.log(-np.expm1(log_alpha))
        flat = np.log(-np.expm1(-((root + np.sqrt(-log_rest)) ** 2)))
        return np.minimum(steep, flat)

    def _log_delta(self, epsilon: float) -> float:
        if self.rho == 0:
            return -math.inf
        # Every order gives a bound; near the best one, 1 + (epsilon - rho) / 2 rho, a grid loses little.
        middle = max((epsilon - self.rho) / (2 * self.rho), 1e-3)
        orders = 1 + middle * np.geomspace(0.05, 20, 2001)
        log_delta = (orders - 1) * (orders * self.rho - epsilon + np.log1p(-1 / orders)) - np.log(orders)
        return min(0.0, float(log_delta.min()))


@dataclass(frozen=True)
class Minimum(TradeOff):
    """The least of several curves that hold for the same pair: tighter than each.

    Attributes:
        curves: One or more.
    """

    curves: Sequence[TradeOff]

    def _check(self) -> None:
        curves = tuple(self.curves)
        if not curves or not all(isinstance(curve, TradeOff) for curve in curves):
            raise ValueError(f"curves must be trade-off curves, one or more, got {self.curves!r}")
        object.__setattr__(self, "curves", curves)

    @property
    def is_exact(self) -> bool:
        """Where it is that of one curve alone."""
        return len(self.curves) == 1 and self.curves[0].is_exact

    @property
    def source(self) -> str:
        """Of all its curves."""
        return "the least of: " + "; ".join(dict.fromkeys(curve.source for curve in self.curves))

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return np.min([curve.log_power(log_alpha) for curve in self.curves], axis=0)

    def _log_delta(self, epsilon: float) -> float:
        return min(curve._log_delta(epsilon) for curve in self.curves)


def check_finite(**values: float) -> None:
    """Each value a single finite number >= 0.

    Raises:
        ValueError: otherwise.
    """
    for name, value in values.items():
        if not 0 <= float(number(**{name: value})) < math.inf:
            raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")

"""What a mechanism guarantees, and how much noise a guarantee needs; by dp-accounting wherever it has the accountant.

Each accountant returns a `Guarantee`: the trade-off curves, from which (epsilon, delta) and reconstruction robustness
follow, and a sentence on what is proven. `neighbouring` has no default: the same noise is worth half as much under
"replace_one".

Example:
    >>> from drjax.bounds import accounting as a
    >>> near = {"neighbouring": "zero_out"}
    >>> round(a.dp_gd(20.0, steps=100, **near).epsilon(1e-5), 2), round(a.calibrate_dp_gd(2.0, 1e-5, 100, **near), 1)
    (1.99, 19.9)
    >>> round(a.calibrate_dp_sgd(2.0, 1e-5, 1.0, 100, **near), 1), a.calibrate_steps(2.0, 1e-5, 20.0, **near)
    (19.9, 100)
    >>> [round(g.epsilon(1e-5), 2) for g in (a.dp_sgd(1.0, 0.01, 100, **near), a.dp_sgd_shuffled(1.0, 1, **near))]
    [0.72, 4.38]
    >>> move = a.sensitivity_of_erm(lipschitz=1.0, strong_convexity=0.1, n=1000, **near)
    >>> a.calibrate_laplace(2.0, move), round(a.calibrate_gaussian(1.0, 1e-5, move), 3)
    (0.005, 0.037)
    >>> round(a.output_perturbation(move, 0.05, noise="gaussian", **near).epsilon(1e-5), 2)
    0.73
    >>> round(a.naive_composition([0.1] * 50)[0], 2), round(a.advanced_composition(0.1, 0.0, 50, 1e-5)[0], 2)
    (5.0, 3.92)
    >>> round(a.epsilon_of_rdp([4, 8], a.rdp_of_gaussian(1.0, [4, 8], **near), 1e-5), 2)
    5.09
    >>> import dp_accounting  # of the extra "dp"
    >>> spent = a.epsilon_of_event(dp_accounting.GaussianDpEvent(1.0), 1e-5, **near)
    >>> round(spent, 2), round(a.epsilon_of_zcdp(0.5, 1e-5), 2)
    (4.38, 4.73)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.calibration import MOST_STEPS, last, least_noise
from drjax.bounds.curve import RELATIONS, TradeOff, number, numbers
from drjax.bounds.gdp import SENSITIVITY, mu_of, noise_multiplier_for, single_positive
from drjax.bounds.mse import NOISES
from drjax.bounds.numeric import relation_of, require_dp_accounting
from drjax.bounds.rounding import LARGEST, SLACK, as_float, at_least
from drjax.core import validate

METHODS = ("analytic", "classical")


@dataclass(frozen=True)
class Guarantee:
    """What a mechanism guarantees.

    Attributes:
        curve: Trade-off curve for tests in both directions: differential privacy.
        target_curve: Trade-off curve for the test of the run without the target against that with it: what
            `rero.from_tradeoff` takes.
        proven: What is proven, in a sentence.
    """

    curve: TradeOff
    target_curve: TradeOff
    proven: str

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at that delta, upward; inf where there is none."""
        return self.curve.epsilon_at(delta)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at that epsilon, upward."""
        return self.curve.delta_at(epsilon)


def dp_gd(noise_multiplier: float, steps: int, *, neighbouring: str) -> Guarantee:
    """Full-batch DP-GD: exactly mu-GDP, mu = sensitivity sqrt(steps) / noise_multiplier.

    Args:
        noise_multiplier: Standard deviation of the noise on the sum of clipped gradients over the clipping norm, > 0.
        steps: Number of steps, >= 1.
        neighbouring: A name in `RELATIONS`; the sensitivity is 2 under "replace_one", else 1.

    Raises:
        ValueError: an argument out of its range.
    """
    mu = _mu(noise_multiplier, steps, neighbouring)
    return _same(tradeoff.Gaussian(mu, neighbouring=neighbouring), "exact: every step sees every record")


def dp_sgd(noise_multiplier: float, rate: float, steps: int, *, neighbouring: str) -> Guarantee:
    """DP-SGD with Poisson batches: each record joins each batch with probability `rate`, independently.

    Args:
        noise_multiplier: Noise multiplier as for `dp_gd`, > 0.
        rate: Sampling rate, in [0, 1].
        steps: Number of steps, >= 1.
        neighbouring: A name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range.
        ImportError: dp-accounting is not installed.
    """
    one = tradeoff.subsampled_gaussian(noise_multiplier, rate, steps, neighbouring=neighbouring)
    proven = "upper bound, tight but for the grid of losses; batches must be Poisson samples that nobody sees"
    return Guarantee(tradeoff.symmetrized(one), one, proven)


def dp_sgd_shuffled(noise_multiplier: float, epochs: int, *, neighbouring: str) -> Guarantee:
    """DP-SGD over a shuffled data set cut into batches: each record is in one batch of every epoch.

    No credit for the shuffling is proven that could be computed here; accountants of Poisson batches understate what
    shuffled ones leak (Chua et al. 2024). What holds for any order: a record acts once an epoch.

    Args:
        noise_multiplier: Noise multiplier as for `dp_gd`, > 0.
        epochs: Number of epochs, >= 1.
        neighbouring: "zero_out" or "replace_one": one record more would move others to other batches.

    Raises:
        ValueError: an argument out of its range, or "add_or_remove".
    """
    validate.one_of(("zero_out", "replace_one"), neighbouring=neighbouring)
    mu = _mu(noise_multiplier, epochs, neighbouring)
    curve = tradeoff.Gaussian(mu, neighbouring=neighbouring)
    return _same(curve, "upper bound without credit for the shuffling; exact for an order that the adversary knows")


def output_perturbation(sensitivity: float, scale: float, *, noise: str, neighbouring: str) -> Guarantee:
    """Noise on a result: the Gaussian and the Laplace mechanism.

    Args:
        sensitivity: Largest change of the result between neighbours, in the Euclidean norm for Gaussian noise and in
            the sum of absolute values for Laplace noise, > 0.
        scale: Standard deviation, or the b of exp(-|t| / b) / 2b, > 0.
        noise: "gaussian" or "laplace".
        neighbouring: The relation that the sensitivity is of, a name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range.
    """
    size, width = single_positive(sensitivity=sensitivity), single_positive(scale=scale)
    validate.one_of(NOISES, noise=noise)
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    mu = at_least(Fraction(size) / Fraction(width), sensitivity=sensitivity, scale=scale)
    kind = tradeoff.Gaussian if noise == "gaussian" else tradeoff.Laplace
    return _same(kind(mu, neighbouring=neighbouring), "exact for real numbers; see defenses.mechanisms for floats")


def sensitivity_of_erm(lipschitz: float, strong_convexity: float, n: int, *, neighbouring: str) -> float:
    """How far the minimiser of a mean loss over n records, plus a penalty, moves between neighbours.

    lipschitz / (n strong_convexity) where a loss is zeroed out, twice that where a record is replaced (Chaudhuri,
    Monteleoni & Sarwate 2011, corollary 8).

    Args:
        lipschitz: Largest norm of the gradient of one record's loss, > 0.
        strong_convexity: Strong convexity of the whole objective, > 0.
        n: Records, >= 1.
        neighbouring: "zero_out" or "replace_one".

    Raises:
        ValueError: an argument out of its range, or "add_or_remove", which changes n too.
    """
    slope, convexity = single_positive(lipschitz=lipschitz), single_positive(strong_convexity=strong_convexity)
    validate.integer(n=n)
    validate.one_of(("zero_out", "replace_one"), neighbouring=neighbouring)
    exact = SENSITIVITY[neighbouring] * Fraction(slope) / (int(n) * Fraction(convexity))
    return at_least(exact, lipschitz=lipschitz, strong_convexity=strong_convexity)


def calibrate_laplace(epsilon: float, sensitivity: float) -> float:
    """The scale of Laplace noise for pure epsilon-privacy: sensitivity / epsilon.

    Raises:
        ValueError: an argument that is not > 0.
    """
    budget, size = single_positive(epsilon=epsilon), single_positive(sensitivity=sensitivity)
    return at_least(Fraction(size) / Fraction(budget), epsilon=epsilon, sensitivity=sensitivity)


def calibrate_gaussian(epsilon: float, delta: float, sensitivity: float, *, method: str = "analytic") -> float:
    """The standard deviation of Gaussian noise for (epsilon, delta)-privacy.

    Args:
        epsilon: Epsilon, > 0; < 1 for "classical", which is not proven beyond.
        delta: Delta, in (0, 1).
        sensitivity: Euclidean, > 0.
        method: "analytic", the smallest there is (Balle & Wang 2018), or "classical", sqrt(2 log(1.25 / delta)) /
            epsilon (Dwork & Roth 2014, theorem A.1).

    Raises:
        ValueError: an argument out of its range.
    """
    budget, size = single_positive(epsilon=epsilon), single_positive(sensitivity=sensitivity)
    validate.one_of(METHODS, method=method)
    if method == "analytic":
        return _up(size * noise_multiplier_for(epsilon, delta, 1, "zero_out"), epsilon=epsilon, sensitivity=sensitivity)
    if not 0 < float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    if not epsilon < 1:
        raise ValueError(f"epsilon must be < 1 for the classical Gaussian mechanism, got {epsilon}")
    multiplier = math.sqrt(2 * (math.log(1.25) - math.log(delta))) / budget
    return _up(size * multiplier, epsilon=epsilon, sensitivity=sensitivity)


def calibrate_dp_gd(epsilon: float, delta: float, steps: int, *, neighbouring: str) -> float:
    """The noise multiplier of `dp_gd` for (epsilon, delta)-privacy, in closed form but for one root."""
    return noise_multiplier_for(epsilon, delta, steps, neighbouring)


def calibrate_dp_sgd(epsilon: float, delta: float, rate: float, steps: int, *, neighbouring: str) -> float:
    """The noise multiplier of `dp_sgd` for (epsilon, delta)-privacy, to 1e-4 relative and from above.

    Args:
        epsilon: Epsilon, > 0.
        delta: Delta, in (0, 1).
        rate: Sampling rate, in (0, 1].
        steps: Number of steps, >= 1.
        neighbouring: A name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range, or a guarantee that would need a noise multiplier above 1e6.
        ImportError: dp-accounting is not installed.
    """
    single_positive(epsilon=epsilon)
    validate.integer(steps=steps)
    whole = noise_multiplier_for(epsilon, delta, steps, neighbouring)
    share = float(number(rate=rate))
    if not 0 < share <= 1:
        raise ValueError(f"rate must be in (0, 1], got {rate}")
    if share == 1:
        return whole

    def holds(noise: float) -> bool:
        return dp_sgd(noise, share, steps, neighbouring=neighbouring).delta(epsilon) <= delta

    return least_noise(holds, whole)


def calibrate_steps(
    epsilon: float, delta: float, noise_multiplier: float, *, neighbouring: str, rate: float = 1.0
) -> int:
    """The most steps of `dp_gd`, or of `dp_sgd` at that rate, that stay (epsilon, delta)-private; 0 if one is too many.

    Raises:
        ValueError: an argument out of its range.
        ImportError: rate < 1 and dp-accounting is not installed.
    """
    single_positive(epsilon=epsilon)
    noise = single_positive(noise_multiplier=noise_multiplier)
    one_step = noise_multiplier_for(epsilon, delta, 1, neighbouring)
    whole = int(min(noise / one_step, float(MOST_STEPS)) ** 2)
    share = float(number(rate=rate))
    if not 0 < share <= 1:
        raise ValueError(f"rate must be in (0, 1], got {rate}")
    if share == 1:
        return whole

    def holds(steps: int) -> bool:
        return dp_sgd(noise_multiplier, share, steps, neighbouring=neighbouring).delta(epsilon) <= delta

    return last(lambda steps: steps <= whole or holds(steps), whole, MOST_STEPS)


def naive_composition(epsilons: Sequence[float], deltas: Sequence[float] | None = None) -> tuple[float, float]:
    """(sum of epsilons, sum of deltas): k releases of one data set, whatever they are.

    Papers 001 and 002 split their budget this way: epsilon / k for each of k releases.

    Args:
        epsilons: Epsilons of the releases, one or more, >= 0.
        deltas: Deltas of the releases, as many, in [0, 1]; none are 0.

    Raises:
        ValueError: an argument out of its range, or of another length.
    """
    e, d = _pairs(epsilons, deltas)
    total, missing = sum(map(Fraction, e), Fraction(0)), sum(map(Fraction, d), Fraction(0))
    return at_least(total, epsilons=e), at_least(min(missing, Fraction(1)), deltas=d)


def advanced_composition(epsilon: float, delta: float, k: int, slack: float) -> tuple[float, float]:
    """k releases of (epsilon, delta) each, together (epsilon', k delta + slack)-private.

    epsilon' = epsilon sqrt(2 k log(1 / slack)) + k epsilon (exp(epsilon) - 1), or k epsilon where that is less.
    `tradeoff.compose` of `EpsilonDelta` curves is tight, and smaller still.

    Source: Dwork, Rothblum & Vadhan (2010), theorem III.3.

    Args:
        epsilon: Epsilon of each release, >= 0.
        delta: Delta of each release, in [0, 1].
        k: Number of releases, >= 1.
        slack: Delta spent on the composition, in (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    n = as_float(k=k)
    (e,), (d,) = _pairs([float(number(epsilon=epsilon))], [float(number(delta=delta))])
    share = float(number(slack=slack))
    if not 0 < share < 1:
        raise ValueError(f"slack must be in (0, 1), got {slack}")
    # Beyond an epsilon of 1 the second term alone is more than k epsilon.
    advanced = e * math.sqrt(2 * n) * math.sqrt(-math.log(share)) + n * e * math.expm1(min(e, 1.0))
    return _up(min(advanced, n * e), epsilon=epsilon, k=k), min(1.0, (n * d + share) * (1 + SLACK))


def rdp_of_gaussian(
    noise_multiplier: float, orders: Sequence[float], *, steps: int = 1, neighbouring: str
) -> np.ndarray:
    """Renyi epsilons of Gaussian noise at orders: order mu^2 / 2, rounded up; inf beyond the largest float64."""
    mu, a = _mu(noise_multiplier, steps, neighbouring), numbers(orders=orders)
    if not (a > 1).all():
        raise ValueError(f"orders must be > 1, got {a[~(a > 1)].flat[0]}")
    with np.errstate(over="ignore"):
        return np.maximum(a * mu / 2 * mu * (1 + SLACK), np.nextafter(0, 1))


def epsilon_of_rdp(orders: Sequence[float], epsilons: Sequence[float], delta: float) -> float:
    """The smallest epsilon at delta that guarantees in Renyi's terms give, by dp-accounting.

    Args:
        orders: Renyi orders, > 1.
        epsilons: Renyi divergences at the orders, as many, >= 0.
        delta: Delta, in (0, 1).

    Raises:
        ValueError: an argument out of its range.
        ImportError: dp-accounting is not installed.
    """
    curve = tradeoff.RDP(orders, epsilons)
    if not 0 < float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    finite = [(a, e) for a, e in curve.pairs() if a < math.inf]
    pure = [e for a, e in curve.pairs() if a == math.inf]
    rdp = require_dp_accounting().rdp
    found = [rdp.compute_epsilon(*map(list, zip(*finite, strict=True)), delta)[0]] if finite else []
    least = min([*found, *pure], default=math.inf)
    # Of terms that cancel, up to about 1 each.
    return least * (1 + SLACK) + SLACK if least > 0 else 0.0


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """The smallest epsilon at delta that rho-zCDP gives, over all orders."""
    return tradeoff.ZCDP(rho).epsilon_at(delta)


def epsilon_of_event(event: Any, delta: float, *, neighbouring: str) -> float:
    """The smallest epsilon at delta of an event of dp-accounting, by its own PLD accountant.

    Raises:
        ValueError: not an event, an unknown relation, or an event that it cannot compose.
        ImportError: dp-accounting is not installed.
    """
    module = require_dp_accounting()
    if not 0 < float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    if not isinstance(event, module.DpEvent):
        raise ValueError(f"event must be a dp_accounting.DpEvent, got {event!r}")
    accountant = module.pld.PLDAccountant(relation_of(neighbouring))
    try:
        accountant.compose(event)
    except module.UnsupportedEventError as error:
        raise ValueError(f"event must be one that dp-accounting's PLD accountant composes, got {event}") from error
    return float(accountant.get_epsilon(delta))


def _mu(noise_multiplier: float, steps: int, neighbouring: str) -> float:
    return mu_of(float(number(noise_multiplier=noise_multiplier)), steps, neighbouring)


def _same(curve: TradeOff, proven: str) -> Guarantee:
    return Guarantee(curve, curve, proven)


def _pairs(epsilons: Any, deltas: Any) -> tuple[list[float], list[float]]:
    e = numbers(epsilons=epsilons)
    d = np.zeros_like(e) if deltas is None else numbers(deltas=deltas)
    if e.ndim != 1 or not e.size or e.shape != d.shape:
        raise ValueError(f"epsilons and deltas must be as many, one or more, got shapes {e.shape} and {d.shape}")
    if not ((e >= 0) & (e < math.inf)).all():
        raise ValueError(f"epsilons must be finite and >= 0, got {e[~((e >= 0) & (e < math.inf))][0]}")
    validate.probability(deltas=d)
    return e.tolist(), d.tolist()


def _up(value: float, **given: Any) -> float:
    """A computed number, rounded up.

    Raises:
        ValueError: it is beyond the largest float64.
    """
    found = value * (1 + SLACK)
    if found == math.inf:
        text = ", ".join(f"{name} {it!r}" for name, it in given.items())
        raise ValueError(f"{' and '.join(given)} must give a result of at most {LARGEST:g}, got {text}")
    return found

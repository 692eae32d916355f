"""Trade-off curves: closed forms, curves of any event that dp-accounting can compose, and what is done with curves.

See `drjax.bounds.curve` for what a curve is, and `docs/bounds/which.md` for which one to take.

Example:
    >>> from drjax.bounds import tradeoff
    >>> kinds = [tradeoff.Gaussian(1.0), tradeoff.Laplace(1.0), tradeoff.EpsilonDelta(1.0)]
    >>> kinds.append(tradeoff.RandomizedResponse(0.7))
    >>> [round(float(curve.power(0.01)), 3) for curve in kinds]  # most detections at 1% of false alarms
    [0.092, 0.027, 0.027, 0.023]
    >>> both = tradeoff.minimum(tradeoff.ZCDP(0.5), tradeoff.RDP([2, 4], [1.0, 2.5]))
    >>> type(both) is tradeoff.Minimum, round(both.epsilon_at(1e-5), 2)
    (True, 4.73)
    >>> sampled = tradeoff.subsampled_gaussian(1.0, 0.1, 10, neighbouring="add_or_remove")
    >>> round(float(sampled.power(0.1)), 3), round(float(tradeoff.symmetrized(sampled).power(0.1)), 3)
    (0.195, 0.195)
    >>> import dp_accounting  # of the extra "dp"
    >>> round(tradeoff.from_event(dp_accounting.LaplaceDpEvent(1.0), neighbouring="zero_out").epsilon_at(0.01), 2)
    0.98
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from drjax.bounds.closed_forms import (
    RDP,
    ZCDP,
    EpsilonDelta,
    Gaussian,
    Laplace,
    Minimum,
    RandomizedResponse,
)
from drjax.bounds.curve import RELATIONS, TradeOff, number
from drjax.bounds.gdp import mu_of, single_positive
from drjax.bounds.numeric import (
    COARSE_POINTS,
    DIRECTIONS,
    INTERVAL,
    MAX_COMPOSED,
    Numeric,
    composed_span,
    count,
    from_pld,
    halved_noise,
    interval_for,
    relation_of,
    require_dp_accounting,
    self_composed,
)
from drjax.bounds.rounding import SLACK, at_least, root_of_squares
from drjax.core import validate

__all__ = [
    "DIRECTIONS",
    "RDP",
    "RELATIONS",
    "ZCDP",
    "EpsilonDelta",
    "Gaussian",
    "Laplace",
    "Minimum",
    "Numeric",
    "RandomizedResponse",
    "TradeOff",
    "compose",
    "from_event",
    "minimum",
    "subsampled_gaussian",
    "symmetrized",
]

SAMPLED = "Zhu, Dong & Wang (2022) for the dominating pair; Doroshenko et al. (2022) for its composition"


def minimum(*curves: TradeOff) -> TradeOff:
    """The least of curves that hold for the same pair.

    Raises:
        ValueError: no curve, something else, or curves of different relations.
    """
    return Minimum(curves, neighbouring=_relation(curves))


def compose(*curves: TradeOff, interval: float = INTERVAL) -> TradeOff:
    """The curve of several releases from the same records, each of which may look at the results before it.

    Gaussians compose exactly, to sqrt(sum of mu^2). Where a guarantee in Renyi's terms is among them all are composed
    in those; everything else as privacy loss distributions.

    Args:
        curves: Curves, one or more. Their parameters must not depend on results.
        interval: Step of the grid of losses, where one is needed.

    Raises:
        ValueError: no curve, something else, different relations, or a curve that cannot be composed with the others.
        ImportError: a grid is needed and dp-accounting is not installed.

    Example:
        >>> from drjax.bounds import tradeoff
        >>> tradeoff.compose(tradeoff.Gaussian(3.0), tradeoff.Gaussian(4.0)).mu
        5.0
        >>> round(tradeoff.compose(*[tradeoff.EpsilonDelta(0.1)] * 100).epsilon_at(1e-5), 1)  # of 10 in sum
        4.3
    """
    single_positive(interval=interval)
    neighbouring = _relation(curves)
    if len(curves) == 1:
        return curves[0]
    if any(isinstance(curve, Minimum) for curve in curves):
        raise ValueError(
            "curves to be composed must not be minima of others: compose each of these, and take the least"
        )
    gaussian = [curve for curve in curves if isinstance(curve, Gaussian)]
    if len(gaussian) == len(curves):
        return Gaussian(root_of_squares(curve.mu for curve in gaussian), neighbouring=neighbouring)
    zcdp = [curve for curve in curves if isinstance(curve, ZCDP)]
    if zcdp and len(zcdp) + len(gaussian) == len(curves):
        parts = [Fraction(c.rho) if isinstance(c, ZCDP) else Fraction(c.mu) ** 2 / 2 for c in (*gaussian, *zcdp)]
        return ZCDP(at_least(sum(parts, Fraction(0)), curves=curves), neighbouring=neighbouring)
    if any(isinstance(curve, (RDP, ZCDP)) for curve in curves):
        return _compose_renyi(curves, neighbouring)
    return _compose_losses(curves, neighbouring, interval)


def _compose_renyi(curves: tuple[TradeOff, ...], neighbouring: str | None) -> RDP:
    tables = [dict(curve.pairs()) for curve in curves if isinstance(curve, RDP)]
    orders = sorted(set.intersection(*map(set, tables))) if tables else list(ORDERS)
    if not orders:
        raise ValueError("curves of RDP must share an order to be composed, got none")
    totals = [sum(_renyi(curve, order) for curve in curves) * (1 + SLACK) for order in orders]
    return RDP(orders, totals, neighbouring=neighbouring)


ORDERS = (1.1, 1.25, 1.5, 1.75, *range(2, 65), *(2**k for k in range(7, 13)))
"""Orders at which guarantees that hold at all of them are composed with others."""

WHOLE_ORDERS = tuple(order for order in ORDERS if isinstance(order, int))
"""Orders at which the divergence of a sampled Gaussian is a finite sum (Mironov, Talwar & Zhang 2019)."""


def _renyi(curve: TradeOff, order: float) -> float:
    match curve:
        case RDP():
            return dict(curve.pairs())[order]
        case ZCDP():
            return order * curve.rho
        case Gaussian():
            return order * curve.mu / 2 * curve.mu
        case Laplace():
            return _renyi_of_pure(curve.mu, order)
        case EpsilonDelta(delta=0.0):
            return _renyi_of_pure(curve.epsilon, order)
        case _:
            raise ValueError(f"a {type(curve).__name__} has no guarantee in Renyi's terms to be composed in")


def _renyi_of_pure(epsilon: float, order: float) -> float:
    """Renyi divergence of binary randomised response, the largest that pure privacy leaves (Kairouz et al. 2015)."""
    if math.isinf(order):
        return epsilon
    # log(p exp(u) + q exp(-u)) / (order - 1) with p / q = exp(epsilon), as a sum of positive terms where it is small.
    u = (order - 1) * epsilon
    if u < 1:
        total = math.log1p(math.tanh(epsilon / 2) * math.sinh(u) + 2 * math.sinh(u / 2) ** 2)
    else:
        total = u + math.log1p(math.expm1(-2 * u) / (1 + math.exp(min(epsilon, 700.0))))
    return min(epsilon, total / (order - 1) * (1 + SLACK))


def _compose_losses(curves: tuple[TradeOff, ...], neighbouring: str | None, interval: float) -> Numeric:
    fixed = {curve.pld._pmf_remove._discretization for curve in curves if isinstance(curve, Numeric)}
    if len(fixed) > 1:
        raise ValueError(f"curves must have the same interval of losses to be composed, got {sorted(fixed)}")
    directions = {curve.direction for curve in curves if isinstance(curve, Numeric)} or {"both"}
    if len(directions) > 1:
        raise ValueError(f"curves must be of the same direction to be composed, got {', '.join(sorted(directions))}")
    step = fixed.pop() if fixed else interval_for(max(map(_span, curves)), interval)
    total, n = None, 0
    for curve in curves:
        pld = _pld(curve, step)
        # Dense, because dp-accounting composes no sparse distribution with a dense one.
        total = pld if total is None else total.compose(pld)
        n += curve.n_composed if isinstance(curve, Numeric) else 1
    return from_pld(
        total, neighbouring=neighbouring, direction=directions.pop(), n_composed=n, reference=_sources(curves)
    )


def _sources(curves: tuple[TradeOff, ...]) -> str:
    return "composition of: " + "; ".join(dict.fromkeys(curve.source for curve in curves))


def _span(curve: TradeOff) -> float:
    """A bound on most privacy losses."""
    match curve:
        case Gaussian():
            return curve.mu * (curve.mu / 2 + 10)
        case Laplace():
            return curve.mu
        case EpsilonDelta():
            return curve.epsilon
    return 0.0


def _pld(curve: TradeOff, step: float) -> Any:
    module = require_dp_accounting().pld.privacy_loss_distribution
    match curve:
        case Numeric():
            return curve.pld
        case Gaussian(mu=0.0) | Laplace(mu=0.0):
            return module.identity(value_discretization_interval=step)
        case Gaussian():
            return module.from_gaussian_mechanism(1 / curve.mu, value_discretization_interval=step)
        case Laplace():
            return module.from_laplace_mechanism(1 / curve.mu, value_discretization_interval=step)
        case EpsilonDelta():
            parameters = require_dp_accounting().pld.common.DifferentialPrivacyParameters(curve.epsilon, curve.delta)
            return module.from_privacy_parameters(parameters, value_discretization_interval=step)
        case RandomizedResponse():
            n = curve.n_categories
            names = {0: curve.truth, 1: curve.other, 2: (n - 2) * curve.other}
            first = {k: math.log(p) for k, p in names.items() if p > 0}
            second = {k: math.log(p) for k, p in zip((1, 0, 2), names.values(), strict=True) if p > 0}
            return module.from_two_probability_mass_functions(
                first, second, value_discretization_interval=step, symmetric=True
            )
        case _:
            raise ValueError(f"a {type(curve).__name__} cannot be composed with {type(curve).__name__} by losses")


def symmetrized(curve: TradeOff) -> TradeOff:
    """The curve of the better of both tests: the run with the target may be the null hypothesis too.

    Closed forms are symmetric. What is sampled is not: a record that takes part now and then is more easily seen to be
    there than to be missing.

    Raises:
        ValueError: not a curve.
    """
    if not isinstance(curve, TradeOff):
        raise ValueError(f"curve must be a trade-off curve, got {curve!r}")
    if isinstance(curve, Minimum):
        return dataclasses.replace(curve, curves=tuple(map(symmetrized, curve.curves)))
    if not isinstance(curve, Numeric) or curve.direction == "both":
        return curve
    return from_pld(
        curve.pld,
        neighbouring=curve.neighbouring,
        direction="both",
        n_composed=curve.n_composed,
        reference=curve.reference,
    )


def from_event(event: Any, *, neighbouring: str, direction: str = "both", interval: float = INTERVAL) -> TradeOff:
    """The curve of any event of dp-accounting: by privacy losses, or by Renyi's divergence where it has no others.

    Args:
        event: A `dp_accounting.DpEvent`; noise multipliers are in units of the largest norm of one record's term.
        neighbouring: A name in `RELATIONS`.
        direction: A name in `DIRECTIONS`; what is known in Renyi's terms alone holds for both.
        interval: Step of the grid of losses.

    Returns:
        `Numeric`, `RDP`, or a curve that guarantees nothing for an event without privacy.

    Raises:
        ValueError: not an event, an unknown relation or direction, or an event that neither accountant composes.
        ImportError: dp-accounting is not installed.
    """
    module = require_dp_accounting()
    validate.one_of(DIRECTIONS, direction=direction)
    single_positive(interval=interval)
    relation = relation_of(neighbouring)
    if not isinstance(event, module.DpEvent):
        raise ValueError(f"event must be a dp_accounting.DpEvent, got {event!r}")
    reasons = []
    # The accountant of losses doubles a sensitivity under "replace_one", the one of Renyi's divergence does not.
    halved = halved_noise(event) if neighbouring == "replace_one" else event
    for accountant, counted in (
        (module.pld.PLDAccountant(relation, value_discretization_interval=interval), event),
        (module.rdp.RdpAccountant(ORDERS, relation), halved),
    ):
        try:
            accountant.compose(counted)
        except module.UnsupportedEventError as error:
            reasons.append(str(error).strip())
            continue
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            raise ValueError(f"event cannot be composed, got {event}: {error}") from error
        if isinstance(accountant, module.pld.PLDAccountant):
            if accountant._contains_non_dp_event:
                return EpsilonDelta(0.0, 1.0, neighbouring=neighbouring)
            return from_pld(
                accountant._pld,
                neighbouring=neighbouring,
                direction=direction,
                n_composed=count(event),
                reference=SAMPLED,
            )
        epsilons = np.maximum(np.asarray(accountant._rdp, np.float64), 0)
        return RDP(ORDERS, epsilons.tolist(), neighbouring=neighbouring)
    raise ValueError(f"event must be one that dp-accounting composes, got {event}: {'; '.join(reasons)}")


def subsampled_gaussian(
    noise_multiplier: float,
    rate: float,
    steps: int,
    *,
    neighbouring: str,
    direction: str = "with_target",
    interval: float = INTERVAL,
) -> TradeOff:
    """DP-SGD: Gaussian noise on sums over Poisson batches, composed over steps.

    Args:
        noise_multiplier: Standard deviation in units of the clipping norm, > 0.
        rate: Probability that a record is in a batch, in [0, 1].
        steps: Number of steps, >= 1.
        neighbouring: A name in `RELATIONS`.
        direction: A name in `DIRECTIONS`: "with_target" is what reconstruction robustness needs, "both" what
            differential privacy asks for.
        interval: Step of the grid of losses.

    Returns:
        `Gaussian` at a rate of 1, else the least of a `Numeric`, of `RDP`, which is the tighter one in the far tail,
        and of the Gaussian without sampling.

    Raises:
        ValueError: an argument out of its range.
        ImportError: dp-accounting is not installed.
    """
    noise = single_positive(noise_multiplier=number(noise_multiplier=noise_multiplier))
    single_positive(interval=interval)
    validate.probability(rate=number(rate=rate))
    validate.one_of(DIRECTIONS, direction=direction)
    unsampled = Gaussian(mu_of(noise, steps, neighbouring), neighbouring=neighbouring)
    if rate == 0:
        return Gaussian(0.0, neighbouring=neighbouring)
    if rate == 1:
        return unsampled
    span = mu_of(noise, 1, neighbouring) * (mu_of(noise, 1, neighbouring) / 2 + 10)
    grid = interval_for(span, interval)
    if steps > 1:
        # What the composition spans hardly depends on the grid.
        coarse = composed_span(_one_step(noise, float(rate), neighbouring, max(grid, 2 * span / COARSE_POINTS)), steps)
        grid = max(grid, coarse / MAX_COMPOSED)
    one = _one_step(noise, float(rate), neighbouring, grid)
    sampled = from_pld(
        self_composed(one, steps) if steps > 1 else one,
        neighbouring=neighbouring,
        direction=direction,
        n_composed=steps,
        reference=SAMPLED,
    )
    if neighbouring == "replace_one":
        return Minimum((sampled, unsampled), neighbouring=neighbouring)
    # Below what rounding adds to every delta, some 1e-11, Renyi's divergence goes on to tell small levels apart.
    dp = require_dp_accounting()
    accountant = dp.rdp.RdpAccountant(WHOLE_ORDERS, relation_of(neighbouring))
    step = dp.PoissonSampledDpEvent(float(rate), dp.GaussianDpEvent(noise))
    accountant.compose(dp.SelfComposedDpEvent(step, int(steps)))
    renyi = RDP(WHOLE_ORDERS, np.maximum(accountant._rdp, 0).tolist(), neighbouring=neighbouring)
    return Minimum((sampled, renyi, unsampled), neighbouring=neighbouring)


@functools.lru_cache(maxsize=8)
def _one_step(noise: float, rate: float, neighbouring: str, grid: float) -> Any:
    """Losses of one step on a grid: most of the time of a curve, and the same for all numbers of steps."""
    return require_dp_accounting().pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        value_discretization_interval=grid,
        sampling_prob=rate,
        neighboring_relation=relation_of(neighbouring),
    )


def _relation(curves: tuple[TradeOff, ...]) -> str | None:
    """The relation that curves share; those that name none fit all.

    Raises:
        ValueError: no curve, something else, or several relations.
    """
    if not curves or not all(isinstance(curve, TradeOff) for curve in curves):
        raise ValueError(f"curves must be trade-off curves, one or more, got {curves!r}")
    named = {curve.neighbouring for curve in curves} - {None}
    if len(named) > 1:
        raise ValueError(f"curves must be of one neighbouring relation, got {', '.join(sorted(map(str, named)))}")
    return named.pop() if named else None

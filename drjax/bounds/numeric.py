"""Trade-off curves from privacy loss distributions: sampled and composed mechanisms, by dp-accounting.

dp-accounting rounds privacy losses so that every delta(epsilon) it gives is too large (Doroshenko et al. 2022, "connect
the dots"). Each such delta is a line over the trade-off curve, power(alpha) <= exp(epsilon) alpha + delta(epsilon), for
epsilon of either sign, and `Numeric` is the least of all of them: an upper bound on every test, which no search for the
best one can spoil. What Fourier transforms lose in composition is bounded (`rounding_of`) and added to delta.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.signal import lfilter

from drjax.bounds.chain import least_line, run_of_lines
from drjax.bounds.curve import RELATIONS, TradeOff
from drjax.core import validate

INTERVAL = 1e-4
"""Default step of the grid that privacy losses are rounded up to."""

MAX_POINTS = 200_000
"""Losses of one mechanism; a step that would need more is made larger, which is looser but still an upper bound."""

MAX_COMPOSED = 500_000
"""Losses of a composition, limited in the same way: beyond, two seconds would not do."""

COARSE_POINTS = 2000
"""Losses of one mechanism of which the span of its composition is estimated."""

DIRECTIONS = ("with_target", "both")
"""Which test: the run without the target against the one with it, or the better of that and the reverse."""

LEAST_FALL = 1e-11
"""Least fall of log delta from one line to the next: where it falls by less, rounding would decide where they cross."""

RELATIVE = 1e-10
"""Relative margin for rounding in sums of positive terms."""


def require_dp_accounting() -> Any:
    """The module dp_accounting.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError("sampled and composed mechanisms need dp-accounting: pip install 'drjax[dp]'") from error
    return dp_accounting


def relation_of(neighbouring: str) -> Any:
    """Their name of one of `RELATIONS`.

    Raises:
        ValueError: another name.
    """
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    names = {"add_or_remove": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE", "zero_out": "REPLACE_SPECIAL"}
    return require_dp_accounting().NeighboringRelation[names[neighbouring]]


@dataclass(frozen=True, eq=False)
class Numeric(TradeOff):
    """The least of many lines over a trade-off curve; made by `from_pld`.

    Attributes:
        log_slopes: (m,) epsilons, of either sign, increasing.
        log_deltas: (m,) logarithms of the delta of each, which hold as upper bounds.
        pld: The privacy loss distribution that they are of, which goes on to be composed.
        n_composed: How many mechanisms it composes, for the rounding.
        direction: A name in `DIRECTIONS`.
        reference: The source.

    Example:
        >>> from drjax.bounds import tradeoff
        >>> curve = tradeoff.compose(tradeoff.EpsilonDelta(0.5), tradeoff.Gaussian(0.5))
        >>> type(curve).__name__, round(curve.epsilon_at(1e-5), 1)
        ('Numeric', 2.4)
    """

    log_slopes: np.ndarray
    log_deltas: np.ndarray
    pld: Any = field(repr=False)
    n_composed: int
    direction: str
    reference: str

    @property
    def source(self) -> str:
        """Where it is proven."""
        return self.reference

    def _log_power(self, log_alpha: np.ndarray) -> np.ndarray:
        return least_line(log_alpha, *self._lines(log_alpha))

    def _log_run(self, log_alpha: np.ndarray, n: np.ndarray) -> np.ndarray:
        return run_of_lines(log_alpha, n, *self._lines(log_alpha))

    def _lines(self, log_alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and intercepts of the lines that may be the least at each level, along a last axis."""
        slopes, deltas, crossings = self._envelope
        last = np.searchsorted(-crossings, -log_alpha.ravel()).reshape(log_alpha.shape)
        which = np.clip(np.stack([last - 1, last, last + 1], axis=-1), 0, len(slopes) - 1)
        return slopes[which], deltas[which]

    @functools.cached_property
    def _envelope(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lines that matter, by slope, and the logarithms of the levels at which each crosses the next, decreasing."""
        kept = np.append(self.log_deltas[:-1] - self.log_deltas[1:] > LEAST_FALL, True)
        slopes, deltas = self.log_slopes[kept], self.log_deltas[kept]
        while True:
            crossings = _crossings(slopes, deltas)
            # A line that crosses the next one before it crosses the last is above one of them everywhere.
            is_below = np.ones(len(slopes), bool)
            is_below[1:-1] = crossings[1:] < crossings[:-1]
            if is_below.all():
                return slopes, deltas, crossings
            slopes, deltas = slopes[is_below], deltas[is_below]

    def _log_delta(self, epsilon: float) -> float:
        # Delta is convex in exp(epsilon), and falls: the chord is above it, and the last delta holds for all after.
        slopes, deltas = self.log_slopes, self.log_deltas
        i = int(np.searchsorted(slopes, epsilon, side="right")) - 1
        if i < 0:
            return 0.0
        if i == len(slopes) - 1:
            return float(deltas[-1])
        share = math.expm1(epsilon - slopes[i]) / math.expm1(slopes[i + 1] - slopes[i])
        low, high = float(deltas[i]), float(deltas[i + 1])
        return float(np.logaddexp(low + math.log1p(-share), high + math.log(share))) if 0 < share < 1 else low


def _crossings(log_slopes: np.ndarray, log_deltas: np.ndarray) -> np.ndarray:
    """Logarithms of the levels (delta_i - delta_i+1) / (slope_i+1 - slope_i) at which neighbouring lines cross."""
    gap = log_deltas[:-1] + np.log(-np.expm1(log_deltas[1:] - log_deltas[:-1]))
    return gap - log_slopes[1:] - np.log(-np.expm1(log_slopes[:-1] - log_slopes[1:]))


def rounding_of(probabilities: np.ndarray, n_composed: int) -> float:
    """Bound on the error, summed over all losses, of a convolution by Fourier transforms.

    A transform of length N has a relative error of about log2(N) roundings in the Euclidean norm (Higham 2002, section
    24.1), a power of it n_composed times as much; sqrt(N) turns the norm into a sum.
    """
    n = max(2, len(probabilities))
    norm = float(np.linalg.norm(probabilities))
    return 2 * np.finfo(np.float64).eps * math.log2(n) * (n_composed + 2) * math.sqrt(n) * norm


def from_pld(pld: Any, *, neighbouring: str | None, direction: str, n_composed: int, reference: str) -> Numeric:
    """The curve of a privacy loss distribution.

    Args:
        pld: dp-accounting's `PrivacyLossDistribution`, a pessimistic one.
        neighbouring: What it is of.
        direction: A name in `DIRECTIONS`.
        n_composed: Mechanisms composed in it.
        reference: What `source` says.

    Raises:
        ValueError: an unknown relation or direction, or an optimistic estimate.
    """
    validate.one_of(DIRECTIONS, direction=direction)
    pmfs = [pld._pmf_remove, *([pld._pmf_add] if direction == "both" else [])]
    if not all(pmf._pessimistic_estimate for pmf in pmfs):
        raise ValueError("pld must be a pessimistic estimate, got an optimistic one")
    dense = [pmf.to_dense_pmf() for pmf in pmfs]
    low, high = min(p._lower_loss for p in dense), max(p._lower_loss + p.size for p in dense)
    deltas = np.max([_profile(pmf, low, high, n_composed) for pmf in dense], axis=0)
    slopes = dense[0]._discretization * np.arange(low, high)
    with np.errstate(divide="ignore"):
        logs = np.log(np.minimum.accumulate(np.minimum(deltas, 1.0)))
    return Numeric(
        slopes,
        logs,
        pld,
        n_composed,
        direction,
        reference,
        neighbouring=neighbouring,
    )


def _profile(pmf: Any, low: int, high: int, n_composed: int) -> np.ndarray:
    """Delta at the losses of indices low to high, excluded."""
    p, step = np.asarray(pmf._probs, np.float64), pmf._discretization
    slack = pmf._infinity_mass + (rounding_of(p, n_composed) if n_composed > 1 else 0.0)
    p = np.pad(np.maximum(p, 0), (pmf._lower_loss - low, high - pmf._lower_loss - len(p)))
    # With A_i the mass above loss i, delta_i = sum_{j > i} p_j (1 - exp(l_i - l_j)) obeys
    # delta_i = (1 - q) A_i + q delta_{i+1}, q = exp(-step): sums of positive terms, which lose no digits.
    above = np.append(np.cumsum(p[::-1])[::-1][1:], 0.0)
    found: Any = lfilter([-math.expm1(-step)], [1.0, -math.exp(-step)], above[::-1])
    return found[::-1] * (1 + RELATIVE) + slack


def count(event: Any) -> int:
    """How many mechanisms an event composes."""
    children = getattr(event, "events", None)
    if children is not None:
        return sum(map(count, children))
    inner = getattr(event, "event", None)
    return int(getattr(event, "count", 1)) * (count(inner) if inner is not None else 1)


def halved_noise(event: Any) -> Any:
    """The same event with half the noise multiplier of every Gaussian and Laplace mechanism in it."""
    import attr

    module = require_dp_accounting()
    if isinstance(event, (module.GaussianDpEvent, module.LaplaceDpEvent)):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier / 2)
    if isinstance(getattr(event, "event", None), module.DpEvent):
        return attr.evolve(event, event=halved_noise(event.event))
    if isinstance(event, module.ComposedDpEvent):
        return attr.evolve(event, events=[halved_noise(child) for child in event.events])
    return event


def interval_for(span: float, interval: float) -> float:
    """The step of the grid, at least `interval`, for losses within +-span."""
    return max(interval, 2 * span / MAX_POINTS)


def composed_span(pld: Any, n_composed: int) -> float:
    """About how far apart the least and the largest loss of a composition are that its truncation keeps."""
    bounds_of = require_dp_accounting().pld.common.compute_self_convolve_bounds
    spans = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        dense = pmf.to_dense_pmf()
        low, high = bounds_of(dense._probs, n_composed, 1e-15)
        spans.append((high - low) * dense._discretization)
    return max(spans)


def self_composed(pld: Any, n: int) -> Any:
    """A distribution composed with itself.

    As a dense one: of a sparse one dp-accounting raises the size to the n-th power, an integer of millions of digits.
    """
    kind = require_dp_accounting().pld.privacy_loss_distribution.PrivacyLossDistribution
    remove = pld._pmf_remove.to_dense_pmf().self_compose(n)
    return kind(remove) if pld._symmetric else kind(remove, pld._pmf_add.to_dense_pmf().self_compose(n))

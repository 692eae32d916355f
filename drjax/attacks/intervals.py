"""Intervals of reconstructed features: where the truth is with a probability of 90%.

An attack predicts the squared error of every feature. A feature that the release shows well errs by about a normal
number of that variance. Of one that it hardly shows the records that the adversary has say what it may be: they are
weighted by what the answer says beyond them, and their quantiles are the ends, so that skewed features and such of few
values have intervals of their own shape. Where public records exist, predicted deviations are multiplied by the factor
at which as many truths as asked for lie inside on releases of public records (split conformal prediction, with one
factor for all features).

Example:
    >>> import drjax, numpy as np
    >>> from drjax.attacks import intervals
    >>> from drjax.attacks.attack import EmbeddingThreat
    >>> from drjax.attacks.reconstruction.closed_form import reconstruct_pca
    >>> from drjax.attacks.reconstruction.priors import GaussianPrior
    >>> x = drjax.load("digits").x.astype(np.float64)
    >>> coords = drjax.embed(x[:20])[None]
    >>> found = reconstruct_pca(x[1:20], coords, prior=GaussianPrior.fit(x[100:]))
    >>> given = {"method": drjax.PCA(), "known": x[1:20], "coords": coords, "shadows": None, "public": x[100:]}
    >>> ends = intervals.intervals(found, EmbeddingThreat(**given))
    >>> bool(np.mean((ends[0, :, 0] <= x[0]) & (x[0] <= ends[0, :, 1])) > 0.8)
    True
    >>> intervals.calibrated(found, EmbeddingThreat(**given, truth=x[:1])).n_releases
    1
    >>> intervals.with_intervals(found, EmbeddingThreat(**given)).interval.shape
    (1, 64, 2)
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import NamedTuple

import numpy as np

from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.predicted import predicted_mse
from drjax.core import validate
from drjax.core.statistics import normal_quantile
from drjax.core.types import Reconstruction, is_usable

LEVEL = 0.9
"""Probability that a feature is within its interval."""

FLOOR = 1e-6
"""Least deviation of a feature's error that is told from rounding, over the feature's standard deviation."""

MOST_RECORDS = 500
"""Records that say what a feature may be, at most; the first ones."""

FEW = 40.0
"""Effective number of weighted records (Kish) below which an error is taken to be normal."""

FACTORS = 2.0 ** np.arange(0, 20.1, 0.125)
"""Factors on predicted deviations among which one is chosen: from `FLOOR` they reach what a feature varies by."""

LEAST_TRIED = 30
"""Features of practice releases, in all, that a factor is chosen on at the least."""

TINY = np.finfo(np.float64).tiny

MOST_EXCESS = 4.0
"""Most by which a few practice releases raise a predicted error."""

FEW_VALUES = 20
"""Different values of a feature among the records up to which its errors are not those of a continuous one."""


class Calibration(NamedTuple):
    """What practice releases say of the errors of an attack.

    Attributes:
        factor: Factors on predicted deviations: of continuous features, of such of few values, and of those that are
            predicted to rounding; 1 where nothing was learned.
        feature_mse: Mean squared errors (d,) of an attack that does not tell features apart; None if it does, or if
            nothing was learned.
        n_releases: Practice releases, 0 for none.
        n_records: Known records that were predicted from others, in the place of practice releases; 0 for none.
        excess: How many times what is predicted with these factors the mean squared error is, from 1 to `MOST_EXCESS`:
            intervals may hold, and errors beyond them be large.
    """

    factor: tuple[float, float, float] = (1.0, 1.0, 1.0)
    feature_mse: np.ndarray | None = None
    n_releases: int = 0
    n_records: int = 0
    excess: float = 1.0


UNCALIBRATED = Calibration()


def intervals(
    found: Reconstruction,
    threat: EmbeddingThreat,
    calibration: Calibration = UNCALIBRATED,
    *,
    level: float = LEVEL,
) -> np.ndarray:
    """Intervals (m, d, 2) of the features of m reconstructions, in their units; nan where no error is predicted.

    O(m s d log s) for s records that say what a feature may be.

    Args:
        found: Reconstructions (m, d) of the threat's releases, settled.
        threat: Releases and knowledge.
        calibration: From `calibrated`, of the same attack.
        level: Probability, in (0, 1).

    Raises:
        ValueError: level not in (0, 1).

    Source: Vovk, Gammerman & Shafer (2005) for the factor; Kish (1965) for the effective number of records.
    """
    validate.open_unit(level=level)
    mse = _feature_mse(found, threat, calibration)
    if mse is None:
        return np.full((*found.x.shape, 2), np.nan)
    reference = _Reference.of(threat)
    wide = reference.widened(np.sqrt(mse), calibration.factor)
    return _intervals(found.x, wide, reference, level, threat.bounds)


def calibrated(found: Reconstruction, tried: EmbeddingThreat, *, level: float = LEVEL) -> Calibration:
    """What an attack's answers on practice releases say of its predicted errors.

    A factor is the least of `FACTORS`, none below 1, with which the intervals hold a share `level` of the features of
    its kind whose error is predicted to be less than what they vary by; 1 where there are fewer than `LEAST_TRIED`.

    Args:
        found: Reconstructions (m, d) of the practice releases, settled.
        tried: Practice threat with the truth, from `drjax.attacks.practice.practice`.
        level: Probability, in (0, 1).
    """
    assert tried.truth is not None
    usable = is_usable(np.asarray(found.status)) & np.isfinite(found.x).all(axis=1)
    if not usable.any():
        return UNCALIBRATED
    x, truth = np.asarray(found.x, np.float64)[usable], tried.truth[usable]
    own = None if found.feature_mse is not None else ((x - truth) ** 2).mean(axis=0)
    learned = Calibration(feature_mse=own, n_releases=int(usable.sum()))
    mse = _feature_mse(found, tried, learned)
    assert mse is not None
    deviation, reference = np.sqrt(mse[usable]), _Reference.of(tried)
    counts = reference.varies & (deviation < reference.deviation)
    factors = [1.0, 1.0, 1.0]
    for kind, group in enumerate(reference.kinds(deviation)):
        which = counts & group
        if which.sum() < LEAST_TRIED:
            continue

        def holds(place: int, which: np.ndarray = which) -> bool:
            wide = reference.widened(deviation, (FACTORS[place],) * 3)
            ends = _intervals(x, wide, reference, level, tried.bounds)
            return ((ends[..., 0] <= truth) & (truth <= ends[..., 1]))[which].mean() >= level

        place = bisect.bisect_left(range(len(FACTORS)), True, key=holds)
        factors[kind] = float(FACTORS[min(place, len(FACTORS) - 1)])
    learned = learned._replace(factor=(factors[0], factors[1], factors[2]))
    told = counts & ~reference.kinds(deviation)[2]
    if told.sum() < LEAST_TRIED:
        return learned
    unit = np.where(reference.varies & (tried.bounds is None), reference.deviation, 1.0)
    wide = reference.widened(deviation, learned.factor) / unit
    missed = float(((((x - truth) / unit) ** 2)[told]).mean() / max(float((wide**2)[told].mean()), TINY))
    return learned._replace(excess=min(max(missed, 1.0), MOST_EXCESS))


def with_intervals(
    found: Reconstruction, threat: EmbeddingThreat, calibration: Calibration = UNCALIBRATED
) -> Reconstruction:
    """The reconstructions with `interval`, and `expected_mse` and `feature_mse` where the attack has none itself."""
    mse, expected = _feature_mse(found, threat, calibration), found.expected_mse
    ends = intervals(found, threat, calibration)
    if mse is not None:
        reference, deviation = _Reference.of(threat), np.sqrt(mse)
        is_widened = reference.factor(deviation, calibration.factor) > 1
        wide = np.where(is_widened, reference.widened(deviation, calibration.factor) ** 2, mse)
        is_exact = reference.kinds(deviation)[2]
        wide = np.where(is_exact, wide, np.maximum(wide, np.minimum(calibration.excess * wide, reference.deviation**2)))
        expected = wide.mean(axis=1) if expected is None else np.asarray(expected) + (wide - mse).mean(axis=1)
        mse = wide
    return found._replace(interval=ends, feature_mse=mse, expected_mse=expected)


@dataclasses.dataclass(frozen=True)
class _Reference:
    """Records that say what a feature may be: sorted values (s, d), and their mean and deviation (d,)."""

    values: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, threat: EmbeddingThreat) -> _Reference:
        x = threat.expected_of.astype(np.float64)
        return cls(np.sort(x[:MOST_RECORDS], axis=0), x.mean(axis=0), x.std(axis=0))

    @property
    def is_continuous(self) -> np.ndarray:
        """(d,) bool."""
        return 1 + (np.diff(self.values, axis=0) > 0).sum(axis=0) > FEW_VALUES

    @property
    def varies(self) -> np.ndarray:
        """(d,) bool."""
        return self.deviation > 1e-9 * np.maximum(np.abs(self.mean), TINY)

    def kinds(self, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(m, d) bool each: continuous, of few values, and predicted to rounding, by predicted deviations (m, d)."""
        is_exact = deviation <= FLOOR * self.deviation
        return ~is_exact & self.is_continuous, ~is_exact & ~self.is_continuous, is_exact

    def factor(self, deviation: np.ndarray, factors: tuple[float, float, float]) -> np.ndarray:
        """(m, d), the factor of each feature's kind."""
        return np.select(self.kinds(deviation), factors)

    def widened(self, deviation: np.ndarray, factors: tuple[float, float, float]) -> np.ndarray:
        """Predicted deviations (m, d) times the factor of their kind, up to what records vary by.

        No answer leaves no more open: from there on the records alone decide.
        """
        least = np.maximum(deviation, FLOOR * self.deviation)
        wide = np.minimum(self.factor(deviation, factors) * least, self.deviation)
        return np.where(deviation < self.deviation, wide, deviation)


def _feature_mse(found: Reconstruction, threat: EmbeddingThreat, calibration: Calibration) -> np.ndarray | None:
    """Squared errors (m, d) to expect: the attack's own, or those of practice in proportion to what it predicts."""
    if found.feature_mse is not None:
        return np.maximum(np.asarray(found.feature_mse, np.float64), 0)
    if calibration.feature_mse is not None:
        return np.tile(calibration.feature_mse, (len(found.x), 1))
    expected = predicted_mse(found)
    if not np.isfinite(expected).all():
        return None
    variance = threat.expected_of.astype(np.float64).var(axis=0)
    return expected[:, None] * variance / max(variance.mean(), TINY)


def _intervals(
    x: np.ndarray,
    wide: np.ndarray,
    reference: _Reference,
    level: float,
    bounds: tuple[float, float] | None,
) -> np.ndarray:
    """Intervals (m, d, 2) about answers x (m, d) whose errors have the deviations `wide` (m, d)."""
    usual = reference.deviation
    half = normal_quantile(level) * wide
    ends = np.stack([x - half, x + half], axis=-1)
    is_open = reference.varies & (wide > 0.1 * usual)
    for lane, feature in zip(*np.nonzero(is_open), strict=True):
        at = float(x[lane, feature])
        expected = float(reference.mean[feature]), float(usual[feature])
        own = _among_records(at, float(wide[lane, feature]), reference.values[:, feature], expected, level)
        if own is not None:
            ends[lane, feature] = min(own[0], at), max(own[1], at)
    return ends if bounds is None else np.clip(ends, *bounds)


def _among_records(
    x: float, deviation: float, values: np.ndarray, usual: tuple[float, float], level: float
) -> tuple[float, float] | None:
    """Quantiles of ascending values, weighted by what an answer says beyond them; None where too few count."""
    mean, own = usual
    if deviation >= own:
        middle = np.median(values)
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="weibull")
        stretch = deviation / own
        return float(middle + stretch * (low - middle)), float(middle + stretch * (high - middle))
    precision = 1 / deviation**2 - 1 / own**2
    centre = (x / deviation**2 - mean / own**2) / precision
    weights = np.exp(-precision * ((values - centre) ** 2 - np.min((values - centre) ** 2)) / 2)
    if weights.sum() ** 2 < FEW * (weights**2).sum():
        return None
    share = np.cumsum(weights) / weights.sum()
    low = values[np.searchsorted(share, (1 - level) / 2)]
    high = values[min(np.searchsorted(share, (1 + level) / 2), len(values) - 1)]
    return float(low), float(high)

"""From somebody's plot to the share of its records that have a property, with an interval: the attack from end to end.

Shadow maps are made of the adversary's own records with shares drawn at random. Where the plot is a picture, every
shadow map is drawn and read back as the plot was, so that what reading loses is lost in both. The shadow records are
split into two halves, persons kept together: maps of one half train the attack, maps of the other, which it has not
seen, calibrate its interval and measure its error, as the victim's records are not seen either.

Source: "Property inference attacks against t-SNE plots" (2022) for the attack; Vovk, Gammerman & Shafer (2005) for the
interval; Bates et al. (2023), "Testing for outliers with conformal p-values", for `Outcome.typicality`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.spatial import KDTree

from drjax.attacks.property import invariants, models, raster
from drjax.attacks.property.groups import halves
from drjax.attacks.property.maps import DEFAULT
from drjax.attacks.property.observation import Plot
from drjax.attacks.property.shadow_data import ShadowData
from drjax.attacks.property.shadow_maps import Records, ShadowMaps, feasible_levels, sample_maps
from drjax.core import validate
from drjax.core.types import Array, DRMethod, count_status
from drjax.data.preprocess import StandardScaler

CALIBRATION_SHARE = 0.3
"""Of the shadow maps."""

MIN_CALIBRATION = 6
PILOTS = 8
"""Maps that are drawn and read to learn how many points reading loses."""

FEW_POINTS = 50
MANY_OVERLAPPING = 0.3
LOW_CONFIDENCE = 0.8
UNLIKELY = 0.05
"""Typicality below which a plot is said to be unlike the shadow maps."""


class Finding(NamedTuple):
    """What one attack says.

    Attributes:
        attack: "descriptors", "set" or "picture".
        proportion: In [0, 1].
        low, high: The interval.
        error: Mean absolute error on the calibration maps.
        error_deviation: Standard error of that mean.
        gain: Mean of how much nearer to the truth the attack is than guessing, on the same maps.
        gain_deviation: Standard error of that mean.
    """

    attack: str
    proportion: float
    low: float
    high: float
    error: float
    error_deviation: float
    gain: float
    gain_deviation: float

    @property
    def is_better_than_guessing(self) -> bool:
        """Whether the gain is more than two standard errors."""
        return self.gain > 2 * self.gain_deviation


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found.

    Attributes:
        findings: One for each attack.
        error_of_guessing: Mean absolute error on the calibration maps of the best constant, the median share of the
            training maps.
        level: Of the intervals.
        levels: Least and greatest share of the shadow maps.
        n_points: Records of a shadow map.
        n_found: Points of the plot.
        share_found: Of a shadow map's points, how many are read back on average; 1 for coordinates.
        n_train, n_calibration: Shadow maps used.
        n_unread: Shadow maps that could not be read back, left out.
        status: Flags of the shadow maps by name.
        typicality: In (0, 1]; if the plot is exchangeable with the calibration maps, it is at most t with a probability
            of at most t. How often one of those is farther from its nearest training map, by descriptors.
        warnings: What a reader of the figures has to know, in sentences.
    """

    findings: tuple[Finding, ...]
    error_of_guessing: float
    level: float
    levels: tuple[float, float]
    n_points: int
    n_found: int
    share_found: float
    n_train: int
    n_calibration: int
    n_unread: int
    status: dict[str, int]
    typicality: float
    warnings: tuple[str, ...]


def predict_proportion(
    key: Array,
    plot: Plot,
    shadow: ShadowData,
    method: DRMethod = DEFAULT,
    *,
    attacks: Sequence[str] = ("descriptors",),
    n_shadow: int = 300,
    n_points: int | None = None,
    levels: tuple[float, float] | None = None,
    level: float = 0.9,
    progress: bool = False,
) -> Outcome:
    """Predicts the share of a plot's records that have the property.

    If the plot is exchangeable with the calibration maps (records drawn like the shadow records, a share drawn evenly
    from `levels`, mapped by the same method, drawn and read alike), an interval contains its share with a probability
    of at least `level`: on average over shares and calibrations, not for each share. The calibration maps share their
    records, the plot has others, so this holds in full only for shadow data large against n.

    Costs n_shadow maps, and for a picture as many readings, 0.2 s of one core each at n = 500.

    Args:
        key: Decides halves, groups, maps and training.
        plot: What was published.
        shadow: The adversary's records.
        method: What the publisher mapped with, to two dimensions.
        attacks: Kinds of `models.KINDS`.
        n_shadow: Shadow maps; 70% train, 30% calibrate.
        n_points: Records of the plot; None is what its coordinates say, or as many as give its number of points when
            drawn and read back.
        levels: Least and greatest share of the shadow maps; None is the widest range that the shadow records allow.
        level: In (0, 1).
        progress: Show bars.

    Raises:
        ValueError: an argument out of its range, or too few shadow records with or without the property.
    """
    validate.prng_key(key)
    if not attacks or len(set(attacks)) < len(attacks):
        raise ValueError(f"attacks must be different kinds, at least one, got {tuple(attacks)}")
    for attack in attacks:
        validate.one_of(models.KINDS, attack=attack)
    validate.integer(n_shadow=n_shadow)
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    n_calibration = math.ceil(CALIBRATION_SHARE * n_shadow)
    # Fewer residuals make an infinite interval. 0.9 / (1 - 0.9) is a hair more than 9.
    fewest_left = max(MIN_CALIBRATION, math.ceil(round(level / (1 - level), 9)))
    fewest = math.floor((fewest_left - 1) / CALIBRATION_SHARE) + 1
    if n_shadow < fewest:
        raise ValueError(f"n_shadow must be >= {fewest} for intervals at level {level:g}, got {n_shadow}")
    if n_points is not None:
        validate.integer(minimum=invariants.MIN_POINTS, n_points=n_points)

    half_key, pilot_key, fit_key, *own = jax.random.split(key, 5)
    sides = tuple(
        Records(shadow.features[rows], shadow.has_property[rows]) for rows in halves(half_key, shadow.dataset)
    )
    share_found = 1.0
    n = n_points if n_points is not None else len(plot.points)
    span = feasible_levels(levels, sides, n)
    if plot.sheet is not None:
        n, share_found = _number_of_points(pilot_key, plot, sides[0], method, span, n, is_given=n_points is not None)
        span = feasible_levels(levels, sides, n)
    counts = n_shadow - n_calibration, n_calibration
    train, calibration = (
        sample_maps(own_key, side, count, n, span, method, plot.sheet, progress=progress)
        for own_key, side, count in zip(own, sides, counts, strict=True)
    )
    if len(calibration.maps) < fewest_left or len(train.maps) < 4:
        raise ValueError(
            f"shadow maps must be finite and readable, but only {len(train.maps)} and {len(calibration.maps)} of "
            f"{counts[0]} and {counts[1]} are: choose another method or n_points"
        )
    guess = np.abs(np.median(train.shares) - calibration.shares)
    findings = tuple(
        _finding(jax.random.fold_in(fit_key, i), attack, plot, train, calibration, guess, level, progress=progress)
        for i, attack in enumerate(attacks)
    )
    typicality = _typicality(plot.points, train.maps, calibration.maps)
    outcome = Outcome(
        findings=findings,
        error_of_guessing=float(guess.mean()),
        level=level,
        levels=span,
        n_points=n,
        n_found=len(plot.points),
        share_found=share_found,
        n_train=len(train.maps),
        n_calibration=len(calibration.maps),
        n_unread=train.n_unread + calibration.n_unread,
        status=count_status(np.concatenate([train.status, calibration.status])),
        typicality=typicality,
        warnings=(),
    )
    return dataclasses.replace(outcome, warnings=tuple(_warnings(outcome, plot, min(len(s.features) for s in sides))))


def _number_of_points(
    key: Array,
    plot: Plot,
    side: Records,
    method: DRMethod,
    span: tuple[float, float],
    n: int,
    *,
    is_given: bool,
) -> tuple[int, float]:
    """Records of the plot, and the share of its points that reading finds.

    Twice: as many records as would lose the points that maps of the last number lose.
    """
    middle = (span[0] + span[1]) / 2
    for attempt in range(1 if is_given else 2):
        pilot = sample_maps(jax.random.fold_in(key, attempt), side, PILOTS, n, (middle, middle), method, plot.sheet)
        if not pilot.maps:
            raise ValueError(f"shadow maps of {n} points cannot be read back: give coordinates, or a larger picture")
        share = float(np.mean([len(points) for points in pilot.maps])) / n
        if not is_given:
            n = max(len(plot.points), round(len(plot.points) / share))
    return n, share


def _finding(
    key: Array,
    attack: str,
    plot: Plot,
    train: ShadowMaps,
    calibration: ShadowMaps,
    guess: np.ndarray,
    level: float,
    *,
    progress: bool,
) -> Finding:
    # The attack is calibrated on other records than it is trained on, so of its own maps one is enough for `fit`.
    config = dataclasses.replace(models.CONFIGS[attack], calibration_share=1 / (2 * len(train.maps)))

    def inputs(maps: Sequence[np.ndarray]) -> Any:
        if attack != "picture":
            return list(maps)
        return np.concatenate([raster.draw(points[None], size=config.network.size) for points in maps])

    model = models.fit(key, inputs(train.maps), train.shares, kind=attack, config=config, progress=progress)
    errors = np.abs(model.predict(inputs(calibration.maps)).expected - calibration.shares)
    model = dataclasses.replace(model, residuals=np.sort(errors))
    target = inputs([plot.points])
    low, high = model.interval(target, level)[0]
    gains = guess - errors
    root = math.sqrt(len(errors))
    return Finding(
        attack=attack,
        proportion=float(model.predict(target).expected[0]),
        low=float(low),
        high=float(high),
        error=float(errors.mean()),
        error_deviation=float(errors.std(ddof=1)) / root,
        gain=float(gains.mean()),
        gain_deviation=float(gains.std(ddof=1)) / root,
    )


def _typicality(points: np.ndarray, train: list[np.ndarray], calibration: list[np.ndarray]) -> float:
    found = invariants.descriptors(train)
    scaler = StandardScaler.fit(found)
    tree = KDTree(scaler.transform(found))
    distances = np.asarray(tree.query(scaler.transform(invariants.descriptors([*calibration, points])))[0])
    return (1 + int((distances[:-1] >= distances[-1]).sum())) / len(distances)


def _warnings(outcome: Outcome, plot: Plot, half: int) -> list[str]:
    found = []
    for finding in outcome.findings:
        if not finding.is_better_than_guessing:
            found.append(
                f"The attack {finding.attack} is not measurably better than guessing: on {outcome.n_calibration} maps "
                f"of other records it errs by {finding.error:.3f}, a guess by {outcome.error_of_guessing:.3f}. Maps "
                "like these do not show the property, or the attack needs more of them."
            )
    if outcome.typicality <= UNLIKELY:
        found.append(
            f"The plot is unlike the shadow maps (p = {outcome.typicality:.3f}): other records, features, method or "
            "hyperparameters. Nothing is promised for it."
        )
    if outcome.levels != (0.0, 1.0):
        low, high = outcome.levels
        found.append(f"Shadow maps have shares between {low:.3g} and {high:.3g}: another share cannot be told.")
    if outcome.n_points > half / 2:
        found.append(
            f"Shadow maps of {outcome.n_points} records are drawn from {half}, so that they share most of them: the "
            "interval may be too narrow for other records."
        )
    if len(plot.points) < FEW_POINTS:
        found.append(f"The plot has {len(plot.points)} points, which say little of a share.")
    if plot.reading is None:
        if outcome.n_points != len(plot.points):
            found.append(f"Shadow maps have {outcome.n_points} points, the plot {len(plot.points)}.")
        return found
    overlapping = plot.reading.n_overlapping / len(plot.points)
    if overlapping > MANY_OVERLAPPING:
        found.append(
            f"{overlapping:.0%} of the markers touch another one: some are hidden, and centres are less exact."
        )
    if plot.reading.confidence < LOW_CONFIDENCE:
        found.append(
            f"Only {plot.reading.confidence:.0%} of the edges in the picture are arcs of the markers that were found: "
            "check the reading."
        )
    expected = outcome.n_points * outcome.share_found
    if not 0.9 <= len(plot.points) / expected <= 1.1:
        found.append(
            f"{len(plot.points)} markers were found, where a plot of {outcome.n_points} points shows about "
            f"{expected:.0f}."
        )
    return found

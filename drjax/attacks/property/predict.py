"""Predicts, from somebody's plot, the share of its records that have a property, with an interval: the whole attack.

Shadow maps are made of the adversary's own records with shares drawn at random. Where the plot is a picture, every
shadow map is drawn and read back as the plot was, so that what reading loses is lost in both. The shadow records are
split into two halves, persons kept together and alike in the property. The attack is trained twice, on the maps of each
half; the maps of the other half, whose records it has not seen as it has not seen the victim's, calibrate its interval
and measure its error. The answer is the mean of both.

Source: "Property inference attacks against t-SNE plots" (2022) for the attack; see `cross_fit` for the interval; Vovk
(2015), "Cross-conformal predictors", for `Outcome.typicality`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.spatial import KDTree

from drjax.attacks.property import invariants, models, raster
from drjax.attacks.property.cross_fit import cross_fit, errors_of_guessing, mean_and_deviation
from drjax.attacks.property.defences import Defence
from drjax.attacks.property.groups import halves
from drjax.attacks.property.maps import DEFAULT
from drjax.attacks.property.observation import Plot
from drjax.attacks.property.shadow_data import ShadowData
from drjax.attacks.property.shadow_maps import Records, ShadowMaps, feasible_levels, sample_maps
from drjax.attacks.shadow import shadow_needs
from drjax.core import memory, validate
from drjax.core.progress import announce
from drjax.core.types import Array, DRMethod, count_status
from drjax.data.preprocess import StandardScaler

MIN_MAPS = 10
"""Fewest shadow maps of a half."""

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
        proportion: Predicted share, in [0, 1].
        low, high: The interval.
        error: Mean absolute error on shadow maps of the half that the model has not seen.
        error_deviation: Standard error of that mean, over other records too.
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
        findings: Findings, one for each attack.
        error_of_guessing: Mean absolute error on the same maps of the best constant, the median share of the others.
        level: Confidence level of the intervals.
        levels: Least and greatest share of the shadow maps.
        n_points: Records of a shadow map.
        n_found: Points of the plot.
        share_found: Share of a shadow map's points that are read back, on average; 1 for coordinates.
        n_maps: Shadow maps used of each half.
        n_unread: Shadow maps that could not be read back, left out.
        status: Flags of the shadow maps by name.
        typicality: Share in (0, 1] of shadow maps at least as far as the plot from the nearest map of the other
            half, by descriptors. If the plot is exchangeable with the shadow maps, at most t with a probability of
            about t.
        warnings: What a reader of the figures has to know, in sentences.
    """

    findings: tuple[Finding, ...]
    error_of_guessing: float
    level: float
    levels: tuple[float, float]
    n_points: int
    n_found: int
    share_found: float
    n_maps: tuple[int, int]
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
    defence: Defence | None = None,
    progress: bool = False,
) -> Outcome:
    """Predicts the share of a plot's records that have the property.

    If the plot is exchangeable with the shadow maps (records drawn like the shadow records, a share drawn evenly from
    `levels`, mapped by the same method, drawn and read alike), an interval contains its share with a probability of
    about `level`, and not less than `CrossFit.interval` says: on average over shares and shadow maps, not for each
    share. Maps of a half share their records, the plot has others, so this holds in full only for shadow data large
    against n.

    Costs n_shadow maps, and for a picture as many readings, 0.2 s of one core each at n = 500.

    Args:
        key: Decides halves, groups, maps and training.
        plot: What was published.
        shadow: The adversary's records.
        method: What the publisher mapped with, to two dimensions.
        attacks: Kinds of `models.KINDS`.
        n_shadow: Shadow maps, of each half as many.
        n_points: Records of the plot; None is what its coordinates say, or as many as give its number of points when
            drawn and read back.
        levels: Least and greatest share of the shadow maps; None is the widest range that the shadow records allow.
        level: Confidence level, in (0, 1).
        defence: What the publisher did to features or coordinates, done to the shadow maps too: the adaptive attack.
        progress: Show bars.

    Raises:
        ValueError: an argument out of its range, or too few shadow records with or without the property.
        MemoryError: more memory would be needed than is available.

    Example:
        >>> import tempfile, drjax, jax, numpy as np, pandas as pd
        >>> from drjax.attacks.property.observation import plot_of_coords
        >>> from drjax.attacks.property.predict import predict_proportion
        >>> from drjax.attacks.property.shadow_data import read_shadow
        >>> rng = np.random.default_rng(0)
        >>> ill = np.arange(430) % 5 != 0  # of the 30 in the plot 80%
        >>> x = (6 + 3 * ill[:, None]) * ill[:, None] + (1 + 2 * ill[:, None]) * rng.normal(size=(430, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pd.DataFrame(x[:400]).add_prefix("f").assign(ill=ill[:400] * 1).to_csv(f"{folder}/t.csv", index=False)
        ...     shadow = read_shadow(f"{folder}/t.csv", "ill")
        >>> plot = plot_of_coords(drjax.embed(x[400:]))
        >>> outcome = predict_proportion(jax.random.key(0), plot, shadow, drjax.PCA(), n_shadow=60)
        >>> abs(outcome.findings[0].proportion - 0.8) < 0.1
        True
    """
    validate.prng_key(key)
    if not attacks or len(set(attacks)) < len(attacks):
        raise ValueError(f"attacks must be different kinds, at least one, got {tuple(attacks)}")
    for attack in attacks:
        validate.one_of(models.KINDS, attack=attack)
    validate.integer(n_shadow=n_shadow)
    validate.open_unit(level=level)
    # Fewer errors make an infinite interval. 0.9 / (1 - 0.9) is a hair more than 9.
    fewest = max(2 * MIN_MAPS, math.ceil(round(level / (1 - level), 9)))
    if n_shadow < fewest:
        raise ValueError(f"n_shadow must be >= {fewest} for intervals at level {level:g}, got {n_shadow}")
    if n_points is not None:
        validate.integer(minimum=invariants.MIN_POINTS, n_points=n_points)

    half_key, pilot_key, fit_key, *own = jax.random.split(key, 5)
    sides = tuple(
        Records(shadow.features[rows], shadow.has_property[rows])
        for rows in halves(half_key, shadow.dataset, shadow.has_property)
    )
    size = n_points if n_points is not None else len(plot.points)
    _check_needs(method, size, n_shadow, shadow.features, progress=progress)
    make = functools.partial(sample_maps, method=method, sheet=plot.sheet, defence=defence)
    share_found = 1.0
    n = size
    span = feasible_levels(levels, sides, n)
    if plot.sheet is not None:
        n, share_found = _number_of_points(pilot_key, plot, sides[0], make, span, n, is_given=n_points is not None)
        span = feasible_levels(levels, sides, n)
    counts = n_shadow - n_shadow // 2, n_shadow // 2
    parts = tuple(
        make(own_key, side, count, n, span, progress=progress)
        for own_key, side, count in zip(own, sides, counts, strict=True)
    )
    n_maps = len(parts[0].maps), len(parts[1].maps)
    if min(n_maps) < MIN_MAPS or sum(n_maps) < fewest:
        raise ValueError(
            f"shadow maps must be finite and readable, but only {n_maps[0]} and {n_maps[1]} of {counts[0]} and "
            f"{counts[1]} are: choose another method or n_points"
        )
    guess, half = errors_of_guessing(parts), min(len(side.features) for side in sides)
    findings = tuple(
        _finding(jax.random.fold_in(fit_key, i), attack, plot, parts, guess, n / half, level, progress=progress)
        for i, attack in enumerate(attacks)
    )
    outcome = Outcome(
        findings=findings,
        error_of_guessing=float(np.concatenate(guess).mean()),
        level=level,
        levels=span,
        n_points=n,
        n_found=len(plot.points),
        share_found=share_found,
        n_maps=n_maps,
        n_unread=sum(part.n_unread for part in parts),
        status=count_status(np.concatenate([part.status for part in parts])),
        typicality=_typicality(plot.points, parts),
        warnings=(),
    )
    return dataclasses.replace(outcome, warnings=tuple(_warnings(outcome, plot, half)))


def _check_needs(method: DRMethod, n: int, n_shadow: int, features: np.ndarray, *, progress: bool) -> None:
    """Refuses what does not fit into memory, and says what takes long."""

    def need(points: int) -> float:
        made = shadow_needs(method, points, features.shape[1], n_shadow)
        return made.bytes + 8.0 * features.size + 24.0 * n_shadow * points

    words = f"{n_shadow:,} maps of {n:,} points by {method.name}"
    memory.require(
        need(n), "this attack", words, lambda: f"lower --n-points ({memory.would_fit(need, n)}) or --n-shadow"
    )
    announce(words, shadow_needs(method, n, features.shape[1], n_shadow).seconds, need(n), enabled=progress)


def _number_of_points(
    key: Array,
    plot: Plot,
    side: Records,
    make: Callable[..., ShadowMaps],
    span: tuple[float, float],
    n: int,
    *,
    is_given: bool,
) -> tuple[int, float]:
    """Records of the plot, and the share of its points that reading finds.

    Twice: as many records as would lose the points that maps of the last number lose.
    """
    middle, share = (span[0] + span[1]) / 2, 1.0
    for attempt in range(1 if is_given else 2):
        pilot = make(jax.random.fold_in(key, attempt), side, PILOTS, n, (middle, middle))
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
    parts: Sequence[ShadowMaps],
    guess: Sequence[np.ndarray],
    overlap: float,
    level: float,
    *,
    progress: bool,
) -> Finding:
    size = models.CONFIGS[attack].network.size

    def inputs(maps: Sequence[np.ndarray]) -> Any:
        if attack == "descriptors":
            return invariants.descriptors(maps)
        if attack == "set":
            return list(maps)
        return np.concatenate([raster.draw(points[None], size=size) for points in maps])

    fitted = cross_fit(key, attack, parts, inputs, progress=progress)
    low, high = fitted.interval([plot.points], level)[0]
    error, error_deviation = mean_and_deviation(fitted.errors, overlap)
    gains = [guessed - own for guessed, own in zip(guess, fitted.errors, strict=True)]
    gain, gain_deviation = mean_and_deviation(gains, overlap)
    return Finding(
        attack=attack,
        proportion=float(fitted.predict([plot.points])[0]),
        low=float(low),
        high=float(high),
        error=error,
        error_deviation=error_deviation,
        gain=gain,
        gain_deviation=gain_deviation,
    )


def _typicality(points: np.ndarray, parts: Sequence[ShadowMaps]) -> float:
    found = [invariants.descriptors(part.maps) for part in parts]
    of_plot = invariants.descriptors([points])
    n_farther = 0
    for own, other in ((found[0], found[1]), (found[1], found[0])):
        scaler = StandardScaler.fit(np.asarray(other))
        tree = KDTree(scaler.transform(np.asarray(other)))
        distances, (of_plots,) = (tree.query(scaler.transform(np.asarray(one)))[0] for one in (own, of_plot))
        n_farther += int((distances >= of_plots).sum())
    return (1 + n_farther) / (1 + sum(map(len, found)))


def _warnings(outcome: Outcome, plot: Plot, half: int) -> list[str]:
    found = []
    for finding in outcome.findings:
        if not finding.is_better_than_guessing:
            found.append(
                f"The attack {finding.attack} is not measurably better than guessing: on {sum(outcome.n_maps)} maps "
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

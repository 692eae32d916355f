"""What a private PCA is expected to be worth, and to give away: many draws of its noise on the owner's own records.

None of these figures is private. They are for whoever holds the records, and not for publication.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.stats import t as student

from drjax.attacks import roc
from drjax.attacks.membership import attack_scores, fit_shadows, pca_scores, release_of
from drjax.attacks.membership_noisy import matrix_ratio, shadow_errors
from drjax.attacks.membership_scores import Release
from drjax.attacks.metrics import UNKNOWN, Interval
from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca_noise import components_of
from drjax.release.mechanism import MomentNoise, bounded

FACTORS = tuple(2.0**i for i in range(-4, 5))
"""Epsilons of the curve, in units of the one asked for."""

RECONSTRUCTION, RATIO = "Reconstruction error", "Likelihood ratio of the components"
SHADOW_ERROR, MATRIX_RATIO = "Reconstruction error against shadows", "Likelihood ratio of the noisy matrix"

LEAST_RECORDS = 40
"""Fewer cannot be split into members, others and the adversary's own."""

FPR = 0.01
"""False-positive rate at which the share of members found is reported."""

LEAST_ALARMS = 20
"""Others above a threshold, of all splits, below which nothing is said: a rate of fewer is luck."""


@dataclass(frozen=True)
class Utility:
    """How much of the records' variance private components keep.

    Attributes:
        epsilons: (g,), the one asked for among them.
        energy: Of each epsilon: captured energy over the most that as many components capture, in [0, 1].
        chosen: The same at the epsilon asked for, from more draws.
        n_components: Of one draw.
        angle: Largest angle in degrees to the subspace without noise; None where k differs between draws.
        k_true: Components with 90% of the energy of the records; private.
        k_noisy: Components with 90% of the energy of the noisy matrix.
        n_trials: Draws at the epsilon asked for.

    Intervals are the middle 90% of the draws.
    """

    epsilons: np.ndarray
    energy: tuple[Interval, ...]
    chosen: Interval
    n_components: Interval
    angle: Interval | None
    k_true: int
    k_noisy: Interval
    n_trials: int


@dataclass(frozen=True)
class AttackResult:
    """How well one membership attack does.

    Attributes:
        name: In words.
        is_private: Whether against the release with noise.
        auc: Mean over splits, with a 95% interval of that mean.
        tpr: Share of members found at `FPR`, likewise, with one threshold for all splits; unknown with fewer than
            `LEAST_ALARMS` false alarms.
        fpr: (t,) of the ROC curve of all splits together, from where there are so many on.
        tprs: (t,) share of members found there.
    """

    name: str
    is_private: bool
    auc: Interval
    tpr: Interval
    fpr: np.ndarray
    tprs: np.ndarray


@dataclass(frozen=True)
class Membership:
    """Membership attacks on releases of a part of the records.

    Attributes:
        attacks: Without noise and with it.
        n_members: Records of one simulated release.
        n_others: Records that were not in it.
        n_population: Records of the adversary.
        has_public: Whether these are public ones; else a part of the private records.
        n_splits: Random splits, one draw of noise each.
    """

    attacks: tuple[AttackResult, ...]
    n_members: int
    n_others: int
    n_population: int
    has_public: bool
    n_splits: int


def utility(
    key: Array,
    mechanism: Any,
    calibrate: Callable[[float], Any],
    epsilon: float,
    x: np.ndarray,
    *,
    n_trials: int,
    progress: bool = False,
) -> Utility:
    """Captured energy, angle and number of components over many draws of noise.

    Args:
        key: Of the draws, which are for this report only.
        mechanism: At the epsilon asked for.
        calibrate: Epsilon -> the mechanism at that one.
        epsilon: Asked for.
        x: (n, d) private, in the units of the release.
        n_trials: Draws at that epsilon; a quarter as many at each of the others.
        progress: Show bars.

    Raises:
        ValueError: a number out of its range.
    """
    validate.integer(minimum=4, n_trials=n_trials)
    x32 = np.asarray(x, np.float32)
    moment = np.asarray(pca_utility.second_moment(x32, center=mechanism.center), np.float64)
    values, vectors = np.linalg.eigh(moment)
    share = mechanism.n_components if isinstance(mechanism.n_components, float) else None
    fits = pca_utility.trials(key, mechanism, x32, n_trials, progress=progress)
    counts = None if share is None else fits.n_components
    chosen = np.asarray(pca_utility.energy_ratio(fits.components, moment, n_components=counts))
    angle = None
    if share is None:
        true = vectors[:, ::-1].T[: int(mechanism.n_components)]
        angle = _spread(np.degrees(np.asarray(pca_utility.largest_angle(fits.components, true))))
    at_90 = dataclasses.replace(mechanism, n_components=pca_utility.ENERGY)
    noisy = pca_utility.trials(key, at_90, x32, _fewer(n_trials), progress=progress).n_components
    epsilons = epsilon * np.array(FACTORS)
    energy = []
    for one in epsilons:
        if one == epsilon:
            energy.append(_spread(chosen))
            continue
        drawn = pca_utility.trials(key, calibrate(float(one)), x32, _fewer(n_trials), progress=progress)
        counts = None if share is None else drawn.n_components
        energy.append(_spread(np.asarray(pca_utility.energy_ratio(drawn.components, moment, n_components=counts))))
    return Utility(
        epsilons=epsilons,
        energy=tuple(energy),
        chosen=_spread(chosen),
        n_components=_spread(np.asarray(fits.n_components)),
        angle=angle,
        k_true=int(pca_utility.k_for_energy(values[::-1])),
        k_noisy=_spread(np.asarray(noisy)),
        n_trials=n_trials,
    )


def membership(
    key: Array,
    mechanism: Any,
    x: np.ndarray,
    *,
    public: np.ndarray | None = None,
    n_splits: int = 20,
    n_shadows: int = 32,
    progress: bool = False,
) -> Membership:
    """Attacks on simulated releases, with noise and without, of records drawn anew for each split.

    Members and others are private records, as many of either. The adversary has at least twice as many, so that shadows
    of as many as the members differ: public ones where these are enough for half as many members as there would be
    without, else the other half of the private ones. The simulated release has at most half of the records, so that
    each of them counts for more in it than in the real one: the figures err towards finding members.

    Args:
        key: Of splits, noise and shadows.
        mechanism: At the epsilon asked for.
        x: (n, d) private, in the units of the release.
        public: (p, d) in the same units.
        n_splits: >= 2.
        n_shadows: Of the likelihood ratio, for each split.
        progress: Show bars.

    Raises:
        ValueError: fewer than `LEAST_RECORDS` records, or a number out of its range.
    """
    validate.integer(minimum=2, n_splits=n_splits)
    n = len(x)
    validate.at_least(LEAST_RECORDS, **{"the number of records": n})
    size, outside = n // 4, None
    if public is not None and len(public) // 2 >= size // 2:
        size, outside = min(n // 2, len(public) // 2), public
    same = dataclasses.replace(mechanism, divisor=float(size))
    noise, draw = MomentNoise(same), jax.jit(_noisy_moment)
    z = bounded(same, x)
    outside = None if outside is None else bounded(same, outside)
    found: dict[tuple[str, bool], list[np.ndarray]] = {}
    truth = np.repeat([1, 0], size)
    for split in range(n_splits):
        split_key, noise_key, shadow_key = jax.random.split(jax.random.fold_in(key, split), 3)
        order = np.asarray(jax.random.permutation(split_key, n))
        members, others = order[:size], order[size : 2 * size]
        population = z[order[2 * size : 4 * size]] if outside is None else outside
        candidates = z[np.concatenate([members, others])]
        noisy = np.asarray(draw(same, noise_key, np.asarray(x[members], np.float32)), np.float64)
        private = _released(noisy, same, size)
        plain = release_of(z[members], private.n_components, eigenvalues=True)
        # Without pairs: they would gain little and compile a program for every split.
        options: dict[str, Any] = {"n_shadows": n_shadows, "n_pairs": 0, "progress": progress}
        usual, same_noise = (fit_shadows(shadow_key, population, size, noise=one, **options) for one in (None, noise))
        matrix = (noisy + noisy.T) / 2
        scores = {
            (RECONSTRUCTION, False): -pca_scores(plain.components, candidates),
            (RATIO, False): attack_scores(plain, candidates, shadows=usual),
            (RECONSTRUCTION, True): -pca_scores(private.components, candidates),
            (RATIO, True): attack_scores(private, candidates, shadows=same_noise),
            (SHADOW_ERROR, True): shadow_errors(same_noise, private, candidates),
            (MATRIX_RATIO, True): matrix_ratio(noise_key, matrix, population, candidates, size, noise),
        }
        for name, values in scores.items():
            found.setdefault(name, []).append(values)
    return Membership(
        attacks=tuple(summary(name, is_private, rows, truth) for (name, is_private), rows in found.items()),
        n_members=size,
        n_others=size,
        n_population=2 * size if outside is None else len(outside),
        has_public=outside is not None,
        n_splits=n_splits,
    )


def _noisy_moment(mechanism: Any, key: Array, x: Array) -> jax.Array:
    return mechanism.noisy_moment(key, x)


def _released(moment: np.ndarray, mechanism: Any, n_records: int) -> Release:
    found = components_of(np.asarray(moment, np.float32), mechanism.n_components, symmetric=mechanism.SYMMETRIC)
    k = int(found.n_components)
    values = np.maximum(np.asarray(found.eigenvalues, np.float64)[:k], 0)
    return Release(np.asarray(found.components, np.float64)[:k], values, n_records=n_records)


def summary(name: str, is_private: bool, rows: Sequence[np.ndarray], truth: np.ndarray) -> AttackResult:
    """Figures of one attack over splits.

    Args:
        name: Of the attack, in words.
        is_private: Whether against the release with noise.
        rows: Of each split, two or more: (m,) scores, larger for members.
        truth: (m,) 1 for members and 0 for others, the same in every split.
    """
    aucs = np.array([roc.auc(scores, truth).estimate for scores in rows])
    everything = roc.roc_curve(np.concatenate(rows), np.tile(truth, len(rows)))
    n_others = len(rows) * int((truth == 0).sum())
    kept = everything.fpr >= LEAST_ALARMS / n_others
    tpr = UNKNOWN
    if FPR * n_others >= LEAST_ALARMS:
        # The lowest threshold that keeps to the rate over all splits: one for each would be chosen by its luck.
        last = int(np.searchsorted(everything.fpr, FPR, side="right")) - 1
        threshold = everything.thresholds[last]
        tpr = mean_interval(np.array([np.mean(scores[truth == 1] >= threshold) for scores in rows]))
    return AttackResult(name, is_private, mean_interval(aucs), tpr, everything.fpr[kept], everything.tpr[kept])


def mean_interval(values: np.ndarray, *, most: float = 1.0) -> Interval:
    """Mean of two or more values in [0, most] with Student's 95% interval of that mean, cut to the same range."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    middle = float(values.mean())
    return Interval(middle, max(0.0, middle - float(half)), min(most, middle + float(half)))


def _spread(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, [0.05, 0.95])
    return Interval(float(values.mean()), float(low), float(high))


def _fewer(n_trials: int) -> int:
    return max(4, n_trials // 4)

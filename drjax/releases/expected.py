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

from drjax.attacks import roc
from drjax.attacks.membership import attack_scores, fit_shadows, pca_scores, release_of
from drjax.attacks.membership_noisy import matrix_ratio, shadow_errors
from drjax.attacks.membership_scores import Release
from drjax.core import validate
from drjax.core.linalg import eigh
from drjax.core.statistics import UNKNOWN, Interval, mean_interval, prediction_interval
from drjax.core.types import Array
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca_components import components_of
from drjax.releases.mechanism import MomentNoise, bounded, joint_view

FACTORS = tuple(2.0**i for i in range(-4, 5))
"""Epsilons of the curve, in units of the one asked for."""

RECONSTRUCTION, RATIO = "Reconstruction error", "Likelihood ratio of the components"
SHADOW_ERROR, MATRIX_RATIO = "Reconstruction error against shadows", "Likelihood ratio of the noisy matrix"

LEAST_TRIALS = 19
"""Fewer draws do not reach 5% and 95% of their law: a range of 90% of further ones cannot be told from them."""

N_SHADOWS = 32
"""Shadows of the likelihood ratio, for each split."""

LEAST_RECORDS = 40
"""Fewer cannot be split into members, others and the adversary's own."""

FPR = 0.01
"""False-positive rate at which the share of members found is reported."""

LEAST_ALARMS = 20
"""Others above a threshold, of all splits, below which nothing is said: a rate of fewer is luck."""


@dataclass(frozen=True)
class Utility:
    """How much of the records' variance about their mean private components keep.

    Attributes:
        epsilons: (g,), the one asked for among them.
        energy: Captured variance at each epsilon over the most that as many components capture, in [0, 1].
        chosen: The same at the epsilon asked for, from more draws.
        random: Captured variance of as many random directions, on average, over the same.
        gain: Mean of what a draw captures less what random directions drawn beside it do, with a 95% interval of that
            mean; None where all directions are published, of which nothing can be lost.
        wins: Share of the draws that capture more than the random directions beside them; None where `gain` is.
        n_components: Number of components of one draw.
        angle: Largest angle in degrees to the subspace without noise; None where k differs between draws.
        k_true: Components with 90% of the energy of the records; private.
        k_noisy: Components with 90% of the energy of the noisy matrix.
        n_trials: Draws at the epsilon asked for.

    Intervals but that of `gain` are ranges that a further draw is in with a probability of 90%.
    """

    epsilons: np.ndarray
    energy: tuple[Interval, ...]
    chosen: Interval
    random: float
    gain: Interval | None
    wins: float | None
    n_components: Interval
    angle: Interval | None
    k_true: int
    k_noisy: Interval
    n_trials: int

    @property
    def is_no_better_than_random(self) -> bool:
        """Whether nothing shows that the components are better than random ones: the interval of `gain` reaches 0."""
        return self.gain is not None and not self.gain.low > 0


@dataclass(frozen=True)
class AttackResult:
    """How well one membership attack does.

    Attributes:
        name: Name in words.
        is_private: Whether against the release with noise.
        auc: Mean over splits, with a 95% interval of that mean.
        tpr: Share of members found at `FPR`, with such an interval and one threshold for all splits; unknown with fewer
            than `LEAST_ALARMS` false alarms.
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
        attacks: Results without noise and with it.
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
    """Captured variance, angle and number of components over many draws of noise.

    Args:
        key: PRNG key of the draws, which are for this report only.
        mechanism: Mechanism at the epsilon asked for.
        calibrate: Epsilon -> the mechanism at that one.
        epsilon: Epsilon asked for.
        x: (n, d) private, in the units of the release.
        n_trials: Draws at that epsilon; a quarter as many at each of the others, but at least `LEAST_TRIALS`.
        progress: Show bars.

    Raises:
        ValueError: a number out of its range.
    """
    validate.integer(minimum=LEAST_TRIALS, n_trials=n_trials)
    x32 = np.asarray(x, np.float32)
    # About the mean of the records, whatever the mechanism takes its second moment about.
    away = np.asarray(x, np.float64) - np.mean(x, axis=0, dtype=np.float64)
    moment = away.T @ away / len(away)
    values, vectors = eigh(moment)
    share = mechanism.n_components if isinstance(mechanism.n_components, float) else None
    draw_key, random_key = jax.random.split(key)
    fits = pca_utility.trials(draw_key, mechanism, x32, n_trials, progress=progress)
    counts = np.broadcast_to(np.asarray(fits.n_components), n_trials)
    chosen = np.asarray(pca_utility.energy_ratio(fits.components, moment, n_components=counts))
    random, gain, wins = _against_random(random_key, chosen, counts, moment)
    angle = None
    if share is None:
        true = vectors[:, ::-1].T[: int(mechanism.n_components)]
        angle = prediction_interval(np.degrees(np.asarray(pca_utility.largest_angle(fits.components, true))))
    at_90 = dataclasses.replace(mechanism, n_components=pca_utility.ENERGY)
    noisy = pca_utility.trials(draw_key, at_90, x32, _fewer(n_trials), progress=progress).n_components
    epsilons = epsilon * np.array(FACTORS)
    energy = []
    for one in epsilons:
        if one == epsilon:
            energy.append(prediction_interval(chosen))
            continue
        drawn = pca_utility.trials(draw_key, calibrate(float(one)), x32, _fewer(n_trials), progress=progress)
        kept = pca_utility.energy_ratio(drawn.components, moment, n_components=drawn.n_components)
        energy.append(prediction_interval(np.asarray(kept)))
    return Utility(
        epsilons=epsilons,
        energy=tuple(energy),
        chosen=prediction_interval(chosen),
        random=random,
        gain=gain,
        wins=wins,
        n_components=prediction_interval(np.asarray(fits.n_components)),
        angle=angle,
        k_true=int(pca_utility.k_for_energy(values[::-1])),
        k_noisy=prediction_interval(np.asarray(noisy)),
        n_trials=n_trials,
    )


def membership(
    key: Array,
    mechanism: Any,
    x: np.ndarray,
    *,
    public: np.ndarray | None = None,
    n_splits: int = 20,
    n_shadows: int = N_SHADOWS,
    progress: bool = False,
) -> Membership:
    """Attacks on simulated releases, with noise and without, of records drawn anew for each split.

    Members and others are private records, as many of either. The adversary has at least twice as many, so that shadows
    of as many as the members differ: public ones where these are enough for half as many members as there would be
    without, else the other half of the private ones. The simulated release has at most half of the records, so that
    each of them counts for more in it than in the real one: the figures err towards finding members.

    Args:
        key: PRNG key of splits, noise and shadows.
        mechanism: Mechanism at the epsilon asked for.
        x: (n, d) private, in the units of the release.
        public: (p, d) in the same units.
        n_splits: Number of splits, >= 2.
        n_shadows: Number of shadows of the likelihood ratio, for each split.
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
    same, draw = dataclasses.replace(mechanism, divisor=float(size)), jax.jit(_noisy_joint)
    z = bounded(same, x)
    outside = None if outside is None else bounded(same, outside)
    finds_mean = mechanism.mean_weight is not None
    # The adversary knows the mean of the members nearly: from the release, and from records like theirs.
    noise = MomentNoise(same, (z if outside is None else outside).mean(axis=0) if finds_mean else None)
    found: dict[tuple[str, bool], list[np.ndarray]] = {}
    truth = np.repeat([1, 0], size)
    for split in range(n_splits):
        split_key, noise_key, shadow_key = jax.random.split(jax.random.fold_in(key, split), 3)
        order = np.asarray(jax.random.permutation(split_key, n))
        members, others = order[:size], order[size : 2 * size]
        population = z[order[2 * size : 4 * size]] if outside is None else outside
        candidates = z[np.concatenate([members, others])]
        noisy = np.asarray(draw(same, noise_key, np.asarray(x[members], np.float32)), np.float64)
        moment, mean = same.settled(noisy, size)
        private = _released(same.steadied(moment, mean, size), same, size)
        plain = release_of(z[members], private.n_components, centred=finds_mean, eigenvalues=True)
        # About the mean that was published.
        away = candidates if mean is None else candidates - mean
        # Without pairs: they would gain little and compile a program for every split.
        options: dict[str, Any] = {"centred": finds_mean, "n_shadows": n_shadows, "n_pairs": 0, "progress": progress}
        usual, same_noise = (fit_shadows(shadow_key, population, size, noise=one, **options) for one in (None, noise))
        seen = joint_view(same, noisy, population, candidates)
        known, asked = seen.records
        scores = {
            (RECONSTRUCTION, False): -pca_scores(plain.components, candidates, mean=plain.mean),
            (RATIO, False): attack_scores(plain, candidates, shadows=usual),
            (RECONSTRUCTION, True): -pca_scores(private.components, away),
            (RATIO, True): attack_scores(private, candidates, shadows=same_noise),
            (SHADOW_ERROR, True): shadow_errors(same_noise, private, away),
            (MATRIX_RATIO, True): matrix_ratio(noise_key, seen.moment, known, asked, size, seen.noise),
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


def _noisy_joint(mechanism: Any, key: Array, x: Array) -> jax.Array:
    return mechanism.noisy_joint(key, x)


def _against_random(
    key: Array, chosen: np.ndarray, counts: np.ndarray, moment: np.ndarray
) -> tuple[float, Interval | None, float | None]:
    """`Utility.random`, `gain` and `wins` of draws that captured `chosen` (t,) with `counts` (t,) components each."""
    d = len(moment)
    most = np.cumsum(np.linalg.eigvalsh(moment)[::-1])
    # Exact: a random direction captures the mean eigenvalue.
    random = float(np.mean(counts * most[-1] / d / most[counts - 1]))
    if (counts == d).all():
        return random, None, None
    normal = np.asarray(jax.random.normal(key, (len(counts), d, int(counts.max()))))
    rows = np.swapaxes(np.linalg.qr(normal)[0], 1, 2)
    rows = np.where((np.arange(rows.shape[1]) < counts[:, None])[..., None], rows, 0)
    beside = np.asarray(pca_utility.energy_ratio(rows, moment, n_components=counts))
    return random, mean_interval(chosen - beside), float(np.mean(chosen > beside))


def _released(moment: np.ndarray, mechanism: Any, n_records: int) -> Release:
    found = components_of(np.asarray(moment, np.float32), mechanism.n_components, symmetric=mechanism.SYMMETRIC)
    k = int(found.n_components)
    values = np.maximum(np.asarray(found.eigenvalues, np.float64)[:k], 0)
    return Release(np.asarray(found.components, np.float64)[:k], values, n_records=n_records)


def summary(name: str, is_private: bool, rows: Sequence[np.ndarray], truth: np.ndarray) -> AttackResult:
    """Figures of one attack over splits.

    Args:
        name: Name of the attack, in words.
        is_private: Whether against the release with noise.
        rows: Scores (m,) of each split, two or more, larger for members.
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
        shares = np.array([np.mean(scores[truth == 1] >= threshold) for scores in rows])
        tpr = mean_interval(shares, lowest=0.0, highest=1.0)
    auc = mean_interval(aucs, lowest=0.0, highest=1.0)
    return AttackResult(name, is_private, auc, tpr, everything.fpr[kept], everything.tpr[kept])


def _fewer(n_trials: int) -> int:
    return max(LEAST_TRIALS, n_trials // 4)

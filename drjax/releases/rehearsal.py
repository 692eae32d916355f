"""What synthetic records are expected to be worth, and to give away: the method rehearsed on the owner's own records.

None of these figures is private. They are for whoever holds the records, and not for publication.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax.core import validate
from drjax.core.progress import shown
from drjax.core.statistics import Interval, mean_interval
from drjax.core.types import Array
from drjax.data.schema import Schema
from drjax.releases.expected import AttackResult, summary
from drjax.releases.ignorance import Comparison, Spread, is_better, spread_ratios, spreads, uniform_table
from drjax.releases.writing import synthetic_table
from drjax.synthesis import exposure, utility, utility_distances
from drjax.synthesis.contract import Box, Synthetic

FACTORS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
"""Epsilons of the curve, in units of the one asked for."""

LEAST_RECORDS = 60
"""Fewer cannot be split into members, others and the adversary's own."""

SHARES = (0.6, 0.25)
"""Shares of the records that rehearsals are fitted on, and that they are judged with; the rest is the adversary's."""

MOST_TRAINED, MOST_REGRESSED, MOST_CANDIDATES, MOST_COMPARED = 5000, 1000, 1000, 20_000
"""Records at most: that a classifier is trained on, that a regression is, that are attacked, that are compared."""

MEASURES = {
    "classification": "accuracy of a support vector machine on real records",
    "regression": "share of the target's variance that kernel ridge regression explains on real records",
    "unsupervised": "agreement of single columns (1 less the total variation)",
}
"""What utility is measured by, all in [0, 1], by task."""

DISTANCES = {
    "mean total variation of columns": 1.0,
    "mean total variation of pairs of columns": 1.0,
    "mean absolute difference of correlations": 2.0,
}
"""How far a table is from the real one, and the largest that each distance can be."""


@dataclass(frozen=True)
class Rehearsal:
    """Figures of fits to a part of the records, means with 95% intervals over trials.

    Attributes:
        measure: A value of `MEASURES`.
        epsilons: (g,), the one asked for among them.
        useful: Measure of synthetic records at each epsilon.
        real: `measure` of the real records in their place.
        ignorant: `measure` of who knows nothing: names the most frequent class, or the mean; without a target that of
            `ignorance.uniform_table`.
        compared: Measures at the epsilon asked for, beside real records and knowing nothing: `measure`, then mean total
            variation of columns and of pairs of columns, in [0, 1], and mean absolute difference of correlations, in
            [0, 2].
        spreads: Ratio of every column's spread to the real one's, at the epsilon asked for.
        attacks: Membership in the synthetic table, at the epsilon asked for.
        n_fitted: Records of one rehearsal.
        n_trials: Number of trials at every epsilon.
    """

    measure: str
    epsilons: np.ndarray
    useful: tuple[Interval, ...]
    real: float
    ignorant: float
    compared: tuple[Comparison, ...]
    spreads: tuple[Spread, ...]
    attacks: tuple[AttackResult, ...]
    n_fitted: int
    n_trials: int

    @property
    def chosen(self) -> Interval:
        """Utility at the epsilon asked for."""
        return self.useful[FACTORS.index(1.0)]

    @property
    def worse_than_nothing(self) -> str | None:
        """One sentence naming the measures that are no better than knowing nothing; None where all are better."""
        failed = [one for one in self.compared if not one.is_better]
        if not failed:
            return None
        found = "; ".join(
            f"{one.name}: {one.synthetic.estimate:.3f}, knowing nothing {one.nothing:.3f}" for one in failed
        )
        return f"Expected to be no better than knowing nothing: {found}."

    @property
    def least_kept(self) -> Spread | None:
        """The column whose spread is farthest from that of the real one, as a ratio; None where all are constant."""
        known = [one for one in self.spreads if math.isfinite(one.ratio.estimate)]
        return max(known, key=lambda one: abs(math.log(max(one.ratio.estimate, 1e-9))), default=None)

    @property
    def spread_sentence(self) -> str:
        """What the summary says of the columns' deviations."""
        worst = self.least_kept
        if worst is None:
            return "Every real column is constant: there is no spread to keep."
        ratio = worst.ratio
        return (
            f"Standard deviations, synthetic over real: farthest from 1 is {worst.name} with {ratio.estimate:.2f} "
            f"({ratio.low:.2f} to {ratio.high:.2f})."
        )


def rehearse(
    key: Array,
    method: Any,
    schema: Schema,
    x: np.ndarray,
    y: np.ndarray | None,
    epsilon: float,
    delta: float,
    *,
    n_trials: int,
    progress: bool = False,
) -> Rehearsal:
    """Fits the method to a part of the records, writes the synthetic records as a table, and judges that table.

    A rehearsal has fewer records than the release, so that its noise weighs more: the figures err towards less utility,
    and each record counts for more.

    Args:
        key: PRNG key of splits and noise, which are for this report only.
        method: Method of `drjax.synthesis`.
        schema: Schema of the table.
        x: (n, m) private, encoded, n >= `LEAST_RECORDS`.
        y: (n,) or None; at least `LEAST_RECORDS` of the classes are not -1. Records of class -1 are fitted, as in a
            release, where they count for no class; the classifier is neither trained nor judged on them.
        epsilon: Epsilon asked for.
        delta: Delta at every epsilon.
        n_trials: Splits and draws at every epsilon, >= 2.
        progress: Show a bar.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(minimum=2, n_trials=n_trials)
    validate.at_least(LEAST_RECORDS, **{"the number of records": len(x)})
    if method.task == "classification":
        assert y is not None
        known = int((np.asarray(y) >= 0).sum())
        validate.at_least(LEAST_RECORDS, **{"the number of records whose target is one of its categories": known})
    epsilons = epsilon * np.array(FACTORS)
    judge = _Judge(method.box, method.task)
    useful = np.empty((len(epsilons), n_trials))
    real, ignorant, floors, distances, blind, scores, ratios = [], [], [], [], [], [], []
    for trial, index, one in _steps(n_trials, epsilons, progress):
        trial_key = jax.random.fold_in(key, trial)
        split_key, noise_key, draw_key, judge_key = jax.random.split(jax.random.fold_in(trial_key, index + 1), 4)
        fitted, test, rest = _split(jax.random.fold_in(trial_key, 0), x, y)
        found = method.fit(noise_key, fitted.x, fitted.y, float(one), delta)
        table = synthetic_table(draw_key, found, schema, len(fitted.x))
        # As whoever reads the table finds them: rounded, one category a column.
        made = Synthetic(*schema.encode({name: table[name] for name in table.column_names}))
        useful[index, trial] = judge.useful(judge_key, made, test)
        if index == FACTORS.index(1.0):
            distances.append(judge.distances(judge_key, fitted.x, made.x))
            nothing = uniform_table(jax.random.fold_in(judge_key, 1), schema, len(fitted.x))
            blind.append(judge.distances(judge_key, fitted.x, nothing.x))
            ratios.append(spread_ratios(schema, fitted, made))
            scores.append(judge.attack(split_key, made.x, fitted.x, test.x, rest.x))
            real.append(judge.useful(judge_key, fitted, test))
            ignorant.append(judge.ignorant(judge_key, fitted, test, nothing))
            floors.append(judge.distances(judge_key, fitted.x, test.x))
    names = {"closest": "Distance to the closest synthetic record", "density": "Density among synthetic records"}
    truth = scores[0]["truth"]
    compared = [_compared(MEASURES[method.task], useful[FACTORS.index(1.0)], np.array(real), np.array(ignorant))]
    for i, (name, most) in enumerate(DISTANCES.items()):
        columns = (np.array(part)[:, i] for part in (distances, floors, blind))
        compared.append(_compared(name, *columns, most=most, is_distance=True))
    return Rehearsal(
        measure=MEASURES[method.task],
        epsilons=epsilons,
        useful=tuple(mean_interval(row, lowest=0.0, highest=1.0) for row in useful),
        real=float(np.mean(real)),
        ignorant=float(np.mean(ignorant)),
        compared=tuple(compared),
        spreads=spreads(ratios),
        attacks=tuple(summary(words, True, [found[name] for found in scores], truth) for name, words in names.items()),
        n_fitted=int(SHARES[0] * len(x)),
        n_trials=n_trials,
    )


def _compared(
    name: str, made: np.ndarray, real: np.ndarray, nothing: np.ndarray, *, most: float = 1.0, is_distance: bool = False
) -> Comparison:
    sign = -1 if is_distance else 1
    better = is_better(sign * made, sign * nothing)
    synthetic = mean_interval(made, lowest=0.0, highest=most)
    return Comparison(name, synthetic, float(real.mean()), float(nothing.mean()), better)


class _Judge:
    """Judges synthetic records, with every feature scaled to [-1, 1] by its bounds."""

    def __init__(self, box: Box, task: str) -> None:
        self.box, self.task = box, task
        self.unit = Box.of(-1.0, 1.0, box.d)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.box.encode(x), np.float64)

    def useful(self, key: Array, made: Synthetic, test: Synthetic) -> float:
        if self.task == "unsupervised":
            return 1 - self.distances(key, test.x, made.x)[0]
        made, test = (Synthetic(self.scaled(part.x), part.y) for part in (made, test))
        if self.task == "classification":
            made, test = _labelled(made), _labelled(test)
            return utility.svm_accuracy(key, made, test, sample_size=MOST_TRAINED).value
        error = utility.krr_rmse(key, made, test, sample_size=MOST_REGRESSED).value
        spread = float(np.var(test.y)) or 1.0
        return max(0.0, 1 - error**2 / spread)

    def ignorant(self, key: Array, fitted: Synthetic, test: Synthetic, nothing: Synthetic) -> float:
        if self.task == "unsupervised":
            return 1 - self.distances(key, test.x, nothing.x)[0]
        if self.task == "regression":
            return 0.0
        fitted, test = _labelled(fitted), _labelled(test)
        return float(np.mean(test.y == np.bincount(np.asarray(fitted.y)).argmax()))

    def distances(self, key: Array, real: np.ndarray, made: np.ndarray) -> tuple[float, float, float]:
        real, made = (self.scaled(part[:MOST_COMPARED]) for part in (real, made))
        found = utility_distances.marginal_distances(key, real, made, self.unit)
        pairs = float(found.two_way.mean()) if found.two_way.size else 0.0
        return float(found.one_way.mean()), pairs, utility_distances.correlation_distance(real, made)

    def attack(
        self, key: Array, made: np.ndarray, members: np.ndarray, others: np.ndarray, rest: np.ndarray
    ) -> dict[str, np.ndarray]:
        size = min(len(members), len(others), MOST_CANDIDATES)
        candidates = self.scaled(np.concatenate([members[:size], others[:size]]))
        made, rest = self.scaled(made[:MOST_COMPARED]), self.scaled(rest)
        return {
            "closest": exposure.closest_record_scores(made, candidates, reference=rest),
            "density": exposure.density_ratio_scores(key, made, rest, candidates),
            "truth": np.repeat([1, 0], size),
        }


def _labelled(records: Synthetic) -> Synthetic:
    """The records that have one of the stated classes."""
    known = np.asarray(records.y) >= 0
    return Synthetic(np.asarray(records.x)[known], np.asarray(records.y)[known])


def _steps(n_trials: int, epsilons: np.ndarray, progress: bool) -> Iterator[tuple[int, int, float]]:
    steps = [(trial, index, one) for trial in range(n_trials) for index, one in enumerate(epsilons)]
    with shown("rehearsals", len(steps), enabled=progress) as advance:
        for step in steps:
            yield step
            advance(1)


def _split(key: Array, x: np.ndarray, y: np.ndarray | None) -> tuple[Synthetic, Synthetic, Synthetic]:
    order = np.asarray(jax.random.permutation(key, len(x)))
    cuts = np.cumsum([int(share * len(x)) for share in SHARES])
    fitted, test, rest = (Synthetic(x[rows], None if y is None else y[rows]) for rows in np.split(order, cuts))
    return fitted, test, rest

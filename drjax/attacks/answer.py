"""What came of an attack on one published embedding, and how far to rely on it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from drjax.attacks.attack import EmbeddingAttack
from drjax.attacks.intervals import LEVEL, UNCALIBRATED, Calibration
from drjax.attacks.recognition import Belief
from drjax.attacks.registry import ATTACKS
from drjax.core.types import Reconstruction, Status, count_status

SHOWN = 0.1
"""Share of a feature's variance below which the squared error to expect is said to show the feature."""

ALIKE = 0.5
"""Median share of the features' variances below which a record is alike, although none of its features is shown."""

LISTED = 12
"""Features listed in words, at most; files have all."""

MOST_WIDENED = 100.0
"""Factor on predicted deviations above rounding from which on none of them counts."""

Verdict = Literal["reliable", "partly", "not reconstructed"]

REFUSED = Status.MISFIT | Status.NON_FINITE | Status.DEGENERATE


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a release.

    Attributes:
        attack: Attack that was run.
        found: Reconstruction, without a leading axis, with intervals.
        usual: Mean and standard deviation (2, d) of the records that say what to expect of one.
        names: Names of the features, d of them; empty if they have none.
        errors: Attack -> mean squared error (v,) on practice releases, each feature over its variance; empty where only
            one attack was possible.
        misfit: Why the release is none of the method's, where the attack says so.
        belief: What the release shows of how it was made; None where it was not asked.
        contradiction: What the map says against what was stated of it; empty if nothing.
        notes: Sentences on what was not checked.
        order: (n,) int, rows of the release in the order [target; known], where these were matched; else None.
        row: Row of the target in the release.
        calibration: What practice releases say of the predicted errors.
        has_public: Whether public records say what to expect; the known ones if not.
        is_confirmed: Whether the status OK says that the release bears the answer out.
    """

    attack: EmbeddingAttack
    found: Reconstruction
    usual: np.ndarray
    names: tuple[str, ...] = ()
    errors: Mapping[str, np.ndarray]
    misfit: tuple[str, ...] = ()
    belief: Belief | None = None
    contradiction: str = ""
    notes: tuple[str, ...] = ()
    order: np.ndarray | None = None
    row: int = 0
    calibration: Calibration = UNCALIBRATED
    has_public: bool = False
    is_confirmed: bool = True

    @property
    def status(self) -> Status:
        """Flags of the answer."""
        return Status(int(self.found.status))

    @functools.cached_property
    def varies(self) -> np.ndarray:
        """(d,) bool, features in which records differ."""
        return self.usual[1] > 1e-9 * np.maximum(np.abs(self.usual[0]), np.finfo(np.float64).tiny)

    @functools.cached_property
    def is_shown(self) -> np.ndarray:
        """(d,) bool, features that differ between records and whose error is expected to be small beside that.

        None where the map contradicts what the errors to expect rest on.
        """
        if self.found.feature_mse is None or self.contradiction or self.status & REFUSED:
            return np.zeros(self.found.x.shape, bool)
        return self.varies & (self.found.feature_mse < SHOWN * self.usual[1] ** 2)

    @property
    def median_share(self) -> float:
        """Squared error to expect over variance, the median over features that vary; nan as `share`, or if refused."""
        if self.found.feature_mse is None or self.contradiction or self.status & REFUSED or not self.varies.any():
            return np.nan
        return float(np.median(self.found.feature_mse[self.varies] / self.usual[1][self.varies] ** 2))

    @property
    def verdict(self) -> Verdict:
        """How far to rely on the answer."""
        if not self.is_shown.any():
            return "partly" if self.median_share < ALIKE else "not reconstructed"
        is_certain = self.is_confirmed and self.status & ~Status.PARTIAL == Status.OK
        return "reliable" if is_certain and self.is_shown[self.varies].all() else "partly"

    @property
    def why(self) -> tuple[str, ...]:
        """Sentences on what the verdict rests on."""
        lines = []
        if self.status & Status.MISFIT:
            lines.append("These are not the coordinates of the known records and one more, made as stated or believed.")
            if self.belief is None or self.belief.method is not None:  # else the belief says so itself
                lines += [f"What does not fit: {reason.rstrip('.')}." for reason in self.misfit]
            elif self.belief.order is not None:
                lines.append("Pass --shuffled (in Python shuffled=True) to have rows matched.")
        if self.contradiction:
            lines.append(self.contradiction)
        if not self.is_confirmed and not self.status & REFUSED:
            lines.append(
                "The attack learned from other releases or neighbours; nothing in this one confirms its answer."
            )
        elif self.status & Status.UNCERTIFIED and not self.contradiction:
            lines.append(
                "Nothing in the release checks this answer: it is right if the release was made just as stated."
            )
        if self.status & Status.NOT_CONVERGED:
            lines.append("The search did not end at a record that explains the release.")
        if self.status & Status.PARTIAL:
            lines.append("Most of what features vary by is left open: there the record is about what one would guess.")
        return (*lines, *self.notes)

    @property
    def share(self) -> float:
        """Squared error to expect over variance, in the mean over features that vary.

        nan where none is predicted, or where the map contradicts what the prediction rests on.
        """
        if self.found.feature_mse is None or self.contradiction or not self.varies.any():
            return np.nan
        return float(np.mean(self.found.feature_mse[self.varies] / self.usual[1][self.varies] ** 2))

    def name_of(self, feature: int) -> str:
        """Name of a feature, or its number."""
        return self.names[feature] if self.names else f"feature {feature}"

    def verdict_in_words(self) -> str:
        """ "partly: these features", and how many."""
        shown = np.flatnonzero(self.is_shown)
        if self.verdict != "partly":
            return self.verdict
        if not len(shown):
            off = np.sqrt(self.median_share)
            expected = f"half of the features expected to be off by less than {off:.2g} standard deviations"
            return f"partly: a likeness, {expected}"
        listed = ", ".join(self.name_of(int(one)) for one in shown[:LISTED])
        more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
        return f"partly: {len(shown)} of {int(self.varies.sum())} features ({listed}{more})"

    def about_intervals(self) -> str:
        """What the intervals rest on, one sentence."""
        if self.contradiction:
            return "Intervals and errors rest on what was stated of the release: they do not hold if that is wrong."
        of_whom = "public" if self.has_public else "known"
        if self.calibration.n_releases or self.calibration.n_records:
            *factors, of_exact = self.calibration.factor
            widened = f", which widened them up to {max(factors):.3g} times" if max(factors) > 1 else ""
            if max(factors) >= MOST_WIDENED:
                widened = ", which bear out no smaller ones than those of the records themselves"
            if of_exact > 1:
                widened += "; predictions of no error at all did not hold there"
            where = f"{self.calibration.n_releases} releases of {of_whom} records"
            if self.calibration.n_records:
                where = f"{self.calibration.n_records:,} known records, each predicted from others"
            tried = f"checked on {where}{widened}"
        else:
            tried = (
                f"as the attack predicts its errors, the {of_whom} records saying what to expect"
                f"{'' if self.has_public else '; --public would have them checked on public records'}"
            )
        return f"Intervals hold a feature with a probability of {LEVEL:.0%}, {tried}."

    def in_words(self) -> list[str]:
        """Lines for a command line: verdict, release, attack, features with intervals, and how far to rely on them."""
        found = self.found
        lines = [f"Verdict: {self.verdict_in_words()}"]
        if self.belief is not None:
            lines += [f"Release: {line}" for line in self.belief.in_words().splitlines()]
        if self.order is not None:
            lines.append(f"Row of the unknown record: {self.row}, found by matching the others with known records.")
        lines.append(f"Attack: {self.attack.label}.")
        if self.errors:
            tried = ", ".join(
                f"{ATTACKS['embedding'][name].label} {error.mean():.2g}" for name, error in self.errors.items()
            )
            n = len(next(iter(self.errors.values())))
            lines.append(f"Mean squared error on {n} releases of known answer, of the features' variances: {tried}.")
        lines += self._features()
        lines += self.why
        norm = float(found.residual_norm)
        left = f"; undetermined part: norm {norm:.3g}" if np.isfinite(norm) else ""
        lines.append(f"Status {count_status(found.status)}{left}")
        if np.isfinite(self.share):
            lines.append(f"Error to expect: {min(self.share, 1):.3g} of what features vary by")
        return lines

    def _features(self) -> list[str]:
        """One line for each of the first features, those shown first."""
        x, interval = self.found.x, self.found.interval
        order = np.argsort(~self.is_shown, kind="stable")[:LISTED]
        names = [self.name_of(int(one)) for one in order]
        width = max(len(name) for name in names)
        lines = [f"Reconstructed {x.size} features, with 90% intervals:"]
        for name, feature in zip(names, order, strict=True):
            line = f"  {name:<{width}}  {x[feature]:.6g}"
            if interval is not None and np.isfinite(interval[feature]).all():
                low, high = interval[feature]
                line += f"  [{low:.6g}, {high:.6g}]"
            lines.append(line if self.is_shown[feature] else f"{line}  not shown")
        if x.size > LISTED:
            lines.append(f"  and {x.size - LISTED} more")
        return [*lines, self.about_intervals()]

    def facts(self) -> dict[str, Any]:
        """All of it as plain values, for a JSON file."""
        found, interval = self.found, self.found.interval
        features = []
        for j, value in enumerate(found.x):
            low, high = (None, None) if interval is None else (float(one) for one in interval[j])
            features.append(
                {
                    "name": self.name_of(j),
                    "value": float(value),
                    "low": low,
                    "high": high,
                    "expected_error": None if found.feature_mse is None else float(np.sqrt(found.feature_mse[j])),
                    "shown": bool(self.is_shown[j]),
                }
            )
        return {
            "verdict": self.verdict,
            "verdict_in_words": self.verdict_in_words(),
            "row": self.row,
            "why": list(self.why),
            "contradiction": self.contradiction,
            "release": None if self.belief is None else self.belief.in_words().splitlines(),
            "attack": self.attack.name,
            "attack_label": self.attack.label,
            "status": [flag.name for flag in Status if flag and flag in self.status] or ["OK"],
            "share": None if not np.isfinite(self.share) else self.share,
            "median_share": None if not np.isfinite(self.median_share) else self.median_share,
            "about_intervals": self.about_intervals(),
            "intervals": {
                "level": LEVEL,
                "practice_releases": self.calibration.n_releases,
                "practice_records": self.calibration.n_records,
                "factors": list(self.calibration.factor),
                "reference": "public records" if self.has_public else "known records",
            },
            "practice_errors": {
                ATTACKS["embedding"][name].label: float(error.mean()) for name, error in self.errors.items()
            },
            "features": features,
        }

    def __repr__(self) -> str:
        """The verdict, the attack, the first features and what is known of the error; a few lines."""
        found = self.found
        first = ", ".join(f"{value:.4g}" for value in found.x[:6]) + (", ..." if found.x.size > 6 else "")
        lines = [f"{self.verdict_in_words()}: [{first}] by {self.attack.label}, status {self.status.name}"]
        if found.expected_mse is not None:
            lines.append(f"mean squared error to expect: {float(found.expected_mse):.3g}")
        if self.errors:
            tried = ", ".join(f"{name} {error.mean():.3g}" for name, error in self.errors.items())
            lines.append(f"on releases of known answer: {tried}")
        belief = [] if self.belief is None else self.belief.in_words().splitlines()
        return "\n".join([*lines, *self.misfit, *belief][:10])

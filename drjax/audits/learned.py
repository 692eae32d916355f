"""What an attacker learns of each column of somebody's own table, in the column's units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from drjax.data import Dataset
from drjax.data.cell_dates import written
from drjax.data.plan import PlannedColumn
from drjax.reports.ladder import percent
from drjax.reports.sections import Table

LEAST_GAIN = 0.5
"""A column is named in words where an attacker misses less than this share of what a guess misses."""

MOST_NAMED = 3
"""Columns of numbers, and of others, that a sentence names, at most."""

HARDEST = 0.1
"""Share of people who are hit hardest, for the worst case of a column."""

EXACT = 1e-6
"""Error over that of a guess up to which a value is as good as known."""

LEAST_RANK = 0.5
"""Error of a rank below which it is the right one."""


class Learned(NamedTuple):
    """What an attacker learns of one column of m people.

    Attributes:
        column: The column.
        missed: (m,) how far off the attacker is: absolute errors in the column's units, or 1 where a category is
            wrong; nan where the cell is missing or the attack failed.
        guessed: (m,) the same of a guess without the release: the median, or the most frequent value, of the others.
        step: Least difference between two values of the column, in its units: who errs by less than half of it names
            the right one.
    """

    column: PlannedColumn
    missed: np.ndarray
    guessed: np.ndarray
    step: float = 0.0

    @property
    def is_number(self) -> bool:
        """Whether errors are in units; else they are 0 or 1."""
        return self.column.kind not in ("category", "yes/no")

    @property
    def typical(self) -> tuple[float, float]:
        """Of half of the people at most so far off, or wrong for so many: by the attacker, and by the guess."""
        middle = np.nanmedian if self.is_number else np.nanmean
        return float(middle(self.missed)), float(middle(self.guessed))

    @property
    def n_known(self) -> int:
        """People whose cell is there and whose reconstruction did not fail."""
        return int(np.isfinite(self.missed).sum())

    @property
    def is_exact(self) -> bool:
        """Whether it is said of how many people the value is right: of categories, and where a typical number is."""
        return not self.is_number or self.within(self.typical[0]) == "exactly"

    @property
    def is_off(self) -> np.ndarray:
        """(m,) whether the attacker names another value than the table has."""
        return self.missed > self._least

    @property
    def n_right(self) -> int:
        """People of whom the attacker names the value that the table has."""
        return int((self.missed <= self._least).sum())

    @property
    def n_guessed(self) -> int:
        """The same by the guess."""
        return int((self.guessed <= self._least).sum())

    @property
    def _least(self) -> float:
        """Error up to which a value is as good as known."""
        if not self.is_number:
            return 0.0
        rank = LEAST_RANK if self.column.kind == "ordinal" else 0.0
        return max(EXACT * self.typical[1], 0.4999 * self.step, 0.9999 * rank)

    def within(self, value: float) -> str:
        """How far off at most, in words; see `within`."""
        return within(self.column, value, self.typical[1], step=self.step)

    def said(self, at: int) -> str:
        """What is learned of one person: exactly, within how much, or wrong."""
        if self.is_number:
            return self.within(float(self.missed[at]))
        return "exactly" if self.missed[at] == 0 else "wrong"

    @property
    def share(self) -> float:
        """What the attacker misses, over what the guess misses; nan where a guess misses nothing."""
        own, guess = self.typical
        return own / guess if guess > 0 else np.nan


def learned(data: Dataset, rows: np.ndarray, x: np.ndarray) -> tuple[Learned, ...]:
    """What reconstructions give away, column by column.

    Args:
        data: Records with a plan.
        rows: (m,) which of them were attacked.
        x: (m, d) what an attack made of them, scaled as `data.x`.
    """
    assert data.plan is not None
    assert data.values is not None
    names = data.feature_names or ()
    guess = np.asarray(x, np.float64) * data.scale + data.offset
    found = []
    for column in data.plan.used:
        at = [j for j, source in enumerate(data.sources) if source == column.name]
        truth, own, everyone = data.values[rows][:, at], guess[:, at], data.values[:, at]
        is_missing, step = np.zeros(len(rows), bool), 0.0
        if names[at[-1]] == f"{column.name} is missing":
            is_missing, truth, own = truth[:, -1] > 0.5, truth[:, :-1], own[:, :-1]
            everyone = everyone[everyone[:, -1] < 0.5][:, :-1]
        if column.kind == "category":
            usual = int(everyone.sum(axis=0).argmax())
            right = truth.argmax(axis=1)
            missed = (own.argmax(axis=1) != right).astype(float)
            guessed = (usual != right).astype(float)
        elif column.kind == "yes/no":
            missed = (np.rint(own[:, 0]) != truth[:, 0]).astype(float)
            guessed = (np.rint(everyone[:, 0].mean()) != truth[:, 0]).astype(float)
        else:
            missed = np.abs(own[:, 0] - truth[:, 0])
            guessed = np.abs(float(np.median(everyone[:, 0])) - truth[:, 0])
            step = float(np.min(np.diff(np.unique(everyone[:, 0])), initial=np.inf))
        unusable = is_missing | ~np.isfinite(own).all(axis=1)
        missed, guessed = (np.where(unusable, np.nan, errors) for errors in (missed, guessed))
        found.append(Learned(column, missed, guessed, step if np.isfinite(step) else 0.0))
    return tuple(one for one in found if np.isfinite(one.missed).any())


def within(column: PlannedColumn, value: float, guess: float, *, step: float = 0.0) -> str:
    """How far off at most, in a column's units: within 0.4, within 3 days, within 25 minutes; exactly.

    Args:
        column: The column.
        value: The error.
        guess: Error of a guess without the release.
        step: Least difference between two values of the column.
    """
    if value <= EXACT * guess or value < step / 2 or (column.kind == "ordinal" and value < LEAST_RANK):
        return "exactly"
    if column.kind == "date":
        return f"within {_short(value)} days" if value >= 2 else f"within {_short(value * 24)} hours"
    if column.kind == "time":
        return f"within {_short(value)} hours" if value >= 2 else f"within {_short(value * 60)} minutes"
    if column.kind == "ordinal" and column.categories:
        return f"within {_short(value)} rank{'' if value == 1 else 's'}"
    return f"within {_short(value)}{column.unit if column.unit in ('', '%') else f' {column.unit}'}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def shown(column: PlannedColumn, values: np.ndarray) -> str:
    """The features of a column of one record as its table writes them: a number, a date, a category."""
    if column.has_missing and values[-1] > 1 / 2:
        return "missing"
    if not np.isfinite(values).all():
        return "unknown"
    if column.kind == "category":
        return column.categories[int(np.argmax(values[: len(column.categories)]))]
    value = float(values[0])
    if column.kind in ("date", "time"):
        return written(value if column.kind == "time" else round(value), column.kind)
    if column.categories:
        return column.categories[int(np.clip(np.rint(value), 0, len(column.categories) - 1))]
    return f"{value:.4g}{column.unit if column.unit == '%' else ''}"


def typical(found: tuple[Learned, ...]) -> str:
    """What an attacker learns of a typical person, beside a guess; or that no column stands out."""
    best = sorted((one for one in found if one.share < LEAST_GAIN), key=lambda one: one.share)
    if not best:
        return "Of no column does the attacker miss less than half of what a guess without the release misses."
    close = [one for one in best if not one.is_exact][:MOST_NAMED]
    exact = [one for one in best if one.is_exact][: 2 * MOST_NAMED - len(close)]
    said = [f"{one.column.name} {one.within(one.typical[0])} (a guess: {one.within(one.typical[1])})" for one in close]
    said += [
        f"{one.column.name} exactly for {one.n_right:,} of {one.n_known:,} (a guess: for {one.n_guessed:,})"
        for one in exact
    ]
    n, both = len(best), ""
    if len(exact) > 1:
        # A missing cell is nothing to be wrong about.
        together = int(np.all([~one.is_off for one in exact], axis=0).sum())
        both = f" All that is exact is right together for {together:,} of {len(best[0].missed):,} people."
    half = "; where it says within, for half of the people or more" if close else ""
    more = f" {n:,} of {len(found):,} columns stand out." if n > len(said) else ""
    return f"Of a typical person an attacker who knows all others learns {listed(said)}{half}.{both}{more}"


def of_one(found: tuple[Learned, ...], at: int) -> str:
    """What an attacker learns of one person, column by column: how many exactly, the next best, and where it is wrong.

    Args:
        found: Results column by column, from `learned`.
        at: Place of the person among those attacked.
    """
    known = [one for one in found if np.isfinite(one.missed[at])]
    said = {one.column.name: one.said(at) for one in known}
    exact = [name for name, words in said.items() if words == "exactly"]
    close = sorted(
        (one for one in known if one.is_number and said[one.column.name] != "exactly"),
        key=lambda one: one.missed[at] / one.typical[1] if one.typical[1] > 0 else np.inf,
    )
    wrong = [name for name, words in said.items() if words == "wrong"]
    parts = [f"{len(exact):,} of {len(known):,} columns exactly"]
    parts[0] += f" ({listed(exact[: 2 * MOST_NAMED])}{', ...' if len(exact) > 2 * MOST_NAMED else ''})" if exact else ""
    if close:
        parts.append(", ".join(f"{one.column.name} {said[one.column.name]}" for one in close[:MOST_NAMED]))
    if wrong:
        parts.append(f"wrong in {listed(wrong[:MOST_NAMED])}{', ...' if len(wrong) > MOST_NAMED else ''}")
    return "; ".join(parts)


def listed(words: Sequence[str]) -> str:
    """Words with commas and an "and"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def table(found: tuple[Learned, ...], label: str) -> Table:
    """What is learned of every column, the most first."""
    ranked = sorted(found, key=lambda one: (not np.isfinite(one.share), one.share))
    return Table(
        title="What an attacker learns, column by column",
        paragraphs=(
            f"By “{label}”. Of numbers and dates: how far off the attacker is for half of the people at most, and for "
            "the tenth of them of whom it is nearest. Of categories: for how many people the attacker is right. Beside "
            "it the best guess without the release: the median, or the most frequent value.",
        ),
        headers=("Column", "Attacker", "Guess", "A tenth at most", "Missed of what a guess misses"),
        rows=tuple(_row(one) for one in ranked),
    )


def _row(one: Learned) -> tuple[str, ...]:
    own, guess = one.typical
    share = percent(one.share) if np.isfinite(one.share) else ""
    if not one.is_number:
        own, guess = (f"right for {n:,} of {one.n_known:,}" for n in (one.n_right, one.n_guessed))
        return one.column.name, own, guess, "", share
    worst = float(np.nanquantile(one.missed, HARDEST))
    return one.column.name, *(one.within(value) for value in (own, guess, worst)), share

"""From comparisons of errors to a verdict that says no more than was run.

A comparison counts where 95% of differences of such estimates have its sign; that one error is no smaller than another
counts where 95% of them say so to within a tenth, since a difference that was not seen may be there all the same. A
claim of several comparisons is refuted by one that counts against it; else it is not tested if one could not be made,
undecided if one does not count, and confirmed if all count for it.

A comparison cannot be made where a cell was not run. Where the strongest attack on a method was not run, its error is
at most what is at hand: such a cell counts only where a smaller error would count as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drjax.reports.ladder import number
from experiments.dr_reconstruction.paper import METHOD_NAMES
from experiments.dr_reconstruction.results import BEST, MEAN, Estimate, Results, below, contrast, no_better

CONFIRMED, REFUTED, UNDECIDED, NOT_TESTED = "confirmed", "refuted", "undecided", "not tested"

MISSING_SHOWN = 6
"""Most cells that a verdict names as not run."""


@dataclass(frozen=True)
class Verdict:
    """An outcome, one of the four, and the figures that it rests on."""

    outcome: str
    evidence: str = ""


class Cell(NamedTuple):
    """One method, attacked with some records known and some noise on the records."""

    method: str
    n_known: int
    sigma: float = 0

    def __str__(self) -> str:
        return f"{METHOD_NAMES[self.method]}, {self.n_known} known"


@dataclass(frozen=True)
class View:
    """The results on one data set as one attack sees them."""

    results: Results
    data: str
    attack: str

    def error(self, cell: Cell) -> Estimate | None:
        """Mean squared error of the attack."""
        return self.results.estimate(self.data, cell.method, cell.n_known, self.attack, sigma=cell.sigma)

    def shift(self, cell: Cell) -> Estimate | None:
        """Equation 12 of the attack."""
        where = (self.data, cell.method, cell.n_known, self.attack)
        return self.results.estimate(*where, sigma=cell.sigma, measure="eq12")

    def mean_record(self, cell: Cell) -> Estimate | None:
        """Error of guessing the mean image, on the targets attacked at this noise."""
        return self.results.baseline(self.data, cell.n_known, MEAN, sigma=cell.sigma)

    def is_bound(self, cell: Cell) -> bool:
        """Whether an attack that is stronger elsewhere was not run."""
        return self.attack == BEST and self.results.lacks_strongest(self.data, cell.method, cell.n_known, cell.sigma)

    def text(self, cell: Cell) -> str:
        """The error in words, with half its 95% interval."""
        found = self.error(cell)
        if found is None:
            return "not run"
        return f"{'at most ' if self.is_bound(cell) else ''}{number(found.mean)} ± {number(found.high - found.mean)}"

    def series(self, cells: Sequence[Cell]) -> str:
        """The errors of one method by known records in words, those that were run."""
        ran = [cell for cell in cells if self.error(cell) is not None]
        return ", ".join(f"{self.text(cell)} with {cell.n_known} known" for cell in ran)


class Case:
    """The comparisons that a claim is made of: for it, against it, of no weight, or not to be made.

    Attributes:
        view: The results.
        answers: True, False or None of those that could be made.
        missing: What the others lack.
    """

    def __init__(self, view: View) -> None:
        """No comparison yet."""
        self.view = view
        self.answers: list[bool | None] = []
        self.missing: dict[str, None] = {}
        self._is_begun = False

    def below(self, cell: Cell, other: Cell) -> bool | None:
        """Counts for the claim if the error in a cell is below that in another; what was found."""
        return self._take(below(self.view.error(cell), self.view.error(other)), smaller=cell, larger=other)

    def no_better(self, cell: Cell, other: Cell) -> bool | None:
        """Counts for the claim if the error in a cell is not below that in another."""
        return self._take(no_better(self.view.error(cell), self.view.error(other)), smaller=other, larger=cell)

    def beats_mean(self, cell: Cell) -> bool | None:
        """Counts for the claim if the error in a cell is below that of the mean image."""
        return self._take(below(self.view.error(cell), self.view.mean_record(cell)), smaller=cell)

    def no_better_than_mean(self, cell: Cell) -> bool | None:
        """Counts for the claim if the error in a cell is not below that of the mean image."""
        return self._take(no_better(self.view.error(cell), self.view.mean_record(cell)), larger=cell)

    def is_positive(self, weights: dict[Cell, float]) -> bool | None:
        """Counts for the claim if a weighted sum of errors is above 0; a bound on an error says nothing of that."""
        cells = [cell for cell, weight in weights.items() if weight]
        if not self.needs(*cells, exact=True):
            return None
        answer = contrast([weights[cell] for cell in cells], [self.view.error(cell) for cell in cells])
        self.answers.append(answer)
        return answer

    def needs(self, *cells: Cell, exact: bool = False) -> bool:
        """Whether all cells were run, and with `exact` none is a bound; takes note of those that lack something."""
        lacking = False
        for cell in cells:
            is_run = self.view.error(cell) is not None
            self._is_begun |= is_run
            if not is_run or (exact and self.view.is_bound(cell)):
                self.missing[f"{cell} (the strongest attack)" if is_run else str(cell)] = None
                lacking = True
        return not lacking

    def verdict(self, evidence: str, *, negated: bool = False) -> Verdict:
        """What the comparisons say of the claim that all of them hold, or with `negated` that one does not."""
        yes, no = (REFUTED, CONFIRMED) if negated else (CONFIRMED, REFUTED)
        if False in self.answers:
            return Verdict(no, evidence)
        if self.missing or not self.answers:
            return Verdict(NOT_TESTED, self._not_run() if self._is_begun else "")
        return Verdict(UNDECIDED if None in self.answers else yes, evidence)

    def _take(self, answer: bool | None, *, smaller: Cell | None = None, larger: Cell | None = None) -> bool | None:
        """Takes an answer that is for the claim the smaller the error in one cell and the larger that in another."""
        if not self.needs(*(cell for cell in (smaller, larger) if cell is not None)):
            return None
        # What a smaller error, of an attack that was not run, could still turn is not taken.
        turned = [smaller] if answer is False else [larger] if answer is True else [smaller, larger]
        if not self.needs(*(cell for cell in turned if cell is not None), exact=True):
            return None
        self.answers.append(answer)
        return answer

    def _not_run(self) -> str:
        lost = list(self.missing)
        more = len(lost) - MISSING_SHOWN
        return f"not run: {'; '.join(lost[:MISSING_SHOWN])}{f'; and {more} more' if more > 0 else ''}"

"""What a search for something else to publish came to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.attacks.attack import EmbeddingAttack
from drjax.data.frames import frame_of
from drjax.decisions.options import Option
from drjax.decisions.usefulness import Usefulness
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Verdict


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One option, attacked and scored.

    Attributes:
        option: Option.
        command: Command that makes it.
        n_records: Number of records that it publishes something of.
        rows: Ladder of the attacks on it.
        verdict: Verdict on these.
        usefulness: Figures of what it is good for.
        seconds: Time that it took.
        is_undominated: Whether no other option is at least as useful with no more exposure.
        ceiling: Largest probability that any attack picks the right one of `n_records` equally likely records, by the
            guarantee; None without one.
        check: Ladder of the final check; empty where there was none.
        held: Verdict of the final check is not high exposure; None where there was none.
    """

    option: Option
    command: str
    n_records: int
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    usefulness: Usefulness
    seconds: float
    is_undominated: bool = False
    ceiling: float | None = None
    check: tuple[LadderRow, ...] = ()
    held: bool | None = None

    @property
    def passes(self) -> bool:
        """Whether the rule does not call it high exposure, on the records of the search."""
        return self.verdict.level == "not shown"

    @property
    def taken(self) -> float:
        """Largest share of the mean record's error that an attack takes away; 0 where none does better."""
        return max(0.0, *(_gain(row, "error") for row in self.rows))

    @property
    def rebuilt(self) -> float:
        """Largest share of the records that an attack rebuilds."""
        return max(_gain(row, "rebuilt") for row in self.rows)

    @property
    def identified(self) -> float:
        """Largest share of the records that an attack tells from all others."""
        return max(row.scores.identification.estimate for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        own: Usefulness of the audited map.
        measured: Options that were tried, in their order.
        not_run: Labels of those that time did not allow.
        recommended: Option that held, or None.
        proven: Most useful option with a guarantee that held, or None.
        n_rows: Records that options were attacked on.
        judge: Attack of the final check that the search has not used.
        slow: Labels of attacks of the audit that took part in the final check alone.
        seconds: Time of the whole search.
    """

    own: Usefulness
    measured: tuple[Measured, ...]
    not_run: tuple[str, ...]
    recommended: Measured | None
    proven: Measured | None
    n_rows: int
    judge: EmbeddingAttack
    slow: tuple[str, ...]
    seconds: float

    @property
    def frame(self) -> Any:
        """The options as a DataFrame (a pyarrow table without pandas), those that pass first."""
        figures = ("taken", "rebuilt", "identified", "passes", "held", "is_undominated", "ceiling", "command")
        columns = {"option": [one.option.label for one in self.measured]}
        columns |= {name: [getattr(one, name) for one in self.measured] for name in figures}
        useful = [field.name for field in dataclasses.fields(Usefulness)]
        columns |= {name: [getattr(one.usefulness, name) for one in self.measured] for name in useful}
        return frame_of(pa.table(columns))


def _gain(row: LadderRow, name: str) -> float:
    assert row.scores.gain is not None
    value = float(getattr(row.scores.gain, name).estimate)
    return value if np.isfinite(value) else 0.0

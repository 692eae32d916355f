"""The attack ladder: its rows, how its figures are written, the verdict on them, and the tables of the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drjax.attacks.metrics import AttackScores
from drjax.core.statistics import Interval
from drjax.reports import sections
from drjax.reports.sections import Verdict
from drjax.reports.verdict_rule import CONCLUSIONS, IDENTIFICATION_FACTOR, REBUILT_THRESHOLD, deciding, known_gain

HEADERS = (
    "Attack",
    "MSE, mean",
    "MSE, median",
    "Rebuilt",
    "Closer than nearest neighbour",
    "Identified",
    "Time per target",
    "Targets",
)
"""Column heads of the ladder table, in the order of `cells`."""


@dataclass(frozen=True, kw_only=True)
class LadderRow:
    """One attack or baseline of the ladder.

    Attributes:
        label: Short unique name, at most about 30 characters.
        description: Description in plain words, one sentence.
        scores: What `attacks.metrics.evaluate` measured.
        is_baseline: Whether it attacks nothing, as the mean record and the nearest neighbour.
        needs_shadows: Whether it trains on shadow releases.
        needs_public: Whether it needs public records of the same kind.
        note: Anything a reader must know to read the figures.
        why: Reason why it works, one sentence, for the report on the strongest attack.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks import metrics
        >>> from drjax.reports.ladder import LadderRow
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> scores = metrics.evaluate(jax.random.key(0), x[:20], x[:20], neighbors=x[20:40], decoys=x[40:], seconds=1.0)
        >>> LadderRow(label="Ours", description="It rebuilds all.", scores=scores, needs_public=True).needs
        'public records'
    """

    label: str
    description: str
    scores: AttackScores
    is_baseline: bool = False
    needs_shadows: bool = False
    needs_public: bool = False
    note: str = ""
    why: str = ""

    @property
    def needs(self) -> str:
        """What the row needs beside the release and the known records, in words."""
        needed = [("public records", self.needs_public), ("shadow releases", self.needs_shadows)]
        return " and ".join(name for name, is_needed in needed if is_needed) or "nothing more"


def verdict(rows: Sequence[LadderRow]) -> Verdict:
    """Applies `VERDICT_RULE` to the ladder; baselines count only for caveats.

    The headline is one of `CONCLUSIONS`; figures come behind it. "undetermined" means that no attack has a usable
    target, or that there was nothing to take back, so that nothing was tested.

    Raises:
        ValueError: no row that is an attack, or an attack that was not compared with the mean record.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks import metrics
        >>> from drjax.reports.ladder import LadderRow, verdict
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> given = {"neighbors": x[20:40], "decoys": x[40:], "mean_record": np.full((20, 8), 0.5), "seconds": 1.0}
        >>> scores = metrics.evaluate(jax.random.key(0), x[:20] + 0.001, x[:20], **given)
        >>> verdict([LadderRow(label="Ours", description="It rebuilds all but a thousandth.", scores=scores)]).headline
        'Do not publish this as it is'
    """
    best = strongest(rows)
    for row in rows:
        if not row.is_baseline and row.scores.gain is None:
            raise ValueError(f"rows must have scores with a gain over the mean record, got {row.label!r} without")
    attacks = [row for row in rows if not row.is_baseline]
    if all(row.scores.n_excluded == row.scores.n_targets for row in attacks):
        return Verdict(
            "undetermined",
            CONCLUSIONS["undetermined"],
            "No attack produced a reconstruction that could be scored, so this audit says nothing about the exposure.",
        )
    decided = deciding(best.scores)
    if not decided and all(math.isnan(known_gain(row.scores).error.estimate) for row in attacks):
        return Verdict(
            "undetermined",
            CONCLUSIONS["undetermined"],
            "The records attacked are all equal, or a guess that ignores the release is exact, so nothing was left for "
            "an attack to take back. This audit says nothing about releases of other records.",
            _caveats(rows),
        )
    if decided:
        by = " and ".join([", ".join(decided[:-1]), decided[-1]] if len(decided) > 1 else decided)
        return Verdict(
            "high",
            CONCLUSIONS["high"],
            f"The strongest attack, “{best.label}”, {_figures(best.scores)} {_singly(best.scores)}Decided by {by}.",
            _caveats(rows),
        )
    singly = (
        "no record is rebuilt beyond what chance explains"
        if best.scores.n_singled is not None
        else "one record among them, or one that was not attacked, may still be far more exposed"
    )
    return Verdict(
        "not shown",
        CONCLUSIONS["not shown"],
        f"The strongest attack tried, “{best.label}”, {_figures(best.scores)} None of these figures is as far from the "
        f"mean record's as high exposure requires, no single column is given away, and {singly}. A stronger attack may "
        "still exist.",
        _caveats(rows),
    )


def _figures(scores: AttackScores) -> str:
    """Sentences, without their subject, on how an attack compares with the mean record."""
    gain = known_gain(scores)
    by_mean = max(0.0, round(scores.identification.estimate - gain.identification.estimate, 12))
    chance = f" (by chance: {percent(gain.by_chance)})" if gain.by_chance > 0 else ""
    return (
        f"leaves {_left(gain.error.estimate)} (95% interval {_left(gain.error.high)} to {_left(gain.error.low)}) of "
        f"the mean record's error on the same {scores.n_targets - scores.n_excluded:,} target records. It rebuilt "
        f"{_spoken(gain.rebuilt)} of them{chance} more closely than the most similar record that was already known or "
        f"public and with less than half of the mean record's error, and its reconstructions picked out the right "
        f"record among {round(1 / scores.identification_chance):,} candidates in {_spoken(scores.identification)} of "
        f"cases (the mean record: {percent(by_mean)}; blind guessing: {percent(scores.identification_chance)})."
    )


def _singly(scores: AttackScores) -> str:
    """Sentences on columns that are given away, and on records rebuilt beyond chance; empty without."""
    said, columns = "", scores.columns
    if columns is not None and columns.n_close:
        said += (
            f"Of {columns.n_columns:,} columns it gives away {columns.n_close:,}, most of all {columns.closest}: "
            f"{percent(columns.taken)} of a guess's squared error is gone. "
        )
    if scores.n_singled:
        plural = "record is" if scores.n_singled == 1 else "records are"
        said += f"{scores.n_singled:,} {plural} rebuilt beyond what chance explains. "
    return said


def strongest(rows: Sequence[LadderRow]) -> LadderRow:
    """The attack that the verdict names.

    One that means high exposure comes before one that does not; then the larger share rebuilt, the larger
    identification rate and the smaller mean MSE decide, and nan loses.

    Raises:
        ValueError: no row that is an attack.
    """
    attacks = [row for row in rows if not row.is_baseline]
    if not attacks:
        raise ValueError(f"rows must contain at least one attack that is no baseline, got {len(rows)} rows")

    def strength(row: LadderRow) -> tuple[float, ...]:
        scores = row.scores
        ranked = (known_gain(scores).rebuilt.estimate, scores.identification.estimate, -scores.mse.estimate)
        return (bool(deciding(scores)), *(-math.inf if math.isnan(value) else value for value in ranked))

    return max(attacks, key=strength)


def winner(rows: Sequence[LadderRow], not_run: Sequence[str] = ()) -> str:
    """Which attack came out on top, by how much, and why; and which were left out.

    Args:
        rows: The ladder.
        not_run: Labels of attacks that work on the method and were not run.

    Raises:
        ValueError: no row that is an attack.
    """
    best = strongest(rows)
    attacks = [row for row in rows if not row.is_baseline]
    parts = [
        f"“{best.label}” came out on top of {len(attacks)} attacks." if len(attacks) > 1 else f"“{best.label}” ran."
    ]
    if best.why:
        parts.append(best.why)
    others = [row for row in rows if row is not best]
    parts.append(
        f"It leaves a mean squared error of {number(best.scores.mse.estimate)}; "
        + ", ".join(f"“{row.label}” {number(row.scores.mse.estimate)}" for row in others)
        + "."
    )
    if not_run:
        parts.append(
            f"Not run: {', '.join(f'“{label}”' for label in not_run)}. By default an audit runs the attacks that err "
            "least on practice releases, whose records are known; --attack all runs every one."
        )
    return " ".join(parts)


def number(value: float) -> str:
    """Two significant digits: 0.0026, 12, 1,234; below 1e-4 as 4.0e-07; "n/a" for nan."""
    if math.isnan(value):
        return "n/a"
    if value == 0 or math.isinf(value):
        return f"{value:.0f}"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    digits = 1 - int(f"{value:.1e}".split("e")[1])  # of the rounded value: 0.0996 is 0.10, not 0.100
    return f"{value:,.{max(digits, 0)}f}"


def percent(share: float) -> str:
    """A share in [0, 1] as a percentage that reads 0% or 100% only where that is exact; "n/a" for nan."""
    if math.isnan(share):
        return "n/a"
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 1e-4:
        return "<0.01%"
    if share > 0.999:
        return ">99.9%"
    return f"{share:.2%}" if share < 0.01 else f"{share:.1%}"


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them, from µs to hours; "n/a" for nan."""
    if math.isnan(seconds):
        return "n/a"
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return "<1 µs" if seconds else "0 s"


def bounds(interval: Interval, form: Callable[[float], str]) -> str:
    """The two ends of an interval as "low to high"; "n/a" where either is nan."""
    low, high = form(interval.low), form(interval.high)
    return "n/a" if "n/a" in (low, high) else f"{low} to {high}"


def cells(row: LadderRow) -> list[tuple[str, ...]]:
    """The row's cells in the order of `HEADERS`: the figure first, then what belongs in small print, if anything."""
    scores = row.scores
    chance = f"chance {percent(scores.identification_chance)}"
    gain = known_gain(scores)
    left = _left(gain.error.estimate)
    mse = number(scores.mse.estimate), bounds(scores.mse, number)
    return [
        (row.label, "baseline") if row.is_baseline else (row.label,),
        mse if left == "n/a" else (*mse, f"{left} of mean"),
        (number(scores.mse_median.estimate), bounds(scores.mse_median, number)),
        (percent(gain.rebuilt.estimate), bounds(gain.rebuilt, percent)),
        (percent(scores.success.estimate), bounds(scores.success, percent)),
        (percent(scores.identification.estimate), bounds(scores.identification, percent), chance),
        (duration(scores.seconds_per_target),),
        (f"{scores.n_targets:,}", f"{scores.n_excluded:,} excluded"),
    ]


def section(rows: Sequence[LadderRow], note: str = "") -> sections.Table:
    """The ladder as a section of a report.

    Args:
        rows: Rows in the order of display.
        note: A paragraph below the table.

    Raises:
        ValueError: no row that is an attack.
    """
    best = strongest(rows)
    return sections.Table(
        title="What the attacks took back",
        caption="Smaller MSE and larger shares mean more exposure. Small figures are 95% confidence intervals, and "
        "“% of mean” is of the mean record's error on the same targets. Shaded rows marked “baseline” are yardsticks, "
        "not attacks.",
        headers=HEADERS,
        rows=tuple((row.label, *cells(row)[1:]) for row in rows),
        note=note,
        strongest=next(i for i, row in enumerate(rows) if row is best),
        baselines=tuple(i for i, row in enumerate(rows) if row.is_baseline),
    )


def descriptions(rows: Sequence[LadderRow]) -> sections.Table:
    """The section that says in words what each attack and baseline does."""
    return sections.Table(
        title="The attacks and baselines in words",
        headers=("Name", "What it does", "What else it needs"),
        rows=tuple((row.label, f"{row.description} {row.note}".rstrip(), row.needs) for row in rows),
        text_columns=(1, 2),
    )


def to_markdown(rows: Sequence[LadderRow]) -> str:
    """The ladder as a Markdown table with 95% intervals in brackets; baselines say so, the strongest attack is bold.

    Raises:
        ValueError: no row that is an attack.
    """
    best = strongest(rows)
    lines = ["| " + " | ".join(HEADERS) + " |", "|:---" + "|---:" * (len(HEADERS) - 1) + "|"]
    for row in rows:
        entries = [figure + (f" [{'; '.join(small)}]" if small else "") for figure, *small in cells(row)]
        entries = [entry.replace("|", "\\|") for entry in entries]
        entries[0] = f"**{entries[0]}**" if row is best else entries[0]
        lines.append("| " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"


def print_ladder(console: Console, rows: Sequence[LadderRow]) -> None:
    """Prints the ladder to a rich console: 95% intervals under the figures, the strongest attack bold.

    Raises:
        ValueError: no row that is an attack.
    """
    best = strongest(rows)
    caption = "Ranges are 95% confidence intervals; % of mean: of the mean record's error on the same targets."
    table = Table(caption=caption, caption_justify="left")
    for header in HEADERS:
        table.add_column(header, justify="left" if header == HEADERS[0] else "right")
    for row in rows:
        style = "bold" if row is best else "dim" if row.is_baseline else ""
        # Text, not markup: a label may contain square brackets.
        table.add_row(*(Text("\n".join(cell), style=style) for cell in cells(row)))
    console.print(table)


def _caveats(rows: Sequence[LadderRow]) -> tuple[str, ...]:
    caveats = []
    blind = [row for row in rows if row.is_baseline and row.scores.success.low > REBUILT_THRESHOLD]
    for row in blind:
        caveats.append(
            f"The baseline “{row.label}”, which uses nothing of the release, is itself closer than the nearest "
            f"neighbour for {percent(row.scores.success.estimate)} of the targets: on these data an attack shows no "
            f"leak by being closer, and the verdict does not count that alone."
        )
    chances = [row.scores.identification_chance for row in rows if not row.is_baseline]
    if any(IDENTIFICATION_FACTOR * chance >= 1 for chance in chances):
        caveats.append(
            "There are so few decoys that no identification rate could exceed "
            f"{IDENTIFICATION_FACTOR:.0f} times chance; only the error and the share rebuilt could decide."
        )
    excluded = sum(row.scores.n_excluded for row in rows if not row.is_baseline)
    if excluded:
        caveats.append(
            f"Reconstructions that failed numerically and are not scored, all attacks together: {excluded:,}."
        )
    return tuple(caveats)


def _left(taken: float) -> str:
    """The share of the mean record's error that is left, as a percentage, which may be above 100%."""
    if math.isnan(taken):
        return "n/a"
    left = 1 - taken
    return percent(left) if left < 0.995 else f"{left:,.0%}" if math.isfinite(left) else "any share"


def _spoken(interval: Interval) -> str:
    return f"{percent(interval.estimate)} (95% interval {bounds(interval, percent)})"

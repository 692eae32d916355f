"""The one audit: a setting makes releases, attacks run on them, and scores, records and a report come out.

A setting says what is released, who attacks it and how that is scored: sampled targets of an embedding, every record of
one release, or networks. What is the same for all is here.
"""

from __future__ import annotations

import dataclasses
import html
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from matplotlib.figure import Figure as Drawing
from rich.console import Console

from drjax.attacks import metrics
from drjax.attacks.attack import Attack
from drjax.attacks.exposure import Exposure
from drjax.attacks.recognition import Belief
from drjax.audits.folder import REPORT, RunFolder
from drjax.audits.quality import ReleaseScores
from drjax.audits.report import audit_report, unfinished_report
from drjax.core.types import count_status
from drjax.data import Dataset, load
from drjax.data.frames import frame_of
from drjax.data.own_table import OPTIONS
from drjax.reports import ladder, page, plots, records
from drjax.reports.curve import DefenseCurve
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Advice, Facts, Section, Table, Verdict

SHOWN = 9
"""Rows of the ladder that the text of a result holds, at most."""


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What an audit found.

    Attributes:
        folder: The run folder.
        report: Path of the HTML report in it.
        rows: The attack ladder.
        verdict: Verdict on the ladder.
        reconstructions: Attack name -> (m, d).
        targets: (m, d) the truth.
        quality: Quality of the attacked releases as embeddings; None where it cannot be measured.
        curve: Curve of the defence; None if none was asked for.
        exposure: Exposure of every attacked record, by the strongest attack; None unless every record was attacked.
        table: Path of the CSV file with one line per record; None unless every record was attacked.
        accuracy: Accuracy of the released models on public records; None unless models were attacked.
        belief: What a published map shows of how it was made; None unless one was recognised.
        options: Other things to publish, a `drjax.decisions.found.Found`; None without a search.
    """

    folder: Path
    report: Path
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    reconstructions: dict[str, np.ndarray]
    targets: np.ndarray
    quality: ReleaseScores | None = None
    curve: DefenseCurve | None = None
    exposure: Exposure | None = None
    table: Path | None = None
    accuracy: float | None = None
    belief: Belief | None = None
    options: Any = None

    @property
    def ladder(self) -> Any:
        """The ladder as a DataFrame (a pyarrow table without pandas): a row for each baseline and attack."""
        columns: dict[str, list[Any]] = {"attack": [row.label for row in self.rows]}
        columns["is_baseline"] = [row.is_baseline for row in self.rows]
        for name in ("mse", "mse_median", "success", "identification"):
            intervals = [getattr(row.scores, name) for row in self.rows]
            columns |= {name: [i.estimate for i in intervals], f"{name}_low": [i.low for i in intervals]}
            columns[f"{name}_high"] = [i.high for i in intervals]
        columns["rebuilt"] = [row.scores.gain.rebuilt.estimate if row.scores.gain else None for row in self.rows]
        return frame_of(pa.table(columns))

    @property
    def exposed(self) -> Any:
        """The table of all attacked records as a DataFrame (a pyarrow table without pandas), the most exposed first:
        rank, row, id and line of an own table, errors; None unless every record was attacked. Private."""
        if self.table is None:
            return None
        # Ids are texts, whatever they look like.
        as_text = pyarrow.csv.ConvertOptions(column_types={"id": pa.string()})
        return frame_of(pyarrow.csv.read_csv(self.table, convert_options=as_text))

    def figure(self) -> Drawing:
        """The ladder as a matplotlib figure, which notebooks show."""
        return plots.ladder(self.rows)

    def save(self, folder: str | Path) -> Path:
        """Copies the run folder, for its owner alone to read; returns the copy.

        Raises:
            ValueError: the folder exists.
            OSError: it cannot be written.
        """
        out = Path(folder)
        if out.exists():
            raise ValueError(f"folder must be a new one, got {out} which exists")
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".drjax-") as part:
            shutil.copytree(self.folder, Path(part) / "run").chmod(0o700)
            (Path(part) / "run").rename(out)
        return out

    def __repr__(self) -> str:
        """The verdict, and the attacks that say most; ten lines at most."""
        return "\n".join([f"{self.verdict.headline}. Report: {self.report}", *map("  ".join, self._lines())])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._lines())
        body = "".join(f"<tr>{line}</tr>" for line in cells)
        headline = f"{self.verdict.headline}. {self.verdict.sentence}"
        return f"<p>{html.escape(headline)}</p><table>{body}</table><p>{html.escape(str(self.report))}</p>"

    def _lines(self) -> list[tuple[str, str, str]]:
        """Label, mean squared error and identification rate of the baselines and of the best attacks."""
        ranked = sorted(self.rows, key=lambda row: (not row.is_baseline, row.scores.mse.estimate))
        return [
            (
                row.label,
                f"MSE {ladder.number(row.scores.mse.estimate)}",
                f"identified {ladder.percent(row.scores.identification.estimate)}",
            )
            for row in ranked[:SHOWN]
        ]


@dataclass(frozen=True)
class Session:
    """How one audit is run.

    Attributes:
        folder: The run folder.
        progress: Show progress bars on standard error.
        say: Told which stage runs.
    """

    folder: RunFolder
    progress: bool
    say: Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What one attack came to.

    Attributes:
        x: (m, d).
        status: (m,), flags of the attack and of the releases.
        scores: Scores of x against the truth.
        expected_mse: (m,), what the attack expected; None if it predicts no errors.
        label: Instead of the attack's own; the latter if empty.
        description: Description of the attack; the attack's own if empty.
    """

    x: np.ndarray
    status: np.ndarray
    scores: metrics.AttackScores
    expected_mse: np.ndarray | None = None
    label: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Pages:
    """What a setting has to say in the report, beside the ladder.

    Attributes:
        title: Heading.
        release: What was released.
        assumptions: Who the adversary is and what they know; whole sentences.
        command: Command that runs the audit again, if the caller knows no better.
        tables: Behind the ladder.
        measured: Behind the words on the attacks.
        not_run: Labels of attacks that work on the release and were not run; None where the winner is not discussed.
        caveats: Sentences on the verdict.
        limitations: What the report does not show; the usual ones if None.
        details: Paragraphs of the verdict, behind its sentence.
        result: Fields of `AuditResult` that are the setting's own.
    """

    title: str
    release: Facts
    assumptions: tuple[str, ...]
    command: str
    tables: tuple[Table, ...] = ()
    measured: tuple[Section, ...] = ()
    not_run: tuple[str, ...] | None = None
    caveats: tuple[str, ...] = ()
    limitations: tuple[str, ...] | None = None
    details: tuple[str, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What could be published instead of a release, as a page says it.

    Attributes:
        advice: What to do, for the verdict.
        sections: Sections of the report.
        found: Result of the search, for `AuditResult.options`.
    """

    advice: tuple[Advice, ...]
    sections: tuple[Section, ...]
    found: Any


class Setting(ABC):
    """What is audited. Its methods are called once each, in this order, and `attempt` for every attack.

    Attributes:
        config: What decides the results.
        data: The data set, from `prepare` on.
        statuses: Stage or attack -> status name -> lanes, as they become known.
    """

    config: Any
    data: Dataset
    statuses: dict[str, dict[str, int]]
    _given: Dataset | None

    def __init__(self, config: Any, data: Dataset | None = None) -> None:
        """Takes what decides the results.

        Args:
            config: Configuration that the setting is for.
            data: Data set, already loaded; by the configuration if None.
        """
        self.config, self.statuses, self._given = config, {}, data

    def loaded(self) -> Dataset:
        """The data set that was given, or that the configuration names.

        Raises:
            ValueError, OSError: as of `drjax.data.load`.
        """
        config = self.config
        if self._given is not None:
            return self._given
        return load(config.data, data_dir=config.data_dir, **{name: getattr(config, name) for name in OPTIONS})

    @abstractmethod
    def prepare(self, *, progress: bool) -> None:
        """Loads the data and checks all that can be checked, before anything is written.

        Raises:
            ValueError: a configuration that does not fit the data, or bad data.
            OSError: a data set is not there.
            MemoryError: more memory would be needed than is available.
        """

    @abstractmethod
    def release(self, session: Session) -> None:
        """Makes the releases under attack, or reads them back."""

    @abstractmethod
    def attacks(self, session: Session) -> Mapping[str, Attack]:
        """Baselines and attacks in the order of the ladder, by name."""

    @abstractmethod
    def attempt(self, session: Session, name: str, attack: Attack) -> Attempt:
        """Runs one attack, or reads it back, and scores it."""

    @abstractmethod
    def targets(self) -> np.ndarray:
        """The truth (m, d)."""

    def verdict(self, rows: tuple[LadderRow, ...]) -> Verdict:
        """Verdict on the ladder."""
        return ladder.verdict(rows)

    @abstractmethod
    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """Runs what comes after the attacks and writes figures and tables."""


Decide = Callable[[Setting, Session, Verdict, Callable[[Decision], Any]], Decision | None]
"""Whoever says what else could be published: given the setting after its attacks and the verdict, and a function that
shows what is found so far; None where nothing is to be decided."""


def run_setting(
    setting: Setting,
    out: str | Path,
    *,
    decide: Decide | None = None,
    resume: bool = False,
    progress: bool = False,
    command: str | None = None,
    console: Console | None = None,
) -> AuditResult:
    """Audits one setting; see `drjax.audits.run`. The page is written anew after every attack."""
    say = console.print if console is not None else lambda *_: None
    setting.prepare(progress=progress)
    data, config = setting.data, setting.config
    folder = RunFolder(Path(out), config, resume=resume)
    provenance = records.provenance(config.seed)
    folder.record("run", "audit", config=config, provenance=provenance, data=dataclasses.asdict(data.provenance))
    session = Session(folder, progress, say)
    setting.release(session)
    attempts, rows = _attempted(setting, session)
    verdict = setting.verdict(rows)
    pages = setting.pages(session, attempts, rows, verdict)
    verdict = dataclasses.replace(
        verdict, caveats=(*verdict.caveats, *pages.caveats), details=(*verdict.details, *pages.details)
    )
    for place, (stage, counts) in enumerate(setting.statuses.items()):
        folder.record("status", stage, place=place, counts=counts)

    def shown(decision: Decision | None) -> Verdict:
        """The verdict with what was decided, once the page with both is written."""
        whole = dataclasses.replace(verdict, advice=() if decision is None else decision.advice)
        report = audit_report(
            title=pages.title,
            is_private=data.is_own,
            verdict=whole,
            release=pages.release,
            rows=rows,
            assumptions=pages.assumptions,
            tables=pages.tables,
            instead=() if decision is None else decision.sections,
            measured=pages.measured,
            status_counts=setting.statuses,
            winner="" if pages.not_run is None else ladder.winner(rows, pages.not_run),
            command=command or pages.command,
            provenance={**provenance, "data": data.provenance.source, "licence": data.provenance.licence},
            **({} if pages.limitations is None else {"limitations": pages.limitations}),
        )
        page.write(report, folder.path / REPORT)
        return whole

    verdict_shown = shown(None)
    decision = None if decide is None else decide(setting, session, verdict, shown)
    if decision is not None:
        verdict_shown = shown(decision)
    folder.finish()
    return AuditResult(
        folder.path,
        folder.path / REPORT,
        rows,
        verdict_shown,
        {name: found.x for name, found in attempts.items()},
        setting.targets(),
        **pages.result,
        options=None if decision is None else decision.found,
    )


def _attempted(setting: Setting, session: Session) -> tuple[dict[str, Attempt], tuple[LadderRow, ...]]:
    """What every attack came to, by name, and the ladder; the page says how far they are."""
    attacks = setting.attacks(session)
    attempts, rows = {}, []
    for place, (name, attack) in enumerate(attacks.items()):
        session.say(f"Attack: {attack.label}")
        found = setting.attempt(session, name, attack)
        row = _row(attack, found)
        counts = count_status(found.status)
        facts = {"label": row.label, "scores": found.scores, "status_counts": counts}
        if found.expected_mse is not None and np.isfinite(found.expected_mse).any():
            facts["expected_mse"] = float(np.nanmedian(found.expected_mse))
        session.folder.record("attack", name, place=place, **facts)
        attempts[name] = found
        rows.append(row)
        setting.statuses[row.label] = counts
        if place + 1 < len(attacks) and not all(row.is_baseline for row in rows):
            unfinished = unfinished_report(rows, len(attacks), data=setting.data.name, is_private=setting.data.is_own)
            page.write(unfinished, session.folder.path / REPORT)
    return attempts, tuple(rows)


def _row(attack: Attack, found: Attempt) -> LadderRow:
    return LadderRow(
        label=found.label or attack.label,
        description=found.description or attack.description,
        scores=found.scores,
        is_baseline=attack.is_baseline,
        needs_shadows=attack.needs_shadows,
        needs_public=attack.needs_public,
        why=attack.why,
    )

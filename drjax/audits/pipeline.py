"""The one audit: a setting makes releases, attacks run on them, and scores, records and a report come out.

A setting says what is released, who attacks it and how that is scored: sampled targets of an embedding, every record of
one release, or networks. What is the same for all is here.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from rich.console import Console

from drjax.attacks import metrics
from drjax.attacks.attack import Attack
from drjax.audits.folder import REPORT, RunFolder
from drjax.audits.report import audit_report, unfinished_report
from drjax.audits.result import AuditResult
from drjax.core.types import count_status
from drjax.data import Dataset, load
from drjax.data.own_table import OPTIONS
from drjax.reports import ladder, page, records
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Advice, Facts, Section, Verdict

A = TypeVar("A", bound=Attack)


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
    tables: tuple[Section, ...] = ()
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


class Piece(NamedTuple):
    """Part of an audit that a worker can do: it leaves files in the run folder, where the audit finds them.

    Attributes:
        name: Stage of releases, or attack.
        parts: Chunks of the stage, or parts of the attack.
        is_attack: Whether it is one.
    """

    name: str
    parts: range
    is_attack: bool = False


class Setting(ABC, Generic[A]):
    """What is audited. Its methods are called once each, in this order, and `attempt` for every attack.

    What workers may do, see `Piece`, is done before `release`, and before the first `attempt`.

    Attributes:
        config: What decides the results.
        data: The data set, from `prepare` on.
        statuses: Stage or attack -> status name -> lanes, as they become known.
        lanes: Most releases of a chunk, where it shall not depend on the machine; None where memory decides.
    """

    config: Any
    data: Dataset
    statuses: dict[str, dict[str, int]]
    lanes: int | None = None
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

    def pieces(self, session: Session) -> list[Piece]:
        """Chunks of releases for workers; none where one process makes them."""
        del session
        return []

    def make(self, session: Session, piece: Piece) -> None:
        """Makes chunks of releases, and nothing else."""
        raise NotImplementedError

    @abstractmethod
    def release(self, session: Session) -> None:
        """Makes the releases under attack, or reads them back."""

    @abstractmethod
    def attacks(self, session: Session) -> Mapping[str, A]:
        """Baselines and attacks in the order of the ladder, by name."""

    def n_parts(self, attack: A) -> int:
        """Parts that an attempt is made of."""
        del attack
        return 1

    def attempt_part(self, session: Session, name: str, attack: A, part: int) -> None:
        """Runs one part of an attempt, and keeps what it finds; the attacks before it have not been attempted."""
        del part
        self.attempt(session, name, attack)

    @abstractmethod
    def attempt(self, session: Session, name: str, attack: A) -> Attempt:
        """Runs one attack, or reads it back, and scores it."""

    @abstractmethod
    def targets(self) -> np.ndarray:
        """The truth (m, d)."""

    @property
    @abstractmethod
    def rows(self) -> np.ndarray:
        """(m,) rows of the data set that are attacked."""

    def verdict(self, rows: tuple[LadderRow, ...]) -> Verdict:
        """Verdict on the ladder."""
        return ladder.verdict(rows)

    @abstractmethod
    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """Runs what comes after the attacks and writes figures and tables."""


Elsewhere = Callable[[Sequence[Piece]], Any]
"""Whoever has pieces done by workers; returns when all of them are done."""

Decide = Callable[[Setting, Session, Verdict, Callable[[Decision], Any]], Decision | None]
"""Whoever says what else could be published: given the setting after its attacks and the verdict, and a function that
shows what is found so far; None where nothing is to be decided."""


def run_setting(
    setting: Setting,
    out: str | Path,
    *,
    decide: Decide | None = None,
    elsewhere: Elsewhere | None = None,
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
    if elsewhere is not None:
        elsewhere(setting.pieces(session))
    setting.release(session)
    attempts, rows = _attempted(setting, session, elsewhere)
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


def attack_pieces(setting: Setting, attacks: Mapping[str, Attack]) -> list[Piece]:
    """All parts of the attacks but baselines, which take no time, each a piece."""
    wanted = {name: setting.n_parts(attack) for name, attack in attacks.items() if not attack.is_baseline}
    return [Piece(name, range(part, part + 1), True) for name, n in wanted.items() for part in range(n)]


def _attempted(
    setting: Setting, session: Session, elsewhere: Elsewhere | None
) -> tuple[dict[str, Attempt], tuple[LadderRow, ...]]:
    """What every attack came to, by name, and the ladder; the page says how far they are."""
    attacks = setting.attacks(session)
    if elsewhere is not None:
        elsewhere(attack_pieces(setting, attacks))
    attempts, rows = {}, []
    for place, (name, attack) in enumerate(attacks.items()):
        session.say(f"Attack: {attack.label}")
        found = setting.attempt(session, name, attack)
        row = _row(attack, found)
        counts = count_status(found.status)
        facts: dict[str, Any] = {"label": row.label, "scores": found.scores, "status_counts": counts}
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

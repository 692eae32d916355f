"""What an audit's verdict comes to: whether to search for something else to publish, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from drjax.audits import exposure_report
from drjax.audits.every_record import EveryRecordSetting
from drjax.audits.pipeline import Decision, Session, Setting
from drjax.decisions import page
from drjax.decisions.audited import Audited
from drjax.decisions.found import Measured
from drjax.decisions.search import search
from drjax.reports.sections import Verdict

STREAM = 15
"""Stream of the audit's seed that a search draws by."""


def decide(setting: Setting, session: Session, verdict: Verdict, show: Callable[[Decision], Any]) -> Decision | None:
    """Searches for something else to publish, where an audit of every record asks for it.

    By default that is where somebody's own records are called highly exposed; see `AuditConfig.options`.

    Args:
        setting: Setting whose release was attacked.
        session: Run folder, and whom to tell.
        verdict: Verdict on the release.
        show: Shows what is found so far.
    """
    if not isinstance(setting, EveryRecordSetting):
        return None
    asked = setting.config.options
    if asked is False or (asked is None and not (setting.data.is_own and verdict.level == "high")):
        return None
    audited = audited_of(setting, session)

    def each(measured: Sequence[Measured]) -> None:
        show(Decision(advice=(), sections=(page.so_far(measured),), found=None))

    found = search(audited, session, each)
    return Decision(advice=page.advice(found), sections=page.sections(audited, found), found=found)


def audited_of(setting: EveryRecordSetting, session: Session) -> Audited:
    """What a search starts from: the release, and what the strongest attack on it made of the records."""
    return Audited(
        config=setting.config,
        data=setting.data,
        every=setting.every,
        in_records=setting.in_records,
        attacks=setting.chosen,
        seconds=setting.seconds,
        exposure=setting.worst,
        table=session.folder.path / exposure_report.TABLE,
        key=jax.random.fold_in(jax.random.key(setting.config.seed), STREAM),
    )

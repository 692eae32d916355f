"""The search for something else to publish: every option is attacked and scored, and the best is checked once more.

Options are attacked on a sample of records, by the attacks of the audit adapted to the option. Of those that the rule
of the verdict does not call high exposure, the most useful one is attacked again: on more records, by an attack that
the search has not used, and by those of the audit's that were too slow for the search. The first that holds is
recommended.
"""

from __future__ import annotations

import dataclasses
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from drjax.attacks.attack import EmbeddingAttack
from drjax.audits.folder import RunFolder
from drjax.audits.pipeline import Session
from drjax.core.progress import announce
from drjax.core.types import Array
from drjax.decisions import attacked, statistics_attacks
from drjax.decisions.attacked import TreesInMap
from drjax.decisions.audited import Audited, Made
from drjax.decisions.found import Found, Measured
from drjax.decisions.guaranteed import guaranteed_for
from drjax.decisions.options import Defended, Option, between, options_for
from drjax.decisions.usefulness import Usefulness, Yardstick
from drjax.reports import ladder
from drjax.reports.ladder import LadderRow

SECONDS = 240.0
"""Time of a search; an option that would begin later is not run."""

LEAST_OPTIONS = 3
"""Options that are tried in any case."""

N_ROWS = 400
"""Records that every option is attacked on, drawn at random."""

N_CHECKED = 3000
"""Records that the recommended option is attacked on in the final check, at most."""

N_OTHERS = 1000
"""Records that the final check leaves to choose kernels on, where there are enough."""

CHECK_SECONDS = 240.0
"""Time of final checks; none begins later, but the first and the quick ones of options with a guarantee."""

SLOW_SECONDS = 60.0
"""Time that each attack that was too slow for the search has in the final check."""

SLOWER = 3.0
"""So many times as long as on the audited map it takes on a coarser one, where fits end late."""

LEAST_SLOW = 5
"""Records that it attacks in any case."""


def search(audited: Audited, session: Session, each: Callable[[Sequence[Measured]], Any] | None = None) -> Found:
    """Tries all options that time allows, and checks the most useful that passes.

    Args:
        audited: Audited release.
        session: Run folder, which keeps what is finished; and whom to tell.
        each: Told all options measured so far, after each.
    """
    begun = time.perf_counter()
    sample_key, own_key, check_key = jax.random.split(audited.key, 3)
    yardstick = Yardstick(audited, own_key)
    measured: list[Measured] = []
    not_run: list[str] = []

    def try_all(options: Sequence[Option]) -> None:
        for option in options:
            slowest = max((one.seconds for one in measured), default=0.0)
            is_late = time.perf_counter() - begun + max(option.seconds(audited), slowest) > SECONDS
            if len(measured) >= LEAST_OPTIONS and is_late:
                not_run.append(option.label)
                continue
            session.say(f"Instead: {option.label}")
            key = jax.random.fold_in(sample_key, zlib.crc32(option.name.encode()))
            measured.append(_measured(key, audited, session.folder, option, yardstick))
            if each is not None:
                each(_marked(measured))

    possible = (*options_for(audited), *guaranteed_for(audited))
    _announce(audited, possible, enabled=session.progress)
    try_all(_in_turn(audited, possible))
    try_all(between([(one.option, one.passes) for one in measured]))
    measured, recommended, proven = _checked(check_key, audited, session, _marked(measured))
    slow = _slow(audited)
    return Found(
        own=yardstick.own,
        measured=tuple(_ranked(measured)),
        not_run=tuple(not_run),
        recommended=recommended,
        proven=proven,
        n_rows=min(N_ROWS, audited.n),
        judge=TreesInMap(),
        slow=tuple(attack.label for attack in slow.values()),
        seconds=time.perf_counter() - begun,
    )


def _in_turn(audited: Audited, options: Sequence[Option]) -> list[Option]:
    """One option of each kind before the next of any, the last of its kind, which protects most, first.

    Where time does not allow all, no kind is left out. Of one turn those that take least come first.
    """
    tried: Counter[type] = Counter()
    found = []
    for option in reversed(options):
        kind = option.kind if isinstance(option, Defended) else type(option)
        found.append((tried[kind], option.seconds(audited), option))
        tried[kind] += 1
    return [option for _, _, option in sorted(found, key=lambda one: one[:2])]


def _announce(audited: Audited, options: Sequence[Option], *, enabled: bool) -> None:
    """Says what the options take, and the final check of one of them."""
    one = audited.every.shapes
    tried = attacked.searched(audited, N_ROWS).values()

    def attacking(n_rows: int) -> float:
        return sum(attacked.seconds_of(audited, attack, n_rows) for attack in tried)

    attacks = attacking(min(N_ROWS, audited.n))
    making = sum(option.seconds(audited) + (0.0 if option.guarantee else attacks) for option in options)
    n_checked = _n_checked(audited.n)
    judging = TreesInMap().seconds_each(audited.every, n_checked)
    checking = attacking(n_checked) + judging + SLOW_SECONDS * len(_slow(audited))
    seconds = min(making, SECONDS) + checking
    memory = max(attack.cost(one).bytes for attack in tried)
    announce(f"{len(options)} other things to publish", seconds, memory, enabled=enabled)


def _measured(key: Array, audited: Audited, folder: RunFolder, option: Option, yardstick: Yardstick) -> Measured:
    make_key, row_key, attack_key, score_key = jax.random.split(key, 4)
    file = f"options/{option.name}"

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        made = option.make(make_key, audited)
        figures = np.array(dataclasses.astuple(yardstick.measure(made)))
        more = {} if made.worked_out is None else {"worked_out": made.worked_out}
        return {"kept": made.kept, "coords": made.coords, "usefulness": figures, **more, **made.statistic}, {}

    kept, seconds = folder.timed(file, make, stage=file)
    made = _release(audited, option, kept)
    rows = _some(row_key, len(made.kept), N_ROWS)
    attacks = _attacks(audited, made)
    found, spent = _ladder((attack_key, score_key), audited, folder, f"{file}-attacked", made, attacks, rows)
    one = Measured(
        option=option,
        command=option.command(audited),
        n_records=len(made.kept),
        rows=found,
        verdict=ladder.verdict(found),
        usefulness=Usefulness.of(kept["usefulness"]),
        seconds=seconds + spent,
        ceiling=float(kept["ceiling"]) if "ceiling" in kept else None,
    )
    folder.record(
        "option",
        option.name,
        label=option.label,
        level=one.verdict.level,
        taken=one.taken,
        rebuilt=one.rebuilt,
        identified=one.identified,
        usefulness=one.usefulness,
    )
    return one


def _release(audited: Audited, option: Option, kept: dict[str, np.ndarray]) -> Made:
    statistic = {name: kept[name] for name in statistics_attacks.NAMES if name in kept}
    records, method = audited.every.x[kept["kept"]], option.method(audited)
    return Made(kept["kept"], records, kept["coords"], method, statistic, kept.get("worked_out"))


def _final(audited: Audited, made: Made) -> dict[str, EmbeddingAttack]:
    """The attacks of a final check: those of the search, and one that it has not used."""
    judge = statistics_attacks.first_of(statistics_attacks.KEPT, made.statistic) if made.statistic else TreesInMap()
    return _attacks(audited, made) | {judge.name: judge}


def _attacks(audited: Audited, made: Made) -> dict[str, EmbeddingAttack]:
    """The attacks of a search: on coordinates those of the audit, on numbers of all records together their own."""
    if not made.statistic:
        return attacked.searched(audited, N_ROWS)
    attack = statistics_attacks.first_of(statistics_attacks.SEARCHED, made.statistic)
    return {attack.name: attack}


def _some(key: Array, n: int, most: int) -> np.ndarray:
    return np.sort(np.asarray(jax.random.permutation(key, n))[:most])


def _slow(audited: Audited) -> dict[str, EmbeddingAttack]:
    """The attacks of the audit that are too slow for the search."""
    quick = attacked.searched(audited, N_ROWS)
    return {name: attack for name, attack in audited.attacks.items() if name not in quick}


def _ranked(measured: Sequence[Measured]) -> list[Measured]:
    """Those that pass before those that do not, and the more useful first."""
    return sorted(measured, key=lambda one: (not one.passes, -np.nan_to_num(one.usefulness.share)))


def _marked(measured: Sequence[Measured]) -> list[Measured]:
    """The same with those marked that no other is better than in one and as good in all."""

    def beats(other: Measured, one: Measured) -> bool:
        mine, others = (
            (float(np.nan_to_num(m.usefulness.share)), -m.taken, -m.rebuilt, -m.identified, m.passes)
            for m in (one, other)
        )
        return all(b >= a for a, b in zip(mine, others, strict=True)) and mine != others

    return [
        dataclasses.replace(one, is_undominated=not any(beats(other, one) for other in measured)) for one in measured
    ]


def _checked(
    key: Array, audited: Audited, session: Session, measured: list[Measured]
) -> tuple[list[Measured], Measured | None, Measured | None]:
    """The options with the ladders of final checks, the one to recommend, and the most useful one with a guarantee.

    The most useful map that passes is checked first, until one holds; what is no map is recommended only where no map
    holds. Where that has no guarantee, those that have one are checked, until one holds.
    """
    found = {one.option.name: one for one in measured}
    begun = time.perf_counter()

    def first_that_holds(candidates: Sequence[Measured]) -> Measured | None:
        for one in candidates:
            name, n_checked = one.option.name, sum(map(_was_checked, found.values()))
            if n_checked and time.perf_counter() - begun > CHECK_SECONDS and not one.option.guarantee:
                continue
            if not _was_checked(found[name]):
                session.say(f"Final check: {one.option.label}")
                rows = _check(jax.random.fold_in(key, n_checked), audited, session.folder, one.option)
                held = ladder.verdict(rows).level == "not shown"
                found[name] = dataclasses.replace(one, check=rows, held=held)
                session.folder.record("option", f"{name}, final check", held=held)
            if found[name].held:
                return found[name]
        return None

    passing = [one for one in _ranked(measured) if one.passes]
    best = first_that_holds(sorted(passing, key=lambda one: not one.option.is_map))
    proven = best if best is not None and best.option.guarantee else None
    if proven is None:
        proven = first_that_holds([one for one in passing if one.option.guarantee and one.usefulness.share > 0])
    return list(found.values()), best, proven


def _was_checked(one: Measured) -> bool:
    return one.held is not None


def _check(key: Array, audited: Audited, folder: RunFolder, option: Option) -> tuple[LadderRow, ...]:
    """The ladder of an option on more records, with an attack that the search has not used and with slow ones."""
    row_key, *keys = jax.random.split(key, 3)
    made = _release(audited, option, folder.arrays(f"options/{option.name}", _unmade))
    n = len(made.kept)
    rows = _some(row_key, n, _n_checked(n))
    found = _ladder(keys, audited, folder, f"options/{option.name}-checked", made, _final(audited, made), rows)[0]
    if made.statistic:
        return found
    for name, attack in _slow(audited).items():
        each = SLOWER * len(attacked.views({name: attack}, made)) * attacked.seconds_of(audited, attack, 1)
        some = _some(row_key, n, max(LEAST_SLOW, int(SLOW_SECONDS / each)))
        found += _ladder(keys, audited, folder, f"options/{option.name}-{name}", made, {name: attack}, some)[0]
    return found


def _n_checked(n: int) -> int:
    """Records of n that a final check attacks."""
    return min(N_CHECKED, n if n < N_ROWS + N_OTHERS else n - N_OTHERS)


def _ladder(
    keys: Sequence[Array],
    audited: Audited,
    folder: RunFolder,
    file: str,
    made: Made,
    attacks: dict[str, EmbeddingAttack],
    rows: np.ndarray,
) -> tuple[tuple[LadderRow, ...], float]:
    """The ladder of some attacks on some records of a release, kept in a file; and the seconds that they took."""
    attack_key, score_key = keys
    views = attacked.views(attacks, made)

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        for name, (attack, release) in views.items():
            result = attacked.run(attack_key, attack, audited, release, rows)
            arrays |= {f"{name}_{field}": values for field, values in result.items()}
        return arrays, {}

    kept, seconds = folder.timed(file, make, stage=file)
    found = {name: (a, {f: kept[f"{name}_{f}"] for f in ("x", "status")}, seconds) for name, (a, _) in views.items()}
    return attacked.scored(score_key, audited, made.kept, rows, found), seconds


def _unmade() -> dict[str, Any]:
    raise RuntimeError("an option must be measured before it is checked")

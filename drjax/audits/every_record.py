"""The setting of every record: each in turn as the one unknown record of one release of all of them.

There is one release. The adversary against record i knows the n-1 others, the method and the release, and no public
data: what is to be expected of a record comes from the known ones. Attacks that can share their work over all records;
the others are run for one record after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from drjax.attacks import exposure
from drjax.attacks.attack import Attack, EmbeddingAttack, EveryRecord, Shadows
from drjax.attacks.exposure import Exposure
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow import factored_at, shadow_embeddings
from drjax.attacks.shadow_sets import stand_in_shadows
from drjax.audits import choice, describe, exposure_report, needs, worst_off
from drjax.audits.attempts import fields_of
from drjax.audits.config import BOUNDS, AuditConfig
from drjax.audits.pipeline import Attempt, Pages, Piece, Session, Setting
from drjax.core.progress import announce, track
from drjax.core.types import Array, DRMethod, count_status
from drjax.data import Dataset
from drjax.reports import ladder
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Facts, Verdict

MOST_SECONDS = 180.0
"""Time for attacks on own data in turn, where nobody says how many records to attack."""

MOST_ROWS = 3000
"""Records of own data that are attacked, drawn at random, where nobody says how many."""

LEAST_ROWS = 20
"""Records that are attacked in any case."""

CHUNK = 10
"""Records between two files, of an attack that shares nothing between records."""


def suits(method: DRMethod, x: np.ndarray) -> None:
    """Raises ValueError where records x (n, d) do not suit a method."""
    jax.eval_shape(method.fit_transform, jax.random.key(0), np.zeros(x.shape, np.float32))


class EveryRecordSetting(Setting):
    """Every record of one release; see the module."""

    config: AuditConfig

    def __init__(self, config: AuditConfig, data: Dataset | None = None) -> None:
        """Takes what decides the results; see `Setting`."""
        super().__init__(config, data)
        self._slow: dict[str, tuple[int, float]] = {}

    def prepare(self, *, progress: bool) -> None:
        """See `Setting`."""
        self._threat = self._threatened(progress=progress)
        method, n, d = self._threat.method, *self._threat.x.shape
        self._attacks, self._left_out = self._chosen()

        def need(count: int) -> needs.Needs:
            return needs.of_each(method, count, d, self._attacks.values(), dtype=self._threat.dtype)

        found = needs.require(need(n), "this audit", "the number of records in --data", need, n)
        announce(f"preparations for one release of {n:,} records", found.seconds, found.bytes, enabled=progress)
        if self.config.max_records is None and not self.config.each_record:
            one = self._threat.shapes
            each = sum(attack.cost(one).seconds for attack in self._attacks.values() if not attack.shares_each)
            most = MOST_ROWS if each == 0 else min(MOST_ROWS, max(LEAST_ROWS, int(MOST_SECONDS / each)))
            self._threat = dataclasses.replace(self._threat, rows=self._rows(most))
        count = len(self._threat.rows)
        seconds = sum(attack.seconds_each(self._threat, count) for attack in self._attacks.values())
        announce(f"attacks on {count:,} records in turn", seconds, enabled=progress)

    def _threatened(self, *, progress: bool) -> EveryRecord:
        """Loads the data; the release, whose coordinates do not matter yet."""
        config = self.config
        choice.check(config)
        self.data = data = self.loaded()
        n, method = len(data.x), config.dr_method
        if n < 4:
            raise ValueError(f"data must have at least 4 records, got {n} in {data.name}")
        suits(method, data.x)
        return EveryRecord(
            method=method,
            x=data.x,
            coords=np.zeros((n, config.n_components)),
            rows=self._rows(self.config.max_records),
            stand_ins=self._stand_ins,
            decimals=config.decimals,
            dtype=config.dtype,
            bounds=BOUNDS,
            progress=progress,
        )

    def _keys(self) -> Array:
        """Keys of the release, of the choice of rows and of the scores."""
        return jax.random.split(jax.random.key(self.config.seed), 3)

    def _rows(self, most: int | None) -> np.ndarray:
        """The records to attack, at most so many."""
        n = len(self.data.x)
        if most is None or most >= n:
            return np.arange(n)
        return np.sort(np.asarray(jax.random.permutation(self._keys()[1], n))[:most])

    def _stand_ins(self, known: np.ndarray) -> Shadows:
        threat = self._threat
        key = jax.random.key(self.config.seed)
        return stand_in_shadows(key, threat.method, known, decimals=threat.decimals, dtype=threat.dtype)

    def _chosen(self) -> tuple[dict[str, EmbeddingAttack], dict[str, str]]:
        """The attacks that run, by name; and those left out, with the reason."""
        found, left_out = choice.chosen_each(self.config, self._threat)
        if not self.config.attacks:
            self._leave_slow(found)
        return found, left_out

    def _leave_slow(self, found: dict[str, EmbeddingAttack]) -> None:
        """Takes out attacks that nobody asked for and that a few records would take too long, but not the last one."""
        one, count = self._threat.shapes, min(LEAST_ROWS, len(self._threat.rows))
        costs = {name: attack.cost(one).seconds for name, attack in found.items() if not attack.shares_each}
        for name in sorted(costs, key=lambda name: -costs[name]):
            if count * costs[name] > choice.LEAST_SECONDS and len(found) > 1:
                del found[name]
                self._slow[name] = count, costs[name]

    def pieces(self, session: Session) -> list[Piece]:
        """See `Setting`: the one release."""
        del session
        return [Piece("release", range(1))]

    def make(self, session: Session, piece: Piece) -> None:
        """See `Setting`."""
        del piece
        self.release(session)

    def release(self, session: Session) -> None:
        """See `Setting`."""
        for reason in self._left_out.values():
            session.say(f"Left out: {reason}")
        self._agree(session)
        released = session.folder.arrays("release", lambda: self._made(session))
        self.statuses["release"] = count_status(released["status"])
        self._threat = dataclasses.replace(self._threat, coords=released["coords"], progress=session.progress)

    def _agree(self, session: Session) -> None:
        """Takes the records and attacks that were chosen first: what fits into the time differs between machines."""
        own = {"rows": self._threat.rows, "attacks": np.array(list(self._attacks))}
        found = choice.agreed(session.folder, lambda: own)
        self._threat = dataclasses.replace(self._threat, rows=found["rows"])
        self._attacks = {name: ATTACKS["embedding"][name] for name in map(str, found["attacks"])}
        self._slow = {name: cost for name, cost in self._slow.items() if name not in self._attacks}

    def _made(self, session: Session) -> dict[str, np.ndarray]:
        """Coordinates and status of the release under attack."""
        config = self.config
        session.say(f"Release: {config.dr_method} on all {len(self.data.x):,} records of {self.data.name}")
        with jax.enable_x64(config.dtype == "float64"):
            x, method = self.data.x, config.dr_method
            # One more record beside the others: the same embedding by the faster way.
            is_factored = factored_at(method, *x.shape)
            embedding = shadow_embeddings(
                self._keys()[0], method, x[1:], x[:1], factored=is_factored, dtype=config.dtype
            )
            coords = np.asarray(embedding.coords[0])
        if not np.isfinite(coords).all():
            raise ValueError(f"data must have a finite release, got nan or infinity from {config.dr_method}")
        if config.decimals is not None:
            coords = np.round(coords, config.decimals)
        return {"coords": coords, "status": np.asarray(embedding.status)}

    def attacks(self, session: Session) -> Mapping[str, Attack]:
        """See `Setting`."""
        del session
        self._similar = exposure.nearest_others(self.data.x, self._threat.rows)
        self._results: dict[str, dict[str, np.ndarray]] = {}
        self._exposures: dict[str, Exposure] = {}
        self._seconds: dict[str, float] = {}
        return {**{name: ATTACKS["embedding"][name] for name in exposure_report.BASELINES}, **self._attacks}

    def attempt(self, session: Session, name: str, attack: Attack) -> Attempt:
        """See `Setting`."""
        if isinstance(attack, EmbeddingAttack) and not attack.is_baseline:
            result, seconds = self._attacked(session, attack)
            words = attack.label, attack.description
        else:
            result, seconds, words = self._guess(name), 0.0, exposure_report.BASELINES[name]
        self._results[name] = result
        own = self._exposures[name] = exposure.measure(
            result["x"], self.data.x, self._threat.rows, result["status"], similar=self._similar
        )
        row = exposure_report.ladder_row(
            self._keys()[2], words, result, seconds, own, self._exposures["mean"], self.data
        )
        return Attempt(
            x=result["x"],
            status=result["status"],
            scores=row.scores,
            expected_mse=result.get("expected_mse"),
            label=words[0],
            description=words[1],
        )

    def _guess(self, name: str) -> dict[str, np.ndarray]:
        x, rows = self.data.x, self._threat.rows
        guess = exposure.means_of_others(x, rows) if name == "mean" else x[self._similar].astype(np.float64)
        return {"x": guess, "status": np.zeros(len(rows), np.uint32)}

    def _attacked(self, session: Session, attack: EmbeddingAttack) -> tuple[dict[str, np.ndarray], float]:
        """Reconstructions, read back where finished, and the seconds that they took."""
        key, every, rows = jax.random.key(self.config.seed), self._threat, self._threat.rows
        if attack.shares_each:

            def make_all() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
                return fields_of(attack.run_each(key, every)), {}

            found, seconds = session.folder.timed(f"attacks/{attack.name}", make_all, stage=attack.name)
            self._seconds[attack.name] = seconds / len(rows)
            return found, seconds
        n_parts = range(self.n_parts(attack))
        described = f"{attack.label}, {CHUNK} records at a time"
        parts = [self._part(session, attack, part) for part in track(n_parts, described, enabled=session.progress)]
        # The first part compiles, too.
        self._seconds[attack.name] = float(np.median([seconds for _, seconds in parts])) / min(CHUNK, len(rows))
        every.kept.clear()
        fields = {field: np.concatenate([part[field] for part, _ in parts]) for field in parts[0][0]}
        return fields, sum(seconds for _, seconds in parts)

    def n_parts(self, attack: Attack) -> int:
        """See `Setting`."""
        assert isinstance(attack, EmbeddingAttack)
        return 1 if attack.shares_each else math.ceil(len(self._threat.rows) / CHUNK)

    def attempt_part(self, session: Session, name: str, attack: Attack, part: int) -> None:
        """See `Setting`."""
        del name
        assert isinstance(attack, EmbeddingAttack)
        if attack.shares_each:
            self._attacked(session, attack)
        else:
            self._part(session, attack, part)

    def _part(self, session: Session, attack: EmbeddingAttack, part: int) -> tuple[dict[str, np.ndarray], float]:
        """Reconstructions of `CHUNK` records, read back where finished, and the seconds that they took."""
        start = part * CHUNK

        def make() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
            rows = self._threat.rows[start : start + CHUNK]
            some = dataclasses.replace(self._threat, rows=rows, progress=False)
            return fields_of(attack.run_each(jax.random.key(self.config.seed), some)), {}

        file = f"{attack.name}/{start:08d}"
        return session.folder.timed(f"attacks/{file}", make, stage=file)

    @property
    def every(self) -> EveryRecord:
        """The release under attack, from `release` on."""
        return self._threat

    @property
    def chosen(self) -> Mapping[str, EmbeddingAttack]:
        """The attacks that run, by name, from `prepare` on."""
        return self._attacks

    @property
    def seconds(self) -> Mapping[str, float]:
        """What a record took, by name; from `attempt` on."""
        return self._seconds

    @property
    def worst(self) -> Exposure:
        """Exposure by the strongest attack, from `pages` on."""
        return self._exposures[self._strongest]

    def in_records(self, x: np.ndarray) -> np.ndarray:
        """Reconstructions (m, d) of `every` in the scale of the data set's records."""
        return x

    def targets(self) -> np.ndarray:
        """See `Setting`."""
        return self.data.x[self._threat.rows]

    @property
    def rows(self) -> np.ndarray:
        """See `Setting`."""
        return self._threat.rows

    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """See `Setting`; writes the table of all records."""
        del verdict
        data, path = self.data, session.folder.path
        label = ladder.strongest(rows).label
        strongest = self._strongest = next(name for name, found in attempts.items() if found.label == label)
        table = path / exposure_report.TABLE
        exposure_report.write_table(table, data, self._exposures[strongest], self._results[strongest])
        tables, figures = exposure_report.contents(
            path,
            data,
            self._exposures,
            {name: found.x for name, found in attempts.items()},
            coords=self._threat.coords,
            labels={name: found.label for name, found in attempts.items()},
            strongest=strongest,
        )
        return Pages(
            title=f"Who is exposed by this {self._threat.method.title} release: {data.name}",
            release=self._facts(),
            assumptions=self._assumptions(),
            command=describe.command(self.config),
            tables=tables,
            measured=figures,
            caveats=self._not_run(),
            limitations=exposure_report.LIMITATIONS,
            details=worst_off.in_words(data, self._exposures[strongest], attempts[strongest].x, self._knowing()),
            result={"exposure": self._exposures[strongest], "table": table},
        )

    def _not_run(self) -> tuple[str, ...]:
        return tuple(
            f"Not run, because it would take about {ladder.duration(count * seconds)} for {count:,} records: "
            f"“{ATTACKS['embedding'][name].label}”. --attacks {name} runs it, with --max-records on fewer records."
            for name, (count, seconds) in self._slow.items()
        )

    def _facts(self) -> Facts:
        """What was released."""
        return describe.release(self.config, self.data, n_records=len(self.data.x))

    def _knowing(self) -> str:
        """What the adversary knows of the making of the release."""
        return "the method"

    def _assumptions(self) -> tuple[str, ...]:
        """Who the adversary is and what they know."""
        return exposure_report.assumptions(self.data, self._threat.method, len(self._threat.rows))

"""The setting of a published map: every record in turn as the one unknown one behind a map that somebody else made.

The adversary against record i knows the other records and the map. How it was made is stated, or recognised once by the
known records, the first attacked one left out. Records are attacked in the units of their file, of which the map was
made, and scored as in every audit, each feature scaled to [0, 1].
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EveryRecord
from drjax.attacks.case import decimals_of, dtype_of
from drjax.attacks.recognition import Belief, in_other_order, recognise, rescaled
from drjax.attacks.registry import ATTACKS
from drjax.audits import choice, exposure_report, map_check
from drjax.audits.config import RECOGNISED, AuditConfig
from drjax.audits.every_record import EveryRecordSetting, suits
from drjax.audits.pipeline import Attempt, Pages, Session
from drjax.audits.report import release_facts
from drjax.core import validate
from drjax.core.types import Array, DRMethod, Status
from drjax.data import Dataset, in_own_units
from drjax.data.dataset import Rows
from drjax.data.given_map import GivenMap, read_map
from drjax.dr import Unnamed
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Facts, Text, Verdict
from drjax.reports.verdict_rule import CONCLUSIONS

NO_ALL_CLEAR = "no attack was run, which is no all-clear"

MULTIPLIED = "The map is at rest by the stated method once each column is divided by a constant, which was taken back."
"""What a report says of a map that was stated without that step."""

NOT_RECOGNISED = (
    "How the map was made is not known. So the attacks on it, and on what could be published instead, learn from the "
    "map alone: whoever knows how it was made may take back far more. If you do, state --method."
)
"""What a report says of a map that no known method made."""

SCALING = (
    "The map was made of the records as they are in the file, and the attacks work on these. Errors in this report are "
    "of features scaled to run from 0 to 1, by their range in the data."
)


class Released(NamedTuple):
    """A table and the map of it.

    Attributes:
        values: (n, d) float64, records in the units of their file.
        given: Map, one row per record in the same order.
    """

    values: np.ndarray
    given: GivenMap


def name_of(source: Any, rows: Rows | None = None) -> str:
    """The name under which a map stands in a configuration: its path, or a checksum of what is in memory."""
    if isinstance(source, str | Path):
        return str(source)
    coords = np.ascontiguousarray(read_map(source, rows).coords)
    digest = hashlib.sha256(repr((coords.shape, coords.dtype.str)).encode() + coords.tobytes())
    return f"{'array' if isinstance(source, Array) else 'DataFrame'}-{digest.hexdigest()[:12]}"


class ReleasedSetting(EveryRecordSetting):
    """Every record of a published map; see the module."""

    def __init__(self, config: AuditConfig, data: Dataset | None = None, released: Released | None = None) -> None:
        """Takes what decides the results.

        Args:
            config: Configuration with `released`.
            data: Data set, already loaded; by the configuration if None.
            released: Table and map, already loaded; by the configuration if None.
        """
        super().__init__(config, data)
        self._pair = released
        self._belief: Belief | None = None
        self._notes: tuple[str, ...] = ()

    def _threatened(self, *, progress: bool) -> EveryRecord:
        """Loads the data and the map, and finds out how this was made."""
        config = self.config
        if config.method != RECOGNISED:
            choice.check(config)
        for name in config.attacks:
            validate.one_of((choice.ALL, *ATTACKS["embedding"]), attacks=name)
        self.data = data = self.loaded()
        given = read_map(config.released, data.rows) if self._pair is None else self._pair.given
        coords, self._notes = given
        self._check(coords)
        if self._pair is None:
            self._pair = Released(in_own_units(config.data, data), given)
        values, rows = self._pair.values, self._rows(config.max_records)
        found = decimals_of(coords)
        if config.decimals is not None and (found is None or found > config.decimals):
            has = "more digits" if found is None else f"{found}"
            raise ValueError(
                f"decimals must be those of released, which has {has}, got {config.decimals}: leave it out"
            )
        decimals = found if config.decimals is None else config.decimals
        method = self._method(values, coords, int(rows[0]), decimals, progress=progress)
        choice.check(config, method)
        return EveryRecord(
            method=method,
            x=values,
            coords=coords,
            rows=rows,
            stand_ins=self._stand_ins,
            decimals=decimals,
            dtype=dtype_of(coords),
            alike=False,
            progress=progress,
        )

    def _check(self, coords: np.ndarray) -> None:
        """Raises ValueError where the map does not match the data."""
        config, name, n = self.config, self.config.released, len(self.data.x)
        if len(coords) != n:
            raise ValueError(
                f"released must have one row for each of the {n:,} records of data, got {len(coords):,} in {name}: "
                "give the table that the map was made of, in the same order"
            )
        if coords.shape[1] != config.n_components:
            read = "".join(f" {note}" for note in self._notes)
            raise ValueError(
                f"n_components must be the number of columns of released, {coords.shape[1]} in {name}, got "
                f"{config.n_components}: take columns out that are no coordinates, or pass --n-components "
                f"{coords.shape[1]}.{read}"
            )
        constant = np.flatnonzero(np.ptp(coords, axis=0) == 0)
        if len(constant):
            raise ValueError(
                f"released must have no constant column, got {coords[0, constant[0]]:g} in all of column {constant[0]} "
                f"(counted from 0) of {name}: take it out"
            )
        if n < 4:
            raise ValueError(f"data must have at least 4 records for released, got {n} in {self.data.name}")

    def _method(
        self, values: np.ndarray, coords: np.ndarray, row: int, decimals: int | None, *, progress: bool
    ) -> DRMethod:
        """The method that the attacks take for the map's, once it was compared with the map."""
        if self.config.method != RECOGNISED:
            return self._stated(values, coords, row, decimals)
        key, known, name = jax.random.key(self.config.seed), np.delete(values, row, axis=0), self.config.released
        belief = self._belief = recognise(
            key, known, coords, target_row=row, decimals=decimals, reorders=False, progress=progress
        )
        if belief.best is None:
            found = map_check.related(values, coords)
            if not found.fits:
                belief = in_other_order(key, belief, known, coords, target_row=row, decimals=decimals)
                kept = "" if found.kept is None else f" Rows may be in another order: {found.in_words}."
                raise ValueError(
                    f"released must be made by one of the methods and steps that are known here, or at least keep "
                    f"neighbours of data, got {name}: {NO_ALL_CLEAR}. {' '.join(belief.why)}{kept} If you know how it "
                    "was made, state --method"
                )
            self._title = found.method.title
            self._compared = f"not known. {' '.join(belief.why)} Rows go with the records: {found.in_words}."
            return found.method
        self._title = belief.title
        if not map_check.is_compared(belief.best.method):
            # Recognition has held it against the records more closely than their neighbours tell.
            self._compared = map_check.compare((belief.best.method,), values, coords, decimals)[0].sentence
            return belief.best.method
        hypotheses = [one for one in (belief.best, *belief.tied) if map_check.is_compared(one.method)]
        made = map_check.compare([one.method for one in hypotheses], values, coords, decimals)
        for one, found in zip(hypotheses, made, strict=True):
            if found.fits:
                self._title, self._compared = one.title, found.sentence
                return found.method
        raise ValueError(
            f"released must be the map that is made anew from data, got {name}, recognised as {belief.title}, which "
            f"differs from that by {made[0].in_words} (MISFIT): {NO_ALL_CLEAR}. If you know how it was made, state "
            "--method; check that rows are in the order of the records"
        )

    def _stated(self, values: np.ndarray, coords: np.ndarray, row: int, decimals: int | None) -> DRMethod:
        """The method that is stated, with the factors of a map that was multiplied."""
        stated, name = self.config.dr_method, self.config.released
        suits(stated, values)
        method = rescaled(stated, np.delete(values, row, axis=0), coords, target_row=row, decimals=decimals)
        self._title, (found,) = method.title, map_check.compare((method,), values, coords, decimals)
        if not found.fits and found.kept is not None:
            raise ValueError(
                f"released must be a map of data, one row for each record in the same order, got {name}, which has "
                f"nothing to do with the records as they stand: {found.in_words}; {NO_ALL_CLEAR}. Bring its rows "
                "into the order of the records, or give the table that it was made of"
            )
        if not found.fits:
            raise ValueError(
                f"released must be the map that {method.title} makes of data, got {name}, which differs from it by "
                f"{found.in_words}: state the steps and settings that made it, leave out --method to have them "
                "recognised, and check that rows are in the order of the records"
            )
        self._compared = found.sentence if method is stated else f"{MULTIPLIED} {found.sentence}"
        return method

    def verdict(self, rows: tuple[LadderRow, ...]) -> Verdict:
        """See `Setting`; of a map by an unknown method, no all-clear."""
        found = super().verdict(rows)
        if not self._is_unnamed or found.level != "not shown":
            return found
        return dataclasses.replace(found, level="undetermined", headline=CONCLUSIONS["weak"])

    @property
    def _is_unnamed(self) -> bool:
        return isinstance(self._threat.method, Unnamed)

    def _knowing(self) -> str:
        """See `EveryRecordSetting`."""
        return "" if self._is_unnamed else super()._knowing()

    def _chosen(self) -> tuple[dict[str, EmbeddingAttack], dict[str, str]]:
        """Beside those of every such audit others, where none confirms its answers, that do not take too long."""
        found, left_out = super()._chosen()
        if self.config.attacks or any(attack.confirms for attack in found.values()):
            return found, left_out
        one = self._threat.shapes
        for name, attack in ATTACKS["embedding"].items():
            if name in found or attack.is_baseline or attack.fits_each(self._threat) is not None:
                continue
            count, seconds = len(self._threat.rows), attack.cost(one).seconds
            if count * seconds <= choice.LEAST_SECONDS:
                found[name] = attack
            else:
                self._slow[name] = count, seconds
        return found, left_out

    def _made(self, session: Session) -> dict[str, np.ndarray]:
        """The map as it was given."""
        del session
        return {"coords": self._threat.coords, "status": np.zeros(1, np.uint32)}

    def release(self, session: Session) -> None:
        """See `Setting`.

        Raises:
            ValueError: a run is resumed whose map was another one.
        """
        for line in self._grounds():
            session.say(f"Map: {line}")
        given = self._threat.coords
        super().release(session)
        if not np.array_equal(given, self._threat.coords):
            raise ValueError(
                f"out must hold a run on the map in released to resume, got another map: {session.folder.path}"
            )

    def _attacked(self, session: Session, attack: EmbeddingAttack) -> tuple[dict[str, np.ndarray], float]:
        """As there, with x scaled as the data; the files keep the units of the table."""
        result, seconds = super()._attacked(session, attack)
        # Errors that an attack expects are in the units of the table, too.
        kept = {name: value for name, value in result.items() if name != "expected_mse"}
        return {**kept, "x": self.in_records(result["x"])}, seconds

    def in_records(self, x: np.ndarray) -> np.ndarray:
        """See `EveryRecordSetting`."""
        return (x - self.data.offset) / np.where(self.data.scale > 0, self.data.scale, 1)

    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """See `Setting`."""
        found = super().pages(session, attempts, rows, verdict)
        made = Text(title="How the map was made", points=self._grounds())
        return dataclasses.replace(
            found,
            tables=(made, *found.tables),
            caveats=(*(NOT_RECOGNISED,) * self._is_unnamed, *self._refused(attempts), *found.caveats),
            result={**found.result, "belief": self._belief},
        )

    def _grounds(self) -> tuple[str, ...]:
        """What is taken for the making of the map, and why."""
        if self._belief is None:
            return *self._notes, f"stated: {self._title}", self._compared
        read = () if self._is_unnamed else self._belief.in_words().splitlines()
        return *self._notes, *read, self._compared

    def _refused(self, attempts: Mapping[str, Attempt]) -> tuple[str, ...]:
        counts = {
            found.label: int(np.sum((found.status & np.uint32(Status.MISFIT)) != 0)) for found in attempts.values()
        }
        return tuple(
            f"“{label}” refused {count:,} of {len(self._threat.rows):,} records (MISFIT), for which it says what one "
            "would guess without the map: for them this is no all-clear."
            for label, count in counts.items()
            if count
        )

    def _facts(self) -> Facts:
        threat, data, config = self._threat, self.data, self.config
        how = "recognised" if config.method == RECOGNISED else "as stated"
        settings = ", ".join(f"{name} {value}" for name, value in config.hyperparameters.items())
        precision = (
            f"{threat.dtype}, all digits" if threat.decimals is None else f"rounded to {threat.decimals} decimals"
        )
        made = "not known" if self._is_unnamed else f"{self._title}{f', {settings}' if settings else ''} ({how})"
        return release_facts(
            method=f"{made}; the map in {config.released}",
            dataset=data.name,
            n_records=len(data.x),
            n_features=data.x.shape[1],
            n_components=config.n_components,
            precision=precision,
        )

    def _assumptions(self) -> tuple[str, ...]:
        threat = self._threat
        usual = exposure_report.assumptions(self.data, threat.method, len(threat.rows), scaling=SCALING)
        if self._belief is None:
            return usual
        if self._is_unnamed:
            blind = "The adversary sees the published coordinates of all records, and does not know how they were made."
            return usual[0], blind, *usual[2:]
        read = (
            "The adversary sees the published coordinates of all records, and reads the method and its settings off "
            f"them. That was done once, with row {threat.rows[0]} unknown, and holds here for every record."
        )
        return usual[0], read, *usual[2:]

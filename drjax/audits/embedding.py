"""The setting of sampled targets: each the one unknown record of a release of its own beside the same known ones."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.passing import Inputs
from drjax.attacks.prepared import Prepared
from drjax.audits import adversary, choice, describe, further, needs, quality
from drjax.audits import curve as curves
from drjax.audits.adversary import Scene, View
from drjax.audits.attempts import answer_in
from drjax.audits.config import BOUNDS, AuditConfig
from drjax.audits.fillings import filled_shadows
from drjax.audits.pipeline import Attempt, Pages, Piece, Session, Setting
from drjax.audits.report import save_figures
from drjax.audits.shadows import Stage
from drjax.core.progress import announce
from drjax.core.types import Array, DRMethod, count_status
from drjax.data import split
from drjax.reports import alt_texts, plots
from drjax.reports.curve import DefenseCurve, sections_of
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Figure, Section, Verdict

T = TypeVar("T")

FIGURE_TARGETS = 10
"""Targets shown in the image grid."""

FIGURE_ATTACKS = 3
"""Attacks shown per feature: the figure has one panel each."""

SHADOWS, RELEASES = "shadows", "releases"
"""Stages: releases that the adversary makes, and those under attack."""

PREPARED = "prepared"
"""Folder of what methods made of the known records, which the workers of an audit share."""

COMPARED_SECONDS = 60.0
"""Attacks of the informed adversary that take longer are not run beside those under the switches."""


class EmbeddingSetting(Setting[EmbeddingAttack]):
    """An embedding's sampled targets; see the module."""

    config: AuditConfig
    _kept: Prepared | None

    def prepare(self, *, progress: bool) -> None:
        """See `Setting`."""
        config = self.config
        choice.check(config)
        self.data = data = self.loaded()
        split_key, self._shadow_key, self._attack_key, self._score_key = jax.random.split(
            jax.random.key(config.seed), 4
        )
        self._parts = split(split_key, data, **adversary.sizes(config, len(data.x)))
        self.scene: Scene = adversary.set_scene(jax.random.fold_in(split_key, 1), config, data, self._parts)
        d = data.x.shape[1]
        # Fails now, before the folder is made, if k does not fit the data.
        for believed in (config.dr_method, config.believed.dr_method):
            shape = np.zeros((config.n_known + 1, d), np.float32)
            jax.eval_shape(believed.fit_transform, self._shadow_key, shape)
        found = needs.require(
            needs.of_audit(config, config.n_known, d),
            "this audit",
            "--n-known",
            lambda n_known: needs.of_audit(config, n_known, d),
            config.n_known,
        )
        self._n_held = further.n_held(config, config.n_known + 1, d)
        n_releases = config.n_shadow + config.n_validation + config.n_targets
        self._seconds, self._kept, self._inputs = found.seconds, None, {}
        what = f"{n_releases:,} releases of {config.n_known + 1:,} records"
        announce(what, found.seconds, found.bytes, enabled=progress)

    def pieces(self, session: Session) -> list[Piece]:
        """See `Setting`."""
        n_chunks = {name: self._in_type(lambda name=name: self._stage(session, name).n_chunks) for name in self._staged}
        return [Piece(name, range(i, i + 1)) for name, n in n_chunks.items() for i in range(n)]

    def make(self, session: Session, piece: Piece) -> None:
        """See `Setting`."""
        self._in_type(lambda: self._stage(session, piece.name).make(piece.parts))

    def release(self, session: Session) -> None:
        """See `Setting`: the shadow releases, those under attack, and how good these are."""
        config, scene = self.config, self.scene
        session.say(f"Shadow releases: {config.dr_method} on {config.n_known} known records of {self.data.name}")
        self._shadows = self._in_type(lambda: self._made_shadows(session))
        self._released = self._in_type(self._stage(session, RELEASES).read)
        coords, status = self._released["coords"], self._released["status"]
        self.statuses["shadow releases"] = count_status(self._shadows["status"])
        self.statuses["attacked releases"] = count_status(status)
        self._view: View = adversary.look(jax.random.fold_in(self._attack_key, 1), config, scene, coords)
        if self._view.matched is not None:
            known_rows, target_rows = self._view.matched
            session.folder.record("stage", "matching", known_rows=known_rows, target_rows=target_rows)
        self.threat = self._threat(session)

    def _in_type(self, work: Callable[[], T]) -> T:
        """What `work` returns, with the precision of the releases."""
        with jax.enable_x64(self.config.dtype == "float64"):
            return work()

    @property
    def _staged(self) -> tuple[str, ...]:
        """Stages that are made in chunks."""
        return (RELEASES,) if len(self.scene.hidden) else (SHADOWS, RELEASES)

    def _keys(self) -> tuple[Array, Array]:
        """Keys of the shadow releases and of those under attack: a known seed is that of both, which draw the same."""
        same = (self._shadow_key, self._shadow_key)
        return same if self.config.seed_known else tuple(jax.random.split(self._shadow_key))

    @property
    def _held_records(self) -> np.ndarray:
        """(s, d), public records whose shadow releases are kept."""
        held, scene = self._n_held, self.scene
        return scene.public if held == len(scene.shadow) else np.concatenate([scene.shadow[:held], scene.validation])

    def _made_shadows(self, session: Session) -> dict[str, np.ndarray]:
        scene, n_hidden = self.scene, len(self.scene.hidden)
        if not n_hidden:
            return self._stage(session, SHADOWS).read()
        key, believed = self._keys()[0], self.config.believed
        return filled_shadows(
            session.folder, key, believed, scene.known, n_hidden, scene.public, progress=session.progress
        )

    def _stage(self, session: Session, name: str, defended: DRMethod | None = None) -> Stage:
        """Releases of one stage, or of one that is named after a defence."""
        config, scene = self.config if name == RELEASES else self.config.believed, self.scene
        known, targets = (scene.others, scene.targets) if name == RELEASES else (scene.known, self._held_records)
        if self._kept is None:
            self._kept = Prepared(session.folder.path / PREPARED)
        if defended is not None:
            targets = np.concatenate([scene.public, scene.targets])
        return Stage(
            folder=session.folder,
            name=name,
            key=self._keys()[name == RELEASES],
            config=config,
            known=known,
            targets=targets,
            progress=session.progress,
            method=config.dr_method if defended is None else defended,
            kept=self._kept,
            lanes=self.lanes,
        )

    @functools.cached_property
    def _quality(self) -> quality.ReleaseScores | None:
        """How good the releases under attack are; from `release` on."""
        scene, made = self.scene, self._released
        found = self._in_type(
            lambda: quality.measure(
                self.config.dr_method, scene.others, scene.targets, made["coords"], made["objective"], made["status"]
            )
        )
        return found

    def _threat(self, session: Session) -> EmbeddingThreat:
        config, scene, made, n = self.config, self.scene, self._shadows, self._n_held
        p = len(scene.known)
        shadows = Shadows(
            known=scene.known,
            records=scene.shadow[:n],
            coords=made["coords"][:n],
            validation=scene.validation,
            validation_coords=made["coords"][n:],
            validation_hidden=made["hidden"][n:] if len(scene.hidden) else None,
        )
        return EmbeddingThreat(
            method=config.believed.dr_method,
            known=scene.known,
            coords=self._view.coords,
            shadows=lambda: shadows,
            further=further.passing(self._shadow_key, config, scene, n, session.folder, self._kept),
            public=scene.public,
            hidden=self._view.full[:, p + 1 :] if len(scene.hidden) else None,
            features=scene.features,
            decimals=config.decimals,
            dtype=config.dtype,
            seed_key=self._shadow_key if config.seed_known else None,
            bounds=BOUNDS,
            truth=scene.targets,
            progress=session.progress,
        )

    def attacks(self, session: Session) -> Mapping[str, EmbeddingAttack]:
        """See `Setting`; finds the mean record, with which the others are compared."""
        found = choice.chosen(session.folder, self._attack_key, self.config, self.threat, seconds=self._seconds)
        self._attacks, self._pairs = found, {}
        guess = self._answer(session, "mean", found["mean"], self.threat)[0]["x"]
        self._mean_record = adversary.blind_guess(self.config, self.scene, guess)
        decoys = self.scene.decoys
        held = (self.scene.known, self.scene.public)
        if self.scene.is_known.any():
            held = tuple(records[:, ~self.scene.is_known] for records in held)
        self._nearest_squared = metrics.nearest_among(self.scene.targets[:, ~self.scene.is_known], held)[1]
        self._decoys = metrics.sample_decoys(self._score_key, decoys, min(self.config.n_decoys, len(decoys)))
        return found

    def n_parts(self, attack: EmbeddingAttack) -> int:
        """See `Setting`: sums are a part for each range."""
        passing = self.threat.further
        return 1 if passing is None or attack.summed(self.threat) is None else len(passing.starts)

    def attempt_part(self, session: Session, name: str, attack: EmbeddingAttack, part: int) -> None:
        """See `Setting`."""
        passing, make = self.threat.further, attack.summed(self.threat)
        if passing is not None and make is not None:
            passing.of_range(passing.starts[part], lambda: self._inputs_of(name, make), name)
            return
        self._answer(session, name, attack, self.threat)
        if self._is_compared(attack):
            self._answer(session, f"informed/{name}", attack, self._informed())

    def _inputs_of(self, name: str, make: Callable[[], Inputs]) -> Inputs:
        """What an attack is given of shadow releases, made once for all of its parts."""
        if name not in self._inputs:
            self._inputs[name] = make()
        return self._inputs[name]

    def attempt(self, session: Session, name: str, attack: EmbeddingAttack) -> Attempt:
        """See `Setting`; beside it the informed adversary's, where switches make another one."""
        found = self._attempt(session, name, attack, self.threat)
        if self._is_compared(attack):
            session.say(f"Attack: {attack.label}, informed")
            full = self._attempt(session, f"informed/{name}", attack, self._informed())
            self._pairs[attack.label] = found.scores, full.scores
            session.folder.record(
                "attack",
                f"informed/{name}",
                place=list(self._attacks).index(name),
                label=f"{attack.label}, informed",
                scores=full.scores,
            )
        return found

    def _is_compared(self, attack: EmbeddingAttack) -> bool:
        """Whether the informed adversary's answer is found beside it."""
        if attack.is_baseline or not adversary.is_weaker(self.config):
            return False
        return attack.cost(self.threat).seconds <= COMPARED_SECONDS and not (
            attack.needs_shadows and len(self.scene.hidden)
        )

    def _answer(
        self, session: Session, name: str, attack: EmbeddingAttack, threat: EmbeddingThreat
    ) -> tuple[dict[str, np.ndarray], float]:
        """Under its name in the folder; the draws are the attack's."""
        return answer_in(session.folder, f"attacks/{name}", attack, self._attack_key, threat, stage=name)

    def _attempt(self, session: Session, name: str, attack: EmbeddingAttack, threat: EmbeddingThreat) -> Attempt:
        result, seconds = self._answer(session, name, attack, threat)
        status = result["status"] | self._released["status"]
        scores = self._score(result["x"], status=status, seconds=seconds)
        return Attempt(x=result["x"], status=status, scores=scores, expected_mse=result.get("expected_mse"))

    def _informed(self) -> EmbeddingThreat:
        """What the informed adversary has: all records but the target, rows in order, none of the target's features."""
        return dataclasses.replace(
            self.threat,
            known=self.scene.others,
            coords=self._released["coords"],
            hidden=None,
            features=None,
            # Of fewer known records, shadow releases say nothing of these.
            public=self.threat.public,
            shadows=self._no_shadows if len(self.scene.hidden) else self.threat.shadows,
        )

    def _no_shadows(self) -> Shadows:
        made = self.threat.shadows()
        return dataclasses.replace(made, records=made.records[:0], coords=made.coords[:0])

    def _score(self, x: np.ndarray, *, status: np.ndarray, seconds: float) -> metrics.AttackScores:
        scored, scene = ~self.scene.is_known, self.scene
        names = self.data.sources or self.data.feature_names
        return metrics.evaluate(
            self._score_key,
            x[:, scored],
            scene.targets[:, scored],
            nearest_squared=self._nearest_squared,
            decoys=self._decoys[:, scored],
            mean_record=self._mean_record[:, scored],
            columns=names and [name for name, is_scored in zip(names, scored, strict=True) if is_scored],
            status=status,
            seconds=seconds,
        )

    def targets(self) -> np.ndarray:
        """See `Setting`."""
        return self.scene.targets

    @property
    def rows(self) -> np.ndarray:
        """See `Setting`."""
        return self._parts.targets

    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """See `Setting`."""
        del verdict
        config, data, method = self.config, self.data, self.config.dr_method
        curve = None if config.defense == "none" else self._curve(session, rows)
        if self._kept is not None:
            self._kept.discard()  # all releases are made
        further.discard(session.folder)
        sections: list[Section] = []
        if self._quality is not None:
            counts = self.statuses["attacked releases"]
            session.folder.record("quality", "attacked releases", scores=self._quality, status_counts=counts)
            sections.append(quality.in_words(method, self._quality))
        if curve is not None:
            sections += sections_of(curve, curves.draw(session.folder, curve))
        sections += self._figures(session, attempts, rows)
        possible = choice.possible(method, seed_known=config.seed_known)
        return Pages(
            title=f"What this {method.title} release gives away: {data.name}",
            release=describe.release(config, data, n_records=config.n_known + 1),
            assumptions=adversary.assumptions(config, data, self.scene, self._view, describe.assumptions(config, data)),
            command=describe.command(config),
            tables=(adversary.comparison(self._pairs, self.scene),) if self._pairs else (),
            measured=tuple(sections),
            not_run=tuple(attack.label for name, attack in possible.items() if name not in self._attacks),
            result={"quality": self._quality, "curve": curve},
        )

    def _curve(self, session: Session, rows: tuple[LadderRow, ...]) -> DefenseCurve:
        config = self.config

        def embed(stage: str, defended: DRMethod) -> dict[str, np.ndarray]:
            return self._in_type(self._stage(session, stage, defended).read)

        y = self.data.y
        curve = curves.measure(
            session.folder,
            config,
            self.threat,
            self._attack_key,
            self._attacks,
            (self._shadows, self._released),
            embed,
            baselines=tuple(row for row in rows if row.is_baseline),
            score=self._score,
            labels=None if y is None else (y[self._parts.known], y[self._parts.targets]),
            say=session.say,
        )
        for point in curve.points:
            if point.scale:
                self.statuses[f"{config.defense} at scale {point.scale:g}"] = dict(point.status_counts)
        return curve

    def _figures(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...]
    ) -> tuple[Figure, ...]:
        data, scene, attacks = self.data, self.scene, self._attacks
        labelled = {attacks[name].label: found.x for name, found in attempts.items()}
        if describe.is_image(data.shape):
            shown = {label: x[:FIGURE_TARGETS] for label, x in labelled.items()}
            figure = plots.image_grid(scene.targets[:FIGURE_TARGETS], shown, data.shape)
            text = *describe.IMAGE_FIGURE, alt_texts.image_grid(scene.targets[:FIGURE_TARGETS], shown)
        else:
            hit = [row.label for row in sorted(rows, key=lambda row: row.scores.mse.estimate) if not row.is_baseline]
            shown = {label: labelled[label] for label in hit[:FIGURE_ATTACKS]}
            drawn = scene.targets, shown, scene.public.mean(axis=0)
            units = {"feature_names": data.feature_names, "scale": np.where(data.scale > 0, data.scale, 1)}
            figure = plots.feature_errors(*drawn, **units)
            text = *describe.FEATURE_FIGURE, alt_texts.feature_errors(*drawn, **units)
        scored = ~scene.is_known
        errors = {
            label: metrics.mean_squared_errors(x[:, scored], scene.targets[:, scored]) for label, x in labelled.items()
        }
        neighbor = errors[attacks["nearest"].label]
        errors = {
            attacks[name].label: errors[attacks[name].label] for name in attempts if not attacks[name].is_baseline
        }
        drawn = [
            ("reconstructions", figure, text),
            ("ladder", plots.ladder(rows), (*describe.LADDER_FIGURE, alt_texts.ladder(rows))),
            (
                "errors",
                plots.error_distribution(errors, neighbor),
                (*describe.ERROR_FIGURE, alt_texts.error_distribution(errors, neighbor)),
            ),
        ]
        return save_figures(session.folder.path, drawn)

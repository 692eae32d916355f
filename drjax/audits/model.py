"""The setting of networks: models trained on the known records and one more, attacked by who knows all but that one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.attack import Attack
from drjax.attacks.models.attacks import ModelThreat, vectors_of
from drjax.attacks.registry import ATTACKS
from drjax.audits import describe
from drjax.audits.attempts import answer_in
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.pipeline import Attempt, Pages, Session, Setting
from drjax.audits.report import release_facts, save_figures
from drjax.core import memory
from drjax.core.types import PyTree
from drjax.data import Dataset, split
from drjax.nets.classifier_training import train_many
from drjax.nets.classifiers import accuracy
from drjax.reports import alt_texts, ladder, plots
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Facts, Figure, Verdict

FIGURE_TARGETS = 10
"""Targets shown in the image grid."""


class ModelSetting(Setting):
    """Networks; see the module."""

    config: ModelAuditConfig

    def prepare(self, *, progress: bool) -> None:
        """See `Setting`."""
        del progress
        config = self.config
        self.data = data = self.loaded()
        self._x, self._y = _labelled(data, config)
        keys = jax.random.split(jax.random.key(config.seed), 6)
        split_key, self._start_key, self._order_key, self._noise_key, self._fit_key, self._score_key = keys
        self._parts = split(
            split_key,
            data,
            n_known=config.n_known,
            n_shadow=config.n_shadow,
            n_validation=0,
            n_targets=config.n_targets,
        )
        config.training.model.shapes(self._x.shape[1])
        _require_memory(config, self._x.shape[1])

    def release(self, session: Session) -> None:
        """See `Setting`."""
        config, parts, x, y = self.config, self._parts, self._x, self._y
        model = config.training.model
        self._init = jax.tree.map(np.asarray, model.init(self._start_key, x.shape[1]))
        batches = config.training.batches(self._order_key, config.n_known + 1)
        self._batches = None if batches is None else np.asarray(batches)
        released_key, shadow_key = jax.random.split(self._noise_key)
        session.say(
            f"Models: one for each of {config.n_targets} targets and {config.n_known} known records of {self.data.name}"
        )
        released = self._models(session, "released", parts.targets, released_key)
        self.accuracy = float(np.asarray(accuracy(model, released, x[parts.shadow], y[parts.shadow])).mean())

        def shadows() -> np.ndarray:
            return vectors_of(config.training, self._models(session, "shadows", parts.shadow, shadow_key))

        self.threat = ModelThreat(
            training=config.training,
            mechanism=config.mechanism,
            known=(x[parts.known], y[parts.known]),
            public=(x[parts.shadow], y[parts.shadow]),
            init=self._init,
            batches=self._batches,
            released=released,
            shadows=shadows,
            truth=x[parts.targets],
        )

    def _models(self, session: Session, stage: str, rows: np.ndarray, key: jax.Array) -> PyTree:
        """Models of the known records and each of the rows, read back where they are trained."""
        config, known, x, y = self.config, self._parts.known, self._x, self._y
        mechanism = config.mechanism

        def train() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
            with jax.enable_x64(config.dtype == "float64"):
                params = train_many(
                    config.training,
                    x[known],
                    y[known],
                    x[rows],
                    y[rows],
                    init=self._init,
                    batches=self._batches,
                    mechanism=mechanism,
                    noise_keys=None if mechanism is None else jax.random.split(key, len(rows)),
                    progress=session.progress,
                )
            layers = {f"{i}.{name}": np.asarray(layer[name]) for i, layer in enumerate(params) for name in ("w", "b")}
            return layers, {"n": len(rows)}

        arrays, _ = session.folder.timed(stage, train, stage=stage)
        return tuple({name: arrays[f"{i}.{name}"] for name in ("w", "b")} for i in range(len(self._init)))

    def attacks(self, session: Session) -> Mapping[str, Attack]:
        """See `Setting`."""
        del session
        known, public = self.threat.known[0], self.threat.public[0]
        self._neighbors = np.concatenate([known, public])
        self._decoys = metrics.sample_decoys(self._score_key, public, min(self.config.n_decoys, len(public)))
        self._labels, self._mean_record = None, None
        return {name: ATTACKS["model"][name] for name in self.config.chosen}

    def attempt(self, session: Session, name: str, attack: Attack) -> Attempt:
        """See `Setting`."""
        result, seconds = answer_in(session.folder, f"attacks/{name}", attack, self._fit_key, self.threat, stage=name)
        if self._mean_record is None:
            self._mean_record = result["x"]  # the first of `chosen`
        scores = metrics.evaluate(
            self._score_key,
            result["x"],
            self.targets(),
            neighbors=self._neighbors,
            decoys=self._decoys,
            mean_record=self._mean_record,
            status=result["status"],
            seconds=seconds,
        )
        self._labels = result.get("y", self._labels)
        return Attempt(x=result["x"], status=result["status"], scores=scores, expected_mse=result.get("expected_mse"))

    def targets(self) -> np.ndarray:
        """See `Setting`."""
        return self._x[self._parts.targets]

    @property
    def rows(self) -> np.ndarray:
        """See `Setting`."""
        return self._parts.targets

    def pages(
        self, session: Session, attempts: Mapping[str, Attempt], rows: tuple[LadderRow, ...], verdict: Verdict
    ) -> Pages:
        """See `Setting`."""
        del verdict
        config, data, attacks = self.config, self.data, ATTACKS["model"]
        labelled = {attacks[name].label: found.x for name, found in attempts.items()}
        return Pages(
            title=f"What this network gives away: {data.name}",
            release=_release(config, data, self.accuracy),
            assumptions=_assumptions(config, self._labels, self._y[self._parts.targets]),
            command=shlex.join(["drjax", "audit-model", "--data", config.data]),
            measured=_figures(session, data, self.targets(), rows, labelled),
            not_run=tuple(attack.label for name, attack in attacks.items() if name not in config.chosen),
            caveats=_failures(config, self.statuses),
            result={"accuracy": self.accuracy},
        )


def _require_memory(config: ModelAuditConfig, d: int) -> None:
    """Raises MemoryError, where models and what attacks make of them would need more than is available."""
    shapes = config.training.model.shapes(d)
    n_parameters = sum(math.prod(shape) for layer in shapes for shape in layer.values())
    itemsize = 8 if config.dtype == "float64" else 4
    trains = any(ATTACKS["model"][name].needs_shadows for name in config.chosen)

    def need(n_shadow: int) -> float:
        # Parameters as they are trained, as vectors, and in float64; per-record gradients of the models of a chunk.
        models = (config.n_targets + n_shadow * trains) * n_parameters * (2 * itemsize + 8.0)
        records = 24.0 * (config.n_known + n_shadow) * d
        return models + records + (config.mechanism is not None) * itemsize * (config.n_known + 1.0) * n_parameters

    memory.require(
        need(config.n_shadow),
        "this audit",
        f"{config.n_targets:,} models and {config.n_shadow:,} public records, {n_parameters:,} parameters a model",
        lambda: f"lower --n-shadow ({memory.would_fit(need, config.n_shadow, least=20)}) or --n-targets",
    )


def _failures(config: ModelAuditConfig, statuses: dict[str, dict[str, int]]) -> tuple[str, ...]:
    """A sentence for each attack that says of itself that it failed on some record."""
    failed = {label: config.n_targets - counts["OK"] for label, counts in statuses.items()}
    return tuple(
        f"By its own judgement the attack “{label}” failed for {n} of {config.n_targets} records, which says nothing "
        "about whether they are safe."
        for label, n in failed.items()
        if n
    )


def _labelled(data: Dataset, config: ModelAuditConfig) -> tuple[np.ndarray, np.ndarray]:
    if data.y is None:
        raise ValueError(f"label must name the column of the classes: {config.data} has none without it")
    y = np.asarray(data.y)
    n_classes = config.training.model.n_classes
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(f"n_classes must be more than every label of {config.data}, got {n_classes} and {y.max()}")
    return data.x.astype(config.dtype), y


def _release(config: ModelAuditConfig, data: Dataset, held_out: float) -> Facts:
    model = config.training.model
    widths = "-".join(map(str, (data.x.shape[1], *model.channels, *model.hidden, model.n_classes)))
    d = data.x.shape[1]
    return release_facts(
        method=f"Network {widths}, {model.activation}, {config.training.epochs} epochs by {config.training.optimizer}",
        dataset=data.name,
        n_records=config.n_known + 1,
        n_features=d,
        n_components=model.n_parameters(d),
        precision=config.dtype,
        summary=f"The parameters of a network trained on {config.n_known + 1:,} private records. It classifies "
        f"{ladder.percent(held_out)} of other records correctly.",
        components="Published parameters",
    )


def _assumptions(config: ModelAuditConfig, labels: np.ndarray | None, truth: np.ndarray) -> tuple[str, ...]:
    sentences = [
        f"The adversary knows {config.n_known:,} of the {config.n_known + 1:,} training records, all but one, with "
        "their labels.",
        "The adversary knows the architecture, the hyperparameters, the parameters that training began with and the "
        "order of the records, and sees all published parameters.",
        f"The adversary holds {config.n_shadow:,} other records of the same kind, not trained on.",
        f"{config.n_targets:,} records were attacked, each in a model of its own beside the same known records.",
        "Every feature was scaled to run from 0 to 1, and the adversary knows the scaling.",
    ]
    if config.mechanism is not None:
        mu = config.mechanism.mu(config.training.epochs)
        sentences.append(
            f"Training was differentially private: epsilon {config.epsilon:g} at delta {config.delta:g} for a record "
            f"that is zeroed out (mu {mu:.3g}), gradients clipped to {config.clip_norm:g}; the noise is not known."
        )
    if labels is not None:
        sentences.append(
            f"The label was not known; it was found for {ladder.percent(float(np.mean(labels == truth)))}."
        )
    return tuple(sentences)


def _figures(
    session: Session, data: Dataset, targets: np.ndarray, rows: tuple[LadderRow, ...], found: dict[str, np.ndarray]
) -> tuple[Figure, ...]:
    drawn = []
    if describe.is_image(data.shape):
        shown = {label: x[:FIGURE_TARGETS] for label, x in found.items()}
        grid = plots.image_grid(targets[:FIGURE_TARGETS], shown, data.shape)
        title, caption = describe.IMAGE_FIGURE
        alt = alt_texts.image_grid(targets[:FIGURE_TARGETS], shown)
        drawn.append(("reconstructions", grid, (title, caption.replace("coordinates", "parameters"), alt)))
    drawn.append(("ladder", plots.ladder(rows), (*describe.LADDER_FIGURE, alt_texts.ladder(rows))))
    return save_figures(session.folder.path, drawn)

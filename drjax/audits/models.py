"""The audit of a network: models trained on the known records and one more, attacked, scored and reported."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console

from drjax.attacks import metrics
from drjax.audits import describe
from drjax.audits.config import DTYPES
from drjax.audits.folder import REPORT, RunFolder
from drjax.audits.model_attacks import ATTACKS, ModelAttack, Scene, vectors_of
from drjax.audits.report import audit_report, release_facts, save_figures
from drjax.core import memory, validate
from drjax.core.types import PyTree, count_status
from drjax.data import Dataset, load, split
from drjax.defenses.dp_gd import DPGD, noise_multiplier_for
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import accuracy
from drjax.reports import ladder, page, plots, records
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Facts, Figure, Verdict

NEIGHBOURING = "zero_out"
"""An informed adversary compares a model with the target to one in which it counts for nothing."""

FIGURE_TARGETS = 10


@dataclass(frozen=True, kw_only=True)
class ModelAuditConfig:
    """An audit of one training on one data set.

    Attributes:
        data: Name of a data set (`drjax data list`) or path of a file; its labels are what the network learns.
        data_dir: Folder of the named data sets; $DRJAX_DATA or the download cache if None.
        categorical: Text columns of a table to encode one-hot.
        drop: Columns of a table to leave out.
        label: Label column of a table.
        training: The network and how it is trained, in full batches or in an order that the adversary knows.
        n_known: Records that the adversary knows; a model is trained on one more.
        n_shadow: Public records, whose shadow models the learned attacks train on.
        n_targets: Records attacked, each in a model of its own.
        epsilon: Of full-batch DP-GD, > 0; no noise if None.
        delta: Of DP-GD, in (0, 1).
        clip_norm: Of DP-GD, > 0.
        dtype: What training computes in.
        attacks: Attacks to run, of `ATTACKS`; inversion if empty, "all" for every one.
        n_decoys: Records in the line-up of the identification test beside the target; fewer if there are not as many.
        seed: Of the split, the start, the order, the noise and the intervals.
    """

    data: str = "digits"
    data_dir: str | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    label: str | None = None
    training: Training = Training()  # noqa: RUF009 (frozen)
    n_known: int = 299
    n_shadow: int = 1000
    n_targets: int = 20
    epsilon: float | None = None
    delta: float = 1e-5
    clip_norm: float = 1.0
    dtype: Literal["float32", "float64"] = "float32"
    attacks: tuple[str, ...] = ()
    n_decoys: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.one_of(DTYPES, dtype=self.dtype)
        validate.integer(n_targets=self.n_targets, n_decoys=self.n_decoys)
        validate.integer(minimum=2, n_known=self.n_known)
        validate.integer(minimum=20, n_shadow=self.n_shadow)
        validate.integer(minimum=0, seed=self.seed)
        for name in self.attacks:
            validate.one_of((*ATTACKS, "all"), attacks=name)
        if self.epsilon is not None:
            if self.training.batch_size is not None:
                raise ValueError(f"batch_size must be left out with epsilon, got {self.training.batch_size}")
            _ = self.mechanism  # checks the others

    @property
    def mechanism(self) -> DPGD | None:
        """Clipping and noise, or None."""
        if self.epsilon is None:
            return None
        multiplier = noise_multiplier_for(self.epsilon, self.delta, self.training.epochs, NEIGHBOURING)
        return DPGD(neighbouring=NEIGHBOURING, clip_norm=self.clip_norm, noise_multiplier=multiplier)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The attacks to run, behind both baselines."""
        wanted = self.attacks or ("inversion",)
        names = [name for name in ATTACKS if name in wanted or "all" in wanted]
        return ("mean", "nearest", *(name for name in names if not ATTACKS[name].is_baseline))


@dataclass(frozen=True)
class ModelAuditResult:
    """What an audit found: the run folder, the page in it, the ladder, the verdict, and the released models' accuracy
    on public records.
    """

    folder: Path
    report: Path
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    accuracy: float


def run_model(
    config: ModelAuditConfig,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = False,
    command: str | None = None,
    console: Console | None = None,
) -> ModelAuditResult:
    """Audits one training: writes `records.jsonl`, arrays, figures and `report.html` into the folder `out`.

    Args:
        config: What to audit.
        out: Run folder; new, empty, or with `resume` the one of an interrupted run of the same configuration.
        resume: Go on with an earlier run: models trained and attacks done are read back.
        progress: Show progress bars on standard error.
        command: The shell command to print in the report.
        console: Where to say which stage runs; silent if None.

    Raises:
        ValueError: a configuration that does not fit the data, data without labels or with more classes than the
            network has, or a folder that cannot be used. Nothing is written before.
        OSError: the folder cannot be written, or a data set is not there.
    """
    say = console.print if console is not None else lambda *_: None
    data = load(
        config.data, data_dir=config.data_dir, categorical=config.categorical, drop=config.drop, label=config.label
    )
    x, y = _labelled(data, config)
    split_key, start_key, order_key, noise_key, fit_key, score_key = jax.random.split(jax.random.key(config.seed), 6)
    parts = split(
        split_key,
        data,
        n_known=config.n_known,
        n_shadow=config.n_shadow,
        n_validation=0,
        n_targets=config.n_targets,
    )
    config.training.model.shapes(x.shape[1])
    _require_memory(config, x.shape[1])
    folder = RunFolder(Path(out), config, resume=resume)
    provenance = records.provenance(config.seed)
    folder.record("run", "audit", config=config, provenance=provenance, data=dataclasses.asdict(data.provenance))

    init = jax.tree.map(np.asarray, config.training.model.init(start_key, x.shape[1]))
    batches = config.training.batches(order_key, config.n_known + 1)
    batches = None if batches is None else np.asarray(batches)
    mechanism = config.mechanism

    def models(stage: str, rows: np.ndarray, key: jax.Array) -> PyTree:
        def train() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
            with jax.enable_x64(config.dtype == "float64"):
                params = train_many(
                    config.training,
                    x[parts.known],
                    y[parts.known],
                    x[rows],
                    y[rows],
                    init=init,
                    batches=batches,
                    mechanism=mechanism,
                    noise_keys=None if mechanism is None else jax.random.split(key, len(rows)),
                    progress=progress,
                )
            layers = {f"{i}.{name}": np.asarray(layer[name]) for i, layer in enumerate(params) for name in ("w", "b")}
            return layers, {"n": len(rows)}

        arrays, _ = folder.timed(stage, train, stage=stage)
        return tuple({name: arrays[f"{i}.{name}"] for name in ("w", "b")} for i in range(len(init)))

    released_key, shadow_key = jax.random.split(noise_key)
    say(f"Models: one for each of {config.n_targets} targets and {config.n_known} known records of {data.name}")
    released = models("released", parts.targets, released_key)
    held_out = np.asarray(accuracy(config.training.model, released, x[parts.shadow], y[parts.shadow]))
    scene = Scene(
        training=config.training,
        mechanism=mechanism,
        known=(x[parts.known], y[parts.known]),
        public=(x[parts.shadow], y[parts.shadow]),
        targets=x[parts.targets],
        init=init,
        batches=batches,
        released=released,
        shadows=lambda: vectors_of(config.training, models("shadows", parts.shadow, shadow_key)),
        key=fit_key,
    )
    rows, found, labels, statuses = _climb(config, scene, folder, score_key, say)
    result = ladder.verdict(rows)
    result = dataclasses.replace(result, caveats=(*result.caveats, *_failures(config, statuses)))
    report = audit_report(
        title=f"What this network gives away: {data.name}",
        verdict=result,
        release=_release(config, data, float(held_out.mean())),
        rows=tuple(rows),
        measured=_figures(folder, data, scene.targets, rows, found),
        assumptions=_assumptions(config, labels, y[parts.targets]),
        status_counts=statuses,
        winner=ladder.winner(rows, [a.label for n, a in ATTACKS.items() if n not in config.chosen]),
        command=command or shlex.join(["drjax", "audit-model", "--data", config.data]),
        provenance={**provenance, "data": data.provenance.source, "licence": data.provenance.licence},
    )
    folder.finish()
    page.write(report, folder.path / REPORT)
    return ModelAuditResult(folder.path, folder.path / REPORT, tuple(rows), result, float(held_out.mean()))


def _require_memory(config: ModelAuditConfig, d: int) -> None:
    """Raises MemoryError, where models and what attacks make of them would need more than is available."""
    shapes = config.training.model.shapes(d)
    n_parameters = sum(math.prod(shape) for layer in shapes for shape in layer.values())
    itemsize = 8 if config.dtype == "float64" else 4
    trains = any(ATTACKS[name].needs_shadows for name in config.chosen)

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


def _climb(
    config: ModelAuditConfig, scene: Scene, folder: RunFolder, key: jax.Array, say: Callable[..., Any]
) -> tuple[list[LadderRow], dict[str, np.ndarray], np.ndarray | None, dict[str, dict[str, int]]]:
    """Rows of the ladder, reconstructions by label, labels that were recovered, and counts of statuses."""
    neighbors = np.concatenate([scene.known[0], scene.public[0]])
    decoys = metrics.sample_decoys(key, scene.public[0], min(config.n_decoys, len(scene.public[0])))
    rows, found, statuses, labels, mean_record = [], {}, {}, None, None
    for place, name in enumerate(config.chosen):
        attack = ATTACKS[name]
        say(f"Attack: {attack.label}")

        def make(attack: ModelAttack = attack) -> tuple[dict[str, Any], dict[str, Any]]:
            answer = attack.run(scene)
            m = len(answer.x)
            arrays = {
                "x": answer.x,
                "y": np.full(m, -1) if answer.y is None else answer.y,
                "status": answer.status,
                "expected_mse": np.full(m, np.nan) if answer.expected_mse is None else answer.expected_mse,
            }
            return arrays, {}

        result, seconds = folder.timed(f"attacks/{name}", make, stage=name)
        mean_record = result["x"] if mean_record is None else mean_record  # the first of `chosen`
        scores = metrics.evaluate(
            key,
            result["x"],
            scene.targets,
            neighbors=neighbors,
            decoys=decoys,
            mean_record=mean_record,
            status=result["status"],
            seconds=seconds,
        )
        statuses[attack.label] = count_status(result["status"])
        facts = {"label": attack.label, "scores": scores, "status_counts": statuses[attack.label]}
        if np.isfinite(result["expected_mse"]).any():
            facts["expected_mse"] = float(np.nanmedian(result["expected_mse"]))
        folder.record("attack", name, place=place, **facts)
        found[attack.label] = result["x"]
        labels = result["y"] if (result["y"] >= 0).any() else labels
        rows.append(
            LadderRow(
                label=attack.label,
                description=attack.description,
                scores=scores,
                is_baseline=attack.is_baseline,
                needs_shadows=attack.needs_shadows,
                needs_public=attack.needs_shadows,
                why=attack.why,
            )
        )
    return rows, found, labels, statuses


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
    folder: RunFolder, data: Dataset, targets: np.ndarray, rows: list[LadderRow], found: dict[str, np.ndarray]
) -> tuple[Figure, ...]:
    drawn = []
    if describe.is_image(data.shape):
        shown = {label: x[:FIGURE_TARGETS] for label, x in found.items()}
        grid = plots.image_grid(targets[:FIGURE_TARGETS], shown, data.shape)
        title, caption, alt = describe.IMAGE_FIGURE
        drawn.append(("reconstructions", grid, (title, caption.replace("coordinates", "parameters"), alt)))
    drawn.append(("ladder", plots.ladder(rows), describe.LADDER_FIGURE))
    return save_figures(folder.path, drawn)

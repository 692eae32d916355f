"""The audit, stage by stage: split, shadow releases, attacks, scores, figures, report."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from drjax.attacks import metrics
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_batch_size
from drjax.audits import adversary, describe, needs, quality
from drjax.audits import curve as curves
from drjax.audits.attacks import Attack, chosen, execute_in, fitting
from drjax.audits.config import AuditConfig
from drjax.audits.fillings import filled_shadows
from drjax.audits.folder import REPORT, RunFolder
from drjax.audits.inputs import AttackInputs
from drjax.audits.report import audit_report, save_figures
from drjax.core.progress import announce
from drjax.core.types import Array, DRMethod, count_status
from drjax.data import Dataset, load, split
from drjax.reports import ladder, page, plots, records
from drjax.reports.curve import DefenseCurve, sections_of
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Figure, Section, Verdict

FIGURE_TARGETS = 10
"""Targets shown in the image grid."""

LANE_FIELDS = ("objective", "n_iter", "status")
"""What is kept of each embedding beside its coordinates."""

FIGURE_ATTACKS = 3
"""Attacks shown per feature: the figure has one panel each."""


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes:
        folder: The run folder.
        report: Path of the HTML report in it.
        rows: The attack ladder.
        verdict: On the ladder.
        quality: Of the attacked releases as embeddings; None where it cannot be measured.
        reconstructions: Attack name -> (m, d).
        targets: (m, d) the truth.
        curve: Of the defence; None if none was asked for.
    """

    folder: Path
    report: Path
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    quality: quality.ReleaseScores | None
    reconstructions: dict[str, np.ndarray]
    targets: np.ndarray
    curve: DefenseCurve | None = None


def run(
    config: AuditConfig,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = False,
    command: str | None = None,
    console: Console | None = None,
) -> AuditResult:
    """Audits one release: writes `records.jsonl`, arrays, figures and `report.html` into the folder `out`.

    A run that was killed goes on with `resume`: finished shadow chunks, training epochs and attacks are read back, and
    the results are bit-identical to those of a run that was not interrupted.

    Args:
        config: What to audit.
        out: Run folder; new, empty, or with `resume` the one of an interrupted run of the same configuration.
        resume: Go on with an earlier run.
        progress: Show progress bars on standard error.
        command: The shell command to print in the report; made from the configuration if None.
        console: Where to say which stage runs; silent if None.

    Raises:
        ValueError: a configuration that does not fit the data, bad data, or a folder that cannot be used. Nothing is
            written before the data are loaded and split.
        OSError: the folder cannot be written, or a data set is not there.
        MemoryError: more memory would be needed than is available; said before the folder is made.
    """
    say = console.print if console is not None else lambda *_: None
    attacks, left_out = adversary.fitting(chosen(config), config)
    data = load(
        config.data,
        data_dir=config.data_dir,
        categorical=config.categorical,
        drop=config.drop,
        label=config.label,
    )
    split_key, shadow_key, attack_key, score_key = jax.random.split(jax.random.key(config.seed), 4)
    parts = split(split_key, data, **adversary.sizes(config, len(data.x)))
    scene = adversary.set_scene(jax.random.fold_in(split_key, 1), config, data, parts)
    method = config.dr_method
    # Fails now, before the folder is made, if k does not fit the data.
    for believed in (method, config.believed.dr_method):
        jax.eval_shape(believed.fit_transform, shadow_key, np.zeros((config.n_known + 1, data.x.shape[1]), np.float32))
    d = data.x.shape[1]
    found = needs.require(
        needs.of_audit(config, config.n_known, d),
        "this audit",
        "--n-known",
        lambda n_known: needs.of_audit(config, n_known, d),
        config.n_known,
    )
    n_releases = config.n_shadow + config.n_validation + config.n_targets
    what = f"{n_releases:,} releases of {config.n_known + 1:,} records"
    announce(what, found.seconds, found.bytes, enabled=progress)

    folder = RunFolder(Path(out), config, resume=resume)
    provenance = records.provenance(config.seed)
    folder.record("run", "audit", config=config, provenance=provenance, data=dataclasses.asdict(data.provenance))
    with jax.enable_x64(config.dtype == "float64"):
        say(f"Shadow releases: {method} on {config.n_known} known records of {data.name}")
        if left_out:
            say(f"Left out, because further records are unknown: {', '.join(left_out)}")
        # A known seed is that of the attacked releases, so that both stages draw the same.
        keys = (shadow_key, shadow_key) if config.seed_known else tuple(jax.random.split(shadow_key))
        believed, n_hidden = config.believed, len(scene.hidden)
        if n_hidden:
            shadows = filled_shadows(folder, keys[0], believed, scene.known, n_hidden, scene.public, progress=progress)
        else:
            shadows = _shadows(folder, "shadows", keys[0], believed, scene.known, scene.public, progress)
        released = _shadows(folder, "releases", keys[1], config, scene.others, scene.targets, progress)
        measured = quality.measure(
            method,
            scene.others,
            scene.targets,
            released["coords"],
            released["objective"],
            released["status"],
        )
    statuses = {
        "shadow releases": count_status(shadows["status"]),
        "attacked releases": count_status(released["status"]),
    }
    if measured is not None:
        counts = statuses["attacked releases"]
        folder.record("quality", "attacked releases", scores=measured, status_counts=counts)
    n_shadow = config.n_shadow
    view = adversary.look(jax.random.fold_in(attack_key, 1), config, scene, released["coords"])
    if view.matched is not None:
        folder.record("stage", "matching", known_rows=view.matched[0], target_rows=view.matched[1])
    inputs = AttackInputs(
        key=attack_key,
        config=config.believed,
        known=scene.known,
        shadow=scene.shadow,
        shadow_coords=shadows["coords"][:n_shadow],
        validation=scene.validation,
        validation_coords=shadows["coords"][n_shadow:],
        coords=view.coords,
        targets=scene.targets,
        checkpoint=folder.path / "training.npz",
        progress=progress,
        release_key=shadow_key if config.seed_known else None,
    )
    rows, reconstructions, pairs = [], {}, {}
    neighbors = np.concatenate([inputs.known, inputs.public])
    decoys = metrics.sample_decoys(score_key, scene.decoys, min(config.n_decoys, len(scene.decoys)))
    is_scored = ~scene.is_known
    of_mean = adversary.adapted("mean", attacks["mean"], scene, view)
    mean_record = execute_in(folder, "attacks/mean", "mean", of_mean, inputs, stage="mean")[0]["x"]
    mean_record = adversary.blind_guess(config, scene, mean_record)

    def score(x: np.ndarray, *, status: np.ndarray, seconds: float) -> metrics.AttackScores:
        return metrics.evaluate(
            score_key,
            x[:, is_scored],
            inputs.targets[:, is_scored],
            neighbors=neighbors[:, is_scored],
            decoys=decoys[:, is_scored],
            mean_record=mean_record[:, is_scored],
            status=status,
            seconds=seconds,
        )

    def reconstructed(name: str, attack: Attack, inputs: AttackInputs) -> tuple[np.ndarray, np.ndarray, Any]:
        """Reconstructions, status with that of the releases, scores."""
        result, seconds = execute_in(folder, f"attacks/{name}", name, attack, inputs, stage=name)
        status = result["status"] | released["status"]
        return result["x"], status, score(result["x"], status=status, seconds=seconds)

    for place, (name, attack) in enumerate(attacks.items()):
        say(f"Attack: {attack.label}")
        x, status, scores = reconstructed(name, adversary.adapted(name, attack, scene, view), inputs)
        if adversary.is_weaker(config) and adversary.is_cheap(name, attack, scene):
            say(f"Attack: {attack.label}, informed")
            informed = adversary.informed_inputs(scene, released["coords"], inputs)
            full = reconstructed(f"informed/{name}", attack, informed)[2]
            pairs[attack.label] = scores, full
            folder.record("attack", f"informed/{name}", place=place, label=f"{attack.label}, informed", scores=full)
        statuses[attack.label] = count_status(status)
        facts = {"label": attack.label, "scores": scores, "status_counts": count_status(status)}
        folder.record("attack", name, place=place, **facts)
        rows.append(
            LadderRow(
                label=attack.label,
                description=attack.description,
                scores=scores,
                is_baseline=attack.is_baseline,
                needs_shadows=attack.needs_shadows,
                needs_public=attack.needs_public,
                why=attack.why,
            )
        )
        reconstructions[name] = x
    for place, (stage, counts) in enumerate(statuses.items()):
        folder.record("status", stage, place=place, counts=counts)
    curve = None
    if config.defense != "none":

        def embed(stage: str, defended: DRMethod) -> dict[str, np.ndarray]:
            everybody = np.concatenate([scene.public, scene.targets])
            with jax.enable_x64(config.dtype == "float64"):
                return _shadows(folder, stage, keys[0], config, scene.known, everybody, progress, method=defended)

        curve = curves.measure(
            folder,
            config,
            inputs,
            attacks,
            (shadows, released),
            embed,
            baselines=tuple(row for row in rows if row.is_baseline),
            score=score,
            labels=None if data.y is None else (data.y[parts.known], data.y[parts.targets]),
            say=say,
        )
        statuses |= {
            f"{config.defense} at scale {point.scale:g}": point.status_counts for point in curve.points if point.scale
        }

    verdict = ladder.verdict(rows)
    not_run = [attack.label for name, attack in fitting(config.method).items() if name not in attacks]
    sections: list[Section] = []
    if measured is not None:
        sections.append(quality.in_words(method, measured))
    if curve is not None:
        sections += sections_of(curve, curves.draw(folder, curve))
    sections += _figures(folder, data, inputs, attacks, reconstructions, rows, is_scored)
    report = audit_report(
        title=f"What this {method.title} release gives away: {data.name}",
        verdict=verdict,
        release=describe.release(config, data, n_records=config.n_known + 1),
        rows=tuple(rows),
        assumptions=adversary.assumptions(config, data, scene, view, describe.assumptions(config, data)),
        tables=(adversary.comparison(pairs, scene),) if pairs else (),
        measured=tuple(sections),
        status_counts=statuses,
        winner=ladder.winner(rows, not_run),
        command=command or describe.command(config),
        provenance={**provenance, "data": data.provenance.source, "licence": data.provenance.licence},
    )
    folder.finish()
    page.write(report, folder.path / REPORT)
    return AuditResult(
        folder.path, folder.path / REPORT, tuple(rows), verdict, measured, reconstructions, inputs.targets, curve
    )


def _shadows(
    folder: RunFolder,
    stage: str,
    key: Array,
    config: AuditConfig,
    known: np.ndarray,
    targets: np.ndarray,
    progress: bool,
    *,
    method: DRMethod | None = None,
) -> dict[str, np.ndarray]:
    """Embeddings of [target; known] for every target, chunk by chunk; a finished chunk is never computed again."""
    dtype = np.dtype(config.dtype)
    known_x, target_x = known.astype(dtype), targets.astype(dtype)
    method = config.dr_method if method is None else method
    # The chunk size is part of the result's last bits: a resumed run takes the recorded one.
    size = int(
        folder.arrays(
            f"{stage}/plan",
            lambda: {
                "batch_size": np.asarray(
                    shadow_batch_size(
                        method,
                        known_x,
                        target_x,
                        randomness=config.randomness,
                        also=(config.n_shadow + config.n_validation, config.n_targets),
                    )
                )
            },
        )["batch_size"]
    )
    starts = range(0, len(targets), size)
    done = 0
    while done < len(starts) and (folder.path / stage / f"{starts[done]:08d}.npz").exists():
        done += 1
    begun = time.perf_counter()
    if done < len(starts):
        for offset, embedding in iter_shadow_embeddings(
            key,
            method,
            known_x,
            target_x,
            randomness=config.randomness,
            batch_size=size,
            start=starts[done],
            progress=progress,
        ):
            coords = np.asarray(embedding.coords)
            if config.decimals is not None:
                coords = np.round(coords, config.decimals)
            chunk = {"coords": coords} | {name: np.asarray(getattr(embedding, name)) for name in LANE_FIELDS}
            folder.arrays(f"{stage}/{offset:08d}", lambda chunk=chunk: chunk)
    seconds = time.perf_counter() - begun
    chunks = [records.load_arrays(folder.path / stage / f"{start:08d}.npz") for start in starts]
    gathered = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in ("coords", *LANE_FIELDS)}
    folder.record("stage", stage, n=len(targets), seconds=seconds, status_counts=count_status(gathered["status"]))
    return gathered


def _figures(
    folder: RunFolder,
    data: Dataset,
    inputs: AttackInputs,
    attacks: dict[str, Attack],
    reconstructions: dict[str, np.ndarray],
    rows: list[LadderRow],
    is_scored: np.ndarray,
) -> tuple[Figure, ...]:
    labelled = {attacks[name].label: x for name, x in reconstructions.items()}
    figures = []
    if describe.is_image(data.shape):
        shown = {label: x[:FIGURE_TARGETS] for label, x in labelled.items()}
        figure = plots.image_grid(inputs.targets[:FIGURE_TARGETS], shown, data.shape)
        text = describe.IMAGE_FIGURE
    else:
        hit = [row.label for row in sorted(rows, key=lambda row: row.scores.mse.estimate) if not row.is_baseline]
        figure = plots.feature_errors(
            inputs.targets,
            {label: labelled[label] for label in hit[:FIGURE_ATTACKS]},
            inputs.public.mean(axis=0),
            feature_names=data.feature_names,
            scale=np.where(data.scale > 0, data.scale, 1),
        )
        text = describe.FEATURE_FIGURE
    figures.append(("reconstructions", figure, text))
    figures.append(("ladder", plots.ladder(rows), describe.LADDER_FIGURE))
    errors = {
        attacks[name].label: metrics.mean_squared_errors(x[:, is_scored], inputs.targets[:, is_scored])
        for name, x in reconstructions.items()
        if not attacks[name].is_baseline
    }
    nearest = reconstructions["nearest"]
    neighbor = metrics.mean_squared_errors(nearest[:, is_scored], inputs.targets[:, is_scored])
    figures.append(("errors", plots.error_distribution(errors, neighbor), describe.ERROR_FIGURE))
    return save_figures(folder.path, figures)

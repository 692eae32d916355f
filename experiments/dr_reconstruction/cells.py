"""One task after the other: the shadows of its release, its attack on them, and a record of every cell."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.registry import answer
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_batch_size
from drjax.audits.config import BOUNDS
from drjax.core.statistics import UNKNOWN, Interval
from drjax.core.types import DRMethod, Reconstruction, count_status, is_usable
from drjax.data import Dataset, Splits, split
from drjax.reports import records
from experiments.dr_reconstruction import expected
from experiments.dr_reconstruction.config import ADAPTIVE, LEVELS, Config, Release
from experiments.dr_reconstruction.order import Task

N_DECOYS = 1000

EXAMPLES = "examples"

PLAN = "plan.npz"
"""In a folder of embeddings: how many a chunk has."""

SHADOWS, TARGETS = "shadows", "targets"
"""Embeddings of public records and of those attacked."""

ALL_TARGETS = "release"
"""In records of earlier versions: those attacked, of all noises together."""


@dataclass(frozen=True)
class Lanes:
    """Releases that are attacked together, and where those of each noise are.

    Attributes:
        coords: (m, n, k), target in row 0.
        status: (m,) of the embeddings.
        rows: Slices of the leading axis by the standard deviation of the noise.
    """

    coords: np.ndarray
    status: np.ndarray
    rows: Mapping[float, slice]


def partition(config: Config, data: Dataset, repeat: int) -> Splits:
    """Who is known, public and a target in one repeat: the same for every method and size."""
    plan = next(plan for plan in config.plans if plan.data == data.name)
    return split(
        config.key(data.name, "split", repeat),
        data,
        n_known=plan.max_known,
        n_shadow=plan.n_shadow,
        n_validation=plan.n_validation,
        n_targets=plan.n_targets,
    )


def compute(
    config: Config, task: Task, data: Dataset, out: Path, done: set[Any], *, progress: bool = False
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Computes the cells of one task that are not done, and what of its release was not embedded yet.

    Embeddings are kept in `out` chunk by chunk for the other tasks of the release, and a network's training between
    epochs, so that what is killed goes on where it was, to the same bits.

    Args:
        config: What to compute.
        task: Which cells. A cell is the same whatever other tasks are computed; which noises are in the task changes
            what is learned from shadows by rounding at most.
        data: The data set of the release.
        out: Folder of the run.
        done: What `identity` gives of records that are there.
        progress: Show bars of shadows and epochs on standard error.

    Yields:
        Kind, name and fields of a record: one for all embeddings of a kind and noise, then one for every noise. A
        record of an attack that refuses such a release has `refused`, its message, and no scores.
    """
    release, name = task.release, task.attack
    attack = config.attacks(release)[name]
    made = _Embeddings(config, release, data, out, progress)
    threat, lanes = _part(*_threat(made, task), config.few_targets.get(name))
    given, key = threat, config.key(release.name, "attacks")
    if name.startswith(ADAPTIVE):
        given = _trained_under(made, threat, task.sigmas[0])
    for stage in made.stages:
        if not {(release.name, stage["name"], stage["sigma"]), (release.name, ALL_TARGETS, None)} & done:
            yield "stage", stage["name"], {**stage, "n_features": data.x.shape[1]}
    begun = time.perf_counter()
    try:
        if name.startswith(ADAPTIVE):
            result = answer(attack, key, given, name=name)
            facts = {f"{task.sigmas[0]:g}": result.facts or {}}
        else:
            result = _reconstruct(attack, key, _seen(given, attack), lanes)
            facts = result.facts or {}
        about = {"facts": facts}
    except ValueError as error:
        # An attack may need more known records than a release has: that is a result, and its cells say so.
        result, about = None, {"refused": str(error)}
    about |= {"attack": name, "label": attack.label, "is_baseline": attack.is_baseline}
    seconds = time.perf_counter() - begun
    if result is not None and release.repeat == 0:
        _keep_examples(config, release, data, name, result, lanes, out)
    for sigma in lanes.rows:
        if (release.name, name, sigma) not in done:
            scores = {} if result is None else _scores(config, release, lanes, threat, result, sigma, seconds)
            yield "attack", name, about | {"sigma": sigma} | scores
    assert threat.checkpoint is not None
    threat.checkpoint.unlink(missing_ok=True)


class _Embeddings:
    """What one release's work folder holds or gets: coordinates and status of shadows and of what is attacked.

    Attributes:
        config: What is computed.
        release: Which release.
        data: Its data set.
        parts: Who is known, public and a target.
        folder: Where it is kept.
        stages: What records say of each kind of embedding that was asked for: `n_made` of `n_lanes` were made now.
    """

    def __init__(self, config: Config, release: Release, data: Dataset, out: Path, progress: bool) -> None:
        self.config, self.release, self.data, self.progress = config, release, data, progress
        self.parts = partition(config, data, release.repeat)
        self.folder = work_folder(out, release)
        self.stages: list[dict[str, Any]] = []

    @property
    def known(self) -> np.ndarray:
        """Records that are in every data set."""
        return self.data.x[self.parts.known[: self.release.n_known]]

    def victims(self, sigma: float) -> np.ndarray:
        """Records attacked at a noise."""
        targets = self.data.x[self.parts.targets]
        return targets[: self.config.n_noisy_targets] if sigma else targets

    def targets(self, sigma: float) -> dict[str, np.ndarray]:
        """Releases attacked at a noise."""
        return self._embed(TARGETS, f"{TARGETS}-{sigma:g}", sigma, self.victims(sigma), f"{sigma:g}")

    def shadows(self) -> dict[str, np.ndarray]:
        """Releases of what attacks are trained and stopped on, in this order."""
        public = np.concatenate([self.parts.shadow, self.parts.validation])
        return self._embed(SHADOWS, SHADOWS, 0, self.data.x[public])

    def noisy_shadows(self, sigma: float) -> dict[str, np.ndarray]:
        """Releases of what attacks are trained on, with noise on all records."""
        return self._embed(SHADOWS, f"{SHADOWS}-{sigma:g}", sigma, self.data.x[self.parts.shadow], f"{sigma:g}")

    def _embed(self, kind: str, folder: str, sigma: float, records_: np.ndarray, *path: str) -> dict[str, np.ndarray]:
        audit = self.config.audit(self.release)
        method = _noisy(audit.dr_method, sigma) if sigma else audit.dr_method
        key = self.config.key(self.release.name, kind, *path)
        own, begun = self.folder / folder, time.perf_counter()
        n_left = _n_left(own, len(records_))
        shown = self.progress and kind == SHADOWS
        found = _embed(own, key, method, known=self.known, targets=records_, dtype=audit.dtype, progress=shown)
        facts = {"n_lanes": len(records_), "n_made": n_left, "seconds": time.perf_counter() - begun}
        counts = count_status(found["status"])
        self.stages.append({"name": kind, "sigma": sigma, **facts, "status_counts": counts})
        return found


def lanes_left(config: Config, task: Task, out: Path) -> Iterator[tuple[str, float, int]]:
    """What embeddings a task needs that its work folder lacks: folder, noise, and how many."""
    folder, plan = work_folder(out, task.release), config.plan(task.release)
    wanted = [(SHADOWS, 0.0, plan.n_shadow + plan.n_validation)]
    wanted += [(f"{TARGETS}-{s:g}", s, expected.n_lanes(config, task.release, s)) for s in task.sigmas]
    if task.attack.startswith(ADAPTIVE):
        wanted += [(f"{SHADOWS}-{s:g}", s, plan.n_shadow) for s in task.sigmas]
    for name, sigma, total in wanted:
        if n_left := _n_left(folder / name, total):
            yield name, sigma, n_left


def _n_left(folder: Path, total: int) -> int:
    plan = folder / PLAN
    if not plan.exists():
        return total
    size = int(records.load_arrays(plan)["size"])
    n_chunks = next((i for i, file in enumerate(_chunks(folder, total, size)) if not file.exists()), -1)
    return total - n_chunks * size if n_chunks >= 0 else 0


def _chunks(folder: Path, total: int, size: int) -> list[Path]:
    return [folder / f"{start:08d}.npz" for start in range(0, total, size)]


def _threat(made: _Embeddings, task: Task) -> tuple[EmbeddingThreat, Lanes]:
    """What an attack is given, with the lanes of all noises one after the other, and where each noise's are."""
    config, data, parts = made.config, made.data, made.parts
    shadows = made.shadows()
    usable = np.flatnonzero(is_usable(shadows["status"]))
    public = np.concatenate([parts.shadow, parts.validation])
    shadow = usable[usable < len(parts.shadow)]
    validation = usable[usable >= len(parts.shadow)]
    attacked = {sigma: made.targets(sigma) for sigma in task.sigmas}
    stops = np.cumsum([0, *(len(found["status"]) for found in attacked.values())]).tolist()
    lanes = Lanes(
        coords=np.concatenate([found["coords"] for found in attacked.values()]),
        status=np.concatenate([found["status"] for found in attacked.values()]),
        rows={sigma: slice(*ends) for sigma, ends in zip(attacked, pairwise(stops), strict=True)},
    )
    learned = Shadows(
        known=made.known,
        records=data.x[public[shadow]],
        coords=shadows["coords"][shadow],
        validation=data.x[public[validation]],
        validation_coords=shadows["coords"][validation],
    )
    audit = config.audit(task.release)
    threat = EmbeddingThreat(
        method=audit.dr_method,
        known=made.known,
        coords=lanes.coords,
        shadows=lambda: learned,
        public=np.concatenate([learned.records, learned.validation]),
        dtype=audit.dtype,
        bounds=BOUNDS,
        truth=np.concatenate([made.victims(sigma) for sigma in attacked]),
        checkpoint=made.folder / f"training-{task.attack}.npz",
        progress=made.progress,
    )
    return threat, lanes


def _part(threat: EmbeddingThreat, lanes: Lanes, n: int | None) -> tuple[EmbeddingThreat, Lanes]:
    """What an attack is given that attacks the first n targets of every noise, all if None."""
    if n is None:
        return threat, lanes
    kept = {sigma: np.arange(rows.start, rows.stop)[:n] for sigma, rows in lanes.rows.items()}
    stops = np.cumsum([len(rows) for rows in kept.values()])
    rows = {sigma: slice(stop - len(kept[sigma]), stop) for sigma, stop in zip(kept, stops.tolist(), strict=True)}
    chosen = np.concatenate(list(kept.values()))
    assert threat.truth is not None
    threat = dataclasses.replace(threat, coords=threat.coords[chosen], truth=threat.truth[chosen])
    return threat, Lanes(coords=threat.coords, status=lanes.status[chosen], rows=rows)


def _noisy(method: DRMethod, sigma: float) -> DRMethod:
    """The method on records that each had noise added, none of which is cut off."""
    from drjax.defenses.noisy_dr import InputNoise

    return InputNoise(method=method, sigma=np.asarray(sigma / LEVELS))


def _embed(
    folder: Path, key: Any, method: DRMethod, *, known: np.ndarray, targets: np.ndarray, dtype: str, progress: bool
) -> dict[str, np.ndarray]:
    """Coordinates and status of [target; known] for every target; finished chunks are read from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    known, targets = known.astype(dtype), targets.astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        # The chunk size decides the last bits: what goes on later goes on in the same chunks.
        plan = _stored(folder / PLAN, lambda: {"size": shadow_batch_size(method, known, targets)})
        size = int(plan["size"])
        files = _chunks(folder, len(targets), size)
        n_done = next((i for i, file in enumerate(files) if not file.exists()), len(files))
        if n_done < len(files):
            options = {"batch_size": size, "start": n_done * size, "progress": progress}
            chunks = iter_shadow_embeddings(key, method, known, targets, **options)
            for file, (_, embedding) in zip(files[n_done:], chunks, strict=True):
                records.save_arrays(file, coords=embedding.coords, status=embedding.status)
    found = [records.load_arrays(file) for file in files]
    return {name: np.concatenate([chunk[name] for chunk in found]) for name in ("coords", "status")}


def _stored(file: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
    if not file.exists():
        records.save_arrays(file, **make())
    return records.load_arrays(file)


def _reconstruct(attack: EmbeddingAttack, key: Any, threat: EmbeddingThreat, lanes: Lanes) -> Reconstruction:
    """The answers of one attack to all lanes, and the facts that it tells of those without noise.

    What is learned from shadows and works on any method is trained once, and its answer to a lane is of that lane
    alone. Of other attacks each noise is attacked by itself, so that their facts are those of releases without noise.
    """
    if attack.trains:
        return answer(attack, key, threat)
    truth = threat.truth
    assert truth is not None
    found = [
        answer(attack, key, dataclasses.replace(threat, coords=threat.coords[rows], truth=truth[rows]))
        for rows in lanes.rows.values()
    ]
    return _joined(found)._replace(facts=found[0].facts)


def _joined(results: Sequence[Reconstruction]) -> Reconstruction:
    x, residual_norm, status = (
        np.concatenate([np.asarray(getattr(r, field)) for r in results]) for field in ("x", "residual_norm", "status")
    )
    return Reconstruction(x=x, y=None, candidates=x[:, None], residual_norm=residual_norm, status=status)


def _trained_under(made: _Embeddings, threat: EmbeddingThreat, sigma: float) -> EmbeddingThreat:
    """The threat with shadows of the same public records that had the noise added."""
    found = made.noisy_shadows(sigma)
    usable = is_usable(found["status"])
    records = made.data.x[made.parts.shadow][usable]
    learned = dataclasses.replace(threat.shadows(), records=records, coords=found["coords"][usable])
    public = np.concatenate([records, learned.validation])
    return dataclasses.replace(threat, shadows=lambda: learned, public=public)


def _seen(threat: EmbeddingThreat, attack: EmbeddingAttack) -> EmbeddingThreat:
    """Baselines choose among known records and those that attacks are trained on, without the validation set."""
    return dataclasses.replace(threat, public=threat.shadows().records) if attack.is_baseline else threat


def _scores(
    config: Config,
    release: Release,
    lanes: Lanes,
    threat: EmbeddingThreat,
    result: Reconstruction,
    sigma: float,
    seconds: float,
) -> dict[str, Any]:
    """How near the reconstructions from releases of one noise are to the targets and to those without noise."""
    rows = lanes.rows[sigma]
    assert threat.truth is not None
    x, truth = np.asarray(result.x)[rows], threat.truth[rows]
    public = threat.shadows().records
    status = lanes.status[rows] | np.asarray(result.status, np.uint32)[rows]
    pool = np.concatenate([threat.known, public])
    # One line-up and one set of bootstrap draws for all attacks on a repeat's targets.
    decoy_key, bootstrap_key = jax.random.split(config.key(release.data, "scores", release.repeat))
    scores = metrics.evaluate(
        bootstrap_key,
        x,
        truth,
        neighbors=pool,
        decoys=metrics.sample_decoys(decoy_key, public, min(N_DECOYS, len(public))),
        status=status,
        seconds=seconds * len(x) / len(result.x),
    )
    fields = {"n_pool": len(pool), "scores": scores, "status_counts": count_status(status)}
    if sigma == 0 or 0 not in lanes.rows:
        # Equation 12 is of one attack on both releases; an adaptive one is another under every noise.
        return fields
    return fields | {"eq12": _equation_12(bootstrap_key, np.asarray(result.x)[: len(x)], x, status)}


def _equation_12(key: Any, clean: np.ndarray, noisy: np.ndarray, status: np.ndarray) -> Interval:
    """Mean squared Euclidean distance of reconstructions from noisy releases to those from clean ones, Eq. 12.

    Not divided by the number of entries d, so that its square root is a distance.
    """
    used = is_usable(status) & np.isfinite(clean).all(axis=1) & np.isfinite(noisy).all(axis=1)
    if not used.any():
        return UNKNOWN
    options = {"neighbors": clean[used][:1], "decoys": clean[used][:1], "seconds": 0.0}
    mse = metrics.evaluate(key, noisy[used], clean[used], **options).mse
    return Interval(*(clean.shape[1] * value for value in mse))


def _keep_examples(
    config: Config, release: Release, data: Dataset, attack: str, result: Reconstruction, lanes: Lanes, out: Path
) -> None:
    """Writes the reconstructions of the first targets as grey levels, one array of images for each noise."""
    folder = out / EXAMPLES
    folder.mkdir(parents=True, exist_ok=True)
    first = {
        sigma: slice(rows.start, min(rows.start + config.n_examples, rows.stop)) for sigma, rows in lanes.rows.items()
    }
    shown = {f"{sigma:g}": _images(np.asarray(result.x)[rows], data) for sigma, rows in first.items()}
    file = folder / f"{release.data}-{release.method}-{release.n_known}-{attack}.npz"
    # An attack that is trained under the noise comes once for every noise.
    records.save_arrays(file, **{**(records.load_arrays(file) if file.exists() else {}), **shown})
    targets = partition(config, data, release.repeat).targets[: config.n_examples]
    records.save_arrays(folder / f"{release.data}.npz", original=_images(data.x[targets], data))


def _images(x: np.ndarray, data: Dataset) -> np.ndarray:
    """Grey levels (m, h, w) of records (m, d)."""
    return np.round(LEVELS * np.clip(np.nan_to_num(x), 0, 1)).astype(np.uint8).reshape(-1, *data.shape)


def work_folder(out: Path, release: Release) -> Path:
    """Where a release keeps what it needs until all of its cells are done."""
    return out / "work" / release.name.replace("/", "-")


def identity(record: Mapping[str, Any]) -> tuple[str, str, float | None]:
    """What tells records of a run apart, the first aside: release, attack or kind of embedding, and noise."""
    what = record["attack"] if record["kind"] == "attack" else record["name"]
    return record["release"], what, record.get("sigma")

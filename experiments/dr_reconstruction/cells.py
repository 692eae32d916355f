"""One release after the other: its shadows, the attacks on them, and a record of every cell."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_batch_size
from drjax.audit.attacks import Attack, execute
from drjax.audit.inputs import AttackInputs
from drjax.core.types import DRMethod, Reconstruction, count_status, is_usable
from drjax.data import Dataset, Splits, split
from drjax.reports import records
from experiments.dr_reconstruction.config import ADAPTIVE, LEVELS, Config, Release

N_DECOYS = 1000

EXAMPLES = "examples"

CellName = tuple[str, str, float]
"""Path of the release, attack, and standard deviation of the noise on the records, 0 for none."""


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


def missing(config: Config, release: Release, done: set[CellName]) -> dict[str, Attack]:
    """Attacks on a release of which some cell is not done."""
    return {
        name: attack
        for name, attack in config.attacks(release).items()
        if any((release.name, name, s) not in done for s in config.sigmas_of(release, name))
    }


def compute(
    config: Config, release: Release, data: Dataset, out: Path, done: set[CellName], *, progress: bool = False
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Computes the cells of one release that are not done, each as soon as it is asked for.

    Shadow releases are kept in `out` chunk by chunk and a network's training between epochs, so that what is killed
    goes on where it was, to the same bits.

    Args:
        config: What to compute.
        release: Which one.
        data: Its data set.
        out: Folder of the run.
        done: Cells not to compute.
        progress: Show bars of shadows and epochs on standard error.

    Yields:
        Kind, name and fields of a record: one of the release, then one for every attack and noise. A record of an
        attack that refuses such a release has `refused`, its message, and no scores.
    """
    attacks = missing(config, release, done)
    parts = partition(config, data, release.repeat)
    begun = time.perf_counter()
    inputs, lanes = _inputs(config, release, data, parts, out, progress)
    seconds = time.perf_counter() - begun
    if not any(cell[0] == release.name for cell in done):
        counts = count_status(lanes.status)
        facts = {"seconds": seconds, "n_lanes": len(lanes.status), "n_features": data.x.shape[1]}
        yield "stage", "release", facts | {"status_counts": counts}
    everything = inputs, lanes
    for name, attack in attacks.items():
        inputs, lanes = _part(*everything, config.sigmas_of(release, name), config.few_targets.get(name))
        score = functools.partial(_scores, config, release, lanes, inputs)
        begun = time.perf_counter()
        try:
            if name.startswith(ADAPTIVE):
                trained = functools.partial(_trained_under, config, release, data, parts, out, inputs, progress)
                result, facts = _reconstruct_adapted(name, attack, inputs, lanes, trained)
            else:
                result, facts = _reconstruct(name, attack, _seen(inputs, attack), lanes)
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
                scores = {} if result is None else score(result, sigma, seconds)
                yield "attack", name, about | {"sigma": sigma} | scores
        inputs.checkpoint.unlink(missing_ok=True)


def _inputs(
    config: Config, release: Release, data: Dataset, parts: Splits, out: Path, progress: bool
) -> tuple[AttackInputs, Lanes]:
    """What attacks are given, with the lanes of all noises one after the other, and where each noise's are."""
    audit = config.audit(release)
    method = audit.dr_method
    folder = work_folder(out, release)
    known, targets = data.x[parts.known[: release.n_known]], data.x[parts.targets]
    public = np.concatenate([parts.shadow, parts.validation])
    embed = functools.partial(_embed, known=known, dtype=audit.dtype, progress=progress)

    shadows = embed(folder / "shadows", config.key(release.name, "shadows"), method, targets=data.x[public])
    usable = np.flatnonzero(is_usable(shadows["status"]))
    shadow = usable[usable < len(parts.shadow)]
    validation = usable[usable >= len(parts.shadow)]
    attacked, rows, stop = [], {}, 0
    for sigma in config.sigmas_of(release):
        victims = targets if sigma == 0 else targets[: config.n_noisy_targets]
        released = method if sigma == 0 else _noisy(method, sigma)
        key = config.key(release.name, "targets", f"{sigma:g}")
        attacked.append((victims, embed(folder / f"targets-{sigma:g}", key, released, targets=victims)))
        rows[sigma] = slice(stop, stop + len(victims))
        stop += len(victims)
    lanes = Lanes(
        coords=np.concatenate([found["coords"] for _, found in attacked]),
        status=np.concatenate([found["status"] for _, found in attacked]),
        rows=rows,
    )
    inputs = AttackInputs(
        key=config.key(release.name, "attacks"),
        config=audit,
        known=known,
        shadow=data.x[public[shadow]],
        shadow_coords=shadows["coords"][shadow],
        validation=data.x[public[validation]],
        validation_coords=shadows["coords"][validation],
        coords=lanes.coords,
        targets=np.concatenate([victims for victims, _ in attacked]),
        checkpoint=folder / "training.npz",
        progress=progress,
    )
    return inputs, lanes


def _part(inputs: AttackInputs, lanes: Lanes, sigmas: Sequence[float], n: int | None) -> tuple[AttackInputs, Lanes]:
    """What an attack is given that attacks the first n targets, all if None, of these noises."""
    if n is None and len(sigmas) == len(lanes.rows):
        return inputs, lanes
    kept = {sigma: np.arange(rows.start, rows.stop)[:n] for sigma, rows in lanes.rows.items() if sigma in sigmas}
    stops = np.cumsum([len(rows) for rows in kept.values()])
    rows = {sigma: slice(stop - len(kept[sigma]), stop) for sigma, stop in zip(kept, stops.tolist(), strict=True)}
    chosen = np.concatenate(list(kept.values()))
    inputs = dataclasses.replace(inputs, coords=inputs.coords[chosen], targets=inputs.targets[chosen])
    return inputs, Lanes(coords=inputs.coords, status=lanes.status[chosen], rows=rows)


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
        plan = _stored(folder / "plan.npz", lambda: {"size": shadow_batch_size(method, known, targets)})
        size = int(plan["size"])
        starts = range(0, len(targets), size)
        files = [folder / f"{start:08d}.npz" for start in starts]
        n_done = next((i for i, file in enumerate(files) if not file.exists()), len(files))
        if n_done < len(files):
            options = {"batch_size": size, "start": starts[n_done], "progress": progress}
            chunks = iter_shadow_embeddings(key, method, known, targets, **options)
            for file, (_, embedding) in zip(files[n_done:], chunks, strict=True):
                records.save_arrays(file, coords=embedding.coords, status=embedding.status)
    found = [records.load_arrays(file) for file in files]
    return {name: np.concatenate([chunk[name] for chunk in found]) for name in ("coords", "status")}


def _stored(file: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
    if not file.exists():
        records.save_arrays(file, **make())
    return records.load_arrays(file)


def _reconstruct(
    name: str, attack: Attack, inputs: AttackInputs, lanes: Lanes
) -> tuple[Reconstruction, dict[str, Any]]:
    """The answers of one attack to all lanes, and the facts that it tells of those without noise.

    What is learned from shadows and works on any method is trained once, and its answer to a lane is of that lane
    alone. Other attacks look at all the lanes they are given (lanes may share an estimate of the precision of the
    release, say), so that each noise is attacked by itself: else the noisy lanes would decide the clean answers.
    """
    if attack.needs_shadows and not attack.methods:
        return execute(name, attack, inputs)
    found = [
        execute(name, attack, dataclasses.replace(inputs, coords=inputs.coords[rows], targets=inputs.targets[rows]))
        for rows in lanes.rows.values()
    ]
    return _joined([result for result, _ in found]), found[0][1]


def _joined(results: Sequence[Reconstruction]) -> Reconstruction:
    x, residual_norm, status = (
        np.concatenate([np.asarray(getattr(r, field)) for r in results]) for field in ("x", "residual_norm", "status")
    )
    return Reconstruction(x=x, y=None, candidates=x[:, None], residual_norm=residual_norm, status=status)


def _trained_under(
    config: Config,
    release: Release,
    data: Dataset,
    parts: Splits,
    out: Path,
    inputs: AttackInputs,
    progress: bool,
    sigma: float,
) -> AttackInputs:
    """The inputs with shadows of the same public records that had the noise added."""
    audit = config.audit(release)
    folder = work_folder(out, release) / f"shadows-{sigma:g}"
    key = config.key(release.name, "shadows", f"{sigma:g}")
    public = data.x[parts.shadow]
    method = _noisy(audit.dr_method, sigma)
    made = _embed(folder, key, method, known=inputs.known, targets=public, dtype=audit.dtype, progress=progress)
    usable = is_usable(made["status"])
    return dataclasses.replace(inputs, shadow=public[usable], shadow_coords=made["coords"][usable])


def _reconstruct_adapted(
    name: str, attack: Attack, inputs: AttackInputs, lanes: Lanes, trained: Callable[[float], AttackInputs]
) -> tuple[Reconstruction, dict[str, Any]]:
    """The answers of an attack that is trained under each noise, and the facts that it tells of each."""
    found = {}
    for sigma, rows in lanes.rows.items():
        given = dataclasses.replace(trained(sigma), coords=inputs.coords[rows], targets=inputs.targets[rows])
        found[sigma] = execute(name, attack, given)
    facts = {f"{sigma:g}": told for sigma, (_, told) in found.items()}
    return _joined([result for result, _ in found.values()]), facts


def _seen(inputs: AttackInputs, attack: Attack) -> AttackInputs:
    """Baselines choose among known records and those that attacks are trained on, without the validation set."""
    return dataclasses.replace(inputs, validation=inputs.validation[:0]) if attack.is_baseline else inputs


def _scores(
    config: Config,
    release: Release,
    lanes: Lanes,
    inputs: AttackInputs,
    result: Reconstruction,
    sigma: float,
    seconds: float,
) -> dict[str, Any]:
    """How near the reconstructions from releases of one noise are to the targets and to those without noise."""
    rows = lanes.rows[sigma]
    x, truth = np.asarray(result.x)[rows], inputs.targets[rows]
    status = lanes.status[rows] | np.asarray(result.status, np.uint32)[rows]
    pool = np.concatenate([inputs.known, inputs.shadow])
    # One line-up and one set of bootstrap draws for all attacks on a repeat's targets.
    decoy_key, bootstrap_key = jax.random.split(config.key(release.data, "scores", release.repeat))
    scores = metrics.evaluate(
        bootstrap_key,
        x,
        truth,
        neighbors=pool,
        decoys=metrics.sample_decoys(decoy_key, inputs.shadow, min(N_DECOYS, len(inputs.shadow))),
        status=status,
        seconds=seconds * len(x) / len(result.x),
    )
    fields = {"n_pool": len(pool), "scores": scores, "status_counts": count_status(status)}
    if sigma == 0 or 0 not in lanes.rows:
        # Equation 12 is of one attack on both releases; an adaptive one is another under every noise.
        return fields
    return fields | {"eq12": _equation_12(bootstrap_key, np.asarray(result.x)[: len(x)], x, status)}


def _equation_12(key: Any, clean: np.ndarray, noisy: np.ndarray, status: np.ndarray) -> metrics.Interval:
    """Mean squared Euclidean distance of reconstructions from noisy releases to those from clean ones, Eq. 12.

    Not divided by the number of entries d, so that its square root is a distance.
    """
    used = is_usable(status) & np.isfinite(clean).all(axis=1) & np.isfinite(noisy).all(axis=1)
    if not used.any():
        return metrics.UNKNOWN
    options = {"neighbors": clean[used][:1], "decoys": clean[used][:1], "seconds": 0.0}
    mse = metrics.evaluate(key, noisy[used], clean[used], **options).mse
    return metrics.Interval(*(clean.shape[1] * value for value in mse))


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
    records.save_arrays(folder / f"{release.data}-{release.method}-{release.n_known}-{attack}.npz", **shown)
    targets = partition(config, data, release.repeat).targets[: config.n_examples]
    records.save_arrays(folder / f"{release.data}.npz", original=_images(data.x[targets], data))


def _images(x: np.ndarray, data: Dataset) -> np.ndarray:
    """Grey levels (m, h, w) of records (m, d)."""
    return np.round(LEVELS * np.clip(np.nan_to_num(x), 0, 1)).astype(np.uint8).reshape(-1, *data.shape)


def work_folder(out: Path, release: Release) -> Path:
    """Where a release keeps what it needs until all of its cells are done."""
    return out / "work" / release.name.replace("/", "-")


def cell_names(found: Sequence[Mapping[str, Any]]) -> set[CellName]:
    """Names of the cells that records are of."""
    return {(r["release"], r["attack"], r["sigma"]) for r in found if r["kind"] == "attack"}

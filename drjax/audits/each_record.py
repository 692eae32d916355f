"""Who is exposed: every record of one data set in turn as the one unknown record of one release of all of them.

There is one release. The adversary against record i knows the n-1 others, the method and the release, and no public
data: what is to be expected of a record comes from the known ones. Closed forms share their work over all records; the
others are attacked within the release, one inverse for all, or one by one by a function of `PER_RECORD`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from drjax.attacks import exposure
from drjax.attacks.exposure import Exposure
from drjax.attacks.reconstruction import closed_form, stationarity, within_map
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import describe, exposure_report, needs
from drjax.audits.config import AuditConfig
from drjax.audits.folder import REPORT, RunFolder
from drjax.audits.inputs import BOUNDS
from drjax.audits.report import audit_report
from drjax.core.progress import announce, track
from drjax.core.types import Reconstruction, count_status
from drjax.data import Dataset, load
from drjax.reports import ladder, page, records
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Verdict

MAX_MAP_RECORDS = 8000
"""Most records that are attacked within the map: it takes three matrices of all pairs."""

STATIONARY_RECORDS = 250
"""Most records of an MDS map whose last steps are simulated for each of them: seconds a record, growing as n^3."""

CALIBRATION_MAPS = 8
"""Maps of known records alone on which the size of what an early stop leaves is measured."""

CHUNK = 10
"""Records that `PER_RECORD` attacks between two files."""


@dataclass(frozen=True, kw_only=True)
class EachInputs:
    """What an attack on every record gets.

    Attributes:
        config: The audit's.
        x: (n, d), all records.
        coords: (n, k), the release.
        rows: (m,), records to attack.
    """

    config: AuditConfig
    x: np.ndarray
    coords: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, kw_only=True)
class EachAttack:
    """An attack that does all records at once; nothing of a record may enter its own reconstruction but its row.

    Attributes:
        label: Name in tables and figures.
        description: One sentence in plain words.
        run: From inputs to reconstructions in the order of `rows`.
        methods: DR methods it works on; all if empty.
        most: Most records it can take; None for any number.
    """

    label: str
    description: str
    run: Callable[[EachInputs], Reconstruction]
    methods: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class RecordAttack:
    """An attack on one record, called once for each: `run(config, known, coords, target_index)`, as `reconstruct_pca`.

    Attributes:
        label: Name in tables and figures.
        description: One sentence in plain words.
        run: The configuration, the other records (n-1, d), the release (n, k) and the target's row of it, to a
            reconstruction without leading axis.
        methods: DR methods it works on; all if empty.
    """

    label: str
    description: str
    run: Callable[[AuditConfig, np.ndarray, np.ndarray, int], Reconstruction]
    methods: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class EachResult:
    """What an audit of every record found.

    Attributes:
        folder: The run folder.
        report: Path of the HTML report in it.
        table: Path of the CSV file with one line per record.
        rows: The attack ladder.
        verdict: On the ladder.
        exposure: Of every attacked record, by the strongest attack.
        reconstructions: Attack name -> (m, d), in the order of `exposure.row`.
    """

    folder: Path
    report: Path
    table: Path
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    exposure: Exposure
    reconstructions: dict[str, np.ndarray]


def _closed_form(inputs: EachInputs) -> Reconstruction:
    return closed_form.reconstruct_pca_each(inputs.x, inputs.coords, rows=inputs.rows, bounds=BOUNDS)


def _projection(inputs: EachInputs) -> Reconstruction:
    decimals = inputs.config.decimals
    precision = None if decimals is None else 0.5 * 10.0**-decimals
    return closed_form.reconstruct_srp_each(
        inputs.x, inputs.coords, rows=inputs.rows, precision=precision, bounds=BOUNDS
    )


def _within_map(inputs: EachInputs) -> Reconstruction:
    found = within_map.reconstruct_within_map(inputs.x, inputs.coords, rows=inputs.rows)
    return found._replace(x=np.clip(found.x, *BOUNDS))


EACH: dict[str, EachAttack] = {
    "map": EachAttack(
        label="Neighbours in the map",
        description="Predicts a record from the known records that lie near it in the release.",
        run=_within_map,
        most=MAX_MAP_RECORDS,
    ),
    "closed-form": EachAttack(
        label="Closed form",
        description="Solves the equations of the published components with the other records, and expects of a record "
        "what they show.",
        run=_closed_form,
        methods=("pca", "classical_mds"),
    ),
    "srp-closed-form": EachAttack(
        label="Matrix recovery",
        description="Recovers the projection matrix from the other records, then takes the likeliest record that fits "
        "the coordinates.",
        run=_projection,
        methods=("srp",),
    ),
}
"""Attacks on all records at once, by the name that the command line and the records use."""


def _stationarity_of_one(
    config: AuditConfig, known: np.ndarray, release: np.ndarray, target_index: int
) -> Reconstruction:
    # How a map stops is a matter of the method: maps of the known records alone show it as well.
    stand_ins, rest = np.split(known, [min(CALIBRATION_MAPS, len(known) // 2)])
    with jax.enable_x64(config.dtype == "float64"):
        rows = (rest.astype(config.dtype), stand_ins.astype(config.dtype))
        maps = shadow_embeddings(jax.random.key(config.seed), config.dr_method, *rows)
    scale = stationarity.calibrate(rest, np.asarray(maps.coords), stand_ins)
    return stationarity.reconstruct_mds(
        known, release, prior=GaussianPrior.fit(known), scale=scale, target_index=target_index, bounds=BOUNDS
    )


PER_RECORD: dict[str, RecordAttack] = {
    "stationarity": RecordAttack(
        label="Stationarity and last steps",
        description="Reads the target's distances off the gradient that all but vanishes at the release, and simulates "
        "the steps before an early stop.",
        run=_stationarity_of_one,
        methods=("mds",),
        most=STATIONARY_RECORDS,
    ),
}
"""Attacks on one record at a time, by name: the place to register one that shares nothing between records."""


def run_each(
    config: AuditConfig,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = False,
    command: str | None = None,
    console: Console | None = None,
) -> EachResult:
    """Attacks every record in one release of the data set; writes `exposure.csv`, records, figures and `report.html`.

    Args:
        config: What to audit; `each_record` must be set.
        out: Run folder; new, empty, or with `resume` the one of an interrupted run of the same configuration.
        resume: Go on with an earlier run.
        progress: Show progress bars on standard error.
        command: The shell command to print in the report; made from the configuration if None.
        console: Where to say which stage runs; silent if None.

    Raises:
        ValueError: a configuration that does not fit the data, bad data, or a folder that cannot be used. Nothing is
            written before the data are loaded.
        OSError: the folder cannot be written, or a data set is not there.
        MemoryError: more memory would be needed than is available; said before the folder is made.
    """
    say = console.print if console is not None else lambda *_: None
    if not config.each_record:
        raise ValueError(f"config must have each_record set, got {config.each_record}")
    named = chosen_each(config)
    data = load(
        config.data, data_dir=config.data_dir, categorical=config.categorical, drop=config.drop, label=config.label
    )
    n = len(data.x)
    if n < 4:
        raise ValueError(f"data must have at least 4 records for each_record, got {n} in {data.name}")
    attacks = {name: attack for name, attack in named.items() if attack.most is None or n <= attack.most}
    if not attacks:
        limits = ", ".join(f"{name} up to {attack.most:,}" for name, attack in named.items())
        raise ValueError(f"data must have fewer records for each_record with {config.method!r} ({limits}), got {n:,}")
    release_key, row_key, score_key = jax.random.split(jax.random.key(config.seed), 3)
    method = config.dr_method
    jax.eval_shape(method.fit_transform, release_key, np.zeros(data.x.shape, np.float32))
    rows = np.arange(n)
    if config.max_records is not None and config.max_records < n:
        rows = np.sort(np.asarray(jax.random.permutation(row_key, n))[: config.max_records])

    def need(count: int) -> needs.Needs:
        return needs.of_each(config, count, data.x.shape[1], within_map="map" in attacks)

    found = needs.require(need(n), "this audit", "the number of records in --data", need, n)
    announce(f"preparations for one release of {n:,} records", found.seconds, found.bytes, enabled=progress)

    folder = RunFolder(Path(out), config, resume=resume)
    provenance = records.provenance(config.seed)
    folder.record("run", "audit", config=config, provenance=provenance, data=dataclasses.asdict(data.provenance))
    for name in named.keys() - attacks.keys():
        say(f"Left out: {named[name].label}, which takes at most {named[name].most:,} records")
    say(f"Release: {method} on all {n:,} records of {data.name}")
    released = folder.arrays("release", lambda: _release(config, data, release_key))
    statuses = {"release": count_status(released["status"])}
    inputs = EachInputs(config=config, x=data.x, coords=released["coords"], rows=rows)

    found = _baselines(inputs)
    seconds = dict.fromkeys(found, 0.0)
    for name, attack in attacks.items():
        say(f"Attack: {attack.label} on {len(rows):,} records")
        found[name], seconds[name] = _attacked(folder, name, attack, inputs, progress)
        statuses[attack.label] = count_status(found[name]["status"])
    measured = {name: exposure.measure(r["x"], data.x, rows, r["status"]) for name, r in found.items()}
    texts = exposure_report.BASELINES | {name: (attack.label, attack.description) for name, attack in attacks.items()}
    ladder_rows = []
    for place, (name, result) in enumerate(found.items()):
        exposures = measured[name], measured["mean"]
        row = exposure_report.ladder_row(score_key, texts[name], result, seconds[name], *exposures, data.x)
        row = dataclasses.replace(row, is_baseline=name not in attacks)
        ladder_rows.append(row)
        facts = {"label": row.label, "scores": row.scores, "status_counts": count_status(result["status"])}
        folder.record("attack", name, place=place, **facts)
    for place, (stage, counts) in enumerate(statuses.items()):
        folder.record("status", stage, place=place, counts=counts)

    verdict = ladder.verdict(ladder_rows)
    label = ladder.strongest(ladder_rows).label
    strongest = next(name for name, attack in attacks.items() if attack.label == label)
    table = folder.path / exposure_report.TABLE
    exposure_report.write_table(table, measured[strongest], found[strongest])
    reconstructions = {name: result["x"] for name, result in found.items()}
    tables, figures = exposure_report.contents(
        folder.path,
        data,
        measured,
        reconstructions,
        labels={name: label for name, (label, _) in texts.items()},
        strongest=strongest,
    )
    report = audit_report(
        title=f"Who is exposed by this {method.title} release: {data.name}",
        verdict=verdict,
        release=describe.release(config, data, n_records=n),
        rows=tuple(ladder_rows),
        tables=tables,
        measured=figures,
        assumptions=exposure_report.assumptions(config, data, len(rows)),
        status_counts=statuses,
        command=command or describe.command(config),
        provenance={**provenance, "data": data.provenance.source, "licence": data.provenance.licence},
        limitations=exposure_report.LIMITATIONS,
    )
    folder.finish()
    page.write(report, folder.path / REPORT)
    return EachResult(
        folder.path, folder.path / REPORT, table, tuple(ladder_rows), verdict, measured[strongest], reconstructions
    )


def chosen_each(config: AuditConfig) -> dict[str, EachAttack | RecordAttack]:
    """The configured attacks on every record that fit the method, by name.

    Raises:
        ValueError: an attack that does not exist for each_record or does not fit the method.
    """
    everything: dict[str, EachAttack | RecordAttack] = {**EACH, **PER_RECORD}
    fitting = {name: a for name, a in everything.items() if not a.methods or config.method in a.methods}
    for name in config.attacks:
        if name not in fitting:
            raise ValueError(
                f"attacks must be among {', '.join(fitting)} with each_record for method {config.method!r}, "
                f"got {name!r}"
            )
    return {name: a for name, a in fitting.items() if not config.attacks or name in config.attacks}


def _release(config: AuditConfig, data: Dataset, key: Any) -> dict[str, np.ndarray]:
    with jax.enable_x64(config.dtype == "float64"):
        x = data.x.astype(config.dtype)
        # One more record beside the others: the same embedding by the faster way.
        embedding = shadow_embeddings(key, config.dr_method, x[1:], x[:1])
        coords = np.asarray(embedding.coords[0])
    if not np.isfinite(coords).all():
        raise ValueError(f"data must have a finite release, got nan or infinity from {config.dr_method}")
    if config.decimals is not None:
        coords = np.round(coords, config.decimals)
    return {"coords": coords, "status": np.asarray(embedding.status)}


def _baselines(inputs: EachInputs) -> dict[str, dict[str, np.ndarray]]:
    x = inputs.x.astype(np.float64)
    m = len(inputs.rows)
    guesses = {
        "mean": exposure.means_of_others(x, inputs.rows),
        "nearest": x[exposure.nearest_others(x, inputs.rows)],
    }
    return {name: {"x": guess, "status": np.zeros(m, np.uint32)} for name, guess in guesses.items()}


def _attacked(
    folder: RunFolder, name: str, attack: EachAttack | RecordAttack, inputs: EachInputs, progress: bool
) -> tuple[dict[str, np.ndarray], float]:
    """Reconstructions, read back where finished, and the seconds that they took."""
    if isinstance(attack, EachAttack):
        return folder.timed(f"attacks/{name}", lambda: (_fields(attack.run(inputs)), {}), stage=name)
    starts, parts = range(0, len(inputs.rows), CHUNK), []
    for start in track(starts, f"{attack.label}, {CHUNK} records at a time", enabled=progress):

        def make(start: int = start) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
            return _fields(_each(attack, inputs, inputs.rows[start : start + CHUNK])), {}

        file = f"{name}/{start:08d}"
        parts.append(folder.timed(f"attacks/{file}", make, stage=file))
    fields = {field: np.concatenate([part[field] for part, _ in parts]) for field in ("x", "residual_norm", "status")}
    return fields, sum(seconds for _, seconds in parts)


def _each(attack: RecordAttack, inputs: EachInputs, rows: np.ndarray) -> Reconstruction:
    found = [attack.run(inputs.config, np.delete(inputs.x, row, axis=0), inputs.coords, int(row)) for row in rows]
    x, residual, status = (np.array([getattr(one, f) for one in found]) for f in ("x", "residual_norm", "status"))
    return Reconstruction(x, None, x[:, None], residual, status)


def _fields(found: Reconstruction) -> dict[str, np.ndarray]:
    return {
        "x": np.asarray(found.x),
        "residual_norm": np.asarray(found.residual_norm),
        "status": np.asarray(found.status, np.uint32),
    }

"""A synthetic table for publication: schema with public bounds, noise, manifest, and a report for its owner.

    config = SyntheticReleaseConfig(data=Path("people.csv"), epsilon=1.0, target="income", bounds=Path("bounds.json"))
    result = release_synthetic(config, out)

In the same order as `drjax.releases.pca`: everything is checked; the method is rehearsed on the records with noise from
a known key, for the report; the ledger is charged; noise from the operating system is drawn; the folder appears.
Every published byte but noised values and draws is the same for neighbouring tables: kinds, categories, bounds and
formats are stated or public.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from tyro.conf import Positional

from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import check_positive
from drjax.core import json_files, store, validate
from drjax.data import schema_sources, table_cells
from drjax.data.checksums import sha256
from drjax.data.schema import Schema
from drjax.data.table_files import read_table
from drjax.data.tables import Columns
from drjax.releases import budget, manifest, needs, private_report, rehearsal, synthetic_manifest, synthetic_report
from drjax.releases.folder import check_new_folder, new_folder, private_folder
from drjax.releases.writing import synthetic_table
from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.ron_gauss import RONGauss

SCHEMA, REPORT = "schema.json", "report.html"

DELTA = 1e-6
"""Delta if none is given."""

MOST_COMPONENTS = 50
"""Components if no number is given; fewer where there are fewer features. On one-hot columns fewer lose more than their
lower noise gains: experiments/pca_gauss."""

CLIP_QUANTILE = 0.9
"""Share of the public records' components whose norm the public clip norm covers."""

METHODS = ("pca-gauss", "ron-gauss")


@dataclass(frozen=True, kw_only=True)
class SyntheticReleaseConfig:
    """A release of synthetic records.

    Attributes:
        data: Private records, one a row, with named columns: CSV or Parquet; numbers, text, or both.
        epsilon: Epsilon of the guarantee, > 0.
        delta: Delta of the guarantee; 1e-6 if not given, 0 for Laplace noise. Below 1 / records.
        target: Column to predict from the others: kept out of the components, its classes modelled one by one.
        task: Kind of prediction, classification or regression; if not given, by the target's values.
        method: Synthesis method: pca-gauss (Gaussians in private principal components) or ron-gauss (in random
            directions).
        n_components: Dimension of the Gaussians; 50 if not given, or as many as there are features.
        neighbouring: Neighbouring relation that the guarantee is for. replace_one is the strongest.
        bounds: JSON file: for every column [lower, upper], or the list of its categories; `drjax release schema` writes
            a form to fill in.
        public: Records of the same kind that are no secret, with the same columns: bounds that no file gives, centre,
            components and clipping come from them, and cost nothing.
        bounds_from_private_data: Take missing ranges from the private records: NO GUARANTEE HOLDS THEN. Categories are
            never taken from them.
        n_synthetic: Number of synthetic records; as many as there are private ones if not given.
        drop: Columns to leave out.
        ledger: Budget ledger of the records (drjax.bounds.ledger), charged before noise is drawn.
        trials: Number of rehearsals at each epsilon of the report, 2 or more; 0 for none.
        seed: Seed of the rehearsals. The noise of the release is the operating system's, and nobody can repeat it.
    """

    data: Positional[Path]
    epsilon: float
    delta: float | None = None
    target: str | None = None
    task: Literal["classification", "regression"] | None = None
    method: Literal["pca-gauss", "ron-gauss"] = "pca-gauss"
    n_components: int | None = None
    neighbouring: str = "replace_one"
    bounds: Path | None = None
    public: Path | None = None
    bounds_from_private_data: bool = False
    n_synthetic: int | None = None
    drop: tuple[str, ...] = ()
    ledger: Path | None = None
    trials: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        check_positive(epsilon=self.epsilon)
        if self.delta is not None and not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}")
        validate.one_of(METHODS, method=self.method)
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        for name in ("n_components", "n_synthetic"):
            if getattr(self, name) is not None:
                validate.integer(**{name: getattr(self, name)})
        if self.n_synthetic is None and self.neighbouring == "add_or_remove":
            raise ValueError("n_synthetic must be given under add_or_remove, where the number of records is private")
        if self.task is not None and self.target is None:
            raise ValueError(f"task must be left out without a target, got {self.task!r}")
        if self.public is not None and self.method != "pca-gauss":
            raise ValueError(f"public must be left out for {self.method}, which draws its directions at random")
        if self.trials != 0:
            validate.integer(minimum=2, **{"trials, unless 0,": self.trials})
        validate.integer(minimum=0, seed=self.seed)


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticReleaseResult:
    """What was released, and what was expected of it.

    Attributes:
        folder: Holds the synthetic table, `schema.json` and `manifest.json`, for publication.
        private_folder: Holds `report.html`, which is not for publication.
        manifest: Manifest as written.
        schema: Schema of both tables.
        rehearsed: Results of the rehearsal, see `rehearsal.Rehearsal`; private. None where there is none.
        not_rehearsed: Why there is none; private.
        outside: Counts by column of the cells that were no value that the column may hold, and why; private.
    """

    folder: Path
    private_folder: Path
    manifest: Mapping[str, Any]
    schema: Schema
    rehearsed: rehearsal.Rehearsal | None
    not_rehearsed: str
    outside: Mapping[str, Mapping[str, int]]

    def __repr__(self) -> str:
        """What may be seen by anybody: what was released, under which guarantee, and where it lies."""
        return manifest.in_words(self.manifest, self.folder)


def read_schema(
    private: Columns,
    *,
    bounds: Path | None = None,
    public: Columns | None = None,
    target: str | None = None,
    task: str | None = None,
    drop: tuple[str, ...] = (),
) -> tuple[Schema, tuple[str, ...]]:
    """The schema of a private table by what is stated and by public records, and the columns that neither tells of.

    Nothing but the names of the private table's columns is looked at. Arguments as of the configuration.

    Raises:
        ValueError: a bounds file or public records that do not fit.
        OSError: the file cannot be read.
    """
    names = list(private)
    given = {} if bounds is None else json_files.read_object(bounds, "bounds")
    schema, rest = schema_sources.stated(names, given, target=target, drop=drop, task=task)
    if public is not None:
        schema = schema_sources.completed(schema, [name for name in rest if name in public], public, task=task)
        rest = tuple(name for name in rest if name not in public)
    return schema_sources.in_order(schema, names), rest


def release_synthetic(
    config: SyntheticReleaseConfig, out: Path, *, command: str | None = None, progress: bool = False
) -> SyntheticReleaseResult:
    """Publishes a synthetic table into a new folder.

    Whether there is a release depends on the configuration, the names of the columns and, where the relation makes it
    public, the number of records; no value of a record refuses one.

    Args:
        config: What to release, and how.
        out: A new folder; it appears whole. The report lies beside it, in `folder.private_folder(out)`.
        command: The shell command, for the report.
        progress: Show a bar on standard error.

    Raises:
        ValueError: a column without public bounds, input that does not fit, or a ledger with less left than this costs.
            Nothing is written or charged then.
        OSError: a file cannot be read, or a folder not be written.
    """
    check_new_folder(out)
    made = manifest.software()
    private = read_table(config.data, as_text=True)
    public = None if config.public is None else read_table(config.public)
    schema = _schema(config, private, public)
    holds = not schema.from_records
    n, width = len(private[schema.columns[0].name]), sum(column.width for column in schema.features)
    target = schema.target_column
    is_regression = target is not None and target.kind != "category"
    needs.require_synthetic(
        n, len(schema.columns), width, is_regression=is_regression, trials=config.trials, progress=progress
    )
    x, y = schema.encode(private)
    delta = _delta(config, n)
    method, sources = _method(config, schema, public)
    plan = method.plan(config.epsilon, delta, for_release=True)
    curve = plan.guarantee.curve
    shares = {step: _share(plan, step) for step, spent in plan.spend.items() if spent}
    label = f"synthetic data by {config.method}, epsilon {config.epsilon:g} at delta {delta:g}"
    charged = (sha256(config.data.read_bytes()), config.neighbouring, curve, delta, label)
    if config.ledger is not None:
        budget.check_budget(config.ledger, *charged)
    table_name = f"synthetic{'.parquet' if config.data.suffix.lower() == '.parquet' else '.csv'}"
    rehearsed, reason = _rehearsed(config, method, schema, x, y, delta, progress=progress)
    private_files: dict[str, str] = {}
    with new_folder(out, private_files) as folder:
        if config.ledger is not None:
            budget.charge(config.ledger, *charged)
        published = method.release(x, y, config.epsilon, delta)
        if published.guarantee.curve != curve:
            raise RuntimeError(f"a release must have the curve it was charged for, {curve}; got {published.guarantee}")
        table = synthetic_table(None, published, schema, config.n_synthetic or n)
        with store.atomic_open(folder / table_name) as file:
            file.write(schema.write(table, Path(table_name).suffix))
        store.atomic_write_text(folder / SCHEMA, json.dumps(schema.to_json(), indent=1, ensure_ascii=False) + "\n")
        content = synthetic_manifest.content(
            method,
            schema,
            plan,
            name=config.method,
            epsilon=config.epsilon,
            delta=delta,
            target=config.target,
            n_records=n if config.neighbouring != "add_or_remove" else None,
            n_synthetic=table.num_rows,
            sources=sources,
            budget=shares,
            is_charged=config.ledger is not None,
            files=(table_name, SCHEMA),
        )
        manifest.write(folder, content, made=made, files=[table_name, SCHEMA])
        outside = schema.outside(private)
        private_files[REPORT] = private_report.page_or_reason(
            f"Synthetic data for {config.data.name}",
            lambda title: synthetic_report.report(
                title,
                method=config.method,
                neighbouring=config.neighbouring,
                epsilon=config.epsilon,
                delta=delta,
                schema=schema,
                table_name=table_name,
                n_records=n,
                curve=curve if holds else None,
                proven=plan.guarantee.proven,
                budget=shares,
                rehearsed=rehearsed,
                not_rehearsed=reason,
                outside=outside,
                private=(x, y),
                published=schema.encode({name: table[name] for name in table.column_names}),
                command=command or f"drjax.releases.release_synthetic({config!r})",
                seed=config.seed,
            ),
        )
    written = manifest.read(out / manifest.MANIFEST)
    return SyntheticReleaseResult(out, private_folder(out), written, schema, rehearsed, reason, outside)


def _delta(config: SyntheticReleaseConfig, n: int) -> float:
    """The delta of a release of n records, checked against what the relation makes public of their number."""
    delta = DELTA if config.delta is None else config.delta
    size = n if config.n_synthetic is None or config.neighbouring != "add_or_remove" else config.n_synthetic
    if not delta < 1 / size:
        raise ValueError(f"delta must be below 1 / records = {1 / size:.2g}, or one could be given away; got {delta:g}")
    return delta


def write_schema(
    data: Path,
    out: Path,
    *,
    target: str | None = None,
    task: str | None = None,
    drop: tuple[str, ...] = (),
    public: Path | None = None,
) -> tuple[Schema, tuple[str, ...]]:
    """Writes a bounds file to fill in, readable by the owner alone; arguments as of the configuration.

    Public records state their columns. Every other entry says what the private records hold, which counts for nothing,
    and waits for what is known without them: {"stated": null, "seen": ...}. The file is private.

    Returns:
        The schema of the columns that are stated, and the names of the others.

    Raises:
        ValueError: `out` exists, or a table that does not fit.
        OSError: a file cannot be read or written.
    """
    if out.exists():
        raise ValueError(f"out must be a new file, got {out} which exists: choose another --out")
    private = read_table(data, as_text=True)
    known = None if public is None else read_table(public)
    schema, rest = read_schema(private, public=known, target=target, task=task, drop=drop)
    lines = [
        f" {json.dumps(name, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False)}"
        for name, entry in schema_sources.form(schema, private, rest).items()
    ]
    store.atomic_write_text(out, "{\n" + ",\n".join(lines) + "\n}\n", private=True, replace=False)
    return schema, rest


def refusal(names: Sequence[str]) -> str:
    """What is said where columns have no public bounds."""
    some = ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return (
        f"bounds must not depend on the private records, got none for {some}: pass --bounds FILE (JSON: a range or the "
        "categories of every column; drjax release schema writes a form to fill in) or --public FILE (records of the "
        "same kind that are no secret); or --bounds-from-private-data to go without any guarantee"
    )


def _schema(config: SyntheticReleaseConfig, private: Columns, public: Columns | None) -> Schema:
    """The schema of the release, complete."""
    schema, rest = read_schema(
        private, bounds=config.bounds, public=public, target=config.target, task=config.task, drop=config.drop
    )
    if not rest:
        return schema
    if not config.bounds_from_private_data:
        raise ValueError(refusal(rest))
    is_class = config.task == "classification"
    texts = [c for c in rest if not table_cells.is_numeric_column(private[c]) or (c == config.target and is_class)]
    if texts:
        raise ValueError(
            f"categories must be stated or public, got none for {', '.join(map(repr, texts[:6]))}: "
            "--bounds-from-private-data takes ranges of numbers from the records and never categories, which would be "
            "published as they are"
        )
    read_off = tuple(schema_sources.numbers_of(name, private[name]) for name in rest)
    return schema_sources.in_order(Schema((*schema.columns, *read_off), schema.target), list(private))


def _rehearsed(
    config: SyntheticReleaseConfig,
    method: Any,
    schema: Schema,
    x: np.ndarray,
    y: np.ndarray | None,
    delta: float,
    *,
    progress: bool,
) -> tuple[rehearsal.Rehearsal | None, str]:
    """The rehearsal, or None and why there is none."""
    if not config.trials:
        return None, "none was asked for (--trials 0)"
    key, how = jax.random.key(config.seed), {"n_trials": config.trials, "progress": progress}
    return private_report.attempted(lambda: rehearsal.rehearse(key, method, schema, x, y, config.epsilon, delta, **how))


def _share(plan: Any, step: str) -> float:
    """This step's share of the budget, epsilon (Laplace) or mu^2 (Gaussian); parallel parts each use all of it."""
    power = 2 if plan.noise == "gaussian" else 1
    total = sum(spent**power for spent in plan.spend.values())
    return round(plan.spend[step] ** power / total, 6)


def _method(config: SyntheticReleaseConfig, schema: Schema, public: Columns | None) -> tuple[Any, dict[str, str]]:
    """The method, and where its public numbers are from."""
    box = Box.of(*schema.bounds)
    k = min(MOST_COMPONENTS, box.d) if config.n_components is None else config.n_components
    validate.at_most(box.d, "the features", n_components=k)
    fields: dict[str, Any] = {"neighbouring": config.neighbouring, "box": box, "n_components": k}
    target = schema.target_column
    if target is not None and target.kind == "category":
        fields["n_classes"] = len(target.categories)
    elif target is not None:
        fields["target_range"] = (target.lower, target.upper)
    where = "some from the PRIVATE records themselves" if schema.from_records else "stated or public"
    sources = {"columns": f"{where}; see {SCHEMA}"}
    if config.method == "ron-gauss":
        return RONGauss(**fields), sources
    if public is None:
        return PCAGauss(**fields), sources | {"components": "private, within the budget"}
    rows, _ = schema.encode(public)
    validate.at_least(max(2, k), **{f"the number of records in {config.public}": len(rows)})
    u = np.asarray(box.encode(rows), np.float64)
    centred = u - u.mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:k]
    norms = np.linalg.norm(centred @ components.T, axis=1)
    fields |= {
        "projection": "public",
        "components": components,
        "center": tuple(np.asarray(box.decode(u.mean(axis=0))).astype(float).tolist()),
        "clip_norm": max(float(np.quantile(norms, CLIP_QUANTILE)), 1e-6),
    }
    return PCAGauss(**fields), sources | {"components": f"{len(rows)} public records"}

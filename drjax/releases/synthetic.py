"""A synthetic table for publication: schema with public bounds, noise, manifest, and a report for its owner.

    config = SyntheticReleaseConfig(data=Path("people.csv"), epsilon=1.0, target="income", bounds=Path("bounds.json"))
    result = release_synthetic(config, out)

In the same order as `drjax.releases.pca`: everything is checked; the method is rehearsed on the records with noise from
a known key, for the report; the ledger is charged; noise from the operating system is drawn; the folder appears.
Every published byte but noised values and draws is the same for neighbouring tables: kinds, categories, bounds and
formats are stated or public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
from tyro.conf import Positional

from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import check_positive
from drjax.core import store, validate
from drjax.data.checksums import sha256
from drjax.data.private_tables import read_private
from drjax.data.schema import Schema
from drjax.data.table_files import read_table
from drjax.data.tables import Columns
from drjax.releases import (
    budget,
    manifest,
    needs,
    private_report,
    rehearsal,
    schema_form,
    synthetic_manifest,
    synthetic_report,
)
from drjax.releases.folder import check_new_folder, new_folder, private_folder
from drjax.releases.schema_form import SCHEMA
from drjax.releases.writing import synthetic_table
from drjax.reports.sections import Report
from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.ron_gauss import RONGauss

REPORT = "report.html"

DELTA = 1e-6
"""Delta if none is given."""

MOST_COMPONENTS = 50
"""Components if no number is given; fewer where there are fewer features. On one-hot columns fewer lose more than their
lower noise gains: experiments/pca_gauss."""

CLIP_QUANTILE = 0.9
"""Share of the public records' components whose norm the public clip norm covers."""

METHODS = ("pca-gauss", "ron-gauss")


@dataclass(frozen=True, kw_only=True)
class TableReleaseConfig:
    """What any release takes that rests on synthetic records.

    Attributes:
        data: Private records, one a row, with named columns: CSV or Parquet; whatever cells an audit reads.
        epsilon: Epsilon of the guarantee, > 0.
        delta: Delta of the guarantee; 1e-6 if not given, 0 for Laplace noise. Below 1 / records.
        target: Column to predict from the others: kept out of the components, its classes modelled one by one.
        task: Kind of prediction, classification or regression; if not given, by the target's values.
        neighbouring: Neighbouring relation that the guarantee is for. replace_one is the strongest.
        bounds: JSON file: what is stated of every column, [lower, upper], the list of its categories, or more; `drjax
            release schema` writes a form to fill in.
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
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        if self.n_synthetic is not None:
            validate.integer(n_synthetic=self.n_synthetic)
        if self.n_synthetic is None and self.neighbouring == "add_or_remove":
            raise ValueError("n_synthetic must be given under add_or_remove, where the number of records is private")
        if self.task is not None and self.target is None:
            raise ValueError(f"task must be left out without a target, got {self.task!r}")
        if self.trials != 0:
            validate.integer(minimum=2, **{"trials, unless 0,": self.trials})
        validate.integer(minimum=0, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class SyntheticReleaseConfig(TableReleaseConfig):
    """A release of synthetic records.

    Attributes:
        method: Synthesis method: pca-gauss (Gaussians in private principal components) or ron-gauss (in random
            directions).
        n_components: Dimension of the Gaussians; 50 if not given, or as many as there are features.
    """

    method: Literal["pca-gauss", "ron-gauss"] = "pca-gauss"
    n_components: int | None = None

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        super().__post_init__()
        validate.one_of(METHODS, method=self.method)
        if self.n_components is not None:
            validate.integer(n_components=self.n_components)
        if self.public is not None and self.method != "pca-gauss":
            raise ValueError(f"public must be left out for {self.method}, which draws its directions at random")


class Derived(Protocol):
    """What is published beside a synthetic table, computed from that table alone."""

    def check(self, n: int, width: int) -> None:
        """Before any work: whether it can be computed of n synthetic records with as many encoded features.

        Raises:
            ValueError: it cannot.
        """
        ...

    def publish(self, folder: Path, schema: Schema, x: np.ndarray) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Writes files of synthetic records x (n, m), encoded, into the folder; their names, and manifest entries."""
        ...

    def extended(self, page: Report, real: np.ndarray) -> Report:
        """The private report with what is to be said of it, by the real records (n, m), encoded."""
        ...


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


def release_synthetic(
    config: SyntheticReleaseConfig,
    out: Path,
    *,
    derived: Derived | None = None,
    command: str | None = None,
    progress: bool = False,
) -> SyntheticReleaseResult:
    """Publishes a synthetic table into a new folder.

    Whether there is a release depends on the configuration, the names of the columns and, where the relation makes it
    public, the number of records; no value of a record refuses one.

    Args:
        config: What to release, and how.
        out: A new folder; it appears whole. The report lies beside it, in `folder.private_folder(out)`.
        derived: Further files, of the synthetic records alone.
        command: The shell command, for the report.
        progress: Show a bar on standard error.

    Raises:
        ValueError: a column without public bounds, input that does not fit, or a ledger with less left than this costs.
            Nothing is written or charged then.
        OSError: a file cannot be read, or a folder not be written.
    """
    check_new_folder(out)
    made = manifest.software()
    ready = _checked(config, derived, progress=progress)
    schema, plan, method, delta, n = ready.schema, ready.plan, ready.method, ready.delta, ready.n_records
    curve, x, y = plan.guarantee.curve, ready.x, ready.y
    shares = synthetic_manifest.shares(plan)
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
        store.atomic_write_text(folder / SCHEMA, schema_form.as_text(schema))
        made_x, made_y = schema.encode({name: table[name] for name in table.column_names})
        more, entries = ((), {}) if derived is None else derived.publish(folder, schema, made_x)
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
            sources=ready.sources,
            budget=shares,
            is_charged=config.ledger is not None,
            files=(table_name, SCHEMA, *more),
        )
        manifest.write(folder, {**content, **entries}, made=made, files=[table_name, SCHEMA, *more])

        def page(title: str) -> Report:
            found = synthetic_report.report(
                title,
                method=config.method,
                neighbouring=config.neighbouring,
                epsilon=config.epsilon,
                delta=delta,
                schema=schema,
                table_name=table_name,
                n_records=n,
                curve=None if schema.from_records else curve,
                proven=plan.guarantee.proven,
                budget=shares,
                rehearsed=rehearsed,
                not_rehearsed=reason,
                outside=ready.outside,
                private=(x, y),
                published=(made_x, made_y),
                command=command or f"drjax.releases.release_synthetic({config!r})",
                seed=config.seed,
            )
            return found if derived is None else derived.extended(found, x)

        private_files[REPORT] = private_report.page_or_reason(f"Synthetic data for {config.data.name}", page)
    written = manifest.read(out / manifest.MANIFEST)
    return SyntheticReleaseResult(out, private_folder(out), written, schema, rehearsed, reason, ready.outside)


class _Checked(NamedTuple):
    """What a release has before its noise is drawn.

    Attributes:
        schema: Schema of the published table.
        x: (n, m) private records, encoded.
        y: (n,) their targets, or None.
        outside: Counts of cells that were no value that their column may hold; private.
        delta: Delta of the guarantee.
        method: Synthesizer.
        sources: Origin of each public number, in words.
        plan: Plan by which it spends the budget.
    """

    schema: Schema
    x: np.ndarray
    y: np.ndarray | None
    outside: Mapping[str, Mapping[str, int]]
    delta: float
    method: Any
    sources: Mapping[str, str]
    plan: Any

    @property
    def n_records(self) -> int:
        """Number of private records."""
        return len(self.x)


def _checked(config: SyntheticReleaseConfig, derived: Derived | None, *, progress: bool) -> _Checked:
    """Everything that is read and checked before a ledger is."""
    given, layout = schema_form.read_stated(config.bounds)
    private = read_private(config.data, layout)
    public = None if config.public is None else read_table(config.public)
    stated = schema_form.complete_schema(
        private,
        given,
        public=public,
        target=config.target,
        task=config.task,
        drop=config.drop,
        from_private=config.bounds_from_private_data,
    )
    schema = stated.written
    n, width = len(private[schema.columns[0].name]), sum(column.width for column in schema.features)
    target = schema.target_column
    is_regression = target is not None and target.kind != "category"
    needs.require_synthetic(
        n, len(schema.columns), width, is_regression=is_regression, trials=config.trials, progress=progress
    )
    if derived is not None:
        derived.check(config.n_synthetic or n, width)
    delta = _delta(config, n)
    method, sources = _method(config, schema, public)
    plan = method.plan(config.epsilon, delta, for_release=True)
    return _Checked(schema, *stated.encode(private), stated.outside(private), delta, method, sources, plan)


def _delta(config: SyntheticReleaseConfig, n: int) -> float:
    """The delta of a release of n records, checked against what the relation makes public of their number."""
    delta = DELTA if config.delta is None else config.delta
    size = n if config.n_synthetic is None or config.neighbouring != "add_or_remove" else config.n_synthetic
    if not delta < 1 / size:
        raise ValueError(f"delta must be below 1 / records = {1 / size:.2g}, or one could be given away; got {delta:g}")
    return delta


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

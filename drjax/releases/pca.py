"""A private PCA for publication: bounds, noise, manifest, and a report for whoever holds the records.

    result = release_pca(PCAReleaseConfig(data=Path("records.csv"), epsilon=1.0, bounds=Path("bounds.json")), out)

In this order: everything is checked; the mechanism is rehearsed on the records with noise from a known key, for the
report; the ledger is charged; noise from the operating system is drawn; the folder appears. Nothing is published before
the budget is spent, and no noise is drawn that the ledger refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
from tyro.conf import Positional, arg

from drjax.attacks import roc
from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.data.schema import Schema
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca import PCARelease
from drjax.releases import budget, expected, manifest, needs, pca_report, private_report, schema_form
from drjax.releases import mechanism as mechanisms
from drjax.releases.bounds import Bounds, make_bounds
from drjax.releases.folder import check_new_folder, new_folder, private_folder
from drjax.releases.inputs import (
    Table,
    matched,
    read_public_table,
    read_stated_table,
    read_table,
    states_more,
)
from drjax.releases.schema_form import SCHEMA
from drjax.reports import records

COMPONENTS, REPORT = "components.npz", "report.html"

MOST_COMPONENTS = 10
"""Components if neither a number nor a public sample is given, but at most half as many as columns."""

ARRAYS = {
    "components": "(k, d) orthonormal rows, leading first; coordinates of a record x are ((x - center) / scale) @ "
    "components.T",
    "eigenvalues": "(k,) of the noisy second moment; they may be negative",
    "moment": "(d, d) the noisy second moment itself, about center; where joint is given computed from it, and drawn "
    "to what center and ranges say by themselves; published under the same guarantee, at no further cost",
    "center": "(d,) to subtract from every record, in its units",
    "scale": "(d,) what each column is divided by then",
    "joint": "(d + 1, d + 1) the noisy second moment of (1, (x - origin) / scale): the one noisy answer that center, "
    "moment, components and eigenvalues are computed from",
    "origin": "(d,) public point that records were taken about for that, in their units",
    "row_norm": "() largest norm of a record about the origin (the center where there is none); longer ones were "
    "shortened to it",
    "lower": "(d,) least value of each column, in its units; less was raised to it",
    "upper": "(d,) largest value of each column, in its units; more was lowered to it",
    "columns": "(d,) names",
    "n_records": "() number of records, where it is public",
}
"""What `components.npz` may hold."""


@dataclass(frozen=True, kw_only=True)
class PCAReleaseConfig:
    """A release of one table's principal components.

    Attributes:
        data: Private records, one a row: CSV, Parquet, NPY or NPZ; numbers, in whatever units, or whatever else the
            bounds state of each column.
        epsilon: Epsilon of the guarantee, > 0.
        delta: Delta of the guarantee; 1e-6 with Gaussian noise and 0 with Laplace noise if not given. Below 1 /
            records.
        mechanism: Name of the mechanism; analytic-gauss if not given, laplace-scalar where delta is 0.
        neighbouring: Neighbouring relation that the guarantee is for. replace_one is the strongest; under zero_out the
            same noise has a smaller epsilon; under add_or_remove the number of records is private.
        n_components: Number of components to publish, or the share of the noisy matrix's energy to keep, in (0, 1). If
            not given, those with 90% of the energy of the public records; without these half as many as columns, at
            most 10.
        divisor: Divisor of the sum over records: a public guess at their number, for add_or_remove only.
        bounds: JSON file with a range for every column: {"age": [0, 120], ...}, or {"lower": [...], "upper": [...]};
            or with what is stated of each, as `drjax release schema` asks for: dates and categories become numbers.
        public: Records of the same kind that are no secret: centre, ranges and norm bound come from them.
        bounds_from_private_data: Take the bounds from the private records: NO GUARANTEE HOLDS THEN.
        row_norm: Public bound on the distance of a record from the centre, after scaling; longer ones are shortened.
        standardise: Divide each column by its deviation among the public records, or by half its range.
        drop: Columns to leave out.
        ledger: Budget ledger of the records (drjax.bounds.ledger), charged before noise is drawn.
        trials: Number of noise draws that the expected utility is computed from, 4 or more; 0 to skip the expected
            figures.
        splits: Number of random splits that the expected membership figures are computed from, 2 or more.
        seed: Seed of the report's simulations. The noise of the release is the operating system's, and nobody can
            repeat it.
    """

    data: Positional[Path]
    epsilon: float
    delta: float | None = None
    mechanism: Annotated[str | None, arg(metavar=f"{{{','.join(mechanisms.exact())}}}")] = None
    neighbouring: str = "replace_one"
    n_components: int | float | None = None
    divisor: float | None = None
    bounds: Path | None = None
    public: Path | None = None
    bounds_from_private_data: bool = False
    row_norm: float | None = None
    standardise: bool = False
    drop: tuple[str, ...] = ()
    ledger: Path | None = None
    trials: int = 400
    splits: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        check_positive(epsilon=self.epsilon)
        mechanisms.choose(self.mechanism, self.delta)
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        if (self.divisor is None) == (self.neighbouring == "add_or_remove"):
            raise ValueError(
                "divisor must be given under add_or_remove, where the number of records is private, and only there; "
                f"got {self.divisor} under {self.neighbouring}"
            )
        if self.divisor is not None:
            check_positive(divisor=self.divisor)
        k = self.n_components
        if isinstance(k, float) and not 0 < k < 1:
            raise ValueError(f"n_components must be an integer >= 1 or in (0, 1), got {k}")
        if k is not None and not isinstance(k, float):
            validate.integer(n_components=k)
        if self.bounds_from_private_data and self.ledger is not None:
            raise ValueError("ledger must be left out with --bounds-from-private-data: no budget covers such a release")
        if self.trials != 0:
            validate.integer(minimum=expected.LEAST_TRIALS, **{"trials, unless 0,": self.trials})
        validate.integer(minimum=2, splits=self.splits)
        validate.integer(minimum=0, seed=self.seed)


@dataclass(frozen=True, eq=False, repr=False)
class PCAReleaseResult:
    """What was released, and what was expected of it.

    Attributes:
        folder: Holds `components.npz` and `manifest.json`, for publication.
        private_folder: Holds `report.html`, which is not for publication.
        manifest: Manifest as written.
        release: Release as drawn.
        expected: Utility and membership; private. None where there are none.
        not_expected: Why there are none; private.
        outside: How many cells of the records were cut or replaced; private.
        ceiling: Largest AUC of any attack that tells a record from another in its place; None without guarantee.
    """

    folder: Path
    private_folder: Path
    manifest: Mapping[str, Any]
    release: PCARelease
    expected: tuple[expected.Utility, expected.Membership] | None
    not_expected: str
    outside: int
    ceiling: float | None

    def __repr__(self) -> str:
        """What may be seen by anybody: what was released, under which guarantee, and where it lies."""
        return manifest.in_words(self.manifest, self.folder)


def release_pca(
    config: PCAReleaseConfig, out: Path, *, command: str | None = None, progress: bool = False
) -> PCAReleaseResult:
    """Publishes the components of a table of records into a new folder.

    Whether there is a release depends on the configuration, the names of the columns and, where the relation makes it
    public, the number of records; no value of a record refuses one.

    Args:
        config: What to release, and how.
        out: A new folder; it appears whole. The report lies beside it, in `folder.private_folder(out)`.
        command: The shell command, for the report.
        progress: Show bars on standard error.

    Raises:
        ValueError: no public bounds, input that does not fit, or a ledger with less left than this costs. Nothing is
            written or charged then.
        OSError: a file cannot be read, or the folder not be written.
    """
    name, delta = mechanisms.choose(config.mechanism, config.delta)
    check_new_folder(out)
    made = manifest.software()
    private, public, schema = _tables(config)
    bounds = make_bounds(
        private,
        file=config.bounds,
        public=public,
        from_private=config.bounds_from_private_data,
        row_norm=config.row_norm,
        standardise=config.standardise,
        schema=schema,
    )
    n, d = private.values.shape
    size = n if config.divisor is None else config.divisor
    if not delta < 1 / size:
        raise ValueError(f"delta must be below 1 / records = {1 / size:.2g}, or one could be given away; got {delta:g}")
    sample = None if public is None else bounds.scaled(matched(public, private.columns, d))
    k, k_words = _n_components(config, bounds, sample, d)
    most = k if isinstance(k, int) else d
    needs.require_pca(n, d, most, trials=config.trials, splits=config.splits, progress=progress)
    x = bounds.scaled(bounds.within(private.values))

    def calibrate(epsilon: float) -> Any:
        fields = {"neighbouring": config.neighbouring, "n_components": k, "divisor": config.divisor}
        return mechanisms.calibrated(name, epsilon, delta, bounds=bounds, **fields)

    mechanism = calibrate(config.epsilon)
    proof = mechanisms.proof_of(mechanism)
    label = f"PCA by {name}, epsilon {config.epsilon:g} at delta {delta:g}"
    charged = (private.sha256, config.neighbouring, proof.curve, delta, label)
    if config.ledger is not None:
        budget.check_budget(config.ledger, *charged)
    found, reason = _expected(config, mechanism, calibrate, x, sample, progress=progress)
    swapped = mechanisms.proof_of(mechanisms.with_relation(mechanism, "replace_one"))
    private_files: dict[str, str] = {}
    outside = bounds.outside(private.values) if private.outside is None else private.outside
    with new_folder(out, private_files) as folder:
        if config.ledger is not None:
            budget.charge(config.ledger, *charged)
        released = mechanism.release(x)
        if released.curve != proof.curve:
            raise RuntimeError(f"a release must have the curve it was charged for, {proof.curve}; got {released.curve}")
        arrays = _arrays(config, released, mechanism, bounds, private)
        records.save_arrays(folder / COMPONENTS, **arrays)
        files = [COMPONENTS]
        if schema is not None:
            records.atomic_write_text(folder / SCHEMA, schema_form.as_text(schema))
            files.append(SCHEMA)
        content = _manifest(config, name, delta, released, mechanism, bounds, private, k_words, arrays.keys())
        content["publish"] = f"{', '.join(files)} and this manifest"
        manifest.write(folder, content, made=made, files=files)
        private_files[REPORT] = private_report.page_or_reason(
            f"Private PCA of {config.data.name}",
            lambda title: pca_report.report(
                title,
                mechanism=name,
                epsilon=config.epsilon,
                delta=delta,
                n_records=n,
                columns=d,
                released=released,
                holds=bounds.is_public,
                swapped=swapped.curve,
                sources=content["bounds"],
                outside=outside,
                expectation=found,
                not_expected=reason,
                command=command or f"drjax.releases.release_pca({config!r})",
                seed=config.seed,
            ),
        )
    ceiling = roc.auc_ceiling(swapped.curve) if bounds.is_public else None
    written = manifest.read(out / manifest.MANIFEST)
    return PCAReleaseResult(out, private_folder(out), written, released, found, reason, outside, ceiling)


def _tables(config: PCAReleaseConfig) -> tuple[Table, Table | None, Schema | None]:
    """The private records, the public ones, and the schema that both are encoded by; None where they are numbers."""
    if config.bounds is not None and states_more(config.data, config.bounds):
        private, schema = read_stated_table(config.data, config.bounds, config.drop)
        return private, None if config.public is None else read_public_table(config.public, schema), schema
    private = read_table(config.data, drop=config.drop, is_private=not config.bounds_from_private_data)
    return private, None if config.public is None else read_table(config.public), None


def _expected(
    config: PCAReleaseConfig,
    mechanism: Any,
    calibrate: Any,
    x: np.ndarray,
    sample: np.ndarray | None,
    *,
    progress: bool,
) -> tuple[tuple[expected.Utility, expected.Membership] | None, str]:
    """Utility and membership to expect, or None and why there are none."""
    if not config.trials:
        return None, "nothing was asked for (--trials 0)"
    utility_key, membership_key = jax.random.split(jax.random.key(config.seed))

    def rehearse() -> tuple[expected.Utility, expected.Membership]:
        useful = expected.utility(
            utility_key, mechanism, calibrate, config.epsilon, x, n_trials=config.trials, progress=progress
        )
        options: dict[str, Any] = {"public": sample, "n_splits": config.splits, "progress": progress}
        return useful, expected.membership(membership_key, mechanism, x, **options)

    return private_report.attempted(rehearse)


def _n_components(
    config: PCAReleaseConfig, bounds: Bounds, sample: np.ndarray | None, d: int
) -> tuple[int | float, str]:
    """How many components, and where the number is from."""
    if config.n_components is not None:
        k = config.n_components
        validate.at_most(d, "the columns", n_components=k)
        return k, "given" if not isinstance(k, float) else "those with that share of the noisy matrix's energy"
    if sample is not None:
        moment = np.asarray(pca_utility.second_moment(sample, center=bounds.scaled(bounds.center)), np.float64)
        k = int(pca_utility.k_for_energy(np.linalg.eigvalsh(moment)[::-1]))
        return k, f"those with {pca_utility.ENERGY:.0%} of the energy of the public records"
    return max(1, min(MOST_COMPONENTS, d // 2)), "default"


def _arrays(
    config: PCAReleaseConfig, released: PCARelease, mechanism: Any, bounds: Bounds, private: Table
) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "components": released.components,
        "eigenvalues": released.eigenvalues,
        "moment": released.moment,
        "center": bounds.center,
        "scale": bounds.scale,
        "lower": bounds.lower,
        "upper": bounds.upper,
    }
    if released.mean is not None:
        center = bounds.center + released.mean * bounds.scale
        arrays |= {"joint": released.joint, "origin": bounds.center, "center": center}
    if "row_norm" in mechanism.public_arrays():
        arrays["row_norm"] = bounds.row_norm
    if private.columns is not None:
        arrays["columns"] = np.array(private.columns)
    if config.divisor is None:
        arrays["n_records"] = len(private.values)
    return arrays


def _manifest(
    config: PCAReleaseConfig,
    name: str,
    delta: float,
    released: PCARelease,
    mechanism: Any,
    bounds: Bounds,
    private: Table,
    k_words: str,
    held: Collection[str],
) -> dict[str, Any]:
    n, d = private.values.shape
    k = len(released.components)
    has_norm = "row_norm" in mechanism.public_arrays()
    used = ["center", *(["origin"] if bounds.finds_mean else []), "scale", "ranges"]
    used += ["row_norm"] if has_norm else []
    numbers = {"row_norm": bounds.row_norm} if has_norm and bounds.is_public else {}
    content: dict[str, Any] = {} if bounds.is_public else {"warning": manifest.NOT_PRIVATE}
    return content | {
        "released": f"{k} principal components of {'records' if config.divisor is not None else f'{n:,} records'} with "
        f"{d} columns, by {name}",
        "guarantee": manifest.guarantee(
            released.curve, released.note, epsilon=config.epsilon, delta=delta, holds=bounds.is_public
        ),
        "not_covered": manifest.NOT_COVERED,
        "mechanism": {
            "name": name,
            "parameters": mechanism.parameters(),
            "noise": "discrete, exact, from the operating system; nobody can repeat it",
            "n_components": k,
            "n_components_from": k_words,
            "divisor": config.divisor,
            **numbers,
        },
        "bounds": {bound: bounds.sources[bound] for bound in used},
        "n_records": n if config.divisor is None else None,
        "n_columns": d,
        "ledger": "charged before the noise was drawn" if config.ledger is not None else "none was charged",
        "arrays": {array: words for array, words in ARRAYS.items() if array in held},
    }

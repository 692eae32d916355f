"""A map for publication: an embedding of a private synthetic table, under the guarantee of that table.

    config = MapReleaseConfig(data=Path("patients.csv"), epsilon=1.0, bounds=Path("form.json"), method="tsne")
    result = release_map(config, out)

The synthetic table is released first (`drjax.releases.synthetic`); the map is computed from its records alone, so that
it costs no more privacy, whatever the method. A point of the map is a synthetic record, and no person.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Suppress, arg

from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import needs
from drjax.core import store, validate
from drjax.core.types import DRMethod, count_status
from drjax.data.schema import Schema
from drjax.dr import METHODS, PCA, make_method
from drjax.releases import map_picture, private_report
from drjax.releases.ignorance import uniform_table
from drjax.releases.map_picture import Picture
from drjax.releases.synthetic import (
    SyntheticReleaseConfig,
    SyntheticReleaseResult,
    TableReleaseConfig,
    release_synthetic,
)
from drjax.reports.sections import Report

MAP = "map.csv"

STANDARD = ("standard",)
"""Steps before the method if none are given: every feature gets mean 0 and deviation 1 among the synthetic records."""


@dataclass(frozen=True, kw_only=True)
class MapReleaseConfig(TableReleaseConfig):
    """A release of a map.

    Attributes:
        method: DR method of the map.
        n_components: Coordinates of a record.
        synthesizer: Synthesis method of the records that are mapped: pca-gauss (Gaussians in private principal
            components) or ron-gauss (in random directions).
        synthesizer_components: Dimension of the Gaussians; 50 if not given, or as many as there are features.
        options: Hyperparameters of the DR method by name; its defaults where not given.
        scale: Steps on the encoded features before the method, each from 0 to 1 within its bounds; `STANDARD` if None.
        first_pca: Principal components that the method is given in their place; None for the features.
        whiten: Whether coordinates are scaled to unit variance.
    """

    method: Annotated[str, arg(metavar=f"{{{','.join(METHODS)}}}")] = PCA.name
    n_components: int = 2
    synthesizer: Literal["pca-gauss", "ron-gauss"] = "pca-gauss"
    synthesizer_components: int | None = None
    options: Annotated[Mapping[str, Any], Suppress] = field(default_factory=dict)
    scale: Annotated[tuple[str, ...] | None, Suppress] = None
    first_pca: Annotated[int | None, Suppress] = None
    whiten: Annotated[bool, Suppress] = False

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        super().__post_init__()
        validate.integer(n_components=self.n_components)
        self.dr_method()
        self.table()

    @property
    def steps(self) -> dict[str, Any]:
        """Steps around the method."""
        scale = STANDARD if self.scale is None else self.scale
        return {"scale": scale, "first_pca": self.first_pca, "whiten": self.whiten}

    def dr_method(self) -> DRMethod:
        """The method behind its steps."""
        return make_method(self.method, self.n_components, self.options, **self.steps)

    def table(self) -> SyntheticReleaseConfig:
        """The release of the synthetic records."""
        names = (one.name for one in dataclasses.fields(TableReleaseConfig))
        shared = {name: getattr(self, name) for name in names}
        return SyntheticReleaseConfig(**shared, method=self.synthesizer, n_components=self.synthesizer_components)


@dataclass(frozen=True, eq=False, repr=False)
class MapReleaseResult:
    """What was released, and how good a picture of the real records it is.

    Attributes:
        table: Release of the synthetic records, in the same folder.
        coords: (n, k) coordinates as published, a row for each synthetic record; None where the method failed on them.
        failure: Reason why there is no map; empty where there is one.
        picture: Quality as a map of the real records; private. None where it was not measured.
        not_pictured: Reason why it was not; private.
    """

    table: SyntheticReleaseResult
    coords: np.ndarray | None
    failure: str
    picture: Picture | None
    not_pictured: str

    @property
    def folder(self) -> Path:
        """Holds `map.csv`, the synthetic table, `schema.json` and `manifest.json`, for publication."""
        return self.table.folder

    @property
    def private_folder(self) -> Path:
        """Holds `report.html`, which is not for publication."""
        return self.table.private_folder

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Manifest as written."""
        return self.table.manifest

    def __repr__(self) -> str:
        """What may be seen by anybody: what was released, under which guarantee, and where it lies."""
        return repr(self.table)


def map_config(**fields: Any) -> MapReleaseConfig:
    """A configuration of its fields and, among them by their names, hyperparameters of the method."""
    own = {one.name for one in dataclasses.fields(MapReleaseConfig)}
    options = {name: value for name, value in fields.items() if name not in own}
    given = {name: value for name, value in fields.items() if name in own}
    all_given: dict[str, Any] = {**given, "options": {**given.get("options", {}), **options}}
    return MapReleaseConfig(**all_given)


def release_map(
    config: MapReleaseConfig, out: Path, *, command: str | None = None, progress: bool = False
) -> MapReleaseResult:
    """Publishes a synthetic table and a map of it into a new folder.

    Args:
        config: What to release, and how.
        out: A new folder; it appears whole. The report lies beside it.
        command: The shell command, for the report.
        progress: Show bars on standard error.

    Raises:
        ValueError: as `release_synthetic`, or a method that does not fit the number of synthetic records.
        OSError: a file cannot be read, or a folder not be written.
    """
    derived = _Map(config)
    words = command or f"drjax.releases.map.release_map({config!r})"
    table = release_synthetic(config.table(), out, derived=derived, command=words, progress=progress)
    return MapReleaseResult(table, derived.coords, derived.failure, derived.picture, derived.not_pictured)


def embedded(key: jax.Array, method: DRMethod, x: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Coordinates (n, k) of records (n, m) in float64, and how the computation ended.

    Raises:
        ValueError: as of the method.
    """
    with jax.enable_x64(True):
        # One more record beside the others: the same embedding by the faster way.
        found = shadow_embeddings(key, method, x[1:], x[:1], randomness="shared")
    return np.asarray(found.coords[0], np.float64), count_status(found.status)


class _Map:
    """The map as what is published beside a synthetic table."""

    def __init__(self, config: MapReleaseConfig) -> None:
        self.config, self.method, self.key = config, config.dr_method(), jax.random.key(config.seed)
        self.coords: np.ndarray | None = None
        self.failure, self.not_pictured = "", "the release did not come so far"
        self.picture: Picture | None = None
        self.unit: np.ndarray | None = None
        self.schema: Schema | None = None

    def check(self, n: int, width: int) -> None:
        """Refuses what the method refuses of n records of a width, and what memory does not suffice for."""
        validate.at_least(3, **{"the number of synthetic records": n})
        # Shapes alone: conditions on them are checked when a program is traced.
        jax.eval_shape(self.method.fit_transform, self.key, jax.ShapeDtypeStruct((n, width), jnp.float32))

        def need(count: int) -> needs.Needs:
            return needs.of_embedding(self.method, count, width, with_quality=False)

        needs.require(need(n), "this map", "--n-synthetic", need, n)

    def publish(self, folder: Path, schema: Schema, x: np.ndarray) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Writes the map."""
        lower, upper = schema.bounds
        self.schema, self.unit = schema, (x - lower) / (upper - lower)
        unit = self.unit
        found, self.failure = private_report.attempted(lambda: embedded(self.key, self.method, unit))
        config = self.config
        entry: dict[str, Any] = {
            "method": config.method,
            "hyperparameters": make_method(config.method, config.n_components, config.options),
            "steps": config.steps,
            "of": "the synthetic records, a row for each in their order; every feature from 0 to 1 within its bounds",
            "target": "not mapped" if config.target is not None else None,
            "guarantee": "that of the synthetic records, from which alone it is computed",
        }
        if found is None:
            return (), {"map": entry | {"failed": self.failure}}
        self.coords, status = found
        title = METHODS[config.method].title
        released = f"{len(x):,} synthetic records with {len(schema.columns)} columns, and a map of them by {title}"
        names = [f"{config.method}{i + 1}" for i in range(self.coords.shape[1])]
        store.atomic_write_columns(folder / MAP, names, self.coords)
        return (MAP,), {"released": released, "map": entry | {"status_counts": status}}

    def extended(self, page: Report, real: np.ndarray) -> Report:
        """The report with the map as a picture of the real records."""
        if self.coords is None or self.unit is None or self.schema is None:
            self.not_pictured = self.failure
            return map_picture.without(page, self.failure)
        lower, upper = self.schema.bounds
        coords, made, keys = self.coords, self.unit, jax.random.split(jax.random.fold_in(self.key, 1), 3)
        uniform = uniform_table(keys[0], self.schema, len(made)).x
        records, uniform = ((one - lower) / (upper - lower) for one in (real, uniform))
        self.picture, self.not_pictured = private_report.attempted(
            lambda: map_picture.measured(
                keys[1], records, made, coords, uniform, lambda x: embedded(keys[2], self.method, x)[0]
            )
        )
        return map_picture.extended(page, self.picture, self.not_pictured, coords)

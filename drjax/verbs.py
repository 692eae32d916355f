"""The front door: what the commands do, as functions on paths, arrays and DataFrames.

import drjax
result = drjax.audit(frame, method="tsne", perplexity=20)
print(result.verdict.sentence)
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drjax import sweeps
from drjax.attacks.answer import Answer
from drjax.attacks.embedding import attack_embedding, attack_rows
from drjax.attacks.recognition.agreement import Stated
from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import AuditConfig, AuditResult, run
from drjax.audits.config import RECOGNISED
from drjax.audits.folder import run_folder
from drjax.audits.released import Released, name_of
from drjax.bounds import rero
from drjax.bounds.statement import Mechanism
from drjax.core import validate
from drjax.core.progress import in_notebook
from drjax.core.types import Array, DRMethod, Embedding
from drjax.data import Values, in_own_units, load, read_values, records_of
from drjax.data.frames import values_from_memory
from drjax.data.given_map import read_map
from drjax.data.sheets import sheet_of
from drjax.decisions import decide
from drjax.dr import METHODS, PCA, make_method
from drjax.releases import PCAReleaseConfig, release_pca
from drjax.releases.map import map_config, release_map
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic
from drjax.sweeps import SweepResult
from drjax.sweeps.config import LANES


def audit(
    data: Any,
    *,
    out: str | Path | None = None,
    method: str | None = None,
    released: Any = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    label: str | None = None,
    schema: Any = None,
    id: str | None = None,
    resume: bool = False,
    executor: str | Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> AuditResult:
    """Attacks embeddings of a data set, or a given map, and writes a report of what publishing it would give away.

    Args:
        data: Name of a data set, path of a file or image folder, array (n, d) or (n, height, width), or DataFrame.
        out: Run folder; `runs/NAME-METHOD-nN` if None, with a number behind it if that exists.
        method: Key of `METHODS`; PCA if None, or with `released` recognised.
        released: Map to attack, one row per record in the order of the data, which is used as it is, not scaled: path,
            array (n, k) or DataFrame of numbers. Maps of the audit's own if None.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        label: Label column of a table; it is not attacked.
        schema: What is stated of the columns of a table, by column, or a file of that (`drjax data plan`).
        id: Column of a table that records are called by; the first that tells them apart if None.
        resume: Go on with an earlier run in `out`.
        executor: Where releases and attacks are computed: "local" for processes of this machine, "ray", "dask",
            "slurm" or an executor of your own, see `drjax.core.executors`; in this process if None. Results are the
            same. Workers must reach `out`, and data that are named, as this process does.
        workers: Workers to ask for; as many as there are cores, or as the cluster has, if None.
        progress: Show progress: bars in a terminal, and in a notebook that has ipywidgets; else lines on standard
            error. In notebooks alone if None.
        **options: Fields of `AuditConfig`, such as n_known, n_components, attacks, each_record; and hyperparameters of
            the method, such as perplexity.

    Raises:
        ValueError: an option that neither has, or as of `drjax.audits.run`.

    Example:
        >>> import drjax, tempfile
        >>> sizes = {"n_known": 30, "n_shadow": 60, "n_validation": 20, "n_targets": 10}
        >>> x = drjax.load("digits").x[:200]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = drjax.audit(x, out=f"{folder}/run", attacks=("closed-form",), **sizes)
        >>> result.verdict.level
        'high'
    """
    found = load(data, categorical=categorical, drop=drop, label=label, schema=schema, id=id)
    if method is not None:
        validate.one_of((*METHODS, RECOGNISED), method=method)
    names = {field.name for field in dataclasses.fields(AuditConfig)} - {"hyperparameters", "data", "method"}
    own = {name: value for name, value in options.items() if name not in names}
    is_named = isinstance(data, str | Path)
    columns = {"categorical": tuple(categorical), "drop": tuple(drop), "label": label, "id": id} if is_named else {}
    config = AuditConfig(
        data=str(data) if is_named else found.name,
        method=method or "",
        released=None if released is None else name_of(released, found.rows),
        hyperparameters=own,
        **columns,
        **{name: value for name, value in options.items() if name in names},
    )
    folder = run_folder(config.run_name, resume=resume) if out is None else Path(out)
    published = None
    if released is not None:
        values = in_own_units(data, found)
        published = Released(values, read_map(released, found.rows))
    shows = in_notebook() if progress is None else progress
    told: dict[str, Any] = {"executor": executor, "workers": workers, "resume": resume, "progress": shows}
    return run(config, folder, data=found, released=published, decide=decide, **told)


def sweep(
    data: Any,
    *,
    out: str | Path,
    over: Mapping[str, Sequence[Any]],
    lanes: int = LANES,
    executor: str | Executor = "local",
    workers: int | None = None,
    keep: bool = False,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    label: str | None = None,
    schema: Any = None,
    id: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> SweepResult:
    """Audits with settings crossed, by any number of workers; what a store holds already is not computed again.

    Args:
        data: Name of a data set, path of a file or image folder, array (n, d) or (n, height, width), or DataFrame.
        out: Store: a folder, or an address such as s3://bucket/folder whose package of fsspec is installed. One Parquet
            file a cell; DuckDB reads them all by `out/cells/*.parquet`.
        over: Values by setting, each crossed with the others: fields of `AuditConfig`, or hyperparameters, which are
            left out of the cells of methods without them.
        lanes: Releases of a task, at most.
        executor: Where cells are computed: "local" for processes of this machine, "ray", "dask", "slurm" or an executor
            of your own. Results are the same.
        workers: Workers to ask for; as many as there are cores, or as the cluster has, if None.
        keep: Keep releases and reconstructions of finished cells.
        categorical, drop, label, schema, id: What is stated of the columns of a table, as for `audit`.
        progress: Show progress, as for `audit`.
        **options: Fields of `AuditConfig` and hyperparameters that all cells have in common.

    Raises:
        ValueError: a setting that no audit has or that does not go with the others, a store of another sweep, or as of
            `drjax.audits.run`. What is finished stays.
        OSError: the store cannot be reached, or is full. What is finished stays.

    Example:
        >>> import drjax, tempfile
        >>> sizes = {"n_known": 30, "n_shadow": 20, "n_validation": 10, "n_targets": 5, "attacks": ("closed-form",)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     over = {"n_components": (1, 2)}
        ...     found = drjax.sweep("digits", out=folder, over=over, workers=1, **sizes)
        ...     sorted(set(found.table["cell"]))
        ['n_components=1', 'n_components=2']
    """
    found = load(data, categorical=categorical, drop=drop, label=label, schema=schema, id=id)
    is_named = isinstance(data, str | Path)
    names = {entry.name for entry in dataclasses.fields(AuditConfig)} - {"hyperparameters", "data"}
    crossed = {name: tuple(values) for name, values in over.items()}
    own = {name: value for name, value in options.items() if name not in names}
    columns = {"categorical": tuple(categorical), "drop": tuple(drop), "label": label, "id": id} if is_named else {}
    given = {name: value for name, value in options.items() if name in names}
    base = AuditConfig(data=str(data) if is_named else found.name, **columns, **given)
    config = sweeps.SweepConfig(base=base, over=crossed, common=own, lanes=lanes)
    shows = in_notebook() if progress is None else progress
    return sweeps.run(config, out, data=found, executor=executor, workers=workers, keep=keep, progress=shows)


def attack(
    known: Any,
    coords: Any,
    *,
    method: str | DRMethod | None = None,
    scale: tuple[str, ...] = (),
    first_pca: int | None = None,
    whiten: bool = False,
    angle: float | None = None,
    release_seed: int | None = None,
    public: Any = None,
    target_row: int | Sequence[int] | None = None,
    known_features: Mapping[Any, float] | None = None,
    shuffled: bool = False,
    attack: str | None = None,
    decimals: int | None = None,
    bounds: tuple[float, float] | None = None,
    schema: Any = None,
    seed: int = 0,
    **hyperparameters: Any,
) -> Answer | tuple[Answer, ...]:
    """Reconstructs the one unknown record of a published embedding from the others; values are used as they are.

    Args:
        known: (n-1, d) records in the order of the release, unless shuffled: path, array or DataFrame. Tables that hold
            more than numbers are read by a plan, see `drjax.data.plan`.
        coords: (n, k) coordinates, given in one of these ways.
        method: Key of `METHODS`, of which what is not stated is recognised; a method with all its hyperparameters; or
            None: recognised by the known records.
        scale: Steps on the records before a method that is named, such as "standard".
        first_pca: Principal components that it is given in place of the records; None for the records.
        whiten: Whether coordinates are scaled to unit variance.
        angle: Opening angle of the Barnes-Hut algorithm, to be compared with a map of "tsne"; None if it is not stated.
        release_seed: Seed that `drjax.embed` was given, where it is known; of use where a method draws and does not
            descend. None if it is not stated.
        public: (s, d) other records of the same kind, given in one of these ways; None if there are none.
        target_row: Row of the unknown record in coords, from 0; 0 if None. Of several unknown records their rows, and
            the answer is one for each; that needs a method, and known has as many rows less.
        known_features: Values of the target that the adversary has, by the number of the feature from 0 or the name of
            its column; needs public records.
        shuffled: Whether nobody knows which row is whose: they are matched.
        attack: Name in `ATTACKS["embedding"]`; the one that errs least on practice releases if None.
        decimals: Decimals that coordinates are rounded to; found out if None.
        bounds: Least and greatest value of every feature, which then count in one unit; None if there are none.
        schema: What is stated of the columns of known and public, by column, or a file of that (`drjax data plan`).
        seed: Seed of shadow releases.
        **hyperparameters: Hyperparameters of the method by name.

    Raises:
        ValueError: as of `drjax.attacks.embedding.attack_embedding`, or a known feature that is none.

    Example:
        >>> import drjax, numpy as np
        >>> x = np.random.default_rng(0).random((60, 5))
        >>> coords = drjax.embed(x, n_components=2)
        >>> answer = drjax.attack(x[1:], coords)
        >>> answer.verdict
        'reliable'
        >>> bool(np.abs(answer.found.x - x[0]).max() < 1e-3)
        True
    """
    released = _numbers(coords)
    (given, *more), _ = records_of(known, *([] if public is None else [public]), schema=schema)
    steps = {"scale": scale, "first_pca": first_pca, "whiten": whiten}
    is_told = bool(hyperparameters) or any(steps.values()) or angle is not None or release_seed is not None
    if method is None and is_told:
        raise ValueError("method must be named with hyperparameters of it, steps around it or its seed, got None")
    stated: Any = None if method is None else _method(method, released.shape[1], hyperparameters, **steps)
    if isinstance(method, str):
        has_steps = any(map(bool, steps.values()))
        stated = Stated(stated, frozenset(hyperparameters), has_steps=has_steps, angle=angle, seed=release_seed)
    elif angle is not None:
        raise ValueError('angle must be left out unless method is "tsne" by name')
    elif release_seed is not None:
        stated = Stated.whole(stated, release_seed)
    rest: dict[str, Any] = {"attack": attack, "decimals": decimals, "bounds": bounds, "names": given.names}
    rest["public"] = more[0].x if more else None
    key = jax.random.key(seed)
    if isinstance(target_row, Sequence):
        if stated is None or shuffled or known_features is not None:
            raise ValueError(
                f"target_row must be one row without method, or shuffled or with known_features, got {target_row}"
            )
        return attack_rows(key, stated, given.x, released, target_rows=target_row, **rest)
    features = None if known_features is None else _features(known_features, given)
    options: dict[str, Any] = {"target_row": target_row, "shuffled": shuffled, "known_features": features}
    return attack_embedding(key, stated, given.x, released, **options, **rest)


def embed(
    data: Any,
    *,
    method: str | DRMethod = PCA.name,
    n_components: int = 2,
    scale: tuple[str, ...] = (),
    first_pca: int | None = None,
    whiten: bool = False,
    schema: Any = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float64",
    **hyperparameters: Any,
) -> np.ndarray:
    """Coordinates (n, k) of records; values are used as they are.

    Args:
        data: (n, d): path, array or DataFrame of numbers.
        method: Key of `METHODS`, or a method with its hyperparameters.
        n_components: k.
        scale: Steps on the records before a method that is named, such as "standard".
        first_pca: Principal components that it is given in place of the records; None for the records.
        whiten: Whether coordinates are scaled to unit variance.
        schema: What is stated of the columns of a table, by column, or a file of that (`drjax data plan`).
        seed: Seed of a randomised method, in [0, 2^32), for experiments: who knows it knows the draws.
        dtype: Floating-point type of the computation.
        **hyperparameters: Hyperparameters of the method by name.

    Raises:
        ValueError: as of the method, or a seed out of its range.

    Example:
        >>> import drjax
        >>> drjax.embed(drjax.load("digits").x[:50], method="isomap", n_neighbors=6).shape
        (50, 2)
    """
    validate.seed(seed=seed)
    (given,), _ = records_of(data, schema=schema)
    x = given.x.astype(dtype)
    made = _method(method, n_components, hyperparameters, scale=scale, first_pca=first_pca, whiten=whiten)
    with jax.enable_x64(dtype == "float64"):
        # One more record beside the others: the same embedding by the faster way, with draws that the seed gives again.
        found: Embedding = shadow_embeddings(jax.random.key(seed), made, x[1:], x[:1], randomness="shared")
    return np.asarray(found.coords[0])


def release(
    data: Any, *, epsilon: float, out: str | Path, kind: Literal["pca", "synthetic", "map"] = "pca", **options: Any
) -> Any:
    """Publishes components, synthetic records, or a map of these, of private records with differential privacy.

    Args:
        data: Private records: path of a file, array (n, d) of numbers, or DataFrame. What is in memory is written into
            a folder that nobody else can read, while the release is made.
        epsilon: Epsilon of the guarantee, > 0.
        out: Folder to write, a new one.
        kind: Kind of release: principal components, a synthetic table, or a map of one.
        **options: Further fields of `PCAReleaseConfig`, `SyntheticReleaseConfig` or `MapReleaseConfig`: delta, ledger,
            ..., and of a map hyperparameters of its method; `public` as `data`, `bounds` as a path or as what such a
            file holds.

    Returns:
        `PCAReleaseResult`, `SyntheticReleaseResult` or `MapReleaseResult`: the folder, the manifest, and what to expect
        of it.

    Raises:
        ValueError: as of `drjax.releases`.

    Example:
        >>> import drjax, numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     x = np.random.default_rng(0).random((500, 3))
        ...     ranges = {"lower": [0, 0, 0], "upper": [1, 1, 1]}
        ...     result = drjax.release(x, epsilon=1, out=f"{folder}/out", bounds=ranges, trials=0)
        >>> result.manifest["guarantee"]["holds"]
        True
    """
    validate.one_of(_RELEASES, kind=kind)
    config, make = _RELEASES[kind]
    with tempfile.TemporaryDirectory(prefix="drjax-") as name:
        folder = Path(name)
        paths = {"data": _written(data, folder, "records")}
        if options.get("public") is not None:
            paths["public"] = _written(options["public"], folder, "public")
        if options.get("bounds") is not None:
            paths["bounds"] = _bounds_file(options["bounds"], folder)
        if options.get("ledger") is not None:
            paths["ledger"] = Path(options["ledger"])
        return make(config(epsilon=epsilon, **{**options, **paths}), Path(out), progress=False)


def bound(kappa: Any, *, targets: int = 1, **mechanism: Any) -> np.ndarray:
    """Success of any reconstruction, at most, in view of a guarantee of differential privacy.

    Args:
        kappa: Success of the best guess without the release, in [0, 1]; of any shape.
        targets: Unknown records that are to be rebuilt together.
        **mechanism: Fields of `drjax.bounds.statement.Mechanism`: epsilon and delta, mu, rho, or noise_multiplier with
            steps, rate and neighbouring.

    Returns:
        The bound, of the shape of kappa; never below the truth.

    Raises:
        ValueError: a number out of its range, or none or several mechanisms.

    Example:
        >>> import drjax
        >>> round(float(drjax.bound(0.01, epsilon=1.0)), 4)
        0.0272
    """
    found = Mechanism(**mechanism).guarantee()
    return rero.from_tradeoff(np.asarray(kappa, np.float64), found.target_curve, n_targets=targets)


_RELEASES: dict[str, tuple[Any, Any]] = {
    "pca": (PCAReleaseConfig, release_pca),
    "synthetic": (SyntheticReleaseConfig, release_synthetic),
    "map": (map_config, release_map),
}


def _method(method: str | DRMethod, n_components: int, hyperparameters: Mapping[str, Any], **steps: Any) -> DRMethod:
    if isinstance(method, str):
        return make_method(method, n_components, hyperparameters, **steps)
    given = {**hyperparameters, **{name: value for name, value in steps.items() if value}}
    if given:
        raise ValueError(f"hyperparameters must be left out with a method that has its own, got {given}")
    return method


def _numbers(records: Any) -> np.ndarray:
    return (read_values(records) if isinstance(records, str | Path) else values_from_memory(records)).x


def _features(known_features: Mapping[Any, float], known: Values) -> np.ndarray:
    """(d,) values of features by name or number, nan for the others."""
    features = np.full(known.x.shape[1], np.nan)
    for name, value in known_features.items():
        column = known.names.index(name) if name in known.names else name
        if not isinstance(column, int) or not 0 <= column < len(features):
            raise ValueError(
                f"known_features must be by columns of known or numbers from 0 to {len(features) - 1}, got {name!r}"
            )
        features[column] = value
    return features


def _written(records: Any, folder: Path, name: str) -> Path:
    """Path of records; what is in memory is written into a folder that is private."""
    if isinstance(records, str | Path):
        return Path(records)
    if isinstance(records, Array):
        path = folder / f"{name}.npy"
        np.save(path, np.asarray(records), allow_pickle=False)
    else:
        path = folder / f"{name}.parquet"
        # Cells of mixed types become text: one odd cell must not refuse a release.
        pq.write_table(pa.table(dict(sheet_of(records).columns)), path)
    return path


def _bounds_file(bounds: Any, folder: Path) -> Path:
    if not isinstance(bounds, Mapping):
        return Path(bounds)
    path = folder / "bounds.json"
    path.write_text(json.dumps({name: np.asarray(ends).tolist() for name, ends in bounds.items()}))
    return path

"""Audits of one data set, and audits with settings crossed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from drjax import sweeps
from drjax.audits import AuditConfig, AuditResult, run
from drjax.audits.config import RECOGNISED
from drjax.audits.folder import run_folder
from drjax.audits.released import Released, name_of
from drjax.core import validate
from drjax.core.parts import ALL
from drjax.core.progress import in_notebook
from drjax.data import in_own_units, load
from drjax.data.given_map import read_map
from drjax.decisions import decide
from drjax.dr import METHODS
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
    columns: dict[str, Any] = {}
    if is_named:
        columns = {"categorical": tuple(categorical), "drop": tuple(drop), "label": label, "id": id}
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
    part: str = ALL,
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
        part: "i/n", one of n disjoint parts of the cells, for as many calls that share a store.
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
        >>> import concurrent.futures, drjax, tempfile
        >>> sizes = {"n_known": 30, "n_shadow": 20, "n_validation": 10, "n_targets": 5, "attacks": ("closed-form",)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pool = concurrent.futures.ThreadPoolExecutor(1)
        ...     found = drjax.sweep("digits", out=folder, over={"n_components": (1, 2)}, executor=pool, **sizes)
        ...     sorted(set(found.table["cell"]))
        ['n_components=1', 'n_components=2']
    """
    found = load(data, categorical=categorical, drop=drop, label=label, schema=schema, id=id)
    is_named = isinstance(data, str | Path)
    names = {entry.name for entry in dataclasses.fields(AuditConfig)} - {"hyperparameters", "data"}
    crossed = {name: tuple(values) for name, values in over.items()}
    own = {name: value for name, value in options.items() if name not in names}
    columns: dict[str, Any] = {}
    if is_named:
        columns = {"categorical": tuple(categorical), "drop": tuple(drop), "label": label, "id": id}
    given = {name: value for name, value in options.items() if name in names}
    base = AuditConfig(data=str(data) if is_named else found.name, **columns, **given)
    config = sweeps.SweepConfig(base=base, over=crossed, common=own, lanes=lanes)
    shows = in_notebook() if progress is None else progress
    told: dict[str, Any] = {"executor": executor, "workers": workers, "keep": keep, "progress": shows}
    return sweeps.run(config, out, data=found, part=part, **told)

"""The sub-commands: each turns its arguments into one call and prints what came back."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from drjax import data as datasets
from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import AuditConfig, needs, quality, run
from drjax.audits.folder import run_folder
from drjax.cli.options import MethodOptions, Options, StepOptions, Steps, hinted, typed
from drjax.cli.printed import print_plan, print_verdict, to_correct
from drjax.core import executors, store, validate
from drjax.core.progress import announce
from drjax.core.types import count_status
from drjax.data.given_map import read_map
from drjax.data.own_table import OPTIONS
from drjax.decisions import decide, exposed
from drjax.defenses import DEFENSES, AfterMethod, defend
from drjax.defenses import contours as density
from drjax.dr import METHODS, PCA, make_method
from drjax.reports import contour_plot, curve, ladder, records

Positional = tyro.conf.Positional

AFTER = tuple(name for name, kind in DEFENSES.items() if issubclass(kind, AfterMethod))
"""Defences that change the coordinates of a map alone."""

QUALITY_RECORDS = 10_000
"""Most records of an embedding whose quality is measured: it holds a few matrices of all pairs."""


def audit(
    config: Annotated[AuditConfig, tyro.conf.arg(name="")],
    *,
    hyperparameters: MethodOptions = Options(),  # noqa: B008 (frozen)
    out: Path | None = None,
    resume: bool = False,
    executor: Annotated[str | None, tyro.conf.arg(metavar=f"{{{','.join(executors.NAMES)}}}")] = None,
    workers: int | None = None,
    quiet: bool = False,
) -> None:
    """Attack embeddings of a data set and write a report of what publishing one would give away.

    Args:
        config: What to audit.
        hyperparameters: Hyperparameters of the method.
        out: Run folder to write; runs/DATA-METHOD-nN if not given, with a number behind it if that exists.
        resume: Go on with the interrupted run in the folder.
        executor: Where releases and attacks are computed: local for processes of this machine, ray, dask or slurm,
            whose workers must all reach the folder and the data; in this process if not given.
        workers: Workers to ask for; one per core, or what the cluster has, if not given.
        quiet: Print errors only.
    """
    with hinted(config.method):
        config = dataclasses.replace(config, hyperparameters=typed(config.method, hyperparameters))
    folder = out or run_folder(config.run_name, resume=resume)
    console = Console(quiet=quiet)
    command = shlex.join(["drjax", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "drjax" else None
    given = datasets.load(config.data, data_dir=config.data_dir, **{name: getattr(config, name) for name in OPTIONS})
    if given.plan is not None and not quiet:
        print_plan(console, given)
        console.print(to_correct(config.data, config.schema), markup=False, soft_wrap=True)
        console.print(f"PRIVATE: what follows, and all in {folder}, is for the owner of the records.", markup=False)
    with hinted(config.method):
        result = run(
            config,
            folder,
            data=given,
            decide=decide,
            executor=executor,
            workers=workers,
            resume=resume,
            progress=not quiet,
            command=command,
            console=console,
        )
    ladder.print_ladder(console, result.rows)
    print_verdict(console, result.verdict)
    if result.quality is not None:
        console.print(quality.lead(result.quality))
    if result.curve is not None:
        curve.print_curve(console, result.curve)
        console.print(curve.lead(result.curve))
    if result.exposure is not None:
        if given.plan is None:
            worst = ", ".join(str(row) for row in result.exposure.row[result.exposure.rank.argsort()[:5]])
            console.print(f"Most exposed rows, counted from 0: {worst}")
        console.print(f"All records: {result.table}", soft_wrap=True)
    console.print(f"Report: {result.report}", soft_wrap=True)


def embed(
    data: Positional[str],
    out: Positional[Path],
    *,
    method: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(METHODS)}}}")] = PCA.name,
    n_components: int = 2,
    options: MethodOptions = Options(),  # noqa: B008 (frozen)
    steps: StepOptions = Steps(),  # noqa: B008 (frozen)
    data_dir: Path | None = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    label: str | None = None,
    schema: Path | None = None,
    defense: Annotated[str, tyro.conf.arg(metavar=f"{{none,{','.join(DEFENSES)}}}")] = "none",
    defense_scale: float | None = None,
    exposure: Path | None = None,
    leave_out: int | None = None,
    merge: int | None = None,
    seed: int | None = None,
    quiet: bool = False,
) -> None:
    """Embed a data set; write its coordinates, and their quality to a file beside them.

    Args:
        data: Name of a data set or path of a file.
        out: NPY or CSV file to write, one row of coordinates per record; its quality goes to OUT.json.
        method: DR method.
        n_components: Number of coordinates per record.
        options: Hyperparameters of the method.
        steps: Steps before and after the method.
        data_dir: Folder of the named data sets.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        label: Label column of a table, not embedded.
        schema: File that says what the columns of a table are; see `drjax data plan`.
        defense: Defence against reconstruction; it gives no privacy guarantee.
        defense_scale: Strength of the defence, > 0: standard deviation of the noise, width of the grid or of a bin, or
            least number of records of a group.
        exposure: Table exposure.csv of an audit of the same data, which ranks its records.
        leave_out: Number of the most exposed records by that table that are not embedded.
        merge: Number of the most exposed records by that table that are drawn at the centre of their neighbours.
        seed: Random seed of the method and of the noise, for experiments; drawn by the operating system if not given.
            Noise whose seed is known protects nothing.
        quiet: Show no progress.
    """
    if out.suffix not in (".npy", ".csv"):
        raise ValueError(f"out must end in .npy or .csv, got {out}")
    validate.one_of(METHODS, method=method)
    facts_file = out.with_name(f"{out.name}.json")
    for file in (out, facts_file):
        check_new(file)
    with hinted(method):
        dr_method = make_method(method, n_components, typed(method, options), **vars(steps))
    dr_method = _defended(dr_method, defense, defense_scale)
    x = datasets.load(data, data_dir=data_dir, categorical=categorical, drop=drop, label=label, schema=schema).x
    x, moved = _without_exposed(x, exposure, leave_out, merge)
    key = _key(seed)
    with_quality = len(x) <= QUALITY_RECORDS

    def need(count: int) -> needs.Needs:
        return needs.of_embedding(dr_method, count, x.shape[1], with_quality=with_quality)

    expected = needs.require(need(len(x)), "this embedding", "the number of records", need, len(x))
    announce(f"coordinates of {len(x):,} records", expected.seconds, expected.bytes, enabled=not quiet)
    # One more record beside the others: the same embedding by the faster way, with draws that the seed gives again.
    with hinted(method):
        embedding = shadow_embeddings(key, dr_method, x[1:], x[:1], randomness="shared", progress=not quiet)
    embedding = embedding._replace(coords=exposed.merged(np.asarray(embedding.coords[0]), moved)[None])
    coords, counts = embedding.coords[0], count_status(embedding.status)
    scores = None
    if with_quality:
        scores = quality.measure(dr_method, x[1:], x[:1], embedding.coords, embedding.objective, embedding.status)
    _write_map(out, coords, method)
    print(f"{coords.shape[0]} records, {coords.shape[1]} coordinates each; status {counts}")
    facts = {"method": method, "hyperparameters": dr_method, "data": data, "seed": seed, "status_counts": counts}
    if defense != "none":
        facts |= {"hyperparameters": dr_method.method, "defense": defense, "defense_scale": defense_scale}
    if scores is not None:
        facts["quality"] = {"n_neighbors": scores.n_neighbors} | quality.estimates(scores)
        for measure, figure, _ in quality.in_words(dr_method, scores).rows:
            print(f"{measure}: {figure[0]}")
    records.atomic_write_text(facts_file, json.dumps(records.to_json(facts), indent=1) + "\n")
    print(f"Written: {out} and {facts_file.name}")


def defend_map(
    released: Positional[Path],
    out: Positional[Path],
    *,
    defense: Annotated[str, tyro.conf.arg(metavar=f"{{none,{','.join(AFTER)}}}")] = "none",
    defense_scale: float | None = None,
    contours: float | None = None,
    exposure: Path | None = None,
    merge: int | None = None,
    seed: int | None = None,
) -> None:
    """Make a map that exists already coarser or noisier, and write the result.

    Args:
        released: Map: CSV, Parquet, NPY or NPZ file with one row of coordinates per record.
        out: NPY or CSV file to write; with --contours an SVG or PNG picture, or a CSV file of the lattice.
        defense: Defence against reconstruction; it gives no privacy guarantee.
        defense_scale: Strength of the defence, > 0: standard deviation of the noise, width of the grid or of a bin, or
            least number of records of a group.
        contours: Density contours in place of all points: radius of the bump that each record is, > 0, in units of the
            map's spread. They give no privacy guarantee.
        exposure: Table exposure.csv of an audit of the map, which ranks its records.
        merge: Number of the most exposed records by that table that are drawn at the centre of their neighbours.
        seed: Random seed of the noise, for experiments; drawn by the operating system if not given. Noise whose seed is
            known protects nothing.
    """
    endings = (".npy", ".csv") if contours is None else contour_plot.SUFFIXES
    if out.suffix not in endings:
        raise ValueError(f"out must end in {', '.join(endings[:-1])} or {endings[-1]}, got {out}")
    check_new(out)
    validate.one_of(("none", *AFTER), defense=defense)
    if contours is not None:
        validate.positive(contours=contours)
    if contours is not None and defense != "none":
        raise ValueError(f"defense must be left out with --contours, got {defense}")
    if defense == "none" and contours is None and merge is None:
        raise ValueError("one of defense, contours and merge must be given, got none")
    coords = read_map(released).coords
    coords, moved = _without_exposed(coords, exposure, None, merge)
    coords = exposed.merged(coords.astype(np.float64), moved)
    if contours is not None:
        found = density.contours(coords, contours)
        contour_plot.write(out, found)
        print(f"{len(coords):,} records inside or around {int(found.levels.max())} contour lines. Written: {out}")
        return
    method = _defended(PCA(n_components=coords.shape[1]), defense, defense_scale)
    if isinstance(method, AfterMethod):
        with jax.enable_x64(True):
            coords = np.asarray(method.defended(_key(seed), coords))
    _write_map(out, coords, "map")
    n_places = len(np.unique(coords, axis=0))
    print(f"{len(coords):,} records at {n_places:,} places. Written: {out}")


def _without_exposed(
    x: np.ndarray, exposure: Path | None, leave_out: int | None, merge: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The records without those to leave out; and the rows of those to merge, of which there may be none."""
    if exposure is None and leave_out is None and merge is None:
        return x, np.zeros(0, np.int64)
    both = (leave_out is None) == (merge is None)
    if exposure is None or both:
        raise ValueError(
            f"exposure must be given with one of leave_out and merge, got {exposure}, {leave_out} and {merge}"
        )
    if leave_out is not None:
        rows = exposed.most_exposed(exposure, len(x), leave_out=leave_out)
        return np.delete(x, rows, axis=0), np.zeros(0, np.int64)
    assert merge is not None
    return x, exposed.most_exposed(exposure, len(x), merge=merge)


def _write_map(out: Path, coords: np.ndarray, name: str) -> None:
    if out.suffix == ".npy":
        with store.atomic_open(out) as file:
            np.save(file, coords, allow_pickle=False)
    else:
        store.atomic_write_columns(out, [f"{name}{i + 1}" for i in range(coords.shape[1])], coords)


def list_data(*, data_dir: Path | None = None) -> None:
    """List the named data sets and whether they are at hand.

    Args:
        data_dir: Folder to search in addition to $DRJAX_DATA and the download cache.
    """
    table = Table("name", "records", "shape", "at hand", "download")
    for entry in datasets.available(data_dir=data_dir):
        shape = " x ".join(map(str, entry.shape))
        table.add_row(entry.name, f"{entry.n:,}", shape, _yes(entry.present), _yes(entry.fetchable))
    Console().print(table)


def data_info(name: Positional[str], *, data_dir: Path | None = None) -> None:
    """Say what a named data set holds, where it comes from and where its files are.

    Args:
        name: Name of the data set.
        data_dir: Folder to search in addition to $DRJAX_DATA and the download cache.
    """
    entry = datasets.describe(name, data_dir=data_dir)
    lines = {
        "name": entry.name,
        "records": f"{entry.n:,}",
        "shape": " x ".join(map(str, entry.shape)),
        "classes": ", ".join(entry.class_names) if entry.class_names else "none",
        "source": entry.provenance.source,
        "licence": entry.provenance.licence,
        "note": entry.provenance.note,
    }
    for title, text in lines.items():
        print(f"{title:8}  {text}")
    for file, path in entry.files.items():
        print(f"file      {file}: {path or 'not found'}")
        print(f"          sha256 {entry.provenance.files[file]}")


def plan_data(
    data: Positional[Path],
    out: Positional[Path | None] = None,
    *,
    schema: Path | None = None,
    quiet: bool = False,
) -> None:
    """Say what the columns of a table are and what becomes of them; write that to a file to correct.

    Args:
        data: Table (CSV, Excel, Parquet).
        out: JSON file to write, for --schema of other commands once it is corrected. It describes private records.
        schema: File with what is known already.
        quiet: Do not print the plan.
    """
    if out is not None:
        if out.suffix != ".json":
            raise ValueError(f"out must end in .json, got {out}")
        check_new(out)
    found = datasets.load(data, schema=schema)
    if found.plan is None:
        raise ValueError(f"data must be a table with named columns, got {data}")
    if not quiet:
        print_plan(Console(), found)
    if out is not None:
        records.atomic_write_text(out, json.dumps(found.plan.to_json(), indent=1, ensure_ascii=False) + "\n")
        out.chmod(0o600)
        print(f"Written: {out} (PRIVATE: it tells what the records hold)")


def fetch_data(name: Positional[str], *, data_dir: Path | None = None) -> None:
    """Download a named data set from its public source and check it.

    Args:
        name: Name of the data set.
        data_dir: Folder to download into; a per-user cache if not given.
    """
    print(f"Written: {datasets.fetch(name, data_dir)}")


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"


def check_new(out: Path) -> None:
    """Before any work: the file can be written, and is not somebody's already."""
    if out.exists():
        raise ValueError(f"out must be a new file, got {out} which exists")
    if not out.parent.is_dir():
        raise ValueError(f"out must be in a folder that exists, got {out}")


def _key(seed: int | None) -> jax.Array:
    """PRNG key of the seed, or 64 bits from the operating system, so that noise cannot be found by trying."""
    if seed is not None:
        validate.seed(seed=seed)
        return jax.random.key(seed)
    return jax.random.wrap_key_data(jax.numpy.asarray(np.frombuffer(os.urandom(8), np.uint32)), impl="threefry2x32")


def _defended(method: Any, defense: str, scale: float | None) -> Any:
    validate.one_of(("none", *DEFENSES), defense=defense)
    if defense == "none":
        if scale is not None:
            raise ValueError(f"defense_scale must be left out without --defense, got {scale}")
        return method
    if scale is None or not 0 < scale < math.inf:
        raise ValueError(f"defense_scale must be a finite number > 0 with --defense {defense}, got {scale}")
    return defend(defense, method, scale)

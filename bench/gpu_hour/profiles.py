"""Part c: where the time of the two worst goes."""

from __future__ import annotations

import functools
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from bench.gpu_hour import archive, grid, needs
from bench.gpu_hour.hour import Hour, Scale
from bench.gpu_hour.steps import Cell, Step
from bench.shadow_embeddings import Cell as Shadows
from bench.shadow_embeddings import cells
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.store import atomic_open

COUNT = 2
SECONDS = 70.0
LANES = 128
"""Shadows of a profile, at most: a trace grows with the launches of kernels."""

TOP = 25
"""Kernels in the record."""


def steps(scale: Scale) -> Iterator[Step]:
    """The worst cells of the grid as far as it is computed, each of another method."""
    yield Step(
        name="profiles",
        part="c",
        basis="guess",
        cells=functools.partial(_cells, scale),
        seconds=COUNT * SECONDS,
        count=COUNT,
    )


def worst(rows: list[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Method, threat model and size of the cells where drjax is least ahead of the best other engine, worst first.

    Each method once, projections with a known seed left out: what is compared there is one product on the host.
    """
    ahead: dict[tuple[str, str, int], float] = {}
    for row in rows:
        if row["name"] == "drjax" and row["speedup"] and row["threat_model"] != "seed known":
            ahead[row["method"], row["threat_model"], row["n"]] = min(row["speedup"].values())
    found: dict[str, tuple[str, str, int]] = {}
    for place in sorted(ahead, key=lambda place: ahead[place]):
        found.setdefault(place[0], place)
    return list(found.values())


def _cells(scale: Scale, hour: Hour) -> list[Cell]:
    # What was profiled before stays, whatever the grid says since.
    before = [record for record in hour.records() if record["step"] == "profiles"]
    places = [(record["method"], record["threat_model"], record["n"]) for record in before]
    here = jax.devices()[0].device_kind
    rows = [row for record in hour.records() for row in record.get("rows", ()) if row["device_kind"] == here]
    profiled = {method for method, _, _ in places}
    places += [place for place in worst(rows) if place[0] not in profiled]
    return [_cell(scale, *place) for place in places[:COUNT]]


def _cell(scale: Scale, method: str, threat_model: str, n: int) -> Cell:
    return Cell(
        name=f"profile/{method}/{n}",
        seconds=SECONDS,
        compute=functools.partial(_profile, method=method, threat_model=threat_model, n=n),
        lacks=functools.partial(needs.data, *([] if scale.name == "toy" else ["mnist"])),
    )


def _profile(hour: Hour, *, method: str, threat_model: str, n: int) -> dict[str, Any]:
    config = grid.config_of(hour.scale, method, n)
    (case,) = (cell for cell, _ in cells(config, "float32") if cell.labels["threat_model"] == threat_model)
    lanes = min(LANES, len(case.targets))

    _embed(case, lanes)  # compiles
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            _embed(case, lanes)
        (trace,) = Path(folder).rglob("*.xplane.pb")
        kernels, total = _kernels(trace)
        file = _packed(trace, hour.out / f"profile-{method}-{n}.tar.gz")
    return {
        "method": method,
        "threat_model": threat_model,
        "n": n,
        "shadows": lanes,
        "file": file,
        "device_s": total,
        "kernels": kernels,
    }


def _embed(case: Shadows, lanes: int) -> None:
    shadow_embeddings(jax.random.key(0), case.instance, case.known, case.targets[:lanes], randomness=case.randomness)


def _kernels(trace: Path) -> tuple[list[dict[str, Any]], float]:
    """The kernels that took longest, with seconds, calls and share; and the seconds of all."""
    seconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for line in _lines(jax.profiler.ProfileData.from_file(str(trace))):
        for event in line.events:
            seconds[event.name] += event.duration_ns / 1e9
            calls[event.name] += 1
    total = sum(seconds.values())
    return [
        {"name": name[:200], "seconds": s, "calls": calls[name], "share": s / total}
        for name, s in seconds.most_common(TOP)
    ], total


def _lines(profile: Any) -> list[Any]:
    """What ran on the device: the streams of a GPU, the operations of another accelerator, else XLA's threads."""
    planes = {plane.name: list(plane.lines) for plane in profile.planes}
    device = [line for name, lines in planes.items() if name.startswith("/device:") for line in lines]
    for kind in ("Stream", "XLA Ops"):
        if chosen := [line for line in device if line.name.startswith(kind)]:
            return chosen
    return [line for name, lines in planes.items() if name.startswith("/host:CPU") for line in lines]


def _packed(trace: Path, file: Path) -> str | None:
    """Name of the file with the trace, or None if it is too large to be handed on."""
    with atomic_open(file) as target, tarfile.open(fileobj=target, mode="w:gz") as packed:
        packed.add(trace, arcname=trace.name)
    if file.stat().st_size <= archive.PART_BYTES:
        return file.name
    file.unlink()
    return None

"""Thousands of shadow embeddings: drjax against the reference libraries and against naive vmap, on the same cores.

    python -m bench.shadow_embeddings --data mnist

README.md beside this file says what is compared and what the columns mean.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from bench import harness, work
from bench.peers import STANDARD, PeerPool, lacking
from drjax.attacks.shadow import RANDOMNESS, Randomness, shadow_batch_size, shadow_embeddings
from drjax.core import batching, validate
from drjax.core.types import DRMethod, count_status
from drjax.dr import METHODS, Pipeline, Standardise, pallas

THREAT_MODELS: dict[Randomness, str] = {"fresh": "seed unknown", "shared": "seed known"}
PEERS: dict[tuple[str, Randomness], tuple[str, ...]] = {
    ("pca", "fresh"): ("pca_default", "pca_full"),
    ("srp", "fresh"): ("srp_fit_transform",),
    ("srp", "shared"): ("srp_fit_transform", "srp_transform", "srp_rows"),
    ("classical_mds", "fresh"): ("classical_mds",),
    ("mds", "fresh"): ("mds",),
    ("isomap", "fresh"): ("isomap",),
    ("tsne", "fresh"): ("tsne",),
    ("umap", "fresh"): ("umap",),
}
"""The peers that a method is compared with, by method and randomness; one without peers has naive vmap alone."""

CELL_S = 5.0
"""Seconds that one call with all shadows of a cell may be predicted to take; it is made three times or so."""

FEWEST_SHADOWS = 128
"""Shadows of the slowest cells, whatever they take."""

NAIVE_RATE = 1e9
"""`work.naive_flops` per second assumed before the first cell of a kind is timed."""

NAIVE_LANES_S = 0.5
NAIVE_LANES_BYTES = 64 * 2**20
NAIVE_LANES_MAX = 256
"""A naive batch is as large as fits into these seconds (predicted), and on a CPU bytes of data sets, and lanes.

On an accelerator, which many lanes are needed to fill, it is as large as fits into these seconds and the memory."""

NAIVE_TRIES = 3
"""A batch that takes less than a quarter of its seconds is timed again with more lanes, at most so often."""

WITH_PALLAS = ("mds", "tsne")
"""Methods that have Pallas kernels."""

TORCHDR = ("pca", "tsne", "umap")
"""Methods that TorchDR has; it embeds one data set after the other."""

QUICK_PEAKS = {"gemm_size": 512, "copy_entries": 2**22, "repeats": 3}

PEER_TARGETS = 512
"""Different targets that the peers cycle through; more would only cost memory."""


NaiveRates = dict[tuple[str, Randomness], float]
"""`work.naive_flops` per second of naive vmap, by kind of cell."""


@dataclass
class Config:
    """What to run.

    Attributes:
        n: Records in a release, the target included.
        d: Features. With `data=mnist`, 784 is real MNIST; every other size is synthetic.
        shadows: Shadow embeddings per cell, at most; fewer where they take long, see `CELL_S`.
        method: Methods to time.
        dtype: Precisions; float64 turns x64 on.
        data: Source of the records.
        data_dir: Where the files of `data` lie; the loader's default if None.
        repeats: Timed runs of drjax per cell, at most.
        budget_s: Seconds after which drjax's runs of a cell are not repeated again.
        peer_s: Seconds that each peer runs per cell; projections get a third.
        naive_limit_s: A naive cell predicted to take longer for one call is skipped.
        cell_s: Seconds that one call with all shadows of a cell may be predicted to take on two CPU cores.
        is_standard: Standardise records before each method; scikit-learn's PCA likewise, other peers are left out.
        torchdr: Time TorchDR too, by itself on the default device; what it lacks is said in its row.
        out: JSON-lines file that the rows are added to.
        quick: A small grid in seconds, to see that everything runs; its figures mean nothing.
    """

    n: list[int] = field(default_factory=lambda: [10, 100, 200, 500, 1000])
    d: list[int] = field(default_factory=lambda: [64, 784, 4096])
    shadows: int = 5000
    method: Annotated[list[str], tyro.conf.arg(metavar=f"[{{{','.join(METHODS)}}} ...]")] = field(
        default_factory=lambda: [*METHODS]
    )
    dtype: list[Literal["float32", "float64"]] = field(default_factory=lambda: ["float32", "float64"])
    data: Literal["synthetic", "mnist"] = "synthetic"
    data_dir: Path | None = None
    repeats: int = 15
    budget_s: float = 2.0
    peer_s: float = 1.5
    naive_limit_s: float = 20.0
    cell_s: float = CELL_S
    is_standard: Annotated[bool, tyro.conf.arg(name="standard")] = False
    torchdr: bool = False
    out: Path = harness.RESULTS / "shadow_embeddings.jsonl"
    quick: bool = False

    def __post_init__(self) -> None:
        for name in self.method:
            validate.one_of(METHODS, method=name)
        if self.quick:
            self.n, self.d, self.shadows, self.repeats, self.peer_s = [10, 100], [64], 40, 2, 0.2


@dataclass(frozen=True)
class Cell:
    """One method on one data set under one threat model."""

    method: str
    randomness: Randomness
    known: np.ndarray
    targets: np.ndarray
    is_standard: bool = False

    @property
    def kind(self) -> tuple[str, Randomness]:
        """Method and randomness: one of `kinds()`."""
        return self.method, self.randomness

    @property
    def instance(self) -> DRMethod:
        """The method with the hyperparameters that are timed."""
        own = work.method_for(self.method, len(self.known) + 1)
        return Pipeline(before=(Standardise(),), method=own) if self.is_standard else own

    @property
    def peers(self) -> tuple[str, ...]:
        """Peers that it is compared with."""
        found = PEERS.get(self.kind, ())
        return tuple(f"{STANDARD}{peer}" for peer in found if self.method == "pca") if self.is_standard else found

    @property
    def labels(self) -> dict[str, Any]:
        """What the rows of this cell have in common."""
        return {
            "method": self.method,
            "threat_model": "none" if self.instance.deterministic else THREAT_MODELS[self.randomness],
            "n": len(self.known) + 1,
            "d": self.known.shape[1],
            "k": self.instance.n_components,
            "shadows": len(self.targets),
            "dtype": str(self.known.dtype),
            **({"scale": "standard"} if self.is_standard else {}),
            **({"kernels": "pallas"} if self.method in WITH_PALLAS and pallas.is_enabled() else {}),
        }


def main(config: Config) -> None:
    """Runs every cell, adds its rows to the results as soon as they are there, and prints the table."""
    start = time.perf_counter()
    peaks = harness.machine_peaks(**QUICK_PEAKS) if config.quick else harness.machine_peaks()
    run = published(config)
    for row in peaks:
        harness.append_row(config.out, row | run)
    ours: dict[str, list[dict[str, Any]]] = {}
    with PeerPool(n_workers()) as pool:
        for dtype in config.dtype:
            jax.config.update("jax_enable_x64", dtype == "float64")
            naive_rates: NaiveRates = {}
            for cell, source in cells(config, dtype):
                print(*cell.labels.values(), file=sys.stderr, flush=True)
                row, rivals = measure_cell(cell, config, pool, peaks, naive_rates)
                for entry in (row, *rivals):
                    harness.append_row(config.out, entry | run | {"data": source})
                ours.setdefault(cell.method, []).append(row)
    print(machine(peaks), *(table(method, rows) for method, rows in ours.items()), sep="\n")
    print(f"\n{time.perf_counter() - start:.0f} s in all")


def published(config: Config) -> dict[str, Any]:
    """The field `config` of a row: where files lie on this machine is not what was measured."""
    return {"config": {name: value for name, value in vars(config).items() if name not in ("data_dir", "out")}}


def measure_cell(
    cell: Cell, config: Config, pool: PeerPool, peaks: list[dict[str, Any]], naive_rates: NaiveRates
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Times all engines of a cell, one after the other.

    Args:
        cell: What is embedded.
        config: How long each engine may take.
        pool: Workers of the reference libraries.
        peaks: Rows of `harness.machine_peaks` of this machine and device.
        naive_rates: What was learned of naive vmap's speed in earlier cells; gets this cell's.

    Returns:
        drjax's row, with `naive` (milliseconds a shadow by naive vmap, or why it was not timed) and `speedup` over each
        engine that was timed; and the rows of the others, with `skipped` where one was not.
    """
    rivals = [_measure_naive(cell, config, naive_rates), *_measure_peers(cell, config, pool)]
    if config.torchdr:
        rivals.append(_measure_torchdr(cell, config))
    row = _measure_drjax(cell, config, peaks)
    timed = [rival for rival in rivals if "skipped" not in rival]
    row["speedup"] = {rival["name"]: rival["ms_per_shadow"] / row["ms_per_shadow"] for rival in timed}
    row["naive"] = rivals[0].get("ms_per_shadow", rivals[0].get("skipped"))
    return row, rivals


def n_workers() -> int:
    """Processes of the reference libraries: one a core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kinds() -> list[tuple[str, Randomness]]:
    """Methods and what their shadows share: fresh draws for every method, shared ones where that is compared."""
    every: list[tuple[str, Randomness]] = [(name, randomness) for name in METHODS for randomness in RANDOMNESS]
    return [kind for kind in every if kind[1] == "fresh" or kind in PEERS]


def cells(config: Config, dtype: str) -> Iterator[tuple[Cell, str]]:
    """The cells of a configuration in one precision, each with the source of its records, "synthetic" or "mnist"."""
    for d in config.d:
        records, source = _records(config, max(config.n) - 1 + config.shadows, d)
        records = records.astype(dtype)
        for n in config.n:
            known = records[: n - 1]
            for method, randomness in kinds():
                if method in config.method:
                    fits = int(config.cell_s / max(work.seconds(method, n, d), 1e-9))
                    shadows = min(config.shadows, max(FEWEST_SHADOWS, fits))
                    own = records[len(records) - shadows :]
                    yield Cell(method, randomness, known, own, config.is_standard), source


def _records(config: Config, count: int, d: int) -> tuple[np.ndarray, str]:
    rng = np.random.default_rng(0)
    if config.data == "mnist" and d == 784:
        from drjax.data import load

        x = load("mnist", data_dir=config.data_dir).x
        return x[rng.choice(len(x), size=count, replace=False)], "mnist"
    # A falling spectrum as images have; a flat one would make the eigenvalues nearly coincide.
    rank = min(d, 128)
    factors = rng.standard_normal((count, rank)) / np.arange(1, rank + 1)
    noise = 0.01 * rng.standard_normal((count, d))
    x = 0.5 + 0.15 * factors @ rng.standard_normal((rank, d)) + noise
    return np.clip(x, 0, 1).astype(np.float32), "synthetic"


def _measure_drjax(cell: Cell, config: Config, peaks: list[dict[str, Any]]) -> dict[str, Any]:
    method, key = cell.instance, jax.random.key(0)
    m, (n, d) = len(cell.targets), (len(cell.known) + 1, cell.known.shape[1])
    shared_key = key if cell.randomness == "shared" else None
    prepare = harness.measure(
        "prepare", lambda: method.prepare(cell.known, shared_key=shared_key), repeats=3, budget_s=1.0
    )
    statuses: dict[str, int] = {}
    counts: dict[str, float] = {}

    def embed() -> Any:
        result = shadow_embeddings(key, method, cell.known, cell.targets, randomness=cell.randomness)
        statuses.update(count_status(result.status))
        counts.update(n_iter=float(result.n_iter.mean()), n_updates=work.updates(result.info))
        return result

    row = harness.measure("drjax", embed, repeats=config.repeats, budget_s=config.budget_s, **cell.labels)
    if jax.default_backend() != "cpu":
        row["ms_left_on_device"] = ms_left_on_device(cell, config)
    # How many there are is known after a run only.
    row["gflop_per_s"] = m * work.flops(cell.method, cell.randomness, n, d, **counts) / row["run_s"] / 1e9
    row["gbyte_per_s"] = row["output_bytes"] / row["run_s"] / 1e9
    return (
        row
        | {
            "prepare_s": prepare["run_s"],
            "ms_per_shadow": 1e3 * row["run_s"] / m,
            "gemm_share": row["gflop_per_s"] / harness.best_peak(peaks, "peak/gemm", str(cell.known.dtype)),
            "memory_share": row["gbyte_per_s"] / harness.best_peak(peaks, "peak/triad", "float32"),
            "chunk": shadow_batch_size(method, cell.known, cell.targets, randomness=cell.randomness),
            "chunk_budget_bytes": batching.memory_budget(),
            "status": statuses,
        }
        | counts
    )


def ms_left_on_device(cell: Cell, config: Config) -> float:
    """Milliseconds a shadow whose target is on the device and whose embedding stays there, as with naive vmap."""
    there = jax.device_put(cell.targets)

    def embed() -> Any:
        arguments = (jax.random.key(0), cell.instance, cell.known, there)
        return shadow_embeddings(*arguments, randomness=cell.randomness, device_out=True)

    row = harness.measure("left on device", embed, repeats=config.repeats, budget_s=config.budget_s)
    return 1e3 * row["run_s"] / len(cell.targets)


def _measure_peers(cell: Cell, config: Config, pool: PeerPool) -> list[dict[str, Any]]:
    pool.load(cell.known, cell.targets[:PEER_TARGETS])
    budget = config.peer_s / 3 if cell.method == "srp" else config.peer_s
    library = "umap-learn" if cell.method == "umap" else "sklearn"
    return [_peer_row(f"{library}/{peer}", peer, cell, pool, budget) for peer in cell.peers]


def _peer_row(name: str, peer: str, cell: Cell, pool: PeerPool, budget_s: float) -> dict[str, Any]:
    reason = lacking(peer)
    fields = pool.fit(peer, budget_s=budget_s) if reason is None else {"skipped": reason}
    return harness.make_row(name, cell.labels, fields)


def _measure_torchdr(cell: Cell, config: Config) -> dict[str, Any]:
    name, peer = f"torchdr/{cell.method}", f"torchdr_{cell.method}"
    if cell.method not in TORCHDR:
        return harness.make_row(name, cell.labels, {"skipped": "TorchDR has no such method"})
    if reason := lacking(peer):
        return harness.make_row(name, cell.labels, {"skipped": reason})
    # A process of its own: two libraries that allocate a device's memory ahead do not get on in one.
    with PeerPool(1) as own:
        own.load(cell.known, cell.targets[:PEER_TARGETS])
        return _peer_row(name, peer, cell, own, config.peer_s)


def _measure_naive(cell: Cell, config: Config, rates: NaiveRates) -> dict[str, Any]:
    """Times jit(vmap(fit_transform)) on one bounded batch, or says why not; keeps the rate to predict the next cell."""
    method, flops = cell.instance, work.naive_flops(cell.method, len(cell.known) + 1, cell.known.shape[1])
    lane_s = flops / rates.get(cell.kind, NAIVE_RATE)
    if lane_s > config.naive_limit_s:
        reason = f"one fit is predicted to take {lane_s:.0f} s, over the limit of {config.naive_limit_s:g} s"
        return harness.make_row("naive", cell.labels, {"skipped": reason})

    def batch(known: jax.Array, lanes: tuple[jax.Array, jax.Array]) -> jax.Array:
        def one(index: jax.Array, target: jax.Array) -> jax.Array:
            key = jax.random.key(0) if cell.randomness == "shared" else jax.random.fold_in(jax.random.key(0), index)
            return method.fit_transform(key, jnp.concatenate([target[None], known])).coords

        return jax.vmap(one)(*lanes)

    known, numbers = jnp.asarray(cell.known), np.arange(len(cell.targets))
    fits = NAIVE_LANES_BYTES // (cell.known.nbytes + cell.known[0].nbytes)
    most = max(1, min(fits, NAIVE_LANES_MAX, len(cell.targets)))
    if jax.default_backend() != "cpu":
        most = batching.choose_batch_size(batch, known, (numbers, cell.targets))
    run = jax.jit(batch)
    row: dict[str, Any] = {"skipped": "it ran out of memory"}
    for _ in range(NAIVE_TRIES):
        lanes = int(np.clip(NAIVE_LANES_S / lane_s, 1, most))
        given: Any = (jnp.asarray(numbers[:lanes]), jnp.asarray(cell.targets[:lanes]))
        labels = cell.labels | {"shadows": lanes}
        try:
            row = harness.measure("naive", run, known, given, repeats=3, budget_s=NAIVE_LANES_S, **labels)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            # What an operation of the backend needs beside its arrays, no trace says.
            most = max(1, lanes // 8)
            continue
        lane_s = row["run_s"] / lanes
        if lanes == most or row["run_s"] >= NAIVE_LANES_S / 4:
            break
    if "skipped" in row:
        return harness.make_row("naive", cell.labels, row)
    lanes = row["shadows"]
    rates[cell.kind] = lanes * flops / row["run_s"]
    return row | {"ms_per_shadow": 1e3 * row["run_s"] / lanes}


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "threat model": lambda r: r["threat_model"],
    "dtype": lambda r: r["dtype"],
    "d": lambda r: str(r["d"]),
    "n": lambda r: str(r["n"]),
    "ms/shadow": lambda r: f"{r['ms_per_shadow']:.4f}",
    "naive vmap, ms/shadow": lambda r: r["naive"] if isinstance(r["naive"], str) else f"{r['naive']:.4f}",
    "total s": lambda r: f"{r['run_s']:.3f} ± {r['run_iqr_s']:.3f}",
    "of it prepare s": lambda r: f"{r['prepare_s']:.3f}",
    "compile s": lambda r: f"{r['compile_s']:.2f}",
    "GFLOP/s": lambda r: f"{r['gflop_per_s']:.1f} ({r['gemm_share']:.0%})",
    "GB/s out": lambda r: f"{r['gbyte_per_s']:.2f} ({r['memory_share']:.0%})",
    "iterations": lambda r: f"{r['n_iter']:.0f}" if r["n_iter"] else "",
    "updates/s": lambda r: f"{1e3 * r['n_updates'] / r['ms_per_shadow']:.3g}" if r["n_updates"] else "",
    "chunk": lambda r: str(r["chunk"]),
    "MB grown": lambda r: _megabytes(r["extra_rss_bytes"]),
    "MB output + chunk": lambda r: _megabytes(r["output_bytes"] + r["chunk_budget_bytes"]),
}


def table(method: str, rows: list[dict[str, Any]]) -> str:
    """A Markdown table of drjax's rows of one method; one column per peer says how many times faster drjax is."""
    rivals = list(dict.fromkeys(name for row in rows for name in row["speedup"]))
    lines = [[*COLUMNS, *(f"x {rival}" for rival in rivals)]]
    lines += [["---"] * len(lines[0])]
    for row in rows:
        ratios = [f"{row['speedup'][rival]:.3g}" if rival in row["speedup"] else "" for rival in rivals]
        lines.append([*(column(row) for column in COLUMNS.values()), *ratios])
    return f"\n{method}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine(peaks: list[dict[str, Any]]) -> str:
    """What the machine is and reaches at best, in a line."""
    gemm = ", ".join(f"{harness.best_peak(peaks, 'peak/gemm', t):.0f} GFLOP/s {t}" for t in ("float32", "float64"))
    triad = harness.best_peak(peaks, "peak/triad", "float32")
    first = peaks[0]
    return f"{first['cpu']}, {first['cores']} cores, {first['device_kind']}: GEMM {gemm}; memory {triad:.1f} GB/s"


def _megabytes(n: int | None) -> str:
    return "?" if n is None else f"{n / 1e6:.0f}"


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))

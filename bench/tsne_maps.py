"""A thousand t-SNE plots, each of its own records: drjax beside scikit-learn and openTSNE on the same cores.

    OPENBLAS_NUM_THREADS=1 python -m bench.tsne_maps

The plots that property inference trains on: groups of n records drawn from a pool, features of a network's width.
drjax is timed as a user calls it, `attacks.property.maps.tsne_maps`, distances of the pool included. The peers run one
process per core with one thread each, only fits timed: scikit-learn's Barnes-Hut, openTSNE's, and openTSNE's
interpolation. openTSNE makes 750 iterations, the others at most 1,000. Without openTSNE (`pip install openTSNE`) its
rows say that they were skipped. `naive` is `jit(vmap(fit_transform))`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness, work
from bench.peers import PeerPool
from drjax.attacks.property.groups import sample_groups
from drjax.attacks.property.maps import tsne_maps
from drjax.core import host
from drjax.core.types import DRMethod, count_status

PEERS = {"tsne": "sklearn", "opentsne_bh": "openTSNE", "opentsne_fft": "openTSNE"}
"""Peers by the name that `bench.peers` knows, and the module that each needs."""

NAIVE_FITS = 8
PEER_TARGETS = 64


@dataclass
class Config:
    """What to run.

    Attributes:
        n: Records of a plot.
        d: Features.
        records: Of the pool.
        fits: Plots that drjax makes.
        peer_s: Seconds that each peer runs.
        out: JSON-lines file that the rows are added to.
        quick: A few small plots, to see that everything runs; the figures mean nothing.
    """

    n: int = 1000
    d: int = 512
    records: int = 3000
    fits: int = 1000
    peer_s: float = 20.0
    out: Path = harness.RESULTS / "tsne_maps.jsonl"
    quick: bool = False

    def __post_init__(self) -> None:
        if self.quick:
            self.n, self.d, self.records, self.fits, self.peer_s = 100, 32, 300, 10, 0.2


def main(config: Config) -> None:
    """Times all engines one after the other, adds their rows to the results and prints a table."""
    features, has_property = network_like(config.records, config.d)
    method = work.method_for("tsne", config.n)
    labels = {"method": "tsne", "n": config.n, "d": config.d, "records": config.records, "dtype": "float32"}
    labels |= {"config": {name: value for name, value in vars(config).items() if name != "out"}}
    peers = _measure_peers(config, features, labels)
    rivals = [_measure_naive(config, method, features, labels), *peers]
    ours = _measure_drjax(config, method, features, has_property, labels)
    ours["speedup"] = {row["name"]: row["ms_per_fit"] / ours["ms_per_fit"] for row in rivals if "ms_per_fit" in row}
    for row in (ours, *rivals):
        harness.append_row(config.out, row)
    print("| engine | fits | ms a fit | iterations | over drjax |\n| --- | --- | --- | --- | --- |")
    for row in (ours, *rivals):
        if "skipped" in row:
            print(f"| {row['name']} | {row['skipped']} | | | |")
            continue
        ratio = f"{ours['speedup'][row['name']]:.1f}" if row["name"] in ours["speedup"] else ""
        print(f"| {row['name']} | {row['fits']} | {row['ms_per_fit']:.1f} | {row['n_iter']:.0f} | {ratio} |")


def network_like(n_records: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, d) as a ReLU layer's, and a property that half of the records have and that shifts them a little."""
    rng = np.random.default_rng(0)
    has_property = np.arange(n_records) < n_records // 2
    factors = rng.standard_normal((n_records, 30)) / np.sqrt(np.arange(1, 31))
    factors[has_property] += 0.3 * rng.standard_normal(30)
    x = factors @ rng.standard_normal((30, d)) + 0.3 * rng.standard_normal((n_records, d))
    return np.maximum(x, 0).astype(np.float32), has_property


def _measure_drjax(
    config: Config, method: DRMethod, features: np.ndarray, has_property: np.ndarray, labels: dict[str, Any]
) -> dict[str, Any]:
    key = jax.random.key(0)
    groups = sample_groups(key, has_property, (0.5,), config.n, config.fits)
    # Loads the compiled loop, as the peers' warm-up does. The program around it is compiled for the size of a chunk,
    # within the time below.
    tsne_maps(key, features, groups.rows[: 2 * host.n_cores()], method)
    memory, start = harness.MemoryMeter(), time.perf_counter()
    maps = tsne_maps(key, features, groups, method, progress=True)
    wall = time.perf_counter() - start
    n_iter = float(maps.n_iter.mean())
    flops = work.TSNE_PAIR_FLOPS * n_iter * config.n * (config.n - 1) / 2
    fields = {
        "fits": config.fits,
        "wall_s": wall,
        "ms_per_fit": 1e3 * wall / config.fits,
        "n_iter": n_iter,
        "objective": float(maps.objective.mean()),
        "gflop_per_s": flops * config.fits / wall / 1e9,
        "extra_rss_bytes": memory.growth(),
        "status": count_status(maps.status),
    }
    return harness.make_row("drjax", labels, fields)


def _measure_naive(config: Config, method: DRMethod, features: np.ndarray, labels: dict[str, Any]) -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), NAIVE_FITS)
    rng = np.random.default_rng(1)
    x = np.stack([features[rng.permutation(len(features))[: config.n]] for _ in range(NAIVE_FITS)])
    fit = jax.jit(jax.vmap(method.fit_transform))
    jax.block_until_ready(fit(keys, x))
    start = time.perf_counter()
    found = jax.block_until_ready(fit(keys, x))
    wall = time.perf_counter() - start
    fields = {"fits": NAIVE_FITS, "wall_s": wall, "ms_per_fit": 1e3 * wall / NAIVE_FITS}
    return harness.make_row("naive", labels, fields | {"n_iter": float(found.n_iter.mean())})


def _measure_peers(config: Config, features: np.ndarray, labels: dict[str, Any]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(2)
    order = rng.permutation(len(features))
    known, others = features[order[: config.n - 1]], features[order[config.n - 1 :][:PEER_TARGETS]]
    rows = []
    with PeerPool(host.n_cores()) as pool:
        pool.load(known, others)
        for peer, module in PEERS.items():
            if importlib.util.find_spec(module) is None:
                print(f"{peer} is skipped: {module} is not installed", file=sys.stderr)
                rows.append(harness.make_row(f"{module}/{peer}", labels, {"skipped": f"{module} is not installed"}))
                continue
            found = pool.fit(peer, budget_s=config.peer_s)
            found["ms_per_fit"] = found.pop("ms_per_shadow")
            rows.append(harness.make_row(f"{module}/{peer}", labels, found))
    return rows


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))

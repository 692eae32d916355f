"""How the time of one map grows with the number of records, beside the libraries that people use.

    python -m bench.growth                       # generated records, n = 1,000 .. 100,000
    python -m bench.growth --resume              # goes on; prints the exponents alone if nothing is left
    python -m bench.growth --data mnist --n 20000 --seeds 3 --makers tsne tsne-open

README.md beside this file says what is measured.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness
from drjax import dr
from drjax.core import host
from drjax.data import load
from drjax.reports import records

CLUSTERS, INNER = 10, 8
"""Clusters of generated records, and dimensions along which those of a cluster vary."""

WARM_UP = 400
"""Records of a first map, by which programs are compiled and what is imported is imported."""

SAMPLE = 1000
"""Records whose neighbours are looked at."""

NEAR = 10
"""Neighbours of each."""

Maker = Callable[[np.ndarray, int], np.ndarray]


def _ours(method: str, **options: Any) -> Maker:
    def make(x: np.ndarray, seed: int) -> np.ndarray:
        made = dr.METHODS[method](**options).fit_transform(jax.random.key(seed), x)
        return np.asarray(made.coords)

    return make


def _open_tsne(x: np.ndarray, seed: int) -> np.ndarray:
    import openTSNE  # of the extra "bench"

    # As many iterations as the others: 250 of them under exaggeration.
    return np.asarray(openTSNE.TSNE(n_iter=750, n_jobs=host.n_cores(), random_state=seed).fit(x))


def _sklearn_tsne(x: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    return TSNE(n_jobs=host.n_cores(), random_state=seed).fit_transform(x)


def _umap_learn(x: np.ndarray, seed: int) -> np.ndarray:
    from umap import UMAP

    # With a seed of its own it would use one core alone.
    np.random.seed(seed)  # noqa: NPY002
    return np.asarray(UMAP(n_jobs=host.n_cores()).fit_transform(x))


def _sklearn_isomap(x: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import Isomap

    del seed
    return Isomap(n_jobs=host.n_cores()).fit_transform(x)


MAKERS: dict[str, tuple[str, str, Maker, int]] = {
    "tsne": ("t-SNE", "drjax", _ours("tsne"), 10**6),
    "tsne-open": ("t-SNE", "openTSNE", _open_tsne, 10**6),
    "tsne-sklearn": ("t-SNE", "scikit-learn", _sklearn_tsne, 10_000),
    "umap": ("UMAP", "drjax", _ours("umap"), 10**6),
    "umap-learn": ("UMAP", "umap-learn", _umap_learn, 10**6),
    "isomap": ("Isomap", "drjax", _ours("isomap"), 10_000),
    "isomap-sklearn": ("Isomap", "scikit-learn", _sklearn_isomap, 10_000),
    "landmark_isomap": ("landmark Isomap", "drjax", _ours("landmark_isomap"), 10**6),
    "landmark_mds": ("landmark MDS", "drjax", _ours("landmark_mds"), 10**6),
}
"""Method, library, what makes a map of records (n, d) by a seed, and the most records that it is given."""

USUAL = tuple(name for name in MAKERS if name != "tsne-sklearn")
"""Those that run if none is named: openTSNE is the faster of the two libraries for t-SNE."""


def main(
    *,
    n: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000),
    makers: tuple[str, ...] = USUAL,
    data: str = "generated",
    d: int = 50,
    seeds: int = 1,
    resume: bool = False,
    least: int = 3000,
    out: Path = harness.RESULTS / "growth.jsonl",
) -> None:
    """Makes maps, each in a process of its own, and adds a row for each.

    Args:
        n: Numbers of records.
        makers: What makes maps, of `MAKERS`.
        data: "generated" records, or a data set by its name, of which the first n are taken.
        d: Features of generated records.
        seeds: Maps of each size.
        resume: Whether maps of which `out` has a row of this commit are not made again.
        least: Records from which on exponents are fitted.
        out: JSON-lines file that the rows are added to.
    """
    rows = _made(out) if resume else []
    made = {_key(row) for row in rows}
    for size in sorted(n):
        for name in makers:
            if size > MAKERS[name][3]:
                continue
            for seed in range(seeds):
                if (*MAKERS[name][:2], data, size, seed) in made:
                    continue
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
                    row = worker.submit(measured, name, data, size, d, seed).result()
                harness.append_row(out, row)
                rows.append(row)
                print(
                    f"{row['method']} by {row['library']}, {size:,} records: {row['wall_s']:.1f} s, "
                    f"{row['max_rss_bytes'] / 1e9:.1f} GB, trustworthiness {row['trustworthiness']:.4f}",
                    flush=True,
                )
    for line in exponents([row for row in rows if row["data"] == data], least=least):
        print(line)


def _made(out: Path) -> list[dict[str, Any]]:
    """Rows of this bench in a file, of the commit that is checked out."""
    if not out.exists():
        return []
    commit = harness.make_row("growth", {}, {})["commit"]
    return [row for row in records.read_records(out) if row["name"] == "growth" and row["commit"] == commit]


def _key(row: dict[str, Any]) -> tuple[str, str, str, int, int]:
    return row["method"], row["library"], row["data"], row["n"], row["seed"]


def measured(name: str, data: str, n: int, d: int, seed: int) -> dict[str, Any]:
    """The row of one map, after one of `WARM_UP` records."""
    method, library, make, _ = MAKERS[name]
    x = generated(n, d) if data == "generated" else np.asarray(load(data).x[:n], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(x[:WARM_UP], seed)
        before, cpu = time.perf_counter(), time.process_time()
        coords = make(x, seed)
        fields = {"wall_s": time.perf_counter() - before, "cpu_s": time.process_time() - cpu}
    fields |= {
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "trustworthiness": trustworthiness(x, coords),
    }
    labels = {"method": method, "library": library, "data": data, "n": n, "d": x.shape[1], "seed": seed}
    return harness.make_row("growth", labels, fields)


def generated(n: int, d: int) -> np.ndarray:
    """(n, d) records in clusters, each near a subspace of its own."""
    rng = np.random.default_rng(0)
    middles = 2 * rng.normal(size=(CLUSTERS, d))
    along = rng.normal(size=(CLUSTERS, INNER, d))
    of = rng.integers(0, CLUSTERS, n)
    x = middles[of] + 0.2 * rng.normal(size=(n, d))
    for c in range(CLUSTERS):
        own = of == c
        x[own] += rng.normal(size=(own.sum(), INNER)) @ along[c]
    return x.astype(np.float32)


def trustworthiness(x: np.ndarray, coords: np.ndarray) -> float:
    """scikit-learn's measure over all records, of the neighbours in the map of `SAMPLE` of them; in [0, 1]."""
    n = len(x)
    at = np.random.default_rng(0).choice(n, min(n, SAMPLE), replace=False)
    penalty = 0.0
    for i in at:
        places = np.linalg.norm(coords - coords[i], axis=1)
        places[i] = np.inf
        listed = np.argpartition(places, NEAR)[:NEAR]
        apart = np.linalg.norm(x - x[i], axis=1)
        apart[i] = np.inf
        ranks = 1 + (apart[None] < apart[listed][:, None]).sum(axis=1)
        penalty += np.maximum(ranks - NEAR, 0).sum()
    return float(1 - penalty * 2 / (len(at) * NEAR * (2 * n - 3 * NEAR - 1)))


def exponents(rows: list[dict[str, Any]], *, least: int = 3000) -> list[str]:
    """Slopes of log seconds over log records, from `least` records on.

    One line for each method and library over all its sizes, and one for each method of drjax and each other library,
    over the sizes that both have.
    """
    lines = []
    own = {key: seconds_of(rows, key, least) for key in dict.fromkeys((r["method"], r["library"]) for r in rows)}
    for (method, library), seconds in own.items():
        if len(seconds) > 1:
            lines.append(f"{method} by {library}: n^{slope(seconds):.2f} from {_span(seconds)} records")
    for (method, library), theirs in own.items():
        both = theirs.keys() & own.get((method, "drjax"), {}).keys()
        if library == "drjax" or len(both) < 2:
            continue
        ours, theirs = ({n: of[n] for n in both} for of in (own[method, "drjax"], theirs))
        lines.append(
            f"{method}, {_span(both)} records: drjax n^{slope(ours):.2f}, {library} n^{slope(theirs):.2f}; "
            f"at {max(both):,} {ours[max(both)]:.1f} s and {theirs[max(both)]:.1f} s"
        )
    return lines


def seconds_of(rows: list[dict[str, Any]], key: tuple[str, str], least: int) -> dict[int, float]:
    """Geometric mean of the seconds of each size."""
    own = [row for row in rows if (row["method"], row["library"]) == key and row["n"] >= least]
    sizes = sorted({row["n"] for row in own})
    return {n: float(np.exp(np.mean([np.log(row["wall_s"]) for row in own if row["n"] == n]))) for n in sizes}


def slope(seconds: dict[int, float]) -> float:
    """Exponent of the records in the seconds, by least squares of logarithms."""
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def _span(sizes: Collection[int]) -> str:
    return f"{min(sizes):,} to {max(sizes):,}"


if __name__ == "__main__":
    tyro.cli(main)

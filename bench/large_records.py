"""PCA of as many records as there are: the audit of a file that is read in blocks, and shadows in constant memory.

    python -m bench.large_records

README.md beside this file says what is measured.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness
from drjax.attacks.prepared import Prepared
from drjax.attacks.shadow import iter_shadow_embeddings
from drjax.core.regression_sums import RegressionSums
from drjax.dr import PCA

RANK, NOISE = 60, 0.05
"""Directions that records share, with variances that fall as 1 / j^2, and the noise of a feature."""

PIECE = 20_000
"""Records that are made at a time."""


def main(
    *,
    n: tuple[int, ...] = (10_000, 100_000, 1_000_000),
    d: int = 784,
    dtypes: tuple[str, ...] = ("float32", "float64"),
    attacked: int = 1000,
    shadows: tuple[int, ...] = (10_000, 100_000, 1_000_000),
    known: int = 199,
    folder: Path | None = None,
    out: Path = harness.RESULTS / "large_records.jsonl",
) -> None:
    """Audits files of generated records, counts statistics of shadows, and adds a row for each.

    Args:
        n: Numbers of records, each in a file of 4 n d bytes.
        d: Features.
        dtypes: Floating-point types of the release.
        attacked: Records attacked of each.
        shadows: Numbers of shadows.
        known: Known records of a shadow.
        folder: Folder for the files; a temporary one if None.
        out: JSON-lines file that the rows are added to.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for count in n:
            path = Path(place) / "records.npy"
            write(path, count, d)
            for dtype in dtypes:
                row = audit(path, dtype, attacked)
                harness.append_row(out, row)
                print(
                    f"{count:,} records, {dtype}: {row['wall_s']:.0f} s, {row['max_rss_bytes'] / 1e9:.1f} GB, "
                    f"{row['error_left']:.3%} of the error left, {row['rebuilt']:.1%} rebuilt",
                    flush=True,
                )
    for count in shadows:
        row = statistics(count, known, d)
        harness.append_row(out, row)
        print(f"{count:,} shadows: {row['wall_s']:.1f} s, {(row['extra_rss_bytes'] or 0) / 1e6:.0f} MB", flush=True)


def write(path: Path, n: int, d: int) -> None:
    """Writes a file of n records of d features in [0, 1], a piece after the other."""
    rng = np.random.default_rng(0)
    shared = (rng.normal(size=(RANK, d)) / np.arange(1, RANK + 1)[:, None]).astype(np.float32)
    x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, PIECE):
        x[start : start + PIECE] = made(rng, shared, min(PIECE, n - start))
    x.flush()


def made(rng: np.random.Generator, shared: np.ndarray, n: int) -> np.ndarray:
    """(n, d) records in [0, 1]."""
    own = rng.standard_normal((n, len(shared)), dtype=np.float32) @ shared
    noise = NOISE * rng.standard_normal(own.shape, dtype=np.float32)
    return np.clip(0.5 + 0.1 * (own + noise), 0, 1)


def audit(path: Path, dtype: str, attacked: int) -> dict[str, Any]:
    """The row of one audit by the closed form, a process of its own."""
    n, d = np.load(path, mmap_mode="r").shape
    folder = path.parent / f"run-{n}-{dtype}"
    command = "import sys; from drjax.cli import main; main(sys.argv[1:])"
    options = ["--attacks", "closed-form", "--max-records", str(attacked), "--options", "False", "--dtype", dtype]
    arguments = ["audit", "--data", str(path), *options, "--out", str(folder)]
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", command, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"drjax {' '.join(arguments)} ended with {process.returncode}: {said[-500:]}")
    seconds = time.perf_counter() - begun
    with (folder / "exposure.csv").open() as file:
        lines = list(csv.DictReader(file))
    fields = {
        "wall_s": seconds,
        "error_left": sum(float(one["error"]) for one in lines) / sum(float(one["mean_error"]) for one in lines),
        "rebuilt": sum(one["rebuilt"] == "yes" for one in lines) / len(lines),
        "cpu_s": used.ru_utime + used.ru_stime,
        "max_rss_bytes": used.ru_maxrss * 1024,
        "file_bytes": path.stat().st_size,
    }
    labels = {"n": n, "d": d, "dtype": dtype, "attacked": attacked, "attack": "closed-form"}
    return harness.make_row("audit_of_pca", labels, fields)


def statistics(m: int, known: int, d: int) -> dict[str, Any]:
    """The row of m shadows of PCA, as factors, whose targets' rows go into the sums of a linear regression."""
    rng = np.random.default_rng(1)
    shared = (rng.normal(size=(RANK, d)) / np.arange(1, RANK + 1)[:, None]).astype(np.float32)
    records, kept, method = made(rng, shared, known), Prepared(), PCA()
    sums: RegressionSums | None = None
    memory, begun = harness.MemoryMeter(), time.perf_counter()
    for start in range(0, m, PIECE):
        targets = made(rng, shared, min(PIECE, m - start))
        key = jax.random.fold_in(jax.random.key(0), start)
        for at, one in iter_shadow_embeddings(key, method, records, targets, factored=True, kept=kept):
            coords = np.asarray(one.coords[:, 0])
            own = RegressionSums.of(coords, targets[at : at + len(coords)])
            sums = own if sums is None else sums.merged(own)
    assert sums is not None
    fields = {
        "wall_s": time.perf_counter() - begun,
        "extra_rss_bytes": memory.growth(),
        "slope": float(np.linalg.norm(sums.solve([1e-9]).weights)),
    }
    return harness.make_row("statistics_of_pca", {"m": m, "n": known + 1, "d": d}, fields)


if __name__ == "__main__":
    tyro.cli(main)

"""One way to time things: compilation apart, results waited for, memory watched, provenance attached.

A row is a flat mapping. `measure` makes it, `append_row` adds it to a JSON-lines file, `machine_peaks` says what the
machine could do at best in the same run.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import programs, validate
from drjax.core.linalg import HIGHEST
from drjax.core.store import remove_stale
from drjax.reports import records

ROW_VERSION = 1
"""Version of the fields that `measure` writes; raise it when one changes its meaning."""

RESULTS = Path(__file__).parent / "results"


def measure(
    name: str,
    fn: Callable[..., Any],
    *args: Any,
    repeats: int = 5,
    budget_s: float = 10.0,
    flops: float | None = None,
    n_bytes: float | None = None,
    **labels: Any,
) -> dict[str, Any]:
    """Times fn(*args) until its result is ready, and returns one row.

    The first call compiles and warms up; it is not among the repeats. Memory is watched during the repeats.

    Args:
        name: What is measured.
        fn: Returns a pytree of arrays.
        *args: Passed on.
        repeats: Timed calls after the first, at most.
        budget_s: Repeating stops when the repeats have taken this many seconds; there is always one.
        flops: Floating-point operations of one call, from the algorithm; gives gflop_per_s.
        n_bytes: Bytes that one call has to move; gives gbyte_per_s.
        **labels: Copied into the row: sizes, dtype, threat model.

    Returns:
        name, labels, and: first_s, compile_s (first call minus median), programs_compiled and programs_found (by the
        first call; what is found on disk is not compiled), run_s (median), run_iqr_s, run_min_s, repeats,
        gflop_per_s, gbyte_per_s, output_bytes, extra_rss_bytes (most the process grew above its size before the
        repeats; None where the system does not say), device_peak_bytes (None on CPU), then the provenance.

    Raises:
        ValueError: repeats < 1, a budget not > 0, or a label that would overwrite a field.
    """
    validate.integer(repeats=repeats)
    validate.positive(budget_s=budget_s)
    programs.keep_programs()
    with programs.watched() as seen:
        first, output_bytes = _timed(fn, args)
    seconds: list[float] = []
    memory = MemoryMeter()
    while len(seconds) < repeats and sum(seconds) < budget_s:
        seconds.append(_timed(fn, args)[0])
    extra = memory.growth()
    run = float(np.median(seconds))
    low, high = np.percentile(seconds, [25, 75])
    fields = {
        "first_s": first,
        "compile_s": max(0.0, first - run),
        "programs_compiled": seen.compiled,
        "programs_found": seen.found,
        "run_s": run,
        "run_iqr_s": float(high - low),
        "run_min_s": min(seconds),
        "repeats": len(seconds),
        "gflop_per_s": flops / run / 1e9 if flops is not None else None,
        "gbyte_per_s": n_bytes / run / 1e9 if n_bytes is not None else None,
        "output_bytes": output_bytes,
        "extra_rss_bytes": extra,
        "device_peak_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
    }
    return make_row(name, labels, fields)


def make_row(name: str, labels: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """A row of already measured fields with its labels and provenance.

    Raises:
        ValueError: a label or field that would overwrite another.
    """
    parts = ({"row_version": ROW_VERSION, "name": name}, labels, fields, _provenance())
    row: dict[str, Any] = {}
    for part in parts:
        if taken := sorted(row.keys() & part.keys()):
            raise ValueError(f"labels must not use the names of other fields, got {', '.join(taken)}")
        row |= part
    return row


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Adds the row, as a file of its own in the folder `NAME.cells` and as a line; makes folders and file if missing.

    Several benchmarks may add rows at once, and a kill loses none that was added.

    Raises:
        ValueError: a value that JSON cannot carry; the file is then unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(path.parent)
    # Rows are ordered by time; two of one moment are told apart by chance.
    records.put_record(path, "run", f"{time.time_ns():020d}-{secrets.token_hex(4)}", **row)
    records.gather_records(path)


def machine_peaks(*, gemm_size: int = 2048, copy_entries: int = 2**25, repeats: int = 7) -> list[dict[str, Any]]:
    """What the default device reaches at best: matrix products in float32 and float64, and a triad a + s b.

    One row each, named "peak/gemm" (gflop_per_s from the fastest call, at the precision of drjax's kernels) and
    "peak/triad" (gbyte_per_s: two reads and one write per entry), labelled with dtype and library. On an accelerator
    NumPy is left out, and double the sizes are sensible.
    """
    rows = []
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            rows += [_gemm_peak(library, dtype, gemm_size, repeats) for library in _libraries()]
    return rows + [_triad_peak(library, copy_entries, repeats) for library in _libraries()]


def best_peak(rows: list[dict[str, Any]], name: str, dtype: str) -> float:
    """The largest rate among the peak rows of this name and dtype, GFLOP/s or GB/s."""
    rate = "gflop_per_s" if name == "peak/gemm" else "gbyte_per_s"
    return max(row[rate] for row in rows if row["name"] == name and row["dtype"] == dtype)


class MemoryMeter:
    """How far the resident memory of this process rises above its size at construction; Linux only."""

    def __init__(self) -> None:
        gc.collect()
        # What the allocator keeps for reuse would hide growth; only glibc has this call.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
        if trim is not None:
            trim(0)
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark VmHWM
            self._start: int | None = _status_bytes("VmRSS")
        except OSError:
            self._start = None

    def growth(self) -> int | None:
        """Bytes above the start at the highest point since; None where the system does not say."""
        return None if self._start is None else max(0, _status_bytes("VmHWM") - self._start)


def _timed(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, int]:
    start = time.perf_counter()
    result = jax.block_until_ready(fn(*args))
    seconds = time.perf_counter() - start
    return seconds, sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(result))


def _provenance() -> dict[str, Any]:
    return {
        **_origin(),
        "x64": jax.dtypes.canonicalize_dtype(np.float64) == np.float64,
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _origin() -> dict[str, Any]:
    # Once per process: the rows a benchmark appends would make its own checkout look dirty.
    return {key: value for key, value in records.provenance().items() if key not in ("seed", "x64", "utc")}


def _libraries() -> tuple[str, ...]:
    return ("xla", "numpy") if jax.default_backend() == "cpu" else ("xla",)


def _gemm_peak(library: str, dtype: str, size: int, repeats: int) -> dict[str, Any]:
    a = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    if library == "numpy":
        out = np.empty_like(a)
        row = measure("peak/gemm", lambda: np.matmul(a, a, out=out), repeats=repeats, dtype=dtype, library=library)
    else:
        product = jax.jit(lambda x: jnp.matmul(x, x, precision=HIGHEST))
        row = measure("peak/gemm", product, jnp.asarray(a), repeats=repeats, dtype=dtype, library=library)
    return row | {"gflop_per_s": 2 * size**3 / row["run_min_s"] / 1e9}


def _triad_peak(library: str, entries: int, repeats: int) -> dict[str, Any]:
    if library == "numpy":
        a, b, out = (np.ones(entries, np.float32) for _ in range(3))
        row = measure("peak/triad", lambda: np.add(a, b, out=out), repeats=repeats, dtype="float32", library=library)
    else:
        # Writing into a donated array: a fresh one would be timed with the page faults of its first touch.
        triad = jax.jit(lambda x, y: x + 0.5 * y, donate_argnums=0)
        kept = {"a": jnp.ones(entries, jnp.float32)}
        b = jnp.ones(entries, jnp.float32)

        def step() -> jax.Array:
            kept["a"] = triad(kept["a"], b)
            return kept["a"]

        row = measure("peak/triad", step, repeats=repeats, dtype="float32", library=library)
    return row | {"gbyte_per_s": 3 * 4 * entries / row["run_min_s"] / 1e9}


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no line {field}")

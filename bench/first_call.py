"""What a command waits for in a new process: nothing kept, an empty folder, and what was kept in it before.

    OPENBLAS_NUM_THREADS=1 python -m bench.first_call

README.md beside this file says what is measured.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tyro

from bench import harness
from drjax.core.programs import VARIABLE

COMMANDS = (
    "audit",
    "audit --method mds --n-known 60 --n-shadow 100 --n-targets 20 --attack stationarity invariant",
    "audit --method tsne --n-known 60 --n-shadow 100 --n-validation 50 --n-targets 20",
)
"""Arguments of `drjax`, on the built-in digits: two of the documentation, and the method with the largest programs."""

CHILD = """
import json, resource, sys, time
start = time.perf_counter()
from drjax.cli import main
from drjax.core import programs
imported = time.perf_counter()
with programs.watched() as seen:
    main(sys.argv[2:])
ended = time.perf_counter()
used = resource.getrusage(resource.RUSAGE_SELF)
row = vars(seen) | {"import_s": imported - start, "run_s": ended - imported, "cpu_s": used.ru_utime + used.ru_stime}
open(sys.argv[1], "w").write(json.dumps(row))
"""


def main(
    *, commands: tuple[str, ...] = COMMANDS, repeats: int = 3, out: Path = harness.RESULTS / "first_call.jsonl"
) -> None:
    """Runs every command in new processes and adds a row for each state of the folder of programs.

    Args:
        commands: Arguments of `drjax` that take `--out`, as one word each.
        repeats: Processes for each state; a row has the medians.
        out: JSON-lines file that the rows are added to.
    """
    for command in commands:
        found: dict[str, list[dict[str, Any]]] = {"off": [], "empty": [], "kept": []}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                for kept in found:
                    found[kept].append(_run(command, cache, is_on=kept != "off"))
        for kept, runs in found.items():
            fields = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            harness.append_row(out, harness.make_row("first_call", {"command": command, "kept": kept}, fields))
            print(
                f"{command}, {kept}: {fields['run_s']:.2f} s, of it compiling {fields['compile_s']:.2f} s "
                f"({fields['compiled']:.0f} programs), finding {fields['found_s']:.2f} s ({fields['found']:.0f})"
            )


def _run(command: str, cache: str, *, is_on: bool) -> dict[str, Any]:
    """One process, with nothing of the caller's cache."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    own |= {"XDG_CACHE_HOME": cache, VARIABLE: str(int(is_on))}
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(command), "--out", f"{folder}/run"]
        result = Path(folder) / "row.json"
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(result), *words], env=own, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"drjax {command} failed: {done.stderr[-2000:]}")
        return json.loads(result.read_text())


if __name__ == "__main__":
    tyro.cli(main)

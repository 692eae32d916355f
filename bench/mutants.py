"""Mutants of drjax: one small fault in one module at a time, and whether the tests notice.

    OPENBLAS_NUM_THREADS=1 python -m bench.mutants --out runs/mutants

README.md beside this file says what is done. No file of the package changes: a process for each mutant, forked from
one that has imported everything but drjax, compiles the module with the fault in its syntax tree.
"""

from __future__ import annotations

import ast
import ctypes
import fnmatch
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn
from unittest.mock import MagicMock

import tyro

from bench.mutations import DIED, Mutant, mutated, path_of, sample, table

ROOT = Path(__file__).parents[1]
EQUIVALENT = ROOT / "bench" / "results" / "mutants.json"
"""Mutants that no test can tell from the original, by name, with the reason."""

SLOW_SECONDS = 40.0
"""A test file that takes longer is run where nothing else tests the module; thrice as long with more tests."""

UNKNOWN_SECONDS = 30.0
"""What a test file is taken to need before it was first run to its end."""

COMPILE_SECONDS = 90.0
"""Added to a limit where numba has to compile its kernels anew, since its cache does not see a constant change."""

HELD = (
    *("tests.conftest", "numpy", "scipy.stats", "scipy.optimize", "scipy.sparse.linalg", "sklearn.manifold"),
    *("sklearn.linear_model", "skimage.metrics", "numba", "umap", "jax.numpy", "flax.nnx", "optax", "mpmath"),
    *("matplotlib.pyplot", "pandas", "polars", "hypothesis"),
)
"""What the tests import, beside drjax; first what sets the environment that the others read when imported."""


class _Faulty(importlib.machinery.SourceFileLoader):
    """Loads one module with its fault."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 (as the protocol has it)
        """From the syntax tree, past the compiled file."""
        return compile(mutated(self.get_data(self.path).decode(), self.mutant), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the module of a mutant, under any root; the rest is left to others."""

    def __init__(self, mutant: Mutant, root: Path) -> None:
        self.loader = _Faulty(mutant, str(path_of(mutant.module, root)))

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module of the mutant or nothing."""
        if fullname != self.loader.mutant.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.loader.path, loader=self.loader)


class Tests:
    """Which test files concern a module, and how long each takes.

    Args:
        root: Folder of drjax and tests.
        times: JSON file of the seconds, which grows.
    """

    def __init__(self, root: Path, times: Path) -> None:
        self.times = times
        self.seconds: dict[str, float] = json.loads(times.read_text()) if times.exists() else {}
        files = [*(root / "drjax").rglob("*.py"), *(root / "tests").rglob("test_*.py")]
        self.texts = {path.relative_to(root).as_posix(): path.read_text() for path in files}
        self.imports = {name: _imported(text) for name, text in self.texts.items()}

    def of(self, module: str, *, is_wide: bool) -> list[str]:
        """Test files that mirror or import a module, the one of its name and quick ones first.

        Args:
            module: Dotted.
            is_wide: Then those that import what imports it, too; else only if there are no others.
        """
        near, far = self._near_and_far(module)
        stem = f"test_{module.rpartition('.')[2]}.py"

        def order(name: str) -> tuple[bool, float, str]:
            return not name.endswith(f"/{stem}"), self.seconds.get(name, UNKNOWN_SECONDS), name

        names = [*sorted(near, key=order), *(sorted(far, key=order) if is_wide or not near else ())]
        most = SLOW_SECONDS * (3 if is_wide else 1)
        return [name for name in names if self.seconds.get(name, 0.0) <= most] or names[:1]

    def took(self, name: str, seconds: float) -> None:
        """A test file was run to its end."""
        if name not in self.seconds:
            self.seconds[name] = round(seconds, 1)
            self.times.write_text(json.dumps(self.seconds, indent=1))

    def _near_and_far(self, module: str) -> tuple[set[str], set[str]]:
        package, folder, stem = f"tests/{module.split('.')[1]}/", *module.split(".")[-2:]
        mirrors = re.compile(rf"{package}(.*/)?test_({stem}|{folder})(_\w+)?\.py")
        importers = self._importers(module)
        near = {name for name in self.texts if mirrors.fullmatch(name)}
        near |= {name for name in self.texts if name.startswith(package) and _sound_alike(stem, Path(name).stem)}
        near |= {name for name in importers if name.startswith(package)}
        for name in [name for name in importers if name.startswith("drjax/")]:
            importers |= self._importers(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        far = {name for name in importers - near if name.startswith("tests/")}
        return near, {name for name in far if name.startswith(package)} or far

    def compiles(self, module: str) -> bool:
        """Is it or what imports it compiled by numba?"""
        concerned = {path_of(module, Path()).as_posix(), *self._importers(module)}
        return any("njit" in self.texts[name] for name in concerned if name in self.texts and "drjax/" in name)

    def _importers(self, module: str) -> set[str]:
        return {name for name, imported in self.imports.items() if module in imported}


def _sound_alike(stem: str, test: str) -> bool:
    """Has a test file's name a word that begins as one of a module's name does, such as erm_inputs and test_erm?"""
    own, others = ([word for word in name.split("_") if len(word) > 2] for name in (stem, test.removeprefix("test_")))
    return stem != "method" and any(a.startswith(b) or b.startswith(a) for a in own for b in others)


def _imported(text: str) -> set[str]:
    """Dotted names that a file imports, `from a import b` as a.b and a."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def run_tests(
    tests: list[str], mutant: Mutant | None, limit_s: float, *, root: Path = ROOT, anew: bool = False
) -> tuple[str, float, str]:
    """Runs test files in a forked process.

    Args:
        tests: Paths from the root.
        mutant: Fault that the process has, if any.
        limit_s: Seconds of processor time until it is ended; ten times as long where it waits or others compute.
        root: Folder of drjax and tests.
        anew: Nothing that numba compiled before is used.

    Returns:
        passed, failed, too long or crashed; the seconds of processor time; the first test that failed, or "".

    Raises:
        RuntimeError: pytest ran no test.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 1))
            _child(tests, mutant, root, Path(folder), anew)
        ended, status, used = os.wait4(pid, os.WNOHANG)
        try:
            while not ended and time.monotonic() < start + 10 * limit_s:
                time.sleep(0.02)
                ended, status, used = os.wait4(pid, os.WNOHANG)
        finally:
            if not ended:
                os.kill(pid, signal.SIGKILL)
                _, status, used = os.wait4(pid, 0)
        log = Path(folder, "log").read_text(errors="replace")
    seconds = used.ru_utime + used.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if not ended or (code in (-signal.SIGKILL, -signal.SIGXCPU) and seconds >= limit_s):
        return "too long", seconds, ""
    if code in (4, 5):
        raise RuntimeError(f"pytest ran no test: {log[-2000:]}")
    first = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", log, re.MULTILINE)
    return {0: "passed", 1: "failed", 2: "failed"}.get(code, "crashed"), seconds, first[1] if first else ""


def _child(tests: list[str], mutant: Mutant | None, root: Path, folder: Path, anew: bool) -> NoReturn:
    """The forked process, which ends with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    if anew:
        os.environ["NUMBA_CACHE_DIR"] = str(folder / "numba")
        importlib.import_module("numba").config.reload_config()
    os.chdir(root)
    code = 3
    try:
        sys.path.insert(0, str(root))
        if mutant is not None:
            sys.meta_path.insert(0, Finder(mutant, root))
        import pytest

        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE", f"--basetemp={folder / 'tmp'}"]
        code = int(pytest.main([*options, *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def hold() -> None:
    """Imports what the tests import, with nothing in the place of drjax: a forked process imports it with a fault."""
    sys.modules |= {"drjax": MagicMock(), "drjax.core": MagicMock()}
    for name in HELD:
        importlib.import_module(name)
    for name in ("drjax", "drjax.core", "tests.conftest"):
        del sys.modules[name]


def try_out(mutant: Mutant, tests: Tests, *, is_wide: bool = False) -> dict[str, Any]:
    """The row of a mutant, after one test file after another until one notices."""
    anew = tests.compiles(mutant.module)
    outcome, name, first, spent = "passed", "", "", 0.0
    for name in tests.of(mutant.module, is_wide=is_wide):
        limit = 20 + 5 * tests.seconds.get(name, UNKNOWN_SECONDS) + anew * COMPILE_SECONDS
        outcome, seconds, first = run_tests([name], mutant, limit, anew=anew)
        spent += seconds
        if outcome != "passed":
            break
        tests.took(name, seconds)
    return {"name": mutant.name} | asdict(mutant) | {"outcome": outcome, "test": first or name, "s": round(spent, 1)}


def main(
    *,
    out: Path,
    count: int = 240,
    seed: int = 0,
    only: str = "*",
    list_: bool = False,
    again: bool = False,
    check: bool = False,
) -> None:
    """Tries a sample of mutants, and prints what came of it; goes on where it was interrupted.

    Args:
        out: Folder of the rows; made.
        count: Mutants, of all packages together.
        seed: Of the sample.
        only: Names with wildcards, for a part of the sample.
        list_: The names, and what is known of each; nothing is run.
        again: Try the survivors again that are not known to be equivalent, with more tests.
        check: Run the tests that failed, without a fault: all must pass.
    """
    rows_file = out / "mutants.jsonl"
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()] if rows_file.exists() else []
    outcomes = {row["name"]: row["outcome"] for row in rows}
    equivalent = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    chosen = [mutant for mutant in sample(ROOT, count, seed) if fnmatch.fnmatch(mutant.name, only)]
    if list_:
        print("\n".join(f"{outcomes.get(mutant.name, 'not tried')}: {mutant.name}" for mutant in chosen))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    out.mkdir(parents=True, exist_ok=True)
    hold()
    tests = Tests(ROOT, out / "times.json")
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    for i, mutant in enumerate(chosen):
        known = outcomes.get(mutant.name)
        if known in DIED or (known and not (again and mutant.name not in equivalent)):
            continue
        rows.append(try_out(mutant, tests, is_wide=again) | {"commit": commit})
        with rows_file.open("a") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
        print(f"{i + 1} of {len(chosen)}, {rows[-1]['s']} s, {rows[-1]['outcome']}: {mutant.name}", file=sys.stderr)
    failed = sorted({row["test"] for row in rows if row["outcome"] == "failed"})
    if check and failed and (end := run_tests(failed, None, 3600.0))[0] != "passed":
        raise RuntimeError(f"without a fault: {end}")
    names = {mutant.name for mutant in chosen}
    print(table([row for row in rows if row["name"] in names], equivalent))


if __name__ == "__main__":
    tyro.cli(main)

"""Part a: the tests that a GPU changes, which are those marked `gpu`, a file at a time in a process of its own."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.gpu_hour.hour import Hour, Scale
from bench.gpu_hour.steps import Cell, Step, cut
from bench.peers import ROOT

MARK = re.compile(r"^\s*(@|pytestmark = )pytest\.mark\.gpu$", re.MULTILINE)

SECONDS = {"test_contract.py": 420.0, "test_tsne.py": 300.0}
"""Expected of a file; `USUAL` of others."""

USUAL = 120.0

CHEAPEST = "tests/core/test_batching.py"
"""What the toy scale runs."""

LONGEST = 560.0
"""A process that has not ended by then is ended; its file counts as failed."""


def steps(scale: Scale) -> Iterator[Step]:
    """A cell for every file with marked tests."""
    files = [CHEAPEST] if scale.name == "toy" else marked()
    cells = [
        Cell(
            name=f"tests/{file.removeprefix('tests/')}",
            seconds=SECONDS.get(Path(file).name, USUAL),
            compute=functools.partial(_run, file=file),
            lacks=_lacks,
        )
        for file in files
    ]
    yield from cut("tests", "a", "guess: a few seconds of compilation for every test", cells)


def marked() -> list[str]:
    """Files with marked tests, relative to the root of the repository."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(file.relative_to(ROOT).as_posix() for file in found if MARK.search(file.read_text()))


def _lacks() -> str | None:
    absent = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} (pip install 'drjax[test]')" if absent else None


def _run(hour: Hour, *, file: str) -> dict[str, Any]:
    del hour
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # One process, which needs no plugin: the card is one.
        options = ["-o", "addopts=-q --import-mode=importlib", "-m", "gpu", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", file]
        # This process holds memory of the device too, and both take what they need only.
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "DRJAX_TESTS": "optimised"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        # 0: all passed; 1: some failed; else pytest itself could not do its work.
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        return _outcome(report, file)


def _outcome(report: Path, file: str) -> dict[str, Any]:
    suite = ElementTree.parse(report).getroot()
    cases = list(suite.iter("testcase"))
    failures = {
        case.get("name", ""): (problem.get("message") or "")[:300]
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error")
    }
    skipped = sum(problem.tag == "skipped" for case in cases for problem in case)
    finding = f"{len(failures)} of {len(cases)} tests failed, the first is {next(iter(failures))}" if failures else None
    return {"file": file, "tests": len(cases), "skipped": skipped, "failures": failures, "finding": finding}

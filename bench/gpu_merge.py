"""Files what came back from `bench.gpu_hour` into the committed results.

    python -m bench.gpu_merge runs/gpu_hour back/monday

Rows of the grid go to `bench/results/shadow_embeddings.jsonl`, a line for every cell to `bench/results/gpu_hour.jsonl`,
and cells of experiments to their own `results.jsonl`. What is there stays as it is, with its own commit, device and
versions; a second time adds nothing. Results of another configuration are refused before anything is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from bench.gpu_hour import archive, papers, registry
from bench.gpu_hour.hour import RECORDS
from bench.peers import ROOT
from drjax.core.store import atomic_open
from drjax.reports import records
from experiments import merging, sweep

ROWS = Path("bench/results/shadow_embeddings.jsonl")
CELLS = Path("bench/results/gpu_hour.jsonl")

Line = Mapping[str, Any]


def merge(folders: Sequence[Path], into: Path = ROOT) -> dict[Path, int]:
    """Adds to the results of a checkout what some runs have and it lacks.

    Args:
        folders: What `--out` or `--pack` of `bench.gpu_hour` named, or copies of them.
        into: Root of the checkout.

    Returns:
        How many lines were added, by the file below `into`.

    Raises:
        ValueError: no folders, one without cells or of a dry run, or results of another configuration.
        OSError: a file cannot be read or written.
    """
    if not folders:
        raise ValueError("folders must name at least one, got none")
    with tempfile.TemporaryDirectory() as scratch:
        taken = [Path(scratch) / str(number) for number in range(len(folders))]
        for folder, copy in zip(folders, taken, strict=True):
            archive.take_over(folder, copy)
        found = [line for folder, copy in zip(folders, taken, strict=True) for line in _lines(folder, copy)]
        parts = {name: _parts(name, taken, into) for name in papers.KEPT}
        rows = [_row(row) for line in found for row in line.get("rows", ())]
        cells = [{key: value for key, value in line.items() if key != "rows"} for line in found]
        added = {ROWS: _added(into / ROWS, rows), CELLS: _added(into / CELLS, cells)}
        for name, files in parts.items():
            if files:
                added[Path(papers.KEPT[name].committed)] = _merged(name, files, into)
    return added


def _lines(folder: Path, copy: Path) -> Sequence[Line]:
    """Cells of a run.

    Raises:
        ValueError: it is a dry run.
    """
    head, *lines = records.read_records(copy / RECORDS)
    if head["fingerprint"] != records.config_fingerprint(registry.CARD):
        raise ValueError(f"folders must hold results at full size, got {folder} of scale {head['config']['name']!r}")
    return lines


def _parts(name: str, taken: Iterable[Path], into: Path) -> list[Path]:
    """Files of an experiment in some runs.

    Raises:
        ValueError: one of another configuration than the committed results have, or the experiment now.
    """
    found = [copy / papers.FOLDER / name / "results.jsonl" for copy in taken]
    files = [file for file in found if records.has_cells(file)]
    committed = into / papers.KEPT[name].committed
    if committed.exists():
        merging.gathered([committed, *files], papers.KEPT[name].sweep.identity)
        return files
    wanted = records.config_fingerprint(papers.KEPT[name].config)
    for file in files:
        if records.read_records(file)[0]["fingerprint"] != wanted:
            raise ValueError(f"folders must hold {name} in its present configuration, got {file.parents[2]} of another")
    return files


def _merged(name: str, files: Sequence[Path], into: Path) -> int:
    committed, identity = into / papers.KEPT[name].committed, papers.KEPT[name].sweep.identity
    before = {identity(line) for line in records.read_records(committed)[1:]} if committed.exists() else set()
    new = {identity(line) for file in files for line in records.read_records(file)[1:]} - before
    if new:
        own = [committed.parent] if committed.exists() else []
        folders = [*own, *(file.parent for file in files)]
        sweep.merge(papers.KEPT[name].sweep, folders, committed.parent)
    return len(new)


def _row(row: Line) -> dict[str, Any]:
    return {"schema": records.SCHEMA_VERSION, "kind": "run", **row}


def _added(file: Path, lines: Iterable[Line]) -> int:
    """Puts lines that a file lacks behind those that it has."""
    before = file.read_bytes() if file.exists() else b""
    there = set(before.splitlines(keepends=True))
    new = [line for line in dict.fromkeys(map(records.encoded_line, lines)) if line not in there]
    if new:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_open(file) as target:
            target.writelines([before, *new])
    return len(new)


def main(folders: Annotated[tuple[Path, ...], tyro.conf.Positional], /, into: Path = ROOT) -> None:
    """Adds results to a checkout and says what was added.

    Args:
        folders: Folders of runs, or of what came back of them.
        into: Root of the checkout.
    """
    for file, count in merge(folders, into).items():
        print(f"{count:5d} lines added to {file}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

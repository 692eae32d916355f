"""The command: python -m bench.gpu_hour."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import tyro

# Read by JAX when it first looks for a device, and by the tests' processes: other processes need room on the card.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from bench.gpu_hour import listing, registry
from bench.gpu_hour.hour import CELLS, Hour, run
from drjax.core import programs, validate
from drjax.data.sources import DATA_VARIABLE

RUNS = Path("runs/gpu_hour")


def main(
    *,
    out: Path | None = None,
    done: tuple[Path, ...] = (),
    data: Path | None = None,
    pack: Path | None = None,
    only: str = "*",
    minutes: float | None = None,
    dry_run: bool = False,
    list_: Annotated[bool, tyro.conf.arg(name="list")] = False,
) -> int:
    """Computes, in order of value, what wants an accelerator and is not computed yet.

    Args:
        out: Folder of the results, a file a cell; runs/gpu_hour if not given. A later run with the same folder goes on
            where this one ended. A dry run without it has a folder that is deleted.
        done: Folders of earlier runs, or of what came back of them (cells-*.tar.gz): what they hold is not computed
            again, and is in `out` afterwards.
        data: Folder of the data sets; where $DRJAX_DATA says, or the download cache, if not given.
        pack: Folder for cells-*.tar.gz and profile-*.tar.gz, written again after every cell; `out` if not given.
        only: Steps to run: a family ("grid"), a pattern of names ("grid/0[12]") or a part (a, b, c or d).
        minutes: A cell that is expected to end later than this is not begun.
        dry_run: Everything at toy size, on whatever device there is.
        list_: Say what there is to do and what it is expected to take, and do nothing.

    Returns:
        0, or 1 if a cell failed or found something wrong.
    """
    if minutes is not None:
        validate.positive(minutes=minutes)
    if data is not None:
        if not data.is_dir():
            raise ValueError(f"data must be a folder, got {data}")
        os.environ[DATA_VARIABLE] = str(data.resolve())
    scale = registry.TOY if dry_run else registry.CARD
    steps = registry.all_steps(scale, only)
    if not list_:
        programs.keep_programs()
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or (Path(scratch) if dry_run else RUNS)
        if list_:
            # A list leaves nothing behind: what is done is looked up in a copy.
            begun = [*done, *([folder] if (folder / CELLS).is_dir() else [])]
            with Hour(Path(scratch) / "list", scale, done=begun) as found:
                print(*listing.lines(steps, found, each=only != "*"), sep="\n")
            return 0
        with Hour(folder, scale, done=done) as hour:
            outcome = run(hour, steps, minutes=minutes, pack=pack)
    print(*outcome.summary(), sep="\n")
    return 1 if outcome.failed or outcome.findings else 0


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m bench.gpu_hour"))

"""An experiment of three groups, of which two share files; a cell kills the first worker that comes to it."""

import dataclasses
import os
import signal
import time
from pathlib import Path

from drjax.data import load
from experiments.cells import Cell, Group, by
from experiments.sweep import Sweep


@dataclasses.dataclass(frozen=True)
class Config:
    """What decides the results."""

    names: tuple[str, ...] = ("a", "b", "[c]*")
    deadly: str = ""
    seed: int = 0


def groups(asked):
    """Each with two cells."""
    for name in asked.config.names:
        cells = [
            Cell(path=f"{name}/{i}", name=f"{i}-{name}", identity=(name, i), fields={"of": name, "i": i})
            for i in range(2)
        ]
        compute = Computing(asked.config.deadly, asked.out)
        yield Group(cells=tuple(cells), compute=compute, together="shared" if name in ("a", "[c]*") else None)


@dataclasses.dataclass(frozen=True)
class Computing:
    """Squares; "boom" is refused."""

    deadly: str
    out: Path

    def __call__(self, missing):
        """Yields each cell."""
        for cell in missing:
            mark = self.out / f"died-{cell.fields['i']}"
            if cell.path == self.deadly and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.deadly and cell.fields["of"] == "b":
                self._wait()
            if cell.fields["of"] == "boom":
                raise ValueError("of must not be boom")
            yield cell, {"value": cell.fields["i"] ** 2, "process": os.getpid()}
            if cell.path == self.deadly:
                (self.out / "gone-on").touch()

    def _wait(self):
        """Keeps this worker busy until another has gone on with what the dead one left; at most a minute."""
        end = time.monotonic() + 60
        while not (self.out / "gone-on").exists() and time.monotonic() < end:
            time.sleep(0.05)


SWEEP = Sweep(
    name="toy",
    about="Squares.",
    scales={"cpu": Config()},
    groups=groups,
    sources=lambda *_: {"digits": load("digits")},
    identity=by("of", "i"),
    said=lambda line: f"{line['of']}/{line['i']}",
)

"""What a sweep has found, and how far it is."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drjax.core.store import key_of
from drjax.data.frames import frame_of
from drjax.reports import ladder
from drjax.sweeps.store import CELLS, SUFFIX, SweepStore
from drjax.sweeps.work import METADATA

MEASURES = ("mse", "mse_median", "success", "identification")
"""Scores of an attack that the table has, each with its interval."""

SHOWN = 8
"""Lines of the table that the text of a result holds, at most."""


class SweepResult:
    """The finished cells of a sweep, read when they are asked for.

    Attributes:
        url: The store.
    """

    def __init__(self, url: str | Path) -> None:
        """Reads nothing yet.

        Args:
            url: Store of a sweep, finished or not.
        """
        self.url = str(url)

    @cached_property
    def _files(self) -> list[pa.Table]:
        store = SweepStore(self.url)
        named = {key_of(name): name for name in store.found()["config"]["cells"]}
        done = set(store.done())
        # In the order of the sweep, whoever was first.
        contents = [store.get(f"{CELLS}/{key}{SUFFIX}") for key in named if key in done]
        return [pq.read_table(io.BytesIO(content)) for content in contents if content is not None]

    @property
    def rows(self) -> Any:
        """A line for every cell, attack and attacked record, as a DataFrame (a pyarrow table without pandas): the
        settings, attack, row of the data set, mse, the mse that the attack expected, and status flags."""
        return frame_of(pa.concat_tables(self._files, promote_options="permissive"))

    @property
    def table(self) -> Any:
        """A line for every cell and attack, as a DataFrame (a pyarrow table without pandas): the settings, mean and
        median of the mse, rates of success and identification, each with its interval."""
        return frame_of(pa.Table.from_pylist(self.lines))

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of `table`."""
        lines = []
        for facts in map(_facts, self._files):
            for attack in facts["attacks"]:
                line = {"cell": facts["cell"], **facts["settings"], "attack": attack["name"]}
                line |= {name: attack[name] for name in ("label", "is_baseline")}
                for measure in MEASURES:
                    interval = attack["scores"][measure]
                    ends = {"": interval["estimate"], "_low": interval["low"], "_high": interval["high"]}
                    # A record writes floats that JSON lacks as text.
                    line |= {measure + end: float(value) for end, value in ends.items()}
                lines.append(line)
        return lines

    @property
    def strongest(self) -> dict[str, dict[str, Any]]:
        """Of every cell the line of the attack with the least mean error."""
        best: dict[str, dict[str, Any]] = {}
        for line in (line for line in self.lines if not line["is_baseline"]):
            known = best.get(line["cell"])
            if known is None or line["mse"] < known["mse"]:
                best[line["cell"]] = line
        return best

    def __repr__(self) -> str:
        """How many cells there are, and what the best attack of each leaves; ten lines at most."""
        best = self.strongest
        said = [f"{name}: {line['label']}, MSE {ladder.number(line['mse'])}" for name, line in best.items()]
        more = [f"... {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        return "\n".join([f"{len(self._files)} cells in {self.url}", *said[:SHOWN], *more])


@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """How far a sweep is.

    Attributes:
        n_cells: Number of cells.
        done: Number of them that are finished.
        begun: Number of those that are not, but have a run folder.
        per_hour: Cells finished in an hour, from the first to the last one; None of less than two.
        idle: Seconds since the last one was finished; None if there is none.
    """

    n_cells: int
    done: int
    begun: int
    per_hour: float | None
    idle: float | None

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest takes at that rate; None where nobody knows."""
        return None if not self.per_hour else (self.n_cells - self.done) / self.per_hour * 3600

    def __str__(self) -> str:
        """One line."""
        words = [f"{self.done:,} of {self.n_cells:,} cells done, {self.begun:,} begun"]
        if self.idle is not None and self.done < self.n_cells:
            words.append(f"the last one {ladder.duration(self.idle)} ago")
            if self.seconds_left is not None:
                words.append(f"about {ladder.duration(self.seconds_left)} left at the rate so far")
        return "; ".join(words)


def status(url: str | Path) -> SweepStatus:
    """How far the sweep in a store is, whoever computes it; nothing is written.

    Raises:
        ValueError: a store without a sweep.
        OSError: it cannot be read.
    """
    store = SweepStore(url)
    found, done = store.found(), store.done()
    times = sorted(_time(store, key) for key in done)
    span = times[-1] - times[0] if len(times) > 1 else 0.0
    return SweepStatus(
        n_cells=len(found["config"]["cells"]),
        done=len(done),
        begun=len(set(store.begun()) - set(done)),
        per_hour=3600 * (len(times) - 1) / span if span > 0 else None,
        idle=max(0.0, time.time() - times[-1]) if times else None,
    )


def _time(store: SweepStore, key: str) -> float:
    """When a cell was finished, in seconds since 1970."""
    content = store.get(f"{CELLS}/{key}{SUFFIX}")
    assert content is not None
    facts = _facts(pq.read_table(io.BytesIO(content), columns=["row"]))
    return datetime.fromisoformat(facts["provenance"]["utc"]).timestamp()


def _facts(table: pa.Table) -> dict[str, Any]:
    return json.loads((table.schema.metadata or {})[METADATA])

"""Figures of docs/sweeps.md, from the rows of bench/."""

from __future__ import annotations

from collections.abc import Sequence

from bench import tables
from bench.scale_tables import SWEEPS
from experiments.markdown import Figures

figures = Figures()


@figures
def costs() -> Sequence[float]:
    """Milliseconds of the scheduler for a task."""
    return (1e3 * tables.newest(tables.rows_of(SWEEPS), name="sweep_overhead")["s_per_task"],)


@figures
def simulated() -> Sequence[float]:
    """Share of the time that simulated workers are busy."""
    return (tables.newest(tables.rows_of(SWEEPS), name="sweep_simulated")["efficiency"],)

"""Sweeps: audits with settings crossed, cell by cell, by any number of workers into one store.

A cell is an audit's numbers without its report. Workers do its pieces (`drjax.audits.pieces`), and its result is one
Parquet file. The driver holds no data and decides nothing but the order.
"""

from drjax.sweeps.config import Cell, SweepConfig
from drjax.sweeps.result import SweepResult, SweepStatus, status
from drjax.sweeps.run import run

__all__ = ["Cell", "SweepConfig", "SweepResult", "SweepStatus", "run", "status"]

"""Sweeps: audits with settings crossed, cell by cell, by any number of workers into one store.

A cell is an audit's numbers without its report. Workers do its pieces (`drjax.audits.pieces`), and its result is one
Parquet file. The driver holds no data and decides nothing but the order.

Example:
    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from drjax import sweeps
    >>> from drjax.audits import AuditConfig
    >>> base = AuditConfig(n_known=20, n_shadow=20, n_validation=4, n_targets=4, attacks=("closed-form",))
    >>> config = sweeps.SweepConfig(base=base, over={"decimals": (1, 3)})
    >>> [cell.name for cell in config.cells]
    ['decimals=1', 'decimals=3']
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweeps.run(config, folder, executor=ThreadPoolExecutor(1))
    ...     sweeps.status(folder).done, len(result.rows)
    (2, 24)
"""

from drjax.sweeps.config import Cell, SweepConfig
from drjax.sweeps.result import SweepResult, SweepStatus, status
from drjax.sweeps.run import run

__all__ = ["Cell", "SweepConfig", "SweepResult", "SweepStatus", "run", "status"]

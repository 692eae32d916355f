"""The audit of any setting, by its configuration."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from rich.console import Console

from drjax.audits import pieces
from drjax.audits.config import AuditConfig
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.pipeline import Decide, run_setting
from drjax.audits.released import Released
from drjax.audits.result import AuditResult
from drjax.audits.settings import setting_of
from drjax.core import executors
from drjax.data import Dataset


def run(
    config: AuditConfig | ModelAuditConfig,
    out: str | Path,
    *,
    data: Dataset | None = None,
    released: Released | None = None,
    decide: Decide | None = None,
    executor: str | Executor | None = None,
    workers: int | None = None,
    resume: bool = False,
    progress: bool = False,
    command: str | None = None,
    console: Console | None = None,
) -> AuditResult:
    """Audits a release: writes `records.jsonl`, arrays, figures and `report.html` into the folder `out`.

    A run that was killed goes on with `resume`: finished shadow chunks, training epochs and attacks are read back, and
    the results are bit-identical to those of a run that was not interrupted.

    Args:
        config: What to audit: sampled targets of an embedding, with `each_record` every record of one release (which
            writes `exposure.csv` too), with `released` every record of a published map (likewise), or networks.
        out: Run folder; new, empty, or with `resume` the one of an interrupted run of the same configuration.
        data: Data set already loaded, under the name in the configuration; loaded by that name if None.
        released: Published map and its records already loaded, under the names in the configuration; loaded by those
            if None.
        decide: Function that says what else could be published, such as `drjax.decisions.decide`; nobody if None.
        executor: Where releases and attacks are computed, see `drjax.core.executors`; in this process if None. The
            results are the same. All workers must reach `out` under this name, and the data.
        workers: Workers to ask for; see there.
        resume: Go on with an earlier run.
        progress: Show progress bars on standard error.
        command: The shell command to print in the report; made from the configuration if None.
        console: Where to say which stage runs; silent if None.

    Raises:
        ValueError: a configuration that does not fit the data, bad data, a published map that the method did not make
            or that is none of the known methods', an executor that is not installed, workers of another version, or a
            folder that cannot be used. Nothing is written before the data are loaded and split.
        OSError: the folder cannot be written, or a data set is not there.
        MemoryError: more memory would be needed than is available; said before the folder is made.
    """
    setting = setting_of(config, data, released)
    told: dict[str, Any] = {"decide": decide, "resume": resume, "progress": progress}
    told |= {"command": command, "console": console}
    if executor is None:
        return run_setting(setting, out, **told)
    executors.check(executor)
    job = pieces.job(config, Path(out), data, released)
    with pieces.workers(job, executor, workers, progress=progress) as elsewhere:
        return run_setting(setting, out, elsewhere=elsewhere, **told)

"""The audit of any setting, by its configuration."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from drjax.audits.config import AuditConfig
from drjax.audits.embedding import EmbeddingSetting
from drjax.audits.every_record import EveryRecordSetting
from drjax.audits.model import ModelSetting
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.pipeline import AuditResult, Decide, Setting, run_setting
from drjax.audits.released import Released, ReleasedSetting
from drjax.data import Dataset


def run(
    config: AuditConfig | ModelAuditConfig,
    out: str | Path,
    *,
    data: Dataset | None = None,
    released: Released | None = None,
    decide: Decide | None = None,
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
        resume: Go on with an earlier run.
        progress: Show progress bars on standard error.
        command: The shell command to print in the report; made from the configuration if None.
        console: Where to say which stage runs; silent if None.

    Raises:
        ValueError: a configuration that does not fit the data, bad data, a published map that the method did not make
            or that is none of the known methods', or a folder that cannot be used. Nothing is written before the data
            are loaded and split.
        OSError: the folder cannot be written, or a data set is not there.
        MemoryError: more memory would be needed than is available; said before the folder is made.
    """
    setting = setting_of(config, data, released)
    return run_setting(setting, out, decide=decide, resume=resume, progress=progress, command=command, console=console)


def setting_of(
    config: AuditConfig | ModelAuditConfig, data: Dataset | None = None, released: Released | None = None
) -> Setting:
    """The setting that a configuration describes."""
    if isinstance(config, ModelAuditConfig):
        return ModelSetting(config, data)
    if config.released is not None:
        return ReleasedSetting(config, data, released)
    return EveryRecordSetting(config, data) if config.attacks_each else EmbeddingSetting(config, data)

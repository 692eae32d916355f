"""Which setting a configuration describes."""

from __future__ import annotations

from drjax.audits.config import AuditConfig
from drjax.audits.embedding import EmbeddingSetting
from drjax.audits.every_record import EveryRecordSetting
from drjax.audits.model import ModelSetting
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.pipeline import Setting
from drjax.audits.released import Released, ReleasedSetting
from drjax.data import Dataset


def setting_of(
    config: AuditConfig | ModelAuditConfig, data: Dataset | None = None, released: Released | None = None
) -> Setting:
    """The setting that a configuration describes."""
    if isinstance(config, ModelAuditConfig):
        return ModelSetting(config, data)
    if config.released is not None:
        return ReleasedSetting(config, data, released)
    return EveryRecordSetting(config, data) if config.attacks_each else EmbeddingSetting(config, data)

"""The audit: data -> shadow releases -> attacks -> records -> report, in a run folder that can be resumed.

A layer of its own between the reports and the command line, because it calls every layer below and the command line
only parses arguments.
"""

from drjax.audits.attacks import ATTACKS
from drjax.audits.config import AuditConfig
from drjax.audits.each_record import EachResult, run_each
from drjax.audits.models import ModelAuditConfig, ModelAuditResult, run_model
from drjax.audits.run import AuditResult, run

__all__ = [
    "ATTACKS",
    "AuditConfig",
    "AuditResult",
    "EachResult",
    "ModelAuditConfig",
    "ModelAuditResult",
    "run",
    "run_each",
    "run_model",
]

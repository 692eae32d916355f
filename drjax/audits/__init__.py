"""The audit: data -> releases -> attacks -> records -> report, in a run folder that can be resumed.

A layer of its own between the reports and the command line, because it calls every layer below and the command line
only parses arguments.
"""

from drjax.audits.config import AuditConfig
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.result import AuditResult
from drjax.audits.run import run

__all__ = ["AuditConfig", "AuditResult", "ModelAuditConfig", "run"]

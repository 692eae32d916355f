"""The audit: data -> releases -> attacks -> records -> report, in a run folder that can be resumed.

A layer of its own between the reports and the command line, because it calls every layer below and the command line
only parses arguments.

Example:
    >>> import tempfile
    >>> from drjax import audits
    >>> config = audits.AuditConfig(n_known=20, n_shadow=20, n_validation=4, n_targets=4, attacks=("closed-form",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = audits.run(config, f"{folder}/run")
    >>> [row.label for row in result.rows if not row.is_baseline], result.targets.shape
    (['Closed form with prior'], (4, 64))
    >>> audits.ModelAuditConfig(epsilon=4.0).mechanism.neighbouring
    'zero_out'
"""

from drjax.audits.config import AuditConfig
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.result import AuditResult
from drjax.audits.run import run

__all__ = ["AuditConfig", "AuditResult", "ModelAuditConfig", "run"]

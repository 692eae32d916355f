"""What could be published instead of an audited release: other maps, each attacked again and scored for its use.

The only layer that sees audits and releases.

Example:
    >>> import tempfile
    >>> from drjax import audits
    >>> from drjax.decisions import decide
    >>> config = audits.AuditConfig(n_known=20, n_shadow=20, n_validation=4, n_targets=4, attacks=("closed-form",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = audits.run(config, f"{folder}/run", decide=decide)
    >>> result.options is None  # nothing is searched for where a sample of the records is attacked
    True
"""

from drjax.decisions.decide import decide

__all__ = ["decide"]

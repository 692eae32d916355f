"""Releases with a guarantee: bounds that do not depend on the records, a manifest, and a report that stays private.

A layer between the audit and the command line. `schema_form`, `inputs`, `bounds`, `budget`, `folder`, `manifest`,
`figures` and `private_report` are for any release; `mechanism`, `expected`, `pca` and `pca_report` are for principal
components, `synthetic`, `writing`, `rehearsal` and `synthetic_report` for synthetic records, `map` and `map_picture`
for a map of these; `rehearsed` makes releases in memory; `published` reads somebody's release for an attack.
"""

from drjax.releases.pca import PCAReleaseConfig, PCAReleaseResult, release_pca

__all__ = ["PCAReleaseConfig", "PCAReleaseResult", "release_pca"]

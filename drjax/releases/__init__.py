"""Releases with a guarantee: bounds that do not depend on the records, a manifest, and a report that stays private.

A layer between the audit and the command line. `schema_form`, `inputs`, `bounds`, `budget`, `folder`, `manifest`,
`figures` and `private_report` are for any release; `mechanism`, `expected`, `pca` and `pca_report` are for principal
components, `synthetic`, `writing`, `rehearsal` and `synthetic_report` for synthetic records, `map` and `map_picture`
for a map of these; `rehearsed` makes releases in memory; `published` reads somebody's release for an attack.

Example:
    >>> import tempfile, json, numpy as np
    >>> from pathlib import Path
    >>> from drjax.releases import PCAReleaseConfig, release_pca
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "x.npy")
    ...     np.save(table, np.random.default_rng(0).random((60, 5)))
    ...     bounds = Path(folder, "bounds.json")
    ...     size = bounds.write_text(json.dumps({"lower": [0.0] * 5, "upper": [1.0] * 5}))
    ...     config = PCAReleaseConfig(data=table, epsilon=1.0, bounds=bounds, n_components=2, trials=0)
    ...     result = release_pca(config, Path(folder, "release"))
    >>> result.release.components.shape, result.manifest["guarantee"]["epsilon"]
    ((2, 5), 1.0)
"""

from drjax.releases.pca import PCAReleaseConfig, PCAReleaseResult, release_pca

__all__ = ["PCAReleaseConfig", "PCAReleaseResult", "release_pca"]

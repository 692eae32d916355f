"""drjax: what an informed adversary can take back out of what is published of private records.

Verbs are the front door: `drjax.audit`, `drjax.attack`, `drjax.embed`, `drjax.release`, `drjax.bound` and
`drjax.sweep`, on paths, arrays and DataFrames. Packages are the rooms: `drjax.dr` (kernels), `drjax.attacks`,
`drjax.bounds`, `drjax.audits`, `drjax.releases` and others. Names are imported when they are first used; importing
drjax imports no JAX and changes none of its settings.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "drjax.dr": (
        "METHODS",
        "PCA",
        "TruncatedSVD",
        "SparseRandomProjection",
        "ClassicalMDS",
        "LandmarkMDS",
        "MDS",
        "Isomap",
        "LandmarkIsomap",
        "TSNE",
        "UMAP",
        "Pipeline",
    ),
    "drjax.attacks.registry": ("ATTACKS",),
    "drjax.attacks.shadow": ("shadow_embeddings",),
    "drjax.defenses": ("DEFENSES",),
    "drjax.data": ("load", "split"),
    "drjax.verbs": ("audit", "attack", "embed", "release", "bound", "sweep"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyrefly: ignore[unresolvable-dunder-all]


def __getattr__(name: str) -> Any:
    """Imports a name of the front door from its room."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """The front door."""
    return [*__all__, "__version__"]

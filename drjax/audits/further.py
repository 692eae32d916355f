"""Shadow releases of an audit that are made, added up and forgotten, where there are too many to keep."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import jax
import numpy as np

from drjax.attacks.passing import Keep, PassingShadows
from drjax.attacks.prepared import Prepared
from drjax.audits.adversary import Scene
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.audits.shadows import keeps_factors
from drjax.core.regression_sums import RegressionSums
from drjax.core.types import Array

HELD_BYTES = 2**30
"""Coordinates of shadow releases that an audit keeps, unless told how many."""

LEAST_HELD = 2000
"""Shadow releases that it keeps at least: features and networks are chosen on them."""

SUMS = "sums"
"""Folder of the sums of ranges, while attacks run."""


def n_held(config: AuditConfig, n: int, d: int) -> int:
    """Shadow releases of n records of d features that an audit keeps; the others are added up.

    All of them where factors are kept, where further records are unknown, where the seed is known and beside a defence.
    """
    if config.keeps_shadows or keeps_factors(config, n, d):
        return config.n_shadow
    own = np.dtype(config.dtype).itemsize * n * config.n_components
    return min(config.n_shadow, config.n_held or max(LEAST_HELD, HELD_BYTES // own))


def passing(
    key: Array, config: AuditConfig, scene: Scene, held: int, folder: RunFolder, prepared: Prepared | None
) -> PassingShadows | None:
    """Shadow releases beside those held; None if there are none.

    Args:
        key: PRNG key of the shadow releases; the others' is made of it.
        config: Configuration of the audit.
        scene: Who has which records.
        held: Number of leading shadow records whose releases are kept.
        folder: Keeps the sums of ranges.
        prepared: Keeps what the method makes of the known records, for all workers.
    """
    if held == len(scene.shadow):
        return None
    assert prepared is not None  # as long as releases are made
    return PassingShadows(
        key=jax.random.fold_in(key, 2),
        method=config.believed.dr_method,
        known=scene.known,
        records=scene.shadow,
        dtype=config.dtype,
        decimals=config.decimals,
        n_held=held,
        keep=_kept_in(folder),
        prepared=prepared,
    )


def _kept_in(folder: RunFolder) -> Keep:
    """Keeps sums in a run folder, where workers leave them and a resumed run finds them."""

    def keep(name: str, make: Callable[[], RegressionSums | None]) -> RegressionSums | None:
        def arrays() -> dict[str, np.ndarray]:
            made = make()
            return {} if made is None else {field: np.asarray(value) for field, value in made._asdict().items()}

        found = folder.arrays(f"{SUMS}/{name}", arrays)
        return RegressionSums(int(found.pop("count")), **found) if found else None

    return keep


def discard(folder: RunFolder) -> None:
    """Removes the sums: when no attack will ask any more."""
    shutil.rmtree(folder.path / SUMS, ignore_errors=True)

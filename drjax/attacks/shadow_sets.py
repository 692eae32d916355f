"""Releases that the adversary makes of records they have, to learn from."""

from __future__ import annotations

import jax
import numpy as np

from drjax.attacks.attack import Shadows
from drjax.attacks.shadow import Randomness, shadow_embeddings
from drjax.core.types import Array, DRMethod

STAND_INS = 8
"""Known records that stand in for the target where there are no public ones, at most."""


def shadows_of(
    key: Array,
    method: DRMethod,
    known: np.ndarray,
    records: np.ndarray,
    *,
    n_validation: int = 0,
    decimals: int | None = None,
    dtype: str = "float64",
    randomness: Randomness = "fresh",
    progress: bool = False,
) -> Shadows:
    """Releases of each record beside the known ones.

    Args:
        key: PRNG key, as for `shadow_embeddings`.
        method: DR method, as the adversary believes it to be.
        known: (p, d).
        records: (s, d).
        n_validation: How many of them, the last ones, are kept to stop a training on.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: Floating-point type of the releases, "float32" or "float64".
        randomness: Whether shadows share their draws, as for `shadow_embeddings`.
        progress: Show a bar on standard error.

    Raises:
        ValueError: as of `shadow_embeddings`.
    """
    with jax.enable_x64(dtype == "float64"):
        made = shadow_embeddings(
            key, method, known.astype(dtype), records.astype(dtype), randomness=randomness, progress=progress
        )
    coords = np.asarray(made.coords)
    coords = coords if decimals is None else np.round(coords, decimals)
    n = len(records) - n_validation
    return Shadows(
        known=known, records=records[:n], coords=coords[:n], validation=records[n:], validation_coords=coords[n:]
    )


def stand_in_shadows(
    key: Array, method: DRMethod, known: np.ndarray, *, decimals: int | None = None, dtype: str = "float64"
) -> Shadows:
    """Releases of some known records beside the others: how releases are made shows on them as well.

    Args:
        key: PRNG key, as for `shadow_embeddings`.
        method: DR method, as the adversary believes it to be.
        known: (p, d), p >= 2; the first ones stand in.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: Floating-point type of the releases, "float32" or "float64".
    """
    records, rest = np.split(known, [min(STAND_INS, len(known) // 2)])
    return shadows_of(key, method, rest, records, decimals=decimals, dtype=dtype)

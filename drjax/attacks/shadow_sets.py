"""Releases that the adversary makes of records they have, to learn from."""

from __future__ import annotations

import jax
import numpy as np

from drjax.attacks.attack import Shadows
from drjax.attacks.shadow import Approximation, shadow_embeddings
from drjax.core.progress import track
from drjax.core.types import Array, DRMethod, Embedding

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
    seed_key: Array | None = None,
    approx: Approximation | None = None,
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
        seed_key: PRNG key of the release under attack, where it is known: shadows repeat its draws.
        approx: What shadows may be made by in the place of releases, as for `shadow_embeddings`: to train on alone.
        progress: Show a bar on standard error.

    Raises:
        ValueError: as of `shadow_embeddings`.
    """
    with jax.enable_x64(dtype == "float64"):
        made = shadow_embeddings(
            key if seed_key is None else seed_key,
            method,
            known.astype(dtype),
            records.astype(dtype),
            randomness="fresh" if seed_key is None else "shared",
            approx=approx,
            progress=progress,
        )
    coords = np.asarray(made.coords)
    coords = coords if decimals is None else np.round(coords, decimals)
    n = len(records) - n_validation
    return Shadows(
        known=known, records=records[:n], coords=coords[:n], validation=records[n:], validation_coords=coords[n:]
    )


def stranger_shadows(
    key: Array,
    method: DRMethod,
    known: np.ndarray,
    records: np.ndarray,
    *,
    n_hidden: int,
    n_validation: int = 0,
    decimals: int | None = None,
    dtype: str = "float64",
    progress: bool = False,
) -> Shadows:
    """As `shadows_of`, with others of the records in the place of released ones that the adversary does not know.

    Args:
        key: PRNG key of the draws and of the strangers.
        method: DR method, as the adversary believes it to be.
        known: (p, d).
        records: (s, d), s >= 2.
        n_hidden: Strangers in every release, at least 1; records repeat where there are fewer.
        n_validation: How many of the records, the last ones, are kept to stop a training on.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: Floating-point type of the releases, "float32" or "float64".
        progress: Show a bar on standard error.
    """
    fill_key, draw_key = jax.random.split(key)
    own_dtype = known.astype(dtype), records.astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        made = [
            beside_strangers(jax.random.fold_in(draw_key, i), fill_key, method, *own_dtype, i, n_hidden).coords
            for i in track(range(len(records)), "shadows", enabled=progress)
        ]
    coords = np.stack([np.asarray(one) for one in made])
    coords = coords if decimals is None else np.round(coords, decimals)
    own, hidden = np.split(coords, [len(known) + 1], axis=1)
    n = len(records) - n_validation
    return Shadows(
        known=known,
        records=records[:n],
        coords=own[:n],
        validation=records[n:],
        validation_coords=own[n:],
        validation_hidden=hidden[n:],
    )


def beside_strangers(
    key: Array, fill_key: Array, method: DRMethod, known: np.ndarray, records: np.ndarray, i: int, n_hidden: int
) -> Embedding:
    """The embedding of [record i; known; strangers], these drawn from the other records; computed from scratch.

    An attack that is trained beside always the same strangers learns where those lie, so each shadow has its own draw.

    Args:
        key: PRNG key of the release.
        fill_key: PRNG key of all strangers; those of record i are by fold_in(fill_key, i).
        method: DR method.
        known: (p, d).
        records: (s, d), in the dtype of the release, as known.
        i: Record.
        n_hidden: Strangers.
    """
    others = np.delete(np.arange(len(records)), i)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(fill_key, i), others))
    return _fit(method, key, np.concatenate([records[i : i + 1], known, records[np.resize(order, n_hidden)]]))


@jax.jit
def _fit(method: DRMethod, key: Array, x: Array) -> Embedding:
    return method.fit_transform(key, x)


def stand_in_shadows(
    key: Array,
    method: DRMethod,
    known: np.ndarray,
    *,
    decimals: int | None = None,
    dtype: str = "float64",
    seed_key: Array | None = None,
) -> Shadows:
    """Releases of some known records beside the others: how releases are made shows on them as well.

    Args:
        key: PRNG key, as for `shadow_embeddings`.
        method: DR method, as the adversary believes it to be.
        known: (p, d), p >= 2; the first ones stand in.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: Floating-point type of the releases, "float32" or "float64".
        seed_key: As for `shadows_of`.
    """
    records, rest = np.split(known, [min(STAND_INS, len(known) // 2)])
    return shadows_of(key, method, rest, records, decimals=decimals, dtype=dtype, seed_key=seed_key)

"""Releases that the adversary makes: shadows to learn from, and practice releases that tell which attack does best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import jax
import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.shadow import Randomness, shadow_embeddings
from drjax.core.statistics import mean_interval
from drjax.core.types import Array, DRMethod, Reconstruction, is_usable

STAND_INS = 8
"""Known records that stand in for the target where there are no public ones, at most."""

EXACT, QUICK_SECONDS = 1e-6, 1.0
"""Once an attack errs by less than the first, in units of the records' variance, only those are tried that take no
longer than the second."""

MOST_WINNERS = 3
"""Attacks that `winners` names, at most."""


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
        dtype: What releases are computed in.
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
        dtype: What releases are computed in.
    """
    records, rest = np.split(known, [min(STAND_INS, len(known) // 2)])
    return shadows_of(key, method, rest, records, decimals=decimals, dtype=dtype)


def practice(threat: EmbeddingThreat, most: int) -> EmbeddingThreat | None:
    """The same threat on releases whose targets the adversary has as `truth`; None where there are none.

    They are validation releases, which are then no longer there to stop a training on, or without public records those
    of stand-ins.

    Args:
        threat: Threat with the releases under attack.
        most: How many practice releases there are at most.
    """
    shadows = threat.shadows()
    if threat.public is None:
        return dataclasses.replace(
            threat, known=shadows.known, coords=shadows.coords[:most], truth=shadows.records[:most], seed_key=None
        )
    n = min(most, len(shadows.validation) - 1)
    if n < 2:
        return None
    kept = dataclasses.replace(
        shadows, validation=shadows.validation[:-n], validation_coords=shadows.validation_coords[:-n]
    )
    truth = shadows.validation[-n:]
    features = threat.features
    if features is not None:
        features = features._replace(values=truth[:, features.which])
    hidden = None if shadows.validation_hidden is None else shadows.validation_hidden[-n:]
    return dataclasses.replace(
        threat,
        coords=shadows.validation_coords[-n:],
        truth=truth,
        shadows=lambda: kept,
        features=features,
        hidden=hidden,
    )


def errors_of(found: Reconstruction, truth: np.ndarray, is_scored: np.ndarray) -> np.ndarray:
    """Mean squared errors (m,) over the features that are scored; infinite where an attack found nothing."""
    errors = np.mean((np.asarray(found.x, np.float64) - truth)[:, is_scored] ** 2, axis=1)
    usable = is_usable(np.asarray(found.status)) & np.isfinite(errors)
    return np.where(usable, errors, np.inf)


def compared(
    candidates: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat, errors: Callable[[str], np.ndarray]
) -> dict[str, np.ndarray]:
    """Errors of attacks on practice releases, the cheapest first; where one leaves nothing to win, of quick ones alone.

    Args:
        candidates: Attacks that fit the threat, by name.
        threat: Practice threat, from `practice`.
        errors: Runs the attack of a name on it, and gives `errors_of`.
    """
    truth = threat.truth
    assert truth is not None
    nothing = EXACT * float(np.mean(np.var(truth, axis=0, dtype=np.float64)))
    found: dict[str, np.ndarray] = {}
    is_exact = False
    costs = {name: attack.cost(threat).seconds for name, attack in candidates.items()}
    for name in sorted(candidates, key=lambda one: costs[one]):
        if is_exact and costs[name] > QUICK_SECONDS:
            break
        found[name] = errors(name)
        is_exact |= float(found[name].mean()) <= nothing
    return found


def winners(errors: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the attack of the least mean error, and of those that it does not beat beyond chance, best first.

    Args:
        errors: (m,) of each attack on the same practice releases.
    """
    ranked = sorted(errors, key=lambda name: float(np.mean(errors[name])))
    best, kept = errors[ranked[0]], ranked[:1]
    if not np.isfinite(best).all():
        return ranked[:1]
    for name in ranked[1:MOST_WINNERS]:
        behind = errors[name] - best
        if np.isfinite(behind).all() and not mean_interval(behind).low > 0:
            kept.append(name)
    return kept

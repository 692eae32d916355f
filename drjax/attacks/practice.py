"""Practice releases, of which the adversary has the answer: they tell which attack does best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat
from drjax.attacks.registry import answer
from drjax.core.statistics import mean_interval
from drjax.core.types import Array, is_usable

RELEASES = 12
"""Practice releases, at most."""

MOST_SECONDS = 30.0
"""An attack that takes longer on practice releases, its training included, is not tried there."""

EXACT, QUICK_SECONDS = 1e-6, 1.0
"""Once an attack errs by less than the first, in units of the records' variance, only those are tried that take no
longer than the second."""

MOST_WINNERS = 3
"""Attacks that `winners` names, at most."""


def practice(threat: EmbeddingThreat) -> EmbeddingThreat | None:
    """The same threat on releases whose targets the adversary has as `truth`; None where there are fewer than two.

    They are validation releases, or without public records half of those of the stand-ins. The practice threat knows
    nothing else of their targets: they are among neither its public records nor its shadows.
    """
    shadows = threat.shadows()
    if threat.public is None:
        truth, records = np.split(shadows.records, [len(shadows.records) // 2])
        coords, shadow_coords = np.split(shadows.coords, [len(truth)])
        kept = dataclasses.replace(shadows, records=records, coords=shadow_coords)
        rest: dict[str, Any] = {"known": shadows.known, "seed_key": None}
        hidden = None
    else:
        split = [len(shadows.validation) - max(0, min(RELEASES, len(shadows.validation) - 1))]
        validation, truth = np.split(shadows.validation, split)
        validation_coords, coords = np.split(shadows.validation_coords, split)
        kept = dataclasses.replace(shadows, validation=validation, validation_coords=validation_coords)
        rest = {"public": np.concatenate([shadows.records, validation])}
        hidden = None if shadows.validation_hidden is None else np.split(shadows.validation_hidden, split)[1]
    is_usable_release = np.isfinite(coords).all(axis=(1, 2))
    if is_usable_release.sum() < 2:
        return None
    truth = truth[is_usable_release]
    features = threat.features
    return dataclasses.replace(
        threat,
        coords=coords[is_usable_release],
        truth=truth,
        shadows=lambda: kept,
        features=None if features is None else features._replace(values=truth[:, features.which]),
        hidden=None if hidden is None else hidden[is_usable_release],
        **rest,
    )


def errors_of(
    attack: EmbeddingAttack, key: Array, tried: EmbeddingThreat, is_scored: np.ndarray | None = None
) -> np.ndarray:
    """Mean squared errors (m,) of an attack on practice releases; infinite where it found nothing.

    Args:
        attack: Attack that fits the threat.
        key: PRNG key of the attack.
        tried: Practice threat, from `practice`; the attack is not told its truth.
        is_scored: Features that count, (d,) bool; all of them if None.
    """
    assert tried.truth is not None
    found = answer(attack, key, dataclasses.replace(tried, truth=None))
    which = slice(None) if is_scored is None else is_scored
    errors = np.mean((np.asarray(found.x, np.float64) - tried.truth)[:, which] ** 2, axis=1)
    usable = is_usable(np.asarray(found.status)) & np.isfinite(errors)
    return np.where(usable, errors, np.inf)


def compared(
    candidates: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat, errors: Callable[[str], np.ndarray]
) -> dict[str, np.ndarray]:
    """Errors of attacks on practice releases, the cheapest first; where one leaves nothing to win, of quick ones alone.

    Args:
        candidates: Attacks that fit the threat, by name.
        threat: Practice threat, from `practice`.
        errors: Runs the attack of a name on it, and gives its `errors_of`.
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

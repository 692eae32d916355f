"""Practice releases, of which the adversary has the answer: which attack does best there, and how sure it may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from drjax.attacks import certificate, intervals
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat
from drjax.attacks.recognition.tsne_scaled import as_believed
from drjax.attacks.reconstruction.features import MIN_PRACTICE
from drjax.attacks.registry import answer
from drjax.attacks.shadow_sets import shadows_of
from drjax.core.statistics import mean_interval
from drjax.core.types import Array, Reconstruction, is_usable
from drjax.dr import Pipeline
from drjax.dr.factored import Coords, is_finite

RELEASES = 12
"""Practice releases, at most."""

MOST_SECONDS = 30.0
"""An attack that takes longer on practice releases, its training included, is not tried there."""

EXACT, QUICK_SECONDS = 1e-6, 1.0
"""Once an attack errs by less than the first, in units of the records' variance, only those are tried that take no
longer than the second."""

CALIBRATION_SECONDS = 60.0
"""Time up to which an attack is run on practice releases so that its intervals hold."""

MOST_LIBRARY = 1000
"""Known records up to which practice releases are made by the library; t-SNE takes it seconds beyond."""

FAR = 4.0
"""Most that a feature counts, in units of its variance: one that is rarely on, and is, would decide alone else."""

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
        coords, shadow_coords = shadows.coords[: len(truth)], shadows.coords[len(truth) :]
        kept = dataclasses.replace(shadows, records=records, coords=shadow_coords)
        rest: dict[str, Any] = {"known": shadows.known}
        hidden = None
    else:
        kept_back = 1 if threat.features is None else MIN_PRACTICE
        split = len(shadows.validation) - max(0, min(RELEASES, len(shadows.validation) - kept_back))
        validation, truth = np.split(shadows.validation, [split])
        validation_coords, coords = shadows.validation_coords[:split], shadows.validation_coords[split:]
        kept = dataclasses.replace(shadows, validation=validation, validation_coords=validation_coords)
        rest = {"public": np.concatenate([shadows.records, validation])}
        hidden = None if shadows.validation_hidden is None else shadows.validation_hidden[split:]
    if hidden is None:
        coords = _as_published(threat, rest.get("known", threat.known), truth, coords)
    is_usable_release = is_finite(coords)
    if is_usable_release.sum() < 2:
        return None
    truth = truth[is_usable_release]
    features = threat.features
    return dataclasses.replace(
        threat,
        coords=coords[is_usable_release],
        truth=truth,
        shadows=lambda: kept,
        further=None,
        features=None if features is None else features._replace(values=truth[:, features.which]),
        hidden=None if hidden is None else hidden[is_usable_release],
        **rest,
    )


def fresh(key: Array, threat: EmbeddingThreat) -> EmbeddingThreat | None:
    """The same threat on releases of its last public records, for an attack that looks at no shadows.

    They are among the practice threat's public records no more. None without public records, or with fewer than four,
    and where several records are unknown.

    Args:
        key: PRNG key of the releases.
        threat: Threat of one release.
    """
    if threat.public is None or len(threat.public) < 4 or threat.hidden is not None:
        return None
    n = min(RELEASES, len(threat.public) // 2)
    rest, truth = np.split(threat.public, [len(threat.public) - n])
    made = shadows_of(
        jax.random.fold_in(key, 2),
        threat.method,
        threat.known,
        truth,
        decimals=threat.decimals,
        dtype=threat.dtype,
        seed_key=threat.seed_key,
    )
    features = threat.features
    return dataclasses.replace(
        threat,
        coords=_as_published(threat, threat.known, truth, made.coords),
        truth=truth,
        further=None,
        public=rest,
        features=None if features is None else features._replace(values=truth[:, features.which]),
    )


def _as_published(threat: EmbeddingThreat, known: np.ndarray, truth: np.ndarray, coords: Coords) -> Coords:
    """Practice releases (m, n, k), made by the library that is known for the method where its maps differ from ours.

    Ours where the release under attack is ours, where the method has no such library, and of many records. Factors of
    columns that were read off the release under attack are read off each of these.
    """
    method = threat.method
    found = _by_library(threat, known, truth) if library_seconds(threat, len(truth)) else coords
    return np.stack([as_believed(method, known, one) for one in found]) if isinstance(method, Pipeline) else found


def _by_library(threat: EmbeddingThreat, known: np.ndarray, truth: np.ndarray) -> np.ndarray:
    method = threat.method
    own: Any = method.method if isinstance(method, Pipeline) else method
    made = []
    for seed, x in enumerate(truth):
        records = np.concatenate([x[None], known])
        if isinstance(method, Pipeline):
            with jax.enable_x64(True):
                own_coords = own.by_library(np.asarray(method.prepared(records)), seed)
                made.append(np.asarray(method.published(own_coords)))
        else:
            made.append(own.by_library(records, seed))
    found = np.stack(made)
    return found if threat.decimals is None else np.round(found, threat.decimals)


def library_seconds(threat: EmbeddingThreat, m: int) -> float:
    """Time that m practice releases take which a library makes, within a factor of two; 0 where none does."""
    own = threat.method.method if isinstance(threat.method, Pipeline) else threat.method
    n = len(threat.known)
    has_library = not threat.alike and hasattr(own, "by_library") and n <= MOST_LIBRARY
    return m * (0.3 + 0.003 * n) if has_library else 0.0


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
    return errors_in(found_on(attack, key, tried), tried, is_scored)


def found_on(attack: EmbeddingAttack, key: Array, tried: EmbeddingThreat) -> Reconstruction:
    """What an attack finds of practice releases; it is not told their truth."""
    return answer(attack, key, dataclasses.replace(tried, truth=None))


def errors_in(
    found: Reconstruction,
    tried: EmbeddingThreat,
    is_scored: np.ndarray | None = None,
    unit: np.ndarray | None = None,
) -> np.ndarray:
    """Mean squared errors (m,) of what was found of practice releases; infinite where that is nothing.

    Args:
        found: Reconstructions of them.
        tried: Practice threat.
        is_scored: Features that count, (d,) bool; all of them if None.
        unit: What a feature counts in, (d,) > 0, up to `FAR`; units of the input, and as it is, if None.
    """
    assert tried.truth is not None
    which = slice(None) if is_scored is None else is_scored
    away = np.asarray(found.x, np.float64) - tried.truth
    squares = away**2 if unit is None else np.minimum((away / unit) ** 2, FAR)
    errors = np.mean(squares[:, which], axis=1)
    usable = is_usable(np.asarray(found.status)) & np.isfinite(errors)
    return np.where(usable, errors, np.inf)


def compared(
    candidates: Mapping[str, EmbeddingAttack],
    threat: EmbeddingThreat,
    errors: Callable[[str], np.ndarray],
    *,
    usual: float | None = None,
) -> dict[str, np.ndarray]:
    """Errors of attacks on practice releases, the cheapest first; where one leaves nothing to win, of quick ones alone.

    Args:
        candidates: Attacks that fit the threat, by name.
        threat: Practice threat, from `practice`.
        errors: Runs the attack of a name on it, and gives its `errors_of`.
        usual: Error of the mean record in the units of the errors; those of the input if None.
    """
    truth = threat.truth
    assert truth is not None
    nothing = EXACT * (float(np.mean(np.var(truth, axis=0, dtype=np.float64))) if usual is None else usual)
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


def calibration(
    key: Array,
    chosen: EmbeddingAttack,
    threat: EmbeddingThreat,
    tried: EmbeddingThreat | None = None,
    found: Reconstruction | None = None,
) -> intervals.Calibration:
    """What practice releases say of the intervals of an attack: nothing without public records, or where it takes long.

    Args:
        key: PRNG key of the releases and the attack.
        chosen: Attack that fits the threat.
        threat: Threat under attack.
        tried: Practice threat, where there is one.
        found: What the attack found there, if it was run.
    """
    if threat.public is None and found is None:
        return intervals.UNCALIBRATED
    if tried is None:
        tried = practice(threat) if chosen.needs_shadows else fresh(key, threat)
    if tried is None or (found is None and chosen.cost(tried).seconds > CALIBRATION_SECONDS):
        return intervals.UNCALIBRATED
    found = found_on(chosen, key, tried) if found is None else found
    learned = intervals.calibrated(tried.settled(certificate.checked(tried, found)), tried)
    # A few known records in the place of public ones say how errors are spread, and too little of their size.
    return learned if threat.public is not None else intervals.Calibration(feature_mse=learned.feature_mse)

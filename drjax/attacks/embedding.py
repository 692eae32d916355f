"""The attack on one published embedding whose making nobody but its maker watched."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from drjax.attacks import certificate, intervals, practice, shadow_sets, unrecognised
from drjax.attacks.answer import Answer
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat
from drjax.attacks.case import N_SHADOW, Case, case_of, of_row
from drjax.attacks.making import believed
from drjax.attacks.recognition.agreement import Stated
from drjax.attacks.registry import ATTACKS, answer, fitting
from drjax.attacks.shadow import shadow_needs
from drjax.core import memory, validate
from drjax.core.progress import announce
from drjax.core.types import Array, DRMethod, Reconstruction, Status, single

LATE_SECONDS = 40.0
"""Time for attacks that are too slow to be tried on practice releases: the answers that a release confirms count."""


def attack_embedding(
    key: Array,
    method: DRMethod | Stated | None,
    known: Array,
    coords: Array,
    *,
    public: Array | None = None,
    target_row: int | None = None,
    shuffled: bool = False,
    attack: str | None = None,
    known_features: Array | None = None,
    decimals: int | None = None,
    bounds: tuple[float, float] | None = None,
    names: Sequence[str] = (),
    progress: bool = False,
) -> Answer:
    """Reconstructs the one unknown record of a published embedding from the others.

    Without `attack` those that fit are tried where the answer is known, on releases of public records or, without any,
    of known ones that stand in for the target; the one that errs least there is run. What is stated of the method is
    compared with what the known records show of the map; where they contradict it the answer is not relied on.

    Args:
        key: PRNG key of the shadow releases and attacks.
        method: DR method, as the adversary believes it to be, with all its hyperparameters; or what is stated of it,
            the rest of which is recognised; or None: recognised by the known records (`drjax.attacks.recognition`).
            Where nothing fits, the places of known records say what is at the target's; if they tell nothing the
            answer is their mean, with status MISFIT.
        known: (n-1, d), in the order of the release, the target's row left out.
        coords: (n, k), finite.
        public: (s, d), other records of the same kind; None if there are none.
        target_row: Row of the unknown record in coords, from 0; 0 if None.
        shuffled: Whether nobody knows which row is whose: they are matched (`drjax.attacks.recognition.recognise`), and
            where that fails the answer is the mean, with status MISFIT.
        attack: Name in `ATTACKS["embedding"]`; the best if None.
        known_features: (d,), values of the target that the adversary has, nan where unknown; needs public records.
        decimals: Decimals that coordinates are rounded to; found out if None.
        bounds: Least and greatest value of a feature; None if there are none.
        names: Names of the d features, for words and files.
        progress: Show bars on standard error, and say what is about to take long.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, negative decimals, bounds without a range, a row
            or a seed of shuffled rows, known features without public records, or an attack that is none for such a
            release.

    known = digits.x[1:200]; published = sklearn.manifold.TSNE().fit_transform(digits.x[:200])
    attack_embedding(jax.random.key(0), None, known, published, public=digits.x[200:]).found.x
    """
    validate.prng_key(key)
    if shuffled and target_row is not None:
        raise ValueError(f"target_row must be left out where rows are shuffled, got {target_row}")
    row = 0 if target_row is None else target_row
    given = case_of(known, coords, (row,), public, known_features, decimals, bounds, names)
    stated = _checked(method, given)
    if shuffled and stated is not None and stated.seed is not None:
        raise ValueError(f"release_seed must be left out where rows are shuffled, got {stated.seed}")
    return _answered(key, of_row(given, (row,), 0, progress=progress), stated, row, shuffled=shuffled, attack=attack)


def attack_rows(
    key: Array,
    method: DRMethod | Stated,
    known: Array,
    coords: Array,
    *,
    target_rows: Sequence[int],
    public: Array | None = None,
    attack: str | None = None,
    decimals: int | None = None,
    bounds: tuple[float, float] | None = None,
    names: Sequence[str] = (),
    progress: bool = False,
) -> tuple[Answer, ...]:
    """Reconstructs several unknown records of a published embedding one by one, the others hidden meanwhile.

    Args:
        key: As for `attack_embedding`, as method, coords, public, attack, decimals, bounds, names and progress. With
            two rows or more the method is not compared with the map.
        method: DR method, or what is stated of it.
        known: (n-u, d), in the order of the release, the u targets' rows left out.
        coords: (n, k), finite.
        target_rows: Rows of the u unknown records in coords, from 0, all different.
        public: (s, d), other records of the same kind; most methods have no attack without.
        attack: Name in `ATTACKS["embedding"]`, which takes hidden records; the best if None.
        decimals: Decimals of the coordinates.
        bounds: Least and greatest value of a feature.
        names: Names of the d features.
        progress: Show bars on standard error.

    Raises:
        ValueError: as of `attack_embedding`, a seed of several rows, or no attack fits.
    """
    validate.prng_key(key)
    rows = tuple(target_rows)
    given = case_of(known, coords, rows, public, None, decimals, bounds, names)
    stated = _checked(method, given)
    if stated is not None and stated.seed is not None and len(rows) > 1:
        raise ValueError(f"release_seed must be left out with several target rows, got {stated.seed}")
    return tuple(
        _answered(key, of_row(given, rows, place, progress=progress), stated, row, shuffled=False, attack=attack)
        for place, row in enumerate(rows)
    )


def _checked(method: DRMethod | Stated | None, given: Case) -> Stated | None:
    stated = method if method is None or isinstance(method, Stated) else Stated.whole(method)
    k = given.coords.shape[1]
    if stated is not None and stated.method.n_components != k:
        n = len(given.coords)
        raise ValueError(
            f"coords must have shape ({n}, {stated.method.n_components}), a column for each component of the method, "
            f"got {given.coords.shape}"
        )
    return stated


def _answered(key: Array, case: Case, stated: Stated | None, row: int, *, shuffled: bool, attack: str | None) -> Answer:
    made = believed(key, case, stated, row, shuffled=shuffled)
    if made.method is None:
        assert made.belief is not None
        by_place = unrecognised.answered(key, made.belief, case, row, shuffled=shuffled)
        if attack is None or attack == by_place.attack.name:
            return by_place
        validate.one_of(ATTACKS["embedding"], attack=attack)
        said = f"“{ATTACKS['embedding'][attack].label}” was asked for; where nothing fits it is not run."
        return dataclasses.replace(by_place, notes=(*by_place.notes, said))
    if made.contradiction and made.belief is not None and made.belief.method is None and attack is None:
        # What no method has to be known for is right whatever made the map.
        by_place = unrecognised.answered(key, made.belief, case, row, shuffled=shuffled)
        if by_place.status & Status.MISFIT == Status.OK:
            return dataclasses.replace(by_place, notes=(made.contradiction,))
    if made.order is not None:
        # `order` is of the rows of the release.
        unordered = np.insert(case.coords[1:], row, case.coords[0], axis=0)
        case, row = dataclasses.replace(case, coords=unordered[made.order]), int(made.order[0])
    threat = case.threat(key, made.method, made.seed_key)
    fits = _fits(threat, attack)
    pool = _pool(fits, threat)
    memory.require(
        bytes_needed(pool, threat),
        "this attack",
        f"{len(case.known):,} known records with {case.known.shape[1]:,} features",
        "run it where there is more",
    )
    announce(f"attacks on this release ({made.method.title})", seconds_needed(pool, threat), enabled=case.progress)
    tried, findings = _practised(key, pool, threat)
    errors = {name: _errors(one, tried, threat) for name, one in findings.items() if tried}
    names = practice.winners(errors) if errors else [min(pool, key=lambda one: pool[one].cost(threat).seconds)]
    # Of attacks that practice releases do not tell apart the one that expects to miss least of this release.
    runs = [_run(key, fits[name], threat, tried, findings.get(name)) for name in names]
    best = min(runs, key=lambda one: one.share)
    best = _certified(key, {name: one for name, one in pool.items() if errors and name not in errors}, threat, best)
    found, chosen = best.found, best.attack
    if made.contradiction:
        found = found._replace(status=found.status | np.uint32(Status.UNCERTIFIED))
    return Answer(
        attack=chosen,
        found=single(found),
        usual=case.usual,
        names=case.names,
        errors=errors,
        misfit=tuple(chosen.misfit(threat)) if int(found.status[0]) and threat.hidden is None else (),
        belief=made.belief,
        contradiction=made.contradiction,
        notes=made.notes,
        order=made.order,
        row=row,
        calibration=best.calibration,
        has_public=case.public is not None,
        is_confirmed=chosen.confirms or (case.hidden is None and certificate.can_tell(made.method)),
    )


class _Run(NamedTuple):
    """An attack's answer, and the share of what features vary by that it expects to miss."""

    attack: EmbeddingAttack
    found: Reconstruction
    calibration: intervals.Calibration
    share: float

    @classmethod
    def of(
        cls,
        attack: EmbeddingAttack,
        found: Reconstruction,
        threat: EmbeddingThreat,
        calibration: intervals.Calibration,
    ) -> _Run:
        """With intervals."""
        found = intervals.with_intervals(found, threat, calibration)
        share = np.inf
        if found.feature_mse is not None and threat.bounds is not None:
            share = float(np.mean(found.feature_mse)) / threat.usual_mse
        elif found.feature_mse is not None:
            # Whole, as one attack may miss a feature by more than another.
            share = float(threat.open_share(found, most=np.inf)[0])
        return cls(attack, found, calibration, share if np.isfinite(share) else np.inf)


def _run(
    key: Array,
    attack: EmbeddingAttack,
    threat: EmbeddingThreat,
    tried: EmbeddingThreat | None,
    on_practice: Reconstruction | None,
) -> _Run:
    """Runs an attack on the release, its intervals checked on practice releases."""
    found = threat.settled(certificate.checked(threat, answer(attack, key, threat)))
    return _Run.of(attack, found, threat, practice.calibration(key, attack, threat, tried, on_practice))


def _certified(key: Array, untried: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat, best: _Run) -> _Run:
    """The best answer, or a better one that the release confirms, by attacks too slow to be tried on practice releases.

    The cheapest first, for as long as there is something to win and all of them take no longer than `LATE_SECONDS`.
    """
    left = LATE_SECONDS
    for attack in sorted(untried.values(), key=lambda one: one.cost(threat).seconds):
        left -= attack.cost(threat).seconds
        if left < 0 or best.share < practice.EXACT:
            break
        found = threat.settled(certificate.checked(threat, answer(attack, key, threat)))
        own = _Run.of(attack, found, threat, intervals.UNCALIBRATED)
        if int(own.found.status[0]) == Status.OK and own.share < best.share:
            best = own
    return best


def _fits(threat: EmbeddingThreat, attack: str | None) -> dict[str, EmbeddingAttack]:
    """Attacks on the release by name, or the one that was asked for."""
    fits = {name: one for name, one in fitting(threat).items() if not one.is_baseline}
    if attack is None:
        return fits
    if attack not in fits:
        all_of_them = ATTACKS["embedding"]
        why = f": it {all_of_them[attack].fits(threat)}" if attack in all_of_them else ""
        raise ValueError(f"attack must be one of {', '.join(fits)} for this release, got {attack!r}{why}")
    return {attack: fits[attack]}


def _errors(found: Reconstruction, tried: EmbeddingThreat, threat: EmbeddingThreat) -> np.ndarray:
    """Squared errors (m,) on practice releases, each feature over what it varies by, and at most `practice.FAR`.

    Features with bounds in common have a unit in common, as pixels have: over what they vary by together.
    """
    unit = threat.expected_of.astype(np.float64).std(axis=0)
    is_scored = unit > 0 if threat.features is None else (unit > 0) & ~threat.features.which
    if not is_scored.any():
        return practice.errors_in(found, tried)
    if threat.bounds is not None:
        return practice.errors_in(found, tried, is_scored) / float(np.mean(unit[is_scored] ** 2))
    return practice.errors_in(found, tried, is_scored, np.where(unit > 0, unit, 1))


def _pool(fits: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat) -> dict[str, EmbeddingAttack]:
    """Attacks that do not take too long, and if all do the one that takes least."""
    cheap = {name: one for name, one in fits.items() if one.cost(threat).seconds <= practice.MOST_SECONDS}
    least = min(fits, key=lambda name: fits[name].cost(threat).seconds)
    return cheap or {least: fits[least]}


def bytes_needed(pool: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat) -> float:
    """Memory at the peak of choosing and running one of the attacks, within a factor of two.

    Args:
        pool: Attacks among which one is chosen.
        threat: Release and knowledge; of its arrays the shapes alone count.
    """
    n, d = threat.known.shape
    public = 0 if threat.public is None else min(N_SHADOW, len(threat.public))
    own = 40.0 * n * d + 16.0 * threat.coords.size + (0.0 if threat.public is None else 24.0 * d**2)
    if len(pool) == 1 and not any(one.needs_shadows for one in pool.values()):
        return own
    made = public or shadow_sets.STAND_INS
    return own + shadow_needs(threat.method, n + 1, d, made, itemsize=8).bytes + 8.0 * made * threat.coords.size


def seconds_needed(pool: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat) -> float:
    """Time of choosing and running attacks, and of checking their intervals, within a factor of about two."""
    public, (n, d) = threat.public, threat.known.shape
    n_tried = shadow_sets.STAND_INS // 2 if public is None else min(practice.RELEASES, len(public) // 4)
    costs = {name: one.cost(threat).seconds for name, one in pool.items()}
    if public is None and len(pool) == 1:
        return min(costs.values())
    made = shadow_sets.STAND_INS if public is None else min(len(public), N_SHADOW)
    releases = shadow_needs(threat.method, n + 1, d, made, itemsize=8).seconds
    releases += practice.library_seconds(threat, n_tried)
    tried, late, may_be_exact = [0.0], 0.0, False
    for name in sorted(costs, key=lambda one: costs[one]):
        # After one that is exact no slow one is run: of those that come after the first that may be, as often as not.
        share = 0.5 if may_be_exact and n_tried * costs[name] > practice.QUICK_SECONDS else 1.0
        if n_tried * costs[name] <= practice.MOST_SECONDS:
            tried.append(share * n_tried * costs[name])
        elif costs[name] <= LATE_SECONDS:
            # Too slow for that: run on the release alone.
            late = min(late + share * costs[name], LATE_SECONDS)
        may_be_exact |= pool[name].confirms
    return releases + sum(tried) + max(tried) / n_tried + late


def _practised(
    key: Array, candidates: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat
) -> tuple[EmbeddingThreat | None, dict[str, Reconstruction]]:
    """Practice releases, and what attacks found of them; neither where one attack alone is possible."""
    tried = practice.practice(threat) if len(candidates) > 1 else None
    if tried is None:
        return None, {}
    candidates = {name: one for name, one in candidates.items() if one.cost(tried).seconds <= practice.MOST_SECONDS}
    found: dict[str, Reconstruction] = {}

    def errors(name: str) -> np.ndarray:
        found[name] = practice.found_on(candidates[name], key, tried)
        return _errors(found[name], tried, threat)

    practice.compared(candidates, tried, errors, usual=1.0)
    return tried, found

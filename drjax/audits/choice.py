"""Which attacks an audit runs: those asked for, or those that do best where the adversary knows the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from drjax.attacks import practice
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.registry import ATTACKS
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.progress import announce
from drjax.core.types import Array, DRMethod

ALL = "all"
"""Word in place of the names of attacks: every one that works on the method."""

LEAST_SECONDS, TIMES_RELEASES = 600.0, 10.0
"""An attack is a candidate by default if it takes no longer than the first, or than so many times the releases."""


def possible(method: DRMethod, *, seed_known: bool) -> dict[str, EmbeddingAttack]:
    """The attacks and baselines that work on a method, by name."""
    return {n: a for n, a in ATTACKS["embedding"].items() if a.suits(method, seed_known=seed_known) is None}


def learned(threat: EmbeddingThreat, *, most_seconds: float) -> dict[str, EmbeddingAttack]:
    """Attacks that learn all they know from shadow releases, and take no longer.

    Trained on releases that went through a defence, they are the adversary who knows of it.
    """
    return {
        name: attack
        for name, attack in ATTACKS["embedding"].items()
        if attack.trains and attack.fits(threat) is None and attack.cost(threat).seconds <= most_seconds
    }


def check(config: AuditConfig, method: DRMethod | None = None) -> None:
    """Checks the names of `attacks`.

    Args:
        config: Configuration of the audit.
        method: Method of the release, where it is not the configuration's.

    Raises:
        ValueError: a name that is none of the method's, or an attack that needs what the adversary lacks.
    """
    name_of_method = config.method if method is None else method.name
    method = config.believed.dr_method if method is None else method
    known, usual = possible(method, seed_known=True), possible(method, seed_known=config.seed_known)
    if config.attacks_each:
        usual = {name: attack for name, attack in usual.items() if not attack.is_baseline}
    else:
        known, usual = ({n: a for n, a in some.items() if not a.only_each} for some in (known, usual))
    for name in config.attacks:
        if name in known and name not in usual and not config.attacks_each:
            raise ValueError(f"seed_known must be True for attack {name!r} on method {config.method!r}, got False")
        if name not in usual and name != ALL:
            where = " with each_record or released" if config.attacks_each else ""
            allowed = ", ".join([ALL, *usual])
            raise ValueError(f"attacks must be among {allowed}{where} for method {name_of_method!r}, got {name!r}")
        if config.n_hidden and name != ALL and not (usual[name].takes_hidden or usual[name].is_baseline):
            left = ", ".join(n for n, a in usual.items() if a.takes_hidden and not a.is_baseline)
            raise ValueError(f"attacks must be among {left} where further records are unknown, got {name!r}")
    if config.attacks and all(name in usual and usual[name].is_baseline for name in config.attacks):
        raise ValueError(f"attacks must name an attack and not only baselines, got {config.attacks}")


def configured(name: str, config: AuditConfig) -> EmbeddingAttack:
    """The attack with the recipe that the configuration has for it, in a field of its name."""
    attack = ATTACKS["embedding"][name]
    recipe = getattr(config, name.replace("-", "_"), None)
    return attack if recipe is None else dataclasses.replace(attack, recipe=recipe)


def chosen(
    folder: RunFolder, key: Array, config: AuditConfig, threat: EmbeddingThreat, *, seconds: float
) -> dict[str, EmbeddingAttack]:
    """Baselines, then the attacks that an audit runs, by name in the order of the ladder.

    Args:
        folder: Keeps what the candidates found on practice releases.
        key: PRNG key of the attacks.
        config: Configuration of the audit; checked.
        threat: Threat with the releases under attack.
        seconds: What the releases take.
    """
    fits = {name: configured(name, config) for name, attack in ATTACKS["embedding"].items() if not attack.fits(threat)}
    wanted = list(fits) if ALL in config.attacks else config.attacks
    if not wanted:
        most = max(LEAST_SECONDS, TIMES_RELEASES * seconds)
        # What fits into the time is another's on another machine: what was chosen first stays.
        wanted = agreed(folder, lambda: {"attacks": np.array(_best(folder, key, threat, fits, most))})["attacks"]
    found = {name: attack for name, attack in fits.items() if name in wanted or attack.is_baseline}
    _announce(f"attacks on {threat.n_releases:,} releases", found.values(), threat)
    return found


def agreed(folder: RunFolder, choose: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What was chosen for an audit by whoever came first: other processes, and a resumed run, keep to it."""
    return folder.arrays("chosen", choose)


def chosen_each(config: AuditConfig, every: EveryRecord) -> tuple[dict[str, EmbeddingAttack], dict[str, str]]:
    """The attacks on every record, by name; and those left out, with the reason.

    Raises:
        ValueError: none is left.
    """
    attacks = {name: attack for name, attack in ATTACKS["embedding"].items() if not attack.is_baseline}
    wanted = {
        name: attack
        for name, attack in attacks.items()
        if name in config.attacks or ALL in config.attacks or (not config.attacks and attack.each)
    }
    reasons = {name: attack.fits_each(every) for name, attack in wanted.items()}
    left = {name: attack for name, attack in wanted.items() if reasons[name] is None}
    out = {
        name: f"{attack.label} {reasons[name]}"
        for name, attack in wanted.items()
        if reasons[name] is not None and attack.suits(every.method, seed_known=False) is None
    }
    if not left:
        raise ValueError(
            f"attacks must hold one for each of {len(every.x):,} records with {every.method.name!r}, got none: "
            f"{'; '.join(out.values())}"
        )
    return left, out


def _best(
    folder: RunFolder, key: Array, threat: EmbeddingThreat, fits: Mapping[str, EmbeddingAttack], most_seconds: float
) -> list[str]:
    """Names of the attacks that err least on practice releases; of one that fits alone, or without any, of all."""
    attacks = {name: attack for name, attack in fits.items() if not attack.is_baseline}
    tried = practice.practice(threat)
    if tried is None:
        return list(attacks)
    candidates = {
        name: attack
        for name, attack in attacks.items()
        if attack.cost(threat).seconds <= most_seconds and attack.cost(tried).seconds <= practice.MOST_SECONDS
    }
    if len(candidates) < 2:
        # Whatever works, however long it takes.
        return list(candidates or attacks)
    _announce(f"trials of {len(candidates)} attacks where the answer is known", candidates.values(), tried)
    is_scored = np.ones(threat.known.shape[1], bool) if threat.features is None else ~threat.features.which
    return practice.winners(practice.compared(candidates, tried, _errors(folder, key, tried, candidates, is_scored)))


def _announce(what: str, attacks: Iterable[EmbeddingAttack], threat: EmbeddingThreat) -> None:
    costs = [attack.cost(threat) for attack in attacks]
    seconds, n_bytes = sum(cost.seconds for cost in costs), max(cost.bytes for cost in costs)
    announce(what, seconds, n_bytes, enabled=threat.progress)


def _errors(
    folder: RunFolder,
    key: Array,
    tried: EmbeddingThreat,
    candidates: Mapping[str, EmbeddingAttack],
    is_scored: np.ndarray,
) -> Callable[[str], np.ndarray]:
    def errors(name: str) -> np.ndarray:
        def make() -> tuple[dict[str, Any], dict[str, Any]]:
            return {"error": practice.errors_of(candidates[name], key, tried, is_scored)}, {}

        file = f"practice/{name}"
        return folder.timed(file, make, stage=file)[0]["error"]

    return errors

"""The attack on one published embedding whose making nobody but its maker watched."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks import certificate, practice, shadow_sets
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.recognition import Belief, recognise
from drjax.attacks.registry import ATTACKS, answer, fitting
from drjax.attacks.shadow import shadow_needs
from drjax.core import memory, validate
from drjax.core.types import Array, DRMethod, Reconstruction, Status

N_SHADOW, SHARE_OF_VALIDATION = 1000, 0.1
"""Public records that shadow releases are made of, at most, and the share that trainings are stopped on."""

MOST_DECIMALS = 9
"""Coordinates that are equal to themselves rounded to so many decimals are taken for rounded."""


class Answer(NamedTuple):
    """What came of a release.

    Attributes:
        attack: Attack that was run.
        found: Reconstruction, without a leading axis.
        errors: Attack -> mean squared error (v,) on practice releases; empty where only one attack was possible.
        misfit: Why the release is none of the method's, where the attack says so.
        belief: What the release shows of how it was made; None where the method was stated.
        order: (n,) int, rows of the release in the order [target; known], where these were matched; else None.
    """

    attack: EmbeddingAttack
    found: Reconstruction
    errors: Mapping[str, np.ndarray]
    misfit: list[str]
    belief: Belief | None = None
    order: np.ndarray | None = None

    def __repr__(self) -> str:
        """The attack, the first features and what is known of the error; a few lines."""
        found = self.found
        first = ", ".join(f"{value:.4g}" for value in found.x[:6]) + (", ..." if found.x.size > 6 else "")
        lines = [f"{self.attack.label}: [{first}], {found.x.size} features, status {Status(int(found.status)).name}"]
        if found.expected_mse is not None:
            lines.append(f"mean squared error to expect: {float(found.expected_mse):.3g}")
        if self.errors:
            tried = ", ".join(f"{name} {error.mean():.3g}" for name, error in self.errors.items())
            lines.append(f"on releases of known answer: {tried}")
        return "\n".join(lines + self.misfit + ([] if self.belief is None else self.belief.in_words().splitlines()))


def attack_embedding(
    key: Array,
    method: DRMethod | None,
    known: Array,
    coords: Array,
    *,
    public: Array | None = None,
    target_row: int | None = None,
    shuffled: bool = False,
    attack: str | None = None,
    decimals: int | None = None,
    bounds: tuple[float, float] | None = None,
    progress: bool = False,
) -> Answer:
    """Reconstructs the one unknown record of a published embedding from the others.

    Without `attack` those that fit are tried where the answer is known, on releases of public records or, without any,
    of known ones that stand in for the target; the one that errs least there is run.

    Args:
        key: PRNG key of the shadow releases and attacks.
        method: DR method, as the adversary believes it to be, with its hyperparameters; recognised by the known records
            if None (`drjax.attacks.recognition`). Where nothing fits the answer is their mean, with status MISFIT.
        known: (n-1, d), in the order of the release, the target's row left out.
        coords: (n, k), finite.
        public: (s, d), other records of the same kind; None if there are none.
        target_row: Row of the unknown record in coords, from 0; 0 if None.
        shuffled: Whether nobody knows which row is whose: they are matched (`drjax.attacks.recognition.recognise`), and
            where that fails the answer is the mean, with status MISFIT.
        attack: Name in `ATTACKS["embedding"]`; the best if None.
        decimals: Decimals that coordinates are rounded to; found out if None.
        bounds: Least and greatest value of a feature; None if there are none.
        progress: Show bars on standard error.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, negative decimals, bounds without a range, a row
            of shuffled rows, or an attack that is none for such a release.

        known = digits.x[1:200]; published = sklearn.manifold.TSNE().fit_transform(digits.x[:200])
        attack_embedding(jax.random.key(0), TSNE(), known, published, public=digits.x[200:]).found.x
    """
    validate.prng_key(key)
    if decimals is not None:
        validate.integer(minimum=0, decimals=decimals)
    if bounds is not None and not (len(bounds) == 2 and bounds[0] < bounds[1]):
        raise ValueError(f"bounds must be two numbers, the first less than the second, got {bounds}")
    known = validate.matrix(known, "known", min_rows=3)
    published = validate.matrix(coords, "coords")
    n, k = len(known) + 1, published.shape[1] if method is None else method.n_components
    if published.shape != (n, k):
        raise ValueError(
            f"coords must have shape ({n}, {k}) for {n - 1} known records, got {published.shape}: leave out of known "
            "the target alone, and keep the order of the release"
        )
    if shuffled and target_row is not None:
        raise ValueError(f"target_row must be left out where rows are shuffled, got {target_row}")
    target_row = 0 if target_row is None else target_row
    validate.integer(minimum=0, target_row=target_row)
    validate.at_most(n - 1, "n - 1", target_row=target_row)
    others = None if public is None else validate.matrix(public, "public", min_rows=2, columns=known.shape[1])
    belief, order = None, None
    if method is None or shuffled:
        rounded = decimals_of(published) if decimals is None else decimals
        belief = recognise(
            key, known, published, target_row=target_row, decimals=rounded, shuffled=shuffled, progress=progress
        )
        if belief.method is None:
            return _none_of_these(belief, known)
        order = belief.order
        published = published if order is None else published[order]
        method, belief = (belief.method, belief) if method is None else (method, None)
    threat = _threat(key, method, known, published, others, target_row, decimals, bounds, progress)
    fits = {name: one for name, one in fitting(threat).items() if not one.is_baseline}
    if attack is not None:
        if attack not in fits:
            all_of_them = ATTACKS["embedding"]
            why = f": it {all_of_them[attack].fits(threat)}" if attack in all_of_them else ""
            raise ValueError(f"attack must be one of {', '.join(fits)} for this release, got {attack!r}{why}")
        fits = {attack: fits[attack]}
    pool = _pool(fits, threat)
    memory.require(
        bytes_needed(pool, threat),
        "this attack",
        f"{n - 1:,} known records with {known.shape[1]:,} features",
        "run it where there is more",
    )
    errors = _practised(key, pool, threat)
    name = practice.winners(errors)[0] if errors else min(pool, key=lambda one: pool[one].cost(threat).seconds)
    found = threat.settled(certificate.checked(threat, answer(fits[name], key, threat)))
    reasons = fits[name].misfit(threat) if int(found.status[0]) else []
    single = Reconstruction(
        found.x[0],
        None,
        found.candidates[0],
        found.residual_norm[0],
        found.status[0],
        None if found.expected_mse is None else found.expected_mse[0],
        found.facts,
        None if found.feature_mse is None else found.feature_mse[0],
    )
    return Answer(fits[name], single, errors, reasons, belief, order)


def _none_of_these(belief: Belief, known: np.ndarray) -> Answer:
    """The mean of the known records, for a release of a kind that is not known."""
    mean, variance = known.mean(axis=0, dtype=np.float64), float(known.var(axis=0, dtype=np.float64).mean())
    found = Reconstruction(mean, None, mean[None], np.asarray(np.nan), np.asarray(np.uint32(Status.MISFIT)), variance)
    return Answer(ATTACKS["embedding"]["mean"], found, {}, list(belief.why), belief)


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


def _practised(key: Array, candidates: Mapping[str, EmbeddingAttack], threat: EmbeddingThreat) -> dict[str, np.ndarray]:
    tried = practice.practice(threat) if len(candidates) > 1 else None
    if tried is None:
        return {}
    candidates = {name: one for name, one in candidates.items() if one.cost(tried).seconds <= practice.MOST_SECONDS}
    return practice.compared(candidates, tried, lambda name: practice.errors_of(candidates[name], key, tried))


def _threat(
    key: Array,
    method: DRMethod,
    known: np.ndarray,
    coords: np.ndarray,
    public: np.ndarray | None,
    target_row: int,
    decimals: int | None,
    bounds: tuple[float, float] | None,
    progress: bool,
) -> EmbeddingThreat:
    dtype = dtype_of(coords)
    decimals = decimals_of(coords) if decimals is None else decimals
    shadow_key = jax.random.fold_in(key, 1)
    some = None if public is None else public[:N_SHADOW]

    @functools.cache
    def shadows() -> Shadows:
        if some is None:
            return shadow_sets.stand_in_shadows(shadow_key, method, known, decimals=decimals, dtype=dtype)
        n_validation = max(2, round(SHARE_OF_VALIDATION * len(some))) if len(some) > 4 else 0
        return shadow_sets.shadows_of(
            shadow_key,
            method,
            known,
            some,
            n_validation=n_validation,
            decimals=decimals,
            dtype=dtype,
            progress=progress,
        )

    row = coords[target_row : target_row + 1]
    return EmbeddingThreat(
        method=method,
        known=known,
        coords=np.concatenate([row, np.delete(coords, target_row, axis=0)])[None],
        shadows=shadows,
        public=public,
        decimals=decimals,
        dtype=dtype,
        bounds=bounds,
        alike=False,
        progress=progress,
    )


def decimals_of(coords: np.ndarray) -> int | None:
    """The fewest decimals that leave coordinates (n, k) as they are; None if that takes more than `MOST_DECIMALS`."""
    values = np.asarray(coords, np.float64)
    tolerance = 4 * np.finfo(coords.dtype if coords.dtype.kind == "f" else np.float64).eps * np.abs(values).max()
    for decimals in range(MOST_DECIMALS + 1):
        if 10.0**-decimals > 4 * tolerance and np.abs(values - np.round(values, decimals)).max() <= tolerance:
            return decimals
    return None


def dtype_of(coords: np.ndarray) -> str:
    """The floating-point type that coordinates (n, k) were computed in, as their digits show."""
    return "float32" if np.array_equal(coords, coords.astype(np.float32)) else "float64"

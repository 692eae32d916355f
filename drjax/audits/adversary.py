"""Adversaries who know less, or other things, than all records but one: the switches of the audit.

Every switch changes what the attacks are given and nothing of the release. Beside the attacks under the switches those
of the informed adversary are run where that is cheap, so that the report shows what the switches cost.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks import matching
from drjax.attacks.metrics import AttackScores
from drjax.attacks.reconstruction import closed_form
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.audits import attacks as registry
from drjax.audits.attacks import Attack
from drjax.audits.config import AuditConfig
from drjax.audits.inputs import BOUNDS, AttackInputs
from drjax.core.types import Array, Reconstruction
from drjax.data import Dataset, Splits, load
from drjax.reports.ladder import bounds, number, percent
from drjax.reports.sections import Cell, Table

WITH_HIDDEN = ("closed-form", "closed-form-known", "srp-closed-form")
"""Attacks without shadow releases that work where further records are unknown; most of those with shadows do."""

PRIORS = {"closed-form": GaussianPrior.fit, "closed-form-mixture": MixturePrior.fit, "closed-form-known": None}
"""Closed forms that take features of the target as equations, and how their prior is fitted on public records."""


class Scene(NamedTuple):
    """Who holds which records.

    Attributes:
        known: (p, d), what the adversary knows of the release.
        hidden: (h, d), released records that they do not know and that are not attacked.
        shadow: (s, d), public records to train on.
        validation: (v, d), public records to stop on.
        targets: (m, d).
        decoys: (c, d), what the line-up of the identification test is drawn from; as like the targets as there are.
        is_known: (d,) bool, features of every target that the adversary has.
    """

    known: np.ndarray
    hidden: np.ndarray
    shadow: np.ndarray
    validation: np.ndarray
    targets: np.ndarray
    decoys: np.ndarray
    is_known: np.ndarray

    @property
    def public(self) -> np.ndarray:
        """Shadow and validation records."""
        return np.concatenate([self.shadow, self.validation])

    @property
    def others(self) -> np.ndarray:
        """All released records but the target."""
        return np.concatenate([self.known, self.hidden])


class View(NamedTuple):
    """The releases as the adversary sees them.

    Attributes:
        coords: (m, p + 1, k), what they take for the target's row and the known records'.
        full: (m, n, k), all rows in the same order, the hidden ones last.
        matched: Share of known rows and of targets' rows that are where they belong; None if rows come in order.
    """

    coords: np.ndarray
    full: np.ndarray
    matched: tuple[float, float] | None


def is_weaker(config: AuditConfig) -> bool:
    """Whether any switch is set that changes what an attack is given beside the public records."""
    return bool(config.n_hidden or config.shuffled or config.known_features)


def fitting(attacks: dict[str, Attack], config: AuditConfig) -> tuple[dict[str, Attack], list[str]]:
    """The attacks that work under the switches, and the names of those that do not.

    Raises:
        ValueError: one of the latter was asked for by name, or none is left.
    """
    if not config.n_hidden:
        return attacks, []

    def works(name: str, attack: Attack) -> bool:
        return attack.is_baseline or name in WITH_HIDDEN or (attack.needs_shadows and not attack.needs_all_known)

    left = {name: attack for name, attack in attacks.items() if works(name, attack)}
    out = [name for name in attacks if name not in left]
    if not config.attacks and all(attack.is_baseline for attack in left.values()):
        # The strongest attack is lost: whatever else works and is cheap.
        others = registry.fitting(config.method).items()
        left = {name: attack for name, attack in others if works(name, attack) and not attack.is_dear}
    named = [name for name in out if name in config.attacks]
    names = ", ".join(name for name, attack in left.items() if not attack.is_baseline)
    if named or not names:
        raise ValueError(
            f"attacks must be among {names or 'none for this method'} where further records are unknown, got {named}"
        )
    return left, out


def sizes(config: AuditConfig, n_records: int) -> dict[str, int]:
    """Arguments of `data.split`: with public data from elsewhere the set itself only gives decoys."""
    if config.public_data is None:
        public = {"n_shadow": config.n_shadow, "n_validation": config.n_validation}
    else:
        rest = n_records - config.n_known - config.n_targets
        public = {"n_shadow": 0, "n_validation": max(0, min(config.n_decoys, rest))}
    return {"n_known": config.n_known, "n_targets": config.n_targets, **public}


def set_scene(key: Array, config: AuditConfig, data: Dataset, parts: Splits) -> Scene:
    """Hands the records out.

    Raises:
        ValueError: public data of another form or too few of them, or features that the data do not have.
    """
    known, shadow, validation = (data.x[rows] for rows in (parts.known, parts.shadow, parts.validation))
    n_hidden = config.n_hidden
    decoys = np.concatenate([shadow, validation])
    if config.public_data is not None:
        shadow, validation = _public(key, config, data)
        decoys = decoys if len(decoys) else known
    return Scene(
        known=known[: len(known) - n_hidden],
        hidden=known[len(known) - n_hidden :],
        shadow=shadow,
        validation=validation,
        targets=data.x[parts.targets],
        decoys=decoys,
        is_known=_known_features(jax.random.fold_in(key, 1), config, data),
    )


def look(key: Array, config: AuditConfig, scene: Scene, coords: np.ndarray) -> View:
    """What the adversary sees of releases (m, n, k) with rows [target; known; hidden]: shuffles and matches them."""
    if not config.shuffled:
        return View(coords[:, : len(scene.known) + 1], coords, None)
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))
    matched, right = np.empty_like(coords), np.empty(coords.shape[:2], bool)
    for lane, release in enumerate(coords):
        order = rng.permutation(len(release))
        found = matching.match_rows(scene.known, release[order])
        matched[lane] = release[order][found]
        # Rows of equal coordinates are the same row to anybody.
        right[lane] = (matched[lane] == release).all(axis=1)
    return View(matched, matched, (float(right[:, 1:].mean()), float(right[:, 0].mean())))


def adapted(name: str, attack: Attack, scene: Scene, view: View) -> Attack:
    """The attack as it runs under the switches."""
    if len(scene.hidden) and name in ("closed-form", "closed-form-known"):

        def with_unknown(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
            return _several_unknown(name, scene, view, inputs)

        return dataclasses.replace(attack, run=with_unknown)
    if not scene.is_known.any():
        return attack

    def with_features(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
        return _given_features(name, attack, scene, inputs)

    return dataclasses.replace(attack, run=with_features)


def informed_inputs(scene: Scene, released: np.ndarray, inputs: AttackInputs) -> AttackInputs:
    """What the informed adversary has: all records but the target, rows in order, none of the target's features."""
    informed = dataclasses.replace(inputs, known=scene.others, coords=released)
    if len(scene.hidden):
        # The shadow releases are of fewer known records, and say nothing of these.
        return dataclasses.replace(informed, shadow_coords=inputs.shadow_coords[:0])
    return informed


def blind_guess(config: AuditConfig, scene: Scene, mean_record: np.ndarray) -> np.ndarray:
    """What the attacks are compared with: the mean record (m, d), or the mean known record where that is closer.

    Public records of another data set may lie so far off that any answer near the released ones beats their mean.
    """
    if config.public_data is None:
        return mean_record
    of_known = np.tile(scene.known.mean(axis=0, dtype=np.float64), (len(scene.targets), 1))
    errors = [np.mean((guess - scene.targets)[:, ~scene.is_known] ** 2) for guess in (mean_record, of_known)]
    return of_known if errors[1] < errors[0] else mean_record


def is_cheap(name: str, attack: Attack, scene: Scene) -> bool:
    """Whether the informed adversary's attack needs no other shadow releases and no second network."""
    if attack.is_baseline or "network" in name:
        return False
    return not (attack.needs_shadows and len(scene.hidden))


def comparison(pairs: dict[str, tuple[AttackScores, AttackScores]], scene: Scene) -> Table:
    """Attack label -> scores under the switches and of the informed adversary, as a table."""
    features = " and none of the target's features" if scene.is_known.any() else ""

    def cells(scores: AttackScores) -> tuple[Cell, ...]:
        mse = number(scores.mse.estimate), bounds(scores.mse, number)
        return mse, percent(scores.success.estimate), percent(scores.identification.estimate)

    heads = ("MSE, mean", "Closer", "Identified")
    return Table(
        title="Beside the informed adversary",
        paragraphs=(
            "The same attacks on the same releases by somebody who knows every released record but the target and "
            f"which row is whose{features}: what the assumptions below cost this adversary or give them. Ranges are "
            "95% confidence intervals. “Closer” is the share of targets rebuilt closer than their nearest neighbour.",
        ),
        headers=("Attack", *heads, *(f"{head}, informed" for head in heads)),
        rows=tuple((label, *cells(own), *cells(full)) for label, (own, full) in pairs.items()),
    )


def assumptions(config: AuditConfig, data: Dataset, scene: Scene, view: View, usual: tuple[str, ...]) -> tuple:
    """The usual sentences with those that the switches change in their place."""
    sentences = list(usual)
    n, p = config.n_known, len(scene.known)
    if len(scene.hidden):
        sentences[0] = (
            f"The adversary knows {p:,} of the {n:,} released records beside the target, and which rows of the release "
            f"are theirs and the target's; {len(scene.hidden):,} others are as unknown as the target."
        )
    if view.matched is not None:
        known, target = view.matched
        sentences[0] = (
            f"The adversary knows {n:,} of the {n + 1:,} released records, all but one, and not which row is whose: "
            f"the attacks match rows to records themselves. They did so rightly for {percent(known)} of the known "
            f"records, and found the target's row in {percent(target)} of the releases."
        )
    if config.assumed:
        sentences[1] = (
            "The adversary knows the method and sees the published coordinates, and takes its settings to be "
            f"{', '.join(f'{name} {value}' for name, value in config.assumed_options.items())}."
        )
    if config.public_data is not None:
        sentences[2] = (
            f"The adversary holds {len(scene.public):,} records of another data set, {config.public_data}; the decoys "
            "of the identification test are of the released one. The verdict compares the attacks with the mean of "
            "these records or of the known ones, whichever is closer to the targets."
        )
    if scene.is_known.any():
        named = data.feature_names
        names = [named[j] for j in np.flatnonzero(scene.is_known)] if named else []
        shown = f": {', '.join(names)}" if 0 < len(names) <= 20 else ""
        sentences.insert(
            2,
            f"The adversary has {int(scene.is_known.sum()):,} of the target's {len(scene.is_known):,} features{shown}. "
            "All figures are of the other features.",
        )
    return tuple(sentences)


def _public(key: Array, config: AuditConfig, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    assert config.public_data is not None
    is_table = data.feature_names is not None
    options = {"categorical": config.categorical, "drop": config.drop, "label": config.label} if is_table else {}
    public = load(config.public_data, data_dir=config.data_dir, **options)
    if public.shape != data.shape or public.feature_names != data.feature_names:
        raise ValueError(
            f"public_data must have records of the same form as {data.name}, {data.shape}"
            f"{' with the same columns' if is_table else ''}, got {public.shape} in {public.name}"
        )
    needed = config.n_shadow + config.n_validation
    if len(public.x) < needed:
        raise ValueError(
            f"public_data must have n_shadow + n_validation = {needed:,} records, got {len(public.x):,}: ask for fewer"
        )
    rows = np.asarray(jax.random.permutation(key, len(public.x)))[:needed]
    x = public.x[rows].astype(np.float64)
    if is_table:
        # A table was scaled by its own ranges; the same value must mean the same in both.
        x = (x * public.scale + public.offset - data.offset) / np.where(data.scale > 0, data.scale, 1)
    x = x.astype(np.float32)
    return x[: config.n_shadow], x[config.n_shadow :]


def _known_features(key: Array, config: AuditConfig, data: Dataset) -> np.ndarray:
    """(d,) bool from names, column names of one-hot columns, numbers of features, or one share in (0, 1)."""
    d = data.x.shape[1]
    is_known = np.zeros(d, bool)
    words = config.known_features
    if len(words) == 1 and _is_share(words[0]):
        count = round(float(words[0]) * d)
        is_known[np.asarray(jax.random.permutation(key, d))[:count]] = True
    else:
        names = data.feature_names or ()
        for word in words:
            columns = [j for j, name in enumerate(names) if word in (name, name.split("=", 1)[0])]
            if not columns and word.isdigit() and int(word) < d:
                columns = [int(word)]
            if not columns:
                what = f"names among {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}, " if names else ""
                raise ValueError(
                    f"known_features must be {what}numbers from 0 to {d - 1} or one share such as 0.5, got {word!r}"
                )
            is_known[columns] = True
    if words and (is_known.all() or not is_known.any()):
        raise ValueError(f"known_features must leave a feature unknown and name one, got {int(is_known.sum())} of {d}")
    return is_known


def _is_share(word: str) -> bool:
    try:
        return "." in word and 0 < float(word) < 1
    except ValueError:
        return False


def _several_unknown(
    name: str, scene: Scene, view: View, inputs: AttackInputs
) -> tuple[Reconstruction, dict[str, Any]]:
    n = view.full.shape[1]
    unknown = np.concatenate([[0], np.arange(len(scene.known) + 1, n)])
    prior = GaussianPrior.fit(inputs.public) if name == "closed-form" else None
    found = closed_form.reconstruct_pca_many(
        inputs.known, view.full, unknown=unknown, n_wanted=1, prior=prior, bounds=BOUNDS
    )
    result = Reconstruction(found.x[:, 0], None, found.candidates[:, 0], found.residual_norm[:, 0], found.status[:, 0])
    return result, {"n_unknown": len(unknown)}


def _given_features(
    name: str, attack: Attack, scene: Scene, inputs: AttackInputs
) -> tuple[Reconstruction, dict[str, Any]]:
    """The attack with the target's known features.

    By its own errors: those on public records that it was not trained on say how the errors of the known features go
    with the others'; a Gaussian fitted on them is conditioned on what the known features reveal. The closed form can
    also take the features as equations; of the two ways the one that does better on public records is taken.
    """
    m, is_known = len(inputs.targets), scene.is_known
    if name == "mean":
        features = inputs.targets[:, is_known].astype(np.float64)
        x = np.clip(GaussianPrior.fit(inputs.public).condition(np.eye(len(is_known))[is_known], features), *BOUNDS)
        return Reconstruction(x, None, x[:, None], np.full(m, np.nan), np.zeros(m, np.uint32)), {}
    if attack.is_baseline:
        return attack.run(inputs)
    both = dataclasses.replace(
        inputs,
        coords=np.concatenate([inputs.coords, inputs.validation_coords]),
        targets=np.concatenate([inputs.targets, inputs.validation]),
    )
    found, facts = attack.run(both)
    truth = both.targets.astype(np.float64)
    practice = m + np.flatnonzero(np.isfinite(found.x[m:]).all(axis=1))
    if len(practice) < 4:
        raise ValueError(f"n_validation must leave at least 4 usable reconstructions, got {len(practice)}")
    x = _corrected(found.x, truth, practice, is_known)
    if name in PRIORS:
        fit = PRIORS[name]
        prior = None if fit is None else fit(inputs.public)
        exact = closed_form.reconstruct_pca(
            inputs.known, both.coords, prior=prior, bounds=BOUNDS, known_features=np.where(is_known, truth, np.nan)
        )
        # Half of the public records say how the errors go together, the other half how well that does.
        fitted, held_out = practice[::2], practice[1::2]
        losses = [
            np.mean((guess[held_out] - truth[held_out]) ** 2)
            for guess in (_corrected(found.x, truth, fitted, is_known), exact.x)
        ]
        facts = {**facts, "features": "errors" if losses[0] < losses[1] else "equations"}
        x = x if losses[0] < losses[1] else exact.x
    x = x[:m]
    return Reconstruction(x, None, x[:, None], found.residual_norm[:m], found.status[:m]), facts


def _corrected(found: np.ndarray, truth: np.ndarray, practice: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """Reconstructions (b, d) plus the errors expected in view of those of the known features, within the bounds."""
    errors = truth - found
    usable = np.isfinite(errors).all(axis=1)
    x = found.copy()
    fitted = GaussianPrior.fit(errors[practice])
    x[usable] += fitted.condition(np.eye(len(is_known))[is_known], errors[usable][:, is_known])
    return np.clip(x, *BOUNDS)

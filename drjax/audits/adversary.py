"""Adversaries who know less, or other things, than all records but one: the switches of the audit.

Every switch changes what the attacks are given and nothing of the release. Beside the attacks under the switches those
of the informed adversary are run where that is cheap, so that the report shows what the switches cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks import matching
from drjax.attacks.attack import KnownFeatures
from drjax.attacks.metrics import AttackScores
from drjax.audits.config import AuditConfig
from drjax.core.types import Array
from drjax.data import Dataset, Splits, load
from drjax.reports.ladder import bounds, number, percent
from drjax.reports.sections import Cell, Table


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
        return np.concatenate([self.known, self.hidden]) if len(self.hidden) else self.known

    @property
    def features(self) -> KnownFeatures | None:
        """The features of the targets that the adversary has; None if none."""
        return KnownFeatures(self.is_known, self.targets[:, self.is_known]) if self.is_known.any() else None


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
        return View(coords[:, : len(scene.known) + 1] if len(scene.hidden) else coords, coords, None)
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))
    matched, right = np.empty_like(coords), np.empty(coords.shape[:2], bool)
    for lane, release in enumerate(coords):
        order = rng.permutation(len(release))
        found = matching.match_rows(scene.known, release[order])
        matched[lane] = release[order][found]
        # Rows of equal coordinates are the same row to anybody.
        right[lane] = (matched[lane] == release).all(axis=1)
    return View(matched, matched, (float(right[:, 1:].mean()), float(right[:, 0].mean())))


def blind_guess(config: AuditConfig, scene: Scene, mean_record: np.ndarray) -> np.ndarray:
    """What the attacks are compared with: the mean record (m, d), or the mean known record where that is closer.

    Public records of another data set may lie so far off that any answer near the released ones beats their mean.
    """
    if config.public_data is None:
        return mean_record
    of_known = np.tile(scene.known.mean(axis=0, dtype=np.float64), (len(scene.targets), 1))
    errors = [np.mean((guess - scene.targets)[:, ~scene.is_known] ** 2) for guess in (mean_record, of_known)]
    return of_known if errors[1] < errors[0] else mean_record


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
    # Of one's own table the public one has the same plan; a named set has none.
    options: dict[str, Any] = {} if data.plan is None else {"label": config.label, "schema": data.plan}
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

"""Attacks on something else to publish, adapted to it, and what they come to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from drjax.attacks import exposure
from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction.closed_form.each import reconstruct_pca_each
from drjax.attacks.reconstruction.within_map import NeighboursInMap
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.attacks.shadow_sets import stand_in_shadows
from drjax.audits import exposure_report
from drjax.audits.attempts import fields_of
from drjax.core.types import Array, Reconstruction, Status
from drjax.decisions.audited import Audited, Made
from drjax.dr import Pipeline, publishes_scores
from drjax.dr.pipeline.steps import Scaler
from drjax.reports.ladder import LadderRow

MOST_SECONDS = 15.0
"""Time of one attack on one option in the search; those that take longer wait for the final check."""

N_FOLDS = 10
"""Parts of the records, each reconstructed by trees grown on the others."""

N_TREES, LEAST_LEAF = 50, 3
"""Trees of each part, and records of a leaf."""

TREE_FLOPS = 3e8
"""Operations per second of growing trees: 5 s for 3,000 records of 90 features on two cores."""


@dataclass(frozen=True, kw_only=True)
class TreesInMap(EmbeddingAttack):
    """Randomised trees from places to records; kept out of `ATTACKS`, so that no search has used it.

    Source: Geurts, Ernst & Wehenkel (2006), extremely randomised trees, as scikit-learn grows them.
    """

    name: str = "trees"
    label: str = "Randomised trees in the map"
    description: str = "Predicts a record from its place by trees grown on the places of other records."
    confirms = False

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of one record as of all, which share the trees."""
        n, d = threat.known.shape
        return Cost(_seconds(n, d + threat.coords.shape[2], n), 64.0 * n * d)

    def seconds_each(self, every: EveryRecord, n_rows: int) -> float:
        """See `EmbeddingAttack`."""
        return _seconds(len(every.x), every.x.shape[1] + every.coords.shape[1], n_rows)

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; parts and trees are drawn by the key."""
        n, seed = len(every.x), int(jax.random.bits(key, (), np.uint32) >> 1)
        n_parts = _n_parts(n, len(every.rows))
        fold = np.random.default_rng(seed).permutation(n) % n_parts
        if n_parts == 1:
            fold = np.where(np.isin(np.arange(n), every.rows), 0, 1)
        found = np.empty((len(every.rows), every.x.shape[1]))
        for part in np.unique(fold[every.rows]):
            lanes = np.flatnonzero(fold[every.rows] == part)
            others = fold != part
            trees = ExtraTreesRegressor(N_TREES, min_samples_leaf=LEAST_LEAF, n_jobs=-1, random_state=seed)
            # Threads add up what trees predict in the order that they end in, so that the last digits would differ.
            trees.fit(every.coords[others], every.x[others]).set_params(n_jobs=1)
            found[lanes] = trees.predict(every.coords[every.rows[lanes]]).reshape(len(lanes), -1)
        status = np.full(len(found), np.uint32(Status.OK))
        return Reconstruction(found, None, found[:, None], np.full(len(found), np.nan), status)


def _seconds(n: int, width: int, n_rows: int) -> float:
    """Time for some of n records whose features and coordinates are `width` numbers."""
    return _n_parts(n, n_rows) * N_TREES * n * np.log2(n + 2) * width / TREE_FLOPS


def _n_parts(n: int, n_rows: int) -> int:
    """Sets of trees: one where a tenth of the records at most are attacked, grown on all others."""
    return 1 if n_rows * N_FOLDS <= n else min(N_FOLDS, n)


@dataclass(frozen=True, kw_only=True)
class ScaledClosedForm(EmbeddingAttack):
    """The closed form of principal components behind a scaling, which is taken for known; for searches alone.

    The scaling by all records is a function of the target too, which `BehindSteps` solves for, at some seconds a record
    of large releases. What that misses is far below what the options of a search do to a map.
    """

    name: str = "scaled-closed-form"
    label: str = "Closed form, scaling taken as known"
    description: str = "Solves the equations of the published components of the scaled records."

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of one record as of all, which share a decomposition."""
        n, d = threat.known.shape
        return Cost(4.0 * n * d * min(n, d) / DENSE_FLOPS, 32.0 * n * d)

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`."""
        method = every.method
        if not isinstance(method, Pipeline) or not publishes_scores(method.method) or method.after:
            return "is of principal components"
        is_scaled = bool(method.before) and all(isinstance(step, Scaler) for step in method.before)
        return None if is_scaled else "is of scaled records"

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        assert isinstance(every.method, Pipeline)
        scaled, centre, scale = every.x.astype(np.float64), 0.0, 1.0
        with jax.enable_x64(True):
            for step in every.method.before:
                assert isinstance(step, Scaler)
                affine = step.with_record(step.summary(scaled[1:]), scaled[0])
                own_centre, own_scale = np.asarray(affine.centre), np.asarray(affine.scale)
                scaled = (scaled - own_centre) / own_scale
                centre, scale = centre + scale * own_centre, scale * own_scale
        found = reconstruct_pca_each(scaled, every.coords, rows=every.rows)
        x = centre + scale * found.x
        return found._replace(x=x if every.bounds is None else np.clip(x, *every.bounds))


def seconds_of(audited: Audited, attack: EmbeddingAttack, n_rows: int) -> float:
    """Time that an attack on so many records takes: as it says itself, or as it took in the audit if that is longer."""
    return max(attack.seconds_each(audited.every, n_rows), n_rows * audited.seconds.get(attack.name, 0.0))


def searched(audited: Audited, n_rows: int) -> dict[str, EmbeddingAttack]:
    """The attacks of a search, by name: those of the audit that do not take too long, and the neighbours in the map."""
    found = {
        name: attack
        for name, attack in audited.attacks.items()
        if attack.shares_each or seconds_of(audited, attack, n_rows) <= MOST_SECONDS
    }
    inside = ATTACKS["embedding"][NeighboursInMap().name]
    scaled = ScaledClosedForm()
    more = [inside] + [scaled] * (scaled.fits_each(audited.every) is None)
    return found | {attack.name: attack for attack in more if attack.name not in found}


def views(attacks: Mapping[str, EmbeddingAttack], made: Made) -> dict[str, tuple[EmbeddingAttack, Made]]:
    """Each attack on what an option publishes, and on the places that it lets the adversary work out, by name."""
    found = {name: (attack, made) for name, attack in attacks.items()}
    if made.worked_out is not None:
        inner = made._replace(coords=made.worked_out)
        for name, attack in attacks.items():
            label = f"{attack.label}, place worked out from the others'"
            found[f"{name}-worked-out"] = (dataclasses.replace(attack, label=label), inner)
    return found


def run(key: Array, attack: EmbeddingAttack, audited: Audited, made: Made, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What an attack makes of records of an option: x (m, d) scaled as the data, and status (m,).

    The attack has the other records and what is published, and finds out by these how far the published numbers are
    off: noise is measured on the release itself, a kernel is chosen by leaving known records out in turn.

    Args:
        key: PRNG key.
        attack: Attack.
        audited: Audited release.
        made: Option.
        rows: (m,) places in `made.kept` of the records to attack.
    """
    every = audited.every
    threat = EveryRecord(
        method=made.method,
        x=made.x,
        coords=made.coords,
        rows=rows,
        stand_ins=lambda known: stand_in_shadows(key, made.method, known, dtype=every.dtype),
        dtype=every.dtype,
        bounds=every.bounds,
        alike=False,
    )
    found: dict[str, Any] = fields_of(attack.run_each(key, threat))
    return {"x": audited.in_records(found["x"]), "status": found["status"]}


def scored(
    key: Array,
    audited: Audited,
    kept: np.ndarray,
    rows: np.ndarray,
    found: Mapping[str, tuple[EmbeddingAttack, Mapping[str, np.ndarray], float]],
) -> tuple[LadderRow, ...]:
    """The ladder of some attacks on an option, each beside the mean of the others.

    Args:
        key: PRNG key of the intervals.
        audited: Audited release.
        kept: (n',) rows of the records that the option is of.
        rows: (m,) places in `kept` of the attacked ones.
        found: Attack, what it found and its seconds, by name.
    """
    data = dataclasses.replace(audited.data, x=audited.data.x[kept])
    guess, similar = exposure.means_of_others(data.x, rows), exposure.nearest_others(data.x, rows)
    mean = exposure.measure(guess, data.x, rows, np.zeros(len(rows), np.uint32), similar=similar)
    made = []
    for attack, result, seconds in found.values():
        own = exposure.measure(result["x"], data.x, rows, result["status"], similar=similar)
        words = attack.label, attack.description
        made.append(exposure_report.ladder_row(key, words, result, seconds, own, mean, data))
    return tuple(made)

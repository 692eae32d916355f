"""The answer about a map that no method is known to have made."""

from __future__ import annotations

import dataclasses

import numpy as np

from drjax.attacks import intervals
from drjax.attacks.answer import Answer
from drjax.attacks.case import Case
from drjax.attacks.recognition import Belief
from drjax.attacks.reconstruction.place_regression import PlaceRegression, reconstruct_by_place
from drjax.attacks.registry import ATTACKS
from drjax.core.statistics import spread_rows
from drjax.core.types import Array, Reconstruction, Status, single
from drjax.dr import Unnamed

LEAST_CHECKED, MOST_CHECKED = 20, 20_000
"""Known records that intervals are checked on, at the least, and their features in all, at most."""

KNOWS_MORE = "How the map was made is not known: whoever knows may take back far more. If you do, state --method."


def answered(key: Array, belief: Belief, case: Case, row: int, *, shuffled: bool) -> Answer:
    """What the places of known records say of the target; their mean, with status MISFIT, where that is nothing.

    It is nothing where nobody knows which row is whose, where there are few known records, and where each is predicted
    from the others' places no better than by their mean.

    Args:
        key: PRNG key of the threat.
        belief: Belief that nothing fits.
        case: Release, target in row 0, and what is known of it.
        row: Row of the target in the release.
        shuffled: Whether nobody knows which other row is whose.
    """
    attack = PlaceRegression()
    threat = case.threat(key, Unnamed(n_components=case.coords.shape[1]))
    if shuffled or belief.order is not None or attack.fits(threat) is not None:
        return _mean(belief, case, row)
    found, known = reconstruct_by_place(threat, threat.coords[0])
    if found.status[0] != Status.OK:
        return _mean(belief, case, row)
    seen = spread_rows(len(known.x), max(LEAST_CHECKED, MOST_CHECKED // known.x.shape[1]))
    checked = known._replace(x=known.x[seen], status=known.status[seen], feature_mse=known.feature_mse[seen])
    learned = intervals.calibrated(checked, dataclasses.replace(threat, truth=threat.known[seen]))
    calibration = learned._replace(n_releases=0, n_records=learned.n_releases)
    found = intervals.with_intervals(threat.settled(found), threat, calibration)
    return Answer(
        attack=attack,
        found=single(found),
        usual=case.usual,
        names=case.names,
        errors={},
        belief=belief,
        notes=(KNOWS_MORE,),
        row=row,
        calibration=calibration,
        has_public=case.public is not None,
        is_confirmed=False,
    )


def _mean(belief: Belief, case: Case, row: int) -> Answer:
    """The mean of the records that say what to expect of one."""
    mean, deviation = case.usual
    status, unknown = np.asarray(np.uint32(Status.MISFIT)), np.asarray(np.nan)
    variance = deviation**2
    records = case.known if case.public is None else case.public
    ends = np.quantile(records, [(1 - intervals.LEVEL) / 2, (1 + intervals.LEVEL) / 2], axis=0).T
    found = Reconstruction(
        mean, None, mean[None], unknown, status, variance.mean(), feature_mse=variance, interval=ends
    )
    return Answer(
        attack=ATTACKS["embedding"]["mean"],
        found=found,
        usual=case.usual,
        names=case.names,
        errors={},
        misfit=tuple(belief.why),
        belief=belief,
        row=row,
        has_public=case.public is not None,
    )

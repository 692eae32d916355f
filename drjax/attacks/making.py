"""How a release was made: what somebody states, compared with what its known records show."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.case import Case
from drjax.attacks.recognition import Belief, checked, recognise
from drjax.attacks.recognition.agreement import Stated, agreeing, is_by_seed, unstated
from drjax.core.types import Array, DRMethod


class Making(NamedTuple):
    """How a release is taken to be made.

    Attributes:
        method: DR method; None where nothing fits.
        belief: What the known records show of it; None where nobody looked.
        contradiction: Sentences on what the map shows against what was stated; empty if nothing.
        notes: Sentences on what was checked beside, or was not.
        order: Rows of the release by known records, where they were matched.
        seed_key: PRNG key of the release, where its seed was stated and makes it.
    """

    method: DRMethod | None
    belief: Belief | None = None
    contradiction: str = ""
    notes: tuple[str, ...] = ()
    order: np.ndarray | None = None
    seed_key: Array | None = None


def believed(key: Array, case: Case, stated: Stated | None, row: int, *, shuffled: bool) -> Making:
    """What is stated, what the map shows, and whether the two agree; with a seed, whether that makes the map.

    Args:
        key: PRNG key of releases that are made for comparison.
        case: Release, target in row 0, and what is known of it.
        stated: What somebody says of how it was made; None if nothing.
        row: Row of the target in the release.
        shuffled: Whether nobody knows which other row is whose.
    """
    if stated is None or stated.seed is None:
        return _compared(key, case, stated, row, shuffled=shuffled)
    if not stated.repeats:
        made = _compared(key, case, stated, row, shuffled=shuffled)
        why = f"with another record the descent of {stated.method.title} goes another way, also from the same start"
        return made._replace(notes=(*made.notes, f"The seed of the release is left aside: {why}."))
    if is_by_seed(stated, case.known, case.coords, case.decimals):
        said = f"Seed {stated.seed} makes the rows of the known records as they were published."
        return Making(stated.method, notes=(said,), seed_key=jax.random.key(stated.seed))
    made = _compared(key, case, stated, row, shuffled=shuffled)
    said = f"Seed {stated.seed} makes other rows of the known records by {stated.method.title} than were published."
    way_out = "Leave out the seed of the release, if it is not that of drjax embed."
    return made._replace(contradiction=" ".join(filter(None, (made.contradiction, said, way_out))))


def _compared(key: Array, case: Case, stated: Stated | None, row: int, *, shuffled: bool) -> Making:
    """What is stated but for the seed, what the map shows, and whether the two agree."""
    if case.hidden is not None:
        assert stated is not None
        return Making(stated.method, notes=("Nobody compared the map with the method: several records are unknown.",))
    families = None if stated is None or shuffled else (stated.family,)
    # Rows of the release are needed where they are to be matched.
    release = np.insert(case.coords[1:], row, case.coords[0], axis=0)
    options = {"target_row": row, "decimals": case.decimals, "shuffled": shuffled, "progress": case.progress}
    try:
        belief = recognise(key, case.known, release, methods=families, **options)
    except ValueError as error:
        if stated is None or shuffled:
            raise
        return Making(stated.method, notes=(f"Nobody compared the map with the method: {error}.",))
    if stated is None or (shuffled and belief.method is None):
        return Making(belief.method, belief, order=belief.order)
    records = checked(case.known, case.coords).records
    agreed = agreeing(belief, stated, records)
    order = belief.order if shuffled else None
    if agreed is not None:
        untold = stated.angle is not None and agreed.angles is None
        notes = ("The map does not tell the angle of the Barnes-Hut algorithm.",) if untold else ()
        moved = unstated(agreed.method, stated.method)
        if moved:
            said = ", ".join(step.title for step in moved)
            notes = (*notes, f"The map was {said}, beside what was stated: it is taken as it was before.")
        method = agreed.method if moved or stated.leaves_open(agreed) else stated.method
        return Making(method, belief, notes=notes, order=order)
    if belief.method is None:
        said = f"The map does not bear out {stated.method.title}: {' '.join(belief.why)}"
    else:
        said = f"The map contradicts what was stated: it is {belief.title}."
    return Making(stated.method, belief, f"{said} Leave out the method to have the release recognised.", order=order)

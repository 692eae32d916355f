"""Which method, behind which steps and with which settings, made a published map: read off the known records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from drjax.attacks.recognition import first_components
from drjax.attacks.recognition.belief import (
    Belief,
    Candidate,
    Family,
    NotTested,
    Release,
    all_components,
    believed,
    none_of_these,
)
from drjax.attacks.recognition.isomap import IsomapFamily
from drjax.attacks.recognition.linear import LinearFamily
from drjax.attacks.recognition.mds import MDSFamily
from drjax.attacks.recognition.random_projection import RandomProjectionFamily
from drjax.attacks.recognition.row_order import find_order, settled
from drjax.attacks.recognition.stand_ins import confirmed, is_usual
from drjax.attacks.recognition.tsne import TSNEFamily
from drjax.attacks.recognition.tsne_scaled import MultipliedTSNEFamily, multiplied
from drjax.attacks.recognition.umap import UMAPFamily
from drjax.core import memory, validate
from drjax.core.progress import announce, track
from drjax.core.types import Array, DRMethod
from drjax.dr import PCA, TSNE, Pipeline, TruncatedSVD

FAMILIES: tuple[Family, ...] = (
    LinearFamily(PCA),
    LinearFamily(TruncatedSVD),
    RandomProjectionFamily(),
    MDSFamily(),
    IsomapFamily(),
    TSNEFamily(),
    UMAPFamily(),
)
"""Every family, one line each."""

RETRIED: tuple[Family, ...] = (MultipliedTSNEFamily(),)
"""Those that are tried of the same methods where none of `FAMILIES` fits."""

UNMATCHED = (
    "Row order cannot be matched: that takes PCA or truncated SVD, behind steps on single features or records, of more "
    "known records than features."
)
"""Why nothing is believed of shuffled rows."""

LEAST_KNOWN = 20
"""Known records, all different, below which nothing is recognised."""

ARRAYS = 120
"""Arrays of a number for each pair of records that are held at once: distances, their order and what a family makes."""

MOST_MATCHED = 1000
"""Records up to which rows are matched where nobody says that they are shuffled, and nothing fits them as they are."""

MOST_DECIMALS, FLOAT32 = 4, 1e-7
"""Decimals up to which coordinates are looked at for rounding, and error of a coordinate in float32."""


def recognise(
    key: Array,
    known: Array,
    coords: Array,
    *,
    target_row: int = 0,
    methods: tuple[str, ...] | None = None,
    decimals: int | None = None,
    shuffled: bool = False,
    reorders: bool = True,
    progress: bool = False,
) -> Belief:
    """What made a map, judged by the known records: method, steps before it, metric and hyperparameters.

    Under the right hypothesis the known records that are not near the target explain their own coordinates: forces on
    them cancel (t-SNE, UMAP, SMACOF), or the map's columns are eigenvectors of their geodesics (Isomap). The target is
    not needed: the mean of the known records nearest to it in the map stands in for it. Some seconds at n = 200.

    Args:
        key: PRNG key of releases that are made for comparison, where a hypothesis fits but loosely.
        known: (n-1, d), in the order of the map's rows, the target's left out; in any if shuffled.
        coords: (n, k), the map.
        target_row: Row of the target in the map.
        methods: Names of the families to try, of `FAMILIES`; all if None.
        decimals: Decimals that coordinates were rounded to; None to take them from the coordinates.
        shuffled: Whether nobody knows which row is whose. They are matched for PCA and truncated SVD (`row_order`).
        reorders: Whether, where nothing fits, `in_other_order` looks for an order of the rows in which something does;
            40 s at n = 570.
        progress: Show a bar.

    Raises:
        ValueError: shapes that do not match, values that are not finite, a row out of range or with shuffled rows, an
            unknown name, fewer than `LEAST_KNOWN` different known records, or nothing that could speak against the one
            family to try.
        NotEnoughMemory: more than is available would be needed.
    """
    validate.prng_key(key)
    release = checked(known, coords, target_row=target_row, decimals=decimals)
    names = tuple(family.name for family in FAMILIES)
    for name in methods or ():
        validate.one_of(names, methods=name)
    n = len(release.coords)
    memory.require(
        8.0 * ARRAYS * n**2, "recognising this release", f"distances of all pairs of {n:,} records", "name the method"
    )
    tried = [family for family in FAMILIES if methods is None or family.name in methods]
    announce("comparisons of this release with known methods", _seconds(n, tried), enabled=progress)
    if shuffled:
        if target_row:
            raise ValueError(f"target_row must be left out where rows are shuffled, got {target_row}")
        return _of_shuffled(key, release, tried)
    belief = _of_ordered(key, release, tried, progress)
    if belief.method is not None or not reorders:
        return belief
    return _in_other_order(key, release, tried, belief, target_row)


def in_other_order(
    key: Array, belief: Belief, known: Array, coords: Array, *, target_row: int = 0, decimals: int | None = None
) -> Belief:
    """A belief that nothing fits, with the order of the rows in which PCA or truncated SVD would, where there is one.

    Args:
        key: As of `recognise`, of which are the other arguments and errors, too.
        belief: Belief by `recognise`; given back where more than `MOST_MATCHED` records are known.
        known: (n-1, d).
        coords: (n, k).
        target_row: Row of the target in the map.
        decimals: Decimals that coordinates were rounded to.
    """
    release = checked(known, coords, target_row=target_row, decimals=decimals)
    return _in_other_order(key, release, FAMILIES, belief, target_row)


def _in_other_order(key: Array, release: Release, tried: Sequence[Family], belief: Belief, target_row: int) -> Belief:
    n = len(release.coords)
    other = _of_shuffled(key, release, tried) if n <= MOST_MATCHED else belief
    if other.order is None:
        return belief
    rows = np.array([target_row, *(row for row in range(n) if row != target_row)])[other.order]
    hint = f"With rows in another order, the target's being row {rows[0]}, it would be {other.title}."
    return dataclasses.replace(belief, order=rows, why=(*belief.why, hint))


def _of_ordered(key: Array, release: Release, tried: Sequence[Family], progress: bool) -> Belief:
    belief = _by_families(key, release, tried, progress)
    again = [family for family in RETRIED if family.name in (one.name for one in tried)]
    if belief.method is not None or not again:
        return belief
    seconds = _seconds(len(release.coords), again)
    announce("comparisons with maps whose columns were multiplied", seconds, enabled=progress)
    other = _by_families(key, release, again, progress)
    return belief if other.method is None else other


def _seconds(n: int, tried: Sequence[Family]) -> float:
    """What families take at n records, to a factor of about two."""
    return (n / 200) ** 2 * sum(family.seconds for family in tried)


def _by_families(key: Array, release: Release, tried: Sequence[Family], progress: bool) -> Belief:
    found: list[Candidate] = []
    for family in track(tried, "families tried", enabled=progress):
        try:
            found += family.candidates(release)
        except NotTested:
            if len(tried) == 1:
                raise
    if found:
        best = min(found, key=lambda one: one.excess)
        family = next(one for one in tried if one.name == best.family)
        if not best.is_sharp:
            found += first_components.sought(release, [one for one in found if one.family == best.family], family)
            best = min(found, key=lambda one: one.excess)
        limit = confirmed(key, release, best, family).limit
        if limit > best.limit:  # limits of a family may differ: what fits as it is raises none
            found = [
                dataclasses.replace(one, limit=max(one.limit, limit)) if one.family == best.family else one
                for one in found
            ]
        found = _without_chance(key, release, found, family)
    return believed(found)


def _without_chance(key: Array, release: Release, found: list[Candidate], family: Family) -> list[Candidate]:
    """Candidates, the best on first components tied with the same on all of them where that fits as well as it would.

    Of many numbers of components some number comes closest by chance.
    """
    fitting = [one for one in found if one.family == family.name and one.fits]
    best = min(fitting, key=lambda one: one.misfit, default=None)
    if best is None or best.is_sharp or all_components(best.before) == best.before:
        return found
    steps = all_components(best.before)
    whole = next((one for one in fitting if one.before == steps and one.metric == best.metric), None)
    if whole is None or whole.misfit <= best.tie * best.misfit or not is_usual(key, release, whole, family):
        return found
    tied = dataclasses.replace(best, tie=whole.misfit / max(best.misfit, 1e-300))
    return [tied if one is best else one for one in found]


def _of_shuffled(key: Array, release: Release, tried: Sequence[Family]) -> Belief:
    """What to believe of a release whose rows are in any order: nothing, unless one order alone fits."""
    families = {family.name: family for family in tried if isinstance(family, LinearFamily)}
    found = find_order(release.known, release.coords, release.rounding) if families else None
    if found is None:
        return none_of_these(UNMATCHED)
    ordered = dataclasses.replace(release, coords=release.coords[found.rows])
    belief = _of_ordered(key, ordered, tuple(families.values()), False)
    if belief.best is None:
        return belief
    found = settled(ordered, belief.best, families[belief.best.family], found)
    if (found.open_pairs == 0).any():
        return none_of_these(f"{UNMATCHED} Row {found.rows[0]} fits the target, and others as well.")
    n_known, n_open = len(release.known), len(np.unique(found.open_pairs))
    matched = f"Rows of {n_known - n_open} of {n_known} known records matched; row {found.rows[0]} is the target's."
    return dataclasses.replace(belief, order=found.rows, why=(*belief.why, matched))


def rescaled(
    method: DRMethod, known: Array, coords: Array, *, target_row: int = 0, decimals: int | None = None
) -> DRMethod:
    """A stated method, followed by the multiplication of columns without which its map is not at rest; t-SNE alone.

    Args:
        method: Method as it is stated; given back as it is where the map does not say that it was multiplied.
        known: As of `recognise`, of which are the other arguments and errors, too.
        coords: (n, k).
        target_row: Row of the target in the map.
        decimals: Decimals that coordinates were rounded to.
    """
    own, has_after = (method.method, bool(method.after)) if isinstance(method, Pipeline) else (method, False)
    if not isinstance(own, TSNE) or has_after or len(np.unique(np.asarray(known), axis=0)) < LEAST_KNOWN:
        return method
    release = checked(known, coords, target_row=target_row, decimals=decimals)
    return multiplied(release, method, own)


def checked(known: Array, coords: Array, *, target_row: int = 0, decimals: int | None = None) -> Release:
    """The release as families take it, the target in row 0; arguments and errors as of `recognise`."""
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    coords = validate.matrix(coords, "coords", min_rows=2).astype(np.float64)
    validate.finite(known=known, coords=coords)
    n = len(known) + 1
    if len(coords) != n:
        raise ValueError(
            f"coords must have one row more than known, {n} for {n - 1} known records, got {len(coords)}: leave out of "
            "known the target alone, and keep the order of the map"
        )
    validate.integer(minimum=0, target_row=target_row)
    validate.at_most(n - 1, "the last row", target_row=target_row)
    n_different = len(np.unique(known, axis=0))
    if n_different < LEAST_KNOWN:
        raise ValueError(
            f"known must have at least {LEAST_KNOWN} different rows to recognise a map by, got {n_different}: know "
            "more records, or name the method"
        )
    if not np.ptp(coords, axis=0).all():
        raise ValueError("coords must not have a constant column, got one: leave it out")
    if decimals is None:
        least = FLOAT32 * np.abs(coords).max()
        errors = ((one, np.abs(np.round(coords, one) - coords).max()) for one in range(MOST_DECIMALS + 1))
        decimals = next((one for one, error in errors if error <= least), None)
    else:
        validate.integer(minimum=0, decimals=decimals)
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    order = [target_row, *(row for row in range(n) if row != target_row)]
    return Release(known, np.ascontiguousarray(coords[order]), rounding)

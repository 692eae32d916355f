"""Which method, behind which steps and with which settings, made a published map: read off the known records."""

from __future__ import annotations

import dataclasses

import numpy as np

from drjax.attacks.recognition.belief import Belief, Candidate, Family, Release, believed
from drjax.attacks.recognition.isomap import IsomapFamily
from drjax.attacks.recognition.linear import LinearFamily
from drjax.attacks.recognition.mds import MDSFamily
from drjax.attacks.recognition.stand_ins import confirmed
from drjax.attacks.recognition.tsne import TSNEFamily
from drjax.attacks.recognition.umap import UMAPFamily
from drjax.core import memory, validate
from drjax.core.progress import track
from drjax.core.types import Array
from drjax.dr import PCA, TruncatedSVD

FAMILIES: tuple[Family, ...] = (
    LinearFamily(PCA),
    LinearFamily(TruncatedSVD),
    MDSFamily(),
    IsomapFamily(),
    TSNEFamily(),
    UMAPFamily(),
)
"""Every family, one line each."""

LEAST_KNOWN = 20
"""Known records, all different, below which nothing is recognised."""

ARRAYS = 120
"""Arrays of a number for each pair of records that are held at once: distances, their order and what a family makes."""

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
    progress: bool = False,
) -> Belief:
    """What made a map, judged by the known records: method, steps before it, metric and hyperparameters.

    Under the right hypothesis the known records that are not near the target explain their own coordinates: forces on
    them cancel (t-SNE, UMAP, SMACOF), or the map's columns are eigenvectors of their geodesics (Isomap). The target is
    not needed: the mean of the known records nearest to it in the map stands in for it. Some seconds at n = 200.

    Args:
        key: PRNG key of releases that are made for comparison, where a hypothesis fits but loosely.
        known: (n-1, d), in the order of the map's rows, the target's left out.
        coords: (n, k), the map.
        target_row: Row of the target in the map.
        methods: Names of the families to try, of `FAMILIES`; all if None.
        decimals: Decimals that coordinates were rounded to; None to take them from the coordinates.
        progress: Show a bar.

    Raises:
        ValueError: shapes that do not match, values that are not finite, a row out of range, an unknown name, or fewer
            than `LEAST_KNOWN` different known records.
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
    found: list[Candidate] = []
    for family in track(tried, "families tried", enabled=progress):
        found += family.candidates(release)
    if found:
        best = min(found, key=lambda one: one.excess)
        family = next(one for one in FAMILIES if one.name == best.family)
        limit = confirmed(key, release, best, family).limit
        found = [
            dataclasses.replace(one, limit=max(one.limit, limit)) if one.family == best.family else one for one in found
        ]
    return believed(found)


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

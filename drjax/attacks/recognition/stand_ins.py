"""Releases made under a hypothesis, which tell how well the known records bear it out where it is right."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from drjax.attacks.recognition.belief import Candidate, Family, Release
from drjax.attacks.shadow_sets import shadows_of
from drjax.core.types import Array

N_STAND_INS = 3
"""Known records that stand in for the target."""

N_COMPARED = 6
"""The same, where one hypothesis is compared with another."""

ALLOWED = 1.5
"""Factor by which a release may fit worse than the stand-ins' releases, in the median or all of them."""


def is_usual(key: Array, release: Release, candidate: Candidate, family: Family) -> bool:
    """Whether a release fits a hypothesis about as well as releases that are made under it.

    What the place of the target is off by decides how well a right hypothesis fits, so that another one that is all but
    the same, and was searched for, may fit better by chance.

    Args:
        key: PRNG key of the releases.
        release: The map and its known records.
        candidate: Hypothesis of the family that fits.
        family: The family.
    """
    if not _can_be_made(candidate, release, N_COMPARED):
        return False
    return candidate.misfit <= ALLOWED * max(_misfits(key, release, candidate, family, N_COMPARED))


def confirmed(key: Array, release: Release, candidate: Candidate, family: Family) -> Candidate:
    """The candidate, its limit raised to what releases under its hypothesis show, where it is doubtful.

    Known records take the target's place in turn, and releases of the hypothesis are made of them. Most candidates fit
    well, or not at all, and are given back as they are.
    """
    if candidate.fits or candidate.excess > family.doubtful or not _can_be_made(candidate, release, N_STAND_INS):
        return candidate
    limit = max(candidate.limit, ALLOWED * float(np.median(_misfits(key, release, candidate, family, N_STAND_INS))))
    return dataclasses.replace(candidate, limit=min(limit, family.doubtful * candidate.limit))


def _misfits(key: Array, release: Release, candidate: Candidate, family: Family, count: int) -> list[float]:
    """Misfits of releases that are made under the hypothesis, of known records in the target's place."""
    records, rest = release.known[:count], release.known[count:]
    made = shadows_of(key, candidate.method, rest, records)
    return [family.misfit(Release(rest, np.asarray(one, np.float64)), candidate) for one in made.coords]


def _can_be_made(candidate: Candidate, release: Release, count: int) -> bool:
    """Whether the method that was built has the metric found, and takes so many records less than the release has."""
    n, d = release.known.shape
    try:
        jax.eval_shape(candidate.method.fit_transform, jax.random.key(0), np.zeros((n - count + 1, d)))
    except ValueError:
        return False
    return getattr(candidate.own, "metric", "euclidean") == candidate.metric

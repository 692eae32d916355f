"""Releases made under a hypothesis, which tell how well the known records bear it out where it is right."""

from __future__ import annotations

import dataclasses

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Family, Release
from drjax.attacks.shadow_sets import shadows_of
from drjax.core.types import Array

N_STAND_INS = 3
"""Known records that stand in for the target."""

ALLOWED = 1.5
"""Factor by which a release may fit worse than the stand-ins' releases in the median."""


def confirmed(key: Array, release: Release, candidate: Candidate, family: Family) -> Candidate:
    """The candidate, its limit raised to what releases under its hypothesis show, where it is doubtful.

    Known records take the target's place in turn, and releases of the hypothesis are made of them. Most candidates fit
    well, or not at all, and are given back as they are.
    """
    if candidate.fits or candidate.excess > family.doubtful or not _can_be_made(candidate):
        return candidate
    records, rest = release.known[:N_STAND_INS], release.known[N_STAND_INS:]
    made = shadows_of(key, candidate.method, rest, records)
    misfits = [family.misfit(Release(rest, np.asarray(one, np.float64)), candidate) for one in made.coords]
    limit = max(candidate.limit, ALLOWED * float(np.median(misfits)))
    return dataclasses.replace(candidate, limit=min(limit, family.doubtful * candidate.limit))


def _can_be_made(candidate: Candidate) -> bool:
    """Whether the method that was built has the metric found."""
    return getattr(candidate.own, "metric", "euclidean") == candidate.metric

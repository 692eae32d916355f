"""Releases made under a hypothesis, which tell how well the known records bear it out where it is right."""

from __future__ import annotations

import dataclasses

import numpy as np

from drjax.attacks.practice import shadows_of
from drjax.attacks.recognition.belief import Candidate, Family, Release
from drjax.core.types import Array

N_STAND_INS = 3
"""Known records that stand in for the target."""

DOUBTFUL = 4.0
"""Factor of the usual limit up to which stand-ins may show that releases of these records fit no better."""

ALLOWED = 1.5
"""Factor by which a release may fit worse than the worst of the stand-ins' releases."""


def confirmed(key: Array, release: Release, candidate: Candidate, family: Family) -> Candidate:
    """The candidate, its limit raised to what releases under its hypothesis show, where it was doubtful.

    Known records take the target's place in turn, and releases of the hypothesis are made of them. Most candidates fit
    well, or not at all, and are given back as they are.
    """
    if candidate.fits or candidate.excess > DOUBTFUL or not _can_be_made(candidate):
        return candidate
    records, rest = release.known[:N_STAND_INS], release.known[N_STAND_INS:]
    made = shadows_of(key, candidate.method, rest, records)
    misfits = [family.misfit(Release(rest, np.asarray(one, np.float64)), candidate) for one in made.coords]
    limit = max(candidate.limit, ALLOWED * float(np.max(misfits)))
    return dataclasses.replace(candidate, limit=min(limit, DOUBTFUL * candidate.limit))


def _can_be_made(candidate: Candidate) -> bool:
    """Whether the method that was built has the metric found."""
    return getattr(candidate.own, "metric", "euclidean") == candidate.metric

"""Maps by SMACOF: at rest the Guttman transform leaves the known records where they are."""

from __future__ import annotations

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release, made
from drjax.attacks.recognition.inputs import Input, given
from drjax.attacks.reconstruction.stationarity import guttman
from drjax.dr import MDS

TIE = 1.5
"""Factor between misfits up to which two hypotheses are not told apart: both hold how far the map is from rest."""

LIMIT = 0.015
"""Median move of a known record by the transform, over the median distance to the centre: of maps stopped by
scikit-learn's rule at most 0.006 was seen, of other maps at least 0.035."""

KEPT = 8
"""Candidates that are reported."""


class MDSFamily:
    """Metric multidimensional scaling."""

    name, doubtful = MDS.name, 2.0

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        spread = release.spread
        settings = ("start and number of iterations", "rotation, reflection and place of the map")
        found = []
        for one in release.inputs:
            method = made(MDS, one, release.coords.shape[1])
            limit = LIMIT + release.rounding / spread
            misfit = _misfit(release, one)
            found.append(Candidate(self.name, method, misfit, limit, one.metric, "", one.same, settings, TIE))
        return sorted(found, key=lambda one: one.misfit)[:KEPT]

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        one = given(release.records, candidate.before, candidate.metric)
        return np.inf if one is None else _misfit(release, one)


def _misfit(release: Release, one: Input) -> float:
    """Median move of the known records away from the target by the transform, over the map's spread."""
    coords = release.coords - release.coords.mean(axis=0)
    moved = guttman.transform(coords, one.between) - coords
    return float(np.median(np.linalg.norm(moved[release.away], axis=1)) / release.spread)

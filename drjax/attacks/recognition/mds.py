"""Maps by SMACOF: at rest the Guttman transform leaves the known records where they are."""

from __future__ import annotations

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release, made
from drjax.attacks.reconstruction.stationarity import guttman
from drjax.dr import MDS

LIMIT = 0.015
"""Median move of a known record by the transform, over the median distance to the centre: of maps stopped by
scikit-learn's rule at most 0.006 was seen, of other maps at least 0.035."""

KEPT = 8
"""Candidates that are reported."""


class MDSFamily:
    """Metric multidimensional scaling."""

    name = "mds"

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        coords = release.coords - release.coords.mean(axis=0)
        found = []
        for given in release.inputs:
            moved = guttman.transform(coords, given.between) - coords
            lengths = np.linalg.norm(coords[release.away], axis=1)
            misfit = np.median(np.linalg.norm(moved[release.away], axis=1)) / np.median(lengths)
            method = made(MDS, given, coords.shape[1])
            limit = LIMIT + release.rounding / np.median(lengths)
            settings = ("start and number of iterations", "rotation, reflection and place of the map")
            found.append(Candidate(self.name, method, float(misfit), limit, given.metric, "", given.same, settings))
        return sorted(found, key=lambda one: one.misfit)[:KEPT]

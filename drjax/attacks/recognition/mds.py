"""Maps by SMACOF: at rest the Guttman transform leaves the known records where they are."""

from __future__ import annotations

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release, made
from drjax.attacks.recognition.inputs import Input, given
from drjax.attacks.reconstruction.stationarity import guttman
from drjax.dr import MDS, Pipeline, Rescale

TIE = 1.5
"""Factor between misfits up to which two hypotheses are not told apart: both hold how far the map is from rest."""

LIMIT = 0.015
"""Median move of a known record by the transform, over the median distance to the centre: of maps stopped by
scikit-learn's rule at most 0.006 was seen, of other maps at least 0.035."""

KEPT = 8
"""Candidates that are reported."""


class MDSFamily:
    """Metric multidimensional scaling."""

    name, doubtful, seconds = MDS.name, 2.0, 0.05

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`. Where nothing fits the map as it is, it may have been multiplied by a number."""
        found = [self._candidate(release, one, 1.0) for one in release.inputs]
        if not any(one.fits for one in found):
            found += [self._candidate(release, one, _factor(release, one)) for one in release.inputs]
        return sorted(found, key=lambda one: one.misfit)[:KEPT]

    def _candidate(self, release: Release, one: Input, factor: float) -> Candidate:
        settings = ("start and number of iterations", "rotation, reflection and place of the map")
        method = made(MDS, one, release.coords.shape[1])
        if factor != 1:
            own = method.method if isinstance(method, Pipeline) else method
            method = Pipeline(before=one.before, method=own, after=(Rescale(factor=factor),))
        misfit, limit = _misfit(release, one, factor), LIMIT + release.rounding / release.spread
        return Candidate(self.name, method, misfit, limit, one.metric, "", one.same, settings, TIE)

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        one = given(release.records, candidate.before, candidate.metric)
        is_moved = isinstance(candidate.method, Pipeline) and candidate.method.after
        return np.inf if one is None else _misfit(release, one, _factor(release, one) if is_moved else 1.0)


def _factor(release: Release, one: Input) -> float:
    """By what a map at rest was multiplied, by least squares over the known records away from the target: the transform
    hangs on directions in the map alone, not on its size."""
    coords = release.coords - release.coords.mean(axis=0)
    made = guttman.transform(coords, one.between)[release.away]
    square = float((made**2).sum())
    factor = float((made * coords[release.away]).sum()) / square if square > 0 else 1.0
    return factor if factor > 0 else 1.0


def _misfit(release: Release, one: Input, factor: float) -> float:
    """Median move of the known records away from the target by the transform, over the map's spread."""
    coords = release.coords - release.coords.mean(axis=0)
    moved = factor * guttman.transform(coords, one.between) - coords
    return float(np.median(np.linalg.norm(moved[release.away], axis=1)) / release.spread)

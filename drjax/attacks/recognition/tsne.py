"""Maps by t-SNE: only under the right affinities do attraction and repulsion cancel at known records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release, made
from drjax.attacks.recognition.inputs import Input, given
from drjax.attacks.recognition.search import minimum
from drjax.attacks.recognition.tsne_forces import attraction
from drjax.attacks.reconstruction import barnes_hut
from drjax.dr import TSNE, Pipeline, RescaleColumns

TIE = 1.5
"""Factor between misfits up to which two hypotheses are not told apart: both hold how far the map is from rest."""

LIMIT = 0.04
"""Median force on a known record over the median attraction: of maps at rest at most 0.03 was seen, of maps by
other methods at least 0.08."""

MOST_LIMIT = 0.1
"""The same where coordinates are rounded, at most: with larger errors a map of t-SNE is not told from others."""

TELLING = 7.0
"""Factor by which a map of t-SNE in another order of its rows is farther from rest: at least 11 was seen, and at most 5
of multiplied components. Where affinities are all alike, as by a perplexity next to the number of records, every order
is as near to it, and tells nothing."""

GRID = (2.0, 3.0, 4.5, 7.0, 10.0, 15.0, 22.0, 33.0, 50.0, 75.0, 110.0, 165.0, 250.0)
"""Perplexities that are tried on every input."""

STEP = 1.5
"""Factor between them, within which the best is sought."""

N_REFINED = 6
"""Inputs on which the best perplexity is sought."""

MOST_COMPONENTS = 3
"""Components up to which the libraries' Barnes-Hut algorithm goes."""

LEAST_SPREAD = 0.1
"""Median distance to the centre of a map in which affinities differ. In a smaller one they are all alike, and it is at
rest wherever the records' are alike as well, as by a perplexity next to their number; maps of t-SNE have 0.3 and more.
"""

ANGLES = (0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
"""Opening angles that are tried; below the least they are not told apart."""

EXACT = "exact"
CUT = "affinities of the 3 perplexity nearest alone, as in the Barnes-Hut algorithm of scikit-learn and openTSNE"


class _Repulsions(NamedTuple):
    """Repulsion on each point (n, k): exact, and as the Barnes-Hut algorithm computes it; None beyond 3 components."""

    exact: np.ndarray
    grouped: np.ndarray | None


class _Algorithm(NamedTuple):
    """How forces may have been computed: by an opening angle, and whether far affinities were left out."""

    angle: float
    is_cut: bool
    repulsions: _Repulsions

    def misfit(self, release: Release, of: Input, perplexity: float) -> float:
        return _misfit(release, of, perplexity, is_cut=self.is_cut, repulsions=self.repulsions)


class TSNEFamily:
    """t-SNE, exact or by the Barnes-Hut algorithm."""

    # Beyond `MOST_LIMIT` no release tells t-SNE from others, not even one that is made to compare with.
    name, doubtful, seconds = TSNE.name, MOST_LIMIT / LIMIT, 0.7

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        return self.on_inputs(release, release.scale_free_inputs) if release.spread >= LEAST_SPREAD else []

    def on_inputs(self, release: Release, inputs: Sequence[Input]) -> list[Candidate]:
        """Candidates on those inputs that come closest, with the perplexity and the algorithm that the map tells."""
        n = len(release.coords)
        repulsions = _repulsions(release.coords)
        perplexities = [one for one in GRID if one < (n - 1) / 1.5]
        coarse = []
        for of in inputs:
            misfits = [_misfit(release, of, one, is_cut=True, repulsions=repulsions) for one in perplexities]
            at = int(np.argmin(misfits))
            coarse.append((misfits[at], perplexities[at], of))
        coarse.sort(key=lambda one: one[0])
        found = [
            min(
                (self._refined(release, of, start, is_cut, repulsions) for is_cut in (False, True)),
                key=lambda one: one.misfit,
            )
            for _, start, of in coarse[:N_REFINED]
        ]
        best = min(one.misfit for one in found)
        if release.coords.shape[1] > MOST_COMPONENTS or not any(one.fits for one in found):
            return found
        algorithms = [_Algorithm(0.0, False, _Repulsions(barnes_hut.repulsion(release.coords, angle=0), None))]
        for angle in ANGLES:
            algorithms.append(_Algorithm(angle, True, _Repulsions(barnes_hut.repulsion(release.coords, angle), None)))
        return [
            self._with_angle(release, of, one, algorithms) if one.engine and one.misfit <= TIE * best else one
            for one, (*_, of) in zip(found, coarse, strict=False)
        ]

    def _with_angle(self, release: Release, of: Input, found: Candidate, algorithms: Sequence[_Algorithm]) -> Candidate:
        """A hypothesis with the algorithm that goes best with the map, and the angles that are not told from its."""
        own: Any = found.own
        # The perplexity was sought with the forces of another angle.
        perplexities = sorted({own.perplexity, max(2.0, float(np.round(own.perplexity)))})
        values = np.array([[one.misfit(release, of, perplexity) for one in algorithms] for perplexity in perplexities])
        least = values.min(axis=0)
        told = [one.angle for one, value in zip(algorithms, least, strict=True) if value <= TIE * least.min()]
        angles, best = (min(told), max(told)), algorithms[int(least.argmin())]
        if angles[0] == 0 or angles[0] <= barnes_hut.ANGLE <= angles[1]:
            return dataclasses.replace(found, engine=EXACT if not best.is_cut else CUT, angles=angles)
        perplexity, value = _sought(
            lambda one: best.misfit(release, of, one),
            perplexities[int(values[:, least.argmin()].argmin())],
            most=(len(release.coords) - 1) / 1.05,
        )
        method = made(TSNE, of, own.n_components, perplexity=perplexity, init=own.init)
        least_told = f"{angles[0]:g} to " if min(ANGLES) < angles[0] < angles[1] else ""
        said = f"{CUT}, angle {least_told}{angles[1]:g}{' or less' if angles[0] == min(ANGLES) else ''}"
        return dataclasses.replace(found, method=method, misfit=value, engine=said, angles=angles)

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        of, method = given(release.records, candidate.before, candidate.metric), candidate.own
        assert isinstance(method, TSNE)
        if of is None:
            return np.inf
        for step in candidate.method.after if isinstance(candidate.method, Pipeline) else ():
            assert isinstance(step, RescaleColumns)
            release = release.divided(step.factors)
        repulsions = _repulsions(release.coords)
        return min(_misfit(release, of, method.perplexity, is_cut=cut, repulsions=repulsions) for cut in (False, True))

    def _refined(self, release: Release, of: Input, start: float, is_cut: bool, repulsions: _Repulsions) -> Candidate:
        n, k = release.coords.shape

        def misfit(perplexity: float) -> float:
            return _misfit(release, of, perplexity, is_cut=is_cut, repulsions=repulsions)

        perplexity, value = _sought(misfit, start, most=(n - 1) / 1.05)
        settings = ["start, learning rate and number of iterations", "rotation, reflection and place of the map"]
        is_all = int(3 * perplexity + 1) >= n - 1
        engine = "" if is_all else CUT if is_cut else EXACT
        if is_all:
            settings.append("algorithm (exact or Barnes-Hut)")
        begin: dict[str, Any] = {} if k <= release.known.shape[1] else {"init": "random"}
        method = made(TSNE, of, k, perplexity=perplexity, **begin)
        limit = limit_of(release, of, perplexity, value, is_cut=is_cut)
        if value <= self.doubtful * limit:
            shuffled = release.shuffled
            at_chance = _misfit(shuffled, of, perplexity, is_cut=is_cut, repulsions=_repulsions(shuffled.coords))
            limit = min(limit, at_chance / TELLING)
        return Candidate(self.name, method, value, limit, of.metric, engine, of.same, tuple(settings), TIE)


def _sought(misfit: Callable[[float], float], start: float, *, most: float) -> tuple[float, float]:
    """The best perplexity near a start, and its misfit; a whole number where that does as well."""
    low, high = np.log(max(start / STEP, 1.5)), np.log(min(start * STEP, most))
    best, value = minimum(lambda log: misfit(float(np.exp(log))), low, high)
    perplexity = float(np.exp(best))
    rounded = max(2.0, float(np.round(perplexity)))
    at_rounded = misfit(rounded) if rounded < most else np.inf
    return (rounded, at_rounded) if at_rounded <= 1.05 * value else (perplexity, value)


def limit_of(release: Release, of: Input, perplexity: float, misfit: float, *, is_cut: bool = True) -> float:
    """The largest misfit of maps at rest with as large errors of rounding as a release of some misfit has."""
    if not release.rounding:
        return LIMIT
    # They add to the forces like any errors that are drawn: in squares.
    shaken = _misfit(release.shaken, of, perplexity, is_cut=is_cut, repulsions=_repulsions(release.shaken.coords))
    return min(float(np.sqrt(LIMIT**2 + max(shaken**2 - misfit**2, 0))), MOST_LIMIT)


def _misfit(release: Release, of: Input, perplexity: float, *, is_cut: bool, repulsions: _Repulsions) -> float:
    """Median force on known records away from the target over the median attraction."""
    n = len(release.coords)
    outward = (release.coords - release.coords.mean(axis=0))[release.away]
    n_kept = min(n - 1, int(3 * perplexity + 1)) if is_cut else n - 1
    pull = attraction(of.ordered, of.order, perplexity, n_kept, release.coords)[release.away]
    size = np.median(np.linalg.norm(pull, axis=1))
    if not size > 0:
        return np.inf
    left = [at_rest(pull - push[release.away], outward) for push in repulsions if push is not None]
    return min(left) / float(size)


def at_rest(force: np.ndarray, outward: np.ndarray) -> float:
    """Median force (m, k) but for what lets the whole map grow, along places (m, k) from the centre.

    A map grows for as long as it is iterated, and slowly: scikit-learn's 1,000 iterations do not end it in three
    components.
    """
    growth = min(float((force * outward).sum() / (outward**2).sum()), 0.0)
    return float(np.median(np.linalg.norm(force - growth * outward, axis=1)))


def _repulsions(coords: np.ndarray) -> _Repulsions:
    grouped = barnes_hut.repulsion(coords) if coords.shape[1] <= MOST_COMPONENTS else None
    return _Repulsions(barnes_hut.repulsion(coords, angle=0), grouped)

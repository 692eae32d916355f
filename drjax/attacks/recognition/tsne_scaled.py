"""Maps by t-SNE whose columns were multiplied: in the map's own unit forces do no work when it is stretched.

At rest a stretch along an axis changes nothing to first order, so that attraction and repulsion do the same work along
each axis. Under given affinities that says by what each column was multiplied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize

from drjax.attacks.recognition.belief import Candidate, Release
from drjax.attacks.recognition.inputs import Input, given
from drjax.attacks.recognition.search import minimum
from drjax.attacks.recognition.tsne import GRID, LEAST_SPREAD, MOST_LIMIT, TIE, TSNEFamily, at_rest, limit_of
from drjax.attacks.recognition.tsne_forces import affinities, pull_and_push
from drjax.core.types import DRMethod
from drjax.dr import TSNE, Pipeline, RescaleColumns

STARTS = (10.0, 30.0, 3.0)
"""Standard deviations of a column in the map's own unit with which the search begins, until it ends."""

BALANCED = 1e-3
"""Logarithm of the ratio of both works, up to which they are the same."""

MOST_SPREAD = 1e3
"""Standard deviation of a column beyond which forces no longer say anything of its unit."""

STEP = 2.0
"""Factor about the best of the perplexities that are tried on every input, within which a better one is sought."""

N_REFINED = 3
"""Inputs on which it is."""

MOST_EVALUATED = 30
"""Factors that are tried for one perplexity on one input, from each start."""

FIRST_STEP, MOST_TRIED = 0.05, 120
"""First step of logarithms in search of the least misfit, and how many are tried at most."""


class _Stretched(NamedTuple):
    """A hypothesis of what a map was given, and by what its columns were multiplied.

    Attributes:
        misfit: Median force on known records over the median attraction.
        perplexity: Perplexity.
        of: Input.
        factors: (k,) > 0.
    """

    misfit: float
    perplexity: float
    of: Input
    factors: np.ndarray


class _Forces(NamedTuple):
    """Forces in a map of one input and perplexity, whatever its columns were multiplied by.

    Attributes:
        shares: (n, m) affinities of each record to its nearest.
        order: (n, n - 1), whose they are.
        centred: (n, k), the map as it was published.
        away: Rows of known records that are not near the target.
    """

    shares: np.ndarray
    order: np.ndarray
    centred: np.ndarray
    away: np.ndarray

    @classmethod
    def of(cls, release: Release, of: Input, perplexity: float) -> _Forces:
        kept = min(len(release.coords) - 1, int(3 * perplexity + 1))
        centred = release.coords - release.coords.mean(axis=0)
        return cls(affinities(of.ordered, perplexity, kept), of.order, centred, release.away)

    def _at(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The map before it was multiplied by factors of those logarithms (k,), attraction and repulsion, (n, k)."""
        coords = self.centred * np.exp(-logs)
        return coords, *pull_and_push(self.shares, self.order, coords)

    def unbalanced(self, logs: np.ndarray) -> np.ndarray:
        """(k,) logarithm of the work of attraction over that of repulsion along each axis."""
        coords, pull, push = self._at(logs)
        return np.log((pull * coords).sum(axis=0) / (push * coords).sum(axis=0))

    def misfit(self, logs: np.ndarray) -> float:
        """Median force on known records over the median attraction, the growth of the whole map aside."""
        coords, pull, push = self._at(logs)
        size = float(np.median(np.linalg.norm(pull[self.away], axis=1)))
        return at_rest((pull - push)[self.away], coords[self.away]) / size if size > 0 else np.inf


class MultipliedTSNEFamily(TSNEFamily):
    """t-SNE, of maps whose columns were multiplied afterwards; tried where nothing fits a map as it is."""

    seconds = 9.0

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        coarse = [one for of in release.scale_free_inputs if (one := _coarse(release, of)) is not None]
        fine = [_refined(release, one) for one in sorted(coarse, key=lambda one: one.misfit)[:N_REFINED]]
        least = min((one.misfit for one in fine), default=np.inf)
        found: list[Candidate] = []
        for one in fine:
            if one.misfit > min(TIE * least, MOST_LIMIT):
                continue
            own = release.divided(one.factors)
            of = given(own.records, one.of.before, one.of.metric)
            if of is not None and own.spread >= LEAST_SPREAD:
                as_it_was = self.on_inputs(own, (dataclasses.replace(of, same=one.of.same),))
                found += [dataclasses.replace(each, method=_behind(each.method, one.factors)) for each in as_it_was]
        return found


def multiplied(release: Release, method: DRMethod, own: TSNE) -> DRMethod:
    """A stated t-SNE, followed by the multiplication of columns with which alone a map is at rest.

    Args:
        release: Map and known records.
        method: t-SNE, or a `Pipeline` of it without steps after it.
        own: The t-SNE itself.

    Returns:
        The method as it is where no factors bring the map to rest, or it is as near to rest without them.
    """
    perplexity, metric = float(own.perplexity), own.metric
    of = given(release.records, method.before if isinstance(method, Pipeline) else (), metric)
    start = None if of is None else _stretched(release, of, perplexity)
    best = None if start is None else _at_rest(release, start.of, perplexity, np.log(start.factors))
    if best is None or best.misfit > limit_of(release.divided(best.factors), best.of, perplexity, best.misfit):
        return method
    plain = Candidate(TSNEFamily.name, method, best.misfit, MOST_LIMIT, metric)
    return method if TSNEFamily().misfit(release, plain) <= TIE * best.misfit else _behind(method, best.factors)


def as_believed(method: Pipeline, known: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """A map (n, k) of known factors as it is to who reads them off it: multiplied by those of the method over these.

    So attacks that take the method's factors for right err by as much as factors that are read off a map do.

    Args:
        method: Method; t-SNE followed by `RescaleColumns` alone, else the map is given back as it is.
        known: (n-1, d).
        coords: (n, k), target in row 0.
    """
    own, step = method.method, method.after[0] if len(method.after) == 1 else None
    if not isinstance(own, TSNE) or not isinstance(step, RescaleColumns):
        return coords
    release = Release(known.astype(np.float64), coords.astype(np.float64))
    of = given(release.records, method.before, own.metric)
    start = None if of is None else _stretched(release, of, float(own.perplexity))
    return coords if start is None else coords * (np.asarray(step.factors) / _refined(release, start).factors)


def _behind(method: DRMethod, factors: np.ndarray) -> Pipeline:
    step = RescaleColumns(factors=tuple(float(one) for one in factors))
    own = method if isinstance(method, Pipeline) else Pipeline(method=method)
    return dataclasses.replace(own, after=(*own.after, step))


def _coarse(release: Release, of: Input) -> _Stretched | None:
    """The best of some perplexities on an input; None if no factors go with any."""
    found: list[_Stretched] = []
    for perplexity in GRID[1::2]:
        if perplexity < (len(release.coords) - 1) / 1.5:
            one = _stretched(release, of, perplexity, np.log(found[-1].factors) if found else None)
            found += [] if one is None else [one]
    return min(found, key=lambda one: one.misfit, default=None)


def _refined(release: Release, coarse: _Stretched) -> _Stretched:
    """The perplexity and the factors with which the known records are most at rest.

    A larger perplexity goes with larger factors, and rest lies in a narrow valley of both: factors are sought anew for
    each perplexity, and both together only at the end. Most perplexities are whole numbers.
    """
    found = [coarse]

    def misfit(log: float) -> float:
        one = _at_rest(release, coarse.of, float(np.exp(log)), np.log(coarse.factors))
        found.append(one)
        return one.misfit

    least, most = np.log(1.5), np.log((len(release.coords) - 1) / 1.05)
    middle, reach = np.log(coarse.perplexity), np.log(STEP)
    minimum(misfit, max(middle - reach, least), min(middle + reach, most))
    best = min(found, key=lambda one: one.misfit)

    def of_both(logs: np.ndarray) -> float:
        if not least <= logs[0] <= most:
            return np.inf
        return _Forces.of(release, best.of, float(np.exp(logs[0]))).misfit(logs[1:])

    value, logs = _lowest(of_both, np.array([np.log(best.perplexity), *np.log(best.factors)]))
    both = _Stretched(value, float(np.exp(logs[0])), best.of, np.exp(logs[1:]))
    whole = _at_rest(release, best.of, max(2.0, float(np.round(both.perplexity))), logs[1:])
    return min(both, whole, key=lambda one: one.misfit)


def _at_rest(release: Release, of: Input, perplexity: float, otherwise: np.ndarray) -> _Stretched:
    """The factors with which the known records are most at rest by an input and a perplexity.

    Args:
        release: Map and known records.
        of: Input.
        perplexity: Perplexity.
        otherwise: (k,) logarithms of factors to begin with where none balance the works.
    """
    start = _stretched(release, of, perplexity, otherwise)
    begin = otherwise if start is None else np.log(start.factors)
    value, logs = _lowest(_Forces.of(release, of, perplexity).misfit, begin)
    return _Stretched(value, perplexity, of, np.exp(logs))


def _lowest(misfit: Callable[[np.ndarray], float], start: np.ndarray) -> tuple[float, np.ndarray]:
    """The least misfit near some logarithms, and where it is.

    A map that still grows does not balance the works in its own unit, and stretched until it does it is less at rest.
    """
    simplex = start + np.vstack([np.zeros(len(start)), FIRST_STEP * np.eye(len(start))])
    options = {"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-5, "maxfev": MOST_TRIED}
    found = scipy.optimize.minimize(misfit, start, method="Nelder-Mead", options=options)
    return float(found.fun), found.x


def _stretched(release: Release, of: Input, perplexity: float, start: np.ndarray | None = None) -> _Stretched | None:
    """By what columns were multiplied if both works are the same in the map's own unit; None if no factors do that.

    Args:
        release: Map and known records.
        of: Input.
        perplexity: Perplexity.
        start: (k,) logarithms of factors to begin with, before those of `STARTS`.
    """
    forces = _Forces.of(release, of, perplexity)
    spread = forces.centred.std(axis=0)
    for begin in ([] if start is None else [start]) + [np.log(spread / one) for one in STARTS]:
        with np.errstate(all="ignore"):
            root = scipy.optimize.root(
                forces.unbalanced, begin, options={"xtol": 0.1 * BALANCED, "maxfev": MOST_EVALUATED}
            )
            factors = np.exp(root.x)
        if (np.abs(root.fun) <= BALANCED).all() and (spread / factors <= MOST_SPREAD).all():
            return _Stretched(forces.misfit(root.x), perplexity, of, factors)
    return None

"""On how many principal components of its records a method was run: lists of steps hold a few numbers alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from drjax.attacks.recognition.belief import Candidate, Family, Release
from drjax.dr import FirstPCA, Pipeline
from drjax.dr.pipeline.steps import Step

LEAST = 2
"""Components at least that are tried."""


def sought(release: Release, found: Sequence[Candidate], family: Family) -> list[Candidate]:
    """Candidates of the family on as many first components as the known records bear out best.

    Where the best of the family's candidates has first components among its steps, the search goes from there to where
    more or fewer fit no better, and the family finds its hyperparameters anew.

    Args:
        release: The map and its known records.
        found: Candidates of the family, on the numbers of components that are always tried.
        family: The family.

    Returns:
        [] where the best of them has no first components, or as many as fit best.
    """
    start = min(found, key=lambda one: one.misfit)
    first = _n_components(start.before)
    if first is None:
        return []
    own = start.method
    assert isinstance(own, Pipeline)

    @functools.cache
    def misfit(n_components: int) -> float:
        before = _with_components(start.before, n_components)
        return family.misfit(release, dataclasses.replace(start, method=dataclasses.replace(own, before=before)))

    best, step = first, max(1, first // 4)
    most = min(release.known.shape[1], len(release.known)) - 1
    while step:
        near = [one for one in (best - step, best + step) if LEAST <= one <= most]
        better = min(near, key=misfit, default=best)
        if misfit(better) < misfit(best):
            best = better
        else:
            step //= 2
    if best == first:
        return []
    chain = (_with_components(start.before, best), (start.metric,))
    return family.candidates(dataclasses.replace(release, chains=(chain,)))


def _n_components(before: tuple[Step, ...]) -> int | None:
    """How many first components are among steps, None if none are."""
    return next((step.n_components for step in before if isinstance(step, FirstPCA)), None)


def _with_components(before: tuple[Step, ...], n_components: int) -> tuple[Step, ...]:
    return tuple(
        dataclasses.replace(step, n_components=n_components) if isinstance(step, FirstPCA) else step for step in before
    )

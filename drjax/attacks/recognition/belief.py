"""What an adversary believes of how a map was made, and on what grounds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from drjax.attacks.recognition.inputs import CHAINS, Chain, Input, distinct, inputs, title_of, with_stand_in
from drjax.core.types import DRMethod
from drjax.dr import FirstPCA, Pipeline
from drjax.dr.pipeline.steps import Step

SHARE_AWAY = 0.8
"""Share of the known records, those farthest from the target in the map, on which misfits are measured."""

TIED = 1.1
"""Factor between misfits up to which two hypotheses are not told apart, where their family names no other."""


@dataclass(frozen=True)
class Release:
    """A map and what is known of its records.

    Attributes:
        known: (n-1, d) float64.
        coords: (n, k) float64, the target in row 0.
        rounding: Largest error of a coordinate by rounding, >= 0.
        chains: What may stand before the method.
    """

    known: np.ndarray
    coords: np.ndarray
    rounding: float = 0.0
    chains: tuple[Chain, ...] = CHAINS

    @functools.cached_property
    def records(self) -> np.ndarray:
        """(n, d), a stand-in for the target in row 0."""
        return with_stand_in(self.known, self.coords)

    @functools.cached_property
    def away(self) -> np.ndarray:
        """(m,) int, rows of known records that are not near the target in the map."""
        gaps = np.linalg.norm(self.coords[1:] - self.coords[0], axis=1)
        return 1 + np.sort(np.argsort(gaps, kind="stable")[int((1 - SHARE_AWAY) * len(gaps)) :])

    @functools.cached_property
    def shaken(self) -> Release:
        """The release with errors as large as those of its rounding once more."""
        errors = np.random.default_rng(0).uniform(-self.rounding, self.rounding, self.coords.shape)
        return dataclasses.replace(self, coords=self.coords + errors)

    @functools.cached_property
    def shuffled(self) -> Release:
        """The release with the rows of the known records in another order, of which no hypothesis is right."""
        order = 1 + np.random.default_rng(0).permutation(len(self.coords) - 1)
        return dataclasses.replace(self, coords=np.concatenate([self.coords[:1], self.coords[order]]))

    @functools.cached_property
    def spread(self) -> float:
        """Median distance of those to the map's centre."""
        centred = self.coords - self.coords.mean(axis=0)
        return float(np.median(np.linalg.norm(centred[self.away], axis=1)))

    def divided(self, factors: Sequence[float] | np.ndarray) -> Release:
        """The release before its columns were multiplied by factors (k,), centred."""
        own = np.asarray(factors, np.float64)
        centred = self.coords - self.coords.mean(axis=0)
        return dataclasses.replace(self, coords=centred / own, rounding=self.rounding / float(own.min()))

    @functools.cached_property
    def _all_inputs(self) -> tuple[Input, ...]:
        return inputs(self.records, self.chains)

    @functools.cached_property
    def inputs(self) -> tuple[Input, ...]:
        """Inputs that differ."""
        return distinct(self._all_inputs, is_scale_free=False)

    @functools.cached_property
    def scale_free_inputs(self) -> tuple[Input, ...]:
        """Inputs that differ by more than a factor."""
        return distinct(self._all_inputs, is_scale_free=True)


@dataclass(frozen=True)
class Candidate:
    """One hypothesis and how well the known records bear it out.

    Attributes:
        family: Name of the family that it is of.
        method: Method with the hyperparameters found, a `drjax.dr.Pipeline` where steps stand before it.
        misfit: Statistic of the known records, about 0 under the right hypothesis; >= 0, comparable within a family.
        limit: Largest misfit of releases that are of the family.
        metric: Metric of the method.
        engine: How or by which library it was computed, where the map shows it; else empty.
        same: Other pairs of steps and metric that give the same map.
        undetermined: Settings that the release does not determine.
        tie: Factor between misfits up to which the release does not tell it from another hypothesis.
        is_sharp: Whether it says where every axis lies. Maps of other families do not by chance: where it fits, theirs,
            which leave the axes open, may fit as well and are not believed.
        angles: Least and largest opening angle of the Barnes-Hut algorithm that go with the map, (0, 0) of the exact
            one; None where the map does not tell.
    """

    family: str
    method: DRMethod
    misfit: float
    limit: float
    metric: str = "euclidean"
    engine: str = ""
    same: tuple[tuple[tuple[Step, ...], str], ...] = ()
    undetermined: tuple[str, ...] = ()
    tie: float = TIED
    is_sharp: bool = False
    angles: tuple[float, float] | None = None

    @property
    def fits(self) -> bool:
        """Whether the known records do not contradict it."""
        return self.misfit <= self.limit

    @property
    def excess(self) -> float:
        """Misfit over the limit: comparable between families."""
        return self.misfit / self.limit

    @property
    def before(self) -> tuple[Step, ...]:
        """Steps before the method."""
        return self.method.before if isinstance(self.method, Pipeline) else ()

    @property
    def own(self) -> DRMethod:
        """The method without the steps before it."""
        return self.method.method if isinstance(self.method, Pipeline) else self.method

    @property
    def title(self) -> str:
        """What it is, as it stands in a sentence."""
        engine = f" ({self.engine})" if self.engine else ""
        settings = settings_of(self.own)
        after = "".join(f", {step.title}" for step in self.method.after) if isinstance(self.method, Pipeline) else ""
        own = f"{self.own.title}{f' with {settings}' if settings else ''}"
        return f"{own} of {title_of(self.before, self.metric)}{after}{engine}"


SHOWN = {"perplexity": "perplexity", "n_neighbors": "n_neighbors", "min_dist": "min_dist"}
"""Hyperparameters that are searched for, and how they are called."""


def settings_of(method: DRMethod) -> str:
    """The hyperparameters that were searched for: "perplexity 30"."""
    found = [(name, getattr(method, field)) for field, name in SHOWN.items() if hasattr(method, field)]
    return ", ".join(f"{name} {value:g}" for name, value in found)


@dataclass(frozen=True)
class Belief:
    """What the release shows of how it was made.

    Attributes:
        method: Method believed in, a `drjax.dr.Pipeline` where steps stand before it; None for "none of these".
        title: What it is, as it stands in a sentence; "none of these" where nothing fits.
        engine: How or by which library it was computed, where the map shows it; else empty.
        runner_up: Next best hypothesis that the release tells from the first; None if there is none.
        margin: Factor between the misfits of the two, of two families each in units of what that allows; >= 1, inf if
            there is one alone.
        candidates: All hypotheses that came close, the best first.
        undetermined: Settings that the release does not determine.
        why: Sentences on what it rests on.
        order: (n,) int, rows of the map in the order [target; known], where they were matched; where nothing fits, the
            order in which something would. None elsewhere.
    """

    method: DRMethod | None
    title: str
    engine: str
    runner_up: Candidate | None
    margin: float
    candidates: tuple[Candidate, ...]
    undetermined: tuple[str, ...]
    why: tuple[str, ...]
    order: np.ndarray | None = None

    @property
    def best(self) -> Candidate | None:
        """The hypothesis believed in; None for "none of these"."""
        return self.candidates[0] if self.method is not None else None

    @property
    def tied(self) -> tuple[Candidate, ...]:
        """Hypotheses that the release does not tell from the one believed in."""
        return tied_with(self.candidates) if self.method is not None else ()

    def in_words(self) -> str:
        """Plain lines for a command line."""
        if self.method is None:
            return "\n".join(["made by none of the methods and steps that are known here", *self.why])
        lines = [f"believed: {self.title}"]
        if self.runner_up is not None:
            lines.append(f"runner-up: {self.runner_up.title}, misfit {self.margin:.3g} times as large")
        if self.undetermined:
            lines.append("not determined by the release: " + "; ".join(self.undetermined))
        return "\n".join([*lines, *self.why])


class NotTested(ValueError):
    """A release of which a family cannot tell whether it is one of its maps."""


class Family(Protocol):
    """Methods whose maps are recognised alike; listed in `FAMILIES`.

    Attributes:
        name: Name of the method in `drjax.dr.METHODS`, for `recognise(methods=...)`.
        doubtful: Factor >= 1 of the usual limit up to which releases made under a hypothesis may show that none fits
            better; 1 where they are not asked.
        seconds: What it takes at 200 records, on two cores and to a factor of about two; it grows as their square.
    """

    name: str
    doubtful: float
    seconds: float

    def candidates(self, release: Release) -> list[Candidate]:
        """Hypotheses of the family that come closest, with their misfits, in any order; [] where none comes near.

        Raises:
            NotTested: nothing about the release could speak against the family.
        """
        ...

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """Misfit of a release under the hypothesis of one of its candidates; inf where it has no meaning."""
        ...


def believed(candidates: list[Candidate]) -> Belief:
    """What to believe, given the hypotheses of all families."""
    possible = (one for one in candidates if np.isfinite(one.misfit))
    ranked = sorted(possible, key=lambda one: (not (one.fits and one.is_sharp), one.excess))
    if not ranked:
        return none_of_these("No hypothesis could be tried on the release.")
    # Limits within a family are as wide as some hypotheses need them; misfits say which of those that fit is best.
    rivals = [one for one in ranked if one.family == ranked[0].family and one.fits]
    if rivals:
        closest = _without_idle_components(min(rivals, key=lambda one: one.misfit), rivals)
        ranked.remove(closest)
        ranked.insert(0, closest)
    ranked = tuple(ranked)
    best = ranked[0]
    tied = tied_with(ranked)
    others = [one for one in ranked[1:] if one not in tied and not _is_neighbour(best, one)]
    runner_up = others[0] if others else None
    margin = max(1.0, _times_worse(best, runner_up)) if runner_up is not None else np.inf
    measured = (
        f"{best.own.title}: misfit {best.misfit:.2g} at the known records, at most {best.limit:.2g} in maps of it"
    )
    if not best.fits:
        why = f"Nothing fits. The nearest is {measured}."
        return Belief(None, "none of these", "", best, 1.0, ranked, (), (why,))
    undetermined = list(best.undetermined)
    if tied:
        undetermined.append("whether it was " + " or ".join(one.title for one in tied))
    if best.same:
        given = " or ".join(title_of(*one) for one in best.same)
        undetermined.append(f"whether the method was given {given}, which makes the same map")
    return Belief(
        best.method, best.title, best.engine, runner_up, margin, ranked, tuple(undetermined), (f"{measured}.",)
    )


def _without_idle_components(best: Candidate, rivals: list[Candidate]) -> Candidate:
    """The best hypothesis, or the same on all components where the release does not tell the two apart."""
    steps = all_components(best.before)
    whole = (one for one in rivals if one.before == steps and one.metric == best.metric)
    return min((one for one in whole if _times_worse(best, one) <= best.tie), key=lambda one: one.misfit, default=best)


def all_components(before: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps without those that leave principal components out and do nothing else."""
    return tuple(step for step in before if not isinstance(step, FirstPCA) or step.whiten)


def none_of_these(why: str) -> Belief:
    """No belief, for a reason."""
    return Belief(None, "none of these", "", None, np.inf, (), (), (why,))


def tied_with(ranked: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Hypotheses on other inputs, or of other families, that the release does not tell from the first."""
    best = ranked[0]
    close = (
        one for one in ranked[1:] if one.fits and _times_worse(best, one) <= best.tie and one.is_sharp >= best.is_sharp
    )
    return tuple(one for one in close if not _is_neighbour(best, one))


def _times_worse(best: Candidate, one: Candidate) -> float:
    """Factor between two misfits: of one family as they are, of two in units of their limits."""
    if one.family == best.family:
        return one.misfit / max(best.misfit, 1e-300)
    return one.excess / max(best.excess, 1e-300)


def _is_neighbour(one: Candidate, other: Candidate) -> bool:
    """Whether two hypotheses differ in hyperparameters alone."""
    return one.family == other.family and one.before == other.before and one.metric == other.metric


def made(method: type, given: Input, k: int, **hyperparameters: Any) -> DRMethod:
    """The method of k components on an input, behind its steps; its metric is set where the class has one."""
    fields = {field.name for field in dataclasses.fields(method)}
    if "metric" in fields:
        hyperparameters["metric"] = given.metric
    own: Any = method(n_components=k, **hyperparameters)
    return cast(DRMethod, Pipeline(before=given.before, method=own)) if given.before else own

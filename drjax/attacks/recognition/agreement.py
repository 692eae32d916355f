"""Whether a map bears out what somebody says of how it was made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax.attacks.recognition.belief import Belief, Candidate
from drjax.attacks.recognition.inputs import distances, prepare
from drjax.attacks.recognition.tsne import ANGLES
from drjax.attacks.shadow_sets import shadows_of
from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.dr import (
    PCA,
    TSNE,
    Linear,
    Pipeline,
    Rescale,
    RescaleColumns,
    Rotate,
    Shift,
    UnitVariance,
    publishes_scores,
)
from drjax.dr.pipeline.after import AfterStep
from drjax.dr.pipeline.steps import Step

NEAR = 0.2
"""Share by which a perplexity or a number of neighbours may be off and count as the same."""

NEAR_ANGLE = 0.1
"""How far an opening angle may be off and count as the same."""

SAME = 1e-6
"""Largest difference between distances of records that count as the same, over their mean."""

REPEATED, MOVED = 1e-5, 0.05
"""How far known rows may lie from those of a seed, over their size: where they hang on the seed alone, and where steps
move them with the target; another seed makes others altogether."""

MOVING = Rescale, RescaleColumns, Rotate, Shift, Linear
"""Steps that people take with a finished map, and may not think worth stating."""

SEARCHED = ("perplexity", "n_neighbors", "metric")
"""Hyperparameters that a map tells, by their names in methods."""


@dataclass(frozen=True)
class Stated:
    """What somebody says of how a map was made.

    Attributes:
        method: Method, a `drjax.dr.Pipeline` where steps stand around it; what is not stated has its default.
        fields: Names of the hyperparameters that are stated.
        has_steps: Whether the steps around it are stated, be it that there are none.
        angle: Opening angle of the Barnes-Hut algorithm of t-SNE; None if it is not stated.
        seed: Seed of `drjax.embed`; None if it is not stated.

    Raises:
        ValueError: an angle of another method than t-SNE, a seed of one that draws nothing, or either out of range.
    """

    method: DRMethod
    fields: frozenset[str] = frozenset()
    has_steps: bool = False
    angle: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the angle and the seed."""
        if self.seed is not None:
            validate.seed(release_seed=self.seed)
            if self.method.deterministic:
                raise ValueError(
                    f"release_seed must be left out for {self.method.title}, which draws nothing, got {self.seed}"
                )
        if self.angle is not None:
            validate.non_negative(angle=self.angle)
            if not isinstance(_own(self.method), TSNE):
                raise ValueError(f"angle must be left out for all methods but tsne, got {self.angle:g}")

    @classmethod
    def whole(cls, method: DRMethod, seed: int | None = None) -> Stated:
        """Everything about a method is stated, and a seed."""
        fields = frozenset(field.name for field in dataclasses.fields(_own(method)))
        return cls(method, fields, has_steps=True, seed=seed)

    @property
    def family(self) -> str:
        """Name of the family of `drjax.attacks.recognition.FAMILIES` that the method's maps would be of."""
        return PCA.name if publishes_scores(_own(self.method)) else _own(self.method).name

    @property
    def repeats(self) -> bool:
        """Whether the seed makes the release again: a descent goes another way with another record."""
        return self.seed is not None and self.method.repeatable and not self.method.stationary

    def leaves_open(self, found: Candidate) -> bool:
        """Whether a map tells something about the method of a hypothesis that is not stated."""
        return not self.has_steps or any(name not in self.fields for name in SEARCHED if hasattr(found.own, name))


def agreeing(belief: Belief, stated: Stated, x: np.ndarray) -> Candidate | None:
    """The hypothesis believed in, or one that the map does not tell from it, that is what is stated; None if none is.

    Args:
        belief: Belief from `drjax.attacks.recognition.recognise`.
        stated: Statement of how the map was made; a perplexity or number of neighbours may be off by `NEAR`,
            an angle by `NEAR_ANGLE`.
        x: (n, d), the records of the map, with a stand-in for the unknown one.
    """
    if belief.best is None:
        return None
    return next((one for one, before, metric in _told(belief) if _is_same(one, before, metric, stated, x)), None)


def is_by_seed(stated: Stated, known: np.ndarray, coords: np.ndarray, decimals: int | None) -> bool:
    """Whether the stated seed makes the known rows of a map.

    Args:
        stated: Statement with a seed that makes releases again.
        known: (n-1, d).
        coords: (n, k), target in row 0.
        decimals: Decimals that coordinates are rounded to; None if they are not.
    """
    assert stated.seed is not None
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    has_moved = isinstance(stated.method, Pipeline) and not stated.method.is_updated
    seen, stand_in = coords[1:].astype(np.float64), known.mean(axis=0)[None]
    allowed = (MOVED if has_moved else REPEATED) * float(np.sqrt(np.mean(seen**2))) + rounding
    key = jax.random.key(stated.seed)
    made = shadows_of(key, stated.method, known, stand_in, seed_key=key).coords[0, 1:]
    return bool(np.sqrt(np.mean((made - seen) ** 2)) <= allowed)


def _told(belief: Belief) -> Iterator[tuple[Candidate, tuple[Step, ...], str]]:
    assert belief.best is not None
    for one in (belief.best, *belief.tied):
        yield one, one.before, one.metric
        for before, metric in one.same:
            yield one, before, metric


def _is_same(one: Candidate, before: tuple[Step, ...], metric: str, stated: Stated, x: np.ndarray) -> bool:
    own, theirs = one.own, _own(stated.method)
    if own.name != theirs.name and not (publishes_scores(own) and publishes_scores(theirs)):
        return False
    for name in SEARCHED:
        if name not in stated.fields or not hasattr(own, name):
            continue
        value, other = getattr(theirs, name), getattr(own, name)
        if name == "metric":
            if not stated.has_steps and metric != value:
                return False
        elif abs(other - value) > NEAR * value:
            return False
    if stated.angle is not None and one.angles is not None:
        low, high = one.angles
        if not low - NEAR_ANGLE <= stated.angle <= high + NEAR_ANGLE and not (stated.angle < low == min(ANGLES)):
            return False
    if not stated.has_steps:
        return True
    # What a linear map does to the scores' lengths is not told from whitening.
    is_mixed = any(isinstance(step, Linear) for step in _after(one.method))
    if not is_mixed and is_whitened(one.method) != is_whitened(stated.method):
        return False
    their_metric = getattr(theirs, "metric", "euclidean") if "metric" in stated.fields else metric
    their_before = stated.method.before if isinstance(stated.method, Pipeline) else ()
    between = _between(x, before, metric), _between(x, their_before, their_metric)
    is_free = own.unit is None or is_mixed or is_whitened(stated.method)
    ours, wanted = (each / each.mean() if is_free else each for each in between)
    return bool(np.abs(ours - wanted).max() <= SAME * wanted.mean())


def is_whitened(method: DRMethod) -> bool:
    """Whether coordinates are scaled to unit variance."""
    return any(isinstance(step, UnitVariance) for step in _after(method))


def unstated(found: DRMethod, stated: DRMethod) -> tuple[AfterStep, ...]:
    """Steps by which a map that was found was moved, and of which the statement has none."""
    told = {type(step) for step in _after(stated)}
    return tuple(step for step in _after(found) if isinstance(step, MOVING) and type(step) not in told)


def _after(method: DRMethod) -> tuple[AfterStep, ...]:
    return method.after if isinstance(method, Pipeline) else ()


def _own(method: DRMethod) -> Any:
    return method.method if isinstance(method, Pipeline) else method


def _between(x: np.ndarray, before: tuple[Step, ...], metric: str) -> np.ndarray:
    """Distances (n, n) of records (n, d) behind steps, those left out that do nothing for them."""
    for step in before:
        behind = prepare(x, (step,))
        x = x if behind is None else behind
    return distances(x, metric)

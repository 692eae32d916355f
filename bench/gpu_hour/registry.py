"""All steps, in order of value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from bench.gpu_hour import grid, papers, parity, profiles, suite
from bench.gpu_hour.hour import Scale
from bench.gpu_hour.steps import Step

SOURCES: tuple[Callable[[Scale], Iterator[Step]], ...] = (
    parity.steps,
    suite.steps,
    grid.steps,
    profiles.steps,
    papers.steps,
)
"""Who declares steps. Each declares its own once; this order is that in which they are run."""

CARD, TOY = Scale(name="card"), Scale(name="toy")


def all_steps(scale: Scale, only: str = "*") -> list[Step]:
    """The steps of a scale that fit a pattern, in order of value.

    Args:
        scale: `CARD` or `TOY`.
        only: Pattern of names of steps, as in a shell ("grid/0[12]"); a family ("grid"); or a part ("b").

    Raises:
        ValueError: no step fits.
    """
    steps = [step for source in SOURCES for step in source(scale)]
    chosen = [s for s in steps if only in (s.part, s.name.split("/")[0]) or fnmatchcase(s.name, only)]
    if not chosen:
        families = dict.fromkeys(step.name.split("/")[0] for step in steps)
        raise ValueError(f"only must fit a step of {', '.join(families)} or be a part, got {only!r}")
    return chosen

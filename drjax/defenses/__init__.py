"""Defences: what is done to a release before it is published, as DR methods that wrap one."""

from __future__ import annotations

from typing import Any

from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.defenses.aggregation import Groups, Hexagons
from drjax.defenses.noisy_dr import AfterMethod, Defense, InputNoise, OutputNoise, Rounding

__all__ = [
    "DEFENSES",
    "AfterMethod",
    "Defense",
    "Groups",
    "Hexagons",
    "InputNoise",
    "OutputNoise",
    "Rounding",
    "defend",
]

DEFENSES: dict[str, type[Defense]] = {kind.name: kind for kind in (InputNoise, OutputNoise, Rounding, Groups, Hexagons)}
"""Every defence by the name that the command line and the records use."""


def defend(name: str, method: DRMethod, scale: float) -> Any:
    """The method under the named defence at a strength >= 0, its `scale_field`.

    Raises:
        ValueError: an unknown defence, or a scale that is not a finite number >= 0.
    """
    validate.one_of(DEFENSES, defense=name)
    kind: Any = DEFENSES[name]
    return kind(method=method, **{kind.scale_field: scale})

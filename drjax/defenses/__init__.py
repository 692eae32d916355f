"""Defences: what is done to a release before it is published, as DR methods that wrap one.

Example:
    >>> from drjax.defenses.mechanisms import Gaussian, Laplace, clip_l2
    >>> rows = clip_l2([[3.0, 4.0], [0.3, 0.4]], 1.0, grid=2**-20)
    >>> mechanism = Gaussian.for_release(1.0, 1e-6, neighbouring="zero_out", sensitivity=1.0)
    >>> published = mechanism.release(rows.sum(axis=0), grid=2**-20, on_grid=True)
    >>> published.value.shape, round(published.curve.epsilon_at(1e-6), 2)
    ((2,), 1.0)
    >>> Laplace.from_epsilon(0.5, neighbouring="zero_out", sensitivity=1.0).scale
    2.0
"""

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

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import defend
        >>> x = drjax.load("digits").x[:60]
        >>> rounded = defend("rounding", drjax.PCA(), 0.5).fit_transform(jax.random.key(0), x).coords
        >>> rounded.shape, len(set(rounded[:, 0].tolist())) < 10  # of 60 places on a grid
        ((60, 2), True)
    """
    validate.one_of(DEFENSES, defense=name)
    kind: Any = DEFENSES[name]
    return kind(method=method, **{kind.scale_field: scale})

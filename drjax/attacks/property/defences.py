"""What the publisher of a map may do to features or coordinates so that a property's share is harder to read off.

The five kinds of the paper's table 5 have no guarantee: nothing bounds what the attack can still learn. An adversary
who knows the defence makes the maps to train on with it, by `maps.tsne_maps(..., defence=...)` too: the adaptive attack
of table 6. `noised_proportion` is the alternative with a guarantee.

Source: "Property inference attacks against t-SNE plots" (ICLR 2023 submission), section 5.4.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from drjax.core import validate
from drjax.core.types import Array, hyperparams, traced

UNITS = ("embedding", "feature")


class Defence:
    """What the defences share: whatever one does not say otherwise is left as it is.

    Attributes:
        is_recordwise: Whether `on_features` treats each record by itself and draws nothing, so that it can be applied
            once to all records of a pool.
    """

    is_recordwise: ClassVar[bool] = True

    def on_features(self, key: Array, x: Array) -> Array:
        """The features (n, d) that are mapped; pure, safe under jit and vmap."""
        del key
        return x

    def on_coords(self, key: Array, coords: Array) -> Array:
        """The coordinates (n, k) that are published; pure, safe under jit and vmap."""
        del key
        return coords


@hyperparams
class EmbeddingNoise(Defence):
    """E-N: independent Gaussian noise on every feature of every record before the map.

    Attributes:
        scale: Standard deviation of the noise, >= 0, in units of a standard deviation that `unit` says. Traced.
        unit: "embedding": that of the values of the record's own embedding, which is how we read the paper's "the
            current embedding values"; "feature": that of each feature over the records of the map.
    """

    is_recordwise: ClassVar[bool] = False
    scale: Any = traced()
    unit: str = "embedding"

    def __post_init__(self) -> None:
        _check_scale(self)
        validate.one_of(UNITS, unit=self.unit)

    def on_features(self, key: Array, x: Array) -> Array:
        """x (n, d) plus noise."""
        unit = jnp.std(x, axis=1 if self.unit == "embedding" else 0, keepdims=True)
        return x + jnp.asarray(self.scale, x.dtype) * unit * jax.random.normal(key, x.shape, x.dtype)


@hyperparams
class CoordinateNoise(Defence):
    """C-N: independent Gaussian noise on every coordinate of the map.

    Attributes:
        scale: Standard deviation of the noise, >= 0, in units of the map's standard deviation along the axis. Traced.
    """

    scale: Any = traced()

    def __post_init__(self) -> None:
        _check_scale(self)

    def on_coords(self, key: Array, coords: Array) -> Array:
        """Coords (n, k) plus noise."""
        unit = jnp.std(coords, axis=0, keepdims=True)
        return coords + jnp.asarray(self.scale, coords.dtype) * unit * jax.random.normal(
            key, coords.shape, coords.dtype
        )


@hyperparams
class EmbeddingRounding(Defence):
    """E-R: every feature rounded to this many decimals before the map; 0 is to whole numbers."""

    decimals: int = 1

    def __post_init__(self) -> None:
        validate.integer(minimum=0, decimals=self.decimals)

    def on_features(self, key: Array, x: Array) -> Array:
        """x (n, d), rounded; half-way cases to even."""
        del key
        return jnp.round(x, self.decimals)


@hyperparams
class CoordinateRounding(Defence):
    """C-R: every coordinate of the map rounded to this many decimals; 0 is to whole numbers."""

    decimals: int = 1

    def __post_init__(self) -> None:
        validate.integer(minimum=0, decimals=self.decimals)

    def on_coords(self, key: Array, coords: Array) -> Array:
        """Coords (n, k), rounded; half-way cases to even."""
        del key
        return jnp.round(coords, self.decimals)


@hyperparams
class EmbeddingThreshold(Defence):
    """E-T: of each record's embedding only the largest values are kept, the others are set to 0.

    Attributes:
        keep: Share of the values that is kept, 0 < keep <= 1: ceil(keep d) values, and more if others tie with the
            least of them. Largest by value, not by size.
    """

    keep: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be in (0, 1], got {self.keep}")

    def on_features(self, key: Array, x: Array) -> Array:
        """x (n, d) with small values set to 0."""
        del key
        # Less a hair: 0.7 * 10 is more than 7.
        count = math.ceil(self.keep * x.shape[1] - 1e-9)
        least = jax.lax.top_k(x, count)[0][:, -1:]
        return jnp.where(x >= least, x, 0)


def _check_scale(defence: Any) -> None:
    scale = defence.scale
    if validate.is_abstract(scale):
        return
    if isinstance(scale, bool) or not isinstance(scale, (Real, jax.Array)) or not 0 <= float(scale) < math.inf:
        raise ValueError(f"scale must be a finite number >= 0, got {scale!r}")
    if isinstance(scale, Real):
        # Integers and floats would be two programs.
        object.__setattr__(defence, "scale", float(scale))


TABLE5: dict[str, Defence] = {
    "E-N 2*STD": EmbeddingNoise(scale=2.0),
    "E-N 1*STD": EmbeddingNoise(scale=1.0),
    "C-N 5%*STD": CoordinateNoise(scale=0.05),
    "C-N 2%*STD": CoordinateNoise(scale=0.02),
    "E-R 0.1": EmbeddingRounding(decimals=1),
    "E-R INT": EmbeddingRounding(decimals=0),
    "C-R 0.1": CoordinateRounding(decimals=1),
    "C-R INT": CoordinateRounding(decimals=0),
    "E-T 50%": EmbeddingThreshold(keep=0.5),
    "E-T 75%": EmbeddingThreshold(keep=0.75),
}
"""The defences of the paper's table 5, by its names."""

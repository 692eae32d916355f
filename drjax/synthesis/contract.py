"""What a method of private data release is, and the box of public bounds that its records live in.

    method = PCAGauss(neighbouring="replace_one", box=Box.of(lower, upper), n_components=5)
    synthesizer = method.fit(key, x, y, 1.0, 1e-5)      # experiments: whoever knows the key can take the noise off
    made = synthesizer.sample(other_key, 10_000)        # costs no privacy

A method is a frozen dataclass of public hyperparameters. What `fit` returns holds private numbers only where its
guarantee covers them, so sampling is post-processing and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from drjax.bounds.accounting import Guarantee
from drjax.core import validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, hyperparams

TASKS = ("unsupervised", "classification", "regression")


class NotPrivateWarning(UserWarning):
    """What is about to be computed does not have the guarantee that its source claims."""


class Synthetic(NamedTuple):
    """Synthetic records.

    Attributes:
        x: (n, d) in the units of the records, or (n, p) where a method releases no way back to them.
        y: (n,): int32 classes from 0, numbers in the units of the targets, or None where none were given.
    """

    x: Any
    y: Any


@runtime_checkable
class Synthesizer(Protocol):
    """A fitted release. Those of drjax are pytrees, so that fits may be mapped over keys."""

    @property
    def guarantee(self) -> Guarantee:
        """What is proven of everything that the synthesizer holds; of noise on real numbers after `fit`."""
        ...

    def sample(self, key: Array, n: int) -> Synthetic:
        """n synthetic records; those of drjax are pure and safe under jit and vmap with n static."""
        ...

    def transform(self, x: Array) -> Any:
        """Real records (m, d) in the coordinates of the synthetic ones, by public or released numbers alone.

        The records themselves, clipped to the box, where synthetic records have d columns.

        Raises:
            ValueError: the release holds no way from records to its coordinates.
        """
        ...


@runtime_checkable
class SynthesisMethod(Protocol):
    """A method of private data release."""

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    """Tasks of `TASKS` that it can serve."""

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> Synthesizer:
        """Fits x (n, d) and y (n,), for experiments.

        Those of drjax are pure in key, x and y, and safe under jit and vmap over them; epsilon and delta are numbers.

        Raises:
            ValueError: a budget out of its range or that the method cannot use, shapes that do not match.
        """
        ...


@hyperparams
class Box:
    """Public bounds of d features; must not be computed from the records.

    Attributes:
        lower: d numbers, units of the records.
        upper: d numbers, each larger.

    Example:
        >>> import numpy as np
        >>> from drjax.synthesis.contract import Box
        >>> box = Box.of([0.0, 18.0], [1.0, 90.0])
        >>> box.d, box.clip(np.array([[0.5, 130.0]])).tolist()
        (2, [[0.5, 90.0]])
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks both."""
        low, high = np.asarray(self.lower, np.float64), np.asarray(self.upper, np.float64)
        if low.ndim != 1 or low.shape != high.shape or len(low) == 0:
            raise ValueError(f"lower and upper must be d numbers each, got shapes {low.shape} and {high.shape}")
        bad = ~(np.isfinite(low) & np.isfinite(high) & (low < high))
        if bad.any():
            i = int(np.argmax(bad))
            raise ValueError(f"lower must be < upper and both finite, got {low[i]} and {high[i]} for feature {i}")

    @classmethod
    def of(cls, lower: Sequence[float] | Array | float, upper: Sequence[float] | Array | float, d: int = 1) -> Box:
        """Box from sequences, or from two numbers for d features that are bounded alike."""
        low, high = (np.asarray(v, np.float64) for v in (lower, upper))
        if low.ndim == high.ndim == 0:
            low, high = np.full(d, low), np.full(d, high)
        return cls(lower=tuple(low.ravel().tolist()), upper=tuple(high.ravel().tolist()))

    @property
    def d(self) -> int:
        """Features."""
        return len(self.lower)

    def checked_center(self, center: Sequence[float] | Array) -> tuple[float, ...]:
        """A public centre (d,), in the units of the records, as numbers.

        Raises:
            ValueError: another shape, or not finite.
        """
        c = np.asarray(center, np.float64)
        if c.shape != (self.d,):
            raise ValueError(f"center must have d = {self.d} entries, got shape {c.shape}")
        validate.finite(center=c)
        return tuple(c.tolist())

    def encode(self, x: Array) -> Any:
        """Records (..., d) to [-1, 1], clipped; nan goes to the middle, so that the bound holds of everything.

        Raises:
            ValueError: another number of columns.
        """
        if jnp.shape(x)[-1] != self.d:
            raise ValueError(f"x must have {self.d} columns to match the bounds, got {jnp.shape(x)[-1]}")
        z = jnp.asarray(x, compute_dtype(x))
        low, high = jnp.asarray(self.lower, z.dtype), jnp.asarray(self.upper, z.dtype)
        scaled = (z - low) / (high - low) * 2 - 1
        return jnp.where(jnp.isnan(scaled), 0, jnp.clip(scaled, -1, 1))

    def decode(self, z: Array) -> Any:
        """Back to the units of the records, clipped to the bounds."""
        z = jnp.asarray(z)
        low, high = jnp.asarray(self.lower, z.dtype), jnp.asarray(self.upper, z.dtype)
        return jnp.clip((jnp.clip(z, -1, 1) + 1) / 2 * (high - low) + low, low, high)

    def clip(self, x: Array) -> Any:
        """Records cut to the bounds."""
        return self.decode(self.encode(x))

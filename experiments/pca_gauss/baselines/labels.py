"""Labels of released records: what kind there is, bounds that hold of all of them, and noise on each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.curve import RELATIONS
from drjax.core import validate
from drjax.core.types import Array, hyperparams
from drjax.synthesis import sensitivity
from drjax.synthesis.contract import Box


@hyperparams
class Labelled:
    """What the baselines share: public facts about the records and their labels.

    Attributes:
        neighbouring: Which data sets are neighbours, a name in `drjax.bounds.curve.RELATIONS`; no default.
        box: Public bounds of the features. Records are cut to it and brought to [-1, 1], so the middle counts as 0.
        n_classes: Of labels that are classes 0, 1, ...; >= 2.
        target_range: Public bounds of labels that are numbers. None of the two: no labels.
    """

    neighbouring: str
    box: Box
    n_classes: int | None = None
    target_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        if not isinstance(self.box, Box):
            raise ValueError(f"box must be a Box, got {self.box!r}")
        if self.n_classes is not None and self.target_range is not None:
            raise ValueError("n_classes and target_range must not both be given: labels are classes or numbers")
        if self.n_classes is not None:
            validate.integer(minimum=2, n_classes=self.n_classes)
        if self.target_range is not None:
            bounds = tuple(map(float, self.target_range))
            if len(bounds) != 2 or not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
                raise ValueError(f"target_range must be two finite numbers, the first < the second, got {bounds}")
            object.__setattr__(self, "target_range", bounds)

    @property
    def target_box(self) -> Box:
        """Bounds of the numbers, as of one feature."""
        assert self.target_range is not None
        low, high = self.target_range
        return Box.of([low], [high])

    def check(self, x: Array, y: Array | None) -> None:
        """Whether x (n, d) and y (n,) or None are what the fields say; safe on traced arrays.

        Raises:
            ValueError: another number of columns, labels without a kind, or a kind without labels.
        """
        validate.shape_2d(x=x)
        if x.shape[1] != self.box.d:
            raise ValueError(f"x must have {self.box.d} columns to match the bounds, got {x.shape[1]}")
        wanted = self.n_classes is not None or self.target_range is not None
        if wanted and (y is None or jnp.shape(y) != (x.shape[0],)):
            raise ValueError(
                f"y must have an entry for each of {x.shape[0]} records, got {y if y is None else y.shape}"
            )
        if not wanted and y is not None:
            raise ValueError("n_classes or target_range must be given where there are labels, got neither")

    def classes(self, y: Array) -> jax.Array:
        """Classes (n,), int32, those out of range cut to it."""
        assert self.n_classes is not None
        given = jnp.asarray(y)
        if jnp.issubdtype(given.dtype, jnp.floating):
            given = jnp.where(jnp.isnan(given), 0, given)
        return jnp.clip(given, 0, self.n_classes - 1).astype(jnp.int32)

    def numbers(self, y: Array, dtype: Any) -> jax.Array:
        """Numbers (n,) brought to [-1, 1], those out of range cut to it, nan to the middle."""
        return self.target_box.encode(jnp.asarray(y, dtype)[:, None])[:, 0]

    def with_noise(self, key: Array, y: Array, epsilon: float, dtype: Any) -> jax.Array:
        """Each label by itself with epsilon of noise, pure: randomised response of a class, Laplace noise on a number.

        A number is cut to its range again afterwards, which costs nothing.
        """
        if self.n_classes is not None:
            kept_key, other_key = jax.random.split(key)
            # exp(-epsilon) does not overflow for a large epsilon.
            away = np.exp(-epsilon)
            kept = jax.random.uniform(kept_key, jnp.shape(y)) < (1 - away) / (1 + (self.n_classes - 1) * away)
            anyone = jax.random.randint(other_key, jnp.shape(y), 0, self.n_classes, jnp.int32)
            return jnp.where(kept, self.classes(y), anyone)
        scale = sensitivity.sum_l1(1, neighbouring=self.neighbouring) / epsilon
        unit = self.numbers(y, dtype)
        return self.shown_numbers(unit + scale * jax.random.laplace(key, unit.shape, unit.dtype))

    def shown_numbers(self, unit: Any) -> jax.Array:
        """Numbers (n,) from [-1, 1] back to their units, cut to their range."""
        return self.target_box.decode(unit[:, None])[:, 0]

"""Where bounded records are projected from, and a fitted release of them: centre, radius, components, Gaussians."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.accounting import Guarantee
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.synthesis import gaussian_model, moments
from drjax.synthesis.contract import Box, Synthetic

SIZE_WEIGHT, COUNT_WEIGHT = 0.5, 0.25
"""What a record's size, in [-1/2, 1/2], and its count weigh beside its direction in the sum of the first step."""

LEAST_RADIUS = 0.05
"""Of the unit ball: a noisy radius is not taken to be less."""


class Frame(NamedTuple):
    """Where records are projected from.

    Attributes:
        center: (m,), in the unit ball.
        radius: (), of the ball about the centre that components are cut to; their unit.
        scale: (), of the unit ball in the box scaled to [-1, 1]^m.
    """

    center: Any
    radius: Any
    scale: Any


@hyperparams
class ProjectedSynthesizer:
    """A fitted release of records as Gaussians in p dimensions; a pytree.

    Attributes:
        box: The public bounds.
        task: A name in `contract.TASKS`.
        target_range: Of a regression.
        label_weight: b of w = (t, z, b y).
        is_sphere: Whether records are brought to norm 1 about the centre, instead of cut to it.
        decode: Whether `sample` gives features, or components.
        guarantee: Of everything below.
        frame: Centre, radius and scale.
        components: (p, m), orthonormal rows.
        mixture: In units of w without its first entry; the label, if any, is last.
    """

    box: Box
    task: str
    target_range: tuple[float, float] | None
    label_weight: float
    is_sphere: bool
    decode: bool
    guarantee: Guarantee
    frame: Frame = traced()
    components: Any = traced()
    mixture: gaussian_model.Mixture = traced()

    def sample(self, key: Array | None, n: int) -> Synthetic:
        """n synthetic records; pure, safe under jit and vmap with n static. A key of None is drawn from the OS."""
        drawn, y = self.draw(gaussian_model.os_key() if key is None else key, n)
        return Synthetic(self.box.decode(self.unit_features(drawn)) if self.decode else drawn, y)

    def draw(self, key: Array, n: int) -> tuple[Any, Any]:
        """Components (n, p) of n synthetic records, and their y as of `sample`; pure."""
        validate.integer(n=n)
        drawn, classes = gaussian_model.sample(key, jax.tree.map(jnp.asarray, self.mixture), n)
        y: Any = classes if self.task == "classification" else None
        if self.task == "regression":
            assert self.target_range is not None
            low, high = self.target_range
            label = jnp.clip(drawn[:, -1] / self.label_weight, -1, 1)
            drawn, y = drawn[:, :-1], (label + 1) / 2 * (high - low) + low
        return drawn, y

    def unit_features(self, z: Array) -> Any:
        """Components (n, p) as features (n, d) of the box scaled to [-1, 1]^d, not cut to it: centre + W^T z."""
        w, frame = jnp.asarray(self.components), self.frame
        return frame.scale * (frame.center + frame.radius * jnp.matmul(z, w, precision=HIGHEST))

    def transform(self, x: Array) -> Any:
        """Records (m, d) cut to the box; or, where `decode` is False, their components, cut as those of the fit."""
        if self.decode:
            return self.box.clip(x)
        v, _ = in_unit_ball(self.box.encode(x), self.is_sphere)
        return components_in_frame(v, self.frame, jnp.asarray(self.components, v.dtype), self.is_sphere)


def in_unit_ball(u: Any, is_sphere: bool) -> tuple[Any, Any]:
    """Records u (n, m) in [-1, 1]^m in the unit ball, and their size (n,) in [0, 1].

    Divided by sqrt(m), with their squared norm; or divided by their own norm, with that norm over sqrt(m).
    """
    xp = np if isinstance(u, np.ndarray) else jnp
    m = u.shape[1]
    if is_sphere:
        norms = xp.sqrt(xp.sum(u**2, axis=1))
        return u / xp.where(norms > 0, norms, 1)[:, None], xp.minimum(norms / math.sqrt(m), 1)
    v = u / math.sqrt(m)
    return v, xp.minimum(xp.sum(v**2, axis=1), 1)


def components_in_frame(v: Any, frame: Frame, components: Any, is_sphere: bool) -> jax.Array:
    """Records v (n, m) of the unit ball as components (n, p) in the unit ball."""
    shifted = v - jnp.asarray(frame.center, v.dtype)
    if is_sphere:
        return jnp.matmul(moments.on_sphere(shifted), components.T, precision=HIGHEST)
    return moments.in_ball(jnp.matmul(shifted, components.T, precision=HIGHEST), frame.radius)


def frame_of(
    noisy: Any, deviation: float, m: int, n: Any, *, is_sphere: bool, clip_factor: float = 1.0, given: Any = None
) -> Frame:
    """Centre and radius from the noisy sum of the first step.

    Args:
        noisy: (m + 1,), or (m + 2,) where n is None and among what was summed up.
        deviation: Of the noise of an entry.
        m: Features.
        n: Records, or None.
        is_sphere: Whether records have norm 1 and `size` is their norm in the box.
        clip_factor: Of the radius.
        given: A public centre (m,), to be taken instead of the mean.
    """
    if n is None:
        n = jnp.maximum(noisy[-1] / COUNT_WEIGHT, max(1.0, deviation / COUNT_WEIGHT))
    mean, size = noisy[:m] / n, jnp.clip(noisy[m] / n / SIZE_WEIGHT + 0.5, 0, 1)
    # James and Stein: where the mean is less than its own noise, the middle of the box is the better centre.
    energy = jnp.sum(mean**2)
    kept = jnp.maximum(0, 1 - m * (deviation / n) ** 2 / jnp.where(energy > 0, energy, 1))
    center = mean * kept
    center = center / jnp.maximum(1, jnp.sqrt(jnp.sum(center**2)))
    spread = (1 if is_sphere else size) - jnp.sum(center**2)
    if given is not None:
        spread, center = spread + jnp.sum((center - given) ** 2), given
    radius = jnp.sqrt(jnp.clip(spread, LEAST_RADIUS**2, 1))
    scale = math.sqrt(m) * (jnp.maximum(size, LEAST_RADIUS) if is_sphere else jnp.ones_like(size))
    return Frame(center, radius * clip_factor, scale)

"""Where bounded records are projected from, and a fitted release of them: centre, radius, components, Gaussians."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.accounting import Guarantee
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses.clipping import in_ball
from drjax.synthesis import gaussian_model, moments
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.correction import Correction

SIZE_WEIGHT, COUNT_WEIGHT = 0.5, 0.25
"""What a record's size, in [-1/2, 1/2], and its count weigh beside its direction in the sum of the first step."""

LEAST_RADIUS = 0.05
"""Least radius, as a share of the unit ball's: a noisy radius is not taken to be less."""

CLIP_FACTORS = (0.8, 4.0)
"""Smallest and largest clip factor that is chosen: below 0.8 utility hardly changes (docs/synthesis/choices.md), and
hardly any record is four times as far from the centre as records are in the mean."""

CLIP_WEIGHT = 0.2
"""Clip factor where the moments' noise is as large as the moments themselves; chosen on Adult."""


class Frame(NamedTuple):
    """Where records are projected from.

    Attributes:
        center: (m,), in the unit ball.
        radius: (), of the ball about the centre that components are cut to; their unit.
        scale: (), of the unit ball in the box scaled to [-1, 1]^m.
        spread: (), mean squared distance of the records from the centre, in the unit ball; None if no step asks for it.
    """

    center: Any
    radius: Any
    scale: Any
    spread: Any = None


@hyperparams
class ProjectedSynthesizer:
    """A fitted release of records as Gaussians in p dimensions; a pytree.

    Attributes:
        box: The public bounds.
        task: A name in `contract.TASKS`.
        target_range: Range of the target of a regression.
        label_weight: b of w = (t, z, b y).
        is_sphere: Whether records are brought to norm 1 about the centre, instead of cut to it.
        decode: Whether `sample` gives features, or components.
        guarantee: Guarantee of all fields below.
        frame: Centre, radius and scale.
        components: (p, m), orthonormal rows.
        mixture: Mixture in units of w without its first entry; the label, if any, is last.
        correction: Correction of the columns' deviations, `drjax.synthesis.correction`; None for none.
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
    correction: Correction | None = traced(default=None)

    def sample(self, key: Array | None, n: int) -> Synthetic:
        """n synthetic records; pure, safe under jit and vmap with n static. A key of None is drawn from the OS."""
        key = gaussian_model.os_key() if key is None else key
        drawn, y = self.draw(key, n)
        if self.decode:
            return Synthetic(self.box.decode(self.to_box(self.unit_features(drawn, jax.random.fold_in(key, 1)), y)), y)
        return Synthetic(drawn, y)

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

    def unit_features(self, z: Array, key: Array) -> Any:
        """Components (n, p) as features (n, d) of the box scaled to [-1, 1]^d, not cut to it: centre + W^T z.

        With a correction, components are stretched and the key draws what varies outside of them.
        """
        w, frame = jnp.asarray(self.components), self.frame
        shift = frame.radius * jnp.matmul(z, w, precision=HIGHEST)
        if self.correction is None:
            return frame.scale * (frame.center + shift)
        noise = jax.random.normal(key, shift.shape, shift.dtype)
        return frame.scale * (frame.center + self.correction.gain * shift) + self.correction.residual * noise

    def to_box(self, u: Any, y: Any) -> Any:
        """Features u (n, d) of `unit_features`, moved so that their deviations are right once they are cut to the box.

        Args:
            u: (n, d).
            y: (n,) as of `sample`: classes have means of their own.
        """
        if self.correction is None:
            return u
        offset = jnp.asarray(self.correction.offset)
        return self.correction.slope * u + (offset[y] if self.task == "classification" else offset[0])

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
    return in_ball(jnp.matmul(shifted, components.T, precision=HIGHEST), frame.radius)


def chosen_clip_factor(noise: Any) -> Any:
    """Where records are cut, in units of their root mean squared distance, for the noise on their second moment.

    Noise grows with the squared factor f; what cutting takes off the mean of |z|^2 is at most the mean of |z|^4 over
    4 f^2, since (a - b)_+ <= a^2 / (4 b). Both together are least at an f that goes with the noise to the power -1/4.

    Args:
        noise: Deviation of an entry of the noise times the root of its size, over the number of records, at factor 1.
    """
    return jnp.clip(CLIP_WEIGHT * noise**-0.25, *CLIP_FACTORS)


def noisy_count(noisy: Any, deviation: float) -> Any:
    """Records, from the last entry of the noisy sum of the first step; not below its noise."""
    return jnp.maximum(noisy[-1] / COUNT_WEIGHT, jnp.maximum(1.0, deviation / COUNT_WEIGHT))


@functools.partial(jax.jit, static_argnames=("m", "is_sphere"))
def frame_of(
    noisy: Any, deviation: float, m: int, n: Any, *, is_sphere: bool, clip_factor: Any = 1.0, given: Any = None
) -> Frame:
    """Centre and radius from the noisy sum of the first step.

    Args:
        noisy: (m + 1,), or (m + 2,) where n is None and among what was summed up.
        deviation: Standard deviation of the noise of an entry.
        m: Features.
        n: Records, or None.
        is_sphere: Whether records have norm 1 and `size` is their norm in the box.
        clip_factor: Factor on the radius.
        given: A public centre (m,), to be taken instead of the mean.
    """
    n = noisy_count(noisy, deviation) if n is None else n
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
    return Frame(center, radius * clip_factor, scale, radius**2)

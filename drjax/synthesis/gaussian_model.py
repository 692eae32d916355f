"""Gaussian mixtures from noisy moments, and samples of them. All of it is post-processing: it costs no privacy."""

from __future__ import annotations

import functools
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array

REPAIRS = ("clip", "trace", "shrink")


class Mixture(NamedTuple):
    """K Gaussians in q dimensions; a pytree.

    Attributes:
        weights: (K,), sum 1.
        means: (K, q).
        factors: (K, q, q), A of the covariance A A^T.
    """

    weights: Any
    means: Any
    factors: Any

    @property
    def covariances(self) -> Any:
        """(K, q, q)."""
        return jnp.matmul(self.factors, jnp.swapaxes(self.factors, -1, -2), precision=HIGHEST)


@functools.partial(jax.jit, static_argnames="repair")
def repaired_factor(covariance: Array, deviation: Any, repair: str = "trace") -> jax.Array:
    """A factor A of a positive semidefinite A A^T near a noisy covariance; (..., q, q), O(q^3).

    Args:
        covariance: (..., q, q), symmetric.
        deviation: (...) of its noise off the diagonal, which "shrink" takes.
        repair: Repair of the eigenvalues. "clip": negative ones become 0, which adds to the variance. "trace": all are
            lowered by one number and then clipped, so that the sum stays what the noisy one is (the nearest matrix with
            that trace). "shrink": what is within the bulk of the noise becomes 0, the others become what is best in
            mean square for a few strong directions in noise (Shabalin & Nobel 2013; Gavish & Donoho 2017).

    Raises:
        ValueError: an unknown repair.
    """
    validate.one_of(REPAIRS, repair=repair)
    values, vectors = jnp.linalg.eigh(covariance)
    q = values.shape[-1]
    if repair == "trace":
        values = _on_simplex(values, jnp.maximum(jnp.sum(values, axis=-1), 0))
    elif repair == "shrink":
        edge = 2 * jnp.asarray(deviation)[..., None] * np.sqrt(q)
        values = jnp.where(values > edge, jnp.sqrt(jnp.maximum(values**2 - edge**2, 0)), 0)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))[..., None, :]


def _on_simplex(values: Any, target: Any) -> jax.Array:
    """The nearest numbers >= 0 with that sum to rising values (..., q)."""
    falling = values[..., ::-1]
    counts = jnp.arange(1, values.shape[-1] + 1)
    shifts = (jnp.cumsum(falling, axis=-1) - target[..., None]) / counts
    # The last count at which the smallest kept value is still above its shift; there always is the first.
    kept = jnp.maximum(jnp.sum(falling > shifts, axis=-1), 1)
    shift = jnp.take_along_axis(shifts, kept[..., None] - 1, axis=-1)
    return jnp.maximum(values - shift, 0)


@functools.partial(jax.jit, static_argnames=("repair", "pooling"))
def mixture_of(
    moments: Array,
    mean_weight: float,
    deviation: float,
    *,
    n: Any = None,
    repair: str = "trace",
    pooling: float | None = None,
) -> Mixture:
    """The Gaussians of noisy sums of (t, w)(t, w)^T for each class, w (q,) in the ball of its norm.

    Args:
        moments: (K, 1 + q, 1 + q), symmetric.
        mean_weight: t, > 0.
        deviation: Standard deviation of the noise of an entry off the diagonal.
        n: Records in all where that is public; the count of a single class is then known, and those of several are
            brought to that sum.
        repair: Repair of the covariances, as for `repaired_factor`.
        pooling: Share, in [0, 1], of the classes' common covariance in that of each. None: of each class as much as its
            noise explains of what is between the two (James & Stein).

    Returns:
        In units of w. Counts below the noise of a count are raised to it: what such a class looks like is noise.
    """
    n_classes = moments.shape[0]
    counts = moments[:, 0, 0] / mean_weight**2
    if n is not None:
        known = jnp.asarray(n, moments.dtype)
        counts = jnp.full_like(counts, known) if n_classes == 1 else _on_simplex_in_order(counts, known)
    least = jnp.maximum(1.0, deviation * math.sqrt(2) / mean_weight**2)
    divisors = jnp.maximum(counts, least)
    weights = jnp.maximum(counts, 0)
    weights = jnp.where(jnp.sum(weights) > 0, weights, 1)
    weights = weights / jnp.sum(weights)
    means = moments[:, 0, 1:] / (mean_weight * divisors[:, None])
    noise = deviation / divisors
    second = moments[:, 1:, 1:] / divisors[:, None, None]
    covariances = second - means[:, :, None] * means[:, None, :]
    if n_classes > 1 and pooling != 0:
        pooled = jnp.tensordot(weights, covariances, 1, precision=HIGHEST)
        if pooling is None:
            q = covariances.shape[-1]
            apart = jnp.sum((covariances - pooled) ** 2, axis=(1, 2))
            share = jnp.minimum(1, q * (q + 1) * noise**2 / jnp.where(apart > 0, apart, 1))
        else:
            share = jnp.full_like(noise, pooling)
        covariances = covariances + share[:, None, None] * (pooled - covariances)
        # Of independent noise, weighted.
        joint = jnp.sqrt(jnp.sum((weights * noise) ** 2))
        noise = jnp.hypot((1 - share) * noise, share * joint)
    return Mixture(weights, means, repaired_factor(covariances, noise, repair))


def _on_simplex_in_order(values: Any, target: Any) -> jax.Array:
    order = jnp.argsort(values)
    return jnp.zeros_like(values).at[order].set(_on_simplex(values[order], target))


@functools.partial(jax.jit, static_argnames="n")
def sample(key: Array, mixture: Mixture, n: int) -> tuple[jax.Array, jax.Array]:
    """n draws (n, q) and their classes (n,), int32; pure, memory O(n q)."""
    class_key, normal_key = jax.random.split(key)
    n_classes, q = mixture.means.shape
    classes = jax.random.categorical(class_key, jnp.log(mixture.weights), shape=(n,)).astype(jnp.int32)
    normal = jax.random.normal(normal_key, (n, q), mixture.means.dtype)

    if n_classes == 1:
        return mixture.means[0] + jnp.matmul(normal, mixture.factors[0].T, precision=HIGHEST), classes

    # One class at a time: a factor for each draw would take q times the memory.
    def add(drawn: jax.Array, one: Any) -> tuple[jax.Array, None]:
        index, mean, factor = one
        here = mean + jnp.matmul(normal, factor.T, precision=HIGHEST)
        return jnp.where((classes == index)[:, None], here, drawn), None

    drawn, _ = jax.lax.scan(
        add, jnp.zeros_like(normal), (jnp.arange(n_classes, dtype=jnp.int32), mixture.means, mixture.factors)
    )
    return drawn, classes


def os_key() -> jax.Array:
    """A key from the operating system's entropy.

    Sampling from a release needs no secret: anybody may draw from it, with any key, and learn what it says. Entropy
    only keeps two data sets that are drawn from it from being the same by accident.
    """
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)), impl="threefry2x32")

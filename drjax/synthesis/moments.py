"""Sums over bounded records with noise: of vectors, and of outer products, one sum for each class.

A record that is to contribute its count, its components z and its label y jointly is one vector w = (t, z, b y), and
the sum of w w^T holds the count, the sums and the second moments of all of them. So one bound, |w|^2 <= t^2 + 1 + b^2,
and one noise cover everything that a Gaussian model is made of: what t and b do is divide one budget between its parts.

Here in JAX, with floating-point noise, for experiments; `drjax.synthesis.exact_moments` is for releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, PyTree
from drjax.synthesis import sensitivity
from drjax.synthesis.budget import Plan

CHUNK = 4096
"""Records that are bounded at a time: fits that are mapped over keys bound them anew in every lane."""


def on_sphere(rows: Any) -> jax.Array:
    """Rows (n, q) brought to norm 1; a row of zeros stays one."""
    norms = jnp.sqrt(jnp.sum(rows**2, axis=1, keepdims=True))
    return rows / jnp.where(norms > 0, norms, 1)


def augmented(z: Any, mean_weight: float, label: Any = None, label_weight: float = 1.0) -> jax.Array:
    """w = (t, z, b y) of components z (n, p) and, if given, labels y (n,); (n, q)."""
    parts = [jnp.full((z.shape[0], 1), mean_weight, z.dtype), z]
    if label is not None:
        parts.append(label_weight * label[:, None])
    return jnp.concatenate(parts, axis=1)


def augmented_norm(mean_weight: float, label_weight: float | None) -> float:
    """The largest |w| for |z| <= 1 and |y| <= 1, rounded up; without a label if label_weight is None."""
    return math.sqrt(mean_weight**2 + 1 + (label_weight or 0.0) ** 2) * sensitivity.ROUNDING


def total(term: Callable[[PyTree], PyTree], records: PyTree) -> PyTree:
    """The sum of term(records) over records, some at a time.

    Args:
        term: A pytree of arrays, each with a leading axis, to the sum over them; of zeros where `weight` is 0.
        records: A dict of arrays with leading axis n, among them `weight` (n,).
    """
    n = records["weight"].shape[0]
    if n <= CHUNK:
        return term(records)
    n_chunks = -(-n // CHUNK)
    padding = n_chunks * CHUNK - n

    def split(leaf: jax.Array) -> jax.Array:
        filled = jnp.pad(leaf, [(0, padding)] + [(0, 0)] * (leaf.ndim - 1))
        return filled.reshape(n_chunks, CHUNK, *leaf.shape[1:])

    chunks = jax.tree.map(split, records)
    # `weight` is padded with zeros, so that what is filled up counts for nothing.
    shapes = jax.eval_shape(term, jax.tree.map(lambda leaf: leaf[0], chunks))
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    found, _ = jax.lax.scan(lambda so_far, chunk: (jax.tree.map(jnp.add, so_far, term(chunk)), None), start, chunks)
    return found


def gram(rows: Array, weight: Array) -> jax.Array:
    """The sum of outer products of rows (n, q), weighted; (q, q)."""
    return jnp.matmul(rows.T * weight, rows, precision=HIGHEST)


def grouped_gram(rows: Array, weight: Array, group: Array, n_groups: int) -> jax.Array:
    """A weighted sum of outer products for every group; (n_groups, q, q). Other groups count for none."""
    one_hot = (group[:, None] == jnp.arange(n_groups)) * weight[:, None]
    return jax.vmap(gram, in_axes=(None, 1))(rows, one_hot.astype(rows.dtype))


def noisy_sum(key: Array, value: Any, bound: float, plan: Plan, step: str) -> tuple[jax.Array, float]:
    """A sum of vectors (q,) of norm at most `bound`, with noise; and the deviation of the noise of an entry."""
    l2 = sensitivity.sum_l2(neighbouring=plan.neighbouring) * bound
    l1 = sensitivity.sum_l1(value.shape[0], neighbouring=plan.neighbouring) * bound
    scale = plan.scale(step, l1, l2)
    if plan.noise == "gaussian":
        return value + scale * jax.random.normal(key, value.shape, value.dtype), scale
    return value + scale * jax.random.laplace(key, value.shape, value.dtype), scale * math.sqrt(2)


def moment_scale(q: int, bound: float, plan: Plan, step: str, n_groups: int = 1) -> float:
    """The scale of the noise on sums of outer products of vectors (q,) of norm at most `bound`."""
    l2 = sensitivity.moment_l2(neighbouring=plan.neighbouring) * bound**2
    l1 = sensitivity.moment_l1(q, neighbouring=plan.neighbouring, n_groups=n_groups) * bound**2
    return plan.scale(step, l1, l2)


def noisy_moments(key: Array, value: Any, bound: float, plan: Plan, step: str) -> tuple[jax.Array, float]:
    """Sums of outer products (n_groups, q, q) with noise; and its deviation, see `noise_deviation`."""
    n_groups, q = value.shape[:2]
    scale = moment_scale(q, bound, plan, step, n_groups)
    noisy = value + symmetric_noise(key, value.shape, plan.noise, scale, value.dtype)
    return noisy, noise_deviation(plan.noise, scale)


def symmetric_noise(key: Array, shape: tuple[int, ...], noise: str, scale: float, dtype: Any) -> jax.Array:
    """Noise on symmetric matrices (..., q, q): independent on and above the diagonal, mirrored below.

    Gaussian noise looks alike in every basis, as that of `drjax.defenses.dp_pca.AnalyticGauss`: deviation `scale` on
    the diagonal and 1 / sqrt(2) of it off it. Laplace noise has one scale.
    """
    if noise == "gaussian":
        q = shape[-1]
        deviation = jnp.full((q, q), math.sqrt(0.5), dtype).at[jnp.diag_indices(q)].set(1)
        draws = deviation * jax.random.normal(key, shape, dtype)
    else:
        draws = jax.random.laplace(key, shape, dtype)
    return scale * (jnp.triu(draws) + jnp.swapaxes(jnp.triu(draws, 1), -1, -2))


def noise_deviation(noise: str, scale: float) -> float:
    """Deviation of the noise off the diagonal."""
    return scale * (math.sqrt(0.5) if noise == "gaussian" else math.sqrt(2))

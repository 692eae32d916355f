"""How far classes lie apart in a map: the silhouette of given labels."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array
from drjax.dr import quality


def silhouette(x: Array, labels: Array, n_classes: int) -> jax.Array:
    """Mean silhouette coefficient of records x (n, d) with labels (n,) in [0, n_classes); (), in [-1, 1].

    A record alone in its class counts 0. Where fewer than two classes have a record there is none: nan, and so where x
    is not finite. Pure, safe under jit and vmap; O(n^2 (d + n_classes)) time, O(n^2) memory.

    Raises:
        ValueError: when traced, if the shapes do not match or n_classes < 2.

    Source: Rousseeuw (1987); equal to scikit-learn's `metrics.silhouette_score`.
    """
    return silhouette_of_distances(quality.distances(x), labels, n_classes)


@functools.partial(jax.jit, static_argnames="n_classes")
def silhouette_of_distances(between: Array, labels: Array, n_classes: int) -> jax.Array:
    """`silhouette` from the records' distances (n, n), 0 on the diagonal."""
    validate.integer(minimum=2, n_classes=n_classes)
    n = between.shape[0]
    if jnp.shape(labels) != (n,):
        raise ValueError(f"labels must be {n} classes, one per record, got shape {jnp.shape(labels)}")
    members = jax.nn.one_hot(labels, n_classes, dtype=between.dtype)
    sizes = jnp.sum(members, axis=0)
    sums = jnp.matmul(between, members, precision=HIGHEST)
    own_size = members @ sizes
    own = jnp.sum(sums * members, axis=1) / jnp.maximum(own_size - 1, 1)
    # A class without records is nobody's neighbour.
    to_others = jnp.where((members > 0) | (sizes == 0), jnp.inf, sums / jnp.maximum(sizes, 1))
    other = jnp.min(to_others, axis=1)
    widest = jnp.maximum(own, other)
    # Where all distances are 0 no class is nearer than the other; scikit-learn counts 0 too.
    score = jnp.where((own_size > 1) & (widest > 0), (other - own) / jnp.where(widest > 0, widest, 1), 0)
    is_known = (jnp.sum(sizes > 0) >= 2) & jnp.all(jnp.isfinite(between))
    return jnp.where(is_known, jnp.mean(score), jnp.nan)

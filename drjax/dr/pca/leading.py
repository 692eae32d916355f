"""Leading principal components of many data sets at once, for devices whose eigendecompositions do not batch.

cuSOLVER decomposes one large matrix after the other, some 20 ms for 512 x 512 on an H100: as the start of t-SNE that
was nearly all of its time. Block power iterations are products and small vectors, of all data sets side by side.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from drjax.core.linalg import HIGHEST, sign_and_margin
from drjax.core.types import Array

OVERSAMPLING = 8
N_STEPS = 40


def leading_scores(x: Array, k: int) -> jax.Array:
    """Coordinates (n, k) of x (n, d) along its k leading principal components, with the signs of `PCA`; pure XLA.

    Block power iteration with `OVERSAMPLING` more vectors than wanted, from a fixed start, and Rayleigh-Ritz at the
    end. After `N_STEPS` steps the share of other components in the last one wanted is of the order of
    (v_q / v_k)^N_STEPS, v the variances and q = k + OVERSAMPLING + 1: below 1e-4 if v_q <= 0.8 v_k. A flatter spectrum
    gives some directions of nearly the largest variance. Equal records give zeros, and what is not finite gives nan.

    O(N_STEPS n d q) time, O((n + d) q) memory beside x.

    Source: Rutishauser (1970), simultaneous iteration.
    """
    n, d = x.shape
    q = min(k + OVERSAMPLING, n, d)
    centered = x - jnp.mean(x, axis=0)

    def step(_: int, basis: jax.Array) -> jax.Array:
        images = jnp.matmul(centered, basis, precision=HIGHEST)
        return _orthonormal(jnp.matmul(centered.T, images, precision=HIGHEST))

    start = jax.random.normal(jax.random.key(0), (d, q), centered.dtype)
    basis = jax.lax.fori_loop(0, N_STEPS, step, _orthonormal(start))
    scores = jnp.matmul(centered, basis, precision=HIGHEST)
    _, turns = jnp.linalg.eigh(jnp.matmul(scores.T, scores, precision=HIGHEST))
    turns = turns[:, ::-1][:, :k]
    signs, _ = sign_and_margin(jnp.matmul(basis, turns, precision=HIGHEST).T)
    return jnp.matmul(scores, turns, precision=HIGHEST) * signs


def _orthonormal(columns: jax.Array) -> jax.Array:
    """Gram-Schmidt, twice; what depends on the columns before it, to rounding, becomes 0."""
    basis: list[jax.Array] = []
    least = 10 * float(jnp.finfo(columns.dtype).eps)
    for c in range(columns.shape[1]):
        own = columns[:, c]
        # At its own scale: the norm of a short column would underflow.
        largest = jnp.max(jnp.abs(own))
        own = _unit(own / jnp.where(largest == 0, 1, largest), 0.0)
        for _ in range(2):
            for other in basis:
                own = own - jnp.sum(own * other) * other
            own = _unit(own, least)
        basis.append(own)
    return jnp.stack(basis, axis=1)


def _unit(column: jax.Array, least: float) -> jax.Array:
    """Column of norm 1, or 0 where the norm is at most `least`: rounding has no direction."""
    norm = jnp.sqrt(jnp.sum(column**2))
    return column * jnp.where(norm <= least, 0, 1 / jnp.where(norm <= least, 1, norm))

"""Principal coordinates of distances: leading eigenvectors of the doubly centred squares, scaled to coordinates."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from drjax.core.linalg import HIGHEST, sign_and_margin
from drjax.core.types import Array
from drjax.dr import base


class Coordinates(NamedTuple):
    """Coordinates of one data set, and what their eigenvectors are worth.

    Attributes:
        coords: (n, k), each column's largest |entry| positive; 0 where the eigenvalue is not above rounding.
        is_kept: (k,), whether it is above.
        gap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        margin: (k,), largest positive minus largest negative entry of each eigenvector, in absolute value.
    """

    coords: Array
    is_kept: Array
    gap: Array
    margin: Array


def coordinates(vectors: Array, values: Array) -> Coordinates:
    """Coordinates by eigenvectors (n, k) of a Gram matrix and its leading eigenvalues (min(k + 1, n),), decreasing."""
    n, k = vectors.shape
    eps = float(jnp.finfo(vectors.dtype).eps)
    sign, margin = sign_and_margin(vectors.T)
    # Below this an eigenvalue is rounding, whose root would be noise in the coordinates.
    is_kept = values[:k] > n * eps * jnp.maximum(values[0], 0)
    scale = jnp.where(is_kept, jnp.sqrt(jnp.where(is_kept, values[:k], 1)), 0)
    coords = jnp.where(is_kept | ~jnp.isfinite(vectors), vectors * (scale * sign), 0)
    return Coordinates(coords, is_kept, base.eigengap(values, k), margin)


def power_of_two(values: Array) -> Array:
    """A power of two near the largest |value|, (): division by it is exact and leaves squares in range."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(jax.lax.stop_gradient(values))))
    # Halved, because 2^128 is beyond float32.
    return jnp.ldexp(jnp.ones((), values.dtype), exponent - 1)


def gram(distances: Array) -> Array:
    """-1/2 H D^2 H of symmetric distances D (n, n), H the centring."""
    squares = distances**2
    rows = jnp.mean(squares, axis=0)
    return -0.5 * (squares - rows - rows[:, None] + jnp.mean(rows))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def leading(count: int, matrix: Array) -> tuple[Array, Array]:
    """The largest eigenvalues of a symmetric (n, n), decreasing, (count,), and their eigenvectors (n, count)."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count]


@leading.defjvp
def _leading_jvp(count: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple, tuple]:
    # The rule of `eigh` divides by the differences of all eigenvalues. Those that are not asked for may be equal (0, of
    # equal records), and reverse mode would multiply the infinity by 0.
    (matrix,), (change,) = primals, tangents
    values, vectors = leading(matrix.shape[0], matrix)
    rotated = jnp.matmul(vectors.T, jnp.matmul(change, vectors[:, :count], precision=HIGHEST), precision=HIGHEST)
    gaps = values[:count] - values[:, None]
    is_same = gaps == 0
    turned = jnp.where(is_same, 0, rotated / jnp.where(is_same, 1, gaps))
    result = values[:count], vectors[:, :count]
    return result, (jnp.diagonal(rotated), jnp.matmul(vectors, turned, precision=HIGHEST))


def left_over(gram: Array, coords: Array) -> Array:
    """Strain: the sum of squares of a Gram matrix (n, n) less that of coords (n, k) about their mean; ()."""
    centred = coords - jnp.mean(coords, axis=0)
    return jnp.sum((gram - jnp.matmul(centred, centred.T, precision=HIGHEST)) ** 2)

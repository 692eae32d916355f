"""What the methods share: records and their checks, insertion of one record as a batch of one, and status flags.

Example:
    >>> import drjax, jax, numpy as np
    >>> from drjax.core.types import Status
    >>> from drjax.dr import base
    >>> x, key, method = drjax.load("digits").x[:60], jax.random.key(0), drjax.PCA()
    >>> base.records(x).shape, base.known_records(x[1:]).shape
    ((60, 64), (59, 64))
    >>> base.check_components(2, *x.shape)  # as the next two: a ValueError, or nothing
    >>> base.check_target(x[0], 64)
    >>> base.check_targets(x[:5], 64)
    >>> release = base.insert(method, key, method.prepare(base.known_records(x[1:])), x[0])
    >>> release.coords.shape, base.first(jax.tree.map(lambda leaf: leaf[None], release)).coords.shape
    ((60, 2), (60, 2))
    >>> base.eigengap(np.array([4.0, 3.0, 1.0]), 2).tolist()  # distances to the nearest, over 4
    [0.25, 0.25]
    >>> Status(int(base.flag(True, Status.SMALL_GAP))), Status(int(base.non_finite(np.full((3, 2), np.nan))))
    (<Status.SMALL_GAP: 32>, <Status.NON_FINITE: 8>)
    >>> Status(int(base.sign_flags(np.array([0.0, 1.0]), np.array([0.5, 0.5]))))
    <Status.SIGN_TIE: 16>
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, DRMethod, Embedding, PyTree, Status

TIE = 8
"""A sign is a tie when its margin times the eigengap is below this many units of rounding."""


def records(x: Array) -> jax.Array:
    """The records x (n, d) of one data set in the dtype that is computed in.

    Raises:
        ValueError: at trace time, if x has not rank 2 or is empty.
    """
    validate.shape_2d(x=x)
    return jnp.asarray(x, compute_dtype(x))


def known_records(known: Array) -> np.ndarray:
    """The known records (n-1, d) on the host, in the dtype that is computed in.

    Raises:
        ValueError: known is not a numeric matrix, or not finite in that dtype.
    """
    array = validate.matrix(known, "known")
    with np.errstate(over="ignore"):  # beyond the range of float32 is infinite, and refused
        array = array.astype(compute_dtype(array))
    validate.finite(known=array)
    return array


def check_components(n_components: int, n: int, d: int) -> None:
    """Refuses more principal components than n records of d features have.

    Raises:
        ValueError: n_components > min(n, d).
    """
    validate.at_most(min(n, d), f"min(n, d) of n = {n} records with d = {d} features", n_components=n_components)


def check_target(target: Array, d: int) -> None:
    """Refuses a target whose number of features is not that of the known records.

    Raises:
        ValueError: at trace time, if target has not the shape (d,).
    """
    if np.shape(target) != (d,):
        raise ValueError(f"target must have shape ({d},) to match known, got {np.shape(target)}")


def check_targets(targets: Array, d: int) -> None:
    """Refuses targets whose number of features is not that of the known records.

    Raises:
        ValueError: at trace time, if targets have not the shape (b, d).
    """
    if targets.ndim != 2 or targets.shape[1] != d:
        raise ValueError(f"targets must have shape (m, {d}) to match known, got {targets.shape}")


def insert(method: DRMethod, key: Array, shared: PyTree, target: Array) -> Embedding:
    """`method.insert_batch` of a batch of one: the embedding of [target; known] for target (d,)."""
    return first(method.insert_batch(key[None], shared, target[None]))


def first(batch: Embedding) -> Embedding:
    """The embedding of lane 0 of a batch."""
    return jax.tree.map(lambda leaf: leaf[0], batch)


def flag(condition: Any, status: Status) -> jax.Array:
    """The bits of `status` where the condition holds, else 0; uint32 of the condition's shape."""
    return jnp.where(condition, jnp.uint32(status), jnp.uint32(0))


def non_finite(coords: Array) -> jax.Array:
    """NON_FINITE of coords (..., n, k) that have a nan or an infinity, else 0; (...)."""
    return flag(~jnp.all(jnp.isfinite(coords), axis=(-2, -1)), Status.NON_FINITE)


def sign_flags(margin: Array, gap: Array, among: Any = True) -> jax.Array:
    """SIGN_TIE and SMALL_GAP of one embedding by eigenvectors, or 0; ().

    Rounding of the matrix moves an eigenvector by about eps / gap: below that margin its sign is arbitrary.

    Args:
        margin: (k,), of the signs, absolute; see `core.linalg.sign_and_margin`.
        gap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        among: Mask of the k eigenvectors that count, () or (k,).
    """
    eps = float(jnp.finfo(gap.dtype).eps)
    is_tie, is_close = margin * gap < TIE * eps, gap < eps**0.5
    return flag(jnp.any(among & is_tie), Status.SIGN_TIE) | flag(jnp.any(among & is_close), Status.SMALL_GAP)


def eigengap(eigenvalues: Array, k: int) -> jax.Array:
    """Gap of each of the k leading of (..., p) decreasing eigenvalues, p >= k, to its nearest neighbour; (..., k).

    As a share of the largest. Nothing lies above the first nor, with p = k, below the last: such a gap is 1.
    """
    largest = jnp.maximum(eigenvalues[..., :1], jnp.finfo(eigenvalues.dtype).tiny)
    between = (eigenvalues[..., :-1] - eigenvalues[..., 1:]) / largest
    ends = jnp.ones_like(eigenvalues[..., :1])
    below, above = jnp.concatenate([between, ends], axis=-1), jnp.concatenate([ends, between], axis=-1)
    return jnp.minimum(below[..., :k], above[..., :k])

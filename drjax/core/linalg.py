"""Linear algebra that several layers share: centring and scikit-learn's sign convention.

Example:
    >>> import numpy as np
    >>> from drjax.core import linalg
    >>> linalg.eps_of(np.dtype("float32")) == 2**-23, linalg.compute_dtype(np.arange(3))
    (True, dtype('float32'))
    >>> linalg.on_device(np.ones(3), "float32").dtype
    dtype('float32')
    >>> float(linalg.squares_above(np.full(28, 1e-20, np.float32))) > 0  # though each square is 0 in float32
    True
    >>> linalg.finite_rows(np.array([[1.0, np.nan], [1.0, 2.0]], np.float32)).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    >>> [part.tolist() for part in linalg.sign_and_margin(np.float32([[0.5, -2.0], [3.0, 1.0]]))]
    [[-1.0, 1.0], [1.5, 4.0]]
    >>> mean, basis, singular, scores = linalg.scatter_basis(np.array([[0.0, 0.0], [2.0, 0.0]]))
    >>> mean.tolist(), basis.shape, singular.round(3)
    ([1.0, 0.0], (1, 2), array([1.414]))
    >>> linalg.eigh(np.diag([2.0, 1.0]))[0].tolist()
    [1.0, 2.0]
"""

from __future__ import annotations

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import threadpoolctl

from drjax.core.types import Array

HIGHEST = "highest"
"""Matmul precision of every kernel: a GPU's default (TF32) would break parity with the CPU."""


MANY_ENTRIES = 2**24
"""Entries of a matrix whose principal directions are worth the threads of a BLAS."""


def eps_of(dtype: np.dtype) -> float:
    """Relative rounding of published numbers; that of float64 for integers."""
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


def compute_dtype(x: Array) -> np.dtype:
    """The dtype a kernel computes in: float64 only with x64 on, half precision as float32, integers as floats."""
    dtype = np.dtype(x.dtype)
    if dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    return np.dtype(jax.dtypes.canonicalize_dtype(np.promote_types(dtype, np.float32)))


def on_device(array: np.ndarray, dtype: Any) -> jax.Array:
    """A copy of the host's array in this dtype, on the device; `jnp.asarray` compiles a program for every shape."""
    with np.errstate(over="ignore"):  # beyond the range of float32 is infinite, as on the device
        return jax.device_put(np.asarray(array, dtype))


def squares_above(x: Any, axis: int | None = None) -> jax.Array:
    """Sums of squares that no underflow makes too small: at most `tiny` of the dtype for each term too large.

    For norms that bound something. Squares of numbers below 1e-19 are 0 in float32, and 28 of them may be as long as
    one whose square is not.
    """
    x = jnp.asarray(x)  # NumPy would warn where a square overflows
    n_terms = x.size if axis is None else x.shape[axis]
    return jnp.sum(x * x, axis=axis) + n_terms * jnp.finfo(x.dtype).tiny


def finite_rows(rows: Any) -> Any:
    """Rows (n, d), NumPy's or JAX's; one with an entry that is not finite becomes zeros throughout."""
    chex.assert_rank(rows, 2)
    xp: Any = np if isinstance(rows, np.ndarray) else jnp
    return xp.where(xp.isfinite(rows).all(axis=1)[:, None], rows, xp.zeros_like(rows))


def sign_and_margin(loadings: Array) -> tuple[Array, Array]:
    """The sign that makes each row's largest |loading| positive, and by how much it is the largest.

    Args:
        loadings: (..., d).

    Returns:
        sign: (...), +1 or -1 (+1 for a zero row).
        margin: (...), | max(loading) - max(-loading) |: below the error of the loadings, the sign is a coin toss.

    Source: scikit-learn 1.9 `utils.extmath.svd_flip(u_based_decision=False)`, as `decomposition.PCA` uses it.
    """
    top, bottom = jnp.max(loadings, axis=-1), -jnp.min(loadings, axis=-1)
    return jnp.where(top >= bottom, 1.0, -1.0).astype(loadings.dtype), jnp.abs(top - bottom)


def scatter_basis(x: Array, *, is_centred: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Principal directions of x by the cheaper Gram matrix, in float64 on the host.

    The basis is orthonormal to rounding and holds the rows' whole span; it diagonalises the scatter matrix to
    within rounding of its largest eigenvalue, which is what an eigenvalue update can use. Where small singular
    values themselves matter, take an SVD instead: it costs two to three times as much.

    Args:
        x: (rows, d), finite.
        is_centred: Whether directions are those of x about its mean; else about 0, and the mean returned is 0.

    Returns:
        mean (d,); basis (r, d), orthonormal rows, r >= 1; singular (r,), norms of the scores, decreasing;
        scores (rows, r) = (x - mean) @ basis.T. Directions without variance are left out, but for one if all are.
    """
    # The threads of a BLAS go on spinning for tens of milliseconds after a call, and the kernel that follows this
    # would pay for it with more than they save here, unless that is long.
    with blas().limit(limits=1 if np.size(x) < MANY_ENTRIES else None, user_api="blas"):
        x = np.asarray(x, np.float64)
        if not is_centred:
            return np.zeros(x.shape[1]), *_scatter_basis(x)
        mean = x.mean(axis=0)
        # What rounding leaves of a constant column is no variance.
        return mean, *_scatter_basis(np.where(np.ptp(x, axis=0) > 0, x - mean, 0))


@functools.cache
def blas() -> threadpoolctl.ThreadpoolController:
    """The BLAS libraries of this process, to limit their threads; kept, because finding them takes milliseconds."""
    return threadpoolctl.ThreadpoolController()


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (n,), ascending, and eigenvectors (n, n) of a symmetric matrix, as `numpy.linalg.eigh`. Host.

    Where divide and conquer gives up, as LAPACK's does now and then on matrices with few distinct rows, QR iterations
    do it. O(n^3).

    Raises:
        numpy.linalg.LinAlgError: neither converges, as with entries that are not finite.
    """
    try:
        return np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        found: Any = scipy.linalg.eigh(matrix, driver="ev", check_finite=False)
        return found


def _scatter_basis(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Columns of zeros carry nothing; images have many, and the factorisation below is cubic in what is left.
    varies = (rows != 0).any(axis=0)
    if not varies.all() and varies.any():
        inner, singular, scores = _scatter_basis(rows[:, varies])
        basis = np.zeros((len(inner), rows.shape[1]))
        basis[:, varies] = inner
        return basis, singular, scores
    if rows.shape[0] > rows.shape[1]:
        _, vectors = eigh(rows.T @ rows)
        basis = vectors.T[::-1]
    else:
        q, r = np.linalg.qr(rows.T)
        _, vectors = eigh(r @ r.T)
        basis = (q @ vectors[:, ::-1]).T
    scores = rows @ basis.T
    singular = np.linalg.norm(scores, axis=0)
    order = np.argsort(-singular, kind="stable")
    kept = order[singular[order] > np.finfo(np.float64).eps * max(rows.shape) * singular[order[0]]]
    kept = kept if len(kept) else order[:1]
    return basis[kept], singular[kept], scores[:, kept]

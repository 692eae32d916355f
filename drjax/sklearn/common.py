"""What all estimators share: precision, randomness and the call of a kernel."""

from __future__ import annotations

from contextlib import AbstractContextManager
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state

from drjax.core.linalg import sign_and_margin
from drjax.core.types import Array, DRMethod, Embedding

FLOATS: Any = [np.float64, np.float32]
"""What `validate_data` is asked for: float32 stays, everything else becomes float64."""


def precision(dtype: Any) -> AbstractContextManager:
    """x64 on for float64 and off for float32, in this thread and until the block ends."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def generator(random_state: Any) -> np.random.RandomState:
    """scikit-learn's protocol: an int seeds, a RandomState goes on. None takes fresh entropy of the system.

    scikit-learn's None is NumPy's global state, which `np.random.seed` makes predictable.
    """
    return np.random.RandomState() if random_state is None else check_random_state(random_state)


def draw_key(random_state: Any) -> jax.Array:
    """The JAX key of an int, `jax.random.key(random_state)`; from anything else one of 64 bits that it draws."""
    if isinstance(random_state, Integral):
        check_random_state(random_state)  # refuses what is out of range
        return jax.random.key(np.uint32(random_state))
    words = generator(random_state).randint(0, 2**32, size=2, dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def embed(method: DRMethod, x: np.ndarray, key: jax.Array | None = None) -> Embedding:
    """`method.fit_transform` in the precision of x (n, d); arrays on the host. Deterministic methods need no key."""
    with precision(x.dtype):
        embedding = _fit_transform(method, jax.random.key(0) if key is None else key, x)
    return jax.tree.map(np.array, embedding)


@jax.jit
def _fit_transform(method: DRMethod, key: Array, x: Array) -> Embedding:
    return method.fit_transform(key, x)


def principal_coordinates(distances: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classical scaling of a symmetric matrix of dissimilarities (n, n), in its precision; O(n^3).

    Returns:
        coords (n, k), of columns whose largest |entry| is positive; 0 where the eigenvalue is not above rounding.
        values (k,), the algebraically largest eigenvalues of -1/2 H D^2 H, decreasing; vectors (n, k), unit, of the
        same signs. k is n_components, but at most n.
    """
    with precision(distances.dtype):
        values, vectors = _top_eigenpairs(distances)
    values, vectors = np.array(values[:n_components]), np.array(vectors[:, :n_components])
    is_kept = values > len(distances) * np.finfo(values.dtype).eps * max(values[0], 0)
    return vectors * np.sqrt(np.where(is_kept, values, 0)), values, vectors


@jax.jit
def _top_eigenpairs(distances: Array) -> tuple[Array, Array]:
    squares = distances**2
    rows = jnp.mean(squares, axis=0)
    values, vectors = jnp.linalg.eigh(-0.5 * (squares - rows - rows[:, None] + jnp.mean(rows)))
    values, vectors = values[::-1], vectors[:, ::-1]
    sign, _ = sign_and_margin(vectors.T)
    return values, vectors * sign

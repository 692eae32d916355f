"""Metrics that methods compare records by, beside the Euclidean one: on the host, and as operations of JAX.

Cosine distance is 1 less the cosine of the angle between two records, correlation distance the same after each record's
own mean is taken from it. Both are half the squared Euclidean distance of unit vectors, |u - v|^2 = 2 (1 - cos), and
are computed so: records of one direction are at 0, and small distances keep their digits. A record without a
direction, all zeros (for the correlation all features equal), is at distance 1 from every other, as in scikit-learn;
of the correlation scikit-learn makes nan there.

The host works on records as `prepared` makes them once; `apart` and `among` take those. Neither distance of the two
obeys the triangle inequality.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist, squareform

from drjax.core import host, platforms, validate
from drjax.core.compiled import njit
from drjax.core.types import Array, DRMethod
from drjax.dr.distances import mapped, squared, squared_in_xla, squared_rows

METRICS = ("euclidean", "cosine", "manhattan", "correlation")
"""By the names of scikit-learn and umap-learn."""

EUCLIDEAN = METRICS[0]

OF_DIRECTIONS = ("cosine", "correlation")
"""Those of the records' directions alone: distances have no unit."""

MANY = 1500
"""Records from which on distances of all pairs are made on all cores of a CPU."""

STRIP = 64
"""Rows whose distances to all later ones are computed at once."""


def check(metric: str) -> None:
    """Refuses a name that is not in `METRICS`.

    Raises:
        ValueError: no such metric.
    """
    validate.one_of(METRICS, metric=metric)


def of(method: DRMethod) -> str:
    """Metric of a method, or of the one behind defences and steps; the Euclidean one of those that have no choice."""
    inner: Any = method
    while not hasattr(inner, "metric") and hasattr(inner, "method"):
        inner = inner.method
    return getattr(inner, "metric", EUCLIDEAN)


def unit(metric: str) -> str | None:
    """What distances are measured in, as `DRMethod.unit` says it."""
    return None if metric in OF_DIRECTIONS else "of the input"


def prepared(metric: str, x: Array) -> np.ndarray:
    """Records x (..., d) as float64; for a metric of directions their unit vectors, zeros where there is none."""
    rows = np.ascontiguousarray(x, np.float64)
    if metric not in OF_DIRECTIONS:
        return rows
    return _directions(rows.reshape(-1, rows.shape[-1]), metric == "correlation").reshape(rows.shape)


def apart(metric: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances of the rows of a (p, d) to those of b (q, d), both as `prepared` makes them; (p, q).

    A pair gets the same bits whichever of the two comes first and whoever calls.
    """
    if metric == "manhattan":
        return absolute(a, b)
    found = squared(a, b)
    if metric == EUCLIDEAN:
        return np.sqrt(found)
    have_directions = a.any(axis=1, keepdims=True) & b.any(axis=1)
    return np.where(have_directions | np.isnan(found), 0.5 * found, 1.0)


def among(metric: str, rows: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """Distances of all pairs of rows (m, d) as `prepared` makes them; (m, m), symmetric, 0 on the diagonal.

    Computed in float64, spread over the cores; nothing but the result is as large.
    """
    found = np.empty((len(rows), len(rows)), dtype)

    def fill(part: slice) -> None:
        with np.errstate(over="ignore"):  # a far point is at an infinite distance in float32
            found[part, part.start :] = apart(metric, rows[part], rows[part.start :])
        found[part.start :, part] = found[part, part.start :].T

    host.spread(fill, len(rows), size=STRIP)
    np.fill_diagonal(found, 0)
    return found


def among_records(metric: str, x: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """Distances of all pairs of records x (m, d), computed in float64; (m, m)."""
    if metric == EUCLIDEAN and len(x) < MANY:
        found = squareform(pdist(np.asarray(x, np.float64))) if len(x) > 1 else np.zeros((1, 1))
        with np.errstate(over="ignore"):
            return found.astype(dtype, copy=False)
    return among(metric, prepared(metric, x), dtype)


def squared_among_records(metric: str, x: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs of records x (m, d), in float64; (m, m)."""
    if metric == EUCLIDEAN:
        return squareform(pdist(np.asarray(x, np.float64), "sqeuclidean")) if len(x) > 1 else np.zeros((1, 1))
    return among(metric, prepared(metric, x)) ** 2


def between(metric: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances (p, q) of records a (p, d) to b (q, d)."""
    return apart(metric, prepared(metric, a), prepared(metric, b))


@njit(fastmath={"reassoc", "contract"})
def absolute(a, b):
    """Sums of the absolute differences of the rows of a (p, d) and b (q, d), both float64; (p, q)."""
    p, q = a.shape[0], b.shape[0]
    out = np.empty((p, q))
    for low in range(0, p, 16):  # some rows of a stay in the cache while b passes by
        for j in range(q):
            for i in range(low, min(low + 16, p)):
                total = 0.0
                for c in range(a.shape[1]):
                    total += abs(a[i, c] - b[j, c])
                out[i, j] = total
    return out


@njit
def _directions(x, is_centred):
    """Unit vectors of the rows of x (n, d), each less its own mean if `is_centred`; zeros where there is none."""
    n, d = x.shape
    out = np.empty((n, d))
    for i in range(n):
        shift = 0.0
        is_constant = True
        for c in range(d):
            shift += x[i, c] / d
            is_constant &= x[i, c] == x[i, 0]
        # Of equal features rounding of the mean would be left. An infinity less itself is nan.
        shift = 0.0 if not is_centred else (x[i, 0] if is_constant else shift)
        largest = 0.0
        for c in range(d):
            out[i, c] = x[i, c] - shift
            largest = max(largest, abs(out[i, c]))
        # In units of the largest entry, so that squares neither overflow nor vanish.
        largest = largest if largest > 0 else 1.0
        square = 0.0
        for c in range(d):
            out[i, c] /= largest
            square += out[i, c] * out[i, c]
        norm = np.sqrt(square) if square != 0 else 1.0
        for c in range(d):
            out[i, c] /= norm
    return out


def to_known(metric: str, targets: Array, known: Array) -> Array:
    """Distances (b, m) of targets (b, d) to known (m, d), in the dtype of the targets.

    On a CPU sums are in float64 and in one order, whatever b is; elsewhere XLA chooses; see `squared_rows`.
    Differentiable in both, also twice; at distance 0, and in features that agree by manhattan distances, the derivative
    is 0. O(b m d).
    """
    if metric == EUCLIDEAN:
        return safe_sqrt(squared_rows(targets, known))
    return _rows(metric, targets, known)


def squared_to_known(metric: str, targets: Array, known: Array) -> Array:
    """`to_known`, squared."""
    return squared_rows(targets, known) if metric == EUCLIDEAN else _rows(metric, targets, known) ** 2


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _rows(metric: str, targets: Array, known: Array) -> Array:
    cpu, default = (functools.partial(f, metric) for f in (_on_host, in_xla))
    return platforms.by_platform(targets, known, cpu=cpu, default=default)


@_rows.defjvp
def _rows_derivative(metric: str, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _rows(metric, *primals), jax.jvp(functools.partial(in_xla, metric), primals, tangents)[1]


def _on_host(metric: str, targets: Array, known: Array) -> Array:
    like = jax.ShapeDtypeStruct((targets.shape[0], known.shape[0]), targets.dtype)
    return host.call(functools.partial(_mapped, metric), like, targets, known, vmap_method="expand_dims")


def _mapped(metric: str, targets: Array, known: Array) -> np.ndarray:
    return mapped(functools.partial(between, metric), targets, known)


def in_xla(metric: str, a: Array, b: Array) -> Array:
    """Distances (p, q) of records a (p, d) to b (q, d)."""
    return apart_in_xla(metric, prepared_in_xla(metric, a), prepared_in_xla(metric, b))


def among_in_xla(metric: str, x: Array) -> Array:
    """Distances of all pairs of records x (n, d); (n, n), 0 on the diagonal."""
    rows = prepared_in_xla(metric, x)
    found = apart_in_xla(metric, rows, rows)
    return jnp.where(jnp.eye(len(x), dtype=bool), 0, found) if metric in OF_DIRECTIONS else found


def among_all(metric: str, x: Array) -> Array:
    """Distances of all pairs of records x (n, d), in its dtype; (n, n), 0 on the diagonal, differentiable.

    On a CPU those of many records are computed by host code in float64, of few as elsewhere by XLA.
    """
    return among_in_xla(metric, x) if x.shape[0] < MANY else _among_many(metric, x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _among_many(metric: str, x: Array) -> Array:
    cpu, default = (functools.partial(f, metric) for f in (_among_on_host, among_in_xla))
    return platforms.by_platform(x, cpu=cpu, default=default)


@_among_many.defjvp
def _among_many_derivative(metric: str, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _among_many(metric, *primals), jax.jvp(functools.partial(among_in_xla, metric), primals, tangents)[1]


def _among_on_host(metric: str, x: Array) -> Array:
    like = jax.ShapeDtypeStruct((x.shape[0], x.shape[0]), x.dtype)
    return host.call(functools.partial(_among_given, metric), like, x, vmap_method="sequential")


def _among_given(metric: str, x: Array) -> np.ndarray:
    x = np.asarray(x)
    return among(metric, prepared(metric, x), x.dtype)


def squared_among_in_xla(metric: str, x: Array) -> Array:
    """Squared distances of all pairs of records x (n, d); (n, n)."""
    return squared_in_xla(x, x) if metric == EUCLIDEAN else among_in_xla(metric, x) ** 2


def apart_in_xla(metric: str, a: Array, b: Array) -> Array:
    """`apart` of rows as `prepared_in_xla` makes them."""
    if metric == EUCLIDEAN:
        return safe_sqrt(squared_in_xla(a, b))
    if metric == "manhattan":
        steps = a[:, None] - b[None]
        # `jnp.abs` has the derivative 1 at 0, and features of many records are equal.
        return jnp.sum(steps * jnp.sign(jax.lax.stop_gradient(steps)), axis=-1)
    have_directions = jnp.any(a != 0, axis=1, keepdims=True) & jnp.any(b != 0, axis=1)
    found = squared_in_xla(a, b) / 2
    return jnp.where(have_directions | jnp.isnan(found), found, 1)


def prepared_in_xla(metric: str, x: Array) -> Array:
    """`prepared` in the dtype of x (n, d)."""
    if metric not in OF_DIRECTIONS:
        return x
    if metric == "correlation":
        is_constant = jnp.all(x == x[:, :1], axis=1, keepdims=True)
        x = x - jnp.where(is_constant, x[:, :1], jnp.mean(x, axis=1, keepdims=True))
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(x)), axis=1, keepdims=True)
    x = x / jnp.where(largest > 0, largest, 1)
    square = jnp.sum(x**2, axis=1, keepdims=True)
    return x / jnp.sqrt(jnp.where(square != 0, square, 1))


def safe_sqrt(values: Any) -> Array:
    """sqrt, with derivative 0 at 0."""
    is_zero = values == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, values)))

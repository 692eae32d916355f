"""K-means and its silhouette as pure functions, so that a hundred synthetic data sets are clustered as one batch.

    result = jax.vmap(lambda key, x: cluster(key, x, 8))(keys, xs)         # keys (m,), xs (m, n, d)

Same algorithm as scikit-learn's `KMeans`: greedy k-means++ starts, Lloyd's iterations with its stopping rule, empty
clusters moved to the records that are worst served. The silhouette is that of Rousseeuw (1987), exact on a random
sample of fixed size, because it costs the square of it. On a CPU `cluster_all` does the same in compiled loops
(`kmeans_cpu`), from the same draws.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import batching, host, validate
from drjax.core.linalg import HIGHEST, compute_dtype
from drjax.core.types import Array, Status
from drjax.dr.quality import distances
from drjax.dr.silhouette import silhouette_of_distances
from experiments.pca_gauss.clustering import kmeans_cpu

SAMPLE_SIZE = 2000
"""Records that a silhouette is computed on."""


class KMeansFit(NamedTuple):
    """One clustering.

    Attributes:
        centers: (k, d), units of the records.
        labels: (n,) int32, the nearest centre of each record.
        inertia: (), sum of squared distances to it.
        n_iter: (), int32 iterations of Lloyd.
        status: (), uint32 `Status`: NOT_CONVERGED, NON_FINITE.
    """

    centers: Any
    labels: Any
    inertia: Any
    n_iter: Any
    status: Any


class Clustering(NamedTuple):
    """What clustering a data set gives.

    Attributes:
        silhouette: () in [-1, 1]: of a sample; 0 where all its records fall into one cluster, nan where a record is not
            finite.
        inertia: (), of all records; nan where one is not finite.
        status: (), uint32 `Status`: NOT_CONVERGED; DEGENERATE for a single cluster; NON_FINITE.
    """

    silhouette: Any
    inertia: Any
    status: Any


def cluster(
    key: Array,
    x: Array,
    n_clusters: int,
    *,
    sample_size: int = SAMPLE_SIZE,
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> Clustering:
    """Clusters x (n, d) by k-means and scores the clusters by their silhouette.

    Pure, safe under jit and vmap with everything but key and x static. Costs n_init Lloyd runs, O(n d k) an iteration,
    and O(s^2 d) time and O(s^2) memory for a sample of s records.

    Args:
        key: Draws the starts and the sample.
        x: (n, d).
        n_clusters: k, in [2, n].
        sample_size: Records of the silhouette, >= 2; all if there are fewer.
        n_init: Starts, of which the one of least inertia counts, >= 1.
        max_iter: Of one Lloyd run, >= 1.
        tol: Relative to the mean variance of a feature: a run stops when the centres move by less, >= 0.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(minimum=2, n_clusters=n_clusters, sample_size=sample_size)
    _check(x, n_clusters, n_init, max_iter, tol)
    return _cluster(key, x, n_clusters, sample_size, n_init, max_iter, float(tol))


def cluster_all(
    key: Array,
    xs: Array,
    n_clusters: int,
    *,
    sample_size: int = SAMPLE_SIZE,
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
    batch_size: int | None = None,
    progress: bool = False,
) -> Clustering:
    """`cluster` of each of m data sets xs (m, n, d), in batches that fit in memory; data set i draws from fold_in i.

    On a CPU in compiled loops, a data set at a time on every core: equal up to rounding, which may tip the draw of a
    start between two records, and a tenth of the time.

    Raises:
        ValueError: an argument out of its range, or xs of another rank.
    """
    validate.prng_key(key)
    if jnp.ndim(xs) != 3 or 0 in jnp.shape(xs):
        raise ValueError(f"xs must be a non-empty (m, n, d) array, got shape {jnp.shape(xs)}")
    validate.integer(minimum=2, n_clusters=n_clusters, sample_size=sample_size)
    _check(xs[0], n_clusters, n_init, max_iter, tol)
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(len(xs)))
    options = (n_clusters, sample_size, n_init, max_iter, float(tol))
    return batching.map_lanes(
        _clusterer(options, jax.default_backend() == "cpu"),
        None,
        (keys, xs),
        batch_size=batch_size,
        progress=progress,
        description="data sets",
    )


@functools.cache
def _clusterer(options: tuple, is_on_host: bool) -> Any:
    """One function for each set of options: the fan-out compiles once for each function."""

    def run(context: None, lanes: Any) -> Clustering:
        del context
        if is_on_host:
            return _cluster_on_host(*lanes, *options)
        return jax.vmap(lambda key, x: _cluster(key, x, *options))(*lanes)

    return run


def _cluster_on_host(
    keys: Array, xs: Array, n_clusters: int, sample_size: int, n_init: int, max_iter: int, tol: float
) -> Clustering:
    """`_cluster` of data sets xs (m, n, d) in `kmeans_cpu`."""
    z = jnp.asarray(xs, compute_dtype(xs))
    m, n, _ = z.shape
    draws = jax.vmap(lambda key: _draws(key, n, n_clusters, n_init, z.dtype))(keys)
    settings = kmeans_cpu.Settings(n_clusters, sample_size, max_iter, tol)
    like = tuple(jax.ShapeDtypeStruct((m,), dtype) for dtype in (z.dtype, z.dtype, jnp.int32, jnp.bool_))
    fit = functools.partial(kmeans_cpu.cluster_sets, settings=settings)
    score, inertia, n_found, is_done = host.call(fit, like, z, *draws)
    status = _flags(n_found < 2, Status.DEGENERATE) | _flags(~is_done, Status.NOT_CONVERGED)
    return Clustering(score, inertia, status | _flags(jnp.isnan(inertia), Status.NON_FINITE))


def _flags(is_so: Array, flag: Status) -> jax.Array:
    return jnp.where(is_so, jnp.uint32(flag), jnp.uint32(0))


class _Draws(NamedTuple):
    """What is random of a clustering, see `kmeans_cpu.cluster_sets`."""

    firsts: jax.Array
    thresholds: jax.Array
    words: jax.Array


def _draws(key: Array, n: int, k: int, n_init: int, dtype: Any) -> _Draws:
    start_key, sample_key = jax.random.split(key)
    return _Draws(*_draws_of_starts(start_key, n, k, n_init, dtype), jax.random.bits(sample_key, (n,), jnp.uint32))


def _draws_of_starts(key: Array, n: int, k: int, n_init: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    first_key, key = jax.random.split(key)
    firsts = jax.random.randint(first_key, (n_init,), 0, n, jnp.int32)
    # scikit-learn's number of candidates.
    return firsts, jax.random.uniform(key, (n_init, k - 1, 2 + int(math.log(k))), dtype)


def kmeans(
    key: Array, x: Array, n_clusters: int, *, n_init: int = 10, max_iter: int = 300, tol: float = 1e-4
) -> KMeansFit:
    """The clustering of least inertia among n_init runs from greedy k-means++ starts.

    Args:
        key: Draws the starts.
        x: (n, d).
        n_clusters: k, in [1, n].
        n_init: >= 1.
        max_iter: >= 1.
        tol: >= 0.

    Raises:
        ValueError: an argument out of its range.
    """
    _check(x, n_clusters, n_init, max_iter, tol)
    draws = _draws_of_starts(key, x.shape[0], n_clusters, n_init, compute_dtype(x))
    return _kmeans(x, *draws, max_iter, float(tol))


def lloyd(x: Array, start: Array, *, max_iter: int = 300, tol: float = 1e-4) -> KMeansFit:
    """Lloyd's iterations from given centres (k, d); arguments as of `kmeans`.

    Raises:
        ValueError: an argument out of its range, or start and x with different numbers of columns.
    """
    validate.integer(max_iter=max_iter)
    validate.non_negative(tol=tol)
    validate.shape_2d(x=x, start=start)
    if start.shape[1] != x.shape[1]:
        raise ValueError(f"start must have the columns of x, {x.shape[1]}, got {start.shape[1]}")
    return _lloyd_from(x, start, max_iter, float(tol))


def silhouette(x: Array, labels: Array, n_clusters: int) -> jax.Array:
    """Mean silhouette coefficient of records x (n, d) with labels (n,) in [0, n_clusters); () in [-1, 1].

    A record alone in its cluster counts 0, and so does everything where only one cluster is inhabited. O(n^2 (d + k))
    time, O(n^2) memory.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(n_clusters=n_clusters)
    validate.shape_2d(x=x)
    return _silhouette(jnp.asarray(x, compute_dtype(x)), jnp.asarray(labels), n_clusters)[0]


def _check(x: Array, n_clusters: int, n_init: int, max_iter: int, tol: float) -> None:
    validate.integer(n_clusters=n_clusters, n_init=n_init, max_iter=max_iter)
    validate.non_negative(tol=tol)
    validate.shape_2d(x=x)
    validate.at_most(x.shape[0], "the rows of x", n_clusters=n_clusters)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5, 6))
def _cluster(
    key: Array, x: Array, n_clusters: int, sample_size: int, n_init: int, max_iter: int, tol: float
) -> Clustering:
    z = _finite(x)[0]
    n = z.shape[0]
    draws = _draws(key, n, n_clusters, n_init, z.dtype)
    fit = _kmeans(x, draws.firsts, draws.thresholds, max_iter, tol)
    rows = jnp.argsort(draws.words)[:sample_size] if n > sample_size else jnp.arange(n)
    score, n_found = _silhouette(z[rows], fit.labels[rows], n_clusters)
    is_finite = (fit.status & Status.NON_FINITE) == 0
    status = fit.status | _flags(n_found < 2, Status.DEGENERATE)
    return Clustering(jnp.where(is_finite, score, jnp.nan), fit.inertia, status)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _kmeans(x: Array, firsts: Array, thresholds: Array, max_iter: int, tol: float) -> KMeansFit:
    z, is_finite = _finite(x)
    center = z.mean(axis=0)
    starts = jax.vmap(lambda first, own: _plus_plus(z - center, first, own))(firsts, thresholds)
    fits = jax.vmap(lambda start: _lloyd(z - center, start, max_iter, tol))(starts)
    best = jnp.argmin(fits.inertia)
    fit = jax.tree.map(lambda leaf: leaf[best], fits)
    return _shown(fit._replace(centers=fit.centers + center), is_finite)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _lloyd_from(x: Array, start: Array, max_iter: int, tol: float) -> KMeansFit:
    z, is_finite = _finite(x)
    center = z.mean(axis=0)
    fit = _lloyd(z - center, jnp.asarray(start, z.dtype) - center, max_iter, tol)
    return _shown(fit._replace(centers=fit.centers + center), is_finite)


def _finite(x: Array) -> tuple[jax.Array, jax.Array]:
    """x in the dtype of computation, and whether it is finite; zeros if not, so that no loop meets a nan."""
    z = jnp.asarray(x, compute_dtype(x))
    is_finite = jnp.all(jnp.isfinite(z))
    return jnp.where(is_finite, z, 0), is_finite


def _shown(fit: KMeansFit, is_finite: jax.Array) -> KMeansFit:
    return fit._replace(
        inertia=jnp.where(is_finite, fit.inertia, jnp.nan),
        status=fit.status | _flags(~is_finite, Status.NON_FINITE),
    )


def _squares(x: jax.Array, centers: jax.Array) -> jax.Array:
    """Squared distances (n, k); x should be centred, or large means take the digits of small distances."""
    products = jnp.matmul(x, centers.T, precision=HIGHEST)
    return jnp.maximum(jnp.sum(x**2, axis=1)[:, None] - 2 * products + jnp.sum(centers**2, axis=1), 0)


def _plus_plus(x: jax.Array, first: jax.Array, thresholds: jax.Array) -> jax.Array:
    """Centres (k, d): each the best of a few records that were drawn by their squared distance to those before.

    A draw is the first record whose running sum of squared distances exceeds a threshold's share of the sum.
    """
    n, k = x.shape[0], thresholds.shape[0] + 1
    centers = jnp.zeros((k, x.shape[1]), x.dtype).at[0].set(x[first])
    nearest = _squares(x, x[first][None])[:, 0]

    def add(i: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        centers, nearest = carry
        # Where every record coincides with a centre all are as good.
        sums = jnp.cumsum(jnp.where(jnp.any(nearest > 0), nearest, 1))
        drawn = jnp.minimum(jnp.searchsorted(sums, thresholds[i - 1] * sums[-1], side="right"), n - 1)
        improved = jnp.minimum(nearest[:, None], _squares(x, x[drawn]))
        best = jnp.argmin(improved.sum(axis=0))
        return centers.at[i].set(x[drawn[best]]), improved[:, best]

    return jax.lax.fori_loop(1, k, add, (centers, nearest))[0]


def _lloyd(x: jax.Array, start: jax.Array, max_iter: int, tol: float) -> KMeansFit:
    k = start.shape[0]
    limit = tol * jnp.mean(jnp.var(x, axis=0))

    def assign(centers: jax.Array) -> jax.Array:
        # |x|^2 is the same for every centre, so the nearest is found without it.
        scores = jnp.sum(centers**2, axis=1) - 2 * jnp.matmul(x, centers.T, precision=HIGHEST)
        return jnp.argmin(scores, axis=1).astype(jnp.int32)

    def update(labels: jax.Array, centers: jax.Array) -> jax.Array:
        members = jax.nn.one_hot(labels, k, dtype=x.dtype)
        counts, sums = members.sum(axis=0), jnp.matmul(members.T, x, precision=HIGHEST)
        empty = counts == 0
        worst = jax.lax.top_k(jnp.sum((x - centers[labels]) ** 2, axis=1), k)[1]
        moved = worst[jnp.maximum(jnp.cumsum(empty) - 1, 0)]
        taken = jnp.where(empty[:, None], jax.nn.one_hot(labels[moved], k, dtype=x.dtype), 0)
        sums = jnp.where(empty[:, None], x[moved], sums - jnp.matmul(taken.T, x[moved], precision=HIGHEST))
        counts = jnp.where(empty, 1, counts - taken.sum(axis=0))
        # A cluster can lose its only record to an empty one; it stays where it was.
        return jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centers)

    def step(carry: tuple) -> tuple:
        centers, labels, n_iter, _ = carry
        moved = update(labels, centers)
        new_labels = assign(moved)
        is_done = jnp.all(new_labels == labels) | (jnp.sum((moved - centers) ** 2) <= limit)
        return moved, new_labels, n_iter + 1, is_done

    def goes_on(carry: tuple) -> jax.Array:
        return ~carry[3] & (carry[2] < max_iter)

    first = (start, assign(start), jnp.int32(0), jnp.bool_(False))
    centers, labels, n_iter, is_done = jax.lax.while_loop(goes_on, step, first)
    inertia = jnp.sum((x - centers[labels]) ** 2)
    return KMeansFit(centers, labels, inertia, n_iter, _flags(~is_done, Status.NOT_CONVERGED))


@functools.partial(jax.jit, static_argnums=2)
def _silhouette(x: jax.Array, labels: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The score, 0 where there is none, and how many clusters are inhabited."""
    n_found = jnp.sum(jnp.bincount(labels, length=k) > 0)
    if k < 2:
        return jnp.zeros((), x.dtype), n_found
    score = silhouette_of_distances(distances(x - x.mean(axis=0)), labels, k)
    return jnp.where(n_found < 2, 0, score), n_found

"""The weighted graph that UMAP embeds (its fuzzy simplicial set), its cross entropy, and its schedule; in JAX."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import curve_fit

from drjax.core.types import Array
from drjax.dr import metrics
from drjax.dr.bandwidth import bisect

MAX_STEPS = 64
TOLERANCE = 1e-5
MIN_SCALE = 1e-3
"""umap-learn's: steps of the search for a bandwidth, what its sum may miss, least bandwidth over the mean distance."""

NEWTON_STEPS = 3
NEAR = 1e-4
"""Steps after the search, for rows whose sum it has brought this near to its target."""

OFFSET = 1e-3
"""umap-learn's: added to the squared distance of a pair that repels itself."""

DEFAULT_EPOCHS = {True: 500, False: 200}
"""Epochs by whether there are at most 10,000 records."""


MOST_DENSE = 20_000
"""Records up to which all pairs are held at once where derivatives pass: 1.6 GB for an array of float32."""


class Neighbors(NamedTuple):
    """The k nearest records of every record, itself included, nearest first; those at equal distance by index.

    Attributes:
        indices: (n, k) int32.
        distances: (n, k).
    """

    indices: Any
    distances: Any


@functools.lru_cache(maxsize=64)
def fit_curve(spread: float, min_dist: float) -> tuple[float, float]:
    """a and b for which 1 / (1 + a d^(2 b)) is nearest to 1 below min_dist and exp(-(d - min_dist) / spread) beyond.

    Source: umap-learn 0.5 `find_ab_params`: least squares at 300 distances in [0, 3 spread].
    """
    distance = np.linspace(0, 3 * spread, 300)
    wanted = np.where(distance < min_dist, 1.0, np.exp(-(distance - min_dist) / spread))
    with np.errstate(divide="ignore"):  # the search may try b < 0, where the curve is 0 at distance 0
        a, b = curve_fit(lambda d, a, b: 1 / (1 + a * d ** (2 * b)), distance, wanted)[0]
    return float(a), float(b)


def n_epochs_of(n: int, n_epochs: int | None) -> tuple[int, int]:
    """Epochs that n records are given, and by which number of epochs the largest weight is divided to prune edges."""
    default = DEFAULT_EPOCHS[n <= 10_000]
    epochs = default if n_epochs is None else n_epochs
    return epochs, epochs if epochs > 10 else default


def nearest(x: Array, k: int, metric: str = metrics.EUCLIDEAN) -> Neighbors:
    """Exact neighbours among the rows of x (n, d); O(n^2 d). Distances are differentiable, the lists held fixed."""
    if metric != metrics.EUCLIDEAN:
        between = metrics.among_in_xla(metric, x)
        _, indices = jax.lax.top_k(-jax.lax.stop_gradient(between), k)
        return Neighbors(indices.astype(jnp.int32), jnp.take_along_axis(between, indices, axis=1))
    fixed = jax.lax.stop_gradient(x)
    # Distances to the power of two near the largest entry, whose squares stay in range, order as distances do.
    _, indices = jax.lax.top_k(-_squared_distances(fixed, fixed), k)
    differences = x[:, None] - x[indices]
    return Neighbors(indices.astype(jnp.int32), _norm(differences))


def with_target(known: Neighbors, row: Array) -> Neighbors:
    """Lists of [target; known] from those of the known records (n-1, k) and the target's distances to them (n-1,)."""
    m, k = known.distances.shape
    place = jnp.sum(known.distances < row[:, None], axis=1, keepdims=True)
    column = jnp.arange(k)

    def entered(old: Array, new: Array) -> Array:
        moved = jnp.concatenate([old[:, :1], old[:, :-1]], axis=1)
        return jnp.where(column < place, old, jnp.where(column == place, new, moved))

    own = jnp.concatenate([jnp.zeros(1, row.dtype), row])
    nearest_distances, nearest_indices = jax.lax.top_k(-own, k)
    indices = entered(known.indices + 1, jnp.zeros((m, 1), jnp.int32))
    return Neighbors(
        jnp.concatenate([nearest_indices.astype(jnp.int32)[None], indices]),
        jnp.concatenate([-nearest_distances[None], entered(known.distances, row[:, None])]),
    )


def memberships(neighbors: Neighbors, local_connectivity: float) -> Array:
    """Directed weights (n, k): 1 up to the distance rho of the nearest other record, then exp(-(d - rho) / sigma).

    sigma is such that the weights of a row sum to log2(k): found as umap-learn does, to 1e-5 of the sum, and then to
    rounding, so that the unit of the data has no effect. Differentiable in the distances, through rho and sigma.

    Args:
        neighbors: Neighbours of every record.
        local_connectivity: How many records other than its copies each is joined to with weight 1; need not be whole.

    Source: umap-learn 0.5 `smooth_knn_dist`, `compute_membership_strengths`.
    """
    distances = neighbors.distances
    n, k = distances.shape
    rho = _rho(distances, local_connectivity)
    beyond = jnp.maximum(distances - rho[:, None], 0)
    sigma = _bandwidth(beyond[:, 1:], math.log2(k))
    sigma = jnp.maximum(sigma, MIN_SCALE * jnp.mean(distances, axis=1))
    is_beyond = beyond > 0
    # Where all distances of a row vanish, sigma may too.
    scale = jnp.where(sigma > 0, sigma, 1)[:, None]
    weights = jnp.where(is_beyond, jnp.exp(-jnp.where(is_beyond, beyond, 0) / scale), 1)
    return jnp.where(neighbors.indices == jnp.arange(n)[:, None], 0, weights)


def fuzzy_union(indices: Array, weights: Array, mix: float) -> Array:
    """Symmetric weights (n, n) of directed ones (n, k): `mix` of the union p + q - p q, the rest of p q."""
    n = indices.shape[0]
    directed = jnp.zeros((n, n), weights.dtype).at[jnp.arange(n)[:, None], indices].add(weights)
    low, high = jnp.minimum(directed, directed.T), jnp.maximum(directed, directed.T)
    # p + q - p q in the form that is 1 where either is: an edge of the largest weight is due in every epoch.
    return mix * (high + low * (1 - high)) + (1 - mix) * (low * high)


def pruned(graph: Array, n_epochs: int) -> Array:
    """The graph (n, n) without the edges that would not be sampled once in n_epochs."""
    return jnp.where(graph < jnp.max(graph) / n_epochs, 0, graph)


def cross_entropy(coords: Array, graph: Array, a: float, b: float) -> Array:
    """Sum over pairs of p log(p / q) + (1 - p) log((1 - p) / (1 - q)), q = 1 / (1 + a d^(2 b)) in coords (n, k); ().

    In 1 - q the squared distance is `OFFSET` larger, as in the force that umap-learn's optimiser applies: finite where
    records coincide.
    """
    n = coords.shape[0]
    # A list of the pairs would be a constant of the program, 8 n^2 bytes even where this branch of it never runs.
    index = jnp.arange(n)
    is_pair = index[:, None] < index
    p = jnp.where(is_pair, graph, 0)
    square = jnp.sum((coords[:, None] - coords) ** 2, axis=-1)
    is_apart = square > 0
    power = jnp.where(is_apart, jnp.where(is_apart, square, 1) ** b, 0)
    attraction = p * jnp.log1p(a * power)
    repulsion = (1 - p) * jnp.log1p((square + OFFSET) ** -b / a)
    terms = jnp.where(is_pair, _x_log_x(p) + _x_log_x(1 - p) + attraction + repulsion, 0)
    return jnp.sum(jnp.sum(terms, axis=1))


def _x_log_x(x: Array) -> Array:
    is_positive = x > 0
    return jnp.where(is_positive, x * jnp.log(jnp.where(is_positive, x, 1)), 0)


def _rho(distances: Array, local_connectivity: float) -> Array:
    k = distances.shape[1]
    whole = math.floor(local_connectivity)
    part = local_connectivity - whole
    part = part if part > TOLERANCE else 0.0
    n_zero = jnp.sum(distances <= 0, axis=1)

    def non_zero(place: int) -> Array:
        """The place-th (from 1) distance of each row that is not 0; 0 if place is 0."""
        at = jnp.clip(n_zero + place - 1, 0, k - 1)
        found = jnp.take_along_axis(distances, at[:, None], axis=1)[:, 0]
        return found if place > 0 else jnp.zeros_like(found)

    below = non_zero(whole)
    wanted = below + part * (non_zero(whole + 1) - below) if part else below
    # The last is the largest, and 0 where all are.
    return jnp.where(k - n_zero >= local_connectivity, wanted, distances[:, -1])


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _bandwidth(beyond: Array, target: float) -> Array:
    """sigma (n,) at which sum_j exp(-beyond_ij / sigma_i) = target."""

    def missed(sigma: Array) -> Array:
        return jnp.sum(jnp.exp(-beyond / sigma[:, None]), axis=1) - target

    sigma = bisect(lambda s: missed(s) + target, target, beyond[:, 0], max_steps=MAX_STEPS, tol=TOLERANCE)
    # From within 1e-5 of the root, Newton doubles the digits each time. A row without a root stays where it is.
    for _ in range(NEWTON_STEPS):
        slope = jnp.sum(jnp.exp(-beyond / sigma[:, None]) * beyond, axis=1) / sigma**2
        error = missed(sigma)
        is_near = (jnp.abs(error) < NEAR) & (slope > 0)
        sigma = jnp.where(is_near, sigma - error / jnp.where(is_near, slope, 1), sigma)
    return sigma


@_bandwidth.defjvp
def _bandwidth_jvp(target: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (beyond,), (moved,) = primals, tangents
    sigma = _bandwidth(beyond, target)
    # The sum stays at the target: d sigma / sigma = sum(w d beyond) / sum(w beyond).
    weights = jnp.exp(-beyond / sigma[:, None])
    total = jnp.sum(weights * beyond, axis=1)
    share = jnp.sum(weights * moved, axis=1) / jnp.where(total > 0, total, 1)
    return sigma, jnp.where(total > 0, sigma * share, 0)


def _norm(differences: Array) -> Array:
    """Euclidean norm over the last axis, of any magnitude; derivative 0 at 0."""
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(differences), axis=-1))
    is_apart = largest > 0
    unit = jnp.where(is_apart, largest, 1)
    square = jnp.sum((differences / unit[..., None]) ** 2, axis=-1)
    return jnp.where(is_apart, unit * jnp.sqrt(jnp.where(is_apart, square, 1)), 0)


def distances_to(target: Array, known: Array, metric: str = metrics.EUCLIDEAN) -> Array:
    """(n-1,) distances of target (d,) to the rows of known (n-1, d)."""
    return _norm(target - known) if metric == metrics.EUCLIDEAN else metrics.in_xla(metric, target[None], known)[0]


def _squared_distances(a: Array, b: Array) -> Array:
    """Over the square of a power of two near the largest entry."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(b)))
    unit = jnp.ldexp(jnp.ones((), b.dtype), exponent - 1)
    return jnp.sum((a[:, None] / unit - b[None] / unit) ** 2, axis=-1)

"""UMAP on a CPU: graph, start and optimiser of each lane as compiled loops, lanes side by side on the cores.

Graph and start are computed in float64, the layout in the dtype of the data. A lane is a pure function of its data and
draws, so that an inserted record and a fit of all n give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.linalg import blas
from drjax.core.types import Array
from drjax.dr import metrics, neighbors
from drjax.dr.umap import layout_cpu, spectral_cpu
from drjax.dr.umap.graph import MAX_STEPS, MIN_SCALE, NEAR, NEWTON_STEPS, TOLERANCE

MANY = 2048
"""Records from which on a lane by itself is worth all cores."""


class Settings(NamedTuple):
    """Hyperparameters of one run, resolved for n records.

    Attributes:
        n_components, n_neighbors, n_epochs, negative_sample_rate: Counts; neighbours include the record itself.
        n_prune: Edges lighter than the heaviest over this are dropped.
        learning_rate, repulsion, a, b, mix, local_connectivity: Hyperparameters of `UMAP`.
        is_spectral: Else the start is uniform.
    """

    n_components: int
    n_neighbors: int
    n_epochs: int
    n_prune: int
    negative_sample_rate: int
    learning_rate: float
    repulsion: float
    a: float
    b: float
    mix: float
    local_connectivity: float
    is_spectral: bool


class Draws(NamedTuple):
    """What one run draws.

    Attributes:
        noise: (n, k) standard normal, added to a spectral start.
        places: (n, k) uniform in [-1, 1): a random start, or that of the records of a small component.
        centres: (n, k) uniform in [-1, 1): of components, if there are many.
        seed: (2,) uint32 words, of the negative samples.
    """

    noise: Any
    places: Any
    centres: Any
    seed: Any


class Run(NamedTuple):
    """What a lane, or several, returns.

    Attributes:
        coords: (..., n, k).
        objective: (...), the cross entropy at coords.
        values: (..., k + 2), largest eigenvalues of the normalised graph, decreasing; 0 where not computed.
        margin: (..., k), margin of the sign of each start column.
        n_parts, n_updates: (...), int32; components of the graph, attractive updates.
        spread: (...), the largest distance in a list: 0 if no record has a neighbour other than copies of it.
        n_missed: (...), int32, components whose eigenvectors were not found to the tolerance.
    """

    coords: Any
    objective: Any
    values: Any
    margin: Any
    n_parts: Any
    n_updates: Any
    spread: Any
    n_missed: Any


class Lists(NamedTuple):
    """Neighbours of each record, nearest first, those at equal distance by index, and directed weights; each (n, k)."""

    indices: Any
    distances: Any
    weights: Any


def lists_of(x: np.ndarray, n_neighbors: int, local_connectivity: float, metric: str = metrics.EUCLIDEAN) -> Lists:
    """Lists of all rows of x (n, d), on all cores; O(n^2 d), nearly all of it in a matrix product, see `neighbors`."""
    x = metrics.prepared(metric, x)
    n = len(x)
    # A record stands in its own list at the place of its index among its copies: as umap-learn.
    others, apart = neighbors.nearest(metric, x, min(n_neighbors, n - 1))
    short = (0, 0), (0, n_neighbors - others.shape[1])
    indices, nearest = neighbors.with_self(np.pad(others, short), np.pad(apart, short, constant_values=np.inf))
    weights = np.empty_like(nearest)
    host.spread(lambda part: _weigh_all(part.start, part.stop, indices, nearest, local_connectivity, weights), n)
    return Lists(indices, nearest, weights)


def fit_lanes(settings: Settings, metric: str, x: Array, draws: Draws) -> Run:
    """The callback of a fit: x (..., n, d) and draws with the same leading axes, or with 1 in place of some."""
    points = np.asarray(x)
    lead = np.broadcast_shapes(points.shape[:-2], *_leads(draws))

    def lists(at: tuple[int, ...]) -> Lists | None:
        own = _at(points, lead, 2, at)
        if not np.all(np.isfinite(own)):
            return None
        return lists_of(own, settings.n_neighbors, settings.local_connectivity, metric)

    return _run_lanes(settings, lead, lists, draws, points.shape[-2], points.dtype)


def insert_lanes(settings: Settings, metric: str, known: Array, lists: Lists, targets: Array, draws: Draws) -> Run:
    """The callback of an insertion.

    Args:
        settings: Settings for n records.
        metric: Metric of the records.
        known: (..., n-1, d).
        lists: Lists of the known records, each (..., n-1, k); distances and weights as words, see `as_words`.
        targets: (..., d).
        draws: Draws as for a fit.
    """
    points, others = np.asarray(targets), np.asarray(known)
    dtype = points.dtype
    others = metrics.prepared(metric, others)
    base = Lists(np.asarray(lists.indices), *(from_words(np.asarray(words)) for words in lists[1:]))
    lead = np.broadcast_shapes(points.shape[:-1], others.shape[:-2], *(a.shape[:-2] for a in base), *_leads(draws))

    def inserted(at: tuple[int, ...]) -> Lists | None:
        target = np.ascontiguousarray(_at(points, lead, 1, at), np.float64)[None]
        if not np.all(np.isfinite(target)):
            return None
        row = metrics.apart(metric, metrics.prepared(metric, target), _at(others, lead, 2, at))[0]
        own = Lists(*(np.ascontiguousarray(_at(leaf, lead, 2, at)) for leaf in base))
        return Lists(*with_target(row, *own, settings.local_connectivity))

    return _run_lanes(settings, lead, inserted, draws, others.shape[-2] + 1, dtype)


def graph_of(settings: Settings, metric: str, x: np.ndarray) -> scipy.sparse.csr_array:
    """Weights (n, n) of the pairs that a map of x (n, d) draws together, in its type; O(n^2 d), memory O(n d)."""
    lists = lists_of(x, settings.n_neighbors, settings.local_connectivity, metric)
    head, tail, weight = _edges_of(lists, settings)[2]
    both = np.concatenate([head, tail]), np.concatenate([tail, head])
    return scipy.sparse.csr_array((np.tile(weight, 2).astype(x.dtype), both), shape=(len(x), len(x)))


def measured(settings: Settings, metric: str, coords: Array, x: Array) -> tuple[np.ndarray, np.ndarray]:
    """The callback of `Run.objective` and `Run.spread` of any coords (n, k) of x (n, d); nan where not finite."""
    points, own = np.asarray(coords), np.asarray(x)
    kind = points.dtype
    if not (np.isfinite(points).all() and np.isfinite(own).all()):
        return np.asarray(np.nan, kind), np.asarray(np.nan, kind)
    lists = lists_of(own, settings.n_neighbors, settings.local_connectivity, metric)
    union, first, _ = _edges_of(lists, settings)
    objective = layout_cpu.cross_entropy(points, lists.indices, union, first, settings.a, settings.b)
    return np.asarray(objective, kind), np.asarray(lists.distances.max(), kind)


def as_words(array: np.ndarray) -> np.ndarray:
    """A float64 array as 32-bit words, which JAX keeps whole with x64 off; the last axis doubles."""
    return np.ascontiguousarray(array, np.float64).view(np.uint32)


def from_words(words: np.ndarray) -> np.ndarray:
    """What `as_words` was given."""
    return np.ascontiguousarray(words).view(np.float64)


def _leads(draws: Draws) -> list[tuple[int, ...]]:
    return [np.shape(leaf)[: -1 if leaf is draws.seed else -2] for leaf in draws]


def _at(array: np.ndarray, lead: tuple[int, ...], rank: int, at: tuple[int, ...]) -> np.ndarray:
    """One lane's part of an array whose leading axes are broadcast to `lead`."""
    own = (1,) * (len(lead) - (array.ndim - rank)) + array.shape[: array.ndim - rank]
    array = array.reshape(*own, *array.shape[array.ndim - rank :])
    return array[tuple(i if size > 1 else 0 for i, size in zip(at, own, strict=True))]


def _run_lanes(settings: Settings, lead: tuple, lists: Any, draws: Draws, n: int, dtype: Any) -> Run:
    k = settings.n_components
    shapes = Run((n, k), (), (k + 2,), (k,), (), (), (), ())
    kinds = Run(dtype, dtype, dtype, dtype, np.int32, np.int32, dtype, np.int32)
    out = Run(*(np.zeros((*lead, *shape), kind) for shape, kind in zip(shapes, kinds, strict=True)))
    parts = Draws(*(np.asarray(leaf) for leaf in draws))
    everywhere = list(np.ndindex(lead))

    def lane(at: tuple[int, ...], found: Lists | None) -> None:
        own = Draws(*(_at(leaf, lead, rank, at) for leaf, rank in zip(parts, (2, 2, 2, 1), strict=True)))
        for whole, part in zip(out, _one(settings, found, own, n, dtype), strict=True):
            whole[at] = part

    def work(some: slice) -> None:
        for at in everywhere[some]:
            lane(at, lists(at))

    def one_core_each() -> Any:
        return blas().limit(limits=1, user_api="blas")

    with np.errstate(over="ignore"):
        if n < MANY or len(everywhere) >= host.n_cores():
            with one_core_each():
                host.spread(work, len(everywhere))
            return out
        for at in everywhere:
            found = lists(at)
            with one_core_each():
                lane(at, found)
    return out


def _one(settings: Settings, lists: Lists | None, draws: Draws, n: int, dtype: Any) -> Run:
    k = settings.n_components
    values, margin = np.zeros(k + 2), np.ones(k)
    bad = np.full((n, k), np.nan)
    n_missed = 0
    failed = Run(bad, np.nan, values, margin, 1, 0, 1.0, n_missed)
    if lists is None or not np.isfinite(lists.distances).all():
        return failed
    union, first, (head, tail, weight) = _edges_of(lists, settings)
    graph: tuple[np.ndarray, np.ndarray, np.ndarray] = spectral_cpu.adjacency(head, tail, weight, n)
    n_parts, label = spectral_cpu.components(*graph)
    noise, places, centres = (np.ascontiguousarray(leaf, np.float64) for leaf in draws[:3])
    if settings.is_spectral:
        tolerance = max(float(np.finfo(dtype).eps) / 8, 4 * n * float(np.finfo(np.float64).eps))
        start, values, margin, n_missed = spectral_cpu.spectral_start(
            *graph, n_parts, label, k, noise, places, centres, tolerance
        )
    else:
        start = 10 * places
    start = spectral_cpu.rescaled(start).astype(dtype)
    if not np.isfinite(start).all():
        return failed
    seed = np.uint64(draws.seed[0]) << np.uint64(32) | np.uint64(draws.seed[1])
    coords, n_updates = layout_cpu.optimise(start, head, tail, weight, seed, settings)
    objective = layout_cpu.cross_entropy(coords, lists.indices, union, first, settings.a, settings.b)
    return Run(coords, objective, values, margin, n_parts, n_updates, lists.distances.max(), n_missed)


def _edges_of(lists: Lists, settings: Settings) -> tuple[np.ndarray, np.ndarray, tuple]:
    """What `union_of` returns, and heads, tails and weights of the edges that are due in some epoch."""
    union, first = union_of(lists.indices, lists.weights, settings.mix)
    return union, first, _edges(lists.indices, union, first, union.max() / settings.n_prune)


@njit
def _weigh_all(low, high, indices, distances, local_connectivity, out):
    for i in range(low, high):
        _weigh(i, indices[i], distances[i], local_connectivity, out[i])


@njit
def _weigh(i, indices, distances, local_connectivity, out):
    """Directed weights of record i to its neighbours, see `graph.memberships`; overwrites out (k,)."""
    k = len(indices)
    n_zero = 0
    mean = 0.0
    for c in range(k):
        n_zero += distances[c] <= 0
        mean += distances[c]
    mean /= k
    if k - n_zero >= local_connectivity:
        whole = int(np.floor(local_connectivity))
        part = local_connectivity - whole
        rho = distances[n_zero + whole - 1] if whole > 0 else 0.0
        if part > TOLERANCE:
            rho += part * (distances[n_zero + whole] - rho)
    else:
        rho = distances[k - 1]
    target = np.log2(float(k))
    low, high, sigma = 0.0, np.inf, 1.0
    for _ in range(MAX_STEPS):
        total = 0.0
        for c in range(1, k):
            beyond = distances[c] - rho
            total += np.exp(-beyond / sigma) if beyond > 0 else 1.0
        if abs(total - target) <= TOLERANCE:
            break
        if total > target:
            high = sigma
        else:
            low = sigma
        sigma = 2 * sigma if high == np.inf else (low + high) / 2
    for _ in range(NEWTON_STEPS):
        total, slope = 0.0, 0.0
        for c in range(1, k):
            beyond = distances[c] - rho
            weight = np.exp(-beyond / sigma) if beyond > 0 else 1.0
            total += weight
            slope += weight * max(beyond, 0.0)
        if abs(total - target) < NEAR and slope > 0:
            sigma -= (total - target) * sigma * sigma / slope
    sigma = max(sigma, MIN_SCALE * mean)
    for c in range(k):
        beyond = distances[c] - rho
        if indices[c] == i:
            out[c] = 0.0
        elif beyond > 0:
            out[c] = np.exp(-beyond / sigma)
        else:
            out[c] = 1.0


@njit
def with_target(row, indices, distances, weights, local_connectivity):
    """Lists of [target; known]; only records into whose lists the target comes are weighed anew."""
    m, k = distances.shape
    new_indices, new_distances = np.empty((m + 1, k), np.int64), np.empty((m + 1, k))
    new_weights = np.empty((m + 1, k))
    own = np.zeros(m + 1)
    own[1:] = row
    order = np.argsort(own, kind="mergesort")[:k]
    for c in range(k):
        new_indices[0, c] = order[c]
        new_distances[0, c] = own[order[c]]
    _weigh(0, new_indices[0], new_distances[0], local_connectivity, new_weights[0])
    for i in range(m):
        place = neighbors.enter_first(row[i], indices[i], distances[i], new_indices[i + 1], new_distances[i + 1])
        if place < k:
            _weigh(i + 1, new_indices[i + 1], new_distances[i + 1], local_connectivity, new_weights[i + 1])
        else:
            new_weights[i + 1] = weights[i]
    return new_indices, new_distances, new_weights


@njit
def union_of(indices, weights, mix):
    """Symmetric weight of each listed pair (n, k), and whether this is the first time that the pair is listed."""
    n, k = indices.shape
    union = np.empty((n, k))
    first = np.empty((n, k), np.bool_)
    for i in range(n):
        for c in range(k):
            j = indices[i, c]
            back, listed = 0.0, False
            for e in range(k):
                if indices[j, e] == i:
                    back, listed = weights[j, e], True
            low, high = min(weights[i, c], back), max(weights[i, c], back)
            # p + q - p q in the form that is 1 where either is: an edge of the largest weight is due in every epoch.
            union[i, c] = mix * (high + low * (1 - high)) + (1 - mix) * (low * high)
            first[i, c] = i != j and (i < j or not listed)
    return union, first


@njit
def _edges(indices, union, first, least):
    """Pairs whose weight is at least `least` and above 0, each once."""
    n, k = indices.shape
    head, tail, weight = np.empty(n * k, np.int64), np.empty(n * k, np.int64), np.empty(n * k)
    count = 0
    for i in range(n):
        for c in range(k):
            if first[i, c] and union[i, c] > 0 and not union[i, c] < least:
                head[count], tail[count], weight[count] = i, indices[i, c], union[i, c]
                count += 1
    return head[:count], tail[:count], weight[:count]

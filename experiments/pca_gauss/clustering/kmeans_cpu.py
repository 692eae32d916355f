"""K-means and its silhouette on a CPU: one compiled loop per data set, data sets side by side on the cores.

Follows `kmeans` step by step, from the same draws, and equals it up to rounding. XLA writes every one-hot
matrix and every distance to memory, and all data sets of a batch wait for the slowest. Here records stand in blocks,
feature by feature, so that products with three centres at a time fill the vector units; sums of clusters change only by
the records that moved; and the search for badly served records waits until a cluster is empty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from drjax.core import host
from experiments.pca_gauss.clustering.blocks_cpu import (
    LANES,
    TILE,
    jit,
    n_blocks,
    n_padded,
    pack,
    score_tile,
    sum_of_squares,
    weigh,
)
from experiments.pca_gauss.clustering.silhouette_cpu import silhouette


class Settings(NamedTuple):
    """Arguments of `kmeans.cluster`."""

    n_clusters: int
    sample_size: int
    max_iter: int
    tol: float


class Scratch(NamedTuple):
    """What a core works in; `blocks` are the records less their mean.

    Attributes:
        blocks: (n / LANES rounded up, d, LANES), zeros after the last record.
        labels, best_labels: (blocks, LANES) int32; those of the best start so far.
        nearest, squares: (blocks, LANES): squared distances to the nearest centre, and norms.
        scores: (blocks, t rounded up to a multiple of TILE, LANES): of the t candidates for a start.
        centers, moved, best_centers: (k, d).
        weights: (k rounded up to a multiple of TILE, d): -2 times the centres.
        norms: (as many,): squares of the centres; infinite after the last.
        sums, counts: (k, d) float64 and (k,) int64, of the records of each cluster.
    """

    blocks: np.ndarray
    labels: np.ndarray
    best_labels: np.ndarray
    nearest: np.ndarray
    squares: np.ndarray
    scores: np.ndarray
    centers: np.ndarray
    moved: np.ndarray
    best_centers: np.ndarray
    weights: np.ndarray
    norms: np.ndarray
    sums: np.ndarray
    counts: np.ndarray


class Run(NamedTuple):
    """One run of Lloyd's iterations: (k, d), (n,) int32, and what `kmeans.KMeansFit` says."""

    centers: np.ndarray
    labels: np.ndarray
    inertia: float
    n_iter: int
    is_done: bool


def cluster_sets(
    x: np.ndarray, firsts: np.ndarray, thresholds: np.ndarray, words: np.ndarray, settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """k-means and silhouette of each of m finite data sets.

    Args:
        x: (m, n, d), float32 or float64; sets with entries that are not finite are left out.
        firsts: (m, n_init) int32 in [0, n): the first centre of each start.
        thresholds: (m, n_init, k - 1, t) in [0, 1): where each candidate for the next centre is drawn.
        words: (m, n) uint32: the records of the smallest are the sample.
        settings: See there.

    Returns:
        Silhouette (m,) and inertia (m,) in the dtype of x, nan for sets that were left out; int32, how many clusters
        the sample inhabits (m,), 1 for those; whether the best run stopped before the cap (m,).
    """
    m, n, d = x.shape
    silhouettes, inertias = np.full(m, math.nan, x.dtype), np.full(m, math.nan, x.dtype)
    n_found, is_done = np.ones(m, np.int32), np.ones(m, np.bool_)

    def work(part: slice) -> None:
        room = scratch(n, d, settings.n_clusters, thresholds.shape[3], x.dtype)
        for i in range(part.start, part.stop):
            # Copies: numba would compile everything once more for the read-only arrays that JAX passes.
            own, *draws = (np.array(each[i]) for each in (x, firsts, thresholds, words))
            if np.isfinite(own).all():
                silhouettes[i], inertias[i], n_found[i], is_done[i] = _cluster(own, *draws, settings, room)

    host.spread(work, m)
    return silhouettes, inertias, n_found, is_done


def lloyd(x: np.ndarray, start: np.ndarray, *, max_iter: int = 300, tol: float = 1e-4) -> Run:
    """`kmeans.lloyd` of finite records x (n, d) from centres (k, d) of the same dtype."""
    x, (n, d) = np.ascontiguousarray(x), x.shape
    room = scratch(n, d, len(start), 1, x.dtype)
    center = pack(x, room.blocks, room.squares)
    room.centers[:] = start - center
    n_iter, is_done = _lloyd(x, center, tol * sum_of_squares(room.blocks) / x.size, max_iter, room)
    inertia = _inertia(x, center, room.centers, room.labels)
    return Run(room.centers + center, room.labels.ravel()[:n].copy(), inertia, n_iter, is_done)


def scratch(n: int, d: int, k: int, n_trials: int, dtype: np.dtype) -> Scratch:
    """Room for n records, k clusters and n_trials candidates."""
    lanes, n_weights = (n_blocks(n), LANES), n_padded(max(k, n_trials))
    return Scratch(
        blocks=np.empty((n_blocks(n), d, LANES), dtype),
        labels=np.empty(lanes, np.int32),
        best_labels=np.empty(lanes, np.int32),
        nearest=np.empty(lanes, dtype),
        squares=np.empty(lanes, dtype),
        scores=np.empty((n_blocks(n), n_padded(n_trials), LANES), dtype),
        centers=np.empty((k, d), dtype),
        moved=np.empty((k, d), dtype),
        best_centers=np.empty((k, d), dtype),
        weights=np.empty((n_weights, d), dtype),
        norms=np.empty(n_weights, dtype),
        sums=np.empty((k, d)),
        counts=np.empty(k, np.int64),
    )


@jit()
def _cluster(x, firsts, thresholds, words, settings, room):
    center = pack(x, room.blocks, room.squares)
    total = sum_of_squares(room.blocks)
    best, was_done = np.inf, True
    for r in range(firsts.shape[0]):
        plus_plus(x, center, firsts[r], thresholds[r], room)
        _, is_done = _lloyd(x, center, settings.tol * total / x.size, settings.max_iter, room)
        # Good enough to tell runs apart, and without another pass over the records.
        inertia = total
        for c in range(room.centers.shape[0]):
            for f in range(x.shape[1]):
                value = np.float64(room.centers[c, f])
                inertia += value * (room.counts[c] * value - 2 * room.sums[c, f])
        if inertia < best:
            best, was_done = inertia, is_done
            room.best_labels[:] = room.labels
            room.best_centers[:] = room.centers
    score, n_found = silhouette(x, room.best_labels, words, settings.sample_size, settings.n_clusters)
    return score, _inertia(x, center, room.best_centers, room.best_labels), n_found, was_done


@jit()
def plus_plus(x, center, first, thresholds, room):
    """Fills in the centres of a start: each the best of a few records drawn by their distance to those before."""
    n, d = x.shape
    n_trials = thresholds.shape[1]
    parts = np.empty(len(room.blocks))
    candidates = np.empty((n_trials, d), x.dtype)
    drawn = np.empty(n_trials, np.int64)
    potentials = np.empty(n_trials)
    room.nearest[:] = np.inf
    for b in range(len(room.blocks)):
        for j in range(n - b * LANES, LANES):
            room.nearest[b, j] = 0
    for i in range(room.centers.shape[0]):
        n_drawn = n_trials
        if i == 0:
            n_drawn = 1
            drawn[0] = first
        else:
            _draw(room.nearest, parts, thresholds[i - 1], n, drawn)
        for t in range(n_drawn):
            for f in range(d):
                candidates[t, f] = x[drawn[t], f] - center[f]
        weigh(candidates[:n_drawn], room.weights, room.norms)
        potentials[:] = 0
        for b in range(len(room.blocks)):
            for c in range(0, n_drawn, TILE):
                score_tile(room.blocks, b, room.weights, room.norms, c, room.scores[b, c:])
            for t in range(n_drawn):
                part = x.dtype.type(0)
                for j in range(LANES):
                    square = room.scores[b, t, j] + room.squares[b, j]
                    square = square if square > 0 else x.dtype.type(0)
                    square = square if square < room.nearest[b, j] else room.nearest[b, j]
                    room.scores[b, t, j] = square
                    part += square
                potentials[t] += part
        best = np.argmin(potentials[:n_drawn])
        for f in range(d):
            room.centers[i, f] = candidates[best, f]
        for b in range(len(room.blocks)):
            part = x.dtype.type(0)
            for j in range(LANES):
                room.nearest[b, j] = room.scores[b, best, j]
                part += room.nearest[b, j]
            parts[b] = part


@jit()
def _draw(nearest, parts, thresholds, n, drawn):
    """Fills in records: the first whose running sum of squared distances exceeds each threshold's share of the sum."""
    total = parts.sum()
    for t in range(len(drawn)):
        if not total > 0:
            drawn[t] = min(int(thresholds[t] * n), n - 1)
            continue
        rest = thresholds[t] * total
        b = 0
        while b < len(parts) - 1 and parts[b] <= rest:
            rest -= parts[b]
            b += 1
        last = min(LANES, n - b * LANES) - 1
        j = 0
        while j < last and nearest[b, j] <= rest:
            rest -= nearest[b, j]
            j += 1
        drawn[t] = b * LANES + j


@jit()
def _assign(x, center, centers, room, is_first):
    """Gives every record its nearest centre, and the clusters their sums; returns whether any record moved."""
    n, d = x.shape
    k = centers.shape[0]
    weigh(centers, room.weights, room.norms)
    scores = np.empty((TILE, LANES), x.dtype)
    best, labels = np.empty(LANES, x.dtype), np.empty(LANES, np.int32)
    has_moved = is_first
    if is_first:
        room.sums[:] = 0
        room.counts[:] = 0
    for b in range(len(room.blocks)):
        best[:] = np.inf
        labels[:] = 0
        for c in range(0, k, TILE):
            score_tile(room.blocks, b, room.weights, room.norms, c, scores)
            for j in range(LANES):
                least, label = best[j], labels[j]
                label = np.int32(c) if scores[0, j] < least else label
                least = scores[0, j] if scores[0, j] < least else least
                label = np.int32(c + 1) if scores[1, j] < least else label
                least = scores[1, j] if scores[1, j] < least else least
                label = np.int32(c + 2) if scores[2, j] < least else label
                least = scores[2, j] if scores[2, j] < least else least
                best[j], labels[j] = least, label
        size = min(LANES, n - b * LANES)
        if not is_first:
            differ = np.int32(0)
            for j in range(size):
                differ |= labels[j] ^ room.labels[b, j]
            if differ == 0:
                continue
            has_moved = True
        for j in range(size):
            new, old = labels[j], room.labels[b, j]
            if is_first or new != old:
                room.labels[b, j] = new
                room.counts[new] += 1
                for f in range(d):
                    room.sums[new, f] += x[b * LANES + j, f] - center[f]
                if not is_first:
                    room.counts[old] -= 1
                    for f in range(d):
                        room.sums[old, f] -= x[b * LANES + j, f] - center[f]
    return has_moved


@jit()
def _lloyd(x, center, limit, max_iter, room):
    """Lloyd's iterations from `room.centers`, which end as the last ones; how many, and whether it stopped."""
    k, d = room.centers.shape
    _assign(x, center, room.centers, room, True)
    n_iter, is_done = 0, False
    while n_iter < max_iter and not is_done:
        is_any_empty = False
        for c in range(k):
            if room.counts[c] == 0:
                is_any_empty = True
        if is_any_empty:
            _move_empty(x, center, room)
        else:
            for c in range(k):
                for f in range(d):
                    room.moved[c, f] = room.sums[c, f] / room.counts[c]
        shift = 0.0
        for c in range(k):
            for f in range(d):
                shift += (room.moved[c, f] - room.centers[c, f]) ** 2
                room.centers[c, f] = room.moved[c, f]
        has_moved = _assign(x, center, room.centers, room, False)
        is_done = not has_moved or shift <= limit
        n_iter += 1
    return n_iter, is_done


@jit()
def _inertia(x, center, centers, labels):
    total = 0.0
    for i in range(x.shape[0]):
        total += _square(x, center, centers[labels[i // LANES, i % LANES]], i)
    return total


@jit()
def _square(x, center, own, i):
    total = x.dtype.type(0)
    for f in range(x.shape[1]):
        total += (x[i, f] - center[f] - own[f]) ** 2
    return total


@jit()
def _move_empty(x, center, room):
    """`room.moved` where clusters are empty: each takes the record that is worst served by the centre it has."""
    k, d = room.centers.shape
    squares = np.empty(x.shape[0], x.dtype)
    for i in range(x.shape[0]):
        squares[i] = _square(x, center, room.centers[room.labels[i // LANES, i % LANES]], i)
    sums, counts = room.sums.copy(), room.counts.copy()
    for c in range(k):
        if room.counts[c] == 0:
            worst = np.argmax(squares)
            squares[worst] = -1
            old = room.labels[worst // LANES, worst % LANES]
            counts[old] -= 1
            counts[c] = 1
            for f in range(d):
                value = x[worst, f] - center[f]
                sums[old, f] -= value
                sums[c, f] = value
    for c in range(k):
        for f in range(d):
            # A cluster can lose its only record to an empty one; it stays where it was.
            room.moved[c, f] = sums[c, f] / counts[c] if counts[c] > 0 else room.centers[c, f]

"""The silhouette of clusters on a CPU, as one compiled loop; nothing of the size of all distances is kept."""

from __future__ import annotations

import math

import numpy as np

from experiments.pca_gauss.clustering.blocks_cpu import LANES, TILE, jit, n_blocks, pack, score_tile, weigh


@jit()
def silhouette(x, labels, words, sample_size, k):
    """Of the records with the smallest words, and how many clusters they inhabit."""
    n, d = x.shape
    rows = np.arange(n)
    if n > sample_size:
        keyed = np.empty(n, np.uint64)
        for i in range(n):
            keyed[i] = (np.uint64(words[i]) << np.uint64(32)) | np.uint64(i)
        smallest = np.partition(keyed, sample_size - 1)[:sample_size]
        rows = (smallest & np.uint64(2**32 - 1)).astype(np.int64)
    s = len(rows)
    # By cluster, so that a sum over one goes over neighbours in memory.
    ends = np.zeros(k + 1, np.int64)
    for i in rows:
        ends[labels[i // LANES, i % LANES] + 1] += 1
    n_found = np.sum(ends > 0)
    for c in range(k):
        ends[c + 1] += ends[c]
    filled = ends[:-1].copy()
    chosen = np.empty((s, d), x.dtype)
    for i in rows:
        c = labels[i // LANES, i % LANES]
        for f in range(d):
            chosen[filled[c], f] = x[i, f]
        filled[c] += 1
    if n_found < 2:
        return 0.0, n_found
    sums = _sums(chosen, ends)
    total = 0.0
    for c in range(k):
        count = ends[c + 1] - ends[c]
        if count < 2:
            continue
        for i in range(ends[c], ends[c + 1]):
            own = sums[c, i // LANES, i % LANES] / (count - 1)
            other = x.dtype.type(np.inf)
            for o in range(k):
                if o != c and ends[o + 1] > ends[o]:
                    other = min(other, sums[o, i // LANES, i % LANES] / (ends[o + 1] - ends[o]))
            widest = max(own, other)
            if widest > 0:
                total += (other - own) / widest
    return total / s, n_found


@jit()
def _sums(x, ends):
    """Sums of the distances of every record, (k, blocks, LANES), to those of each cluster: x[ends[c]:ends[c + 1]]."""
    (s, d), k = x.shape, len(ends) - 1
    blocks, squares = np.empty((n_blocks(s), d, LANES), x.dtype), np.empty((n_blocks(s), LANES), x.dtype)
    center = pack(x, blocks, squares)
    sums, scores = np.zeros((k, len(blocks), LANES), x.dtype), np.empty((TILE, LANES), x.dtype)
    weights, norms, tile = np.empty((TILE, d), x.dtype), np.empty(TILE, x.dtype), np.empty((TILE, d), x.dtype)
    for c in range(k):
        for low in range(ends[c], ends[c + 1], TILE):
            size = min(TILE, ends[c + 1] - low)
            for r in range(size):
                for f in range(d):
                    tile[r, f] = x[low + r, f] - center[f]
            weigh(tile[:size], weights, norms)
            for r in range(size, TILE):
                norms[r] = -np.inf  # at no distance from anything
            for b in range(len(blocks)):
                score_tile(blocks, b, weights, norms, 0, scores)
                for r in range(size):
                    if b * LANES <= low + r < (b + 1) * LANES:
                        scores[r, low + r - b * LANES] = -np.inf
                for j in range(LANES):
                    sums[c, b, j] += (
                        _root(scores[0, j] + squares[b, j])
                        + _root(scores[1, j] + squares[b, j])
                        + _root(scores[2, j] + squares[b, j])
                    )
    return sums


@jit()
def _root(square):
    return math.sqrt(square if square > 0 else type(square)(0))

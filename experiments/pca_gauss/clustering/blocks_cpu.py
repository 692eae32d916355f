"""Records in blocks, feature by feature, so that products with centres fill the vector units of a CPU."""

from __future__ import annotations

import functools

import numpy as np

from drjax.core.compiled import njit

LANES = 256
"""Records of a block: one loop goes over them, so there must be enough to pay for its start."""

TILE = 3
"""Centres that a loop takes at once; `score_tile` is written out for them."""

# Nothing here is nan, but bounds are infinite.
jit = functools.partial(njit, fastmath={"contract", "nnan", "nsz", "reassoc"})


@jit()
def n_blocks(n):
    """Blocks of n records."""
    return -(-n // LANES)


@jit()
def n_padded(k):
    """k centres, rounded up to whole tiles."""
    return TILE * -(-k // TILE)


@jit()
def pack(x, blocks, squares):
    """Fills in the records less their mean, and their squares; returns the mean."""
    n, d = x.shape
    total = np.zeros(d)
    for i in range(n):
        for f in range(d):
            total[f] += x[i, f]
    center = np.empty(d, x.dtype)
    for f in range(d):
        center[f] = total[f] / n
    for b in range(blocks.shape[0]):
        size = min(LANES, n - b * LANES)
        for j in range(LANES):
            squares[b, j] = 0
        for f in range(d):
            for j in range(size):
                blocks[b, f, j] = x[b * LANES + j, f] - center[f]
            for j in range(size, LANES):
                blocks[b, f, j] = 0
            for j in range(LANES):
                squares[b, j] += blocks[b, f, j] ** 2
    return center


@jit()
def sum_of_squares(blocks):
    """Of all entries, in float64."""
    total = 0.0
    for b in range(blocks.shape[0]):
        for f in range(blocks.shape[1]):
            for j in range(LANES):
                total += np.float64(blocks[b, f, j]) ** 2
    return total


@jit()
def weigh(centers, weights, norms):
    """What `score_tile` takes of centres: the score of x is |c|^2 - 2 <x, c>, and infinite after the last centre."""
    k, d = centers.shape
    for c in range(weights.shape[0]):
        norms[c] = np.inf
        if c < k:
            norm = centers.dtype.type(0)
            for f in range(d):
                weights[c, f] = -2 * centers[c, f]
                norm += centers[c, f] ** 2
            norms[c] = norm
        else:
            for f in range(d):
                weights[c, f] = 0


@jit()
def score_tile(blocks, b, weights, norms, c, out):
    """Scores (TILE, LANES) of the records of block b for centres c to c + TILE - 1; |x|^2 is the caller's to add."""
    d = blocks.shape[1]
    rest = d % 4
    for f in range(rest):
        u0, v0, w0 = weights[c, f], weights[c + 1, f], weights[c + 2, f]
        if f == 0:
            norm0, norm1, norm2 = norms[c], norms[c + 1], norms[c + 2]
            for j in range(LANES):
                x0 = blocks[b, f, j]
                out[0, j], out[1, j], out[2, j] = norm0 + u0 * x0, norm1 + v0 * x0, norm2 + w0 * x0
        else:
            for j in range(LANES):
                x0 = blocks[b, f, j]
                out[0, j] += u0 * x0
                out[1, j] += v0 * x0
                out[2, j] += w0 * x0
    if rest == 0:
        for r in range(TILE):
            out[r] = norms[c + r]
    # Four features in a loop, because each loop reads and writes the scores once.
    for f in range(rest, d, 4):
        u0, u1, u2, u3 = weights[c, f], weights[c, f + 1], weights[c, f + 2], weights[c, f + 3]
        v0, v1, v2, v3 = weights[c + 1, f], weights[c + 1, f + 1], weights[c + 1, f + 2], weights[c + 1, f + 3]
        w0, w1, w2, w3 = weights[c + 2, f], weights[c + 2, f + 1], weights[c + 2, f + 2], weights[c + 2, f + 3]
        for j in range(LANES):
            x0, x1, x2, x3 = blocks[b, f, j], blocks[b, f + 1, j], blocks[b, f + 2, j], blocks[b, f + 3, j]
            out[0, j] += u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3
            out[1, j] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3
            out[2, j] += w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3

"""Forces on the points of a t-SNE map under given affinities; compiled."""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit

STEPS = 60
"""Steps of the search for a bandwidth, at most."""

CLOSE = 1e-5
"""Nats within which the entropy of a record's affinities is met, as in the libraries."""


@njit
def _shares(squared, perplexity, out):
    """Writes the affinities of one record to neighbours at squared distances (m,), nearest first, to `out`."""
    m = squared.shape[0]
    wanted, shift = np.log(perplexity), squared[0]
    spread = squared[min(m - 1, int(perplexity))] - shift
    beta = 1.0 / spread if spread > 0 else 1.0
    low, high, total = 0.0, np.inf, 1.0
    for _ in range(STEPS):
        total, moment, second = 0.0, 0.0, 0.0
        for j in range(m):
            s = squared[j] - shift
            weight = np.exp(-beta * s)
            out[j] = weight
            total += weight
            moment += weight * s
            second += weight * s * s
        mean = moment / total
        error = np.log(total) + beta * mean - wanted
        if abs(error) <= CLOSE:
            break
        if error > 0:
            low = beta
        else:
            high = beta
        # Newton's step in the logarithm of the precision, kept between the bounds.
        slope = -beta * beta * (second / total - mean * mean)
        guess = beta * np.exp(min(max(-error / slope, -2.0), 2.0)) if slope < 0 else 2.0 * beta
        if guess <= low or guess >= high:
            guess = 2.0 * beta if high == np.inf else (low + high) / 2
        beta = guess
    for j in range(m):
        out[j] /= total


@njit
def attraction(ordered, order, perplexity, n_kept, coords):
    """Attraction on each point (n, k), with affinities to the `n_kept` nearest of each record.

    Args: distances to the others, nearest first, (n, n-1), whose they are, the perplexity, and the map (n, k).
    """
    n, k = coords.shape
    freedom = max(k - 1.0, 1.0)
    force = np.zeros((n, k))
    squared, row = np.empty(n_kept), np.empty(n_kept)
    for i in range(n):
        for j in range(n_kept):
            squared[j] = ordered[i, j] ** 2
        _shares(squared, perplexity, row)
        for j in range(n_kept):
            other, gap = order[i, j], 0.0
            for c in range(k):
                gap += (coords[i, c] - coords[other, c]) ** 2
            weight = row[j] / (2.0 * n) * (1.0 + gap / freedom) ** (-(freedom + 1.0) / 2.0)
            for c in range(k):
                pull = weight * (coords[i, c] - coords[other, c])
                force[i, c] += pull
                force[other, c] -= pull
    return force


@njit
def affinities(ordered, perplexity, n_kept):
    """(n, n_kept) affinities of each record to the nearest others, by distances to these (n, n-1), nearest first."""
    n = ordered.shape[0]
    found, squared = np.empty((n, n_kept)), np.empty(n_kept)
    for i in range(n):
        for j in range(n_kept):
            squared[j] = ordered[i, j] ** 2
        _shares(squared, perplexity, found[i])
    return found


@njit
def pull_and_push(shares, order, coords):
    """Attraction and exact repulsion on each point of a map (n, k), (n, k) each, from affinities (n, n_kept)."""
    n, k = coords.shape
    freedom = max(k - 1.0, 1.0)
    power = (freedom + 1.0) / 2.0
    pull, push, total = np.zeros((n, k)), np.zeros((n, k)), 0.0
    for i in range(n):
        for j in range(shares.shape[1]):
            other, gap = order[i, j], 0.0
            for c in range(k):
                gap += (coords[i, c] - coords[other, c]) ** 2
            weight = 1.0 / (1.0 + gap / freedom)
            if power != 1.0:
                weight **= power
            weight *= shares[i, j] / (2.0 * n)
            for c in range(k):
                own = weight * (coords[i, c] - coords[other, c])
                pull[i, c] += own
                pull[other, c] -= own
        for other in range(i):
            gap = 0.0
            for c in range(k):
                gap += (coords[i, c] - coords[other, c]) ** 2
            share = 1.0 / (1.0 + gap / freedom)
            if power != 1.0:
                share **= power
            total += 2.0 * share
            for c in range(k):
                own = share * share * (coords[i, c] - coords[other, c])
                push[i, c] += own
                push[other, c] -= own
    return pull, push / total

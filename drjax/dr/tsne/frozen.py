"""A record put into a fixed t-SNE map: the place where its own part of the divergence is least."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.core.types import Array
from drjax.dr import metrics, neighbors
from drjax.dr.tsne import near_affinities
from drjax.dr.tsne.affinity_cpu import gaussian

MOST_STEPS = 100
SHORTEST = 1e-6
"""Steps of the descent, at most, and the length of a step, as a share of the map's spread, at which it ends."""


class FrozenShared(NamedTuple):
    """What all shadows share. float64 arrays travel as pairs of 32-bit words.

    Attributes:
        known: (n-1, d).
        coords: (n-1, k), their map.
        gaussians: (n-1, 8), words of each known record's Gaussian: distance of its last neighbour, squared distance of
            its nearest, precision, and sum of its neighbours' weights.
        normaliser: (2,), words of the sum of the weights of all pairs in the map.
    """

    known: Array
    coords: Array
    gaussians: Array
    normaliser: Array


def prepared(metric: str, perplexity: float, known: np.ndarray, coords: np.ndarray) -> FrozenShared:
    """What known records (n-1, d) and their map (n-1, k) say about the place of one more; O(n^2 d)."""
    m = len(known)
    k = min(near_affinities.n_near(m + 1, perplexity), m - 1)
    _, distances = neighbors.nearest(metric, metrics.prepared(metric, known), k)
    probabilities, precisions = near_affinities.gaussians(distances, perplexity)
    shift = near_affinities.squares(distances[:, 0])
    # The nearest has the weight 1.
    gaussians = np.stack([distances[:, -1], shift, precisions, 1 / probabilities[:, 0]], axis=1)
    own = np.ascontiguousarray(coords, np.float64)
    sums = np.empty(m)

    def add_up(part: slice) -> None:
        _weights(own, part.start, part.stop, sums)

    host.spread(add_up, m)
    normaliser = np.array([sums.sum() - m])
    return FrozenShared(
        known=jnp.asarray(known),
        coords=jnp.asarray(coords),
        gaussians=jnp.asarray(np.ascontiguousarray(gaussians).view(np.uint32)),
        normaliser=jnp.asarray(normaliser.view(np.uint32)),
    )


def places(metric: str, perplexity: float, shared: FrozenShared, targets: Array) -> tuple[Array, ...]:
    """Places (b, k) of targets (b, d) in the map, their parts of the divergence (b,), steps, and whether they ended."""
    b, k = len(targets), shared.coords.shape[1]
    kinds = [((b, k), targets.dtype), ((b,), targets.dtype), ((b,), jnp.int32), ((b,), jnp.bool_)]
    like = tuple(jax.ShapeDtypeStruct(*kind) for kind in kinds)
    on_host = functools.partial(_places_mapped, metric, perplexity)
    return host.call(on_host, like, *shared, targets, vmap_method="sequential")


def _places_mapped(
    metric: str, perplexity: float, known: Array, coords: Array, gaussians: Array, normaliser: Array, targets: Array
) -> tuple[np.ndarray, ...]:
    points = np.asarray(targets)
    others = metrics.prepared(metric, np.asarray(known))
    where = np.array(coords, np.float64)
    around, total = np.array(gaussians).view(np.float64), float(np.array(normaliser).view(np.float64)[0])
    n = len(others) + 1
    k = near_affinities.n_near(n, perplexity)
    found: tuple[np.ndarray, ...] = (
        np.full((len(points), where.shape[1]), np.nan, points.dtype),
        np.full(len(points), np.nan, points.dtype),
        np.zeros(len(points), np.int32),
        np.zeros(len(points), np.bool_),
    )
    spread = float(np.linalg.norm(where.std(axis=0)))

    def place(part: slice) -> None:
        for i in range(part.start, part.stop):
            if not np.isfinite(points[i]).all():
                continue
            row = metrics.apart(metric, metrics.prepared(metric, points[i : i + 1]), others)[0]
            made = _place(row, k, math.log(perplexity), where, around, total, SHORTEST * spread)
            for leaf, value in zip(found, made, strict=True):
                leaf[i] = value

    host.spread(place, len(points))
    return found


@njit
def _weights(y, begin, end, sums):
    for i in range(begin, end):
        total = 0.0
        for j in range(y.shape[0]):
            square = 0.0
            for c in range(y.shape[1]):
                square += (y[i, c] - y[j, c]) ** 2
            total += 1.0 / (1.0 + square)
        sums[i] = total


@njit
def _place(row, k, target, y, gaussians, normaliser, shortest):
    """Place of a record at distances row (m,) to those of a map y (m, k); its divergence, steps, and whether it ended.

    Newton's steps where the divergence is convex, else steps to the minimum of a parabola above it; each is halved
    until the divergence falls.
    """
    m, dims = y.shape
    p = _joint_with_known(row, k, target, gaussians)
    at = np.zeros(dims)
    for i in range(m):
        for c in range(dims):
            at[c] += p[i] * y[i, c]
    at /= p.sum()
    value = _divergence(at, p, y, normaliser)
    for step in range(MOST_STEPS):
        slope, curvature, bound = _slopes(at, p, y, normaliser)
        move = np.linalg.solve(curvature, -slope) if np.linalg.eigvalsh(curvature)[0] > 0 else -slope / bound
        size = 1.0
        while True:
            new = _divergence(at + size * move, p, y, normaliser)
            if new <= value or size < 1e-6:
                break
            size /= 2
        at = at + size * move
        value = new
        if size * np.sqrt(np.sum(move**2)) <= shortest:
            return at, value, step + 1, True
    return at, value, MOST_STEPS, False


@njit
def _joint_with_known(row, k, target, gaussians):
    """Joint probabilities (m,) of the record with the known ones; n of them are the mean of the conditional ones."""
    m = row.shape[0]
    order = np.argsort(row, kind="mergesort")[:k]
    squared = row[order] ** 2
    precision, shift, total = gaussian(squared, target)
    p = np.zeros(m)
    for c in range(k):
        p[order[c]] = math.exp(-precision * (squared[c] - shift)) / total
    for i in range(m):
        if row[i] <= gaussians[i, 0]:
            weight = math.exp(-gaussians[i, 2] * (row[i] ** 2 - gaussians[i, 1]))
            # Nearer than the nearest by far: an overflow, and all of the probability.
            p[i] += weight / (gaussians[i, 3] + weight) if weight < math.inf else 1.0
    return p / (2 * (m + 1))


@njit
def _divergence(at, p, y, normaliser):
    logs, weights = 0.0, 0.0
    for i in range(y.shape[0]):
        u = 1.0
        for c in range(y.shape[1]):
            u += (at[c] - y[i, c]) ** 2
        weights += 1.0 / u
        if p[i] > 0:
            logs += p[i] * math.log(u)
    return 2.0 * logs + math.log(normaliser + 2.0 * weights)


@njit
def _slopes(at, p, y, normaliser):
    """Gradient and second derivatives of `_divergence`, and the curvature of a parabola above it."""
    m, dims = y.shape
    pull, push = np.zeros(dims), np.zeros(dims)
    pulled, pushed = np.zeros((dims, dims)), np.zeros((dims, dims))
    step = np.empty(dims)
    total, bound = normaliser, 0.0
    for i in range(m):
        u = 1.0
        for c in range(dims):
            step[c] = at[c] - y[i, c]
            u += step[c] * step[c]
        w = 1.0 / u
        total += 2.0 * w
        bound += p[i] * w
        for c in range(dims):
            pull[c] += p[i] * w * step[c]
            push[c] += w * w * step[c]
            pulled[c, c] += p[i] * w
            pushed[c, c] += w * w
            for e in range(dims):
                pulled[c, e] -= 2.0 * p[i] * w * w * step[c] * step[e]
                pushed[c, e] -= 4.0 * w * w * w * step[c] * step[e]
    return 4.0 * (pull - push / total), 4.0 * (pulled - pushed / total), 4.0 * bound

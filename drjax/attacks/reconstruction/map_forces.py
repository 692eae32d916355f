"""A t-SNE map of known records as attacks by its forces need it: affinities, repulsion, and how far it is from rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from drjax.attacks.reconstruction import barnes_hut
from drjax.attacks.reconstruction.within_map import reconstruct_within_map
from drjax.core.kernel_regression import squared_distances
from drjax.core.types import Array

AT_REST = 1.5
"""Standard deviation of a force over the median of its size: that of a Gaussian, about."""

DONE = 1e-9
"""Newton step, as a share of the precision, after which there is no other."""

FIRST_STEPS, FURTHER_STEPS = 30, 3
"""Newton steps to a bandwidth from anywhere, and from that of the same record without the target."""


class Map(NamedTuple):
    """What the attacks on all records of a map share.

    Attributes:
        x: (n, d) records.
        coords: (n, k).
        squared: (n, n) squared distances between records.
        conditional: (n, n) affinities of a record, the row, to the others.
        beta: (n,) their precision.
        push: (n, k) repulsion.
        noise: Standard deviation of a force.
        perplexity: Perplexity of the map.
        n_neighbors: Nearest records to which a record has an affinity; None for all.
        guess: (n, d) what the places of the others say of each.
    """

    x: np.ndarray
    coords: np.ndarray
    squared: np.ndarray
    conditional: np.ndarray
    beta: np.ndarray
    push: np.ndarray
    noise: float
    perplexity: float
    n_neighbors: int | None
    guess: np.ndarray


def bandwidth_step(xp: Any, shifted: Array, others: Array, beta: Array, perplexity: float) -> Any:
    """Newton step of precisions (...) toward the wanted entropy of squared distances (..., m); `xp`: JAX or NumPy."""
    weight = xp.where(others, xp.exp(-beta[..., None] * shifted), 0)
    total = xp.sum(weight, axis=-1)
    mean = xp.sum(weight * shifted, axis=-1) / total
    slope = -beta * (xp.sum(weight * shifted**2, axis=-1) / total - mean**2)
    off = xp.log(total) + beta * mean - np.log(perplexity)
    # Neighbours at one distance have the same entropy at every precision.
    return xp.clip(xp.where(slope < 0, -off / xp.where(slope < 0, slope, -1), 0), -0.7 * beta, 2 * beta)


def prepared(x: Array, coords: Array, perplexity: float) -> Map:
    """What the attacks on all records of a map (n, k) of records (n, d) share; O(n^2 d), and five n x n matrices.

    Of exact affinities, those to the nearest 3 perplexity + 1 of the Barnes-Hut algorithm, and these with its
    repulsion, the way is taken by which the records rest best.
    """
    x, coords = np.asarray(x, np.float64), np.asarray(coords, np.float64)
    squared = squared_distances(x - x.mean(axis=0))
    pull_sums, push = _repulsion(coords)
    n_neighbors = int(3 * perplexity + 1)
    ways: list[tuple[int | None, list[np.ndarray]]] = [(None, [push])]
    if n_neighbors < len(x) - 2:
        ways.append((n_neighbors, [push, push + barnes_hut.excess(coords)]))
    best: tuple[float, Any] = (np.inf, None)
    for way, pushes in ways:
        conditional, beta = conditional_affinities(squared, ~np.eye(len(x), dtype=bool), perplexity, way)
        pull = pull_sums((conditional + conditional.T) / (2 * len(x)))
        for own_push in pushes:
            force = pull - own_push
            size = float(np.median(np.linalg.norm(force, axis=1)))
            if size < best[0]:
                best = size, (way, own_push, conditional, beta, AT_REST * float(np.median(np.abs(force))))
    way, push, conditional, beta, noise = best[1]
    guess = reconstruct_within_map(x, coords).x
    return Map(x, coords, squared, conditional, beta, push, noise, perplexity, way, guess)


def conditional_affinities(
    squared: np.ndarray, others: np.ndarray, perplexity: float, n_neighbors: int | None, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Affinities (r, m) of the wanted perplexity of rows of squared distances (r, m), and their precision (r,)."""
    if n_neighbors is not None:
        far = np.where(others, squared, np.inf)
        others = others & (squared <= np.partition(far, n_neighbors - 1, axis=1)[:, n_neighbors - 1 : n_neighbors])
    shifted = np.where(others, squared - np.where(others, squared, np.inf).min(axis=1, keepdims=True), 0)
    beta = 1 / np.maximum(squared.mean(axis=1), np.finfo(float).tiny) if start is None else start
    for _ in range(FIRST_STEPS if start is None else FURTHER_STEPS):
        step = bandwidth_step(np, shifted, others, beta, perplexity)
        beta = beta + step
        if (np.abs(step) <= DONE * beta).all():
            break
    weight = np.where(others, np.exp(-beta[:, None] * shifted), 0)
    return weight / weight.sum(axis=1, keepdims=True), beta


def student_weights(squared: np.ndarray, k: int) -> np.ndarray:
    """Student's weights in a map of k components; see `equations.forces`."""
    freedom = max(k - 1, 1)
    return (1 + squared / freedom) ** (-(freedom + 1) / 2)


def _repulsion(coords: np.ndarray) -> tuple[Any, np.ndarray]:
    """Function from joint affinities (n, n) to the attraction (n, k), and the repulsion (n, k)."""
    weight = student_weights(squared_distances(coords - coords.mean(axis=0)), coords.shape[1])
    np.fill_diagonal(weight, 0)

    def sums(joint: np.ndarray) -> np.ndarray:
        loaded = joint * weight
        return loaded.sum(axis=1)[:, None] * coords - loaded @ coords

    return sums, sums(weight / weight.sum())

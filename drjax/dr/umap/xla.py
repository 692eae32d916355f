"""UMAP in XLA: edge list, spectral start and a batched optimiser of the same schedule; for what is not a CPU."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from drjax.core.types import Array
from drjax.dr.umap.cpu import Draws, Run, Settings
from drjax.dr.umap.graph import OFFSET, Neighbors, cross_entropy, fuzzy_union, memberships, pruned
from drjax.dr.umap.layout_cpu import CLIP
from drjax.dr.umap.spectral_cpu import NOISE, SCALE


class Edges(NamedTuple):
    """Pairs of records, those of one list place together, so that no first end is twice in a row of `tail`.

    Attributes:
        tail: (k, n), int32; the first end of tail[c, i] is i.
        rate: (k, n), share of the epochs in which the pair is due; 0 for what is no edge or listed elsewhere.
    """

    tail: Array
    rate: Array


def run(settings: Settings, neighbors: Neighbors, draws: Draws, key: Array) -> Run:
    """One lane from its neighbour lists, which are finite; see `Run`.

    Differentiable in the distances for a fixed number of epochs, through the start: the schedule of an edge depends
    on its weight by steps.
    """
    indices = neighbors.indices
    weights = memberships(neighbors, settings.local_connectivity)
    graph = fuzzy_union(indices, weights, settings.mix)
    kept = pruned(graph, settings.n_prune)
    n_parts, label = _components(jax.lax.stop_gradient(kept) > 0)
    if settings.is_spectral:
        start, values, margin = _spectral_start(kept, n_parts, label, draws, settings.n_components)
    else:
        start = 10 * draws.places
        values = jnp.zeros(settings.n_components + 2, start.dtype)
        margin = jnp.ones(settings.n_components, start.dtype)
    low, high = jnp.min(start, axis=0), jnp.max(start, axis=0)
    start = SCALE * (start - low) / (high - low)
    edges = _edges(indices, jax.lax.stop_gradient(kept))
    coords, n_updates = layout(settings, edges, start, key)
    objective = cross_entropy(coords, graph, settings.a, settings.b)
    spread = jnp.max(neighbors.distances)
    return Run(coords, objective, values, margin, n_parts, n_updates, spread, jnp.int32(0))


def layout(settings: Settings, edges: Edges, start: Array, key: Array) -> tuple[Array, Array]:
    """The layout after all epochs, and the number of attractive updates.

    umap-learn's schedule: the same edges in the same epochs with as many negative samples. An epoch is 2 k steps in
    random order: for each place in the lists, one with the record as first end of its edge and one with it as second,
    for all records at once from the positions before the step. So a record sees the others' moves up to a step late.
    """
    n = start.shape[0]
    dtype = start.dtype
    n_places = edges.tail.shape[0]
    most = 2 * settings.negative_sample_rate
    a, b = settings.a, settings.b
    of_samples, of_order = jax.random.split(key)

    def force(coefficient: Array, difference: Array) -> Array:
        return jnp.clip(coefficient[..., None] * difference, -CLIP, CLIP)

    def step(state: tuple, inputs: tuple) -> tuple[tuple, None]:
        coords, n_updates = state
        place, reverse, epoch, alpha = inputs
        tail, rate = edges.tail[place], edges.rate[place]
        is_due, n_negative = _due(rate, epoch, settings.negative_sample_rate)
        own = jnp.arange(n)
        first, second = jnp.where(reverse, tail, own), jnp.where(reverse, own, tail)
        here, there = coords[first], coords[second]
        difference = here - there
        square = jnp.sum(difference**2, axis=-1)
        is_apart = square > 0
        safe = jnp.where(is_apart, square, 1)
        pull = jnp.where(is_due & is_apart, -2 * a * b * safe ** (b - 1) / (1 + a * safe**b), 0)
        move = alpha * force(pull, difference)
        moved = here + move
        if most:
            step_key = jax.random.fold_in(jax.random.fold_in(of_samples, epoch), 2 * place + reverse)
            others = jax.random.randint(step_key, (n, most), 0, n)
            # Where it stood a moment ago does not repel the record itself.
            is_drawn = (jnp.arange(most) < n_negative[:, None]) & (others != first[:, None])
            samples = coords[others]
            # One after the other, as umap-learn: the second of two near ones meets the record where the first drove it.
            for place_of_sample in range(most):
                difference = moved - samples[:, place_of_sample]
                square = jnp.sum(difference**2, axis=-1)
                power = jnp.where(square > 0, jnp.where(square > 0, square, 1) ** b, 0)
                push = 2 * settings.repulsion * b / ((OFFSET + square) * (1 + a * power))
                moved = moved + alpha * force(jnp.where(is_drawn[:, place_of_sample], push, 0), difference)
        coords = coords.at[first].add(moved - here).at[second].add(-move)
        return (coords, n_updates + jnp.sum(is_due, dtype=jnp.int32)), None

    def epoch_step(state: tuple, epoch: Array) -> tuple[tuple, None]:
        # As umap-learn: the first two epochs both have the full rate.
        passed = jnp.maximum(epoch - 1, 0).astype(dtype) / settings.n_epochs
        alpha = settings.learning_rate * (1 - passed)
        order = jax.random.permutation(jax.random.fold_in(of_order, epoch), 2 * n_places)
        inputs = (order // 2, order % 2, jnp.full_like(order, epoch), jnp.broadcast_to(alpha, order.shape))
        return jax.lax.scan(step, state, inputs)[0], None

    epochs = jnp.arange(settings.n_epochs, dtype=jnp.int32)
    (coords, n_updates), _ = jax.lax.scan(epoch_step, (start, jnp.int32(0)), epochs)
    return coords, n_updates


def _due(rate: Array, epoch: Array, n_negative: int) -> tuple[Array, Array]:
    """Whether edges of these rates (n,) are due in an epoch, and with how many negative samples.

    In closed form: due whenever floor(rate epoch) grows; floor(n_negative rate epoch) - 1 negatives by then.
    """
    before = jnp.floor(rate * (epoch - 1))
    count = jnp.floor(rate * epoch)
    is_due = (count > before) & (epoch > 0)
    last = jnp.ceil(before / jnp.where(rate > 0, rate, 1))
    drawn = jnp.where(before > 0, jnp.floor(n_negative * rate * last), 1)
    return is_due, jnp.where(is_due, jnp.floor(n_negative * rate * epoch) - drawn, 0)


def _edges(indices: Array, graph: Array) -> Edges:
    n = indices.shape[0]
    own = jnp.arange(n)[:, None]
    is_listed = jnp.zeros((n, n), bool).at[own, indices].set(True)
    is_first = (own != indices) & ((own < indices) | ~is_listed[indices, own])
    rate = jnp.where(is_first, graph[own, indices], 0) / jnp.max(graph)
    return Edges(indices.T, rate.T)


def _components(is_edge: Array) -> tuple[Array, Array]:
    """Number of components, int32, and each record's (n,), numbered by their lowest record."""
    n = is_edge.shape[0]
    own = jnp.arange(n, dtype=jnp.int32)

    def spread(state: tuple) -> tuple:
        label, _ = state
        lowest = jnp.minimum(label, jnp.min(jnp.where(is_edge, label[None], n), axis=1).astype(jnp.int32))
        lowest = jnp.minimum(lowest, lowest[lowest])
        return lowest, jnp.any(lowest != label)

    label, _ = jax.lax.while_loop(lambda state: state[1], spread, (own, jnp.bool_(True)))
    is_root = label == own
    return jnp.sum(is_root, dtype=jnp.int32), (jnp.cumsum(is_root) - 1)[label].astype(jnp.int32)


def _spectral_start(graph: Array, n_parts: Array, label: Array, draws: Draws, k: int) -> tuple[Array, Array, Array]:
    """`spectral_cpu.spectral_start`, by one decomposition for all components."""
    n, dtype = graph.shape[0], graph.dtype
    degree = jnp.sum(graph, axis=1)
    has_edges = degree > 0
    root = jnp.where(has_edges, jnp.sqrt(jnp.where(has_edges, degree, 1)), 1)
    # Each component's eigenvalues lie in [-1, 1]: moved apart by 3, they come component by component.
    matrix = graph / (root[:, None] * root) + jnp.diag(3 * label.astype(dtype))
    values, vectors = jnp.linalg.eigh(matrix)
    size = jnp.zeros(n, jnp.int32).at[label].add(1)
    end = jnp.cumsum(size)[label]
    columns = end[:, None] - 2 - jnp.arange(k)
    found = jnp.take_along_axis(vectors, jnp.maximum(columns, 0), axis=1)

    def of_part(reduce: str, part: Array) -> Array:
        return getattr(jnp.full((n, k), -jnp.inf, dtype).at[label], reduce)(part)

    top, bottom = of_part("max", jax.lax.stop_gradient(found)), of_part("max", jax.lax.stop_gradient(-found))
    found = found * jnp.where(top >= bottom, 1, -1)[label]
    margin = jnp.where(n_parts == 1, jnp.abs(top - bottom)[0], jnp.ones(k, dtype))
    coords = jnp.where(n_parts == 1, found, _by_component(found, size, n_parts, label, draws))
    coords = coords * (SCALE / jnp.max(jnp.abs(coords))) + NOISE * draws.noise
    leading = jnp.pad(values[::-1][: k + 2], (0, max(0, k + 2 - n)))
    return coords, jnp.where(n_parts == 1, leading, 0), margin


def _by_component(found: Array, size: Array, n_parts: Array, label: Array, draws: Draws) -> Array:
    n, k = found.shape
    dtype = found.dtype
    number = jnp.arange(n)
    half = (n_parts + 1) // 2
    axis = jnp.where(number < half, number, number - half)
    on_axes = jnp.where(number < half, 1, -1)[:, None] * (axis[:, None] == jnp.arange(k)).astype(dtype)
    middle = jnp.where(n_parts > 2 * k, draws.centres, on_axes)
    apart = jnp.sum((middle[:, None] - middle[None]) ** 2, axis=-1)
    is_other = (number < n_parts) & (number != number[:, None])
    nearest = jnp.min(jnp.where(is_other, apart, jnp.inf), axis=1)
    # A single component has no other: what is computed for it is dropped, and must be finite for its derivative to be.
    reach = (jnp.sqrt(jnp.where(jnp.isfinite(nearest), nearest, 1)) / 2)[label][:, None]
    largest = jnp.zeros(n, dtype).at[label].max(jnp.max(jnp.abs(found), axis=1))[label][:, None]
    is_small = ((size < 2 * k) | (size <= k + 1))[label][:, None]
    inside = jnp.where(is_small, draws.places, found / jnp.where(largest > 0, largest, 1))
    return middle[label] + reach * inside

"""Isomap of one more record by XLA: lanes share distances, neighbours and a start for their eigenvectors.

What a lane does alone: one row of distances, an edge taken from each record that adopts the target, the shortest paths,
and some rounds of subspace iteration.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from drjax.core.linalg import HIGHEST
from drjax.core.types import Array
from drjax.dr import metrics, principal
from drjax.dr.isomap import shortest_paths
from drjax.dr.isomap.cpu import IsomapShared, Spectrum

FEWEST = 64
"""Records below which a decomposition takes less than iterations."""

POWERS = 3
"""Products with the matrix between two Rayleigh-Ritz steps."""

MAX_ROUNDS = 12
"""Most Rayleigh-Ritz steps; a lane that needs more has its matrix decomposed."""


def insert(n_components: int, n_neighbors: int, metric: str, shared: IsomapShared, targets: Array) -> Spectrum:
    """The leading eigenpairs of [target; known] for targets (b, d); differentiable, the graph held fixed.

    O(n^3) each for the paths, in blocks that pass over memory n / 16 times.
    """
    known = shared.known
    is_finite = jnp.all(jnp.isfinite(targets), axis=1)
    targets = jnp.where(is_finite[:, None], targets, 0)
    has_unit = metrics.unit(metric) is not None
    unit = jax.vmap(principal.power_of_two)(targets) if has_unit else jnp.ones(len(targets), known.dtype)
    shared_unit = principal.power_of_two(known) if has_unit else jnp.ones((), known.dtype)
    unit = jnp.maximum(unit, shared_unit)
    rows, points = (metrics.prepared_in_xla(metric, x) for x in (known / shared_unit, targets / unit[:, None]))
    scale = shared_unit / unit  # powers of two: nothing is rounded
    away = jax.vmap(lambda point, by: metrics.apart_in_xla(metric, point[None], rows * by)[0])(points, scale)
    between = shortest_paths.all_distances(rows, metric)
    whole = jax.vmap(functools.partial(_bordered, 0.0))(away, between * scale[:, None, None])
    is_edge = _edges(shared.neighbors, n_neighbors, between, away, scale)
    paths, n_parts = _paths(whole, is_edge)
    gram = jax.vmap(principal.gram)(paths)
    count = min(n_components + 1, paths.shape[-1])
    values, vectors = leading_near(count, gram, shared.vectors)
    vectors = vectors[..., :n_components]
    scaled = vectors * jnp.sqrt(jnp.maximum(values[:, None, :n_components], 0))
    left = gram - jnp.einsum("bik,bjk->bij", scaled, scaled, precision=HIGHEST)
    return Spectrum(
        vectors=jnp.where(is_finite[:, None, None], vectors, jnp.nan),
        values=values,
        unit=unit,
        strain=jnp.sum(left**2, axis=(1, 2)),
        n_parts=n_parts,
        n_iter=jnp.zeros(len(targets), jnp.int32),
    )


def _bordered(corner: float | bool, border: Array, inner: Array) -> Array:
    """The symmetric (n, n) with the inner (n-1, n-1) and a row and column 0."""
    first = jnp.concatenate([jnp.full(1, corner, border.dtype), border])
    return jnp.concatenate([first[None], jnp.concatenate([border[:, None], inner], axis=1)])


def _edges(neighbors: Array, n_neighbors: int, between: Array, away: Array, scale: Array) -> Array:
    """Edges of each lane's graph, (b, n, n): a record that adopts the target gives up its farthest neighbour."""
    m, kept = neighbors.shape
    index = jnp.arange(m)
    joined = jnp.zeros((m, m), bool).at[index[:, None], neighbors].set(True)
    if kept < n_neighbors:  # all others are neighbours, and the target is one more
        adopts, gives_up = jnp.ones_like(away, bool), jnp.zeros((m, m), bool)
    else:
        farthest = neighbors[:, -1]
        # The target is point 0: of two at equal distance it is the neighbour.
        adopts = away <= between[index, farthest] * scale[:, None]
        gives_up = jnp.zeros((m, m), bool).at[index, farthest].set(True)
    _, nearest = jax.lax.top_k(-away, n_neighbors)
    own = jax.vmap(lambda at: jnp.zeros(m, bool).at[at].set(True))(nearest)

    def lane(adopts: Array, own: Array) -> Array:
        directed = joined & ~(gives_up & adopts[:, None])
        return _bordered(False, adopts | own, directed | directed.T)

    return jax.vmap(lane)(adopts, own)


def _paths(between: Array, is_edge: Array) -> tuple[Array, Array]:
    """Shortest paths (b, n, n), components joined, and how many there were, (b,)."""
    label = jax.vmap(shortest_paths.labels)(is_edge)
    n_parts = jnp.sum(label == jnp.arange(label.shape[-1]), axis=-1, dtype=jnp.int32)

    def joined(is_edge: Array) -> Array:
        return is_edge | jax.vmap(shortest_paths.bridge_edges)(jax.lax.stop_gradient(between), label)

    # Most chunks have no lane whose graph falls apart.
    is_edge = jax.lax.cond(jnp.all(n_parts == 1), lambda is_edge: is_edge, joined, is_edge)
    is_self = jnp.eye(between.shape[-1], dtype=bool)
    weights = jnp.where(is_self, 0, jnp.where(is_edge, between, jnp.inf))
    return jax.vmap(shortest_paths.all_pairs)(weights), n_parts


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def leading_near(count: int, matrices: Array, known_vectors: Array) -> tuple[Array, Array]:
    """`principal.leading` of matrices (b, n, n) whose leading eigenvectors are nearly known without row 0, (q, n-1).

    Returns:
        Values (b, count) and vectors (b, n, count).

    Source: subspace iteration with Rayleigh-Ritz steps, Rutishauser (1970).
    """
    n, q = matrices.shape[-1], known_vectors.shape[0]
    decomposed = jax.vmap(functools.partial(principal.leading, count))
    if n < FEWEST or q < count:
        return decomposed(matrices)
    values, vectors, is_found = _iterated(count, matrices, known_vectors)

    def mended(matrices: Array) -> tuple[Array, Array]:
        exact = decomposed(matrices)
        return jnp.where(is_found[:, None], values, exact[0]), jnp.where(is_found[:, None, None], vectors, exact[1])

    return jax.lax.cond(jnp.all(is_found), lambda _: (values, vectors), mended, matrices)


@leading_near.defjvp
def _leading_near_jvp(count: int, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    # Where a derivative is asked for, the matrix is decomposed anyway.
    return jax.jvp(jax.vmap(functools.partial(principal.leading, count)), primals[:1], tangents[:1])


def _iterated(count: int, matrices: Array, known_vectors: Array) -> tuple[Array, Array, Array]:
    """Values (b, count), vectors (b, n, count), and whether their residuals are rounding, (b,)."""
    b, n, _ = matrices.shape
    eps = float(jnp.finfo(matrices.dtype).eps)
    # The value after the last vector serves the gap alone, and its error is the square of its residual.
    limits = jnp.full(count, 4 * eps * math.sqrt(n)).at[count - 1].set(eps**0.5)
    # A target that lies apart has an eigenvector of its own.
    own = jnp.full((n, 1), -1 / n, matrices.dtype).at[0].add(1)
    start, _ = jnp.linalg.qr(jnp.concatenate([jnp.pad(known_vectors.T, ((1, 0), (0, 0))), own], axis=1))

    def times(basis: Array) -> Array:
        return jnp.einsum("bij,bjp->bip", matrices, basis, precision=HIGHEST)

    def ritz(basis: Array) -> tuple[Array, Array, Array, Array]:
        """Ritz values, decreasing, their vectors, the vectors' images and the residuals' norms, of any basis."""
        norms = jnp.linalg.norm(basis, axis=1, keepdims=True)
        basis = basis / norms
        inner = jnp.einsum("bip,biq->bpq", basis, basis, precision=HIGHEST)
        factor = jnp.linalg.cholesky(inner)
        basis = jax.lax.linalg.triangular_solve(factor, basis, left_side=False, lower=True, transpose_a=True)
        image = times(basis)
        small = jnp.einsum("bip,biq->bpq", basis, image, precision=HIGHEST)
        values, turn = jnp.linalg.eigh(small)
        values, turn = values[:, ::-1], turn[..., ::-1]
        basis, image = (jnp.einsum("bip,bpq->biq", x, turn, precision=HIGHEST) for x in (basis, image))
        residuals = jnp.linalg.norm(image - basis * values[:, None], axis=1)
        return values, basis, image, residuals

    def is_found(state: tuple[Array, Array, Array, Array]) -> Array:
        values, _, _, residuals = state
        return jnp.all(residuals[:, :count] <= limits * values[:, :1], axis=1)

    def round_(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        values, _, image, _ = state
        largest = jnp.max(jnp.abs(values), axis=1)[:, None, None]
        for _ in range(POWERS - 1):
            image = times(image / largest)
        return ritz(image)

    def goes_on(carry: tuple[Array, tuple[Array, Array, Array, Array]]) -> Array:
        rounds, state = carry
        return (rounds < MAX_ROUNDS) & ~jnp.all(is_found(state))

    first = ritz(jnp.broadcast_to(start, (b, *start.shape)))
    # At least one round brings in what the start lacks; the last one brings residuals down to rounding.
    state = (jnp.int32(0), round_(first))
    _, state = jax.lax.while_loop(goes_on, lambda carry: (carry[0] + 1, round_(carry[1])), state)
    state = round_(state)
    values, basis, _, _ = state
    return values[:, :count], basis[..., :count], is_found(state)

"""How faithful an embedding is to its data: neighbourhoods kept, distances kept, and the objective of t-SNE.

The measures are pure functions of one data set x (n, d) and its coords (n, k), jitted (with `n_neighbors` static) and
safe under `vmap`. What they share:

- Distances are Euclidean and computed by differences, never as |a|^2 + |b|^2 - 2ab: close points keep their relative
  accuracy in float32, however far from the origin. Memory is O(n^2), time O(n^2 (d + k)).
- A record is not its own neighbour. At equal distance the one with the smaller index is nearer, in both spaces alike;
  so the measures of neighbours are defined with ties and duplicates, and 1 for x itself, but then depend on the order
  of the records. scikit-learn leaves ties to unstable sorts and its values are among those of the possible orders.
- An entry of x or coords that is nan or infinite makes the value nan. The scale of either is free; distances below
  10^-19 (float32) of the largest count as 0.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import batching, validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, hyperparams

Q_FLOOR = float(np.finfo(np.float64).eps)
"""Smallest probability in `kl_divergence`, in either dtype: scikit-learn's."""

# Operation by operation, a new shape would take four times as long to compile.
_jit = functools.partial(jax.jit, static_argnames="n_neighbors")


class Quality(NamedTuple):
    """The measures of one embedding, each (); batched, each gains a leading axis m.

    Attributes:
        trustworthiness: Trustworthiness, in [0, 1]; 1 if no record comes into a neighbourhood of the embedding from
            afar.
        continuity: Continuity, in [0, 1]; 1 if no neighbour in x is torn away.
        knn_preservation: Mean share of the nearest neighbours that are kept, in [0, 1].
        stress_1: Kruskal's stress-1, >= 0; 0 if all distances are kept.
    """

    trustworthiness: Array
    continuity: Array
    knn_preservation: Array
    stress_1: Array


@_jit
def trustworthiness(x: Array, coords: Array, *, n_neighbors: int = 5) -> Array:
    """1 less the scaled sum of how far in x the neighbours in coords lie beyond the neighbourhood; (), in [0, 1].

    Takes only ranks of distances: any map of coords that keeps their order leaves it as it is. O(n_neighbors n^2).

    Args:
        x: (n, d), the data.
        coords: (n, k), its embedding.
        n_neighbors: Size of a neighbourhood, 1 <= n_neighbors < n / 2.

    Raises:
        ValueError: at trace time, if the shapes do not match or n_neighbors is out of range.

    Source: Venna & Kaski (2001); equal to scikit-learn's `manifold.trustworthiness` where no distances tie.
    """
    x, coords = _checked(x, coords)
    _check_ranks(x.shape[0], n_neighbors)
    delta, embedded = _between(x), _between(coords)
    ranks = _neighbor_ranks(embedded, delta, n_neighbors)
    return _unless_bad(_rank_score(ranks, coords.dtype), delta, embedded)


@_jit
def continuity(x: Array, coords: Array, *, n_neighbors: int = 5) -> Array:
    """`trustworthiness` with x (n, d) and coords (n, k) exchanged: what of the neighbourhoods of x was torn apart; ().

    Raises:
        ValueError: as `trustworthiness`.

    Source: Venna & Kaski (2001).
    """
    x, coords = _checked(x, coords)
    _check_ranks(x.shape[0], n_neighbors)
    delta, embedded = _between(x), _between(coords)
    ranks = _neighbor_ranks(delta, embedded, n_neighbors)
    return _unless_bad(_rank_score(ranks, coords.dtype), delta, embedded)


@_jit
def knn_preservation(x: Array, coords: Array, *, n_neighbors: int = 5) -> Array:
    """Mean share of each record's nearest neighbours in x (n, d) that are so in coords (n, k) too; (), in [0, 1].

    By chance it is n_neighbors / (n - 1). O(n_neighbors n^2).

    Raises:
        ValueError: at trace time, if the shapes do not match or not 1 <= n_neighbors <= n - 1.
    """
    x, coords = _checked(x, coords)
    validate.integer(n_neighbors=n_neighbors)
    validate.at_most(x.shape[0] - 1, "n - 1", n_neighbors=n_neighbors)
    delta, embedded = _between(x), _between(coords)
    ranks = _neighbor_ranks(delta, embedded, n_neighbors)
    return _unless_bad(_share_kept(ranks, coords.dtype), delta, embedded)


@jax.jit
def stress_1(x: Array, coords: Array) -> Array:
    """Kruskal's: sqrt(sum of (d_ij - delta_ij)^2 / sum of d_ij^2), d of coords (n, k), delta of x (n, d); (), >= 0.

    Not invariant to the scale of coords alone. Where all coords coincide it is infinite, or 0 if all of x does too.
    Its gradient is finite also where points coincide, and 0 at a perfect fit.

    Raises:
        ValueError: at trace time, if the shapes do not match or n < 2.

    Source: Kruskal (1964); what scikit-learn's `MDS(normalized_stress=True)` reports.
    """
    x, coords = _checked(x, coords)
    delta, embedded = _between(x), _between(coords)
    return _unless_bad(_stress_1(delta, embedded), delta, embedded)


@jax.jit
def kl_divergence(p: Array, coords: Array) -> Array:
    """Kullback-Leibler divergence of Student-t affinities of coords from p, t-SNE's objective; (), nats.

    The t distribution has max(k - 1, 1) degrees of freedom. No affinity counts as less than `Q_FLOOR`, so that pairs
    out of sight of each other bound the value instead of making it infinite. Depends on the scale of coords.

    Args:
        p: (n, n) joint probabilities; sums to 1 off the diagonal, which is not read. Not renormalised.
        coords: (n, k).

    Raises:
        ValueError: at trace time, if the shapes do not match or n < 2.

    Source: van der Maaten & Hinton (2008); scikit-learn 1.9 `manifold/_t_sne.py` for degrees of freedom and floor.
    """
    validate.shape_2d(p=p, coords=coords)
    n, k = coords.shape
    validate.integer(minimum=2, **{"number of rows of coords": n})
    if p.shape != (n, n):
        raise ValueError(f"p must have shape ({n}, {n}) to match coords, got {p.shape}")
    p, coords = _in_one_dtype(p, coords)
    off = ~jnp.eye(n, dtype=bool)
    p = jnp.where(off, p, 0)
    freedom = max(k - 1, 1)
    squared = _squared_distances(coords, coords)
    # In logarithms: the sum of all affinities of a wide embedding underflows.
    log_q = jnp.where(off, -(freedom + 1) / 2 * jnp.log1p(squared / freedom), -jnp.inf)
    log_q = jnp.maximum(log_q - jax.nn.logsumexp(log_q), float(np.log(Q_FLOOR)))
    terms = p * (jnp.log(jnp.maximum(p, Q_FLOOR)) - log_q)
    return _unless_bad(_total(terms), p, coords)


@_jit
def evaluate(x: Array, coords: Array, *, n_neighbors: int = 5) -> Quality:
    """All measures that need x (n, d) and coords (n, k) alone, from distances computed once; O(n^2 (d + n_neighbors)).

    Without `kl_divergence`, which is relative to a perplexity.

    Raises:
        ValueError: at trace time, if the shapes do not match or not 1 <= n_neighbors < n / 2.
    """
    x, coords = _checked(x, coords)
    _check_ranks(x.shape[0], n_neighbors)
    return _measures(_between(x), _between(coords), n_neighbors)


@_jit
def evaluate_distances(delta: Array, embedded: Array, *, n_neighbors: int = 5) -> Quality:
    """`evaluate` from `distances` (n, n) of the data and of the embedding that are at hand; O(n_neighbors n^2).

    Raises:
        ValueError: at trace time, if the shapes do not match or not 1 <= n_neighbors < n / 2.
    """
    validate.shape_2d(delta=delta, embedded=embedded)
    if not delta.shape == embedded.shape == (delta.shape[0],) * 2:
        raise ValueError(f"delta and embedded must have one shape (n, n), got {delta.shape} and {embedded.shape}")
    _check_ranks(delta.shape[0], n_neighbors)
    return _measures(*_in_one_dtype(delta, embedded), n_neighbors)


@jax.jit
def distances(x: Array) -> Array:
    """Euclidean distances (n, n) of the rows of x (n, d), symmetric to the bit; O(n^2 d)."""
    validate.shape_2d(x=x)
    return _between(jnp.asarray(x, compute_dtype(x)))


def batch_bytes(n: int, *, itemsize: int = 4) -> float:
    """Memory that `evaluate_batch` takes for embeddings of n records: seven matrices (n, n), whatever their number.

    Args:
        n: Records of an embedding.
        itemsize: Bytes of a float.
    """
    return 7.5 * itemsize * float(n) ** 2


def evaluate_batch(
    known: Array,
    targets: Array,
    coords: Array,
    *,
    n_neighbors: int = 5,
    batch_size: int | None = None,
    progress: bool = False,
) -> Quality:
    """`evaluate` of m embeddings of data sets [target_i; known], the distances of the known records computed once.

    Args:
        known: (n-1, d), finite.
        targets: (m, d), finite; row 0 of coords[i] is the embedding of targets[i].
        coords: (m, n, k), e.g. of `attacks.shadow.shadow_embeddings`. One that is not finite has nan measures.
        n_neighbors: Size of a neighbourhood, 1 <= n_neighbors < n / 2.
        batch_size: Embeddings per chunk; from the memory of the device if None.
        progress: Show a bar with rate and time left.

    Returns:
        A Quality of host arrays (m,); O(n (d + n (k + n_neighbors))) each, plus O(n^2 d) once.

    Raises:
        ValueError: data not finite or of the wrong shape, or n_neighbors out of range.
    """
    known = validate.matrix(known, "known")
    targets = validate.matrix(targets, "targets", columns=known.shape[1])
    m, n = len(targets), len(known) + 1
    if np.ndim(coords) != 3 or coords.shape[:2] != (m, n) or coords.shape[2] == 0:
        raise ValueError(f"coords must have shape ({m}, {n}, k >= 1), m targets by n rows, got {np.shape(coords)}")
    _check_ranks(n, n_neighbors)
    dtype = compute_dtype(known)
    known = jnp.asarray(known, dtype)
    context = (_Neighborhood(n_neighbors=n_neighbors), known, jax.jit(_between)(known))
    lanes = (targets.astype(dtype, copy=False), coords)
    options = {"batch_size": batch_size, "progress": progress, "description": "embeddings"}
    return batching.map_lanes(_evaluate_chunk, context, lanes, **options)


@hyperparams
class _Neighborhood:
    """Static inside the jitted chunk, which an integer in the context would not be."""

    n_neighbors: int


def _evaluate_chunk(context: tuple[_Neighborhood, Array, Array], lanes: tuple[Array, Array]) -> Quality:
    setting, known, between = context

    def lane(target: Array, coords: Array) -> Quality:
        row = _distances(target[None], known)
        first = jnp.concatenate([jnp.zeros((1, 1), row.dtype), row], axis=1)
        delta = jnp.concatenate([first, jnp.concatenate([row.T, between], axis=1)])
        delta, coords = _in_one_dtype(delta, coords)
        return _measures(delta, _between(coords), setting.n_neighbors)

    return jax.vmap(lane)(*lanes)


def _checked(x: Array, coords: Array) -> tuple[Array, Array]:
    validate.shape_2d(x=x, coords=coords)
    if x.shape[0] != coords.shape[0]:
        raise ValueError(f"coords must have as many rows as x, {x.shape[0]}, got {coords.shape[0]}")
    validate.integer(minimum=2, **{"number of rows of x": x.shape[0]})
    return _in_one_dtype(x, coords)


def _in_one_dtype(a: Array, b: Array) -> tuple[jax.Array, jax.Array]:
    dtype = np.promote_types(compute_dtype(a), compute_dtype(b))
    return jnp.asarray(a, dtype), jnp.asarray(b, dtype)


def _check_ranks(n: int, n_neighbors: int) -> None:
    validate.integer(n_neighbors=n_neighbors)
    # From n / 2 on, the worst embedding has another sum of ranks than the one that scales the measure to [0, 1].
    if not n_neighbors < n / 2:
        raise ValueError(f"n_neighbors must be < n / 2 = {n / 2}, got {n_neighbors}")


def _measures(delta: Array, embedded: Array, n_neighbors: int) -> Quality:
    """Measures from distances (n, n) of the data and of the embedding."""
    lost = _neighbor_ranks(delta, embedded, n_neighbors)
    false = _neighbor_ranks(embedded, delta, n_neighbors)
    dtype = embedded.dtype
    quality = Quality(
        trustworthiness=_rank_score(false, dtype),
        continuity=_rank_score(lost, dtype),
        knn_preservation=_share_kept(lost, dtype),
        stress_1=_stress_1(delta, embedded),
    )
    return jax.tree.map(lambda value: _unless_bad(value, delta, embedded), quality)


def _neighbor_ranks(near: Array, other: Array, n_neighbors: int) -> Array:
    """(n_neighbors, n): what rank, from 1, each record's nearest neighbours by `near` have by `other`.

    Both (n, n) and symmetric to the bit. Counts instead of sorting: only n_neighbors of a row's n ranks are needed, and
    XLA's sort on a CPU is slow.
    """
    n = near.shape[0]
    # Record i is column i: XLA vectorises reductions over the first axis.
    index = jnp.arange(n, dtype=jnp.int32)[:, None]
    itself = jnp.eye(n, dtype=bool)
    other = jnp.where(itself, jnp.inf, other)

    def next_neighbor(left: Array, _: None) -> tuple[Array, Array]:
        # The first of the smallest: two minima vectorise on a CPU, an argmin does not.
        chosen = jnp.min(jnp.where(left == jnp.min(left, axis=0), index, n - 1), axis=0)
        distance = jnp.take_along_axis(other, chosen[None], axis=0)
        nearer = (other < distance) | ((other == distance) & (index < chosen))
        return jnp.where(index == chosen, jnp.inf, left), 1 + jnp.sum(nearer, axis=0, dtype=jnp.int32)

    _, ranks = jax.lax.scan(next_neighbor, jnp.where(itself, jnp.inf, near), None, length=n_neighbors)
    return ranks


def _rank_score(ranks: Array, dtype: np.dtype) -> Array:
    n_neighbors, n = ranks.shape
    # Integers only along the neighbours: over all records their sum may pass 2^31.
    excess = jnp.sum(jnp.maximum(ranks - n_neighbors, 0), axis=0).astype(dtype)
    return 1 - jnp.mean(excess) * (2 / (n_neighbors * (2 * n - 3 * n_neighbors - 1)))


def _share_kept(ranks: Array, dtype: np.dtype) -> Array:
    return jnp.mean((ranks <= ranks.shape[0]).astype(dtype))


def _stress_1(delta: Array, embedded: Array) -> Array:
    # In units of the largest distance, so that squares neither overflow nor vanish.
    unit = _power_of_two(jnp.maximum(jnp.max(delta), jnp.max(embedded)))
    own = _power_of_two(jnp.max(embedded))
    misfit = _safe_sqrt(_total((embedded / unit - delta / unit) ** 2))
    size = _safe_sqrt(_total((embedded / own) ** 2)) * (own / unit)
    is_collapsed = size == 0
    ratio = misfit / jnp.where(is_collapsed, 1, size)
    return jnp.where(is_collapsed, jnp.where(misfit > 0, jnp.inf, 0), ratio)


def _between(x: Array) -> Array:
    return _distances(x, x)


def _distances(a: Array, b: Array) -> Array:
    """(rows of a, rows of b). Within a call, equal pairs of points are equally far to the bit: ties need it."""
    unit = _power_of_two(jnp.maximum(jnp.max(jnp.abs(a - b[0])), jnp.max(jnp.abs(b - b[0]))))
    return _safe_sqrt(_squared_distances(a / unit, b / unit)) * unit


def _squared_distances(a: Array, b: Array) -> Array:
    """One column after the other: never holds (rows, rows, columns), and vectorises over b."""

    def add(total: Array, columns: tuple[Array, Array]) -> tuple[Array, None]:
        return total + (columns[0][:, None] - columns[1]) ** 2, None

    return jax.lax.scan(add, jnp.zeros((a.shape[0], b.shape[0]), a.dtype), (a.T, b.T))[0]


def _power_of_two(largest: Array) -> Array:
    """The normal one at or below `largest`; 1/2 for 0. Dividing by it is exact."""
    _, exponent = jnp.frexp(jax.lax.stop_gradient(largest))
    smallest = jnp.finfo(largest.dtype).minexp
    return jnp.ldexp(jnp.ones((), largest.dtype), jnp.maximum(exponent - 1, smallest))


def _total(matrix: Array) -> Array:
    return jnp.sum(jnp.sum(matrix, axis=1))


def _safe_sqrt(squared: Array) -> Array:
    """sqrt, with derivative 0 at 0."""
    nonzero = squared != 0  # true for a nan, which must come through
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, squared, 1)), 0)


def _unless_bad(value: Array, *inputs: Array) -> Array:
    """The value, or nan if an input is not finite: comparisons with a nan are false and would hide it."""
    finite = jnp.array([jnp.all(jnp.isfinite(array)) for array in inputs])
    return jnp.where(jnp.all(finite), value, jnp.nan)

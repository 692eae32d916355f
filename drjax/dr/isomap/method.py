"""Isomap, and what one more record does to its neighbourhood graph and embedding."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from drjax.core import host, platforms, validate
from drjax.core.linalg import HIGHEST, blas, compute_dtype, on_device
from drjax.core.types import Array, Cost, Embedding, Status, hyperparams
from drjax.dr import base, metrics, principal
from drjax.dr.isomap import insertion_xla, many, path_insertion, shortest_paths
from drjax.dr.isomap.cpu import IsomapShared, Spectrum, insert_chunks

N_KNOWN = 20
"""Leading eigenvectors of the known records that help with an inserted record's eigenproblem, if there are as many."""


class IsomapInfo(NamedTuple):
    """Diagnostics of one Isomap.

    Attributes:
        eigenvalues: (k,), largest of the double-centred Gram matrix, in algebraic order; squared units of distances.
        eigengap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        sign_margin: (k,), largest positive minus largest negative entry of each eigenvector, in absolute value.
        n_graph_components: (), int32, components of the neighbourhood graph before they were joined.
    """

    eigenvalues: Array
    eigengap: Array
    sign_margin: Array
    n_graph_components: Array


@hyperparams
class Isomap:
    """Classical scaling of the lengths of shortest paths in the graph of nearest neighbours.

    Deterministic. As scikit-learn's `Isomap(eigen_solver="dense")`: a pair is joined if either is among the other's
    `n_neighbors` nearest, components of the graph are joined by the closest pair of points of every two (status
    DISCONNECTED), and each eigenvector's largest |entry| is positive. Neighbours at equal distance, which scikit-learn
    takes in no defined order, are taken by index, lowest first, the target being index 0.

    `fit_transform` costs O(n^2 (n + d)); on a CPU from 500 records on O(n^2 (d + log n)), in float64 and 8 n^2 bytes.
    On a CPU `insert` updates the shortest paths exactly, in float64, and takes O(n (n + d)) and no decomposition for
    almost every record; elsewhere it takes O(n^3) for the paths of the changed graph, and decompositions are as rare.
    Derivatives of all three are that of `fit_transform` with the
    graph held fixed, in both modes, and cost O(n^3). `LandmarkIsomap` is for more records than all pairs of which fit
    into memory.

    Attributes:
        n_components: Output dimension k, 1 <= k <= n.
        n_neighbors: Number of neighbours, in [1, n - 1].
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation".

    Source: Tenenbaum, de Silva & Langford (2000); the eigenpairs by Davidson's method, Liu (1978).

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.Isomap(n_neighbors=6).fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "isomap"
    title = "Isomap"
    minimises = "strain"
    repeatable = True
    stationary = False
    n_components: int = 2
    n_neighbors: int = 5
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)
        validate.integer(n_neighbors=self.n_neighbors)
        metrics.check(self.metric)

    @property
    def unit(self) -> str | None:
        """That of the distances: none for a metric of directions."""
        return metrics.unit(self.metric)

    @property
    def deterministic(self) -> bool:
        """True: the key is ignored."""
        return True

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: distances, paths, their squares and copies, in float64; see `DRMethod.cost`."""
        # Many known records are not decomposed: their matrix meets some twenty blocks of vectors.
        eigenpairs = 1.5 * n**3 if n < many.MANY else 1e3 * n**2
        return Cost(
            # Neighbours and shortest paths are compiled for one number at a time: they count tenfold.
            shared_flops=3.0 * n**2 * d + 10.0 * n**2 * (np.log2(n + 1) + 2 * self.n_neighbors) + eigenpairs,
            shared_bytes=60.0 * n**2 + (8.0 + 2 * itemsize) * n * d,
            flops=50.0 * n * (n + d),
            bytes=8.0 * n**2,
            # Paths and an eigendecomposition by XLA, measured at n = 31 to 121.
            derivative_flops=8e6 + 100.0 * n**3,
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d); coords (n, k) in the units of the distances.

        The objective is the strain, see `objective`. Directions whose eigenvalue is not above rounding (status
        DEGENERATE) have coordinates 0.

        Raises:
            ValueError: at trace time, if x has not rank 2, k > n or n_neighbors >= n.
        """
        del key
        x = base.records(x)
        self._check_size(x.shape[0])
        are_many = x.shape[0] >= many.FITTED
        spectrum = platforms.on_cpu_or(self._fit_on_host, self._decompose, x) if are_many else self._decompose(x)
        return _embedding_of_one(spectrum, self.n_components)

    def objective(self, coords: Array, x: Array) -> Array:
        """Strain of coords (n, k) for x (n, d): the sum of squares of G - Y Y^T, units of the distances ^4; ().

        G = -1/2 H D^2 H for the lengths D of the shortest paths of x, Y = H coords, H the centring. Its root over n is
        scikit-learn's `reconstruction_error`. Differentiable in both, the graph held fixed; inf where it overflows.
        """
        self._check_size(x.shape[0])
        x = jnp.asarray(x, compute_dtype(x))
        unit = self._unit(x)
        own, in_xla = x / unit, self._lengths_in_xla
        paths = platforms.on_cpu_or(self._lengths_on_host, in_xla, own) if len(x) >= many.FITTED else in_xla(own)
        y = (coords - jnp.mean(coords, axis=0)) / unit
        return jnp.sum((principal.gram(paths) - jnp.matmul(y, y.T, precision=HIGHEST)) ** 2) * unit**4

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> IsomapShared:
        """Graph, shortest paths and leading eigenvectors of known (n-1, d); host, float64, O(n^2 (d + log n)).

        Below 1,500 records also O(n^3). The result holds 16 n^2 bytes.

        Raises:
            ValueError: known is not a finite numeric matrix, k > n or n_neighbors >= n.
        """
        del shared_key
        array = base.known_records(known)
        dtype = array.dtype
        self._check_size(len(array) + 1)
        are_many = len(array) >= many.MANY
        graph = (many.graph if are_many else shortest_paths.graph)(array, self.n_neighbors, self.metric)
        eigenpairs = many.known_eigenpairs if are_many else _known_eigenpairs
        vectors, values = eigenpairs(graph, max(N_KNOWN, self.n_components + 1))
        return IsomapShared(
            known=jnp.asarray(array),
            neighbors=on_device(graph.neighbors, np.int32),
            between=jnp.asarray(graph.between.view(np.uint32)),
            paths=jnp.asarray(graph.paths.view(np.uint32)),
            vectors=on_device(vectors, dtype),
            values=on_device(values[None], dtype),
        )

    def insert(self, key: Array, shared: IsomapShared, target: Array) -> Embedding:
        """The Isomap of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: IsomapShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); on a CPU one call of compiled code per batch, spread over the cores."""
        del keys
        m, d = shared.known.shape
        base.check_targets(targets, d)
        self._check_size(m + 1)
        own = jnp.asarray(targets, shared.known.dtype)
        spectrum = platforms.on_cpu_or(self._insert_on_host, self._insert_in_xla, shared, own)
        return jax.vmap(functools.partial(_embedding, n_components=self.n_components))(spectrum)

    def _insert_in_xla(self, shared: IsomapShared, targets: Array) -> Spectrum:
        return insertion_xla.insert(self.n_components, self.n_neighbors, self.metric, shared, targets)

    def _lengths_in_xla(self, x: Array) -> Array:
        return shortest_paths.geodesics(x, self.n_neighbors, self.metric)[0]

    def _lengths_on_host(self, x: Array) -> Array:
        on_host = functools.partial(many.lengths, self.n_neighbors, self.metric)
        like = jax.ShapeDtypeStruct((x.shape[0], x.shape[0]), x.dtype)
        return host.call(on_host, like, x, vmap_method="sequential")

    def _fit_on_host(self, x: Array) -> Spectrum:
        (n, _), k = x.shape, self.n_components
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), _like(1, n, k, x.dtype))
        on_host = functools.partial(many.fit, k, self.n_neighbors, self.metric)
        return host.call(on_host, like, x, vmap_method="sequential")

    def _insert_on_host(self, shared: IsomapShared, targets: Array) -> Spectrum:
        b, n, k = targets.shape[0], shared.known.shape[0] + 1, self.n_components
        like = _like(b, n, k, targets.dtype)
        on_host = functools.partial(insert_chunks, k, self.n_neighbors, self.metric)
        return host.call(on_host, like, shared, targets, vmap_method="expand_dims")

    def _decompose(self, x: Array) -> Spectrum:
        n, k = x.shape[0], self.n_components
        # An eigensolver may not return from a nan; the lane is reported NON_FINITE all the same.
        is_finite = jnp.all(jnp.isfinite(x))
        x = jnp.where(is_finite, x, 0)
        unit = self._unit(x)
        paths, n_parts = shortest_paths.geodesics(x / unit, self.n_neighbors, self.metric)
        gram = principal.gram(paths)
        values, vectors = principal.leading(min(k + 1, n), gram)
        vectors = vectors[:, :k]
        scaled = vectors * jnp.sqrt(jnp.maximum(values[:k], 0))
        return Spectrum(
            vectors=jnp.where(is_finite, vectors, jnp.nan),
            values=values,
            unit=unit,
            strain=jnp.sum((gram - jnp.matmul(scaled, scaled.T, precision=HIGHEST)) ** 2),
            n_parts=n_parts,
            n_iter=jnp.int32(0),
        )

    def _unit(self, x: Array) -> Array:
        """What records are divided by, which makes and breaks no ties; 1 where the metric does it."""
        return principal.power_of_two(x) if self.unit is not None else jnp.ones((), x.dtype)

    def _check_size(self, n: int) -> None:
        validate.at_most(n, "n records", n_components=self.n_components)
        validate.at_most(n - 1, f"n - 1 of n = {n} records", n_neighbors=self.n_neighbors)


def _like(b: int, n: int, k: int, dtype: Any) -> Spectrum:
    """Shapes of the spectra of b lanes."""

    def result(*shape: int, of: Any = dtype) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((b, *shape), of)

    return Spectrum(
        vectors=result(n, k),
        values=result(min(k + 1, n)),
        unit=result(),
        strain=result(),
        n_parts=result(of=jnp.int32),
        n_iter=result(of=jnp.int32),
    )


def _embedding(spectrum: Spectrum, n_components: int) -> Embedding:
    """Signs, coordinates and flags of one lane."""
    unit = spectrum.unit
    found = principal.coordinates(spectrum.vectors, spectrum.values)
    coords = found.coords * unit
    status = (
        base.flag(spectrum.n_parts > 1, Status.DISCONNECTED)
        | base.flag(~jnp.all(found.is_kept), Status.DEGENERATE)
        | base.non_finite(coords)
        | base.sign_flags(found.margin, found.gap, found.is_kept)
    )
    info = IsomapInfo(spectrum.values[:n_components] * unit**2, found.gap, found.margin, spectrum.n_parts)
    return Embedding(coords, spectrum.strain * unit**4, spectrum.n_iter, status, info)


# One program, where each operation would be compiled by itself for each number of records.
_embedding_of_one = jax.jit(_embedding, static_argnums=1)


def _known_eigenpairs(graph: shortest_paths.Graph, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of the known records' own Gram matrix, (min(count, m), m), and values over the largest."""
    paths = graph.paths.copy()
    m = len(paths)
    path_insertion.join(np.ascontiguousarray(graph.between[1:, 1:]), graph.between[0, 1:].copy(), paths)
    largest = paths.max()
    squares = (paths / (largest if largest > 0 else 1.0)) ** 2
    rows = squares.mean(axis=0)
    gram = -0.5 * (squares - rows - rows[:, None] + rows.mean())
    with blas().limit(limits=1, user_api="blas"):
        found: Any = scipy.linalg.eigh(gram, subset_by_index=(max(0, m - count), m - 1))
    values, vectors = found
    return np.ascontiguousarray(vectors.T[::-1]), values[::-1] / (values[-1] if values[-1] > 0 else 1.0)

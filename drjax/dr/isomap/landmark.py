"""Isomap by the shortest paths from a few landmarks, among which all other records are placed."""

from __future__ import annotations

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host, platforms, validate
from drjax.core.linalg import on_device
from drjax.core.types import Array, Cost, Embedding, hyperparams
from drjax.dr import base, landmarks, metrics, neighbors, principal
from drjax.dr.isomap import landmark_cpu, shortest_paths
from drjax.dr.isomap.landmark_cpu import LandmarkIsomapShared, Lengths


@hyperparams
class LandmarkIsomap:
    """Isomap of landmarks; every other record is put where its shortest paths to them say, by a linear formula.

    Deterministic. The graph and its bridges are those of `Isomap`; lengths are of the paths from the q landmarks alone,
    so that a fit takes O(n^2 d) for the exact neighbours and O(q n log n) for the rest, in memory O(n q): records may
    be many. Landmarks are the rows at fixed places that look random and depend on the number of records alone (see
    `dr.landmarks.positions`). Row 0, the target's, is never one, but it may lie on the paths of others: on a CPU
    `insert` puts it into the neighbour lists and finds the paths from the landmarks anew, exact, in O(n d + q n log n).

    All other records as landmarks give `Isomap` but for the target's own part in the eigenvectors. Each column's
    largest |coordinate| is positive. Nothing is minimised over all records: the objective is nan. Derivatives are those
    of a fit with the graph held fixed, in both modes; they, and machines without a CPU's way, find the paths of all
    pairs in O(n^3).

    Attributes:
        n_components: Output dimension k, 1 <= k <= n.
        n_landmarks: Number of landmarks q >= k; all other records where these are fewer.
        n_neighbors: Number of neighbours, in [1, n - 1].
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation".

    Source: de Silva & Tenenbaum (2003), Global versus local methods in nonlinear dimensionality reduction, section 3.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.LandmarkIsomap(n_landmarks=20).fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "landmark_isomap"
    title = "landmark Isomap"
    minimises = None
    deterministic = True
    repeatable = True
    stationary = False
    n_components: int = 2
    n_landmarks: int = 100
    n_neighbors: int = 5
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        landmarks.check(self.n_components, self.n_landmarks)
        validate.integer(n_neighbors=self.n_neighbors)
        metrics.check(self.metric)

    @property
    def unit(self) -> str | None:
        """That of the distances: none for a metric of directions."""
        return metrics.unit(self.metric)

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: neighbours once, then the paths from the landmarks of each."""
        q, kept = min(self.n_landmarks, n), self.n_neighbors
        return Cost(
            shared_flops=3.0 * n**2 * d,
            shared_bytes=(8.0 + 2 * itemsize) * n * d + 30.0 * n * kept + 8.0 * 2**24,
            # Shortest paths are compiled for one number at a time: they count tenfold.
            flops=10.0 * q * n * (np.log2(n + 1) + 2 * kept) + 3.0 * n * d + 10.0 * q**3,
            bytes=(8.0 + 3 * itemsize) * n * q + 8.0 * n * (d + 6 * kept),
            derivative_flops=8e6 + 100.0 * n**3,
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; coords (n, k) in the units of the distances. Row 0 is no landmark.

        Raises:
            ValueError: at trace time, if x has not rank 2, n < 2, k > n or n_neighbors >= n.
        """
        del key
        x = base.records(x)
        self._check_size(x.shape[0])
        return self._embedding(platforms.on_cpu_or(self._fit_on_host, self._fit_in_xla, x))

    def objective(self, coords: Array, x: Array) -> Array:
        """nan: nothing is minimised over all records; ()."""
        del x
        return jnp.full((), jnp.nan, coords.dtype)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> LandmarkIsomapShared:
        """Neighbours of known (n-1, d) among themselves; host, float64, O(n^2 d).

        Raises:
            ValueError: known is not a finite numeric matrix, k > n or n_neighbors >= n.
        """
        del shared_key
        array = base.known_records(known)
        m = len(array)
        self._check_size(m + 1)
        rows = metrics.prepared(self.metric, array)
        nearest, distances = neighbors.nearest(self.metric, rows, min(self.n_neighbors, m - 1))
        return LandmarkIsomapShared(
            known=jnp.asarray(array),
            neighbors=on_device(nearest, np.int32),
            distances=jnp.asarray(distances.view(np.uint32)),
        )

    def insert(self, key: Array, shared: LandmarkIsomapShared, target: Array) -> Embedding:
        """The embedding of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: LandmarkIsomapShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); on a CPU one call of compiled code per batch, which holds (b, n, q) numbers."""
        del keys
        m, d = shared.known.shape
        base.check_targets(targets, d)
        self._check_size(m + 1)
        own = jnp.asarray(targets, shared.known.dtype)
        return jax.vmap(self._embedding)(platforms.on_cpu_or(self._insert_on_host, self._insert_in_xla, shared, own))

    def _embedding(self, lengths: Lengths) -> Embedding:
        chosen = landmarks.positions(lengths.squares.shape[0], self.n_landmarks)
        own = lengths.squares[chosen]
        is_finite = jnp.all(jnp.isfinite(own))
        own = jnp.where(is_finite, (own + own.T) / 2, 0)  # the two ways along a path are sums in another order
        frame = landmarks.frame(own, self.n_components)
        places = jnp.where(is_finite, landmarks.placed(frame, lengths.squares), jnp.nan)
        return landmarks.aligned(frame, places, lengths.unit, lengths.n_parts)

    def _fit_on_host(self, x: Array) -> Lengths:
        on_host = functools.partial(landmark_cpu.fit, self.n_landmarks, self.n_neighbors, self.metric)
        return host.call(on_host, self._like(x.shape[0], x.dtype), x, vmap_method="sequential")

    def _fit_in_xla(self, x: Array) -> Lengths:
        is_finite = jnp.all(jnp.isfinite(x))
        x = jnp.where(is_finite, x, 0)
        unit = principal.power_of_two(x) if self.unit is not None else jnp.ones((), x.dtype)
        paths, n_parts = shortest_paths.geodesics(x / unit, self.n_neighbors, self.metric)
        lengths = paths[:, landmarks.positions(x.shape[0], self.n_landmarks)]
        return Lengths(jnp.where(is_finite, lengths**2, jnp.nan), unit, n_parts)

    def _insert_on_host(self, shared: LandmarkIsomapShared, targets: Array) -> Lengths:
        b, n = targets.shape[0], shared.known.shape[0] + 1
        on_host = functools.partial(landmark_cpu.insert_chunks, self.n_landmarks, self.n_neighbors, self.metric)
        return host.call(on_host, self._like(n, targets.dtype, b), shared, targets, vmap_method="sequential")

    def _insert_in_xla(self, shared: LandmarkIsomapShared, targets: Array) -> Lengths:
        return jax.vmap(lambda target: self._fit_in_xla(jnp.concatenate([target[None], shared.known])))(targets)

    def _like(self, n: int, dtype: np.dtype, *lead: int) -> Lengths:
        squares = jax.ShapeDtypeStruct((*lead, n, min(self.n_landmarks, n - 1)), dtype)
        return Lengths(squares, jax.ShapeDtypeStruct(lead, dtype), jax.ShapeDtypeStruct(lead, jnp.int32))

    def _check_size(self, n: int) -> None:
        landmarks.check_size(n, self.n_components)
        validate.at_most(n - 1, f"n - 1 of n = {n} records", n_neighbors=self.n_neighbors)

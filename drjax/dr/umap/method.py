"""UMAP, whose shadows share the known records' neighbour lists."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from drjax.core import host, platforms, validate
from drjax.core.linalg import compute_dtype, on_device
from drjax.core.types import Array, Cost, Embedding, Status, hyperparams
from drjax.dr import base, metrics, neighbors
from drjax.dr.umap import cpu, frozen, graph, reference, spectral_cpu, spectral_many, xla
from drjax.dr.umap.cpu import Draws, Lists, Run, Settings
from drjax.dr.umap.graph import Neighbors
from drjax.dr.umap.shared import UMAPInfo, UMAPShared
from drjax.dr.umap.spectral_cpu import MAX_BASIS

INITS = ("spectral", "random")
BACKENDS = ("drjax", "umap-learn")

UNROLLED_EPOCHS = 10
"""Up to this many epochs run in XLA on every platform, through which reverse-mode derivatives pass."""


@hyperparams
class UMAP:
    """Uniform manifold approximation and projection.

    Follows umap-learn 0.5: exact neighbours, its graph, its spectral start, and sequential stochastic
    gradient descent with its schedule, at the same number of updates. Negative samples come from another generator and
    edges in another order, so a map equals umap-learn's in distribution, not in coordinates. Coordinates have no unit.

    On a CPU all of it is compiled code, and `insert` gives the bits of `fit_transform`. Elsewhere it is XLA, whose
    optimiser moves many records at a time: equal in distribution again. The descent is chaotic: results of two devices
    or dtypes agree in graph, start and first steps only.

    A graph that is not connected has the status DISCONNECTED. Its components start around centres of their own, as
    umap-learn's if there are at most 2 k, else at random. NOT_CONVERGED is a spectral start whose eigenvectors were not
    found to the tolerance, as of a long thread of records.

    Time and memory of one map on a CPU grow about as n log n but for the exact search for neighbours, O(n^2 d), which
    takes most of it from 20,000 records on; memory is O(n (d + n_neighbors)). From 2,048 records on a map by itself
    takes all cores but for the descent, which takes one; above 10,000 the objective is an estimate from n 2,048 / 2
    pairs, within about 0.1%. Elsewhere memory is O(n^2), and so it is up to `graph.MOST_DENSE` records with
    n_epochs <= 10 and in `objective`, which have derivatives there.

    Attributes:
        n_components: Output dimension k >= 1; k < n with init="spectral".
        n_neighbors: Number of neighbours, >= 2, each record counted as its own nearest; n - 1 where it is not below n,
            as in umap-learn.
        min_dist: Least distance between points of the map, in [0, spread].
        spread: Scale of the map, > 0: distance over which affinities in it fall.
        n_epochs: Number of epochs, >= 1; None is 500 for n <= 10,000 and 200 above.
        learning_rate: Learning rate of the first epoch, >= 0; it falls linearly to 0.
        negative_sample_rate: Number of negative samples, random records that repel, per attraction, >= 0.
        repulsion_strength: Weight of the negative samples, >= 0.
        init: Start: "spectral" or "random".
        set_op_mix_ratio: Mix of the union (1) and the intersection (0) of the neighbour graphs, in [0, 1].
        local_connectivity: Neighbours joined with weight 1, > 0 and below n_neighbors.
        backend: Library that fits: "drjax", or "umap-learn" in a pool of processes, for comparison: an insertion is
            then a fit of all n <= 20,000 records, and the key gives its random_state.
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation". Two records without a
            direction are at distance 1 by the cosine and the correlation; umap-learn has 0 there.

    Source: McInnes, Healy & Melville (2018), arXiv:1802.03426; umap-learn 0.5 for what the paper leaves open.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.UMAP(n_neighbors=6, n_epochs=20).fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "umap"
    title = "UMAP"
    unit = None
    minimises = "cross entropy of the neighbour graphs"
    repeatable = False
    stationary = False
    n_components: int = 2
    n_neighbors: int = 15
    min_dist: float = 0.1
    spread: float = 1.0
    n_epochs: int | None = None
    learning_rate: float = 1.0
    negative_sample_rate: int = 5
    repulsion_strength: float = 1.0
    init: str = "spectral"
    set_op_mix_ratio: float = 1.0
    local_connectivity: float = 1.0
    backend: str = "drjax"
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)
        validate.integer(minimum=2, n_neighbors=self.n_neighbors)
        validate.integer(minimum=0, negative_sample_rate=self.negative_sample_rate)
        if self.n_epochs is not None:
            validate.integer(n_epochs=self.n_epochs)
        validate.positive(spread=self.spread, local_connectivity=self.local_connectivity)
        validate.non_negative(
            min_dist=self.min_dist, learning_rate=self.learning_rate, repulsion_strength=self.repulsion_strength
        )
        validate.finite(spread=self.spread, learning_rate=self.learning_rate, repulsion=self.repulsion_strength)
        validate.at_most(self.spread, "spread", min_dist=self.min_dist)
        validate.at_most(self.n_neighbors - 1, "n_neighbors - 1", local_connectivity=self.local_connectivity)
        validate.probability(set_op_mix_ratio=self.set_op_mix_ratio)
        validate.one_of(INITS, init=self.init)
        validate.one_of(BACKENDS, backend=self.backend)
        metrics.check(self.metric)
        if self.backend == "umap-learn":
            reference.require()

    @property
    def deterministic(self) -> bool:
        """False: start and negative samples are drawn."""
        return False

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take on a CPU: lists of neighbours, and the vectors of the spectral start; see `DRMethod.cost`.

        umap-learn's own memory, where it is the backend, is not counted.
        """
        settings = self._settings(n)
        edges = float(n * settings.n_neighbors)
        is_screened = n >= neighbors.SCREENED and self.metric != "manhattan"
        # Sorting and sampling go one number at a time: they count tenfold. A product of float32 counts an eighth.
        search = n**2 * (0.125 * d + 30) if is_screened else 3.0 * n**2 * d + 10.0 * n**2 * np.log2(n)
        basis = MAX_BASIS * 2 if n < spectral_cpu.MANY else spectral_many.BASIS + spectral_many.KEPT
        return Cost(
            shared_flops=search,
            shared_bytes=(32.0 + itemsize) * n * d + 80 * edges + 2.0**26,
            flops=settings.n_epochs * edges * (1 + settings.negative_sample_rate) * 60,
            bytes=100 * edges + (8.0 * basis * n if settings.is_spectral else 0.0),
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 3; coords (n, k). The objective is the cross entropy, see `objective`.

        With n_epochs <= `UNROLLED_EPOCHS` and n <= `graph.MOST_DENSE` differentiable in x through the start: on the
        edges' weights the descent depends by steps alone, when they are due. Above 10,000 records a CPU estimates the
        objective, see `UMAP`.

        Raises:
            ValueError: at trace time, if x has not rank 2 or three rows, or k is too large for n.
        """
        x = base.records(x)
        settings = self._settings(x.shape[0])
        if self.backend == "umap-learn":
            return self._reference(key, x)
        return self._run(settings, x.shape[0], self._fit_on_host, self._fit_in_xla, key, x)

    def objective(self, coords: Array, x: Array) -> Array:
        """Cross entropy of the graph of coords (n, k) with that of x (n, d), summed over pairs; ().

        Differentiable in both, also mixed, with the neighbour lists held fixed: bandwidths count as the roots that the
        search approximates. Pairs of the map repel each other at a squared distance larger by 0.001, as in the descent.
        O(n^2) memory. Above `graph.MOST_DENSE` records it is the host's estimate, see `UMAP`, without derivatives.

        Raises:
            ValueError: at trace time, as `fit_transform`.
        """
        settings = self._settings(x.shape[0])
        if x.shape[0] > graph.MOST_DENSE:
            return self._measured(settings, coords, x)[0]
        lists = self._nearest(settings, jnp.asarray(x, compute_dtype(x)))
        weights = graph.memberships(lists, settings.local_connectivity)
        union = graph.fuzzy_union(lists.indices, weights, settings.mix)
        return graph.cross_entropy(coords, union, settings.a, settings.b)

    def graph(self, x: Array) -> scipy.sparse.csr_array:
        """Weights (n, n) of the pairs of records x (n, d) that a map draws together, on the host; O(n^2 d) time.

        Raises:
            ValueError: x is not a finite numeric matrix, or as `fit_transform`.
        """
        array = validate.matrix(x)
        return cpu.graph_of(self._settings(len(array)), self.metric, array.astype(compute_dtype(array), copy=False))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> UMAPShared:
        """Neighbour lists of known (n-1, d) and their weights, in float64 on the host; O(n^2 d), see `neighbors`.

        Raises:
            ValueError: known is not a finite numeric matrix of at least two rows, or k is too large for n.
        """
        array = base.known_records(known)
        dtype = array.dtype
        settings = self._settings(len(array) + 1)
        lists = cpu.lists_of(array, settings.n_neighbors, settings.local_connectivity, self.metric)
        return UMAPShared(
            known=jnp.asarray(array),
            indices=on_device(lists.indices, np.int32),
            distances=on_device(lists.distances, dtype),
            exact_distances=jnp.asarray(cpu.as_words(lists.distances)),
            weights=jnp.asarray(cpu.as_words(lists.weights)),
            key=shared_key,
        )

    def insert(self, key: Array, shared: UMAPShared, target: Array) -> Embedding:
        """The embedding of [target; known], target (d,): `fit_transform` of the n records, on a CPU bit by bit.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        m, d = shared.known.shape
        base.check_target(target, d)
        settings = self._settings(m + 1)
        target = jnp.asarray(target, shared.known.dtype)
        key = key if shared.key is None else shared.key
        if self.backend == "umap-learn":
            return self._reference(key, jnp.concatenate([target[None], shared.known]))
        shared = shared._replace(key=None)
        return self._run(settings, m + 1, self._insert_on_host, self._insert_in_xla, key, shared, target)

    def insert_batch(self, keys: Array, shared: UMAPShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); on a CPU one call of compiled code per batch, spread over the cores."""
        base.check_targets(targets, shared.known.shape[1])
        return jax.vmap(self.insert, in_axes=(0, None, 0))(keys, shared, targets)

    def _run(self, settings: Settings, n: int, on_host: Any, in_xla: Any, *operands: Any) -> Embedding:
        on_host, in_xla = (functools.partial(f, settings) for f in (on_host, in_xla))
        if settings.n_epochs > UNROLLED_EPOCHS or n > graph.MOST_DENSE:
            return self._embedding(settings, platforms.by_platform(*operands, cpu=on_host, default=in_xla))
        return self._embedding(settings, in_xla(*operands))

    def prepare_frozen(self, key: Array, known: Array) -> tuple[frozen.FrozenShared, Array]:
        """The map of known (n-1, d), and what puts a record into it: see `drjax.dr.frozen`.

        Raises:
            ValueError: as `prepare`, or backend="umap-learn".
        """
        if self.backend != "drjax":
            raise ValueError(f"backend must be 'drjax' for a fixed map, got {self.backend!r}")
        array = base.known_records(known)
        coords = self.fit_transform(key, array).coords
        settings = self._settings(len(array) + 1)
        return frozen.prepared(settings, self.metric, array, np.asarray(coords)), coords

    def insert_frozen(self, keys: Array, shared: frozen.FrozenShared, targets: Array) -> Embedding:
        """The places of targets (b, d) in that map, coords (b, k), each after all epochs for its own edges alone."""
        base.check_targets(targets, shared.known.shape[1])
        settings = self._settings(shared.known.shape[0] + 1)
        seeds = jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys)
        coords, updates = frozen.places(settings, self.metric, shared, jnp.asarray(targets, shared.known.dtype), seeds)
        nothing, n_iter = jnp.full(len(targets), jnp.nan, coords.dtype), jnp.full(len(targets), settings.n_epochs)
        return Embedding(coords, nothing, n_iter.astype(jnp.int32), base.non_finite(coords[:, None]), updates)

    def _nearest(self, settings: Settings, x: Array) -> Neighbors:
        return graph.nearest(x, settings.n_neighbors, self.metric)

    def _settings(self, n: int) -> Settings:
        if n < 3:
            raise ValueError(
                f"number of records n must be >= 3: n_neighbors is at most n - 1 and counts the record itself; got {n}"
            )
        n_neighbors = self.n_neighbors if n > self.n_neighbors else n - 1
        if self.init == "spectral":
            # SciPy's iteration, which umap-learn calls, wants one record more than there are eigenvectors.
            most = n - 1 if self.backend == "drjax" else n - 2
            validate.at_most(
                most, f"n - {n - most} of n = {n} records with init='spectral'", n_components=self.n_components
            )
        validate.at_most(n_neighbors - 1, f"n - 2 of n = {n} records", local_connectivity=self.local_connectivity)
        a, b = graph.fit_curve(float(self.spread), float(self.min_dist))
        n_epochs, n_prune = graph.n_epochs_of(n, self.n_epochs)
        return Settings(
            n_components=int(self.n_components),
            n_neighbors=int(n_neighbors),
            n_epochs=int(n_epochs),
            n_prune=int(n_prune),
            negative_sample_rate=int(self.negative_sample_rate),
            learning_rate=float(self.learning_rate),
            repulsion=float(self.repulsion_strength),
            a=a,
            b=b,
            mix=float(self.set_op_mix_ratio),
            local_connectivity=float(self.local_connectivity),
            is_spectral=self.init == "spectral",
        )

    def _draw(self, key: Array, n: int, dtype: Any) -> tuple[Draws, Array]:
        """Draws, and the key of the negative samples of XLA's optimiser."""
        shape = (n, self.n_components)
        of_noise, of_places, of_centres, of_samples = jax.random.split(key, 4)
        draws = Draws(
            noise=jax.random.normal(of_noise, shape, dtype),
            places=jax.random.uniform(of_places, shape, dtype, -1, 1),
            centres=jax.random.uniform(of_centres, shape, dtype, -1, 1),
            seed=jax.random.bits(of_samples, (2,), jnp.uint32),
        )
        return draws, of_samples

    def _fit_on_host(self, settings: Settings, key: Array, x: Array) -> Run:
        n, dtype = x.shape[0], x.dtype
        draws, _ = self._draw(key, n, dtype)
        on_host = functools.partial(cpu.fit_lanes, settings, self.metric)
        return host.call(on_host, _like(settings, n, dtype), x, draws, vmap_method="expand_dims")

    def _insert_on_host(self, settings: Settings, key: Array, shared: UMAPShared, target: Array) -> Run:
        n, dtype = shared.known.shape[0] + 1, shared.known.dtype
        draws, _ = self._draw(key, n, dtype)
        lists = Lists(shared.indices, shared.exact_distances, shared.weights)
        on_host = functools.partial(cpu.insert_lanes, settings, self.metric)
        like = _like(settings, n, dtype)
        return host.call(on_host, like, shared.known, lists, target, draws, vmap_method="expand_dims")

    def _fit_in_xla(self, settings: Settings, key: Array, x: Array) -> Run:
        # A nan has no place among the neighbours; the lane is reported NON_FINITE all the same.
        is_finite = jnp.all(jnp.isfinite(x))
        lists = self._nearest(settings, jnp.where(is_finite, x, 0))
        draws, of_samples = self._draw(key, x.shape[0], x.dtype)
        return _unless_bad(is_finite, xla.run(settings, lists, draws, of_samples))

    def _insert_in_xla(self, settings: Settings, key: Array, shared: UMAPShared, target: Array) -> Run:
        is_finite = jnp.all(jnp.isfinite(target))
        row = graph.distances_to(jnp.where(is_finite, target, 0), shared.known, self.metric)
        known = Neighbors(shared.indices, shared.distances)
        draws, of_samples = self._draw(key, shared.known.shape[0] + 1, shared.known.dtype)
        found = xla.run(settings, graph.with_target(known, row), draws, of_samples)
        return _unless_bad(is_finite, found)

    def _reference(self, key: Array, x: Array) -> Embedding:
        n, dtype = x.shape[0], x.dtype
        settings = self._settings(n)
        options = {"n_components": settings.n_components} | {name: getattr(self, name) for name in reference.OPTIONS}
        like = (jax.ShapeDtypeStruct((n, settings.n_components), dtype), jax.ShapeDtypeStruct((), jnp.int32))
        on_host = functools.partial(reference.fit_lanes, tuple(options.items()))
        seed = jax.random.bits(key, (), jnp.uint32)
        coords, n_parts = host.call(on_host, like, x, seed, vmap_method="expand_dims")
        if n > graph.MOST_DENSE:
            objective, spread = self._measured(settings, coords, x)
        else:
            finite = jnp.where(jnp.all(jnp.isfinite(x)), x, 0)
            objective, spread = self.objective(coords, finite), jnp.max(self._nearest(settings, finite).distances)
        k = settings.n_components
        found = Run(
            coords=coords,
            objective=objective,
            values=jnp.zeros(k + 2, dtype),
            margin=jnp.ones(k, dtype),
            n_parts=n_parts,
            n_updates=jnp.int32(0),
            spread=spread,
            n_missed=jnp.int32(0),
        )
        return self._embedding(settings, found)

    def _measured(self, settings: Settings, coords: Array, x: Array) -> tuple[Array, Array]:
        """Objective and spread on the host, see `Run`."""
        coords, x = jnp.asarray(coords), jnp.asarray(x, compute_dtype(x))
        on_host = functools.partial(cpu.measured, settings, self.metric)
        return host.call(on_host, (jax.ShapeDtypeStruct((), coords.dtype),) * 2, coords, x, vmap_method="sequential")

    def _embedding(self, settings: Settings, found: Run) -> Embedding:
        values, n = found.values, found.coords.shape[0]
        steps = values[:-1] - values[1:]
        # Nothing lies below the last of n eigenvalues.
        below = (
            steps[1:] if n >= settings.n_components + 2 else jnp.concatenate([steps[1:-1], jnp.ones(1, steps.dtype)])
        )
        gap = jnp.minimum(steps[:-1], below)
        is_spectral = values[0] > 0

        status = (
            base.flag(found.n_parts > 1, Status.DISCONNECTED)
            | base.flag(found.spread == 0, Status.DEGENERATE)
            | base.flag(found.n_missed > 0, Status.NOT_CONVERGED)
            | base.non_finite(found.coords)
            | base.sign_flags(found.margin, gap, is_spectral)
        )
        info = UMAPInfo(gap, found.margin, found.n_parts, found.n_updates)
        return Embedding(found.coords, found.objective, jnp.int32(settings.n_epochs), status, info)


def _like(settings: Settings, n: int, dtype: Any) -> Run:
    k = settings.n_components

    def result(*shape: int, of: Any = dtype) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, of)

    return Run(
        coords=result(n, k),
        objective=result(),
        values=result(k + 2),
        margin=result(k),
        n_parts=result(of=jnp.int32),
        n_updates=result(of=jnp.int32),
        spread=result(),
        n_missed=result(of=jnp.int32),
    )


def _unless_bad(is_finite: Array, found: Run) -> Run:
    coords, objective = (jnp.where(is_finite, leaf, jnp.nan) for leaf in (found.coords, found.objective))
    return found._replace(coords=coords, objective=objective)

"""t-SNE, whose shadows share all squared distances but one row; of many records, the lists of neighbours."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host, lanes, platforms, validate
from drjax.core.linalg import compute_dtype, on_device
from drjax.core.types import Array, Cost, Embedding, Status, hyperparams
from drjax.dr import base, metrics, quality
from drjax.dr.pca.leading import leading_scores
from drjax.dr.pca.method import PCA
from drjax.dr.tsne import frozen, near, near_affinities, reference
from drjax.dr.tsne.affinity import joint_probabilities
from drjax.dr.tsne.cpu import Descent
from drjax.dr.tsne.fits_cpu import START_STD, tsne_fits
from drjax.dr.tsne.mapped import results, tsne_mapped
from drjax.dr.tsne.shared import NearShared, TSNEPool, TSNEShared
from drjax.dr.tsne.xla import UNROLLED_ITER, descend_batch

INITS = ("pca", "random")
GRADIENTS = ("auto", "exact", "mesh")

MESH_FROM = 5000
"""Records from which on "auto" is "mesh"."""

EXPLORATION = 250
"""scikit-learn's: most iterations under exaggeration."""

POOL_BYTES = 2**30
"""Squared distances of a pool of records are kept up to this size; beyond it each data set computes its own."""


class TSNEInfo(NamedTuple):
    """Diagnostics: grad_norm (), norm of the gradient, times the gains, when the stopping rules last looked at it."""

    grad_norm: Array


@hyperparams
class TSNE:
    """Coordinates whose Student-t affinities are closest to the records' Gaussian ones.

    Follows scikit-learn's `TSNE(method="exact")` 1.9: search for the bandwidths, early exaggeration, momentum, gains,
    learning rate and both stopping rules. The descent is chaotic: from states that differ by rounding it ends in
    different maps of one distribution. So affinities, start and first steps agree with scikit-learn's to rounding, and
    final maps in distribution. Where scikit-learn rounds squared distances to float32, float64 is kept.

    O(n^2 k) per iteration. On a CPU a compiled loop per data set; elsewhere XLA.

    From `MESH_FROM` records on, in the plane: affinities of each record with its 3 perplexity + 1 nearest, all others
    taken for 0, as in scikit-learn's Barnes-Hut algorithm and in openTSNE, and repulsion by a mesh, right to about 1%;
    on the host, all cores on one map. An iteration is then O(n), and distances, once, O(n^2 d). The objective is over
    those affinities; `objective` is the exact one.

    Attributes:
        n_components: Output dimension k >= 1; k <= min(n, d) with init="pca".
        perplexity: Effective number of neighbours, 1 <= perplexity < n.
        early_exaggeration: Factor >= 1 on the affinities during the first 250 iterations.
        learning_rate: Learning rate, > 0, or "auto": max(n / early_exaggeration / 4, 50).
        max_iter: Largest number of iterations, those under exaggeration included.
        n_iter_without_progress: Number of iterations without a fall of the divergence after which it stops.
        min_grad_norm: Norm of the gradient, times the gains, at which it stops.
        init: Start: "pca", of the records themselves (then deterministic), or "random", Gaussian; either with standard
            deviation 1e-4.
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation". Affinities are Gaussian in
            its distances, as in scikit-learn and openTSNE.
        gradient: "exact", "mesh" (n_components must be 2), or "auto": whichever is faster at n.

    Source: van der Maaten & Hinton (2008); scikit-learn 1.9 `manifold/_t_sne.py` for what the paper leaves open.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.TSNE(perplexity=10.0, max_iter=250).fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "tsne"
    title = "t-SNE"
    unit = None
    minimises = "Kullback-Leibler divergence, in nats"
    repeatable = False
    stationary = True
    n_components: int = 2
    perplexity: float = 30.0
    early_exaggeration: float = 12.0
    learning_rate: float | str = "auto"
    max_iter: int = 1000
    n_iter_without_progress: int = 300
    min_grad_norm: float = 1e-7
    init: str = "pca"
    metric: str = metrics.EUCLIDEAN
    gradient: str = "auto"

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components, max_iter=self.max_iter)
        validate.integer(n_iter_without_progress=self.n_iter_without_progress)
        validate.at_least(1, perplexity=self.perplexity, early_exaggeration=self.early_exaggeration)
        validate.non_negative(min_grad_norm=self.min_grad_norm)
        validate.one_of(INITS, init=self.init)
        metrics.check(self.metric)
        validate.one_of(GRADIENTS, gradient=self.gradient)
        if self.gradient == "mesh" and self.n_components != 2:
            raise ValueError(f"n_components must be 2 with gradient='mesh', got {self.n_components}")
        if self.learning_rate != "auto":
            if isinstance(self.learning_rate, str):
                raise ValueError(f"learning_rate must be a number > 0 or 'auto', got {self.learning_rate!r}")
            validate.positive(learning_rate=self.learning_rate)

    @property
    def deterministic(self) -> bool:
        """True with a PCA start: the key is ignored."""
        return self.init == "pca"

    def by_library(self, x: np.ndarray, seed: int) -> np.ndarray:
        """The map (n, k) of records (n, d) as scikit-learn makes it by default; some seconds at n = 1,000."""
        return reference.fit(self, x, seed)

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: all distances, in float64 at first, and affinities of each map; see `DRMethod.cost`."""
        if self.by_mesh(n):
            near_ones = float(n) * near_affinities.n_near(n, self.perplexity)
            return Cost(
                # A product of matrices, fivefold as fast as what else is counted.
                shared_flops=0.4 * n**2 * d + 10.0 * n**2,
                shared_bytes=2.0**26 + (8.0 + 2 * itemsize) * n * d + 32 * near_ones,
                flops=self.max_iter * (2.7e7 + 41.0 * near_ones),  # transforms of the mesh, whatever n is
                bytes=60.0 * near_ones,
            )
        return Cost(
            shared_flops=3.0 * n**2 * d + 500.0 * n**2,
            shared_bytes=(12.0 + itemsize) * n**2 + (32.0 + 2 * itemsize) * n * d,
            flops=self.max_iter * (2.0 * self.n_components + 3) * n**2,
            bytes=float(itemsize) * n**2,
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; coords (n, k). The objective is the Kullback-Leibler divergence in nats.

        Differentiable for max_iter <= `UNROLLED_ITER` and the exact gradient.

        Raises:
            ValueError: at trace time, if x has not rank 2 or two rows, perplexity >= n, or k > min(n, d) with a PCA
                start.
        """
        x = base.records(x)
        self._check_size(x.shape[0])
        if self.deterministic:
            start, status = self._scaled(self._pca.fit_transform(key, x).coords[None])
        else:
            start, status = self._draw(key, x.shape[0], x.dtype)[None], jnp.zeros(1, jnp.uint32)
        if self.by_mesh(x.shape[0]):
            found = near.fit(self.metric, float(self.perplexity), self._descent(x.shape[0]), x, start[0])
            return self._embeddings(found, status[0])
        squared = self._squared(x)
        batch = self._optimise(squared[1:, 1:], squared[:1, 1:], start, status)
        return base.first(batch)

    def objective(self, coords: Array, x: Array) -> Array:
        """Kullback-Leibler divergence of the affinities of coords (n, k) from those of x (n, d), nats; ().

        Differentiable in both, also mixed: bandwidths count as the roots that their search approximates.

        Raises:
            ValueError: at trace time, if perplexity >= n.
        """
        self._check_size(x.shape[0])
        x = jnp.asarray(x, compute_dtype(x))
        return quality.kl_divergence(joint_probabilities(self._squared(x), self.perplexity), coords)

    def by_mesh(self, n: int) -> bool:
        """Whether a map of n records is made of near affinities and with a mesh."""
        return self.gradient == "mesh" or (self.gradient == "auto" and n >= MESH_FROM and self.n_components == 2)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> TSNEShared | NearShared:
        """Squared distances of the known records (n-1, d), in float64 on the host; O(n^2 d) once, 8 n^2 bytes.

        With a mesh, lists of neighbours in their place.

        Raises:
            ValueError: known is not a finite numeric matrix, perplexity >= n, or k > min(n, d) with a PCA start.
        """
        array = validate.matrix(known, "known")
        n, dtype = len(array) + 1, compute_dtype(array)
        self._check_size(n)
        start = None if shared_key is None or self.deterministic else self._draw(shared_key, n, dtype)
        pca = self._pca.prepare(array) if self.deterministic else None
        if self.by_mesh(n):
            lists = near.prepared(self.metric, array.astype(dtype, copy=False), self.perplexity)
            return NearShared(on_device(array, dtype), *map(jnp.asarray, lists), start=start, pca=pca)
        between = metrics.squared_among_records(self.metric, array)
        return TSNEShared(
            known=on_device(array, dtype),
            between=on_device(np.minimum(between, _farthest(dtype)), dtype),
            start=start,
            pca=pca,
        )

    def insert(self, key: Array, shared: TSNEShared | NearShared, target: Array) -> Embedding:
        """The embedding of [target; known], target (d,), from the start that `fit_transform` has.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: TSNEShared | NearShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); on a CPU one call of compiled code per batch, spread over the cores."""
        m, d = shared.known.shape
        base.check_targets(targets, d)
        b, n, dtype = targets.shape[0], m + 1, shared.known.dtype
        targets = jnp.asarray(targets, dtype)
        status = jnp.zeros(b, jnp.uint32)
        if self.deterministic:
            starts = lanes.alone(lambda t: self._pca.insert(keys[0], shared.pca, t).coords, targets)
            starts, status = self._scaled(starts)
        elif shared.start is not None:
            starts = jnp.broadcast_to(shared.start, (b, *shared.start.shape))
        else:
            starts = jax.vmap(lambda key: self._draw(key, n, dtype))(keys)
        if isinstance(shared, NearShared):
            settings = self.metric, float(self.perplexity), self._descent(n)
            return self._embeddings(near.insert(*settings, shared, targets, starts), status)
        rows = metrics.squared_to_known(self.metric, targets, shared.known)
        rows = _cut_off(rows, targets, shared.known)
        return self._optimise(shared.between, rows, starts, status)

    def prepare_frozen(self, key: Array, known: Array) -> tuple[frozen.FrozenShared, Array]:
        """The map of known (n-1, d), and what puts a record into it: see `drjax.dr.frozen`.

        Raises:
            ValueError: as `prepare`, or n_components > 2.
        """
        validate.at_most(2, "2 in a fixed map", n_components=self.n_components)
        array = base.known_records(known)
        coords = self.fit_transform(key, array).coords
        return frozen.prepared(self.metric, float(self.perplexity), array, np.asarray(coords)), coords

    def insert_frozen(self, _: Array, shared: frozen.FrozenShared, targets: Array) -> Embedding:
        """The places of targets (b, d) in that map, coords (b, k); draws nothing. O(n) a step of each."""
        base.check_targets(targets, shared.known.shape[1])
        targets = jnp.asarray(targets, shared.known.dtype)
        coords, divergence, n_iter, ended = frozen.places(self.metric, float(self.perplexity), shared, targets)
        status = base.flag(~ended, Status.NOT_CONVERGED) | base.non_finite(coords[:, None])
        return Embedding(coords, divergence, n_iter, status, TSNEInfo(jnp.full_like(divergence, jnp.nan)))

    def fit_batch(self, keys: Array, x: Array) -> Embedding:
        """`fit_transform` of b data sets x (b, n, d), for keys (b,); every field gains a leading axis b.

        On a CPU compiled code, a data set at a time on every core, whose result has the same bits in any batch; without
        derivatives. Start and affinities are those of `fit_transform` up to rounding, so maps are in distribution.

        Raises:
            ValueError: at trace time, as `fit_transform`.
        """
        if x.ndim != 3:
            raise ValueError(f"x must have shape (data sets, records, features), got {x.shape}")
        self._check_fits(*x.shape[1:])
        x = jnp.asarray(x, compute_dtype(x))
        return self._fit_many(keys, x, None, None)

    def pool(self, x: Array) -> TSNEPool:
        """What data sets drawn from x (N, d) share: all squared distances, once, on the host; 4 N^2 bytes in float32.

        Raises:
            ValueError: x is not a finite numeric matrix.
        """
        array = validate.matrix(x)
        array = array.astype(compute_dtype(array), copy=False)
        if len(array) ** 2 * array.dtype.itemsize > POOL_BYTES or jax.default_backend() != "cpu":
            return TSNEPool(jnp.asarray(array), None)
        # Eager, and on the host: the callers' programs take it as an operand.
        squared = metrics.squared_to_known(self.metric, array, array)
        return TSNEPool(jnp.asarray(array), jnp.minimum(squared, _farthest(array.dtype)))

    def fit_subsets(self, keys: Array, pool: TSNEPool, rows: Array) -> Embedding:
        """`fit_batch` of the data sets x[rows] that b lists rows (b, n) of records of the pool make.

        Raises:
            ValueError: at trace time, as `fit_transform`.
        """
        self._check_fits(rows.shape[1], pool.x.shape[1])
        return self._fit_many(keys, pool.x, pool.squared, rows)

    def _check_fits(self, n: int, d: int) -> None:
        self._check_size(n)
        if self.deterministic:
            base.check_components(self.n_components, n, d)

    def _fit_many(self, keys: Array, x: Array, squared: Array | None, rows: Array | None) -> Embedding:
        b, n = x.shape[:2] if rows is None else rows.shape
        if self.by_mesh(n):
            return jax.vmap(self.fit_transform)(keys, x if rows is None else x[rows])
        starts = None if self.deterministic else jax.vmap(lambda key: self._draw(key, n, x.dtype))(keys)

        def on_host(_: Array, *operands: Any) -> Embedding:
            settings = {"perplexity": self.perplexity, "descent": self._descent(n), "metric": self.metric}
            like = (*results(b, (n, self.n_components), x.dtype), jax.ShapeDtypeStruct((b,), jnp.bool_))
            *found, is_flat = host.call(functools.partial(tsne_fits, k=self.n_components, **settings), like, *operands)
            return self._embeddings(found, base.flag(is_flat, Status.DEGENERATE))

        def elsewhere(_: Array, x: Array, __: Any, rows: Array | None, starts: Array | None) -> Embedding:
            return self._fit_many_in_xla(x, rows, starts)

        return platforms.by_platform(keys, x, squared, rows, starts, cpu=on_host, default=elsewhere)

    def _fit_many_in_xla(self, x: Array, rows: Array | None, starts: Array | None) -> Embedding:
        """Fits x (b, n, d), or records (b, n) of x (N, d); random starts (b, n, k), or None for principal ones."""

        def fit(own: Array, drawn: Array | None) -> Embedding:
            own = own if rows is None else x[own]
            start, status = (
                self._scaled(leading_scores(own, self.n_components)[None])
                if drawn is None
                else (drawn[None], jnp.zeros(1, jnp.uint32))
            )
            squared = self._squared(own)
            batch = self._optimise(squared[1:, 1:], squared[:1, 1:], start, status)
            return base.first(batch)

        return jax.vmap(fit)(x if rows is None else rows, starts)

    @property
    def _pca(self) -> PCA:
        return PCA(n_components=self.n_components)

    def _squared(self, x: Array) -> Array:
        """Squared distances of x (n, d), (n, n), as affinities take them."""
        return _cut_off(metrics.squared_among_in_xla(self.metric, x), x, x)

    def _check_size(self, n: int) -> None:
        validate.integer(minimum=2, **{"number of records n": n})
        if not self.perplexity < n:
            raise ValueError(f"perplexity must be < n = {n} records, got {self.perplexity:g}")

    def _draw(self, key: Array, n: int, dtype: Any) -> jax.Array:
        return START_STD * jax.random.normal(key, (n, self.n_components), dtype)

    def _scaled(self, coords: Array) -> tuple[Array, Array]:
        """Starts (b, n, k) from principal components, and their flags: without variance there is no map to find."""
        spread = jnp.std(coords[:, :, 0], axis=1)
        # Scores have mean 0: one value with little spread is what centring left of equal records. The derivative of the
        # root at 0 would be nan there.
        is_flat = spread <= jnp.sqrt(jnp.finfo(coords.dtype).eps) * jnp.max(jnp.abs(coords[:, :, 0]), axis=1)
        unit = jnp.where(is_flat, 1, spread)[:, None, None]
        return START_STD * coords / unit, base.flag(is_flat, Status.DEGENERATE)

    def _descent(self, n: int) -> Descent:
        auto = max(n / self.early_exaggeration / 4, 50.0)
        return Descent(
            exaggeration=float(self.early_exaggeration),
            learning_rate=auto if isinstance(self.learning_rate, str) else float(self.learning_rate),
            max_iter=int(self.max_iter),
            exploration=min(EXPLORATION, int(self.max_iter)),
            patience=int(self.n_iter_without_progress),
            min_grad_norm=float(self.min_grad_norm),
        )

    def _optimise(self, between: Array, rows: Array, starts: Array, status: Array) -> Embedding:
        """Maps of b data sets with squared distances between (n-1, n-1), rows (b, n-1), from starts (b, n, k)."""
        operands = (between, rows, starts)
        if self.max_iter <= UNROLLED_ITER:
            found = self._optimise_in_xla(*operands)
        else:
            found = platforms.by_platform(*operands, cpu=self._optimise_on_host, default=self._optimise_in_xla)
        return self._embeddings(found, status)

    def _embeddings(self, found: Any, status: Array) -> Embedding:
        coords, divergence, grad_norm, n_iter, stopped = found
        status = status | base.flag(~stopped, Status.NOT_CONVERGED) | base.non_finite(coords)
        return Embedding(coords, divergence, n_iter, status, TSNEInfo(grad_norm))

    def _optimise_in_xla(self, between: Array, rows: Array, starts: Array) -> tuple[Array, ...]:
        def affinities(row: Array) -> Array:
            first = jnp.concatenate([jnp.zeros(1, row.dtype), row])
            squared = jnp.concatenate([first[None], jnp.concatenate([row[:, None], between], axis=1)])
            return joint_probabilities(squared, self.perplexity)

        return descend_batch(jax.vmap(affinities)(rows), starts, self._descent(starts.shape[1]))

    def _optimise_on_host(self, between: Array, rows: Array, starts: Array) -> tuple[Array, ...]:
        like = results(rows.shape[0], starts.shape[1:], starts.dtype)
        on_host = functools.partial(tsne_mapped, self.perplexity, self._descent(starts.shape[1]))
        return host.call(on_host, like, between, rows, starts, vmap_method="expand_dims")


def _cut_off(squared: Array, a: Array, b: Array) -> Array:
    """Squared distances (p, q) short of an overflow; nan for a row of a (p, d) or b (q, d) that is not finite."""
    finite = jnp.all(jnp.isfinite(a), axis=1)[:, None] & jnp.all(jnp.isfinite(b), axis=1)
    return jnp.where(finite, jnp.minimum(squared, _farthest(a.dtype)), jnp.nan)


def _farthest(dtype: Any) -> float:
    return float(jnp.finfo(dtype).max) / 8

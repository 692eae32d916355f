"""Metric multidimensional scaling by SMACOF, whose shadows share all distances but one row."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist, squareform

from drjax.core import host, validate
from drjax.core.linalg import HIGHEST, compute_dtype
from drjax.core.types import Array, Embedding, PyTree, Status, hyperparams
from drjax.dr.classical_mds import ClassicalMDS
from drjax.dr.smacof_cpu import smacof_batch

INITS = ("random", "classical")

UNROLLED_ITER = 10
"""Up to this many iterations run as a loop of fixed length, through which reverse-mode derivatives pass."""


class MDSShared(NamedTuple):
    """What all shadows share.

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), Euclidean distances of the known records, computed in float64.
        starts: (n_init, n, k) drawn once if all shadows share their randomness, else None.
        classical: Shared part of the classical start, else None.
    """

    known: Array
    between: Array
    starts: Array | None
    classical: PyTree


class MDSInfo(NamedTuple):
    """Diagnostics: stress_1 (), Kruskal's, sqrt(stress / sum of squared embedded distances); 0 is a perfect fit."""

    stress_1: Array


@hyperparams
class MDS:
    """Coordinates whose distances approximate those of the records: least raw stress, by majorisation (SMACOF).

    Follows scikit-learn's `MDS` 1.9: the same iteration, the same stopping rule, random start uniform in [0, 1).
    Coordinates are in the units of the input. A run that meets the cap is flagged NOT_CONVERGED and is a legitimate
    release: scikit-learn's meet it on almost every data set. `insert_batch` on a CPU is a compiled loop over the
    upper triangle, O(n^2 k) per iteration; elsewhere, and in `insert`, it is XLA.

    Attributes:
        n_components: Output dimension k >= 1.
        init: "random" or "classical" (then deterministic; needs k <= min(n, d)).
        n_init: Random starts per data set, of which the least stress is kept.
        max_iter: Most iterations.
        eps: Stops when the stress falls by less than this share of the sum of squared distances in one iteration.

    Source: de Leeuw (1977); Borg & Groenen (2005), chapter 8; scikit-learn 1.9 `manifold/_mds.py` for the rule.
    """

    name: ClassVar[str] = "mds"
    n_components: int = 2
    init: str = "random"
    n_init: int = 1
    max_iter: int = 300
    eps: float = 1e-6

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components, n_init=self.n_init, max_iter=self.max_iter)
        validate.one_of(INITS, init=self.init)
        validate.non_negative(eps=self.eps)
        if self.init == "classical" and self.n_init != 1:
            raise ValueError(f"n_init must be 1 with init='classical', whose start is unique, got {self.n_init}")

    @property
    def deterministic(self) -> bool:
        """True with a classical start: the key is ignored."""
        return self.init == "classical"

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; coords (n, k). The objective is the raw stress.

        Raises:
            ValueError: at trace time, if x has not rank 2 or two rows, or k > min(n, d) with a classical start.
        """
        validate.shape_2d(x=x)
        validate.integer(minimum=2, **{"number of rows of x": x.shape[0]})
        x = jnp.asarray(x, compute_dtype(x))
        if self.deterministic:
            starts = self._classical.fit_transform(key, x).coords[None]
        else:
            starts = self._draw(key, x.shape[0], x.dtype)
        return self._run(_distances(x, x), starts)

    def objective(self, coords: Array, x: Array) -> Array:
        """Raw stress, sum over pairs of (distance of coords (n, k) - distance of x (n, d))^2; ().

        Its gradient is finite also where points coincide.
        """
        return _stress(coords, _distances(x, x))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> MDSShared:
        """Distances of the known records (n-1, d), in float64 on the host; O(n^2 d) once, 8 n^2 bytes.

        Raises:
            ValueError: known is not a finite numeric matrix, or k > min(n, d) with a classical start.
        """
        array = validate.matrix(known, "known")
        dtype = compute_dtype(array)
        between = squareform(pdist(array.astype(np.float64))) if len(array) > 1 else np.zeros((1, 1))
        starts = None
        if shared_key is not None and not self.deterministic:
            starts = self._draw(shared_key, len(array) + 1, dtype)
        return MDSShared(
            known=jnp.asarray(array, dtype),
            between=jnp.asarray(between, dtype),
            starts=starts,
            classical=self._classical.prepare(array) if self.deterministic else None,
        )

    def insert(self, key: Array, shared: MDSShared, target: Array) -> Embedding:
        """The embedding of [target; known], target (d,), from the start that `fit_transform` has; in XLA."""
        self._check(shared, target[None])
        starts = self._starts(key[None], shared, target[None])[0]
        return self._run(_bordered(_rows(shared, target[None])[0], shared.between), starts)

    def insert_batch(self, keys: Array, shared: MDSShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); on a CPU one compiled call for the batch, whose lanes stop on their own."""
        self._check(shared, targets)
        return jax.lax.platform_dependent(keys, shared, targets, cpu=self._insert_batch_cpu, default=self._insert_batch)

    def _insert_batch(self, keys: Array, shared: MDSShared, targets: Array) -> Embedding:
        return jax.vmap(self.insert, in_axes=(0, None, 0))(keys, shared, targets)

    def _insert_batch_cpu(self, keys: Array, shared: MDSShared, targets: Array) -> Embedding:
        starts = self._starts(keys, shared, targets)
        b, _, n, k = starts.shape
        shapes = (
            jax.ShapeDtypeStruct((b, n, k), starts.dtype),
            jax.ShapeDtypeStruct((b,), starts.dtype),
            jax.ShapeDtypeStruct((b,), jnp.int32),
            jax.ShapeDtypeStruct((b,), jnp.bool_),
        )

        def on_host(between: np.ndarray, rows: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, ...]:
            return smacof_batch(between, rows, starts, self.max_iter, self.eps)

        result = host.call(on_host, shapes, shared.between, _rows(shared, targets), starts)
        return jax.vmap(_embedding)(*result)

    @property
    def _classical(self) -> ClassicalMDS:
        return ClassicalMDS(n_components=self.n_components)

    def _check(self, shared: MDSShared, targets: Array) -> None:
        d = shared.known.shape[1]
        if targets.ndim != 2 or targets.shape[1] != d:
            raise ValueError(f"targets must have shape (m, {d}) to match known, got {targets.shape}")

    def _draw(self, key: Array, n: int, dtype: Any) -> jax.Array:
        return jax.random.uniform(key, (self.n_init, n, self.n_components), dtype)

    def _starts(self, keys: Array, shared: MDSShared, targets: Array) -> jax.Array:
        """(b, n_init, n, k)."""
        b, n, dtype = targets.shape[0], shared.known.shape[0] + 1, shared.known.dtype
        if self.deterministic:
            return self._classical.insert_batch(keys, shared.classical, targets).coords[:, None]
        if shared.starts is not None:
            return jnp.broadcast_to(shared.starts, (b, *shared.starts.shape))
        return jax.vmap(lambda key: self._draw(key, n, dtype))(keys)

    def _run(self, dissimilarities: Array, starts: Array) -> Embedding:
        """The best of the starts (n_init, n, k)."""
        results = jax.vmap(lambda start: smacof(dissimilarities, start, max_iter=self.max_iter, eps=self.eps))(starts)
        # argmin picks a nan first, which is then reported.
        best = jnp.argmin(results[1])
        return _embedding(*(part[best] for part in results))


def smacof(
    dissimilarities: Array, start: Array, *, max_iter: int = 300, eps: float = 1e-6
) -> tuple[Array, Array, Array, Array]:
    """Metric SMACOF from a given start; pure XLA.

    Differentiable in reverse mode for max_iter <= `UNROLLED_ITER`.

    Args:
        dissimilarities: (n, n), symmetric, zero diagonal.
        start: (n, k).
        max_iter: Most iterations >= 1.
        eps: Stops when the stress falls by less than this share of the sum of squared distances.

    Returns:
        coords (n, k), raw stress (), iterations () int32, stopped by eps () bool.
    """
    n = dissimilarities.shape[0]
    largest = jnp.max(dissimilarities)
    # In units of the largest dissimilarity, so that squares neither overflow nor vanish.
    scale = jnp.where(largest > 0, largest, 1)
    delta = dissimilarities / scale
    squares = jnp.sum(jnp.sum(delta**2, axis=1)) / 2
    start = start - jnp.mean(start, axis=0)

    def body(state: tuple) -> tuple:
        x, moved, _, _, count, _ = state
        ratio = delta / _safe_sqrt(jnp.sum((x[:, None] - x[None]) ** 2, axis=-1))
        new = (jnp.sum(ratio, axis=1, keepdims=True) * x - jnp.matmul(ratio, x, precision=HIGHEST)) / n
        # The sum of dissimilarity times distance is n tr(X^T X+), that of squared distances n |X|^2. So the stress is
        # a sum over points, and its decrease since the iteration before one of small terms, which float32 resolves.
        square = n * jnp.sum(x**2)
        stress = jnp.maximum(squares - 2 * n * jnp.sum(x * new) + square, 0)
        decrease = n * (moved + 2 * jnp.sum(x * (new - x)))
        stop = (count >= 2) & (decrease < eps * square)
        finished = stop | (count == max_iter)
        return (
            jnp.where(finished, x, new),
            jnp.sum((new - x) ** 2),
            stress,
            finished,
            count + jnp.where(finished, 0, 1).astype(jnp.int32),
            stop,
        )

    zero = jnp.zeros((), start.dtype)
    state = (start, zero, zero, jnp.bool_(False), jnp.int32(0), jnp.bool_(False))
    if max_iter <= UNROLLED_ITER:

        def frozen(state: tuple, _: None) -> tuple[tuple, None]:
            return jax.tree.map(lambda a, b: jnp.where(state[3], a, b), state, body(state)), None

        state, _ = jax.lax.scan(frozen, state, None, length=max_iter + 1)
    else:
        state = jax.lax.while_loop(lambda s: ~s[3], body, state)
    x, _, stress, _, count, stop = state
    finite = jnp.isfinite(scale)
    x = jnp.where(finite, x * scale, jnp.nan)
    return x, jnp.where(finite, stress * scale**2, jnp.nan), count, stop


def _embedding(coords: Array, stress: Array, n_iter: Array, stopped: Array) -> Embedding:
    finite = jnp.all(jnp.isfinite(coords))
    centred = coords - jnp.mean(coords, axis=0)
    square = coords.shape[0] * jnp.sum(centred**2)
    status = jnp.where(stopped, jnp.uint32(0), jnp.uint32(Status.NOT_CONVERGED))
    status = status | jnp.where(finite, jnp.uint32(0), jnp.uint32(Status.NON_FINITE))
    # All records equal: nothing to embed, and no iteration moves a point apart from the others.
    status = status | jnp.where(square == 0, jnp.uint32(Status.DEGENERATE), jnp.uint32(0))
    stress_1 = jnp.sqrt(stress / jnp.maximum(square, jnp.finfo(coords.dtype).tiny))
    return Embedding(coords, stress, n_iter, status, MDSInfo(stress_1))


def _rows(shared: MDSShared, targets: Array) -> Array:
    """(b, n-1) distances of the targets to the known records."""
    return _distances(jnp.asarray(targets, shared.known.dtype), shared.known)


def _bordered(row: Array, between: Array) -> Array:
    """(n, n) distances with the target first."""
    first = jnp.concatenate([jnp.zeros(1, row.dtype), row])
    return jnp.concatenate([first[None], jnp.concatenate([row[:, None], between], axis=1)])


def _distances(a: Array, b: Array) -> Array:
    # By differences: the usual product loses the small distances to cancellation. XLA does not materialise them.
    return _safe_sqrt(jnp.sum((a[:, None] - b[None]) ** 2, axis=-1), at_zero=0.0)


def _stress(coords: Array, dissimilarities: Array) -> Array:
    return jnp.sum((_distances(coords, coords) - dissimilarities) ** 2) / 2


def _safe_sqrt(squared: Array, at_zero: float = jnp.inf) -> Array:
    """sqrt, and `at_zero` with derivative 0 at 0."""
    is_zero = squared == 0
    return jnp.where(is_zero, at_zero, jnp.sqrt(jnp.where(is_zero, 1, squared)))

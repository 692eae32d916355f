"""Metric multidimensional scaling by SMACOF, whose shadows share all distances but one row."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import lanes, validate
from drjax.core.linalg import compute_dtype, on_device
from drjax.core.types import Array, Cost, Embedding, PyTree, Status, hyperparams
from drjax.dr import base, metrics
from drjax.dr.mds.classical import ClassicalMDS
from drjax.dr.mds.smacof import best_of_starts
from drjax.dr.mds.xla import Rule

INITS = ("random", "classical")


class MDSShared(NamedTuple):
    """What all shadows share.

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), distances of the known records, computed in float64.
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
    Coordinates are in the units of the distances. A run that meets the cap is flagged NOT_CONVERGED and is a legitimate
    release: scikit-learn's meet it on almost every data set. `insert_batch` on a CPU is a compiled loop over the
    upper triangle, O(n^2 k) per iteration; elsewhere, and in `insert`, it is XLA. All are differentiable in both modes;
    the derivative is that of the iterations made, and the release jumps where their number changes (see `mds.smacof`).
    All pairs of records are held and met in every iteration: `LandmarkMDS` is for some 20,000 records and more.

    Attributes:
        n_components: Output dimension k >= 1.
        init: Start: "random" or "classical" (then deterministic; see `ClassicalMDS` for the range of k).
        n_init: Number of random starts per data set; the one with the least stress is kept.
        max_iter: Largest number of iterations.
        eps: Tolerance: it stops when the stress falls by less than this share of the sum of squared distances in one
            iteration.
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation".

    Source: de Leeuw (1977); Borg & Groenen (2005), chapter 8; scikit-learn 1.9 `manifold/_mds.py` for the rule.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.MDS().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "mds"
    title = "multidimensional scaling (SMACOF)"
    minimises = "raw stress"
    repeatable = True
    stationary = True
    n_components: int = 2
    init: str = "random"
    n_init: int = 1
    max_iter: int = 300
    eps: float = 1e-6
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components, n_init=self.n_init, max_iter=self.max_iter)
        validate.one_of(INITS, init=self.init)
        validate.non_negative(eps=self.eps)
        metrics.check(self.metric)
        if self.init == "classical" and self.n_init != 1:
            raise ValueError(f"n_init must be 1 with init='classical', whose start is unique, got {self.n_init}")

    @property
    def unit(self) -> str | None:
        """That of the distances: none for a metric of directions."""
        return metrics.unit(self.metric)

    @property
    def deterministic(self) -> bool:
        """True with a classical start: the key is ignored."""
        return self.init == "classical"

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: all distances, in float64 while they are computed; see `DRMethod.cost`."""
        k = self.n_components
        return Cost(
            shared_flops=3.0 * n**2 * d,
            shared_bytes=(12.0 + 2 * itemsize) * n**2 + (8.0 + 2 * itemsize) * n * d,
            flops=self.n_init * self.max_iter * (2.0 * k + 4) * n**2,
            bytes=itemsize * n * k * (self.n_init + 8.0),
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; coords (n, k). The objective is the raw stress.

        Raises:
            ValueError: at trace time, if x has not rank 2 or two rows, or k too large for a classical start.
        """
        x = base.records(x)
        validate.integer(minimum=2, **{"number of rows of x": x.shape[0]})
        if self.deterministic:
            starts = self._classical.fit_transform(key, x).coords[None]
        else:
            starts = self._draw(key, x.shape[0], x.dtype)
        row = metrics.in_xla(self.metric, x[:1], x[1:])[0]
        return self._run(metrics.among_all(self.metric, x[1:]), row, starts)

    def objective(self, coords: Array, x: Array) -> Array:
        """Raw stress, sum over pairs of (distance of coords (n, k) - distance of x (n, d))^2; ().

        Its gradient is finite also where points coincide.
        """
        return _stress(coords, metrics.among_all(self.metric, x))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> MDSShared:
        """Distances of the known records (n-1, d), in float64 on the host; O(n^2 d) once, 8 n^2 bytes in float32.

        Raises:
            ValueError: known is not a finite numeric matrix, or k too large for a classical start.
        """
        array = validate.matrix(known, "known")
        dtype = compute_dtype(array)
        between = metrics.among_records(self.metric, array, dtype)
        starts = None
        if shared_key is not None and not self.deterministic:
            starts = self._draw(shared_key, len(array) + 1, dtype)
        return MDSShared(
            known=on_device(array, dtype),
            between=on_device(between, dtype),
            starts=starts,
            classical=self._classical.prepare(array) if self.deterministic else None,
        )

    def insert(self, key: Array, shared: MDSShared, target: Array) -> Embedding:
        """The embedding of [target; known], target (d,), from the start that `fit_transform` has; in XLA."""
        base.check_targets(target[None], shared.known.shape[1])
        starts = self._starts(key[None], shared, target[None])[0]
        return self._run(shared.between, self._rows(shared, target[None])[0], starts)

    def insert_batch(self, keys: Array, shared: MDSShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d): lanes that stop cost nothing on a CPU, little elsewhere (`core.lanes`)."""
        base.check_targets(targets, shared.known.shape[1])
        starts = self._starts(keys, shared, targets)
        results = best_of_starts(self._rule, True, shared.between, self._rows(shared, targets), starts)
        return jax.vmap(_embedding)(*results)

    @property
    def _classical(self) -> ClassicalMDS:
        return ClassicalMDS(n_components=self.n_components, metric=self.metric)

    @property
    def _rule(self) -> Rule:
        return Rule(self.max_iter, self.eps)

    def _draw(self, key: Array, n: int, dtype: Any) -> jax.Array:
        return jax.random.uniform(key, (self.n_init, n, self.n_components), dtype)

    def _starts(self, keys: Array, shared: MDSShared, targets: Array) -> jax.Array:
        """(b, n_init, n, k)."""
        b, n, dtype = targets.shape[0], shared.known.shape[0] + 1, shared.known.dtype
        if self.deterministic:
            return lanes.alone(lambda t: self._classical.insert(keys[0], shared.classical, t).coords[None], targets)
        if shared.starts is not None:
            return jnp.broadcast_to(shared.starts, (b, *shared.starts.shape))
        return jax.vmap(lambda key: self._draw(key, n, dtype))(keys)

    def _rows(self, shared: MDSShared, targets: Array) -> Array:
        """(b, n-1) distances of the targets to the known records."""
        return metrics.to_known(self.metric, jnp.asarray(targets, shared.known.dtype), shared.known)

    def _run(self, between: Array, row: Array, starts: Array) -> Embedding:
        """The best of the starts (n_init, n, k) of one data set."""
        results = best_of_starts(self._rule, False, between, row[None], starts[None])
        return _embedding(*(part[0] for part in results))


def _embedding(coords: Array, stress: Array, n_iter: Array, stopped: Array) -> Embedding:
    centred = coords - jnp.mean(coords, axis=0)
    square = coords.shape[0] * jnp.sum(centred**2)
    status = (
        base.flag(~stopped, Status.NOT_CONVERGED)
        # All records equal: nothing to embed, and no iteration moves a point apart from the others.
        | base.flag(square == 0, Status.DEGENERATE)
        | base.non_finite(coords)
    )
    stress_1 = jnp.sqrt(stress / jnp.maximum(square, jnp.finfo(coords.dtype).tiny))
    return Embedding(coords, stress, n_iter, status, MDSInfo(stress_1))


def _stress(coords: Array, dissimilarities: Array) -> Array:
    return jnp.sum((metrics.in_xla(metrics.EUCLIDEAN, coords, coords) - dissimilarities) ** 2) / 2

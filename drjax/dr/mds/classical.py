"""Classical multidimensional scaling: principal coordinates of the distances."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import streamed, validate
from drjax.core.linalg import on_device, sign_and_margin
from drjax.core.types import Array, Cost, DRMethod, Embedding, Status, hyperparams
from drjax.dr import base, metrics, principal
from drjax.dr.factored import Factors
from drjax.dr.mds.extremes import Extremes, extremes, signs
from drjax.dr.pca.method import PCA, PCAShared


class ClassicalMDSInfo(NamedTuple):
    """Diagnostics of one embedding.

    Attributes:
        eigenvalues: (k,), of the doubly centred squared distances, -1/2 H D^2 H; squared units of distances.
        eigengap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        sign_margin: (k,), largest positive minus largest negative entry of each unit eigenvector, absolute.
    """

    eigenvalues: Array
    eigengap: Array
    sign_margin: Array


class FactoredShared(NamedTuple):
    """What all factored shadows of Euclidean distances share.

    Attributes:
        pca: Known records in their principal basis.
        extremes: Rows that signs may come from.
    """

    pca: PCAShared
    extremes: Extremes


class DistancesShared(NamedTuple):
    """What shadows share where distances are not Euclidean.

    Attributes:
        known: (n-1, d).
        between: (n-1, n-1), distances of the known records, computed in float64.
    """

    known: Array
    between: Array


@hyperparams
class ClassicalMDS:
    """The k leading eigenvectors of the doubly centred squared distances, scaled by sqrt(eigenvalue).

    Deterministic. For Euclidean distances these are the scores of PCA, so that `insert` is PCA's rank-one update. Only
    the signs follow another rule, that of scikit-learn's `ClassicalMDS`: the largest |coordinate| of each column is
    positive. For other metrics a fit and an insertion are an eigendecomposition, O(n^3), and directions whose
    eigenvalue is not above rounding (status DEGENERATE) have coordinates 0; `LandmarkMDS` is for more than some 3,000
    records.

    Attributes:
        n_components: Output dimension k, 1 <= k <= min(n, d); with another metric than the Euclidean one k <= n.
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation".

    Source: Torgerson (1952); Gower (1966) for the equality with PCA.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.ClassicalMDS().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "classical_mds"
    title = "classical multidimensional scaling"
    repeatable = True
    stationary = False
    n_components: int = 2
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)
        metrics.check(self.metric)

    @property
    def is_pca(self) -> bool:
        """True where coordinates are the scores of PCA up to signs."""
        return self.metric == metrics.EUCLIDEAN

    @property
    def has_factors(self) -> bool:
        """True where this is PCA."""
        return self.is_pca

    @property
    def unit(self) -> str | None:
        """That of the distances: none for a metric of directions."""
        return metrics.unit(self.metric)

    @property
    def minimises(self) -> str:
        """What PCA leaves where this is PCA, else the strain."""
        return "squared error that the components leave" if self.is_pca else "strain"

    @property
    def deterministic(self) -> bool:
        """True: the key is ignored."""
        return True

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: as PCA, or distances and an eigendecomposition of each."""
        if self.is_pca:
            return self._pca.cost(n, d, itemsize=itemsize)
        return Cost(
            shared_flops=3.0 * n**2 * d,
            shared_bytes=(12.0 + itemsize) * n**2 + (8.0 + 2 * itemsize) * n * d,
            flops=20.0 * n**3,
            bytes=6.0 * itemsize * n**2,
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d); coords (n, k) in the units of the distances. The objective is `objective`.

        Raises:
            ValueError: at trace time, if x has not rank 2 or k is too large.
        """
        if self.is_pca:
            return _resigned(self._pca.fit_transform(key, x))
        x = base.records(x)
        self._check_size(x.shape[0])
        return self._of_distances(metrics.among_all(self.metric, x))

    def objective(self, coords: Array, x: Array) -> Array:
        """What coords (n, k) leave of x (n, d); ().

        Sum of squares of the centred x that no linear map of the centred coords explains; with another metric than the
        Euclidean one the strain, the sum of squares of -1/2 H D^2 H - Y Y^T for the distances D and Y = H coords.
        """
        if self.is_pca:
            return self._pca.objective(coords, x)
        distances = metrics.among_all(self.metric, jnp.asarray(x, coords.dtype))
        unit = principal.power_of_two(distances)
        return principal.left_over(principal.gram(distances / unit), coords / unit) * unit**4

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PCAShared | DistancesShared:
        """The known records (n-1, d) in their principal basis, see `PCA.prepare`, or their distances.

        Raises:
            ValueError: known is not a finite numeric matrix, or k is too large.
        """
        if self.is_pca:
            return self._pca.prepare(known, shared_key=shared_key)
        array = base.known_records(known)
        self._check_size(len(array) + 1)
        between = metrics.among_records(self.metric, array, array.dtype)
        return DistancesShared(jnp.asarray(array), on_device(between, array.dtype))

    def insert(self, key: Array, shared: PCAShared | DistancesShared, target: Array) -> Embedding:
        """The embedding of [target; known] for target (d,), up to rounding."""
        if not isinstance(shared, DistancesShared):
            return _resigned(self._pca.insert(key, shared, target))
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: PCAShared | DistancesShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d), at the cost of `PCA.insert_batch` or of a fit without its distances."""
        if not isinstance(shared, DistancesShared):
            return jax.vmap(_resigned)(self._pca.insert_batch(keys, shared, targets))
        base.check_targets(targets, shared.known.shape[1])
        rows = metrics.to_known(self.metric, jnp.asarray(targets, shared.known.dtype), shared.known)

        def one(row: Array) -> Embedding:
            first = jnp.concatenate([jnp.zeros(1, row.dtype), row])
            rest = jnp.concatenate([row[:, None], shared.between], axis=1)
            return self._of_distances(jnp.concatenate([first[None], rest]))

        return jax.vmap(one)(rows)

    def prepare_factored(
        self, known: Array, *, dtype: Any, shared_key: Array | None = None
    ) -> tuple[FactoredShared, streamed.Matrix]:
        """As `PCA.prepare_factored`, with the rows that signs may come from; of Euclidean distances.

        Raises:
            ValueError: as of `PCA.prepare`.
        """
        shared, rows = self._pca.prepare_factored(known, dtype=dtype, shared_key=shared_key)
        found = extremes(rows, self.n_components + 1)
        return FactoredShared(shared, jax.tree.map(lambda leaf: on_device(leaf, np.dtype(dtype)), found)), rows

    def insert_factors(self, keys: Array, shared: FactoredShared, targets: Array) -> Embedding:
        """`insert_batch` with `Factors` for coordinates, signs by the rows that lie farthest out.

        A column whose largest |entry| may be another row's has the status SIGN_TIE.
        """
        made = self._pca.insert_factors(keys, shared.pca, targets)
        info, factors = made.info, made.coords
        tiny = jnp.finfo(info.eigenvalues.dtype).tiny
        sign, margin = signs(shared.extremes, factors, jnp.sqrt(jnp.maximum(info.eigenvalues, tiny)))
        turned = Factors(factors.target * sign, factors.turn * sign[..., None], factors.shift * sign)
        return jax.vmap(_signed)(made._replace(coords=turned), margin)

    def _check_size(self, n: int) -> None:
        validate.at_most(n, "n records", n_components=self.n_components)

    def _of_distances(self, distances: Array) -> Embedding:
        n, k = distances.shape[0], self.n_components
        # An eigensolver may not return from a nan; the lane is reported NON_FINITE all the same.
        is_finite = jnp.all(jnp.isfinite(distances))
        distances = jnp.where(is_finite, distances, 0)
        unit = principal.power_of_two(distances)
        gram = principal.gram(distances / unit)
        values, vectors = principal.leading(min(k + 1, n), gram)
        vectors = jnp.where(is_finite, vectors[:, :k], jnp.nan)
        found = principal.coordinates(vectors, values)
        coords = found.coords * unit
        status = (
            base.flag(~jnp.all(found.is_kept), Status.DEGENERATE)
            | base.non_finite(coords)
            | base.sign_flags(found.margin, found.gap, found.is_kept)
        )
        info = ClassicalMDSInfo(values[:k] * unit**2, found.gap, found.margin)
        return Embedding(coords, principal.left_over(gram, found.coords) * unit**4, jnp.int32(0), status, info)

    @property
    def _pca(self) -> PCA:
        return PCA(n_components=self.n_components)


def publishes_scores(method: DRMethod) -> bool:
    """Whether a method's coordinates are scores of PCA, up to signs.

    Example:
        >>> import drjax
        >>> from drjax.dr import publishes_scores
        >>> [publishes_scores(method) for method in (drjax.PCA(), drjax.ClassicalMDS(), drjax.TSNE())]
        [True, True, False]
    """
    return isinstance(method, PCA) or (isinstance(method, ClassicalMDS) and method.is_pca)


def _resigned(embedding: Embedding) -> Embedding:
    coords = embedding.coords
    norm = jnp.sqrt(jnp.maximum(jnp.sum(coords**2, axis=0), jnp.finfo(coords.dtype).tiny))
    sign, margin = sign_and_margin((coords / norm).T)
    return _signed(embedding._replace(coords=coords * sign), margin)


def _signed(embedding: Embedding, margin: Array) -> Embedding:
    """PCA's embedding with the diagnostics of coordinates whose signs are decided by this margin (k,)."""
    info = embedding.info
    # The loadings' tie says nothing of the coordinates'.
    status = embedding.status & ~jnp.uint32(Status.SIGN_TIE)
    return embedding._replace(
        status=status | base.sign_flags(margin, info.eigengap),
        info=ClassicalMDSInfo(info.eigenvalues, info.eigengap, margin),
    )

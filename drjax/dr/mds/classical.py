"""Classical multidimensional scaling: principal coordinates of the Euclidean distances."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import validate
from drjax.core.linalg import sign_and_margin
from drjax.core.types import Array, Cost, Embedding, Status, hyperparams
from drjax.dr import base
from drjax.dr.pca.method import PCA, PCAShared


class ClassicalMDSInfo(NamedTuple):
    """Diagnostics of one embedding.

    Attributes:
        eigenvalues: (k,), of the doubly centred squared distances, -1/2 H D^2 H; input units squared.
        eigengap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        sign_margin: (k,), largest positive minus largest negative entry of each unit eigenvector, absolute.
    """

    eigenvalues: Array
    eigengap: Array
    sign_margin: Array


@hyperparams
class ClassicalMDS:
    """The k leading eigenvectors of the doubly centred squared Euclidean distances, scaled by sqrt(eigenvalue).

    Deterministic. For Euclidean distances these are the scores of PCA, so that `insert` is PCA's rank-one update. Only
    the signs follow another rule, that of scikit-learn's `ClassicalMDS`: the largest |coordinate| of each column is
    positive.

    Attributes:
        n_components: Output dimension k, 1 <= k <= min(n, d).

    Source: Torgerson (1952); Gower (1966) for the equality with PCA.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.ClassicalMDS().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "classical_mds"
    title = "classical multidimensional scaling"
    unit = "of the input"
    minimises = "squared error that the components leave"
    repeatable = True
    stationary = False
    n_components: int = 2

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)

    @property
    def deterministic(self) -> bool:
        """True: the key is ignored."""
        return True

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: as PCA."""
        return self._pca.cost(n, d, itemsize=itemsize)

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d); coords (n, k) in the units of x. The objective is `objective`.

        Raises:
            ValueError: at trace time, if x has not rank 2 or k > min(n, d).
        """
        return _resigned(self._pca.fit_transform(key, x))

    def objective(self, coords: Array, x: Array) -> Array:
        """Sum of squares of the centred x (n, d) that no linear map of the centred coords (n, k) explains; ()."""
        return self._pca.objective(coords, x)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PCAShared:
        """The known records (n-1, d) in their principal basis; see `PCA.prepare`.

        Raises:
            ValueError: known is not a finite numeric matrix, or k > min(n, d).
        """
        return self._pca.prepare(known, shared_key=shared_key)

    def insert(self, key: Array, shared: PCAShared, target: Array) -> Embedding:
        """The embedding of [target; known] for target (d,), up to rounding."""
        return _resigned(self._pca.insert(key, shared, target))

    def insert_batch(self, keys: Array, shared: PCAShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d), at the cost of `PCA.insert_batch`."""
        return jax.vmap(_resigned)(self._pca.insert_batch(keys, shared, targets))

    @property
    def _pca(self) -> PCA:
        return PCA(n_components=self.n_components)


def _resigned(embedding: Embedding) -> Embedding:
    coords, info = embedding.coords, embedding.info
    norm = jnp.sqrt(jnp.maximum(jnp.sum(coords**2, axis=0), jnp.finfo(coords.dtype).tiny))
    sign, margin = sign_and_margin((coords / norm).T)
    # The loadings' tie says nothing of the coordinates'.
    status = embedding.status & ~jnp.uint32(Status.SIGN_TIE)
    return embedding._replace(
        coords=coords * sign,
        status=status | base.sign_flags(margin, info.eigengap),
        info=ClassicalMDSInfo(info.eigenvalues, info.eigengap, margin),
    )

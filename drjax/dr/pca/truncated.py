"""Singular value decomposition of the records as they are, and what one more record does to it in closed form."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from drjax.core import validate
from drjax.core.streamed import Matrix
from drjax.core.types import Array, Cost, Embedding, hyperparams
from drjax.dr import base
from drjax.dr.pca.method import (
    PCA,
    PCAShared,
    inserted,
    inserted_factors,
    prepared,
    prepared_factored,
    scores_of,
    unexplained,
)


@hyperparams
class TruncatedSVD:
    """Scores U_k S_k of the records on their leading k right singular vectors: PCA without centring.

    Deterministic. Signs follow the rule of `PCA`, which is that of scikit-learn's `TruncatedSVD` as well: each
    component's largest |loading| is positive. `insert` is a rank-one update at the cost of PCA's.

    Attributes:
        n_components: Output dimension k, 1 <= k <= min(n, d).

    Source: scikit-learn 1.9 `decomposition.TruncatedSVD` with `algorithm="arpack"`; its default, a randomised solver,
        comes close to the same scores.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.TruncatedSVD().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "svd"
    title = "truncated SVD"
    unit = "of the input"
    minimises = "squared error that the components leave"
    repeatable = True
    has_factors = True
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
        return PCA(n_components=self.n_components).cost(n, d, itemsize=itemsize)

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Scores (n, k) of x (n, d) in its units; one thin SVD, O(n d min(n, d)).

        The objective is the sum of squares of x that the components leave unexplained.

        Raises:
            ValueError: at trace time, if x has not rank 2 or k > min(n, d).
        """
        del key
        x = base.records(x)
        base.check_components(self.n_components, *x.shape)
        return scores_of(x, self.n_components)

    def objective(self, coords: Array, x: Array) -> Array:
        """Sum of squares of x (n, d) that no linear map of coords (n, k) explains; ()."""
        return unexplained(jnp.asarray(x, coords.dtype), coords)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PCAShared:
        """The known records (n-1, d) in the basis of their right singular vectors, see `PCA.prepare`.

        Raises:
            ValueError: known is not a finite numeric matrix, or k > min(n, d).
        """
        del shared_key
        return prepared(known, self.n_components, is_centred=False)

    def insert(self, key: Array, shared: PCAShared, target: Array) -> Embedding:
        """The scores of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: PCAShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); see `PCA.insert_batch`."""
        del keys
        return inserted(shared, targets, self.n_components, share=0.0)

    def prepare_factored(
        self, known: Array, *, dtype: Any, shared_key: Array | None = None
    ) -> tuple[PCAShared, Matrix]:
        """See `PCA.prepare_factored`."""
        del shared_key
        return prepared_factored(known, self.n_components, dtype, is_centred=False)

    def insert_factors(self, keys: Array, shared: PCAShared, targets: Array) -> Embedding:
        """See `PCA.insert_factors`."""
        del keys
        return inserted_factors(shared, targets, self.n_components, share=0.0)

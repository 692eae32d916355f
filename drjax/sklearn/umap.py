"""An estimator with umap-learn's names on drjax's UMAP."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from drjax import dr
from drjax.sklearn.common import FLOATS, draw_key, embed, precision


class UMAP(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """UMAP by `drjax.dr.UMAP`, with the names and defaults of umap-learn's parameters as far as drjax has them.

    Like scikit-learn's `TSNE` it embeds the data it is fitted to and has no `transform`.

    Parameters:
        n_neighbors: >= 2, each record counted as its own nearest; n_samples - 1 where it is not below n_samples.
        n_components: Output dimension k >= 1.
        metric: "euclidean", "cosine", "manhattan" or "correlation".
        n_epochs: >= 1; None is 500 for n_samples <= 10,000 and 200 above.
        learning_rate: >= 0 of the first epoch.
        init: "spectral" or "random".
        min_dist: In [0, spread].
        spread: > 0.
        set_op_mix_ratio: In [0, 1].
        local_connectivity: > 0 and below n_neighbors.
        repulsion_strength: >= 0.
        negative_sample_rate: >= 0.
        random_state: int, RandomState or None, which takes fresh entropy. The same int gives the same map, but not
            umap-learn's.

    Attributes:
        embedding_: (n_samples, k).
        graph_: (n_samples, n_samples), CSR, weights of the fuzzy simplicial set, without those too small for an update.
        n_epochs_: Epochs run.
        n_features_in_, feature_names_in_: Attributes as everywhere in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import UMAP
        >>> x = load_digits().data[:60].astype("float32")
        >>> UMAP(n_neighbors=5, n_epochs=20, random_state=0).fit_transform(x).shape
        (60, 2)
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        n_components: int = 2,
        metric: str = "euclidean",
        n_epochs: int | None = None,
        learning_rate: float = 1.0,
        init: str = "spectral",
        min_dist: float = 0.1,
        spread: float = 1.0,
        set_op_mix_ratio: float = 1.0,
        local_connectivity: float = 1.0,
        repulsion_strength: float = 1.0,
        negative_sample_rate: int = 5,
        random_state: Any = None,
    ):
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.metric = metric
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.init = init
        self.min_dist = min_dist
        self.spread = spread
        self.set_op_mix_ratio = set_op_mix_ratio
        self.local_connectivity = local_connectivity
        self.repulsion_strength = repulsion_strength
        self.negative_sample_rate = negative_sample_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> UMAP:
        """Embeds X (n_samples, n_features), n_samples >= 3; y is ignored.

        Raises:
            ValueError: a parameter is out of range, or X is not a finite matrix of at least three rows.
        """
        del y
        method = dr.UMAP(
            n_components=self.n_components,
            n_neighbors=self.n_neighbors,
            min_dist=self.min_dist,
            spread=self.spread,
            n_epochs=self.n_epochs,
            learning_rate=self.learning_rate,
            negative_sample_rate=self.negative_sample_rate,
            repulsion_strength=self.repulsion_strength,
            init=self.init,
            set_op_mix_ratio=self.set_op_mix_ratio,
            local_connectivity=self.local_connectivity,
            metric=self.metric,
        )
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=3)
        embedding = embed(method, X, draw_key(self.random_state))
        self.embedding_, self.n_epochs_ = embedding.coords, int(embedding.n_iter)
        with precision(X.dtype):
            self.graph_ = method.graph(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:  # pyrefly: ignore[bad-override] (as of TSNE)
        """Embeds X and returns embedding_, (n_samples, n_components)."""
        return self.fit(X, y).embedding_

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

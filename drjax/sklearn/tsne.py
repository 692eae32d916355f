"""scikit-learn's `TSNE` on drjax's."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import sklearn.manifold
from scipy.sparse import issparse
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_non_negative, validate_data

from drjax.core.types import Array
from drjax.dr.metrics import METRICS
from drjax.dr.tsne import near
from drjax.dr.tsne.affinity import joint_probabilities
from drjax.dr.tsne.cpu import Descent, tsne_batch
from drjax.dr.tsne.method import MESH_FROM, START_STD
from drjax.dr.tsne.xla import descend
from drjax.sklearn.common import FLOATS, generator, precision
from drjax.sklearn.pca import PCA


class TSNE(sklearn.manifold.TSNE):
    """`sklearn.manifold.TSNE` by the exact t-SNE of `drjax.dr`.

    Parameters and fitted attributes are scikit-learn's. Below `drjax.dr.tsne.method.MESH_FROM` samples both methods are
    computed with all affinities and the exact gradient. From there on "barnes_hut" in the plane takes affinities of
    near samples and repulsion by a mesh, as `drjax.TSNE` does, if the metric is one of drjax's without `metric_params`;
    all else still holds all distances. `angle` has no effect, nor has `n_jobs`. float64 input is computed in float64,
    where scikit-learn takes float32. A random start is the one that scikit-learn draws from the
    same `random_state`. The descent is chaotic: maps equal scikit-learn's in distribution. Sparse data are made dense;
    a sparse precomputed matrix must have all distances. With verbose = 2 the last iteration is printed.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import TSNE
        >>> x = load_digits().data[:60].astype("float32")
        >>> TSNE(perplexity=10.0, max_iter=250, random_state=0).fit_transform(x).shape
        (60, 2)
    """

    def fit(self, X: Any, y: Any = None) -> TSNE:
        """Embeds X, (n_samples, n_features), or (n_samples, n_samples) if metric is "precomputed"."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Embeds X and returns embedding_, (n_samples, n_components).

        Raises:
            ValueError: perplexity >= n_samples, or distances that are negative, not square or not complete.
        """
        del y
        self._validate_params()
        X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], dtype=FLOATS, ensure_min_samples=2)
        n = X.shape[0]
        if self.perplexity >= n:
            raise ValueError(f"perplexity ({self.perplexity}) must be less than n_samples ({n})")
        if self.method == "barnes_hut" and self.n_components > 3:
            raise ValueError("'n_components' should be inferior to 4 for the barnes_hut algorithm, or method 'exact'")
        if self.learning_rate == "auto":
            self.learning_rate_ = max(n / self.early_exaggeration / 4, 50.0)
        else:
            self.learning_rate_ = self.learning_rate
        squared = None if self._is_by_mesh(n) else self._squared_distances(X).astype(X.dtype)
        start = self._start(X).astype(X.dtype)
        descent = Descent(
            exaggeration=float(self.early_exaggeration),
            learning_rate=float(self.learning_rate_),
            max_iter=int(self.max_iter),
            exploration=min(self._EXPLORATION_MAX_ITER, int(self.max_iter)),
            patience=int(self.n_iter_without_progress),
            min_grad_norm=float(self.min_grad_norm),
        )
        if squared is None:
            points = X.toarray() if issparse(X) else X
            found = near.fitted(self.metric, float(self.perplexity), descent, points, start)[:4]
        else:
            if self.verbose:
                print(f"[t-SNE] Computed squared distances of {n} samples")
            found = _run(squared, start, float(self.perplexity), descent)
        self.embedding_, self.kl_divergence_, grad_norm, count = _of_host(*found)
        self.n_iter_ = count - 1  # scikit-learn's is the number of the last iteration, from 0
        if self.verbose >= 2:
            print(
                f"[t-SNE] Iteration {count}: error = {self.kl_divergence_:.7f}, gradient norm = {grad_norm:.7f} when "
                "the stopping rules last looked at it"
            )
        if self.verbose:
            print(f"[t-SNE] KL divergence after {count} iterations: {self.kl_divergence_:f}")
        return self.embedding_

    def _is_by_mesh(self, n: int) -> bool:
        """Whether scikit-learn too would approximate, and drjax can."""
        is_known = self.metric in METRICS and not self.metric_params
        return is_known and self.method == "barnes_hut" and self.n_components == 2 and n >= MESH_FROM

    def _squared_distances(self, X: Any) -> np.ndarray:
        n, params = X.shape[0], self.metric_params or {}
        if self.metric == "precomputed":
            self._check_precomputed(X)
            if issparse(X):
                # Refuses a graph that has not all distances.
                complete = NearestNeighbors(n_neighbors=n - 1, metric="precomputed").fit(X)
                X = complete.kneighbors_graph(mode="distance").toarray()
            distances = X
        else:
            X = X.toarray() if issparse(X) else X
            if self.metric == "euclidean":
                return pairwise_distances(X, metric="sqeuclidean")
            if self.metric == "mahalanobis" and "VI" not in params:
                if "V" not in params:
                    raise ValueError("Must provide either V or VI for Mahalanobis distance")
                params = {"VI": np.linalg.inv(params["V"])}
            distances = pairwise_distances(X, metric=self.metric, **params)
        if np.any(distances < 0):
            raise ValueError("All distances should be positive, the metric given is not correct")
        return distances**2

    def _check_precomputed(self, X: Any) -> None:
        if isinstance(self.init, str) and self.init == "pca":
            raise ValueError('The parameter init="pca" cannot be used with metric="precomputed".')
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"X should be a square distance matrix, got shape {X.shape}")
        check_non_negative(X, "TSNE.fit(). With metric='precomputed', X should contain positive distances.")
        if self.method == "exact" and issparse(X):
            raise TypeError(
                'TSNE with method="exact" does not accept a sparse precomputed distance matrix, as in scikit-learn. '
                'Pass the dense matrix or method="barnes_hut".'
            )

    def _start(self, X: Any) -> np.ndarray:
        shape = (X.shape[0], self.n_components)
        if isinstance(self.init, np.ndarray):
            if self.init.shape != shape:
                raise ValueError(f"init must have shape {shape}, got {self.init.shape}")
            return self.init
        if self.init == "random":
            # Rounded as scikit-learn's.
            return START_STD * generator(self.random_state).standard_normal(size=shape).astype(np.float32)
        X = X.toarray() if issparse(X) else X
        pca = PCA(n_components=self.n_components, svd_solver="full").set_output(transform="default")
        coords = pca.fit_transform(X)
        spread = np.std(coords[:, 0])
        return coords / (spread if spread > 0 else 1) * START_STD


def _run(squared: np.ndarray, start: np.ndarray, perplexity: float, descent: Descent) -> tuple[Array, ...]:
    """Coordinates (n, k), divergence, norm of the last gradient that was looked at, and iterations."""
    if jax.default_backend() == "cpu":
        found = tsne_batch(squared[1:, 1:], squared[:1, 1:], start[None], perplexity, descent)
        return tuple(leaf[0] for leaf in found[:4])
    with precision(start.dtype):
        return _run_on_device(squared, start, perplexity, descent)[:4]


def _of_host(coords: Array, divergence: Array, norm: Array, count: Array) -> tuple[np.ndarray, float, float, int]:
    return np.array(coords), float(divergence), float(norm), int(count)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _run_on_device(squared: Array, start: Array, perplexity: float, descent: Descent) -> tuple:
    return descend(joint_probabilities(squared, perplexity), start, descent)

"""scikit-learn's `Isomap` on drjax's."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.manifold
from scipy.sparse import issparse
from sklearn.decomposition import KernelPCA
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import KernelCenterer
from sklearn.utils import check_array

from drjax.core import validate
from drjax.core.types import Array
from drjax.dr.isomap import shortest_paths
from drjax.dr.isomap.path_insertion import join
from drjax.sklearn.common import FLOATS, precision, principal_coordinates

CSR: Any = "csr"  # scikit-learn's annotations allow only what the default is


class Isomap(sklearn.manifold.Isomap):
    """`sklearn.manifold.Isomap` by the graph, shortest paths and eigenpairs of drjax.

    Parameters and fitted attributes are scikit-learn's. With Euclidean distances and `n_neighbors` the embedding is
    that of `drjax.dr.Isomap`. With `radius`, another metric or a precomputed graph, scikit-learn finds the neighbours
    and drjax the shortest paths and the embedding. Both are exact whatever `eigen_solver`, `path_method`, `tol`,
    `max_iter` and `neighbors_algorithm` say, and float32 input stays float32. Of neighbours at equal distance
    `n_neighbors` takes those of lowest index.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import Isomap
        >>> x = load_digits().data[:60]
        >>> model = Isomap(n_neighbors=6).fit(x)
        >>> model.embedding_.shape, model.transform(x[:3]).shape
        ((60, 2), (3, 2))
    """

    def fit(self, X: Any, y: Any = None) -> Isomap:
        """Embeds X, (n_samples, n_features), or (n_samples, n_samples) if metric is "precomputed"."""
        del y
        self._embed(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Embeds X and returns embedding_, (n_samples, n_components)."""
        del y
        self._embed(X)
        return self.embedding_

    def _embed(self, X: Any) -> None:
        self._validate_params()
        if self.n_neighbors is not None and self.radius is not None:
            raise ValueError(
                f"Both n_neighbors and radius are provided. Use Isomap(radius={self.radius}, n_neighbors=None) for "
                "neighbours within a radius"
            )
        radius: Any = self.radius
        self.nbrs_ = NearestNeighbors(
            n_neighbors=self.n_neighbors,
            radius=radius,
            algorithm=self.neighbors_algorithm,
            metric=self.metric,
            p=self.p,
            metric_params=self.metric_params,
            n_jobs=self.n_jobs,
        ).fit(X)
        self.n_features_in_ = self.nbrs_.n_features_in_
        if hasattr(self.nbrs_, "feature_names_in_"):
            self.feature_names_in_ = self.nbrs_.feature_names_in_
        x = check_array(X, accept_sparse=CSR, dtype=FLOATS)
        is_euclidean = self.nbrs_.effective_metric_ == "euclidean" and not self.nbrs_.effective_metric_params_
        if is_euclidean and self.n_neighbors is not None:
            x = x.toarray() if issparse(x) else x
            self.dist_matrix_, n_parts = _geodesics(x, int(self.n_neighbors))
        else:
            self.dist_matrix_, n_parts = self._paths_of_graph(x)
        if n_parts > 1:
            warnings.warn(
                f"The number of connected components of the neighbors graph is {n_parts} > 1. They were joined by the "
                "closest pair of points of every two; more neighbors may avoid this.",
                stacklevel=3,
            )
        self.embedding_, values, vectors = principal_coordinates(self.dist_matrix_, self.n_components)
        self._n_features_out = self.embedding_.shape[1]
        self.kernel_pca_ = _kernel_pca(self, self.dist_matrix_, values, vectors)

    def _paths_of_graph(self, x: Any) -> tuple[np.ndarray, int]:
        """Shortest paths (n, n) of the graph that scikit-learn's neighbours make, and the number of its components."""
        find = self.nbrs_.radius_neighbors_graph if self.n_neighbors is None else self.nbrs_.kneighbors_graph
        graph = find(mode="distance").tocoo()
        n = x.shape[0]
        edges = np.full((n, n), np.inf)
        edges[graph.row, graph.col] = graph.data
        edges = np.minimum(edges, edges.T)
        np.fill_diagonal(edges, 0)
        with precision(np.float64):
            paths = np.array(_floyd_warshall(edges))
        if np.isinf(paths).any():
            n_parts = join(*self._between(x), paths)
        else:
            n_parts = 1
        return paths.astype(x.dtype), n_parts

    def _between(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """All distances: of the points after the first (n-1, n-1), and of the first to them (n-1,)."""
        if self.metric != "precomputed":
            between = pairwise_distances(x, metric=self.nbrs_.effective_metric_, **self.nbrs_.effective_metric_params_)
        elif issparse(x):
            raise RuntimeError(
                "The number of connected components of the neighbors graph is > 1, and a precomputed sparse graph has "
                "no distances to join them by. Increase the number of neighbors, or pass the full distance matrix."
            )
        else:
            between = x
        between = np.asarray(between, np.float64)
        return np.ascontiguousarray(between[1:, 1:]), np.ascontiguousarray(between[0, 1:])


def _geodesics(x: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, int]:
    n = len(x)
    validate.at_most(n - 1, f"n_samples - 1 with n_samples = {n}", n_neighbors=n_neighbors)
    with precision(x.dtype):
        paths, n_parts = _jitted_geodesics(x, n_neighbors)
        return np.array(paths), int(n_parts)


@functools.partial(jax.jit, static_argnums=1)
def _jitted_geodesics(x: Array, n_neighbors: int) -> tuple[Array, Array]:
    return shortest_paths.geodesics(x, n_neighbors)


@jax.jit
def _floyd_warshall(edges: Array) -> Array:
    def through(pivot: Array, paths: Array) -> Array:
        return jnp.minimum(paths, paths[pivot][:, None] + paths[pivot])

    return jax.lax.fori_loop(0, edges.shape[0], through, edges)


def _kernel_pca(isomap: Isomap, paths: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> KernelPCA:
    """A KernelPCA as if scikit-learn had fitted it; `transform` and `reconstruction_error` read it."""
    gram = -0.5 * paths**2
    kernel_pca = KernelPCA(
        n_components=isomap.n_components,
        kernel="precomputed",
        eigen_solver=isomap.eigen_solver,
        tol=isomap.tol,
        max_iter=isomap.max_iter,
        n_jobs=isomap.n_jobs,
    ).set_output(transform="default")
    is_kept = values > len(gram) * np.finfo(values.dtype).eps * max(values[0], 0)
    kernel_pca.eigenvalues_, kernel_pca.eigenvectors_ = np.where(is_kept, values, 0), vectors
    kernel_pca.X_fit_, kernel_pca.gamma_, kernel_pca.n_features_in_ = gram, 1 / len(gram), len(gram)
    kernel_pca._centerer = KernelCenterer().set_output(transform="default").fit(gram)
    return kernel_pca

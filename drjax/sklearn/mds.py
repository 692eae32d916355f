"""scikit-learn's `MDS`, `ClassicalMDS` and `smacof` on drjax's."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import numpy as np
import sklearn.manifold
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import pairwise_distances
from sklearn.utils import check_array, check_symmetric
from sklearn.utils.validation import validate_data

from drjax import dr
from drjax.core import validate
from drjax.core.types import Array
from drjax.dr.mds.cpu import smacof_batch
from drjax.dr.mds.smacof import smacof as smacof_on_device
from drjax.sklearn.common import FLOATS, embed, generator, precision, principal_coordinates


class ClassicalMDS(sklearn.manifold.ClassicalMDS):
    """`sklearn.manifold.ClassicalMDS` by `drjax.dr.ClassicalMDS`, or by drjax's eigenpairs for other metrics.

    Parameters and fitted attributes are scikit-learn's. Directions whose eigenvalue is not above rounding have
    coordinates 0, where scikit-learn's are nan if it is negative.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import ClassicalMDS
        >>> ClassicalMDS(metric="manhattan").fit_transform(load_digits().data[:60]).shape
        (60, 2)
    """

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Embeds X, (n_samples, n_features) or dissimilarities (n_samples, n_samples) if metric is "precomputed"."""
        del y
        self._validate_params()
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        self.dissimilarity_matrix_ = _dissimilarities(X, self.metric, self.metric_params)
        if _is_euclidean(self.metric, self.metric_params) and self.n_components <= min(X.shape):
            embedding = embed(dr.ClassicalMDS(n_components=int(self.n_components)), X)
            self.embedding_, self.eigenvalues_ = embedding.coords, embedding.info.eigenvalues
        else:
            self.embedding_, self.eigenvalues_, _ = principal_coordinates(self.dissimilarity_matrix_, self.n_components)
        return self.embedding_


class MDS(sklearn.manifold.MDS):
    """`sklearn.manifold.MDS` by the SMACOF of `drjax.dr`.

    Parameters and fitted attributes are scikit-learn's, deprecated ones included. A `random_state` gives scikit-learn's
    own starting points, and so its embedding to rounding. Nonmetric scaling is not implemented. `n_jobs` and `verbose`
    have no effect.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import MDS
        >>> model = MDS(n_init=1, init="random", random_state=0, max_iter=50)
        >>> model.fit_transform(load_digits().data[:60]).shape, bool(model.stress_ > 0)
        ((60, 2), True)
    """

    def fit_transform(self, X: Any, y: Any = None, init: Any = None) -> np.ndarray:
        """Embeds X, (n_samples, n_features) or dissimilarities (n_samples, n_samples) if metric is "precomputed".

        Args:
            X: The data, n_samples >= 2.
            y: Ignored.
            init: Start (n_samples, n_components), which takes the place of the parameter `init`.

        Returns:
            embedding_, (n_samples, n_components).

        Raises:
            NotImplementedError: metric_mds (or, deprecated, metric) is False.
        """
        del y
        self._validate_params()
        metric, metric_mds = self._metric_and_kind()
        start = self._start()
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        if X.shape[0] == X.shape[1] and metric != "precomputed":
            warnings.warn(
                "The provided input is a square matrix; its rows are taken for samples. For a matrix of "
                "dissimilarities set metric='precomputed'.",
                stacklevel=2,
            )
        self.dissimilarity_matrix_ = _dissimilarities(X, metric, self.metric_params)
        if init is None and start == "classical_mds":
            init = principal_coordinates(self.dissimilarity_matrix_, self.n_components)[0]
        self.embedding_, self.stress_, self.n_iter_ = smacof(
            self.dissimilarity_matrix_,
            metric=metric_mds,
            n_components=self.n_components,
            init=init,
            n_init=self.n_init,
            max_iter=self.max_iter,
            eps=self.eps,
            random_state=self.random_state,
            return_n_iter=True,
            normalized_stress=self.normalized_stress,
        )
        return self.embedding_

    def _start(self) -> str:
        if self.init != "warn":
            return self.init
        warnings.warn(
            "The default value of `init` will change from 'random' to 'classical_mds' in scikit-learn 1.10. Provide "
            "a value to silence this.",
            FutureWarning,
            stacklevel=3,
        )
        return "random"

    def _metric_and_kind(self) -> tuple[Any, bool]:
        """The metric and whether scaling is metric, deprecated parameters resolved."""
        is_old = isinstance(self.metric, bool)  # up to 1.7 `metric` said what `metric_mds` does
        metric = "euclidean" if is_old else self.metric
        if self.dissimilarity != "deprecated":
            if metric != "euclidean":
                raise ValueError("You provided both `dissimilarity` and `metric`. Please use only `metric`.")
            warnings.warn(
                "The `dissimilarity` parameter is deprecated and will be removed in scikit-learn 1.10. Use `metric`.",
                FutureWarning,
                stacklevel=3,
            )
            metric = self.dissimilarity
        if is_old:
            warnings.warn(
                f"Use metric_mds={self.metric} instead of metric={self.metric}, which scikit-learn 1.10 drops.",
                FutureWarning,
                stacklevel=3,
            )
        return metric, bool(self.metric if is_old else self.metric_mds)


def smacof(
    dissimilarities: Any,
    *,
    metric: bool = True,
    n_components: int = 2,
    init: Any = None,
    n_init: int = 1,
    n_jobs: int | None = None,
    max_iter: int = 300,
    verbose: int = 0,
    eps: float = 1e-6,
    random_state: Any = None,
    return_n_iter: bool = False,
    normalized_stress: bool | str = "auto",
) -> tuple:
    """`sklearn.manifold.smacof` by drjax: on a CPU one compiled loop, elsewhere XLA; in the input's precision.

    Args:
        dissimilarities: (n, n), symmetric.
        metric: Must be True.
        n_components: Output dimension k, if no `init` is given.
        init: (n, k), the start; else `n_init` starts are drawn as scikit-learn draws them.
        n_init: Starts, of which the least stress is kept.
        n_jobs: Ignored; the starts share one loop.
        max_iter: Most iterations.
        verbose: Ignored.
        eps: Stops when the stress falls by less than this share of the sum of squared distances.
        random_state: int, RandomState or None, which takes fresh entropy.
        return_n_iter: Whether to return the iterations too.
        normalized_stress: Whether to return Kruskal's stress-1 in place of the raw stress; "auto" is False.

    Returns:
        coords (n, k), stress and, if asked for, the number of iterations.

    Raises:
        ValueError: dissimilarities are not square and symmetric, or init has another number of rows.
        NotImplementedError: metric is False.

    Example:
        >>> from scipy.spatial.distance import pdist, squareform
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import smacof
        >>> between = squareform(pdist(load_digits().data[:60]))
        >>> coords, stress = smacof(between, n_components=2, random_state=0, max_iter=50)
        >>> coords.shape, bool(stress > 0)
        ((60, 2), True)
    """
    del n_jobs, verbose
    if not metric:
        raise NotImplementedError("metric must be True: nonmetric MDS is not implemented")
    validate.integer(n_components=n_components, n_init=n_init, max_iter=max_iter)
    validate.non_negative(eps=eps)
    delta = check_symmetric(check_array(dissimilarities, dtype=FLOATS, ensure_min_samples=2), raise_exception=True)
    n = len(delta)
    if init is None:
        rng = generator(random_state)
        starts = np.stack([rng.uniform(size=n * n_components).reshape(n, n_components) for _ in range(n_init)])
    else:
        if n_init != 1:
            warnings.warn(
                f"Explicit initial positions passed: performing only one init of the MDS instead of {n_init}",
                stacklevel=2,
            )
        starts = check_array(init, dtype=FLOATS)[None]
        if starts.shape[1] != n:
            raise ValueError(f"init matrix should be of shape ({n}, {starts.shape[2]}), got {starts.shape[1:]}")
    coords, n_iter = _run(delta, starts.astype(delta.dtype), max_iter, float(eps))
    # From the distances themselves: the kernel's sum over points is exact only beside the dissimilarities' sum.
    fitted = pdist(coords.astype(np.float64))
    stress = np.sum((fitted - squareform(delta, checks=False)) ** 2)
    if normalized_stress is True:
        stress = np.sqrt(stress / np.sum(fitted**2))
    return (coords, stress, n_iter) if return_n_iter else (coords, stress)


def _run(delta: np.ndarray, starts: np.ndarray, max_iter: int, eps: float) -> tuple[np.ndarray, int]:
    """Coordinates (n, k) and iterations of the best of the starts (n_init, n, k)."""
    if jax.default_backend() == "cpu":
        coords, _, n_iter, _ = smacof_batch(delta[1:, 1:], delta[:1, 1:], starts[None], max_iter, eps)
        return coords[0], int(n_iter[0])
    with precision(delta.dtype):
        coords, stress, n_iter, _ = _run_on_device(delta, starts, max_iter, eps)
        best = int(np.argmin(stress))
        return np.array(coords[best]), int(n_iter[best])


@functools.partial(jax.jit, static_argnums=(2, 3))
def _run_on_device(delta: Array, starts: Array, max_iter: int, eps: float) -> tuple:
    return jax.vmap(lambda start: smacof_on_device(delta, start, max_iter=max_iter, eps=eps))(starts)


def _is_euclidean(metric: Any, params: dict | None) -> bool:
    if metric in ("euclidean", "l2"):
        return not params
    return metric == "minkowski" and (params or {}) in ({}, {"p": 2})


def _dissimilarities(X: np.ndarray, metric: Any, params: dict | None) -> np.ndarray:
    """(n, n), in the dtype of X."""
    if metric == "precomputed":
        return check_symmetric(X, raise_exception=True)
    return np.asarray(pairwise_distances(X, metric=metric, **(params or {})), X.dtype)

"""scikit-learn's `PCA` on drjax's."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import sklearn.decomposition
from scipy.sparse import issparse
from sklearn.decomposition._pca import _infer_dimension
from sklearn.utils.validation import validate_data

from drjax import dr
from drjax.sklearn.common import FLOATS, embed

TRUNCATED = ("arpack", "randomized")
SPARSE = ("auto", "arpack", "covariance_eigh")


class PCA(sklearn.decomposition.PCA):
    """`sklearn.decomposition.PCA` with the decomposition of `drjax.dr.PCA`.

    Parameters and fitted attributes are scikit-learn's. Every `svd_solver` is computed by one exact singular value
    decomposition, so that `tol`, `iterated_power`, `n_oversamples`, `power_iteration_normalizer` and `random_state`
    have no effect; the solver's name decides which `n_components` are allowed, as in scikit-learn. Sparse input, where
    scikit-learn allows it, is made dense. The input is never overwritten, whatever `copy` says.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import PCA
        >>> x = load_digits().data[:60]
        >>> model = PCA(n_components=2).fit(x)
        >>> model.transform(x).shape, model.components_.shape
        ((60, 2), (2, 64))
    """

    def fit(self, X: Any, y: Any = None) -> PCA:
        """Fits the components to X (n_samples, n_features), n_samples >= 2; y is ignored."""
        del y
        self._decompose(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fits the components to X and returns its scores (n_samples, n_components_)."""
        del y
        scores = self._decompose(X)[:, : self.n_components_]
        if not self.whiten:
            return scores
        floor = np.finfo(scores.dtype).eps  # as `transform` has it
        return scores / np.maximum(np.sqrt(self.explained_variance_), floor)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        return tags

    def _decompose(self, X: Any) -> np.ndarray:
        """Sets the fitted attributes; all min(n, d) scores of X."""
        self._validate_params()
        if issparse(X) and self.svd_solver not in SPARSE:
            raise TypeError(
                'PCA only support sparse inputs with the "arpack" and "covariance_eigh" solvers, while '
                f'"{self.svd_solver}" was passed'
            )
        is_sparse = issparse(X)
        X = validate_data(self, X, dtype=FLOATS, accept_sparse=("csr", "csc"), ensure_min_samples=2)
        self._fit_svd_solver = self._solver(X, is_sparse)
        n_components = self._checked_components(X)
        if is_sparse:
            X = X.toarray()

        self.mean_ = X.mean(axis=0)
        embedding = embed(dr.PCA(n_components=min(X.shape)), X)
        scores, eigenvalues = embedding.coords, embedding.info.eigenvalues
        variance = eigenvalues / (len(X) - 1)
        ratio = variance / variance.sum()
        if n_components == "mle":
            n_components = _infer_dimension(variance, len(X))
        elif not isinstance(n_components, Integral) and n_components < 1:
            n_components = int(np.searchsorted(np.cumsum(ratio), n_components, side="right")) + 1
        k = int(n_components)
        self.n_samples_, self.n_components_ = len(X), k
        self.components_ = _directions(X - self.mean_, scores, eigenvalues)[:k]
        self.explained_variance_ = variance[:k]
        self.explained_variance_ratio_ = ratio[:k]
        self.singular_values_ = np.sqrt(eigenvalues)[:k]
        self.noise_variance_ = variance[k:].mean() if k < min(X.shape) else 0.0
        return scores

    def _solver(self, X: Any, is_sparse: bool) -> str:
        """The name that scikit-learn would settle on."""
        if self.svd_solver != "auto":
            return self.svd_solver
        n, d = X.shape
        if is_sparse:
            return "arpack"
        if d <= 1000 and n >= 10 * d:
            return "covariance_eigh"
        if max(n, d) <= 500 or isinstance(self.n_components, str) or self.n_components is None:
            return "full"
        return "randomized" if 1 <= self.n_components < 0.8 * min(n, d) else "full"

    def _checked_components(self, X: Any) -> Any:
        """n_components with None resolved; a ValueError where the solver does not allow it."""
        n, d = X.shape
        solver, k = self._fit_svd_solver, self.n_components
        if k is None:
            return min(n, d) - (solver == "arpack")
        if isinstance(k, str):
            if solver in TRUNCATED:
                raise ValueError(f"n_components={k!r} cannot be a string with svd_solver='{solver}'")
            if n < d:
                raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
            return k
        least = 1 if solver in TRUNCATED else 0
        if not least <= k <= min(n, d):
            raise ValueError(
                f"n_components={k!r} must be between {least} and min(n_samples, n_features)={min(n, d)} with "
                f"svd_solver={solver!r}"
            )
        if solver == "arpack" and k == min(n, d):
            raise ValueError(
                f"n_components={k!r} must be strictly less than min(n_samples, n_features)={min(n, d)} with "
                f"svd_solver={solver!r}"
            )
        return k


def _directions(centred: np.ndarray, scores: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Orthonormal principal directions (r, d) of the scores (n, r).

    Directions without variance are not determined; they complete the others.
    """
    # Scores of hardly any variance are mostly rounding along the directions before them, which the QR takes out.
    weights = np.where(eigenvalues > 0, eigenvalues, 1)
    directions, triangle = np.linalg.qr(centred.T @ scores / weights)
    return np.ascontiguousarray((directions * np.where(np.diag(triangle) < 0, -1, 1).astype(scores.dtype)).T)

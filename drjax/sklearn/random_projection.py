"""scikit-learn's `SparseRandomProjection` on drjax's."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import sklearn.random_projection

from drjax import dr
from drjax.core import validate
from drjax.sklearn.common import draw_key, precision


def sparse_random_matrix(
    n_components: int, n_features: int, density: float | str = "auto", random_state: Any = None
) -> Any:
    """A matrix (n_components, n_features) drawn by `drjax.dr.SparseRandomProjection`, of scikit-learn's entries.

    They are 0 and +-sqrt(1 / density) / sqrt(n_components), in float64.

    Args:
        n_components: Rows.
        n_features: Columns.
        density: Share of entries that are not 0, in (0, 1]; "auto" is 1 / sqrt(n_features).
        random_state: int, RandomState or None, which takes fresh entropy.

    Returns:
        A CSR array, or an ndarray if the density is 1.

    Raises:
        ValueError: n_components or n_features < 1, or density out of range.
    """
    validate.integer(n_components=n_components, n_features=n_features)
    share = 1 / np.sqrt(n_features) if isinstance(density, str) else density
    method = dr.SparseRandomProjection(n_components=int(n_components), density=share)
    # Signs alone: scikit-learn rounds the value of an entry in another order.
    with precision(np.float32):
        shared: Any = method.prepare(np.zeros((1, n_features), np.float32), shared_key=draw_key(random_state))
        signs = np.sign(np.asarray(shared.matrix).T).astype(np.float64)
    value = np.sqrt(1 / share) / np.sqrt(n_components)
    if share == 1:
        return value * signs
    return value * scipy.sparse.csr_array(signs)


class SparseRandomProjection(sklearn.random_projection.SparseRandomProjection):
    """`sklearn.random_projection.SparseRandomProjection` with the matrix that drjax draws.

    Parameters and fitted attributes are scikit-learn's. Entries have scikit-learn's law (each is independent of the
    others) and values, not its random stream: the same `random_state` gives another matrix. An int s gives that of
    `drjax.dr.SparseRandomProjection` and the key `jax.random.key(s)`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from drjax.sklearn import SparseRandomProjection
        >>> SparseRandomProjection(n_components=4, random_state=0).fit_transform(load_digits().data[:60]).shape
        (60, 4)
    """

    def _make_random_matrix(self, n_components: int, n_features: int) -> Any:
        self.density_ = 1 / np.sqrt(n_features) if self.density == "auto" else self.density
        return sparse_random_matrix(n_components, n_features, self.density_, self.random_state)

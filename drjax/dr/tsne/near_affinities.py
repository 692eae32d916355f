"""t-SNE's affinities between near records alone, three times the perplexity of each, on the host in float64.

Beyond them a Gaussian as wide as the perplexity asks for has next to nothing left: scikit-learn's Barnes-Hut algorithm
and openTSNE leave the same out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.tsne.affinity_cpu import gaussian


def n_near(n: int, perplexity: float) -> int:
    """Neighbours of each of n records: scikit-learn's number."""
    return min(n - 1, int(3 * perplexity + 1))


class Graph(NamedTuple):
    """Joint probabilities (n, n), symmetric and sparse, by rows.

    Attributes:
        start: (n + 1,), where each row begins.
        ends: (e,), int32, columns.
        values: (e,), they sum to 1.
    """

    start: np.ndarray
    ends: np.ndarray
    values: np.ndarray


def of_lists(indices: np.ndarray, distances: np.ndarray, perplexity: float, dtype: np.dtype) -> Graph:
    """Joint probabilities of n records from each one's nearest others (n, k), by Gaussians of the wanted perplexity.

    O(n k) a step of the search.
    """
    return _joint(indices, gaussians(distances, perplexity)[0], dtype)


def gaussians(distances: np.ndarray, perplexity: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, k) of each record's nearest others, and precisions (n,) of the Gaussians around the records."""
    n = len(distances)
    squared = squares(distances)
    probabilities, precisions = np.empty_like(squared), np.empty(n)

    def search(part: slice) -> None:
        find_precisions(squared[part], math.log(perplexity), probabilities[part], precisions[part])

    host.spread(search, n)
    return probabilities, precisions


def squares(distances: np.ndarray) -> np.ndarray:
    """Squared distances, short of an overflow."""
    with np.errstate(over="ignore"):
        return np.minimum(distances**2, np.finfo(np.float64).max / 8)


def _joint(indices: np.ndarray, probabilities: np.ndarray, dtype: np.dtype) -> Graph:
    n, k = indices.shape
    start = np.arange(n + 1, dtype=np.int64) * k
    directed = scipy.sparse.csr_array((probabilities.ravel(), indices.ravel(), start), shape=(n, n))
    both = (directed + directed.T).tocsr()
    both.sort_indices()
    values = (both.data / both.data.sum()).astype(dtype)
    return Graph(both.indptr.astype(np.int64), both.indices.astype(np.int32), values)


@njit
def find_precisions(squared, target, out, precisions):
    """`affinity.joint_probabilities`' search, over the neighbours (n, k) alone; writes their probabilities, too."""
    for i in range(len(squared)):
        precisions[i], shift, total = gaussian(squared[i], target)
        for j in range(squared.shape[1]):
            out[i, j] = math.exp(-precisions[i] * (squared[i, j] - shift)) / total

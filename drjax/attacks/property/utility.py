"""What a defended map is still worth: neighbourhoods kept, and classes apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.property.groups import Groups
from drjax.attacks.property.maps import checked_rows
from drjax.core import batching, validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, PyTree, hyperparams
from drjax.dr import quality
from drjax.dr.silhouette import silhouette_of_distances
from drjax.dr.tsne.method import POOL_BYTES


class Utility(NamedTuple):
    """Measures of g maps, each (g,).

    Attributes:
        trustworthiness: Trustworthiness, in [0, 1]; 1 if no record comes into a neighbourhood of the map from afar.
        knn_preservation: Mean share of the nearest neighbours that are kept, in [0, 1].
        silhouette: Silhouette of the labels in the map, in [-1, 1]; None without labels, nan where a map has one class
            only.
    """

    trustworthiness: np.ndarray
    knn_preservation: np.ndarray
    silhouette: np.ndarray | None


@hyperparams
class _Setting:
    """Static inside the jitted chunk."""

    n_neighbors: int
    n_classes: int | None


def evaluate_maps(
    features: Array,
    groups: Groups | Array,
    coords: Array,
    *,
    labels: Array | None = None,
    n_neighbors: int = 5,
    batch_size: int | None = None,
    progress: bool = False,
) -> Utility:
    """Trustworthiness, preserved neighbours and silhouette of every map.

    Args:
        features: (N, d), finite: those without a defence, whose neighbourhoods a map should show.
        groups: Groups as given to `maps.tsne_maps`, or their rows (g, n).
        coords: (g, n, k). A map that is not finite has nan measures.
        labels: (N,) integers >= 0, what the map is coloured by; None for no silhouette.
        n_neighbors: Size of a neighbourhood, 1 <= n_neighbors < n / 2.
        batch_size: Maps per chunk; from the memory of the device if None.
        progress: Show a bar with rate and time left.

    Returns:
        Host arrays. O(n^2 (n_neighbors + classes)) a map where the distances of all records fit into
        `drjax.dr.tsne.method.POOL_BYTES`, O(n^2 d) more elsewhere.

    Raises:
        ValueError: features not finite, shapes that do not match, rows that are no records, labels out of range, or
            n_neighbors out of range.
    """
    x = validate.matrix(features, "features")
    rows = checked_rows(groups.rows if isinstance(groups, Groups) else groups, len(x))
    g, n = rows.shape
    if np.ndim(coords) != 3 or np.shape(coords)[:2] != (g, n) or 0 in np.shape(coords):
        raise ValueError(f"coords must have shape ({g}, {n}, k >= 1), got {np.shape(coords)}")
    classes, n_classes = _classes(labels, len(x))
    x = jnp.asarray(x, compute_dtype(x))
    keeps_distances = len(x) ** 2 * x.dtype.itemsize <= POOL_BYTES
    setting = _Setting(n_neighbors=n_neighbors, n_classes=n_classes)
    context = setting, None if keeps_distances else x, quality.distances(x) if keeps_distances else None, classes
    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "description": "maps"}
    return batching.map_lanes(_evaluate_chunk, context, (rows, np.asarray(coords)), **options)


def _classes(labels: Array | None, n_records: int) -> tuple[np.ndarray | None, int | None]:
    if labels is None:
        return None, None
    y = np.asarray(labels)
    if y.shape != (n_records,) or y.dtype.kind not in "iub" or y.min() < 0:
        raise ValueError(
            f"labels must be {n_records} integers >= 0, one per record, got shape {y.shape} of {y.dtype}"
            + (f" down to {y.min()}" if y.size and y.dtype.kind == "i" else "")
        )
    # Numbered anew, so that no width is spent on classes that nobody has.
    found, y = np.unique(y, return_inverse=True)
    return y.astype(np.int32), max(2, len(found))


def _evaluate_chunk(context: PyTree, lanes: PyTree) -> Utility:
    setting, x, between, labels = context

    def one(rows: Array, coords: Array) -> Utility:
        delta = quality.distances(x[rows]) if between is None else between[rows[:, None], rows]
        embedded = quality.distances(coords)
        found = quality.evaluate_distances(delta, embedded, n_neighbors=setting.n_neighbors)
        score: Any = None
        if setting.n_classes is not None:
            score = silhouette_of_distances(embedded, labels[rows], setting.n_classes)
        return Utility(found.trustworthiness, found.knn_preservation, score)

    return jax.vmap(one)(*lanes)

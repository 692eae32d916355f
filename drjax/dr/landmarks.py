"""Landmarks: which records are, the coordinates that their distances have, and where distances to them put a record."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.linalg import HIGHEST, eigh, sign_and_margin
from drjax.core.types import Array, Embedding, Status
from drjax.dr import base, principal


class Frame(NamedTuple):
    """Classical scaling of q landmarks, and what places other records in it.

    Attributes:
        means: (q,), mean squared distance of each landmark to all.
        inverse: (q, k), the eigenvectors of the landmarks' Gram matrix over the roots of their eigenvalues; 0 where an
            eigenvalue is not above rounding, or there are fewer than k.
        eigenvalues: (k,), largest of the Gram matrix, decreasing; 0 where there are fewer.
        gap: (), distance of the k-th to the next, as a share of the largest; 1 where there is none.
    """

    means: Any
    inverse: Any
    eigenvalues: Any
    gap: Any


class LandmarksInfo(NamedTuple):
    """Diagnostics of one embedding by landmarks.

    Attributes:
        eigenvalues: (k,), largest of the landmarks' double-centred Gram matrix; squared units of distances.
        landmark_gap: (), distance of the k-th to the next eigenvalue, as a share of the largest: at 0 it is arbitrary
            which directions are kept.
        eigengap: (k,), distance of each variance of the coordinates to its nearest neighbour, as a share of the
            largest: at 0 it is arbitrary how they are turned.
        sign_margin: (k,), largest positive minus largest negative entry of each unit column, in absolute value.
        n_graph_components: (), int32, components of the neighbourhood graph before they were joined; 1 without one.
    """

    eigenvalues: Array
    landmark_gap: Array
    eigengap: Array
    sign_margin: Array
    n_graph_components: Array


def check(n_components: int, n_landmarks: int) -> None:
    """Refuses numbers that are none, or fewer landmarks than coordinates.

    Raises:
        ValueError: n_components < 1 or n_landmarks < n_components.
    """
    validate.integer(n_components=n_components, n_landmarks=n_landmarks)
    validate.at_most(n_landmarks, f"n_landmarks = {n_landmarks}", n_components=n_components)


def check_size(n: int, n_components: int) -> None:
    """Refuses fewer records than two or than coordinates.

    Raises:
        ValueError: n < 2 or n_components > n.
    """
    validate.integer(minimum=2, **{"number of records n": n})
    validate.at_most(n, "n records", n_components=n_components)


def positions(n: int, n_landmarks: int) -> np.ndarray:
    """Rows of n records that are landmarks, ascending: as many of 1 .. n - 1, or all of these; never row 0.

    Rows come in an order that looks random and depends on their number alone, so that a target in row 0 does not choose
    the landmarks, nor is one.

    Source: Steele, Lea & Flood (2014), the mixing of SplitMix64.
    """
    mixed = np.arange(1, n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.sort(1 + np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable")[:n_landmarks])


def frame(squares: Array, k: int) -> Frame:
    """The frame of landmarks by their squared distances (q, q), finite, of a size near 1; O(q^3)."""
    q, dtype = squares.shape[0], squares.dtype
    means = jnp.mean(squares, axis=0)
    gram = -0.5 * (squares - means - means[:, None] + jnp.mean(means))
    values, vectors = principal.leading(min(k + 1, q), gram)
    few = min(k, q)
    is_kept = values[:few] > q * float(jnp.finfo(dtype).eps) * jnp.maximum(values[0], 0)
    inverse = jnp.where(is_kept, vectors[:, :few] / jnp.sqrt(jnp.where(is_kept, values[:few], 1)), 0)
    gap = (values[k - 1] - values[k]) / jnp.maximum(values[0], jnp.finfo(dtype).tiny) if q > k else jnp.ones((), dtype)
    padding = (0, k - few)
    return Frame(means, jnp.pad(inverse, ((0, 0), padding)), jnp.pad(values[:few], padding), gap)


def frame_on_host(squares: np.ndarray, k: int) -> Frame:
    """`frame` in float64, by NumPy."""
    q, few = len(squares), min(k, len(squares))
    means = squares.mean(axis=0)
    values, vectors = eigh(-0.5 * (squares - means - means[:, None] + means.mean()))
    values, vectors = values[::-1], vectors[:, ::-1]
    is_kept = values[:few] > q * float(np.finfo(np.float64).eps) * max(values[0], 0.0)
    inverse, eigenvalues = np.zeros((q, k)), np.zeros(k)
    inverse[:, :few] = np.where(is_kept, vectors[:, :few] / np.sqrt(np.where(is_kept, values[:few], 1)), 0)
    eigenvalues[:few] = values[:few]
    gap = (values[k - 1] - values[k]) / max(values[0], np.finfo(np.float64).tiny) if q > k else 1.0
    return Frame(means, inverse, eigenvalues, np.float64(gap))


def placed(frame: Frame, squares: Any) -> Any:
    """Coordinates (n, k) of records by their squared distances (n, q) to the landmarks, about the landmarks' mean.

    Linear in the squared distances; exact where these are of points in the landmarks' own k dimensions.

    Source: de Silva & Tenenbaum (2004), Sparse multidimensional scaling using landmark points, section 2.
    """
    away = frame.means - squares
    if isinstance(squares, np.ndarray):
        return 0.5 * (away @ frame.inverse)
    return 0.5 * jnp.matmul(away, frame.inverse, precision=HIGHEST)


def aligned(frame: Frame, places: Array, unit: Array, n_parts: Any = 1) -> Embedding:
    """The embedding whose coordinates are the places (n, k) of all records, centred and turned to their principal axes.

    Each column's largest |entry| is positive. Directions that the landmarks or all records do not vary in have
    coordinates 0.

    Args:
        frame: That the places were made by.
        places: (n, k), as of `placed`; nan or infinite coordinates mark all as NON_FINITE.
        unit: (), what coordinates are multiplied by.
        n_parts: (), components of a graph before they were joined.

    Source: de Silva & Tenenbaum (2004), section 2, step 4.
    """
    n, k = places.shape
    eps = float(jnp.finfo(places.dtype).eps)
    centred = places - jnp.mean(places, axis=0)
    scatter = jnp.matmul(centred.T, centred, precision=HIGHEST)
    # An eigensolver may not return from a nan.
    is_finite = jnp.all(jnp.isfinite(scatter))
    scatter = jnp.where(is_finite, scatter, 0)
    centred = jnp.where(is_finite, centred, 0)
    values, axes = principal.leading(k, scatter)
    values, axes = values[:k], axes[:, :k]
    n_kept = jnp.sum(jnp.any(frame.inverse != 0, axis=0))
    is_kept = (values > n * eps * jnp.maximum(values[0], 0)) & (jnp.arange(k) < n_kept)
    turned = jnp.where(is_kept, jnp.matmul(centred, axes, precision=HIGHEST), 0)
    norm = jnp.sqrt(jnp.where(is_kept, values, 1))
    sign, margin = sign_and_margin((jax.lax.stop_gradient(turned) / norm).T)
    coords = jnp.where(is_finite, turned * sign * unit, jnp.nan)
    gap = base.eigengap(values, k)
    status = (
        base.flag(n_parts > 1, Status.DISCONNECTED)
        | base.flag(is_finite & ~jnp.all(is_kept), Status.DEGENERATE)
        | base.non_finite(coords)
        | base.sign_flags(margin, jnp.minimum(gap, frame.gap), is_kept)
    )
    info = LandmarksInfo(frame.eigenvalues * unit**2, frame.gap, gap, margin, jnp.asarray(n_parts, jnp.int32))
    nothing = jnp.full((), jnp.nan, coords.dtype)
    return Embedding(coords, nothing, jnp.int32(0), status, info)

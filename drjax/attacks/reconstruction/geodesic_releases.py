"""Releases of Isomap as the search for a place in the graph takes them, and how far their digits go."""

from __future__ import annotations

import numpy as np

from drjax.attacks.reconstruction.geodesic_fit import Release
from drjax.core.types import Array


def checked(name: str, coords: Array, n: int) -> np.ndarray:
    """Releases (m, n, k) in float64.

    Raises:
        ValueError: another shape, or no numbers.
    """
    array = np.asarray(coords)
    if array.ndim != 3 or array.shape[1] != n or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numeric of shape (m, {n}, k) for {n - 1} known records, got {array.shape}")
    return array.astype(np.float64)


def centred(coords: np.ndarray) -> np.ndarray:
    """Releases (m, n, k) around 0, their components by decreasing norm."""
    coords = coords - coords.mean(axis=1, keepdims=True)
    order = np.argsort(-(coords**2).sum(axis=1), axis=1, kind="stable")
    return np.take_along_axis(coords, order[:, None], axis=2)


def eigenpairs(theta: np.ndarray, precision: float) -> Release | None:
    """Pairs of a centred release (n, k), those that its precision hides left out; None if none is left."""
    values = (theta**2).sum(axis=0)
    kept = values > len(theta) * precision**2
    if not kept.any():
        return None
    values = values[kept]
    return Release(np.ascontiguousarray((theta[:, kept] / np.sqrt(values)).T), values)


def rounding(coords: np.ndarray, release: np.ndarray) -> float:
    """Largest error of a coordinate by its dtype."""
    dtype = coords.dtype if coords.dtype.kind == "f" else np.dtype(np.float64)
    finite = release[np.isfinite(release)]
    return float(np.finfo(dtype).eps * np.abs(finite).max(initial=0.0))


def mismatch(releases: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(s,) squared distances of releases (s, n, k) to theta (n, k), each component's sign as it fits better."""
    products = np.abs(np.einsum("snk,nk->sk", releases, theta))
    return ((releases**2).sum(axis=1) - 2 * products).sum(axis=1)


def explained_by_rounding(values: np.ndarray, precision: float, size: float, n: int) -> float:
    """Residual below which errors of at most `precision` in the coordinates explain it; size is the norm of A."""
    # Errors are uniform, as of rounding. The second term is what an eigensolver leaves in float64.
    per_entry = precision / np.sqrt(3 * values)
    expected = np.sqrt((per_entry**2 * (size**2 + n * values**2)).sum())
    return float(3 * expected + 1e-10 * values.max())

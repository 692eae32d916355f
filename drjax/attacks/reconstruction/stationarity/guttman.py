"""The Guttman transform that SMACOF iterates, its Jacobian, and many of its steps with their derivative.

Coordinates theta (n, k) and dissimilarities D (n, n) give T(theta)_i = 1/n sum_j D_ij (theta_i - theta_j) /
|theta_i - theta_j|, centred. Point 0 is the target: only its row of D is unknown to an attacker. Compiled loops, one
pass over the pairs; points that coincide add nothing, as in SMACOF.
"""

from __future__ import annotations

import numpy as np

from drjax.core.compiled import njit


@njit(fastmath=True)
def transform(coords, between):
    """T(theta), (n, k); O(n^2 k)."""
    n, k = coords.shape
    moved = np.zeros((n, k))
    for i in range(n):
        for j in range(n):
            squared = 0.0
            for c in range(k):
                squared += (coords[i, c] - coords[j, c]) ** 2
            if squared > 0:
                ratio = between[i, j] / np.sqrt(squared) / n
                for c in range(k):
                    moved[i, c] += ratio * (coords[i, c] - coords[j, c])
    return moved


@njit(fastmath=True)
def jacobian(coords, between, out):
    """Writes the derivative of T in theta, (n k, n k), symmetric, into `out`; O(n^2 k^2)."""
    n, k = coords.shape
    out[:] = 0
    for i in range(n):
        for j in range(n):
            squared = 0.0
            for c in range(k):
                squared += (coords[i, c] - coords[j, c]) ** 2
            if squared > 0:
                ratio = between[i, j] / np.sqrt(squared) / n
                for c in range(k):
                    for e in range(k):
                        entry = -ratio * (coords[i, c] - coords[j, c]) * (coords[i, e] - coords[j, e]) / squared
                        if c == e:
                            entry += ratio
                        out[i * k + c, j * k + e] = -entry
                        out[i * k + c, i * k + e] += entry


@njit(fastmath=True)
def add_row_derivative(coords, out, first):
    """Adds the derivative of T in the target's dissimilarities, (n k, n-1), to `out` from column `first` on."""
    n, k = coords.shape
    for i in range(1, n):
        squared = 0.0
        for c in range(k):
            squared += (coords[i, c] - coords[0, c]) ** 2
        if squared > 0:
            for c in range(k):
                unit = (coords[i, c] - coords[0, c]) / np.sqrt(squared) / n
                out[i * k + c, first + i - 1] += unit
                out[c, first + i - 1] -= unit


def times_row_derivative(matrix: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Product of a matrix (p, n k) with the derivative of T in the target's dissimilarities, (p, n-1); O(p n k)."""
    away = coords[1:] - coords[0]
    length = np.linalg.norm(away, axis=1, keepdims=True)
    unit = away / (np.where(length > 0, length, np.inf) * len(coords))
    by_point = matrix.reshape(len(matrix), *coords.shape)
    return np.einsum("pik,ik->pi", by_point[:, 1:], unit) - by_point[:, 0] @ unit.T


def simulate(coords: np.ndarray, between: np.ndarray, steps: int) -> np.ndarray:
    """T applied `steps` times, (n, k)."""
    for _ in range(steps):
        coords = transform(coords, between)
    return coords


def simulate_with_derivative(coords: np.ndarray, between: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """T applied `steps` times, and its derivative in where it began and in the target's dissimilarities.

    Products are in float32: the derivative only steers a descent whose values are computed in float64.

    Returns:
        (n, k), and (n k, n k + n-1) float64; O(steps (n k)^2 (n k + n)).
    """
    n, k = coords.shape
    size = n * k
    derivative = np.eye(size, size + n - 1, dtype=np.float32)
    product = np.zeros_like(derivative)
    step = np.empty((size, size), np.float32)
    for i in range(steps):
        jacobian(coords, between, step)
        if i:
            np.matmul(step, derivative, out=product)
        else:
            product[:, :size] = step
        add_row_derivative(coords, product, size)
        derivative, product = product, derivative
        coords = transform(coords, between)
    return coords, derivative.astype(np.float64)

"""The singular value decomposition of centred records with one record left out, from that of all records.

The centred records X_c = U diag(s) V^T are (n, d). The other n-1 records, centred by their own mean, are what is left
of X_c when the vector e_i - 1/n is projected out: its coordinates are gamma = U[i] inside the columns of U, and one
more, of square rest = 1 - 1/n - |gamma|^2, beyond them. So the squares of the new singular values are the roots of

    sum_i weight_i / (pole_i - root) = 0,    poles (s^2, 0), weights (gamma^2, rest),

one between each pair of neighbouring poles, and the left singular vectors are sqrt(weight_i) / (pole_i - root) up to
their length. Every root is found as a distance from its nearer pole, and the vectors are formed from weights that the
roots determine, so that they are orthogonal whatever the roots' errors.

Source: the secular equation as in Gu & Eisenstat (1995), "Downdating the singular value decomposition"; the middle way
by R.-C. Li (1993).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from drjax.core import streamed
from drjax.core.compiled import njit

MAX_ITER = 100
"""Iterations are bracketed and fall back to bisection, so this is hardly met; typical is 4 to 8."""

EPS = float(np.finfo(np.float64).eps)


class Decomposition(NamedTuple):
    """The thin decomposition of n centred records, of rank r.

    Attributes:
        mean: (d,).
        left: (n, r), orthonormal columns; of a large matrix a product whose rows are made when they are asked for.
        singular: (r,), decreasing, all above rounding.
        basis: (r, d), orthonormal rows.
    """

    mean: np.ndarray
    left: streamed.Matrix
    singular: np.ndarray
    basis: np.ndarray


class LeftOut(NamedTuple):
    """The decomposition of the other records, of rank R.

    Attributes:
        singular: (R,), decreasing.
        left: (r + 1, R), its left vectors in the basis (columns of `Decomposition.left`, the direction beyond them).
        right: (r, R), its right vectors in the rows of `Decomposition.basis`.
        beyond: Length of the left-out row's unit vector beyond the columns of `Decomposition.left`.
    """

    singular: np.ndarray
    left: np.ndarray
    right: np.ndarray
    beyond: float


def decompose(x: np.ndarray, *, is_centred: bool = True) -> Decomposition:
    """The decomposition of the rows of x (n, d), finite, less their mean or, not centred, less 0; O(n d min(n, d)).

    A large matrix, which may be mapped from a file, is read in blocks and never copied.
    """
    if streamed.is_large(*x.shape):
        return decomposed(x, streamed.principal_directions(x, is_centred=is_centred))
    x = np.asarray(x, np.float64)
    mean = x.mean(axis=0) if is_centred else np.zeros(x.shape[1])
    left, singular, basis = np.linalg.svd(x - mean, full_matrices=False)
    rank = int((singular > EPS * max(x.shape) * singular[0]).sum())
    return Decomposition(mean, left[:, :rank], singular[:rank], basis[:rank])


def decomposed(x: np.ndarray, found: streamed.Directions) -> Decomposition:
    """The decomposition of the rows of x (n, d) whose principal directions are at hand; nothing is computed."""
    mean, singular, basis = found
    return Decomposition(mean, streamed.Product(x, mean, basis.T / singular), singular, basis)


def leave_out(all_: Decomposition, row: int) -> LeftOut:
    """What `decompose` would find without one row (and centred anew), up to signs; O(r^2) a step of the root finder."""
    (n, r), d = all_.left.shape, all_.basis.shape[1]
    gamma = all_.left[row]
    rest = 1 - 1 / n - gamma @ gamma
    if rest < 1e-6:
        # A record that alone reaches some direction: the difference above is all rounding.
        beyond = -(all_.left @ gamma) - 1 / n
        beyond[row] += 1
        rest = beyond @ beyond
    poles = np.append(_separated(all_.singular**2), 0.0)
    # A weight of 0 would put a root on a pole; one at the square of rounding puts it as near as numbers go.
    weights = np.maximum(np.append(gamma**2, rest), EPS**2)
    gaps, squares = _roots(poles, weights)
    signs = np.append(np.where(gamma < 0, -1.0, 1.0), 1.0)
    left = (signs * np.sqrt(np.maximum(_lowner(poles, gaps), 1e-300)))[:, None] / gaps.T
    left /= np.linalg.norm(left, axis=0)
    singular = np.sqrt(squares)
    # The second bound is what rounding makes of 0 where the left-out record is all that differs.
    kept = (singular > EPS * max(n - 1, d) * singular[0]) & (singular > 10 * EPS * all_.singular[0])
    left, singular = left[:, kept], singular[kept]
    right = all_.singular[:, None] * left[:r] / np.maximum(singular, np.finfo(np.float64).tiny)
    return LeftOut(singular, left, right, float(np.sqrt(rest)))


def _separated(poles: np.ndarray) -> np.ndarray:
    """Decreasing poles (r,), equal ones moved apart by a few units of rounding."""
    poles = poles.copy()
    for i in np.flatnonzero(poles[:-1] <= poles[1:] * (1 + 4 * EPS))[::-1]:
        poles[i] = poles[i + 1] * (1 + 8 * EPS)
    return poles


@njit(fastmath={"reassoc", "contract"})
def _roots(poles, weights):
    """The roots between decreasing poles (r + 1,): poles_i - root_j (r, r + 1) to relative accuracy, and roots (r,)."""
    r = len(poles) - 1
    gaps = np.empty((r, r + 1))
    roots = np.empty(r)
    for j in range(r):
        gap = gaps[j]
        width = poles[j] - poles[j + 1]
        middle = poles[j + 1] + width / 2
        total = 0.0
        for i in range(r + 1):
            total += weights[i] / (poles[i] - middle)
        # The sum increases from pole to pole: positive in the middle, its root is in the lower half.
        origin = j + 1 if total >= 0 else j
        low, high = (0.0, width / 2) if total >= 0 else (-width / 2, 0.0)
        for i in range(r + 1):
            gap[i] = poles[i] - poles[origin]
        shift = (low + high) / 2
        for _ in range(MAX_ITER):
            above, slope_above = _sums(gap[: j + 1], weights[: j + 1], shift)
            below, slope_below = _sums(gap[j + 1 :], weights[j + 1 :], shift)
            value = above + below
            if abs(value) <= EPS * (above - below):  # rounding of the sum hides any root nearer than this
                break
            if value < 0:
                low = shift
            else:
                high = shift
            step = _middle_way(value, slope_above, slope_below, gap[j] - shift, gap[j + 1] - shift)
            new = shift + step
            inside = low <= new <= high and new != 0  # 0 is the pole, and nan is not inside
            if inside and abs(step) <= 2 * EPS * abs(new):
                break
            shift = new if inside else (low + high) / 2
        for i in range(r + 1):
            gap[i] -= shift
        roots[j] = poles[origin] + shift
    return gaps, roots


@njit(fastmath={"reassoc", "contract"})
def _sums(gap, weights, shift):
    """Sums of weight / (gap - shift) and of its derivative."""
    value, slope = 0.0, 0.0
    for i in range(len(gap)):
        inverse = 1 / (gap[i] - shift)
        term = weights[i] * inverse
        value += term
        slope += term * inverse
    return value, slope


@njit
def _middle_way(value, slope_above, slope_below, above, below):
    """Step to the root of a + b / (above - step) + c / (below - step) that has the value and both slopes."""
    constant = value - slope_above * above - slope_below * below
    linear = constant * (above + below) + slope_above * above**2 + slope_below * below**2
    product = above * below * value
    root = math.sqrt(max(linear**2 - 4 * constant * product, 0.0))
    return 2 * product / (linear + root) if linear > 0 else (linear - root) / (2 * constant)


@njit(fastmath={"reassoc", "contract"})
def _lowner(poles, gaps):
    """Weights (r + 1,) for which the roots are exact: prod_j (pole_i - root_j) / prod_{j != i} (pole_i - pole_j)."""
    r = len(gaps)
    weights = np.ones(r + 1)
    for j in range(r):
        gap = gaps[j]
        # Below a pole root j pairs with pole j + 1, above it with pole j: every ratio is positive and of order 1.
        for i in range(j + 1):
            weights[i] *= gap[i] / (poles[i] - poles[j + 1])
        for i in range(j + 1, r + 1):
            weights[i] *= gap[i] / (poles[i] - poles[j])
    return weights

"""How far one record can move a second moment, and what noise on it is then worth; on the host.

All is about the sum of the records' outer products, S = sum x x^T, and not about the mean: a public divisor changes
value and noise alike. Records are bounded, in Euclidean norm (|x| <= C) or feature by feature (lower <= x <= upper, 0
among them). "zero_out" and "add_or_remove" move S by one x x^T, "replace_one" by x x^T - y y^T. Proofs: docs/dp_pca/.

The functions at the end make these numbers hold of what is in the computer: a record becomes a vector of whole numbers
by a rule that depends on public numbers alone, and products and sums of whole numbers are exact.

Example:
    >>> import numpy as np
    >>> from drjax.defenses import dp_pca_sensitivity as s
    >>> near = {"neighbouring": "replace_one"}
    >>> [round(float(value), 3) for value in (s.moment_sensitivity(2.0, **near), s.product_sensitivity(2.0, 1, **near))]
    [5.657, 4.0]
    >>> round(s.joint_sensitivity(s.check_weight(0.5), **near), 3)
    1.768
    >>> low, high = s.check_ranges([-1.0, 0.0], [1.0, 2.0])  # of two features
    >>> s.laplace_sensitivity([1.0, 2.0]), s.entry_sensitivity(low, high, **near).tolist()
    (7.0, [[1.0, 4.0], [4.0, 4.0]])
    >>> bool((s.entry_widths(low, high, "replace_one") == s.entry_sensitivity(low, high, **near)).all())
    True
    >>> round(s.laplace_curve(1.0, [0.1] * 10, **near).epsilon_at(1e-5), 2)
    1.0
    >>> round(s.advanced_query_epsilon(1.0, 1e-5, 100), 3)  # 0.01 by dividing
    0.02
    >>> noise = s.wishart_noise(1.0, 1e-5, excess=4)
    >>> s.wishart_delta(1.0, 4, 1 / noise) <= 1e-5
    True
    >>> s.wishart_curve(4, 1 / noise, neighbouring="zero_out").epsilon_at(1e-2) < 1.1
    True
    >>> bits = s.bits_for(1.0)
    >>> whole = s.whole_rows_in_ball(np.array([[3.0, 4.0]]), 1.0, bits)
    >>> bool(np.sqrt((whole**2).sum()) <= 2**bits), s.whole_gram(whole).shape, s.whole_change(2, 0, "zero_out")
    (True, (2, 2), 256)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtr, chdtrc

from drjax.bounds import accounting, tradeoff
from drjax.bounds.curve import RELATIONS, number, numbers, smallest
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses.exact_norms import clip_l2

BITS, LEAST_BITS = 20, 4
"""Records of a release are whole multiples of 2^-BITS of their bound, or of more where the noise is very large."""

MARGIN = 1e-10
"""Relative: more than SciPy's chi-square probabilities are off by; they are raised, and budgets lowered, by it."""

ROUNDING = 1 + 2**-50
"""More than the roundings of a formula of a few operations; sensitivities are raised by it."""

WISHART_EPSILONS = (0.0, *np.geomspace(1e-2, 1e2, 1000).tolist())
"""Where the curve of a Wishart mechanism is computed; between them it is interpolated from above."""


def moment_sensitivity(row_norm: float, *, neighbouring: str) -> float:
    """Largest Frobenius norm of the change of S, which is also the largest Euclidean norm of its upper triangle.

    C^2, and sqrt(2) C^2 under "replace_one": less than twice as much, because x x^T and y y^T are never opposite. Both
    are attained, in either norm, by records along the axes.

    Args:
        row_norm: The bound C on |x|, > 0.
        neighbouring: A name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(row_norm=number(row_norm=row_norm))
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    # The float64 next to sqrt(2) is above it.
    return float(row_norm) ** 2 * (math.sqrt(2) if neighbouring == "replace_one" else 1.0)


def joint_sensitivity(weight: float, *, neighbouring: str) -> float:
    """Largest Frobenius norm of the change of the sum of w w^T without its entry (0, 0), w = (weight, x) with |x| <= 1.

    sqrt(2) (1 + weight^2) under "replace_one", attained by |x| = |y| = 1 with <x, y> = -weight^2: the constant costs as
    much as a feature of that size, though it never changes. sqrt(1 + 2 weight^2) under "zero_out", where x becomes 0
    and the constant stays. Under "add_or_remove" 1 + weight^2, with the entry (0, 0), the number of records.

    Args:
        weight: Weight of the constant, in (0, 1].
        neighbouring: A name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range.
    """
    t2 = check_weight(weight) ** 2
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    if neighbouring == "zero_out":
        return math.sqrt(1 + 2 * t2) * ROUNDING
    return (1 + t2) * moment_sensitivity(1.0, neighbouring=neighbouring) * ROUNDING


def check_weight(mean_weight: float) -> float:
    """A weight of the constant, as a float.

    Raises:
        ValueError: it is not in (0, 1].
    """
    if not 0 < number(mean_weight=mean_weight) <= 1:
        raise ValueError(f"mean_weight must be in (0, 1], got {mean_weight!r}")
    return float(mean_weight)


def product_sensitivity(row_norm: float, rank: int, *, neighbouring: str) -> float:
    """Largest Frobenius norm of the change of S Q, for Q (d, rank) with orthonormal columns.

    As `moment_sensitivity`, but C^2 under "replace_one" too where the rank is 1: x x^T - y y^T has one eigenvalue of
    either sign, neither beyond C^2, and a single direction meets C^2 at most.

    Args:
        row_norm: The bound C on |x|, > 0.
        rank: Number of columns, >= 1.
        neighbouring: A name in `RELATIONS`.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(rank=rank)
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    return moment_sensitivity(row_norm, neighbouring="zero_out" if rank == 1 else neighbouring)


def laplace_sensitivity(extents: Array, *, full: bool = False) -> float:
    """Largest L1 norm of the change of S, over i >= j, or over all entries with `full`; alike under every relation.

    With M_i the extents: sum of M_i M_j over i >= j, or (sum of M_i)^2. Attained by x = M beside nothing, or beside 0.

    Args:
        extents: (d,) largest |x_i|, >= 0.
        full: Whether an entry and its mirror image count separately.

    Raises:
        ValueError: extents are not a vector of numbers >= 0.
    """
    m = numbers(extents=extents)
    if m.ndim != 1 or not m.size or not (m >= 0).all():
        raise ValueError(f"extents must be a vector of numbers >= 0, got {extents!r}")
    total = m.sum() ** 2
    return float(total if full else (total + (m**2).sum()) / 2)


def entry_sensitivity(lower: Array, upper: Array, *, neighbouring: str) -> np.ndarray:
    """Largest change of each entry of S by itself.

    M_i M_j with M_i = max(-lower_i, upper_i); under "replace_one" the width of the range of x_i x_j, which is up to
    twice that off the diagonal. Paper 001's is (upper_i - lower_i) (upper_j - lower_j), never less and up to four times
    as much.

    Args:
        lower: (d,), <= 0.
        upper: (d,), >= 0.
        neighbouring: A name in `RELATIONS`.

    Returns:
        (d, d), symmetric.

    Raises:
        ValueError: an argument out of its range, or ranges without 0.
    """
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    return entry_widths(*check_ranges(lower, upper), neighbouring)


def entry_widths(low: np.ndarray, high: np.ndarray, neighbouring: str) -> np.ndarray:
    """`entry_sensitivity` without its checks: a range may be [0, 0]."""
    extents = np.maximum(-low, high)
    if neighbouring != "replace_one":
        return np.outer(extents, extents)
    corners = np.stack([np.outer(low, low), np.outer(high, high), np.outer(low, high), np.outer(high, low)])
    width = corners.max(axis=0) - corners.min(axis=0)
    # Squares are never negative.
    np.fill_diagonal(width, extents**2)
    return width


def check_ranges(lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two float64 vectors of one shape with lower <= 0 <= upper, not both 0.

    Raises:
        ValueError: otherwise.
    """
    low, high = numbers(lower=lower), numbers(upper=upper)
    if low.ndim != 1 or low.shape != high.shape or not low.size:
        raise ValueError(
            f"lower and upper must be vectors with an entry for each feature, got shapes {low.shape} and {high.shape}"
        )
    validate.finite(lower=low, upper=high)
    bad = ~((low <= 0) & (high >= 0) & (low < high))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"lower <= 0 <= upper and lower < upper must hold, got [{low[i]}, {high[i]}] for feature {i}")
    return low, high


def laplace_curve(epsilon: float, shifts: Array, *, neighbouring: str) -> tradeoff.Minimum:
    """Trade-off curve of Laplace noise on a vector, from the sum and from the largest of the shifts of each coordinate.

    The least of `Laplace(epsilon)`, all of the L1 sensitivity in one coordinate, and of zCDP with half the sum of
    squares of the shifts: a coordinate that moves by at most s scales is s-DP, so s^2 / 2-zCDP (Bun & Steinke 2016),
    and these add up. Where many coordinates share the shift the second is far less at any delta > 0.

    Args:
        epsilon: L1 sensitivity over the scale, > 0.
        shifts: Largest change of each coordinate, over the scale; any shape.
        neighbouring: The relation that both are of.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(epsilon=number(epsilon=epsilon))
    rho = float(np.sum(numbers(shifts=shifts) ** 2)) / 2 * (1 + 1e-9)
    one = tradeoff.Laplace(float(epsilon), neighbouring=neighbouring)
    return tradeoff.Minimum((one, tradeoff.ZCDP(rho, neighbouring=neighbouring)), neighbouring=neighbouring)


def advanced_query_epsilon(epsilon: float, delta: float, n_queries: int, *, as_printed: bool = False) -> float:
    """The largest epsilon of each of many queries that are (epsilon, delta)-private together by advanced composition.

    Args:
        epsilon: Epsilon of all queries together, > 0.
        delta: Delta of all queries together, in (0, 1).
        n_queries: Number of queries, >= 1.
        as_printed: Solve paper 001's equation 2 as it stands, which for large epsilon allows less than epsilon /
            n_queries; `accounting.advanced_composition` takes the better of both.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(epsilon=number(epsilon=epsilon))
    validate.integer(n_queries=n_queries)
    # Refuses a delta that is out of its range, too.
    accounting.advanced_composition(0.0, 0.0, n_queries, delta)
    root = math.sqrt(2 * n_queries * math.log(1 / delta))

    def excess(one: float) -> float:
        return root * one + n_queries * one * math.expm1(min(one, 700.0)) - epsilon

    high = min(epsilon / root, 700.0)
    found: Any = brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14) if excess(high) > 0 else high
    return (found if as_printed else max(found, epsilon / n_queries)) * (1 - MARGIN)


def wishart_delta(epsilon: float, excess: int, shift: float) -> float:
    """The smallest delta, upward, at which a Wishart mechanism is (epsilon, delta)-private, in both directions.

    Noise W ~ Wishart(I, k degrees of freedom) on a (d, d) matrix, against W + a u u^T with |u| = 1, is told apart just
    as well as chi-square noise of k - d + 1 degrees of freedom against the same plus a; a less does not help.

    Args:
        epsilon: Epsilon, >= 0, finite.
        excess: k - d + 1, >= 2.
        shift: a, the squared norm of a record in units of the noise, > 0.

    Raises:
        ValueError: an argument out of its range.
    """
    if not 0 <= float(number(epsilon=epsilon)) < math.inf:
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
    validate.integer(minimum=2, excess=excess)
    check_positive(shift=number(shift=shift))
    a, power = float(shift), excess / 2 - 1
    # f(s) / f(s - a) = exp(-a/2) (1 - a/s)^-power falls in s, from infinity at s <= a to exp(-a/2).
    low, beyond = _threshold(a, power, a / 2 + epsilon)
    without = _gap(chdtr(excess, low), chdtr(excess, beyond), epsilon)
    if epsilon >= a / 2:
        return without
    high, beyond = _threshold(a, power, a / 2 - epsilon)
    return max(without, _gap(chdtrc(excess, beyond), chdtrc(excess, high), epsilon))


def _threshold(a: float, power: float, loss: float) -> tuple[float, float]:
    """The s with -power log(1 - a/s) = loss, and s - a, which loses no digits where that is small."""
    y = loss / power if power else math.inf
    beyond = a / math.expm1(y) if y < 700 else 0.0
    return a + beyond, beyond


def _gap(first: float, second: float, epsilon: float) -> float:
    """first - exp(epsilon) second, upward."""
    scaled = math.exp(min(epsilon + math.log(second), 0.0)) if second > 0 else 0.0
    return min(1.0, max(0.0, float(first) * (1 + MARGIN) - scaled * (1 - MARGIN)))


def wishart_curve(excess: int, shift: float, *, neighbouring: str) -> tradeoff.Minimum:
    """The least of the (epsilon, `wishart_delta`) curves at `WISHART_EPSILONS`; arguments as there.

    Raises:
        ValueError: an argument out of its range, or "replace_one", for which nothing is proven here.
    """
    validate.one_of(("zero_out", "add_or_remove"), neighbouring=neighbouring)
    return tradeoff.Minimum(
        [
            tradeoff.EpsilonDelta(epsilon, wishart_delta(epsilon, excess, shift), neighbouring=neighbouring)
            for epsilon in WISHART_EPSILONS
        ],
        neighbouring=neighbouring,
    )


def wishart_noise(epsilon: float, delta: float, excess: int) -> float:
    """The least noise, in units of the squared norm of a record, at which `wishart_delta` is at most delta.

    Args:
        epsilon: Epsilon, > 0.
        delta: Delta, in (0, 1).
        excess: Degrees of freedom beyond d - 1, as for `wishart_delta`.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(epsilon=number(epsilon=epsilon))
    if not 0 < float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta!r}")
    return smallest(lambda noise: wishart_delta(epsilon, excess, 1 / noise) <= delta, 1e-9, 1e12)


def bits_for(scale: float) -> int:
    """Binary digits of a record's entries at which noise of this scale, in units of the bound squared, can be drawn.

    Raises:
        ValueError: the noise is too large for any.
    """
    bits = min(BITS, (52 - math.ceil(math.log2(scale))) // 2)
    if bits < LEAST_BITS:
        raise ValueError(f"noise must be less than 2**{52 - 2 * LEAST_BITS} in units of the bound squared, got {scale}")
    return bits


def whole_rows_in_ball(rows: np.ndarray, row_norm: float, bits: int) -> np.ndarray:
    """Records (n, d) in units of row_norm / 2^bits, as whole numbers in float64 of norm <= 2^bits, exactly."""
    with np.errstate(over="ignore"):
        return clip_l2(rows / row_norm, 1.0, grid=2.0**-bits) * 2.0**bits


def whole_change(bits: int, constant: int, neighbouring: str) -> int:
    """Square of `joint_sensitivity` for whole numbers: |x| <= 2^bits beside a constant in [0, 2^bits]; exact."""
    ball, one = 4**bits, constant**2
    if neighbouring == "zero_out":
        return ball * (ball + 2 * one)
    return (ball + one) ** 2 * (2 if neighbouring == "replace_one" else 1)


def whole_gram(rows: np.ndarray) -> np.ndarray:
    """The sum of outer products of whole numbers within 2^BITS, in Python's whole numbers; (d, d).

    Products of 2^12 rows add up to at most 2^52, so BLAS rounds nothing in any order; 2^22 rows fit into int64.
    """
    block, chunk = 2 ** (52 - 2 * BITS), 2 ** (62 - 2 * BITS)
    d = rows.shape[1]
    total = np.zeros((d, d), object)
    for start in range(0, len(rows), chunk):
        part = np.zeros((d, d), np.int64)
        for first in range(start, min(start + chunk, len(rows)), block):
            few = rows[first : first + block]
            part += (few.T @ few).astype(np.int64)
        total = total + part
    return total

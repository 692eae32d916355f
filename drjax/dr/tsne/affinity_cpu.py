"""t-SNE's affinities on a CPU, for data sets that share all points but one; the bandwidth search in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.tsne.affinity import ENTROPY_TOL, MAX_STEPS, P_FLOOR

ORDER = 14
"""Moments of the series by which a known point's sums are taken from one precision to another."""

REACH = 0.05
"""Largest relative change of the precision that the series is used for: its error there is REACH^ORDER, 1e-18."""


class Search(NamedTuple):
    """The bandwidth searches of the known points among themselves, whose steps every shadow repeats.

    Attributes:
        shift: (m,), squared distance of each to its nearest.
        n_steps: (m,), steps of the search.
        betas: (m, steps), precisions tried.
        weights, moments: (m, steps), sums of exp(-beta s) and of s exp(-beta s), s the shifted squared distances.
        series: (m, ORDER + 1), sums of s^t exp(-beta s) / t! at the last beta.
    """

    shift: np.ndarray
    n_steps: np.ndarray
    betas: np.ndarray
    weights: np.ndarray
    moments: np.ndarray
    series: np.ndarray


def search_known(between: np.ndarray, target: float) -> Search:
    """The searches of all known points, (m, m) squared distances, for an entropy of `target` nats."""
    m = between.shape[0]
    steps = (np.empty((m, MAX_STEPS)) for _ in range(3))
    search = Search(np.zeros(m), np.zeros(m, np.int64), *steps, series=np.zeros((m, ORDER + 1)))
    if m > 1:
        host.spread(lambda part: _search_rows(between, target, part.start, part.stop, search), m)
    return search


IN_ORDER = {"contract", "arcp", "nsz"}
"""fastmath without leave to reorder sums, which would undo the rounding that `_exp` relies on."""


@njit
def _search_rows(between, target, begin, end, search):
    for i in range(begin, end):
        shift = _nearest(between[i], i, math.inf)
        beta, low, high = 1.0, 0.0, math.inf
        for step in range(MAX_STEPS):
            total, moment = _sums(between[i], i, shift, beta)
            search.betas[i, step], search.weights[i, step], search.moments[i, step] = beta, total, moment
            search.n_steps[i] = step + 1
            error = target - (math.log(total) + beta * moment / total)
            if abs(error) <= ENTROPY_TOL or step + 1 == MAX_STEPS:
                break
            beta, low, high = _next(error, beta, low, high)
        search.shift[i] = shift
        for j in range(between.shape[0]):
            if j != i:
                s = between[i, j] - shift
                term = math.exp(-beta * s)
                for t in range(ORDER + 1):
                    search.series[i, t] += term
                    term *= s / (t + 1)


@njit(inline="always")
def _next(error, beta, low, high):
    """One step of `bandwidth.bisect`, whose function is the negative entropy."""
    if error < 0:
        low = beta
    else:
        high = beta
    return (2.0 * beta if high == math.inf else (low + high) / 2.0), low, high


@njit
def _nearest(row, own, other):
    """Least entry of the row but its own and of `other`."""
    least = other
    for j in range(row.shape[0]):
        if j != own and row[j] < least:
            least = row[j]
    return least


@njit
def _sums(row, own, shift, beta):
    total, moment = 0.0, 0.0
    for j in range(row.shape[0]):
        if j != own:
            s = row[j] - shift
            weight = math.exp(-beta * s)
            total += weight
            moment += s * weight
    return total, moment


@njit
def _precision(between, i, new, target, search):
    """Precision of known point i when a point at squared distance `new` joins, with the shift and total weight for it.

    The same steps as a search over all neighbours. Each costs O(1) where the known points' own search was at the same
    precision, or ended near it.
    """
    shift = search.shift[i]
    if between.shape[0] == 1:
        return 1.0, new, 1.0
    last = search.betas[i, search.n_steps[i] - 1]
    if (shift - new) * last > 300.0:  # the new weight is close to overflow in the known points' units
        shift = new
    beta, low, high, total = 1.0, 0.0, math.inf, 1.0
    for step in range(MAX_STEPS):
        x = (last - beta) / last
        if shift == search.shift[i] and step < search.n_steps[i] and beta == search.betas[i, step]:
            total, moment = search.weights[i, step], search.moments[i, step]
        elif shift == search.shift[i] and abs(x) <= REACH:
            total, moment, power = 0.0, 0.0, 1.0
            for t in range(ORDER):
                total += power * search.series[i, t]
                moment += power * search.series[i, t + 1] * (t + 1)
                power *= last - beta
        else:
            total, moment = _sums(between[i], i, shift, beta)
        s = new - shift
        weight = math.exp(-beta * s)
        total += weight
        moment += s * weight
        error = target - (math.log(total) + beta * moment / total)
        if abs(error) <= ENTROPY_TOL or step + 1 == MAX_STEPS:
            break
        beta, low, high = _next(error, beta, low, high)
    return beta, shift, total


@njit
def gaussian(row, target):
    """Precision of a point at squared distances row (m,) to the others, the least of them, and the sum of weights.

    Its weights exp(-precision (s - least)) have the entropy `target` in nats; the sum is theirs.
    """
    shift = _nearest(row, -1, math.inf)
    beta, low, high, total = 1.0, 0.0, math.inf, 1.0
    for step in range(MAX_STEPS):
        total, moment = _sums(row, -1, shift, beta)
        error = target - (math.log(total) + beta * moment / total)
        if abs(error) <= ENTROPY_TOL or step + 1 == MAX_STEPS:
            break
        beta, low, high = _next(error, beta, low, high)
    return beta, shift, total


@njit(fastmath=IN_ORDER, inline="always")
def _exp(x):
    """exp of x <= 0 to rounding, in steps that the compiler can take for several numbers at once; at least 1e-307."""
    x = max(x, -706.0)
    # Adding 1.5 2^52 rounds to an integer, which is then in the last bits of the sum.
    shifted = x * (1.0 / math.log(2.0)) + 6755399441055744.0
    whole = shifted - 6755399441055744.0
    rest = (x - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10  # log 2 in two parts
    series = 1 / 39916800 + rest * (1 / 479001600 + rest * (1 / 6227020800))
    series = 1 / 40320 + rest * (1 / 362880 + rest * (1 / 3628800 + rest * series))
    series = 1 / 120 + rest * (1 / 720 + rest * (1 / 5040 + rest * series))
    series = 1.0 + rest * (1.0 + rest * (0.5 + rest * (1 / 6 + rest * (1 / 24 + rest * series))))
    power = np.int64((np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52))
    return series * power.view(np.float64)


@njit(fastmath=IN_ORDER)
def _fill(distances, beta, shift, total, p):
    """The conditional probabilities of one point's neighbours."""
    for j in range(distances.shape[0]):
        p[j] = _exp(-beta * (distances[j] - shift)) / total


@njit
def joint_probabilities(between, row, target, search, p):
    """Writes the joint probabilities of [target; known] to p (n, n): `affinity.joint_probabilities`."""
    n = p.shape[0]
    beta, shift, total = gaussian(row, target)
    p[0, 0] = 0
    _fill(row, beta, shift, total, p[0, 1:n])
    for i in range(n - 1):
        beta, shift, total = _precision(between, i, float(row[i]), target, search)
        p[i + 1, 0] = math.exp(-beta * (row[i] - shift)) / total
        # Of the point itself too, which may be nearer than the nearest: an overflow that the next line takes back.
        _fill(between[i], beta, shift, total, p[i + 1, 1:n])
        p[i + 1, i + 1] = 0
    _make_joint(p)


@njit
def _make_joint(p):
    """Makes joint probabilities of conditional ones (n, n), in place; entries beyond column n are not touched."""
    n = p.shape[0]
    total = 0.0
    for i in range(n):
        for j in range(i):
            total += 2.0 * (float(p[i, j]) + p[j, i])
    for i in range(n):
        for j in range(i):
            joint = max((float(p[i, j]) + p[j, i]) / total, P_FLOOR)
            p[i, j] = joint
            p[j, i] = joint


@njit
def joint_probabilities_alone(squared, target, p):
    """`joint_probabilities` of one data set from its squared distances (n, n), all of them searched for; O(n^2) a step.

    The known points' search pays where many data sets share them. Here no step is repeated, and its exponentials are
    the probabilities once it ends.
    """
    n = p.shape[0]
    shifted, weights = np.empty(n), np.empty(n)
    for i in range(n):
        shift = _nearest(squared[i], i, math.inf)
        for j in range(n):
            shifted[j] = squared[i, j] - shift
        shifted[i] = 0.0
        beta, low, high, total = 1.0, 0.0, math.inf, 1.0
        for step in range(MAX_STEPS):
            _weigh(shifted, i, beta, weights)
            total, moment = _sum_up(shifted, weights)
            error = target - (math.log(total) + beta * moment / total)
            if abs(error) <= ENTROPY_TOL or step + 1 == MAX_STEPS:
                break
            beta, low, high = _next(error, beta, low, high)
        for j in range(n):
            p[i, j] = weights[j] / total
    _make_joint(p)


@njit(fastmath=IN_ORDER)
def _weigh(shifted, own, beta, weights):
    """exp(-beta s) of shifted squared distances (n,), 0 of the point itself."""
    for j in range(shifted.shape[0]):
        weights[j] = _exp(-beta * shifted[j])
    weights[own] = 0.0


@njit(fastmath=True)
def _sum_up(shifted, weights):
    """The sums of the weights and of the shifted squared distances times them, in any order of the terms."""
    total, moment = 0.0, 0.0
    for j in range(shifted.shape[0]):
        total += weights[j]
        moment += shifted[j] * weights[j]
    return total, moment

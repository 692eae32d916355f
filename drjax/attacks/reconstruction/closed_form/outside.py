"""What a record has outside the span of the others: what a component says of it, and where its noise hides that, what
is expected, which is what each known record has outside the span of the rest.

With centred records X_c = U diag(s) V^T, row i has something of its own only where its leverage h_ii = 1/n + |U_i|^2
is 1. Then w_i = V^T diag(1/s) U_i^T is the one vector of the span with w_i.(x_i - x_j) = 1 and w_i.(x_j - x_k) = 0 for
all others, so that the row lies 1 / |w_i| away from the span of the others.

Left-out records change little of that. If row i has something of its own, the others' vectors lose what they have
along w_i. If not, they stay, and one more row j has something of its own where (1 - h_ii) (1 - h_jj) = h_ij^2: the two
share a direction that no other record has, w_j + w_i h_ij / (1 - h_ii).
"""

from __future__ import annotations

import numpy as np

from drjax.attacks.reconstruction.closed_form.downdate import Decomposition

SAMPLE = 4096
"""Most known records that are looked at."""

ALONE = 1e-6
"""What a leverage of 1 may lack by rounding."""

DEVIATIONS = 3
"""Standard deviations that noise may explain of a single equation."""

OF_LENGTH = 2
"""Standard deviation of a computed component's squared length, in units of the relative error of its type."""


def squares(
    u: np.ndarray, reach: np.ndarray, level: np.ndarray, singular: np.ndarray, d: int, *, unseen: float, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared length (m,) outside the span by one component of each release, in view of its noise and of what is
    expected; its standard deviation; and the largest that it may be by the component alone.

    Args:
        u: (m, r), the component in the span; what it lacks of length 1 is outside, where the span is not everything.
        reach: (m,), length of the offset for all of a component outside, lam / (c w).
        level: (m,), noise of a score.
        singular: (r,).
        d: Features.
        unseen: Squared length expected of a record; as uncertain as it is large, or as what is measured beyond the
            noise.
        eps: Relative error of the component's length.
    """
    # Noise of standard deviation level / s in each u shortens or lengthens the rest of a unit vector by so much.
    doubt = DEVIATIONS * level * np.sqrt(((2 * u / singular) ** 2).sum(axis=-1))
    doubt = reach**2 * (doubt + ((level[:, None] / singular) ** 2).sum(axis=1))
    if len(singular) == d:
        return np.zeros(len(u)), np.zeros(len(u)), doubt
    square = reach**2 * np.maximum(1 - (u**2).sum(axis=-1), 0)
    deviation = doubt / DEVIATIONS + reach**2 * OF_LENGTH * eps
    expected = np.maximum(unseen, square - DEVIATIONS * deviation) ** 2
    share = expected / np.maximum(expected + deviation**2, np.finfo(np.float64).tiny)
    return unseen + share * (square - unseen), deviation * np.sqrt(share), square + doubt


def expected_outside(span: Decomposition, *, is_centred: bool = True) -> float:
    """Squared length that a new record is expected to have outside the span of n others; O(SAMPLE r).

    The mean of what they have outside each other's, and as one more such record their rarest direction: what has never
    been seen is not impossible.
    """
    n = len(span.left)
    rows = np.asarray(span.left[sampled(n)])
    leverage = (rows**2).sum(axis=1) + (1 / n if is_centred else 0.0)
    inverse = ((rows / span.singular) ** 2).sum(axis=1)
    return _mean(inverse[leverage > 1 - ALONE], len(rows), span.singular, n)


def sampled(n: int) -> np.ndarray:
    """Rows of n that are looked at, evenly from the first on."""
    return np.arange(0, n, -(-n // SAMPLE))


class Others:
    """`expected_outside` for the others of each record of one decomposition, O(SAMPLE r) for each record."""

    def __init__(self, everything: Decomposition) -> None:
        """Of all n records, centred."""
        self._all, self._n = everything, len(everything.left)
        positions = sampled(self._n - 1)
        # Behind the left-out row, a position among the others is one row further.
        self._rows = np.unique([positions, positions + 1])
        self._left = np.asarray(everything.left[self._rows])
        self._leverage = (self._left**2).sum(axis=1) + 1 / self._n
        self._inverse = ((self._left / everything.singular) ** 2).sum(axis=1)

    def expected_outside(self, row: int, singular: np.ndarray) -> float:
        """Of the others of one row, whose singular values are (R,)."""
        gamma, n = np.asarray(self._all.left[row]), self._n
        positions = sampled(n - 1)
        at = np.searchsorted(self._rows, positions + (positions >= row))
        left, own, inverse = self._left[at], self._leverage[at], self._inverse[at]
        shared = left @ gamma + 1 / n
        crossed = left @ (gamma / self._all.singular**2)
        rest, inverse_of_row = 1 - 1 / n - gamma @ gamma, ((gamma / self._all.singular) ** 2).sum()
        if rest < ALONE:
            return _mean((inverse - crossed**2 / inverse_of_row)[own > 1 - ALONE], len(at), singular, n - 1)
        ratio = shared / rest
        is_alone = own > 1 - ALONE
        is_second = ~is_alone & (own + shared * ratio > 1 - ALONE)
        inverse = np.where(is_second, inverse + 2 * ratio * crossed + ratio**2 * inverse_of_row, inverse)
        return _mean(inverse[is_alone | is_second], len(at), singular, n - 1)


def _mean(inverse: np.ndarray, n_seen: int, singular: np.ndarray, n: int) -> float:
    """Mean of squared lengths, given as inverses for those that are not 0, with a seldom one for one more record."""
    seldom = min(singular[-1] ** 2, (singular**2).sum() / n)
    return float(((1 / np.maximum(inverse, np.finfo(np.float64).tiny)).sum() + seldom) / (n_seen + 1))

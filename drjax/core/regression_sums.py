"""Ridge regression from sums over its rows: rows need not be held, and sums of parts add up, whoever made them.

Sums are about the means of their own rows, so that nothing cancels; two are merged by what their means differ by. The
penalty is that of the least generalised cross-validation, which needs the sums alone, where leave-one-out needs rows.

Source: Chan, Golub & LeVeque (1983), merging; Golub, Heath & Wahba (1979), generalised cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from drjax.core.kernel_regression import least
from drjax.core.linalg import eigh


class RegressionSums(NamedTuple):
    """Sums over rows of inputs (p,) and targets (d,); float64, (p + 1)^2 + p d numbers however many rows there are.

    Attributes:
        count: Number of rows.
        inputs: (p,), and targets: (d,), means.
        scatter: (p, p), products of inputs less their means.
        products: (p, d), products of those with targets.
        squares: (d,), of targets less their means.
        largest: (p,), largest size of an input.

    Example:
        >>> import numpy as np
        >>> from drjax.core.regression_sums import RegressionSums
        >>> x = np.random.default_rng(0).normal(size=(50, 2))
        >>> halves = [RegressionSums.of(part, part @ [[1.0], [2.0]] + 3) for part in (x[:20], x[20:])]
        >>> found = halves[0].merged(halves[1]).solve([1e-9])
        >>> found.weights.round(3).ravel().tolist(), found.predict(np.zeros((1, 2))).round(3).tolist()
        ([1.0, 2.0], [[3.0]])
    """

    count: int
    inputs: np.ndarray
    targets: np.ndarray
    scatter: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray, targets: np.ndarray) -> RegressionSums:
        """Sums of inputs (m, p) and targets (m, d), m >= 1; O(m p (p + d))."""
        x, y = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
        mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
        largest = np.abs(x).max(axis=0)
        x, y = x - mean_x, y - mean_y
        return cls(len(x), mean_x, mean_y, x.T @ x, x.T @ y, (y**2).sum(axis=0), largest)

    @classmethod
    def of_blocks(
        cls, inputs: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, targets: np.ndarray, size: int
    ) -> RegressionSums:
        """`of` the inputs that a function gives for rows (m, ...), which are made for so many rows at a time."""
        blocks = (slice(at, at + size) for at in range(0, len(targets), size))
        found = total(cls.of(inputs(rows[at]), targets[at]) for at in blocks)
        assert found is not None
        return found

    def merged(self, other: RegressionSums) -> RegressionSums:
        """Sums of the rows of both."""
        count = self.count + other.count
        share = other.count / count
        x, y, weight = other.inputs - self.inputs, other.targets - self.targets, self.count * share
        return RegressionSums(
            count,
            self.inputs + share * x,
            self.targets + share * y,
            self.scatter + other.scatter + weight * np.outer(x, x),
            self.products + other.products + weight * np.outer(x, y),
            self.squares + other.squares + weight * y**2,
            np.maximum(self.largest, other.largest),
        )

    def deviations(self, eps: float) -> np.ndarray:
        """(p,), standard deviations of inputs of this relative rounding; inf of one that varies by no more than it."""
        spread = np.sqrt(np.diagonal(self.scatter) / self.count)
        return np.where(spread > 4 * eps * self.largest, spread, np.inf)

    def solve(self, penalties: Sequence[float], *, scale: np.ndarray | None = None) -> Solved:
        """The regression with the penalty of the least generalised cross-validation; O(p^3 + p^2 d).

        Args:
            penalties: Grid, each > 0.
            scale: (p,) units of the inputs, inf for one that has no part; 1 if None.
        """
        unit = np.ones(len(self.inputs)) if scale is None else scale
        values, vectors = eigh(self.scatter / unit[:, None] / unit)
        values = np.maximum(values, 0)
        along = vectors.T @ (self.products / unit[:, None])
        total, size = self.squares.sum(), self.count * len(self.targets)
        rounding = len(values) * np.finfo(np.float64).eps
        fits = values > rounding * values[-1]
        explained = (along[fits] ** 2).sum(axis=1) / values[fits]
        unexplained = max(total - explained.sum(), 0.0)
        losses = {}
        for penalty in penalties:
            left = unexplained + (explained * (penalty / (values[fits] + penalty)) ** 2).sum()
            # The mean has its part in a row's influence on its own prediction.
            free = 1 - ((values / (values + penalty)).sum() + 1) / self.count
            # Where a fit leaves less than rounding, that is no small loss: nothing is free there either.
            losses[float(penalty)] = float(max(left, rounding * total) / size / free**2) if free > 0 else np.inf
        loss, best = least(losses)
        # Inputs in their own units: what has no part gets no weight.
        turn = vectors / unit[:, None]
        weights = turn @ (along / (values + best)[:, None])
        return Solved(weights, self.inputs, self.targets, best, loss, losses, turn / np.sqrt(values + best), self.count)


def total(found: Iterable[RegressionSums | None]) -> RegressionSums | None:
    """All sums merged in order, one after the other: each may be as large as the whole. None if there are none."""
    whole = None
    for one in found:
        if one is not None:
            whole = one if whole is None else whole.merged(one)
    return whole


class Solved(NamedTuple):
    """A ridge regression; see `RegressionSums.solve`.

    Attributes:
        weights: (p, d), of inputs less their means.
        inputs: (p,), and targets: (d,), means.
        penalty: The one chosen.
        loss: Its generalised cross-validation: mean squared error to expect of an entry of a target.
        losses: {penalty: loss} over the grid.
        root: (p, p), root of the inverse of the penalised scatter.
        count: Number of rows.
    """

    weights: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray
    penalty: float
    loss: float
    losses: dict[float, float]
    root: np.ndarray
    count: int

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """(m, d) of inputs (m, p)."""
        return (inputs - self.inputs) @ self.weights + self.targets

    def left_out(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(m, d), errors for some of the summed rows, inputs (m, p) and targets (m, d), without each of them."""
        own = (((inputs - self.inputs) @ self.root) ** 2).sum(axis=1) + 1 / self.count
        return (targets - self.predict(inputs)) / np.maximum(1 - own, np.sqrt(np.finfo(np.float64).eps))[:, None]

"""Kernel ridge regression whose width and penalty are chosen by leave-one-out: the one home of it. Host, float64.

`tune` finds width and penalty on some of the records, from their squared distances; where kinds of inputs compete, the
caller tunes each and takes the least `Choice.loo_mse`. `fit` solves for the weights on all records, and
`KernelRegression.predict` predicts. The intercept is the mean of all targets, which a row that is left out keeps its
part in; `Spectrum.leave_one_out` can take it out, as a linear regression with an intercept does.

Source: Saunders, Gammerman & Vovk (1998), kernel ridge regression; Golub, Heath & Wahba (1979), leave-one-out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from drjax.core.linalg import eigh

PENALTIES = tuple(float(10.0**e) for e in np.arange(-6, 1.5, 0.5))
"""Grid of the penalty for kernels that are 1, or about 1, of a point and itself."""

ALIKE = 30
"""Training inputs most like a new one whose errors say what to expect of its own."""

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function from inputs (p, f) and (q, f) to their kernel (p, q)."""


def gaussian(ratio: np.ndarray) -> np.ndarray:
    """exp(-t) of squared distances over the squared width, which it overwrites."""
    return np.exp(np.negative(ratio, out=ratio), out=ratio)


def matern(ratio: np.ndarray) -> np.ndarray:
    """Matern's kernel of order 3/2: what is learnt may bend where `gaussian` would have it smooth."""
    distances = np.sqrt(3 * ratio)
    return (1 + distances) * np.exp(-distances)


def squared_distances(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """(p, q) squared distances of a (p, f) to b (q, f), or among a if b is None, 0 of a row to itself.

    By products, whose cancellation a kernel does not see; its root would, on the diagonal.
    """
    other = a if b is None else b
    squared = (a**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * a @ other.T
    if b is None:
        squared[np.diag_indices(len(a))] = 0
    return np.maximum(squared, 0, out=squared)


def median_or_one(squared: np.ndarray) -> float:
    """Median of squared distances, the unit of a grid of widths; 1 where most points coincide."""
    return float(np.median(squared)) or 1.0


@dataclass(frozen=True)
class Radial:
    """Kernel that falls with the distance.

    Attributes:
        unit: Squared width.
        profile: Function from squared distances over `unit`, which it may overwrite, to the kernel.
    """

    unit: float
    profile: Callable[[np.ndarray], np.ndarray] = gaussian

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(p, q) of inputs (p, f) and (q, f)."""
        squared = squared_distances(a, None if b is a else b)
        return self.profile(np.divide(squared, self.unit, out=squared))


class Choice(NamedTuple):
    """What leave-one-out chose.

    Attributes:
        loo_mse: Mean squared leave-one-out error per entry of the targets.
        penalty: Added to the diagonal of the kernel.
        kernel: The kernel, with its width.
    """

    loo_mse: float
    penalty: float
    kernel: Kernel


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors of a kernel (m, m) that carry something.

    Attributes:
        vectors: (m, r), orthonormal.
        values: (r,), >= 0; all others are 0.
    """

    vectors: np.ndarray
    values: np.ndarray

    @classmethod
    def of_kernel(cls, kernel: np.ndarray) -> Spectrum:
        """All m of them; O(m^3)."""
        values, vectors = eigh(kernel)
        return cls(vectors, np.maximum(values, 0))

    @classmethod
    def of_features(cls, features: np.ndarray) -> Spectrum:
        """Eigenvectors of the linear kernel of features (m, p), from the smaller Gram matrix.

        With q = min(m, p), O(m p q + q^3).
        """
        m, p = features.shape
        values, vectors = eigh(features.T @ features if p <= m else features @ features.T)
        # Below this the Gram matrix holds rounding only; such a direction carries no weight under any positive penalty.
        kept = values > max(m, p) * np.finfo(np.float64).eps * values[-1]
        values, vectors = values[kept], vectors[:, kept]
        return cls(features @ vectors / np.sqrt(values) if p <= m else vectors, values)

    def leave_one_out(
        self, y: np.ndarray, penalties: Sequence[float], *, leaves_mean: bool = False, most: float = np.inf
    ) -> dict[float, float]:
        """Mean squared leave-one-out error of y (m, d) for each penalty > 0; exact.

        Args:
            y: (m, d), less their mean.
            penalties: The grid.
            leaves_mean: Whether the mean of y is that of the other rows, too, for a kernel of centred features.
            most: Most that a row counts, in units of what the mean errs by: one that no other row is like would decide
                alone else.
        """
        size, (m, d) = y.size, y.shape
        limit = most if most == np.inf else most * (y**2).sum() / m
        if d > m:
            # Errors are lengths of rows, which a rotation of the columns keeps: as many columns as rows are enough.
            y = np.asarray(np.linalg.qr(y.T, mode="r")).T
        projected, squares = self.vectors.T @ y, self.vectors**2
        # What lies outside the eigenvectors is not shrunk; with all m of them nothing does, to the last bit.
        is_whole = self.vectors.shape[1] == m
        rest = 0.0 if is_whole else y - self.vectors @ projected
        outside = 0.0 if is_whole else 1 - squares.sum(axis=1)
        found = {}
        for penalty in penalties:
            kept = penalty / (self.values + penalty)
            # Of I - S for the smoother S: its product with y over its diagonal is what leaving a row out leaves. 1/m is
            # the mean's share of a row's influence on its own prediction.
            own = squares @ kept + outside - (1 / m if leaves_mean else 0.0)
            residual = (self.vectors @ (kept[:, None] * projected) + rest) / own[:, None]
            total = (residual**2).sum() if limit == np.inf else np.minimum((residual**2).sum(axis=1), limit).sum()
            found[float(penalty)] = float(total) / size
        return found


def least(losses: dict[float, float]) -> tuple[float, float]:
    """The least loss and its penalty, the first of equal ones."""
    penalty = min(losses, key=lambda one: losses[one])
    return losses[penalty], penalty


def tune(
    squared: np.ndarray,
    y: np.ndarray,
    *,
    widths: Sequence[float],
    unit: float | None = None,
    profile: Callable[[np.ndarray], np.ndarray] = gaussian,
    penalties: Sequence[float] = PENALTIES,
) -> Choice:
    """Width and penalty of the least leave-one-out error; one eigendecomposition, O(m^3), for each width.

    Args:
        squared: (m, m) squared distances among the inputs.
        y: (m, d) targets, or (m,), less their mean.
        widths: Grid of the squared width, in units of `unit`.
        unit: The median of `squared` if None.
        profile: Function from squared distances over the squared width to the kernel; see `Radial`.
        penalties: Grid of the penalty.
    """
    unit = median_or_one(squared) if unit is None else unit
    rows = y.reshape(len(y), -1)
    found = []
    for width in widths:
        kernel = Radial(width * unit, profile)
        losses = Spectrum.of_kernel(profile(squared / kernel.unit)).leave_one_out(rows, penalties)
        found.append(Choice(*least(losses), kernel))
    return min(found, key=lambda choice: choice.loo_mse)


@dataclass(frozen=True)
class KernelRegression:
    """Regression on kernels with the training inputs; see `fit`.

    Attributes:
        inputs: (m, f) of training.
        weights: (m, d), or (m,).
        intercept: (d,), or a number: the mean of the training targets.
        choice: Kernel, penalty, and the error by which they were chosen.
        squares: Squares of the leave-one-out errors, as weights; None where only `fit` was called.
        inverse: (m, m) of the kernel with its penalty; None unless `fit_with_errors` was told to keep it.
    """

    inputs: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    choice: Choice
    squares: np.ndarray | None = None
    inverse: np.ndarray | None = None

    @property
    def unit(self) -> float:
        """Squared width of a radial kernel."""
        assert isinstance(self.choice.kernel, Radial)
        return self.choice.kernel.unit

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """(b, d), or (b,), of inputs (b, f); 2 b m (f + d) FLOP."""
        return self.choice.kernel(inputs, self.inputs) @ self.weights + self.intercept

    def expected_squares(self, inputs: np.ndarray) -> np.ndarray:
        """(b, d), or (b,), squared errors to expect of predictions: means over the `ALIKE` training inputs most alike.

        Raises:
            ValueError: the errors were not computed (`fit_with_errors`).
        """
        if self.squares is None:
            raise ValueError("regression must have its leave-one-out errors, got one that was fitted without")
        alike = self.choice.kernel(inputs, self.inputs)
        count = min(ALIKE, len(self.inputs))
        rows = np.argpartition(alike, len(self.inputs) - count, axis=1)[:, -count:]
        return np.array([self.squares[row].mean(axis=0) for row in rows]).reshape(len(rows), *self.squares.shape[1:])

    def variances(self, inputs: np.ndarray | None = None) -> np.ndarray:
        """(b,) what training leaves open at inputs (b, f); at each one of training, by the others, if None.

        In units of a target's variance at an input that none of training is like: the posterior variance of a Gaussian
        process with the kernel, and with the penalty as the noise of every target. b m (f + m) FLOP.

        Source: Rasmussen & Williams (2006), equations 2.26 and 5.12.

        Raises:
            ValueError: the inverse was not kept (`fit_with_errors`), or the kernel is not radial.
        """
        if self.inverse is None or not isinstance(self.choice.kernel, Radial):
            raise ValueError("regression must have a radial kernel and its inverse, got one without")
        if inputs is None:
            return 1 / np.diagonal(self.inverse)
        alike = self.choice.kernel(inputs, self.inputs)
        # Rounding of the inverse may leave less than the noise that every target has.
        return np.maximum(1 - ((alike @ self.inverse) * alike).sum(axis=1), 0) + self.choice.penalty


def fit(inputs: np.ndarray, y: np.ndarray, choice: Choice, *, gram: np.ndarray | None = None) -> KernelRegression:
    """Weights on all records with the kernel and the penalty of `choice`; O(m^2 (f + d) + m^3 / 3).

    Args:
        inputs: (m, f).
        y: (m, d), or (m,).
        choice: Choice from `tune`.
        gram: (m, m) kernel of the inputs, where it is at hand; overwritten.
    """
    intercept = y.mean(axis=0)
    kernel = _penalised(choice.kernel(inputs, inputs) if gram is None else gram, choice.penalty)
    weights = scipy.linalg.solve(kernel, y - intercept, assume_a="pos", overwrite_a=True)
    return KernelRegression(inputs, weights, intercept, choice)


def fit_with_errors(
    inputs: np.ndarray, y: np.ndarray, choice: Choice, *, keeps_inverse: bool = False
) -> tuple[KernelRegression, np.ndarray]:
    """Fits as `fit` does, and gives the leave-one-out errors, of the shape of y; O(m^2 (f + d) + m^3).

    Args:
        inputs: (m, f).
        y: (m, d), or (m,).
        choice: Choice from `tune`.
        keeps_inverse: Whether the regression has the m^2 numbers that its `variances` take.
    """
    intercept = y.mean(axis=0)
    inverse = scipy.linalg.inv(_penalised(choice.kernel(inputs, inputs), choice.penalty), overwrite_a=True)
    weights = inverse @ (y - intercept)
    errors = (weights.T / np.diagonal(inverse)).T
    return KernelRegression(inputs, weights, intercept, choice, errors**2, inverse if keeps_inverse else None), errors


@dataclass(frozen=True)
class Landmarks:
    """A kernel as inner products of (r,) numbers: those of an input with some inputs, the landmarks (Nystroem's).

    Attributes:
        kernel: The kernel.
        inputs: (q, f), landmarks.
        root: (q, r), root of the inverse of their kernel, in the directions that are above rounding.
    """

    kernel: Kernel
    inputs: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, inputs: np.ndarray) -> Landmarks:
        """Landmarks (q, f); O(q^2 f + q^3).

        Source: Williams & Seeger (2001).
        """
        values, vectors = eigh(kernel(inputs, inputs))
        kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
        return cls(kernel, inputs, vectors[:, kept] / np.sqrt(values[kept]))

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """(m, r) of inputs (m, f), whose inner products are the kernel where landmarks explain it; O(m q (f + r))."""
        return self.kernel(inputs, self.inputs) @ self.root


def leave_one_out_weights(kernel: np.ndarray, penalty: float, rows: np.ndarray) -> np.ndarray:
    """(r, m): weight of target j in the prediction for a row by a fit without it; overwrites the kernel (m, m).

    O(m^3 / 3 + 2 m^2 r), of which no more than the rows' part of the inverse is worked out.
    """
    factor = scipy.linalg.cholesky(_penalised(kernel, penalty), lower=True, overwrite_a=True, check_finite=False)
    own = np.arange(len(rows)), rows
    of_rows = np.zeros((len(rows), len(kernel)))
    of_rows[own] = 1
    solved = scipy.linalg.cho_solve((factor, True), of_rows.T, overwrite_b=True, check_finite=False)
    inverse = np.transpose(solved)
    weights = -inverse / inverse[own][:, None]
    weights[own] = 0
    return weights


def _penalised(kernel: np.ndarray, penalty: float) -> np.ndarray:
    kernel[np.diag_indices(len(kernel))] += penalty
    return kernel

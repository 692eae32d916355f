"""The equations of a generalised linear model at its optimum, and their solution for one record.

Notation of `glm`: the known records' part of the gradient is (g, b) = (r x + e, r + e_b), where (e, e_b) is what the
solver left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit, softmax

Mean = Callable[[np.ndarray], np.ndarray]

LINKS: dict[str, Mean] = {"identity": lambda eta: eta, "logit": expit, "log": np.exp}
"""Mean of y at a linear predictor, by the name of the canonical link: linear, logistic and Poisson regression."""

MULTINOMIAL = "multinomial"

SILENT = 1e-13
"""Residual of the target, by record and in units of the labels, below which it has left no trace but rounding."""

GRID = np.logspace(-8, 8, 1601)
"""Residuals among which sign changes are sought, in units of the labels; 2.3% from one to the next."""


class Solution(NamedTuple):
    """A record that solves the equations: x (d,), its label, and all candidates (c, d), x first."""

    x: np.ndarray
    label: float
    candidates: np.ndarray


class Equations(NamedTuple):
    """What the adversary knows of a fit.

    Attributes:
        link: Name of the canonical link, or "multinomial".
        coef: (d,) or (C, d).
        intercept: () or (C,).
        weight: Penalty beside the sum of the losses of all records.
        penalize_intercept: Whether the penalty includes the intercept.
        fit_intercept: Whether there is one.
        target_y: Label of the target, or None.
        is_whole: Whether labels are whole numbers.
        scale: Size of the labels.
        centre: (d,), mean of the known records.
    """

    link: str
    coef: np.ndarray
    intercept: np.ndarray
    weight: float
    penalize_intercept: bool
    fit_intercept: bool
    target_y: float | None
    is_whole: bool
    scale: float
    centre: np.ndarray

    def residuals(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Mean minus label of records (n, d), (n,) or (n, C)."""
        with np.errstate(over="ignore"):
            if self.link == MULTINOMIAL:
                return softmax(x @ self.coef.T + self.intercept, axis=1) - np.eye(len(self.coef))[y.astype(int)]
            return LINKS[self.link](x @ self.coef + self.intercept) - y

    def gradient(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient by weights and intercept, of the losses of these records and the penalty."""
        residual = self.residuals(x, y)
        b = residual.sum(axis=0) + (self.weight * self.intercept if self.penalize_intercept else 0.0)
        return residual.T @ x + self.weight * self.coef, np.asarray(b if self.fit_intercept else np.zeros_like(b))

    def solve(self, g: np.ndarray, b: np.ndarray) -> Solution | None:
        """The record with (g, b) = (r x, r), or None where there is none."""
        if not self.fit_intercept:
            return self._without_intercept(g)
        if not b.any():
            return None
        if self.link != MULTINOMIAL:
            x = g / b
            label = float(b + self.mean(x))
        else:
            # Least squares over classes for the one record of g = outer(r, x).
            x = b @ g / (b @ b)
            shares = b + softmax(self.coef @ x + self.intercept)
            label = float(np.argmax(shares)) if self.target_y is None else self.target_y
        return Solution(x, label, x[None])

    def possible(self, label: float) -> float:
        """The label that a solution must have: the given one, else the nearest possible; nan where any number is."""
        if self.target_y is not None:
            return self.target_y
        if self.link == MULTINOMIAL:
            return label
        if not self.is_whole or not np.isfinite(label):
            return np.nan
        if self.link == "identity":
            return float(np.round(label))
        return float(np.clip(np.round(label), 0, 1 if self.link == "logit" else None))

    def gap(self, solution: Solution, b: np.ndarray) -> float:
        """How far a solution is from having a possible label, in units of labels; nan where nothing shows it."""
        label = self.possible(solution.label)
        if not self.fit_intercept:
            return 0.0
        if self.link == MULTINOMIAL:
            shares = b + softmax(self.coef @ solution.x + self.intercept)
            return float(np.linalg.norm(shares - np.eye(len(self.coef))[int(label)]))
        return abs(solution.label - label)

    def at(self, g: np.ndarray, b: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Solutions (p, d) of p such equations with an intercept, and what is left of them (p, q) with these labels.

        q = 0 where there are no more equations than unknowns: a linear predictor's, with a label of nan.
        """
        if self.link != MULTINOMIAL:
            x = g / b[:, None]
            with np.errstate(over="ignore", invalid="ignore"):
                left = (b + LINKS[self.link](x @ self.coef + self.intercept) - label)[:, None]
            return x, left[:, :0] if np.isnan(label).any() else left
        x = np.einsum("pc,pcd->pd", b, g) / np.sum(b**2, axis=1)[:, None]
        shares = b + softmax(x @ self.coef.T + self.intercept, axis=1) - np.eye(len(self.coef))[label.astype(int)]
        length = np.maximum(np.linalg.norm(x, axis=1), np.finfo(np.float64).tiny)[:, None, None]
        off_rank_one = (g - b[:, :, None] * x[:, None, :]) / length
        return x, np.hstack([shares, off_rank_one.reshape(len(x), -1)])

    def is_silent(self, b: np.ndarray, n: int) -> bool:
        """Whether the residual of the target is rounding."""
        return self.fit_intercept and bool(np.linalg.norm(b) <= SILENT * self.scale * n)

    def mean(self, x: np.ndarray) -> Any:
        """Expected label of a record (d,)."""
        with np.errstate(over="ignore"):
            return LINKS[self.link](np.asarray(x @ self.coef + self.intercept))

    def _without_intercept(self, g: np.ndarray) -> Solution | None:
        """All x = g / r with r = y - mean(coef . x), the one nearest to the mean of the known records first."""
        assert self.target_y is not None
        y, along, mean = self.target_y, float(self.coef @ g), LINKS[self.link]
        if self.link == "identity":
            # With c = 1 / r: along c^2 - y c + 1 = 0, in the form that does not cancel.
            inside = y**2 - 4 * along
            half = (y + np.copysign(np.sqrt(max(inside, 0.0)), y)) / 2
            roots = [] if inside < 0 or half == 0 else [half] + ([along / half] if along != 0 else [])
        else:
            roots = _roots(lambda r: y - r - mean(along / r), self.scale)
        candidates = np.array([g / r for r in roots if abs(r) > SILENT * self.scale])
        if not len(candidates):
            return None
        candidates = candidates[np.argsort(np.linalg.norm(candidates - self.centre, axis=1), kind="stable")]
        return Solution(candidates[0], y, candidates)


def _roots(fn: Callable[[Any], Any], scale: float) -> list[float]:
    """Where fn(r) changes sign through 0, of either sign of r."""
    found = []
    with np.errstate(over="ignore"):
        for sign in (1.0, -1.0):
            grid = sign * scale * GRID
            values = fn(grid)
            at = np.flatnonzero(np.isfinite(values[:-1]) & np.isfinite(values[1:]) & (values[:-1] * values[1:] <= 0))
            for i in at:
                root: Any = scipy.optimize.brentq(fn, grid[i], grid[i + 1], xtol=1e-300)
                found.append(float(root))
    return sorted(set(found))

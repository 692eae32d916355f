"""The one unknown record of a generalised linear model fitted to its optimum, in closed form.

A fit with canonical link g^-1 = mean and L2 penalty minimises

    sum_i [A(eta_i) - y_i eta_i] + l2 / 2 |theta|^2,    eta_i = theta . x_i + b,    A' = mean.

At the optimum the gradient vanishes, and all of it is known but the target's term r x, r = y - mean(theta . x + b):

    B = sum_known (mean(eta_i) - y_i) x_i + l2 theta = r x,    and of the intercept    B_b = r.

So x = B / B_b and y = B_b + mean(theta . x + b) (Balle, Cherubin & Hayes 2022, Theorem 1). Of the multinomial model
B is (C, d) and r a vector: the outer product r x. Without an intercept r is missing; where y is given it solves
r = y - mean(theta . B / r), which for the linear model is a quadratic equation with two roots (their Theorem 8).

A solver that stops with a gradient (e, e_b) left returns x + (e - x e_b) / r to first order: the error grows as the
gradient that is left over the residual of the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from drjax.attacks.reconstruction.closed_form.glm_certificate import (
    CONTRADICTED,
    Known,
    after_refits,
    examined,
    stated,
)
from drjax.attacks.reconstruction.closed_form.glm_equations import LINKS, MULTINOMIAL, Equations
from drjax.attacks.reconstruction.closed_form.glm_estimators import Refit
from drjax.attacks.reconstruction.priors import Prior
from drjax.core import validate
from drjax.core.linalg import eps_of
from drjax.core.types import Array, Reconstruction, Status

REDUCTIONS = ("sum", "mean")

MARGIN = 0.25
"""Expected squared error over that of the mean, beyond which the mean is returned."""


def reconstruct_glm(
    params: Any,
    known_x: Array,
    known_y: Array,
    *,
    link: str,
    l2: float,
    reduction: str,
    fit_intercept: bool = True,
    penalize_intercept: bool = False,
    target_y: float | None = None,
    refit: Refit | None = None,
    gradient_left: float | tuple[Array, Array] | None = None,
    prior: Prior | None = None,
) -> Reconstruction:
    """Reconstructs the unknown record and its label from a generalised linear model and the other n-1 records.

    Exact up to what the solver has left of the gradient, which `refit` measures or `gradient_left` states; with
    neither, nothing is claimed. Host, float64; O(n d C), and with `refit` six fits.

    Args:
        params: (coef, intercept), of shapes (d,) and (), or for "multinomial" (C, d) and (C,); coef alone if
            `fit_intercept` is False. Their dtype says how they are rounded.
        known_x: (n-1, d).
        known_y: (n-1,); classes as integers from 0 to C - 1 for "multinomial", 0 or 1 for "logit", >= 0 for "log".
        link: "identity" (linear), "logit" (logistic), "log" (Poisson) or "multinomial" (softmax).
        l2: Weight of |theta|^2 / 2 beside the loss, >= 0.
        reduction: Whether the loss is the "sum" over n records or their "mean".
        fit_intercept: Whether the model has an intercept.
        penalize_intercept: Whether the penalty includes it.
        target_y: Label of the target, if the adversary has it; without an intercept it is needed.
        refit: Function (x (n, d), y (n,)) -> params that fits as the release was fitted; `of_estimator` makes one.
        gradient_left: Size of the entries of the gradient that the solver may have left, of the sum over all records: a
            number, or a pair for weights and intercept; 0.0 states convergence to rounding. Takes the place of `refit`.
        prior: Prior of the target. Its mean is returned where the equations do not give the record; the known records'
            mean if None.

    Returns:
        x (d,); y () the label, unrounded but for "multinomial"; candidates (c, d), the two or fewer solutions of the
        equations without intercept, else one; residual_norm () how far the equations are from agreeing, in units of y:
        0 at an optimum, nan where nothing is left to check them by; expected_mse () of x, nan where it is not known.
        Status OK: x is the record, but for features whose expected squared error exceeds their variance, which are
        those of the mean. NOT_CONVERGED: the gradient left hides the record, or is too small for what the equations
        disagree by, so that these are not all other records, or not the model's: x is the mean. UNCERTIFIED: the
        gradient left is not known (x is the mean, expected_mse nan), or two unknown records would not have shown (x is
        the solution, expected_mse what it is if there is one). DEGENERATE: the target has no residual, or no record
        solves the equations (x is the mean, y nan).

    Raises:
        ValueError: shapes that do not match, values that are not finite, labels out of range, an unknown link or
            reduction, l2 < 0 or infinite, gradient_left < 0 or of another shape, no label where it is needed, or a
            multinomial model without intercept.

    Source: Balle, Cherubin & Hayes (2022), "Reconstructing training data with informed adversaries", Theorems 1 and 8;
    the multinomial model, Theorem 8 for other links and with a penalty, and the errors are drjax's own
    (docs/models/glm.md).

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_glm
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.random((60, 5)), rng.random(60)
        >>> model = LinearRegression().fit(x, y)
        >>> params = model.coef_, model.intercept_
        >>> found = reconstruct_glm(params, x[1:], y[1:], link="identity", l2=0.0, reduction="sum", gradient_left=0.0)
        >>> bool(np.abs(found.x - x[0]).max() < 1e-6)
        True
    """
    validate.one_of((*LINKS, MULTINOMIAL), link=link)
    validate.one_of(REDUCTIONS, reduction=reduction)
    validate.non_negative(l2=l2)
    validate.finite(l2=l2)
    x = validate.matrix(known_x, "known_x").astype(np.float64)
    coef, intercept, eps = _params(params, x.shape[1], link, fit_intercept)
    n_classes = len(coef) if link == MULTINOMIAL else None
    y = _labels(known_y, len(x), link, n_classes, "known_y")
    if target_y is not None:
        target_y = float(_labels(np.asarray([target_y]), 1, link, n_classes, "target_y")[0])
    elif not fit_intercept:
        raise ValueError("target_y must be given where fit_intercept is False: nothing shows the target's residual")
    if link == MULTINOMIAL and not fit_intercept:
        raise ValueError(
            f"fit_intercept must be True for link {MULTINOMIAL!r}: else the target's residuals do not show"
        )
    mean = x.mean(axis=0) if prior is None else np.asarray(prior.mean, np.float64)
    if mean.shape != x.shape[1:]:
        raise ValueError(f"prior must be of records of {x.shape[1]} features, its mean has shape {mean.shape}")
    equations = Equations(
        link,
        coef,
        intercept,
        l2 * (len(x) + 1 if reduction == "mean" else 1),
        penalize_intercept,
        fit_intercept,
        target_y,
        link != "identity" or bool((y == np.round(y)).all()),
        1.0,
        x.mean(axis=0),
    )
    if link != MULTINOMIAL:
        size = np.abs(y).mean() + np.abs(equations.residuals(x, y)).mean()
        equations = equations._replace(scale=max(float(size), np.finfo(np.float64).tiny))
    spread = np.mean((x - mean) ** 2, axis=0)
    draws = None if gradient_left is None else stated(equations, gradient_left)
    g, b = equations.gradient(x, y)
    solution = None if equations.is_silent(b, len(x)) else equations.solve(g, b)
    if solution is None:
        nothing = np.full((1, x.shape[1]), np.nan)
        return _result(mean, np.nan, nothing, np.nan, spread.mean(), Status.DEGENERATE)
    known = Known(equations, x, y, eps)
    if draws is not None:
        answer = examined(known, g, b, draws)
    else:
        answer = None if refit is None else after_refits(known, g, b, solution, refit)
    if answer is None:
        gap = equations.gap(solution, b)
        return _result(mean, solution.label, solution.candidates, gap, np.nan, Status.UNCERTIFIED)
    solution, squared = answer.solution, answer.squared_error
    is_lost = ~(squared <= spread)
    if answer.disagreement > CONTRADICTED or not _tells(squared, spread, solution.x - mean):
        return _result(mean, solution.label, solution.candidates, answer.gap, spread.mean(), Status.NOT_CONVERGED)
    status = Status.OK if answer.is_checked else Status.UNCERTIFIED
    expected = np.where(is_lost, spread, squared).mean()
    x_found = np.where(is_lost, mean, solution.x)
    return _result(x_found, solution.label, solution.candidates, answer.gap, expected, status)


def _tells(squared: np.ndarray, spread: np.ndarray, offset: np.ndarray) -> bool:
    """Whether an answer with these squared errors (d,) says more than the mean, in units of the features and in theirs.

    More than the mean of records that vary by `spread`, and than the mean of this one, which it puts at `offset`.
    """
    unit = np.where(spread > 0, spread, 1)
    return all(
        (errors.mean() <= MARGIN * min(known.mean(), (its**2).mean()))
        for errors, known, its in (
            (squared, spread, offset),
            (np.minimum(squared, unit) / unit, spread / unit, offset / np.sqrt(unit)),
        )
    )


def _result(
    x: np.ndarray, label: float, candidates: np.ndarray, gap: float, expected: float, status: Status
) -> Reconstruction:
    return Reconstruction(
        x, np.asarray(label), candidates, np.asarray(gap), np.asarray(status, np.uint32), np.asarray(expected)
    )


def _params(params: Any, d: int, link: str, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients (d,) or (C, d), intercept () or (C,), 0 where there is none, and their unit in the last place."""
    if fit_intercept and not (isinstance(params, (tuple, list)) and len(params) == 2):
        raise ValueError("params must be a pair (coef, intercept) where fit_intercept is True")
    coef, intercept = params if fit_intercept else (params, 0.0)
    dtype = np.asarray(coef).dtype
    eps = eps_of(dtype)
    coef, intercept = np.asarray(coef, np.float64), np.asarray(intercept, np.float64)
    rank = 2 if link == MULTINOMIAL else 1
    if coef.ndim != rank or coef.shape[-1] != d or (rank == 2 and len(coef) < 2):
        wanted = f"(C, {d}) with C >= 2" if rank == 2 else f"({d},)"
        raise ValueError(
            f"coef must have shape {wanted} for link {link!r} and known_x of {d} columns, got {coef.shape}"
        )
    if not fit_intercept:
        intercept = np.zeros(coef.shape[:-1])
    if intercept.shape != coef.shape[:-1]:
        raise ValueError(f"intercept must have shape {coef.shape[:-1]} as coef, got {intercept.shape}")
    validate.finite(coef=coef, intercept=intercept)
    return coef, intercept, eps


def _labels(labels: Array, n: int, link: str, n_classes: int | None, name: str) -> np.ndarray:
    y = np.asarray(labels)
    if y.shape != (n,) or y.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be {n} numbers, one per record, got shape {y.shape} of {y.dtype}")
    y = y.astype(np.float64)
    validate.finite(**{name: y})
    is_ok = {
        "identity": np.ones(n, bool),
        "logit": (y == 0) | (y == 1),
        "log": y >= 0,
        MULTINOMIAL: (y == np.round(y)) & (y >= 0) & (y < (n_classes or 0)),
    }[link]
    if not is_ok.all():
        rule = {"logit": "0 or 1", "log": ">= 0", MULTINOMIAL: f"integers from 0 to {(n_classes or 0) - 1}"}[link]
        raise ValueError(f"{name} must be {rule} for link {link!r}, got {y[~is_ok][0]:g}")
    return y

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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from drjax.core import validate
from drjax.core.types import Array, Reconstruction, Status

Mean = Callable[[np.ndarray], np.ndarray]

LINKS: dict[str, Mean] = {"identity": lambda eta: eta, "logit": expit, "log": np.exp}
"""Mean of y at a linear predictor, by the name of the canonical link: linear, logistic and Poisson regression."""

MULTINOMIAL = "multinomial"

REDUCTIONS = ("sum", "mean")

ESTIMATORS = {
    "LinearRegression": "identity",
    "Ridge": "identity",
    "LogisticRegression": "logit",
    "PoissonRegressor": "log",
}
"""Links of scikit-learn's estimators that `of_estimator` takes."""

SILENT = 1e-13
"""Residual of the target, by record and in units of the labels, below which it has left no trace but rounding."""

GRID = np.logspace(-8, 8, 1601)
"""Residuals among which sign changes are sought, in units of the labels; 2.3% from one to the next."""


class GLM(NamedTuple):
    """A fitted model and how it was fitted: keyword arguments of `reconstruct_glm`, which says what they are.

    Attributes:
        params: (coef, intercept), or coef alone.
        link: Name of the canonical link.
        l2: Weight of the penalty.
        reduction: "sum" or "mean".
        fit_intercept: Whether there is an intercept.
        penalize_intercept: Whether the penalty includes it.
    """

    params: Any
    link: str
    l2: float
    reduction: str
    fit_intercept: bool
    penalize_intercept: bool


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
) -> Reconstruction:
    """Reconstructs the unknown record and its label from a generalised linear model and the other n-1 records.

    Exact up to what the solver has left of the gradient, see the module. Host, float64, O(n d C).

    Args:
        params: (coef, intercept), of shapes (d,) and (), or for "multinomial" (C, d) and (C,); coef alone if
            `fit_intercept` is False.
        known_x: (n-1, d).
        known_y: (n-1,); classes as integers from 0 to C - 1 for "multinomial", 0 or 1 for "logit", >= 0 for "log".
        link: "identity" (linear), "logit" (logistic), "log" (Poisson) or "multinomial" (softmax).
        l2: Weight of |theta|^2 / 2 beside the loss, >= 0.
        reduction: Whether the loss is the "sum" over n records or their "mean".
        fit_intercept: Whether the model has an intercept.
        penalize_intercept: Whether the penalty includes it.
        target_y: Label of the target, if the adversary has it; without an intercept it is needed.

    Returns:
        x (d,); y () the label, unrounded but for "multinomial"; candidates (c, d), the two or fewer solutions without
        intercept, else x alone; residual_norm () how far the equations are from agreeing, in units of y: 0 at an
        optimum, nan where nothing is left to check them by (linear with unknown label); status DEGENERATE (x nan)
        where the target has no residual, so that the model shows nothing of it, or no record solves the equations.

    Raises:
        ValueError: shapes that do not match, values that are not finite, labels out of range, an unknown link or
            reduction, l2 < 0 or infinite, no label where it is needed, or a multinomial model without intercept.

    Source: Balle, Cherubin & Hayes (2022), "Reconstructing training data with informed adversaries", Theorems 1 and 8;
    the multinomial model, and Theorem 8 for other links and with a penalty, are drjax's own (docs/models.md).
    """
    validate.one_of((*LINKS, MULTINOMIAL), link=link)
    validate.one_of(REDUCTIONS, reduction=reduction)
    validate.non_negative(l2=l2)
    validate.finite(l2=l2)
    x = validate.matrix(known_x, "known_x").astype(np.float64)
    coef, intercept = _params(params, x.shape[1], link, fit_intercept)
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
    weight = l2 * (len(x) + 1 if reduction == "mean" else 1)
    if link == MULTINOMIAL:
        return _multinomial(coef, intercept, x, y, weight, penalize_intercept, target_y)
    mean = LINKS[link]
    residual = mean(x @ coef + intercept) - y
    gradient = residual @ x + weight * coef
    scale = max(float(np.abs(y).mean() + np.abs(residual).mean()), np.finfo(np.float64).tiny)
    if not fit_intercept:
        assert target_y is not None
        return _without_intercept(gradient, coef, mean, target_y, scale, x.mean(axis=0))
    r = float(residual.sum() + (weight * intercept if penalize_intercept else 0.0))
    if abs(r) <= SILENT * scale * len(x):
        return _nothing(x.shape[1])
    found = gradient / r
    label = r + float(mean(np.asarray(found @ coef + intercept)))
    gap = np.nan
    if target_y is not None:
        gap = abs(label - target_y)
    elif link != "identity":
        # Labels are whole numbers.
        gap = abs(label - np.clip(np.round(label), 0, 1 if link == "logit" else None))
    return _one(found, label, gap)


def _multinomial(
    coef: np.ndarray,
    intercept: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    weight: float,
    penalize_intercept: bool,
    target_y: float | None,
) -> Reconstruction:
    n_classes = len(coef)
    residual = softmax(x @ coef.T + intercept, axis=1) - np.eye(n_classes)[y.astype(int)]
    gradient = residual.T @ x + weight * coef
    r = residual.sum(axis=0) + (weight * intercept if penalize_intercept else 0.0)
    if np.linalg.norm(r) <= SILENT * len(x):
        return _nothing(x.shape[1])
    # Least squares over classes for the one record of gradient = outer(r, x).
    found = r @ gradient / (r @ r)
    shares = r + softmax(coef @ found + intercept)
    label = float(np.argmax(shares)) if target_y is None else target_y
    gap = float(np.linalg.norm(shares - np.eye(n_classes)[int(label)]))
    return _one(found, label, gap)


def _without_intercept(
    gradient: np.ndarray, coef: np.ndarray, mean: Mean, target_y: float, scale: float, centre: np.ndarray
) -> Reconstruction:
    """All x = gradient / r with r = y - mean(coef . x), the one nearest to the mean of the known records first."""
    along = float(coef @ gradient)
    if mean is LINKS["identity"]:
        # With c = 1 / r: along c^2 - y c + 1 = 0, in the form that does not cancel.
        inside = target_y**2 - 4 * along
        half = (target_y + np.copysign(np.sqrt(max(inside, 0.0)), target_y)) / 2
        roots = [] if inside < 0 or half == 0 else [half] + ([along / half] if along != 0 else [])
    else:
        roots = _roots(lambda r: target_y - r - float(mean(np.asarray(along / r))), scale)
    candidates = np.array([gradient / r for r in roots if abs(r) > SILENT * scale])
    if not len(candidates):
        return _nothing(len(gradient))
    candidates = candidates[np.argsort(np.linalg.norm(candidates - centre, axis=1), kind="stable")]
    return _result(candidates[0], candidates, target_y, 0.0, Status.OK)


def _roots(fn: Callable[[float], float], scale: float) -> list[float]:
    """Where fn(r) changes sign through 0, of either sign of r."""
    found = []
    with np.errstate(over="ignore"):
        for sign in (1.0, -1.0):
            grid = sign * scale * GRID
            values = np.array([fn(r) for r in grid])
            at = np.flatnonzero(np.isfinite(values[:-1]) & np.isfinite(values[1:]) & (values[:-1] * values[1:] <= 0))
            for i in at:
                root: Any = scipy.optimize.brentq(fn, grid[i], grid[i + 1], xtol=1e-300)
                found.append(float(root))
    return sorted(set(found))


def of_estimator(model: Any) -> GLM:
    """How scikit-learn fitted one of its linear models, for `reconstruct_glm(..., **of_estimator(model)._asdict())`.

    Takes a fitted `LinearRegression`, `Ridge`, `PoissonRegressor`, or `LogisticRegression` with an L2 penalty or none;
    labels of the last are positions in its `classes_`.

    Raises:
        ValueError: another estimator, several targets, weights or constraints, or a penalty that is not L2.
        NotFittedError: the model is not fitted.
    """
    check_is_fitted(model)
    name, settings = type(model).__name__, model.get_params()
    if name not in ESTIMATORS:
        raise ValueError(f"model must be one of {', '.join(ESTIMATORS)}; got {name}")
    for setting, plain in (("positive", False), ("class_weight", None), ("l1_ratio", 0.0), ("intercept_scaling", 1)):
        if settings.get(setting, plain) not in (plain, None):
            raise ValueError(f"{setting} of the model must be {plain}, got {settings[setting]!r}")
    link, l2, reduction, penalize = ESTIMATORS[name], 0.0, "sum", False
    coef, intercept = np.asarray(model.coef_, np.float64), np.asarray(model.intercept_, np.float64)
    if name == "LogisticRegression":
        if settings.get("penalty") not in ("l2", None, "deprecated"):
            raise ValueError(f"penalty of the model must be 'l2' or None, got {settings['penalty']!r}")
        l2 = 0.0 if settings.get("penalty") is None and "penalty" in settings else 1 / float(settings["C"])
        # liblinear takes the intercept for a weight.
        penalize = settings["solver"] == "liblinear"
        if len(coef) > 1:
            if penalize:
                raise ValueError("solver of the model must not be 'liblinear' for several classes: one model for each")
            link = MULTINOMIAL
        else:
            coef, intercept = coef[0], intercept.reshape(())
    elif coef.ndim != 1:
        raise ValueError(f"model must have one target, got coef_ of shape {coef.shape}")
    elif name != "LinearRegression":
        l2, reduction = float(settings["alpha"]), "mean" if name == "PoissonRegressor" else "sum"
    fit_intercept = bool(settings["fit_intercept"])
    return GLM((coef, intercept) if fit_intercept else coef, link, l2, reduction, fit_intercept, penalize)


def _params(params: Any, d: int, link: str, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (d,) or (C, d), and intercept () or (C,), 0 where there is none."""
    if fit_intercept and not (isinstance(params, (tuple, list)) and len(params) == 2):
        raise ValueError("params must be a pair (coef, intercept) where fit_intercept is True")
    coef, intercept = params if fit_intercept else (params, 0.0)
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
    return coef, intercept


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


def _one(x: np.ndarray, label: float, gap: float) -> Reconstruction:
    return _result(x, x[None], label, gap, Status.OK)


def _nothing(d: int) -> Reconstruction:
    x = np.full(d, np.nan)
    return _result(x, x[None], np.nan, np.nan, Status.DEGENERATE)


def _result(x: np.ndarray, candidates: np.ndarray, label: float, gap: float, status: Status) -> Reconstruction:
    return Reconstruction(x, np.asarray(label), candidates, np.asarray(gap), np.asarray(status, np.uint32))

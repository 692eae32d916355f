"""scikit-learn's linear models as arguments of `reconstruct_glm`, and what their solvers leave of the gradient.

Few tolerances bound a gradient. lbfgs and newton-cg stop at max |g| <= tol of the mean loss, but lbfgs also where the
loss stands still to 64 ulp (which at tol 1e-8 and below comes first), and both after `max_iter`. sag and saga stop at a
relative change of the weights, liblinear at a gradient relative to its first one (or, in the dual, at the dual's),
lsqr and sparse_cg at residuals in norms of their own, and those of cholesky and svd are not read. So what a solver
leaves is measured for all of them, by fitting the same estimator again: see `GLM.refit`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

LINKS_OF = {
    "LinearRegression": "identity",
    "Ridge": "identity",
    "LogisticRegression": "logit",
    "PoissonRegressor": "log",
}
"""Links of scikit-learn's estimators that `of_estimator` takes."""

Refit = Callable[[np.ndarray, np.ndarray], Any]


class GLM(NamedTuple):
    """A fitted model and how it was fitted: keyword arguments of `reconstruct_glm`, which says what they are.

    Attributes:
        params: (coef, intercept), or coef alone.
        link: Name of the canonical link.
        l2: Weight of the penalty.
        reduction: "sum" or "mean".
        fit_intercept: Whether there is an intercept.
        penalize_intercept: Whether the penalty includes it.
        refit: Function (x, y) -> params that fits the same estimator with the same settings to other records; None
            where that says nothing of the first fit, which began elsewhere (`warm_start`).
    """

    params: Any
    link: str
    l2: float
    reduction: str
    fit_intercept: bool
    penalize_intercept: bool
    refit: Refit | None = None


def of_estimator(model: Any) -> GLM:
    """How scikit-learn fitted one of its linear models, for `reconstruct_glm(..., **of_estimator(model)._asdict())`.

    Takes a fitted `LinearRegression`, `Ridge`, `PoissonRegressor`, or `LogisticRegression` with an L2 penalty or none;
    labels of the last are positions in its `classes_`.

    Raises:
        ValueError: another estimator, several targets, weights or constraints, or a penalty that is not L2.
        NotFittedError: the model is not fitted.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from drjax.attacks.reconstruction.closed_form import of_estimator, reconstruct_glm
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.random((60, 5)), rng.random(60)
        >>> model = Ridge(alpha=0.1).fit(x, y)
        >>> found = reconstruct_glm(known_x=x[1:], known_y=y[1:], **of_estimator(model)._asdict())
        >>> bool(np.abs(found.x - x[0]).max() < 1e-6), bool(abs(found.y - y[0]) < 1e-6)
        (True, True)
    """
    check_is_fitted(model)
    name, settings = type(model).__name__, model.get_params()
    if name not in LINKS_OF:
        raise ValueError(f"model must be one of {', '.join(LINKS_OF)}; got {name}")
    for setting, plain in (("positive", False), ("class_weight", None), ("l1_ratio", 0.0), ("intercept_scaling", 1)):
        if settings.get(setting, plain) not in (plain, None):
            raise ValueError(f"{setting} of the model must be {plain}, got {settings[setting]!r}")
    link, l2, reduction, penalize = LINKS_OF[name], 0.0, "sum", False
    if name == "LogisticRegression":
        if settings.get("penalty") not in ("l2", None, "deprecated"):
            raise ValueError(f"penalty of the model must be 'l2' or None, got {settings['penalty']!r}")
        l2 = 0.0 if settings.get("penalty") is None and "penalty" in settings else 1 / float(settings["C"])
        # liblinear takes the intercept for a weight.
        penalize = settings["solver"] == "liblinear"
        if len(model.coef_) > 1:
            if penalize:
                raise ValueError("solver of the model must not be 'liblinear' for several classes: one model for each")
            link = "multinomial"
    elif np.ndim(model.coef_) != 1:
        raise ValueError(f"model must have one target, got coef_ of shape {np.shape(model.coef_)}")
    elif name != "LinearRegression":
        l2, reduction = float(settings["alpha"]), "mean" if name == "PoissonRegressor" else "sum"
    refit = None if settings.get("warm_start") else functools.partial(_refitted, model)
    return GLM(_params(model), link, l2, reduction, bool(settings["fit_intercept"]), penalize, refit)


def _params(model: Any) -> Any:
    """Weights and intercept in the dtype that they were fitted in, which says how they are rounded."""
    coef, intercept = np.asarray(model.coef_), np.asarray(model.intercept_)
    if coef.ndim == 2 and len(coef) == 1:
        coef, intercept = coef[0], intercept.reshape(())
    return (coef, intercept) if model.fit_intercept else coef


def _refitted(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    again: Any = clone(model)
    with warnings.catch_warnings():
        # Whether it converges is what is to be seen.
        for category in (ConvergenceWarning, scipy.linalg.LinAlgWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        again.fit(x.astype(np.asarray(model.coef_).dtype), y)
    return _params(again)

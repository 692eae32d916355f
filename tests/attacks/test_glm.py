"""Generalised linear models: scikit-learn's and our own optima give their one unknown record away."""

import functools

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, PoissonRegressor, Ridge

from drjax.attacks.reconstruction.closed_form import of_estimator, reconstruct_glm
from drjax.core.types import Status

N, D = 200, 12
RNG = np.random.default_rng(0)
DIGITS, CLASSES = (a[RNG.permutation(1797)][:300] for a in load_digits(return_X_y=True))
DIGITS = DIGITS / 16
X = RNG.normal(size=(N, D))
SIGNAL = X @ RNG.normal(size=D) / 3
Y = {
    "identity": SIGNAL + RNG.normal(size=N),
    "logit": (SIGNAL + RNG.logistic(size=N) > 0).astype(float),
    "log": RNG.poisson(np.exp(SIGNAL)).astype(float),
    "multinomial": np.clip(np.round(SIGNAL + RNG.normal(size=N)) + 2, 0, 4),
}
FIT = {
    "linear": ("identity", LinearRegression()),
    "ridge": ("identity", Ridge(3.0)),
    "logistic": ("logit", LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12)),
    "liblinear": ("logit", LogisticRegression(C=0.5, solver="liblinear", tol=1e-14, max_iter=100_000)),
    "unpenalised": ("logit", LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)),
    "poisson": ("log", PoissonRegressor(alpha=0.2, solver="newton-cholesky", tol=1e-12)),
    "multinomial": ("multinomial", LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12)),
}


def attacked(model, x, y, **options):
    return reconstruct_glm(known_x=x[1:], known_y=y[1:], **of_estimator(model.fit(x, y))._asdict() | options)


@pytest.mark.parametrize("target", range(2))
@pytest.mark.parametrize("name", FIT)
def test_a_converged_fit_of_scikit_learn_gives_record_and_label_away(name, target):
    link, model = FIT[name]
    x, y = (np.roll(a, -target, axis=0) for a in (X, Y[link]))
    found = attacked(model, x, y)
    # liblinear's own stopping rule leaves a gradient of 1e-7.
    tolerance = 1e-5 if name == "liblinear" else 1e-8
    np.testing.assert_allclose(found.x, x[0], atol=tolerance)
    assert found.y == pytest.approx(y[0], abs=tolerance)
    # Where any label is possible two unknown records would look like one.
    assert found.status == (Status.UNCERTIFIED if link == "identity" else Status.OK)
    assert np.isnan(found.residual_norm) if link == "identity" else found.residual_norm < tolerance
    # A label that is known is a check.
    checked = attacked(model, x, y, target_y=y[0])
    assert checked.status == Status.OK
    assert checked.residual_norm < tolerance


@pytest.mark.parametrize("penalize_intercept", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("link", ["identity", "logit", "log"])
def test_our_own_optimum_does_whatever_is_penalised(link, reduction, penalize_intercept):
    x, y = X, Y[link]
    mean = {"identity": lambda eta: eta, "logit": expit, "log": np.exp}[link]
    design = np.column_stack([x, np.ones(N)])
    weight = 0.7 * (N if reduction == "mean" else 1) * np.append(np.ones(D), float(penalize_intercept))
    theta = np.zeros(D + 1)
    for _ in range(50):
        eta = design @ theta
        slope = {"identity": np.ones(N), "logit": mean(eta) * (1 - mean(eta)), "log": mean(eta)}[link]
        gradient = design.T @ (mean(eta) - y) + weight * theta
        theta -= np.linalg.solve((design.T * slope) @ design + np.diag(weight), gradient)
    options = {"reduction": reduction, "penalize_intercept": penalize_intercept, "gradient_left": 0.0}
    found = reconstruct_glm((theta[:-1], theta[-1]), x[1:], y[1:], link=link, l2=0.7, **options)
    np.testing.assert_allclose(found.x, x[0], atol=1e-8)
    assert found.y == pytest.approx(y[0], abs=1e-8)


@pytest.mark.parametrize("name", ["linear", "ridge", "logistic", "poisson"])
def test_without_an_intercept_the_truth_is_among_two_candidates(name):
    link, model = FIT[name]
    for target in range(3):
        x, y = (np.roll(a, -target, axis=0) for a in (X, Y[link]))
        bare = type(model)(**{**model.get_params(), "fit_intercept": False})
        found = attacked(bare, x, y, target_y=y[0])
        assert 1 <= len(found.candidates) <= 2
        assert np.abs(found.candidates - x[0]).max(axis=1).min() < 1e-8
        # The label went into solving for r, so that nothing is left to check by.
        assert found.status in (Status.UNCERTIFIED, Status.NOT_CONVERGED)


def test_images_are_given_away_by_the_model_of_their_classes():
    for target in range(2):
        x, y = (np.roll(a, -target, axis=0) for a in (DIGITS, CLASSES))
        found = attacked(LogisticRegression(solver="newton-cholesky", tol=1e-12), x, y, gradient_left=0.0)
        np.testing.assert_allclose(found.x, x[0], atol=1e-8)
        assert found.y == y[0]


def test_a_solver_that_stops_early_costs_what_the_gradient_says():
    x, y = DIGITS, (CLASSES > 4).astype(float)
    errors = []
    for tol in (1e-2, 1e-4, 1e-6):
        model = LogisticRegression(C=1, tol=tol, max_iter=10_000).fit(x, y)
        found = attacked(model, x, y, refit=None)
        coef, intercept = model.coef_[0], model.intercept_[0]
        residual = expit(x @ coef + intercept) - y
        left, left_of_intercept = residual @ x + coef, residual.sum()
        r = y[0] - expit(x[0] @ coef + intercept)
        expected = (left - x[0] * left_of_intercept) / (r + left_of_intercept)
        np.testing.assert_allclose(found.candidates[0] - x[0], expected, atol=1e-9)
        errors.append((np.abs(found.candidates[0] - x[0]).max(), float(found.residual_norm)))
    # What the label is off by goes with it, and is seen without knowing the target.
    assert np.all(np.diff(errors, axis=0) < 0)


def test_a_target_without_residual_shows_nothing():
    x = X[:5]
    y = x @ np.ones(D) + 1  # fewer records than coefficients: all residuals vanish
    found = attacked(LinearRegression(), x, y)
    assert found.status == Status.DEGENERATE
    np.testing.assert_array_equal(found.x, x[1:].mean(axis=0))
    assert np.isnan(found.candidates).all()


def test_roots_without_intercept_are_those_of_a_solver():
    x, y = X, Y["logit"]
    model = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12, fit_intercept=False).fit(x, y)
    found = attacked(model, x, y, target_y=y[0])
    coef = model.coef_[0]
    gradient = (expit(x[1:] @ coef) - y[1:]) @ x[1:] + 2 * coef
    for candidate in found.candidates:
        r = (gradient @ gradient) / (candidate @ gradient)
        near = scipy.optimize.fsolve(lambda r: y[0] - r - expit(coef @ gradient / r), r, xtol=1e-12)[0]
        assert near == pytest.approx(r, rel=1e-6)


BASE = {"params": (np.ones(D), 0.0), "link": "identity", "l2": 0.0, "reduction": "sum"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"link": "probit"}, "link must be one of"),
        ({"reduction": "max"}, "reduction must be one of"),
        ({"l2": -1.0}, "l2 must be >= 0"),
        ({"l2": np.nan}, "l2 must be >= 0"),
        ({"l2": np.inf}, "l2 must be finite"),
        (
            {"fit_intercept": False, "params": np.ones((3, D)), "link": "multinomial", "target_y": 0},
            "fit_intercept must",
        ),
        ({"params": np.ones(D)}, r"params must be a pair"),
        ({"params": (np.ones(3), 0.0)}, r"coef must have shape \(12,\)"),
        ({"params": (np.full(D, np.inf), 0.0)}, "coef must be finite"),
        ({"params": (np.ones(D), np.ones(2))}, r"intercept must have shape \(\)"),
        ({"link": "logit", "known_y": np.full(N, 2)}, "known_y must be 0 or 1 for link 'logit', got 2"),
        ({"link": "log", "known_y": np.full(N, -1.0)}, "known_y must be >= 0"),
        ({"link": "multinomial", "params": (np.ones((3, D)), np.ones(3)), "known_y": np.full(N, 3)}, "from 0 to 2"),
        ({"known_y": np.ones(3)}, "known_y must be 200 numbers"),
        ({"known_x": np.full((N, D), np.nan)}, "known_x must be finite"),
        ({"fit_intercept": False, "params": np.ones(D)}, "target_y must be given"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {"known_x": X, "known_y": np.ones(N), **BASE, **change}
    with pytest.raises(ValueError, match=match):
        reconstruct_glm(**arguments)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (Lasso(), "model must be one of"),
        (Ridge(positive=True), "positive of the model must be False"),
        (LogisticRegression(class_weight="balanced"), "class_weight of the model must be None"),
        (LogisticRegression(solver="saga", l1_ratio=0.5), "l1_ratio of the model must be 0.0"),
    ],
)
def test_models_that_are_not_such_fits_are_refused(model, match):
    with pytest.raises(ValueError, match=match):
        of_estimator(model.fit(X, Y["logit"]))


@functools.cache
def two_targets():
    return Ridge().fit(X, np.column_stack([SIGNAL, SIGNAL]))


def test_several_targets_are_refused():
    with pytest.raises(ValueError, match="model must have one target"):
        of_estimator(two_targets())

"""Models at the optimum of any smooth loss: their equations give the one unknown record away."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm

from drjax.attacks.reconstruction.closed_form import gradient_sensitivity, reconstruct_erm, reconstruct_glm
from drjax.core.types import Status

N, D, C = 60, 5, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
SIGNAL = X @ RNG.normal(size=D) / 2
REAL = SIGNAL + RNG.normal(size=N)
SIGN = np.where(SIGNAL + RNG.logistic(size=N) > 0, 1, -1)
COUNT = RNG.poisson(np.exp(SIGNAL))
CLASS = np.clip(np.round(SIGNAL + RNG.normal(size=N)) + 1, 0, C - 1).astype(int)
LINE = {"coef": np.zeros(D), "intercept": 0.0}
L2 = 0.3


def of_predictor(loss):
    """The loss of one record from that of its linear predictor."""
    return lambda params, x, y: loss(params["coef"] @ x + params["intercept"], y)


def softmax_loss(params, x, y):
    return -jax.nn.log_softmax(params["coef"] @ x + params["intercept"])[y]


def network_loss(params, x, y):
    hidden = jnp.tanh(params["inner"] @ x + params["shift"])
    return -jax.nn.log_softmax(params["outer"] @ hidden + params["offset"])[y]


def bare_loss(params, x, y):
    return (params @ x - y) ** 2 / 2


def huber(eta, y):
    return jnp.where(jnp.abs(eta - y) < 1, (eta - y) ** 2 / 2, jnp.abs(eta - y) - 0.5)


linear = of_predictor(lambda eta, y: (eta - y) ** 2 / 2)
logistic = of_predictor(lambda eta, y: jnp.logaddexp(0, eta) - y * eta)
poisson = of_predictor(lambda eta, y: jnp.exp(eta) - y * eta)


def fitted(loss, start, x, y, *, l2=L2, penalty=None, stop=0.0):
    """Parameters at the optimum of the sum over records, and the gradient left there: BFGS to `stop`, else Newton."""
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), start))

        def total(theta):
            beside = penalty(unravel(theta)) if penalty else l2 * theta @ theta / 2
            return jnp.sum(jax.vmap(loss, (None, 0, 0))(unravel(theta), x, y)) + beside

        value, hessian = jax.jit(jax.value_and_grad(total)), jax.jit(jax.hessian(total))
        options = {"gtol": stop or 1e-6, "maxiter": 2000, "norm": 2}
        theta = scipy.optimize.minimize(
            lambda t: tuple(np.asarray(part) for part in value(t)), flat, jac=True, method="BFGS", options=options
        ).x
        for _ in range(0 if stop else 10):
            theta = theta - np.linalg.solve(hessian(theta), value(theta)[1])
        return jax.tree.map(np.asarray, unravel(theta)), np.asarray(value(theta)[1])


def rolled(target, *arrays):
    return tuple(np.roll(a, -target, axis=0) for a in arrays)


def attacked(loss, params, x, y, **options):
    return reconstruct_erm(loss, params, x[1:], y[1:], **{"reduction": "sum", "l2": L2, **options})


@functools.cache
def fit_of(name):
    """The fit, its loss and its labels, made once for all targets."""
    loss, start, y = {
        "linear": (linear, LINE, REAL),
        "logistic": (logistic, LINE, (SIGN > 0).astype(int)),
        "poisson": (poisson, LINE, COUNT),
        "multinomial": (softmax_loss, {"coef": np.zeros((C, D)), "intercept": np.zeros(C)}, CLASS),
        "huber": (of_predictor(huber), LINE, REAL),
        "log-cosh": (of_predictor(lambda eta, y: jnp.log(jnp.cosh(eta - y))), LINE, REAL),
        "probit": (of_predictor(lambda eta, y: -norm.logcdf(y * eta)), LINE, SIGN),
        "squared hinge": (of_predictor(lambda eta, y: jnp.maximum(0, 2 - y * eta) ** 2), LINE, SIGN),
    }[name]
    params, left = fitted(loss, start, X, y)
    assert np.linalg.norm(left) < 1e-11  # rounding of sums whose order is the compiler's
    return loss, params, y


GLMS = {
    "linear": ("identity", None),
    "logistic": ("logit", (0, 1)),
    "poisson": ("log", None),
    "multinomial": ("multinomial", range(C)),
}


@pytest.mark.parametrize("name", GLMS)
def test_of_linear_models_it_finds_what_the_closed_form_does(name):
    link, labels = GLMS[name]
    loss, params, labelled = fit_of(name)
    for target in range(3):
        x, y = rolled(target, X, labelled)
        found = attacked(loss, params, x, y, labels=labels, n_starts=4)
        # The closed form takes no penalty on the intercept but where told.
        closed = reconstruct_glm(
            (params["coef"], params["intercept"]),
            x[1:],
            y[1:],
            link=link,
            l2=L2,
            reduction="sum",
            penalize_intercept=True,
            gradient_left=1e-12,
        )
        np.testing.assert_allclose(found.x, closed.x, atol=1e-8)
        np.testing.assert_allclose(found.x, x[0], atol=1e-8)
        assert found.y == pytest.approx(y[0], abs=1e-8)
        assert found.residual_norm < 1e-9
        # Where the label is any number there are no more equations than unknowns, and two records would look like one.
        assert found.status == (Status.UNCERTIFIED if labels is None else Status.OK)
        assert len(found.candidates) == 1


@pytest.mark.parametrize("target", range(2))
@pytest.mark.parametrize(
    ("name", "label"), [("huber", "given"), ("log-cosh", "unknown"), ("probit", "tried"), ("squared hinge", "tried")]
)
def test_losses_without_a_closed_form_give_the_record_away_too(name, label, target):
    loss, params, labelled = fit_of(name)
    # Of records beyond its knee or margin, Huber's loss and the hinge say less than the record.
    eta = X @ params["coef"] + params["intercept"]
    inside = {"huber": np.abs(eta - labelled) < 1, "squared hinge": labelled * eta < 2}.get(name, np.ones(N, bool))
    x, y = rolled(np.flatnonzero(inside)[target], X, labelled)
    options = {"given": {"target_y": y[0]}, "tried": {"labels": (-1, 1)}, "unknown": {}}[label]
    found = attacked(loss, params, x, y, **options)
    np.testing.assert_allclose(found.x, x[0], atol=1e-8)
    assert found.y == pytest.approx(y[0], abs=1e-8)
    assert found.status == (Status.UNCERTIFIED if label == "unknown" else Status.OK)


def test_beyond_its_knee_huber_leaves_the_record_but_not_the_label():
    loss, params, labelled = fit_of("huber")
    beyond = np.flatnonzero(np.abs(X @ params["coef"] + params["intercept"] - labelled) > 1)
    x, y = rolled(beyond[0], X, labelled)
    found = attacked(loss, params, x, y)
    # The gradient is sign(residual) (x, 1): it shows x, and of y the side.
    np.testing.assert_allclose(found.x, x[0], atol=1e-8)
    assert found.status == Status.UNCERTIFIED
    assert np.isnan(found.y)
    # Of two labels on that side none is told from the other; one on the other side would solve nothing.
    side = np.sign(y[0] - x[0] @ params["coef"] - params["intercept"])
    either = attacked(loss, params, x, y, labels=(y[0], y[0] + side))
    np.testing.assert_allclose(either.x, x[0], atol=1e-8)
    assert np.isnan(either.y)
    one = attacked(loss, params, x, y, labels=(y[0], y[0] - 100 * side))
    assert one.y == y[0]


def test_a_margin_that_is_met_leaves_nothing():
    loss, params, labelled = fit_of("squared hinge")
    beyond = np.flatnonzero(labelled * (X @ params["coef"] + params["intercept"]) > 2)
    x, y = rolled(beyond[0], X, labelled)
    found = attacked(loss, params, x, y, target_y=y[0])
    assert found.status == Status.DEGENERATE
    assert np.isnan(found.x).all()


@pytest.mark.parametrize("target", range(2))
def test_without_an_intercept_both_candidates_are_found(target):
    x, y = rolled(target, X, REAL)
    params, _ = fitted(bare_loss, np.zeros(D), x, y)
    found = attacked(bare_loss, params, x, y, target_y=y[0])
    closed = reconstruct_glm(
        params, x[1:], y[1:], link="identity", l2=L2, reduction="sum", fit_intercept=False, target_y=y[0]
    )
    assert len(closed.candidates) == 2
    assert found.status == Status.UNCERTIFIED
    np.testing.assert_allclose(found.candidates, closed.candidates, rtol=1e-7, atol=1e-7)
    assert np.abs(found.candidates - x[0]).max(axis=1).min() < 1e-8


def test_without_intercept_and_label_the_record_is_not_determined():
    params, _ = fitted(bare_loss, np.zeros(D), X, REAL)
    found = attacked(bare_loss, params, X, REAL)
    assert found.status == Status.DEGENERATE
    assert found.residual_norm < 1e-9
    assert gradient_sensitivity(bare_loss, params, X[0], REAL[0], y_known=False) == 0


def test_a_mean_over_records_and_a_penalty_of_ones_own_are_counted_rightly():
    def penalty(params):
        return 0.01 * params["coef"] @ params["coef"] + 0.002 * jnp.sum(params["coef"] ** 4)

    params, _ = fitted(linear, LINE, X, REAL, penalty=lambda p: N * penalty(p))
    found = attacked(linear, params, X, REAL, reduction="mean", l2=0.0, penalty=penalty)
    np.testing.assert_allclose(found.x, X[0], atol=1e-8)
    params, _ = fitted(linear, LINE, X, REAL, l2=N * 0.02)
    found = attacked(linear, params, X, REAL, reduction="mean", l2=0.02)
    np.testing.assert_allclose(found.x, X[0], atol=1e-8)
    assert np.abs(attacked(linear, params, X, REAL, reduction="sum", l2=0.02).x - X[0]).max() > 0.01


@functools.cache
def network():
    rng = np.random.default_rng(1)
    start = {
        "inner": rng.normal(size=(4, D)) / 2,
        "shift": np.zeros(4),
        "outer": rng.normal(size=(C, 4)) / 2,
        "offset": np.zeros(C),
    }
    params, left = fitted(network_loss, start, X, CLASS)
    assert np.linalg.norm(left) < 1e-11
    return params


@pytest.mark.parametrize("target", range(3))
def test_a_network_at_rest_gives_record_and_label_away(target):
    x, y = rolled(target, X, CLASS)
    found = attacked(network_loss, network(), x, y, labels=range(C))
    np.testing.assert_allclose(found.x, x[0], atol=1e-8)
    assert found.y == y[0]
    assert found.status == Status.OK
    assert len(found.candidates) == 1


def test_bounds_keep_the_record_and_drop_what_lies_outside():
    params, _ = fitted(bare_loss, np.zeros(D), X, REAL)
    free = attacked(bare_loss, params, X, REAL, target_y=REAL[0])
    extent = np.abs(free.candidates).max(axis=1)
    assert extent.max() > 1.1 * extent.min()
    # The nearer solution lies at the bound itself.
    bounds = (-extent.min(), extent.min())
    found = attacked(bare_loss, params, X, REAL, target_y=REAL[0], bounds=bounds)
    assert len(found.candidates) == 1
    np.testing.assert_allclose(found.x, free.candidates[np.argmin(extent)], atol=1e-7)
    # Just outside, where the search may step, is outside.
    for share in (0.95, 0.5):
        narrow = (-share * extent.min(), share * extent.min())
        nowhere = attacked(bare_loss, params, X, REAL, target_y=REAL[0], bounds=narrow)
        assert nowhere.status == Status.NOT_CONVERGED


def test_equations_that_no_record_solves_are_reported():
    params = network()
    wrong = {**params, "inner": params["inner"] + 1}
    found = attacked(network_loss, wrong, X, CLASS, labels=range(C), n_starts=2)
    assert found.status == Status.NOT_CONVERGED
    assert found.residual_norm > 0.1
    np.testing.assert_array_equal(found.x, X[1:].mean(axis=0))
    assert found.expected_mse == pytest.approx(X[1:].var(axis=0).mean())
    assert np.isfinite(found.candidates).all()


def test_equations_that_a_record_solves_but_for_little_are_solved():
    params = network()
    shifted = {**params, "offset": params["offset"] + 0.1}
    found = attacked(network_loss, shifted, X, CLASS, labels=range(C), n_starts=2)
    assert found.residual_norm > 1e-3
    assert found.status == Status.OK
    # Less than the variance of 1 by far, and about as much as is said.
    assert np.mean((found.x - X[0]) ** 2) < min(1e-3, 100 * found.expected_mse)
    # What is called solved is the caller's.
    tolerance = float(found.residual_norm) / 2
    strict = attacked(network_loss, shifted, X, CLASS, labels=range(C), n_starts=2, tolerance=tolerance)
    assert strict.status == Status.NOT_CONVERGED


@pytest.mark.parametrize("name", ["logistic", "network"])
def test_a_solver_that_stops_early_costs_no_more_than_the_bound(name):
    loss, y = {"logistic": (logistic, (SIGN > 0).astype(int)), "network": (network_loss, CLASS)}[name]
    start = {"logistic": LINE, "network": network()}[name]
    start = jax.tree.map(lambda leaf: leaf + 0.1, start)
    errors, bounds = [], []
    for stop in (1e-3, 1e-4, 1e-5):
        params, left = fitted(loss, start, X, y, stop=stop)
        assert np.linalg.norm(left) > 1e-9
        found = attacked(loss, params, X, y, target_y=y[0], start=X[0], n_starts=1)
        assert found.status == Status.OK
        error = np.mean((found.x - X[0]) ** 2)
        # Few equations are left over to tell from, and what is left is not the same in all of them.
        assert 1e-3 < error / found.expected_mse < 100
        errors.append(np.linalg.norm(found.x - X[0]))
        bounds.append(np.linalg.norm(left) / gradient_sensitivity(loss, params, X[0], y[0]))
        # First order: what the Jacobian at the target makes of the gradient that is left.
        with jax.enable_x64(True):
            jacobian = jax.jit(jax.jacfwd(lambda x, p: ravel_pytree(jax.grad(loss)(p, x, y[0]))[0]))(X[0], params)
        expected = np.linalg.pinv(jacobian) @ -left
        np.testing.assert_allclose(found.x - X[0], expected, atol=20 * errors[-1] ** 2 + 1e-10)
    # The second order is a fraction of the first that shrinks with it.
    assert np.all(np.array(errors) <= 1.05 * np.array(bounds))
    assert np.all(np.diff(errors) < 0)


def test_gradient_sensitivity_is_the_least_that_a_step_of_the_record_moves_the_gradient():
    x, params = X[0], network()
    with jax.enable_x64(True):

        @jax.jit
        @jax.vmap
        def at(z):
            return ravel_pytree(jax.grad(network_loss)(params, z, CLASS[0]))[0]

        steps = RNG.normal(size=(200, D))
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        ahead, behind = np.asarray(at(x + 1e-5 * steps)), np.asarray(at(x - 1e-5 * steps))
    moved = np.linalg.norm(ahead - behind, axis=1) / 2e-5
    least = gradient_sensitivity(network_loss, params, x, CLASS[0])
    assert least <= moved.min() * (1 + 1e-6)
    # 200 directions of five dimensions come near the weakest one.
    assert moved.min() < 3 * least


def test_a_label_that_the_loss_ignores_is_not_made_up():
    def distance(centre, x, y):
        del y
        return jnp.sum(jnp.log(jnp.cosh(x - centre)))

    params, _ = fitted(distance, np.zeros(D), X, REAL)
    # From one start only the Jacobian says so, from several their different labels do too.
    for n_starts in (1, 4):
        found = attacked(distance, params, X, REAL, n_starts=n_starts)
        np.testing.assert_allclose(found.x, X[0], atol=1e-8)
        assert found.status == Status.UNCERTIFIED
        assert np.isnan(found.y)


def test_a_target_that_is_fitted_exactly_leaves_no_trace():
    # Fewer records than coefficients: all residuals are rounding.
    x, y = X[:4], REAL[:4]
    theta = np.linalg.lstsq(np.column_stack([x, np.ones(4)]), y)[0]
    found = attacked(linear, {"coef": theta[:-1], "intercept": theta[-1]}, x, y, l2=0.0, target_y=y[0])
    assert found.status == Status.DEGENERATE
    assert np.isnan(found.x).all()
    assert found.x.shape == (D,)


@pytest.mark.parametrize("name", ["overflow", "no derivative"])
def test_a_start_without_equations_is_passed_over(name):
    if name == "overflow":
        loss, params, y = fit_of("poisson")
        x, start = X, 1e4 * np.sign(params["coef"])
    else:

        def loss(params, x, y):
            return linear(params, jnp.sqrt(x), y)

        x, y, start = X**2, REAL, np.zeros(D)
        params, _ = fitted(loss, LINE, x, y)
    alone = attacked(loss, params, x, y, target_y=y[0], start=start, n_starts=1)
    assert alone.status == Status.NOT_CONVERGED | Status.NON_FINITE
    np.testing.assert_array_equal(alone.x, x[1:].mean(axis=0))
    helped = attacked(loss, params, x, y, target_y=y[0], start=start, n_starts=4)
    np.testing.assert_allclose(helped.x, x[0], atol=1e-8)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"reduction": "max"}, "reduction must be one of"),
        ({"l2": -1.0}, "l2 must be >= 0, got -1"),
        ({"l2": np.inf}, "l2 must be finite"),
        ({"penalty": lambda p: jnp.sum(p["coef"] ** 2), "l2": 1.0}, "l2 must be 0 where a penalty is given, got 1"),
        ({"penalty": lambda p: p["coef"]}, r"penalty must return a scalar, got shape \(5,\)"),
        ({"loss": lambda p, x, y: p["coef"] * x - y}, r"loss must return a scalar, got shape \(5,\)"),
        ({"loss": lambda p, x, y: (p["coef"] @ x, y)}, "loss must return a scalar, got shape None"),
        ({"loss": lambda p, x, y: jnp.sqrt(p["coef"] @ x - y - 1e6)}, "gradient must be finite"),
        ({"params": {"coef": np.full(D, np.nan), "intercept": 0.0}}, "params must be finite"),
        ({"params": {"coef": "a", "intercept": 0.0}}, "params must be numeric"),
        ({"known_x": np.full((N, D), np.nan)}, "known_x must be finite"),
        ({"known_x": np.ones(D)}, "known_x must be a non-empty array"),
        ({"known_y": np.ones(3)}, r"known_y must have shape \(60,\)"),
        ({"known_y": np.full(N, np.inf)}, "known_y must be finite"),
        ({"known_y": np.full(N, "a")}, "known_y must be numeric"),
        ({"labels": ()}, r"labels must be a non-empty list of numbers, got shape \(0,\)"),
        ({"labels": (0, np.nan)}, "labels must be finite"),
        ({"target_y": 2, "labels": (0, 1)}, "target_y must be among the labels, got 2"),
        ({"target_y": np.nan}, "target_y must be finite"),
        ({"target_y": (1, 2)}, r"target_y must be one number, got shape \(2,\)"),
        ({"start": np.ones(D + 1)}, r"start must have shape \(5,\)"),
        ({"start": np.full(D, np.nan)}, "start must be finite"),
        ({"n_starts": 0}, "n_starts must be an integer >= 1, got 0"),
        ({"bounds": (1.0, 0.0)}, r"bounds must be \(low, high\) with low < high, got \(1.0, 0.0\)"),
        ({"bounds": (0.0, np.inf)}, "bounds must be finite"),
        ({"tolerance": 0.0}, "tolerance must be > 0, got 0"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {"loss": linear, "params": LINE, "known_x": X, "known_y": REAL, "reduction": "sum", **change}
    with pytest.raises(ValueError, match=match):
        reconstruct_erm(**arguments)

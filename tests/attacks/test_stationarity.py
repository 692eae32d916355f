from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.manifold import smacof

from drjax.attacks.reconstruction import stationarity
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.stationarity import descent, guttman
from drjax.core.types import Status
from drjax.data import load

N_KNOWN = 70


def _guttman(coords, between):
    """The same map in JAX, to differentiate."""
    n = len(coords)
    apart = coords[:, None] - coords[None]
    ratio = between / jnp.sqrt((apart**2).sum(axis=-1) + jnp.eye(n))
    return (ratio[..., None] * apart).sum(axis=1) / n


def _with_row(between, row):
    return jnp.asarray(between).at[0, 1:].set(row).at[1:, 0].set(row)


@pytest.fixture(scope="module", params=[2, 3])
def points(request):
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, request.param)), squareform(pdist(rng.normal(size=(9, 6))))


def test_a_transform_is_one_iteration_of_scikit_learn(points):
    coords, between = points
    expected, _ = smacof(between, n_components=coords.shape[1], init=coords, n_init=1, max_iter=1, eps=0)
    # Eight sums of a few numbers of order 1, added in another order.
    np.testing.assert_allclose(guttman.transform(coords, between), expected, rtol=0, atol=1e-14)


def test_points_that_coincide_add_nothing(points):
    coords, between = points
    coords = coords.copy()
    coords[3] = coords[5]
    jacobian = np.empty((coords.size, coords.size))
    guttman.jacobian(coords, between, jacobian)
    assert np.isfinite(guttman.transform(coords, between)).all()
    assert np.isfinite(jacobian).all()


def test_derivatives_are_those_of_jax(points):
    coords, between = points
    n, k = coords.shape
    steps = 4

    def end(start, row):
        for _ in range(steps):
            start = _guttman(start, _with_row(between, row))
        return start.ravel()

    with jax.enable_x64(True):
        once = jax.jit(jax.jacobian(lambda c: _guttman(c, between).ravel()))(coords)
        by_row = jax.jit(jax.jacobian(lambda r: _guttman(coords, _with_row(between, r)).ravel()))(between[0, 1:])
        start, row = jax.jit(jax.jacobian(end, argnums=(0, 1)))(coords, between[0, 1:])
        expected_end = jax.jit(end)(coords, between[0, 1:])
    jacobian, rows = np.empty((n * k, n * k)), np.zeros((n * k, n + 1))
    guttman.jacobian(coords, between, jacobian)
    guttman.add_row_derivative(coords, rows, 2)
    np.testing.assert_allclose(jacobian, np.asarray(once).reshape(n * k, n * k), atol=1e-13)
    np.testing.assert_allclose(rows[:, 2:], by_row, atol=1e-14)
    np.testing.assert_array_equal(rows[:, :2], 0)
    found, derivative = guttman.simulate_with_derivative(coords, between, steps)
    np.testing.assert_allclose(found.ravel(), expected_end, atol=1e-13)
    np.testing.assert_allclose(guttman.simulate(coords, between, steps), found, atol=0)
    # Products of four matrices of entries up to 2 in float32.
    np.testing.assert_allclose(derivative[:, : n * k], np.asarray(start).reshape(n * k, n * k), atol=2e-5)
    np.testing.assert_allclose(derivative[:, n * k :], row, atol=2e-5)


@pytest.fixture(scope="module")
def digits():
    x = load("digits").x.astype(np.float64)
    x = x[np.random.default_rng(3).permutation(len(x))]
    known, targets, public = x[:N_KNOWN], x[N_KNOWN : N_KNOWN + 6], x[400:1200]
    return known, targets, public, GaussianPrior.fit(public)


def _maps(known, targets, *, seed=0, **options):
    """Releases that scikit-learn makes."""
    settings = {"n_components": 2, "n_init": 1, "eps": 1e-6, "max_iter": 300} | options
    stacks = [np.vstack([target, known]) for target in targets]
    return np.stack([smacof(cdist(x, x), random_state=seed + i, **settings)[0] for i, x in enumerate(stacks)])


@pytest.fixture(scope="module")
def converged(digits):
    known, targets, _, _ = digits
    return _maps(known, targets[:3], eps=1e-14, max_iter=20_000)


@pytest.fixture(scope="module")
def stopped(digits):
    known, targets, public, _ = digits
    shadows = _maps(known, public[:8], seed=100)
    return _maps(known, targets), stationarity.calibrate(known, shadows, public[:8])


def _errors(found, targets):
    return ((found - targets) ** 2).mean(axis=1)


def test_a_converged_map_shows_every_distance(digits, converged):
    known, targets, _, _ = digits
    expected = cdist(targets[:3], known)
    # n times what is left of the way when the stress stands still in the fourteenth digit.
    np.testing.assert_allclose(stationarity.target_distances(known, converged), expected, rtol=2e-3)


def test_a_converged_map_gives_the_record_away(digits, converged):
    known, targets, _, prior = digits
    scale = stationarity.calibrate(known, converged, targets[:3])
    found = stationarity.reconstruct_mds(known, converged, prior=prior, scale=scale, bounds=(0, 1))
    # 70 distances of 64 pixels: nothing is open but what the distances above leave.
    assert _errors(found.x, targets[:3]).max() < 1e-6
    # Pixels that are blank in every known record stay open, and the prior is right about them.
    assert (found.residual_norm < 0.1 * np.sqrt(np.trace(prior.covariance))).all()
    assert (found.status == 0).all()


def test_maps_that_scikit_learn_stops_early_give_much_of_it_away(digits, stopped):
    known, targets, public, prior = digits
    maps, scale = stopped
    found = stationarity.reconstruct_mds(known, maps, prior=prior, scale=scale, bounds=(0, 1))
    at_release = stationarity.reconstruct_mds(known, maps, prior=prior, scale=scale, bounds=(0, 1), steps=0)
    nearest = cdist(targets, np.concatenate([known, public])).min(axis=1) ** 2 / known.shape[1]
    errors = _errors(found.x, targets)
    assert errors.mean() < 0.5 * nearest.mean()
    assert errors.mean() < 0.7 * _errors(at_release.x, targets).mean()
    # What it expects is of the size of what happens.
    expected = found.residual_norm**2 / known.shape[1]
    assert 0.2 < errors.mean() / expected.mean() < 5


def test_one_release_with_the_target_in_another_row(digits, stopped):
    known, _, _, prior = digits
    maps, scale = stopped
    first = stationarity.reconstruct_mds(known, maps[:2], prior=prior, scale=scale, steps=2)
    moved = np.insert(maps[0, 1:], 5, maps[0, 0], axis=0) + 3.0
    found = stationarity.reconstruct_mds(known, moved, prior=prior, scale=scale, steps=2, target_index=5)
    assert found.x.shape == known[0].shape
    assert found.residual_norm.shape == ()
    assert found.status.shape == ()
    # A map that is shifted is the same but for rounding, which forty rounds of a descent amplify.
    np.testing.assert_allclose(found.x, first.x[0], atol=1e-5)


def test_a_release_that_is_not_finite_is_flagged_and_hurts_no_other(digits, stopped):
    known, _, _, prior = digits
    maps, scale = stopped
    broken = maps[:2].copy()
    broken[0, 4, 1] = np.nan
    found = stationarity.reconstruct_mds(known, broken, prior=prior, scale=scale, steps=1)
    alone = stationarity.reconstruct_mds(known, maps[1], prior=prior, scale=scale, steps=1)
    assert found.status[0] == Status.NON_FINITE
    assert np.isnan(found.x[0]).all()
    np.testing.assert_array_equal(found.x[1], alone.x)


def test_the_gradient_is_that_of_the_loss(digits, stopped):
    known, targets, _, prior = digits
    maps, scale = stopped
    theta = np.ascontiguousarray(maps[0] - maps[0].mean(axis=0))
    problem = descent.Problem(
        known, squareform(pdist(known)), prior.mean, prior.covariance, prior.covariance @ known.T, scale, None
    )
    rng = np.random.default_rng(0)
    fit = descent.Fit(targets[1], theta + 1e-3 * rng.normal(size=theta.shape), 3, 0.0, 0.0)
    local = descent.Local(problem, theta, fit)
    direction = rng.normal(size=theta.shape)
    toward = targets[2] - fit.x
    step = 1e-6
    ends = [local.at(fit.start + s * direction, fit.x + s * toward)[0] for s in (step, -step)]
    by_distance = (fit.x - known) @ toward / problem.distances(fit.x)
    # The loss is a sum of squares: its gradient is twice what Gauss-Newton calls one.
    slope = 2 * (local.gradient[: theta.size] @ direction.ravel() + local.gradient[theta.size :] @ by_distance)
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coords": np.zeros((2, 5, 2))}, "coords must have n = 71 rows"),
        ({"coords": np.zeros((2, 71, 2), int)}, "coords must be floating-point"),
        ({"scale": -1.0}, "scale must be"),
        ({"steps": -1}, "steps must be"),
        ({"target_index": 71}, "target_index must be"),
        ({"bounds": (1.0, 0.0)}, "bounds must increase"),
        ({"known": np.zeros((70, 3))}, "prior must be of records of 3 features"),
    ],
)
def test_bad_input_is_named(digits, changes, message):
    known, _, _, prior = digits
    given = {"known": known, "coords": np.zeros((2, 71, 2)), "prior": prior, "scale": 1e-3} | changes
    with pytest.raises(ValueError, match=message):
        stationarity.reconstruct_mds(given.pop("known"), given.pop("coords"), **given)


def test_calibration_needs_a_finite_release_for_each_target(digits):
    known, targets, _, _ = digits
    with pytest.raises(ValueError, match="targets must have one row per release, 2"):
        stationarity.calibrate(known, np.zeros((2, 71, 2)), targets)
    with pytest.raises(ValueError, match="coords must hold a finite release"):
        stationarity.calibrate(known, np.full((1, 71, 2), np.nan), targets[:1])

import math

import dp_accounting as dp
import mpmath
import numpy as np
import pytest

from drjax.bounds import accounting, rero, tradeoff


def theirs(event, relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE):
    accountant = dp.pld.PLDAccountant(relation)
    accountant.compose(event)
    return accountant


@pytest.mark.parametrize(
    ("neighbouring", "relation"),
    [
        ("add_or_remove", dp.NeighboringRelation.ADD_OR_REMOVE_ONE),
        ("zero_out", dp.NeighboringRelation.REPLACE_SPECIAL),
        ("replace_one", dp.NeighboringRelation.REPLACE_ONE),
    ],
)
def test_dp_gd_and_dp_sgd_agree_with_the_accountant(neighbouring, relation):
    whole = accounting.dp_gd(3.0, 20, neighbouring=neighbouring)
    exact = theirs(dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0), 20), relation)
    sampled = accounting.dp_sgd(1.0, 0.1, 20, neighbouring=neighbouring)
    step = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    grid = theirs(dp.SelfComposedDpEvent(step, 20), relation)
    for epsilon in (0.0, 0.5, 2.0):
        # Their grid of losses is on the side above.
        assert whole.delta(epsilon) <= exact.get_delta(epsilon) * (1 + 1e-9)
        assert whole.delta(epsilon) == pytest.approx(exact.get_delta(epsilon), rel=1e-4)
        assert sampled.delta(epsilon) == pytest.approx(grid.get_delta(epsilon), rel=1e-6)
    assert whole.epsilon(1e-5) == pytest.approx(exact.get_epsilon(1e-5), rel=1e-4)
    assert sampled.epsilon(1e-5) == pytest.approx(grid.get_epsilon(1e-5), rel=1e-4)
    assert whole.curve.neighbouring == sampled.curve.neighbouring == neighbouring
    assert np.all(sampled.target_curve.power([0.01, 0.5]) <= sampled.curve.power([0.01, 0.5]) + 1e-12)


def test_a_rate_of_1_is_full_batches_and_of_0_nothing():
    full = accounting.dp_sgd(2.0, 1.0, 9, neighbouring="zero_out")
    assert full.curve == tradeoff.Gaussian(1.5, neighbouring="zero_out")
    assert accounting.dp_sgd(2.0, 0.0, 9, neighbouring="zero_out").delta(0.0) < 1e-11


def test_shuffled_batches_have_a_step_an_epoch_and_no_credit():
    found = accounting.dp_sgd_shuffled(2.0, 4, neighbouring="zero_out")
    assert found.curve == tradeoff.Gaussian(1.0, neighbouring="zero_out")
    assert "without credit" in found.proven


def test_output_perturbation():
    gaussian = accounting.output_perturbation(2.0, 4.0, noise="gaussian", neighbouring="replace_one")
    assert gaussian.curve == tradeoff.Gaussian(0.5, neighbouring="replace_one")
    laplace = accounting.output_perturbation(2.0, 4.0, noise="laplace", neighbouring="replace_one")
    assert laplace.epsilon(0.0) == pytest.approx(0.5)
    exact = theirs(dp.LaplaceDpEvent(2.0))
    assert laplace.delta(0.2) == pytest.approx(exact.get_delta(0.2), rel=1e-3)


def test_sensitivity_of_regularised_minimisers():
    rng = np.random.default_rng(0)
    n, penalty = 40, 0.3
    x = rng.normal(size=(n, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def minimiser(rows):
        # Of linear losses -x . t, whose gradients have norm 1, the minimiser is mean(x) / penalty: the worst case.
        return rows.sum(axis=0) / (n * penalty)

    zeroed = np.linalg.norm(minimiser(x) - minimiser(x[1:]))
    assert zeroed == pytest.approx(accounting.sensitivity_of_erm(1.0, penalty, n, neighbouring="zero_out"))
    other = np.concatenate([-x[:1], x[1:]])
    replaced = np.linalg.norm(minimiser(x) - minimiser(other))
    assert replaced == pytest.approx(accounting.sensitivity_of_erm(1.0, penalty, n, neighbouring="replace_one"))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)])
def test_the_analytic_gaussian_solves_balle_and_wangs_equation(epsilon, delta):
    scale = accounting.calibrate_gaussian(epsilon, delta, 2.0)
    with mpmath.workdps(40):
        mu = mpmath.mpf(2.0) / mpmath.mpf(scale)
        found = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.e**epsilon * mpmath.ncdf(-mu / 2 - epsilon / mu)
    assert float(found) <= delta
    assert float(found) == pytest.approx(delta, rel=1e-6)
    assert scale == pytest.approx(2 * dp.get_sigma_gaussian(epsilon, delta), rel=1e-4)


def test_classical_mechanisms():
    assert accounting.calibrate_laplace(0.5, 3.0) == pytest.approx(6.0)
    classical = accounting.calibrate_gaussian(0.5, 1e-5, 3.0, method="classical")
    assert classical == pytest.approx(6 * math.sqrt(2 * math.log(1.25e5)))
    assert classical > accounting.calibrate_gaussian(0.5, 1e-5, 3.0)


def test_calibrations_are_inverses():
    noise = accounting.calibrate_dp_gd(2.0, 1e-5, 30, neighbouring="replace_one")
    assert accounting.dp_gd(noise, 30, neighbouring="replace_one").epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)
    assert accounting.calibrate_steps(2.0, 1e-5, noise, neighbouring="replace_one") == 30
    # Much noise, because the losses of little are spread over a long grid.
    sampled = accounting.calibrate_dp_sgd(0.5, 1e-5, 0.1, 30, neighbouring="zero_out")
    assert accounting.dp_sgd(sampled, 0.1, 30, neighbouring="zero_out").delta(0.5) <= 1e-5
    assert accounting.dp_sgd(sampled * 0.999, 0.1, 30, neighbouring="zero_out").delta(0.5) > 1e-5
    steps = accounting.calibrate_steps(0.5, 1e-5, sampled, neighbouring="zero_out", rate=0.1)
    assert steps in (30, 31)
    assert accounting.calibrate_steps(2.0, 1e-5, 0.01, neighbouring="zero_out") == 0


def test_composition_of_guarantees():
    assert accounting.naive_composition([0.1, 0.2], [1e-6, 1e-6]) == (pytest.approx(0.3), pytest.approx(2e-6))
    assert accounting.naive_composition([0.1] * 5) == (pytest.approx(0.5), 0.0)
    epsilon, delta = accounting.advanced_composition(0.05, 1e-7, 200, 1e-5)
    assert epsilon == pytest.approx(0.05 * math.sqrt(400 * math.log(1e5)) + 10 * math.expm1(0.05))
    assert delta == pytest.approx(200e-7 + 1e-5)
    assert accounting.advanced_composition(1000.0, 0.0, 3, 1e-5)[0] == pytest.approx(3000.0)
    # The tight composition is below the advanced one, which is below the naive one here.
    tight = tradeoff.compose(*[tradeoff.EpsilonDelta(0.05, 1e-7)] * 200).epsilon_at(delta)
    assert tight < epsilon < 10
    assert accounting.advanced_composition(0.05, 0.0, 2, 1e-5)[0] == pytest.approx(0.1)


def test_conversions_agree_with_dp_accounting():
    orders = [1.5, 2, 4, 8, 16, 32, 64]
    renyi = accounting.rdp_of_gaussian(2.0, orders, steps=3, neighbouring="zero_out")
    np.testing.assert_allclose(renyi, np.array(orders) * 3 / 8)
    found = accounting.epsilon_of_rdp(orders, renyi, 1e-5)
    assert found == pytest.approx(dp.rdp.compute_epsilon(orders, renyi, 1e-5)[0], rel=1e-9)
    assert tradeoff.RDP(orders, renyi).epsilon_at(1e-5) == pytest.approx(found, rel=1e-3)
    exact = accounting.dp_gd(2.0, 3, neighbouring="zero_out").epsilon(1e-5)
    assert exact < accounting.epsilon_of_zcdp(3 / 8, 1e-5) < found * 1.001
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 3)
    assert accounting.epsilon_of_event(event, 1e-5, neighbouring="zero_out") == pytest.approx(exact, rel=1e-4)
    assert accounting.epsilon_of_rdp([math.inf], [0.3], 1e-5) == pytest.approx(0.3)


def test_a_guarantee_goes_into_reconstruction_robustness():
    found = accounting.dp_gd(1.0, 4, neighbouring="zero_out")
    assert float(rero.from_tradeoff(0.01, found.target_curve)) == pytest.approx(
        float(rero.from_tradeoff(0.01, tradeoff.Gaussian(2.0)))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: accounting.dp_gd(0.0, 5, neighbouring="zero_out"), "noise_multiplier must be a finite number > 0"),
        (lambda: accounting.dp_gd(1.0, 0, neighbouring="zero_out"), "steps must be an integer >= 1"),
        (lambda: accounting.dp_gd(1.0, 5, neighbouring="neighbour"), "neighbouring must be one of"),
        (lambda: accounting.dp_sgd(1.0, -0.1, 5, neighbouring="zero_out"), "rate must be in"),
        (lambda: accounting.dp_sgd_shuffled(1.0, 5, neighbouring="add_or_remove"), "neighbouring must be one of"),
        (
            lambda: accounting.output_perturbation(0.0, 1.0, noise="laplace", neighbouring="zero_out"),
            "sensitivity must be a finite number > 0",
        ),
        (
            lambda: accounting.output_perturbation(1.0, 1.0, noise="cauchy", neighbouring="zero_out"),
            "noise must be one of",
        ),
        (lambda: accounting.sensitivity_of_erm(1.0, 0.0, 5, neighbouring="zero_out"), "strong_convexity must be"),
        (lambda: accounting.calibrate_laplace(math.nan, 1.0), "epsilon must be"),
        (lambda: accounting.calibrate_gaussian(1.0, 1e-5, 1.0, method="classical"), "epsilon must be < 1"),
        (lambda: accounting.calibrate_gaussian(0.5, 0.0, 1.0, method="classical"), "delta must be in"),
        (lambda: accounting.calibrate_gaussian(0.5, 1.0, 1.0), "delta must be in"),
        (lambda: accounting.calibrate_dp_sgd(1.0, 1e-5, 0.0, 5, neighbouring="zero_out"), "rate must be in"),
        (lambda: accounting.calibrate_steps(-1.0, 1e-5, 1.0, neighbouring="zero_out"), "epsilon must be"),
        (lambda: accounting.naive_composition([0.1, -0.1]), "epsilons must be finite and >= 0"),
        (lambda: accounting.naive_composition([0.1], [0.1, 0.1]), "epsilons and deltas must be as many"),
        (lambda: accounting.advanced_composition(0.1, 0.0, 5, 0.0), "slack must be in"),
        (lambda: accounting.advanced_composition(0.1, 2.0, 5, 0.1), "deltas must be in"),
        (lambda: accounting.epsilon_of_rdp([1.0], [0.1], 1e-5), "orders must be > 1"),
        (lambda: accounting.epsilon_of_rdp([2.0], [0.1], 0.0), "delta must be in"),
        (lambda: accounting.epsilon_of_event(1.0, 1e-5, neighbouring="zero_out"), "event must be"),
        (
            lambda: accounting.epsilon_of_event(dp.UnsupportedDpEvent(), 1e-5, neighbouring="zero_out"),
            "PLD accountant composes",
        ),
    ],
)
def test_bad_input_names_the_argument_the_rule_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()

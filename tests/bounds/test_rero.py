import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, norm

from drjax.bounds import closed_forms, mse, prior, rero, rounding, tradeoff

KAPPA = np.concatenate([np.geomspace(1e-12, 0.1, 30), np.linspace(0.15, 1, 12)])


def test_theorem_2_and_its_corollaries_are_their_formulas():
    alpha, epsilon, rho = 3.0, 0.7, 0.4
    np.testing.assert_allclose(
        rero.from_rdp(KAPPA, alpha, epsilon),
        np.clip((KAPPA * np.exp(epsilon)) ** ((alpha - 1) / alpha), KAPPA, 1),
        rtol=1e-9,
    )
    np.testing.assert_allclose(rero.from_pure_dp(KAPPA, epsilon), np.minimum(KAPPA * np.exp(epsilon), 1), rtol=1e-9)
    gap = np.maximum(np.sqrt(np.log(1 / KAPPA)) - np.sqrt(rho), 0)
    np.testing.assert_allclose(rero.from_zcdp(KAPPA, rho), np.exp(-(gap**2)), rtol=1e-9)


def test_theorem_2_takes_the_best_of_several_orders():
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    each = [rero.from_rdp(KAPPA, order, 0.3 * order) for order in orders]
    np.testing.assert_array_equal(rero.from_rdp(KAPPA, orders, 0.3 * orders), np.min(each, axis=0))
    # Corollary 4 is theorem 2 at the best of all orders.
    fine = 1 + np.geomspace(1e-3, 1e4, 5000)
    np.testing.assert_allclose(rero.from_zcdp(KAPPA, 0.3), rero.from_rdp(KAPPA, fine, 0.3 * fine), rtol=1e-4)


def test_bounds_broadcast():
    epsilon = np.array([[0.1], [1.0], [3.0]])
    assert rero.from_pure_dp(KAPPA, epsilon).shape == (3, len(KAPPA))
    assert rero.from_zcdp(KAPPA, epsilon).shape == (3, len(KAPPA))
    assert rero.from_rdp(KAPPA, 2.0, epsilon).shape == (3, len(KAPPA))
    table = rero.from_rdp(0.1, np.array([2.0, 4.0]), epsilon * np.array([2.0, 4.0]))
    np.testing.assert_array_equal(
        table, [rero.from_rdp(0.1, [2.0, 4.0], e * np.array([2.0, 4.0])) for e in epsilon[:, 0]]
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_the_tight_bound_of_gaussian_noise_agrees_with_arbitrary_precision(mu):
    found = rero.from_tradeoff(KAPPA, tradeoff.Gaussian(mu))
    with mpmath.workdps(40):
        for kappa, gamma in zip(KAPPA[:-1], found[:-1], strict=True):
            level = mpmath.mpf(float(kappa))
            z = mpmath.findroot(lambda t, level=level: mpmath.ncdf(t) - level, mpmath.mpf(float(norm.ppf(kappa))))
            exact = mpmath.ncdf(z + mu)
            assert float(exact) <= gamma <= float(exact) * (1 + 1e-6)


@settings(max_examples=60)
@given(
    kappa=st.floats(1e-12, 1.0),
    mu=st.floats(1e-3, 8.0),
    order=st.floats(1.01, 100.0),
)
def test_the_tight_bound_is_never_above_theorem_2(kappa, mu, order):
    tight = float(rero.from_tradeoff(kappa, tradeoff.Gaussian(mu)))
    zcdp = float(rero.from_tradeoff(kappa, tradeoff.ZCDP(mu**2 / 2)))
    assert kappa <= tight <= zcdp * (1 + 1e-9)
    assert zcdp <= float(rero.from_zcdp(kappa, mu**2 / 2)) * (1 + 1e-9)
    assert tight <= float(rero.from_rdp(kappa, order, order * mu**2 / 2)) * (1 + 1e-9)
    pure = float(rero.from_tradeoff(kappa, tradeoff.Laplace(mu)))
    assert pure <= float(rero.from_tradeoff(kappa, tradeoff.EpsilonDelta(mu))) * (1 + 1e-9)
    assert float(rero.from_tradeoff(kappa, tradeoff.EpsilonDelta(mu))) <= float(rero.from_pure_dp(kappa, mu)) * (
        1 + 1e-9
    )
    assert float(rero.from_pure_dp(kappa, mu)) <= 1


def test_the_design_note_on_the_direction():
    # architecture.md: at kappa 1e-3 and mu 3 the bound is 0.46, and 0.998 for a record that is replaced.
    assert float(rero.from_tradeoff(1e-3, tradeoff.Gaussian(3.0))) == pytest.approx(0.46, abs=0.005)
    assert float(rero.from_tradeoff(1e-3, tradeoff.Gaussian(6.0))) == pytest.approx(0.998, abs=0.001)


def test_several_targets_are_a_chain_of_neighbours():
    found = rero.from_tradeoff(KAPPA, tradeoff.Gaussian(0.4), n_targets=5)
    np.testing.assert_allclose(found, rero.from_tradeoff(KAPPA, tradeoff.Gaussian(2.0)), rtol=1e-7)
    pure = rero.from_tradeoff(1e-6, tradeoff.EpsilonDelta(0.5), n_targets=4)
    np.testing.assert_allclose(pure, 1e-6 * math.exp(2.0), rtol=1e-9)
    np.testing.assert_allclose(prior.kappa_all(0.1, 3), 1e-3, rtol=1e-11)
    np.testing.assert_allclose(prior.kappa_any(0.1, 3), 1 - 0.9**3, rtol=1e-11)


CHAINS = {
    "pure": tradeoff.EpsilonDelta(0.3),
    "approximate": tradeoff.EpsilonDelta(0.02, 1e-4),
    "answers": tradeoff.RandomizedResponse(0.4, 3),
    "renyi": tradeoff.RDP((1.5, 2, 8, 64, math.inf), (0.01, 0.02, 0.08, 0.7, 0.9)),
    "zcdp": tradeoff.ZCDP(0.01),
    "gaussian": tradeoff.Gaussian(0.1),
    "laplace": tradeoff.Laplace(0.1),
    "least": tradeoff.minimum(tradeoff.Gaussian(0.15), tradeoff.EpsilonDelta(0.1, 1e-5)),
    "losses": tradeoff.compose(tradeoff.Laplace(0.1), tradeoff.Gaussian(0.1), interval=1e-2),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("n", [2, 40])
def test_a_chain_is_the_curve_again_and_again(name, n):
    log_power = np.append(np.log(KAPPA[:-1]), -np.inf)
    for _ in range(n):
        log_power = CHAINS[name].log_power(log_power)
    with np.errstate(divide="ignore"):
        found = np.log(rero.from_tradeoff(np.append(KAPPA[:-1], 0.0), CHAINS[name], n_targets=n))
    # Step by step the slack of every step is added; a stretch at once adds a little where the curve is bent.
    assert np.all(found >= log_power - 60e-12 * n)
    np.testing.assert_allclose(found, log_power, atol=3e-4)


def test_a_chain_of_ten_million_neighbours():
    n, kappa, epsilon, delta = 10**7, np.array([1e-200, 1e-6, 1e-3]), 1e-8, 1e-12
    with mpmath.workdps(40):
        # Group privacy, as long as the steep line is the lower one.
        rise = [
            mpmath.exp(n * mpmath.mpf(epsilon)) * k + delta * mpmath.expm1(n * epsilon) / mpmath.expm1(epsilon)
            for k in kappa
        ]
    found = rero.from_tradeoff(kappa, tradeoff.EpsilonDelta(epsilon, delta), n_targets=n)
    assert all(float(x) <= y <= float(x) * (1 + 1e-6) for x, y in zip(rise, found, strict=True))
    gaussian = rero.from_tradeoff(kappa, tradeoff.Gaussian(1e-7), n_targets=n)
    np.testing.assert_allclose(gaussian, rero.from_tradeoff(kappa, tradeoff.Gaussian(1.0)), rtol=1e-8)
    # Curves of Renyi's divergence are looser, and a chain of them is no better than what they say of one.
    zcdp = rero.from_tradeoff(kappa, tradeoff.ZCDP(1e-14 / 2), n_targets=n)
    # A hundred stretches add their slack, 4.6e-10 each at 1e-200.
    np.testing.assert_allclose(zcdp, rero.from_tradeoff(kappa, tradeoff.ZCDP(0.5)), rtol=1e-6)
    numeric = tradeoff.compose(tradeoff.Laplace(1e-8), tradeoff.Gaussian(1e-8), interval=1e-2)
    assert np.all(rero.from_tradeoff(kappa, numeric, n_targets=n) >= rero.from_tradeoff(kappa, tradeoff.Laplace(0.1)))


def test_a_long_chain_of_sampled_noise_protects_nobody():
    curve = tradeoff.subsampled_gaussian(1.0, 1e-2, 10, neighbouring="add_or_remove")
    np.testing.assert_array_equal(rero.from_tradeoff([1e-12, 1e-6, 1e-3], curve, n_targets=10**7), 1)


@pytest.mark.parametrize("n_orders", [2, 40])
def test_a_chain_takes_all_orders_of_renyi_s_divergence_at_once(monkeypatch, n_orders):
    calls = []

    def counted(x):
        calls.append(np.shape(x))
        return rounding.log_1mexp(x)

    monkeypatch.setattr(closed_forms, "log_1mexp", counted)
    orders = np.linspace(1.5, 60, n_orders)
    curve = tradeoff.RDP(orders, 1e-6 * orders)
    log_alpha = np.log([1e-12, 1e-6, 1e-3])
    curve._log_run(log_alpha, np.full(3, 10.0))
    # As many calls as for one order: the last axis has the orders.
    assert 0 < len(calls) <= 3
    assert any(shape[-1:] == (n_orders,) for shape in calls)


def successes(hits, n):
    """Lower end of the exact interval at 1 - 1e-4, so that some hundred comparisons fail by chance once in 100 runs."""
    return binomtest(int(hits), n).proportion_ci(0.9998, method="exact").low


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("k", [2, 10, 1000])
def test_no_bayes_attack_on_a_discrete_prior_beats_the_bound(mu, k):
    # k candidates at distance 1 from nothing, along axes of their own, seen through noise of scale 1 / mu: the best
    # attack takes the largest coordinate.
    rng, n = np.random.default_rng(k), 20_000
    hits = 0
    for _ in range(20):
        seen = rng.standard_normal((n // 20, k))
        seen[:, 0] += mu
        hits += np.sum(np.argmax(seen, axis=1) == 0)
    bound = float(rero.from_tradeoff(prior.kappa_discrete(k), tradeoff.Gaussian(mu)))
    assert successes(hits, n) <= bound
    # Two opposite candidates would attain it where k = 2; orthogonal ones come within a factor.
    assert hits / n >= 0.5 * min(bound, 0.9) or k > 2


def test_the_bound_is_attained_by_a_test_between_nothing_and_one_record():
    # A prior that is the target with probability kappa and else a record without any influence.
    mu, kappa, n = 1.5, 0.05, 400_000
    rng = np.random.default_rng(0)
    threshold = norm.isf(kappa)
    found = np.mean(rng.standard_normal(n) + mu > threshold)
    assert found == pytest.approx(float(rero.from_tradeoff(kappa, tradeoff.Gaussian(mu))), abs=4 * 0.5 / math.sqrt(n))


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("mu", [0.5, 2.0, 8.0])
def test_no_bayes_attack_on_a_gaussian_prior_beats_the_bound(d, mu):
    # Records from N(0, s^2 I), cut to the unit ball, seen through noise 1 / mu. Without the cut the best attack is the
    # posterior mean; with s small the cut is never met.
    s, noise = 0.9 / (math.sqrt(d) + 5), 1 / mu
    rng, n = np.random.default_rng(d), 20_000
    z = s * rng.standard_normal((n, d))
    assert np.linalg.norm(z, axis=1).max() < 1
    seen = z + noise * rng.standard_normal((n, d))
    error = np.linalg.norm(seen * s**2 / (s**2 + noise**2) - z, axis=1)
    for eta in s * math.sqrt(d) * np.array([0.3, 0.7, 1.0]):
        bound = float(rero.from_tradeoff(prior.kappa_gaussian(eta, d, s), tradeoff.Gaussian(mu)))
        assert successes(np.sum(error <= eta), n) <= bound
    total = float(np.mean(error**2))
    entropy = mse.mse_from_entropy(mse.entropy_gaussian(d, s), d, mse.information_of(tradeoff.Gaussian(mu)))
    by_radius = rero.mse_from_prior(lambda eta: prior.kappa_gaussian(eta, d, s), tradeoff.Gaussian(mu), 1.0)
    # The bound is of a mean over all records, the error one over 20,000.
    assert 0 < entropy <= total * 1.05
    assert 0 < by_radius <= total * 1.05


def test_proposition_6():
    d, eta = 50, 0.5
    room = d * math.log(2)
    assert rero.uniform_prior(eta, d, epsilon=10.0).gamma == pytest.approx(math.exp(10 - room), rel=1e-9)
    zcdp = math.exp(-((math.sqrt(room) - math.sqrt(3.0)) ** 2))
    assert rero.uniform_prior(eta, d, rho=3.0) == (pytest.approx(zcdp, rel=1e-9), "")
    assert rero.uniform_prior(eta, d, epsilon=35.0) == (1.0, "epsilon must be < log(1 / kappa) = 34.6574, got 35")
    assert (
        rero.uniform_prior(2.0, d, epsilon=1.0).reason == "eta must be < the radius 1 for anything to be hidden, got 2"
    )
    assert rero.uniform_prior(2.0, d, epsilon=1.0, radius=4.0).gamma < 1


def test_proposition_7():
    d, sigma, eta = 30, 2.0, 6.0
    kappa = chi2.cdf((eta / sigma) ** 2, d)
    assert rero.gaussian_prior(eta, d, sigma, epsilon=1.0).gamma == pytest.approx(kappa * math.e, rel=1e-9)
    b = eta**2 / (d * sigma**2)
    closed = (b * math.exp(1 - b)) ** (d / 2)
    assert kappa < closed
    found = rero.gaussian_prior(eta, d, sigma, epsilon=1.0, is_chernoff=True)
    assert found.gamma == pytest.approx(closed * math.e, rel=1e-9)
    far = rero.gaussian_prior(20.0, d, sigma, epsilon=1.0, is_chernoff=True)
    assert far == (1.0, f"eta must be < sigma sqrt(d) = {2 * math.sqrt(30):g} for the closed form, got 20")


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("eta", [0.05, 0.2, 0.5])
def test_no_bayes_attack_on_a_uniform_prior_beats_proposition_6(epsilon, eta):
    # A number uniform in [-1, 1] with Laplace noise: the posterior falls with the distance to what is seen, so that the
    # best interval lies around it, as far as [-1, 1] allows.
    rng, n = np.random.default_rng(0), 100_000
    z = rng.uniform(-1, 1, n)
    seen = z + rng.laplace(size=n) / epsilon
    hits = np.sum(np.abs(np.clip(seen, eta - 1, 1 - eta) - z) <= eta)
    bound = rero.uniform_prior(eta, 1, epsilon=epsilon)
    assert successes(hits, n) <= float(bound.gamma)
    assert hits / n > eta


@pytest.mark.parametrize("mu", [0.5, 2.0])
@pytest.mark.parametrize("d", [1, 4])
def test_no_bayes_attack_on_a_gaussian_prior_beats_proposition_7(d, mu):
    # So short that none of the records is beyond the unit ball, to which the noise is calibrated.
    s, noise = 0.9 / (math.sqrt(d) + 5), 1 / mu
    rng, n = np.random.default_rng(d), 100_000
    z = s * rng.standard_normal((n, d))
    assert np.linalg.norm(z, axis=1).max() < 1
    seen = z + noise * rng.standard_normal((n, d))
    error = np.linalg.norm(seen * s**2 / (s**2 + noise**2) - z, axis=1)
    eta = s * math.sqrt(d) * np.array([0.2, 0.5, 0.8])
    hits = np.array([np.sum(error <= one) for one in eta])
    exact = rero.gaussian_prior(eta, d, s, rho=mu**2 / 2).gamma
    closed = rero.gaussian_prior(eta, d, s, rho=mu**2 / 2, is_chernoff=True).gamma
    assert all(successes(hit, n) <= bound for hit, bound in zip(hits, exact, strict=True))
    assert np.all(exact <= closed)


def test_propositions_take_many_distances_and_budgets():
    eta, epsilon = np.array([0.1, 0.5, 2.0]), np.array([[1.0], [40.0]])
    found = rero.uniform_prior(eta, 20, epsilon=epsilon)
    assert found.gamma.shape == (2, 3)
    np.testing.assert_allclose(found.gamma[:, :2], np.minimum(eta[:2] ** 20 * np.exp(epsilon), 1), rtol=1e-9)
    assert np.all(found.gamma[:, 2] == 1)
    assert found.reason == "eta must be < the radius 1 for anything to be hidden, got 2"
    one = [float(rero.gaussian_prior(e, 20, 0.3, rho=0.7).gamma) for e in eta]
    np.testing.assert_array_equal(rero.gaussian_prior(eta, 20, 0.3, rho=0.7).gamma, one)
    assert float(rero.uniform_prior(0.0, 20, epsilon=1.0).gamma) == 0


def test_theorem_5_is_the_converse_of_what_a_gaussian_mechanism_allows():
    # Of two records at distance mu in units of the noise the best guess is right with the Bayes probability; the
    # privacy that follows is what the Gaussian curve has at that epsilon.
    mu, p = 1.2, 0.3
    threshold = mu / 2 + math.log((1 - p) / p) / mu
    gamma = (1 - p) * norm.cdf(threshold) + p * norm.sf(threshold - mu)
    found = rero.to_dp(gamma, p)
    assert found.epsilon == pytest.approx(math.log(0.7 / 0.3))
    assert found.delta == pytest.approx(tradeoff.Gaussian(mu).delta_at(found.epsilon), rel=1e-6)


def test_inverses_give_back_what_they_are_asked_for():
    kappa, gamma = np.meshgrid(np.geomspace(1e-9, 0.4, 8), np.linspace(0.41, 0.99, 6))
    mu, epsilon, rho = rero.largest_mu(kappa, gamma), rero.largest_epsilon(kappa, gamma), rero.largest_rho(kappa, gamma)
    for k, g, m, e, r in zip(*(a.ravel() for a in (kappa, gamma, mu, epsilon, rho)), strict=True):
        for curve in (tradeoff.Gaussian(m), tradeoff.EpsilonDelta(e), tradeoff.ZCDP(r)):
            assert g * (1 - 1e-6) <= float(rero.from_tradeoff(k, curve)) <= g
    assert np.all(rero.largest_mu([0.1, 0.0, 0.2], [0.1, 0.5, 1.0]) == [0, np.inf, np.inf])


def test_the_least_noise_and_the_most_steps():
    kappa, gamma = 0.01, 0.1
    noise = rero.smallest_noise_multiplier(kappa, gamma, 100, neighbouring="zero_out")
    assert float(rero.from_tradeoff(kappa, tradeoff.Gaussian(10 / noise))) == pytest.approx(gamma, rel=1e-6)
    assert rero.smallest_noise_multiplier(kappa, gamma, 100, neighbouring="replace_one") == pytest.approx(2 * noise)
    assert rero.most_steps(kappa, gamma, noise, neighbouring="zero_out") == 100
    assert rero.most_steps(kappa, gamma, 0.01, neighbouring="zero_out") == 0

    def success(multiplier, steps):
        return float(tradeoff.subsampled_gaussian(multiplier, 0.2, steps, neighbouring="zero_out").power(kappa))

    # Much noise, because the losses of little are spread over a long grid.
    gamma = 0.03
    sampled = rero.smallest_noise_multiplier(kappa, gamma, 20, neighbouring="zero_out", rate=0.2)
    assert success(sampled, 20) <= gamma < success(sampled * 0.999, 20)
    steps = rero.most_steps(kappa, gamma, 2.0, neighbouring="zero_out", rate=0.2)
    assert success(2.0, steps) <= gamma < success(2.0, steps + 1)


def test_monte_carlo_agrees_with_the_composed_curve_and_certifies_from_above():
    kappa = np.array([0.01, 0.1, 0.5])
    pair = rero.SampledGaussianPair(noise_multiplier=0.7, rate=0.1, steps=10)
    exact = tradeoff.subsampled_gaussian(0.7, 0.1, 10, neighbouring="zero_out").power(kappa)
    found = rero.monte_carlo(kappa, pair, rng=np.random.default_rng(0), n=100_000)
    # Four standard errors of the threshold's level and of the share that passes it.
    np.testing.assert_allclose(found.gamma, exact, rtol=4 * np.sqrt(2 / (kappa * 1e5)).max())
    assert np.all(found.upper >= exact)
    assert np.all(found.upper <= exact * 1.25)
    assert found.reason == ""


def test_certificates_hold_as_often_as_they_say():
    pair = rero.SampledGaussianPair(noise_multiplier=1.0, rate=1.0, steps=1)
    exact = float(tradeoff.Gaussian(1.0).power(0.05))
    rng = np.random.default_rng(0)
    runs = [rero.monte_carlo(0.05, pair, rng=rng, n=500, confidence=0.8).upper < exact for _ in range(400)]
    # At most a fifth may fail; 0.27 is four standard deviations more.
    assert np.mean(runs) <= 0.27


def test_what_monte_carlo_cannot_certify_is_1():
    pair = rero.SampledGaussianPair(noise_multiplier=1.0, rate=1.0, steps=1)
    found = rero.monte_carlo([0.9, 1.0], pair, rng=np.random.default_rng(0), n=10)
    assert np.all(found.upper == 1)
    assert "too near 1 for 10 draws" in found.reason


class Broken(rero.SampledGaussianPair):
    def log_ratio(self, outputs):
        return outputs


def test_no_prior_bounds_are_attained_by_least_squares():
    rng = np.random.default_rng(0)
    j = rng.normal(size=(12, 4))
    noise, n = 0.3, 200_000
    left = noise * rng.standard_normal((n, 12)) @ np.linalg.pinv(j).T
    bound = rero.mse_without_prior(noise, noise="gaussian", jacobian=j)
    assert np.mean(np.sum(left**2, axis=1)) == pytest.approx(bound, rel=0.02)
    assert rero.mse_without_prior(0.5, noise="gaussian", d=8) == pytest.approx(2.0)
    assert rero.mse_without_prior(0.5, noise="laplace", d=1) <= 2 * 0.25
    assert math.isinf(rero.mse_without_prior(1.0, noise="gaussian", jacobian=np.ones((3, 2))))


@pytest.mark.parametrize(
    ("curve", "exact"),
    [
        (tradeoff.Gaussian(1.5), 1.125),
        (tradeoff.ZCDP(0.3), 0.3),
        (tradeoff.EpsilonDelta(1.2), 1.2 * math.tanh(0.6)),
        (tradeoff.Laplace(1.2), 1.2 - 1 + math.exp(-1.2)),
    ],
)
def test_information_is_the_divergence_of_the_curve(curve, exact):
    assert mse.information_of(curve) == pytest.approx(exact)
    # KL(with || without) is the integral of -log of the curve's slope; at most a Riemann sum over levels away.
    if not isinstance(curve, tradeoff.ZCDP):
        alpha = np.concatenate([[0], np.geomspace(1e-12, 1, 20_001)])
        power = curve.power(alpha)
        rise, run = np.diff(power), np.diff(alpha)
        kept = rise > 0
        assert np.sum(rise[kept] * np.log(rise[kept] / run[kept])) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rero.from_tradeoff(1.1, tradeoff.Gaussian(1.0)), r"kappa must be in \[0, 1\], got 1.1"),
        (lambda: rero.from_tradeoff([0.1, math.nan], tradeoff.Gaussian(1.0)), "kappa must be in"),
        (lambda: rero.from_tradeoff(0.1, 1.0), "curve must be a trade-off curve, got 1.0"),
        (lambda: rero.from_tradeoff(0.1, tradeoff.Gaussian(1.0), n_targets=0), "n_targets must be an integer >= 1"),
        (lambda: rero.from_rdp(0.1, 1.0, 0.5), "alpha must be > 1, got 1.0"),
        (lambda: rero.from_rdp(0.1, 2.0, -0.5), "epsilon must be >= 0, got -0.5"),
        (lambda: rero.from_rdp(0.1, 2.0, math.nan), "epsilon must be >= 0, got nan"),
        (lambda: rero.from_rdp(0.1, [2.0, 3.0], 0.5), "alpha must be one order or as many as epsilon"),
        (lambda: rero.from_pure_dp(0.1, -1.0), "epsilon must be >= 0"),
        (lambda: rero.from_zcdp(-0.1, 1.0), "kappa must be in"),
        (lambda: rero.from_zcdp(0.1, math.nan), "rho must be >= 0, got nan"),
        (lambda: rero.uniform_prior(0.5, 0, epsilon=1.0), "d must be an integer >= 1"),
        (lambda: rero.uniform_prior(0.5, 5), "epsilon or rho must be given, and not both"),
        (lambda: rero.uniform_prior(0.5, 5, epsilon=1.0, rho=1.0), "epsilon or rho must be given, and not both"),
        (lambda: rero.uniform_prior(-0.5, 5, epsilon=1.0), "eta must be >= 0"),
        (lambda: rero.gaussian_prior(0.5, 5, 0.0, epsilon=1.0), "sigma must be a finite number > 0"),
        (lambda: rero.gaussian_prior(0.5, 5, 1.0, epsilon=-1.0), "epsilon must be a finite number >= 0"),
        (lambda: rero.to_dp(0.9, 0.6), r"p must be in \(0, 0.5\], got 0.6"),
        (lambda: rero.to_dp(0.5, 0.3), r"gamma must be in \[1 - p, 1\] = \[0.7, 1\], got 0.5"),
        (lambda: rero.largest_mu(0.5, 0.2), "gamma must be >= kappa = 0.5, got 0.2"),
        (lambda: rero.smallest_noise_multiplier(0.0, 0.2, 1, neighbouring="zero_out"), r"kappa must be in \(0, 1\)"),
        (lambda: rero.smallest_noise_multiplier(0.1, 0.1, 1, neighbouring="zero_out"), "gamma must be in"),
        (lambda: rero.smallest_noise_multiplier(0.1, 0.2, 1, neighbouring="one"), "neighbouring must be one of"),
        (lambda: rero.smallest_noise_multiplier(0.1, 0.2, 1, neighbouring="zero_out", rate=0), "rate must be in"),
        (lambda: rero.most_steps(0.1, 0.2, 0.0, neighbouring="zero_out"), "noise_multiplier must be"),
        (lambda: rero.SampledGaussianPair(noise_multiplier=0.0, rate=0.5, steps=1), "noise_multiplier must be"),
        (
            lambda: rero.monte_carlo(
                0.1, Broken(noise_multiplier=1.0, rate=0.5, steps=2), rng=np.random.default_rng(0), n=5
            ),
            r"log_ratio must give \(5,\) numbers, got shape \(5, 2\)",
        ),
        (lambda: rero.mse_from_entropy(math.inf, 3, 1.0), "entropy must be finite"),
        (lambda: rero.information_of(tradeoff.EpsilonDelta(1.0, 0.1)), "curve must be Gaussian, ZCDP, Laplace or pure"),
        (lambda: rero.mse_without_prior(0.0, noise="gaussian", d=2), "scale must be a finite number > 0"),
        (lambda: rero.mse_without_prior(1.0, noise="uniform", d=2), "noise must be one of"),
        (lambda: rero.mse_without_prior(1.0, noise="laplace"), "jacobian or d must be given, and not both"),
    ],
)
def test_bad_input_names_the_argument_the_rule_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Every closed form of `drjax.bounds` against sixty digits, one-sidedly, on draws from the whole range of float64."""

import dataclasses
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from drjax.bounds import accounting, audit_statistics, auditing, calibration, gdp, mse, one_run, prior, rero, tradeoff
from drjax.bounds.ledger import Ledger

N = 2000
"""Draws of every bound."""

mp = mpmath.mp.clone()
mp.dps = 60

BITS = 230
"""Of numbers with a fixed point, in which sums of many terms are fast."""


def real(value):
    """A float or a fraction, as it is."""
    if isinstance(value, Fraction):
        return mp.mpf(value.numerator) / mp.mpf(value.denominator)
    return mp.mpf(float(value))


def sizes(rng, low=-1074.0, high=1024.0, n=N):
    """Positive floats, log-uniform between two powers of two: all that there are if none is given."""
    return np.clip(np.exp2(np.minimum(rng.uniform(low, high, n), 1023.9999)), 5e-324, None)


def moderate(rng):
    """Parameters of which half are of an order that is in use."""
    return np.where(rng.random(N) < 0.5, sizes(rng), sizes(rng, -20, 10))


def shares(rng, n=N):
    """Probabilities: half log-uniform from the least number on, half as near to 1."""
    near = 1 - np.maximum(sizes(rng, -53, 0, n), 2.0**-53)
    return np.where(rng.random(n) < 0.5, np.minimum(sizes(rng, -1074, 0, n), 1.0), near)


def mills(z):
    """(1 - Phi(z)) / phi(z) for z >= 0."""
    fixed = int(mp.ldexp(z, BITS))
    if z >= 3:
        # Laplace's continued fraction from its end: its error falls as exp(-2 z sqrt(2 n)).
        total = fixed
        for n in range(int((85 / float(z)) ** 2 / 2) + 40, 0, -1):
            total = fixed + (n << (2 * BITS)) // total
        return 1 / mp.ldexp(mp.mpf(total), -BITS)
    square = (fixed * fixed) >> BITS
    term, total, n = fixed, fixed, 1
    while term:
        n += 2
        term = ((term * square) >> BITS) // n
        total += term
    return mp.sqrt(mp.pi / 2) * mp.exp(z * z / 2) - mp.ldexp(mp.mpf(total), -BITS)


def density(z):
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def phi(z):
    """The normal distribution function; the tail below 1/2 has all digits."""
    if abs(z) > 1e6:
        return mp.mpf(0) if z < 0 else mp.mpf(1)
    tail = density(z) * mills(abs(z))
    return tail if z < 0 else 1 - tail


def quantile(alpha):
    """Phi^-1 of a float, by four terms of its series from SciPy's fifteen digits."""
    alpha = real(alpha)
    flip = alpha > 0.5
    p = 1 - alpha if flip else alpha
    w = mp.mpf(float(ndtri(float(p))))
    u = (p - phi(w)) / density(w)
    w += u + w * u**2 / 2 + (2 * w**2 + 1) * u**3 / 6 + (6 * w**3 + 7 * w) * u**4 / 24
    return -w if flip else w


def test_the_normal_distribution_of_these_tests_is_that_of_mpmath():
    for z in (-37.0, -8.1, -3.0, -2.9, -1e-9, 0.0, 0.4, 5.0):
        assert abs(phi(real(z)) / mp.ncdf(z) - 1) < mp.mpf(10) ** -48
    for alpha in (1e-300, 0.3, 0.5, 1 - 1e-12):
        assert abs(phi(quantile(alpha)) / real(alpha) - 1) < mp.mpf(10) ** -48


@dataclasses.dataclass
class Draw:
    index: int
    value: float
    truth: object

    def __repr__(self):
        return f"draw {self.index}: {self.value!r} for {mp.nstr(self.truth, 25)}"


def at_least(found, truth, *, exact=True):
    """Holds floats above numbers of sixty digits, and within a millionth where they are exact.

    Below 1e-290 float64 loses its digits: there a number has to be as small, and not 0 where the truth is not.
    """
    n_checked = 0
    for i, (value, true) in enumerate(zip(np.asarray(found, np.float64).tolist(), truth, strict=True)):
        # Written out on failure alone: of numbers like exp(-1e6) that takes long.
        what = Draw(i, value, true)
        if true < 1e-290:
            assert 0 <= value <= 2e-290, what
            assert value > 0 or true == 0, what
            continue
        n_checked += 1
        assert mp.mpf(value) >= true, what
        assert not exact or mp.mpf(value) <= true * (1 + mp.mpf("1e-6")), what
    # A test whose draws were all out of range would say nothing.
    assert n_checked > 0.1 * len(truth)


def at_most(found, truth):
    """The same for lower bounds."""
    n_checked = 0
    for i, (value, true) in enumerate(zip(np.asarray(found, np.float64).tolist(), truth, strict=True)):
        what = Draw(i, value, true)
        assert 0 <= mp.mpf(value) <= true, what
        if true > 1e-290:
            n_checked += 1
            assert value >= true * (1 - mp.mpf("1e-6")), what
    assert n_checked > 0.1 * len(truth)


def least(alpha, *lines):
    return min(slope * alpha + intercept for slope, intercept in lines)


def pure_lines(epsilon, delta):
    fall = mp.exp(-epsilon)
    return (1 / fall, delta), (fall, -mp.expm1(-epsilon) + fall * delta), (0, 1)


def pure_delta(limit, delta, epsilon):
    return delta + (1 - delta) * -mp.expm1(min(epsilon - limit, 0)) / (1 + mp.exp(-limit))


def laplace_power(mu, alpha):
    fall = mp.exp(-mu)
    if alpha <= fall / 2:
        return alpha / fall
    return 1 - fall / (4 * alpha) if alpha <= 0.5 else 1 - fall * (1 - alpha)


def response(curve):
    truth = Fraction(curve.truth)
    return (
        real(truth),
        real((1 - truth) / (curve.n_categories - 1)),
        real(truth - (1 - truth) / (curve.n_categories - 1)),
    )


def response_power(curve, alpha):
    p, q, gap = response(curve)
    return least(alpha, (1, gap), (q / p, gap / p), (p / q, 0) if q else (0, 1))


def response_delta(curve, epsilon):
    p, q, _ = response(curve)
    return max(p - mp.exp(min(epsilon, 2000)) * q, mp.mpf(0)) if q else p


def gaussian_delta(mu, epsilon):
    """phi(z) (R(z) - R(z + mu)), z = epsilon / mu - mu / 2 and R Mills' ratio."""
    m, e = Fraction(mu), Fraction(epsilon)
    z, mu = real((2 * e - m * m) / (2 * m)), real(mu)
    if abs(z) > 40:
        return mp.mpf(1) if z < 0 else mp.mpf(10) ** -330
    if mu < 1e-15:
        # The middle of the interval that Mills' ratio changes over: the error is mu^2 of it.
        u = z + mu / 2
        return density(z) * mu * (1 - u * mills(u))
    return phi(-z) - density(z) * mills(z + mu)


def renyi_power(order, epsilon, alpha):
    if order == mp.inf:
        return least(alpha, *pure_lines(epsilon, 0))
    share = (order - 1) / order
    return min(mp.exp(share * (mp.log(alpha) + epsilon)), -mp.expm1(-epsilon + mp.log1p(-alpha) / share))


def renyi_delta(order, renyi, epsilon):
    if order == mp.inf:
        return pure_delta(renyi, mp.mpf(0), epsilon)
    t = order - 1
    return mp.exp(min(0, max(t * (renyi - epsilon - mp.log1p(1 / t)) - mp.log1p(t), -2000)))


def zcdp_power(rho, alpha):
    root = mp.sqrt(rho)
    steep = mp.exp(-(max(mp.sqrt(-mp.log(alpha)) - root, 0) ** 2))
    return min(steep, -mp.expm1(-((root + mp.sqrt(-mp.log1p(-alpha))) ** 2)))


def zcdp_delta(rho, epsilon):
    """The least over all orders 1 + t, by Newton's method."""
    gap, low, high = epsilon - rho, -700.0, 700.0
    if gap > 0 and gap**2 > 8000 * rho:
        # Without the last two terms the least is exp(-gap^2 / 4 rho).
        return mp.mpf(10) ** -330
    for _ in range(50):
        middle = (low + high) / 2
        t = math.exp(middle)
        low, high = (low, middle) if 2 * float(rho) * t - math.log1p(1 / t) > float(gap) else (middle, high)
    t = mp.exp(low)
    for _ in range(3):
        t *= mp.exp(-(2 * rho * t - mp.log1p(1 / t) - gap) / (2 * rho * t + 1 / (1 + t)))
    return mp.exp(min(0, max(t * ((1 + t) * rho - epsilon - mp.log1p(1 / t)) - mp.log1p(t), -2000)))


def orders(rng):
    return np.where(rng.random(N) < 0.1, np.inf, 1 + sizes(rng, -52, 1023))


def answers(rng):
    for size, gain in zip(rng.integers(1, 40, N), sizes(rng, -53, 0), strict=True):
        k = 2 if rng.random() < 0.5 else int(2**size) + 1
        truth = 1 - gain if rng.random() < 0.5 else 1 / k + gain * (1 - 1 / k)
        yield (truth if truth > 1 / k else 1.0), k


def times(x, y):
    with np.errstate(over="ignore"):
        return min(float(np.float64(x) * np.float64(y)), 1e308)


@dataclasses.dataclass
class Kind:
    """How curves are drawn, their power and delta in sixty digits, and epsilons (of a share u) where delta falls."""

    draw: object
    power: object
    delta: object
    epsilon: object


KINDS = {
    "Gaussian": Kind(
        lambda rng: map(tradeoff.Gaussian, moderate(rng)),
        lambda c, a: phi(quantile(a) + real(c.mu)),
        lambda c, e: gaussian_delta(c.mu, e),
        lambda c, u: times(c.mu, max(46 * u - 9 + c.mu / 2, 0)),
    ),
    "EpsilonDelta": Kind(
        lambda rng: map(
            tradeoff.EpsilonDelta, moderate(rng) * (rng.random(N) < 0.9), shares(rng) * (rng.random(N) < 0.8)
        ),
        lambda c, a: least(real(a), *pure_lines(real(c.epsilon), real(c.delta))),
        lambda c, e: pure_delta(real(c.epsilon), real(c.delta), real(e)),
        lambda c, u: times(c.epsilon, 1.1 * u),
    ),
    "Laplace": Kind(
        lambda rng: map(tradeoff.Laplace, moderate(rng)),
        lambda c, a: laplace_power(real(c.mu), real(a)),
        lambda c, e: -mp.expm1(min(real(e) - real(c.mu), 0) / 2),
        lambda c, u: times(c.mu, 1.1 * u),
    ),
    "RandomizedResponse": Kind(
        lambda rng: itertools.starmap(tradeoff.RandomizedResponse, answers(rng)),
        lambda c, a: response_power(c, real(a)),
        lambda c, e: response_delta(c, real(e)),
        lambda c, u: 1.1 * u * min(math.log(c.truth / max(c.other, 1e-300)), 700.0),
    ),
    "RDP": Kind(
        lambda rng: map(tradeoff.RDP, orders(rng), moderate(rng)),
        lambda c, a: renyi_power(real(c.orders[0]), real(c.epsilons[0]), real(a)),
        lambda c, e: renyi_delta(real(c.orders[0]), real(c.epsilons[0]), real(e)),
        lambda c, u: min(c.epsilons[0] + 600 * u / (c.orders[0] - 1), 1e308),
    ),
    "ZCDP": Kind(
        lambda rng: map(tradeoff.ZCDP, moderate(rng)),
        lambda c, a: zcdp_power(real(c.rho), real(a)),
        lambda c, e: zcdp_delta(real(c.rho), real(e)),
        lambda c, u: min(c.rho + 50 * u * math.sqrt(c.rho), 1e308),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_of_curves(kind):
    rng = np.random.default_rng(0)
    curves, levels = list(KINDS[kind].draw(rng)), shares(rng)
    truth = [KINDS[kind].power(*pair) for pair in zip(curves, levels, strict=True)]
    at_least([curve.power(alpha) for curve, alpha in zip(curves, levels, strict=True)], truth)
    at_least([rero.from_tradeoff(alpha, curve) for curve, alpha in zip(curves, levels, strict=True)], truth)
    if kind == "Gaussian":
        at_least(rero.success_of_mu(levels, np.array([curve.mu for curve in curves])), truth)


@pytest.mark.parametrize("kind", KINDS)
def test_the_delta_of_curves_and_their_epsilon_at_it(kind):
    rng = np.random.default_rng(1)
    curves, anywhere = list(KINDS[kind].draw(rng)), sizes(rng)
    near = [KINDS[kind].epsilon(curve, u) for curve, u in zip(curves, rng.random(N), strict=True)]
    epsilons = np.where(rng.random(N) < 0.8, near, anywhere).tolist()
    truth = [KINDS[kind].delta(curve, epsilon) for curve, epsilon in zip(curves, epsilons, strict=True)]
    at_least([curve.delta_at(epsilon) for curve, epsilon in zip(curves, epsilons, strict=True)], truth)
    for curve, epsilon, delta in zip(curves, epsilons, truth, strict=True):
        if not 1e-290 < delta < 1:
            continue
        # The least float above delta, so that this epsilon is enough.
        goal = math.nextafter(float(delta), 1.0)
        found, what = curve.epsilon_at(goal), (curve, goal, epsilon)
        assert curve.delta_at(found) <= goal or found == curve.epsilon, what
        if found < epsilon:
            assert KINDS[kind].delta(curve, found) <= goal, what
        # A slack of 1e-12 of log delta, at most 1e-9 of delta, decides about epsilon where delta hardly falls.
        if found > epsilon * (1 + 1e-6):
            assert KINDS[kind].delta(curve, found * (1 - 1e-6)) >= delta * (1 - mp.mpf("1e-8")), what


def test_the_functions_of_gaussian_differential_privacy():
    rng = np.random.default_rng(2)
    mus, anywhere, u = moderate(rng), sizes(rng), rng.random(N)
    near = [KINDS["Gaussian"].epsilon(tradeoff.Gaussian(mu), share) for mu, share in zip(mus, u, strict=True)]
    epsilons = np.where(rng.random(N) < 0.9, near, anywhere).tolist()
    truth = [gaussian_delta(mu, epsilon) for mu, epsilon in zip(mus, epsilons, strict=True)]
    found = [gdp.delta_of(mu, epsilon) for mu, epsilon in zip(mus, epsilons, strict=True)]
    # It promises 0 for what is below the smallest number.
    at_least(np.maximum(found, 5e-324), truth)
    for mu, epsilon, delta in zip(mus.tolist(), epsilons, truth, strict=True):
        if not (1e-290 < delta < 0.999 and 1e-300 < mu < 1e300 and epsilon > 0):
            continue
        goal, what = math.nextafter(float(delta), 1.0), (mu, epsilon)
        budget = gdp.epsilon_of(mu, goal)
        noise = gdp.noise_multiplier_for(epsilon, goal, 1, "zero_out")
        assert gdp.delta_of(mu, budget) <= goal, what
        assert gdp.delta_of(gdp.mu_of(noise, 1, "zero_out"), epsilon) <= goal, what
        if budget > epsilon * (1 + 1e-6):
            assert gaussian_delta(mu, budget * (1 - 1e-6)) >= delta * (1 - mp.mpf("1e-8")), what
        if noise > 1 / mu * (1 + 1e-6):
            assert gaussian_delta(1 / (noise * (1 - 1e-6)), epsilon) >= delta * (1 - mp.mpf("1e-8")), what


def whole(rng, bits):
    """Integers >= 1, log-uniform."""
    return [int(size) for size in sizes(rng, 0, bits)]


def capped(value):
    return min(value, mp.mpf(1))


def exp(x):
    """Of numbers that may be as large as float64 has them."""
    return mp.exp(max(min(x, mp.mpf(10) ** 6), -(mp.mpf(10) ** 6)))


def log(x):
    return mp.log(x) if x else -mp.inf


def test_theorem_2_and_its_corollaries():
    rng = np.random.default_rng(3)
    kappa, alpha, epsilon = shares(rng), orders(rng), moderate(rng)
    k, e = [real(x) for x in kappa], [real(x) for x in epsilon]
    share = [mp.mpf(1) if a == np.inf else (real(a) - 1) / real(a) for a in alpha]
    at_least(
        [rero.from_rdp(*row) for row in zip(kappa, alpha, epsilon, strict=True)],
        [capped(max(x, exp(s * (mp.log(x) + y)))) for x, s, y in zip(k, share, e, strict=True)],
    )
    at_least(rero.from_pure_dp(kappa, epsilon), [capped(x * exp(y)) for x, y in zip(k, e, strict=True)])
    gaps = [max(mp.sqrt(-mp.log(x)) - mp.sqrt(y), 0) for x, y in zip(k, e, strict=True)]
    at_least(rero.from_zcdp(kappa, epsilon), [exp(-(gap**2)) for gap in gaps])


def under_budget(log_kappa, epsilon, rho):
    """Corollaries 3 and 4 of a logarithm; the bounds of `rero.uniform_prior` and `rero.gaussian_prior`."""
    pure = exp(min(log_kappa + epsilon, 0))
    return pure, exp(-(max(mp.sqrt(-log_kappa) - mp.sqrt(rho), 0) ** 2))


def test_priors_and_propositions_6_and_7():
    rng = np.random.default_rng(4)
    d, radius, budget = whole(rng, 30), sizes(rng, -1000, 1000), moderate(rng)
    # Half within a per cent of the radius, where logarithms cancel; some of any size.
    inside = np.where(rng.random(N) < 0.5, 1 - sizes(rng, -50, -7), np.exp2(-rng.exponential(3, N)))
    eta = np.where(rng.random(N) < 0.9, radius * inside, sizes(rng))
    # The closed form of proposition 7 has its limit at sigma sqrt(d).
    sigma = radius / np.sqrt(d)
    balls, normals = [], []
    for n, r, h, s in zip(d, radius, eta, sigma, strict=True):
        balls.append(n * min(mp.log(real(h) / real(r)), 0))
        b = (real(h) / real(s)) ** 2 / n
        normals.append(mp.mpf(n) / 2 * (1 - b + mp.log(b)) if b < 1 else mp.mpf(0))
    rows = list(zip(eta.tolist(), d, radius.tolist(), sigma.tolist(), budget.tolist(), strict=True))
    at_least([prior.kappa_uniform_ball(h, n, radius=r) for h, n, r, _, _ in rows], [exp(x) for x in balls])
    for i, (h, n, r, _, _) in enumerate(rows):
        error = mp.mpf(float(prior.log_kappa_uniform_ball(h, n, radius=r))) - balls[i]
        assert abs(error) <= 1e-12 * max(1, -balls[i])
    truth = [under_budget(x, real(e), real(e)) for x, e in zip(balls, budget, strict=True)]
    pure = [rero.uniform_prior(h, n, epsilon=e, radius=r).gamma for h, n, r, _, e in rows]
    at_least(pure, [x for x, _ in truth])
    at_least([rero.uniform_prior(h, n, rho=e, radius=r).gamma for h, n, r, _, e in rows], [x for _, x in truth])
    truth = [under_budget(x, real(e), real(e)) for x, e in zip(normals, budget, strict=True)]
    pure = [rero.gaussian_prior(h, n, s, epsilon=e, is_chernoff=True).gamma for h, n, _, s, e in rows]
    at_least(pure, [x for x, _ in truth])
    zcdp = [rero.gaussian_prior(h, n, s, rho=e, is_chernoff=True).gamma for h, n, _, s, e in rows]
    at_least(zcdp, [x for _, x in truth])


def chi_square(d, ratio):
    """P[chi^2_d <= ratio^2]: x^a e^-x / Gamma(a + 1) (1 + x / (a + 1) + ...) with numbers of a fixed point."""
    bits, n, a, x = 260, 0, real(d) / 2, real(ratio) ** 2 / 2
    fixed, start = int(mp.ldexp(x, bits)), int(mp.ldexp(a, bits))
    term = total = 1 << bits
    while term:
        n += 1
        term = term * fixed // (start + (n << bits))
        total += term
    return mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * mp.ldexp(mp.mpf(total), -bits)


def test_the_baseline_of_gaussian_priors():
    rng = np.random.default_rng(5)
    d = [1 if rng.random() < 0.2 else n for n in whole(rng, 12)]
    scale = np.exp2(rng.integers(-500, 500, N))
    # Around sqrt(d) by some standard deviations, or far below it; scales of two, so that nothing is rounded.
    around = np.sqrt(np.maximum(np.array(d) + np.sqrt(2 * np.array(d)) * rng.uniform(-9, 6, N), 1e-3))
    below = np.sqrt(d) * sizes(rng, -500, 0)
    ratio = np.where(rng.random(N) < 0.6, around, np.where(rng.random(N) < 0.5, below, np.sqrt(d) * rng.random(N)))
    truth = [chi_square(n, r) for n, r in zip(d, ratio, strict=True)]
    found = [prior.kappa_gaussian(r * s, n, s) for r, n, s in zip(ratio, d, scale, strict=True)]
    at_least(found, truth)
    logs = [prior.log_kappa_gaussian(r * s, n, s) for r, n, s in zip(ratio, d, scale, strict=True)]
    for value, true in zip(logs, truth, strict=True):
        assert abs(mp.mpf(float(value)) - mp.log(true)) <= 1e-10 * max(1, -mp.log(true))
    bound = rero.gaussian_prior(ratio[0], d[0], 1.0, epsilon=0.5).gamma
    at_least([bound] * 1, [capped(truth[0] * mp.exp(mp.mpf(1) / 2))])


@pytest.mark.parametrize("d", [20_000, 200_000, 1_000_000])
def test_the_baseline_of_gaussian_priors_in_many_dimensions(d):
    # SciPy's function is 3e-8 too small there at a million dimensions.
    for deviations in (-6.0, -4.6, -4.4, -1.0, 1.0, 4.4, 4.6, 6.0):
        ratio = math.sqrt(d + deviations * math.sqrt(2 * d))
        at_least([prior.kappa_gaussian(ratio, d, 1.0)], [chi_square(d, ratio)])


def test_other_baselines():
    rng = np.random.default_rng(6)
    kappa, n = shares(rng), whole(rng, 60)
    k = [real(x) for x in kappa]
    at_least([prior.kappa_all(*row) for row in zip(kappa, n, strict=True)], [x**m for x, m in zip(k, n, strict=True)])
    truth = [-mp.expm1(m * mp.log1p(-x)) for x, m in zip(k, n, strict=True)]
    at_least([prior.kappa_any(*row) for row in zip(kappa, n, strict=True)], truth)
    n = whole(rng, 900)
    at_least([prior.kappa_discrete(m) for m in n], [real(Fraction(1, m)) for m in n])
    at_least([prior.kappa_exact_match([p, 1 - p]) for p in kappa], [max(real(p), real(1 - p)) for p in kappa])


def test_theorem_5():
    rng = np.random.default_rng(7)
    p = np.minimum(shares(rng), 0.5)
    gamma = np.clip(1 - p * rng.random(N) * np.where(rng.random(N) < 0.5, 1.0, 1 - sizes(rng, -40, 0)), 1 - p, 1)
    found = [rero.to_dp(*row) for row in zip(gamma, p, strict=True)]
    exact = [(Fraction(g), Fraction(q)) for g, q in zip(gamma.tolist(), p.tolist(), strict=True)]
    at_least([one.delta for one in found], [real(max(1 - (1 - g) / q, Fraction(0))) for g, q in exact])
    at_least([one.epsilon for one in found], [mp.log(real((1 - q) / q)) for _, q in exact])


def test_inverses():
    rng = np.random.default_rng(8)
    pairs = np.sort([shares(rng), shares(rng)], axis=0)
    kappa, gamma = pairs[:, (pairs[1] > pairs[0] * (1 + 1e-9)) & (1 - pairs[0] > (1 - pairs[1]) * (1 + 1e-9))]
    k, g = [real(x) for x in kappa], [real(x) for x in gamma]
    mus = [quantile(y) - quantile(x) for x, y in zip(kappa, gamma, strict=True)]
    at_most(rero.largest_mu(kappa, gamma), mus)
    rows = list(zip(k, g, strict=True))
    at_most(rero.largest_epsilon(kappa, gamma), [max(mp.log(y / x), mp.log((1 - x) / (1 - y))) for x, y in rows])
    steep = [mp.sqrt(-mp.log(x)) - mp.sqrt(-mp.log(y)) for x, y in rows]
    flat = [mp.sqrt(-mp.log1p(-y)) - mp.sqrt(-mp.log1p(-x)) for x, y in rows]
    at_most(rero.largest_rho(kappa, gamma), [max(a, b) ** 2 for a, b in zip(steep, flat, strict=True)])
    steps, noises = whole(rng, 60), sizes(rng, -20, 20)
    found, left = [], []
    for row in zip(kappa, gamma, steps, noises, strict=False):
        found.append(rero.smallest_noise_multiplier(*row[:3], neighbouring="replace_one"))
        left.append(rero.most_steps(*row[:2], row[3], neighbouring="replace_one"))
    at_least(found, [2 * mp.sqrt(n) / mu for mu, n in zip(mus, steps, strict=False)])
    for most, mu, noise in zip(left, mus, noises, strict=False):
        exact = (mu * real(noise) / 2) ** 2
        assert most <= exact
        assert most == calibration.MOST_STEPS or most >= mp.floor(exact * (1 - mp.mpf("1e-6")))


def test_lower_bounds_on_the_mean_squared_error():
    rng = np.random.default_rng(9)
    d, sigma, size = whole(rng, 40), sizes(rng, -450, 450), sizes(rng, -20, 4)
    # Information of the order of the dimension, or the bound is 0.
    information = size * np.array(d)
    rows = list(zip(d, sigma.tolist(), information.tolist(), strict=True))
    found = [mse.mse_from_entropy(mse.entropy_gaussian(n, s), n, i) for n, s, i in rows]
    at_most(found, [n * real(s) ** 2 * mp.exp(-2 * real(i) / n) for n, s, i in rows])
    truth = []
    for n, s, i in rows:
        volume = mp.mpf(n) / 2 * mp.log(mp.pi) - mp.loggamma(mp.mpf(n) / 2 + 1) + n * mp.log(s)
        truth.append(n / (2 * mp.pi * mp.e) * mp.exp(2 * (volume - real(i)) / n))
    at_most([mse.mse_from_entropy(mse.entropy_uniform_ball(n, s), n, i) for n, s, i in rows], truth)
    at_most(
        [mse.mse_without_prior(s, noise="laplace", d=n) for n, s, _ in rows], [n * real(s) ** 2 for n, s, _ in rows]
    )
    diagonals = rng.uniform(0.1, 1, (200, 3))
    found = [mse.mse_without_prior(0.7, noise="gaussian", jacobian=np.diag(row)) for row in diagonals]
    at_most(found, [sum((real(0.7) / real(x)) ** 2 for x in row) for row in diagonals])


def test_information():
    rng = np.random.default_rng(10)
    size = sizes(rng, -480, 500).tolist()
    at_least([mse.information_of(tradeoff.Gaussian(x)) for x in size], [real(x) ** 2 / 2 for x in size])
    at_least([mse.information_of(tradeoff.ZCDP(x)) for x in size], [real(x) for x in size])
    pure = [real(x) * mp.tanh(real(x) / 2) for x in size]
    at_least([mse.information_of(tradeoff.EpsilonDelta(x)) for x in size], pure)
    truth = [real(x) + mp.expm1(-real(x)) if x > 1e-20 else real(x) ** 2 / 2 for x in size]
    at_least([mse.information_of(tradeoff.Laplace(x)) for x in size], truth)


def test_accountants_and_calibrated_noise():
    rng = np.random.default_rng(11)
    noise, other, steps = sizes(rng, -400, 400).tolist(), sizes(rng, -400, 400).tolist(), whole(rng, 60)
    rows = list(zip(noise, other, steps, strict=True))
    mus = [2 * mp.sqrt(n) / real(s) for s, _, n in rows]
    at_least([gdp.mu_of(s, n, "replace_one") for s, _, n in rows], mus)
    for s, _, n in rows[:50]:
        for accountant in (accounting.dp_gd, accounting.dp_sgd_shuffled):
            assert accountant(s, n, neighbouring="replace_one").curve.mu == gdp.mu_of(s, n, "replace_one")
    renyi = [accounting.rdp_of_gaussian(s, [3.5], steps=n, neighbouring="replace_one")[0] for s, _, n in rows]
    at_least(np.minimum(renyi, 1.7e308), [min(mu**2 * 7 / 4, real(1.7e308)) for mu in mus])
    quotient = [real(Fraction(s) / Fraction(o)) for s, o, _ in rows]
    for kind in ("gaussian", "laplace"):
        found = [accounting.output_perturbation(s, o, noise=kind, neighbouring="zero_out").curve.mu for s, o, _ in rows]
        at_least(found, quotient)
    at_least([accounting.calibrate_laplace(o, s) for s, o, _ in rows], quotient)
    erm = [accounting.sensitivity_of_erm(s, o, n, neighbouring="replace_one") for s, o, n in rows]
    at_least(erm, [2 * q / n for q, (_, _, n) in zip(quotient, rows, strict=True)])
    delta, epsilon = np.minimum(shares(rng), 1 - 1e-9).tolist(), sizes(rng, -300, 0).tolist()
    rows = list(zip(epsilon, delta, noise, strict=True))
    classical = [accounting.calibrate_gaussian(*row, method="classical") for row in rows]
    at_least(classical, [real(s) * mp.sqrt(2 * mp.log(real(1.25) / real(x))) / real(e) for e, x, s in rows])
    for e, x, s in rows[:200]:
        scale = accounting.calibrate_gaussian(e, x, s)
        assert (
            gaussian_delta(
                accounting.output_perturbation(s, scale, noise="gaussian", neighbouring="zero_out").curve.mu, e
            )
            <= x
        )


def test_compositions(tmp_path):
    rng = np.random.default_rng(12)
    first, second, third = (sizes(rng, -60, 60).tolist() for _ in range(3))
    rows = list(zip(first, second, third, strict=True))
    exact = [tuple(map(Fraction, row)) for row in rows]
    roots = [mp.sqrt(real(a * a + b * b + c * c)) for a, b, c in exact]
    at_least([tradeoff.compose(*map(tradeoff.Gaussian, row)).mu for row in rows], roots)
    mixed = [tradeoff.compose(tradeoff.ZCDP(a), tradeoff.Gaussian(b), tradeoff.ZCDP(c)).rho for a, b, c in rows]
    at_least(mixed, [real(a + b * b / 2 + c) for a, b, c in exact])
    naive = [accounting.naive_composition(row, np.minimum(row, 1e-3)) for row in rows]
    at_least([epsilon for epsilon, _ in naive], [real(a + b + c) for a, b, c in exact])
    at_least([delta for _, delta in naive], [real(sum(min(x, Fraction(1e-3)) for x in row)) for row in exact])
    k, share, delta = whole(rng, 40), np.minimum(shares(rng), 1 - 1e-9).tolist(), shares(rng).tolist()
    found = [accounting.advanced_composition(*row) for row in zip(first, delta, k, share, strict=True)]
    truth = []
    for e, n, s in zip(first, k, share, strict=True):
        advanced = real(e) * mp.sqrt(-2 * n * mp.log(real(s))) + n * real(e) * mp.expm1(min(real(e), 1))
        truth.append(min(advanced, n * real(e)))
    at_least([epsilon for epsilon, _ in found], truth)
    truth = [capped(n * real(x) + real(s)) for x, n, s in zip(delta, k, share, strict=True)]
    at_least([delta for _, delta in found], truth)
    # Pure privacy in Renyi's terms, added to a guarantee that tells nothing.
    order = 1 + sizes(rng, -30, 30)
    nothing = [tradeoff.RDP(a, 0.0) for a in order]
    found = [
        tradeoff.compose(tradeoff.EpsilonDelta(e), zero).epsilons[0] for e, zero in zip(first, nothing, strict=True)
    ]
    at_least(found, [pure_renyi(real(a), real(e)) for a, e in zip(order, first, strict=True)])
    # What a ledger has added up, in decimals or in squares.
    given = {"path": tmp_path / "x", "dataset": "x", "sha256": "0" * 64, "neighbouring": "zero_out", "epsilon": 1.0}
    books = {name: Ledger(accountant=name, delta=1e-6, **given) for name in ("basic", "gdp", "zcdp")}
    pure = [tuple(tradeoff.EpsilonDelta(x, min(x, 1e-9)) for x in row) for row in rows]
    sums = [books["basic"]._total(row) for row in pure]
    decimals = [sum(Fraction(repr(x)) for x in row) for row in rows]
    for total, true in zip(sums, decimals, strict=True):
        assert true <= Fraction(repr(total.epsilon)) <= true * (1 + Fraction(1, 10**15))
    squares = [books["gdp"]._total([tradeoff.Gaussian(x) for x in row]).mu for row in rows]
    at_least(squares, roots)
    halves = [books["zcdp"]._total([tradeoff.Gaussian(x) for x in row]).rho for row in rows]
    for total, row in zip(halves, exact, strict=True):
        true = sum(x * x for x in row) / 2
        assert true <= Fraction(total) <= true * (1 + Fraction(1, 10**15))


def pure_renyi(order, epsilon):
    """Renyi's divergence of binary randomised response."""
    u, q = (order - 1) * epsilon, 1 / (1 + mp.exp(epsilon))
    if u > 1:
        return (u + mp.log1p(q * mp.expm1(-2 * u))) / (order - 1)
    return mp.log1p(mp.tanh(epsilon / 2) * mp.sinh(u) + 2 * mp.sinh(u / 2) ** 2) / (order - 1)


def test_conversions_to_epsilon_and_delta():
    rng = np.random.default_rng(13)
    order, renyi, delta = 1 + sizes(rng, -6, 20, 300), sizes(rng, -20, 10, 300), sizes(rng, -900, -1, 300)
    for a, e, x in zip(order, renyi, delta, strict=True):
        found = accounting.epsilon_of_rdp([a, 2 * a], [e, 2 * e], x)
        # dp-accounting's: proposition 12 of Canonne, Kamath & Steinke, or 0 where Pinsker's inequality has it.
        assert min(renyi_delta(real(b), real(b / a * e), real(found)) for b in (a, 2 * a)) <= x or found == 0
        rho = accounting.epsilon_of_zcdp(e, x)
        assert zcdp_delta(real(e), real(rho)) <= x
        assert rho == 0 or zcdp_delta(real(e), real(rho * (1 - 1e-6))) >= x * (1 - mp.mpf("1e-8"))


def binomial_tail(k, n, p):
    """P[B >= k] of a binomial distribution."""
    q, term, total = 1 - p, mp.mpf(0), mp.mpf(0)
    term = mp.binomial(n, k) * p**k * q ** (n - k)
    for j in range(k, n + 1):
        total += term
        if j < n:
            term *= p / q * (n - j) / (j + 1)
    return total


def test_intervals_of_shares_and_what_they_refute():
    rng = np.random.default_rng(14)
    n = [int(x) + 1 for x in sizes(rng, 0, 6, 500)]
    k = [int(rng.integers(0, m + 1)) for m in n]
    tail = np.minimum(sizes(rng, -60, -1, 500), 0.499)
    for m, hits, share in zip(n, k, tail.tolist(), strict=True):
        low, high = (float(f(hits, m, share)) for f in (audit_statistics.binomial_low, audit_statistics.binomial_high))
        if hits:
            assert binomial_tail(hits, m, real(low)) <= share <= binomial_tail(hits, m, real(low * (1 + 1e-6)))
        else:
            assert low == 0
        if hits < m:
            assert 1 - binomial_tail(hits + 1, m, real(high)) <= share * (1 + mp.mpf(10) ** -40)
        else:
            assert high == 1
        # Guesses of independent fair coins under pure privacy.
        epsilon = float(share * 4)
        right = 1 / (1 + mp.exp(-real(epsilon)))
        found = one_run.one_run_p_value(m, m, hits, epsilon=epsilon, delta=0.0)
        at_least([found], [capped(binomial_tail(hits, m, right))])
        one = auditing.success_lower_bound(hits, m, confidence=0.95)
        assert one == 0 or binomial_tail(hits, m, real(one)) <= real(1 - 0.95)


HUGE = 10**400

CALLS = {
    "Gaussian": (tradeoff.Gaussian, (1.0,)),
    "EpsilonDelta": (tradeoff.EpsilonDelta, (1.0, 0.1)),
    "Laplace": (tradeoff.Laplace, (1.0,)),
    "RandomizedResponse": (tradeoff.RandomizedResponse, (0.6, 3)),
    "RDP": (tradeoff.RDP, (2.0, 1.0)),
    "ZCDP": (tradeoff.ZCDP, (1.0,)),
    "power": (tradeoff.Gaussian(1.0).power, (0.1,)),
    "log_power": (tradeoff.ZCDP(1.0).log_power, (-1.0,)),
    "delta_at": (tradeoff.Gaussian(1.0).delta_at, (0.1,)),
    "epsilon_at": (tradeoff.Gaussian(1.0).epsilon_at, (0.1,)),
    "mu_of": (gdp.mu_of, (1.0, 3, "zero_out")),
    "delta_of": (gdp.delta_of, (1.0, 1.0)),
    "epsilon_of": (gdp.epsilon_of, (1.0, 0.1)),
    "noise_multiplier_for": (gdp.noise_multiplier_for, (1.0, 0.1, 3, "zero_out")),
    "from_tradeoff": (lambda k, n: rero.from_tradeoff(k, tradeoff.Gaussian(1.0), n_targets=n), (0.1, 3)),
    "from_rdp": (rero.from_rdp, (0.1, 2.0, 1.0)),
    "from_pure_dp": (rero.from_pure_dp, (0.1, 1.0)),
    "from_zcdp": (rero.from_zcdp, (0.1, 1.0)),
    "uniform_prior": (lambda h, d, e, r: rero.uniform_prior(h, d, epsilon=e, radius=r).gamma, (0.1, 3, 1.0, 2.0)),
    "gaussian_prior": (lambda h, d, s, r: rero.gaussian_prior(h, d, s, rho=r).gamma, (0.1, 3, 1.0, 2.0)),
    "to_dp": (rero.to_dp, (0.9, 0.3)),
    "kappa_uniform_ball": (lambda h, d, r: prior.kappa_uniform_ball(h, d, radius=r), (0.1, 3, 1.0)),
    "kappa_gaussian": (prior.kappa_gaussian, (0.1, 3, 1.0)),
    "kappa_discrete": (prior.kappa_discrete, (3,)),
    "kappa_exact_match": (prior.kappa_exact_match, ([0.5, 0.5],)),
    "kappa_all": (prior.kappa_all, (0.1, 3)),
    "kappa_any": (prior.kappa_any, (0.1, 3)),
    "largest_mu": (rero.largest_mu, (0.1, 0.3)),
    "largest_epsilon": (rero.largest_epsilon, (0.1, 0.3)),
    "largest_rho": (rero.largest_rho, (0.1, 0.3)),
    "success_of_mu": (rero.success_of_mu, (0.1, 0.3)),
    "smallest_noise": (
        lambda k, g, n, r: rero.smallest_noise_multiplier(k, g, n, neighbouring=r),
        (0.1, 0.3, 3, "zero_out"),
    ),
    "most_steps": (lambda k, g, s, r: rero.most_steps(k, g, s, neighbouring=r), (0.1, 0.3, 3.0, "zero_out")),
    "entropy_gaussian": (mse.entropy_gaussian, (3, 1.0)),
    "entropy_uniform_ball": (mse.entropy_uniform_ball, (3, 1.0)),
    "information_of": (lambda mu: mse.information_of(tradeoff.Gaussian(mu)), (1.0,)),
    "mse_from_entropy": (mse.mse_from_entropy, (1.0, 3, 1.0)),
    "mse_from_prior": (lambda size: mse.mse_from_prior(np.tanh, tradeoff.Gaussian(1.0), size), (1.0,)),
    "mse_without_prior": (lambda s, d, noise: mse.mse_without_prior(s, d=d, noise=noise), (1.0, 3, "gaussian")),
    "dp_gd": (lambda s, n, r: accounting.dp_gd(s, n, neighbouring=r).curve.mu, (1.0, 3, "zero_out")),
    "output_perturbation": (
        lambda s, b, noise: accounting.output_perturbation(s, b, noise=noise, neighbouring="zero_out").curve.mu,
        (1.0, 2.0, "laplace"),
    ),
    "sensitivity_of_erm": (
        lambda a, b, n, r: accounting.sensitivity_of_erm(a, b, n, neighbouring=r),
        (1.0, 2.0, 3, "zero_out"),
    ),
    "calibrate_laplace": (accounting.calibrate_laplace, (1.0, 2.0)),
    "calibrate_gaussian": (accounting.calibrate_gaussian, (0.5, 0.1, 2.0)),
    "classical": (lambda *row: accounting.calibrate_gaussian(*row, method="classical"), (0.5, 0.1, 2.0)),
    "naive_composition": (accounting.naive_composition, ([0.1, 0.2], [0.1, 0.1])),
    "advanced_composition": (accounting.advanced_composition, (0.1, 0.1, 3, 0.1)),
    "rdp_of_gaussian": (
        lambda s, a, n, r: accounting.rdp_of_gaussian(s, a, steps=n, neighbouring=r),
        (1.0, [2.0], 3, "zero_out"),
    ),
    "epsilon_of_zcdp": (accounting.epsilon_of_zcdp, (0.1, 0.1)),
    "epsilon_of_rdp": (accounting.epsilon_of_rdp, ([2.0], [0.1], 0.1)),
    "p_value": (lambda m, g, c, e, d: one_run.one_run_p_value(m, g, c, epsilon=e, delta=d), (9, 8, 7, 1.0, 0.1)),
    "success_lower_bound": (auditing.success_lower_bound, (3, 5)),
    "mu_from_reconstruction": (auditing.mu_from_reconstruction, (3, 5, 0.1)),
    "epsilon_from_mu": (lambda mu, delta: auditing.epsilon_from_mu(mu, delta=delta), (1.0, 0.1)),
}

BAD = (None, "a", "", math.nan, math.inf, -math.inf, -1, 0, 1e308, -1e308, 5e-324, HUGE, 1j, True, [], {}, object())
BAD = (*BAD, [[1.0]], np.ones((2, 0)), np.array(["a"]), np.array([None]), Fraction(1, 3), b"1")


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_argument_is_a_value_error_and_no_number(name):
    function, arguments = CALLS[name]
    assert_is_number(function(*arguments))
    for i, bad in itertools.product(range(len(arguments)), BAD):
        given = [*arguments[:i], bad, *arguments[i + 1 :]]
        try:
            found = function(*given)
        except ValueError:
            continue
        assert_is_number(found)


def assert_is_number(found):
    if isinstance(found, tradeoff.TradeOff):
        found = found.power([0.0, 1e-300, 0.3, 1.0])
    assert not np.isnan(np.asarray(found, np.float64)).any()


CLOSED = {
    prior: "kappa_uniform_ball log_kappa_uniform_ball kappa_gaussian log_kappa_gaussian kappa_discrete "
    "kappa_exact_match kappa_all kappa_any",
    rero: "from_tradeoff from_rdp from_pure_dp from_zcdp uniform_prior gaussian_prior to_dp largest_mu "
    "largest_epsilon largest_rho smallest_noise_multiplier most_steps success_of_mu information_of mse_from_entropy "
    "mse_without_prior",
    tradeoff: "Gaussian EpsilonDelta Laplace RandomizedResponse RDP ZCDP compose",
    gdp: "mu_of delta_of epsilon_of noise_multiplier_for",
    mse: "entropy_gaussian entropy_uniform_ball information_of mse_from_entropy mse_without_prior",
    accounting: "dp_gd dp_sgd_shuffled output_perturbation sensitivity_of_erm calibrate_laplace calibrate_gaussian "
    "naive_composition advanced_composition rdp_of_gaussian epsilon_of_zcdp epsilon_of_rdp",
}
"""What is held against sixty digits above, by module."""

OTHERS = {
    prior: "kappa_empirical euclidean EmpiricalKappa check_eta",
    rero: "Bound Estimate Pair SampledGaussianPair monte_carlo mse_from_prior DPGuarantee check_kappa",
    tradeoff: "DIRECTIONS RELATIONS Minimum Numeric TradeOff from_event minimum subsampled_gaussian symmetrized",
    gdp: "epsilon_at check_positive single_positive log_power log_delta",
    mse: "mse_from_prior",
    accounting: "Guarantee dp_sgd calibrate_dp_gd calibrate_dp_sgd calibrate_steps epsilon_of_event",
}
"""The others: composed, sampled, simulated or of samples, held against attacks in the tests of their modules."""


@pytest.mark.parametrize("module", CLOSED, ids=lambda module: module.__name__)
def test_every_closed_form_is_held_against_sixty_digits(module):
    own = {
        name for name, it in vars(module).items() if getattr(it, "__module__", "") == module.__name__ and name[0] != "_"
    }
    names = set(getattr(module, "__all__", ())) | own
    assert names == set(CLOSED[module].split()) | set(OTHERS[module].split())

"""Mechanisms: guarantees in exact arithmetic, calibration against Balle & Wang's equation, noise against its law."""

import functools
import math
import random
import sys
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats
from dp_accounting.pld import privacy_loss_mechanism
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drjax.bounds import tradeoff
from drjax.bounds.gdp import SENSITIVITY, delta_of
from drjax.bounds.ledger import BudgetExceeded, Ledger, fingerprint
from drjax.defenses import mechanisms
from drjax.defenses.exact_noise import discrete_gaussian, discrete_laplace, to_steps
from drjax.defenses.mechanisms import Gaussian, Laplace, clip_l1, clip_l2

ALPHA = 1e-4
"""Level of the tests of distributions; their keys and bits are fixed."""

ANY = {"neighbouring": "zero_out", "sensitivity": 1.0}
often = functools.partial(settings, derandomize=True)

sizes = st.floats(1e-3, 1e3)
vectors = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-100, 100), min_size=n, max_size=n), st.lists(st.floats(-1, 1), min_size=n, max_size=n)
    )
)


def neighbours(pair, sensitivity, norm):
    """Two vectors of float64 whose exact distance is at most the sensitivity, and mostly nearly that."""
    first, direction = map(np.array, pair)
    length = norm(direction)
    assume(length > 1e-3)
    second = first + direction * (float(sensitivity) / length * (1 - 1e-12))
    return first, second, [abs(Fraction(a) - Fraction(b)) for a, b in zip(first, second, strict=True)]


def steps_of(pair, plan):
    return [[int(step) for step in to_steps(vector, plan.grid)] for vector in pair]


@often(max_examples=150)
@given(pair=vectors, epsilon=sizes, sensitivity=sizes, coarse=st.one_of(st.none(), st.integers(-8, 12)))
def test_laplace_release_keeps_its_pure_guarantee_exactly(pair, epsilon, sensitivity, coarse):
    mechanism = Laplace.from_epsilon(epsilon, neighbouring="replace_one", sensitivity=sensitivity)
    first, second, gaps = neighbours(pair, sensitivity, lambda v: np.abs(v).sum())
    assume(sum(gaps) <= Fraction(sensitivity))
    plan = mechanism.grid_noise(len(first), grid=None if coarse is None else 2.0**coarse)
    a, b = steps_of((first, second), plan)
    # The largest log ratio of the products of tanh(1 / 2t) exp(-|y - a| / t) over all y: it is reached at y = a.
    loss = Fraction(sum(abs(p - q) for p, q in zip(a, b, strict=True)), plan.noise)
    assert loss <= Fraction(mechanism.epsilon) <= Fraction(epsilon)


def test_laplace_release_ratio_of_exact_probabilities_is_within_epsilon():
    mechanism = Laplace.from_epsilon(0.7, neighbouring="add_or_remove", sensitivity=1.0)
    plan = mechanism.grid_noise(1, grid=0.25)
    # Values one apart that round to five steps apart, half to even: more than the four steps of the sensitivity.
    a, b = (int(step[0]) for step in steps_of(([0.125], [1.125 + 2**-40]), plan))
    assert b - a == 5 == plan.sensitivity
    with mpmath.workdps(40):
        scale = mpmath.mpf(plan.noise)
        y = range(-200, 200)
        p, q = ([mpmath.tanh(1 / (2 * scale)) * mpmath.exp(-abs(k - c) / scale) for k in y] for c in (a, b))
        worst = max(max(mpmath.log(s / t), mpmath.log(t / s)) for s, t in zip(p, q, strict=True))
        assert worst <= mpmath.mpf(0.7)
        # Noise that ignores the rounding would break the guarantee.
        assert worst * scale / math.ceil(4 / 0.7) > mpmath.mpf(0.7)


@often(max_examples=150)
@given(pair=vectors, mu=sizes, sensitivity=sizes, coarse=st.one_of(st.none(), st.integers(-8, 12)))
def test_gaussian_release_keeps_its_zcdp_guarantee_exactly(pair, mu, sensitivity, coarse):
    mechanism = Gaussian.from_mu(mu, neighbouring="replace_one", sensitivity=sensitivity)
    first, second, gaps = neighbours(pair, sensitivity, np.linalg.norm)
    assume(sum(gap**2 for gap in gaps) <= Fraction(sensitivity) ** 2)
    plan = mechanism.grid_noise(len(first), grid=None if coarse is None else 2.0**coarse)
    a, b = steps_of((first, second), plan)
    rho = Fraction(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)), 2 * plan.noise)
    claimed = mechanism.release(first, grid=plan.grid).curve.rho
    assert rho <= Fraction(claimed) <= Fraction(mechanism.mu) ** 2 / 2 * (1 + Fraction(1, 2**50))
    assert mechanism.mu <= mu


def test_renyi_divergence_of_the_discrete_gaussian_is_within_the_zcdp_of_its_release():
    mechanism = Gaussian.from_mu(0.8, **ANY)
    plan = mechanism.grid_noise(1, grid=0.5, on_grid=True)
    rho, shift = mechanism.release(1.0, grid=0.5, on_grid=True).curve.rho, math.isqrt(plan.sensitivity)
    assert shift == 2
    with mpmath.workdps(40):
        weight = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * plan.noise)) for k in range(-120, 121)]
        p = [w / sum(weight) for w in weight]
        for order in (1.5, 2, 7, 30):
            total = sum(s**order * t ** (1 - order) for s, t in zip(p[shift:], p[:-shift], strict=True))
            renyi = mpmath.log(total) / (order - 1)
            assert order * rho * 0.89 < renyi <= order * rho  # sigma2 was rounded up from 6.25 to 7


def test_a_value_on_the_grid_needs_no_more_noise_than_its_whole_distance():
    assert Laplace(neighbouring="zero_out", sensitivity=1.9, scale=3.0).grid_noise(50, grid=0.5, on_grid=True)[1:] == (
        3,
        math.ceil(Fraction(3) / (Fraction(1.9) / 3)),
    )
    # In Euclidean distance 1.9 is 3.8 steps, so at most 14 whole ones squared.
    assert Gaussian(neighbouring="zero_out", sensitivity=1.9, scale=3.0).grid_noise(50, grid=0.5, on_grid=True)[1] == 14
    # Off the grid 1.9 is (3.8 + sqrt(50))^2 = 118.2 steps squared, with the mixed term rounded up.
    assert Gaussian(neighbouring="zero_out", sensitivity=1.9, scale=3.0).grid_noise(50, grid=0.5)[1] in (118, 119)


@pytest.mark.parametrize("mechanism", [Laplace(scale=2.0, **ANY), Gaussian(scale=2.0, **ANY)])
@pytest.mark.parametrize("n", [1, 1000, 10**6])
def test_the_default_grid_costs_little_noise(mechanism, n):
    plan = mechanism.grid_noise(n)
    scale = plan.noise if isinstance(mechanism, Laplace) else math.sqrt(plan.noise)
    assert 2.0 < scale * plan.grid < 2.0 * (1 + 2**-18)
    assert math.frexp(plan.grid)[0] == 0.5


@pytest.mark.parametrize(
    ("mechanism", "name", "sampler"),
    [
        (Laplace(scale=2.0, **ANY), "discrete_laplace", discrete_laplace),
        (Gaussian(scale=2.0, **ANY), "discrete_gaussian", discrete_gaussian),
    ],
)
def test_a_release_is_the_rounded_value_plus_the_planned_noise(monkeypatch, mechanism, name, sampler):
    asked = []

    def recorded(noise, shape):
        asked.append(noise)
        return sampler(noise, shape, bits=random.Random(0).randbytes)

    monkeypatch.setattr(mechanisms, name, recorded)
    value = np.random.default_rng(1).normal(size=(40, 50)) * 10
    released = mechanism.release(value)
    plan = mechanism.grid_noise(value.size)
    assert asked == [plan.noise]
    noise = recorded(plan.noise, value.shape) * plan.grid
    np.testing.assert_array_equal(released.value, np.rint(value / plan.grid) * plan.grid + noise)
    assert released.grid == plan.grid
    law = scipy.stats.laplace if name == "discrete_laplace" else scipy.stats.norm
    # Steps of 2^-20 of the scale are not seen by 2,000 samples.
    assert scipy.stats.kstest((released.value - value).ravel(), law(scale=released.noise_scale).cdf).pvalue > ALPHA
    assert scipy.stats.kstest((released.value - value).ravel(), law(scale=2.6).cdf).pvalue < ALPHA


def test_what_a_release_says_of_itself():
    laplace = Laplace(neighbouring="replace_one", sensitivity=3.0, scale=2.0).release(7)
    assert laplace.curve == tradeoff.EpsilonDelta(1.5, neighbouring="replace_one")
    assert "1.5-DP" in laplace.note
    gaussian = Gaussian(neighbouring="replace_one", sensitivity=3.0, scale=2.0).release(np.float32([7, 8]))
    assert gaussian.curve == tradeoff.ZCDP(1.125, neighbouring="replace_one")
    assert "not mu-GDP" in gaussian.note
    for released, shape in ((laplace, ()), (gaussian, (2,))):
        assert isinstance(released.value, np.ndarray)
        assert released.value.shape == shape
        assert released.value.dtype == np.float64
        np.testing.assert_array_equal(released.value, np.rint(released.value / released.grid) * released.grid)


def test_no_release_repeats_the_noise_of_another():
    mechanism = Laplace(scale=1.0, **ANY)
    # Equal in all 30 numbers only with a probability below 2^-500.
    assert (mechanism.release(np.zeros(30)).value != mechanism.release(np.zeros(30)).value).any()


def test_huge_values_are_released_without_overflow():
    value = np.array([1e300, -1.7e308, 1e-320, 2.0**62])
    released = Laplace(scale=1.0, **ANY).release(value, grid=2.0**-10).value
    assert np.isfinite(released).all()
    assert released[0] == 1e300  # noise of a few units is far below the last digit
    assert abs(released[2]) < 700  # beyond that with a probability of exp(-700)
    assert abs(released[3] - 2.0**62) < 2000


def bw_delta(epsilon, sensitivity, scale):
    """Equation 6 of Balle & Wang (2018), in 60 digits."""
    with mpmath.workdps(60):
        epsilon, a = mpmath.mpf(epsilon), mpmath.mpf(sensitivity) / mpmath.mpf(scale)
        return mpmath.ncdf(a / 2 - epsilon / a) - mpmath.exp(epsilon) * mpmath.ncdf(-a / 2 - epsilon / a)


@often(max_examples=60)
@given(epsilon=st.floats(0.01, 20), log_delta=st.floats(-12, -0.1), sensitivity=sizes)
def test_analytic_noise_solves_the_equation_of_balle_and_wang(epsilon, log_delta, sensitivity):
    delta = 10**log_delta
    scale = Gaussian.analytic(epsilon, delta, neighbouring="zero_out", sensitivity=sensitivity).scale
    # Rounded up in the eleventh digit.
    assert bw_delta(epsilon, sensitivity, scale) <= delta < bw_delta(epsilon, sensitivity, scale * (1 - 1e-9))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-9)])
@pytest.mark.parametrize("neighbouring", sorted(SENSITIVITY))
def test_analytic_noise_agrees_with_dp_accounting_whatever_the_relation(epsilon, delta, neighbouring):
    mechanism = Gaussian.analytic(epsilon, delta, neighbouring=neighbouring, sensitivity=3.0)
    theirs = privacy_loss_mechanism.GaussianPrivacyLoss(mechanism.scale, sensitivity=3.0)
    assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)  # their float64 cancels digits
    assert mechanism.curve.neighbouring == neighbouring
    assert mechanism.curve.delta_at(epsilon) == pytest.approx(delta, rel=1e-8)


@often(max_examples=60)
@given(epsilon=st.floats(1e-3, 0.999), delta=st.floats(1e-12, 0.999))
def test_classical_noise_is_the_formula_and_more_than_needed(epsilon, delta):
    mechanism = Gaussian.classical(epsilon, delta, neighbouring="zero_out", sensitivity=2.0)
    assert mechanism.scale == pytest.approx(2.0 * math.sqrt(2 * math.log(1.25 / delta)) / epsilon, rel=1e-15)
    assert delta_of(mechanism.mu, epsilon) < delta
    assert mechanism.scale > Gaussian.analytic(epsilon, delta, neighbouring="zero_out", sensitivity=2.0).scale


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-9)])
def test_for_release_has_the_curve_that_was_asked_for_and_no_smaller_noise_has(epsilon, delta):
    mechanism = Gaussian.for_release(epsilon, delta, neighbouring="replace_one", sensitivity=2.0)
    assert mechanism.release(np.zeros(3)).curve.delta_at(epsilon) <= delta
    less = Gaussian(neighbouring="replace_one", sensitivity=2.0, scale=mechanism.scale * (1 - 1e-9))
    assert less.release(np.zeros(3)).curve.delta_at(epsilon) > delta
    assert mechanism.scale > Gaussian.analytic(epsilon, delta, neighbouring="replace_one", sensitivity=2.0).scale


def test_a_ledger_pays_for_the_release_that_its_budget_was_made_for(tmp_path):
    named, budget = {"neighbouring": "replace_one", "sensitivity": 2.0}, {"epsilon": 0.9, "delta": 1e-7}
    releases = {
        "zcdp": Gaussian.for_release(**budget, **named).release(np.ones(3)).curve,
        "gdp": Gaussian.analytic(**budget, **named).curve,
        "basic": Laplace.from_epsilon(0.9, **named).release(np.ones(3)).curve,
    }
    for accountant, curve in releases.items():
        book = Ledger.create(
            tmp_path / accountant,
            dataset="ones",
            sha256=fingerprint(np.ones(3)),
            neighbouring="replace_one",
            accountant=accountant,
            **budget,
        )
        book.spend(curve, "all of the budget")
        with pytest.raises(BudgetExceeded):
            book.spend(curve, "once more")


@often(max_examples=200)
@given(size=sizes, sensitivity=sizes)
def test_noise_is_never_less_than_was_asked_for(size, sensitivity):
    for mechanism, found in (
        (laplace := Laplace.from_epsilon(size, neighbouring="zero_out", sensitivity=sensitivity), laplace.epsilon),
        (gaussian := Gaussian.from_mu(size, neighbouring="zero_out", sensitivity=sensitivity), gaussian.mu),
    ):
        assert Fraction(sensitivity) / Fraction(mechanism.scale) <= Fraction(found) <= Fraction(size)
        assert found == pytest.approx(size, rel=1e-15)


def test_curves_are_those_of_the_noise():
    assert Laplace(neighbouring="add_or_remove", sensitivity=3, scale=2).curve == tradeoff.Laplace(
        1.5, neighbouring="add_or_remove"
    )
    assert Gaussian(neighbouring="replace_one", sensitivity=3, scale=2).curve == tradeoff.Gaussian(
        1.5, neighbouring="replace_one"
    )


@pytest.mark.parametrize("shifts", [(0.5, 0.5), (0.1, 0.9), (1.0, 2.0), (0.3, 0.3, 0.4)])
def test_a_distance_spread_over_coordinates_is_no_easier_to_see_than_in_one(shifts):
    one = tradeoff.Laplace(sum(shifts))
    spread = tradeoff.compose(*(tradeoff.Laplace(shift) for shift in shifts))
    for epsilon in np.linspace(0, sum(shifts), 9):
        # Losses are rounded up to steps of 1e-4 in each of the factors.
        assert spread.delta_at(epsilon) <= one.delta_at(epsilon) + 2e-4
    assert spread.delta_at(0.5 * sum(shifts)) < 0.95 * one.delta_at(0.5 * sum(shifts))


@pytest.mark.parametrize("neighbouring", sorted(SENSITIVITY))
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_the_curve_of_the_event_is_never_below_the_own_one(kind, neighbouring):
    mechanism = kind(neighbouring=neighbouring, sensitivity=1.0, scale=1.3)
    own, theirs = mechanism.curve, tradeoff.from_event(mechanism.dp_event(), neighbouring=neighbouring)
    for epsilon in (0.0, 0.3, 0.6):
        assert own.delta_at(epsilon) <= theirs.delta_at(epsilon) * (1 + 1e-9)
    if isinstance(theirs, tradeoff.Numeric):
        assert theirs.delta_at(0.3) == pytest.approx(own.delta_at(0.3), rel=1e-3)  # losses in steps of 1e-4


def test_an_event_without_dp_accounting_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for kind in (Laplace, Gaussian):
        with pytest.raises(ImportError, match=r"pip install 'drjax\[dp\]'"):
            kind(scale=1.0, **ANY).dp_event()


LAWS = [(Laplace, scipy.stats.laplace), (Gaussian, scipy.stats.norm)]


@pytest.mark.parametrize(("kind", "law"), LAWS)
def test_sample_has_the_law_of_the_mechanism(kind, law, dtype):
    value = jnp.full(20_000, 3.0, dtype)
    noisy = kind(scale=1.7, **ANY).sample(jax.random.key(5), value)
    assert noisy.dtype == dtype
    noise = np.asarray(noisy, np.float64) - 3.0
    assert scipy.stats.kstest(noise, law(scale=1.7).cdf).pvalue > ALPHA
    assert scipy.stats.kstest(noise, law(scale=1.9).cdf).pvalue < ALPHA


@pytest.mark.parametrize(("kind", "law"), LAWS)
def test_sample_runs_under_jit_and_vmap_and_a_sweep_of_scales_traces_once(kind, law):
    del law

    @jax.jit
    @chex.assert_max_traces(n=1)
    def once(mechanism, key, value):
        return mechanism.sample(key, value)

    keys, value = jax.random.split(jax.random.key(0), 4), np.arange(6, dtype=np.float32)
    for scale in (1.0, 2.5):
        mechanism = kind(scale=scale, **ANY)
        # A fused program rounds otherwise, by some parts in 1e7 of values up to 10.
        plain = np.stack([mechanism.sample(key, value) for key in keys])
        np.testing.assert_allclose([once(mechanism, key, value) for key in keys], plain, atol=1e-5)
        np.testing.assert_allclose(jax.vmap(lambda k, m=mechanism: m.sample(k, value))(keys), plain, atol=1e-5)
    for dtype, found in ((np.int32, np.float32), (np.float16, np.float16)):
        chex.assert_type(mechanism.sample(keys[0], np.arange(3, dtype=dtype)), found)
    with pytest.raises(ValueError, match="key must be a single key"):
        mechanism.sample(0, value)


@pytest.mark.parametrize(("clip", "power"), [(clip_l1, 1), (clip_l2, 2)])
@pytest.mark.parametrize("grid", [None, 2.0**-20])
def test_clipped_rows_are_within_the_bound_exactly(clip, power, grid):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 7)) * np.exp(rng.uniform(-6, 6, size=(60, 1)))
    rows[0] *= 1e300
    rows[1] *= 1e-300
    rows[2] = 0
    rows[3] = np.eye(7)[0]
    clipped = clip(rows, 1.0, grid=grid)
    for row, before in zip(clipped, rows, strict=True):
        norm = sum(abs(Fraction(entry)) ** power for entry in row)
        assert norm <= 1
        if sum(abs(Fraction(entry)) ** power for entry in before) > 1:
            assert norm > 1 - Fraction(1, 2**14 if grid else 2**46)
            cosine = row @ before / abs(before).max() / np.linalg.norm(row) / np.linalg.norm(before / abs(before).max())
            assert cosine > 1 - 1e-10
        elif grid is None and norm < Fraction(999, 1000):
            np.testing.assert_array_equal(row, before)
    if grid:
        assert (clipped == np.rint(clipped / grid) * grid).all()
        # Sums on the grid do not round, in whatever order.
        assert clipped.sum(axis=0).tolist() == [float(sum(map(Fraction, column))) for column in clipped.T]
        noisy = Gaussian(scale=1.0, **ANY).release(clipped.sum(axis=0), grid=grid, on_grid=True)
        assert noisy.value.shape == (7,)


@pytest.mark.parametrize("clip", [clip_l1, clip_l2])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_row_that_is_not_finite_is_clipped_to_nothing(clip, bad):
    rows = np.array([[0.3, 0.1], [bad, 1.0], [0.2, 3e38], [1e308, -1e308]])
    found = clip(rows, 1.0)
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_array_equal(found[[0, 2, 3]], clip(rows[[0, 2, 3]], 1.0))
    assert (np.linalg.norm(found, axis=1) <= 1).all()


BAD = [0, -1.0, math.nan, math.inf, "1", True, np.ones(2)]


@pytest.mark.parametrize("value", BAD)
def test_numbers_out_of_range_are_refused(value):
    for kind in (Laplace, Gaussian):
        with pytest.raises(ValueError, match="sensitivity must be"):
            kind(neighbouring="zero_out", sensitivity=value, scale=1.0)
    for make, name in (
        (lambda v: Laplace.from_epsilon(v, **ANY), "epsilon"),
        (lambda v: Gaussian.from_mu(v, **ANY), "mu"),
        (lambda v: Gaussian.analytic(v, 1e-6, **ANY), "epsilon"),
        (lambda v: Gaussian.for_release(v, 1e-6, **ANY), "epsilon"),
        (lambda v: Gaussian.classical(v, 1e-6, **ANY), "epsilon"),
        (lambda v: Gaussian.analytic(1.0, v, **ANY), "delta"),
        (lambda v: Gaussian.for_release(1.0, v, **ANY), "delta"),
        (lambda v: Gaussian.classical(0.5, v, **ANY), "delta"),
        (lambda v: clip_l1(np.ones((2, 2)), v), "bound"),
        (lambda v: clip_l2(np.ones((2, 2)), v), "bound"),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            make(value)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_bad_scales_relations_and_values_are_refused(kind):
    for scale in (0, -1.0, math.nan, math.inf, "1", True):
        with pytest.raises(ValueError, match="scale must be a finite number > 0, got"):
            kind(scale=scale, **ANY)
    with pytest.raises(ValueError, match="neighbouring must be one of add_or_remove, replace_one, zero_out; got 'x'"):
        kind(neighbouring="x", sensitivity=1.0, scale=1.0)
    with pytest.raises(TypeError, match="neighbouring"):
        kind(sensitivity=1.0, scale=1.0)
    mechanism = kind(scale=1.0, **ANY)
    for value, text in (
        ([1.0, math.nan], "value must be finite"),
        ([math.inf], "value must be finite"),
        ([], "value must have an entry"),
        (["1"], "value must be real numbers"),
        ([1j], "value must be real numbers"),
    ):
        with pytest.raises(ValueError, match=text):
            mechanism.release(value)
    with pytest.raises(ValueError, match="scale must be a single number"):
        kind(scale=np.ones(2), **ANY).release(1.0)
    with pytest.raises(ValueError, match="sensitivity / scale must be below the largest float64"):
        kind(neighbouring="zero_out", sensitivity=1e300, scale=1e-300).curve  # noqa: B018 (a property that raises)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_bad_grids_are_refused(kind):
    mechanism = kind(scale=1.0, **ANY)
    for grid in (0.3, 0.0, -1.0, math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match="grid must be"):
            mechanism.release(1.0, grid=grid)
    with pytest.raises(ValueError, match="grid must be given"):
        mechanism.release(1.0, on_grid=True)
    with pytest.raises(ValueError, match="grid must be at most the sensitivity"):
        mechanism.release(4.0, grid=2.0, on_grid=True)
    with pytest.raises(ValueError, match="grid must be coarser"):
        mechanism.release(1.0, grid=2.0**-60)
    with pytest.raises(ValueError, match="value must be on the grid"):
        mechanism.release(0.3, grid=0.25, on_grid=True)
    with pytest.raises(ValueError, match="n must be an integer >= 1"):
        mechanism.grid_noise(0)


def test_classical_refuses_an_epsilon_of_one_and_clipping_what_it_cannot_clip():
    with pytest.raises(ValueError, match=r"epsilon must be in \(0, 1\) for the classical formula, got 1.0"):
        Gaussian.classical(1.0, 1e-6, **ANY)
    for clip in (clip_l1, clip_l2):
        with pytest.raises(ValueError, match="rows must be numeric"):
            clip([["a", "b"]], 1.0)
        with pytest.raises(ValueError, match="grid must be a power of two"):
            clip([[1.0]], 1.0, grid=0.3)
        with pytest.raises(ValueError, match=r"grid must be at least bound / 2\*\*53"):
            clip([[1.0]], 1.0, grid=2.0**-54)

"""DP-PCA: noise against its law, guarantees against an audit, releases against whole numbers, conventions of papers."""

import dataclasses
import math
import warnings
from fractions import Fraction

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from drjax.bounds import accounting, auditing, tradeoff
from drjax.bounds.ledger import Ledger, fingerprint
from drjax.core.types import Status
from drjax.defenses import dp_pca, dp_pca_components, dp_pca_laplace, dp_pca_noise, dp_pca_sensitivity, pca_utility
from drjax.defenses.dp_pca import (
    MECHANISMS,
    PAPER,
    AnalyticGauss,
    AnalyzeGauss,
    LaplaceScalar,
    LaplaceVector,
    LapPCA,
    NoisyPowerMethod,
    Wishart,
)
from drjax.defenses.exact_noise import discrete_gaussian, discrete_laplace
from drjax.dr import PCA

N, D, K = 40, 4, 2
DELTA = 1e-5
ALPHA = 1e-4
"""Level of the tests of distributions; their keys are fixed."""
RUNS, CONFIDENCE = 20_000, 0.999
"""Of each arm of an audit; a correct mechanism is refuted by one seed in a thousand, and seeds are fixed."""

LOWER, UPPER = np.array([-1.0, -0.5, 0.0, -2.0]), np.array([1.0, 2.0, 0.7, 2.0])
IN_BALL = {"n_components": K, "row_norm": 1.5}
IN_BOX = {"n_components": K, "lower": LOWER, "upper": UPPER}


def records(seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(2, 0.5, d) + 0.3


def mechanism(name, neighbouring="zero_out", noise=1.0, **fields):
    """Any by its name, at a noise in its own parameter."""
    laplace = "lap" in name
    common = IN_BOX if laplace else IN_BALL
    noise_field = {"epsilon": 1 / noise} if laplace else {"noise_multiplier": noise}
    divisor = {"divisor": float(N)} if neighbouring == "add_or_remove" else {}
    return MECHANISMS[name](neighbouring=neighbouring, **{**common, **noise_field, **divisor, **fields})


def cut(name, x):
    """Records within the bounds of `mechanism`, in NumPy."""
    if "lap" in name:
        return np.clip(x, LOWER, UPPER)
    return x * np.minimum(1, 1.5 / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30))


def relations_of(name):
    return ("zero_out", "add_or_remove") if name == "wishart" else tradeoff.RELATIONS


fit = jax.jit(lambda made, key, x: made.fit(key, x))
moment = jax.jit(lambda made, x: made.moment(x))
noisy_moments = jax.jit(jax.vmap(lambda made, key, x: made.noisy_moment(key, x), in_axes=(None, 0, None)))
"""Compiled once for all tests that share shapes and static fields."""

EVERY = [(name, relation) for name in MECHANISMS for relation in relations_of(name)]


# ---- what is computed


HUGE = [math.inf, math.nan, 3e38, 1e39, 1e308]
"""Entries of a record; 1e39 is infinite in float32, and the square of 3e38 is."""


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_record_moves_the_sum_by_more_than_the_bound(name):
    made, x = mechanism(name), records()
    without = x.copy()
    without[3] = 0
    others = N * np.asarray(moment(made, jnp.asarray(without)), np.float64)
    largest = np.maximum(-LOWER, UPPER) if "lap" in name else 1.5
    for value in HUGE:
        for entries in (slice(1, 2), slice(None)):
            with_record = without.copy()
            with_record[3, entries] = value
            changed = N * np.asarray(moment(made, jnp.asarray(with_record, jnp.float32)), np.float64) - others
            # One outer product; float32 sums of N of them.
            bound = np.sum(largest) ** 2 if "lap" in name else 1.5**2
            assert np.abs(changed).sum() <= bound * (1 + 1e-4) if "lap" in name else np.linalg.norm(changed) <= bound
            # Within ranges an infinite entry is the end of its range; nothing says where nan lies.
            if np.isnan(value) or (np.isinf(value) and made.lower is None):
                np.testing.assert_array_equal(changed, 0)


@pytest.mark.parametrize("name", ["laplace-vector", "laplace-scalar", "analytic-gauss"])
@pytest.mark.parametrize("center", [None, np.full(D, -1e308)])
def test_a_release_refuses_no_record_and_none_moves_it_by_more_than_the_bound(name, center, monkeypatch):
    for noise in ("discrete_laplace", "discrete_gaussian"):
        for module in (dp_pca, dp_pca_laplace):
            if hasattr(module, noise):
                monkeypatch.setattr(module, noise, lambda _, shape: np.zeros(shape, np.int64))
    made, x = mechanism(name, center=center), records()
    x = x if center is None else x + center
    without = x.copy()
    without[3] = 0 if center is None else center
    others = N * made.release(without).moment
    for value in (*HUGE, -math.inf):
        for entries in (slice(1, 2), slice(None)):
            with_record = x.copy()
            with_record[3, entries] = value
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                changed = N * made.release(with_record).moment - others
            bound = np.sum(np.maximum(-LOWER, UPPER)) ** 2 if "lap" in name else 1.5**2
            assert np.abs(changed).sum() <= bound + 1e-9 if "lap" in name else np.linalg.norm(changed) <= bound + 1e-9
            # Within ranges an infinite entry is the end of its range; nothing says where nan lies.
            if np.isnan(value) or (np.isinf(value) and made.lower is None):
                np.testing.assert_allclose(changed, 0, atol=1e-12)  # the same whole numbers, times a unit


@pytest.mark.parametrize("name", ["laplace-vector", "lap-pca", "noisy-power", "wishart"])
def test_without_noise_the_components_are_those_of_pca_about_a_public_centre(name):
    x = records().astype(np.float32)
    center = x.mean(axis=0)
    # More than enough room, so that nothing is cut.
    wide = {"lower": np.full(D, -50.0), "upper": np.full(D, 50.0)} if "lap" in name else {"row_norm": 50.0}
    fields = {"n_iter": 100} if name == "noisy-power" else {}
    found = fit(mechanism(name, noise=1e-9, center=center, **wide, **fields), jax.random.key(0), x)
    values, vectors = np.linalg.eigh((x - center).T @ (x - center) / N)
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:K], rtol=1e-4)
    np.testing.assert_allclose(np.abs(found.components @ vectors[:, ::-1][:, :K]), np.eye(K), atol=1e-3)
    scores = PCA(n_components=K).fit_transform(jax.random.key(0), x).coords
    np.testing.assert_allclose((x - center) @ found.components.T, scores, atol=2e-3)
    assert int(found.n_components) == K
    assert int(found.status) == Status.OK


@pytest.mark.parametrize(
    ("name", "neighbouring"), [*((name, "zero_out") for name in MECHANISMS), ("analytic-gauss", "add_or_remove")]
)
def test_records_are_centred_and_cut_and_their_sum_is_divided_by_a_public_number(name, neighbouring):
    x, center = records(), np.linspace(-1, 1, D)
    x[:9] *= 1e6
    found = moment(mechanism(name, neighbouring, center=center, divisor=None if neighbouring == "zero_out" else 7.0), x)
    rows = cut(name, x - center)
    np.testing.assert_allclose(found, rows.T @ rows / (N if neighbouring == "zero_out" else 7), rtol=1e-4, atol=1e-5)


def noises(made, m=4000, seed=0, d=D):
    """Draws (m, d, d) of the noise on the mean of N records, which are 0."""
    keys = jax.random.split(jax.random.key(seed), m)
    return np.asarray(noisy_moments(made, keys, np.zeros((N, d), np.float32)), float)


def law_of(name, i, j):
    """Distribution of the noise of an entry of the mean of N records at noise 1, from docs/dp_pca/mean.md alone."""
    m = np.maximum(-LOWER, UPPER)
    pairs = D * (D + 1) / 2
    if name == "laplace-vector":
        return scipy.stats.laplace(scale=sum(m[a] * m[b] for a in range(D) for b in range(a + 1)) / N)
    if name == "laplace-scalar":
        return scipy.stats.laplace(scale=pairs * m[i] * m[j] / N)
    if name == "lap-pca":
        return scipy.stats.laplace(scale=m.sum() ** 2 / N)
    off = math.sqrt(0.5) if name == "analytic-gauss" and i != j else 1.0
    return scipy.stats.norm(scale=off * 1.5**2 / N)


@pytest.mark.parametrize("name", ["laplace-vector", "laplace-scalar", "lap-pca", "analyze-gauss", "analytic-gauss"])
def test_noise_has_the_scale_of_the_formula_and_is_independent_between_entries(name):
    found = noises(mechanism(name), seed=1)
    for i, j in ((0, 0), (0, 1), (2, 3)):
        law = law_of(name, i, j)
        assert scipy.stats.kstest(found[:, i, j], law.cdf).pvalue > ALPHA
        assert scipy.stats.kstest(found[:, i, j] * 1.3, law.cdf).pvalue < ALPHA
    if name == "lap-pca":
        assert abs(np.corrcoef(found[:, 0, 1], found[:, 1, 0])[0, 1]) < 0.06
    else:
        # A compiler may draw an entry twice, rounded in two ways.
        np.testing.assert_allclose(found, np.swapaxes(found, 1, 2), rtol=2e-6)
    upper = found[:, *np.triu_indices(D)]
    correlation = np.corrcoef(upper.T)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 0.07  # 4.4 deviations at 4,000 draws


def test_isotropic_noise_looks_alike_in_every_basis_and_the_source_s_does_not():
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    for name, is_isotropic in (("analytic-gauss", True), ("analyze-gauss", False)):
        drawn = noises(mechanism(name))
        turned = np.einsum("ai,nij,bj->nab", q, drawn, q)
        variance = turned.var(axis=0)[*np.triu_indices(D)] / drawn.var(axis=0)[*np.triu_indices(D)]
        assert (np.abs(variance - 1).max() < 0.12) == is_isotropic


def test_wishart_noise_is_positive_semidefinite_with_the_chi_square_law_of_its_guarantee():
    made = mechanism("wishart", excess=5)
    drawn = noises(made) * N / 1.5**2
    dof = D - 1 + 5
    assert np.abs(drawn.mean(axis=0)).max() < 0.4  # its mean is taken off; deviations are up to 0.06
    whole = drawn + dof * np.eye(D)
    assert np.linalg.eigvalsh(whole).min() > -1e-3
    u = np.array([0.6, 0.0, -0.8, 0.0])
    one = 1 / np.einsum("i,nij,j->n", u, np.linalg.inv(whole), u)
    assert scipy.stats.kstest(one, scipy.stats.chi2(5).cdf).pvalue > ALPHA
    assert scipy.stats.kstest(one, scipy.stats.chi2(6).cdf).pvalue < ALPHA


def test_products_of_the_power_method_have_noise_of_its_scale_and_follow_each_other():
    made = mechanism("noisy-power", n_iter=3, n_extra=1)
    x = records()
    a = cut("noisy-power", x).T @ cut("noisy-power", x) / N
    keys = jax.random.split(jax.random.key(1), 2000)
    start, noisy = jax.jit(jax.vmap(made.products, in_axes=(0, None)))(keys, x)
    q = np.asarray(start, float)
    np.testing.assert_allclose(np.swapaxes(q, 1, 2) @ q, np.broadcast_to(np.eye(3), (2000, 3, 3)), atol=1e-5)
    for t in range(3):
        left = np.asarray(noisy[:, t], float) - a @ q
        assert scipy.stats.kstest(left[:, 1, 2], scipy.stats.norm(scale=1.5**2 / N).cdf).pvalue > ALPHA
        assert np.abs(left).max() < 6 * 1.5**2 / N
        # Signs of the columns of a QR decomposition are LAPACK's, here and there.
        q = np.linalg.qr(np.asarray(noisy[:, t]))[0].astype(float)


@pytest.mark.parametrize("name", ["laplace-scalar", "noisy-power"])
def test_fits_are_traced_once_over_a_sweep_and_mapped_as_they_are_made_one_by_one(name):
    x = records().astype(np.float32)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def traced(made, key):
        return made.fit(key, x)

    field, values = ("epsilon", [2.0, 1.0, 0.3]) if "lap" in name else ("noise_multiplier", [0.5, 1.0, 3.0])
    keys = jax.random.split(jax.random.key(2), 3)
    each = [dataclasses.replace(mechanism(name), **{field: value}) for value in (*values[:2], int(values[1]))]
    single = [traced(made, key) for made, key in zip(each, keys, strict=True)]
    each = jnp.asarray([*values[:2], values[1]])
    batch = jax.jit(jax.vmap(lambda v, key: dataclasses.replace(mechanism(name), **{field: v}).fit(key, x)))(each, keys)
    for i, one in enumerate(single):
        np.testing.assert_allclose(batch.eigenvalues[i], one.eigenvalues, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(batch.components[i], one.components, atol=2e-3)  # float32 eigenvectors


@pytest.mark.parametrize("name", ["laplace-scalar", "lap-pca", "noisy-power", "wishart"])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.usefixtures("all_platforms")
def test_fits_lower_for_accelerators(name, platform):
    x = jax.ShapeDtypeStruct((N, D), jnp.float32)
    exported = jax.export.export(jax.jit(mechanism(name).fit), platforms=[platform])(jax.random.key(0), x)
    assert platform in exported.platforms


@pytest.mark.parametrize("name", ["lap-pca", "analytic-gauss"])
def test_a_share_of_energy_is_taken_from_the_noisy_matrix(name):
    x = records()
    found = fit(mechanism(name, n_components=0.8, noise=0.01), jax.random.key(0), x)
    k = int(found.n_components)
    assert found.components.shape == (D, D)
    expected = int(pca_utility.k_for_energy(np.asarray(found.eigenvalues), 0.8))
    assert 1 <= k == expected < D
    assert (np.asarray(found.components[k:]) == 0).all()
    np.testing.assert_allclose(found.components[:k] @ found.components[:k].T, np.eye(k), atol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_lane_that_is_not_finite_says_so_and_spoils_no_other(symmetric):
    moments = np.stack([x.T @ x for x in (records(), records(1))])
    moments[0, 3, 1] = np.nan
    found = jax.jit(jax.vmap(lambda one: dp_pca_components.components_of(one, K, symmetric=symmetric)))(moments)
    assert [int(status) for status in found.status] == [Status.NON_FINITE, Status.OK]
    assert np.isnan(found.components[0]).all()
    assert np.isfinite(found.components[1]).all()


# ---- what is guaranteed


def test_replacing_a_record_costs_sqrt_2_in_gaussian_noise_and_nothing_in_laplace_noise():
    one, two = (AnalyticGauss.analytic(1.0, DELTA, neighbouring=r, **IN_BALL) for r in ("zero_out", "replace_one"))
    assert two.noise_multiplier / one.noise_multiplier == pytest.approx(math.sqrt(2), rel=1e-9)
    single = [
        NoisyPowerMethod.from_mu(1.0, neighbouring=r, n_components=1, n_iter=9) for r in ("zero_out", "replace_one")
    ]
    assert [m.noise_multiplier for m in single] == pytest.approx([3.0, 3.0])
    for kind in (LaplaceVector, LaplaceScalar, LapPCA):
        for relation in ("zero_out", "replace_one"):
            made = kind(neighbouring=relation, epsilon=0.7, **IN_BOX)
            assert made.guarantee().epsilon(0.0) == pytest.approx(0.7)


@pytest.mark.parametrize(("name", "neighbouring"), EVERY)
def test_guarantees_name_their_relation_and_events_promise_no_more(name, neighbouring):
    made = mechanism(name, neighbouring, noise=2.0, **({"excess": 20} if name == "wishart" else {}))
    guarantee = made.guarantee()
    assert guarantee.curve.neighbouring == guarantee.target_curve.neighbouring == neighbouring
    assert 0 < guarantee.epsilon(DELTA) < math.inf
    if name == "wishart":
        assert type(made.dp_event()).__name__ == "NonPrivateDpEvent"
        return
    event = tradeoff.from_event(made.dp_event(), neighbouring=neighbouring, interval=1e-3)
    if name == "laplace-scalar":
        # Composed exactly where queries shift by all of their share, from above where they may shift by twice that.
        shifts = [tradeoff.Laplace(float(shift)) for shift in made.shifts()]
        least = tradeoff.compose(*shifts, interval=1e-3).epsilon_at(DELTA)
    else:
        least = guarantee.epsilon(DELTA)
    assert event.epsilon_at(DELTA) > 0.98 * least
    if "gauss" in name and neighbouring != "replace_one":
        assert event.epsilon_at(DELTA) == pytest.approx(least, rel=1e-2)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_calibrated_noise_has_the_guarantee_that_was_asked_for(neighbouring, epsilon):
    fields = {"neighbouring": neighbouring, **IN_BALL}
    for kind, more in ((AnalyticGauss, {}), (AnalyzeGauss, {}), (NoisyPowerMethod, {"n_iter": 3})):
        tight = kind.analytic(epsilon, DELTA, **fields, **more)
        assert tight.guarantee().epsilon(DELTA) == pytest.approx(epsilon, rel=1e-6)
        published = kind.for_release(epsilon, DELTA, **fields, **more)
        zcdp = tradeoff.ZCDP(published.guarantee().curve.mu ** 2 / 2)
        assert zcdp.epsilon_at(DELTA) == pytest.approx(epsilon, rel=1e-4)
        assert published.noise_multiplier > tight.noise_multiplier
    classical = AnalyzeGauss.classical(epsilon, DELTA, **fields)
    assert classical.guarantee().epsilon(DELTA) < epsilon
    assert AnalyticGauss.from_mu(0.4, **fields).guarantee().curve.mu == pytest.approx(0.4)


def test_naive_composition_is_the_accountant_s_and_replacing_a_record_would_double_it():
    for relation, most in (("zero_out", 0.7), ("replace_one", 1.4)):
        made = LaplaceScalar(neighbouring=relation, epsilon=0.7, **IN_BOX)
        total, delta = accounting.naive_composition(made.shifts())
        assert delta == 0
        assert 0.7 * (1 - 1e-9) < total < most * (1 + 1e-9)
        assert (total > 0.75) == (relation == "replace_one")
        assert made.guarantee().epsilon(0.0) == pytest.approx(0.7)


def test_bounds_and_centres_may_be_lists():
    lists = {"lower": LOWER.tolist(), "upper": UPPER.tolist(), "center": [0.1] * D}
    made = LaplaceVector(neighbouring="zero_out", n_components=K, epsilon=1.0, **lists)
    rows = cut("laplace-vector", records() - 0.1)
    np.testing.assert_allclose(moment(made, records()), rows.T @ rows / N, rtol=1e-4, atol=1e-6)


def test_the_classical_formula_is_refused_where_it_fails():
    assert AnalyzeGauss.classical(5.0, DELTA, neighbouring="zero_out", n_components=1).guarantee().epsilon(DELTA) < 5
    with pytest.raises(ValueError, match="epsilon must be where the classical formula holds"):
        AnalyzeGauss.classical(50.0, DELTA, neighbouring="zero_out", n_components=1)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.2, 3.0, 200.0])
def test_advanced_composition_keeps_its_guarantee_with_less_noise_than_naive(neighbouring, epsilon):
    d = 12
    box = {"n_components": 2, "lower": np.full(d, -1.0), "upper": np.full(d, 1.0)}
    made = LaplaceScalar.advanced(epsilon, DELTA, d, neighbouring=neighbouring, **box)
    assert made.guarantee().epsilon(DELTA) <= epsilon
    # Noise is in inverse proportion to the pure epsilon.
    if epsilon < 1:
        assert made.epsilon > 1.5 * epsilon if neighbouring == "zero_out" else made.epsilon >= epsilon
    if epsilon > 100:
        assert made.epsilon == pytest.approx(epsilon, rel=1e-9)
    # Ranges from 0 on: an entry moves by one M_i M_j only, and replacing a record is as cheap as leaving one out.
    one_sided = {**box, "lower": np.zeros(d)}
    pair = [LaplaceScalar.advanced(epsilon, DELTA, d, neighbouring=r, **one_sided) for r in ("zero_out", neighbouring)]
    assert pair[0].epsilon == pair[1].epsilon


def worst(name, neighbouring, d):
    """Two data sets as far apart as neighbours can be, for bounds of 1."""
    x = np.zeros((2, d), np.float32)
    other = x.copy()
    x[0] = 1.0 if "lap" in name else np.eye(d)[0]
    if neighbouring == "add_or_remove":
        other = other[1:]
    if neighbouring == "replace_one" and "lap" not in name:
        other[0] = np.eye(d)[1]
    return other, x


def audit(made, claim, without, with_target, seed):
    """Scores are logarithms of likelihood ratios, in float64 and without their last digits.

    Laplace's have two values with probability > 0, of which float32 noise shows by its last bits what it was added to:
    the audit found that, which is Mironov's attack, and is why `fit` is for experiments.
    """
    arms = [
        np.asarray(noisy_moments(made, jax.random.split(jax.random.key(2 * seed + i), RUNS), x), float)
        for i, x in enumerate((without, with_target))
    ]
    divisors = [made.divisor or len(x) for x in (without, with_target)]
    means = [x.T @ x / divisor for x, divisor in zip((without, with_target), divisors, strict=True)]
    counted = (slice(None), slice(None)) if not made.SYMMETRIC else np.triu_indices(means[0].shape[0])
    # From the noise itself, whatever the mechanism says that it is.
    deviation = (arms[0] - means[0])[:, *counted].std(axis=0)
    scores = []
    for arm in arms:
        z, shift = (arm - means[0])[:, *counted] / deviation, (means[1] - means[0])[counted] / deviation
        if isinstance(made, dp_pca_laplace.LaplaceNoise):
            ratio = np.clip(np.abs(z) - np.abs(z - shift), -0.99 * np.abs(shift), 0.99 * np.abs(shift))
        else:
            ratio = z * shift
        scores.append(ratio.reshape(RUNS, -1).sum(axis=1))
    return auditing.audit_samples(*scores, claim=claim, confidence=CONFIDENCE)


LAPLACE = [("laplace-vector", "zero_out", 1), ("laplace-vector", "replace_one", 2)]
LAPLACE += [("laplace-scalar", "zero_out", 2), ("lap-pca", "replace_one", 2)]
GAUSSIAN = [*(("analytic-gauss", relation) for relation in tradeoff.RELATIONS), ("analyze-gauss", "replace_one")]


@pytest.mark.parametrize(("name", "neighbouring", "d"), LAPLACE)
def test_laplace_mechanisms_keep_their_guarantee_and_half_their_noise_does_not(name, neighbouring, d):
    # In one dimension all of the L1 sensitivity is in one entry; in two no neighbours do that, and it is seen at 3.
    epsilon = 1.0 if d == 1 else 3.0
    fields = {"lower": -np.ones(d), "upper": np.ones(d), "n_components": 1, "divisor": 2.0}
    correct, broken = (mechanism(name, neighbouring, noise=share / epsilon, **fields) for share in (1.0, 0.5))
    claim = correct.guarantee().curve
    pair = worst(name, neighbouring, d)
    assert not audit(correct, claim, *pair, seed=0).is_refuted
    assert audit(broken, claim, *pair, seed=1).is_refuted


@pytest.mark.parametrize(("name", "neighbouring"), GAUSSIAN)
def test_gaussian_mechanisms_keep_their_guarantee_and_half_their_noise_does_not(name, neighbouring):
    fields = {"n_components": 1, "row_norm": 1.0, "divisor": 2.0}
    correct = MECHANISMS[name].from_mu(1.0, neighbouring=neighbouring, **fields)
    broken = dataclasses.replace(correct, noise_multiplier=correct.noise_multiplier / 2)
    pair = worst(name, neighbouring, 3)
    found = audit(correct, correct.guarantee().curve, *pair, seed=0)
    assert not found.is_refuted
    assert found.claim_mu == pytest.approx(1.0, rel=1e-9)
    assert 0.85 < found.mu_lower <= 1.0
    assert audit(broken, correct.guarantee().curve, *pair, seed=1).is_refuted


def test_an_audit_with_estimated_weights_sees_nearly_all_of_the_analytic_mechanism():
    made = AnalyticGauss.from_mu(1.0, neighbouring="replace_one", n_components=1, row_norm=1.0)
    found = auditing.audit_mechanism(
        jax.random.key(0),
        lambda key, x: made.noisy_moment(key, x)[jnp.triu_indices(3)],
        *worst("analytic-gauss", "replace_one", 3),
        claim=made.guarantee().curve,
        n=RUNS,
        confidence=CONFIDENCE,
    )
    assert not found.is_refuted
    assert 0.85 < found.mu_lower <= 1.0


def test_power_iterations_keep_their_guarantee_and_half_their_noise_does_not():
    # With Q square, every product moves by all of row_norm^2, in a direction that the products before it tell.
    fields = {"neighbouring": "zero_out", "n_components": 2, "n_iter": 4, "row_norm": 1.0}
    correct = NoisyPowerMethod.from_mu(1.0, **fields)
    assert correct.noise_multiplier == pytest.approx(2.0)
    products = jax.jit(jax.vmap(lambda made, key, x: made.products(key, x), in_axes=(None, 0, None)))
    pair = worst("noisy-power", "zero_out", 2)
    mean = pair[1].T @ pair[1] / len(pair[1])
    for share in (1.0, 0.5):
        made = dataclasses.replace(correct, noise_multiplier=share * correct.noise_multiplier)
        scores = []
        for seed, x in enumerate(pair):
            start, noisy = products(made, jax.random.split(jax.random.key(seed), RUNS), x)
            q, noisy = np.asarray(start), np.asarray(noisy)
            score = np.zeros(RUNS)
            for t in range(4):
                score += np.einsum("nij,nij->n", noisy[:, t], mean @ q, dtype=float)
                q = np.linalg.qr(noisy[:, t])[0]
            scores.append(score)
        found = auditing.audit_samples(*scores, claim=correct.guarantee().curve, confidence=CONFIDENCE)
        assert found.is_refuted == (share < 1)
        if share == 1:
            assert 0.85 < found.mu_lower <= 1.0


def wishart_scores(made, d, seed):
    """1 / (u^T W^-1 u), on which the likelihood ratio depends alone; with the record it is larger by row_norm^2."""
    scores = []
    for i, x in enumerate(worst("wishart", "zero_out", d)):
        drawn = np.asarray(noisy_moments(made, jax.random.split(jax.random.key(2 * seed + i), RUNS), x), float)
        whole = drawn * len(x) + made.noise_multiplier * (d - 1 + made.excess) * np.eye(d)
        scores.append(1 / np.linalg.inv(whole)[:, 0, 0])
    return scores


@pytest.mark.parametrize("d", [1, 3])
def test_published_wishart_noise_is_refuted_as_pure_and_keeps_the_guarantee_that_it_has(d):
    made = Wishart.jiang(1.0, neighbouring="zero_out", n_components=1, row_norm=1.0)
    assert made.guarantee().delta(1.0) == pytest.approx(-math.expm1(-1 / 3), rel=1e-6)
    null, alternative = wishart_scores(made, d, seed=d)
    # 28% of what is published without the record could not be published with it.
    assert np.mean(null < 0.999) == pytest.approx(-math.expm1(-1 / 3), abs=0.02)
    assert alternative.min() > 0.999
    # The record is seen by its absence: pure privacy, and a delta of 0.2, promise that it is not.
    for claim, is_wrong in (
        (tradeoff.EpsilonDelta(1.0, 0.0), True),
        (tradeoff.EpsilonDelta(1.0, 0.2), True),
        (made.guarantee().curve, False),
    ):
        assert auditing.audit_samples(null, alternative, claim=claim, confidence=CONFIDENCE).is_refuted == is_wrong


def test_wishart_noise_with_a_delta_keeps_its_guarantee_and_half_of_it_does_not():
    correct = Wishart.analytic(1.0, 0.01, neighbouring="zero_out", excess=8, n_components=1, row_norm=1.0)
    claim = correct.guarantee().curve
    assert 0.01 * (1 - 1e-9) < claim.delta_at(1.0) < 0.0102  # interpolated between epsilons
    for share in (1.0, 0.5):
        made = dataclasses.replace(correct, noise_multiplier=share * correct.noise_multiplier)
        found = auditing.audit_samples(*wishart_scores(made, 3, seed=9), claim=claim, confidence=CONFIDENCE)
        assert found.is_refuted == (share < 1)


# ---- conventions of the papers


def paper_mechanisms(x):
    d = x.shape[1]
    common = {"neighbouring": "replace_one", "n_components": 2, "convention": PAPER}
    return {
        "laplace-vector": LaplaceVector(epsilon=2.0, **common),
        "laplace-scalar": LaplaceScalar(epsilon=2.0, **common),
        "advanced": LaplaceScalar.advanced(2.0, 1 / len(x), d, **common),
        "analyze-gauss": AnalyzeGauss.classical(0.9, 1 / len(x), **common),
    }


def test_paper_001s_noise_is_that_of_its_table_1():
    x = records(n=200)
    z = (x - x.mean(0)) / x.std(0)
    width, n, a = z.max(0) - z.min(0), len(x), D * (D + 1) // 2
    one = dp_pca_sensitivity.advanced_query_epsilon(2.0, 1 / n, a, as_printed=True)
    longest = np.linalg.norm(z, axis=1).max()
    expected = {
        "laplace-vector": scipy.stats.laplace(
            scale=sum(width[i] * width[j] for i in range(D) for j in range(i + 1)) / n / 2
        ),
        "laplace-scalar": scipy.stats.laplace(scale=a * width[0] * width[1] / n / 2),
        "advanced": scipy.stats.laplace(scale=width[0] * width[1] / n / one),
        # In the units of the standardised records; the paper divides them by their largest norm first.
        "analyze-gauss": scipy.stats.norm(scale=longest**2 * math.sqrt(2 * math.log(1.25 * n)) / n / 0.9),
    }
    for name, made in paper_mechanisms(x).items():
        found = np.asarray(noisy_moments(made, jax.random.split(jax.random.key(0), 4000), x), float) - z.T @ z / n
        assert scipy.stats.kstest(found[:, 0, 1], expected[name].cdf).pvalue > ALPHA
        assert scipy.stats.kstest(found[:, 0, 1] * 1.3, expected[name].cdf).pvalue < ALPHA


def test_papers_conventions_promise_nothing_and_are_not_released():
    x = records()
    for made in paper_mechanisms(x).values():
        assert made.guarantee().epsilon(0.5) == math.inf
        assert made.guarantee().proven.startswith("nothing")
        assert type(made.dp_event()).__name__ == "NonPrivateDpEvent"
        with pytest.raises(ValueError, match="convention must be 'public_bounds'"):
            made.release(x)
    for kind in (AnalyticGauss, LapPCA, NoisyPowerMethod, Wishart):
        with pytest.raises(ValueError, match="convention must be one of"):
            mechanism({v: k for k, v in MECHANISMS.items()}[kind], convention=PAPER)


@pytest.mark.parametrize("name", ["laplace-vector", "analyze-gauss"])
def test_statistics_of_the_records_break_the_guarantee_that_the_paper_claims(name):
    # One record far away changes every standardised record, and with them noise and sum.
    x = records().astype(np.float32)
    far = x.copy()
    far[0] = 1e4 * np.array([1, -1, 1, -1])
    made = paper_mechanisms(x)[name]
    claim = tradeoff.EpsilonDelta(2.0) if name == "laplace-vector" else tradeoff.EpsilonDelta(0.9, 1 / len(x))

    def outputs(one):
        return [
            np.asarray(noisy_moments(one, jax.random.split(jax.random.key(i), RUNS), data), float)[:, 0, 0]
            for i, data in enumerate((x, far))
        ]

    # A variance of 1 under little noise, or a variance of 1 under much: far from 1 is seldom without the record.
    scores = [np.abs(entry - 1) for entry in outputs(made)]
    assert auditing.audit_samples(*scores, claim=claim, confidence=CONFIDENCE).is_refuted
    # The same pair, with public bounds, is as private as was said.
    sound = mechanism(name, "replace_one", noise=2.0)
    kept = auditing.audit_samples(*outputs(sound), claim=sound.guarantee().curve, confidence=CONFIDENCE)
    assert not kept.is_refuted


def test_standardising_leaves_out_constants():
    x = records().astype(np.float32)
    x[:, 2] = 0.1
    z = np.asarray(dp_pca_noise.standardised_not_private(x))
    np.testing.assert_allclose(z.std(axis=0), [1, 1, 0, 1], atol=1e-5)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)


# ---- which one is better


def test_the_analytic_mechanism_captures_more_energy_than_analyze_gauss_at_the_same_guarantee():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(600, 20)) * np.geomspace(1, 0.2, 20)).astype(np.float32)
    a = pca_utility.second_moment(x)
    fields = {"neighbouring": "replace_one", "n_components": 4, "row_norm": 2.5}
    made = {
        "classical": AnalyzeGauss.classical(0.9, DELTA, **fields),
        "tight": AnalyzeGauss.analytic(0.9, DELTA, **fields),
        "analytic": AnalyticGauss.analytic(0.9, DELTA, **fields),
    }
    q = {}
    for name, one in made.items():
        fits = pca_utility.trials(jax.random.key(1), one, x, 200, batch_size=200)
        q[name] = np.asarray(pca_utility.energy_ratio(fits.components, a), float)
    for better, worse in (("tight", "classical"), ("analytic", "tight")):
        error = math.hypot(q[better].std(), q[worse].std()) / math.sqrt(200)
        assert q[better].mean() - q[worse].mean() > 5 * error


def test_isotropic_noise_has_a_spectral_norm_smaller_by_nearly_sqrt_2():
    norms = [
        np.linalg.norm(noises(mechanism(name), m=100, d=60), ord=2, axis=(1, 2)).mean()
        for name in ("analyze-gauss", "analytic-gauss")
    ]
    assert norms[0] / norms[1] == pytest.approx(math.sqrt(2), rel=0.02)


# ---- releases


RELEASED = ["laplace-vector", "laplace-scalar", "lap-pca", "analyze-gauss", "analytic-gauss"]


@pytest.mark.parametrize("neighbouring", tradeoff.RELATIONS)
@pytest.mark.parametrize("name", RELEASED)
def test_a_release_is_the_exact_sum_plus_the_noise_of_its_note(monkeypatch, name, neighbouring):
    asked = []

    def silent(sampler):
        def draw(parameter, size):
            asked.append(Fraction(parameter))
            return np.zeros_like(sampler(2, size))

        return draw

    monkeypatch.setattr(dp_pca, "discrete_gaussian", silent(discrete_gaussian))
    monkeypatch.setattr(dp_pca_laplace, "discrete_laplace", silent(discrete_laplace))
    x, center = records(), np.linspace(-0.2, 0.2, D)
    made = mechanism(name, neighbouring, noise=3.0, center=center)
    found = made.release(x)
    rows = cut(name, x - center)
    divisor = N  # given, or the number of records
    np.testing.assert_allclose(found.moment, rows.T @ rows / divisor, atol=2e-5)  # records are cut to a grid
    expected = np.linalg.eigvalsh(found.moment)[::-1][:K]
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-9)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(K), atol=1e-12)
    assert found.components.dtype == found.moment.dtype == np.float64
    # The noise is that of the mechanism, in steps of the grid.
    if "lap" in name:
        m = np.maximum(-LOWER, UPPER)
        unit = m if name == "laplace-scalar" else np.full(D, m.max())
        step = unit[0] * unit[1] / 4**20 / N
        assert float(asked[0]) * step == pytest.approx(law_of(name, 0, 1).std() / math.sqrt(2) * 3.0, rel=1e-5)
    else:
        step = 1.5**2 / 4**20 / N
        off, on = (math.sqrt(float(variance)) * step for variance in asked)
        assert off == pytest.approx(3.0 * law_of(name, 0, 1).std(), rel=1e-6)
        assert on == pytest.approx(3.0 * law_of(name, 0, 0).std(), rel=1e-6)


@pytest.mark.parametrize("neighbouring", tradeoff.RELATIONS)
@pytest.mark.parametrize("name", RELEASED)
def test_worst_neighbours_keep_the_guarantee_of_a_release_in_exact_arithmetic(monkeypatch, name, neighbouring):
    drawn = {}

    def fixed(kind):
        def draw(parameter, size):
            shape = np.shape(np.zeros(size))
            drawn.setdefault(kind, []).append(Fraction(parameter))
            return np.zeros(shape, np.int64)

        return draw

    monkeypatch.setattr(dp_pca, "discrete_gaussian", fixed("gaussian"))
    monkeypatch.setattr(dp_pca_laplace, "discrete_laplace", fixed("laplace"))
    made = mechanism(name, neighbouring, noise=0.7)
    m = np.maximum(-LOWER, UPPER)
    rest = records(n=2)
    corner = np.where(-LOWER > UPPER, LOWER, UPPER)
    axis = 1.5 * np.eye(D)
    pairs = [(corner, 0 * corner), (corner, -corner), (axis[0], axis[1]), (m * [1, -1, 1, -1], m), (axis[0], 0 * m)]
    sums = []
    for pair in pairs:
        for one in pair:
            whole, *_ = made.released(np.vstack([one, rest]))
            sums.append(whole)
        without, *_ = made.released(rest)
        if neighbouring != "replace_one":
            sums[-1] = without
    curve = made.released(rest)[2]
    ratios = []
    for first, second in zip(sums[::2], sums[1::2], strict=True):
        change = first - second
        counted = change if name == "lap-pca" else change[np.triu_indices(D)]
        if "lap" in name:
            loss = Fraction(int(np.abs(counted).sum())) / drawn["laplace"][0]
            assert loss <= Fraction(made.epsilon)
            ratios.append(float(loss) / made.epsilon)
        else:
            off, on = drawn["gaussian"][:2]
            above, diagonal = change[np.triu_indices(D, 1)], change[np.diag_indices(D)]
            rho = (Fraction(int((above**2).sum())) / off + Fraction(int((diagonal**2).sum())) / on) / 2
            assert rho <= Fraction(curve.rho)
            ratios.append(float(rho) / curve.rho)
    # One of the pairs has all of it.
    assert max(ratios) > 0.999
    if "lap" in name:
        pure, zcdp = curve.curves
        assert pure == tradeoff.EpsilonDelta(made.epsilon, 0.0, neighbouring=neighbouring)
        assert zcdp.rho == pytest.approx(made.guarantee().curve.curves[1].rho, rel=1e-5)


def test_a_release_is_noisy_differs_each_time_and_its_curve_can_be_spent(tmp_path):
    x = records(n=500)
    made = AnalyticGauss.for_release(1.0, 1e-6, neighbouring="zero_out", **IN_BALL)
    first, second = made.release(x), made.release(x)
    assert not np.array_equal(first.moment, second.moment)
    spread = made.noise_multiplier * 1.5**2 / 500
    rows = cut("analytic-gauss", x)
    z = (first.moment - rows.T @ rows / 500) / spread
    assert 0.05 < np.abs(z).mean() < 2
    assert first.curve.epsilon_at(1e-6) <= 1.0
    ledger = Ledger.create(
        tmp_path / "budget.json",
        dataset="records",
        sha256=fingerprint(x),
        neighbouring="zero_out",
        epsilon=2.0,
        delta=1e-5,
        accountant="zcdp",
    )
    ledger.spend(first.curve, "components")
    laplace = mechanism("laplace-vector", noise=20.0).release(x)
    assert "zCDP" in laplace.note
    for curve in laplace.curve.curves:
        ledger.spend(curve, "components")


def test_noise_of_releases_has_the_law_of_the_mechanism():
    x = np.zeros((1, 70))
    for name, off in (("analytic-gauss", math.sqrt(0.5)), ("analyze-gauss", 1.0)):
        moment = mechanism(name).release(x).moment / 1.5**2
        np.testing.assert_array_equal(moment, moment.T)
        # The draws of the operating system cannot be seeded; this level leaves one failure in a million.
        assert scipy.stats.kstest(moment[np.triu_indices(70, 1)] / off, scipy.stats.norm.cdf).pvalue > 1e-6
        assert scipy.stats.kstest(moment[np.triu_indices(70, 1)] / off * 1.3, scipy.stats.norm.cdf).pvalue < 1e-6
        assert 0.6 < np.std(np.diag(moment)) < 1.5


def test_the_bounds_of_a_release_hold_for_records_far_outside():
    x = np.concatenate([records(n=3), 1e300 * np.ones((1, D))])
    for name in RELEASED:
        found = mechanism(name, noise=1e-9).release(x)
        # The squares of the last record are beyond float64.
        rows = cut(name, np.concatenate([x[:3], 1e9 * np.ones((1, D))]))
        np.testing.assert_allclose(found.moment, rows.T @ rows / 4, atol=1e-5)


@pytest.mark.parametrize(("name", "noise"), [("laplace-scalar", 1e9), ("analytic-gauss", 1e9)])
def test_noise_that_needs_a_coarser_grid_is_released_at_its_scale(name, noise):
    drawn = np.concatenate([mechanism(name, noise=noise).release(records()).moment.ravel() for _ in range(40)])
    expected = noise * np.mean([law_of(name, i, j).std() ** 2 for i in range(D) for j in range(D)]) ** 0.5
    # 400 draws of the operating system: their deviation is within a factor of two but for one in a billion.
    assert 0.5 < drawn.std() / expected < 2


def test_a_share_of_energy_is_released_as_that_many_rows():
    found = mechanism("analytic-gauss", n_components=0.8, noise=0.01).release(records())
    k = int(pca_utility.k_for_energy(np.linalg.eigvalsh(found.moment)[::-1], 0.8))
    assert found.components.shape == (k, D)
    assert found.eigenvalues.shape == (k,)
    assert k < D


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mechanism("wishart", excess=2).release(records()), "release must be of a mechanism with an exact"),
        (lambda: mechanism("noisy-power").release(records()), "release must be of a mechanism with an exact"),
        (lambda: mechanism("analytic-gauss").release(np.array([["a"]])), "x must be numeric"),
        (lambda: mechanism("analytic-gauss", n_components=9).release(records()), "n_components must be <= d = 4"),
        (lambda: mechanism("laplace-vector").release(records(d=3)), "x must have 4 columns"),
        (lambda: mechanism("laplace-vector").fit(jax.random.key(0), records(d=3)), "x must have 4 columns"),
        (lambda: mechanism("analytic-gauss", n_components=9).fit(jax.random.key(0), records()), "n_components must be"),
        (lambda: mechanism("noisy-power", n_extra=9).fit(jax.random.key(0), records()), "rank must be <= d = 4"),
        (lambda: mechanism("noisy-power").noisy_moment(jax.random.key(0), records()), "noisy_moment must be of"),
        (lambda: mechanism("analytic-gauss").fit(0, records()), "key must be"),
        (lambda: mechanism("analytic-gauss").fit(jax.random.key(0), records()[0]), "x must be"),
        (lambda: mechanism("analytic-gauss", "replace-one"), "neighbouring must be one of"),
        (
            lambda: AnalyticGauss(neighbouring="add_or_remove", n_components=1, noise_multiplier=1.0),
            "divisor must be given",
        ),
        (lambda: mechanism("analytic-gauss", divisor=0.0), "divisor must be"),
        (lambda: mechanism("analytic-gauss", n_components=0), "n_components must be"),
        (lambda: mechanism("analytic-gauss", n_components=1.5), "n_components must be"),
        (lambda: mechanism("noisy-power", n_components=0.9), "n_components must be"),
        (lambda: mechanism("noisy-power", n_iter=0), "n_iter must be"),
        (lambda: mechanism("analytic-gauss", row_norm=-1.0), "row_norm must be"),
        (lambda: mechanism("analytic-gauss", noise=math.nan), "noise_multiplier must be"),
        (lambda: mechanism("laplace-vector", lower=None), "lower and upper must be given"),
        (lambda: mechanism("laplace-vector", lower=np.full(D, 0.1)), "lower <= 0 <= upper"),
        (lambda: mechanism("laplace-vector", noise=-1.0), "epsilon must be"),
        (lambda: mechanism("laplace-vector", noise=1e14).release(records()), "noise must be less than"),
        (lambda: mechanism("wishart", "replace_one"), "neighbouring must be one of"),
        (lambda: mechanism("wishart", excess=1), "excess must be"),
        (lambda: Wishart.jiang(0.0, neighbouring="zero_out", n_components=1), "epsilon must be"),
        (lambda: AnalyzeGauss.classical(1.0, 1.0, neighbouring="zero_out", n_components=1), "delta must be"),
        (lambda: LaplaceScalar.advanced(1.0, 0.0, D, neighbouring="zero_out", **IN_BOX), "slack must be"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

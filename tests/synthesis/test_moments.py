"""Sums with noise: of what, how much, and that what is spent adds up to what is promised."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from drjax.bounds import auditing, tradeoff
from drjax.bounds.curve import RELATIONS
from drjax.defenses.clipping import in_ball
from drjax.synthesis import exact_moments, moments, sensitivity
from drjax.synthesis.budget import STEPS, Budget, plan

DELTA = 1e-5
ALPHA = 1e-4
"""Level of the tests of distributions; their keys are fixed, but for noise of the operating system."""
RUNS, CONFIDENCE = 20_000, 0.999


def planned(epsilon=1.0, delta=DELTA, neighbouring="replace_one", steps=("moments",), **fields):
    return plan(epsilon, delta, Budget(), steps=steps, neighbouring=neighbouring, **fields)


# ---- sums


def test_sums_over_chunks_are_those_of_all_records_at_once():
    rng = np.random.default_rng(0)
    n = 2 * moments.CHUNK + 17
    rows, group = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(-1, 4, n)
    weight = (rng.random(n) < 0.7).astype(np.float32)

    def term(chunk):
        return moments.grouped_gram(in_ball(chunk["rows"], 1.5), chunk["weight"], chunk["group"], 3)

    found = jax.jit(lambda r: moments.total(term, r))({"rows": rows, "weight": weight, "group": group})
    cut = rows * np.minimum(1, 1.5 / np.linalg.norm(rows, axis=1, keepdims=True)) / 1.5
    for k in range(3):
        own = cut[(group == k) & (weight == 1)]
        np.testing.assert_allclose(found[k], own.T @ own, rtol=1e-4, atol=1e-3)  # float32 sums of thousands


def test_every_record_is_within_its_bound_and_none_is_moved_without_need():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) * np.exp(rng.uniform(-3, 8, (500, 1)))
    rows[0] = 0
    with jax.enable_x64(True):
        cut, turned = np.asarray(in_ball(jnp.asarray(rows), 2.0)), np.asarray(moments.on_sphere(rows))
    norms = np.linalg.norm(rows, axis=1)
    assert np.linalg.norm(cut, axis=1).max() <= 1 + 1e-12
    np.testing.assert_allclose(cut[norms <= 2], rows[norms <= 2] / 2)
    np.testing.assert_allclose(np.linalg.norm(turned[1:], axis=1), 1)
    assert (turned[0] == 0).all()
    z, y = cut.astype(np.float32), np.clip(rng.normal(size=500), -1, 1).astype(np.float32)
    w = np.asarray(moments.augmented(z, 0.7, y, 0.3))
    np.testing.assert_allclose(w, np.column_stack([np.full(500, 0.7), z, 0.3 * y]), rtol=1e-6)
    assert np.linalg.norm(w, axis=1).max() <= moments.augmented_norm(0.7, 0.3) * (1 + 1e-6)
    assert moments.augmented_norm(0.7, None) == pytest.approx(math.sqrt(1.49))


# ---- budgets


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_what_steps_spend_adds_up_to_the_guarantee(epsilon, neighbouring):
    for steps in (STEPS, ("center", "moments"), ("moments",)):
        pure = planned(epsilon, 0.0, neighbouring, steps)
        assert math.fsum(pure.spend.values()) == pytest.approx(epsilon)
        assert pure.guarantee.epsilon(0.0) == epsilon
        approximate = planned(epsilon, DELTA, neighbouring, steps)
        composed = tradeoff.compose(*[tradeoff.Gaussian(mu) for mu in approximate.spend.values()])
        assert composed.mu <= approximate.guarantee.curve.mu
        assert composed.mu == pytest.approx(approximate.guarantee.curve.mu)
        assert approximate.guarantee.epsilon(DELTA) == pytest.approx(epsilon, rel=1e-6)
        assert approximate.guarantee.curve.neighbouring == neighbouring
        published = planned(epsilon, DELTA, neighbouring, steps, for_release=True)
        assert sum(mu**2 / 2 for mu in published.spend.values()) <= published.guarantee.curve.rho
        assert epsilon * 0.999 < published.guarantee.epsilon(DELTA) <= epsilon * (1 + 1e-9)
    # Shares are of epsilon or of mu^2.
    assert planned(1.0, 0.0, steps=STEPS).spend["moments"] == pytest.approx(0.6)
    found = planned(1.0, steps=STEPS).spend
    assert found["moments"] / found["projection"] == pytest.approx(math.sqrt(2))


def test_parts_of_the_records_may_each_spend_all():
    steps, first = STEPS, ("center", "projection")
    serial, parallel = planned(1.0, 0.0, steps=steps), planned(1.0, 0.0, steps=steps, parallel=first)
    assert parallel.spend["moments"] == 1.0
    assert parallel.spend["center"] + parallel.spend["projection"] == pytest.approx(1.0)
    assert parallel.guarantee.epsilon(0.0) == serial.guarantee.epsilon(0.0)
    assert "disjoint" in parallel.guarantee.proven


def test_the_papers_budget_is_ten_percent_for_means_of_what_components_leave():
    found = Budget.paper(0.2)
    assert (found.center, found.projection, found.moments) == pytest.approx((0.08, 0.2, 0.72))


# ---- noise


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_noise_has_the_law_of_the_formula(delta, neighbouring):
    q, bound, spending = 3, 1.3, planned(0.8, delta, neighbouring)
    keys = jax.random.split(jax.random.key(0), 4000)
    value = jnp.zeros((2, q, q))
    noisy, _ = jax.vmap(lambda key: moments.noisy_moments(key, value, bound, spending, "moments"))(keys)
    total, _ = jax.vmap(lambda key: moments.noisy_sum(key, value[0, 0], bound, spending, "moments"))(keys)
    factor = 2 if neighbouring == "replace_one" else 1
    if delta:
        mu = spending.guarantee.curve.mu
        scale = math.sqrt(factor) * bound**2 / mu
        laws = scipy.stats.norm(scale=scale), scipy.stats.norm(scale=scale / math.sqrt(2))
        of_sum = scipy.stats.norm(scale=factor * bound / mu)
    else:
        # Two classes: a record that changes its class moves both.
        laws = (scipy.stats.laplace(scale=factor * (q + 1) / 2 * bound**2 / 0.8),) * 2
        of_sum = scipy.stats.laplace(scale=factor * math.sqrt(q) * bound / 0.8)
    noisy = np.asarray(noisy)
    np.testing.assert_array_equal(noisy, np.swapaxes(noisy, -1, -2))
    for drawn, law in ((noisy[:, 1, 0, 0], laws[0]), (noisy[:, 0, 0, 2], laws[1]), (total[:, 1], of_sum)):
        assert scipy.stats.kstest(np.asarray(drawn), law.cdf).pvalue > ALPHA
        assert scipy.stats.kstest(np.asarray(drawn) * 1.3, law.cdf).pvalue < ALPHA
    upper = noisy[:, :, *np.triu_indices(q)].reshape(4000, -1)
    assert np.abs(np.corrcoef(upper.T) - np.eye(12)).max() < 0.08  # 5 deviations at 4,000 draws


def worst(neighbouring, q):
    """Sums of two classes of neighbours, as far apart as they can be: one more axis, or one axis for another."""
    without, with_target = np.zeros((2, q, q), np.float32), np.zeros((2, q, q), np.float32)
    with_target[0, 0, 0] = 1
    if neighbouring == "replace_one":
        without[1, 1, 1] = 1
    return without, with_target


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_gaussian_moments_keep_their_guarantee_and_a_wrong_sensitivity_is_caught(neighbouring, monkeypatch):
    spending = planned(3.0, DELTA, neighbouring)
    upper = np.triu_indices(2)

    def audit():
        return auditing.audit_mechanism(
            jax.random.key(1),
            lambda key, value: moments.noisy_moments(key, value, 1.0, spending, "moments")[0][:, *upper],
            *worst(neighbouring, 2),
            claim=spending.guarantee.curve,
            n=RUNS,
            confidence=CONFIDENCE,
        )

    found = audit()
    assert not found.is_refuted
    assert 0.8 * found.claim_mu < found.mu_lower <= found.claim_mu
    monkeypatch.setattr(sensitivity, "moment_l2", lambda **_: 0.7)
    assert audit().is_refuted


def test_parallel_composition_over_classes_is_refuted_where_a_record_changes_its_class():
    # Paper 002, theorem 6: every class has the noise of epsilon, because a record is in one class. Replaced, it was in
    # one and is in another, and what is published of both moves.
    epsilon, q = 3.0, 1
    without, with_target = np.zeros((2, q, q), np.float32), np.zeros((2, q, q), np.float32)
    with_target[0], without[1] = 1, 1
    claim = tradeoff.EpsilonDelta(epsilon, 0.0)

    def score(noisy):
        # The likelihood ratio, without the last digits, by which float32 noise shows what it was added to.
        a, b = noisy[:, 0, 0]
        return jnp.sum(jnp.clip(jnp.array([2 * a - 1, 1 - 2 * b]), -0.99, 0.99))

    def audit(n_groups):
        spending = planned(epsilon, 0.0)
        scale = spending.scale("moments", sensitivity.moment_l1(q, neighbouring="replace_one", n_groups=n_groups), 0.0)
        return auditing.audit_mechanism(
            jax.random.key(0),
            lambda key, value: value + moments.symmetric_noise(key, value.shape, "laplace", scale, value.dtype),
            without,
            with_target,
            claim=claim,
            score=score,
            n=RUNS,
            confidence=CONFIDENCE,
        )

    assert audit(1).is_refuted
    assert not audit(2).is_refuted


# ---- releases


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_a_release_of_much_budget_is_the_sum_and_of_little_has_the_deviation_that_it_says(delta, neighbouring):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    groups = [np.where((np.arange(300) % 2 == k)[:, None], rows, 0.0) for k in range(2)]
    cut = [g * np.minimum(1, 2 / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1e-9)) for g in groups]
    exact = np.stack([g.T @ g for g in cut])
    rich, poor = (planned(e, delta, neighbouring, for_release=True) for e in (1e6, 1.0))
    found, _ = exact_moments.released_moments(groups, 2.0, rich, "moments")
    np.testing.assert_allclose(found, exact, atol=0.3)  # the noise of a budget of 1e6, and 300 roundings of 2^-19
    total, _ = exact_moments.released_sum(groups[0], 2.0, rich, "moments")
    np.testing.assert_allclose(total, cut[0].sum(axis=0), atol=0.1)
    np.testing.assert_array_equal(found, np.swapaxes(found, 1, 2))
    many = [exact_moments.released_moments(groups, 2.0, poor, "moments") for _ in range(300)]
    noise = np.stack([m for m, _ in many]) - exact
    spread = noise[:, :, 0, 1].std()
    # 600 draws: the deviation of Laplace noise is known to 4.6%.
    assert spread == pytest.approx(many[0][1], rel=0.25)
    sums = [exact_moments.released_sum(groups[0], 2.0, poor, "moments") for _ in range(200)]
    assert np.std([s[0] for s, _ in sums]) == pytest.approx(sums[0][1], rel=0.3)


def test_noise_of_a_pure_release_covers_whole_numbers_at_the_ends_of_their_ball(monkeypatch):
    scales = []
    monkeypatch.setattr(
        exact_moments, "discrete_laplace", lambda scale, shape: scales.append(scale) or np.zeros(shape, np.int64)
    )
    q, bound = 3, 1.7
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(200, q))
    ends = bound * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    for neighbouring, n_groups in (("zero_out", 1), ("replace_one", 1), ("replace_one", 2)):
        spending = planned(2.0, 0.0, neighbouring, for_release=True)
        upper = np.triu_indices(q)
        largest = 0
        for first, second in zip(ends, ends[::-1], strict=True):
            groups = [[first[None], second[None]]] if n_groups == 1 else [[first[None], 0 * second[None]]] * 2
            moved = 0.0
            for a, b in groups:
                one, other = (exact_moments._laplace(g, bound, spending, "moments", n_groups)[upper] for g in (a, b))
                moved += np.abs(one - (other if neighbouring == "replace_one" else 0)).sum()
            largest = max(largest, moved)
        # In steps of the grid: the scale is at least what moves over epsilon.
        grid = (bound / 2**20) ** 2
        assert largest / grid <= scales[-1] * 2.0
        assert largest / grid > 0.8 * scales[-1] * 2.0


def test_coins_of_a_release_are_as_likely_as_they_say():
    found = exact_moments.fair_part(200_000, 0.3)
    assert found.mean() == pytest.approx(0.3, abs=0.006)  # six deviations


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Budget(center=0.0), "center must be"),
        (lambda: Budget.paper(1.0), "projection must be in"),
        (lambda: planned(0.0), "epsilon must be"),
        (lambda: planned(1.0, 1.0), "delta must be in"),
        (lambda: planned(1.0, math.nan), "delta must be in"),
        (lambda: planned(neighbouring="other"), "neighbouring must be one of"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

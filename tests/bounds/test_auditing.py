import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import auditing as reference
from scipy.special import ndtri
from scipy.stats import binom, binomtest

from drjax.bounds import auditing, gdp, tradeoff
from drjax.bounds.audit_statistics import CAUTION, sweep
from drjax.bounds.auditing import Outcome

OUTCOMES = [
    Outcome(0, 1, 0, 1),
    Outcome(0, 1, 1, 1),
    Outcome(1, 1, 1, 1),
    Outcome(0, 50, 50, 50),
    Outcome(50, 50, 0, 50),
    Outcome(3, 40, 31, 70),
    Outcome(400, 1000, 520, 1000),
    Outcome(7, 100_000, 900, 100_000),
    Outcome(99_500, 100_000, 99_990, 100_000),
]


def chance_limit(n, rate):
    """A count that a rate of at most this exceeds once in a thousand such tests."""
    return binom.isf(1e-3, n, rate)


# Statistics of counts


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_rates_are_the_ends_of_clopper_and_pearsons_intervals(outcome, confidence):
    rates = auditing.rates_of(outcome, confidence=confidence)
    null = binomtest(outcome.false_positives, outcome.n_null).proportion_ci(confidence, method="exact")
    alternative = binomtest(outcome.true_positives, outcome.n_alternative).proportion_ci(confidence, method="exact")
    found = [rates.fpr_high, rates.tnr_low, rates.tpr_low, rates.fnr_high]
    # SciPy finds the ends as roots, to about 1e-12.
    np.testing.assert_allclose(found, [null.high, 1 - null.high, alternative.low, 1 - alternative.low], atol=1e-10)


@pytest.mark.parametrize(("k", "n"), [(0, 5), (1, 5), (5, 5), (300, 1000), (3, 10**6)])
def test_success_bound_is_the_one_sided_interval(k, n):
    expected = binomtest(k, n, alternative="greater").proportion_ci(0.95, method="exact").low
    # SciPy finds the end as a root, to about 1e-12.
    assert auditing.success_lower_bound(k, n, confidence=0.95) == pytest.approx(expected, abs=1e-10)


def test_rates_close_to_one_keep_the_digits_of_their_complement():
    rates = auditing.rates_of(Outcome(0, 10**12, 10**12, 10**12))
    # With no event among n the bound is 1 - 0.025^(1 / n).
    expected = -math.expm1(math.log(0.025) / 10**12)
    assert rates.fpr_high == pytest.approx(expected, rel=1e-9)
    assert rates.fnr_high == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_epsilon_bound_is_that_of_jax_privacy_on_the_same_counts(outcome, delta):
    with_target = np.r_[np.ones(outcome.true_positives), np.zeros(outcome.n_alternative - outcome.true_positives)]
    without = np.r_[np.ones(outcome.false_positives), np.zeros(outcome.n_null - outcome.false_positives)]
    expected = reference.CanaryScoreAuditor(with_target, without).epsilon_clopper_pearson(
        0.05, delta, one_sided=False, threshold_strategy=reference.Explicit(0.5)
    )
    # It takes 1 - fnr for tpr, which costs it digits.
    assert auditing.epsilon_lower_bound(outcome, delta=delta) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_complement_of_a_test_says_the_same(outcome):
    mirrored = Outcome(
        outcome.n_alternative - outcome.true_positives,
        outcome.n_alternative,
        outcome.n_null - outcome.false_positives,
        outcome.n_null,
    )
    assert auditing.mu_lower_bound(mirrored) == pytest.approx(auditing.mu_lower_bound(outcome), rel=1e-12)
    expected = auditing.epsilon_lower_bound(outcome, delta=1e-3)
    assert auditing.epsilon_lower_bound(mirrored, delta=1e-3) == pytest.approx(expected, rel=1e-12)


def test_a_test_that_never_fails_shows_a_finite_bound_that_grows_with_the_runs():
    found = [
        (auditing.epsilon_lower_bound(outcome, delta=0.0), auditing.mu_lower_bound(outcome))
        for outcome in (Outcome(0, n, n, n) for n in (10, 1000, 10**6))
    ]
    assert np.all(np.diff(np.asarray(found), axis=0) > 1)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("outcome", [Outcome(5, 10, 5, 10), Outcome(90, 100, 20, 100), Outcome(10, 10, 10, 10)])
def test_a_test_no_better_than_a_guess_shows_nothing(outcome):
    assert auditing.epsilon_lower_bound(outcome, delta=0.0) == 0
    assert auditing.mu_lower_bound(outcome) == 0


def overstated(bound, truth, fpr, tpr, n):
    """Exact probability that a bound on two independent counts of n runs is above the truth."""
    null, alternative = binom.pmf(np.arange(n + 1), n, fpr), binom.pmf(np.arange(n + 1), n, tpr)
    return math.fsum(
        null[i] * alternative[j]
        for i, j in itertools.product(range(n + 1), repeat=2)
        if null[i] * alternative[j] > 1e-9 and bound(Outcome(i, n, j, n)) > truth
    )


@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_epsilon_of_randomised_response_is_overstated_no_more_often_than_allowed(epsilon, confidence):
    truth = 1 / (1 + math.exp(-epsilon))
    found = overstated(
        lambda outcome: auditing.epsilon_lower_bound(outcome, delta=0.0, confidence=confidence),
        epsilon,
        1 - truth,
        truth,
        n=40,
    )
    # Less the outcomes that were left out, 41^2 of at most 1e-9 each.
    assert 0 < found <= 1 - confidence - 2e-6


@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize(("mu", "level"), [(0.5, 0.4), (2.0, 0.1), (2.0, 0.02)])
def test_mu_of_a_gaussian_is_overstated_no_more_often_than_allowed(mu, level, confidence):
    power = float(tradeoff.Gaussian(mu).power(level))
    found = overstated(lambda outcome: auditing.mu_lower_bound(outcome, confidence=confidence), mu, level, power, n=40)
    assert 0 < found <= 1 - confidence - 2e-6


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_a_claim_is_refuted_where_its_parameter_is_below_the_bound(outcome, size):
    mu = auditing.mu_lower_bound(outcome)
    assert auditing.refutes(outcome, tradeoff.Gaussian(size)) == (mu > size)
    epsilon = auditing.epsilon_lower_bound(outcome, delta=0.01)
    assert auditing.refutes(outcome, tradeoff.EpsilonDelta(size, 0.01)) == (epsilon > size)


def test_epsilon_of_mu_is_that_of_a_gaussian_and_zero_at_zero():
    for mu in (0.3, 1.5):
        assert auditing.epsilon_from_mu(mu, delta=1e-6) == gdp.epsilon_of(mu, 1e-6) > 0
    assert auditing.epsilon_from_mu(0.0, delta=1e-6) == 0


# Thresholds


def test_a_score_at_the_threshold_is_detected():
    outcome = auditing.outcome_at(2.0, [1, 2, 3, -np.inf], [2, 2, np.inf])
    assert outcome == Outcome(2, 4, 3, 3)


def brute_force_best(null, alternative, bound):
    cuts = np.unique(np.concatenate([null, alternative]))
    return max(bound(auditing.outcome_at(float(cut), null, alternative)) for cut in cuts)


@pytest.mark.parametrize("n", [5, 60, 1000])
@pytest.mark.parametrize("shift", [0.5, 3.0, 12.0])
def test_the_chosen_threshold_is_as_good_as_any(n, shift):
    rng = np.random.default_rng(n)
    null, alternative = rng.normal(size=n), rng.normal(size=n + 3) + shift
    strict = 1 - 0.05 / CAUTION
    claim = tradeoff.Gaussian(0.1)
    bounds = {
        "mu": ({}, lambda outcome: auditing.mu_lower_bound(outcome, confidence=strict)),
        "epsilon": (
            {"delta": 1e-4},
            lambda outcome: auditing.epsilon_lower_bound(outcome, delta=1e-4, confidence=strict),
        ),
        "claim": ({"claim": claim}, lambda outcome: auditing.mu_lower_bound(outcome, confidence=strict)),
    }
    for goal, bound in bounds.values():
        threshold = auditing.choose_threshold(null, alternative, **goal)
        found = bound(auditing.outcome_at(threshold, null, alternative))
        # All thresholds are tried on few scores; on many the grid of counts has steps of 1%.
        assert found >= brute_force_best(null, alternative, bound) * (1 - (1e-12 if n <= 64 else 2e-3))


def test_many_scores_leave_few_thresholds_the_extreme_ones_among_them():
    rng = np.random.default_rng(0)
    candidates = sweep(rng.normal(size=50_000), rng.normal(size=50_000))
    assert len(candidates.thresholds) < 8000
    for counts in (candidates.false_positives, candidates.true_positives):
        assert set(range(1, 30)) <= set(counts.tolist())
        assert set(range(50_000 - 30, 50_001)) <= set(counts.tolist())


def test_a_threshold_between_separated_scores_is_in_the_middle():
    assert auditing.choose_threshold([0.0, 1.0] * 20, [9.0, 11.0] * 20) == 5.0


@pytest.mark.parametrize(
    ("null", "alternative", "expected"),
    [
        ([0.0] * 50, [np.inf] * 50, Outcome(0, 50, 50, 50)),
        ([-np.inf] * 50, [0.0] * 50, Outcome(0, 50, 50, 50)),
        ([-np.inf] * 50, [np.inf] * 50, Outcome(0, 50, 50, 50)),
        ([np.inf] * 50, [-np.inf] * 50, Outcome(50, 50, 0, 50)),
        ([-np.inf] * 50, [-np.inf] * 50, Outcome(0, 50, 0, 50)),
        ([1.0] * 50, [1.0] * 50, Outcome(50, 50, 50, 50)),
    ],
)
def test_infinite_and_constant_scores_have_a_threshold(null, alternative, expected):
    threshold = auditing.choose_threshold(null, alternative)
    assert threshold > -math.inf
    assert auditing.outcome_at(threshold, null, alternative) == expected


# Reconstruction


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("kappa", [0.001, 0.2])
def test_mu_from_reconstruction_is_overstated_no_more_often_than_allowed(kappa, confidence):
    mu, n = 1.3, 300
    success = float(tradeoff.Gaussian(mu).power(kappa))
    above = [auditing.mu_from_reconstruction(k, n, kappa, confidence=confidence) > mu for k in range(n + 1)]
    found = binom.pmf(np.flatnonzero(above), n, success).sum()
    # One-sided, so all of the allowance but for the steps of a count is used.
    assert (1 - confidence) / 3 < found <= 1 - confidence


@pytest.mark.parametrize(("k", "kappa", "delta"), [(180, 0.01, 0.0), (180, 0.01, 0.1), (199, 0.7, 0.0), (3, 0.5, 0.0)])
def test_bounds_from_reconstruction_are_where_the_curve_meets_the_success(k, kappa, delta):
    low = auditing.success_lower_bound(k, 200)
    epsilon = auditing.epsilon_from_reconstruction(k, 200, kappa, delta=delta)
    mu = auditing.mu_from_reconstruction(k, 200, kappa)
    if low <= kappa:
        assert epsilon == mu == 0
    else:
        assert float(tradeoff.Gaussian(mu).power(kappa)) == pytest.approx(low, rel=1e-9)
        assert float(tradeoff.EpsilonDelta(epsilon, delta).power(kappa)) == pytest.approx(low, rel=1e-9)


def test_reconstruction_that_needs_no_release_shows_nothing():
    assert auditing.mu_from_reconstruction(50, 50, 1.0) == 0
    assert auditing.epsilon_from_reconstruction(50, 50, 1, delta=0.0) == 0


# Audits of samples


def laplace(rng, n):
    return rng.laplace(size=n)


def normal(rng, n):
    return rng.normal(size=n)


@pytest.mark.parametrize(
    ("draw", "shift", "claim", "truth"),
    [
        (normal, 1.0, tradeoff.Gaussian(1.0), {"mu": 1.0, "epsilon": gdp.epsilon_of(1.0, 1e-5)}),
        (laplace, 1.0, tradeoff.Laplace(1.0), {"mu": math.inf, "epsilon": 1.0}),
        (laplace, 2.0, tradeoff.EpsilonDelta(2.0), {"mu": math.inf, "epsilon": 2.0}),
        (normal, 0.0, tradeoff.Gaussian(0.0), {"mu": 0.0, "epsilon": 0.0}),
    ],
)
def test_correct_claims_are_refuted_no_more_often_than_allowed(draw, shift, claim, truth):
    rng, n_audits = np.random.default_rng(1), 500
    wrong = dict.fromkeys(["refuted", "mu", "epsilon"], 0)
    for _ in range(n_audits):
        audit = auditing.audit_samples(draw(rng, 400), draw(rng, 300) + shift, claim=claim)
        wrong["refuted"] += audit.is_refuted
        wrong["mu"] += audit.mu_lower > truth["mu"]
        wrong["epsilon"] += audit.epsilon_lower > truth["epsilon"]
    assert max(wrong.values()) <= chance_limit(n_audits, 0.05)


def test_findings_are_of_runs_that_no_threshold_was_chosen_on():
    rng = np.random.default_rng(2)
    null, alternative = rng.normal(size=1000), rng.normal(size=500) + 1
    audit = auditing.audit_samples(
        null, alternative, claim=tradeoff.EpsilonDelta(0.1, 1e-3), delta=0.01, confidence=0.9, tuning_share=0.4
    )
    tuning, held_out = (null[:400], alternative[:200]), (null[400:], alternative[200:])
    for goal, threshold, outcome in (
        ({"claim": tradeoff.EpsilonDelta(0.1, 1e-3)}, audit.threshold, audit.outcome),
        ({"delta": 0.01}, audit.epsilon_threshold, audit.epsilon_outcome),
        ({}, audit.mu_threshold, audit.mu_outcome),
    ):
        assert threshold == auditing.choose_threshold(*tuning, **goal, confidence=0.9)
        assert outcome == auditing.outcome_at(threshold, *held_out)
    assert audit.mu_lower == auditing.mu_lower_bound(audit.mu_outcome, confidence=0.9)
    assert audit.epsilon_lower == auditing.epsilon_lower_bound(audit.epsilon_outcome, delta=0.01, confidence=0.9)
    assert audit.is_refuted == auditing.refutes(audit.outcome, tradeoff.EpsilonDelta(0.1, 1e-3), confidence=0.9)
    assert (audit.n_null, audit.n_alternative) == (1000, 500)


def test_an_audit_says_what_was_claimed():
    scores = np.arange(10.0)
    gaussian = auditing.audit_samples(scores, scores, claim=tradeoff.Gaussian(2.0), delta=1e-3)
    assert (gaussian.claim_mu, gaussian.claim_epsilon) == (2.0, tradeoff.Gaussian(2.0).epsilon_at(1e-3))
    assert (gaussian.n_non_finite_null, gaussian.n_non_finite_alternative) == (0, 0)
    pure = auditing.audit_samples(scores, scores, claim=tradeoff.Laplace(2.0), delta=0.0)
    assert (pure.claim_mu, pure.delta) == (None, 0.0)
    assert pure.claim_epsilon == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize(
    ("claim", "draw"),
    [
        (tradeoff.EpsilonDelta(1.0), laplace),
        (tradeoff.EpsilonDelta(1.0, 1e-5), laplace),
        (tradeoff.ZCDP(0.5), normal),
    ],
)
def test_samples_of_a_host_function_with_half_the_noise_are_caught(claim, draw):
    rng = np.random.default_rng(3)
    right, broken = (
        auditing.audit_samples(scale * draw(rng, 50_000), scale * draw(rng, 50_000) + 1, claim=claim)
        for scale in (1.0, 0.5)
    )
    assert (right.is_refuted, broken.is_refuted) == (False, True)
    assert right.epsilon_lower <= right.claim_epsilon


def test_sampled_steps_with_half_the_noise_are_caught():
    claim = tradeoff.subsampled_gaussian(1.0, 0.5, 2, neighbouring="add_or_remove")
    rng = np.random.default_rng(4)

    def scores(is_in, noise):
        outputs = is_in * (rng.random((50_000, 2)) < 0.5) + noise * rng.normal(size=(50_000, 2))
        return np.log(0.5 + 0.5 * np.exp((outputs - 0.5) / noise**2)).sum(axis=1)

    right, broken = (auditing.audit_samples(scores(0, noise), scores(1, noise), claim=claim) for noise in (1.0, 0.5))
    assert (right.is_refuted, broken.is_refuted) == (False, True)


def test_the_epsilon_of_a_claim_is_found_at_its_own_delta():
    scores = np.arange(10.0)
    claim = tradeoff.EpsilonDelta(1.5, 1e-5)
    assert auditing.audit_samples(scores, scores, claim=claim, delta=1e-5).claim_epsilon == 1.5
    assert auditing.audit_samples(scores, scores, claim=claim, delta=1e-6).claim_epsilon == math.inf


# Audits of mechanisms


def identity(output):
    return output


def gaussian_mechanism(scale):
    return lambda key, x: x + scale * jax.random.normal(key)


def laplace_mechanism(scale):
    return lambda key, x: x + scale * jax.random.laplace(key)


def randomised_response(epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    return lambda key, x: jnp.where(jax.random.uniform(key) < truth, x, 1 - x).astype(jnp.int32)


def analytic_sigma(epsilon, delta):
    return gdp.noise_multiplier_for(epsilon, delta, 1, "zero_out")


MECHANISMS = {
    "gaussian": (tradeoff.Gaussian(0.5), gaussian_mechanism(2.0), gaussian_mechanism(1.0)),
    "laplace": (tradeoff.Laplace(1.0), laplace_mechanism(1.0), laplace_mechanism(0.5)),
    "randomised response": (
        tradeoff.RandomizedResponse(1 / (1 + math.exp(-1.0))),
        randomised_response(1.0),
        randomised_response(2.0),
    ),
    "analytic gaussian": (
        tradeoff.EpsilonDelta(1.0, 1e-5),
        gaussian_mechanism(analytic_sigma(1.0, 1e-5)),
        gaussian_mechanism(analytic_sigma(1.0, 1e-5) / 2),
    ),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_half_the_noise_is_caught_and_the_claimed_noise_is_not(name):
    claim, right, broken = MECHANISMS[name]
    audits = [
        auditing.audit_mechanism(jax.random.key(0), mechanism, 0.0, 1.0, claim=claim, score=identity)
        for mechanism in (right, broken)
    ]
    assert [audit.is_refuted for audit in audits] == [False, True]
    assert 0 < audits[0].epsilon_lower <= audits[0].claim_epsilon
    assert audits[1].epsilon_lower > 1.5 * audits[0].epsilon_lower


@pytest.mark.parametrize("mu", [0.25, 1.0, 9.0])
def test_a_hundred_thousand_runs_find_mu_to_a_fifth(mu):
    audit = auditing.audit_mechanism(
        jax.random.key(3), gaussian_mechanism(1.0), 0.0, mu, claim=tradeoff.Gaussian(mu), score=identity
    )
    assert 0.8 * mu <= audit.mu_lower <= mu


def test_run_i_draws_from_the_key_of_its_input_at_i():
    key, n = jax.random.key(5), 200
    audit = auditing.audit_mechanism(
        key, gaussian_mechanism(1.0), 0.0, 1.0, claim=tradeoff.Gaussian(1.0), n=n, score=identity
    )
    null, alternative = (
        np.asarray([x + jax.random.normal(jax.random.fold_in(arm, i)) for i in range(n)])
        for arm, x in zip(jax.random.split(key), (0.0, 1.0), strict=True)
    )
    expected = auditing.audit_samples(null, alternative, claim=tradeoff.Gaussian(1.0))
    assert (audit.outcome, audit.epsilon_outcome) == (expected.outcome, expected.epsilon_outcome)
    assert audit.threshold == pytest.approx(expected.threshold, rel=1e-6)  # batches round otherwise than single runs


def test_the_batch_size_does_not_matter():
    def mechanism(key, x):
        return x + jax.random.normal(key, (3,))

    audits = [
        auditing.audit_mechanism(
            jax.random.key(1),
            mechanism,
            jnp.zeros(3),
            jnp.array([1.0, 0.0, -0.3]),
            claim=tradeoff.Gaussian(1.0),
            n=1000,
            batch_size=size,
        )
        for size in (None, 64)
    ]
    assert (audits[0].outcome, audits[0].mu_outcome) == (audits[1].outcome, audits[1].mu_outcome)
    assert audits[0].threshold == pytest.approx(audits[1].threshold, rel=1e-5)  # rounding of float32


def test_audits_run_in_double_precision():
    with jax.enable_x64(True):
        audit = auditing.audit_mechanism(
            jax.random.key(2), gaussian_mechanism(1.0), 0.0, 1.0, claim=tradeoff.Gaussian(0.4), n=20_000
        )
    assert audit.is_refuted
    assert 0.8 < audit.mu_lower < 1


def test_the_linear_score_weighs_entries_by_their_noise():
    scale = np.geomspace(0.01, 100, 20).astype(np.float32)
    difference = 0.4 * scale * np.where(np.arange(20) % 2, 1, -1)
    mu = 0.4 * math.sqrt(20)

    def mechanism(key, x):
        # A large mean and entries without noise or without a value are in the way of a naive score.
        noisy = x + scale * jax.random.normal(key, (20,))
        return {"noisy": noisy, "constant": jnp.array([1e4, 0.0]), "counts": jnp.array([7, 3])}

    audit = auditing.audit_mechanism(
        jax.random.key(4),
        mechanism,
        1000 * scale,
        1000 * scale + difference,
        claim=tradeoff.Gaussian(mu),
        n=50_000,
    )
    # The best single entry alone would show 0.4.
    assert 0.9 * mu < audit.mu_lower <= mu


def test_no_more_outputs_than_the_limit_are_on_the_host_for_the_linear_score(monkeypatch):
    sizes, chunks = [], auditing.batching.iter_chunks

    def watched(*args, **options):
        for n, (flat, usable) in chunks(*args, **options):
            sizes.append(flat.size)
            yield n, (flat, usable)

    monkeypatch.setattr(auditing.batching, "iter_chunks", watched)
    monkeypatch.setattr(auditing, "HOST_BYTES", 8 * 3 * 16)
    x = jnp.zeros(3)
    auditing.audit_mechanism(jax.random.key(0), gaussian_mechanism(1.0), x, x + 1, claim=tradeoff.Gaussian(9.0), n=200)
    assert max(sizes) == 3 * 16


def test_the_linear_score_of_many_entries_with_large_means_keeps_its_digits():
    d, mu = 1000, 4.0

    def mechanism(key, x):
        return x + jax.random.normal(key, (d,))

    without = np.full(d, 1e6, np.float32)  # the grid of float32 is 1/16 there
    audit = auditing.audit_mechanism(
        jax.random.key(0), mechanism, without, without + mu / math.sqrt(d), claim=tradeoff.Gaussian(mu), n=3000
    )
    assert 0.75 * mu < audit.mu_lower <= mu


def test_the_linear_score_sees_an_entry_that_gives_the_target_away():
    def mechanism(key, x):
        return jnp.append(10 * jax.random.normal(key, (4,)), x)

    audit = auditing.audit_mechanism(jax.random.key(0), mechanism, 5.0, 5.001, claim=tradeoff.Gaussian(1.0), n=1000)
    assert audit.outcome == Outcome(0, 700, 700, 700)
    assert audit.is_refuted


def test_inputs_may_differ_in_size():
    def mechanism(key, x):
        return jnp.sum(x) + jax.random.normal(key)

    audit = auditing.audit_mechanism(
        jax.random.key(0), mechanism, np.ones(4), np.ones(5), claim=tradeoff.Gaussian(0.1), n=5000, score=identity
    )
    assert audit.is_refuted


def test_a_mechanism_that_changed_is_traced_anew():
    settings = {"scale": 10.0}

    def mechanism(key, x):
        return x + settings["scale"] * jax.random.normal(key)

    def run():
        return auditing.audit_mechanism(
            jax.random.key(0), mechanism, 0.0, 1.0, claim=tradeoff.Gaussian(0.1), n=5000, score=identity
        )

    assert not run().is_refuted
    settings["scale"] = 1.0
    assert run().is_refuted


@pytest.mark.parametrize(("score", "bad"), [(None, np.nan), (identity, np.inf)])
def test_an_output_that_is_not_finite_is_seen_by_the_attack(score, bad):
    def mechanism(key, x):
        noise, fails = jax.random.split(key)
        # The target breaks one run in two and changes nothing else.
        return jnp.where((x > 0) & (jax.random.uniform(fails) < 0.5), bad, jax.random.normal(noise))

    audit = auditing.audit_mechanism(
        jax.random.key(0), mechanism, 0.0, 1.0, claim=tradeoff.Gaussian(1.0), n=2000, score=score
    )
    assert audit.is_refuted
    assert audit.n_non_finite_null == audit.n_unusable_null == audit.n_unusable_alternative == 0
    assert audit.n_non_finite_alternative == pytest.approx(1000, abs=5 * math.sqrt(500))
    assert audit.mu_outcome.false_positives == 0
    assert audit.mu_outcome.true_positives == pytest.approx(700, abs=5 * math.sqrt(350))


def test_a_mechanism_that_fails_for_one_input_is_refuted_and_one_that_fails_for_both_is_not():
    def audit(fails):
        return auditing.audit_mechanism(
            jax.random.key(0),
            lambda key, x: jnp.where(fails(x), jnp.nan, x + 100 * jax.random.normal(key)),
            0.0,
            1.0,
            claim=tradeoff.Gaussian(0.01),
            n=500,
            score=identity,
        )

    for fails, counts in ((lambda x: x == 1, (0, 500)), (lambda x: x == 0, (500, 0))):
        found = audit(fails)
        assert (found.n_non_finite_null, found.n_non_finite_alternative) == counts
        assert found.is_refuted
        assert found.mu_lower > 4
    always = audit(lambda x: x == x)
    assert (always.n_non_finite_null, always.n_non_finite_alternative) == (500, 500)
    assert not always.is_refuted
    assert always.mu_lower == always.epsilon_lower == 0


def test_a_score_of_nan_is_unusable_and_one_of_infinity_is_not():
    def audit(score):
        return auditing.audit_mechanism(
            jax.random.key(0), gaussian_mechanism(1.0), 0.0, 1.0, claim=tradeoff.Gaussian(9.0), n=1000, score=score
        )

    logarithm = audit(lambda y: jnp.log(y))
    assert logarithm.n_unusable_null == pytest.approx(500, abs=5 * math.sqrt(250))
    assert logarithm.outcome.false_positives >= logarithm.n_unusable_null * 0.6
    steep = audit(lambda y: jnp.where(y > 3, jnp.inf, y))
    assert (steep.n_unusable_null, steep.n_unusable_alternative) == (0, 0)


def test_an_audit_is_frozen_and_plain():
    audit = auditing.audit_samples(np.arange(9), np.arange(9), claim=tradeoff.Gaussian(1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        audit.is_refuted = True
    for value in dataclasses.asdict(audit).values():
        assert value is None or isinstance(value, (bool, int, float, dict))


# Bad input


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((-1, 5, 0, 5), "false_positives must be an integer >= 0, got -1"),
        ((0, 0, 0, 5), "n_null must be an integer >= 1, got 0"),
        ((0, 5, 6, 5), "true_positives must be <= n_alternative = 5, got 6"),
        ((6, 5, 0, 5), "false_positives must be <= n_null = 5, got 6"),
        ((0.5, 5, 0, 5), "false_positives must be an integer"),
        ((0, 5, 0, 5.0), "n_alternative must be an integer"),
        ((0, 5, True, 5), "true_positives must be an integer"),
    ],
)
def test_outcomes_refuse_impossible_counts(counts, message):
    with pytest.raises(ValueError, match=message):
        Outcome(*counts)


GOOD = Outcome(1, 10, 9, 10)
SCORES = np.arange(10.0)
CLAIM = tradeoff.Gaussian(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bad: auditing.rates_of(GOOD, confidence=bad), "confidence must be"),
        (lambda bad: auditing.epsilon_lower_bound(GOOD, delta=0.0, confidence=bad), "confidence must be"),
        (lambda bad: auditing.mu_lower_bound(GOOD, confidence=bad), "confidence must be"),
        (lambda bad: auditing.refutes(GOOD, CLAIM, confidence=bad), "confidence must be"),
        (lambda bad: auditing.choose_threshold(SCORES, SCORES, confidence=bad), "confidence must be"),
        (lambda bad: auditing.success_lower_bound(1, 2, confidence=bad), "confidence must be"),
        (lambda bad: auditing.mu_from_reconstruction(1, 2, 0.5, confidence=bad), "confidence must be"),
        (lambda bad: auditing.audit_samples(SCORES, SCORES, claim=CLAIM, confidence=bad), "confidence must be"),
        (lambda bad: auditing.audit_samples(SCORES, SCORES, claim=CLAIM, tuning_share=bad), "tuning_share must be"),
    ],
)
@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, math.nan, "0.9", None])
def test_shares_outside_the_open_unit_interval_are_refused(call, message, bad):
    with pytest.raises(ValueError, match=message):
        call(bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: auditing.epsilon_lower_bound(GOOD, delta=bad),
        lambda bad: auditing.choose_threshold(SCORES, SCORES, delta=bad),
        lambda bad: auditing.epsilon_from_reconstruction(1, 2, 0.5, delta=bad),
        lambda bad: auditing.audit_samples(SCORES, SCORES, claim=CLAIM, delta=bad),
        lambda bad: auditing.epsilon_from_mu(1.0, delta=bad),
    ],
)
@pytest.mark.parametrize("bad", [1.0, -1e-9, math.nan, "0"])
def test_a_delta_out_of_range_is_refused(call, bad):
    with pytest.raises(ValueError, match="delta must be"):
        call(bad)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, math.nan, "1", True])
def test_a_baseline_out_of_range_is_refused(bad):
    with pytest.raises(ValueError, match="kappa must be"):
        auditing.mu_from_reconstruction(1, 2, bad)
    with pytest.raises(ValueError, match="kappa must be"):
        auditing.epsilon_from_reconstruction(1, 2, bad, delta=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: auditing.rates_of((1, 2, 3, 4)), "outcome must be an Outcome"),
        (lambda: auditing.refutes(GOOD, 1.0), "claim must be a trade-off curve"),
        (lambda: auditing.epsilon_from_mu(-1.0, delta=0.1), "mu must be a finite number >= 0, got -1.0"),
        (lambda: auditing.epsilon_from_mu(math.nan, delta=0.1), "mu must be a finite number >= 0, got nan"),
        (lambda: auditing.epsilon_from_mu(1.0, delta=0.0), r"delta must be in \(0, 1\), got 0.0"),
        (lambda: auditing.success_lower_bound(3, 2), "n_success must be <= n_trials = 2, got 3"),
        (lambda: auditing.success_lower_bound(0, 0), "n_trials must be an integer >= 1, got 0"),
        (lambda: auditing.success_lower_bound(0.5, 2), "n_success must be an integer"),
        (lambda: auditing.outcome_at(math.nan, SCORES, SCORES), "threshold must be a number > -inf, got nan"),
        (lambda: auditing.outcome_at(-math.inf, SCORES, SCORES), "threshold must be a number > -inf, got -inf"),
        (lambda: auditing.outcome_at(0.0, [1, math.nan], SCORES), "null_scores must not be nan, got 1, the first at 1"),
        (lambda: auditing.outcome_at(0.0, SCORES, []), "alternative_scores must be a non-empty vector"),
        (lambda: auditing.choose_threshold([[1.0]], SCORES), "null_scores must be a non-empty vector"),
        (lambda: auditing.choose_threshold(SCORES, ["a"]), "alternative_scores must be a non-empty vector"),
        (lambda: auditing.choose_threshold(SCORES, SCORES, claim=CLAIM, delta=0.1), "must not both be given"),
        (lambda: auditing.choose_threshold(SCORES, SCORES, claim=1.0), "claim must be a trade-off curve"),
        (lambda: auditing.audit_samples(SCORES, SCORES, claim=None), "claim must be a trade-off curve"),
        (lambda: auditing.audit_samples([1.0], SCORES, claim=CLAIM), "null_scores must be two or more, got 1"),
        (lambda: auditing.audit_samples(SCORES, [math.nan, 1], claim=CLAIM), "alternative_scores must not be nan"),
    ],
)
def test_other_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": 0}, "key must be a single key"),
        ({"mechanism": "sum"}, "mechanism must be a function"),
        ({"mechanism": lambda _, x: np.random.default_rng(0).normal() * np.asarray(x)}, "must be traceable by JAX"),
        ({"mechanism": lambda _, x: x + 1j}, "mechanism must return non-empty arrays of real numbers"),
        ({"mechanism": lambda key, _: key}, "mechanism must return non-empty arrays of real numbers"),
        ({"mechanism": lambda *_: jnp.zeros((0,))}, "mechanism must return non-empty arrays of real numbers"),
        ({"mechanism": lambda _, x: (x, jnp.zeros(0))}, "mechanism must return non-empty arrays of real numbers"),
        ({"mechanism": lambda *_: None}, "mechanism must return non-empty arrays of real numbers"),
        ({"without": np.zeros(2)}, "mechanism must return the same shapes for both inputs"),
        ({"without": math.nan}, "without must be finite"),
        ({"with_target": np.array([0.0, math.inf])}, "with_target must be finite"),
        ({"with_target": "record"}, "with_target must be arrays of numbers"),
        ({"score": 3}, "score must be a function"),
        ({"score": lambda y: jnp.stack([y, y])}, "score must return a single real number"),
        ({"score": lambda y: y + 1j}, "score must return a single real number"),
        ({"score": lambda y: float(y)}, "score must be traceable by JAX"),
        ({"claim": "gaussian"}, "claim must be a trade-off curve"),
        ({"n": 1}, "n must be an integer >= 2, got 1"),
        ({"n": 1e5}, "n must be an integer"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\), got 1.0"),
        ({"confidence": 1.0}, r"confidence must be in \(0, 1\), got 1.0"),
        ({"tuning_share": 0.0}, r"tuning_share must be in \(0, 1\), got 0.0"),
    ],
)
def test_audits_of_mechanisms_refuse_bad_input(change, message):
    arguments = {
        "key": jax.random.key(0),
        "mechanism": gaussian_mechanism(1.0),
        "without": 0.0,
        "with_target": 1.0,
        "claim": CLAIM,
        "n": 10,
    }
    with pytest.raises(ValueError, match=message):
        auditing.audit_mechanism(**{**arguments, **change})


def test_bounds_invert_the_normal_distribution_exactly():
    rates = auditing.rates_of(GOOD)
    assert auditing.mu_lower_bound(GOOD) == pytest.approx(ndtri(rates.tpr_low) - ndtri(rates.fpr_high), rel=1e-12)

"""ROC figures: against scikit-learn and scipy, against what can be counted by hand, and intervals by simulation."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import mannwhitneyu, norm
from sklearn import metrics as sklearn_metrics

from drjax.attacks import roc
from drjax.bounds import tradeoff
from drjax.core.statistics import UNKNOWN, share_interval

KEY = jax.random.key(2)


def normal_scores(n=200, m=300, shift=1.0, seed=0, decimals=None):
    """Scores of n members and m others, which are d' = shift apart; rounding makes ties."""
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(shift, size=n), rng.normal(size=m)])
    flags = np.repeat([1, 0], [n, m])
    order = rng.permutation(n + m)
    return (scores if decimals is None else scores.round(decimals))[order], flags[order]


TIES = [None, 1, 0]


@pytest.mark.parametrize("decimals", TIES)
def test_curve_equals_scikit_learns(decimals):
    scores, flags = normal_scores(decimals=decimals)
    curve = roc.roc_curve(scores, flags)
    fpr, tpr, thresholds = sklearn_metrics.roc_curve(flags, scores, drop_intermediate=False)
    np.testing.assert_allclose(curve.fpr, fpr, atol=1e-15)
    np.testing.assert_allclose(curve.tpr, tpr, atol=1e-15)
    np.testing.assert_array_equal(curve.thresholds, thresholds)


@pytest.mark.parametrize("decimals", TIES)
def test_auc_equals_scikit_learns_and_mann_whitneys(decimals):
    scores, flags = normal_scores(decimals=decimals)
    estimate = roc.auc(scores, flags).estimate
    statistic = mannwhitneyu(scores[flags == 1], scores[flags == 0]).statistic
    assert estimate == pytest.approx(sklearn_metrics.roc_auc_score(flags, scores), abs=1e-14)
    assert estimate == pytest.approx(statistic / (200 * 300), abs=1e-14)


@pytest.mark.parametrize("decimals", TIES)
def test_the_interval_is_delongs_by_comparing_all_pairs(decimals):
    scores, flags = normal_scores(60, 40, decimals=decimals)
    kernel = np.sign(scores[flags == 1][:, None] - scores[flags == 0]) / 2 + 0.5
    variance = kernel.mean(axis=1).var(ddof=1) / 60 + kernel.mean(axis=0).var(ddof=1) / 40
    a, low, high = roc.auc(scores, flags, level=0.9)
    for bound, quantile in ((low, 0.05), (high, 0.95)):
        odds = np.log(a / (1 - a)) + norm.ppf(quantile) * np.sqrt(variance) / (a * (1 - a))
        assert bound == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_the_interval_holds_as_often_as_it_says(shift):
    truth = norm.cdf(shift / np.sqrt(2))
    intervals = [roc.auc(*normal_scores(50, 50, shift, seed)) for seed in range(400)]
    held = np.mean([low <= truth <= high for _, low, high in intervals])
    assert 0.92 < held < 0.98  # 0.95 give or take three standard errors of 400 simulations


def test_perfect_separation_has_an_interval_that_could_be_wrong_only_for_few_records():
    few, many = (roc.auc(np.repeat([1.0, 0.0], n), np.repeat([1, 0], n)) for n in (5, 500))
    assert few.estimate == many.estimate == 1
    assert few.low == share_interval(5, 5).low < 0.5
    assert many.low > 0.99
    reverse = roc.auc(np.repeat([0.0, 1.0], 5), np.repeat([1, 0], 5))
    assert reverse == pytest.approx((0, 1 - few.high, 1 - few.low))


def test_scores_that_are_all_equal_say_nothing():
    estimate, low, high = roc.auc(np.full(200, 0.1), np.repeat([1, 0], 100))
    assert estimate == 0.5
    assert low < 0.45
    assert high > 0.55
    assert roc.tpr_at_fpr(np.zeros(200), np.repeat([1, 0], 100), fpr=0.5).estimate == 0


def test_an_increasing_map_changes_nothing_and_certainty_may_be_infinite():
    scores, flags = normal_scores()
    spread = np.where(scores > 2, np.inf, np.where(scores < -2, -np.inf, np.exp(scores)))
    clipped = np.clip(scores, -2, 2)
    assert roc.auc(spread, flags) == roc.auc(clipped, flags)
    assert roc.roc_curve(spread, flags).fpr.tolist() == roc.roc_curve(clipped, flags).fpr.tolist()
    assert roc.evaluate(KEY, np.exp(scores), flags).tpr == roc.evaluate(KEY, scores, flags).tpr


@pytest.mark.parametrize("decimals", TIES)
@pytest.mark.parametrize("fpr", [0.01, 0.1, 0.29, 0.5, 1.0])
def test_tpr_is_the_largest_of_the_curve_that_keeps_to_the_rate(decimals, fpr):
    scores, flags = normal_scores(150, 100, decimals=decimals)
    curve = roc.roc_curve(scores, flags)
    best = curve.tpr[curve.fpr <= fpr + 1e-12].max()
    assert roc.tpr_at_fpr(scores, flags, fpr=fpr) == share_interval(round(best * 150), 150)


def test_a_rate_finer_than_one_record_cannot_be_measured():
    scores, flags = normal_scores(100, 100)
    assert roc.tpr_at_fpr(scores, flags, fpr=0.0099) is UNKNOWN
    assert np.isfinite(roc.tpr_at_fpr(scores, flags, fpr=0.01).estimate)


@pytest.mark.parametrize("decimals", TIES)
def test_columns_have_the_auc_that_each_has_alone(decimals):
    columns = [normal_scores(shift=s, seed=i, decimals=decimals)[0] for i, s in enumerate((0.0, 0.5, 2.0))]
    table = np.stack([*columns, np.zeros(500)], axis=1)
    flags = normal_scores()[1]
    expected = [roc.auc(column, flags).estimate for column in table.T]
    np.testing.assert_allclose(roc.auc_columns(table, flags), expected, rtol=0, atol=1e-14)


def test_balanced_accuracy_of_two_normals_is_what_theory_says():
    scores, flags = normal_scores(20_000, 20_000, shift=2.0)
    found = roc.balanced_accuracy(KEY, scores, flags)
    assert found.held_out.low < norm.cdf(1) < found.held_out.high
    assert found.held_out.high - found.held_out.low < 0.02
    assert found.threshold == pytest.approx(1, abs=0.15)  # flat at its best


def test_only_the_optimistic_accuracy_finds_something_in_noise():
    found = [roc.balanced_accuracy(KEY, *normal_scores(40, 40, 0.0, seed)) for seed in range(60)]
    held_out = np.array([f.held_out for f in found])
    assert min(f.optimistic for f in found) >= 0.5
    assert np.mean([f.optimistic for f in found]) > 0.55
    assert abs(held_out[:, 0].mean() - 0.5) < 0.03  # 3 standard errors: 0.08 / sqrt(60) each
    assert np.all((held_out[:, 1] <= 0.5) & (held_out[:, 2] >= 0.5))


@pytest.mark.parametrize("low", [0.0, -np.inf])
@pytest.mark.parametrize("high", [1.0, np.nextafter(0, 1), np.inf])
def test_scores_that_separate_are_always_right(low, high):
    found = roc.balanced_accuracy(KEY, np.repeat([high, low], 20), np.repeat([True, False], 20))
    assert found.held_out.estimate == found.optimistic == 1


def test_evaluate_reports_each_figure():
    scores, flags = normal_scores()
    found = roc.evaluate(KEY, scores, flags.astype(bool), rates=(0.1,), level=0.8)
    assert found.auc == roc.auc(scores, flags, level=0.8)
    assert found.tpr == {0.1: roc.tpr_at_fpr(scores, flags, fpr=0.1, level=0.8)}
    assert found.balanced_accuracy == roc.balanced_accuracy(KEY, scores, flags, level=0.8)
    assert (found.n_members, found.n_non_members) == (200, 300)


@pytest.mark.parametrize(
    ("scores", "flags", "message"),
    [
        ([1.0, np.nan, 0.0, 2.0], [1, 1, 0, 0], "nan"),
        ([[1.0, 2.0]], [1, 0], r"\(m,\)"),
        (["a", "b", "c", "d"], [1, 1, 0, 0], "numeric"),
        ([1.0, 2.0, 3.0, 4.0], [1, 1, 0], "is_member must have shape"),
        ([1.0, 2.0, 3.0, 4.0], [1, 2, 0, 0], "0 and 1"),
        ([1.0, 2.0, 3.0, 4.0], [1, np.nan, 0, 0], "0 and 1"),
        ([1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0], "members, got 0"),
        ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0], "non-members, got 1"),
    ],
)
def test_bad_scores_are_refused(scores, flags, message):
    with pytest.raises(ValueError, match=message):
        roc.evaluate(KEY, np.array(scores), np.array(flags))


@pytest.mark.parametrize("call", [roc.auc, lambda s, f, level: roc.tpr_at_fpr(s, f, fpr=0.1, level=level)])
@pytest.mark.parametrize("level", [0.0, 1.0, np.nan])
def test_a_level_must_lie_between_0_and_1(call, level):
    with pytest.raises(ValueError, match="level"):
        call(*normal_scores(), level=level)


@pytest.mark.parametrize("fpr", [0.0, -0.1, 1.1, np.nan])
def test_a_rate_must_be_a_share(fpr):
    with pytest.raises(ValueError, match="fpr"):
        roc.tpr_at_fpr(*normal_scores(), fpr=fpr)


@pytest.mark.parametrize("table", [np.zeros(4), np.zeros((4, 0)), np.full((4, 2), np.nan), np.full((4, 2), "a")])
def test_columns_must_be_a_table_of_numbers(table):
    with pytest.raises(ValueError, match="scores"):
        roc.auc_columns(table, np.array([1, 1, 0, 0]))


def test_a_key_is_needed_to_split():
    with pytest.raises(ValueError, match="key"):
        roc.balanced_accuracy(0, *normal_scores())


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 4.0])
def test_the_ceiling_of_a_gaussian_curve_is_its_closed_form(mu):
    found, exact = roc.auc_ceiling(tradeoff.Gaussian(mu)), norm.cdf(mu / np.sqrt(2))
    assert exact <= found <= exact + 2e-4  # sums to the right are above by a step of 5e-5 at most, and slack


def test_the_ceiling_is_the_integral_of_the_curve():
    curve = tradeoff.minimum(tradeoff.EpsilonDelta(1.0, 1e-3), tradeoff.ZCDP(0.4))
    integral = quad(lambda a: float(curve.power(a)), 0, 1, limit=500)[0]
    assert integral <= roc.auc_ceiling(curve) + 1e-6
    assert roc.auc_ceiling(curve) <= integral + 2e-4
    assert roc.auc_ceiling(tradeoff.EpsilonDelta(0.0, 0.0)) == pytest.approx(0.5, abs=1e-4)


def test_two_steps_of_a_gaussian_curve_are_one_of_twice_the_mu():
    assert roc.auc_ceiling(tradeoff.Gaussian(0.7), steps=2) == pytest.approx(norm.cdf(1.4 / np.sqrt(2)), abs=2e-4)


def test_the_ceiling_asks_for_a_curve():
    with pytest.raises(ValueError, match=r"curve must be a trade-off curve, got 0\.5"):
        roc.auc_ceiling(0.5)

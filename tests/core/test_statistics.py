"""Intervals against SciPy's tests and constructed answers."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from drjax.core import statistics
from drjax.core.statistics import (
    UNKNOWN,
    Moments,
    clopper_pearson_high,
    clopper_pearson_low,
    conformal_radius,
    half_width,
    mean_interval,
    normal_quantile,
    paired_share_interval,
    percentile_interval,
    prediction_interval,
    resampled,
    share_interval,
    standard_error,
)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [2, 3, 30])
def test_means_carry_the_interval_of_scipys_t_test(n, level):
    values = np.random.default_rng(n).normal(3, 2, n)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(level)
    np.testing.assert_allclose(mean_interval(values, level=level), (values.mean(), low, high), rtol=1e-12)  # rounding


def test_half_widths_and_standard_errors_of_a_table_are_those_of_its_columns():
    table = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(standard_error(table), stats.sem(table), rtol=1e-14)  # rounding
    ends = stats.ttest_1samp(table, 0).confidence_interval(0.95)
    np.testing.assert_allclose(half_width(table), (ends.high - ends.low) / 2, rtol=1e-12)
    assert half_width(table[:, 0]) == half_width(table)[0]


@pytest.mark.parametrize("shift", np.linspace(-1, 1, 9))
def test_the_lower_end_at_twice_the_level_less_one_is_the_one_sided_paired_t_test(shift):
    first, second = np.random.default_rng(1).normal(size=(2, 15))
    first += shift
    one_sided = stats.ttest_rel(first, second, alternative="greater")
    assert (mean_interval(first - second, level=2 * 0.95 - 1).low > 0) == (one_sided.pvalue < 0.05)


def test_an_interval_of_a_mean_is_cut_to_the_range_of_the_values():
    found = mean_interval([0.0, 0.9, 1.0], lowest=0.0, highest=1.0)
    assert (found.low, found.high) == (0, 1)
    assert mean_interval([0.0, 0.9, 1.0]).low < 0
    assert mean_interval([0.0, 0.9, 1.0]).high > 1


def test_one_number_has_no_interval_and_what_is_not_finite_no_mean():
    found = mean_interval([2.0], lowest=0.0)
    assert found.estimate == 2
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    for values in ([], [1.0, math.nan], [1.0, math.inf]):
        np.testing.assert_array_equal(mean_interval(values), UNKNOWN)


def test_a_normal_variable_is_within_the_quantile_as_often_as_said():
    for level in (0.5, 0.95, 0.999):
        assert 1 - 2 * stats.norm.sf(normal_quantile(level)) == pytest.approx(level, rel=1e-12)


@pytest.mark.parametrize("count", [0, 1, 7, 20])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_shares_carry_scipys_exact_binomial_interval(count, level):
    ours = share_interval(count, 20, level=level)
    theirs = stats.binomtest(count, 20).proportion_ci(confidence_level=level, method="exact")
    np.testing.assert_allclose(ours, (count / 20, theirs.low, theirs.high), atol=1e-8)  # SciPy solves by root finding


def test_the_ends_of_a_share_leave_the_tail_of_scipys_binomial_law():
    n, tail = 30, 0.01
    counts = np.arange(n + 1)
    low, high = clopper_pearson_low(counts, n, tail), clopper_pearson_high(counts, n, tail)
    assert (low[0], high[-1]) == (0, 1)
    np.testing.assert_allclose(stats.binom.sf(counts[1:] - 1, n, low[1:]), tail, rtol=1e-9)  # two inversions
    np.testing.assert_allclose(stats.binom.cdf(counts[:-1], n, high[:-1]), tail, rtol=1e-9)


def test_no_share_is_known_of_nothing_and_bad_counts_are_named():
    np.testing.assert_array_equal(share_interval(0, 0), UNKNOWN)
    for count, total, level, message in ((3, 2, 0.95, "count must be <= total"), (1, 2, 1.0, "level must be in")):
        with pytest.raises(ValueError, match=message):
            share_interval(count, total, level=level)


@pytest.mark.parametrize(("gained", "lost"), [(9, 2), (10, 2), (8, 1), (7, 1), (6, 0), (5, 0), (2, 9), (2, 10)])
def test_the_interval_of_paired_shares_leaves_out_zero_where_the_exact_mcnemar_test_rejects(gained, lost):
    found = paired_share_interval(gained, lost, 40)
    assert found.estimate == pytest.approx((gained - lost) / 40)  # one rounding
    p = stats.binomtest(gained, gained + lost).pvalue
    assert (found.low > 0 or found.high < 0) == (p < 0.05)


def test_paired_shares_that_never_differ_may_still_differ_by_what_no_case_of_all_leaves_possible():
    found = paired_share_interval(0, 0, 25)
    assert (found.estimate, found.low) == (0, -found.high)
    assert found.high == pytest.approx(stats.binomtest(0, 25).proportion_ci(0.95).high)


def test_a_percentile_bootstrap_is_scipys_up_to_the_draws():
    sample = np.random.default_rng(0).exponential(size=80)
    draws = resampled(np.random.default_rng(1), sample, lambda some: some.mean(axis=1), 4000)
    ours = percentile_interval(sample.mean(), draws, level=0.9)
    theirs = stats.bootstrap(
        (sample,), np.mean, confidence_level=0.9, n_resamples=4000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    # 4,000 resamples place a 5% quantile within about 3% of the half width; 10% is beyond three such errors.
    np.testing.assert_allclose(ours[1:], theirs, atol=0.05 * (theirs.high - theirs.low))
    assert ours.estimate == sample.mean()


def test_rows_of_a_sample_stay_together_when_it_is_drawn_again():
    pairs = np.stack([np.arange(20.0), 2 * np.arange(20.0)], axis=1)
    draws = resampled(np.random.default_rng(0), pairs, lambda some: some.sum(axis=1), 50)
    np.testing.assert_array_equal(draws[:, 1], 2 * draws[:, 0])
    assert np.unique(draws[:, 0]).size > 25


def test_samples_are_those_of_a_plain_loop_however_many_are_drawn_at_once(monkeypatch):
    sample = np.random.default_rng(0).exponential(size=(30, 2))
    rng = np.random.default_rng(1)
    expected = [sample[rng.integers(30, size=30)] for _ in range(50)]
    for at_once in (1, 300, 2**20):
        monkeypatch.setattr(statistics, "AT_ONCE", at_once)
        found = resampled(np.random.default_rng(1), sample, np.asarray, 50)
        np.testing.assert_array_equal(found, expected)


def test_a_further_draw_is_in_the_announced_range_as_often_as_said():
    rng = np.random.default_rng(0)
    found = [prediction_interval(row, level=0.8) for row in rng.exponential(size=(4000, 19))]
    covered = [ends.low <= new <= ends.high for ends, new in zip(found, rng.exponential(size=4000), strict=True)]
    assert abs(np.mean(covered) - 0.8) < 4 * math.sqrt(0.16 / 4000)  # four deviations; the draws' own quantiles: 0.72


def test_conformal_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    residuals = np.sort(rng.exponential(size=(4000, 19)), axis=1)
    fresh = rng.exponential(size=4000)
    for level in (0.5, 0.7, 0.9, 0.95):
        covered = np.mean([new <= conformal_radius(old, level) for old, new in zip(residuals, fresh, strict=True)])
        # Exactly ceil(20 level) / 20, which here is level; four deviations of 4,000 draws.
        assert abs(covered - level) < 4 * np.sqrt(level * (1 - level) / 4000)


def test_too_few_residuals_give_no_finite_interval():
    residuals = np.arange(9.0)
    assert conformal_radius(residuals, 0.9) == 8
    assert conformal_radius(residuals, 0.91) == np.inf
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="level"):
            conformal_radius(residuals, level)


def test_moments_of_parts_are_those_of_the_whole():
    # Far from 0, where sums of squares less the square of the mean would have no digit left.
    values = 1e8 + np.random.default_rng(0).normal(size=(50, 3, 2))
    parts = [Moments.of(part) for part in np.split(values, [1, 7, 30])]
    count, mean, squares = functools.reduce(Moments.merged, parts)
    assert count == 50
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(squares, 50 * values.var(axis=0), rtol=1e-6)

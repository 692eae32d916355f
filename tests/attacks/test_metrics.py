"""Attack metrics against constructed answers, closed forms and SciPy."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from drjax.attacks import metrics
from drjax.core.statistics import share_interval
from drjax.core.types import Status


def records(n, d=6, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, d))


def score(reconstructions, targets, *, neighbors=None, decoys=None, seed=0, **options):
    d = targets.shape[1]
    neighbors = records(40, d, seed=1) if neighbors is None else neighbors
    decoys = records(19, d, seed=2) if decoys is None else decoys
    options = {"seconds": 1.0, **options}
    return metrics.evaluate(
        jax.random.key(seed), reconstructions, targets, neighbors=neighbors, decoys=decoys, **options
    )


def test_an_exact_reconstruction_has_no_error_and_succeeds_every_time():
    x = records(25)
    scores = score(x, x, seconds=5.0)
    assert scores.mse == scores.mse_median == (0.0, 0.0, 0.0)
    assert scores.success.estimate == scores.identification.estimate == 1.0
    assert scores.success.low == pytest.approx(0.025 ** (1 / 25))  # Clopper-Pearson's lower bound at 25 of 25
    assert scores.identification_chance == 1 / 20
    assert (scores.n_targets, scores.n_excluded, scores.seconds_per_target) == (25, 0, 0.2)


def test_an_error_far_below_rounding_of_the_squared_norms_is_reported():
    x = 1e-3 * records(8)
    shift = 2.0**-50  # a power of two near 1e-15: representable beside 1e-3 up to a relative 2e-4
    errors = metrics.mean_squared_errors(x + shift, x)
    np.testing.assert_allclose(errors, shift**2, rtol=1e-2)
    assert score(x + shift, x).success.estimate == 1.0


def test_mean_squared_errors_are_in_the_units_of_eta():
    x, y = records(7), records(7, seed=3)
    eta = np.sqrt(x.shape[1] * metrics.mean_squared_errors(y, x))
    np.testing.assert_allclose(eta, np.linalg.norm(x - y, axis=1), rtol=1e-14)  # float64 sums of six terms


def test_the_mean_record_succeeds_exactly_where_the_target_is_closer_to_it_than_to_any_record():
    x, known = records(200, d=3), records(15, d=3, seed=4)
    mean = np.tile(known.mean(axis=0), (200, 1))
    to_mean = np.linalg.norm(x - mean, axis=1)
    to_known = np.linalg.norm(x[:, None] - known, axis=2).min(axis=1)
    scores = score(mean, x, neighbors=known)
    assert 0 < np.mean(to_mean < to_known) < 1
    assert scores.success.estimate == np.mean(to_mean < to_known)
    assert scores.mse.estimate == pytest.approx(np.mean((x - mean) ** 2), rel=1e-12)  # other order of summation
    assert scores.mse_median.estimate == pytest.approx(np.median(np.mean((x - mean) ** 2, axis=1)), rel=1e-12)


def gains(scores):
    return [interval.estimate for interval in scores.gain[:3]]


def test_the_mean_record_gains_nothing_over_itself_though_it_is_closer_than_every_record():
    x = np.random.default_rng(0).normal(size=(200, 40))
    mean = np.zeros_like(x)
    scores = score(mean, x, neighbors=np.random.default_rng(1).normal(size=(200, 40)), mean_record=mean)
    assert scores.success.estimate > 0.7
    assert gains(scores) == [0, 0, 0]
    assert scores.gain.error == (0, 0, 0)
    assert scores.gain.identification.low < 0 < scores.gain.identification.high


def test_an_exact_reconstruction_takes_the_whole_error_away_and_rebuilds_all():
    x = records(25)
    scores = score(x, x, mean_record=np.full_like(x, 0.5))
    assert scores.gain.error == (1, 1, 1)
    assert scores.gain.rebuilt == share_interval(25, 25)
    assert scores.gain.identification.low > 0
    assert score(x, x).gain is None


def test_a_target_is_rebuilt_when_closer_than_any_record_with_less_than_half_of_the_mean_records_error():
    # Each target lies along an axis of its own, as they must not be all one.
    away, axes = np.array([0.0, 100, 200, 300])[:, None] * [0.0, 1.0], np.tile([1.0, 0.0], (4, 1))
    truth, mean = away, away + 2.0 * axes  # squared error 4
    guess = away + np.array([1.4, np.sqrt(2.0) + 1e-6, 0.9, 1.6])[:, None] * axes
    near, far = away + axes, away + 9.0 * axes
    assert score(guess, truth, neighbors=far, mean_record=mean).gain.rebuilt.estimate == 0.5
    assert score(guess, truth, neighbors=near, mean_record=mean).gain.rebuilt.estimate == 0.25


def test_a_target_with_a_twin_is_rebuilt_when_found_to_a_hundredth_of_the_mean_records_error():
    """Nothing is closer than a twin; but that the target has one is what the release tells."""
    truth = np.array([[0.0, 0.0], [0.0, 100.0], [0.0, 200.0]])
    mean, guess = truth + np.array([2.0, 0.0]), truth + np.array([[0.0], [0.19], [0.21]]) * [1.0, 0.0]
    for apart in (0.0, 1e-9, 0.1):  # a twin, and records nearer than the attack comes
        scores = score(guess, truth, neighbors=truth + np.array([0.0, apart]), mean_record=mean)
        assert scores.gain.rebuilt.estimate == 2 / 3
    assert score(guess, truth, neighbors=truth, mean_record=mean).success.estimate == 0


def test_targets_that_are_all_one_or_a_mean_that_is_exact_leave_nothing_to_compare():
    x = np.tile(records(1), (20, 1))
    for truth, mean in ((x, x + 1), (records(20), records(20))):
        found = score(truth, truth, mean_record=mean).gain
        assert all(math.isnan(value) for interval in found[:3] for value in interval)


def test_what_the_reconstructions_of_others_rebuild_is_chance():
    x = np.array([[0.0, 1.0]] * 8 + [[1.0, 0.0]] * 2)
    mode = np.tile([0.0, 1.0], (10, 1))
    mean = np.tile(x.mean(axis=0), (10, 1))
    found = score(mode, x, neighbors=x, mean_record=mean).gain
    assert found.rebuilt.estimate == pytest.approx(0.8)
    assert found.by_chance == pytest.approx(0.8)  # rounding of a product
    assert score(x, x, neighbors=x, mean_record=mean).gain.by_chance == pytest.approx((8 * 7 + 2) / 90)


def test_the_error_taken_away_is_paired_target_by_target():
    """Both errors spread over a factor of 1e4; their ratio does not, and the interval is as narrow as the ratio."""
    x = np.exp(np.random.default_rng(0).normal(scale=2, size=(60, 1))) * np.ones((1, 3))
    scores = score(0.6 * x, x, neighbors=records(9, 3), decoys=records(9, 3), mean_record=np.zeros_like(x))
    np.testing.assert_allclose(scores.gain.error, 1 - 0.4**2, rtol=1e-12)  # rounding of sums


def test_the_excess_of_identification_counts_the_targets_that_one_of_the_two_identifies():
    decoys, x = np.array([[0.0, 0.0]]), np.array([[1.0, 1e-3 * i] for i in range(20)])
    mean, guess = np.tile([0.4, 0.0], (20, 1)), x.copy()
    mean[:8] = guess[:2] = [0.9, 0.0]  # the mean record identifies 8 of 20
    guess[2:5] = [0.1, 0.0]  # and 3 that the attack does not
    scores = score(guess, x, decoys=decoys, mean_record=mean)
    assert scores.identification.estimate == 17 / 20
    assert scores.gain.identification.estimate == pytest.approx((17 - 8) / 20)  # one rounding
    share = share_interval(12, 15)
    assert scores.gain.identification.low == pytest.approx((2 * share.low - 1) * 15 / 20)


@pytest.mark.parametrize("seed", range(4))
def test_an_attack_that_guesses_as_the_mean_record_does_gains_an_error_of_zero_within_its_interval(seed):
    x = np.random.default_rng(seed).normal(size=(150, 5))
    guess = np.random.default_rng(seed + 50).normal(scale=1e-3, size=x.shape)
    gain = score(guess, x, mean_record=-guess).gain
    assert gain.error.low < 0 < gain.error.high
    assert gain.rebuilt.estimate == 0


def test_only_usable_targets_enter_the_comparison_with_the_mean_record():
    x = records(30)
    guess, status = x + 0.01, np.zeros(30, np.uint32)
    guess[:5], status[5:9] = np.nan, Status.DEGENERATE
    scores = score(guess, x, mean_record=np.full_like(x, 0.5), status=status)
    error = 1 - 6 * 21 * 1e-4 / np.sum((x[9:] - 0.5) ** 2)
    assert scores.gain.error.estimate == pytest.approx(error)  # rounding of sums
    assert scores.gain.rebuilt == share_interval(21, 21)


def test_identification_counts_the_reconstructions_nearer_to_their_target_than_to_every_decoy():
    x, decoys = records(150, d=4), records(10, d=4, seed=5)
    guess = x + np.random.default_rng(6).normal(scale=0.3, size=x.shape)
    expected = np.linalg.norm(guess - x, axis=1) < np.linalg.norm(guess[:, None] - decoys, axis=2).min(axis=1)
    assert 0 < expected.mean() < 1
    assert score(guess, x, decoys=decoys).identification.estimate == expected.mean()


def test_ties_count_against_the_attack():
    target, guess, other = np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]])
    # The guess is 1 from the target and from the decoy; the nearest record is 1 from the target.
    scores = score(guess, target, neighbors=np.array([[0.0, -1.0]]), decoys=other)
    assert scores.success.estimate == scores.identification.estimate == 0.0


def test_a_decoy_equal_to_the_target_is_no_rival():
    x = records(12, d=3)
    twins = np.concatenate([x, x, records(5, d=3, seed=7)])
    assert score(x, x, decoys=twins).identification.estimate == 1.0
    assert score(x, x, decoys=x[:1]).identification.estimate == 1.0
    assert (
        score(np.zeros((1, 2)), np.array([[0.0, 1.0]]), decoys=np.array([[-0.0, 1.0]])).identification.estimate == 1.0
    )


def test_a_known_copy_of_the_target_leaves_nothing_to_reveal():
    x = records(5)
    assert score(x, x, neighbors=x).success.estimate == 0.0


def test_failed_lanes_are_left_out_and_counted():
    x = records(10)
    guess = x.copy()
    guess[0] = np.nan
    guess[1, 2] = np.inf
    status = np.zeros(10, np.uint32)
    status[2], status[3], status[4] = Status.DEGENERATE, Status.NON_FINITE, Status.NOT_CONVERGED
    guess[2:4] += 100
    scores = score(guess, x, status=status)
    assert (scores.n_targets, scores.n_excluded) == (10, 4)
    assert scores.mse == (0.0, 0.0, 0.0)
    assert scores.success.low == pytest.approx(0.025 ** (1 / 6))  # six targets remain, all successes


def test_without_a_usable_lane_every_figure_is_nan():
    x = records(3)
    scores = score(np.full_like(x, np.nan), x)
    assert scores.n_excluded == 3
    for interval in (scores.mse, scores.mse_median, scores.success, scores.identification):
        assert all(math.isnan(v) for v in interval)


def test_equal_keys_give_equal_intervals_and_others_do_not():
    x, guess = records(50), records(50, seed=8)
    assert score(guess, x, seed=1) == score(guess, x, seed=1)
    assert score(guess, x, seed=1).mse != score(guess, x, seed=2).mse


def test_the_bootstrap_interval_of_the_mean_agrees_with_the_normal_one():
    x, guess = records(2000, d=4), records(2000, d=4, seed=9)
    errors = np.mean((x - guess) ** 2, axis=1)
    half = stats.norm.ppf(0.95) * errors.std() / math.sqrt(errors.size)
    mse = score(guess, x, level=0.9, n_bootstrap=4000).mse
    # 4,000 resamples place a 5% quantile within about 3% of the half width; 10% is beyond three such errors.
    assert mse.low == pytest.approx(errors.mean() - half, abs=0.1 * half)
    assert mse.high == pytest.approx(errors.mean() + half, abs=0.1 * half)


def test_the_bootstrap_interval_of_the_median_covers_the_true_median():
    rng = np.random.default_rng(10)
    covered = 0
    for seed in range(200):
        # One coordinate: the per-target MSE is a squared normal, whose median is chi-square's.
        guess = rng.normal(size=(60, 1))
        interval = score(guess, np.zeros((60, 1)), seed=seed, n_bootstrap=200).mse_median
        covered += interval.low <= stats.chi2.ppf(0.5, 1) <= interval.high
    assert covered >= 180  # 95% nominal; fewer than 180 of 200 has probability 0.002 even at a true 94%


@pytest.mark.parametrize("entries", [12, 4 * 2**20])
def test_the_nearest_record_is_found_whatever_the_chunk(monkeypatch, entries):
    monkeypatch.setattr(metrics, "CHUNK_ENTRIES", entries)
    queries, pool = records(9), records(31, seed=11)
    row, squared = metrics.nearest(queries, pool)
    distances = np.sum((queries[:, None] - pool) ** 2, axis=2)
    np.testing.assert_array_equal(row, distances.argmin(axis=1))
    np.testing.assert_allclose(squared, distances.min(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(metrics.nearest(pool, pool)[1], 0.0)
    x = pool[:4]
    assert score(x, x, decoys=pool).identification.estimate == 1.0


def test_decoys_are_different_rows_of_the_pool():
    pool = np.arange(30.0).reshape(30, 1)
    drawn = metrics.sample_decoys(jax.random.key(3), pool, 20)
    assert drawn.shape == (20, 1)
    assert np.unique(drawn).size == 20
    assert set(drawn.ravel()) <= set(pool.ravel())
    assert not np.array_equal(drawn, metrics.sample_decoys(jax.random.key(4), pool, 20))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reconstructions": np.zeros((3, 2))}, "reconstructions must be numeric with the targets' shape"),
        ({"neighbors": np.zeros((4, 5))}, "neighbors must have 6 columns"),
        ({"decoys": np.full((4, 6), np.nan)}, "decoys must be finite"),
        ({"targets": np.full((3, 6), np.inf)}, "targets must be finite"),
        ({"status": np.zeros(2, np.uint32)}, "status must have shape"),
        ({"seconds": math.nan}, "seconds must be >= 0"),
        ({"level": 1.0}, "level must be in"),
        ({"n_bootstrap": 0}, "n_bootstrap must be an integer"),
        ({"key": 0}, "key must be a single key"),
    ],
)
def test_bad_input_is_named(change, message):
    x = records(3)
    arguments = {"key": jax.random.key(0), "reconstructions": x, "targets": x, "neighbors": x, "decoys": x}
    arguments |= {"seconds": 0.0, **change}
    with pytest.raises(ValueError, match=message):
        metrics.evaluate(**arguments)


def test_more_decoys_than_the_pool_holds_are_refused():
    with pytest.raises(ValueError, match="n must be <= the rows of pool = 3, got 4"):
        metrics.sample_decoys(jax.random.key(0), records(3), 4)


def test_equation_12_is_the_mean_squared_distance_of_two_reconstructions_and_blind_to_the_record():
    clean = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    noisy = np.array([[1.0, 2.0, 1.0], [1.0, 2.0, 0.0]])
    assert metrics.noisy_reconstruction_shift(clean, noisy) == 7.0  # (1 + 4 + 9) / 2, not divided by 3
    rng = np.random.default_rng(0)
    truth, a, b = rng.random((3, 50, 20))
    assert metrics.noisy_reconstruction_shift(a, b) == pytest.approx(np.mean(np.linalg.norm(a - b, axis=1) ** 2))
    # Reflected in the record, an answer moves twice its error and is exactly as close.
    mirrored = 2 * truth - a
    before, after = (metrics.mean_squared_errors(x, truth) for x in (a, mirrored))
    np.testing.assert_allclose(before, after)
    assert metrics.noisy_reconstruction_shift(a, mirrored) == pytest.approx(4 * 20 * before.mean())
    # An answer that ignores the release moves by nothing.
    assert metrics.noisy_reconstruction_shift(a, a) == 0
    with pytest.raises(ValueError, match=r"noisy must have the shape of clean \(50, 20\), got \(49, 20\)"):
        metrics.noisy_reconstruction_shift(a, b[1:])
    with pytest.raises(ValueError, match="noisy must be finite"):
        metrics.noisy_reconstruction_shift(a, np.full_like(b, np.nan))


@pytest.mark.parametrize("entries", [12, 4 * 2**20])
def test_rows_that_are_left_out_are_not_found(monkeypatch, entries):
    monkeypatch.setattr(metrics, "CHUNK_ENTRIES", entries)
    pool = records(31, seed=11)
    between = np.sum((pool[:, None] - pool) ** 2, axis=2)
    excluded = [[i, (i + 1) % 31] for i in range(31)]
    for i, rows in enumerate(excluded):
        between[i, rows] = np.inf
    row, squared = metrics.nearest(pool.astype(np.float32).astype(float), pool, excluded=excluded)
    np.testing.assert_array_equal(row, between.argmin(axis=1))
    np.testing.assert_allclose(squared, between.min(axis=1), rtol=1e-5)
    row, squared = metrics.nearest(pool[:1], pool, excluded=[range(31)])
    assert (row.tolist(), squared.tolist()) == ([-1], [np.inf])

import numpy as np
import pytest
import scipy.stats

from drjax.attacks.column_gain import CLOSE_COLUMN, column_gain

M = 200


def table(seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.normal(size=(M, 4))
    return rng, targets, np.zeros((M, 4))


def test_a_column_that_is_known_is_close_and_the_others_are_not():
    rng, targets, mean = table()
    guess = mean.copy()
    guess[:, 2] = targets[:, 2] + 0.05 * rng.normal(size=M)
    found = column_gain(guess, targets, mean, ["a", "b", "c", "d"])
    assert (found.n_columns, found.n_learned, found.n_close, found.closest) == (4, 1, 1, "c")
    left = np.sum((guess[:, 2] - targets[:, 2]) ** 2) / np.sum((targets[:, 2] - targets[:, 2].mean()) ** 2)
    assert found.taken == pytest.approx(1 - left, rel=1e-9)


def test_the_interval_is_that_of_a_ratio_estimate_for_all_columns_together():
    rng, targets, mean = table(1)
    for scale in np.linspace(0.2, 0.45, 12):
        guess = mean.copy()
        guess[:, 1] = targets[:, 1] + scale * rng.normal(size=M)
        own, blind = (guess[:, 1] - targets[:, 1]) ** 2, (targets[:, 1] - targets[:, 1].mean()) ** 2
        ratio = own.sum() / blind.sum()
        deviation = np.sqrt(np.var(own - ratio * blind, ddof=1) * M) / blind.sum()
        high = ratio + scipy.stats.t.ppf(1 - 0.05 / 8, M - 1) * deviation
        assert (column_gain(guess, targets, mean).n_close == 1) == (1 - high > CLOSE_COLUMN)


def test_features_of_one_column_count_together():
    rng, targets, mean = table(2)
    guess = mean.copy()
    guess[:, 0] = targets[:, 0]
    assert column_gain(guess, targets, mean).n_close == 1
    # Half of a column is not the column.
    assert column_gain(guess, targets, mean, ["a", "a", "b", "b"]).n_close == 0
    guess[:, 1] = targets[:, 1] + 0.01 * rng.normal(size=M)
    together = column_gain(guess, targets, mean, ["a", "a", "b", "b"])
    assert (together.n_columns, together.n_close, together.closest) == (2, 1, "a")


def test_guesses_that_know_nothing_are_no_gain_and_constant_columns_do_not_count():
    fired = 0
    for seed in range(200):
        rng, targets, mean = table(seed + 10)
        fired += column_gain(0.3 * rng.normal(size=(M, 4)), targets, mean).n_learned > 0
    assert fired <= 20
    _, targets, mean = table()
    targets[:, 3] = 1
    assert column_gain(targets, targets, mean).n_columns == 3
    assert column_gain(np.ones((M, 1)), np.ones((M, 1)), np.zeros((M, 1))).n_columns == 0
    with pytest.raises(ValueError, match="columns must have 4 names, one for each feature, got 2"):
        column_gain(mean, targets, mean, ["a", "b"])
